//! Life of a pool on a thread: that of its source if it may share that, or one of its own.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::{fmt, io, thread};

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::error::chain;
use ganger_core::backoff::AWAY;
use ganger_core::event_loop::EventLoop;
use ganger_core::heartbeat::Heartbeat;
use ganger_core::threads::{self, Body};
use ganger_pool::events::{EventFeed, PoolEvent};
use ganger_pool::status::PoolStatus;
use ganger_pool::{Command, Orders, PoolError, Steering};
use ganger_queue::delivery::PoolEnd;
use ganger_queue::source;

/// End of a pool's life.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) pool: String,
    pub(super) result: Result<(), String>,
}

/// Parts of a pool's life.
#[derive(Debug)]
pub(super) struct Life {
    pub(super) pool: String,
    pub(super) orders: watch::Receiver<Orders>,
    pub(super) end: PoolEnd,
    pub(super) commands: mpsc::Receiver<Command>,
    pub(super) show: watch::Sender<Arc<PoolStatus>>,
    pub(super) steered: watch::Sender<Steering>,
    pub(super) source: source::Running,
    pub(super) feed: EventFeed,
    /// Channel on which its end is reported.
    pub(super) ended: mpsc::Sender<Ended>,
}

impl Life {
    /// Starts the pool.
    ///
    /// # Errors
    /// If the operating system gives no thread.
    pub(super) fn begin(mut self) -> Result<(), UnstartedPool> {
        let shared = self.source.shared_thread();
        let (name, ended) = (self.pool.clone(), self.ended.clone());
        let life: source::ThreadBody = Box::new(|event_loop| self.pass(event_loop));
        let life = match shared {
            Some(thread) => match thread.begin(life) {
                Ok(()) => return Ok(()),
                Err(life) => life,
            },
            None => life,
        };
        let pool = name.clone();
        let body = move || match EventLoop::new() {
            Ok(event_loop) => {
                let _heart = Heartbeat::of_this_thread().on(event_loop.handle());
                life(&event_loop);
            }
            Err(error) => tell(
                &ended,
                name,
                Err(format!("creating an event loop failed: {error}")),
            ),
        };
        UnstartedPool::new(pool, Box::new(body)).begin(thread::Builder::new())
    }

    fn pass(self, event_loop: &EventLoop) {
        let (pool, ended, feed) = (self.pool.clone(), self.ended.clone(), self.feed.clone());
        feed.push(PoolEvent::PoolStarted { pool: pool.clone() });
        let work = || event_loop.run(self.live());
        let result = catch_unwind(AssertUnwindSafe(work));
        feed.push(PoolEvent::PoolEnded { pool: pool.clone() });
        tell(
            &ended,
            pool,
            result.unwrap_or_else(|_| Err("it panicked".into())),
        );
    }

    /// Runs the pool, then waits for the end of its source.
    async fn live(mut self) -> Result<(), String> {
        let (show, steered, feed) = (self.show, self.steered, self.feed);
        let result =
            ganger_pool::run(self.orders, self.end, self.commands, show, steered, feed).await;
        match result {
            // A source that is stuck would keep us here.
            Err(error @ PoolError::Unsettled) => Err(error.to_string()),
            result => {
                let ended = self.source.ended().await.map_err(|error| chain(&error));
                ended.and(result.map_err(|error| error.to_string()))
            }
        }
    }
}

/// A pool that has no thread yet: it is started when the operating system provides one.
pub(super) struct UnstartedPool {
    pool: String,
    body: Body,
    failures: u32,
    /// The system's error.
    pub(super) why: io::Error,
    /// Time of the next attempt.
    pub(super) again: Instant,
}

impl UnstartedPool {
    fn new(pool: String, body: Body) -> Self {
        Self {
            pool,
            body,
            failures: 0,
            why: io::ErrorKind::WouldBlock.into(),
            again: Instant::now(),
        }
    }

    /// Starts the pool on a thread with these settings.
    ///
    /// # Errors
    /// If there is still none.
    pub(super) fn begin(self, thread: thread::Builder) -> Result<(), Self> {
        let thread = thread.name(format!("pool-{}", self.pool));
        let failures = self.failures + 1;
        threads::begin(thread, self.body).map_err(|(why, body)| Self {
            pool: self.pool,
            body,
            failures,
            why,
            again: Instant::now() + AWAY.wait(failures, fastrand::f64()),
        })
    }
}

impl fmt::Debug for UnstartedPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnstartedPool")
            .field("pool", &self.pool)
            .finish()
    }
}

fn tell(ended: &mpsc::Sender<Ended>, pool: String, result: Result<(), String>) {
    // The daemon may be gone when it could not start all pools.
    drop(ended.blocking_send(Ended { pool, result }));
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A pool whose thread was refused: no machine has room for its stack.
    pub(in crate::daemon) fn refused(pool: &str, body: Body) -> UnstartedPool {
        let unbegun = UnstartedPool::new(pool.to_owned(), body);
        let thread = thread::Builder::new().stack_size(1 << 60);
        unbegun.begin(thread).unwrap_err()
    }

    #[test]
    fn a_life_whose_thread_is_refused_is_begun_later() {
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        let body = move || {
            tell.send(thread::current().name().map(str::to_owned))
                .unwrap()
        };
        let unbegun = refused("p", Box::new(body));
        let why = unbegun.why.to_string();
        assert!(why.contains("spawning a thread failed"), "{why}");
        unbegun.begin(thread::Builder::new()).unwrap();
        assert_eq!(told.recv().unwrap().as_deref(), Some("pool-p"));
    }
}
