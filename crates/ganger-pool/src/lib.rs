//! A pool keeps its number of workers, gives each message of its source to the least loaded one,
//! and settles every message before it ends. It is the only module that knows both sources and
//! workers; it runs on one thread.

pub mod autoscale;
pub mod breaker;
pub mod events;
mod intake;
pub mod lane;
pub mod least_loaded;
mod load;
mod machine;
mod orders;
pub mod overview;
pub mod pauses;
mod printed;
pub mod publish_to;
pub mod registry;
mod report;
pub mod request;
mod rolling;
pub mod roster;
mod scaling;
mod showcase;
pub mod status;
mod steer;
mod steering;
mod stop;
mod stopping;
mod streak;
pub mod supervise;
pub mod trial;
pub mod turns;
pub mod verdict;
pub mod window;
pub mod worker;
mod workers;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{Id, JoinSet};
use tokio::time::Instant;

use crate::worker::output::LastLines;
use events::{EventFeed, PoolEvents};
use ganger_config::model::WorkerCommand;
use ganger_core::event_loop::Standstills;
use ganger_core::shutdown::Phase;
use ganger_queue::delivery::{Delivery, PoolEnd};
use lane::{Ended, Gauge, Question, Shared};
use least_loaded::Board;
use load::Scaling;
pub use orders::Orders;
use printed::Printed;
use roster::Generation;
use showcase::Showcase;
use status::{PoolStatus, WorkerLoss};
pub use steering::{LastingPause, Refusal, Steer, Steering};
use stopping::{SETTLE_WITHIN, Stopping};
use supervise::Supervisor;
use trial::{AnswerTally, Answers};

/// Maximum number of messages taken from the source at once.
const BATCH: usize = 256;
/// Capacity of a lane's mailbox: more than any window, so that handing a message over never waits.
const MAILBOX: usize = 1024;
/// Maximum number of operators' questions that wait for a lane; it reads them before all messages.
const QUESTIONS_WAITING_MAX: usize = 64;

/// A command to a pool from others than the daemon.
#[derive(Debug)]
pub enum Command {
    /// Publish the current status and return it.
    Status(oneshot::Sender<Arc<PoolStatus>>),
    /// Carry out an operator's request and return the number of rolling restarts begun so far.
    Steer(Steer, oneshot::Sender<Result<u64, Refusal>>),
    /// Cancel the messages of that name and return their number.
    Cancel(String, oneshot::Sender<usize>),
    /// Return the last lines that the worker in that slot has printed, or those of the one before
    /// if none runs. Not answered if there was none.
    LastLines(usize, oneshot::Sender<LastLines>),
}

/// Reason for which a pool failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// The source ended without being asked to.
    #[error("the source ended by itself")]
    SourceEnded,
    /// The source could not write the last settlements; their messages will be redelivered.
    #[error("the last settlements could not be written within {SETTLE_WITHIN:?}")]
    Unsettled,
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
    let mut pool = Pool::new(
        first.begun(),
        link,
        connected_tx,
        Showcase::new(shown),
        steered,
        feed,
    );
    if pool.steering != Steering::default() {
        let (pool, scaled) = (pool.name(), pool.steering.scaled());
        tracing::info!(
            pool,
            scaled,
            "what operators asked of its predecessor holds on"
        );
    }
    pool.follow_orders(Some(first));
    let _turns = pool.shared.turns.clone().follow();
    let mut batch = Vec::with_capacity(BATCH);
    loop {
        let now = Instant::now();
        pool.make_up(now);
        pool.look_at_lanes();
        pool.watch_trials(now);
        pool.follow_load(now);
        pool.carry_out_plan(now);
        pool.give_back_stale(now);
        pool.follow_breaker();
        pool.dispatch(now);
        pool.set_credit();
        pool.note_load(now);
        pool.tell_changes();
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
            Some(command) = commands.recv() => pool.obey(command),
            Some(slot) = connected.recv() => pool.connected(slot),
            Some(ended) = pool.lanes.join_next_with_id() => pool.lane_ended(ended),
            () = pool.shared.room.notified() => pool.watch_answers(),
            count = pool.link.deliveries.recv_many(&mut batch, BATCH), if pool.takes_deliveries() => {
                pool.received(count, &mut batch);
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

/// The pool's end of a lane.
struct Handle {
    gauge: Rc<Gauge>,
    mailbox: mpsc::Sender<Delivery>,
    questions: mpsc::Sender<Question>,
    phase: watch::Sender<Phase>,
}

impl Handle {
    fn raise(&self, phase: Phase) {
        self.phase.send_if_modified(|current| {
            let later = phase > *current;
            *current = phase.max(*current);
            later
        });
    }
}

struct Pool {
    shared: Rc<Shared>,
    link: PoolEnd,
    supervisor: Supervisor,
    /// State of the autoscaling, where the number of workers follows the load.
    scaling: Option<Scaling>,
    /// Command of each generation of workers; the last one is known to work.
    commands: BTreeMap<Generation, Arc<WorkerCommand>>,
    /// Tally of the answers of each generation of workers.
    tallies: BTreeMap<Generation, Rc<AnswerTally>>,
    /// Answers of the old workers before the rolling restart began.
    answers_before_roll: Answers,
    slots: BTreeMap<usize, Handle>,
    /// Load of the lanes.
    board: Board,
    lanes: JoinSet<Ended>,
    slot_of: HashMap<Id, usize>,
    /// Messages from the source that wait for a worker with room.
    held: VecDeque<Delivery>,
    /// Minimum number of workers that share the waiting messages, also where these are given out in
    /// runs.
    parts_min: usize,
    /// Messages from the source that wait for an idle worker.
    suspects: VecDeque<Delivery>,
    stopping: Option<Stopping>,
    standstills: Standstills,
    /// The daemon's orders, as far as carried out.
    orders: Orders,
    orders_ended: bool,
    source_gone: bool,
    /// The source ended before it was asked to.
    source_failed: bool,
    proofs_at_last_end: u64,
    steering: Steering,
    /// Publishes `steering`.
    steered: watch::Sender<Steering>,
    /// Cause of the end of the new worker that stopped the last rolling restart, until one is done.
    roll_stopped: Option<String>,
    /// Cause of the end of the last worker that ended unasked.
    last_worker_lost: Option<String>,
    last_loss: Option<WorkerLoss>,
    /// Last lines of workers that have ended.
    printed: Printed,
    /// Number of consecutive workers that did not get as far as connecting.
    failed_starts: u64,
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
        let steering = *steered.borrow();
        let target = steering.target(policy.workers.min());
        let supervisor = Supervisor::new(target, policy.restart);
        let scaling = Scaling::new(&policy.workers, policy.workers.min(), Instant::now());
        let commands = BTreeMap::from([(0, Arc::new(policy.command.clone()))]);
        let events = PoolEvents::new(feed, &policy.name);
        let shared = Shared::new(
            policy,
            events,
            link.facts.clone(),
            link.publishes.clone(),
            connected,
        );
        Self {
            shared: Rc::new(shared),
            link,
            supervisor,
            scaling,
            commands,
            tallies: BTreeMap::new(),
            answers_before_roll: Answers::default(),
            slots: BTreeMap::new(),
            board: Board::default(),
            lanes: JoinSet::new(),
            slot_of: HashMap::new(),
            held: VecDeque::new(),
            parts_min: 2 * std::thread::available_parallelism().map_or(1, usize::from),
            suspects: VecDeque::new(),
            stopping: None,
            standstills: Standstills::from_now(),
            orders,
            orders_ended: false,
            source_gone: false,
            source_failed: false,
            proofs_at_last_end: 0,
            steering,
            steered,
            roll_stopped: None,
            last_worker_lost: None,
            last_loss: None,
            printed: Printed::default(),
            failed_starts: 0,
            shown,
        }
    }

    fn name(&self) -> String {
        self.shared.policy.borrow().name.clone()
    }

    /// Carries out changed orders; without a daemon the pool ends.
    fn follow_orders(&mut self, orders: Option<Orders>) {
        let Some(orders) = orders else {
            self.orders_ended = true;
            return self.stop(Duration::ZERO);
        };
        let before = std::mem::replace(&mut self.orders, orders.clone());
        if !Arc::ptr_eq(&before.policy, &orders.policy) {
            self.follow(orders.policy);
            self.wake_lanes();
        }
        if before.rolls != orders.rolls {
            self.roll();
        }
        if let Some(drain_timeout) = orders.drain_timeout {
            self.stop(drain_timeout);
        }
        for _ in before.hurries..orders.hurries {
            self.hurry();
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Status(reply) => {
                // The caller may have gone.
                drop(reply.send(self.show_now(Instant::now())));
            }
            Command::Steer(steer, reply) => drop(reply.send(self.steer(steer))),
            Command::Cancel(id, asker) => self.cancel(id, asker),
            Command::LastLines(slot, asker) => self.last_lines(slot, asker),
        }
    }

    /// Wakes the lanes: a waiting lane checks the rules, the breaker and its claims again when its
    /// phase is sent anew.
    fn wake_lanes(&self) {
        for handle in self.slots.values() {
            handle.phase.send_modify(|_| {});
        }
    }
}
