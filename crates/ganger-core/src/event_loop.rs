//! Event loop of a thread that waits for many things at once: its tasks stay on it, so that they
//! need no locks between them; it knows since when it is awake, and how long it stood still against
//! its will.

use std::cell::Cell;
use std::io;
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::{JoinHandle, LocalSet};
use tokio::time::Instant;

/// Idle time after which a loop that beats once a second has been stopped, or its machine paused,
/// or it was swapped out. Less may be nothing but load.
const STANDSTILL_MIN: Duration = Duration::from_secs(2);

thread_local! {
    static WOKEN: Cell<Option<Instant>> = const { Cell::new(None) };
    static PROGRESS: Cell<LoopProgress> = const { Cell::new(LoopProgress::new()) };
}

/// Time at which a loop was last seen to turn, and total time that it has stood still.
#[derive(Debug, Clone, Copy)]
struct LoopProgress {
    /// `None` for a loop that does not beat: it may rest for any time.
    turned_at: Option<Instant>,
    stood_still: Duration,
}

impl LoopProgress {
    const fn new() -> Self {
        Self {
            turned_at: None,
            stood_still: Duration::ZERO,
        }
    }

    /// Records a turn of the loop at that moment.
    fn turns(self, now: Instant, beats: bool) -> Self {
        let Some(turned_at) = self.turned_at else {
            return Self {
                turned_at: beats.then_some(now),
                ..self
            };
        };
        let gap = now.saturating_duration_since(turned_at);
        let is_standstill = gap >= STANDSTILL_MIN;
        Self {
            turned_at: Some(now.max(turned_at)),
            stood_still: self.stood_still + if is_standstill { gap } else { Duration::ZERO },
        }
    }
}

/// Records a turn of this thread's loop, which from now on turns at least once a second.
pub fn beats() {
    turns(Instant::now(), true);
}

/// Records a turn of this thread's loop. Returns the total time that it has stood still so far.
fn turns(now: Instant, beats: bool) -> Duration {
    let progress = PROGRESS.get().turns(now, beats);
    PROGRESS.set(progress);
    progress.stood_still
}

/// Measures how long this thread's loop has not turned: nothing due within that time could be seen
/// to happen, and others that were to act may have been stopped as well. Deadlines are moved by it.
#[derive(Debug)]
pub struct Standstills {
    seen: Duration,
}

impl Standstills {
    /// Begins to measure now.
    pub fn from_now() -> Self {
        let seen = turns(Instant::now(), false);
        Self { seen }
    }

    /// Returns the time that the loop stood still since the last call, if it did.
    pub fn take_stall(&mut self, now: Instant) -> Option<Duration> {
        let total = turns(now, false);
        let before = std::mem::replace(&mut self.seen, total);
        (total > before).then(|| total - before)
    }
}

/// Sleeps for that time, not counting the time in which this thread's loop stands still.
pub async fn turning(time: Duration) {
    let mut standstills = Standstills::from_now();
    let mut deadline = Instant::now() + time;
    loop {
        tokio::time::sleep_until(deadline).await;
        match standstills.take_stall(Instant::now()) {
            Some(stood_still) => deadline += stood_still,
            None => return,
        }
    }
}

/// The event loop of one thread.
#[derive(Debug)]
pub struct EventLoop {
    // The tasks are dropped first: they may need the runtime.
    tasks: LocalSet,
    runtime: Runtime,
}

impl EventLoop {
    /// Creates the event loop of this thread.
    ///
    /// # Errors
    /// If the operating system refuses the resources.
    pub fn new() -> io::Result<Self> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .on_thread_unpark(|| WOKEN.set(Some(Instant::now())))
            .build()?;
        Ok(Self {
            tasks: LocalSet::new(),
            runtime,
        })
    }

    /// Returns a handle to start tasks that need not stay on this thread.
    pub fn handle(&self) -> &Handle {
        self.runtime.handle()
    }

    /// Starts a task that runs whenever this thread runs something.
    pub fn spawn<T: 'static>(&self, task: impl Future<Output = T> + 'static) -> JoinHandle<T> {
        self.tasks.spawn_local(task)
    }

    /// Runs this future to its end, and meanwhile all tasks of this thread.
    pub fn run<T>(&self, work: impl Future<Output = T>) -> T {
        self.tasks.block_on(&self.runtime, work)
    }

    /// Ends without waiting for calls that still block somewhere.
    pub fn leave(self) {
        drop(self.tasks);
        self.runtime.shutdown_background();
    }
}

/// Returns the time since which this thread has not slept, because there was always something to
/// do; `None` where no [`EventLoop`] drives it, or it has not slept yet.
pub fn awake_since() -> Option<Instant> {
    WOKEN.get()
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    #[test]
    fn only_a_loop_that_beats_can_stand_still() {
        let begun = Instant::now();
        let stood_still = |beats: bool, seconds: &[u64]| {
            let mut progress = LoopProgress::new().turns(begun, beats);
            for second in seconds {
                progress = progress.turns(begun + Duration::from_secs(*second), false);
            }
            progress.stood_still.as_secs()
        };
        assert_eq!(stood_still(false, &[1, 60]), 0);
        assert_eq!(stood_still(true, &[1, 2, 3]), 0);
        assert_eq!(stood_still(true, &[1, 60, 61]), 59);
        assert_eq!(stood_still(true, &[60, 61, 71, 71]), 70);
    }

    #[test]
    fn each_learns_once_of_a_standstill_of_its_thread() {
        let mut early = Standstills::from_now();
        beats();
        let mut late = Standstills::from_now();
        let long_ago = PROGRESS.get().turned_at.unwrap() - 5 * STANDSTILL_MIN;
        PROGRESS.set(LoopProgress {
            turned_at: Some(long_ago),
            ..PROGRESS.get()
        });
        let now = Instant::now();
        assert!(early.take_stall(now) >= Some(5 * STANDSTILL_MIN));
        assert!(late.take_stall(now) >= Some(5 * STANDSTILL_MIN));
        assert_eq!((early.take_stall(now), late.take_stall(now)), (None, None));
        assert_eq!(Standstills::from_now().take_stall(now), None);
    }

    #[test]
    fn it_tells_since_when_it_is_awake_and_keeps_its_tasks() {
        let event_loop = EventLoop::new().unwrap();
        let task = event_loop.spawn(async {
            sleep(Duration::from_millis(2)).await;
            7
        });
        let begun = Instant::now();
        event_loop.run(async { sleep(Duration::from_millis(1)).await });
        assert!(awake_since() > Some(begun));
        assert_eq!(event_loop.run(task).unwrap(), 7);
        event_loop.leave();
    }
}
