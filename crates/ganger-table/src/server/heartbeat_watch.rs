//! Detection of the times when others may have taken over this source's claims: no heartbeat was
//! answered for half a lease, or the source was removed from the owners. They are counted, so that the
//! workers can be notified.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// Counts the times that heartbeats cease. `beaten` is the time at which the last answered heartbeat was
/// sent. Returns when its sender is dropped.
pub(crate) async fn watch_heartbeats(
    mut beaten: watch::Receiver<Instant>,
    lease: Duration,
    losses: watch::Sender<u64>,
) {
    loop {
        let late = *beaten.borrow_and_update() + lease / 2;
        tokio::select! {
            biased;
            beats = beaten.changed() => match beats {
                Ok(()) => continue,
                Err(_) => return,
            },
            () = sleep_until(late) => {}
        }
        tracing::warn!(
            "no heartbeat has reached the server for half a lease: other daemons may take over the messages in flight"
        );
        losses.send_modify(|count| *count += 1);
        if beaten.changed().await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_silence_of_half_a_lease_counts_once() {
        let second = Duration::from_secs(1);
        let (beats, beaten) = watch::channel(Instant::now());
        let (losses, mut lost) = watch::channel(0);
        tokio::spawn(watch_heartbeats(beaten, 10 * second, losses));
        for _ in 0..5 {
            tokio::time::sleep(4 * second).await;
            assert!(!lost.has_changed().unwrap());
            beats.send_replace(Instant::now());
        }
        let silent = Instant::now();
        lost.changed().await.unwrap();
        assert_eq!(silent.elapsed().as_secs(), 5);
        tokio::time::sleep(60 * second).await;
        assert_eq!(*lost.borrow_and_update(), 1);
        beats.send_replace(Instant::now());
        lost.changed().await.unwrap();
        drop(beats);
        lost.changed().await.unwrap_err();
    }
}
