//! Tests of owners that vanish, and of their claims.

use super::*;
use crate::sqlite::tests_support::OtherOwner;

#[tokio::test]
async fn a_dead_daemons_messages_come_at_once() {
    let rig = Rig::new();
    rig.insert("a");
    let mut source = rig.source(&Shared::default(), 10);
    drop(source.next().await);
    let again = source.next().await;
    source.credit(0);
    drop(again);
    rig.until("SELECT owner IS NULL FROM consumer_messages")
        .await;

    let other = OtherOwner::new(&rig.path(), Duration::from_secs(30));
    other.claims_all(&rig.sql(), false);
    source.credit(10);
    // Only the wake-up by the closed lock file can cause this: the poll is an hour away.
    other.dies();
    let delivery = source.next().await;
    assert_eq!(
        (delivery.history.attempt, delivery.history.alone),
        (1, false)
    );
    delivery.settle(Outcome::Return { suspect: false });
    source.credit(0);
    source.end().await;
    assert_eq!(rig.get::<i64>("SELECT count(*) FROM owners"), 0);
    let files = std::fs::read_dir(rig.dir.path().join("queue.db.owners")).unwrap();
    assert_eq!(files.count(), 0);
}

#[tokio::test]
async fn those_who_died_before_the_start_are_found_by_it() {
    let rig = Rig::new();
    (0..3).for_each(|n| rig.insert(&n.to_string()));
    let other = OtherOwner::new(&rig.path(), Duration::from_secs(30));
    other.claims_all(&rig.sql(), false);
    other.dies();
    let mut source = rig.source(&Shared::default(), 10);
    for n in 0..3 {
        assert_eq!(source.finish_next().await, n.to_string());
    }
    source.end().await;
}

#[tokio::test]
async fn a_living_daemons_messages_stay_with_it() {
    let rig = Rig::new();
    rig.insert("hers");
    let other = OtherOwner::new(&rig.path(), Duration::from_secs(30));
    other.claims_all(&rig.sql(), false);
    rig.insert("ours");
    let mut source = rig.source(&Shared::default(), 10);
    assert_eq!(source.finish_next().await, "ours");
    source.end().await;
    assert_eq!(
        rig.get::<String>("SELECT body FROM consumer_messages"),
        "hers"
    );
}

#[tokio::test]
async fn a_lapse_is_charged_only_to_the_suspect_that_ran_and_to_who_ran_alone() {
    for (lapses, alone, expected) in [
        (0, false, "attempts 0 crashes 0 lapses 1"),
        (1, false, "attempts 0 crashes 0 lapses 2"),
        (2, false, "attempts 1 crashes 0 lapses 3"),
        (2, true, "attempts 1 crashes 1 lapses 3"),
    ] {
        let rig = Rig::new();
        rig.insert("a");
        rig.execute(&format!("UPDATE consumer_messages SET lapses = {lapses}"));
        let other = OtherOwner::new(&rig.path(), Duration::from_secs(30));
        other.claims_all(&rig.sql(), alone);
        other.dies();
        let (mut task, _pool, _limits) = rig.open(&Shared::default(), &rig.config());
        assert!(task.store.take_back_from_dead_owners().unwrap());
        assert!(!task.store.take_back_from_dead_owners().unwrap());
        assert!(rig.counters().starts_with(expected), "{}", rig.counters());
        assert!(rig.counters().ends_with("owner none"));
    }
}

#[tokio::test]
async fn claims_of_owners_that_nobody_knows_are_taken_back() {
    let rig = Rig::new();
    rig.insert("a");
    rig.execute("UPDATE consumer_messages SET owner = 99, claim = 1, attempts = 1");
    let mut source = rig.source(&Shared::default(), 1);
    assert_eq!(source.finish_next().await, "a");
    source.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_heart_that_stands_still_for_its_lease_loses_its_messages() {
    let rig = Rig::new();
    rig.insert("a");
    let lease = Duration::from_secs(30);
    let other = OtherOwner::new(&rig.path(), lease);
    other.claims_all(&rig.sql(), false);
    let config = TableSource {
        lease,
        ..rig.config()
    };
    let (mut task, _pool, _limits) = rig.open(&Shared::default(), &config);
    let mut beats = async |until_lost: bool| {
        let found = task.store.beat().unwrap();
        assert_eq!(found, until_lost);
        task.store.beat_interval()
    };
    for _ in 0..3 {
        tokio::time::advance(beats(false).await).await;
    }
    other.beats(&rig.sql());
    for _ in 0..4 {
        tokio::time::advance(beats(false).await).await;
    }
    beats(true).await;
    assert!(rig.counters().contains("lapses 1"), "{}", rig.counters());
    assert_eq!(rig.get::<i64>("SELECT count(*) FROM owners"), 1);
}

#[tokio::test]
async fn who_was_taken_for_dead_goes_on_under_a_new_id() {
    let rig = Rig::new();
    rig.insert("a");
    let mut source = rig.source(&Shared::default(), 1);
    let delivery = source.next().await;
    rig.execute(
        "DELETE FROM owners; UPDATE consumer_messages SET owner = NULL, claim = NULL, lapses = 1",
    );
    delivery.settle(Outcome::Done);
    assert_eq!(
        source
            .until(|state| state.likely_duplicates > 0)
            .await
            .likely_duplicates,
        1
    );
    let again = source.next().await;
    assert_eq!(
        rig.get::<i64>("SELECT count(*) FROM owners WHERE id = 2"),
        1
    );
    again.settle(Outcome::Done);
    source.end().await;
    assert_eq!(rig.get::<i64>("SELECT count(*) FROM consumer_messages"), 0);
    assert_eq!(rig.get::<i64>("SELECT count(*) FROM owners"), 0);
}

#[tokio::test]
async fn the_sources_of_one_daemon_are_one_owner_until_the_last_leaves() {
    let rig = Rig::new();
    let daemon = Shared::default();
    let (one, two) = (rig.source(&daemon, 1), rig.source(&daemon, 1));
    assert_eq!(rig.get::<i64>("SELECT count(*) FROM owners"), 1);
    one.end().await;
    assert_eq!(rig.get::<i64>("SELECT count(*) FROM owners"), 1);
    two.end().await;
    assert_eq!(rig.get::<i64>("SELECT count(*) FROM owners"), 0);
}
