//! Tests of the delay of small transactions until more settlements have come in.

use tokio::time::Instant;

use super::*;

const TURN: Duration = Duration::from_millis(20);

/// Returns a source with eight messages out and more waiting, whose transactions take `TURN`.
async fn eight_out(rig: &Rig) -> (Task, PoolEnd, Vec<Delivery>) {
    (0..20).for_each(|n| rig.insert(&n.to_string()));
    let (mut task, mut pool, _) = rig.open(&Shared::default(), &rig.config());
    pool.intake.send(Intake::Credit(8)).unwrap();
    task.write_and_claim().await;
    let mut out = Vec::new();
    while let Ok(delivery) = pool.deliveries.try_recv() {
        out.push(delivery);
    }
    assert_eq!(out.len(), 8);
    (0..100).for_each(|_| pool.facts.took_turn(TURN));
    (task, pool, out)
}

#[tokio::test(start_paused = true)]
async fn nearly_all_that_is_out_goes_into_one() {
    let rig = Rig::new();
    let (mut task, _pool, mut out) = eight_out(&rig).await;
    out.pop().unwrap().settle(Outcome::Done);
    task.collect();
    let begun = Instant::now();
    tokio::join!(task.gather(), async {
        for delivery in out.drain(1..) {
            tokio::time::sleep(Duration::from_millis(1)).await;
            delivery.settle(Outcome::Done);
        }
    });
    assert_eq!(task.book.settled().len(), 7, "one is not waited for");
    assert!(begun.elapsed() < TURN, "{:?}", begun.elapsed());
    task.write_and_claim().await;
    assert_eq!(task.book.out(), 8, "seven others are out instead");
}

#[tokio::test(start_paused = true)]
async fn slow_work_is_waited_for_no_longer_than_half_a_transaction_takes() {
    let rig = Rig::new();
    let (mut task, _pool, mut out) = eight_out(&rig).await;
    for waits in [true, false, false, true] {
        out.pop().unwrap().settle(Outcome::Done);
        task.collect();
        let begun = Instant::now();
        task.gather().await;
        let waited = begun.elapsed();
        let half = TURN / 2 - Duration::from_millis(1)..TURN / 2 + Duration::from_millis(2);
        assert_eq!(half.contains(&waited), waits, "{waited:?}");
        assert_eq!(waited.is_zero(), !waits, "{waited:?}");
    }
    assert_eq!(task.book.settled().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn at_the_end_nothing_is_waited_for() {
    let rig = Rig::new();
    let (mut task, pool, mut out) = eight_out(&rig).await;
    out.pop().unwrap().settle(Outcome::Done);
    pool.intake.send(Intake::Closed).unwrap();
    task.collect();
    let begun = Instant::now();
    task.gather().await;
    assert!(begun.elapsed().is_zero());
}
