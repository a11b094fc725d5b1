//! What the command line does with a source from outside: send, wait for an answer, read and move
//! dead letters. Nothing here claims a message for a worker.

use std::time::Duration;

use bytes::Bytes;

use super::{SourceError, table, table_error};
use crate::config::model::Source;
use crate::delivery::{Headers, Outgoing};

/// A connection of an operator or a producer.
#[derive(Debug)]
pub struct Client {
    name: String,
    desk: Desk,
}

/// The kinds of source.
#[derive(Debug)]
enum Desk {
    Table(table::Desk),
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
    pub ids: Option<Vec<i64>>,
    /// Only of this pool.
    pub pool: Option<String>,
    /// Only of these queues.
    pub queues: Option<Vec<String>>,
}

/// A message that was given up, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// By which it is named; never used again for another.
    pub id: i64,
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
    /// Connects to the source called `name`.
    ///
    /// # Errors
    /// If it can't be reached or is not fit to be used.
    pub fn open(name: &str, source: &Source) -> Result<Self, SourceError> {
        let Source::Table(config) = source;
        let desk = table::Desk::open(config).map_err(|error| table_error(name, error))?;
        Ok(Self {
            name: name.to_owned(),
            desk: Desk::Table(desk),
        })
    }

    fn table<T>(
        &mut self,
        command: impl FnOnce(&mut table::Desk) -> Result<T, table::TableError>,
    ) -> Result<T, SourceError> {
        let Desk::Table(desk) = &mut self.desk;
        command(desk).map_err(|error| table_error(&self.name, error))
    }

    /// Sends the messages, all or none. They are safe when it returns.
    ///
    /// # Errors
    /// If the source did not take them.
    pub fn send(&mut self, messages: &[Outgoing]) -> Result<(), SourceError> {
        self.table(|desk| desk.send(messages))
    }

    /// Counts what a queue holds.
    ///
    /// # Errors
    /// If the source can't be read.
    pub fn depth(&mut self, queue: &str) -> Result<Depth, SourceError> {
        self.table(|desk| desk.depth(queue))
    }

    /// Takes the oldest answer with this correlation id out of a private reply queue.
    ///
    /// # Errors
    /// If the source can't be used.
    pub fn take_reply(
        &mut self,
        queue: &str,
        correlation_id: &str,
    ) -> Result<Option<Reply>, SourceError> {
        self.table(|desk| desk.take_reply(queue, correlation_id))
    }

    /// Blocks until something was written by others since the last call (the first: since the
    /// client was opened), or the time is over. It may return early, so look again and call again.
    ///
    /// # Panics
    /// If called from within an asynchronous runtime.
    pub fn wait_for_change(&mut self, timeout: Duration) {
        let Desk::Table(desk) = &mut self.desk;
        desk.wait_for_change(timeout);
    }

    /// Lists dead letters, the oldest first, at most `limit`.
    ///
    /// # Errors
    /// If the source can't be read.
    pub fn dead_list(
        &mut self,
        filter: &DeadFilter,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, SourceError> {
        self.table(|desk| desk.dead_list(filter, limit))
    }

    /// Reads one dead letter.
    ///
    /// # Errors
    /// If the source can't be read.
    pub fn dead_show(&mut self, id: i64) -> Result<Option<DeadLetter>, SourceError> {
        let filter = DeadFilter {
            ids: Some(vec![id]),
            ..DeadFilter::default()
        };
        Ok(self.dead_list(&filter, 1)?.pop())
    }

    /// Sends dead letters back to their queues with a clean count, all in one transaction, with
    /// `edit` as their body if given. Returns how many.
    ///
    /// # Errors
    /// If the source did not take them; then none has moved.
    pub fn dead_retry(
        &mut self,
        filter: &DeadFilter,
        edit: Option<&Bytes>,
    ) -> Result<usize, SourceError> {
        self.table(|desk| desk.dead_retry(filter, edit))
    }

    /// Deletes dead letters, all in one transaction. Returns how many.
    ///
    /// # Errors
    /// If the source could not delete them; then none is gone.
    pub fn dead_drop(&mut self, filter: &DeadFilter) -> Result<usize, SourceError> {
        self.table(|desk| desk.dead_drop(filter))
    }
}
