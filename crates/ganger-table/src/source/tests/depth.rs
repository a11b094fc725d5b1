//! Tests of the number and age of waiting rows, and of unread queues.

use super::*;
use ganger_config::model::{Autoscale, Workers};

fn with(workers: Workers) -> Arc<PoolConfig> {
    Arc::new(PoolConfig {
        workers,
        ..policy()
    })
}

pub(super) fn range() -> Arc<PoolConfig> {
    let time = Duration::from_millis(100);
    with(Workers::Range(Autoscale {
        min: 1,
        max: 2,
        clear_within: time,
        cooldown: time,
        shrink_after: time,
        memory_free_min: None,
        cpu_max: None,
    }))
}

#[tokio::test]
async fn what_could_be_claimed_is_counted_whatever_the_number_of_workers() {
    let rig = Rig::new();
    (0..5).for_each(|n| rig.insert(&n.to_string()));
    let due = "INSERT INTO consumer_messages (queue, body, available_after) VALUES ('q', 'd', ?1)";
    for available_after in [NOW_MS - 1, NOW_MS, NOW_MS + 60_000] {
        rig.sql().execute(due, [available_after]).unwrap();
    }
    rig.execute("INSERT INTO consumer_messages (queue, body) VALUES ('other', 'x')");
    let mut source = rig.source(&Shared::default(), 1);
    let first = source.next().await;
    let depth =
        |wanted| move |state: &SourceState| state.backlog.is_some_and(|it| it.depth == wanted);
    // All but the delivered row, the row that is not due and the other queue's.
    source.until(depth(6)).await;
    source.policy.send_replace(range());
    first.settle(Outcome::Done);
    let second = source.next().await;
    source.until(depth(5)).await;
    source.policy.send_replace(with(Workers::Fixed(1)));
    drop(second);
    source.end().await;
}

#[tokio::test]
async fn no_more_is_counted_than_matters() {
    let rig = Rig::new();
    (0..10).for_each(|n| rig.insert(&n.to_string()));
    let (mut task, _pool, _policy) = rig.open(&Shared::default(), &rig.config());
    let mut count = async |most| {
        let waiting = task.store.waiting("q", most).await.unwrap();
        (waiting.count, waiting.is_limit)
    };
    assert_eq!(count(4).await, (4, true));
    assert_eq!(count(100).await, (10, false));
}

/// Returns the age of the oldest message, in seconds.
async fn oldest(task: &mut Task) -> Option<u64> {
    let waiting = task.store.waiting("q", 100).await.unwrap();
    waiting.oldest.map(|age| age.as_secs())
}

#[tokio::test]
async fn the_oldest_is_found_in_every_priority_and_among_those_that_fell_due() {
    let rig = Rig::new();
    let (mut task, _pool, _policy) = rig.open(&Shared::default(), &rig.config());
    assert_eq!(oldest(&mut task).await, None);
    let insert = |priority: i32, seconds: i64, available_after: i64| {
        let insert = "INSERT INTO consumer_messages (queue, body, priority, created_at, available_after) \
                      VALUES ('q', 'x', ?1, ?2, ?3)";
        let values = (priority, NOW_MS - 1000 * seconds, available_after);
        rig.sql().execute(insert, values).unwrap();
    };
    insert(0, 10, 0);
    insert(0, 5, 0);
    assert_eq!(oldest(&mut task).await, Some(10));
    insert(9, 20, 0);
    insert(-9, 15, 0);
    assert_eq!(oldest(&mut task).await, Some(20));
    insert(-9, 2, 0);
    insert(3, 30, 0);
    assert_eq!(oldest(&mut task).await, Some(30));
    // A due row has waited since it fell due, not since it was sent; a row that is not due does not wait.
    insert(0, 900, NOW_MS - 40_000);
    insert(0, 900, NOW_MS + 40_000);
    assert_eq!(oldest(&mut task).await, Some(40));
}

#[tokio::test]
async fn what_waits_is_as_old_as_the_backlog() {
    let rig = Rig::new();
    rig.execute("INSERT INTO consumer_messages (queue, body, created_at) VALUES ('q', 'x', 1000)");
    let mut source = rig.source(&Shared::default(), 0);
    let state = source.until(|state| state.backlog.is_some()).await;
    let since = state.backlog.unwrap().oldest.unwrap();
    let age = std::time::SystemTime::now().duration_since(since).unwrap();
    assert_eq!(age.as_secs() / 60, (NOW_MS / 1000 - 1).unsigned_abs() / 60);
    source.credit(1);
    source.finish_next().await;
    // The transaction that deletes the row finds no other.
    rig.until("SELECT count(*) = 0 FROM consumer_messages")
        .await;
    // The next message was sent long ago, but the queue has been empty since.
    rig.execute("INSERT INTO consumer_messages (queue, body, created_at) VALUES ('q', 'x', 9000)");
    let second = source.next().await;
    source.credit(1);
    rig.execute("INSERT INTO consumer_messages (queue, body, created_at) VALUES ('q', 'x', 99000)");
    source.policy.send_replace(range());
    let is_counted_again =
        |state: &SourceState| state.backlog.is_some_and(|it| it.oldest > Some(since));
    let state = source.until(is_counted_again).await;
    let backlog = state.backlog.unwrap();
    assert_eq!(backlog.depth, 1);
    let since = backlog.oldest.unwrap();
    assert!(std::time::SystemTime::now().duration_since(since).unwrap() < SOON);
    drop(second);
    source.end().await;
}

#[tokio::test]
async fn queues_that_no_pool_reads_are_found_once_for_all() {
    let rig = Rig::new();
    rig.execute(
        "INSERT INTO consumer_messages (queue, body) VALUES
           ('q', 'x'), ('typo', 'x'), ('typo', 'y'), ('ganger.reply.1', 'x'), ('read', 'x');
         INSERT INTO consumer_messages (queue, body, available_after) VALUES
           ('due', 'x', 1), ('later', 'x', 4102444800000);",
    );
    let shared = Shared::default();
    let other = shared.unread.reader("main", &"read".into());
    let source = rig.source(&shared, 0);
    let found = async {
        while shared.unread.found().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        shared.unread.found()
    };
    let found = timeout(SOON, found).await.unwrap().into_iter();
    let found: Vec<_> = found
        .map(|(_, one)| (one.queue, one.backlog.depth))
        .collect();
    assert_eq!(found, [("due".to_owned(), 1), ("typo".to_owned(), 2)]);
    source.end().await;
    drop(other);
    assert!(shared.unread.found().is_empty(), "its pools are gone");
}
