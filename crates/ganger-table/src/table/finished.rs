//! The words between whoever remembers what is finished and the database behind it.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;

use super::{Settled, headers};
use ganger_config::model::PoolConfig;
use ganger_queue::delivery::{Finished, Headers, Outcome, StoredReply, repeated};

/// Of which messages something is entered: those of a queue of a source.
#[derive(Debug, Clone)]
pub(crate) struct Scope {
    /// By what the source is known.
    pub(crate) source: String,
    pub(crate) queue: Arc<str>,
}

impl Scope {
    /// The messages of that pool.
    pub(crate) fn of(pool: &PoolConfig) -> Self {
        let known = pool.idempotency.as_ref().map(|known| &known.scope);
        Self {
            source: known.unwrap_or(&pool.source).clone(),
            queue: Arc::clone(&pool.queue),
        }
    }
}

/// What is to be entered: of which message, and what has become of that.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry<'a> {
    pub(crate) finished: &'a Finished,
    pub(crate) outcome: &'a Outcome,
}

/// What is entered of a message.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Remembered {
    /// The hash of its body; none where an earlier version has entered it.
    pub(crate) body: Option<String>,
    /// None if it was done without a reply.
    pub(crate) reply: Option<StoredReply>,
}

/// The header, beside those of the reply, with the hash of the message's body.
const BODY: &str = "x-ganger-body";

impl Entry<'_> {
    /// The headers that are stored.
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

    /// What was entered before of the same message, rather than of another one under its key.
    pub(crate) fn first(&self, found: Option<Remembered>) -> Option<Remembered> {
        found.filter(|first| first.is_of(&self.finished.body))
    }
}

impl Remembered {
    /// What is entered, out of these columns.
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

    /// Whether it is of a message with a body of this hash.
    pub(crate) fn is_of(&self, body: &str) -> bool {
        self.body.as_deref().is_none_or(|of| of == body)
    }
}

/// What is entered of each of several messages; none for one of which nothing is.
pub(crate) type Found = Vec<Option<Remembered>>;

impl Settled {
    /// What is to be entered with it.
    pub(crate) fn entry(&self) -> Option<Entry<'_>> {
        let finished = self.finished.as_deref()?;
        let outcome = &self.outcome;
        outcome.is_finish().then_some(Entry { finished, outcome })
    }

    /// As it is to be settled if that is what another was first to enter: with the reply of the
    /// first, as all repetitions have it.
    pub(crate) fn after(&self, first: Option<Remembered>) -> Cow<'_, Self> {
        match (first, &self.finished) {
            (Some(first), Some(finished)) => Cow::Owned(Self {
                outcome: repeated(first.reply, &finished.continued),
                ..self.clone()
            }),
            _ => Cow::Borrowed(self),
        }
    }
}
