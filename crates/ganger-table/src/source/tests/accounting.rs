//! Tests of the effect of each outcome on the row, and of the history in the next delivery.

use std::time::Duration;

use super::*;
use ganger_queue::client::{Client, DeadFilter, RetryTarget};
use ganger_queue::dead_letter::DeadReply;
use ganger_queue::delivery::{Exit, Failure, History, Message, Outgoing, Property, Reason};

fn failure(reason: Reason) -> Box<Failure> {
    Box::new(Failure::new(reason, "it broke"))
}

fn retry(reason: Reason) -> Outcome {
    Outcome::RetryAfter {
        delay: Duration::from_secs(2),
        failure: failure(reason),
    }
}

/// Settles one message with that outcome, and returns the row's counters after it.
async fn settled_as(rig: &Rig, outcome: Outcome) -> String {
    let mut source = rig.source(&Shared::default(), 1);
    source.next().await.settle(outcome);
    source.credit(0);
    source.end().await;
    rig.counters()
}

fn with_row(columns: &str, values: &str) -> Rig {
    let rig = Rig::new();
    rig.execute(&format!(
        "INSERT INTO consumer_messages (queue, body, {columns}) VALUES ('q', 'b', {values})"
    ));
    rig
}

#[tokio::test]
async fn every_outcome_counts_as_it_should() {
    let in_two_seconds = NOW_MS + 2000;
    let back = |suspect| Outcome::Return { suspect };
    let requeue = |seconds| Outcome::Requeue {
        after: Duration::from_secs(seconds),
    };
    let table = [
        (
            back(false),
            "attempts 3 crashes 1 lapses 1 requeues 2 suspect 0 after 0".to_owned(),
        ),
        (
            back(true),
            "attempts 3 crashes 1 lapses 1 requeues 2 suspect 1 after 0".to_owned(),
        ),
        (
            Outcome::ReturnAfter {
                delay: Duration::from_secs(2),
            },
            format!("attempts 3 crashes 1 lapses 0 requeues 2 suspect 0 after {in_two_seconds}"),
        ),
        (
            requeue(0),
            "attempts 3 crashes 1 lapses 0 requeues 3 suspect 0 after 0".to_owned(),
        ),
        (
            requeue(2),
            format!("attempts 3 crashes 1 lapses 0 requeues 3 suspect 0 after {in_two_seconds}"),
        ),
        (
            retry(Reason::Failed),
            format!("attempts 4 crashes 1 lapses 0 requeues 0 suspect 0 after {in_two_seconds}"),
        ),
        (
            retry(Reason::Crashed),
            format!("attempts 4 crashes 2 lapses 0 requeues 0 suspect 0 after {in_two_seconds}"),
        ),
    ];
    for (outcome, expected) in table {
        let rig = with_row("attempts, crashes, lapses, requeues", "3, 1, 1, 2");
        let name = format!("{outcome:?}");
        let counters = settled_as(&rig, outcome).await;
        assert_eq!(counters, format!("{expected} owner none"), "{name}");
    }
}

#[tokio::test]
async fn a_retry_keeps_the_first_failures_time_and_the_last_ones_error() {
    let rig = with_row("attempts", "0");
    settled_as(&rig, retry(Reason::Failed)).await;
    rig.set_clock(NOW_MS + 5000);
    settled_as(&rig, retry(Reason::TimedOut)).await;
    let row: String = rig.get("SELECT first_failed_at || last_error FROM consumer_messages");
    assert_eq!(row, format!("{NOW_MS}it broke"));
}

#[tokio::test]
async fn the_delivery_tells_the_history_and_the_properties() {
    let rig = with_row(
        "attempts, crashes, requeues, suspect, headers, correlation_id, reply_to, message_id, \
         content_type, key, priority, created_at",
        r#"2, 0, 4, 1, '{"b":1,"a":"x","x-ganger-own":"y","x-ganger-step":"5","x-ganger-attempts-max":3}', 'c', 'r', 'm', 't', 'k', 9, 123"#,
    );
    let mut source = rig.source(&Shared::default(), 1);
    let delivery = source.next().await;
    let history = History {
        attempt: 3,
        crashes: 0,
        requeues: 4,
        alone: true,
        earlier: None,
        step: 5,
        attempts_max: Some(3),
        followed: false,
        keeps_result: false,
    };
    assert_eq!(delivery.history, history);
    let text = |text: &str| Property::Text(text.to_owned());
    let message = Message {
        queue: "q".into(),
        body: "b".into(),
        headers: vec![("b".into(), "1".into()), ("a".into(), "x".into())],
        correlation_id: "c".to_owned(),
        reply_to: Some("r".to_owned()),
        properties: vec![
            ("row_id", Property::Integer(1)),
            ("priority", Property::Integer(9)),
            ("timestamp", Property::Integer(123)),
            ("redelivered", Property::Boolean(true)),
            ("message_id", text("m")),
            ("content_type", text("t")),
            ("key", text("k")),
        ],
        occurrence: None,
    };
    assert_eq!(delivery.message, message);
    drop(delivery);
    source.end().await;
    assert!(
        rig.counters().starts_with("attempts 2 "),
        "dropped is uncharged"
    );
}

#[tokio::test]
async fn done_deletes_and_a_reply_comes_in_its_place() {
    let rig = with_row("attempts", "0");
    rig.insert("second");
    let mut source = rig.source(&Shared::default(), 1);
    source.next().await.settle(Outcome::Done);
    let reply = Outgoing {
        queue: "answers".to_owned(),
        body: "42".into(),
        headers: vec![("h".to_owned(), "v".to_owned())],
        correlation_id: "c".to_owned(),
        delay: Duration::from_millis(5),
        ..Outgoing::default()
    };
    source.next().await.settle(Outcome::Reply(Box::new(reply)));
    source.end().await;
    let rows: String = rig.get(
        "SELECT group_concat(queue || body || typeof(body) || headers || correlation_id \
         || available_after) FROM consumer_messages",
    );
    let expected = format!(r#"answers42text{{"h":"v"}}c{}"#, NOW_MS + 5);
    assert_eq!(rows, expected);
}

#[tokio::test]
async fn a_settlement_without_its_claim_touches_nothing() {
    let rig = with_row("attempts", "0");
    let reply = Outgoing {
        queue: "answers".to_owned(),
        ..Outgoing::default()
    };
    let outcomes = [
        Outcome::Done,
        Outcome::Reply(Box::new(reply)),
        Outcome::DeadLetter(failure(Reason::Failed)),
        retry(Reason::Failed),
    ];
    for outcome in outcomes {
        let mut source = rig.source(&Shared::default(), 1);
        let delivery = source.next().await;
        rig.execute("UPDATE consumer_messages SET claim = 7, owner = (SELECT id FROM owners)");
        source.credit(0);
        let name = format!("{outcome:?}");
        delivery.settle(outcome);
        let state = source.until(|state| state.likely_duplicates > 0).await;
        assert_eq!(state.likely_duplicates, 1, "{name}");
        let rows: i64 = rig.get(
            "SELECT (SELECT count(*) FROM consumer_messages WHERE claim = 7 AND suspect = 0) * 10 \
             + (SELECT count(*) FROM consumer_messages) + (SELECT count(*) FROM poisoned_messages)",
        );
        assert_eq!(rows, 11, "{name}");
        rig.execute("UPDATE consumer_messages SET claim = NULL, owner = NULL");
        source.end().await;
    }
}

/// A message that was not started runs once, wherever that is.
#[tokio::test]
async fn what_goes_back_without_its_claim_is_no_duplicate() {
    let rig = with_row("attempts", "0");
    let mut source = rig.source(&Shared::default(), 1);
    let delivery = source.next().await;
    rig.execute("UPDATE consumer_messages SET claim = 7");
    source.credit(0);
    delivery.settle(Outcome::Return { suspect: true });
    assert_eq!(source.end().await.likely_duplicates, 0);
    assert_eq!(rig.get::<i64>("SELECT suspect FROM consumer_messages"), 0);
}

/// Only the daemon writes a table's dead letters, so no other destination is allowed.
fn goes_nowhere_else(client: &mut Client, all: &DeadFilter) {
    let elsewhere = RetryTarget {
        to: Some("elsewhere".to_owned()),
        ..RetryTarget::default()
    };
    let refused = client.dead_retry(all, &elsewhere).unwrap_err();
    let says = "in their own queue only";
    assert!(refused.to_string().contains(says), "{refused}");
}

#[tokio::test]
async fn a_dead_letter_keeps_everything_and_says_why() {
    let rig = with_row(
        "headers, correlation_id, reply_to, key, priority, attempts, crashes",
        r#"'{"h":1}', 'c', 'r', 'k', 3, 4, 1"#,
    );
    let mut source = rig.source(&Shared::default(), 1);
    let failure = Failure {
        reason: Reason::Crashed,
        error: "crashed the worker 2 times".to_owned(),
        exit: Some(Exit {
            code: None,
            signal: Some(11),
            oom: true,
        }),
        stderr: vec!["one".to_owned(), "two \"quoted\"".to_owned()],
        reply: Some(Box::new(Outgoing {
            queue: "gone".to_owned(),
            body: vec![0xff, 0].into(),
            ..Outgoing::default()
        })),
    };
    source
        .next()
        .await
        .settle(Outcome::DeadLetter(Box::new(failure)));
    source.end().await;

    let mut client = rig.client();
    assert_eq!(
        client.depth("q").unwrap(),
        ganger_queue::client::Depth::default()
    );
    let dead = client.dead_show("1").unwrap().unwrap();
    assert_eq!((dead.pool.as_str(), dead.queue.as_str()), ("p", "q"));
    assert_eq!(
        (dead.reason.as_str(), dead.attempts, dead.crashes),
        ("crashed", 5, 2)
    );
    assert_eq!(
        (dead.exit_code, dead.signal, dead.oom),
        (None, Some(11), true)
    );
    assert_eq!(dead.stderr, ["one", "two \"quoted\""]);
    assert_eq!(dead.first_failed_at, "2027-01-15T08:00:00Z");
    assert_eq!(dead.first_failed_at, dead.last_failed_at);
    assert_eq!((dead.correlation_id.as_str(), dead.priority), ("c", 3));
    assert_eq!(dead.headers, [("h".to_owned(), "1".to_owned())]);
    assert_eq!(dead.body, "b");
    let reply = DeadReply {
        queue: "gone".to_owned(),
        body: vec![0xff, 0].into(),
        headers: Vec::new(),
    };
    assert_eq!(dead.reply, Some(reply));

    let all = DeadFilter::default();
    let mended = RetryTarget {
        body: Some("mended".into()),
        to: None,
    };
    goes_nowhere_else(&mut client, &all);
    assert_eq!(client.dead_retry(&all, &mended).unwrap().retried, 1);
    assert_eq!(client.dead_show("1").unwrap(), None);
    assert!(rig.counters().starts_with("attempts 0 crashes 0"));
    let row: String = rig.get(
        "SELECT body || headers || correlation_id || reply_to || priority FROM consumer_messages",
    );
    assert_eq!(row, r#"mended{"h":1}cr3"#);
}

#[tokio::test]
async fn emits_are_confirmed_once_they_are_there() {
    let rig = Rig::new();
    let source = rig.source(&Shared::default(), 1);
    let (confirmed, told) = tokio::sync::oneshot::channel();
    let message = Outgoing {
        queue: "elsewhere".to_owned(),
        body: "e".into(),
        ..Outgoing::default()
    };
    let publish = ganger_queue::delivery::Publish { message, confirmed };
    source.pool.publishes.send(publish).await.unwrap();
    timeout(SOON, told).await.unwrap().unwrap().unwrap();
    assert_eq!(rig.get::<String>("SELECT body FROM consumer_messages"), "e");
    source.end().await;
}

/// Settlements that come in while other sources of the daemon write join that source's own transaction.
#[tokio::test]
async fn what_comes_while_others_write_goes_along() {
    let rig = Rig::new();
    for body in ["a", "b", "c"] {
        rig.insert(body);
    }
    let (mut task, mut pool, _limits) = rig.open(&Shared::default(), &rig.config());
    pool.intake.send(Intake::Credit(2)).unwrap();
    task.write_and_claim().await;
    let first = pool.deliveries.recv().await.unwrap();
    let second = pool.deliveries.recv().await.unwrap();
    first.settle(Outcome::Done);
    task.collect();
    second.settle(Outcome::Done);
    task.write_and_claim().await;
    let left: i64 = rig.get("SELECT count(*) FROM consumer_messages");
    assert_eq!(left, 1, "both are settled, in one transaction");
    let third = pool.deliveries.recv().await.unwrap();
    assert_eq!(body(&third), "c");
}

#[tokio::test]
async fn what_is_too_much_for_one_transaction_is_written_in_several() {
    let rig = Rig::new();
    ["a", "b", "c"].iter().for_each(|body| rig.insert(body));
    let (mut task, mut pool, _limits) = rig.open(&Shared::default(), &rig.config());
    task.book.set_bytes_per_turn(10);
    pool.intake.send(Intake::Credit(2)).unwrap();
    task.write_and_claim().await;
    for _ in 0..2 {
        let delivery = pool.deliveries.recv().await.unwrap();
        let reply = Outgoing {
            queue: "r".to_owned(),
            body: "12345678".into(),
            ..Outgoing::default()
        };
        delivery.settle(Outcome::Reply(Box::new(reply)));
    }
    let (confirmed, mut told) = tokio::sync::oneshot::channel();
    let message = Outgoing {
        queue: "e".to_owned(),
        ..Outgoing::default()
    };
    let publish = ganger_queue::delivery::Publish { message, confirmed };
    pool.publishes.send(publish).await.unwrap();
    let queues =
        "SELECT group_concat(queue, '') FROM (SELECT queue FROM consumer_messages ORDER BY id)";
    for (written, expected) in [(1, "qqer"), (2, "qerr")] {
        task.collect();
        task.write_and_claim().await;
        assert_eq!(rig.get::<String>(queues), expected, "after {written}");
        assert_eq!(pool.deliveries.try_recv().is_ok(), written == 2);
        assert!(
            written == 2 || task.timer() <= tokio::time::Instant::now(),
            "it goes on"
        );
    }
    told.try_recv().unwrap().unwrap();
}
