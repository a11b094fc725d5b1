//! The decisions of a table source, as pure functions: the size of a claim, the time of the next poll, the
//! texts that fit into a dead letter. No SQL, no clock, no channel.

use std::borrow::Cow;
use std::time::Duration;

use ganger_queue::credit;
use ganger_queue::dead_letter::{DEAD_LETTER_BYTES_MAX, without_end};
use ganger_queue::delivery::{Failure, Intake, Outcome};
use ganger_queue::publishing::{NAME_BYTES_MAX, undeliverable};

/// Maximum number of rows that one transaction claims or makes ready, so that none holds the lock for
/// long.
pub(crate) const ROWS_PER_TURN_MAX: u32 = 1000;

/// Maximum bytes of bodies and headers that one source has in flight.
pub(crate) const BYTES_OUT_MAX: usize = 32 << 20;

/// Maximum bytes that one transaction writes; a single larger item is written alone. PostgreSQL takes no
/// more than 1 GB in a statement, and others should not wait for long.
pub(crate) const BYTES_PER_TURN_MAX: usize = 32 << 20;

/// Returns the number of bytes to be written for an outcome, as far as they matter.
pub(crate) fn bytes(outcome: &Outcome) -> usize {
    match outcome {
        Outcome::Reply(reply) => reply.bytes(),
        Outcome::DeadLetter(failure) | Outcome::RetryAfter { failure, .. } => {
            let error = failure.error.len().min(DEAD_LETTER_BYTES_MAX);
            error + failure.reply.as_ref().map_or(0, |reply| reply.bytes())
        }
        Outcome::Done
        | Outcome::Requeue { .. }
        | Outcome::Return { .. }
        | Outcome::ReturnAfter { .. } => 0,
    }
}

/// Returns the number of items, in order, that fit into a transaction with room for `most` bytes: at
/// least the first.
pub(crate) fn fitting_together(bytes: impl Iterator<Item = usize>, most: usize) -> usize {
    let mut upto = 0_usize;
    let fits = bytes.enumerate().take_while(|(place, bytes)| {
        upto = upto.saturating_add(*bytes);
        *place == 0 || upto <= most
    });
    fits.count()
}

/// Returns the number of rows that one transaction may claim, with `out` rows in flight.
pub(crate) fn room(intake: Intake, out: usize) -> usize {
    credit::room(intake, out).min(ROWS_PER_TURN_MAX as usize)
}

/// Maximum bytes of the name of a queue to which a reply could not be sent: more than any broker allows,
/// and fewer than any text column holds.
const REPLY_QUEUE_BYTES_MAX: usize = 4 << 10;

/// Texts that a table stores of a failure, in a form that a text column of any database accepts, whatever
/// names or output the worker chose.
#[derive(Debug)]
pub(crate) struct FailureTexts<'a> {
    /// The error.
    pub(crate) error: Cow<'a, str>,
    /// The last lines of stderr, as a JSON array.
    pub(crate) stderr: String,
    /// Destination of the reply, if there is one.
    pub(crate) reply_queue: Option<Cow<'a, str>>,
}

/// Returns a failure's texts, cut to the size allowed in a dead letter: the oldest lines of stderr are
/// dropped first, then the end of the error.
pub(crate) fn texts(failure: &Failure) -> FailureTexts<'_> {
    let error = error_text(failure);
    let mut room = DEAD_LETTER_BYTES_MAX - error.len();
    let lines = failure.stderr.iter().rev().map(|line| storable(line));
    let kept = lines.take_while(|line| {
        // As JSON: two quotes and a comma, and at most six bytes for one byte.
        let bytes = 3 + line.chars().map(json_bytes).sum::<usize>();
        let fits = bytes <= room;
        room = room.saturating_sub(bytes);
        fits
    });
    let mut stderr: Vec<Cow<'_, str>> = kept.collect();
    stderr.reverse();
    let reply = failure.reply.as_deref();
    FailureTexts {
        error,
        stderr: serde_json::Value::from(stderr).to_string(),
        reply_queue: reply.map(|reply| text(&reply.queue, REPLY_QUEUE_BYTES_MAX)),
    }
}

/// Returns the error alone.
pub(crate) fn error_text(failure: &Failure) -> Cow<'_, str> {
    cut_error(&failure.error)
}

/// Returns an error as a row holds it.
pub(crate) fn cut_error(error: &str) -> Cow<'_, str> {
    text(error, DEAD_LETTER_BYTES_MAX)
}

/// Maximum bytes of a result that the ledger keeps.
const RESULT_BYTES_MAX: usize = 64 << 10;

/// Returns the result of a run, as far as the ledger keeps it; none if it is empty.
pub(crate) fn result_text(result: &[u8]) -> Option<Cow<'_, str>> {
    Some(match String::from_utf8_lossy(result) {
        Cow::Borrowed("") => return None,
        Cow::Borrowed(result) => text(result, RESULT_BYTES_MAX),
        Cow::Owned(result) => Cow::Owned(text(&result, RESULT_BYTES_MAX).into_owned()),
    })
}

fn text(text: &str, bytes_max: usize) -> Cow<'_, str> {
    match storable(text) {
        Cow::Borrowed(text) => without_end(text, bytes_max),
        Cow::Owned(text) => Cow::Owned(without_end(&text, bytes_max).into_owned()),
    }
}

/// Replaces NUL characters: PostgreSQL accepts none in a text, and many clients end a text there.
pub(crate) fn storable(text: &str) -> Cow<'_, str> {
    match text.contains('\0') {
        true => Cow::Owned(text.replace('\0', "\u{fffd}")),
        false => Cow::Borrowed(text),
    }
}

fn json_bytes(c: char) -> usize {
    match c {
        '\n' | '\r' | '\t' | '"' | '\\' => 2,
        c if c.is_ascii_control() => 6,
        c => c.len_utf8(),
    }
}

/// Returns the outcome to try instead of one that the database permanently rejects; none if nothing is
/// left to try.
pub(crate) fn simplified(outcome: &Outcome, problem: &str) -> Option<Outcome> {
    match outcome {
        Outcome::Reply(reply) => {
            let failure = undeliverable(reply.clone(), problem);
            Some(Outcome::DeadLetter(Box::new(failure)))
        }
        Outcome::DeadLetter(failure) => without_details(failure, problem).map(Outcome::DeadLetter),
        Outcome::RetryAfter { delay, failure } => {
            without_details(failure, problem).map(|failure| Outcome::RetryAfter {
                delay: *delay,
                failure,
            })
        }
        Outcome::Done
        | Outcome::Requeue { .. }
        | Outcome::Return { .. }
        | Outcome::ReturnAfter { .. } => None,
    }
}

/// Returns the failure with less content: first without its texts, then with a note in place of the
/// reply, which is the result of the work, and last with neither. None if there is nothing left to
/// remove.
fn without_details(failure: &Failure, problem: &str) -> Option<Box<Failure>> {
    let mut reduced = Failure {
        reason: failure.reason,
        exit: failure.exit,
        reply: failure.reply.clone(),
        ..Failure::default()
    };
    if reduced == *failure {
        let reply = reduced.reply.take()?;
        let (queue, bytes) = (text(&reply.queue, NAME_BYTES_MAX), reply.body.len());
        reduced.error = format!("the reply to `{queue}`, {bytes} bytes, can't be kept: {problem}");
    }
    Some(Box::new(reduced))
}

/// Returns the time until the next poll of a queue that has nothing ready.
pub(crate) fn next_poll(poll_interval: Duration, due_in: Option<Duration>) -> Duration {
    due_in.map_or(poll_interval, |due_in| due_in.min(poll_interval))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ganger_queue::delivery::{Exit, Outgoing, Reason};
    use proptest::prelude::*;

    #[test]
    fn one_transaction_claims_no_more_than_it_may() {
        let most = ROWS_PER_TURN_MAX as usize;
        for (credit, expected) in [(4, 3), (most, most - 1), (most + 1, most), (most * 9, most)] {
            assert_eq!(room(Intake::Credit(credit), 1), expected, "{credit}");
        }
    }

    #[test]
    fn the_newest_lines_of_stderr_stay() {
        let failure = Failure {
            error: "e".repeat(1000),
            stderr: (0..64)
                .map(|n| format!("{n} {}", "x".repeat(1000)))
                .collect(),
            ..Failure::default()
        };
        let texts = texts(&failure);
        assert_eq!(texts.error.len(), 1000);
        let stderr: Vec<String> = serde_json::from_str(&texts.stderr).unwrap();
        assert_eq!(stderr.len(), 15);
        assert_eq!(stderr.last(), failure.stderr.last());
    }

    #[test]
    fn no_text_of_a_failure_has_what_a_column_does_not_take() {
        let queue = "answers\0".repeat(1000);
        let failure = Failure {
            error: "a\0b".to_owned(),
            stderr: vec!["c\0d".to_owned()],
            reply: Some(Box::new(Outgoing {
                queue,
                ..Outgoing::default()
            })),
            ..Failure::default()
        };
        let texts = texts(&failure);
        assert_eq!(texts.error, "a\u{fffd}b");
        assert_eq!(texts.stderr, "[\"c\u{fffd}d\"]");
        let queue = texts.reply_queue.unwrap();
        assert!(queue.starts_with("answers\u{fffd}answers"), "{queue}");
        assert!(queue.len() <= REPLY_QUEUE_BYTES_MAX, "{}", queue.len());
    }

    #[test]
    fn a_refused_outcome_gets_plainer_until_nothing_is_left() {
        let reply = Outgoing {
            queue: "r".to_owned(),
            ..Outgoing::default()
        };
        let first = simplified(&Outcome::Reply(Box::new(reply)), "too big").unwrap();
        let Outcome::DeadLetter(failure) = &first else {
            panic!("{first:?}")
        };
        assert_eq!(
            failure.error,
            "the reply to `r` can't be delivered: too big"
        );
        assert_eq!(failure.reply.as_ref().unwrap().queue, "r");
        let second = simplified(&first, "too big").unwrap();
        assert!(
            matches!(&second, Outcome::DeadLetter(failure) if failure.error.is_empty() && failure.reply.is_some())
        );
        let third = simplified(&second, "too big").unwrap();
        let Outcome::DeadLetter(failure) = &third else {
            panic!("{third:?}")
        };
        let note = "the reply to `r`, 0 bytes, can't be kept: too big";
        assert_eq!((failure.error.as_str(), &failure.reply), (note, &None));
        let last = simplified(&third, "too big").unwrap();
        assert!(matches!(&last, Outcome::DeadLetter(failure) if failure.error.is_empty()));
        assert_eq!(simplified(&last, "too big"), None);
        assert_eq!(simplified(&Outcome::Done, "too big"), None);
        let exit = Some(Exit::default());
        let retry = Outcome::RetryAfter {
            delay: Duration::from_secs(3),
            failure: Box::new(Failure {
                exit,
                error: "why".to_owned(),
                reason: Reason::Crashed,
                ..Failure::default()
            }),
        };
        let plain = simplified(&retry, "").unwrap();
        assert!(matches!(plain, Outcome::RetryAfter { failure, .. } if failure.reason.is_crash()));
    }

    #[test]
    fn what_is_written_together_fits_or_is_alone() {
        for (bytes, expected) in [
            (&[][..], 0),
            (&[4, 4, 2], 3),
            (&[4, 4, 3], 2),
            (&[11, 0], 1),
            (&[4, usize::MAX, 1], 1),
        ] {
            assert_eq!(
                fitting_together(bytes.iter().copied(), 10),
                expected,
                "{bytes:?}"
            );
        }
    }

    #[test]
    fn the_next_look_is_at_what_falls_due_or_the_poll() {
        let second = Duration::from_secs(1);
        assert_eq!(next_poll(second, None), second);
        assert_eq!(next_poll(second, Some(second * 2)), second);
        assert_eq!(next_poll(second, Some(second / 2)), second / 2);
    }

    proptest! {
        #[test]
        fn a_dead_letters_metadata_fits(
            error in "\\PC{0,300}",
            times in 0usize..200,
            stderr in proptest::collection::vec(".{0,400}", 0..64),
        ) {
            let failure = Failure { error: error.repeat(times), stderr, ..Failure::default() };
            let FailureTexts { error, stderr: json, .. } = texts(&failure);
            let stderr: Vec<String> = serde_json::from_str(&json).unwrap();
            prop_assert!(error.len() + json.len() <= DEAD_LETTER_BYTES_MAX + 2);
            let whole = failure.error.len() <= DEAD_LETTER_BYTES_MAX;
            prop_assert_eq!(error == failure.error, whole);
            prop_assert_eq!(error.ends_with(" bytes cut)"), !whole);
            let said: Vec<_> = failure.stderr.iter().map(|line| storable(line)).collect();
            prop_assert!(said.ends_with(&stderr.iter().map(Cow::from).collect::<Vec<_>>()));
        }
    }
}
