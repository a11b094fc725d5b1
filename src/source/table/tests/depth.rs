//! How many rows wait: told only to a pool that asks for it.

use super::*;
use crate::config::model::{Autoscale, Workers};

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
async fn what_could_be_claimed_is_counted_while_it_is_asked_for() {
    let rig = Rig::new();
    (0..5).for_each(|n| rig.insert(&n.to_string()));
    let due = "INSERT INTO consumer_messages (queue, body, available_after) VALUES ('q', 'd', ?1)";
    for available_after in [NOW_MS - 1, NOW_MS, NOW_MS + 60_000] {
        rig.sql().execute(due, [available_after]).unwrap();
    }
    rig.execute("INSERT INTO consumer_messages (queue, body) VALUES ('other', 'x')");
    let mut source = rig.source(&Shared::default(), 1);
    let first = source.next().await;
    assert_eq!(source.pool.state.borrow().depth, None);
    source.policy.send_replace(range());
    // All but the one that is out, the one that is not due and another queue's.
    source.until(|state| state.depth == Some(6)).await;
    first.settle(Outcome::Done);
    let second = source.next().await;
    source.until(|state| state.depth == Some(5)).await;
    source.policy.send_replace(with(Workers::Fixed(1)));
    source.until(|state| state.depth.is_none()).await;
    drop(second);
    source.end().await;
}

#[tokio::test]
async fn no_more_is_counted_than_matters() {
    let rig = Rig::new();
    (0..10).for_each(|n| rig.insert(&n.to_string()));
    let (mut task, _pool, _policy) = rig.open(&Shared::default(), &rig.config());
    assert_eq!(task.store.count_ready(4).await, Ok(4));
    assert_eq!(task.store.count_ready(100).await, Ok(10));
}
