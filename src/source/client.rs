//! What the command line does with a source from outside: send, wait for an answer, read and move
//! dead letters. Nothing here claims a message for a worker.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::{Fault, SourceError, kafka, rabbitmq, table};
use crate::config::model::{Pool, Source};
use crate::delivery::{Headers, Outgoing};

/// A connection of an operator or a producer.
#[derive(Debug)]
pub struct Client {
    name: String,
    desk: Box<dyn Desk>,
}

/// What each kind of source offers here. The methods of [`Client`] say what is meant.
pub(super) trait Desk: std::fmt::Debug + Send {
    fn check(&mut self) -> Result<Vec<String>, Fault>;
    fn send(&mut self, messages: &[Outgoing]) -> Result<(), Partial>;
    fn depth(&mut self, queue: &str) -> Result<Depth, Fault>;
    fn reply_to(&mut self, unique: &str) -> Result<String, Fault>;
    fn take_reply(&mut self, queue: &str, correlation_id: &str) -> Result<Option<Reply>, Fault>;
    fn wait_for_change(&mut self, timeout: Duration);
    fn dead_list(&mut self, page: &Page, each: &mut Each<'_>) -> Result<Listed, Fault>;
    fn dead_retry(&mut self, filter: &DeadFilter, edit: Option<&Bytes>) -> Result<usize, Partial>;
    fn dead_drop(&mut self, filter: &DeadFilter) -> Result<usize, Partial>;
}

/// Where something ended that can't be taken back.
#[derive(Debug)]
pub(super) struct Partial {
    /// How many were done before, each of them for good.
    pub(super) done: usize,
    /// Why not all.
    pub(super) fault: Fault,
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
    pub error: Box<SourceError>,
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
    pub ids: Option<Vec<String>>,
    /// Only of this pool.
    pub pool: Option<String>,
    /// Only of these queues.
    pub queues: Option<Vec<String>>,
}

impl DeadFilter {
    /// Whether a letter is meant.
    pub(super) fn fits(&self, letter: &DeadLetter) -> bool {
        let pool = self.pool.as_ref();
        let queues = self.queues.as_ref();
        self.names(&letter.id)
            && pool.is_none_or(|pool| *pool == letter.pool)
            && queues.is_none_or(|queues| queues.contains(&letter.queue))
    }

    /// Whether a letter of this id may be meant.
    pub(super) fn names(&self, id: &str) -> bool {
        let ids = self.ids.as_ref();
        ids.is_none_or(|ids| ids.iter().any(|other| other == id))
    }
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

/// A message that was given up, and why.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeadLetter {
    /// By which it is named; never used again for another.
    pub id: String,
    /// The pool that gave it up.
    pub pool: String,
    /// The queue that it came from.
    pub queue: String,
    /// The kind of failure.
    pub reason: String,
    /// What happened, in a sentence.
    pub error: String,
    /// How many attempts were charged.
    pub attempts: u32,
    /// How many workers, or daemons, it took down.
    pub crashes: u32,
    /// The exit code of the worker that died, if it exited by itself.
    pub exit_code: Option<i32>,
    /// The number of the signal that ended it.
    pub signal: Option<i32>,
    /// The kernel killed it for want of memory.
    pub oom: bool,
    /// The last lines that it wrote to stderr.
    pub stderr: Vec<String>,
    /// When its first attempt failed, RFC 3339.
    pub first_failed_at: String,
    /// When its last one did, RFC 3339.
    pub last_failed_at: String,
    /// Empty where it has none.
    pub correlation_id: String,
    /// Where an answer to it goes.
    pub reply_to: Option<String>,
    /// The producer's own id for it.
    pub message_id: Option<String>,
    /// The MIME type of the body.
    pub content_type: Option<String>,
    /// The ordering or partition key.
    pub key: Option<String>,
    /// Higher goes first.
    pub priority: i64,
    /// Its headers; those that can't be read as such are left out, `error` says why.
    pub headers: Headers,
    /// The body, byte for byte.
    pub body: Bytes,
    /// The result of work that was done but could not be delivered.
    pub reply: Option<DeadReply>,
}

/// A reply that had nowhere to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadReply {
    /// Where it was to go.
    pub queue: String,
    /// The body, byte for byte.
    pub body: Bytes,
    /// Its headers.
    pub headers: Headers,
}

impl Client {
    /// Connects to the source called `name`. Those of the `pools` that read from it tell which
    /// queues there are.
    ///
    /// # Errors
    /// If it can't be reached or is not fit to be used.
    pub fn open(name: &str, source: &Source, pools: &[Arc<Pool>]) -> Result<Self, SourceError> {
        let pools = pools.iter().filter(|pool| pool.source == name);
        let pools: Vec<Arc<Pool>> = pools.cloned().collect();
        let desk = desk(source, &pools).map_err(|fault| fault.of(name))?;
        Ok(Self {
            name: name.to_owned(),
            desk,
        })
    }

    fn ask<T>(
        &mut self,
        question: impl FnOnce(&mut dyn Desk) -> Result<T, Fault>,
    ) -> Result<T, SourceError> {
        question(&mut *self.desk).map_err(|fault| fault.of(&self.name))
    }

    fn tell<T>(
        &mut self,
        order: impl FnOnce(&mut dyn Desk) -> Result<T, Partial>,
    ) -> Result<T, Halted> {
        order(&mut *self.desk).map_err(|Partial { done, fault }| Halted {
            done,
            error: Box::new(fault.of(&self.name)),
        })
    }

    /// The source's name in the configuration.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Looks whether what the pools need is there, or may be made. Returns what is wrong, a
    /// sentence each. Makes nothing.
    ///
    /// # Errors
    /// If the source can't be asked.
    pub fn check(&mut self) -> Result<Vec<String>, SourceError> {
        self.ask(|desk| desk.check())
    }

    /// Sends the messages. They are safe when it returns. A table takes all or none; a broker may
    /// have taken some when it fails, and not always the first ones.
    ///
    /// # Errors
    /// If the source did not take them all.
    pub fn send(&mut self, messages: &[Outgoing]) -> Result<(), Halted> {
        self.tell(|desk| desk.send(messages))
    }

    /// Counts what a queue holds.
    ///
    /// # Errors
    /// If the source can't be read.
    pub fn depth(&mut self, queue: &str) -> Result<Depth, SourceError> {
        self.ask(|desk| desk.depth(queue))
    }

    /// A place for the answer to one message, to be named as its reply-to. Its name holds the
    /// `unique` text, unless one place serves for all.
    ///
    /// # Errors
    /// If the source can't make one.
    pub fn reply_to(&mut self, unique: &str) -> Result<String, SourceError> {
        self.ask(|desk| desk.reply_to(unique))
    }

    /// Takes the oldest answer with this correlation id out of such a place.
    ///
    /// # Errors
    /// If the source can't be used.
    pub fn take_reply(
        &mut self,
        queue: &str,
        correlation_id: &str,
    ) -> Result<Option<Reply>, SourceError> {
        self.ask(|desk| desk.take_reply(queue, correlation_id))
    }

    /// Blocks until something was written by others since the last call (the first: since the
    /// client was opened), or the time is over. It may return early, so look again and call again.
    ///
    /// # Panics
    /// If called from within an asynchronous runtime.
    pub fn wait_for_change(&mut self, timeout: Duration) {
        self.desk.wait_for_change(timeout);
    }

    /// Reads a page of dead letters, the oldest first, and keeps no more than a few of them. What
    /// was read before something went wrong was given out.
    ///
    /// # Errors
    /// If the source can't be read.
    ///
    /// # Panics
    /// If called from within an asynchronous runtime.
    pub fn dead_list(
        &mut self,
        page: &Page,
        mut each: impl FnMut(DeadLetter) -> ControlFlow<()>,
    ) -> Result<Listed, SourceError> {
        self.ask(|desk| desk.dead_list(page, &mut each))
    }

    /// Reads one dead letter.
    ///
    /// # Errors
    /// If the source can't be read.
    pub fn dead_show(&mut self, id: &str) -> Result<Option<DeadLetter>, SourceError> {
        let page = Page::all(DeadFilter {
            ids: Some(vec![id.to_owned()]),
            ..DeadFilter::default()
        });
        let mut found = None;
        self.dead_list(&page, |letter| {
            found = Some(letter);
            ControlFlow::Break(())
        })?;
        Ok(found)
    }

    /// Sends dead letters back to their queues with a clean count, with `edit` as their body if
    /// given. Returns how many. On a table all move or none; a broker's letters move one by one,
    /// each gone only when its copy is safe.
    ///
    /// # Errors
    /// If the source did not take them all.
    pub fn dead_retry(
        &mut self,
        filter: &DeadFilter,
        edit: Option<&Bytes>,
    ) -> Result<usize, Halted> {
        self.tell(|desk| desk.dead_retry(filter, edit))
    }

    /// Deletes dead letters. Returns how many.
    ///
    /// # Errors
    /// If the source could not delete them all.
    pub fn dead_drop(&mut self, filter: &DeadFilter) -> Result<usize, Halted> {
        self.tell(|desk| desk.dead_drop(filter))
    }
}

fn desk(source: &Source, pools: &[Arc<Pool>]) -> Result<Box<dyn Desk>, Fault> {
    Ok(match source {
        Source::Table(config) => Box::new(table::Desk::open(config)?),
        Source::RabbitMq(config) => Box::new(rabbitmq::Desk::open(config, pools)?),
        Source::Kafka(config) => Box::new(kafka::Desk::open(config, pools)?),
    })
}
