//! Entry of a finished message, so that a repetition of it is not worked on again: its identity, and the
//! reply to send again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;

use super::outcome::Outcome;
use ganger_core::message::{Headers, Outgoing};
use ganger_core::names::RUN_HEADERS;

/// Identity by which two messages are the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity {
    /// The queue that they are from.
    pub queue: Arc<str>,
    /// Key taken by the pool's `idempotency.key`.
    pub key: String,
    /// The emit's own name: the emits of a task may share all else. Empty for any other message.
    pub emit: String,
    /// Step of a long task.
    pub step: u32,
}

/// A reply that was sent for a message.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredReply {
    /// The queue that the worker named; none for the message's own reply-to, which another caller may
    /// have changed.
    pub queue: Option<String>,
    /// The body, byte for byte.
    pub body: Bytes,
    /// Its headers.
    pub headers: Headers,
}

/// Entry of a finished message.
#[derive(Debug, Clone)]
pub struct Finished {
    /// Identity by which a repetition is recognised.
    pub identity: Identity,
    /// Hash of the message's body, which a repetition has, too.
    pub body: String,
    /// Time for which a repetition is recognised.
    pub window: Duration,
    /// Next step of its task, still empty.
    pub continued: Outgoing,
    /// Held until the entry is written, or will not be.
    pub entry_notice: Option<Arc<EntryNotice>>,
}

impl Finished {
    /// Returns the stored parts of the reply in that outcome: the queue, if it is not the one that the
    /// message asked for, and the message. None if there is no reply.
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

/// Returns the outcome of a repetition of a finished message: the reply, if there was one, is sent again.
/// One that was for the caller goes to this message's caller, if it has one. The next step of a long task is of the
/// run of this message.
pub fn repeated(stored: Option<StoredReply>, continued: &Outgoing) -> Outcome {
    let Some(StoredReply {
        queue,
        body,
        mut headers,
    }) = stored
    else {
        return Outcome::Done;
    };
    match queue.or_else(|| continued.reply_to.clone()) {
        Some(queue) => {
            headers.retain(|(name, _)| !RUN_HEADERS.contains(&name.as_str()));
            if queue == continued.queue {
                headers.extend(continued.headers.iter().cloned());
            }
            Outcome::Reply(Box::new(Outgoing {
                queue,
                body,
                headers,
                ..continued.clone()
            }))
        }
        None => Outcome::Done,
    }
}

/// Reports, when it is dropped, that the entry is written, or will not be.
#[derive(Debug)]
pub struct EntryNotice {
    identity: Identity,
    entered: Arc<EnteredIdentities>,
}

impl EntryNotice {
    /// Makes one that reports to `entered`.
    pub fn new(identity: Identity, entered: &Arc<EnteredIdentities>) -> Arc<Self> {
        let entered = Arc::clone(entered);
        Arc::new(Self { identity, entered })
    }
}

impl Drop for EntryNotice {
    fn drop(&mut self) {
        self.entered.lock().push(self.identity.clone());
        self.entered.added.notify_one();
    }
}

/// Identities reported from other threads; no more than are in flight.
#[derive(Debug, Default)]
pub struct EnteredIdentities {
    identities: Mutex<Vec<Identity>>,
    added: Notify,
}

impl EnteredIdentities {
    /// Waits for reports, and takes all of them. Cancel-safe.
    pub async fn next(&self) -> Vec<Identity> {
        self.added.notified().await;
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Identity>> {
        // The guarded value is never left half changed.
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
            entry_notice: None,
        }
    }

    #[test]
    fn a_reply_goes_where_this_message_asks_for_it_or_where_the_worker_said() {
        // Reply-to of the first, destination of its reply, reply-to of the second, destination of its reply.
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
