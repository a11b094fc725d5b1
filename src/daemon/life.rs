//! The life of a pool on a thread: that of its source where it may share that, or one of its own.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use tokio::sync::{mpsc, watch};

use super::error::chain;
use crate::delivery::PoolEnd;
use crate::event_loop::EventLoop;
use crate::heartbeat::Heart;
use crate::pool::status::PoolStatus;
use crate::pool::{self, Command, Orders, PoolError, Steering};
use crate::source;

/// A pool's life has ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) pool: String,
    pub(super) result: Result<(), String>,
}

/// What a pool lives on.
#[derive(Debug)]
pub(super) struct Life {
    pub(super) pool: String,
    pub(super) orders: watch::Receiver<Orders>,
    pub(super) end: PoolEnd,
    pub(super) commands: mpsc::Receiver<Command>,
    pub(super) show: watch::Sender<Arc<PoolStatus>>,
    pub(super) steered: watch::Sender<Steering>,
    pub(super) source: source::Running,
    /// Where its end is told.
    pub(super) ended: mpsc::Sender<Ended>,
}

impl Life {
    /// Begins it.
    ///
    /// # Errors
    /// If the operating system gives no thread.
    pub(super) fn begin(mut self) -> io::Result<()> {
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
        let thread = thread::Builder::new().name(format!("pool-{name}"));
        let body = move || match EventLoop::new() {
            Ok(event_loop) => {
                let _heart = Heart::of_this_thread().on(event_loop.handle());
                life(&event_loop);
            }
            Err(error) => tell(&ended, name, Err(format!("no event loop: {error}"))),
        };
        thread.spawn(body).map(drop)
    }

    fn pass(self, event_loop: &EventLoop) {
        let (pool, ended) = (self.pool.clone(), self.ended.clone());
        let work = || event_loop.run(self.live());
        let result = catch_unwind(AssertUnwindSafe(work));
        tell(
            &ended,
            pool,
            result.unwrap_or_else(|_| Err("it panicked".into())),
        );
    }

    /// The pool, then the end of its source.
    async fn live(mut self) -> Result<(), String> {
        let (show, steered) = (self.show, self.steered);
        let result = pool::run(self.orders, self.end, self.commands, show, steered).await;
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

fn tell(ended: &mpsc::Sender<Ended>, pool: String, result: Result<(), String>) {
    // The daemon may be gone when it could not start all pools.
    drop(ended.blocking_send(Ended { pool, result }));
}
