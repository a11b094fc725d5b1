//! Tests of the rows that are handed out: their choice, order and number.

use std::collections::HashSet;

use super::*;

#[tokio::test]
async fn by_priority_then_in_the_order_of_arrival() {
    let rig = Rig::new();
    rig.execute(
        "INSERT INTO consumer_messages (queue, body, priority) VALUES \
         ('q', 'a', 0), ('q', 'b', 5), ('other', 'x', 9), ('q', 'c', 5), ('q', 'd', -1)",
    );
    let mut source = rig.source(&Shared::default(), 4);
    let mut order = String::new();
    for _ in 0..4 {
        order += &source.finish_next().await;
    }
    source.end().await;
    assert_eq!(order, "bcad");
}

#[tokio::test]
async fn never_more_than_the_credit() {
    let rig = Rig::new();
    (0..10).for_each(|n| rig.insert(&n.to_string()));
    let mut source = rig.source(&Shared::default(), 3);
    let mut held = vec![
        source.next().await,
        source.next().await,
        source.next().await,
    ];
    assert_eq!(
        rig.get::<i64>("SELECT count(*) FROM consumer_messages WHERE owner IS NOT NULL"),
        3
    );
    held.remove(0).settle(Outcome::Done);
    held.push(source.next().await);
    assert_eq!(
        rig.get::<i64>("SELECT count(*) FROM consumer_messages WHERE owner IS NOT NULL"),
        3
    );
    drop(held);
    source.end().await;
    assert_eq!(
        rig.get::<i64>("SELECT count(*) FROM consumer_messages WHERE attempts = 0"),
        9
    );
}

#[tokio::test]
async fn never_more_bytes_than_the_bound_but_at_least_one() {
    let rig = Rig::new();
    let insert = "INSERT INTO consumer_messages (queue, body) VALUES ('q', zeroblob(?1))";
    for bytes in [40 << 10, 20 << 10, 11 << 10, 3 << 10] {
        rig.sql().execute(insert, [bytes]).unwrap();
    }
    let daemon = Shared::default();
    let (mut task, pool, limits) = rig.open(&daemon, &rig.config());
    task.share = daemon.budget.share("p").within(32 << 10);
    let mut source = Source::run(task, pool, limits, 10);
    let first = source.next().await;
    assert_eq!(first.message.body.len(), 40 << 10);
    assert_eq!(
        rig.get::<i64>("SELECT count(*) FROM consumer_messages WHERE owner IS NOT NULL"),
        1
    );
    first.settle(Outcome::Done);
    let two = (source.next().await, source.next().await);
    assert_eq!(
        rig.get::<i64>("SELECT count(*) FROM consumer_messages WHERE owner IS NULL"),
        1
    );
    two.1.settle(Outcome::Done);
    assert_eq!(source.next().await.message.body.len(), 3 << 10);
    drop(two.0);
    source.end().await;
}

#[tokio::test]
async fn two_daemons_share_a_queue_and_no_message_comes_twice() {
    let rig = Rig::new();
    let insert = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000) \
                  INSERT INTO consumer_messages (queue, body) SELECT 'q', i FROM n";
    rig.execute(insert);
    let (mut one, mut two) = (
        rig.source(&Shared::default(), 20),
        rig.source(&Shared::default(), 20),
    );
    let mut seen = HashSet::new();
    for _ in 0..50 {
        let mut held = Vec::new();
        for _ in 0..20 {
            held.push(one.next().await);
            held.push(two.next().await);
        }
        for delivery in held {
            assert!(seen.insert(body(&delivery)), "twice: {}", body(&delivery));
            delivery.settle(Outcome::Done);
        }
    }
    assert_eq!(one.end().await.likely_duplicates, 0);
    assert_eq!(two.end().await.likely_duplicates, 0);
    assert_eq!(rig.get::<i64>("SELECT count(*) FROM consumer_messages"), 0);
}

#[tokio::test]
async fn headers_that_are_no_json_do_not_wedge_the_queue() {
    let rig = Rig::new();
    rig.execute(
        "INSERT INTO consumer_messages (queue, body, headers) VALUES ('q', 'bad', '{oops')",
    );
    rig.insert("good");
    let mut source = rig.source(&Shared::default(), 1);
    assert_eq!(source.finish_next().await, "good");
    source.end().await;
    let row: String =
        rig.get("SELECT body || headers || reason || attempts || error FROM poisoned_messages");
    assert!(
        row.starts_with("bad{oopsundeliverable0the headers must be a JSON object: "),
        "{row}"
    );
}

fn with_suspects(rows: &str) -> Rig {
    let rig = Rig::new();
    rig.execute(&format!(
        "INSERT INTO consumer_messages (queue, body, attempts, crashes, lapses, priority) VALUES {rows}"
    ));
    rig
}

#[tokio::test]
async fn suspects_run_one_at_a_time_and_all_else_flows_on() {
    let rig = with_suspects(
        "('q', 'one', 0, 0, 2, 0), ('q', 'two', 0, 0, 3, 9), ('q', 'lapsed once', 0, 0, 1, 0), \
         ('q', 'fresh', 0, 0, 0, 0)",
    );
    let daemon = Shared::default();
    let mut source = rig.source(&daemon, 10);
    let first = source.next().await;
    // The suspect with the fewest lapses, whatever its priority.
    assert_eq!((body(&first).as_str(), first.history.alone), ("one", true));
    for other in ["lapsed once", "fresh"] {
        let delivery = source.next().await;
        assert_eq!(
            (body(&delivery).as_str(), delivery.history.alone),
            (other, false)
        );
        delivery.settle(Outcome::Done);
    }
    let state = source.until(|state| state.waits_for.is_some()).await;
    assert_eq!(
        state.waits_for.as_deref(),
        Some("the suspect of pool `p` to end")
    );
    let claimed =
        "SELECT group_concat(body || claim_alone) FROM consumer_messages WHERE owner IS NOT NULL";
    rig.until("SELECT count(*) = 2 FROM consumer_messages")
        .await;
    assert_eq!(
        rig.get::<String>(claimed),
        "one0",
        "others are in hand, too"
    );
    first.settle(Outcome::Done);
    assert_eq!(source.finish_next().await, "two");
    assert_eq!(source.end().await.waits_for, None);
}

#[tokio::test]
async fn a_suspect_of_one_pool_waits_for_that_of_another_and_nothing_else_does() {
    let rig = with_suspects("('q', 'hers', 0, 0, 2, 0)");
    let daemon = Shared::default();
    let mut one = rig.source(&daemon, 1);
    let hers = one.next().await;
    let mut other = rig.source(&daemon, 10);
    rig.execute(
        "INSERT INTO consumer_messages (queue, body, lapses) VALUES ('q', 'ours', 2), ('q', 'fresh', 0)",
    );
    assert_eq!(other.finish_next().await, "fresh");
    other.until(|state| state.waits_for.is_some()).await;
    rig.until("SELECT count(*) = 2 FROM consumer_messages")
        .await;
    let waits = "SELECT body FROM consumer_messages WHERE owner IS NULL";
    assert_eq!(rig.get::<String>(waits), "ours");
    one.credit(0);
    hers.settle(Outcome::Done);
    assert_eq!(other.finish_next().await, "ours");
    one.end().await;
    assert_eq!(other.end().await.waits_for, None);
}

#[tokio::test]
async fn a_pool_without_room_lets_the_suspects_of_others_pass() {
    let rig = with_suspects("('q', 'suspect', 0, 0, 2, 0)");
    rig.insert("long");
    let daemon = Shared::default();
    let mut full = rig.source(&daemon, 1);
    let suspect = full.next().await;
    // There is room for one more message, which is this one, so the next suspect has to wait.
    full.credit(2);
    let long = full.next().await;
    rig.execute("UPDATE consumer_messages SET lapses = 2");
    // The credit comes before the suspect is returned, or this source would claim it again.
    full.credit(1);
    suspect.settle(Outcome::Return { suspect: false });
    let mut other = rig.source(&daemon, 1);
    assert_eq!(other.finish_next().await, "suspect");
    long.settle(Outcome::Done);
    other.end().await;
    full.end().await;
}

#[tokio::test]
async fn a_thousand_suspects_starve_nobody() {
    let rig = Rig::new();
    rig.execute(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1500) \
         INSERT INTO consumer_messages (queue, body, lapses, priority) SELECT 'q', i, 2, 9 FROM n",
    );
    rig.insert("fresh");
    let mut source = rig.source(&Shared::default(), 2);
    assert_eq!(source.finish_next().await, "1");
    let mut seen = vec![source.finish_next().await, source.finish_next().await];
    seen.sort();
    assert_eq!(seen, ["2", "fresh"]);
    source.end().await;
}

#[tokio::test]
async fn who_took_the_daemon_down_too_often_is_not_handed_out_again() {
    let rig = with_suspects(
        "('q', 'killer', 10, 0, 10, 0), ('q', 'crasher', 3, 3, 0, 0), ('q', 'suspect', 9, 0, 9, 0), \
         ('q', 'good', 0, 0, 0, 0)",
    );
    let mut source = rig.source(&Shared::default(), 1);
    let mut done = vec![source.finish_next().await, source.finish_next().await];
    done.sort();
    assert_eq!(done, ["good", "suspect"]);
    source.end().await;
    let rows: String = rig.get(
        "SELECT group_concat(body || ' ' || reason || ' ' || lapses || ' ' || error, '; ') \
         FROM poisoned_messages",
    );
    let expected = "killer crashed 10 took the daemon down 10 times in a row; \
                    crasher crashed 0 crashed the worker 3 times";
    assert_eq!(rows, expected);
}

#[tokio::test]
async fn who_is_spent_is_buried_while_another_suspect_runs() {
    let rig = with_suspects("('q', 'suspect', 0, 0, 2, 0)");
    let mut source = rig.source(&Shared::default(), 5);
    let suspect = source.next().await;
    rig.execute("INSERT INTO consumer_messages (queue, body, lapses) VALUES ('q', 'killer', 12)");
    rig.until("SELECT count(*) FROM poisoned_messages").await;
    suspect.settle(Outcome::Done);
    source.end().await;
    assert_eq!(rig.get::<i64>("SELECT count(*) FROM consumer_messages"), 0);
}

#[tokio::test]
async fn changed_limits_hold_from_the_next_claim_on() {
    let rig = Rig::new();
    rig.execute("INSERT INTO consumer_messages (queue, body, crashes) VALUES ('q', 'a', 4)");
    let mut source = rig.source(&Shared::default(), 0);
    source.policy.send_modify(|policy| {
        let policy = Arc::make_mut(policy);
        policy.crashes_max = 9;
        policy.retry.attempts = 9;
    });
    source.credit(1);
    assert_eq!(source.finish_next().await, "a");
    source.end().await;
}

#[tokio::test]
async fn a_clock_that_jumps_changes_only_when_the_delayed_fall_due() {
    let rig = Rig::new();
    let day = 24 * 3600 * 1000;
    rig.insert("before");
    rig.execute(&format!(
        "INSERT INTO consumer_messages (queue, body, available_after) VALUES ('q', 'later', {})",
        NOW_MS + 1000
    ));
    rig.set_clock(NOW_MS - day);
    let mut source = rig.source(&Shared::default(), 10);
    let first = source.next().await;
    assert_eq!(body(&first), "before");
    rig.set_clock(NOW_MS + day);
    first.settle(Outcome::Done);
    assert_eq!(source.finish_next().await, "later");
    source.end().await;
}
