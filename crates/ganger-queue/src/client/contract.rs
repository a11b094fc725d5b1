//! What a client of each kind offers, and in which words it answers.

use std::collections::{BTreeSet, VecDeque};
use std::ops::ControlFlow;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;

use crate::dead_letter::DeadLetter;
use crate::delivery::{Headers, Outgoing, Post};
use crate::fault::SourceFault;
use ganger_config::model::Subscription;

/// Connection of a command or of the admin API to a source of whichever kind. The methods of
/// [`Client`](super::Client) say more of each.
pub trait QueueClient: std::fmt::Debug + Send {
    /// Looks whether what the pools need is there, or may be made; returns what is wrong, a sentence each.
    fn check(&mut self) -> Result<Vec<String>, SourceFault>;
    /// Returns what is likely to end badly for the pools, although it can be used.
    fn warnings(&mut self) -> Result<Vec<SourceWarning>, SourceFault> {
        Ok(Vec::new())
    }
    /// Sends the messages, which are safe when it returns.
    fn send(&mut self, messages: &[Outgoing]) -> Result<(), Partial>;
    /// Returns for each the row that was there already, if there was one.
    fn post(&mut self, posts: &[Post]) -> Result<Vec<Option<i64>>, Partial> {
        if posts.iter().any(|post| post.unique.is_some()) {
            return Err(SourceFault::unsupported(
                "unique keys are supported on table sources only",
            )
            .into());
        }
        if posts.iter().any(|post| post.topic.is_some()) {
            return Err(no_topics().into());
        }
        let messages: Vec<Outgoing> = posts.iter().map(|post| post.message.clone()).collect();
        self.send(&messages).map(|()| vec![None; posts.len()])
    }
    /// Subscribes queues to topics, all at once; returns those that were not yet.
    fn subscribe(&mut self, _wanted: &[Subscription]) -> Result<Vec<Subscription>, SourceFault> {
        Err(no_topics())
    }
    /// Returns which queues are subscribed to which topics, by their names.
    fn subscriptions(&mut self) -> Result<Vec<Subscribed>, SourceFault> {
        Err(no_topics())
    }
    /// Returns the same without making anything: none where the tables for it are not there yet.
    fn look_for_subscriptions(&mut self) -> Result<Option<Vec<Subscribed>>, SourceFault> {
        self.subscriptions().map(Some)
    }
    /// Ends a subscription; returns whether it was there.
    fn unsubscribe(&mut self, _topic: &str, _queue: &str) -> Result<bool, SourceFault> {
        Err(no_topics())
    }
    /// Counts what a queue holds.
    fn depth(&mut self, queue: &str) -> Result<Depth, SourceFault>;
    /// Returns whether a queue is paused for all daemons.
    fn is_paused(&mut self, _queue: &str) -> Result<bool, SourceFault> {
        Ok(false)
    }
    /// Ends such a pause.
    fn unpause(&mut self, _queue: &str) -> Result<(), SourceFault> {
        Ok(())
    }
    /// Returns the number of daemons that work on the table, if it is one.
    fn daemons(&mut self) -> Result<Option<u64>, SourceFault> {
        Ok(None)
    }
    /// Makes a place for the answer to one message.
    fn reply_to(&mut self, unique: &str) -> Result<String, SourceFault>;
    /// Moves waiting messages that are called so to the dead letters; returns their number.
    fn cancel_waiting(
        &mut self,
        _pool: &str,
        _queue: &str,
        _id: &str,
    ) -> Result<usize, SourceFault> {
        Ok(0)
    }
    /// Takes the oldest answer with this correlation id out of such a place.
    fn take_reply(
        &mut self,
        queue: &str,
        correlation_id: &str,
    ) -> Result<Option<Reply>, SourceFault>;
    /// Blocks until something was written by others, or the time is over; may return early.
    fn wait_for_change(&mut self, timeout: Duration);
    /// Reads a page of dead letters, the oldest first.
    fn dead_list(&mut self, page: &Page, each: &mut Each<'_>) -> Result<Listed, SourceFault>;
    /// Sends dead letters back; returns their number.
    fn dead_retry(&mut self, filter: &DeadFilter, way: &WayBack) -> Result<usize, Partial>;
    /// Counts those that stayed when they were sent back, because another message has their unique key.
    fn dead_held(&mut self, _filter: &DeadFilter) -> Result<usize, SourceFault> {
        Ok(0)
    }
    /// Deletes dead letters; returns their number.
    fn dead_drop(&mut self, filter: &DeadFilter) -> Result<usize, Partial>;
}

fn no_topics() -> SourceFault {
    SourceFault::unsupported("topics are supported on table sources only")
}

/// Something about a source that does not hinder a pool, but should be mended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceWarning {
    /// Name of the pool.
    pub pool: String,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub help: &'static str,
}

/// Where something ended that can't be taken back.
#[derive(Debug)]
pub struct Partial {
    /// How many were done before, each of them for good.
    pub done: usize,
    /// Why not all.
    pub fault: SourceFault,
}

impl<F: Into<SourceFault>> From<F> for Partial {
    fn from(fault: F) -> Self {
        Self {
            done: 0,
            fault: fault.into(),
        }
    }
}

/// A source did not do all that it was asked to.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Halted {
    /// How many it did, each of them confirmed. None where it does all or nothing.
    pub done: usize,
    /// Why not all.
    pub error: Box<SourceFault>,
}

/// Answers that have come and were not taken.
#[derive(Debug, Default)]
pub struct Answers(VecDeque<Reply>);

impl Answers {
    /// One has come.
    pub fn come(&mut self, reply: Reply) {
        self.0.push_back(reply);
    }

    /// Takes the oldest with this correlation id.
    pub fn take(&mut self, correlation_id: &str) -> Option<Reply> {
        let mut all = self.0.iter();
        let at = all.position(|reply| reply.correlation_id == correlation_id);
        at.and_then(|at| self.0.remove(at))
    }
}

/// How many messages a queue holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Depth {
    /// Ready to be claimed.
    pub ready: u64,
    /// Waiting for their time.
    pub delayed: u64,
    /// In the hands of daemons.
    pub claimed: u64,
}

impl Depth {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.ready + self.delayed + self.claimed
    }
}

/// A queue that gets each message of a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscribed {
    /// The topic.
    pub topic: String,
    /// The queue.
    pub queue: String,
    /// Since when, in milliseconds since 1970.
    pub since_ms: i64,
}

/// An answer that was taken from a reply queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The body, byte for byte.
    pub body: Bytes,
    /// Its headers.
    pub headers: Headers,
    /// Empty where it has none.
    pub correlation_id: String,
    /// The MIME type of the body.
    pub content_type: Option<String>,
}

/// Which dead letters are meant: those that every given part fits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeadFilter {
    /// Only these.
    pub ids: Option<BTreeSet<String>>,
    /// Only of this pool.
    pub pool: Option<String>,
    /// Only such as these.
    pub criteria: Criteria,
}

/// Properties that a dead letter must have to be meant. [`Client`](super::Client) looks at them, whatever
/// the kind of source; its kinds need not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Criteria {
    /// Part of its error.
    pub error: Option<String>,
    /// Its reason.
    pub reason: Option<String>,
    /// It failed last at this time or later.
    pub since: Option<Timestamp>,
    /// It failed last before this time.
    pub before: Option<Timestamp>,
}

impl Criteria {
    /// Returns whether any dead letter meets them.
    pub fn are_none(&self) -> bool {
        *self == Self::default()
    }

    /// Returns whether the dead letter meets them. One that does not say when it failed is of no time.
    pub(super) fn fit(&self, letter: &DeadLetter) -> bool {
        let error = self.error.as_ref();
        let reason = self.reason.as_ref();
        let failed: Option<Timestamp> = letter.last_failed_at.parse().ok();
        error.is_none_or(|part| letter.error.contains(part))
            && reason.is_none_or(|reason| *reason == letter.reason)
            && self
                .since
                .is_none_or(|since| failed.is_some_and(|at| at >= since))
            && self
                .before
                .is_none_or(|before| failed.is_some_and(|at| at < before))
    }
}

impl DeadFilter {
    /// Whether a letter is meant.
    pub fn fits(&self, letter: &DeadLetter) -> bool {
        let pool = self.pool.as_ref();
        self.names(&letter.id) && pool.is_none_or(|pool| *pool == letter.pool)
    }

    /// Whether a letter of this id may be meant.
    pub fn names(&self, id: &str) -> bool {
        self.ids.as_ref().is_none_or(|ids| ids.contains(id))
    }
}

/// How dead letters go back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WayBack {
    /// With this body instead of their own.
    pub body: Option<Bytes>,
    /// To this queue instead of the one that they come from.
    pub to: Option<String>,
}

impl WayBack {
    /// The body, for a table, whose dead letters only go back to where they come from: the daemon alone
    /// writes them, so there is nothing to set right.
    pub fn body_for_a_table(&self) -> Result<Option<&Bytes>, SourceFault> {
        match self.to {
            None => Ok(self.body.as_ref()),
            Some(_) => Err(SourceFault::unsupported(
                "the dead letters of a table go back to their own queue only: leave `to` out",
            )),
        }
    }
}

/// Outcome of sending dead letters back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Retried {
    /// Number of those that were sent back.
    pub retried: usize,
    /// Number of those that stay, because another message has their unique key.
    pub held: usize,
}

/// Which part of the dead letters is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Those that are meant.
    pub filter: DeadFilter,
    /// Only those behind this one.
    pub after: Option<String>,
    /// At most so many.
    pub limit: usize,
}

impl Page {
    /// All that are meant.
    pub fn all(filter: DeadFilter) -> Self {
        Self {
            filter,
            after: None,
            limit: usize::MAX,
        }
    }
}

/// Takes the letters of a page as they are read, one after the other. After a break no more come.
pub type Each<'a> = dyn FnMut(DeadLetter) -> ControlFlow<()> + 'a;

/// How a reading ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listed {
    /// There is nothing behind the last letter.
    All,
    /// There is more, or was not looked for.
    More,
    /// The letter to begin behind is not there.
    Lost,
}
