//! What a handler says became of its message.

use std::error::Error as StdError;
use std::time::Duration;

use crate::wire::status;
use crate::{Error, Value};

/// What became of a message.
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct Outcome {
    pub(crate) status: i64,
    pub(crate) message: Vec<u8>,
    pub(crate) headers: Vec<(String, Value)>,
    pub(crate) queue: String,
    pub(crate) after: Option<Duration>,
}

impl Outcome {
    /// The message leaves its queue. A handler that returns `()` says the same.
    pub fn done() -> Self {
        Self::with_status(status::DONE, "")
    }

    /// The work is done, and this is its result, text or bytes. It is published to the message's
    /// reply-to, or to where [`to`](Self::to) says, before the message leaves its queue. With
    /// `to(&task.queue)` a long task hands on what is left.
    pub fn reply(message: impl Into<Vec<u8>>) -> Self {
        Self::with_status(status::DONE_WITH_REPLY, message)
    }

    /// It failed for now, and is tried again after the pool's own wait or that of
    /// [`after`](Self::after). An attempt is charged; after the last one the message is a dead letter
    /// with this reason.
    pub fn retry(reason: impl Into<Vec<u8>>) -> Self {
        Self::with_status(status::RETRY, reason)
    }

    /// It can never work. The message becomes a dead letter with this reason, now.
    pub fn reject(reason: impl Into<Vec<u8>>) -> Self {
        Self::with_status(status::REJECT, reason)
    }

    /// Not here, not now. It is handed out again after a short wait; no attempt is charged.
    pub fn requeue(reason: impl Into<Vec<u8>>) -> Self {
        Self::with_status(status::REQUEUE, reason)
    }

    /// A status that the pool's configuration gives a meaning (`[pools.statuses]`). One that does not
    /// end a message, -1 or 100 to 199, is sent as a failure that says so.
    pub fn with_status(status: i64, message: impl Into<Vec<u8>>) -> Self {
        Self {
            status,
            message: message.into(),
            headers: Vec::new(),
            queue: String::new(),
            after: None,
        }
    }

    /// Where a reply goes.
    pub fn to(mut self, queue: impl Into<String>) -> Self {
        self.queue = queue.into();
        self
    }

    /// Adds a header to a reply.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// How long a retry is to wait, in whole milliseconds.
    pub fn after(mut self, wait: Duration) -> Self {
        self.after = Some(wait);
        self
    }

    /// Whether its status ends a message.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.status {
            status::IGNORE_MESSAGE | 100..=199 => {
                let status = self.status;
                let what = format!("an outcome's status must be one that ends a message: {status}");
                Err(Error::Output(what))
            }
            _ => Ok(()),
        }
    }
}

/// What a handler fails with: any error, or a text.
pub type Failure = Box<dyn StdError + Send + Sync>;

/// What a handler may return: an [`Outcome`], `()` for a message that is done, or a result of them. On
/// an error the message is tried again by the pool's rules; what its text and those of its sources
/// say, and a backtrace that its debug text has (as `anyhow`'s), is kept with the dead letter.
pub trait IntoOutcome {
    /// What became of the message, or why the handler has failed.
    fn into_outcome(self) -> Result<Outcome, Failure>;
}

impl IntoOutcome for Outcome {
    fn into_outcome(self) -> Result<Outcome, Failure> {
        Ok(self)
    }
}

impl IntoOutcome for () {
    fn into_outcome(self) -> Result<Outcome, Failure> {
        Ok(Outcome::done())
    }
}

impl<T: IntoOutcome, E: Into<Failure>> IntoOutcome for Result<T, E> {
    fn into_outcome(self) -> Result<Outcome, Failure> {
        self.map_err(Into::into)?.into_outcome()
    }
}
