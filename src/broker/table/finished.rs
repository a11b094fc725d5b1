//! The words between whoever remembers what is finished and the database behind it.

use std::borrow::Cow;
use std::sync::Arc;

use super::Settled;
use crate::config::model::PoolConfig;
use crate::delivery::{Finished, Outcome, StoredReply, repeated};

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
    /// None if it was done without a reply.
    pub(crate) reply: Option<StoredReply>,
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
