//! One message through one worker: what the worker says to it, and what that takes.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::finding::Trouble;
use super::subject::{Rig, Spoken, Subject, Way};
use ganger_config::model::PoolConfig;
use ganger_core::names;
use ganger_pool::worker::Introduction;
use ganger_pool::worker::output::LastLines;
use ganger_pool::worker::usage::{self, Usage};
use ganger_protocol::Output;
use ganger_queue::delivery::{Exit, Message};

/// How often it is looked at what the worker uses.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// One that is not asked for an answer any more has so long to leave.
const LEAVE_WITHIN: Duration = Duration::from_secs(5);

/// What is to be tried.
#[derive(Debug, Clone)]
pub struct Single {
    /// How the worker is started, and the rules of its pool.
    pub policy: Arc<PoolConfig>,
    /// What it gets.
    pub message: Message,
    /// Which attempt it is told that this is, from 1.
    pub attempt: u32,
    /// How long it may take; none for ever.
    pub limit: Option<Duration>,
}

/// What has come of it.
#[derive(Debug)]
pub struct Told {
    /// The worker's process.
    pub pid: u32,
    /// The answer, if there was one.
    pub answer: Option<Output>,
    /// What it said beside, each with the time since the message was sent.
    pub notes: Vec<(Duration, Output)>,
    /// What went wrong, and what to do about it.
    pub trouble: Option<(String, &'static str)>,
    /// Its first frame, if it speaks version 2.
    pub hello: Option<Output>,
    /// From the message to the answer, or to when there was none to be had.
    pub took: Duration,
    /// What it has used for the message; none if it was over too soon to be looked at.
    pub used: Option<Usage>,
    /// What it has printed last.
    pub printed: LastLines,
    /// How it ended; none if it had to be killed.
    pub exit: Option<Exit>,
}

/// Runs one message. `ready` is told the worker's process id before the message is sent. Must be called
/// inside a `LocalSet`. Given up, it leaves no process behind.
///
/// # Errors
/// Why there is no worker, and its last words.
pub async fn attempt(
    single: &Single,
    ready: impl AsyncFnOnce(u32),
) -> Result<Told, (String, Vec<String>)> {
    let policy = &single.policy;
    let rig = Rc::new(Rig::new(Arc::clone(policy), LEAVE_WITHIN));
    let started = Subject::start(&rig, Introduction::Full).await;
    let subject = started.map_err(|(trouble, words)| match trouble {
        Trouble::Unstarted(why) => (why, words),
        Trouble::Silent | Trouble::Gone | Trouble::Broken(_) => ("it did not start".into(), words),
    })?;
    let pid = subject.pid();
    ready(pid).await;
    let mut run = Run {
        single,
        subject,
        told: Told {
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
    told: Told,
    used_before: Usage,
}

impl Run<'_> {
    async fn one_message(&mut self) -> Result<(), Trouble> {
        let text = std::str::from_utf8(&self.single.message.body).is_ok();
        if !text && !self.subject.says_hello().await? {
            let said = "the body is not UTF-8, and the worker speaks version 1: the daemon would \
                        make the message a dead letter";
            let mend = "speak version 2, or send text";
            self.told.trouble = Some((said.to_owned(), mend));
            return Ok(());
        }
        let way = Way {
            timeout: self.single.limit,
            attempt: Some(self.single.attempt),
            ..Way::default()
        };
        let begun = Instant::now();
        let id = self.subject.send(&self.single.message, way);
        let heard = self.hear(id, begun).await;
        self.told.took = begun.elapsed();
        self.look();
        heard
    }

    /// Until the answer. A worker that takes too long is told as the daemon would tell it.
    async fn hear(&mut self, id: u64, begun: Instant) -> Result<(), Trouble> {
        let mut deadline = self.single.limit.map(|limit| begun + limit);
        let mut cancelled = false;
        loop {
            let next_look = Instant::now() + LOOK_EVERY;
            let until = deadline.map_or(next_look, |deadline| deadline.min(next_look));
            match self.subject.next(until).await {
                Ok(Some(output)) if output.status.is_note() => {
                    if output.concurrency().is_none() {
                        self.told.notes.push((begun.elapsed(), output));
                    }
                }
                Ok(Some(answer)) => {
                    self.told.answer = Some(answer);
                    return Ok(());
                }
                Ok(None) => return Err(Trouble::Gone),
                Err(Trouble::Silent) => self.look(),
                Err(trouble) => return Err(trouble),
            }
            if deadline.is_none_or(|deadline| Instant::now() < deadline) {
                continue;
            }
            if cancelled {
                return Err(Trouble::Silent);
            }
            cancelled = true;
            if matches!(self.subject.spoken(), Some(Spoken::Two(_))) {
                self.subject.tell(&format!("{} {id}", names::CANCEL));
            }
            deadline = deadline.map(|deadline| deadline + self.single.policy.timeout_grace);
        }
    }

    fn look(&mut self) {
        if let Some(now) = usage::of_group(self.told.pid) {
            self.told.used = Some(Usage {
                cpu: now.cpu.saturating_sub(self.used_before.cpu),
                peak_bytes: now.peak_bytes,
            });
        }
    }

    async fn explain(&mut self, trouble: Trouble) {
        self.told.trouble = Some(match trouble {
            Trouble::Broken(breach) => (
                format!("protocol error: {}", breach.said),
                breach.rule.mend(),
            ),
            Trouble::Gone => {
                let way = self.subject.way_of_going().await;
                let mend = "its stderr may say why; an answer must come before the end";
                (format!("{way}, without an answer"), mend)
            }
            Trouble::Silent => {
                let limit = self.single.limit.unwrap_or_default();
                let grace = self.single.policy.timeout_grace;
                let said = format!("no answer within {limit:?} and {grace:?} of grace");
                (
                    said,
                    "give it more with --timeout, or see with --wait what it does",
                )
            }
            Trouble::Unstarted(why) => (why, "start it by hand"),
        });
    }

    /// Asks it to leave, and gathers what is left to be told.
    async fn end(mut self) -> Told {
        if self.told.answer.is_some() {
            self.subject.dismiss();
            let within = self.single.policy.stop_timeout;
            if let Err(trouble @ Trouble::Broken(_)) = self.subject.hear_out(within).await {
                self.explain(trouble).await;
            }
            self.told.exit = self.subject.exit(within).await;
        } else {
            self.told.exit = self.subject.exit(Duration::ZERO).await;
        }
        self.told.printed = self.subject.printed().await;
        self.told.hello = self.subject.seen.hello.take();
        self.told
    }
}
