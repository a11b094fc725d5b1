//! One connection: the messages in hand, what the daemon says of them on stdin, and how it ends.

use std::collections::{HashMap, VecDeque};
use std::io::{self, BufRead};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::handle::{Duty, Handle};
use crate::outbox::Outbox;
use crate::wire::{Input, Output, status};
use crate::{Error, Task, Value, start};

const QUIT: &str = "__quit__";
const YIELD: &str = "__context_switch__";
const CANCEL: &str = "__cancel__ ";
/// Of the cancellations that came before their messages so many are kept.
const EARLY_MAX: usize = 1_000;
/// The header that says how long a message may take.
const TIMEOUT: &str = "TimeoutMilliseconds";

/// A lock that a panic leaves as it was: no code of a handler runs under one.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The connection to the daemon.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) version: u32,
    pub(crate) outbox: Outbox,
    pipe: UnixStream,
    flight: Mutex<Flight>,
    broken: Mutex<Option<Error>>,
}

#[derive(Debug, Default)]
struct Flight {
    in_hand: HashMap<Option<u64>, Arc<Handle>>,
    /// Cancelled before they came: stdin and the pipe have no common order.
    early: VecDeque<u64>,
    /// Whether nothing new is begun.
    ending: bool,
    /// How many are begun and not answered.
    begun: usize,
    /// What came when nothing new was begun.
    held: HashMap<Option<u64>, Arc<Handle>>,
}

impl Flight {
    /// Whether a message was cancelled before it came.
    fn was_cancelled(&mut self, id: Option<u64>) -> bool {
        let at = id.and_then(|id| self.early.iter().position(|early| *early == id));
        at.and_then(|at| self.early.remove(at)).is_some()
    }

    fn is_over(&self) -> bool {
        self.ending && self.begun == 0
    }
}

impl Link {
    pub(crate) fn new(pipe: UnixStream, outbox: Outbox, version: u32) -> Arc<Self> {
        Arc::new(Self {
            version,
            outbox,
            pipe,
            flight: Mutex::default(),
            broken: Mutex::default(),
        })
    }

    /// The first frame of version 2.
    pub(crate) fn greet(&self, concurrency: usize) -> Result<(), Error> {
        let headers = [
            ("sdk".to_owned(), Value::from("ganger-rust")),
            ("version".to_owned(), env!("CARGO_PKG_VERSION").into()),
            ("concurrency".to_owned(), concurrency.to_string().into()),
        ];
        self.outbox.greet(Output {
            status: status::HELLO,
            headers: Some(&headers),
            ..Output::default()
        })
    }

    // -- messages --

    /// Takes a message in hand, unless this worker is about to end: then it waits to be given back, until it
    /// is cancelled at the latest. The reading end stays open until nothing is in hand, for a daemon that
    /// can't write any more takes the worker for lost, with all that it works on.
    pub(crate) fn begin(self: &Arc<Self>, input: Input) -> Option<(Task, Duty)> {
        let id = input.id.filter(|_| self.version > 1);
        let limit = input
            .headers
            .get(TIMEOUT)
            .and_then(|text| text.parse().ok());
        let limit = limit.map(Duration::from_millis);
        let handle = Arc::new(Handle::new(Arc::clone(self), id, limit));
        let mut flight = locked(&self.flight);
        let is_cancelled = flight.was_cancelled(id);
        if flight.ending {
            if is_cancelled {
                drop(flight);
                handle.give_back();
            } else {
                flight.held.insert(id, handle);
            }
            return None;
        }
        flight.begun += 1;
        flight.in_hand.insert(id, Arc::clone(&handle));
        if is_cancelled {
            handle.cancel();
        }
        drop(flight);
        let duty = Duty {
            handle: Arc::clone(&handle),
        };
        Some((Task::new(input, handle), duty))
    }

    pub(crate) fn end(&self, handle: &Handle) {
        locked(&self.flight).in_hand.remove(&handle.id);
    }

    /// One that was begun is answered.
    pub(crate) fn put_down(&self) {
        let mut flight = locked(&self.flight);
        flight.begun -= 1;
        if flight.is_over() {
            self.leave();
        }
    }

    /// Gives back what is held, when nothing more comes.
    pub(crate) fn give_back_held(&self) {
        let held = std::mem::take(&mut locked(&self.flight).held);
        for handle in held.into_values() {
            handle.give_back();
        }
    }

    // -- control lines --

    /// Hears what stdin says, on a thread that ends with it or with the process.
    pub(crate) fn listen(
        self: &Arc<Self>,
        mut control: impl BufRead + Send + 'static,
    ) -> io::Result<()> {
        let link = Arc::clone(self);
        let listener = thread::Builder::new().name("ganger-control".to_owned());
        listener.spawn(move || {
            while let Some(line) = start::next_line(&mut control) {
                link.hear(&line);
            }
            link.leave();
        })?;
        Ok(())
    }

    fn hear(&self, line: &str) {
        if line == QUIT {
            self.leave();
        } else if line == YIELD && self.version == 1 {
            for handle in locked(&self.flight).in_hand.values() {
                handle.cancel();
            }
        } else if let Some(id) = line.strip_prefix(CANCEL) {
            if let Ok(id) = id.parse() {
                self.cancel(id);
            }
        }
    }

    /// Cancels a message. One that is not in hand was answered, or is still in the pipe.
    fn cancel(&self, id: u64) {
        let mut flight = locked(&self.flight);
        if let Some(held) = flight.held.remove(&Some(id)) {
            drop(flight);
            return held.give_back();
        }
        if let Some(handle) = flight.in_hand.get(&Some(id)) {
            return handle.cancel();
        }
        if flight.early.len() >= EARLY_MAX {
            flight.early.pop_front();
        }
        flight.early.push_back(id);
    }

    // -- the end --

    /// Begins nothing new, and ends once all that is in hand is answered.
    pub(crate) fn stop(&self) {
        let mut flight = locked(&self.flight);
        flight.ending = true;
        if flight.is_over() {
            self.leave();
        }
    }

    /// What has arrived is still read and worked on, then the pipe ends. Writing goes on.
    pub(crate) fn leave(&self) {
        // One that has ended needs no end.
        self.pipe.shutdown(Shutdown::Read).unwrap_or_default();
    }

    /// All is said, though the thread that hears stdin has the connection still.
    pub(crate) fn end_writing(&self) {
        self.pipe.shutdown(Shutdown::Write).unwrap_or_default();
    }

    /// Nothing more is read; what is in hand is finished.
    pub(crate) fn fail(&self, error: Error) {
        locked(&self.broken).get_or_insert(error);
        self.leave();
    }

    /// What has gone wrong, if anything has.
    pub(crate) fn result(&self) -> Result<(), Error> {
        locked(&self.broken).take().map_or(Ok(()), Err)
    }
}
