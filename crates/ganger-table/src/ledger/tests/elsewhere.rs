//! Schedules whose messages go to other sources, and reports of what becomes of these.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::Instant;

use super::*;
use ganger_config::model::Record;
use ganger_config::sample;
use ganger_queue::delivery::{
    Begun, Delivery, Failure, Follower, Following, History, Message, MessageRecord, Outcome,
    PoolEnd, Reason, Report, Reported, Reports, SourceEnd, link,
};

pub(super) const ELSEWHERE: &str =
    r#"{"every": "1m", "queue": "q", "source": "rabbit", "body": "{{ slot }}", "key": "k"}"#;
const HOLD: Duration = Duration::from_secs(60);

/// Enters a schedule and dispatches its first slot.
pub(super) fn dispatched(rig: &Rig, definition: &str) -> (Ledger, String) {
    let mut ledger = rig.daemon();
    ledger.sync(&[config("m", definition)]).unwrap();
    run(&mut ledger);
    rig.pass(30);
    assert!(ledger.dispatch().unwrap().has_outgoing);
    let id = newest(&mut ledger).id;
    (ledger, id)
}

pub(super) fn newest(ledger: &mut Ledger) -> Occurrence {
    let filter = OccurrenceFilter {
        limit: 1,
        ..OccurrenceFilter::default()
    };
    ledger.occurrences(&filter).unwrap().remove(0)
}

/// Returns the changes of an occurrence with their notes.
fn events(ledger: &mut Ledger, id: &str) -> Vec<String> {
    let (_, events) = ledger.occurrence(id).unwrap().unwrap();
    let shown = |event: OccurrenceEvent| {
        let note = event.note.map(|note| format!(" {note}"));
        let (to, attempt) = (event.to.as_str(), event.attempt);
        format!("{to} {attempt}{}", note.unwrap_or_default())
    };
    events.into_iter().map(shown).collect()
}

#[test]
fn a_message_for_another_source_is_published_by_one_daemon() {
    let rig = Rig::new();
    let (mut one, id) = dispatched(&rig, ELSEWHERE);
    let mut other = rig.daemon();
    assert_eq!(rig.bodies("q"), [""; 0]);
    assert!(one.take_out("kafka", 10, HOLD).unwrap().is_empty());
    let taken = one.take_out("rabbit", 10, HOLD).unwrap();
    let [row] = &taken[..] else {
        panic!("{taken:?}");
    };
    let message = row.message.as_ref().unwrap();
    assert_eq!((&row.occurrence, &message.correlation_id), (&id, &id));
    assert_eq!(message.message_id.as_ref(), Some(&id));
    assert_eq!(message.queue, "q");
    assert_eq!(message.key.as_deref(), Some("k"));
    assert_eq!(&message.body[..], b"2026-12-01T00:01:00Z");
    let header = |name: &str| {
        let found = message.headers.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| value.clone())
    };
    assert_eq!(header("x-ganger-occurrence"), Some(id.clone()));
    assert_eq!(header("ganger-schedule").as_deref(), Some("m"));
    // Another daemon takes it only if this one does not get any further.
    assert!(other.take_out("rabbit", 10, HOLD).unwrap().is_empty());
    rig.pass(60);
    assert_eq!(other.take_out("rabbit", 10, HOLD).unwrap(), taken);
    let counts = one.outgoing().unwrap();
    assert_eq!(
        (counts[0].source.as_str(), counts[0].messages),
        ("rabbit", 1)
    );
    let made = counts[0].oldest.map(|at| Timestamp::try_from(at).unwrap());
    assert_eq!(
        made.unwrap().as_second(),
        time("2026-12-01T00:01:00Z").as_second()
    );
    let sent = [id.clone()];
    one.sent_out("rabbit", &sent, &[]).unwrap();
    other.sent_out("rabbit", &sent, &[]).unwrap();
    assert!(one.outgoing().unwrap().is_empty());
    assert_eq!(
        events(&mut one, &id),
        ["queued 0", "queued 0 published to rabbit"]
    );
}

#[test]
fn a_message_is_put_back_and_may_be_put_off() {
    let rig = Rig::new();
    let (mut ledger, id) = dispatched(&rig, ELSEWHERE);
    let mut take = |hold| {
        let taken = ledger.take_out("rabbit", 10, HOLD).unwrap();
        let back: Vec<_> = taken
            .iter()
            .map(|row| (row.occurrence.clone(), hold))
            .collect();
        ledger.sent_out("rabbit", &[], &back).unwrap();
        taken.len()
    };
    assert_eq!(
        (take(Duration::ZERO), take(Duration::from_secs(10))),
        (1, 1)
    );
    assert_eq!(take(Duration::ZERO), 0);
    rig.pass(9);
    assert_eq!(take(Duration::ZERO), 0);
    rig.pass(1);
    assert_eq!(take(Duration::from_secs(600)), 1);
    // A clock that is set back does not hold it for longer.
    rig.jump(-3600);
    assert_eq!(take(Duration::ZERO), 1);
    let unreadable = "UPDATE schedule_outbox SET message = '{}' WHERE occurrence = ?1";
    rig.sql().execute(unreadable, [&id]).unwrap();
    let taken = ledger.take_out("rabbit", 10, HOLD).unwrap();
    assert!(
        taken[0]
            .message
            .as_ref()
            .unwrap_err()
            .contains("can't be read")
    );
}

#[test]
fn a_trigger_goes_the_same_way_and_the_own_source_is_none() {
    let rig = Rig::new();
    let mut ledger = rig.daemon();
    let own = r#"{"every": "1h", "queue": "q", "source": "main", "body": "own"}"#;
    let routed =
        r#"{"every": "1h", "exchange": "events", "routing_key": "a.b", "source": "rabbit"}"#;
    ledger
        .sync(&[config("own", own), config("routed", routed)])
        .unwrap();
    for name in ["own", "routed"] {
        assert!(matches!(
            ledger.trigger(name, None, None, false),
            Ok(Triggered::Sent(_))
        ));
    }
    assert_eq!(rig.bodies("q"), ["own"]);
    let taken = ledger.take_out("rabbit", 10, HOLD).unwrap();
    let message = taken[0].message.as_ref().unwrap();
    assert_eq!(
        (message.exchange.as_deref(), message.queue.as_str()),
        (Some("events"), "a.b")
    );
}

#[test]
fn without_queues_a_schedule_must_name_its_source() {
    let rig = Rig::new();
    let mut ledger = rig.daemon();
    ledger.definitions.has_queues = false;
    ledger
        .sync(&[config("m", MINUTELY), config("n", ELSEWHERE)])
        .unwrap();
    let broken = run(&mut ledger).broken;
    let [(name, why)] = &broken[..] else {
        panic!("{broken:?}");
    };
    assert_eq!(name, "m");
    assert!(why.contains("`source` is missing"), "{why}");
}

/// A pool's source whose messages are followed.
struct Followed {
    follower: Follower,
    source: SourceEnd,
    pool: PoolEnd,
}

impl Followed {
    fn new() -> Self {
        let (mut source, pool) = link();
        let follower = Follower::default();
        follower.follow_for(Some(&sample::ledger("ledger.db", Record::Scheduled)));
        let policy = watch::channel(Arc::new(sample::policy())).1;
        source.following = Some(Following::new(&follower, None, policy));
        Self {
            follower,
            source,
            pool,
        }
    }

    fn deliver(&mut self, occurrence: &str, attempt: u32) -> Delivery {
        let message = Message {
            queue: "q".into(),
            body: bytes::Bytes::new(),
            headers: Vec::new(),
            correlation_id: String::new(),
            reply_to: None,
            properties: Vec::new(),
            occurrence: Some(occurrence.into()),
        };
        let history = History {
            attempt,
            ..History::default()
        };
        self.source.deliver(1, message, history);
        self.pool.deliveries.try_recv().unwrap()
    }

    fn is_settled(&mut self) -> bool {
        self.source.settlements.try_recv().is_ok()
    }
}

fn failure(reason: Reason) -> Box<Failure> {
    Box::new(Failure::new(reason, "why"))
}

/// The clock of the ledger stands still, and so does that of the reports: one that took a moment would be older than the
/// one before it.
#[tokio::test(start_paused = true)]
async fn an_occurrence_follows_its_message_elsewhere() {
    let delay = Duration::from_secs(1);
    let table = [
        (Outcome::Done, "completed", None),
        (
            Outcome::Requeue { after: delay },
            "waiting",
            Some("requeue"),
        ),
        (
            Outcome::RetryAfter {
                delay,
                failure: failure(Reason::Failed),
            },
            "waiting",
            Some("retry"),
        ),
        (Outcome::ReturnAfter { delay }, "waiting", Some("pause")),
        (Outcome::Return { suspect: false }, "queued", None),
        (
            Outcome::DeadLetter(failure(Reason::Failed)),
            "failed",
            Some("failed"),
        ),
        (
            Outcome::DeadLetter(failure(Reason::TimedOut)),
            "timed_out",
            Some("timed_out"),
        ),
        (
            Outcome::DeadLetter(failure(Reason::Cancelled)),
            "cancelled",
            Some("cancelled"),
        ),
    ];
    for (outcome, state, reason) in table {
        let rig = Rig::new();
        let (mut ledger, id) = dispatched(&rig, ELSEWHERE);
        let mut followed = Followed::new();
        let mut pending = PendingReports::default();
        let mut delivery = followed.deliver(&id, 2);
        delivery.begin(&Arc::from("{}"));
        pending.add(followed.follower.take());
        let mut batch = pending.take(None);
        ledger.report(&mut batch).unwrap();
        let running = newest(&mut ledger);
        assert_eq!(
            (running.state, running.attempt),
            (OccurrenceState::Running, 2)
        );
        let error = outcome.failure().map(|_| "why".to_owned());
        delivery.settle(outcome);
        pending.add(followed.follower.take());
        let mut batch = pending.take(None);
        ledger.report(&mut batch).unwrap();
        pending.written(&batch);
        assert!(followed.is_settled());
        let found = newest(&mut ledger);
        assert_eq!(
            (found.state.as_str(), found.reason.as_deref()),
            (state, reason)
        );
        assert_eq!(found.error, error);
        assert_eq!(found.ended_at.is_some(), found.state.is_end());
        assert_eq!(events(&mut ledger, &id).len(), 3, "{state}");
    }
}

#[test]
fn a_settlement_waits_for_its_report_but_not_for_long() {
    let mut followed = Followed::new();
    let mut pending = PendingReports::default();
    let settle = |followed: &mut Followed, pending: &mut PendingReports| {
        followed.deliver("o", 1).settle(Outcome::Done);
        pending.add(followed.follower.take());
        followed.is_settled()
    };
    // Written.
    assert!(!settle(&mut followed, &mut pending));
    let batch = pending.take(None);
    assert!(!followed.is_settled());
    pending.written(&batch);
    assert!(followed.is_settled() && pending.is_empty());
    // The ledger is slow.
    assert!(!settle(&mut followed, &mut pending));
    let due = pending.release_due().unwrap();
    pending.release(due - Duration::from_millis(1));
    assert!(!followed.is_settled());
    pending.release(due);
    assert!(followed.is_settled() && !pending.is_empty());
    // It fails, and nothing waits for it until it is back.
    assert!(!settle(&mut followed, &mut pending));
    let batch = pending.take(None);
    assert!(pending.is_empty());
    pending.failed(batch);
    assert!(followed.is_settled());
    assert!(settle(&mut followed, &mut pending));
    assert_eq!(pending.len(), 1);
    let batch = pending.take(None);
    pending.written(&batch);
    assert!(!settle(&mut followed, &mut pending));
}

#[test]
fn a_run_that_has_just_begun_is_not_shown() {
    let mut followed = Followed::new();
    let mut pending = PendingReports::default();
    let mut delivery = followed.deliver("o", 1);
    delivery.begin(&Arc::from("{}"));
    pending.add(followed.follower.take());
    let due = pending.due().unwrap();
    assert!(
        pending
            .take(Some(due - Duration::from_millis(1)))
            .states
            .is_empty()
    );
    delivery.settle(Outcome::Done);
    pending.add(followed.follower.take());
    assert!(pending.due().unwrap() < due);
    assert_eq!(pending.take(Some(Instant::now())).states.len(), 1);
}

/// Returns a report of a delivery so many seconds ago, that was made so many seconds ago.
pub(super) fn report(id: &str, (arrived, made): (u64, u64), what: Reported) -> Reports {
    let ago = |seconds| {
        Instant::now()
            .checked_sub(Duration::from_secs(seconds))
            .unwrap()
    };
    let report = Report {
        occurrence: id.into(),
        attempt: Some(1),
        arrived: ago(arrived),
        begun: Some(Begun {
            at: ago(arrived),
            worker: Arc::from("{}"),
            trace: None,
        }),
        made: ago(made),
        what,
    };
    Reports {
        of_occurrences: vec![report],
        ..Reports::default()
    }
}

#[test]
fn an_older_report_changes_nothing() {
    let rig = Rig::new();
    let (mut ledger, id) = dispatched(&rig, ELSEWHERE);
    rig.pass(100);
    let mut write = |times, what| {
        let mut pending = PendingReports::default();
        pending.add(report(&id, times, what));
        ledger.report(&mut pending.take(None)).unwrap();
        let (occurrence, events) = ledger.occurrence(&id).unwrap().unwrap();
        (occurrence.state.as_str(), events.len())
    };
    let dead = |reason| Reported::Buried(Failure::new(reason, "why"));
    // Its daemon could not write for a time; the message runs on another.
    assert_eq!(write((8, 5), Reported::Begun), ("running", 2));
    assert_eq!(write((20, 7), Reported::Begun), ("running", 2));
    // An end counts, whenever it is reported.
    assert_eq!(write((20, 6), dead(Reason::TimedOut)), ("timed_out", 3));
    // What was delivered before the end changes nothing, even if it is reported later.
    assert_eq!(write((7, 0), Reported::Begun), ("timed_out", 3));
    assert_eq!(write((7, 0), dead(Reason::Failed)), ("timed_out", 3));
    // A dead letter that was sent back, or a message that was delivered again.
    assert_eq!(write((4, 3), Reported::Begun), ("running", 4));
    assert_eq!(write((4, 1), dead(Reason::Failed)), ("failed", 5));
}

#[test]
fn a_clock_that_was_set_back_keeps_no_report_out() {
    let rig = Rig::new();
    let (mut ledger, id) = dispatched(&rig, ELSEWHERE);
    let mut write = |what| {
        let mut pending = PendingReports::default();
        pending.add(report(&id, (2, 0), what));
        ledger.report(&mut pending.take(None)).unwrap();
        ledger.occurrence(&id).unwrap().unwrap().0.state.as_str()
    };
    assert_eq!(write(Reported::Begun), "running");
    rig.jump(-3600);
    let failure = Failure::new(Reason::Failed, "why");
    assert_eq!(write(Reported::Buried(failure)), "failed");
}

/// A database whose answers to commits are lost.
#[derive(Debug)]
struct Mute(SqliteLedger);

impl LedgerStore for Mute {
    fn write(&mut self, work: &mut store::LedgerWork<'_>) -> Result<(), Fault> {
        self.0.write(work)?;
        Err(Fault::transient("no answer"))
    }

    fn write_beside(&mut self, work: &mut store::LedgerWork<'_>) -> Result<(), Fault> {
        self.0.write_beside(work)
    }

    fn read(&mut self, work: &mut store::LedgerWork<'_>) -> Result<(), Fault> {
        self.0.read(work)
    }
}

#[test]
fn an_end_whose_commit_had_no_answer_is_recorded_once() {
    let rig = Rig::new();
    let (mut ledger, id) = dispatched(&rig, ELSEWHERE);
    let clock = WallClock::of(&rig.now_ms);
    let mute = SqliteLedger::open(&rig.path(), 0o600, clock).unwrap();
    let mut mute = Ledger::new(("main", "main"), Box::new(Mute(mute)), || PASSED.get());
    let mut pending = PendingReports::default();
    let failure = || Failure::new(Reason::Failed, "why");
    let end = |message: &str| {
        let message = MessageRecord {
            message_id: Some(message.to_owned()),
            correlation_id: None,
            source: Some("rabbit".to_owned()),
            queue: "q".into(),
            attempt: 1,
            arrived: Instant::now(),
            begun: None,
            record: Record::All,
        };
        let failed = Outcome::DeadLetter(Box::new(failure()));
        message.end(&failed, &"".into()).unwrap()
    };
    let mut reports = report(&id, (2, 0), Reported::Buried(failure()));
    // Two messages may have the same id.
    reports.ends.push(end("a"));
    reports.ends.push(end("a"));
    pending.add(reports);
    for _ in 0..2 {
        let mut batch = pending.take(None);
        mute.report(&mut batch).unwrap_err();
        pending.failed(batch);
        rig.pass(1);
    }
    let mut later = Reports::default();
    later.ends.push(end("b"));
    pending.add(later);
    ledger.report(&mut pending.take(None)).unwrap();
    let records =
        "SELECT group_concat(message_id ORDER BY id) FROM occurrences WHERE schedule = ''";
    let records: String = rig.sql().query_row(records, [], |row| row.get(0)).unwrap();
    assert_eq!(records, "a,a,b");
    assert_eq!(events(&mut ledger, &id).len(), 2);
}
