//! Types shared by those that store finished messages and the database behind them.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;

use super::{Settled, headers};
use ganger_config::model::PoolConfig;
use ganger_queue::delivery::{Finished, Headers, Outcome, StoredReply, repeated};

/// The queue of a source whose finished messages are stored.
#[derive(Debug, Clone)]
pub(crate) struct Scope {
    /// Name of the source in the entries.
    pub(crate) source: String,
    pub(crate) queue: Arc<str>,
}

impl Scope {
    /// Returns the scope of that pool's messages.
    pub(crate) fn of(pool: &PoolConfig) -> Self {
        let known = pool.idempotency.as_ref().map(|known| &known.scope);
        Self {
            source: known.unwrap_or(&pool.source).clone(),
            queue: Arc::clone(&pool.queue),
        }
    }
}

/// An entry to be written: the finished message, and its outcome.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry<'a> {
    pub(crate) finished: &'a Finished,
    pub(crate) outcome: &'a Outcome,
}

/// Stored entry of a finished message.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StoredEntry {
    /// Hash of the message's body; none in an entry of an earlier version.
    pub(crate) body: Option<String>,
    /// None if it was done without a reply.
    pub(crate) reply: Option<StoredReply>,
}

/// Header that holds the hash of the message's body, stored with the headers of the reply.
const BODY: &str = "x-ganger-body";

impl Entry<'_> {
    /// Returns the headers to store, as JSON.
    pub(crate) fn headers(&self) -> String {
        let reply = self.finished.reply_in(self.outcome);
        let mut stored = vec![(BODY.to_owned(), self.finished.body.clone())];
        stored.extend(
            reply
                .into_iter()
                .flat_map(|(_, reply)| reply.headers.clone()),
        );
        headers::json(&stored)
    }

    /// Returns the entry found, if it is of the same message and not of another one with the same key.
    pub(crate) fn first(&self, found: Option<StoredEntry>) -> Option<StoredEntry> {
        found.filter(|first| first.is_of(&self.finished.body))
    }
}

impl StoredEntry {
    /// Makes an entry from its columns.
    pub(crate) fn read(queue: Option<String>, body: Option<Bytes>, stored: Headers) -> Self {
        let (ours, headers): (Headers, Headers) =
            stored.into_iter().partition(|(name, _)| name == BODY);
        Self {
            body: ours.into_iter().next().map(|(_, hash)| hash),
            reply: body.map(|body| StoredReply {
                queue,
                body,
                headers,
            }),
        }
    }

    /// Returns whether the entry is of a message with that hash of the body.
    pub(crate) fn is_of(&self, body: &str) -> bool {
        self.body.as_deref().is_none_or(|of| of == body)
    }
}

/// The entries of several messages, in order; none for a message without one.
pub(crate) type Found = Vec<Option<StoredEntry>>;

impl Settled {
    /// Returns the entry to be written with it, if its outcome ends the work.
    pub(crate) fn entry(&self) -> Option<Entry<'_>> {
        let finished = self.finished.as_deref()?;
        let outcome = &self.outcome;
        outcome.is_finish().then_some(Entry { finished, outcome })
    }

    /// Returns the settlement to write, given an earlier entry of the same message: with the reply of the
    /// first, as for every repetition.
    pub(crate) fn after(&self, first: Option<StoredEntry>) -> Cow<'_, Self> {
        match (first, &self.finished) {
            (Some(first), Some(finished)) => Cow::Owned(Self {
                outcome: repeated(first.reply, &finished.continued),
                recorded: None,
                ..self.clone()
            }),
            _ => Cow::Borrowed(self),
        }
    }
}
