//! Liveness of the daemon's threads. Each monitored thread registers here and beats at least once a
//! second, also when it is idle; a query returns those whose last beat is too long ago. The caller
//! decides what to do about them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::event_loop;

/// Interval at which an idle thread beats.
pub const EVERY: Duration = Duration::from_secs(1);

/// The monitored threads. There is one set of them in a process.
static THREADS: Mutex<Threads> = Mutex::new(Threads::new());

/// Origin of the times of beats.
static BEGINNING: LazyLock<Instant> = LazyLock::new(Instant::now);

#[derive(Debug)]
struct Threads {
    next: u64,
    pulses: BTreeMap<u64, Arc<Pulse>>,
}

impl Threads {
    const fn new() -> Self {
        Self {
            next: 0,
            pulses: BTreeMap::new(),
        }
    }

    fn add(&mut self, pulse: &Arc<Pulse>) -> u64 {
        self.next += 1;
        self.pulses.insert(self.next, Arc::clone(pulse));
        self.next
    }

    fn stalled(&self, now: u64, limit: Duration) -> Vec<Stalled> {
        let stalled = self.pulses.values().filter_map(|pulse| {
            let silent = pulse.silent(now)?;
            let thread = pulse.thread.clone();
            (silent > limit).then_some(Stalled { thread, silent })
        });
        stalled.collect()
    }
}

fn threads() -> MutexGuard<'static, Threads> {
    // What it guards is never left half changed.
    THREADS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Liveness of one thread.
#[derive(Debug)]
struct Pulse {
    thread: String,
    /// Time of the last beat, in milliseconds since the beginning.
    last_ms: AtomicU64,
    /// True while the thread is in a call of unknown duration.
    away: AtomicBool,
}

impl Pulse {
    fn beat(&self) {
        self.last_ms.store(now(), Ordering::Relaxed);
    }

    /// Returns the time since the last beat; `None` while that says nothing.
    fn silent(&self, now: u64) -> Option<Duration> {
        // In this order: a thread that is back has beaten before.
        let away = self.away.load(Ordering::Acquire);
        let last = self.last_ms.load(Ordering::Relaxed);
        (!away).then(|| Duration::from_millis(now.saturating_sub(last)))
    }
}

fn now() -> u64 {
    u64::try_from(BEGINNING.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// A stalled thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stalled {
    /// Name of the thread, such as `source-email`.
    pub thread: String,
    /// Time since its last beat.
    pub silent: Duration,
}

/// Returns the threads that have not beaten for longer than the limit. A thread that has ended is
/// none of them. Costs no more than a look; waits for no thread.
pub fn stalled(limit: Duration) -> Vec<Stalled> {
    threads().stalled(now(), limit)
}

/// Guard that a monitored thread holds. Once it is dropped, also by a panic, no beat of the thread
/// is expected any more.
#[derive(Debug)]
#[must_use]
pub struct Heartbeat {
    number: u64,
    pulse: Arc<Pulse>,
    beats: Option<AbortHandle>,
}

impl Heartbeat {
    /// Registers the thread of that name.
    pub fn named(thread: &str) -> Self {
        let pulse = Arc::new(Pulse {
            thread: thread.to_owned(),
            last_ms: AtomicU64::new(now()),
            away: AtomicBool::new(false),
        });
        Self {
            number: threads().add(&pulse),
            pulse,
            beats: None,
        }
    }

    /// Registers this thread, under the name that it was started with.
    pub fn of_this_thread() -> Self {
        Self::named(thread::current().name().unwrap_or("unnamed"))
    }

    /// Beats automatically whenever this event loop turns, which must be driven by one thread
    /// alone.
    pub fn on(mut self, event_loop: &Handle) -> Self {
        let pulse = Arc::clone(&self.pulse);
        let beats = async move {
            let mut ticks = tokio::time::interval(EVERY);
            loop {
                ticks.tick().await;
                event_loop::beats();
                pulse.beat();
            }
        };
        self.beats = Some(event_loop.spawn(beats).abort_handle());
        self
    }

    /// Beats.
    pub fn beat(&self) {
        self.pulse.beat();
    }

    /// Runs a call of unknown duration on something outside the daemon that a restart would not
    /// help, such as a directory service or a reader of the log. Meanwhile no beat is expected.
    pub fn away<T>(&self, work: impl FnOnce() -> T) -> T {
        let _back = Away::of(&self.pulse);
        work()
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        if let Some(beats) = &self.beats {
            beats.abort();
        }
        threads().pulses.remove(&self.number);
    }
}

/// Marks a thread as away until it is dropped.
struct Away<'a>(&'a Pulse);

impl<'a> Away<'a> {
    fn of(pulse: &'a Pulse) -> Self {
        pulse.away.store(true, Ordering::Release);
        Self(pulse)
    }
}

impl Drop for Away<'_> {
    fn drop(&mut self) {
        // Beats first, or it would be late at once.
        self.0.beat();
        self.0.away.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    /// Returns the silence of a thread of that name as of so many milliseconds from now.
    fn silent(thread: &str, later_ms: u64) -> Vec<Stalled> {
        let mut stalled = threads().stalled(now() + later_ms, LIMIT);
        stalled.retain(|it| it.thread == thread);
        stalled
    }

    #[test]
    fn who_has_not_beaten_for_long_is_named() {
        let heart = Heartbeat::named("silent");
        assert_eq!(silent("silent", 9_000), []);
        let told = silent("silent", 11_000);
        assert_eq!(told.len(), 1);
        assert!(told[0].silent > LIMIT && told[0].silent < 2 * LIMIT);
        heart.beat();
        assert_eq!(stalled(LIMIT).iter().find(|it| it.thread == "silent"), None);
    }

    #[test]
    fn two_of_one_name_are_told_apart() {
        let (first, second) = (Heartbeat::named("twin"), Heartbeat::named("twin"));
        assert_eq!(silent("twin", 11_000).len(), 2);
        drop(first);
        assert_eq!(silent("twin", 11_000).len(), 1);
        drop(second);
        assert_eq!(silent("twin", 11_000), []);
    }

    #[test]
    fn who_has_ended_is_expected_no_more_by_a_panic_either() {
        let thread = thread::Builder::new().name("dies".into());
        let dies = thread.spawn(|| {
            let _heart = Heartbeat::of_this_thread();
            assert_eq!(silent("dies", 11_000).len(), 1);
            panic!("as a bug would");
        });
        dies.unwrap().join().unwrap_err();
        assert_eq!(silent("dies", 11_000), []);
    }

    #[test]
    fn nothing_is_expected_of_who_is_away_until_he_is_back() {
        let heart = Heartbeat::named("away");
        heart.away(|| assert_eq!(silent("away", 11_000), []));
        assert_eq!(silent("away", 11_000).len(), 1);
        let panics = || heart.away(|| panic!("as a job may"));
        catch_unwind(AssertUnwindSafe(panics)).unwrap_err();
        assert_eq!(silent("away", 11_000).len(), 1, "it was back all the same");
    }

    /// Resolves with the first beat after the call.
    async fn beaten(pulse: &Pulse) {
        let before = now();
        while pulse.last_ms.load(Ordering::Relaxed) <= before {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    #[test]
    fn an_event_loop_beats_while_it_turns_and_as_long_as_the_heart_is_there() {
        let event_loop = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let heart = Heartbeat::named("loop").on(event_loop.handle());
        let pulse = Arc::clone(&heart.pulse);
        event_loop.block_on(async {
            beaten(&pulse).await;
            beaten(&pulse).await;
        });
        let held = Arc::strong_count(&pulse);
        drop(heart);
        event_loop.block_on(tokio::task::yield_now());
        assert_eq!((held, Arc::strong_count(&pulse)), (4, 1));
    }
}
