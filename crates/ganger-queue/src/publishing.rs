//! Handling of confirmed and refused replies and emits, for all kinds of source.

use std::time::Duration;

use tokio::sync::oneshot;

use crate::dead_letter::without_end;
use crate::delivery::{Failure, Outgoing, PublishError, Reason};

/// Longest time that another's queue may take nothing while its broker listens. After that a reply to it
/// is dead-lettered, and an emit to it fails its task.
pub const UNDELIVERABLE_AFTER: Duration = Duration::from_mins(5);

/// Maximum bytes of a queue's name that an error repeats: a worker may name anything.
pub const NAME_BYTES_MAX: usize = 1 << 10;

/// Returns the failure of a finished message whose reply can't be delivered: a dead letter with the
/// reply, since the work is not repeated.
pub fn undeliverable(reply: Box<Outgoing>, why: &str) -> Failure {
    let queue = without_end(&reply.queue, NAME_BYTES_MAX);
    Failure {
        reason: Reason::UnroutableReply,
        error: format!("the reply to `{queue}` can't be delivered: {why}"),
        reply: Some(reply),
        ..Failure::default()
    }
}

/// Answers the sender of an emit. It is no problem if nobody waits any more: the emit is stored, and may
/// be stored again.
pub fn confirm(
    confirmed: oneshot::Sender<Result<(), PublishError>>,
    queue: &str,
    result: Result<(), String>,
) {
    let result = result.map_err(|why| PublishError {
        queue: queue.to_owned(),
        why,
    });
    drop(confirmed.send(result));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_that_nobody_takes_is_in_the_letter_with_the_reason() {
        let reply = Outgoing {
            queue: "answers".to_owned(),
            body: "42".into(),
            ..Outgoing::default()
        };
        let failure = undeliverable(Box::new(reply.clone()), "it is full");
        assert_eq!(
            failure.error,
            "the reply to `answers` can't be delivered: it is full"
        );
        assert_eq!(failure.reason, Reason::UnroutableReply);
        assert_eq!(failure.reply.as_deref(), Some(&reply));
    }

    #[test]
    fn whoever_waits_for_an_emit_is_told_and_need_not_wait() {
        let (confirmed, mut told) = oneshot::channel();
        confirm(confirmed, "audit", Err("it is full".to_owned()));
        let error = told.try_recv().unwrap().unwrap_err();
        assert_eq!(
            error.to_string(),
            "publishing to `audit` failed: it is full"
        );
        let (confirmed, told) = oneshot::channel();
        drop(told);
        confirm(confirmed, "audit", Ok(()));
    }
}
