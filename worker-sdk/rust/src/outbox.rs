//! Frames on their way out, from any thread. Those that wait for each other go out in one write.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::Error;
use crate::link::locked;
use crate::wire::Output;

/// So much may wait for the pipe; who has more to say waits with it.
const WAITING_BYTES_MAX: usize = 1 << 20;

/// What is to be written.
#[derive(Debug)]
pub(crate) struct Outbox {
    /// The process that has opened the pipe: one that it has forked says nothing in its name.
    owner: u32,
    frame_bytes_max: usize,
    state: Mutex<State>,
    room: Condvar,
    way: Way,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<u8>,
    spare: Vec<u8>,
    writing: bool,
    #[cfg(feature = "tokio")]
    closed: bool,
}

/// Who writes.
#[derive(Debug)]
enum Way {
    /// Whichever thread has something to say when nobody writes.
    Pipe(UnixStream),
    /// A task of the runtime, which is told that there is something.
    #[cfg(feature = "tokio")]
    Task {
        filled: tokio::sync::Notify,
        emptied: tokio::sync::Notify,
    },
}

impl Outbox {
    pub(crate) fn to(pipe: UnixStream, frame_bytes_max: usize) -> Self {
        Self::new(Way::Pipe(pipe), frame_bytes_max)
    }

    fn new(way: Way, frame_bytes_max: usize) -> Self {
        Self {
            owner: process::id(),
            frame_bytes_max,
            state: Mutex::default(),
            room: Condvar::new(),
            way,
        }
    }

    /// Whether this is another process, which a handler has forked.
    pub(crate) fn is_forked(&self) -> bool {
        process::id() != self.owner
    }

    /// Sends what is about no message.
    pub(crate) fn greet(&self, output: Output<'_>) -> Result<(), Error> {
        self.push(locked(&self.state), output)
    }

    /// Sends the last that is said about a message. The concurrency bounds how many of these wait.
    pub(crate) fn answer(&self, output: Output<'_>, over: &AtomicBool) -> Result<(), Error> {
        let state = self.with_room();
        output_is_for(over)?;
        // Said before it is sent, under the lock: nothing about the message can come behind it.
        over.store(true, Ordering::SeqCst);
        self.push(state, output)
            .inspect_err(|_| over.store(false, Ordering::SeqCst))
    }

    /// Sends something about a message that goes on. A thread waits for room; a task can't do so
    /// here, and is told that there is none.
    pub(crate) fn note(&self, output: Output<'_>, over: &AtomicBool) -> Result<(), Error> {
        if self.is_forked() {
            // Its locks may be held by threads that it does not have.
            let what = "only the process that has opened the pipe may send through it";
            return Err(Error::Output(what.to_owned()));
        }
        let state = self.with_room();
        output_is_for(over)?;
        if state.waiting.len() > WAITING_BYTES_MAX && !matches!(self.way, Way::Pipe(_)) {
            let what = "too much waits for the daemon to read it: await what is sent";
            return Err(Error::Output(what.to_owned()));
        }
        self.push(state, output)
    }

    fn with_room(&self) -> MutexGuard<'_, State> {
        let mut state = locked(&self.state);
        while state.writing && state.waiting.len() > WAITING_BYTES_MAX {
            state = self
                .room
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state
    }

    fn push(&self, mut state: MutexGuard<'_, State>, output: Output<'_>) -> Result<(), Error> {
        output.append(&mut state.waiting, self.frame_bytes_max)?;
        match &self.way {
            Way::Pipe(pipe) => self.write(state, pipe),
            #[cfg(feature = "tokio")]
            Way::Task { filled, .. } => {
                drop(state);
                filled.notify_one();
            }
        }
        Ok(())
    }

    /// Writes what is there and what comes meanwhile, unless another thread is at it.
    fn write<'a>(&'a self, mut state: MutexGuard<'a, State>, mut pipe: &UnixStream) {
        if state.writing {
            return;
        }
        state.writing = true;
        while let Some(data) = state.take() {
            drop(state);
            // A daemon that is gone is no error here: the end of the pipe says so.
            pipe.write_all(&data).unwrap_or_default();
            state = locked(&self.state);
            state.give_back(data);
            self.room.notify_all();
        }
        state.writing = false;
        self.room.notify_all();
    }

    /// Waits until nothing waits.
    pub(crate) fn flushed(&self) {
        let mut state = locked(&self.state);
        while state.writing {
            state = self
                .room
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn output_is_for(over: &AtomicBool) -> Result<(), Error> {
    if over.load(Ordering::SeqCst) {
        return Err(Error::Output("its message is answered already".to_owned()));
    }
    Ok(())
}

impl State {
    fn take(&mut self) -> Option<Vec<u8>> {
        if self.waiting.is_empty() {
            return None;
        }
        let spare = std::mem::take(&mut self.spare);
        Some(std::mem::replace(&mut self.waiting, spare))
    }

    fn give_back(&mut self, mut data: Vec<u8>) {
        if data.capacity() <= WAITING_BYTES_MAX {
            data.clear();
            self.spare = data;
        }
    }
}

#[cfg(feature = "tokio")]
impl Outbox {
    pub(crate) fn of_a_task(frame_bytes_max: usize) -> Self {
        let way = Way::Task {
            filled: tokio::sync::Notify::new(),
            emptied: tokio::sync::Notify::new(),
        };
        Self::new(way, frame_bytes_max)
    }

    /// As [`note`](Self::note), by a task that waits for room.
    pub(crate) async fn note_async(
        &self,
        output: Output<'_>,
        over: &AtomicBool,
    ) -> Result<(), Error> {
        let way = Some(&self.way).filter(|_| !self.is_forked());
        if let Some(Way::Task { emptied, .. }) = way {
            loop {
                let mut room = std::pin::pin!(emptied.notified());
                room.as_mut().enable();
                if locked(&self.state).waiting.len() <= WAITING_BYTES_MAX {
                    break;
                }
                room.await;
            }
        }
        self.note(output, over)
    }

    /// Writes what comes until the outbox is closed.
    pub(crate) async fn write_to(&self, mut pipe: tokio::net::unix::OwnedWriteHalf) {
        use tokio::io::AsyncWriteExt;

        let Way::Task { filled, emptied } = &self.way else {
            return;
        };
        loop {
            let (data, closed) = {
                let mut state = locked(&self.state);
                (state.take(), state.closed)
            };
            match data {
                Some(data) => {
                    // As above.
                    pipe.write_all(&data).await.unwrap_or_default();
                    locked(&self.state).give_back(data);
                    emptied.notify_waiters();
                }
                None if closed => return,
                None => filled.notified().await,
            }
        }
    }

    /// No more comes.
    pub(crate) fn close(&self) {
        locked(&self.state).closed = true;
        if let Way::Task { filled, .. } = &self.way {
            filled.notify_one();
        }
    }
}
