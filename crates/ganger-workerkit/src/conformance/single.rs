//! One message through one worker: the worker's answer, and its resource usage.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::finding::SubjectError;
use super::subject::{Rig, SendOptions, Spoken, Subject};
use ganger_config::model::PoolConfig;
use ganger_core::names;
use ganger_pool::worker::Introduction;
use ganger_pool::worker::output::LastLines;
use ganger_pool::worker::usage::{self, Usage};
use ganger_protocol::Output;
use ganger_queue::delivery::{Exit, Message};

/// Interval at which the worker's usage is read.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Time for a worker to exit once no answer is expected any more.
const LEAVE_WITHIN: Duration = Duration::from_secs(5);

/// Message and worker to try.
#[derive(Debug, Clone)]
pub struct Single {
    /// Start of the worker, and the rules of its pool.
    pub policy: Arc<PoolConfig>,
    /// The message.
    pub message: Message,
    /// Attempt number that the worker is given, from 1.
    pub attempt: u32,
    /// Timeout of the message; none for ever.
    pub limit: Option<Duration>,
}

/// Result of the message.
#[derive(Debug)]
pub struct AttemptResult {
    /// Process id of the worker.
    pub pid: u32,
    /// The answer, if there was one.
    pub answer: Option<Output>,
    /// Its other frames, each with the time since the message was sent.
    pub notes: Vec<(Duration, Output)>,
    /// The problem and its remedy.
    pub trouble: Option<(String, &'static str)>,
    /// Its first frame, if it speaks version 2.
    pub hello: Option<Output>,
    /// Time from the message to the answer, or to the failure to get one.
    pub took: Duration,
    /// Resource usage for the message; none if the message was done too soon to measure it.
    pub used: Option<Usage>,
    /// Last printed lines.
    pub printed: LastLines,
    /// Exit status; none if it had to be killed.
    pub exit: Option<Exit>,
}

/// Runs one message. `ready` gets the worker's process id before the message is sent. Must be called inside a
/// `LocalSet`. If cancelled, it leaves no process behind.
///
/// # Errors
/// Why the worker could not be started, and its last output.
pub async fn attempt(
    single: &Single,
    ready: impl AsyncFnOnce(u32),
) -> Result<AttemptResult, (String, Vec<String>)> {
    let policy = &single.policy;
    let rig = Rc::new(Rig::new(Arc::clone(policy), LEAVE_WITHIN));
    let started = Subject::start(&rig, Introduction::Full).await;
    let subject = started.map_err(|(trouble, words)| match trouble {
        SubjectError::Unstarted(why) => (why, words),
        SubjectError::Silent | SubjectError::Gone | SubjectError::Broken(_) => {
            ("it did not start".into(), words)
        }
    })?;
    let pid = subject.pid();
    ready(pid).await;
    let mut run = Run {
        single,
        subject,
        result: AttemptResult {
            pid,
            answer: None,
            notes: Vec::new(),
            trouble: None,
            hello: None,
            took: Duration::ZERO,
            used: None,
            printed: LastLines::default(),
            exit: None,
        },
        used_before: usage::of_group(pid).unwrap_or_default(),
    };
    if let Err(trouble) = run.one_message().await {
        run.explain(trouble).await;
    }
    Ok(run.end().await)
}

struct Run<'a> {
    single: &'a Single,
    subject: Subject,
    result: AttemptResult,
    used_before: Usage,
}

impl Run<'_> {
    async fn one_message(&mut self) -> Result<(), SubjectError> {
        let text = std::str::from_utf8(&self.single.message.body).is_ok();
        if !text && !self.subject.says_hello().await? {
            let said = "the body is not UTF-8, and the worker speaks version 1: the daemon would \
                 dead-letter the message";
            let mend = "speak version 2, or send text";
            self.result.trouble = Some((said.to_owned(), mend));
            return Ok(());
        }
        let way = SendOptions {
            timeout: self.single.limit,
            attempt: Some(self.single.attempt),
            ..SendOptions::default()
        };
        let begun = Instant::now();
        let id = self.subject.send(&self.single.message, way);
        let heard = self.await_answer(id, begun).await;
        self.result.took = begun.elapsed();
        self.look();
        heard
    }

    /// Reads until the answer. A worker that takes too long is told as the daemon would tell it.
    async fn await_answer(&mut self, id: u64, begun: Instant) -> Result<(), SubjectError> {
        let mut deadline = self.single.limit.map(|limit| begun + limit);
        let mut cancelled = false;
        loop {
            let next_look = Instant::now() + LOOK_EVERY;
            let until = deadline.map_or(next_look, |deadline| deadline.min(next_look));
            match self.subject.next(until).await {
                Ok(Some(output)) if output.status.is_note() => {
                    if output.concurrency().is_none() {
                        self.result.notes.push((begun.elapsed(), output));
                    }
                }
                Ok(Some(answer)) => {
                    self.result.answer = Some(answer);
                    return Ok(());
                }
                Ok(None) => return Err(SubjectError::Gone),
                Err(SubjectError::Silent) => self.look(),
                Err(trouble) => return Err(trouble),
            }
            if deadline.is_none_or(|deadline| Instant::now() < deadline) {
                continue;
            }
            if cancelled {
                return Err(SubjectError::Silent);
            }
            cancelled = true;
            if matches!(self.subject.spoken(), Some(Spoken::Two(_))) {
                self.subject.tell(&format!("{} {id}", names::CANCEL));
            }
            deadline = deadline.map(|deadline| deadline + self.single.policy.timeout_grace);
        }
    }

    fn look(&mut self) {
        if let Some(now) = usage::of_group(self.result.pid) {
            self.result.used = Some(Usage {
                cpu: now.cpu.saturating_sub(self.used_before.cpu),
                peak_bytes: now.peak_bytes,
            });
        }
    }

    async fn explain(&mut self, trouble: SubjectError) {
        self.result.trouble = Some(match trouble {
            SubjectError::Broken(breach) => (
                format!("protocol error: {}", breach.said),
                breach.rule.mend(),
            ),
            SubjectError::Gone => {
                let way = self.subject.describe_end().await;
                let mend = "its stderr may say why; an answer must come before the end";
                (format!("{way}, without an answer"), mend)
            }
            SubjectError::Silent => {
                let limit = self.single.limit.unwrap_or_default();
                let grace = self.single.policy.timeout_grace;
                let said = format!("no answer within {limit:?} and {grace:?} of grace");
                (
                    said,
                    "allow more time with --timeout, or attach a debugger with --wait",
                )
            }
            SubjectError::Unstarted(why) => (why, "start it by hand"),
        });
    }

    /// Asks the worker to exit, and collects the rest of the result.
    async fn end(mut self) -> AttemptResult {
        if self.result.answer.is_some() {
            self.subject.dismiss();
            let within = self.single.policy.stop_timeout;
            if let Err(trouble @ SubjectError::Broken(_)) = self.subject.read_to_close(within).await
            {
                self.explain(trouble).await;
            }
            self.result.exit = self.subject.exit(within).await;
        } else {
            self.result.exit = self.subject.exit(Duration::ZERO).await;
        }
        self.result.printed = self.subject.printed().await;
        self.result.hello = self.subject.seen.hello.take();
        self.result
    }
}
