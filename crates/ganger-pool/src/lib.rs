//! A pool keeps its number of workers, gives each message of its source to the least loaded one,
//! and settles every message before it ends. It is the only module that knows both sources and
//! workers; it runs on one thread.

pub mod autoscale;
pub mod breaker;
mod control;
pub mod events;
pub mod lane;
mod lanes;
pub mod least_loaded;
mod losses;
mod machine;
mod orders;
pub mod overview;
pub mod pauses;
mod printed;
pub mod problems;
pub mod publish_to;
pub mod registry;
pub mod request;
mod rollout;
pub mod roster;
mod scaling;
mod showcase;
pub mod state_file;
pub mod status;
mod steering;
mod stopping;
mod streak;
pub mod supervise;
pub mod trial;
pub mod turns;
pub mod verdict;
mod waiting;
pub mod window;
pub mod worker;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::worker::output::LastLines;
use autoscale::Held;
use breaker::Transition;
use events::{EventFeed, PoolEvents};
use ganger_core::event_loop::Standstills;
use ganger_core::shutdown::Phase;
use ganger_queue::delivery::{CREDIT_MAX, Delivery, Intake, PoolEnd};
use ganger_telemetry::metrics::WorkerEnd;
pub use lane::Sought;
use lane::{Ended, Gauge, Shared};
use lanes::{Lanes, MAILBOX};
use losses::Losses;
pub use orders::Orders;
use rollout::Rollout;
use roster::Generation;
use scaling::{PoolLoad, Scaling};
use showcase::Showcase;
use status::PoolStatus;
pub use steering::{LastingPause, Refusal, Steer, Steering};
pub use stopping::PoolError;
use stopping::Stopping;
use supervise::{Action, End, Supervisor};
use waiting::Waiting;

/// Maximum number of messages taken from the source at once.
const BATCH: usize = 256;

/// A command to a pool from others than the daemon.
#[derive(Debug)]
pub enum Command {
    /// Publish the current status and return it.
    Status(oneshot::Sender<Arc<PoolStatus>>),
    /// Carry out an operator's request and return the number of rolling restarts begun so far.
    Steer(Steer, oneshot::Sender<Result<u64, Refusal>>),
    /// Cancel these messages and return their number.
    Cancel(Sought, oneshot::Sender<usize>),
    /// Return the last lines that the worker in that slot has printed, or those of the one before
    /// if none runs. Not answered if there was none.
    LastLines(usize, oneshot::Sender<LastLines>),
}

/// Runs a pool on the calling thread, inside a `LocalSet`. The thread must outlive the workers:
/// they die with it. Ends after [`Orders::stop`], or when the daemon's end of `orders` is gone. The
/// status is published in `shown` and the operators' requests in `steered`, whose initial value
/// holds from the start. Events go to `feed`.
///
/// # Errors
/// If the source ended too early, or not at all.
pub async fn run(
    mut orders: watch::Receiver<Orders>,
    link: PoolEnd,
    mut commands: mpsc::Receiver<Command>,
    shown: watch::Sender<Arc<PoolStatus>>,
    steered: watch::Sender<Steering>,
    feed: EventFeed,
) -> Result<(), PoolError> {
    let (connected_tx, mut connected) = mpsc::channel(MAILBOX);
    let first = orders.borrow_and_update().clone();
    let shown = Showcase::new(shown);
    let mut pool = Pool::new(first.begun(), link, connected_tx, shown, steered, feed);
    let steering = pool.steering();
    if steering != Steering::default() {
        let (pool, scaled) = (pool.shared.name(), steering.scaled());
        tracing::info!(
            pool,
            scaled,
            "settings by operators are taken over from the predecessor"
        );
    }
    pool.follow_orders(Some(first));
    let _turns = pool.shared.turns.clone().follow();
    let mut batch = Vec::with_capacity(BATCH);
    loop {
        let now = Instant::now();
        pool.extend_deadlines(now);
        pool.lanes.look();
        pool.watch_trials(now);
        pool.follow_load(now);
        pool.wake(now);
        pool.carry_out_plan(now);
        pool.waiting.give_back_stale(now);
        pool.follow_breaker();
        pool.dispatch(now);
        pool.set_credit();
        pool.note_load(now);
        pool.report_changes();
        pool.show(now);
        if let Some(result) = pool.result(now) {
            // The last changes count as well.
            pool.show_now(now);
            return result;
        }
        let alarm = pool.next_alarm(now);
        tokio::select! {
            biased;
            changed = orders.changed(), if !pool.orders_ended => {
                let told = changed.is_ok().then(|| orders.borrow_and_update().clone());
                pool.follow_orders(told);
            }
            Some(command) = commands.recv() => pool.handle_command(command),
            Some(slot) = connected.recv() => pool.connected(slot),
            Some((slot, ended)) = pool.lanes.next_ended() => pool.worker_ended(slot, &ended),
            () = pool.shared.room.notified() => pool.watch_answers(),
            count = pool.link.deliveries.recv_many(&mut batch, BATCH), if pool.takes_deliveries() => {
                pool.source_is_gone = count == 0;
                pool.take_in(&mut batch);
            }
            Ok(()) = pool.link.state.changed() => pool.follow_source(),
            () = at(alarm) => pool.keep_time(),
        }
    }
}

/// Waits for the alarm; for ever if there is none.
async fn at(alarm: Option<Instant>) {
    match alarm {
        Some(alarm) => tokio::time::sleep_until(alarm).await,
        None => std::future::pending().await,
    }
}

struct Pool {
    shared: Rc<Shared>,
    /// The daemon's orders, as far as they are carried out.
    orders: Orders,
    orders_ended: bool,
    /// Publishes the requests of operators.
    steered: watch::Sender<Steering>,
    link: PoolEnd,
    source_is_gone: bool,
    waiting: Waiting,
    supervisor: Supervisor,
    rollout: Rollout,
    lanes: Lanes,
    losses: Losses,
    /// State of the autoscaling, where the number of workers follows the load.
    scaling: Option<Scaling>,
    stopping: Option<Stopping>,
    standstills: Standstills,
    shown: Showcase,
}

impl Pool {
    fn new(
        orders: Orders,
        link: PoolEnd,
        connected: mpsc::Sender<usize>,
        shown: Showcase,
        steered: watch::Sender<Steering>,
        feed: EventFeed,
    ) -> Self {
        let policy = Arc::clone(&orders.policy);
        let workers = policy.workers.min();
        let target = steered.borrow().target(workers);
        let supervisor = Supervisor::new(target, policy.restart);
        let scaling = Scaling::new(&policy.workers, workers, Instant::now());
        let rollout = Rollout::new(policy.command.clone());
        let events = PoolEvents::new(feed, &policy.name);
        let (facts, publishes) = (link.facts.clone(), link.publishes.clone());
        let shared = Rc::new(Shared::new(policy, events, facts, publishes, connected));
        Self {
            waiting: Waiting::new(Rc::clone(&shared)),
            lanes: Lanes::new(Rc::clone(&shared)),
            shared,
            orders,
            orders_ended: false,
            steered,
            link,
            source_is_gone: false,
            supervisor,
            rollout,
            losses: Losses::default(),
            scaling,
            stopping: None,
            standstills: Standstills::from_now(),
            shown,
        }
    }
}

/// Messages, from the source to the lanes.
impl Pool {
    fn takes_deliveries(&self) -> bool {
        // While the breaker is open, messages wait here without being tried, within the credit.
        let may_wait = self.shared.breaker.borrow().is_open();
        (!self.waiting.has_ordinary() || may_wait) && !self.source_is_gone
    }

    /// Takes messages in. They may have been on their way when the intake or the breaker changed.
    fn take_in(&mut self, batch: &mut Vec<Delivery>) {
        let most = match self.takes_nothing() {
            true => 0,
            false => self.kept_while_open().unwrap_or(usize::MAX),
        };
        self.waiting.take_in(batch, most);
    }

    fn takes_nothing(&self) -> bool {
        self.stopping.is_some() || self.steering().takes_nothing()
    }

    /// Returns the number of messages that may be here while the breaker is open. Without a worker that is none, or the
    /// one that starts a worker; the number must leave room, beside the messages that workers may still have from
    /// before, for those to be tried.
    fn kept_while_open(&self) -> Option<usize> {
        let at_hand = self.shared.breaker.borrow().at_hand()?;
        let board = self.lanes.board();
        Some(match board.open() {
            0 => usize::from(self.starts_by_message()),
            _ => at_hand + board.windows(),
        })
    }

    /// Gives back the messages that no worker has been given.
    fn give_back(&mut self) {
        self.waiting.give_back();
        while let Ok(delivery) = self.link.deliveries.try_recv() {
            self.shared.counters.taken(1);
            self.shared.counters.given_back(1);
            drop(delivery);
        }
    }

    /// Gives out waiting messages as far as there is room. Without any worker they are given back: other
    /// daemons may have one, and it is unknown when this pool will. Only one that starts a worker waits for it.
    fn dispatch(&mut self, now: Instant) {
        if self.lanes.board().open() == 0 {
            match self.starts_by_message() {
                true => return,
                false => return self.give_back(),
            }
        }
        let (waiting, lanes) = (&mut self.waiting, &mut self.lanes);
        waiting.give_out_suspects(now, |one, choice| lanes.place(one, choice));
        if !waiting.has_suspects() {
            lanes.release();
        }
        waiting.give_out(now, |one, choice| lanes.place(one, choice));
    }

    /// Returns the time at which the breaker admits the first of the waiting messages.
    fn next_probe(&self, now: Instant) -> Option<Instant> {
        let probe_at = self.shared.breaker.borrow().probe_at()?;
        // After that time the pool waits for a lane.
        (self.waiting.len() > 0 && probe_at > now).then_some(probe_at)
    }

    /// Gives back the messages that no worker has when the breaker has opened; the lanes do the same.
    fn follow_breaker(&mut self) {
        let transition = self.shared.breaker.borrow_mut().take_transition();
        match transition {
            None => {}
            Some(Transition::Opened { failed, error }) => {
                self.give_back();
                self.lanes.wake();
                tracing::error!(
                    pool = self.shared.name(),
                    failed,
                    error,
                    "breaker opened: nearly all first attempts fail; trying one message at a time"
                );
            }
            Some(Transition::Closed) => {
                tracing::info!(
                    pool = self.shared.name(),
                    "breaker closed: attempts succeed again"
                );
            }
        }
    }

    /// Returns the number of messages that the workers can use, or that start the first of them.
    fn credit(&self) -> usize {
        let most = match self.supervisor.degraded() {
            true => 1,
            false => CREDIT_MAX,
        };
        match self.takes_nothing() {
            true => 0,
            false if self.starts_by_message() => 1,
            false => {
                let wanted = self.kept_while_open();
                wanted
                    .unwrap_or_else(|| self.lanes.board().wanted())
                    .min(most)
            }
        }
    }

    /// Reports the credit to the source.
    fn set_credit(&self) {
        let intake = match self.stopping.is_some() {
            true => Intake::Closed,
            false => Intake::Credit(self.credit()),
        };
        self.link.intake.send_if_modified(|current| {
            let changed = *current != intake;
            *current = intake;
            changed
        });
    }

    /// Follows changes of the source's state. Messages that it has lost are processed by other daemons: the
    /// lanes check whether they have some of them.
    fn follow_source(&mut self) {
        let (losses, paused) = {
            let state = self.link.state.borrow();
            (state.losses, state.paused)
        };
        if self.shared.set_losses(losses) {
            self.waiting.give_back_void();
            self.lanes.wake();
        }
        let mut steering = self.steering();
        if steering.set_for_all(paused) {
            let pool = self.shared.name();
            match paused {
                true => tracing::info!(pool, "paused for all daemons: intake stopped"),
                false => tracing::info!(pool, "no longer paused for all daemons"),
            }
            self.follow_steering(steering);
        }
    }
}

/// Workers: their number, their starts and their ends.
impl Pool {
    /// Returns whether the pool has no worker, and the first message starts one, for which it waits here. A worker that
    /// starts again after a failure is not waited for.
    fn starts_by_message(&self) -> bool {
        let may_rest = self.shared.policy.borrow().workers.may_be_none();
        let is_free = self.stopping.is_none() && self.steering().scaled().is_none();
        let starts_well = self.supervisor.target() == 0 || !self.supervisor.has_failed();
        may_rest && is_free && starts_well && self.lanes.board().open() == 0
    }

    /// Starts a worker for the first message.
    fn wake(&mut self, now: Instant) {
        let is_called = self.waiting.len() > 0 && self.supervisor.target() == 0;
        if is_called
            && self.starts_by_message()
            && let Some(scaling) = &mut self.scaling
        {
            scaling.wake(&self.shared.name(), now);
            self.resize();
        }
    }

    /// Checks, if that is due, whether there are too few or too many workers.
    fn follow_load(&mut self, now: Instant) {
        let is_due = |scaling: &Scaling| scaling.next_look() <= now;
        if !self.scaling.as_ref().is_some_and(is_due) || self.stopping.is_some() {
            return;
        }
        let (policy, load) = (self.shared.policy(), self.load());
        let (Some(scaling), Some(rules)) = (&mut self.scaling, policy.workers.range()) else {
            return;
        };
        let pids = self.lanes.gauges().filter_map(Gauge::pid);
        if scaling.look(&policy.name, rules, load, pids, now) {
            self.resize();
        }
    }

    fn load(&self) -> PoolLoad {
        let board = self.lanes.board();
        PoolLoad {
            coming: self.supervisor.coming(),
            finished: self.shared.counters.answers(),
            out: board.out() + self.waiting.len(),
            worked_on: board.work().worked_on,
            queued: self.queued(),
            held: self.held_for(),
            scaled: self.steering().scaled(),
        }
    }

    /// Returns the number of messages in the queue in addition to those that are here, where the source
    /// knows.
    fn queued(&self) -> Option<u64> {
        let backlog = self.link.state.borrow().backlog?;
        Some(backlog.depth)
    }

    /// Returns the reason not to change the number of workers now.
    fn held_for(&self) -> Option<Held> {
        match () {
            () if self.steering().takes_nothing() => Some(Held::Paused),
            () if self.supervisor.degraded() => Some(Held::Degraded),
            () if self.shared.breaker.borrow().is_open() => Some(Held::BreakerOpen),
            () if !self.link.state.borrow().healthy => Some(Held::SourceDown),
            () if self.supervisor.is_rolling() => Some(Held::Rolling),
            () => None,
        }
    }

    /// Records the workers' current load.
    fn note_load(&mut self, now: Instant) {
        let board = self.lanes.board();
        if let Some(scaling) = &mut self.scaling {
            scaling.note(board.work(), board.open(), now);
        }
    }

    /// Checks the new workers of a rolling restart. They are removed if they are worse than the old
    /// ones.
    fn watch_trials(&mut self, now: Instant) {
        if !self.supervisor.is_rolling() {
            return;
        }
        let start_timeout = self.shared.policy().start_timeout;
        let gauge = |slot| self.lanes.gauge(slot);
        let passed = self
            .rollout
            .check(&mut self.supervisor, gauge, start_timeout, now);
        for worker in passed {
            tracing::info!(
                pool = self.shared.name(),
                worker,
                "new worker passed its trial"
            );
        }
    }

    fn carry_out_plan(&mut self, now: Instant) {
        if self.stopping.is_some() {
            return;
        }
        let board = self.lanes.board();
        for action in self.supervisor.plan(now, |slot| !board.is_idle(slot)) {
            match action {
                Action::Start(slot, generation) => self.start(slot, generation),
                Action::Drain(slot) => self.lanes.raise(slot, Phase::Draining),
                Action::Rolled(generation) => {
                    self.rollout.done(generation);
                    tracing::info!(
                        pool = self.shared.name(),
                        generation,
                        "rolling restart completed"
                    );
                }
                Action::RollFailed(generation) => {
                    self.rollout.failed(generation);
                    tracing::error!(
                        pool = self.shared.name(),
                        cause = self.rollout.stopped(),
                        "rolling restart stopped: a new worker failed its trial; the old ones stay"
                    );
                }
            }
        }
    }

    fn start(&mut self, slot: usize, generation: Generation) {
        if let Some((command, tally)) = self.rollout.of(generation) {
            let on_trial = self.supervisor.is_on_trial(slot);
            self.lanes.start(slot, command, tally, on_trial);
        }
    }

    fn connected(&mut self, slot: usize) {
        let was_degraded = self.supervisor.degraded();
        self.losses.connected();
        self.supervisor.connected(slot, Instant::now());
        let pid = self.lanes.gauge(slot).and_then(Gauge::pid);
        tracing::info!(pool = self.shared.name(), worker = slot, pid, "worker up");
        self.note_recovery(was_degraded);
    }

    /// Ends a crash loop with the first worker that shows that it works.
    fn watch_answers(&mut self) {
        let proofs = self.shared.proofs();
        if self.supervisor.degraded() && self.losses.has_worked_since(proofs) {
            self.supervisor.worked(Instant::now());
            self.note_recovery(true);
        }
    }

    fn note_recovery(&self, was_degraded: bool) {
        if was_degraded && !self.supervisor.degraded() {
            tracing::info!(pool = self.shared.name(), "pool recovered");
        }
    }

    fn worker_ended(&mut self, slot: usize, ended: &Ended) {
        let was_degraded = self.supervisor.degraded();
        let was_rolling = self.supervisor.is_rolling();
        let on_trial = self.supervisor.is_on_trial(slot);
        let is_proven = |gauge: &Gauge| gauge.is_open() && gauge.has_worked();
        let proofs = self.shared.proofs();
        let end = End {
            connected: ended.connected,
            worked: ended.worked,
            explained: ended.explained,
            late: matches!(ended.how, WorkerEnd::TimedOut | WorkerEnd::Stalled),
            over: ended.over,
            orderly: ended.orderly,
            recycled: ended.how == WorkerEnd::Recycled,
            pool_worked: self.losses.ended(slot, ended, on_trial, proofs),
            others_proven: self.lanes.gauges().any(is_proven),
        };
        self.supervisor
            .ended(slot, end, Instant::now(), fastrand::f64());
        if was_rolling && !self.supervisor.is_rolling() {
            self.rollout.stop(&ended.cause);
        }
        if self.supervisor.degraded() && !was_degraded {
            self.give_back();
            tracing::error!(
                pool = self.shared.name(),
                cause = ended.cause,
                "pool degraded: its workers keep failing; starting one at a time"
            );
        }
        // Another worker may have shown that it works just before.
        self.note_recovery(was_degraded);
    }
}

/// Time: alarms, deadlines and the end.
impl Pool {
    fn next_alarm(&self, now: Instant) -> Option<Instant> {
        let shown = self.shown.next();
        if let Some(stopping) = &self.stopping {
            let deadline = stopping.next_alarm(!self.lanes.is_empty());
            return deadline.into_iter().chain(shown).min();
        }
        let alarms = [
            self.supervisor.next_start(),
            self.waiting.next_stale(),
            self.next_probe(now),
            self.scaling.as_ref().map(Scaling::next_look),
            shown,
        ];
        alarms.into_iter().flatten().min()
    }

    /// Moves the deadlines by the time for which this thread's loop was stopped: no worker is to blame. The
    /// lanes move theirs.
    fn extend_deadlines(&mut self, now: Instant) {
        let Some(stood_still) = self.standstills.take_stall(now) else {
            return;
        };
        if let Some(stopping) = &mut self.stopping {
            stopping.postpone(stood_still);
        }
        tracing::warn!(
            pool = self.shared.name(),
            ?stood_still,
            "the pool's event loop was stalled: deadlines are extended by that time"
        );
    }

    fn keep_time(&mut self) {
        let now = Instant::now();
        self.extend_deadlines(now);
        let Some(stopping) = &mut self.stopping else {
            return;
        };
        let (yields, is_delay_log_due) = (stopping.yields(now), stopping.is_delay_log_due(now));
        let abandons = stopping.abandons(now);
        if yields {
            self.lanes.raise_all(Phase::Yielding);
        }
        if is_delay_log_due {
            self.name_laggards(now);
        }
        if abandons {
            // SIGKILL is pending, so they will not execute any more of their program.
            self.lanes.abandon();
        }
    }

    fn name_laggards(&self, now: Instant) {
        let pool = self.shared.name();
        if self.lanes.is_empty() {
            let problem = self.link.state.borrow().problem.clone();
            tracing::warn!(pool, problem, "stop is waiting for the source");
        }
        let workers = self.lanes.statuses(now);
        for worker in workers.filter(|worker| worker.pid.is_some()) {
            tracing::warn!(
                pool,
                worker = worker.slot,
                pid = worker.pid,
                state = worker.state,
                in_flight = worker.in_flight,
                message_age = worker.message_age,
                "stop is waiting for this worker"
            );
        }
    }

    /// Returns the result of the pool once it has ended.
    fn result(&mut self, now: Instant) -> Option<Result<(), PoolError>> {
        if self.source_is_gone {
            // Without a stop under way the pool has failed.
            self.stop(Duration::ZERO);
        }
        let stopping = self.stopping.as_mut().filter(|_| self.lanes.is_empty())?;
        stopping.result(now, self.source_is_gone)
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::LocalSet;

    use super::*;
    use ganger_config::model;
    use ganger_config::model::Workers;
    use ganger_config::sample::policy;
    use ganger_queue::delivery::link;

    /// Whatever the reason for missing the first order, the second is enough.
    #[tokio::test]
    async fn a_hurry_stops_one_that_was_not_told_to_stop() {
        let (mut source, pool) = link();
        let policy = model::PoolConfig {
            workers: Workers::Fixed(0),
            ..policy()
        };
        let (orders, told) = watch::channel(Orders::new(Arc::new(policy)));
        let (_commands, commands) = mpsc::channel(1);
        orders.send_modify(Orders::escalate_stop);
        let source = async {
            let closed = |intake: &Intake| *intake == Intake::Closed;
            drop(source.intake.wait_for(closed).await.unwrap());
            drop(source);
        };
        let (shown, _) = watch::channel(Arc::default());
        let (steered, _) = watch::channel(Steering::default());
        let feed = EventFeed::new(std::time::SystemTime::now());
        let run = run(told, pool, commands, shown, steered, feed);
        let both = async { tokio::join!(run, source).0 };
        assert_eq!(LocalSet::new().run_until(both).await, Ok(()));
    }
}
