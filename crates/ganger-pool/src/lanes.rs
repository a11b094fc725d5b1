//! The lanes of a pool, one for each running worker: starts them, gives them messages, stops them, and counts
//! their ends. Other modules decide which worker is started and which message is given.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;

use super::lane::{self, Ended, Gauge, Question, Search, Shared, Start};
use super::least_loaded::{Board, Choice};
use super::printed::Printed;
use super::status::WorkerStatus;
use super::trial::AnswerTally;
use super::waiting::Placement;
use crate::worker::output::LastLines;
use ganger_config::model::WorkerCommand;
use ganger_core::shutdown::Phase;
use ganger_queue::delivery::Delivery;
use ganger_telemetry::metrics::WorkerEnd;

/// Capacity of a lane's mailbox: more than any window, so that handing a message over never waits.
pub(super) const MAILBOX: usize = 1024;
/// Maximum number of operators' questions that wait for a lane; it reads them before all messages.
const QUESTIONS_WAITING_MAX: usize = 64;

/// The pool's end of a lane.
#[derive(Debug)]
struct Handle {
    task: Id,
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

/// The lanes of a pool, by slot.
#[derive(Debug)]
pub(super) struct Lanes {
    shared: Rc<Shared>,
    handles: BTreeMap<usize, Handle>,
    /// Load of the lanes.
    board: Board,
    tasks: JoinSet<Ended>,
    /// Last lines of workers that have ended.
    printed: Printed,
}

impl Lanes {
    pub(super) fn new(shared: Rc<Shared>) -> Self {
        Self {
            shared,
            handles: BTreeMap::new(),
            board: Board::default(),
            tasks: JoinSet::new(),
            printed: Printed::default(),
        }
    }

    /// Returns whether no lane runs.
    pub(super) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Returns the load of the lanes as last read.
    pub(super) fn board(&self) -> &Board {
        &self.board
    }

    /// Returns the gauge of the lane in that slot.
    pub(super) fn gauge(&self, slot: usize) -> Option<&Gauge> {
        Some(&self.handles.get(&slot)?.gauge)
    }

    /// Returns the gauges of all lanes, lowest slot first.
    pub(super) fn gauges(&self) -> impl Iterator<Item = &Gauge> {
        self.handles.values().map(|handle| &*handle.gauge)
    }

    /// Starts a lane, whose worker's answers count in `tally`.
    pub(super) fn start(
        &mut self,
        slot: usize,
        command: Arc<WorkerCommand>,
        tally: Rc<AnswerTally>,
        on_trial: bool,
    ) {
        let (mailbox_tx, mailbox) = mpsc::channel(MAILBOX);
        let (questions_tx, questions) = mpsc::channel(QUESTIONS_WAITING_MAX);
        let (phase_tx, phase) = watch::channel(Phase::Running);
        let gauge = Rc::new(Gauge::new(on_trial, tally));
        let start = Start {
            slot,
            command,
            shared: self.shared.clone(),
            gauge: gauge.clone(),
            mailbox,
            questions,
            phase,
        };
        let task = self.tasks.spawn_local(lane::run(start)).id();
        let handle = Handle {
            task,
            gauge,
            mailbox: mailbox_tx,
            questions: questions_tx,
            phase: phase_tx,
        };
        self.handles.insert(slot, handle);
    }

    /// Advances the stop of the worker in that slot to that phase.
    pub(super) fn raise(&self, slot: usize, phase: Phase) {
        if let Some(handle) = self.handles.get(&slot) {
            handle.raise(phase);
        }
    }

    /// Advances the stop of all workers to that phase.
    pub(super) fn raise_all(&self, phase: Phase) {
        self.handles.values().for_each(|handle| handle.raise(phase));
    }

    /// Advances each worker's stop to its next phase.
    pub(super) fn escalate_stop(&self) {
        for handle in self.handles.values() {
            handle.raise(handle.gauge.phase().next());
        }
    }

    /// Leaves the remaining workers to the kernel.
    pub(super) fn abandon(&mut self) {
        self.tasks.abort_all();
    }

    /// Wakes the lanes: a waiting lane checks the rules, the breaker and its claims again when its
    /// phase is sent anew.
    pub(super) fn wake(&self) {
        for handle in self.handles.values() {
            handle.phase.send_modify(|_| {});
        }
    }

    /// Reads the lanes that have changed since the last call; the cost of reading all would grow with their
    /// number.
    pub(super) fn look(&mut self) {
        for slot in self.shared.take_changed() {
            self.look_at(slot);
        }
    }

    /// Reads a lane. Returns whether its load has changed.
    fn look_at(&mut self, slot: usize) -> bool {
        let Some(handle) = self.handles.get(&slot) else {
            return self.board.remove(slot).is_some();
        };
        self.board.show(slot, handle.gauge.look())
    }

    /// Gives the message to a lane and returns which, or gives it back if none has room.
    pub(super) fn place(&mut self, mut delivery: Delivery, choice: Choice) -> Placement {
        let alone = delivery.history.alone;
        let bytes = delivery.message.body.len();
        loop {
            let Some(slot) = self.board.choose_by(choice) else {
                return Err(delivery.into());
            };
            // The lane may be closing at this very moment; then another one is chosen.
            if self.look_at(slot) {
                continue;
            }
            let Some(Handle { gauge, mailbox, .. }) = self.handles.get(&slot) else {
                continue;
            };
            match mailbox.try_send(delivery) {
                Ok(()) => {
                    gauge.given(bytes, alone);
                    self.look_at(slot);
                    self.board.took(slot);
                    return Ok(slot);
                }
                Err(TrySendError::Closed(back) | TrySendError::Full(back)) => {
                    gauge.close();
                    delivery = back;
                }
            }
        }
    }

    /// Releases the lane that was kept for a message that has to run alone.
    pub(super) fn release(&mut self) {
        self.board.release();
    }

    /// Waits for the end of a lane and counts it; `None` if no lane runs. Cancel-safe.
    pub(super) async fn next_ended(&mut self) -> Option<(usize, Ended)> {
        loop {
            let ended = self.tasks.join_next_with_id().await?;
            if let Some(removed) = self.remove(ended) {
                return Some(removed);
            }
        }
    }

    fn remove(&mut self, ended: Result<(Id, Ended), JoinError>) -> Option<(usize, Ended)> {
        let id = match &ended {
            Ok((id, _)) => *id,
            Err(panic) => panic.id(),
        };
        let mut handles = self.handles.iter();
        let slot = handles.find_map(|(slot, handle)| (handle.task == id).then_some(*slot))?;
        let Handle { gauge, .. } = self.handles.remove(&slot)?;
        self.board.remove(slot);
        // A lane settles all its messages, unless it is lost or its worker was left to the kernel.
        self.shared.counters.given_back(gauge.load());
        let ended = match ended {
            Ok((_, ended)) => ended,
            Err(panic) => lost(&panic, gauge.has_worked()),
        };
        count_end(&self.shared, slot, gauge.pid(), &ended);
        let (cause, lines) = (ended.cause.clone(), ended.printed.clone());
        self.printed.keep(slot, cause, lines);
        Some((slot, ended))
    }

    /// Asks the lanes that have messages to cancel those that the search matches.
    pub(super) fn cancel(&self, search: &Rc<Search>) {
        let busy = self.handles.values().filter(|lane| lane.gauge.load() > 0);
        for lane in busy {
            let question = Question::Cancel(search.clone());
            // A lane that can't be asked may have it: the answer is unknown.
            if lane.questions.try_send(question).is_err() {
                search.give_up();
            }
        }
    }

    /// Asks a worker's lane for the last lines that the worker has printed. If no worker runs
    /// there, returns those of the last one.
    pub(super) fn last_lines(&self, slot: usize, asker: oneshot::Sender<LastLines>) {
        let ended = self.printed.of(slot);
        match (self.handles.get(&slot), ended) {
            // The caller may no longer wait for the answer.
            (None, Some(ended)) => drop(asker.send(ended.clone())),
            // Dropped with the lane, or by an overloaded one: the caller gets the answer that there is no
            // worker.
            (Some(lane), _) => drop(lane.questions.try_send(Question::LastLines(asker))),
            (None, None) => {}
        }
    }

    /// Returns the status of each worker that was started.
    pub(super) fn statuses(&self, now: Instant) -> impl Iterator<Item = WorkerStatus> {
        let status = move |(slot, handle): (&usize, &Handle)| status(*slot, &handle.gauge, now);
        self.handles.iter().map(status)
    }
}

/// Returns the report of a lane that has panicked, or was abandoned.
fn lost(panic: &JoinError, worked: bool) -> Ended {
    Ended {
        connected: true,
        orderly: false,
        how: WorkerEnd::Lost,
        cause: format!("its lane panicked: {panic}"),
        printed: LastLines::default(),
        worked,
        explained: false,
        over: None,
    }
}

/// Counts and logs the end of a worker.
fn count_end(shared: &Shared, slot: usize, pid: Option<u32>, ended: &Ended) {
    let Ended { cause, printed, .. } = ended;
    shared.counters.worker_ended(ended.how);
    if pid.is_some() || !ended.orderly {
        shared.events.worker_ended(slot, pid, cause);
    }
    if ended.orderly {
        let pool = shared.name();
        tracing::info!(pool, worker = slot, pid, cause, "worker gone");
    } else {
        let counters = &shared.counters;
        counters.worker_lost(slot, pid, cause, &printed.stderr);
    }
}

fn status(slot: usize, gauge: &Gauge, now: Instant) -> WorkerStatus {
    let state = match gauge.phase() {
        Phase::Running if !gauge.is_open() => "starting",
        Phase::Running if gauge.load() > 0 => "busy",
        Phase::Running => "idle",
        stopping => stopping.as_str(),
    };
    WorkerStatus {
        slot,
        pid: gauge.pid(),
        state: state.into(),
        in_flight: gauge.load(),
        window: gauge.window(),
        message_age: gauge.busy_since().map(|since| (now - since).as_secs_f64()),
        message: gauge.message(),
        answered: gauge.answered(),
        progress: gauge.progress(),
        memory_bytes: None,
        cpu_seconds: None,
    }
}
