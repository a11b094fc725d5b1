//! One message in hand: what is sent about it, whether it is to be abandoned, and its one answer.

use std::fmt::{self, Write};
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::link::{Link, locked};
use crate::outcome::{Failure, IntoOutcome, Outcome};
use crate::wire::{Output, status};
use crate::{Cancelled, Error};

/// Of what a failure has to say; a dead letter keeps no more either.
const REASON_BYTES_MAX: usize = 16_000;

/// A message from its begin to its answer.
pub(crate) struct Handle {
    pub(crate) link: Arc<Link>,
    /// What an output names that is about this message; version 1 names nothing.
    pub(crate) id: Option<u64>,
    /// Whether it is answered, after which nothing may be said about it.
    pub(crate) over: AtomicBool,
    cancelled: AtomicBool,
    /// Whether its time was up when it was cancelled.
    timed_out: AtomicBool,
    begun: Instant,
    /// How long it may take.
    limit: Option<Duration>,
    /// When it is to be given up without being told so: version 1.
    deadline: Option<Instant>,
    /// Whether the handler looks after being cancelled by itself.
    heeded: AtomicBool,
    lock: Mutex<()>,
    told: Condvar,
    #[cfg(feature = "tokio")]
    told_async: tokio::sync::Notify,
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("id", &self.id)
            .field("cancelled", &self.is_cancelled())
            .finish_non_exhaustive()
    }
}

impl Handle {
    pub(crate) fn new(link: Arc<Link>, id: Option<u64>, limit: Option<Duration>) -> Self {
        let begun = Instant::now();
        // Version 1 asks a worker to give up by itself; version 2 is told when it is so far.
        let own = limit.filter(|_| link.version == 1);
        let deadline = own.and_then(|limit| begun.checked_add(limit));
        Self {
            timed_out: AtomicBool::new(false),
            begun,
            limit,
            link,
            id,
            over: AtomicBool::new(false),
            cancelled: AtomicBool::new(false),
            deadline,
            heeded: AtomicBool::new(false),
            lock: Mutex::new(()),
            told: Condvar::new(),
            #[cfg(feature = "tokio")]
            told_async: tokio::sync::Notify::new(),
        }
    }

    /// This output, about this message.
    pub(crate) fn about<'a>(&self, output: Output<'a>) -> Output<'a> {
        Output {
            id: self.id,
            ..output
        }
    }

    /// The daemon asks for it. Its clock began a little before this one.
    pub(crate) fn cancel(&self) {
        let late = |limit: Duration| self.begun.elapsed() >= limit - limit / 10;
        if !self.cancelled.load(Ordering::SeqCst) && self.limit.is_some_and(late) {
            self.timed_out.store(true, Ordering::SeqCst);
        }
        self.cancelled.store(true, Ordering::SeqCst);
        drop(locked(&self.lock)); // whoever has looked is waiting now
        self.told.notify_all();
        #[cfg(feature = "tokio")]
        self.told_async.notify_waiters();
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::SeqCst) || self.is_past_deadline()
    }

    fn is_past_deadline(&self) -> bool {
        self.deadline.is_some_and(|at| Instant::now() >= at)
    }

    /// Why the handler was asked to give up.
    fn why_cancelled(&self) -> String {
        let timed_out = self.timed_out.load(Ordering::SeqCst) || self.is_past_deadline();
        match self.limit.filter(|_| timed_out) {
            Some(limit) => format!("timed out: the limit is {} ms", limit.as_millis()),
            None => Cancelled.to_string(),
        }
    }

    /// Waits so long for the cancellation; whether it has come.
    fn wait(&self, most: Duration) -> bool {
        let asked = Instant::now().checked_add(most);
        let until = [asked, self.deadline].into_iter().flatten().min();
        let mut lock = locked(&self.lock);
        while !self.is_cancelled() {
            lock = match until.map(|at| at.saturating_duration_since(Instant::now())) {
                None => self.told.wait(lock).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => return self.is_cancelled(),
                Some(left) => {
                    let waited = self.told.wait_timeout(lock, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        true
    }

    #[cfg(feature = "tokio")]
    pub(crate) async fn cancelled(&self) {
        let told = async {
            loop {
                let mut told = std::pin::pin!(self.told_async.notified());
                told.as_mut().enable();
                if self.cancelled.load(Ordering::SeqCst) {
                    return;
                }
                told.await;
            }
        };
        match self.deadline {
            // Either way it is to be given up.
            Some(at) => drop(tokio::time::timeout_at(at.into(), told).await),
            None => told.await,
        }
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn is_heeded(&self) -> bool {
        self.heeded.load(Ordering::Relaxed)
    }
}

/// Tells whether a message is to be abandoned: it takes too long, or the daemon wants it back. What the
/// handler answers then counts. See [`Task::cancellation`](crate::Task::cancellation).
#[derive(Debug, Clone)]
pub struct Cancellation(Arc<Handle>);

impl Cancellation {
    pub(crate) fn of(handle: &Arc<Handle>) -> Self {
        handle.heeded.store(true, Ordering::Relaxed);
        Self(Arc::clone(handle))
    }

    /// Whether it has come.
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Sleeps so long, or until it comes; whether it has come.
    pub fn wait(&self, most: Duration) -> bool {
        self.0.wait(most)
    }

    /// Is there when it has come; for ever pending on a message that is not abandoned.
    #[cfg(feature = "tokio")]
    pub async fn cancelled(&self) {
        self.0.cancelled().await;
    }
}

/// Why there is no outcome.
pub(crate) enum Reason {
    /// The handler has given up because it was asked to, and has this to say.
    Cancelled(String),
    /// It has failed, with this to say.
    Failed(String),
}

/// What a handler has returned. It belongs to the handler's work: an error's own text may panic.
pub(crate) fn judged(returned: impl IntoOutcome) -> Result<Outcome, Reason> {
    returned.into_outcome().map_err(|failure| {
        if failure.is::<Cancelled>() {
            Reason::Cancelled(String::new())
        } else if has_given_up(&failure) {
            Reason::Cancelled(text_of(&failure))
        } else {
            Reason::Failed(text_of(&failure))
        }
    })
}

/// Whether it has led to an error that it was cancelled.
fn has_given_up(failure: &Failure) -> bool {
    let mut source = failure.source();
    while let Some(error) = source {
        if error.is::<Cancelled>() {
            return true;
        }
        source = error.source();
    }
    false
}

/// An error with what has led to it, and the backtrace if its debug text has one.
fn text_of(failure: &Failure) -> String {
    let mut text = failure.to_string();
    let mut source = failure.source();
    while let Some(error) = source {
        write!(text, "\ncaused by: {error}").unwrap_or_default();
        source = error.source();
    }
    let whole = format!("{failure:?}");
    if let Some(at) = whole.find("Stack backtrace:") {
        text += "\n";
        text += &whole[at..];
    }
    text
}

/// The duty to answer a message, once. Dropped, it says that the message was stopped.
pub(crate) struct Duty {
    pub(crate) handle: Arc<Handle>,
}

impl Duty {
    /// Answers; a process that the handler has forked ends here, for only its parent does.
    pub(crate) fn answer(self, result: Result<Outcome, Reason>) {
        if self.handle.link.outbox.is_forked() {
            process::exit(result.is_err().into());
        }
        self.handle.answer(result);
    }
}

impl Drop for Duty {
    fn drop(&mut self) {
        let forked = self.handle.link.outbox.is_forked();
        if !forked && !self.handle.over.load(Ordering::SeqCst) {
            let what = "the worker has stopped the work on it";
            self.handle.answer(Ok(Outcome::requeue(what)));
        }
        if !forked {
            self.handle.link.put_down();
        }
    }
}

impl Handle {
    /// Answers for a message that was not begun.
    pub(crate) fn give_back(&self) {
        self.answer(Ok(Outcome::requeue("the worker is about to end")));
    }

    fn answer(&self, result: Result<Outcome, Reason>) {
        self.link.end(self);
        let outcome = match result {
            Ok(outcome) => outcome,
            Err(Reason::Cancelled(text)) => {
                let mut reason = self.why_cancelled();
                if !text.is_empty() {
                    reason = cut(&format!("{reason}\n{text}"));
                }
                Outcome::retry(reason)
            }
            Err(Reason::Failed(text)) => return self.fail(&text),
        };
        if let Err(error) = self.send(&outcome) {
            self.fail(&error.to_string());
        }
    }

    fn send(&self, outcome: &Outcome) -> Result<(), Error> {
        outcome.check()?;
        let after_ms = |wait: Duration| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let output = self.about(Output {
            message: &outcome.message,
            status: outcome.status,
            headers: (!outcome.headers.is_empty()).then_some(&outcome.headers),
            queue: &outcome.queue,
            after_ms: outcome.after.map(after_ms),
            id: None,
        });
        self.link.outbox.answer(output, &self.over)
    }

    fn fail(&self, text: &str) {
        let reason = cut(text);
        for message in [reason.as_bytes(), b""] {
            let output = self.about(Output {
                message,
                status: status::UNKNOWN_ERROR,
                ..Output::default()
            });
            // The pool's frames may be shorter than what there is to say.
            if self.link.outbox.answer(output, &self.over).is_ok() {
                return;
            }
        }
    }
}

/// As much of a reason as is kept.
fn cut(text: &str) -> String {
    match text.char_indices().find(|(at, _)| *at >= REASON_BYTES_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
