//! The threads of sources. One that blocks has a thread to itself; one that never does shares its own
//! with its pool, so that a message crosses none.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{fmt, thread};

use tokio::sync::oneshot;

use super::error::SourceError;
use ganger_core::event_loop::EventLoop;
use ganger_core::heartbeat::Heartbeat;

/// Stack size of a source's thread: a build without optimisation keeps the states of all nested futures
/// on the stack, which need more than the usual 2 MiB. Unused stack costs no memory.
const STACK_BYTES: usize = 8 << 20;

/// Work of a pool on its thread, from its first moment to its last.
pub type ThreadBody = Box<dyn FnOnce(&EventLoop) + Send>;

/// A source that is being opened.
#[derive(Debug)]
pub struct Opening {
    running: Running,
    opened: oneshot::Receiver<Result<(), SourceError>>,
}

impl Opening {
    /// Waits until the connection is opened, and everything the source needs there is checked or created,
    /// so that a problem refuses the start. A broker that can't be reached does not: the source waits for
    /// it later. From then on the source recovers by itself: any failure is reported in its state and
    /// retried. It ends when its intake is closed and all its deliveries are settled. Cancel-safe until
    /// it has resolved.
    ///
    /// # Errors
    /// If the connection can't be opened or used.
    pub async fn opened(&mut self) -> Result<(), SourceError> {
        match (&mut self.opened).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(error),
            // It can only have panicked.
            Err(_) => Err(self.running.panicked().await),
        }
    }

    /// Returns the source, once it is open.
    pub fn running(self) -> Running {
        self.running
    }
}

/// A running source.
#[derive(Debug)]
pub struct Running {
    pool: String,
    exited: oneshot::Receiver<Result<(), String>>,
    end: Option<Result<(), String>>,
    shared: Option<SharedThread>,
}

impl Running {
    /// Waits until the source has ended, with its connection closed. Cancel-safe; another call gives the
    /// same result.
    ///
    /// # Errors
    /// If it ended by a panic, which is never taken for a clean end.
    pub async fn ended(&mut self) -> Result<(), SourceError> {
        if self.end.is_none() {
            let exited = (&mut self.exited).await;
            self.end = Some(exited.unwrap_or_else(|_| Err("its thread has ended".to_owned())));
        }
        match &self.end {
            Some(Err(message)) => Err(self.panic(message.clone())),
            Some(Ok(())) | None => Ok(()),
        }
    }

    /// Returns the source's thread, if its pool may share it and does not yet.
    pub fn shared_thread(&mut self) -> Option<SharedThread> {
        self.shared.take()
    }

    async fn panicked(&mut self) -> SourceError {
        let ended = self.ended().await;
        ended
            .err()
            .unwrap_or_else(|| self.panic("no message".to_owned()))
    }

    fn panic(&self, message: String) -> SourceError {
        SourceError::Panicked {
            pool: self.pool.clone(),
            message,
        }
    }
}

/// Thread of a source that its pool may share. It ends when both have.
pub struct SharedThread(oneshot::Sender<ThreadBody>);

impl SharedThread {
    /// Starts `body` on the thread.
    ///
    /// # Errors
    /// Returns `body` if the thread is gone.
    pub fn begin(self, body: ThreadBody) -> Result<(), ThreadBody> {
        self.0.send(body)
    }
}

impl fmt::Debug for SharedThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedThread")
    }
}

/// Opens a source and runs it on the same thread, which a connection may be bound to.
pub fn open_on_thread<W: FnOnce()>(
    thread: &str,
    pool: &str,
    open: impl FnOnce() -> Result<W, SourceError> + Send + 'static,
) -> Result<Opening, SourceError> {
    let (report, opened) = oneshot::channel();
    let running = run_on_thread(thread, pool, move || {
        let (opened, work) = match open() {
            Ok(work) => (Ok(()), Some(work)),
            Err(error) => (Err(error), None),
        };
        if report.send(opened).is_ok()
            && let Some(work) = work
        {
            work();
        }
    })?;
    Ok(Opening { running, opened })
}

/// Starts work on a thread of its own.
///
/// # Errors
/// If no thread can be started.
pub fn run_on_thread(
    thread: &str,
    pool: &str,
    work: impl FnOnce() + Send + 'static,
) -> Result<Running, SourceError> {
    let (report, exited) = oneshot::channel();
    start(thread, pool, move || {
        let end = catch_unwind(AssertUnwindSafe(work));
        // A missing receiver is no error: the end was not awaited.
        drop(report.send(end.map_err(panic_text)));
    })?;
    Ok(running(pool, exited, None))
}

/// Opens a source that never blocks its thread, and runs it there beside its pool, if the pool wants
/// that.
pub fn open_beside_pool<S: Future<Output = ()> + 'static>(
    pool: &str,
    open: impl FnOnce(&EventLoop) -> Result<S, SourceError> + Send + 'static,
) -> Result<Opening, SourceError> {
    let (report, opened) = oneshot::channel();
    let (report_end, exited) = oneshot::channel();
    let (shared, body) = oneshot::channel();
    let name = pool.to_owned();
    start("pool", pool, move || {
        let event_loop =
            EventLoop::new().map_err(|error| SourceError::Thread { pool: name, error });
        let event_loop = match event_loop {
            Ok(event_loop) => event_loop,
            Err(error) => return drop(report.send(Err(error))),
        };
        let _heart = Heartbeat::of_this_thread().on(event_loop.handle());
        match catch_unwind(AssertUnwindSafe(|| open(&event_loop))) {
            Ok(Ok(source)) => {
                if report.send(Ok(())).is_ok() {
                    run_until_ended(&event_loop, source, report_end, body);
                }
            }
            Ok(Err(error)) => drop(report.send(Err(error))),
            Err(panic) => drop(report_end.send(Err(panic_text(panic)))),
        }
        // A look-up of a name may still be waiting for an answer.
        event_loop.leave();
    })?;
    let running = running(pool, exited, Some(SharedThread(shared)));
    Ok(Opening { running, opened })
}

/// Runs a source, and its pool if that shares the thread, until both have ended.
fn run_until_ended(
    event_loop: &EventLoop,
    source: impl Future<Output = ()> + 'static,
    report: oneshot::Sender<Result<(), String>>,
    pool: oneshot::Receiver<ThreadBody>,
) {
    let source = event_loop.spawn(source);
    let source = event_loop.spawn(async move {
        let end = source.await.map_err(|error| panic_text(error.into_panic()));
        drop(report.send(end));
    });
    if let Ok(pool) = event_loop.run(pool) {
        pool(event_loop);
    }
    // The source reports its end by itself.
    drop(event_loop.run(source));
}

fn start(
    thread: &str,
    pool: &str,
    body: impl FnOnce() + Send + 'static,
) -> Result<(), SourceError> {
    let started = thread::Builder::new()
        .name(format!("{thread}-{pool}"))
        .stack_size(STACK_BYTES)
        .spawn(body);
    started.map(drop).map_err(|error| SourceError::Thread {
        pool: pool.to_owned(),
        error,
    })
}

fn running(
    pool: &str,
    exited: oneshot::Receiver<Result<(), String>>,
    shared: Option<SharedThread>,
) -> Running {
    Running {
        pool: pool.to_owned(),
        exited,
        end: None,
        shared,
    }
}

fn panic_text(payload: Box<dyn Any + Send>) -> String {
    match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => payload
            .downcast_ref::<&str>()
            .map_or_else(|| "no message".to_owned(), ToString::to_string),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    /// Blocks on a future, on a thread without any other work.
    fn wait<T>(what: impl Future<Output = T>) -> T {
        EventLoop::new().unwrap().run(what)
    }

    fn ended(running: &mut Running) -> Result<(), String> {
        wait(running.ended()).map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn a_panic_is_never_a_clean_end() {
        let mut running = run_on_thread("source", "p", || panic!("the sky fell")).unwrap();
        for _ in 0..2 {
            let error = running.ended().await.unwrap_err().to_string();
            assert_eq!(error, "the source of pool `p` panicked: the sky fell");
        }
    }

    #[tokio::test]
    async fn a_clean_end_is_told_as_often_as_asked() {
        let mut running = run_on_thread("source", "p", || ()).unwrap();
        running.ended().await.unwrap();
        running.ended().await.unwrap();
    }

    #[test]
    fn a_pool_lives_on_the_thread_that_its_source_shares() {
        let (report, exited) = std::sync::mpsc::sync_channel(2);
        let (end, to_end) = oneshot::channel::<()>();
        let threads = report.clone();
        let mut opening = open_beside_pool("p", move |_| {
            Ok(async move {
                threads.send(thread::current().id()).unwrap();
                to_end.await.unwrap();
            })
        })
        .unwrap();
        wait(opening.opened()).unwrap();
        let mut running = opening.running();
        let life = move |event_loop: &EventLoop| {
            assert_eq!(thread::current().name(), Some("pool-p"));
            event_loop.run(async { end.send(()).unwrap() });
            report.send(thread::current().id()).unwrap();
        };
        running
            .shared_thread()
            .unwrap()
            .begin(Box::new(life))
            .ok()
            .unwrap();
        assert!(running.shared_thread().is_none());
        assert_eq!(ended(&mut running), Ok(()));
        let threads: Vec<_> = exited.iter().collect();
        assert_eq!(threads.len(), 2, "both have ended");
        assert_eq!(threads[0], threads[1]);
    }

    #[test]
    fn a_source_that_panics_leaves_its_pool_alive() {
        let open = |_: &EventLoop| Ok(async { panic!("the sky fell") });
        let mut opening = open_beside_pool("p", open).unwrap();
        wait(opening.opened()).unwrap();
        let mut running = opening.running();
        let shared = running.shared_thread().unwrap();
        let error = "the source of pool `p` panicked: the sky fell".to_owned();
        assert_eq!(ended(&mut running), Err(error.clone()));
        let (report, exited) = std::sync::mpsc::sync_channel(2);
        let life = move |_: &EventLoop| report.send(()).unwrap();
        shared.begin(Box::new(life)).ok().unwrap();
        assert_eq!(exited.recv(), Ok(()));
        assert_eq!(ended(&mut running), Err(error));
    }

    #[test]
    fn a_pool_that_panics_leaves_its_source_to_its_end() {
        let (closes, closed) = oneshot::channel::<()>();
        let (report, exited) = std::sync::mpsc::sync_channel(1);
        let open = move |_: &EventLoop| {
            Ok(async move {
                // The pool is gone: the source gives back the messages in flight, and ends.
                closed.await.unwrap_err();
                tokio::task::yield_now().await;
                report.send(()).unwrap();
            })
        };
        let mut opening = open_beside_pool("p", open).unwrap();
        wait(opening.opened()).unwrap();
        let mut running = opening.running();
        let body = move |event_loop: &EventLoop| {
            let pool = async move {
                let _lane = tokio::task::spawn_local(std::future::pending::<()>());
                tokio::task::yield_now().await;
                drop(closes);
                panic!("the floor gave way");
            };
            let work = || event_loop.run(pool);
            assert!(catch_unwind(AssertUnwindSafe(work)).is_err());
        };
        let shared = running.shared_thread().unwrap();
        shared.begin(Box::new(body)).ok().unwrap();
        assert_eq!(ended(&mut running), Ok(()));
        assert_eq!(exited.recv(), Ok(()));
    }

    #[test]
    fn a_source_whose_thread_nobody_shares_works_all_the_same() {
        let mut opening = open_beside_pool("p", |_| Ok(async {})).unwrap();
        wait(opening.opened()).unwrap();
        let mut running = opening.running();
        drop(running.shared_thread());
        assert_eq!(ended(&mut running), Ok(()));
    }

    #[test]
    fn what_kept_a_source_from_opening_is_told() {
        let refuse = |_: &EventLoop| -> Result<std::future::Ready<()>, _> {
            let pool = "p".to_owned();
            let error = io::Error::other("no");
            Err(SourceError::Thread { pool, error })
        };
        let fall = |_: &EventLoop| -> Result<std::future::Ready<()>, _> { panic!("the sky fell") };
        for (opening, expected) in [
            (open_beside_pool("p", refuse), "could not be started: no"),
            (open_beside_pool("p", fall), "panicked: the sky fell"),
        ] {
            let error = wait(opening.unwrap().opened()).unwrap_err().to_string();
            assert!(error.ends_with(expected), "{error}");
        }
    }
}
