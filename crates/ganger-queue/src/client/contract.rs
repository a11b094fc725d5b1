//! Operations that the client of each kind of queue offers, and their results.

use std::collections::{BTreeSet, VecDeque};
use std::ops::ControlFlow;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;

use super::waiting::WaitingList;
use crate::dead_letter::DeadLetter;
use crate::delivery::{Headers, Outgoing, Post};
use crate::fault::SourceFault;
use ganger_config::model::Subscription;

/// Connection of a command or of the admin API to a source of any kind. The methods of
/// [`Client`](super::Client) say more of each.
pub trait QueueClient: std::fmt::Debug + Send {
    /// Checks that everything the pools need exists, or may be created; returns the problems, a sentence
    /// each.
    fn check(&mut self) -> Result<Vec<String>, SourceFault>;
    /// Returns warnings that are likely to end badly for the pools, although the source can be used.
    fn warnings(&mut self) -> Result<Vec<SourceWarning>, SourceFault> {
        Ok(Vec::new())
    }
    /// Sends the messages, which are stored safely when it returns.
    fn send(&mut self, messages: &[Outgoing]) -> Result<(), Partial>;
    /// Sends messages of which some have a unique key; returns for each the row that already had its key,
    /// if any.
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
    /// Subscribes queues to topics, all at once; returns the subscriptions that are new.
    fn subscribe(&mut self, _wanted: &[Subscription]) -> Result<Vec<Subscription>, SourceFault> {
        Err(no_topics())
    }
    /// Returns the subscriptions of queues to topics, by name.
    fn subscriptions(&mut self) -> Result<Vec<Subscribed>, SourceFault> {
        Err(no_topics())
    }
    /// Returns the subscriptions without creating anything: none if their tables do not exist yet.
    fn look_for_subscriptions(&mut self) -> Result<Option<Vec<Subscribed>>, SourceFault> {
        self.subscriptions().map(Some)
    }
    /// Ends a subscription; returns whether it existed.
    fn unsubscribe(&mut self, _topic: &str, _queue: &str) -> Result<bool, SourceFault> {
        Err(no_topics())
    }
    /// Counts the messages of a queue.
    fn depth(&mut self, queue: &str) -> Result<Depth, SourceFault>;
    /// Returns whether a queue is paused for all daemons.
    fn is_paused(&mut self, _queue: &str) -> Result<bool, SourceFault> {
        Ok(false)
    }
    /// Ends a queue's pause for all daemons.
    fn unpause(&mut self, _queue: &str) -> Result<(), SourceFault> {
        Ok(())
    }
    /// Returns the number of daemons that work on the table; none for other kinds.
    fn daemons(&mut self) -> Result<Option<u64>, SourceFault> {
        Ok(None)
    }
    /// Makes a reply queue for one message.
    fn reply_to(&mut self, unique: &str) -> Result<String, SourceFault>;
    /// Lists the first messages that wait in a queue, at most so many, without taking them.
    fn waiting_list(&mut self, _queue: &str, _limit: usize) -> Result<WaitingList, SourceFault> {
        Err(SourceFault::unsupported(
            "pending messages can't be listed: here a message is read only by taking it, which counts as a \
             delivery; `ganger status` shows their number",
        ))
    }
    /// Moves waiting messages of that name to the dead letters; returns their number.
    fn cancel_waiting(
        &mut self,
        _pool: &str,
        _queue: &str,
        _id: &str,
    ) -> Result<usize, SourceFault> {
        Ok(0)
    }
    /// Takes the oldest reply with this correlation id out of such a queue.
    fn take_reply(
        &mut self,
        queue: &str,
        correlation_id: &str,
    ) -> Result<Option<Reply>, SourceFault>;
    /// Blocks until someone else has written, or the timeout; may return early.
    fn wait_for_change(&mut self, timeout: Duration);
    /// Reads a page of dead letters, the oldest first.
    fn dead_list(&mut self, page: &Page, each: &mut Each<'_>) -> Result<Listed, SourceFault>;
    /// Sends dead letters back; returns their number.
    fn dead_retry(&mut self, filter: &DeadFilter, way: &RetryTarget) -> Result<usize, Partial>;
    /// Counts the dead letters that were not sent back because another message has their unique key.
    fn dead_held(&mut self, _filter: &DeadFilter) -> Result<usize, SourceFault> {
        Ok(0)
    }
    /// Deletes dead letters; returns their number.
    fn dead_drop(&mut self, filter: &DeadFilter) -> Result<usize, Partial>;
    /// Changes the dead letters that match the filter and its criteria, in steps. This one is for sources from whose
    /// dead letters any can be picked; each step is all or nothing.
    fn dead_change(
        &mut self,
        filter: &DeadFilter,
        change: DeadChange,
        pace: &mut Pace<'_>,
    ) -> Result<(), Partial> {
        let (mut after, mut last) = (None, Step::default());
        while let Some(most) = pace(std::mem::take(&mut last)) {
            let page = Page {
                after: after.clone(),
                ..Page::all(filter.clone())
            };
            let (mut ids, mut read) = (BTreeSet::new(), 0);
            self.dead_list(&page, &mut |letter| {
                read += 1;
                after = Some(letter.id.clone());
                if filter.criteria.fit(&letter) {
                    ids.insert(letter.id);
                }
                match ids.len() < most.max(1) && read < READ_MAX {
                    true => ControlFlow::Continue(()),
                    false => ControlFlow::Break(()),
                }
            })?;
            if read == 0 {
                break;
            }
            if ids.is_empty() {
                continue;
            }
            let these = DeadFilter {
                ids: Some(ids),
                ..DeadFilter::default()
            };
            last = match change {
                DeadChange::Drop => Step::of(self.dead_drop(&these)?),
                DeadChange::Retry => Step {
                    changed: self.dead_retry(&these, &RetryTarget::default())?,
                    held: self.dead_held(&these)?,
                    ..Step::default()
                },
            };
        }
        Ok(())
    }
}

/// Maximum number of dead letters that are read for a step, whether they match or not.
const READ_MAX: usize = 10_000;

/// A change of dead letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeadChange {
    /// They are sent back to the queue that they come from.
    Retry,
    /// They are deleted.
    Drop,
}

/// Result of a step of a change, each part of it for good.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Step {
    /// Number of dead letters that were changed.
    pub changed: usize,
    /// Number of those that stay because another message has their unique key.
    pub held: usize,
    /// Number of those that could not be changed although the source can be used.
    pub failed: usize,
    /// Reason for the first of those.
    pub error: Option<String>,
}

impl Step {
    /// Returns the step that changed so many.
    pub fn of(changed: usize) -> Self {
        Self {
            changed,
            ..Self::default()
        }
    }
}

/// Paces a change: gets the result of the step before, may block, and returns the maximum number of dead letters of the
/// next step, or `None` to end the change here.
pub type Pace<'a> = dyn FnMut(Step) -> Option<usize> + 'a;

fn no_topics() -> SourceFault {
    SourceFault::unsupported("topics are supported on table sources only")
}

/// Warning about a source that does not hinder a pool, but should be mended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceWarning {
    /// Name of the pool.
    pub pool: String,
    /// The problem.
    pub message: String,
    /// Remedy.
    pub help: &'static str,
}

/// An operation that failed after part of it was done for good.
#[derive(Debug)]
pub struct Partial {
    /// Number of items done before, each of them for good.
    pub done: usize,
    /// Reason that not all were done.
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

/// A source did only part of a request, or nothing.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Halted {
    /// Number of items done, each of them confirmed. None where it does all or nothing.
    pub done: usize,
    /// Reason that not all were done.
    pub error: Box<SourceFault>,
}

/// Replies that have arrived and were not taken.
#[derive(Debug, Default)]
pub struct Answers(VecDeque<Reply>);

impl Answers {
    /// Adds a reply that has arrived.
    pub fn push(&mut self, reply: Reply) {
        self.0.push_back(reply);
    }

    /// Takes the oldest reply with this correlation id.
    pub fn take(&mut self, correlation_id: &str) -> Option<Reply> {
        let mut all = self.0.iter();
        let at = all.position(|reply| reply.correlation_id == correlation_id);
        at.and_then(|at| self.0.remove(at))
    }
}

/// Number of messages in a queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Depth {
    /// Ready to be claimed.
    pub ready: u64,
    /// Delayed until a later time.
    pub delayed: u64,
    /// Claimed by daemons.
    pub claimed: u64,
}

impl Depth {
    /// Returns the total.
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
    /// Time since which it exists, in milliseconds of Unix time.
    pub since_ms: i64,
}

/// A reply that was taken from a reply queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The body, byte for byte.
    pub body: Bytes,
    /// Its headers.
    pub headers: Headers,
    /// Correlation id; empty if it has none.
    pub correlation_id: String,
    /// The MIME type of the body.
    pub content_type: Option<String>,
}

/// Filter for dead letters: those that match every given part.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeadFilter {
    /// Only these ids.
    pub ids: Option<BTreeSet<String>>,
    /// Only of this pool.
    pub pool: Option<String>,
    /// Only those that meet these criteria.
    pub criteria: Criteria,
}

/// Criteria for dead letters. [`Client`](super::Client) checks them, whatever the kind of source; its
/// kinds need not, except in a change in steps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Criteria {
    /// Part of its error.
    pub error: Option<String>,
    /// Its message id, or if it has none its correlation id.
    pub message_id: Option<String>,
    /// Its reason.
    pub reason: Option<String>,
    /// Its last failure was at this time or later.
    pub since: Option<Timestamp>,
    /// Its last failure was before this time.
    pub before: Option<Timestamp>,
}

impl Criteria {
    /// Returns whether there are no criteria, so that any dead letter meets them.
    pub fn are_none(&self) -> bool {
        *self == Self::default()
    }

    /// Returns whether the dead letter meets them. One without a time of failure is of no time.
    pub fn fit(&self, letter: &DeadLetter) -> bool {
        let error = self.error.as_ref();
        let reason = self.reason.as_ref();
        let id = self.message_id.as_ref();
        let own_id = letter.message_id.as_ref();
        let own_id = own_id.unwrap_or(&letter.correlation_id);
        let failed: Option<Timestamp> = letter.last_failed_at.parse().ok();
        error.is_none_or(|part| letter.error.contains(part))
            && id.is_none_or(|id| id == own_id)
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
    /// Returns whether the dead letter matches, its criteria included.
    pub fn matches(&self, letter: &DeadLetter) -> bool {
        self.fits(letter) && self.criteria.fit(letter)
    }

    /// Returns whether the dead letter matches, leaving the criteria out.
    pub fn fits(&self, letter: &DeadLetter) -> bool {
        let pool = self.pool.as_ref();
        self.names(&letter.id) && pool.is_none_or(|pool| *pool == letter.pool)
    }

    /// Returns whether a dead letter of this id may match.
    pub fn names(&self, id: &str) -> bool {
        self.ids.as_ref().is_none_or(|ids| ids.contains(id))
    }
}

/// Options for sending dead letters back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RetryTarget {
    /// Body to send instead of their own.
    pub body: Option<Bytes>,
    /// Queue to send them to instead of the one that they come from.
    pub to: Option<String>,
}

impl RetryTarget {
    /// Returns the body, for a table, whose dead letters can only go back to their own queue: the daemon
    /// alone writes them, so there is nothing to correct.
    pub fn body_for_a_table(&self) -> Result<Option<&Bytes>, SourceFault> {
        match self.to {
            None => Ok(self.body.as_ref()),
            Some(_) => Err(SourceFault::unsupported(
                "dead letters of a table can be retried in their own queue only: leave `to` out",
            )),
        }
    }
}

/// Outcome of sending dead letters back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Retried {
    /// Number of those that were sent back.
    pub retried: usize,
    /// Number of those that were not sent back, because another message has their unique key.
    pub held: usize,
}

/// Page of dead letters to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Filter for the dead letters.
    pub filter: DeadFilter,
    /// Identifier of the dead letter after which the page begins.
    pub after: Option<String>,
    /// Maximum number.
    pub limit: usize,
}

impl Page {
    /// Returns a page of all dead letters that match.
    pub fn all(filter: DeadFilter) -> Self {
        Self {
            filter,
            after: None,
            limit: usize::MAX,
        }
    }
}

/// Receives the dead letters of a page one by one as they are read. A break ends the reading.
pub type Each<'a> = dyn FnMut(DeadLetter) -> ControlFlow<()> + 'a;

/// Result of reading a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listed {
    /// There is nothing after the last dead letter.
    All,
    /// There is more, or the rest was not checked.
    More,
    /// The dead letter after which to begin does not exist.
    Lost,
}

#[cfg(test)]
mod tests;
