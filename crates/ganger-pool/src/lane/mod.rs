//! A lane owns one worker process and its connection, from the start of the process to the settlement of its
//! last message. It waits here and acts on its parts: `backlog` holds messages that are not in the pipe yet,
//! `exchange` is the traffic through it, `wear` decides when the worker is replaced, `ending` tracks its end.

mod autopsy;
mod backlog;
mod blame;
mod core_waits;
mod emits;
mod ending;
mod exchange;
mod gauge;
mod in_flight;
mod pool_side;
mod question;
mod standstill;
mod start;
mod tempo;
mod time_limit;
pub mod unread;
mod wear;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};

use super::verdict::Event;
use crate::worker::Introduction;
use crate::worker::autopsy::Findings;
use crate::worker::connection::Connection;
use crate::worker::notes::Notes;
use crate::worker::output::LastLines;
use crate::worker::process;
use crate::worker::process::{Process, Signal};
use autopsy::{AFTER_DEATH, Autopsy};
use backlog::Backlog;
use blame::{Blame, Cause};
use ending::Ending;
use exchange::{Exchange, ExchangeError};
use ganger_config::model::WorkerCommand;
use ganger_core::event_loop::Standstills;
use ganger_core::names::{CANCEL, CONTEXT_SWITCH, QUIT};
use ganger_core::shutdown::Phase;
use ganger_queue::delivery::{CANCELLED, Delivery, Exit, Failure, Reason};
use ganger_queue::ledger::shown::RunWorkerJson;
use ganger_telemetry::metrics::WorkerEnd;
pub use gauge::{Gauge, Shared};
use in_flight::{Unanswered, cancelled};
use pool_side::{PoolSide, name_hash};
pub use question::{Question, Search, Sought};
pub use start::{Ended, Start};
use start::{LAST_WORDS_WITHIN, connect, identity};
pub use time_limit::soft_timeout;
use wear::Wear;

/// Runs one worker process to its end, and settles all messages that it was given.
pub async fn run(mut start: Start) -> Ended {
    let policy = start.shared.policy();
    let identity = identity(start.slot, &policy);
    let mut phase = start.phase.clone();
    let started_at = Instant::now();
    let spawned = process::spawn(
        &start.shared.spawner,
        &start.command,
        &identity,
        Introduction::Full,
        policy.frame_bytes_max,
    );
    let starting = tokio::select! {
        biased;
        starting = spawned => starting,
        _ = phase.wait_for(|phase| *phase > Phase::Running) => {
            let unwanted = Ended::unstarted("no longer needed".into(), LastLines::default());
            return Ended { orderly: true, how: WorkerEnd::Asked, ..unwanted };
        }
    };
    let starting = match starting {
        Ok(starting) => starting,
        Err(error) => return Ended::unstarted(error.to_string(), LastLines::default()),
    };
    let pid = starting.process.pid();
    start.gauge.started(pid);
    start.shared.events.worker_started(start.slot, pid);
    match connect(starting, &mut start, policy.start_timeout).await {
        Ok((process, connection)) => {
            if start.shared.connected.send(start.slot).await.is_err() {
                return Ended::unstarted("the pool has ended".into(), LastLines::default());
            }
            Lane::new(start, process, connection, started_at)
                .run()
                .await
        }
        Err(ended) => ended,
    }
}

/// Lane of a worker that has connected.
struct Lane {
    pool: PoolSide,
    process: Process,
    /// Phase that its stop should reach.
    asked: watch::Receiver<Phase>,
    questions: mpsc::Receiver<Question>,
    backlog: Backlog,
    exchange: Exchange,
    wear: Wear,
    ending: Ending,
    autopsy: Autopsy,
    /// Time in which the worker could not be observed.
    standstills: Standstills,
    /// Command that its process was started with.
    command: Arc<WorkerCommand>,
    /// Number of the message that the worker's output is tied to.
    printing_for: Option<u64>,
}

impl Lane {
    fn new(start: Start, process: Process, connection: Connection, started_at: Instant) -> Self {
        let now = Instant::now();
        let pool = PoolSide::new(start.slot, start.shared, start.gauge);
        let policy = pool.policy();
        let notes = Notes::new(identity(start.slot, &policy), now);
        let worker = RunWorkerJson::of(&policy.name, start.slot, process.pid());
        Self {
            process,
            asked: start.phase,
            questions: start.questions,
            backlog: Backlog::new(start.mailbox, pool.openings(), pool.losses()),
            exchange: Exchange::new(pool.clone(), connection, &worker, notes, started_at),
            wear: Wear::draw(now, policy, fastrand::f64()),
            ending: Ending::new(now),
            autopsy: Autopsy::default(),
            standstills: Standstills::from_now(),
            command: start.command,
            printing_for: None,
            pool,
        }
    }

    async fn run(mut self) -> Ended {
        self.pool.open();
        self.exchange.show();
        self.pool.has_room();
        let exit = self.serve().await;
        self.settle_after_exit(exit).await
    }

    /// Serves the worker until its process has ended.
    async fn serve(&mut self) -> Exit {
        let mut alarm = std::pin::pin!(tokio::time::sleep(Duration::ZERO));
        let mut deadline: Option<Instant> = None;
        loop {
            if deadline.is_some_and(|at| at <= Instant::now())
                && let Some(exit) = self.catch_up().await
            {
                return exit;
            }
            let now = Instant::now();
            self.extend_deadlines(now);
            self.keep_time(now);
            self.fill(now);
            deadline = self.next_deadline();
            if let Some(deadline) = deadline
                && deadline != alarm.deadline()
            {
                alarm.as_mut().reset(deadline);
            }
            if self.exchange.has_more() {
                // Yields to other lanes first: a worker that writes without end would take all the time.
                tokio::task::yield_now().await;
            }
            // The pipe comes last, since it may never be empty. Deadlines are checked in any case.
            tokio::select! {
                biased;
                exit = self.process.wait() => return exit,
                Some(()) = self.backlog.arrival() => {}
                Ok(()) = self.asked.changed() => {}
                Some(question) = self.questions.recv() => self.answer(question),
                findings = self.autopsy.ended(), if self.autopsy.is_under_way() => {
                    self.examined(findings);
                    self.kill_group();
                }
                turn = self.exchange.turn() => {
                    let now = Instant::now();
                    self.extend_deadlines(now);
                    let done = self.exchange.take(turn, self.ending.is_heard(), now);
                    self.tag_output();
                    self.look_at(done, now);
                }
                () = &mut alarm, if deadline.is_some() => {}
            }
        }
    }

    /// Carries out everything that is due now.
    fn keep_time(&mut self, now: Instant) {
        self.follow_policy();
        if let Some(unbegun) = self.backlog.after(self.pool.openings()) {
            unbegun.into_iter().for_each(|one| self.pool.give_back(one));
            self.pool.has_room();
        }
        for void in self.backlog.take_void(self.pool.losses()) {
            self.pool.give_back(void);
            self.pool.has_room();
        }
        let void = self.exchange.yield_void();
        self.cancel(&void);
        let due = self.exchange.due(now);
        self.cancel(&due.cancel);
        if let Some(cause) = due.kill {
            self.kill(cause);
        }
        self.recycle_if_due(now);
        let asked = *self.asked.borrow_and_update();
        let stop_timeout = self.pool.rules().stop_timeout;
        let is_idle = self.exchange.is_idle();
        for phase in self.ending.advance(now, asked, is_idle, stop_timeout) {
            self.enter(phase);
        }
    }

    /// Returns the next time at which [`Lane::keep_time`] has something to do.
    fn next_deadline(&self) -> Option<Instant> {
        let policy = self.pool.rules();
        let ending = self.ending.next(policy.stop_timeout);
        if self.ending.is_condemned() {
            return ending;
        }
        let hello = self.exchange.silent_until();
        let waits = !self.backlog.is_empty() && !self.ending.is_closed();
        [
            ending,
            self.exchange.next_deadline(&policy),
            self.wear.next(),
            hello.filter(|_| waits),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// After a reload, recomputes everything that depends on the rules.
    fn follow_policy(&mut self) {
        if self.wear.is_by(&self.pool.rules()) || !self.ending.is_wanted() {
            return;
        }
        self.wear.redraw(self.pool.policy(), fastrand::f64());
        self.exchange.show();
        self.pool.has_room();
    }

    fn recycle_if_due(&mut self, now: Instant) {
        let answered = self.pool.answers();
        let resident = || self.process.resident_bytes();
        if !self.ending.is_wanted() || !self.wear.is_over(answered, now, resident) {
            return;
        }
        self.ending.recycle();
        self.stop_taking_work();
        tracing::info!(
            worker = self.pool.slot(),
            pid = self.process.pid(),
            answered,
            "recycling the worker"
        );
    }

    /// Puts waiting messages into the pipe, as many as the worker may have, in one write.
    fn fill(&mut self, now: Instant) {
        let was_idle = self.exchange.is_idle();
        let mut sent = false;
        while let Some(delivery) = self.next_to_send(now) {
            self.exchange.send(delivery, now);
            sent = true;
        }
        if sent {
            if was_idle && !self.exchange.is_idle() {
                self.process.begin(now);
            }
            self.exchange.has_sent(now);
            self.tag_output();
        }
        if !self.ending.is_closed() {
            let done = self.exchange.flush();
            self.look_at(done, now);
        }
    }

    fn next_to_send(&mut self, now: Instant) -> Option<Delivery> {
        if !self.ending.takes_work() || !self.exchange.has_room() {
            return None;
        }
        // A void message is processed by its new owner.
        while let Some(void) = self.backlog.pop_void() {
            self.pool.give_back(void);
            self.pool.has_room();
        }
        let may_have = self.exchange.may_have(self.backlog.first()?, now);
        may_have.then(|| self.backlog.pop()).flatten()
    }

    /// Ties the worker's output to the message that it processes.
    fn tag_output(&mut self) {
        let works_on = self.exchange.works_on();
        let id = works_on.map(|(id, _)| id);
        if id != self.printing_for {
            self.printing_for = id;
            self.process
                .working_on(works_on.map(|(_, subject)| subject));
        }
    }

    fn look_at(&mut self, done: Result<(), ExchangeError>, now: Instant) {
        match done {
            Ok(()) => {}
            Err(ExchangeError::Broken(error)) => self.kill(Cause::ProtocolError(error)),
            Err(ExchangeError::Closed(how)) => {
                if self.ending.closed(now) {
                    let (worker, pid) = (self.pool.slot(), self.process.pid());
                    tracing::debug!(worker, pid, how, "pipe closed");
                    self.pool.close();
                }
            }
        }
    }

    /// Kills the worker for `cause`. A hung worker is examined first, if the rules ask for it.
    fn kill(&mut self, cause: Cause) {
        let hangs = matches!(cause, Cause::TimedOut(_) | Cause::Stalled(_));
        if !self.ending.condemn(cause) {
            return;
        }
        self.pool.close();
        let (policy, pid) = (self.pool.policy(), self.process.pid());
        let identity = identity(self.pool.slot(), &policy);
        let rules = policy.on_timeout.as_ref().filter(|_| hangs);
        if self.autopsy.begin(rules, &self.command, &identity, pid) {
            self.ending.examine(true);
        } else {
            self.kill_group();
        }
    }

    fn kill_group(&mut self) {
        self.ending.examine(false);
        self.process.signal_group(Signal::Kill);
    }

    /// Keeps the findings of an autopsy.
    fn examined(&mut self, findings: Findings) {
        let identity = identity(self.pool.slot(), &self.pool.rules());
        self.autopsy.found(findings, &identity, self.process.pid());
    }

    fn cancel(&mut self, ids: &[u64]) {
        for id in ids {
            self.process.tell(&format!("{CANCEL} {id}"));
        }
    }

    fn answer(&mut self, question: Question) {
        match question {
            Question::Cancel(search) => {
                let waiting = self.backlog.take_meant(|message| search.means(message));
                search.found(waiting.len());
                for one in waiting {
                    let failure = Failure::new(Reason::Cancelled, CANCELLED);
                    self.pool.settle(one, Event::Failed(failure));
                }
                let now = Instant::now();
                search.found(self.exchange.cancel(&search, now));
                self.pool.has_room();
            }
            // The caller may no longer wait for the answer.
            Question::LastLines(asker) => drop(asker.send(self.process.last_lines())),
        }
    }

    fn enter(&mut self, phase: Phase) {
        self.pool.enter(phase);
        match phase {
            Phase::Running => {}
            Phase::Draining => self.stop_taking_work(),
            Phase::Yielding => self.ask_to_yield(),
            Phase::Quitting => {
                // A worker that has closed its pipe gets here without draining.
                self.stop_taking_work();
                self.process.tell(QUIT);
                self.process.close_stdin();
                self.exchange.finish_sending();
            }
            Phase::Terminating => self.process.signal_group(Signal::Terminate),
            Phase::Killing => self.process.signal_group(Signal::Kill),
        }
    }

    fn ask_to_yield(&mut self) {
        let ids = self.exchange.yield_all();
        if self.exchange.is_version2() {
            self.cancel(&ids);
        } else if !ids.is_empty() {
            self.process.tell(CONTEXT_SWITCH);
        }
    }

    /// Stops taking work: the worker exits as soon as it can, and need not be replaced.
    fn stop_taking_work(&mut self) {
        self.wear.forget();
        self.refuse_work();
    }

    /// Gives back the messages that are not in the pipe yet.
    fn refuse_work(&mut self) {
        self.pool.close();
        self.backlog.close();
        let unbegun = self.backlog.take_all().into_iter();
        unbegun.for_each(|one| self.pool.give_back(one));
    }

    /// Settles everything after the end of the process. Output written before counts; then all messages in
    /// flight are settled, and none sooner: until now the worker may have been processing them.
    async fn settle_after_exit(mut self, exit: Exit) -> Ended {
        self.pool.close();
        if self.ending.is_heard() {
            // With the task's budget used up, the pipe would appear empty, and an answer would be lost.
            tokio::task::yield_now().await;
            let done = self.exchange.read(usize::MAX);
            self.look_at(done, Instant::now());
        }
        if self.autopsy.is_under_way()
            && let Ok(findings) = timeout(AFTER_DEATH, self.autopsy.ended()).await
        {
            self.examined(findings);
        }
        let cause = self.ending.cause();
        let stderr = self.process.last_words(LAST_WORDS_WITHIN).await;
        self.questions.close();
        while let Ok(question) = self.questions.try_recv() {
            self.answer(question);
        }
        let on_trial = self.pool.is_on_trial();
        let (mut explained, mut excused) = (false, false);
        let mut over = self.pool.failed_message();
        for unanswered in self.exchange.judge(&cause, exit.code == Some(0)) {
            let crashes = unanswered.delivery.history.crashes;
            if unanswered.blame == Blame::Charged {
                explained |= crashes > 0;
                over = Some(name_hash(&unanswered.delivery.message));
            }
            let blame = unanswered.blame.on_trial(on_trial, &cause, crashes);
            excused |= blame != unanswered.blame;
            self.settle_unanswered(
                Unanswered {
                    blame,
                    ..unanswered
                },
                &cause,
                exit,
                &stderr,
            );
        }
        self.exchange.settle_after_emits().await;
        self.refuse_work();
        self.exchange.show();
        self.pool.has_room();
        // An excused crash counts against the build, or the restarts would continue for ever.
        let orderly = self.ending.is_asked() && cause != Cause::PipeClosed && !excused;
        Ended {
            connected: true,
            orderly,
            how: self.ending.how(&cause, exit),
            cause: cause.describe(exit),
            printed: self.process.last_lines(),
            worked: self.pool.has_worked(exit),
            explained,
            over,
        }
    }

    fn settle_unanswered(
        &self,
        unanswered: Unanswered,
        cause: &Cause,
        exit: Exit,
        stderr: &[String],
    ) {
        let event = match unanswered.blame {
            _ if unanswered.cancelled => {
                let failure = cancelled(&match cause {
                    Cause::Cancelled(_) => "not given up in time: its worker was killed".into(),
                    other => other.describe(exit),
                });
                Event::Failed(Failure {
                    exit: Some(exit),
                    stderr: [stderr, self.autopsy.lines()].concat(),
                    ..failure
                })
            }
            Blame::Charged => Event::Failed(Failure {
                reason: cause.reason(),
                error: cause.error(exit, unanswered.soft, self.pool.rules().timeout_grace),
                exit: Some(exit),
                stderr: [stderr, self.autopsy.lines()].concat(),
                reply: None,
            }),
            Blame::Returned => Event::Stopped { suspect: false },
            Blame::Suspect => Event::Stopped { suspect: true },
        };
        self.pool.settle(unanswered.delivery, event);
    }
}
