//! The messages in one worker's hands: which is being worked on, since when and until when, and
//! who is to blame when the worker ends. Plain data and decisions; no pipe, no process.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use crate::config::model::PoolConfig;
use crate::delivery::{Delivery, Headers};
use crate::names::TIMEOUT_HEADER;
use crate::protocol::output::Output;

/// What the worker speaks. Unknown until its first frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// No frame yet. It may be given one message.
    Unknown,
    /// One message at a time, answers in order.
    One,
    /// So many messages at once, answers in any order.
    Two {
        /// As its HELLO says.
        concurrency: usize,
    },
}

/// A message in the worker's hands.
#[derive(Debug)]
pub struct Entry {
    /// The number that the worker knows it by.
    pub id: u64,
    /// The message.
    pub delivery: Delivery,
    /// Where its frame begins in the stream of bytes to the worker.
    pub starts_at: u64,
    /// Where its frame ends.
    pub ends_at: u64,
    /// When the worker's time for it began: when it became the head, for version 1.
    pub begun: Option<Instant>,
    /// How long the worker may take before it is asked to stop.
    pub soft: Option<Duration>,
    /// Its time is up, and it has been asked to stop for that.
    pub cancelled: bool,
    /// It has been asked to stop for our sake, while it still had time.
    pub yielding: bool,
    /// Emits so far.
    pub emitted: u32,
    /// Emits that the broker has not confirmed yet.
    pub unconfirmed: u32,
    /// The first emit that failed.
    pub emit_failure: Option<String>,
    /// Its answer, which waits for the emits.
    pub answer: Option<Output>,
}

impl Entry {
    fn hard_deadline(&self, policy: &PoolConfig) -> Option<Instant> {
        Some(self.begun? + self.soft? + policy.timeout_grace)
    }

    fn soft_deadline(&self) -> Option<Instant> {
        if self.cancelled {
            None
        } else {
            Some(self.begun? + self.soft?)
        }
    }
}

/// Why a worker's time with its messages is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// It ended by itself, or someone else killed it.
    Died,
    /// It was stopped by us, for a reason that has nothing to do with its messages.
    Stopped,
    /// It was killed over one message.
    TimedOut(u64),
    /// It was killed because it was silent.
    Stalled,
    /// It was made to leave because it closed its pipe and lived on.
    PipeClosed,
    /// It was killed because it broke the protocol.
    ProtocolError(String),
}

/// What a worker's end means for one of its messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// The attempt failed, for the reason that the worker ended for.
    Charged,
    /// Back unharmed.
    Returned,
    /// Back uncharged, to run alone: it is one of several that were begun.
    Suspect,
}

impl Blame {
    /// In a rolling restart the death of a new worker that has shown nothing yet is its build's own
    /// fault, unless the message has killed others before.
    #[must_use]
    pub fn on_trial(self, on_trial: bool, cause: &Cause, crashes: u32) -> Self {
        let excused = on_trial && *cause == Cause::Died && crashes == 0;
        if excused { Self::Returned } else { self }
    }
}

/// The messages in one worker's hands, in the order in which they were given to it.
#[derive(Debug, Default)]
pub struct InFlight {
    entries: VecDeque<Entry>,
    bytes: usize,
}

impl InFlight {
    /// How many messages.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the worker has nothing in hand.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The bodies' size together, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// When the message that has been worked on for longest was begun.
    pub fn oldest_begun(&self) -> Option<Instant> {
        self.entries.iter().filter_map(|entry| entry.begun).min()
    }

    /// The message that the worker is on: the first without an answer.
    pub fn head(&self) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.answer.is_none())
    }

    /// The entry of that number.
    pub fn get(&self, id: u64) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.id == id)
    }

    /// The entry of that number, to be changed.
    pub fn get_mut(&mut self, id: u64) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|entry| entry.id == id)
    }

    /// All entries.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.entries.iter_mut()
    }

    /// Adds a message that has just been put into the pipe.
    pub fn push(&mut self, entry: Entry) {
        self.bytes += entry.delivery.message.body.len();
        self.entries.push_back(entry);
    }

    /// Takes a message out.
    pub fn take(&mut self, id: u64) -> Option<Entry> {
        let position = self.entries.iter().position(|entry| entry.id == id)?;
        let entry = self.entries.remove(position)?;
        self.bytes -= entry.delivery.message.body.len();
        Some(entry)
    }

    /// Starts the time of the first message without an answer, if it is not running.
    pub fn begin_head(&mut self, now: Instant) {
        if let Some(head) = self.entries.iter_mut().find(|entry| entry.answer.is_none()) {
            head.begun.get_or_insert(now);
        }
    }

    /// Takes all messages without an answer out, with what the worker's end means for each.
    pub fn judge(&mut self, cause: &Cause, version: Version, read: Read) -> Vec<(Entry, Blame)> {
        let (answered, open): (VecDeque<_>, VecDeque<_>) = self
            .entries
            .drain(..)
            .partition(|entry| entry.answer.is_some());
        self.bytes = answered
            .iter()
            .map(|entry| entry.delivery.message.body.len())
            .sum();
        self.entries = answered;
        let begun = open.iter().filter(|entry| is_begun(entry, read)).count();
        let left_unread = read.left_unread && matches!(cause, Cause::Died | Cause::PipeClosed);
        let head = open.front().map(|entry| entry.id);
        let blamed = |entry: Entry| {
            let place = HeldState {
                head: Some(entry.id) == head,
                begun: is_begun(&entry, read),
                left_unread,
                left_well: read.left_well && *cause == Cause::Died,
                alone: entry.delivery.history.alone,
                begun_in_all: begun,
            };
            let blame = blame(cause, version, entry.id, place);
            (entry, blame)
        };
        open.into_iter().map(blamed).collect()
    }

    /// The message that an answer is for: the one it names, the head (version 1), or the only one.
    pub fn answered(&self, id: Option<u64>, version: Version, sent: u64) -> Result<u64, String> {
        let waiting = |entry: &&Entry| entry.answer.is_none();
        let found = match id {
            Some(id) => self
                .entries
                .iter()
                .filter(waiting)
                .find(|entry| entry.id == id)
                .ok_or_else(|| format!("an answer for id {id}, which is not in flight"))?,
            None => {
                let mut open = self.entries.iter().filter(waiting);
                let first = open.next().ok_or("an answer with nothing in flight")?;
                if matches!(version, Version::Two { .. }) && open.next().is_some() {
                    return Err(
                        "an answer without an id (key \"4\") with several messages in flight"
                            .into(),
                    );
                }
                first
            }
        };
        if found.ends_at > sent {
            return Err("an answer before the message was sent in full".into());
        }
        Ok(found.id)
    }

    /// Moves all deadlines: for so long we have not listened to the worker.
    pub fn postpone(&mut self, by: Duration) {
        let begun = self
            .entries
            .iter_mut()
            .filter_map(|entry| entry.begun.as_mut());
        begun.for_each(|begun| *begun += by);
    }

    /// The worker is asked to give up all messages without an answer: their numbers. One whose time
    /// was up before fails for that, whatever we ask now.
    pub fn yield_all(&mut self) -> Vec<u64> {
        let open = self.entries.iter_mut();
        let open = open.filter(|entry| entry.answer.is_none());
        let mut ids = Vec::new();
        for entry in open {
            entry.yielding = !entry.cancelled;
            ids.push(entry.id);
        }
        ids
    }

    /// The worker is asked to give up what is void and has no answer: the numbers of those that it
    /// was not asked to give up before.
    pub fn yield_void(&mut self) -> Vec<u64> {
        let open = self.entries.iter_mut();
        let open = open.filter(|entry| entry.answer.is_none() && entry.delivery.is_void());
        let unasked = open.filter(|entry| !entry.cancelled && !entry.yielding);
        let ask = |entry: &mut Entry| {
            entry.yielding = true;
            entry.id
        };
        unasked.map(ask).collect()
    }

    /// The earliest moment at which [`InFlight::due`] has something to say.
    pub fn next_deadline(&self, policy: &PoolConfig) -> Option<Instant> {
        self.entries
            .iter()
            .filter(|entry| entry.answer.is_none())
            .flat_map(|entry| [entry.soft_deadline(), entry.hard_deadline(policy)])
            .flatten()
            .min()
    }

    /// The messages to be cancelled now, marked as such, and the one that the worker is to be
    /// killed for.
    pub fn due(&mut self, policy: &PoolConfig, now: Instant) -> (Vec<u64>, Option<u64>) {
        let mut cancel = Vec::new();
        let mut kill = None;
        for entry in self
            .entries
            .iter_mut()
            .filter(|entry| entry.answer.is_none())
        {
            if entry
                .soft_deadline()
                .is_some_and(|deadline| deadline <= now)
            {
                entry.cancelled = true;
                cancel.push(entry.id);
            }
            if entry
                .hard_deadline(policy)
                .is_some_and(|deadline| deadline <= now)
            {
                kill.get_or_insert(entry.id);
            }
        }
        (cancel, kill)
    }
}

/// What is known of how far a worker has read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Read {
    /// Bytes that were handed to the kernel for it.
    pub sent: u64,
    /// It ended with some of them unread.
    pub left_unread: bool,
    /// It exited with code 0, as one does that leaves between two messages.
    pub left_well: bool,
}

/// A message is begun once a byte of its frame has left: a worker that dies over the sheer size of
/// a message has died over it.
fn is_begun(entry: &Entry, read: Read) -> bool {
    read.sent > entry.starts_at
}

/// Where a message stands among the others of its worker.
#[derive(Debug, Clone, Copy)]
struct HeldState {
    head: bool,
    begun: bool,
    /// The worker died with something unread, which may have been this.
    left_unread: bool,
    /// It exited with code 0.
    left_well: bool,
    /// It ran with nothing else in the worker.
    alone: bool,
    begun_in_all: usize,
}

fn blame(cause: &Cause, version: Version, id: u64, place: HeldState) -> Blame {
    match cause {
        Cause::Stopped => Blame::Returned,
        Cause::TimedOut(blamed) if *blamed == id => Blame::Charged,
        Cause::TimedOut(_) => Blame::Returned,
        Cause::Died | Cause::PipeClosed | Cause::Stalled | Cause::ProtocolError(_) => match version
        {
            _ if !place.begun => Blame::Returned,
            Version::Two { .. } if place.begun_in_all > 1 => Blame::Suspect,
            Version::One | Version::Unknown if !place.head => Blame::Returned,
            // What it had not read whole it had not begun.
            _ if place.left_well && place.left_unread => Blame::Returned,
            // It may have read ahead and left between two messages. Running alone tells.
            _ if place.left_well && place.begun_in_all > 1 => Blame::Suspect,
            _ if place.left_unread && !place.alone => Blame::Suspect,
            _ => Blame::Charged,
        },
    }
}

/// A message that asks for more asks for this: a clock can't tell every time that a number can.
const LONGEST_SOFT_TIMEOUT: Duration = Duration::from_hours(24 * 365);

/// How long the work on a message may take: the pool's limit, which the message may only shorten.
pub fn soft_timeout(pool: Option<Duration>, headers: &Headers) -> Option<Duration> {
    let asked = headers
        .iter()
        .find(|(name, _)| name == TIMEOUT_HEADER)
        .and_then(|(_, value)| value.trim().parse::<f64>().ok())
        .filter(|millis| *millis >= 0.0)
        .map(|millis| (millis / 1e3).min(LONGEST_SOFT_TIMEOUT.as_secs_f64()))
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    match (pool, asked) {
        (Some(pool), Some(asked)) => Some(pool.min(asked)),
        (pool, asked) => pool.or(asked),
    }
}

#[cfg(test)]
mod tests;
