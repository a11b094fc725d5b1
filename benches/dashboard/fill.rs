//! Rows of a year, made by SQL: occurrences of schedules and of recorded messages, their events and logs, dead
//! letters, waiting messages, changes. Each is made from its number, so that pages can be asked for any of them.

use jiff::Timestamp;
use miette::{IntoDiagnostic, ensure};
use serde::Serialize;

use crate::common::show::note;
use crate::place::Place;
use crate::site;

/// Length of the time that the rows are of, in milliseconds.
const YEAR_MS: u64 = 365 * 86_400_000;

/// Number of rows that one statement makes.
const TOGETHER: u64 = 500_000;

/// Share of the occurrences, the newest ones, that have events and a log: one of so many.
const WITH_EVENTS: u64 = 10;
const WITH_LOG: u64 = 10_000;

/// Numbers of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Amounts {
    pub(crate) occurrences: u64,
    pub(crate) dead_letters: u64,
    pub(crate) waiting: u64,
    pub(crate) schedules: u64,
}

impl Amounts {
    pub(crate) fn divided_by(self, divisor: u64) -> Self {
        Self {
            occurrences: self.occurrences / divisor,
            dead_letters: self.dead_letters / divisor,
            waiting: self.waiting / divisor,
            schedules: self.schedules,
        }
    }
}

/// Rows that are there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Filled {
    pub(crate) amounts: Amounts,
    /// Time of the first occurrence, in milliseconds.
    begin_ms: u64,
}

impl Filled {
    /// Time from one occurrence to the next, in milliseconds.
    fn step_ms(&self) -> u64 {
        YEAR_MS / self.amounts.occurrences
    }

    /// Returns when an occurrence was queued, in milliseconds.
    pub(crate) fn queued_ms(&self, number: u64) -> u64 {
        self.begin_ms + number * self.step_ms()
    }

    /// Returns the id of an occurrence.
    pub(crate) fn occurrence(&self, number: u64) -> String {
        let millis = format!("{:012x}", self.queued_ms(number));
        let (first, second) = millis.split_at(8);
        format!("{first}-{second}-7000-8000-{number:012x}")
    }
}

/// Fills the database, unless it has these rows already.
pub(crate) fn fill(place: &Place, amounts: Amounts) -> miette::Result<Filled> {
    site::create_tables(place)?;
    let there =
        place.number("SELECT count(*) FROM (SELECT 1 FROM ledger_audit LIMIT 1) AS some")?;
    if there == 0 {
        note(format_args!("rows: {amounts:?}"));
        let now = u64::try_from(Timestamp::now().as_millisecond()).into_diagnostic()?;
        let filled = Filled {
            amounts,
            begin_ms: now - YEAR_MS,
        };
        Filling { place, filled }.all()?;
    }
    let first = place.column("SELECT min(id) FROM occurrences")?.concat();
    let millis = first
        .replace('-', "")
        .get(..12)
        .unwrap_or_default()
        .to_owned();
    let begin_ms = u64::from_str_radix(&millis, 16).into_diagnostic()?;
    let filled = Filled { amounts, begin_ms };
    let last = filled.occurrence(amounts.occurrences - 1);
    let last = format!("SELECT count(*) FROM occurrences WHERE id = '{last}'");
    ensure!(
        place.number(&last)? == 1,
        "the file was filled with other amounts"
    );
    Ok(filled)
}

/// Tables whose indexes are made when the rows are there, which is faster.
const FILLED: &str = "'occurrences', 'occurrence_events', 'poisoned_messages'";

const OCCURRENCES: &str = "
INSERT INTO occurrences (id, schedule, version, slot, queue, state, reason, attempt, queued_at, started_at, ended_at,
  error, missed, watched, result, source, message_id, worker, trace_id, fingerprint, exit_code, correlation_id, resolved)
SELECT substr(hex, 1, 8) || '-' || substr(hex, 9, 4) || '-7000-8000-' || $HEX(i),
  CASE WHEN recorded THEN '' ELSE 's' || (i * 7919 % $SCHEDULES) END, 1, CASE WHEN recorded THEN NULL ELSE at END,
  'q' || (i % 8), state, CASE state WHEN 7 THEN 'overlap' END, 1 + (CASE WHEN state = 3 THEN 2 ELSE 0 END),
  at, CASE WHEN state <> 7 THEN at + 5 + i % 900 END, CASE WHEN state <> 1 THEN at + 50 + i * 31 % 60000 END,
  CASE state WHEN 3 THEN $ERROR WHEN 5 THEN 'timed out after 30s' END, 0, 2,
  CASE WHEN state = 2 AND i % 2 = 0 THEN '{\"rows\": ' || (i % 5000) || '}' END,
  CASE WHEN recorded THEN 'main' END, CASE WHEN recorded THEN 'message-' || i END,
  '{\"daemon\":\"host-' || (i % 3) || ' 4711\",\"pid\":' || (1000 + i % 400) || ',\"pool\":\"p' || (i % 8) || '\",\"worker\":1}',
  CASE WHEN i % 10 = 0 THEN $HEX(i) || '00000000000000000000' END,
  CASE state WHEN 3 THEN $HEX(i * 13 % 200) || 'ffff' WHEN 5 THEN '5555555555555555' END,
  CASE WHEN state = 3 AND i % 3 = 0 THEN 1 END, CASE WHEN recorded THEN 'order-' || (i / 3) END,
  CASE WHEN state IN (3, 5) AND i < $HALF THEN 'known' END
FROM (
  SELECT i, i % 10 < 3 AS recorded, at, $HEX(at) AS hex,
    CASE WHEN i >= $COUNT - 100 THEN 1 WHEN i % 50 = 0 THEN 3 WHEN i % 501 = 0 THEN 5 WHEN i % 301 = 0 THEN 4
      WHEN i % 20 = 4 THEN 7 ELSE 2 END AS state
  FROM (SELECT i, $BEGIN + i * $STEP AS at FROM $NUMBERS) AS times
) AS all_of_them";

const EVENTS: &str = "
INSERT INTO occurrence_events (occurrence, at, from_state, to_state, attempt, note)
SELECT id, CASE step WHEN 0 THEN queued_at WHEN 1 THEN started_at ELSE ended_at END,
  CASE step WHEN 0 THEN NULL ELSE step - 1 END, CASE step WHEN 2 THEN state ELSE step END,
  CASE step WHEN 0 THEN 0 ELSE attempt END, NULL
FROM occurrences CROSS JOIN (SELECT 0 AS step UNION ALL SELECT 1 UNION ALL SELECT 2) AS steps
WHERE id >= '$FROM' AND started_at IS NOT NULL AND (step < 2 OR ended_at IS NOT NULL)";

const LOGS: &str = "
INSERT INTO occurrence_logs (occurrence, line, at, attempt, stream, level, text)
SELECT id, i, started_at + i, 1, 'stderr', 'info', 'batch ' || i || ' of 200 is written: 50 rows'
FROM occurrences CROSS JOIN $NUMBERS WHERE id >= '$FROM' AND started_at IS NOT NULL";

const DEAD: &str = "
INSERT INTO poisoned_messages (pool, queue, reason, error, attempts, crashes, lapses, exit_code, oom, stderr,
  first_failed_at, last_failed_at, body, headers, correlation_id, message_id, content_type, priority, created_at)
SELECT 'p' || (i % 8), 'q' || (i % 8),
  CASE WHEN i % 20 = 0 THEN 'rejected' WHEN i % 33 = 0 THEN 'crashed' WHEN i % 41 = 0 THEN 'timed_out' ELSE 'failed' END,
  $ERROR, 20, CASE WHEN i % 33 = 0 THEN 3 ELSE 0 END, 0, CASE WHEN i % 33 = 0 THEN 1 END, 0,
  '[\"Traceback (most recent call last):\",\"  File worker.py, line ' || (i % 500) || '\",\"TimeoutError\"]',
  at - 3600000, at, '{\"order\": ' || i || ', \"customer\": {\"id\": ' || (i % 10007) || ', \"name\": \"Customer ' ||
    (i % 10007) || '\"}, \"lines\": [{\"article\": ' || (i % 997) || ', \"amount\": 3}, {\"article\": 17, \"amount\": 1}]}',
  '{\"x-tenant\": \"' || (i % 100) || '\"}', 'order-' || (i / 3), 'dead-' || i, 'application/json', 0, at - 7200000
FROM (SELECT i, $BEGIN + i * $STEP AS at FROM $NUMBERS) AS times";

/// Two hundred kinds of error, some with numbers of their own.
const ERROR: &str = "
CASE i * 13 % 4
  WHEN 0 THEN 'connection to payments-' || (i * 13 % 200) || '.internal refused (errno 111)'
  WHEN 1 THEN 'division by zero in line ' || (i * 13 % 200)
  WHEN 2 THEN 'HTTP 503 from https://api.example/v' || (i * 13 % 200) || '/invoices: upstream is not ready'
  ELSE 'KeyError: ''customer_' || (i * 13 % 200) || '''' END";

const WAITING: &str = "
INSERT INTO consumer_messages (queue, body, message_id, available_after)
SELECT 'q' || (i % 8), '{\"order\": ' || i || '}', 'later-' || i, 4102444800000 + i FROM $NUMBERS";

const SCHEDULES: &str = "
INSERT INTO schedules (name, definition)
SELECT 's' || i, '{\"cron\": \"' || (i % 60) || ' ' || (CASE WHEN i % 5 = 0 THEN '*' ELSE '' || (i % 24) END) ||
  ' * * *\", \"queue\": \"q' || (i % 8) || '\", \"tags\": [\"team-' || (i % 20) || '\"' ||
  (CASE WHEN i % 3 = 0 THEN ', \"nightly\"' ELSE '' END) || '], \"zone\": \"Europe/Berlin\"}'
FROM $NUMBERS";

const CHANGES: &str = "
INSERT INTO ledger_audit (at, actor, action, subject, detail)
SELECT $BEGIN + i * $STEP, 'user ' || (i % 7), CASE i % 3 WHEN 0 THEN 'pause' WHEN 1 THEN 'resume' ELSE 'trigger' END,
  's' || (i % $SCHEDULES), '{\"reason\": \"number ' || i || '\"}'
FROM $NUMBERS";

struct Filling<'a> {
    place: &'a Place,
    filled: Filled,
}

impl Filling<'_> {
    fn all(&self) -> miette::Result<()> {
        let amounts = self.filled.amounts;
        if self.place.is_file() {
            // It is made anew if this is interrupted.
            self.place.run("PRAGMA journal_mode = OFF")?;
        }
        let indexes = self.without_indexes()?;
        self.parts("occurrences", OCCURRENCES, amounts.occurrences)?;
        let newest = |share: u64| amounts.occurrences - amounts.occurrences / share;
        let events = EVENTS.replace("$FROM", &self.filled.occurrence(newest(WITH_EVENTS)));
        self.parts("events", &events, 1)?;
        let logs = LOGS.replace("$FROM", &self.filled.occurrence(newest(WITH_LOG)));
        self.parts("logs", &logs, 200)?;
        self.parts("dead letters", DEAD, amounts.dead_letters)?;
        self.parts("waiting messages", WAITING, amounts.waiting)?;
        self.parts("schedules", SCHEDULES, amounts.schedules)?;
        for index in indexes {
            note(&index);
            self.place.run(&index)?;
        }
        self.parts("changes", CHANGES, amounts.waiting)?;
        match self.place.is_file() {
            true => self.place.run("PRAGMA journal_mode = WAL"),
            false => self.place.run("VACUUM ANALYZE"),
        }
    }

    /// Drops the indexes of tables with many rows. Returns the statements that make them.
    fn without_indexes(&self) -> miette::Result<Vec<String>> {
        let (made, names) = match self.place.is_file() {
            true => (
                format!(
                    "SELECT sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL AND tbl_name IN ({FILLED})"
                ),
                format!(
                    "SELECT name FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL AND tbl_name IN ({FILLED})"
                ),
            ),
            false => (
                format!(
                    "SELECT indexdef FROM pg_indexes WHERE tablename IN ({FILLED}) AND indexname NOT LIKE '%_pkey'"
                ),
                format!(
                    "SELECT indexname FROM pg_indexes WHERE tablename IN ({FILLED}) AND indexname NOT LIKE '%_pkey'"
                ),
            ),
        };
        let made = self.place.column(&made)?;
        for name in self.place.column(&names)? {
            self.place.run(&format!("DROP INDEX {name}"))?;
        }
        Ok(made)
    }

    /// Makes rows with the numbers from zero.
    fn parts(&self, what: &str, insert: &str, count: u64) -> miette::Result<()> {
        note(format_args!("{what}: {count}"));
        for first in (0..count).step_by(usize::try_from(TOGETHER).into_diagnostic()?) {
            self.place.run(&self.statement(insert, first, count))?;
        }
        Ok(())
    }

    fn statement(&self, insert: &str, first: u64, count: u64) -> String {
        let Filled { amounts, begin_ms } = self.filled;
        let last = count.min(first + TOGETHER) - 1;
        let numbers = match self.place.is_file() {
            true => format!(
                "(WITH RECURSIVE numbers (i) AS (SELECT {first} UNION ALL SELECT i + 1 FROM numbers WHERE i < {last})
                  SELECT i FROM numbers) AS numbers"
            ),
            false => format!("generate_series({first}::bigint, {last}::bigint) AS numbers (i)"),
        };
        let hex = match self.place.is_file() {
            true => ("printf('%012x', ", ")"),
            false => ("lpad(to_hex(", "), 12, '0')"),
        };
        let mut text = insert
            .replace("$ERROR", ERROR)
            .replace("$NUMBERS", &numbers);
        for (name, value) in [
            ("$SCHEDULES", amounts.schedules),
            ("$HALF", count / 2),
            ("$COUNT", count),
            ("$BEGIN", begin_ms),
            ("$STEP", YEAR_MS / count.max(1)),
        ] {
            text = text.replace(name, &value.to_string());
        }
        while let Some((before, after)) = text.split_once("$HEX(") {
            let end = after.find(')').unwrap_or(after.len());
            let (inner, rest) = after.split_at(end);
            text = format!("{before}{}{inner}{}{}", hex.0, hex.1, &rest[1..]);
        }
        text
    }
}
