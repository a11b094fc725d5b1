//! The ledger on a database file: dispatch, changes of schedules, and what others do beside.

mod by_hand;
mod control;
mod elsewhere;
mod entered;
mod expecting;
mod failing;
mod history;
mod noted;
mod report;
mod retention;
mod stopped;
mod upcoming;
mod waiting;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use jiff::{SignedDuration, Timestamp};
use rusqlite::{Connection, params};

use super::*;
use crate::sqlite::ledger::SqliteLedger;
use crate::sqlite::{WallClock, open_for_tests};
use ganger_config::stored_schedule;
use ganger_queue::ledger::LedgerClient;
use ganger_schedule::auto_disable::Change;
use ganger_schedule::clock::Jump;
use ganger_schedule::occurrence::OccurrenceState;

thread_local! {
    /// The monotonic clock of a test's daemons.
    static PASSED: Cell<Duration> = const { Cell::new(Duration::from_secs(1000)) };
}

/// A database file and its wall clock, which begins at 2026-12-01T00:00:30Z.
struct Rig {
    dir: tempfile::TempDir,
    now_ms: Arc<AtomicI64>,
}

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

impl Rig {
    fn new() -> Self {
        let now = time("2026-12-01T00:00:30Z").as_millisecond();
        let rig = Self {
            dir: tempfile::tempdir().unwrap(),
            now_ms: Arc::new(AtomicI64::new(now)),
        };
        rig.sql();
        rig
    }

    fn path(&self) -> std::path::PathBuf {
        self.dir.path().join("ledger.db")
    }

    fn sql(&self) -> Connection {
        open_for_tests(&self.path())
    }

    /// Opens the ledger, as a daemon does.
    fn daemon(&self) -> Ledger {
        self.daemon_of("main")
    }

    /// Opens it as a daemon with the configuration of that name does.
    fn daemon_of(&self, group: &str) -> Ledger {
        let clock = WallClock::of(&self.now_ms);
        let store = SqliteLedger::open(&self.path(), 0o600, clock).unwrap();
        Ledger::new(("main", group), Box::new(store), || PASSED.get())
    }

    fn set(&self, now: &str) {
        let now = time(now).as_millisecond();
        let passed = now - self.now_ms.swap(now, Ordering::SeqCst);
        PASSED.set(PASSED.get() + Duration::from_millis(passed.unsigned_abs()));
    }

    fn pass(&self, seconds: u32) {
        PASSED.set(PASSED.get() + Duration::from_secs(seconds.into()));
        self.jump(seconds.into());
    }

    /// Sets the wall clock forward or back.
    fn jump(&self, seconds: i64) {
        self.now_ms.fetch_add(1000 * seconds, Ordering::SeqCst);
    }

    /// Returns the bodies that wait in a queue.
    fn bodies(&self, queue: &str) -> Vec<String> {
        let conn = self.sql();
        let bodies = "SELECT body FROM consumer_messages WHERE queue = ?1 ORDER BY id";
        let mut bodies = conn.prepare(bodies).unwrap();
        let bodies = bodies.query_map([queue], |row| row.get(0)).unwrap();
        bodies.collect::<rusqlite::Result<_>>().unwrap()
    }

    /// Ends all open occurrences, as the settlement of their messages does.
    fn end_all(&self, state: OccurrenceState) {
        let now = self.now_ms.load(Ordering::SeqCst);
        let conn = self.sql();
        let end = "UPDATE occurrences SET state = ?1, ended_at = ?2 WHERE ended_at IS NULL";
        conn.execute(end, params![state.code(), now]).unwrap();
    }
}

fn config(name: &str, definition: &str) -> ScheduleConfig {
    stored_schedule(name, definition, &Zones::load()).unwrap()
}

const MINUTELY: &str = r#"{"cron": "* * * * *", "queue": "q", "body": "{{ slot }}"}"#;

/// Dispatches until nothing is due.
fn run(ledger: &mut Ledger) -> Dispatched {
    let mut all = Dispatched::default();
    for _ in 0..100 {
        let some = ledger.dispatch().unwrap();
        all = all.then(some);
        if all.wait != Some(Duration::ZERO) {
            return all;
        }
    }
    panic!("it never ends: {all:?}");
}

fn slots(ledger: &mut Ledger, schedule: &str) -> Vec<String> {
    let filter = OccurrenceFilter {
        schedule: Some(schedule.to_owned()),
        limit: 100,
        ..OccurrenceFilter::default()
    };
    let occurrences = ledger.occurrences(&filter).unwrap();
    let shown = |one: Occurrence| {
        let slot = one.slot.map(|slot| slot.to_string()).unwrap_or_default();
        let missed = match one.missed {
            0 => String::new(),
            missed => format!(" +{missed}"),
        };
        let reason = one.reason.map(|reason| format!(" {reason}"));
        let state = one.state.as_str();
        format!("{slot} {state}{}{missed}", reason.unwrap_or_default())
    };
    let mut slots: Vec<String> = occurrences.into_iter().map(shown).collect();
    slots.reverse();
    slots
}

#[test]
fn the_time_of_a_transaction_is_no_wait() {
    let rig = Rig::new();
    let store = SqliteLedger::open(&rig.path(), 0o600, WallClock::of(&rig.now_ms)).unwrap();
    // Each look at the clock takes a while.
    let slow = || {
        PASSED.set(PASSED.get() + Duration::from_millis(100));
        PASSED.get()
    };
    let mut ledger = Ledger::new(("main", "main"), Box::new(store), slow);
    ledger.sync(&[config("m", MINUTELY)]).unwrap();
    let wait = ledger.dispatch().unwrap().wait.unwrap();
    let until_slot = Duration::from_secs(30);
    assert!(wait < until_slot && wait > until_slot / 2, "{wait:?}");
}

#[test]
fn each_slot_is_dispatched_once_by_whichever_daemon() {
    let rig = Rig::new();
    let (mut one, mut other) = (rig.daemon(), rig.daemon());
    let synced = one.sync(&[config("m", MINUTELY)]).unwrap();
    assert_eq!(synced.added, ["m"]);
    // A new schedule fires no past slot.
    let first = run(&mut one);
    assert_eq!((first.sent, first.wait), (0, Some(Duration::from_secs(30))));
    for minute in 1..=4 {
        rig.pass(if minute == 1 { 30 } else { 60 });
        let (first, second) = match minute % 2 {
            0 => (run(&mut one), run(&mut other)),
            _ => (run(&mut other), run(&mut one)),
        };
        assert_eq!((first.sent, second.sent), (1, 0), "{minute}");
        rig.end_all(OccurrenceState::Completed);
    }
    assert_eq!(
        rig.bodies("q"),
        [
            "2026-12-01T00:01:00Z",
            "2026-12-01T00:02:00Z",
            "2026-12-01T00:03:00Z",
            "2026-12-01T00:04:00Z",
        ]
    );
    let ids = one.occurrences(&OccurrenceFilter {
        limit: 1,
        ..OccurrenceFilter::default()
    });
    // Ids are made by the clock of the ledger.
    let newest = uuid::Uuid::parse_str(&ids.unwrap()[0].id).unwrap();
    let (seconds, _) = newest.get_timestamp().unwrap().to_unix();
    let entered = time("2026-12-01T00:04:00Z").as_second();
    assert_eq!(i64::try_from(seconds), Ok(entered));
    let row = one.schedule("m").unwrap();
    assert_eq!(row.version, 1);
    assert_eq!(row.next_slot, Some(time("2026-12-01T00:05:00Z")));
    assert_eq!(row.cursor.unwrap().runs, 4);
    assert_eq!(row.last_state, Some(OccurrenceState::Completed));
}

#[test]
fn a_message_says_which_slot_it_is_for() {
    let rig = Rig::new();
    let mut ledger = rig.daemon();
    let definition = r#"{"every": "1m", "queue": "q", "headers": {"tenant": "blue"}, "key": "k",
        "priority": 7, "content_type": "text/plain",
        "body": "{{ previous_slot }} {{ last_success }}"}"#;
    ledger.sync(&[config("m", definition)]).unwrap();
    run(&mut ledger);
    rig.pass(30);
    run(&mut ledger);
    rig.end_all(OccurrenceState::Completed);
    rig.pass(60);
    run(&mut ledger);
    let bodies = rig.bodies("q");
    assert_eq!(
        bodies,
        [
            "2026-12-01T00:00:00Z ",
            "2026-12-01T00:01:00Z 2026-12-01T00:01:00Z"
        ]
    );
    let read = "SELECT headers, message_id, content_type, key, priority FROM consumer_messages
                WHERE id = 1";
    let conn = rig.sql();
    let (headers, id): (String, String) = conn
        .query_row(read, [], |row| {
            assert_eq!(row.get::<_, String>(2)?, "text/plain");
            assert_eq!(row.get::<_, String>(3)?, "k");
            assert_eq!(row.get::<_, i64>(4)?, 7);
            Ok((row.get(0)?, row.get(1)?))
        })
        .unwrap();
    let expected = format!(
        r#"{{"tenant":"blue","ganger-schedule":"m","ganger-slot":"2026-12-01T00:01:00Z","x-ganger-occurrence":"{id}"}}"#
    );
    assert_eq!(headers, expected);
    let (occurrence, events) = ledger.occurrence(&id).unwrap().unwrap();
    assert_eq!(occurrence.slot, Some(time("2026-12-01T00:01:00Z")));
    assert_eq!(events.len(), 1);
    assert_eq!(ledger.occurrence("nothing").unwrap(), None);
}

#[test]
fn a_schedule_may_be_inserted_with_sql() {
    let rig = Rig::new();
    let mut ledger = rig.daemon();
    run(&mut ledger);
    let conn = rig.sql();
    let now = rig.now_ms.load(Ordering::SeqCst);
    let insert =
        format!("INSERT INTO schedules (name, definition, created_at) VALUES (?1, ?2, {now})");
    let insert = insert.as_str();
    conn.execute(insert, ["m", MINUTELY]).unwrap();
    conn.execute(insert, ["nonsense", "{"]).unwrap();
    // What is no text at all is nonsense, too.
    let no_text = "INSERT INTO schedules (name, definition, state_reason, failures)
                   VALUES ('bytes', CAST(x'ff' AS TEXT), CAST(x'ff' AS TEXT), CAST(x'ff' AS TEXT))";
    conn.execute(no_text, []).unwrap();
    conn.execute(insert, ["late", r#"{"cron": "61 * * * *", "queue": "q"}"#])
        .unwrap();
    conn.execute(insert, ["a name", MINUTELY]).unwrap_err();
    let seen = run(&mut ledger);
    let broken: Vec<&str> = seen.broken.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(broken, ["bytes", "late", "nonsense"]);
    let figures = ledger.figures(1).unwrap();
    let states = [(ScheduleState::Active, 1), (ScheduleState::Broken, 3)];
    assert_eq!(figures.states, states);
    assert_eq!(figures.stopped.len(), 1);
    rig.pass(30);
    assert_eq!(run(&mut ledger).sent, 1);
    let late = ledger.schedule("late").unwrap();
    assert_eq!(late.state, ScheduleState::Broken);
    assert!(
        late.state_reason
            .unwrap()
            .contains("minute `61` is out of range")
    );
    // A configuration does not take it over, and does not remove it.
    let synced = ledger.sync(&[config("m", MINUTELY)]).unwrap();
    assert_eq!(
        (synced.taken, synced.removed),
        (vec!["m".to_owned()], vec![])
    );
    assert_eq!(ledger.schedules().unwrap().len(), 4);
    ledger.remove("late", true, None).unwrap();
    assert!(matches!(
        ledger.remove("late", true, None),
        Err(LedgerError::NoSchedule(_))
    ));
}

#[test]
fn a_slot_is_skipped_while_a_run_is_open() {
    let rig = Rig::new();
    let mut ledger = rig.daemon();
    let both = r#"{"cron": "* * * * *", "queue": "q", "overlap": "allow"}"#;
    let all = [config("skip", MINUTELY), config("allow", both)];
    ledger.sync(&all).unwrap();
    run(&mut ledger);
    rig.pass(30);
    run(&mut ledger);
    rig.pass(60);
    run(&mut ledger);
    assert_eq!(
        slots(&mut ledger, "skip"),
        [
            "2026-12-01T00:01:00Z queued",
            "2026-12-01T00:02:00Z skipped overlap"
        ]
    );
    assert_eq!(
        slots(&mut ledger, "allow"),
        ["2026-12-01T00:01:00Z queued", "2026-12-01T00:02:00Z queued"]
    );
    // A trigger obeys it unless it is forced.
    let trigger = |ledger: &mut Ledger, is_forced| {
        ledger
            .trigger("skip", Some("by hand"), Some("a test"), is_forced)
            .unwrap()
    };
    assert_eq!(trigger(&mut ledger, false), Triggered::Overlaps);
    let Triggered::Sent(id) = trigger(&mut ledger, true) else {
        panic!("it was not sent");
    };
    let (occurrence, events) = ledger.occurrence(&id).unwrap().unwrap();
    assert_eq!(occurrence.slot, None);
    assert_eq!(events[0].note.as_deref(), Some("triggered: a test"));
    assert_eq!(rig.bodies("q").last().unwrap(), "by hand");
}

#[test]
fn slots_of_a_night_without_a_daemon_are_one_run() {
    let rig = Rig::new();
    let mut ledger = rig.daemon();
    ledger.sync(&[config("m", MINUTELY)]).unwrap();
    run(&mut ledger);
    drop(ledger);
    rig.set("2026-12-01T08:00:10Z");
    let mut ledger = rig.daemon();
    let dispatched = run(&mut ledger);
    assert_eq!((dispatched.sent, dispatched.skipped["misfire"]), (1, 479));
    let late = vec![Duration::from_secs(10)];
    assert_eq!((dispatched.late, dispatched.missed), (late, 479));
    assert_eq!(
        slots(&mut ledger, "m"),
        [
            "2026-12-01T00:01:00Z skipped misfire +478",
            "2026-12-01T08:00:00Z queued +479"
        ]
    );
}

#[test]
fn an_edit_fires_no_past_slot() {
    let rig = Rig::new();
    let mut ledger = rig.daemon();
    let at = |hour: u8| {
        let definition = format!(r#"{{"cron": "0 {hour} * * *", "queue": "q"}}"#);
        config("m", &definition)
    };
    ledger.sync(&[at(11)]).unwrap();
    run(&mut ledger);
    rig.set("2026-12-01T10:00:00Z");
    assert_eq!(ledger.sync(&[at(9)]).unwrap().changed, ["m"]);
    assert_eq!(run(&mut ledger).sent, 0);
    let row = ledger.schedule("m").unwrap();
    assert_eq!(row.next_slot, Some(time("2026-12-02T09:00:00Z")));
    assert_eq!(row.version, 2);
    // Nor do slots run twice that are removed and added again.
    rig.set("2026-12-02T09:00:00Z");
    assert_eq!(run(&mut ledger).sent, 1);
    assert_eq!(ledger.sync(&[]).unwrap().removed, ["m"]);
    ledger.sync(&[at(9)]).unwrap();
    assert_eq!(run(&mut ledger).sent, 0);
    assert_eq!(
        ledger.schedule("m").unwrap().next_slot,
        Some(time("2026-12-03T09:00:00Z"))
    );
}

#[test]
fn a_schedule_ends() {
    let rig = Rig::new();
    let mut ledger = rig.daemon();
    let once = r#"{"at": "2026-12-01T00:01:00Z", "queue": "q"}"#;
    let twice = r#"{"every": "1m", "limit": 2, "overlap": "allow", "queue": "q"}"#;
    let all = [config("once", once), config("twice", twice)];
    ledger.sync(&all).unwrap();
    run(&mut ledger);
    for _ in 0..4 {
        rig.pass(60);
        run(&mut ledger);
    }
    for (name, slots_of) in [("once", 1), ("twice", 2)] {
        assert_eq!(slots(&mut ledger, name).len(), slots_of, "{name}");
        let row = ledger.schedule(name).unwrap();
        assert_eq!((row.state, row.next_slot), (ScheduleState::Ended, None));
    }
    // It does not run again when its daemon starts.
    drop(ledger);
    let mut ledger = rig.daemon();
    ledger.sync(&all).unwrap();
    assert_eq!(run(&mut ledger).sent, 0);
}

#[test]
fn a_clock_that_is_set_back_repeats_no_slot() {
    let rig = Rig::new();
    let mut ledger = rig.daemon();
    let every = r#"{"every": "1m", "queue": "q", "overlap": "allow"}"#;
    let cron = r#"{"cron": "* * * * *", "queue": "q", "overlap": "allow"}"#;
    ledger
        .sync(&[config("every", every), config("cron", cron)])
        .unwrap();
    run(&mut ledger);
    rig.pass(30);
    run(&mut ledger);
    rig.jump(-600);
    let back = run(&mut ledger);
    assert!(matches!(back.jump, Some(Jump::Back(_))), "{back:?}");
    assert_eq!(back.sent, 0);
    // Periods go on by the time that passes, expressions when the clock has come to where they were.
    rig.pass(60);
    run(&mut ledger);
    assert_eq!(slots(&mut ledger, "every").len(), 2);
    assert_eq!(slots(&mut ledger, "cron").len(), 1);
    let row = ledger.schedule("cron").unwrap();
    assert_eq!(row.next_slot, Some(time("2026-12-01T00:02:00Z")));
    // Another daemon reads by how much.
    let mut other = rig.daemon();
    let mut ahead = SignedDuration::ZERO;
    other
        .store
        .read(&mut |tx| {
            ahead = tx.clock()?.ahead;
            Ok(())
        })
        .unwrap();
    assert!(ahead > SignedDuration::from_secs(590), "{ahead}");
}

#[test]
fn a_jump_is_reported_though_the_dispatch_after_it_fails() {
    let rig = Rig::new();
    let mut ledger = rig.daemon();
    ledger.sync(&[config("m", MINUTELY)]).unwrap();
    run(&mut ledger);
    rig.jump(600);
    let rename = |from: &str, to: &str| {
        let conn = Connection::open(rig.path()).unwrap();
        let rename = format!("ALTER TABLE {from} RENAME TO {to}");
        conn.execute_batch(&rename).unwrap();
    };
    rename("consumer_messages", "gone");
    let failed = ledger.dispatch().unwrap_err().to_string();
    assert!(failed.contains("consumer_messages"), "{failed}");
    rename("gone", "consumer_messages");
    // Nothing is left to do, as another daemon has done it.
    assert_eq!(run(&mut rig.daemon()).sent, 1);
    let after = ledger.dispatch().unwrap();
    assert_eq!(after.sent, 0);
    assert!(matches!(after.jump, Some(Jump::Forward(_))), "{after:?}");
    assert_eq!(ledger.dispatch().unwrap().jump, None);
}

#[test]
fn configurations_that_share_a_ledger_leave_each_other_alone() {
    let rig = Rig::new();
    let (mut mail, mut billing) = (rig.daemon_of("mail"), rig.daemon_of("billing"));
    mail.sync(&[config("a", MINUTELY), config("b", MINUTELY)])
        .unwrap();
    let synced = billing
        .sync(&[config("b", MINUTELY), config("c", MINUTELY)])
        .unwrap();
    assert_eq!(
        (synced.added, synced.taken),
        (vec!["c".to_owned()], vec!["b".to_owned()])
    );
    assert_eq!(mail.sync(&[]).unwrap().removed, ["a", "b"]);
    let left = billing.schedules().unwrap();
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].configuration.as_deref(), Some("billing"));
}

#[test]
fn a_clock_that_was_wrong_stops_nothing_once_it_is_right() {
    let rig = Rig::new();
    let definition = r#"{"cron": "* * * * *", "queue": "q", "overlap": "allow"}"#;
    let mut ledger = rig.daemon();
    ledger.sync(&[config("m", definition)]).unwrap();
    run(&mut ledger);
    // For a while it is ten days ahead.
    rig.jump(10 * 86_400);
    assert!(matches!(run(&mut ledger).jump, Some(Jump::Forward(_))));
    rig.jump(-10 * 86_400);
    assert!(matches!(run(&mut ledger).jump, Some(Jump::Correction(_))));
    // The next slot is the first of those that were skipped as missed.
    rig.pass(30);
    assert_eq!(run(&mut ledger).sent, 0);
    rig.pass(60);
    assert_eq!(run(&mut ledger).sent, 1);
    // The same, and it is set right while no daemon runs.
    rig.jump(10 * 86_400);
    run(&mut ledger);
    drop(ledger);
    rig.jump(-10 * 86_400);
    let mut ledger = rig.daemon();
    run(&mut ledger);
    rig.pass(120);
    assert_eq!(run(&mut ledger).sent, 1);
}

#[test]
fn a_single_time_that_sql_inserts_runs_though_no_daemon_was_there() {
    let rig = Rig::new();
    drop(rig.daemon());
    let now = rig.now_ms.load(Ordering::SeqCst);
    let at = r#"{"at": "2026-12-01T00:01:00Z", "queue": "q"}"#;
    let insert = "INSERT INTO schedules (name, definition, created_at) VALUES ('once', ?1, ?2)";
    rig.sql().execute(insert, params![at, now]).unwrap();
    rig.pass(3600);
    let mut ledger = rig.daemon();
    assert_eq!(run(&mut ledger).sent, 1);
    rig.end_all(OccurrenceState::Completed);
    // When it is long over, nothing is left of it.
    rig.sql()
        .execute("UPDATE occurrences SET id = '0'", [])
        .unwrap();
    rig.pass(100);
    ledger.expire(&Keep::all(Duration::from_secs(10))).unwrap();
    ledger.expire(&Keep::all(Duration::from_secs(10))).unwrap();
    assert_eq!(ledger.schedules().unwrap(), []);
    assert_eq!(slots(&mut ledger, "once"), [""; 0]);
}
