//! A worker: its options, and the loop of handlers that block.

use std::io::{self, BufRead, ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;

use crate::frames::Frames;
use crate::handle::{Duty, Reason, judged};
use crate::link::Link;
use crate::outbox::Outbox;
use crate::queue::Queue;
use crate::wire::{FRAME_BYTES_MAX, Input};
use crate::{Error, IntoOutcome, Task, current, panics, start};

/// The most messages that one process may take at once.
const CONCURRENCY_MAX: usize = 65_535;

/// A worker: how much it takes, and then [`run`](Self::run).
#[derive(Debug, Clone)]
#[must_use]
pub struct Worker {
    pub(crate) concurrency: usize,
    pub(crate) frame_bytes_max: usize,
}

impl Default for Worker {
    fn default() -> Self {
        Self {
            concurrency: 1,
            frame_bytes_max: FRAME_BYTES_MAX,
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

    /// The longest frame: the pool's `frame_bytes_max`, 64 MiB unless configured.
    pub fn frame_bytes_max(mut self, bytes: usize) -> Self {
        self.frame_bytes_max = bytes;
        self
    }

    /// Connects to the daemon that has started this process, and works until it asks to leave. Returns
    /// when all that is in hand is answered. With a [`concurrency`](Self::concurrency) above 1 so many
    /// threads call the handler.
    ///
    /// # Errors
    /// If this process was not started by ganger, if an option is out of its range, or if what comes
    /// through the pipe is against the protocol.
    pub fn run<H, R>(self, handler: H) -> Result<(), Error>
    where
        H: Fn(&Task) -> R + Sync,
        R: IntoOutcome,
    {
        self.check()?;
        let pipe = start::connect()?;
        let control = io::BufReader::new(io::stdin());
        self.serve(&handler, pipe, control, start::spoken())
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
        link.outbox.flushed();
        link.end_writing();
        link.result()
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
    let (task, duty) = link.begin(input);
    let result = attempt(&duty, || judged(handler(&task)));
    duty.answer(result.unwrap_or_else(|panic| Err(Reason::Failed(panic))));
}

/// Does some of the work on a message; what is told of it if it panics.
pub(crate) fn attempt<T>(duty: &Duty, work: impl FnOnce() -> T) -> Result<T, String> {
    panics::caught(|| current::within(&duty.handle, work))
}
