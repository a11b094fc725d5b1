//! The outcome of a message: one pure function of the event and the pool's policy. It does not wait, read a
//! clock or know a broker.

use std::collections::HashSet;
use std::time::Duration;

use super::publish_to::allows;
use ganger_config::model::{Options, PoolConfig};
use ganger_core::names::{
    CONTENT_ENCODING_HEADER, CONTENT_TYPE_HEADER, OWN_HEADER_PREFIX, STEP_HEADER,
};
use ganger_protocol::output::Output;
use ganger_protocol::status::{Answer, Meaning, Status};
use ganger_queue::attempts;
use ganger_queue::delivery::{
    CANCELLED, Failure, Headers, History, Message, Outcome, Outgoing, Reason,
};

/// An event of a message in flight at a worker.
#[derive(Debug)]
pub enum Event {
    /// The worker answered.
    Answered(Output),
    /// The worker answered after the daemon had asked it to give the message up.
    Yielded(Output),
    /// The worker answered after an operator had cancelled the message.
    Cancelled(Output),
    /// The worker answered after the message's timeout, of which it was informed.
    TimedOut {
        /// The answer.
        answer: Output,
        /// The timeout.
        limit: Duration,
    },
    /// The attempt failed without an answer: a crash, a timeout, a protocol error.
    Failed(Failure),
    /// The message was not begun, or was stopped by the daemon.
    Stopped {
        /// The message was one of several that a worker had begun when it died.
        suspect: bool,
    },
}

impl Event {
    /// Returns the worker's answer, if it gave one.
    pub fn answer(&self) -> Option<&Output> {
        match self {
            Self::Answered(answer)
            | Self::Yielded(answer)
            | Self::Cancelled(answer)
            | Self::TimedOut { answer, .. } => Some(answer),
            Self::Failed(_) | Self::Stopped { .. } => None,
        }
    }
}

/// The message of an event, and the rules for it.
#[derive(Debug, Clone, Copy)]
pub struct Case<'a> {
    /// The message.
    pub message: &'a Message,
    /// Attempts so far.
    pub history: History,
    /// The pool's rules.
    pub policy: &'a PoolConfig,
    /// A number between 0 and 1 for the jitter.
    pub chance: f64,
}

/// Decides the outcome of the message.
pub fn decide(event: Event, case: Case<'_>) -> Outcome {
    match event {
        Event::Answered(output) => answered(output, None, case),
        Event::TimedOut { answer, limit } => answered(answer, Some(limit), case),
        Event::Yielded(output) => yielded(output, case),
        Event::Cancelled(output) => cancelled(output, case),
        Event::Failed(failure) => failed(failure, None, case),
        Event::Stopped { suspect } => Outcome::Return { suspect },
    }
}

/// Decides on an answer. An answer after the timeout counts like any other; a failure is then attributed to
/// the timeout.
fn answered(output: Output, exceeded: Option<Duration>, case: Case<'_>) -> Outcome {
    let status = output.status;
    let failure = |what: &str| match exceeded {
        None => Failure::new(Reason::Failed, said(&output, what)),
        Some(limit) => {
            let what = format!("timed out after {limit:?}: {what}");
            Failure::new(Reason::TimedOut, said(&output, &what))
        }
    };
    match meaning(status, case.policy) {
        Answer::Done => Outcome::Done,
        Answer::Reply => reply(output, case),
        Answer::Requeue => Outcome::Requeue {
            after: attempts::requeue_after(case.history.requeues),
        },
        Answer::Reject => Outcome::DeadLetter(Box::new(Failure::new(
            Reason::Rejected,
            said(&output, "rejected by the worker"),
        ))),
        Answer::Retry => {
            let asked = output.retry_after_ms.map(Duration::from_millis);
            failed(failure("the worker asked for a retry"), asked, case)
        }
        Answer::Failed => {
            let failure = failure(&format!("the worker answered {status}"));
            failed(failure, None, case)
        }
    }
}

/// Decides on an answer to a request to yield. Done and reject count. Any other answer may be a mere
/// consequence of the request, so it is not charged: otherwise the message would be dead after as many
/// deploys as it has attempts.
fn yielded(output: Output, case: Case<'_>) -> Outcome {
    match meaning(output.status, case.policy) {
        Answer::Done | Answer::Reply | Answer::Reject => answered(output, None, case),
        Answer::Retry => match output.retry_after_ms.map(Duration::from_millis) {
            Some(asked) => Outcome::ReturnAfter {
                delay: asked.min(case.policy.retry.backoff.max),
            },
            None => Outcome::Return { suspect: false },
        },
        Answer::Requeue | Answer::Failed => Outcome::Return { suspect: false },
    }
}

/// Decides on an answer to a cancelled message. Done counts. Anything else makes it a dead letter, from which
/// it can be sent back: the message must not run again by itself.
fn cancelled(output: Output, case: Case<'_>) -> Outcome {
    match meaning(output.status, case.policy) {
        Answer::Done | Answer::Reply | Answer::Reject => answered(output, None, case),
        Answer::Requeue | Answer::Retry | Answer::Failed => {
            let status = output.status;
            let error = said(
                &output,
                &format!("{CANCELLED}; the worker answered {status}"),
            );
            Outcome::DeadLetter(Box::new(Failure::new(Reason::Cancelled, error)))
        }
    }
}

/// Returns the meaning of a status in this pool.
fn meaning(status: Status, policy: &PoolConfig) -> Answer {
    match (policy.statuses.get(&status.0).copied(), status.meaning()) {
        (Some(answer), _) | (None, Meaning::Answer(answer)) => answer,
        // A note never counts as an answer: otherwise a message could be taken for done by accident.
        (None, Meaning::Note(_)) => Answer::Failed,
    }
}

/// Maximum length of a worker's text in an error, in characters.
const ERROR_CHARS_MAX: usize = 2_000;

fn said(output: &Output, what: &str) -> String {
    let text = String::from_utf8_lossy(&output.message);
    match text.trim() {
        "" => what.to_owned(),
        text => {
            let text: String = text.chars().take(ERROR_CHARS_MAX).collect();
            format!("{what}: {text}")
        }
    }
}

/// Decides on a failed attempt: a retry later, or a dead letter if it was the last attempt or has
/// killed too many workers.
fn failed(mut failure: Failure, asked: Option<Duration>, case: Case<'_>) -> Outcome {
    let Case {
        history,
        policy,
        chance,
        ..
    } = case;
    let crashes = attempts::crashes(history.crashes, failure.reason);
    if failure.reason.is_crash() && attempts::is_spent(crashes, policy.crashes_max) {
        failure.error = format!("{}: {}", attempts::crashed(crashes), failure.error);
        return Outcome::DeadLetter(Box::new(failure));
    }
    let hopeless = matches!(failure.reason, Reason::Undeliverable | Reason::Cancelled);
    let most = history.attempts_max.unwrap_or(policy.retry.attempts);
    if hopeless || history.attempt >= most {
        return Outcome::DeadLetter(Box::new(failure));
    }
    let backoff = &policy.retry.backoff;
    let delay = asked.map_or_else(
        || backoff.wait(history.attempt, chance),
        |d| d.min(backoff.max),
    );
    Outcome::RetryAfter {
        delay,
        failure: Box::new(failure),
    }
}

fn reply(output: Output, case: Case<'_>) -> Outcome {
    let to = destination(&output, case.message);
    let error = match &to {
        None if case.history.keeps_result => return Outcome::Done,
        None => NOWHERE.to_owned(),
        Some(to) => match refusal(to, &output, case) {
            None => return Outcome::Reply(Box::new(continued(to.clone(), output, case))),
            Some(refusal) => format!("the reply is refused: {refusal}"),
        },
    };
    Outcome::DeadLetter(Box::new(Failure {
        reason: Reason::UnroutableReply,
        error,
        reply: Some(Box::new(continued(to.unwrap_or_default(), output, case))),
        ..Failure::default()
    }))
}

/// Builds a reply. One to the message's own queue is the next step of a long task: it is of the same run, and has
/// as many attempts. One to another queue is the result of the run.
fn continued(queue: String, output: Output, case: Case<'_>) -> Outgoing {
    let mut next = outgoing(queue, output, case);
    if *case.message.queue == *next.queue {
        next.headers.extend(case.history.of_run(case.message));
    }
    next
}

const NOWHERE: &str =
    "the reply has no destination: the message has no reply-to, and the answer names no queue";

/// Returns the destination of a reply or an emit: the queue that the worker names, or else the one that the
/// message asks for.
pub fn destination(output: &Output, message: &Message) -> Option<String> {
    output
        .reply_queue
        .clone()
        .or_else(|| message.reply_to.clone())
}

/// Returns the reason not to send to that queue, if any: the pool may not send there, or the chain of
/// messages would never end.
pub fn refusal(to: &str, output: &Output, case: Case<'_>) -> Option<String> {
    let Case {
        message,
        history,
        policy,
        ..
    } = case;
    let pool = &policy.name;
    if !allows(policy.publish_to.as_deref(), to) {
        return Some(format!(
            "pools.{pool}.publish_to must allow its queue: `{to}`"
        ));
    }
    if output.reply_queue.is_none() && reads(policy, message, to) {
        return Some(format!(
            "the message's reply-to is `{to}`, which this pool reads: it would be answered for \
             ever. A worker that continues its task later must name that queue itself"
        ));
    }
    (history.step >= policy.steps_max).then(|| {
        format!(
            "its task has continued as another message {} times, and pools.{pool}.steps_max is {}",
            history.step, policy.steps_max
        )
    })
}

/// Returns whether the pool reads that queue.
fn reads(policy: &PoolConfig, message: &Message, queue: &str) -> bool {
    match &policy.options {
        Options::Kafka(options) => options.topics.include(queue),
        Options::Table | Options::RabbitMq(_) => *message.queue == *queue,
    }
}

/// Builds a message that continues `message`, as the next step of its task.
pub fn outgoing(queue: String, output: Output, case: Case<'_>) -> Outgoing {
    let Case {
        message, history, ..
    } = case;
    let mut headers = overlaid(message, output.headers.unwrap_or_default());
    let step = history.step.saturating_add(1);
    headers.push((STEP_HEADER.to_owned(), step.to_string()));
    Outgoing {
        queue,
        body: output.message,
        headers,
        ..message.continued()
    }
}

/// Returns a name that the message keeps over all its attempts and shares with no other: the number of its
/// row, its partition and offset, or its source's own number for it, where it has them. A message id alone is
/// not enough: the steps of a long task share it, although their content differs.
pub fn lasting_name(message: &Message) -> String {
    let mut name = String::new();
    if !message.write_numbers(&mut name) {
        let id = text(message, "message_id").unwrap_or_else(|| message.correlation_id.clone());
        name = format!("{id}:{:x}", fingerprint(message));
    }
    name
}

/// Returns the 64-bit FNV-1a hash of the worker's task. It is the same in every version of ganger.
fn fingerprint(message: &Message) -> u64 {
    let add = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let headers = message.headers.iter();
    let texts = headers.flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]);
    let parts = texts.chain([&message.body[..]]);
    // Each part ends with a byte that no UTF-8 has, so that the boundaries are unambiguous.
    parts.fold(0xcbf2_9ce4_8422_2325, |hash, part| {
        part.iter().chain(&[0xff]).fold(hash, add)
    })
}

/// Returns the message's headers overlaid with the worker's, without ganger's own. The message's
/// labels describe another body: its encoding is dropped, and its content type kept only if neither
/// the worker nor a property gives one.
fn overlaid(message: &Message, above: Headers) -> Headers {
    let own = |name: &str| {
        name.get(..OWN_HEADER_PREFIX.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(OWN_HEADER_PREFIX))
    };
    let is_type = |name: &str| name.eq_ignore_ascii_case(CONTENT_TYPE_HEADER);
    let has_type =
        message.text("content_type").is_some() || above.iter().any(|(name, _)| is_type(name));
    let replaced: HashSet<&str> = above.iter().map(|(name, _)| name.as_str()).collect();
    let kept = message.headers.iter().filter(|(name, _)| {
        let is_of_the_body =
            name.eq_ignore_ascii_case(CONTENT_ENCODING_HEADER) || has_type && is_type(name);
        !replaced.contains(name.as_str()) && !is_of_the_body
    });
    let mut headers: Headers = kept.cloned().collect();
    headers.extend(above);
    headers.retain(|(name, _)| !own(name));
    headers
}

/// Returns a property of the message that is a text.
pub fn text(message: &Message, name: &str) -> Option<String> {
    message.text(name).map(ToOwned::to_owned)
}

#[cfg(test)]
pub(crate) mod tests;
