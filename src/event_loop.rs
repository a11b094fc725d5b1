//! What drives a thread that waits for many things at once: tasks that stay on it, so that they need no
//! locks between them, and its sleep, of which it can tell.

use std::cell::Cell;
use std::io;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::{JoinHandle, LocalSet};
use tokio::time::Instant;

thread_local! {
    static WOKEN: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// The event loop of one thread.
#[derive(Debug)]
pub struct EventLoop {
    // Its tasks go first: what they hold may need the runtime.
    tasks: LocalSet,
    runtime: Runtime,
}

impl EventLoop {
    /// For this thread.
    ///
    /// # Errors
    /// If the operating system refuses it the means.
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

    /// To start what need not stay on this thread.
    pub fn handle(&self) -> &Handle {
        self.runtime.handle()
    }

    /// A task that goes on whenever this thread runs something.
    pub fn spawn<T: 'static>(&self, task: impl Future<Output = T> + 'static) -> JoinHandle<T> {
        self.tasks.spawn_local(task)
    }

    /// Runs until that is done, and meanwhile all tasks of this thread.
    pub fn run<T>(&self, work: impl Future<Output = T>) -> T {
        self.tasks.block_on(&self.runtime, work)
    }

    /// Ends without waiting for calls that still block somewhere.
    pub fn leave(self) {
        drop(self.tasks);
        self.runtime.shutdown_background();
    }
}

/// Since when this thread has not slept, for there was always something to do; none where no
/// [`EventLoop`] drives it, or it has not slept yet.
pub fn awake_since() -> Option<Instant> {
    WOKEN.get()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::sleep;

    use super::*;

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
