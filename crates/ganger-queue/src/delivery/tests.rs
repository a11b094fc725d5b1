//! Tests of `delivery`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;

use super::*;
use ganger_config::model::{Database, LedgerConfig, PoolConfig, Record};
use ganger_config::sample;

fn message(body: &'static str) -> Message {
    Message {
        queue: "q".into(),
        body: Bytes::from_static(body.as_bytes()),
        headers: Vec::new(),
        correlation_id: String::new(),
        reply_to: None,
        properties: Vec::new(),
        occurrence: None,
    }
}

#[test]
fn a_settled_delivery_reaches_the_source_once() {
    let (mut source, mut pool) = link();
    source.deliver(7, message("a"), History::default());
    pool.deliveries.try_recv().unwrap().settle(Outcome::Done);
    let settlement = source.settlements.try_recv().unwrap();
    assert_eq!((settlement.token, settlement.outcome), (7, Outcome::Done));
    assert!(source.settlements.try_recv().is_err());
}

#[test]
fn what_is_out_is_void_without_its_claim_and_settled_all_the_same() {
    let (mut source, mut pool) = link();
    let claims = [Claim::default(), Claim::default()];
    for (token, claim) in (1..).zip(&claims) {
        source.deliver_under(claim, token, message("a"), History::default());
    }
    source.deliver(3, message("b"), History::default());
    let out: Vec<Delivery> = std::iter::from_fn(|| pool.deliveries.try_recv().ok()).collect();
    let void = || out.iter().map(Delivery::is_void).collect::<Vec<_>>();
    assert_eq!(void(), [false, false, false]);
    let [lost, _kept] = claims;
    drop(lost);
    assert!(!pool.state.has_changed().unwrap());
    source.lost();
    assert!(pool.state.has_changed().unwrap());
    assert_eq!(void(), [true, false, false]);
    drop(out);
    let mut tokens = std::iter::from_fn(|| source.settlements.try_recv().ok());
    assert!(tokens.by_ref().map(|settlement| settlement.token).eq(1..=3));
}

#[test]
fn what_is_begun_may_go_on_without_its_claim() {
    let (source, mut pool) = link();
    let claims = [Claim::default(), Claim::default()];
    let begin_by = Instant::now();
    source.deliver_under(&claims[0], 1, message("a"), History::default());
    source.deliver_by(&claims[1], 2, message("b"), History::default(), begin_by);
    let out: Vec<Delivery> = std::iter::from_fn(|| pool.deliveries.try_recv().ok()).collect();
    let given_up = |begun| out.iter().map(move |one| one.is_given_up(begun));
    assert!(given_up(false).chain(given_up(true)).all(|is| !is));
    drop(claims);
    assert!(given_up(false).eq([true, true]));
    assert!(given_up(true).eq([true, false]));
}

#[test]
fn a_dropped_delivery_goes_back() {
    let (mut source, mut pool) = link();
    source.deliver(7, message("a"), History::default());
    drop(pool.deliveries.try_recv().unwrap());
    let settlement = source.settlements.try_recv().unwrap();
    assert_eq!(settlement.outcome, Outcome::Return { suspect: false });
}

#[test]
fn a_pool_that_is_gone_gives_everything_back() {
    let (mut source, pool) = link();
    source.deliver(1, message("waiting in the channel"), History::default());
    drop(pool);
    source.deliver(2, message("too late"), History::default());
    let tokens: Vec<u64> = std::iter::from_fn(|| source.settlements.try_recv().ok())
        .map(|s| s.token)
        .collect();
    assert_eq!(tokens, [1, 2]);
}

/// A source whose messages are followed for the ledger in that file, and that has that database itself.
fn followed(ledger: Option<&str>, own: Option<&str>) -> (SourceEnd, PoolEnd, Follower) {
    let ledger = ledger.map(|path| sample::ledger(path, Record::Scheduled));
    recorded(ledger.as_ref(), own, None)
}

/// The same, with what its pool says that the ledger records.
fn recorded(
    ledger: Option<&LedgerConfig>,
    own: Option<&str>,
    record: Option<Record>,
) -> (SourceEnd, PoolEnd, Follower) {
    let (mut source, pool) = link();
    let follower = Follower::default();
    follower.follow_for(ledger);
    let own = own.map(|path| Database::Sqlite(path.into()));
    let policy = PoolConfig {
        record,
        ..sample::policy()
    };
    let policy = watch::channel(Arc::new(policy)).1;
    source.following = Some(Following::new(&follower, own, policy));
    (source, pool, follower)
}

/// Returns outcomes of messages, each with whether a worker has had the message.
fn outcomes() -> [(bool, Outcome); 6] {
    let reply = |queue: &str| {
        Outcome::Reply(Box::new(Outgoing {
            queue: queue.to_owned(),
            ..Outgoing::default()
        }))
    };
    let failure = || Box::new(Failure::new(Reason::Failed, "no"));
    let retry = Outcome::RetryAfter {
        delay: std::time::Duration::ZERO,
        failure: failure(),
    };
    [
        (true, Outcome::Done),
        (false, Outcome::Done),
        (true, reply("q")),
        (true, reply("other")),
        (true, retry),
        (false, Outcome::DeadLetter(failure())),
    ]
}

/// Settles a message of queue `q`. Returns whether its end is recorded.
fn is_recorded(
    (source, pool, follower): &mut (SourceEnd, PoolEnd, Follower),
    (has_begun, outcome): (bool, Outcome),
    keeps_all: bool,
) -> bool {
    let message = Message {
        queue: "q".into(),
        correlation_id: "c".to_owned(),
        ..message("a")
    };
    source.deliver(7, message, History::default());
    let mut delivery = pool.deliveries.try_recv().unwrap();
    // What is kept of a reply must be recorded, or nobody has it.
    let is_kept = delivery.history.keeps_result;
    assert_eq!(is_kept, keeps_all);
    if has_begun {
        delivery.begin(&Arc::from("{}"));
    }
    delivery.keep_result("r".into());
    delivery.settle(outcome.clone());
    // It waits for no report.
    let settled = source.settlements.try_recv().unwrap().outcome;
    assert_eq!(settled, outcome);
    let mut reports = follower.take();
    assert!(reports.of_occurrences.is_empty());
    reports.ends.take().into_iter().any(|end| {
        let RecordedEnd { message, end, .. } = end;
        let expected = match &outcome {
            Outcome::DeadLetter(failure) => MessageEnd::of(failure),
            Outcome::Reply(_) => MessageEnd::Done(Bytes::new()),
            _ => MessageEnd::Done("r".into()),
        };
        assert_eq!(end, expected);
        assert_eq!(message.message_id.as_deref(), Some("c"));
        assert_eq!(message.source.as_deref(), Some("s"));
        message.begun.is_some() == has_begun
    })
}

#[test]
fn ends_of_other_messages_are_recorded_as_configured() {
    let all = [true, false, false, true, false, true];
    let failed = [false, false, false, false, false, true];
    for (of_ledger, of_pool, expected) in [
        (Record::Scheduled, None, [false; 6]),
        (Record::Failed, None, failed),
        (Record::All, None, all),
        (Record::Scheduled, Some(Record::All), all),
        (Record::All, Some(Record::Scheduled), [false; 6]),
    ] {
        let ledger = sample::ledger("ledger.db", of_ledger);
        let mut ends = recorded(Some(&ledger), None, of_pool);
        let is_recorded = outcomes().map(|of| is_recorded(&mut ends, of, expected == all));
        assert_eq!(is_recorded, expected, "{of_ledger:?} {of_pool:?}");
    }
}

#[test]
fn ends_that_wait_are_bounded_and_keep_their_order() {
    let end = |id: usize, bytes: usize| {
        let message = MessageRecord {
            message_id: Some(id.to_string()),
            correlation_id: None,
            source: None,
            queue: "q".into(),
            attempt: 1,
            arrived: Instant::now(),
            begun: Some(Begun {
                at: Instant::now(),
                worker: "{}".into(),
                trace: None,
            }),
            record: Record::All,
        };
        message
            .end(&Outcome::Done, &vec![b'x'; bytes].into())
            .unwrap()
    };
    let ids = |ends: &[RecordedEnd]| -> Vec<String> {
        let ids = ends.iter().map(|end| end.message.message_id.clone());
        ids.map(Option::unwrap).collect()
    };
    // Of a result only what a ledger keeps is held.
    assert!(end(0, 10 << 20).end.bytes() < 65 << 10);
    let mut ends = RecordedEnds::default();
    (0..600).for_each(|id| ends.push(end(id, 1 << 20)));
    let (kept, dropped) = (ends.len(), ends.take_dropped());
    assert!(
        (400..600).contains(&kept) && kept as u64 + dropped == 600,
        "{kept}"
    );
    let taken = ends.take();
    ends.push(end(1000, 1));
    ends.take_back(taken);
    let all = ends.take();
    assert_eq!(ids(&all[..2]), ["0", "1"]);
    assert_eq!(ids(&all[all.len() - 1..]), ["1000"]);
}

#[test]
fn a_ledger_in_the_own_database_is_not_reported_to() {
    let ledger = sample::ledger("a.db", Record::All);
    let (source, mut pool, follower) = recorded(Some(&ledger), Some("a.db"), None);
    source.deliver(7, message("a"), History::default());
    let delivery = pool.deliveries.try_recv().unwrap();
    let following = source.following.as_ref().unwrap();
    let record = following.record_here(&delivery.message, 2).unwrap();
    assert_eq!((record.source, record.attempt), (None, 2));
    assert!(following.record_here(&of_occurrence(), 2).is_none());
    delivery.settle(Outcome::DeadLetter(Box::new(Failure::new(
        Reason::Failed,
        "no",
    ))));
    assert!(follower.take().ends.is_empty());
}

fn of_occurrence() -> Message {
    Message {
        occurrence: Some("o".into()),
        ..message("a")
    }
}

#[test]
fn a_message_of_an_occurrence_is_settled_when_its_report_is_dropped() {
    let (mut source, mut pool, follower) = followed(Some("ledger.db"), None);
    source.deliver(7, of_occurrence(), History::default());
    let mut delivery = pool.deliveries.try_recv().unwrap();
    delivery.begin(&Arc::from("{}"));
    delivery.begin(&Arc::from("{}"));
    delivery.settle(Outcome::Done);
    let reports = follower.take();
    let [begun, settled] = &reports.of_occurrences[..] else {
        panic!("{reports:?}");
    };
    assert_eq!((&*begun.occurrence, begun.attempt), ("o", Some(0)));
    assert!(matches!(begun.what, Reported::Begun) && begun.begun.is_some());
    let Reported::Settled(settlement) = &settled.what else {
        panic!("{settled:?}");
    };
    assert_eq!(settlement.outcome(), Some(&Outcome::Done));
    assert!(source.settlements.try_recv().is_err());
    drop(reports);
    assert_eq!(source.settlements.try_recv().unwrap().token, 7);
}

#[test]
fn behind_a_gate_a_message_is_followed_all_the_same() {
    let (mut source, mut gate, follower) = followed(Some("ledger.db"), None);
    let (mut outer, mut pool) = link();
    source.deliver(7, of_occurrence(), History::default());
    let receipt = outer.pass_on(1, gate.deliveries.try_recv().unwrap());
    let mut delivery = pool.deliveries.try_recv().unwrap();
    delivery.begin(&Arc::from("{}"));
    delivery.settle(Outcome::Done);
    assert_eq!(outer.settlements.try_recv().unwrap().token, 1);
    assert_eq!(follower.take().of_occurrences.len(), 1);
    receipt.settle(
        Outcome::Requeue {
            after: std::time::Duration::ZERO,
        },
        None,
        None,
    );
    assert_eq!(follower.take().of_occurrences.len(), 1);
    assert_eq!(source.settlements.try_recv().unwrap().token, 7);
}

#[test]
fn a_message_is_followed_for_a_ledger_elsewhere_only() {
    for (ledger, own) in [(None, None), (Some("a.db"), Some("a.db"))] {
        let (mut source, mut pool, follower) = followed(ledger, own);
        source.deliver(7, of_occurrence(), History::default());
        pool.deliveries.try_recv().unwrap().settle(Outcome::Done);
        assert!(follower.take().of_occurrences.is_empty());
        assert!(source.settlements.try_recv().is_ok());
    }
    let (mut source, mut pool, follower) = followed(Some("a.db"), Some("b.db"));
    source.deliver(7, of_occurrence(), History::default());
    drop(pool.deliveries.try_recv().unwrap());
    source.deliver(8, message("of none"), History::default());
    drop(pool.deliveries.try_recv().unwrap());
    assert_eq!(source.settlements.try_recv().unwrap().token, 8);
    assert_eq!(follower.take().of_occurrences.len(), 1);
    assert_eq!(source.settlements.try_recv().unwrap().token, 7);
}

#[test]
fn a_message_that_another_has_is_not_reported() {
    let (mut source, mut pool, follower) = followed(Some("ledger.db"), None);
    let claim = Claim::default();
    source.deliver_under(&claim, 7, of_occurrence(), History::default());
    let mut delivery = pool.deliveries.try_recv().unwrap();
    drop(claim);
    delivery.begin(&Arc::from("{}"));
    delivery.settle(Outcome::Done);
    assert!(follower.take().of_occurrences.is_empty());
    assert_eq!(source.settlements.try_recv().unwrap().token, 7);
}

#[test]
fn a_step_that_is_repeated_is_of_the_run_of_this_message() {
    let (source, mut pool, _follower) = followed(Some("ledger.db"), None);
    source.deliver(7, of_occurrence(), History::default());
    let delivery = pool.deliveries.try_recv().unwrap();
    let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let other = [
        header("a", "1"),
        header("x-ganger-occurrence", "other"),
        header("x-ganger-attempts-max", "9"),
    ];
    for (queue, run) in [("q", Some("o")), ("answers", None)] {
        let stored = StoredReply {
            queue: Some(queue.to_owned()),
            body: Bytes::new(),
            headers: other.to_vec(),
        };
        let Outcome::Reply(reply) = repeated(Some(stored), &delivery.next_step()) else {
            panic!("no reply");
        };
        let of_run = run.map(|id| header("x-ganger-occurrence", id));
        let expected = [header("a", "1")].into_iter().chain(of_run);
        assert_eq!(reply.headers, expected.collect::<Vec<_>>());
    }
}

#[test]
fn a_message_whose_run_is_cancelled_does_not_reach_the_pool() {
    let (mut source, mut pool, follower) = followed(Some("a.db"), Some("a.db"));
    follower.cancel_arriving([Arc::from("o")].into());
    source.deliver(6, message("of none"), History::default());
    source.deliver(7, of_occurrence(), History::default());
    assert_eq!(pool.deliveries.try_recv().unwrap().message.body, "of none");
    assert!(pool.deliveries.try_recv().is_err());
    let mut settled = std::iter::from_fn(|| source.settlements.try_recv().ok());
    let cancelled = settled.find(|one| one.token == 7).unwrap();
    let failure = Failure::new(Reason::Cancelled, CANCELLED);
    assert_eq!(cancelled.outcome, Outcome::DeadLetter(Box::new(failure)));
    // Once: it may be sent back before the next look at the ledger.
    source.deliver(8, of_occurrence(), History::default());
    assert!(pool.deliveries.try_recv().is_ok());
}

#[test]
fn a_ledger_that_is_left_is_not_behind() {
    let follower = Follower::default();
    assert_eq!(follower.behind(), Duration::ZERO);
    let minute_ago = Instant::now().checked_sub(Duration::from_secs(60)).unwrap();
    follower.set_waiting_since(Some(minute_ago));
    assert!(follower.behind() >= Duration::from_secs(60));
    follower.follow_for(None);
    assert_eq!(follower.behind(), Duration::ZERO);
    // What is not to be written yet is not late.
    follower.set_waiting_since(Some(Instant::now() + Duration::from_secs(60)));
    assert_eq!(follower.behind(), Duration::ZERO);
}
