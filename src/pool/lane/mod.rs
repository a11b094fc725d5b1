//! A lane owns one worker process and its connection, from the start of the process to the
//! settlement of the last message that it had in hand. It waits here; what it does with frames is
//! in `exchange`, how it is stopped in `stop`, who is to blame in `in_flight`.

mod exchange;
mod gauge;
pub mod in_flight;
mod start;
mod stop;
pub mod unread;

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::breaker;
use super::verdict::{Case, Event, decide, lasting_name};
use super::window::Pace;
use crate::config::model::PoolConfig;
use crate::delivery::{Delivery, Exit, Failure, Outgoing, Publish, PublishError, Reason};
use crate::shutdown::Phase;
use crate::worker::connection::Connection;
use crate::worker::notes::Notes;
use crate::worker::process;
use crate::worker::process::Process;
pub use gauge::{Gauge, Shared};
use in_flight::{Blame, Cause, Entry, InFlight, Read, Version};
pub use start::{Ended, Start};
use start::{LAST_WORDS_WITHIN, connect, identity};

/// A worker that has closed its pipe is about to end; one that does not end is made to.
const CLOSED_PIPE_GRACE: Duration = Duration::from_secs(1);
/// How often a worker's memory is looked at, where it is limited.
const MEMORY_CHECK_EVERY: Duration = Duration::from_secs(1);

/// Runs one worker process to its end, and settles everything that it was given.
pub async fn run(start: Start) -> Ended {
    let policy = start.shared.policy();
    let identity = identity(start.slot, &policy);
    let mut phase = start.phase.clone();
    let starting = tokio::select! {
        biased;
        starting = process::spawn(&start.shared.spawner, &start.command, &identity, policy.frame_bytes_max) => starting,
        _ = phase.wait_for(|phase| *phase > Phase::Running) => {
            let unwanted = Ended::unstarted("not wanted any more".into(), Vec::new());
            return Ended { orderly: true, ..unwanted };
        }
    };
    let starting = match starting {
        Ok(starting) => starting,
        Err(error) => return Ended::unstarted(error.to_string(), Vec::new()),
    };
    start.gauge.pid.set(Some(starting.process.pid()));
    match connect(starting, &start, policy.start_timeout).await {
        Ok((process, connection)) => {
            if start.shared.connected.send(start.slot).await.is_err() {
                return Ended::unstarted("the pool is gone".into(), Vec::new());
            }
            Lane::new(start, process, connection).run().await
        }
        Err(ended) => ended,
    }
}

/// The worker's work, once it has connected.
struct Lane {
    slot: usize,
    shared: Rc<Shared>,
    gauge: Rc<Gauge>,
    mailbox: mpsc::Receiver<Delivery>,
    asked: watch::Receiver<Phase>,

    process: Process,
    connection: Connection,
    /// The worker has closed its end, at that moment.
    closed_at: Option<Instant>,
    version: Version,
    connected_at: Instant,

    /// Given to the lane, not yet put into the pipe.
    pending: VecDeque<Delivery>,
    /// Of the breaker: what was given to the lane before the last is not begun.
    openings: u64,
    /// Of the source: which messages are void was looked at since.
    losses: u64,
    in_flight: InFlight,
    next_id: u64,
    /// The message that the worker's output is tied to.
    printing_for: Option<u64>,
    last_frame: Instant,
    /// Frames may be left in the buffer: the worker's turn was over.
    has_more: bool,
    notes: Notes,
    pace: Pace,
    /// Answers that the pace does not know of yet.
    unpaced: u32,
    /// Since when the worker has been busy without an answer.
    busy_since: Instant,

    to_publish: VecDeque<(u64, Outgoing)>,
    /// Since when they wait, and the worker is not listened to.
    deaf_since: Option<Instant>,
    confirmations: JoinSet<(u64, Result<(), PublishError>)>,

    phase: Phase,
    phase_since: Instant,
    /// Its time had come: tasks, age or memory.
    recycled: bool,
    /// The rules that the moments below were drawn by.
    drawn_by: Arc<PoolConfig>,
    recycle_at: Option<Instant>,
    recycle_after: Option<u64>,
    memory_check_at: Option<Instant>,
    broke_protocol: bool,
    /// What it was killed for.
    cause: Option<Cause>,
}

impl Lane {
    fn new(start: Start, process: Process, connection: Connection) -> Self {
        let Start {
            slot,
            shared,
            gauge,
            mailbox,
            phase: asked,
            ..
        } = start;
        let now = Instant::now();
        let policy = shared.policy();
        let notes = Notes::new(identity(slot, &policy), now);
        let openings = shared.breaker.borrow().openings();
        let losses = shared.losses.get();
        let mut lane = Self {
            slot,
            shared,
            gauge,
            mailbox,
            asked,
            process,
            connection,
            closed_at: None,
            version: Version::Unknown,
            connected_at: now,
            pending: VecDeque::new(),
            openings,
            losses,
            in_flight: InFlight::default(),
            next_id: 1,
            printing_for: None,
            last_frame: now,
            has_more: false,
            notes,
            pace: Pace::default(),
            unpaced: 0,
            busy_since: now,
            to_publish: VecDeque::new(),
            deaf_since: None,
            confirmations: JoinSet::new(),
            phase: Phase::Running,
            phase_since: now,
            recycled: false,
            drawn_by: policy,
            recycle_at: None,
            recycle_after: None,
            memory_check_at: None,
            broke_protocol: false,
            cause: None,
        };
        lane.plan_recycling();
        lane
    }

    async fn run(mut self) -> Ended {
        self.gauge.open.set(true);
        self.show();
        self.shared.room.notify_one();
        let exit = self.serve().await;
        self.wind_up(exit).await
    }

    /// Until the process has ended.
    async fn serve(&mut self) -> Exit {
        let mut alarm = std::pin::pin!(tokio::time::sleep(Duration::ZERO));
        let shared = self.shared.clone();
        loop {
            let now = Instant::now();
            self.keep_time(now);
            self.fill(now);
            let deadline = self.next_deadline();
            if let Some(deadline) = deadline
                && deadline != alarm.deadline()
            {
                alarm.as_mut().reset(deadline);
            }
            // A worker whose emits wait for the broker is not read from: it waits as well.
            let listening = self.to_publish.is_empty();
            if self.has_more {
                // Its neighbours first, or one that writes without end would have all the time.
                tokio::task::yield_now().await;
            }
            // The pipe comes last: it may never be empty. What is due is looked for in any case.
            tokio::select! {
                biased;
                exit = self.process.wait() => return exit,
                Some(delivery) = self.mailbox.recv() => {
                    self.pending.push_back(delivery);
                    while let Ok(next) = self.mailbox.try_recv() {
                        self.pending.push_back(next);
                    }
                }
                Ok(()) = self.asked.changed() => {}
                permit = shared.publishes.reserve(), if !self.to_publish.is_empty() => {
                    publish_next(permit, &mut self.to_publish, &mut self.confirmations);
                }
                Some(Ok((id, result))) = self.confirmations.join_next() => self.confirmed(id, result),
                () = std::future::ready(()), if listening && self.has_more => self.take_frames(Instant::now()),
                ready = self.connection.ready(), if listening => self.exchange(ready),
                () = &mut alarm, if deadline.is_some() => {}
            }
        }
    }

    /// The process has ended. What it had written before counts; then everything that it had in
    /// hand is settled, and nothing sooner: until now it may have been working on it.
    async fn wind_up(mut self, exit: Exit) -> Ended {
        self.close();
        let died = if self.phase >= Phase::Yielding {
            Cause::Stopped
        } else {
            Cause::Died
        };
        if self.is_heard() {
            // With a budget that is used up the pipe would seem empty, and an answer be lost.
            tokio::task::yield_now().await;
            self.read_the_rest();
        }
        self.notes.tell_suppressed();
        let cause = self.cause.take().unwrap_or(died);
        let stderr = self.process.last_words(LAST_WORDS_WITHIN).await;
        let left_unread = self.connection.left_unread();
        let read = Read {
            sent: self.connection.sent_total(),
            left_unread,
            left_well: exit.code == Some(0) && (!left_unread || self.is_forgiven()),
        };
        let judged = self.in_flight.judge(&cause, self.version, read);
        let known = |(entry, blame): &(Entry, Blame)| {
            *blame == Blame::Charged && entry.delivery.history.crashes > 0
        };
        let explained = judged.iter().any(known);
        let on_trial = self.gauge.on_trial.get();
        let mut excused = false;
        for (entry, judged) in judged {
            let blame = judged.on_trial(on_trial, &cause, entry.delivery.history.crashes);
            excused |= blame != judged;
            self.settle_unanswered(entry, blame, &cause, exit, &stderr);
        }
        self.settle_after_emits().await;
        self.refuse_work();
        self.show();
        self.shared.room.notify_one();
        let asked = self.recycled || self.phase >= Phase::Draining;
        // What the message is not charged with is held against the build, or it would go on for ever.
        let orderly = asked && cause != Cause::PipeClosed && !excused;
        Ended {
            connected: true,
            orderly,
            cause: describe(&cause, exit),
            stderr,
            explained,
        }
    }

    /// The worker left of its own accord and had not read the first of its messages.
    fn is_forgiven(&self) -> bool {
        self.in_flight.head().is_none_or(|entry| {
            let name = lasting_name(&entry.delivery.message);
            self.shared.unread.borrow_mut().forgives(name)
        })
    }

    fn settle_unanswered(
        &self,
        entry: Entry,
        blame: Blame,
        cause: &Cause,
        exit: Exit,
        stderr: &[String],
    ) {
        let event = match blame {
            Blame::Charged => Event::Failed(Failure {
                reason: reason(cause),
                error: self.error(&entry, cause, exit),
                exit: Some(exit),
                stderr: stderr.to_vec(),
                reply: None,
            }),
            Blame::Returned => Event::Stopped { suspect: false },
            Blame::Suspect => Event::Stopped { suspect: true },
        };
        self.settle(entry.delivery, event);
    }

    fn error(&self, entry: &Entry, cause: &Cause, exit: Exit) -> String {
        let Cause::TimedOut(_) = cause else {
            return describe(cause, exit);
        };
        let soft = entry.soft.unwrap_or_default();
        let grace = self.shared.policy.borrow().timeout_grace;
        format!("timed out: no answer within {soft:?} and {grace:?} of grace")
    }

    /// Answers that came in time wait for their emits even when their worker is gone.
    async fn settle_after_emits(&mut self) {
        let shared = self.shared.clone();
        while !self.in_flight.is_empty() {
            tokio::select! {
                permit = shared.publishes.reserve(), if !self.to_publish.is_empty() => {
                    publish_next(permit, &mut self.to_publish, &mut self.confirmations);
                }
                Some(confirmed) = self.confirmations.join_next() => {
                    if let Ok((id, result)) = confirmed {
                        self.confirmed(id, result);
                    }
                }
                else => return,
            }
        }
    }

    fn settle(&self, delivery: Delivery, event: Event) {
        let policy = self.shared.policy.borrow();
        let outcome = decide(
            event,
            Case {
                message: &delivery.message,
                history: delivery.history,
                policy: &policy,
                chance: fastrand::f64(),
            },
        );
        if outcome.is_success() {
            self.gauge.succeeded.set(self.gauge.succeeded.get() + 1);
        }
        self.shared
            .counters
            .settled(&delivery.message.correlation_id, &outcome);
        if let Some(sign) = breaker::sign(&outcome) {
            let first = delivery.history.attempt <= 1;
            let name = || lasting_name(&delivery.message);
            let mut breaker = self.shared.breaker.borrow_mut();
            breaker.told(sign, first, name, Instant::now());
        }
        self.gauge.load.set(self.gauge.load.get() - 1);
        let bytes = delivery.message.body.len();
        self.gauge.bytes.set(self.gauge.bytes.get() - bytes);
        if delivery.history.alone {
            self.gauge.alone.set(false);
        }
        self.shared.list(self.slot, &self.gauge);
        delivery.settle(outcome);
    }

    /// Shows the pool how things stand, and ties what the worker prints to what it works on.
    fn show(&mut self) {
        let head = self.in_flight.head();
        let alone = self.in_flight.len() == 1 || !matches!(self.version, Version::Two { .. });
        let current = head.filter(|_| alone).map(|entry| entry.id);
        if current != self.printing_for {
            self.printing_for = current;
            let correlation_id = |entry: &Entry| entry.delivery.message.correlation_id.clone();
            self.process
                .working_on(head.filter(|_| alone).map(correlation_id).as_deref());
        }
        let policy = self.shared.policy.borrow();
        let window = match self.version {
            Version::Unknown => 1,
            Version::One => super::window::version1(policy.pipeline, &self.pace),
            Version::Two { concurrency } => concurrency,
        };
        self.gauge.window.set(window);
        self.gauge
            .prefetch
            .set(super::window::prefetch(policy.prefetch, window, &self.pace));
        self.gauge.busy_since.set(self.in_flight.oldest_begun());
        if self.in_flight.is_empty() {
            self.gauge.progress.take();
        }
        self.gauge.phase.set(self.phase);
        self.shared.list(self.slot, &self.gauge);
    }
}

type Permit<'a> = Result<mpsc::Permit<'a, Publish>, mpsc::error::SendError<()>>;

/// Sends the first waiting emit; with the source gone, all of them have failed.
fn publish_next(
    permit: Permit<'_>,
    waiting: &mut VecDeque<(u64, Outgoing)>,
    confirmations: &mut JoinSet<(u64, Result<(), PublishError>)>,
) {
    let Some((id, message)) = waiting.pop_front() else {
        return;
    };
    let queue = message.queue.clone();
    let gone = move || PublishError {
        queue,
        why: "the source is gone".into(),
    };
    let (confirm, confirmed) = tokio::sync::oneshot::channel();
    if let Ok(permit) = permit {
        permit.send(Publish {
            message,
            confirmed: confirm,
        });
    }
    confirmations.spawn_local(async move { (id, confirmed.await.unwrap_or_else(|_| Err(gone()))) });
}

fn reason(cause: &Cause) -> Reason {
    match cause {
        Cause::Died | Cause::Stopped => Reason::Crashed,
        Cause::TimedOut(_) => Reason::TimedOut,
        Cause::Stalled => Reason::Stalled,
        Cause::PipeClosed | Cause::ProtocolError(_) => Reason::ProtocolError,
    }
}

fn describe(cause: &Cause, exit: Exit) -> String {
    match cause {
        Cause::Died => format!("the worker ended: {exit}"),
        Cause::Stopped => format!("the worker was stopped: {exit}"),
        Cause::TimedOut(_) => "timed out: the worker was killed".into(),
        Cause::Stalled => "stalled: the worker was silent for too long and was killed".into(),
        Cause::PipeClosed => "protocol error: the worker closed its pipe and lives on".into(),
        Cause::ProtocolError(error) => format!("protocol error: {error}"),
    }
}
