//! Purpose of a publication, the action after its failure, and the time for which it is awaited during a
//! shutdown. Pure.

use std::time::Duration;

use rdkafka::error::RDKafkaErrorCode as Code;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::dead_letter_write::DeadLetterWrite;
use super::ordering::Position;
use crate::broker::error;
use crate::broker::producer::FailureAction;
use crate::broker::record::Outbound;
use ganger_queue::delivery::{Outgoing, PublishError};

/// Time for which an unconfirmed publication is awaited.
pub(super) const WITHIN: Duration = Duration::from_secs(3);

/// A record to publish.
#[derive(Debug)]
pub(super) struct Publication {
    pub(super) record: Outbound,
    pub(super) purpose: Purpose,
}

/// Purpose of a publication, and so the effect of its confirmation.
#[derive(Debug)]
pub(super) enum Purpose {
    /// Reply of a message, which is done with it.
    Reply {
        place: Position,
        reply: Box<Outgoing>,
    },
    /// Copy that waits in a tier; the message is done with it.
    Tier { place: Position, due: Instant },
    /// Record of a dead letter; the message is done with the last one.
    DeadLetter {
        place: Position,
        write: Box<DeadLetterWrite>,
    },
    /// An emit: its caller waits for the result.
    Emit {
        queue: String,
        confirmed: oneshot::Sender<Result<(), PublishError>>,
    },
}

impl Purpose {
    /// Returns the action after such a failure. A dead letter is the only remaining copy of its message: it
    /// is sent until it is accepted, in a smaller form if needed. A record that an external topic has not
    /// accepted for too long is given up.
    pub(super) fn on_failure(&self, code: Code, is_too_long: bool) -> FailureAction {
        let gives_up = match self {
            Self::DeadLetter { write, .. } => write.may_shrink(code),
            Self::Tier { .. } => error::is_permanent(code),
            Self::Reply { .. } | Self::Emit { .. } => is_too_long || error::is_permanent(code),
        };
        if gives_up {
            FailureAction::GiveUp
        } else if error::is_permanent(code) {
            FailureAction::RetryRejected
        } else {
            FailureAction::Retry
        }
    }

    /// Returns its external destination topic, if it has one.
    pub(super) fn external_topic(&self) -> Option<&str> {
        match self {
            Self::Reply { reply, .. } => Some(&reply.queue),
            Self::Emit { queue, .. } => Some(queue),
            Self::Tier { .. } | Self::DeadLetter { .. } => None,
        }
    }

    /// Returns the message that it settles.
    pub(super) fn place(&self) -> Option<Position> {
        match self {
            Self::Reply { place, .. }
            | Self::Tier { place, .. }
            | Self::DeadLetter { place, .. } => Some(*place),
            Self::Emit { .. } => None,
        }
    }

    /// Returns whether, at this age, neither a shutdown nor the release of a partition waits for it.
    pub(super) fn is_undeliverable(&self, age: Duration) -> bool {
        match self {
            Self::Reply { .. } | Self::Tier { .. } | Self::DeadLetter { .. } => age >= WITHIN,
            // Its caller no longer waits: the task behind it has failed, and is retried.
            Self::Emit { confirmed, .. } => confirmed.is_closed(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_and_copies_are_given_time_and_what_nobody_waits_for_none() {
        let place = 1;
        let reply = Purpose::Reply {
            place,
            reply: Box::default(),
        };
        let tier = Purpose::Tier {
            place,
            due: Instant::now(),
        };
        for purpose in [reply, tier] {
            assert!(!purpose.is_undeliverable(WITHIN - Duration::from_millis(1)));
            assert!(purpose.is_undeliverable(WITHIN));
        }
        let (confirmed, told) = oneshot::channel();
        let emit = Purpose::Emit {
            queue: "q".to_owned(),
            confirmed,
        };
        assert!(
            !emit.is_undeliverable(WITHIN * 100),
            "its task is worked on"
        );
        drop(told);
        assert!(emit.is_undeliverable(Duration::ZERO));
    }
}
