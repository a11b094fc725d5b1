//! A worker: its options, and the loop of handlers that block.

use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, Weak};
use std::thread;

use crate::frames::Frames;
use crate::handle::{Duty, Reason, judged};
use crate::link::{Link, locked};
use crate::outbox::Outbox;
use crate::queue::Queue;
use crate::wire::{FRAME_BYTES_MAX, Input};
use crate::{Error, Failure, IntoOutcome, Task, current, panics, start};

/// The most messages that one process may take at once.
const CONCURRENCY_MAX: usize = 65_535;

/// A worker: how much it takes, and then [`run`](Self::run).
#[derive(Clone)]
#[must_use]
pub struct Worker {
    pub(crate) concurrency: usize,
    pub(crate) frame_bytes_max: usize,
    warm_up: Option<WarmUp>,
    stopper: Stopper,
}

type WarmUp = Arc<dyn Fn() -> Result<(), Failure> + Send + Sync>;

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("concurrency", &self.concurrency)
            .field("frame_bytes_max", &self.frame_bytes_max)
            .finish_non_exhaustive()
    }
}

/// Ends a [`Worker`] from within the program: see [`Worker::stopper`].
#[derive(Debug, Clone, Default)]
pub struct Stopper(Arc<Mutex<Stopping>>);

#[derive(Debug, Default)]
struct Stopping {
    is_told: bool,
    link: Weak<Link>,
}

impl Stopper {
    /// Has the worker begin no more messages, and end when all that is in hand is answered. What comes
    /// meanwhile is given back, uncharged. From any thread, also before the worker runs.
    pub fn stop(&self) {
        let mut stopping = locked(&self.0);
        stopping.is_told = true;
        if let Some(link) = stopping.link.upgrade() {
            link.stop();
        }
    }

    pub(crate) fn watch(&self, link: &Arc<Link>) {
        let mut stopping = locked(&self.0);
        stopping.link = Arc::downgrade(link);
        if stopping.is_told {
            link.stop();
        }
    }
}

impl Default for Worker {
    fn default() -> Self {
        Self {
            concurrency: 1,
            frame_bytes_max: FRAME_BYTES_MAX,
            warm_up: None,
            stopper: Stopper::default(),
        }
    }
}

impl Worker {
    /// A worker that takes one message at a time.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many messages are in hand at once, from 1 to 65 535.
    pub fn concurrency(mut self, messages: usize) -> Self {
        self.concurrency = messages;
        self
    }

    /// The longest frame under a daemon that does not tell its own, the pool's `frame_bytes_max`, in
    /// `GANGER_FRAME_BYTES_MAX`; 64 MiB unless set.
    pub fn frame_bytes_max(mut self, bytes: usize) -> Self {
        self.frame_bytes_max = bytes;
        self
    }

    /// What runs before the worker connects: `start_timeout` counts, `timeout` does not. An error ends the
    /// worker. What is `async` is awaited before [`run_async`](Self::run_async) instead.
    pub fn warm_up<E: Into<Failure>>(
        mut self,
        work: impl Fn() -> Result<(), E> + Send + Sync + 'static,
    ) -> Self {
        self.warm_up = Some(Arc::new(move || work().map_err(Into::into)));
        self
    }

    /// A handle by which the program ends this worker, and clones of it, such as on a signal.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Connects to the daemon that has started this process, and works until it asks to leave. Returns
    /// when all that is in hand is answered. With a [`concurrency`](Self::concurrency) above 1 so many
    /// threads call the handler. From then on stdin is empty, for this process and its children: the
    /// daemon's lines come there.
    ///
    /// # Errors
    /// If this process was not started by ganger, if an option is out of its range, or if what comes
    /// through the pipe is against the protocol.
    pub fn run<H, R>(mut self, handler: H) -> Result<(), Error>
    where
        H: Fn(&Task) -> R + Sync,
        R: IntoOutcome,
    {
        let (pipe, control) = self.connect()?;
        self.serve(&handler, pipe, control, start::spoken())
    }

    /// Opens the pipe, when all is warm. What the daemon says of frames counts from here on.
    pub(crate) fn connect(&mut self) -> Result<(UnixStream, BufReader<File>), Error> {
        self.frame_bytes_max = start::frame_bytes_max().unwrap_or(self.frame_bytes_max);
        self.check()?;
        let start = start::begin()?;
        if let Some(warm_up) = &self.warm_up {
            let cold = |failure| Error::Start(format!("the warm-up has failed: {failure}"));
            warm_up().map_err(cold)?;
        }
        Ok((start.connect()?, start.control))
    }

    /// As [`run`](Self::run), on a connection that is there already.
    pub(crate) fn serve<H, R>(
        &self,
        handler: &H,
        pipe: UnixStream,
        control: impl BufRead + Send + 'static,
        version: u32,
    ) -> Result<(), Error>
    where
        H: Fn(&Task) -> R + Sync,
        R: IntoOutcome,
    {
        panics::watch();
        let outbox = Outbox::to(pipe.try_clone()?, self.frame_bytes_max);
        let link = Link::new(pipe.try_clone()?, outbox, version);
        let concurrency = self.concurrency_in(version);
        if version > 1 {
            link.greet(concurrency)?;
        }
        link.listen(control)?;
        self.watch(&link);
        let mut frames = Frames::new(self.frame_bytes_max);
        let read = if concurrency == 1 {
            read(&pipe, &mut frames, |input| work(handler, &link, input))
        } else {
            in_threads(concurrency, &pipe, &mut frames, |input| {
                work(handler, &link, input)
            })
        };
        if let Err(error) = read {
            link.fail(error);
        }
        link.give_back_held();
        link.outbox.flushed();
        link.end_writing();
        link.result()
    }

    pub(crate) fn watch(&self, link: &Arc<Link>) {
        self.stopper.watch(link);
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let limits = [
            ("concurrency", self.concurrency, CONCURRENCY_MAX),
            ("frame_bytes_max", self.frame_bytes_max, 0x7fff_ffff),
        ];
        for (name, value, most) in limits {
            if value == 0 || value > most {
                let what = format!("{name} must be within 1 and {most}: {value}");
                return Err(Error::Start(what));
            }
        }
        Ok(())
    }

    /// Version 1 has one message after the other.
    pub(crate) fn concurrency_in(&self, version: u32) -> usize {
        if version > 1 { self.concurrency } else { 1 }
    }
}

/// Takes what comes until the pipe ends, or is broken.
fn read(
    mut pipe: &UnixStream,
    frames: &mut Frames,
    mut each: impl FnMut(Input),
) -> Result<(), Error> {
    loop {
        while let Some(frame) = frames.next()? {
            each(Input::decode(frame)?);
        }
        match pipe.read(frames.space()?) {
            Ok(0) => return Ok(()),
            Ok(count) => frames.filled(count),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // A daemon that is gone needs this worker no more.
            Err(_) => return Ok(()),
        }
    }
}

/// As [`read`], with so many threads at work.
fn in_threads(
    concurrency: usize,
    pipe: &UnixStream,
    frames: &mut Frames,
    each: impl Fn(Input) + Sync,
) -> Result<(), Error> {
    let queue = Queue::new(concurrency);
    thread::scope(|scope| {
        let start = |n| {
            let thread = thread::Builder::new().name(format!("ganger-{n}"));
            let work = || {
                while let Some(input) = queue.pop() {
                    each(input);
                }
            };
            thread.spawn_scoped(scope, work).map(drop)
        };
        let started = (0..concurrency).try_for_each(start);
        let read = match started {
            Ok(()) => read(pipe, frames, |input| queue.push(input)),
            Err(error) => Err(error.into()),
        };
        queue.close();
        read
    })
}

/// Works on one message, and answers it.
fn work<H, R>(handler: &H, link: &Arc<Link>, input: Input)
where
    H: Fn(&Task) -> R,
    R: IntoOutcome,
{
    let Some((task, duty)) = link.begin(input) else {
        return;
    };
    let result = attempt(&duty, || judged(handler(&task)));
    duty.answer(result.unwrap_or_else(|panic| Err(Reason::Failed(panic))));
}

/// Does some of the work on a message; what is told of it if it panics.
pub(crate) fn attempt<T>(duty: &Duty, work: impl FnOnce() -> T) -> Result<T, String> {
    panics::caught(|| current::within(&duty.handle, work))
}
