//! What a worker has finished, as it is entered so that a repetition of the message is not worked on
//! again: by what the message is known, and what goes out again for a repetition.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;

use super::outcome::Outcome;
use ganger_core::message::{Headers, Outgoing};

/// By what two messages are known to be the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity {
    /// The queue that they are from.
    pub queue: Arc<str>,
    /// What the pool's `idempotency.key` says of it.
    pub key: String,
    /// The emit's own name: the emits of a task may share all else. Empty for what is none.
    pub emit: String,
    /// Which step of a long task it is.
    pub step: u32,
}

/// A reply that was sent for a message.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredReply {
    /// The queue that the worker named; none for the one that the message asked for, which another
    /// caller may have changed.
    pub queue: Option<String>,
    /// The body, byte for byte.
    pub body: Bytes,
    /// Its headers.
    pub headers: Headers,
}

/// What is entered of a message that is done.
#[derive(Debug, Clone)]
pub struct Finished {
    /// By what a repetition is known.
    pub identity: Identity,
    /// The hash of the message's body, which a repetition has, too.
    pub body: String,
    /// How long a repetition is known.
    pub window: Duration,
    /// What continues the message, with nothing said yet.
    pub continued: Outgoing,
    /// Held until the entry is written, or is not going to be.
    pub once_written: Option<Arc<OnceWritten>>,
}

impl Finished {
    /// What is stored of the reply in that outcome: the queue, where it is not the one that the
    /// message asked for, and the message. None where there is no reply.
    pub fn reply_in<'a>(&self, outcome: &'a Outcome) -> Option<(Option<&'a str>, &'a Outgoing)> {
        match outcome {
            Outcome::Reply(reply) => {
                let asked = self.continued.reply_to.as_ref() == Some(&reply.queue);
                Some(((!asked).then_some(reply.queue.as_str()), reply))
            }
            Outcome::Done
            | Outcome::Requeue { .. }
            | Outcome::Return { .. }
            | Outcome::ReturnAfter { .. }
            | Outcome::RetryAfter { .. }
            | Outcome::DeadLetter(_) => None,
        }
    }
}

/// What becomes of a repetition of a message that is done: the reply, if there was one, is sent
/// again. One that was for the caller goes to this message's caller, if it has one.
pub fn repeated(stored: Option<StoredReply>, continued: &Outgoing) -> Outcome {
    let Some(StoredReply {
        queue,
        body,
        headers,
    }) = stored
    else {
        return Outcome::Done;
    };
    match queue.or_else(|| continued.reply_to.clone()) {
        Some(queue) => Outcome::Reply(Box::new(Outgoing {
            queue,
            body,
            headers,
            ..continued.clone()
        })),
        None => Outcome::Done,
    }
}

/// Tells, when it is dropped, that the entry is written, or is not going to be.
#[derive(Debug)]
pub struct OnceWritten {
    identity: Identity,
    told: Arc<Entered>,
}

impl OnceWritten {
    /// One that tells there.
    pub fn new(identity: Identity, told: &Arc<Entered>) -> Arc<Self> {
        let told = Arc::clone(told);
        Arc::new(Self { identity, told })
    }
}

impl Drop for OnceWritten {
    fn drop(&mut self) {
        self.told.lock().push(self.identity.clone());
        self.told.news.notify_one();
    }
}

/// What was told, by whoever writes on another thread. No more than what is out.
#[derive(Debug, Default)]
pub struct Entered {
    identities: Mutex<Vec<Identity>>,
    news: Notify,
}

impl Entered {
    /// Waits for something to be told, and takes all of it. Loses nothing when it is dropped.
    pub async fn next(&self) -> Vec<Identity> {
        self.news.notified().await;
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Identity>> {
        // What it guards is never left half changed.
        self.identities
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(reply_to: Option<&str>) -> Outgoing {
        Outgoing {
            correlation_id: "c".to_owned(),
            reply_to: reply_to.map(ToOwned::to_owned),
            ..Outgoing::default()
        }
    }

    fn finished(reply_to: Option<&str>) -> Finished {
        Finished {
            identity: Identity {
                queue: "q".into(),
                key: "k".to_owned(),
                emit: String::new(),
                step: 0,
            },
            body: String::new(),
            window: Duration::from_secs(1),
            continued: message(reply_to),
            once_written: None,
        }
    }

    #[test]
    fn a_reply_goes_where_this_message_asks_for_it_or_where_the_worker_said() {
        // What the first asked for, where its reply went, what the second asks for, where it goes.
        for (first, to, second, again) in [
            (Some("a"), "a", Some("a"), Some("a")),
            (Some("a"), "a", Some("b"), Some("b")),
            (Some("a"), "a", None, None),
            (Some("a"), "worker's", Some("b"), Some("worker's")),
            (None, "worker's", None, Some("worker's")),
        ] {
            let outcome = Outcome::Reply(Box::new(Outgoing {
                queue: to.to_owned(),
                body: "done".into(),
                ..message(first)
            }));
            let finished = finished(first);
            let (queue, reply) = finished.reply_in(&outcome).unwrap();
            let stored = StoredReply {
                queue: queue.map(ToOwned::to_owned),
                body: reply.body.clone(),
                headers: reply.headers.clone(),
            };
            let expected = match again {
                Some(queue) => Outcome::Reply(Box::new(Outgoing {
                    queue: queue.to_owned(),
                    body: "done".into(),
                    ..message(second)
                })),
                None => Outcome::Done,
            };
            assert_eq!(repeated(Some(stored), &message(second)), expected, "{to}");
        }
    }

    #[test]
    fn without_a_reply_it_is_done() {
        assert!(finished(None).reply_in(&Outcome::Done).is_none());
        assert_eq!(repeated(None, &message(Some("a"))), Outcome::Done);
    }
}
