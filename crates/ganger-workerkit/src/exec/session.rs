//! Session with the daemon, from the first frame to the last: messages arrive, are processed and
//! answered, and control messages are handled.

use std::rc::Rc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{Notify, mpsc};

use super::control::{Control, ControlMessage};
use super::error::ExecError;
use super::guard::Guard;
use super::pipe::Pipe;
use super::script::{Done, Setup, work};
use super::settings::{Settings, Terms};
use ganger_config::model::WorkerCommand;
use ganger_protocol::{Output, Status, Task};

/// Maximum number of notes that wait to be sent.
const NOTES_MAX: usize = 64;

/// State of the session.
#[derive(Debug)]
pub(super) struct Session<'a> {
    pub(super) settings: &'a Settings,
    pub(super) terms: Terms,
    pub(super) command: WorkerCommand,
    pub(super) guard: Guard,
    pub(super) pipe: Pipe,
    pub(super) control: Control,
}

/// A message in flight.
#[derive(Debug)]
struct InHand {
    /// Our own number for it, which is unique.
    number: u64,
    /// The daemon's id for it.
    id: Option<u64>,
    /// A notification abandons it.
    stop: Rc<Notify>,
}

impl Session<'_> {
    /// Processes messages until the daemon needs no more. If that fails, the programs of messages
    /// in flight are killed.
    pub(super) async fn serve(mut self) -> Result<(), ExecError> {
        let (notes, mut told) = mpsc::channel(NOTES_MAX);
        let setup = Setup {
            settings: self.settings,
            terms: self.terms,
            command: &self.command,
            guard: &self.guard,
            notes,
        };
        // A version 1 worker takes one at a time.
        let window = if self.terms.version2 {
            self.settings.concurrency
        } else {
            1
        };
        if self.terms.version2 {
            self.pipe.send(&hello(window)).await?;
        }
        let mut at_work = FuturesUnordered::new();
        let mut in_hand: Vec<InHand> = Vec::new();
        let mut next = 0;
        let mut leaves = false;
        let mut hopeless = None;
        while !leaves || !in_hand.is_empty() {
            tokio::select! {
                Some((number, done)) = at_work.next() => {
                    let Done { output, hopeless: why } = done;
                    in_hand.retain(|one| one.number != number);
                    leaves |= why.is_some();
                    hopeless = hopeless.or(why);
                    // The daemon sends the next message when it has the last answer, which would look as if that message
                    // had ended this worker.
                    if leaves && in_hand.is_empty() {
                        self.pipe.refuse_more()?;
                    }
                    self.pipe.send(&output).await?;
                }
                Some(note) = told.recv() => self.pipe.send(&note).await?,
                wish = self.control.wish() => {
                    leaves |= matches!(wish, ControlMessage::Quit | ControlMessage::Terminate);
                    abandon(&in_hand, wish);
                }
                frame = self.pipe.next(), if !leaves && in_hand.len() < window => match frame? {
                    Some(frame) => {
                        let task = Task::decode(&frame)?;
                        let stop = Rc::new(Notify::new());
                        in_hand.push(InHand { number: next, id: task.id, stop: stop.clone() });
                        at_work.push(process_task(&setup, task, next, stop));
                        next += 1;
                    }
                    None => leaves = true,
                },
                () = self.guard.ended() => return Err(ExecError::Unguarded),
            }
        }
        hopeless.map_or(Ok(()), |why| Err(ExecError::Unstartable(why)))
    }
}

async fn process_task(setup: &Setup<'_>, task: Task, number: u64, stop: Rc<Notify>) -> (u64, Done) {
    (number, work(setup, task, number, &stop).await)
}

fn abandon(in_hand: &[InHand], wish: ControlMessage) {
    for one in in_hand {
        let is_meant = match wish {
            ControlMessage::Terminate => true,
            ControlMessage::Cancel(id) => one.id == Some(id),
            ControlMessage::Quit | ControlMessage::Unknown => false,
        };
        if is_meant {
            one.stop.notify_one();
        }
    }
}

fn hello(concurrency: usize) -> Output {
    let headers = [
        ("sdk", "ganger exec".to_owned()),
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ("concurrency", concurrency.to_string()),
    ];
    Output {
        headers: Some(headers.map(|(name, value)| (name.into(), value)).into()),
        ..Output::new(Status::HELLO, None, "")
    }
}
