//! Tests of a database that can't be written to: nothing is lost, the intake pauses, and the source
//! recovers by itself.

use super::*;
use crate::table::{Claim, Fault, Settled};
use ganger_queue::delivery::{
    Failure, Finished, Identity, Outgoing, Publish, PublishError, Reason,
};
use ganger_queue::exclusive::Turn;
use tokio::sync::oneshot;
use tokio::time::Instant;

#[tokio::test]
async fn a_locked_database_pauses_the_intake_until_it_is_free() {
    let rig = Rig::new();
    rig.insert("a");
    let mut source = rig.source(&Shared::default(), 2);
    let delivery = source.next().await;
    let locker = rig.sql();
    locker.execute_batch("BEGIN IMMEDIATE").unwrap();
    delivery.settle(Outcome::Done);
    let state = source.until(|state| !state.healthy).await;
    assert!(state.problem.unwrap().starts_with("the database is busy"));
    locker
        .execute(
            "INSERT INTO consumer_messages (queue, body) VALUES ('q', 'b')",
            [],
        )
        .unwrap();
    locker.execute_batch("COMMIT").unwrap();

    let next = source.next().await;
    assert_eq!(body(&next), "b");
    let state = source.until(|state| state.healthy).await;
    assert_eq!((state.problem, state.likely_duplicates), (None, 0));
    assert_eq!(rig.get::<i64>("SELECT count(*) FROM consumer_messages"), 1);
    next.settle(Outcome::Done);
    source.end().await;
}

#[tokio::test]
async fn a_full_disk_pauses_the_intake_until_there_is_room() {
    let rig = Rig::new();
    rig.insert("a");
    rig.execute(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 50) \
         INSERT INTO consumer_messages (queue, body) SELECT 'filler', randomblob(4000) FROM n",
    );
    // Leaves room for a claim, even if its page is full, but not for a dead letter.
    rig.execute("CREATE TABLE spare AS SELECT randomblob(4000)");
    rig.execute("DROP TABLE spare");
    let (task, pool, limits) = rig.open(&Shared::default(), &rig.config());
    task.store.allow_no_more_pages();
    let mut source = Source::run(task, pool, limits, 1);
    let failure = Failure::new(Reason::Failed, "e".repeat(16_000));
    let outcome = Outcome::DeadLetter(Box::new(failure));
    source.next().await.settle(outcome);
    let state = source.until(|state| !state.healthy).await;
    assert!(
        state
            .problem
            .unwrap()
            .starts_with("the disk or the database is full")
    );
    rig.insert("b");
    rig.execute("DELETE FROM consumer_messages WHERE queue = 'filler'");

    assert_eq!(source.finish_next().await, "b");
    assert_eq!(source.end().await.likely_duplicates, 0);
    assert_eq!(
        rig.get::<i64>("SELECT length(error) FROM poisoned_messages"),
        16_000
    );
}

#[tokio::test]
async fn a_table_that_is_away_is_waited_for() {
    let rig = Rig::new();
    rig.insert("a");
    let mut source = rig.source(&Shared::default(), 1);
    let delivery = source.next().await;
    rig.execute("ALTER TABLE consumer_messages RENAME TO away");
    delivery.settle(Outcome::Done);
    source.until(|state| !state.healthy).await;
    rig.execute("ALTER TABLE away RENAME TO consumer_messages");
    source.until(|state| state.healthy).await;
    assert_eq!(source.end().await.likely_duplicates, 0);
    assert_eq!(rig.get::<i64>("SELECT count(*) FROM consumer_messages"), 0);
}

/// Returns a database that permanently rejects some dead letters.
fn picky(condition: &str) -> Rig {
    let rig = Rig::new();
    ["a", "b", "c"].iter().for_each(|body| rig.insert(body));
    rig.execute(&format!(
        "CREATE TRIGGER picky BEFORE INSERT ON poisoned_messages WHEN {condition} \
         BEGIN SELECT RAISE(ABORT, 'not here'); END"
    ));
    rig
}

async fn dead_letter_all(rig: &Rig) -> SourceState {
    let mut source = rig.source(&Shared::default(), 3);
    let batch = [
        source.next().await,
        source.next().await,
        source.next().await,
    ];
    for delivery in batch {
        let failure = Failure {
            error: format!("because of {}", body(&delivery)),
            ..Failure::default()
        };
        delivery.settle(Outcome::DeadLetter(Box::new(failure)));
    }
    source.credit(0);
    source.end().await
}

#[tokio::test]
async fn a_dead_letter_that_is_refused_is_tried_without_its_metadata() {
    let rig = picky("NEW.error = 'because of b'");
    dead_letter_all(&rig).await;
    let rows = "SELECT group_concat(body || ':' || error) FROM (SELECT * FROM poisoned_messages ORDER BY body)";
    assert_eq!(rig.get::<String>(rows), "a:because of a,b:,c:because of c");
}

#[tokio::test]
async fn what_is_refused_all_the_same_is_set_aside_and_the_others_go_on() {
    let rig = picky("NEW.body = 'b'");
    let state = dead_letter_all(&rig).await;
    assert!(state.healthy);
    assert_eq!(
        state.problem.as_deref(),
        Some("1 settlements are rejected: not here")
    );
    let rows = "SELECT group_concat(body) FROM (SELECT * FROM poisoned_messages ORDER BY body)";
    assert_eq!(rig.get::<String>(rows), "a,c");
    assert!(
        rig.counters().starts_with("attempts 1 "),
        "kept, and charged"
    );
    assert!(
        rig.counters().ends_with("owner none"),
        "it comes again after the daemon's end"
    );
}

#[tokio::test]
async fn an_emit_that_is_refused_is_told_to_who_asked() {
    let rig = Rig::new();
    rig.execute(
        "CREATE TRIGGER picky BEFORE INSERT ON consumer_messages WHEN NEW.queue = 'closed' \
         BEGIN SELECT RAISE(ABORT, 'not here'); END",
    );
    let source = rig.source(&Shared::default(), 1);
    let emit = |queue: &str| {
        let (confirmed, told) = oneshot::channel::<Result<(), PublishError>>();
        let message = Outgoing {
            queue: queue.to_owned(),
            ..Outgoing::default()
        };
        source
            .pool
            .publishes
            .try_send(Publish { message, confirmed })
            .unwrap();
        told
    };
    let (refused, taken) = (emit("closed"), emit("open"));
    let error = timeout(SOON, refused).await.unwrap().unwrap().unwrap_err();
    assert!(error.to_string().contains("not here"), "{error}");
    timeout(SOON, taken).await.unwrap().unwrap().unwrap();
    source.end().await;
}

/// Trigger that rejects changes of one row.
const NOT_THIS_ROW: &str = "
    CREATE TRIGGER picky BEFORE UPDATE ON consumer_messages WHEN OLD.body = 'bad'
    BEGIN SELECT RAISE(ABORT, 'not this one'); END";

#[tokio::test]
async fn what_was_refused_is_kept_and_written_once_it_is_not() {
    let rig = picky("NEW.body = 'b'");
    let mut source = rig.source(&Shared::default(), 2);
    let (a, b) = (source.next().await, source.next().await);
    let failure = Failure::new(Reason::Failed, "why");
    b.settle(Outcome::DeadLetter(Box::new(failure)));
    source.until(|state| state.problem.is_some()).await;
    // It does not block others: with one message in flight there is room for one more.
    assert_eq!(source.finish_next().await, "c");
    a.settle(Outcome::Done);
    rig.execute("DROP TRIGGER picky");
    assert_eq!(source.end().await.problem, None);
    let letters = "SELECT group_concat(body || error) FROM poisoned_messages";
    assert_eq!(rig.get::<String>(letters), "bwhy");
    assert_eq!(rig.get::<i64>("SELECT count(*) FROM consumer_messages"), 0);
}

/// An unreachable database is tried once, and not once for each settlement, which would take a busy
/// timeout each.
#[tokio::test]
async fn trouble_ends_the_next_try_of_what_was_refused() {
    // The first row fails with a transient error; the others would succeed.
    let rig = Rig::new();
    rig.insert("a");
    rig.execute(
        "UPDATE consumer_messages SET id = 1, claim = 1; \
         CREATE TRIGGER trouble BEFORE DELETE ON consumer_messages WHEN OLD.id = 1 \
         BEGIN SELECT abs(-9223372036854775807 - OLD.id); END",
    );
    let (mut task, pool, _policy) = rig.open(&Shared::default(), &rig.config());
    for row in 1..=3 {
        let claim = Claim { row, token: row };
        let failure = Failure::new(Reason::Failed, "why");
        let outcome = Outcome::DeadLetter(Box::new(failure));
        let settled = Settled {
            claim,
            outcome,
            span: None,
            finished: None,
            occurrence: None,
            recorded: None,
        };
        task.parked.keep(settled, "no", Instant::now());
    }
    task.retry_parked().await;
    assert!(!pool.state.borrow().healthy);
    let kept: Vec<i64> = task
        .parked
        .take()
        .iter()
        .map(|kept| kept.claim.row)
        .collect();
    assert_eq!(kept, [1, 2, 3]);
}

/// Two messages with the same key: the second turns out only now to have been done twice.
#[tokio::test]
async fn a_repetition_among_what_was_refused_is_counted() {
    let rig = Rig::new();
    rig.insert("a");
    rig.insert("a");
    rig.execute("UPDATE consumer_messages SET claim = id");
    let (mut task, pool, _policy) = rig.open(&Shared::default(), &rig.config());
    for row in 1..=2 {
        let finished = Finished {
            identity: Identity {
                queue: "q".into(),
                key: "same".to_owned(),
                emit: String::new(),
                step: 0,
            },
            body: String::new(),
            window: Duration::from_secs(60),
            continued: Outgoing::default(),
            entry_notice: None,
        };
        let settled = Settled {
            claim: Claim { row, token: row },
            outcome: Outcome::Done,
            span: None,
            finished: Some(Box::new(finished)),
            occurrence: None,
            recorded: None,
        };
        task.parked.keep(settled, "no", Instant::now());
    }
    task.retry_parked().await;
    assert!(task.parked.take().is_empty());
    assert_eq!(pool.state.borrow().likely_duplicates, 1);
}

/// Without a heartbeat, others would take over the claims of this daemon.
#[tokio::test]
async fn trouble_does_not_put_off_the_heartbeat() {
    let rig = Rig::new();
    let (mut task, _pool, _policy) = rig.open(&Shared::default(), &rig.config());
    let fault = Fault::transient("the disk is full");
    let now = Instant::now();
    task.report_failure(&fault);
    task.schedule.set_beat(now + Duration::from_millis(1));
    assert_eq!(task.timer(), task.schedule.next_beat());
    task.schedule.set_beat(now + NEVER);
    let retry = task.timer();
    assert!(now < retry && retry < now + SOON, "what else is due waits");
}

#[tokio::test]
async fn a_reply_that_is_refused_for_good_is_in_the_dead_letter() {
    let rig = Rig::new();
    rig.insert("a");
    rig.execute(
        "CREATE TRIGGER picky BEFORE INSERT ON consumer_messages WHEN NEW.queue = 'closed' \
         BEGIN SELECT RAISE(ABORT, 'not here'); END",
    );
    let mut source = rig.source(&Shared::default(), 1);
    let reply = Outgoing {
        queue: "closed".to_owned(),
        body: "42".into(),
        headers: vec![("h".to_owned(), "v".to_owned())],
        ..Outgoing::default()
    };
    source.next().await.settle(Outcome::Reply(Box::new(reply)));
    source.end().await;
    let letter: String = rig.get(
        "SELECT reason || ': ' || error || ': ' || reply_queue || reply_body || reply_headers \
         FROM poisoned_messages",
    );
    assert_eq!(
        letter,
        "unroutable_reply: the reply to `closed` can't be delivered: not here: closed42{\"h\":\"v\"}"
    );
    assert_eq!(rig.get::<i64>("SELECT count(*) FROM consumer_messages"), 0);
}

#[tokio::test]
async fn a_reply_that_no_letter_takes_either_is_told_of_there() {
    let rig = Rig::new();
    rig.insert("a");
    for (table, condition) in [
        ("consumer_messages", "NEW.queue = 'closed'"),
        ("poisoned_messages", "NEW.reply_body IS NOT NULL"),
    ] {
        rig.execute(&format!(
            "CREATE TRIGGER picky_{table} BEFORE INSERT ON {table} WHEN {condition} \
             BEGIN SELECT RAISE(ABORT, 'not here'); END"
        ));
    }
    let mut source = rig.source(&Shared::default(), 1);
    let reply = Outgoing {
        queue: "closed".to_owned(),
        body: "42".into(),
        ..Outgoing::default()
    };
    source.next().await.settle(Outcome::Reply(Box::new(reply)));
    assert_eq!(source.end().await.problem, None);
    let letter: String = rig.get(
        "SELECT reason || ': ' || error || ': ' || coalesce(reply_body, 'none') \
         FROM poisoned_messages",
    );
    let expected =
        "unroutable_reply: the reply to `closed`, 2 bytes, can't be kept: not here: none";
    assert_eq!(letter, expected);
    assert_eq!(rig.get::<i64>("SELECT count(*) FROM consumer_messages"), 0);
}

#[tokio::test]
async fn rows_that_cannot_be_claimed_or_buried_hold_nobody_up() {
    for (row, trigger) in [
        ("'bad', 0, 0, 0", NOT_THIS_ROW),
        // The row would fall due, but can't be changed.
        ("'bad', 0, 0, 1", NOT_THIS_ROW),
        (
            "'bad', 0, 9, 0",
            "CREATE TRIGGER picky BEFORE INSERT ON poisoned_messages \
             BEGIN SELECT RAISE(ABORT, 'not this one'); END",
        ),
        (
            "'bad', 0, 9, 0",
            "CREATE TRIGGER picky BEFORE DELETE ON consumer_messages WHEN OLD.body = 'bad' \
             BEGIN SELECT RAISE(ROLLBACK, 'not this one'); END",
        ),
    ] {
        let rig = Rig::new();
        rig.execute(&format!(
            "INSERT INTO consumer_messages (queue, body, attempts, crashes, available_after, priority) \
             SELECT 'q', r.*, 9 FROM (SELECT {row}) r; {trigger}"
        ));
        let mut source = rig.source(&Shared::default(), 1);
        for body in ["good", "better"] {
            rig.insert(body);
            assert_eq!(source.finish_next().await, body, "{row} {trigger}");
        }
        let state = source.end().await;
        assert!(state.healthy, "{row} {trigger}");
        let left = "SELECT group_concat(body) FROM consumer_messages WHERE owner IS NULL";
        assert_eq!(rig.get::<String>(left), "bad", "{row} {trigger}");
        let letters = "SELECT count(*) FROM poisoned_messages";
        assert_eq!(rig.get::<i64>(letters), 0, "{row} {trigger}");
    }
}

#[tokio::test]
async fn a_suspect_that_cannot_be_claimed_does_not_keep_the_turn_from_others() {
    let rig = Rig::new();
    rig.execute(&format!(
        "INSERT INTO consumer_messages (queue, body, lapses) VALUES ('q', 'bad', 3); {NOT_THIS_ROW}"
    ));
    let daemon = Shared::default();
    let mut source = rig.source(&daemon, 1);
    rig.insert("good");
    assert_eq!(source.finish_next().await, "good");
    let mut turn = Turn::new(&daemon.exclusive, "other");
    timeout(SOON, async {
        while !turn.ask() {
            turn.called().await;
        }
    })
    .await
    .expect("the turn is free soon");
    // Another suspect of this source waits, and the rejected one does not take its place.
    rig.execute("INSERT INTO consumer_messages (queue, body, lapses) VALUES ('q', 'ours', 2)");
    source.until(|state| state.waits_for.is_some()).await;
    turn.leave();
    assert_eq!(source.finish_next().await, "ours");
    source.until(|state| state.waits_for.is_none()).await;
    assert!(source.end().await.healthy);
    assert!(turn.ask(), "nobody else has it or waits for it");
}

#[tokio::test]
async fn counts_that_overflow_hold_nobody_up() {
    let most = i64::MAX;
    let rig = Rig::new();
    rig.execute(&format!(
        "INSERT INTO consumer_messages (queue, body, attempts, requeues, owner, claim, lapses) VALUES \
         ('q', 'a', {most}, {most}, NULL, NULL, {most}), ('q', 'b', {most}, {most}, NULL, NULL, 0), \
         ('q', 'c', 1, 0, 99, 1, {most})"
    ));
    let mut source = rig.source(&Shared::default(), 5);
    let b = source.next().await;
    assert_eq!((body(&b).as_str(), b.history.attempt), ("b", u32::MAX));
    b.settle(Outcome::Requeue {
        after: Duration::ZERO,
    });
    assert_eq!(source.finish_next().await, "b");
    source.end().await;
    let letters = "SELECT group_concat(body) FROM (SELECT * FROM poisoned_messages ORDER BY body)";
    assert_eq!(rig.get::<String>(letters), "a,c");
}

#[tokio::test]
async fn a_claim_that_cannot_be_taken_back_keeps_none_of_the_others() {
    let rig = Rig::new();
    ["a", "bad", "c"].iter().for_each(|body| rig.insert(body));
    let claim = "UPDATE consumer_messages SET owner = 99, claim = 1, attempts = 1";
    rig.execute(&format!("{claim}; {NOT_THIS_ROW}"));
    let mut source = rig.source(&Shared::default(), 1);
    for body in ["a", "c"] {
        assert_eq!(source.finish_next().await, body);
    }
    assert!(source.end().await.healthy);
    assert!(rig.counters().ends_with("owner 99"), "{}", rig.counters());
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_could_not_be_taken_back_is_tried_again_after_a_while() {
    let rig = Rig::new();
    rig.insert("bad");
    let claim = "UPDATE consumer_messages SET owner = 99, claim = 1, attempts = 1";
    rig.execute(&format!("{claim}; {NOT_THIS_ROW}"));
    let (mut task, _pool, _policy) = rig.open(&Shared::default(), &rig.config());
    assert!(task.store.take_back_from_dead_owners().unwrap());
    assert!(
        !task.store.take_back_from_dead_owners().unwrap(),
        "it is stuck"
    );
    rig.execute("DROP TRIGGER picky");
    assert!(!task.store.take_back_from_dead_owners().unwrap(), "not yet");
    tokio::time::advance(Duration::from_secs(301)).await;
    assert!(task.store.take_back_from_dead_owners().unwrap());
    assert!(rig.counters().ends_with("owner none"), "{}", rig.counters());
}

#[tokio::test]
async fn an_owner_that_cannot_be_struck_holds_nobody_up() {
    use crate::sqlite::tests_support::OtherOwner;

    let rig = Rig::new();
    rig.insert("hers");
    let other = OtherOwner::new(&rig.path(), Duration::from_secs(30));
    other.claims_all(&rig.sql(), false);
    other.dies();
    rig.execute(
        "CREATE TRIGGER picky BEFORE DELETE ON owners WHEN OLD.host = 'h' \
         BEGIN SELECT RAISE(ABORT, 'not her'); END",
    );
    let config = TableSource {
        poll_interval: Duration::from_millis(1),
        ..rig.config()
    };
    let (task, pool, limits) = rig.open(&Shared::default(), &config);
    let mut source = Source::run(task, pool, limits, 1);
    for n in 0..10 {
        rig.insert(&n.to_string());
        assert_eq!(source.finish_next().await, n.to_string());
    }
    let state = source.until(|state| !state.healthy).await;
    assert_eq!(state.problem.as_deref(), Some("not her"));
    source.end().await;
}

/// Operations of an operator beside the source: a backup that reads for long, a VACUUM, a checkpoint.
#[tokio::test]
async fn large_bodies_beside_a_long_reader_and_a_vacuum() {
    let rig = Rig::new();
    let insert = "INSERT INTO consumer_messages (queue, body) VALUES ('q', ?1)";
    for n in 0..6_u8 {
        rig.sql().execute(insert, [vec![n; 10 << 20]]).unwrap();
    }
    let mut reader = rig.sql();
    let snapshot = reader.transaction().unwrap();
    let count = |conn: &Connection| {
        let count = "SELECT count(*) FROM consumer_messages";
        conn.query_row(count, [], |row| row.get::<_, i64>(0))
            .unwrap()
    };
    assert_eq!(count(&snapshot), 6);
    let mut source = rig.source(&Shared::default(), 10);
    for n in 0..6 {
        let delivery = source.next().await;
        assert_eq!(delivery.message.body, vec![n; 10 << 20]);
        rig.execute("VACUUM");
        delivery.settle(Outcome::Done);
    }
    let state = source.end().await;
    assert_eq!(state.likely_duplicates, 0);
    assert_eq!((count(&snapshot), count(&rig.sql())), (6, 0));
    snapshot.finish().unwrap();
    rig.execute("PRAGMA wal_checkpoint(TRUNCATE)");
    assert_eq!(rig.get::<i64>("SELECT count(*) FROM owners"), 0);
}
