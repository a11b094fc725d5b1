//! What becomes of a message: one pure function from what happened and the pool's policy to an
//! outcome. Nothing here waits, reads a clock or knows a broker.

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

/// What happened to a message in a worker's hands.
#[derive(Debug)]
pub enum Event {
    /// The worker answered.
    Answered(Output),
    /// The worker answered after we had asked it to give the message up.
    Yielded(Output),
    /// The worker answered after an operator had cancelled the message.
    Cancelled(Output),
    /// The worker answered after the message's time was up, which it was told.
    TimedOut {
        /// What it answered.
        answer: Output,
        /// How long it might have taken.
        limit: Duration,
    },
    /// The attempt failed without an answer: a crash, a timeout, a protocol error.
    Failed(Failure),
    /// Not begun, or stopped by us.
    Stopped {
        /// It was one of several that a worker had begun when it died.
        suspect: bool,
    },
}

/// The message that it happened to, and the rules for it.
#[derive(Debug, Clone, Copy)]
pub struct Case<'a> {
    /// The message.
    pub message: &'a Message,
    /// How often it was tried.
    pub history: History,
    /// The pool's rules.
    pub policy: &'a PoolConfig,
    /// A number between 0 and 1 for the jitter.
    pub chance: f64,
}

/// Decides what becomes of the message.
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

/// What is said after the limit of a message's time counts as ever. That it has failed is then the
/// limit's doing.
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

/// What is done counts, and so does a reject. All else may be nothing but obedience: it is charged
/// to nobody, or the message would be dead after as many deploys as it has attempts.
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

/// What is done is done. What is not goes to the dead letters, where it can be sent back from: it is
/// not to run again by itself.
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

/// What an answer means in this pool.
fn meaning(status: Status, policy: &PoolConfig) -> Answer {
    match (policy.statuses.get(&status.0).copied(), status.meaning()) {
        (Some(answer), _) | (None, Meaning::Answer(answer)) => answer,
        // No note is an answer: it would be taken for done by accident.
        (None, Meaning::Note(_)) => Answer::Failed,
    }
}

/// How much of a worker's text goes into an error.
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

/// A failed attempt: again later, or to the dead letters if it was the last or has killed too
/// many workers.
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
    if hopeless || history.attempt >= policy.retry.attempts {
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
        None => NOWHERE.to_owned(),
        Some(to) => match refusal(to, &output, case) {
            None => return Outcome::Reply(Box::new(outgoing(to.clone(), output, case))),
            Some(refusal) => format!("the reply is refused: {refusal}"),
        },
    };
    Outcome::DeadLetter(Box::new(Failure {
        reason: Reason::UnroutableReply,
        error,
        reply: Some(Box::new(outgoing(to.unwrap_or_default(), output, case))),
        ..Failure::default()
    }))
}

const NOWHERE: &str =
    "the reply has nowhere to go: the message has no reply-to and the answer names no queue";

/// Where a reply or an emit goes: where the worker says, else where the message asks for it.
pub fn destination(output: &Output, message: &Message) -> Option<String> {
    output
        .reply_queue
        .clone()
        .or_else(|| message.reply_to.clone())
}

/// Why that may not go there, if so: the pool does not send there, or it would go on for ever.
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
            "the message's reply-to is `{to}`, which this pool reads: it would be answered for ever. A \
             worker that goes on later names that queue itself"
        ));
    }
    (history.step >= policy.steps_max).then(|| {
        format!(
            "its task has gone on as another message {} times, and pools.{pool}.steps_max is {}",
            history.step, policy.steps_max
        )
    })
}

/// Whether the pool reads that queue.
fn reads(policy: &PoolConfig, message: &Message, queue: &str) -> bool {
    match &policy.options {
        Options::Kafka(options) => options.topics.include(queue),
        Options::Table | Options::RabbitMq(_) => *message.queue == *queue,
    }
}

/// A message that continues `message`, as the next step of its task.
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

/// A name that the message keeps over all its attempts and shares with no other: the number of its
/// row, its partition and offset, or its source's own number for it, where it has them. A message id
/// alone need not do, since the steps of a long task hand it on: but they differ in what is to be
/// done.
pub fn lasting_name(message: &Message) -> String {
    let mut name = String::new();
    if !message.write_numbers(&mut name) {
        let id = text(message, "message_id").unwrap_or_else(|| message.correlation_id.clone());
        name = format!("{id}:{:x}", fingerprint(message));
    }
    name
}

/// The 64-bit FNV-1a hash of what a worker is asked to do. The same in every version of ganger.
fn fingerprint(message: &Message) -> u64 {
    let add = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let headers = message.headers.iter();
    let texts = headers.flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]);
    let parts = texts.chain([&message.body[..]]);
    // After each part a byte that no UTF-8 has, so that the parts can't be taken for others.
    parts.fold(0xcbf2_9ce4_8422_2325, |hash, part| {
        part.iter().chain(&[0xff]).fold(hash, add)
    })
}

/// The message's headers, the worker's over them, ours taken out. What they say of the body is that of
/// another one: of its encoding nothing is kept, of its type what neither the worker nor a property
/// says.
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

/// A property of the message that is a text.
pub fn text(message: &Message, name: &str) -> Option<String> {
    message.text(name).map(ToOwned::to_owned)
}

#[cfg(test)]
pub(crate) mod tests;
