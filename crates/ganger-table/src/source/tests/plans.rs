//! Tests of SQLite's query plans: whatever the content of the tables and the statistics, no statement
//! reads many more rows than it returns or changes. The integration tests cover the servers.

#[path = "../../../../../tests/integration/statements.rs"]
mod statements;

use std::path::Path;

use bytes::Bytes;
use tokio::time::Instant;

use self::statements::{in_one_line, is_in, written};
use super::*;
use crate::databases::database;
use crate::ledger::{Ledger, OccurrenceFilter, PendingReports};
use crate::sqlite::tests_support::{OtherOwner, Run, has_run, runs};
use crate::table::finished::Entry;
use ganger_config::model::{Keep, LogLimits, Record, ScheduleConfig, Subscription, TableSource};
use ganger_core::names::SCHEDULE_HEADER;
use ganger_queue::client::{Client, DeadFilter, Page, Retried, RetryTarget};
use ganger_queue::delivery::{
    Begun, Failure, Finished, Identity, IfTaken, IfUnsubscribed, LogLine, LogStream, MessageRecord,
    Outgoing, Post, Reason, RecordedEnd, Report, Reported, Reports, RunNote, Unique, UniqueScope,
};
use ganger_queue::ledger::{
    AuditFilter, BackfillRequest, Cancelled, LedgerClient, ReportRange, ScheduleFilter, SkipRequest,
};
use ganger_schedule::occurrence::OccurrenceState;

/// Number of rows of each kind; a million in the long run of the tests.
const ROWS: u32 = 30_000;
const ROWS_IN_THE_LONG_RUN: u32 = 1_000_000;

/// Maximum number of steps of a statement, and of further steps for each row that it returns. It takes
/// about ten for each row that it reads.
const STEPS: i32 = 2_000;
const STEPS_PER_ROW: i32 = 1_000;

/// Time for which the ledger keeps what has ended in 1970.
const CENTURY: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Parts of statements that are allowed to read more, each with the reason.
const READS_ON: &[(&str, &str)] = &[
    (
        "(correlation_id = ?2 OR message_id = ?2)",
        "what waits in a queue has no index by its names",
    ),
    (
        "SELECT (SELECT count(*) FROM consumer_messages WHERE queue = ?1",
        "it reads what it counts",
    ),
    ("SELECT COUNT(*) FROM (SELECT 1", "likewise, up to a limit"),
    ("GROUP BY state", "it counts all schedules"),
    (
        "ORDER BY id DESC LIMIT 1 OFFSET",
        "it counts the occurrences of a schedule that are kept",
    ),
    ("GROUP BY source", "it counts what is on its way"),
    (
        "FROM poisoned_messages WHERE ?1 IS NULL AND ?2 IS NULL AND id > ?3",
        "the dead letter of a message is looked for among all",
    ),
    (
        "SELECT count(*) FROM consumer_messages WHERE queue = ? AND message_id",
        "a message that was deleted is looked for among all",
    ),
    (
        "WHERE owner IS NOT NULL AND queue = ? AND message_id",
        "few are claimed",
    ),
    ("SET lapses = 30 WHERE message_id", "of this test"),
    ("substr(id, 9), ended_at = 1", "likewise"),
    ("SELECT count(*) = ", "likewise"),
];

/// Parts of statements that these tests do not run, each with the reason.
const NOT_RUN: &[(&str, &str)] = &[
    (
        "json_set(coalesce(headers, '{}'), '$.\"x-ganger-span\"', ?3)",
        "only attempts that are recorded leave a span; by the row's id",
    ),
    (
        "SET wake_at = 0 WHERE wake_at IS NOT NULL",
        "only after the clock was set: all schedules",
    ),
    (
        "SET watched = 1 WHERE schedule",
        "only while a run is open: it reads these by their index, as others do that are run",
    ),
    (
        "SELECT id FROM occurrences WHERE id IN",
        "a file has no locked rows",
    ),
];

#[tokio::test]
async fn no_statement_reads_much_more_than_it_returns() {
    let rig = Rig::new();
    let _neighbour = OtherOwner::new(&rig.path(), NEVER);
    drop(runs(&rig.path()));
    let mut all = Vec::new();
    // Rounds with the statistics of nearly empty tables, with current ones, and without any.
    go_through(&rig, 0).await;
    let filled = format!("ANALYZE; {}", among(rows()));
    for (round, prepared) in (1..).zip([filled.as_str(), "ANALYZE", "DELETE FROM sqlite_stat1"]) {
        rig.execute(prepared);
        drop(runs(&rig.path()));
        go_through(&rig, round).await;
        all.extend(runs(&rig.path()));
    }
    for run in &mut all {
        run.text = in_one_line(&run.text);
    }
    let (excessive, missed) = (excessive(&all), never_run(&all));
    assert!(
        excessive.is_empty() && missed.is_empty(),
        "{excessive:#?}\nnever run: {missed:#?}"
    );
}

fn rows() -> u32 {
    match std::env::var_os("GANGER_TEST_LONG") {
        Some(_) => ROWS_IN_THE_LONG_RUN,
        None => ROWS,
    }
}

/// Returns SQL that adds `rows` rows of each kind that no statement should read: with keys in another
/// queue, delayed, claimed by another daemon, dead, finished, and published, which a trigger would have
/// removed.
fn among(rows: u32) -> String {
    let numbers = format!(
        "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {rows})"
    );
    let trigger = include_str!("../../sqlite/topics.sql");
    let trigger = trigger.rsplit_once("CREATE TRIGGER").unwrap().1;
    format!(
        "BEGIN;
         {numbers} INSERT INTO consumer_messages (queue, body, priority, unique_key, unique_scope, unique_until)
         SELECT 'other', 'x', n % 3, n, 'until', 4102444800000 FROM numbers;
         {numbers} INSERT INTO consumer_messages (queue, body, available_after)
         SELECT 'q', 'x', 4102444800000 + n FROM numbers;
         {numbers} INSERT INTO consumer_messages (queue, body, owner, claim)
         SELECT 'q', 'x', (SELECT min(id) FROM owners), n FROM numbers;
         {numbers} INSERT INTO poisoned_messages (pool, queue, reason, error, attempts, crashes, lapses, oom,
           stderr, first_failed_at, last_failed_at, body, headers, priority, created_at)
         SELECT 'other', 'q', 'failed', 'x', 1, 0, 0, 0, '[]', 1, 1, 'x', '{{}}', 0, 1 FROM numbers;
         {numbers} INSERT INTO finished_messages (source, queue, key, emit_id, step, finished_at, expires_at)
         SELECT 'main', 'q', n, '', 0, 1, 4102444800000 FROM numbers;
         {numbers} INSERT INTO occurrences (id, schedule, version, slot, queue, message_id, state, queued_at, fingerprint,
           correlation_id, ended_at)
         SELECT printf('00000000-%04x-7%03x', n / 4096, n % 4096), 'plain', 1, n, 'q', n, 2 + n % 2, 1,
           CASE n WHEN 1 THEN '0123456789abcdef' ELSE n END, n, CASE n % 2 WHEN 0 THEN 4102444800000 ELSE 1 END
         FROM numbers;
         {numbers} INSERT INTO occurrence_events (occurrence, at, to_state, attempt)
         SELECT printf('00000000-%04x-7%03x', n / 4096, n % 4096), 1, 2, 1 FROM numbers;
         {numbers} INSERT INTO occurrence_logs (occurrence, line, at, attempt, stream, text)
         SELECT printf('00000000-%04x-7%03x', n / 4096, n % 4096), 0, 1, 1, 'log', 'x' FROM numbers;
         {numbers} INSERT INTO schedule_outbox (occurrence, source, message, held_until)
         SELECT n, 'other', '{{}}', n % 2 FROM numbers;
         {numbers} INSERT INTO schedules (name, definition, wake_at)
         SELECT 'other-' || n, '{{}}', 4102444800000 + n FROM numbers;
         DROP TRIGGER published_messages_fan_out;
         {numbers} INSERT INTO published_messages (topic, body, unsubscribed) SELECT 'nobodys', 'x', 'drop'
         FROM numbers;
         CREATE TRIGGER{trigger}
         COMMIT;"
    )
}

/// Runs everything that a daemon and the commands do.
async fn go_through(rig: &Rig, round: i64) {
    // Rows that fall due later are not due yet.
    rig.set_clock(NOW_MS + 60_000 * round);
    work(rig, round).await;
    remember(rig, round).await;
    let (config, rows) = (rig.config(), rig.path());
    // Commands block the thread.
    let command = move || command(&config, &rows, round);
    tokio::task::spawn_blocking(command).await.unwrap();
    ledger(rig, round).await;
}

/// Runs a source with rows that are ready, due, suspect, spent or unreadable, every kind of settlement,
/// counts, claims of a vanished daemon, and a published message.
async fn work(rig: &Rig, round: i64) {
    let other = OtherOwner::new(&rig.path(), Duration::from_secs(30));
    rig.execute(&format!(
        "INSERT INTO consumer_messages (queue, body, priority, available_after) VALUES ('q', 'due', 9, 1);
         INSERT INTO consumer_messages (queue, body, priority, lapses) VALUES ('q', 'suspect', 9, 2), ('q', 'spent', 9, 30);
         INSERT INTO consumer_messages (queue, body, headers, priority) VALUES ('q', 'unreadable', '[]', 9);
         INSERT INTO consumer_messages (queue, body, unique_key) VALUES ('q', 'keyed', 'k{round}');
         INSERT INTO consumer_messages (queue, body, owner, claim) SELECT 'q', 'hers', max(id), 1 FROM owners;
         INSERT INTO consumer_messages (queue, body, owner, claim) VALUES ('q', 'nobodys', 123456, 1);"
    ));
    (0..7).for_each(|n| rig.insert(&n.to_string()));
    other.dies();
    let mut source = rig.source(&Shared::default(), 20);
    source.policy.send_replace(super::depth::range());
    let failure = || Box::new(Failure::new(Reason::Failed, "x"));
    let outcomes = [
        Outcome::Reply(Box::new(outgoing("answers"))),
        Outcome::Requeue {
            after: Duration::from_secs(1),
        },
        Outcome::ReturnAfter {
            delay: Duration::from_secs(1),
        },
        Outcome::RetryAfter {
            delay: Duration::from_secs(1),
            failure: failure(),
        },
        Outcome::DeadLetter(failure()),
        Outcome::Return { suspect: false },
    ];
    let mut outcomes = outcomes.into_iter();
    // The last one is delivered twice.
    for _ in 0..12 {
        let delivery = source.next().await;
        let is_number = body(&delivery).parse::<u8>().is_ok();
        let outcome = is_number.then(|| outcomes.next()).flatten();
        delivery.settle(outcome.unwrap_or(Outcome::Done));
    }
    source
        .until(|state| state.backlog.is_some_and(|backlog| backlog.depth == 0))
        .await;
    // The queries of a source without work, and without due rows.
    let look = "SELECT 1 FROM consumer_messages INDEXED BY consumer_messages_ready \
                WHERE queue = ?1 AND suspicion";
    while !has_run(&rig.path(), look) {
        rig.insert("one more");
        source.next().await.settle(Outcome::Done);
    }
    source.end().await;
}

pub(super) fn outgoing(queue: &str) -> Outgoing {
    Outgoing {
        queue: queue.to_owned(),
        correlation_id: "c".to_owned(),
        body: Bytes::from_static(b"x"),
        ..Outgoing::default()
    }
}

/// Enters, looks up and expires entries of finished messages.
async fn remember(rig: &Rig, round: i64) {
    let config = rig.config();
    let database = database(&config).unwrap();
    let mut memory = database.finished_store(&policy()).await.unwrap();
    let finished = Finished {
        identity: Identity {
            queue: "q".into(),
            key: format!("new {round}"),
            emit: String::new(),
            step: 0,
        },
        body: String::new(),
        window: Duration::from_millis(1),
        continued: Outgoing::default(),
        entry_notice: None,
    };
    let outcome = Outcome::Done;
    let entry = Entry {
        finished: &finished,
        outcome: &outcome,
    };
    memory.enter(&[entry]).await.unwrap();
    memory.enter(&[entry]).await.unwrap();
    memory.find(&[&finished.identity]).await.unwrap();
    while memory.expire(500).await.unwrap() == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    memory.close();
}

/// Runs what a daemon and the commands do with schedules.
async fn ledger(rig: &Rig, round: i64) {
    let mut ledger = occurrences::ledger(rig);
    let expecting = r#""body": "{{ last_success }}", "expect": {"every": "1h"}"#;
    let plain = occurrences::schedule("plain", expecting);
    let disabling = occurrences::schedule("disabling", r#""auto_disable": {"failures": 1}"#);
    ledger.sync(&[plain, disabling]).unwrap();
    occurrences::dispatch(&mut ledger, 2);
    // One is spent before it runs, one runs for a while, and one fails.
    let id = occurrences::trigger(&mut ledger, "plain");
    rig.execute(&format!(
        "UPDATE consumer_messages SET lapses = 30 WHERE message_id = '{id}';
         INSERT INTO occurrences (id, schedule, version, queue, state, queued_at, ended_at, watched)
         VALUES ('        -gone-{round}', 'gone', 1, 'q', 2, 1, 1, 1)"
    ));
    end_runs(rig, &mut ledger).await;
    ledger.dispatch().unwrap();
    ledger.figures(20).unwrap();
    ledger.pause("plain", None).unwrap();
    ledger.resume("plain", false).unwrap();
    ledger.set_hold(Some("x")).unwrap();
    ledger.set_hold(None).unwrap();
    let filter = |schedule: Option<&str>, state| OccurrenceFilter {
        schedule: schedule.map(str::to_owned),
        state,
        limit: 10,
        ..OccurrenceFilter::default()
    };
    for state in [
        None,
        Some(OccurrenceState::Failed),
        Some(OccurrenceState::Running),
    ] {
        ledger.occurrences(&filter(Some("plain"), state)).unwrap();
        ledger.occurrences(&filter(None, state)).unwrap();
    }
    for found in [
        OccurrenceFilter {
            fingerprint: Some("0123456789abcdef".to_owned()),
            ..filter(None, None)
        },
        OccurrenceFilter {
            correlation_id: Some("1".to_owned()),
            ..filter(None, None)
        },
    ] {
        assert!(!ledger.occurrences(&found).unwrap().is_empty() || round == 0);
    }
    assert!(ledger.occurrence(&id).unwrap().is_some());
    control(rig, &mut ledger);
    noted(&mut ledger, &id);
    let listed = ScheduleFilter {
        limit: 10,
        results: 20,
        ..ScheduleFilter::default()
    };
    LedgerClient::schedules(&mut ledger, &listed).unwrap();
    LedgerClient::schedule(&mut ledger, "plain").unwrap();
    for schedule in [None, Some("plain".to_owned())] {
        let range = ReportRange {
            schedule,
            by_day: Some(ganger_schedule::zone::Zone::default()),
            ..ReportRange::default()
        };
        LedgerClient::report(&mut ledger, &range).unwrap();
    }
    let entered = occurrences::schedule("entered", r#""limit": 1"#);
    by_hand(rig, &mut ledger, &entered, round);
    elsewhere(&mut ledger);
    expire(rig, &mut ledger, round);
    ledger.sync(&[]).unwrap();
}

/// Removes occurrences and what else is old.
fn expire(rig: &Rig, ledger: &mut Ledger, round: i64) {
    // Failures are kept for longer, however many there are, and as many of a schedule.
    let mut keep = Keep::all(CENTURY);
    keep.per_schedule = Some(100_000);
    while ledger.expire(&keep).unwrap() {}
    // Those of the previous round ended long ago.
    rig.execute(&format!(
        "UPDATE occurrences SET id = '0000000{round}' || substr(id, 9), ended_at = 1;
         UPDATE ledger_audit SET at = -4102444800000;
         INSERT INTO schedules (name, definition, state, cursor) VALUES ('over', '{{}}', 'ended', -4102444800000)"
    ));
    for (_, time) in keep
        .times
        .iter_mut()
        .filter(|(state, _)| *state != OccurrenceState::Failed)
    {
        *time = Duration::ZERO;
    }
    ledger.expire(&keep).unwrap();
}

/// Runs what operators do with a schedule of the API, with its versions, of which there are many, and with single slots of it: one of the
/// past was skipped, and one has no occurrence.
fn by_hand(rig: &Rig, ledger: &mut Ledger, entered: &ScheduleConfig, round: i64) {
    let name = entered.name();
    ledger.enter(entered, None).unwrap();
    let now = jiff::Timestamp::now().as_second();
    let (slot, version) = (now - 3600 * (round + 1), 1000 * (round + 1));
    rig.execute(&format!(
        "INSERT INTO schedule_versions (schedule, version, at, origin, definition)
         VALUES ('{name}', {version}, 1, 'api', '{}');
         INSERT INTO occurrences (id, schedule, version, slot, queue, state, queued_at, ended_at)
         VALUES ('skipped-{round}', '{name}', 1, {slot}000, 'work', 7, 1, 1)",
        entered.definition
    ));
    let other = occurrences::schedule(name, r#""limit": 2"#);
    ledger.enter(&other, None).unwrap();
    assert!(ledger.versions(name).unwrap().len() > 1);
    ledger.roll_back(name, version).unwrap();
    ledger.skip(name, &SkipRequest::default()).unwrap();
    let at = |second: i64| jiff::Timestamp::from_second(second).unwrap().to_string();
    let filled = BackfillRequest {
        from: at(slot),
        to: at(slot + 1),
        ..BackfillRequest::default()
    };
    assert_eq!(ledger.backfill(name, &filled).unwrap().occurrences.len(), 2);
    let filter = AuditFilter {
        limit: 10,
        ..AuditFilter::default()
    };
    let all = ledger.audit(&filter).unwrap();
    let of_one = AuditFilter {
        subject: Some(name.to_owned()),
        before: Some(all[0].id),
        ..filter
    };
    assert!(!ledger.audit(&of_one).unwrap().is_empty());
    ledger.remove(name, false, None).unwrap();
}

/// Ends the two runs whose messages wait, after a request to cancel each: one fails, one is done all the same.
async fn end_runs(rig: &Rig, ledger: &mut Ledger) {
    let mut source = rig.source(&Shared::default(), 20);
    let mut failures = vec![Failure::new(Reason::Failed, "x")];
    let mut seen = 0;
    while seen < 2 {
        let mut next = source.next().await;
        let mut headers = next.message.headers.iter();
        if !headers.any(|(name, _)| name == SCHEDULE_HEADER) {
            next.settle(Outcome::Done);
            continue;
        }
        seen += 1;
        next.begin(&Arc::from("{}"));
        let running = next.message.occurrence.clone().unwrap();
        rig.until(&format!(
            "SELECT count(*) = 1 FROM occurrences WHERE id = '{running}' AND state = 1"
        ))
        .await;
        let cancelled = ledger.cancel(&running, None).unwrap();
        assert_eq!(cancelled, Cancelled::Requested);
        let failed = |failure| Outcome::DeadLetter(Box::new(failure));
        next.settle(failures.pop().map_or(Outcome::Done, failed));
    }
    source.end().await;
    rig.until("SELECT count(*) = 0 FROM occurrences WHERE ended_at IS NULL")
        .await;
}

/// Runs what operators do to runs: the last failure is resolved, sent back and cancelled while it waits.
fn control(rig: &Rig, ledger: &mut Ledger) {
    let unresolved = OccurrenceFilter {
        is_unresolved: true,
        limit: 1,
        ..OccurrenceFilter::default()
    };
    let failed = ledger.occurrences(&unresolved).unwrap().remove(0).id;
    ledger.resolve(&failed, "x").unwrap();
    let config = rig.config();
    let mut open = |name: &str| {
        let kind = database(&config).and_then(|database| database.client());
        Ok(Client::new(name, kind.unwrap()))
    };
    ledger.retry(&failed, None, &mut open).unwrap();
    assert_eq!(ledger.cancel(&failed, None).unwrap(), Cancelled::Ended);
    let deleted = occurrences::trigger(ledger, "plain");
    rig.execute("DELETE FROM consumer_messages WHERE id = (SELECT max(id) FROM consumer_messages)");
    assert_eq!(ledger.cancel(&deleted, None).unwrap(), Cancelled::Ended);
}

/// Writes and reads the log of a run, which has more lines than it keeps.
fn noted(ledger: &mut Ledger, id: &str) {
    let few = LogLimits {
        lines: 4,
        bytes: 100,
    };
    for _ in 0..3 {
        let (left, written) = ledger.note(vec![note(id)], few);
        assert!(left.is_empty() && written.is_ok());
    }
    let log = ledger.log(id, None, 10).unwrap().unwrap();
    assert_eq!((log.lines.len(), log.dropped), (4, 5));
}

/// Returns what a run may tell.
fn note(occurrence: &str) -> RunNote {
    let line = LogLine {
        at: Instant::now(),
        attempt: 1,
        stream: LogStream::Log,
        level: "info",
        text: "x".to_owned(),
    };
    RunNote {
        occurrence: occurrence.into(),
        lines: vec![line; 3],
        dropped: 0,
        progress: Some("x".to_owned()),
        heard: Instant::now(),
    }
}

/// Runs what a daemon does with messages for other sources.
fn elsewhere(ledger: &mut Ledger) {
    let outgoing = occurrences::schedule("elsewhere", r#""source": "rabbit""#);
    ledger.sync(&[outgoing]).unwrap();
    let id = occurrences::trigger(ledger, "elsewhere");
    ledger.outgoing().unwrap();
    let hold = Duration::from_secs(60);
    assert_eq!(ledger.take_out("rabbit", 1, hold).unwrap().len(), 1);
    assert_eq!(ledger.cancel(&id, None).unwrap(), Cancelled::Requested);
    assert_eq!(ledger.cancel_requested().unwrap().ids, [id.as_str()]);
    let sent = [id.clone()];
    ledger
        .sent_out("rabbit", &sent, &[(id.clone(), hold)])
        .unwrap();
    let now = tokio::time::Instant::now();
    let mut pending = PendingReports::default();
    let report = Report {
        occurrence: id.into(),
        attempt: Some(1),
        arrived: now,
        begun: None,
        made: now,
        what: Reported::Buried(Failure::new(Reason::Failed, "x")),
    };
    let mut reports = Reports {
        of_occurrences: vec![report],
        ..Reports::default()
    };
    reports.ends.push(recorded_end(now));
    pending.add(reports);
    ledger.report(&mut pending.take(None)).unwrap();
    assert!(ledger.occurrence("of a message").unwrap().is_some());
}

fn recorded_end(now: tokio::time::Instant) -> RecordedEnd {
    let message = MessageRecord {
        message_id: Some("of a message".to_owned()),
        correlation_id: None,
        source: Some("rabbit".to_owned()),
        queue: "q".into(),
        attempt: 1,
        arrived: now,
        begun: Some(Begun {
            at: now,
            worker: "{}".into(),
            trace: None,
        }),
        record: Record::All,
    };
    message.end(&Outcome::Done, &"r".into()).unwrap()
}

/// Runs the commands.
fn command(config: &TableSource, database: &Path, round: i64) {
    let mut client = Client::new(
        "main",
        crate::databases::database(config)
            .unwrap()
            .client()
            .unwrap(),
    );
    let subscription = Subscription {
        source: "main".to_owned(),
        topic: "t".to_owned(),
        queue: "subscribed".to_owned(),
    };
    client.subscribe(&[subscription]).unwrap();
    client.subscriptions().unwrap();
    client.look_for_subscriptions().unwrap();
    client.send(&[outgoing("sent")]).unwrap();
    let post = |queue: &str, taken: Option<IfTaken>, topic| Post {
        message: outgoing(queue),
        unique: taken.map(|taken| Unique {
            key: format!("u{round}"),
            scope: UniqueScope::Waiting,
            taken,
        }),
        topic,
    };
    let longest = Duration::from_secs(9);
    for taken in [
        IfTaken::Keep,
        IfTaken::Keep,
        IfTaken::Replace,
        IfTaken::Debounce { longest },
    ] {
        client.post(&[post("sent", Some(taken), None)]).unwrap();
    }
    client
        .post(&[post("t", None, Some(IfUnsubscribed::Fail))])
        .unwrap();
    client.unsubscribe("t", "subscribed").unwrap();
    let list = client.waiting_list("q", 3).unwrap();
    assert_eq!((list.messages.len(), list.more), (3, true));
    client.waiting_list("sent", 3).unwrap();
    assert_eq!(client.cancel_waiting("p", "sent", "c").unwrap(), 2);
    assert!(client.take_reply("answers", "c").unwrap().is_some());
    client.depth("sent").unwrap();
    client.pause_for_all("sent", true).unwrap();
    client.pause_for_all("sent", false).unwrap();
    assert!(client.daemons().unwrap().is_some());
    letters(&mut client, database, round);
}

/// Runs the commands on dead letters: some without a key, and two with the same one.
fn letters(client: &mut Client, database: &Path, round: i64) {
    let conn = Connection::open(database).unwrap();
    let mut insert = conn
        .prepare(
            "INSERT INTO poisoned_messages (pool, queue, reason, error, attempts, crashes, lapses, oom, stderr,
               first_failed_at, last_failed_at, body, headers, priority, created_at, unique_key, unique_scope)
             VALUES ('p', 'sent', 'failed', 'x', 1, 0, 0, 0, '[]', 1, 1, 'x', '{}', 0, 1, ?1, ?2)
             RETURNING id",
        )
        .unwrap();
    let key = format!("d{round}");
    let keys = [None, None, Some(&key), Some(&key)];
    let ids = keys.map(|key| {
        let scope = key.map(|_| "waiting_or_running");
        let id: i64 = insert.query_row((key, scope), |row| row.get(0)).unwrap();
        id.to_string()
    });
    let these = |ids: &[String]| DeadFilter {
        ids: Some(ids.iter().cloned().collect()),
        ..DeadFilter::default()
    };
    client.dead_show(&ids[0]).unwrap();
    let page = Page {
        limit: 10,
        ..Page::all(DeadFilter::default())
    };
    let mut list = |page: &Page| {
        client
            .dead_list(page, |_| std::ops::ControlFlow::Continue(()))
            .unwrap();
    };
    list(&page);
    let of_one_pool = || DeadFilter {
        pool: Some("p".to_owned()),
        ..DeadFilter::default()
    };
    list(&Page {
        limit: 10,
        ..Page::all(of_one_pool())
    });
    assert_eq!(
        client
            .dead_retry(&these(&ids[1..]), &RetryTarget::default())
            .unwrap(),
        Retried {
            retried: 2,
            held: 1
        }
    );
    assert_eq!(
        client
            .dead_drop(&these(&[ids[0].clone(), ids[3].clone()]))
            .unwrap(),
        2
    );
    assert!(client.dead_drop(&of_one_pool()).unwrap() > 0);
}

/// Returns, of each statement that has read too much, the run that has read the most.
fn excessive(all: &[Run]) -> Vec<&Run> {
    let is_excessive = |run: &&Run| run.steps > STEPS + STEPS_PER_ROW * run.rows;
    let is_meant = |run: &Run| READS_ON.iter().any(|(part, _why)| run.text.contains(part));
    let mut excessive: Vec<&Run> = all.iter().filter(is_excessive).collect();
    excessive.retain(|run| !is_meant(run));
    excessive.sort_by(|a, b| (&a.text, b.steps).cmp(&(&b.text, a.steps)));
    excessive.dedup_by(|a, b| a.text == b.text);
    excessive
}

/// Returns the parts of statements in the source that were not run, except those in `NOT_RUN`.
fn never_run(all: &[Run]) -> Vec<(String, String)> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let files = |room: &str| std::fs::read_dir(source.join(room)).unwrap();
    let rooms = ["sqlite", "sqlite/commands", "ledger"];
    let files = rooms.into_iter().flat_map(files);
    let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    files.retain(|file| {
        let is_code = file.extension().is_some_and(|end| end == "rs");
        let is_of_tests = file.ends_with("tests.rs") || file.ends_with("tests_support.rs");
        is_code && !file.ends_with("schema.rs") && !is_of_tests
    });
    let is_meant = |part: &str| NOT_RUN.iter().any(|(of, _why)| part.contains(of));
    let mut missed = written(&files);
    missed.retain(|(_, part)| !is_meant(part) && !all.iter().any(|run| is_in(part, &run.text)));
    missed
}
