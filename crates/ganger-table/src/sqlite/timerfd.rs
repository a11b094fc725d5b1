//! A timer for waits shorter than a millisecond, which is the runtime's tick: a commit becomes visible
//! sooner than that after the write to the journal.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::unix::AsyncFd;
use tokio::time::Instant;

/// A timer of the kernel.
#[derive(Debug)]
pub(crate) struct FineTimer(AsyncFd<OwnedFd>);

impl FineTimer {
    /// Makes a timer. Must be called within a runtime that drives I/O.
    pub(crate) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        watched(timerfd_create(TimerfdClockId::Monotonic, flags)?).map(Self)
    }

    /// Resolves at that time. If it is dropped and called again, it waits for the new time only.
    pub(crate) async fn at(&self, when: Instant) -> io::Result<()> {
        let wait = when.saturating_duration_since(Instant::now());
        if wait.is_zero() {
            return Ok(());
        }
        // Setting the timer discards an expiry that was not read.
        timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &once(wait))?;
        loop {
            let mut ready = self.0.readable().await?;
            if when <= Instant::now() {
                return Ok(());
            }
            // Readiness left over from an earlier wait.
            ready.clear_ready();
        }
    }
}

fn once(wait: Duration) -> Itimerspec {
    let seconds = i64::try_from(wait.as_secs()).unwrap_or(i64::MAX);
    Itimerspec {
        it_interval: Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        },
        it_value: Timespec {
            tv_sec: seconds,
            tv_nsec: wait.subsec_nanos().into(),
        },
    }
}

#[expect(
    deprecated,
    reason = "what took its place is unsafe; this is sound for a type that owns its descriptor"
)]
fn watched(timer: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::new(timer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn waits_for_less_than_a_tick_and_not_less_than_asked() {
        let timer = FineTimer::new().unwrap();
        let mut shortest = Duration::MAX;
        for _ in 0..20 {
            let start = Instant::now();
            timer.at(start + Duration::from_micros(100)).await.unwrap();
            let waited = start.elapsed();
            assert!(waited >= Duration::from_micros(100));
            shortest = shortest.min(waited);
        }
        assert!(shortest < Duration::from_micros(900), "{shortest:?}");
    }

    #[tokio::test]
    async fn an_abandoned_wait_does_not_end_the_next() {
        let timer = FineTimer::new().unwrap();
        let start = Instant::now();
        tokio::select! {
            biased;
            _ = timer.at(start + Duration::from_millis(1)) => {}
            () = std::future::ready(()) => {}
        }
        timer.at(start + Duration::from_millis(3)).await.unwrap();
        assert!(start.elapsed() >= Duration::from_millis(3));
    }
}
