//! What a client of each kind offers, and in which words it answers.

use std::collections::{BTreeSet, VecDeque};
use std::ops::ControlFlow;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;

use crate::broker::{Fault, UnusableSource};
use crate::config::model::Subscription;
use crate::dead_letter::DeadLetter;
use crate::delivery::{Headers, Outgoing, Post};

/// What each kind of source offers here. The methods of [`Client`](super::Client) say what is meant.
pub(crate) trait ClientKind: std::fmt::Debug + Send {
    fn check(&mut self) -> Result<Vec<String>, Fault>;
    fn warnings(&mut self) -> Result<Vec<SourceWarning>, Fault> {
        Ok(Vec::new())
    }
    fn send(&mut self, messages: &[Outgoing]) -> Result<(), Partial>;
    /// Returns for each the row that was there already, if there was one.
    fn post(&mut self, posts: &[Post]) -> Result<Vec<Option<i64>>, Partial> {
        if posts.iter().any(|post| post.unique.is_some()) {
            return Err(Fault::NoUnique.into());
        }
        if posts.iter().any(|post| post.topic.is_some()) {
            return Err(Fault::NoTopics.into());
        }
        let messages: Vec<Outgoing> = posts.iter().map(|post| post.message.clone()).collect();
        self.send(&messages).map(|()| vec![None; posts.len()])
    }
    fn subscribe(&mut self, _wanted: &[Subscription]) -> Result<Vec<Subscription>, Fault> {
        Err(Fault::NoTopics)
    }
    fn subscriptions(&mut self) -> Result<Vec<Subscribed>, Fault> {
        Err(Fault::NoTopics)
    }
    fn look_for_subscriptions(&mut self) -> Result<Option<Vec<Subscribed>>, Fault> {
        self.subscriptions().map(Some)
    }
    fn unsubscribe(&mut self, _topic: &str, _queue: &str) -> Result<bool, Fault> {
        Err(Fault::NoTopics)
    }
    fn depth(&mut self, queue: &str) -> Result<Depth, Fault>;
    /// Returns whether a queue is paused for all daemons.
    fn is_paused(&mut self, _queue: &str) -> Result<bool, Fault> {
        Ok(false)
    }
    /// Ends such a pause.
    fn unpause(&mut self, _queue: &str) -> Result<(), Fault> {
        Ok(())
    }
    /// Returns the number of daemons that work on the table, if it is one.
    fn daemons(&mut self) -> Result<Option<u64>, Fault> {
        Ok(None)
    }
    fn reply_to(&mut self, unique: &str) -> Result<String, Fault>;
    fn cancel_waiting(&mut self, _pool: &str, _queue: &str, _id: &str) -> Result<usize, Fault> {
        Ok(0)
    }
    fn take_reply(&mut self, queue: &str, correlation_id: &str) -> Result<Option<Reply>, Fault>;
    fn wait_for_change(&mut self, timeout: Duration);
    fn dead_list(&mut self, page: &Page, each: &mut Each<'_>) -> Result<Listed, Fault>;
    fn dead_retry(&mut self, filter: &DeadFilter, way: &WayBack) -> Result<usize, Partial>;
    fn dead_held(&mut self, _filter: &DeadFilter) -> Result<usize, Fault> {
        Ok(0)
    }
    fn dead_drop(&mut self, filter: &DeadFilter) -> Result<usize, Partial>;
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
pub(crate) struct Partial {
    /// How many were done before, each of them for good.
    pub(crate) done: usize,
    /// Why not all.
    pub(crate) fault: Fault,
}

impl<F: Into<Fault>> From<F> for Partial {
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
    pub error: Box<UnusableSource>,
}

/// Answers that have come and were not taken.
#[derive(Debug, Default)]
pub(crate) struct Answers(VecDeque<Reply>);

impl Answers {
    /// One has come.
    pub(crate) fn come(&mut self, reply: Reply) {
        self.0.push_back(reply);
    }

    /// Takes the oldest with this correlation id.
    pub(crate) fn take(&mut self, correlation_id: &str) -> Option<Reply> {
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
    pub(crate) fn fits(&self, letter: &DeadLetter) -> bool {
        let pool = self.pool.as_ref();
        self.names(&letter.id) && pool.is_none_or(|pool| *pool == letter.pool)
    }

    /// Whether a letter of this id may be meant.
    pub(super) fn names(&self, id: &str) -> bool {
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

#[cfg(feature = "sqlite")]
impl WayBack {
    /// The body, for a table, whose dead letters only go back to where they come from: the daemon alone
    /// writes them, so there is nothing to set right.
    pub(super) fn body_for_a_table(&self) -> Result<Option<&Bytes>, Fault> {
        match self.to {
            None => Ok(self.body.as_ref()),
            Some(_) => Err(Fault::NoOtherWayBack),
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
