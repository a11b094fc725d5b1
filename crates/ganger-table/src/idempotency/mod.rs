//! The gate between a pool and its source, where the pool does not repeat finished work. It looks up each
//! message before the pool gets it, and enters each finished one before it is settled with the source. It
//! uses the same interface to both, so it works with any kind of source, and a pool without idempotency
//! has no gate at all.
//!
//! If the store is the database of the messages themselves, their source enters finished messages in the
//! transaction that removes them from the queue, and the gate only looks them up.

mod in_hand;
mod keys;
mod lookup;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::panic;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::time::{Instant, sleep_until};

use crate::databases::database;
use crate::finished::FinishedStore;
use crate::table::Fault;
use ganger_config::model::{Idempotency, PoolConfig};
use ganger_core::heartbeat::Heartbeat;
use ganger_core::trace_context::SpanContext;
use ganger_queue::credit;
use ganger_queue::delivery::{
    Delivery, EnteredIdentities, EntryNotice, Finished, Intake, Outcome, PoolEnd, Receipt,
    Settlement, SourceEnd, link,
};
use ganger_queue::fault::SourceFault;
use ganger_queue::pause::Pause;
use ganger_queue::source::{Opening, SourceError, open_on_thread};
use in_hand::InHand;

/// Interval between checks for waiting messages that must be given back.
const TICK: Duration = Duration::from_secs(1);

/// Shortest and longest interval between removals of expired entries; within these it is a tenth of the
/// window.
const EXPIRY_EVERY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// The ends of the links to the pool and to the source.
#[derive(Debug)]
struct Ends {
    pool: SourceEnd,
    source: PoolEnd,
}

/// Returns the end that the source gets in place of the pool's, and the gate's own ends. Emits, which
/// settle nothing, the source's figures and what a ledger follows bypass the gate.
fn ends(mut end: SourceEnd) -> (SourceEnd, Ends) {
    let (mut inner, source) = link();
    std::mem::swap(&mut end.publishes, &mut inner.publishes);
    inner.facts = end.facts.clone();
    inner.following = end.following.take();
    (inner, Ends { pool: end, source })
}

/// Begins to open a pool's reader behind a gate. The gate ends when the reader does, or panics if that
/// has panicked.
///
/// # Errors
/// If no thread can be started.
pub fn between(
    rules: &Idempotency,
    pool: &Arc<PoolConfig>,
    end: SourceEnd,
    reader: impl FnOnce(SourceEnd) -> Result<Opening, SourceError>,
) -> Result<Opening, SourceError> {
    let (inner, ends) = ends(end);
    let mut source = reader(inner)?;
    let (rules, pool) = (rules.clone(), Arc::clone(pool));
    let name = pool.name.clone();
    open_on_thread("finished", &name, move || {
        let store = rules.store.clone();
        let opened = open(rules, &pool, ends).map_err(|fault| fault.of(&store))?;
        opened.wait(source.opened())?;
        let mut source = source.running();
        Ok(move || {
            if let Err(SourceError::Panicked { message, .. }) = opened.run(source.ended()) {
                panic::resume_unwind(Box::new(message));
            }
        })
    })
}

/// Opens the store.
///
/// # Errors
/// If the database can't be used.
///
/// # Panics
/// If the operating system refuses the resources of a runtime.
fn open(idempotency: Idempotency, pool: &PoolConfig, ends: Ends) -> Result<OpenGate, SourceFault> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime needs an event queue and a pipe of the system, no more");
    let store = runtime.block_on(database(&idempotency.table)?.finished_store(pool))?;
    let is_own_database = idempotency.store == pool.source;
    let gate = Gate::new(pool.name.clone(), idempotency, is_own_database, store, ends);
    Ok(OpenGate { runtime, gate })
}

/// A gate with its store open, not yet running.
#[derive(Debug)]
struct OpenGate {
    runtime: Runtime,
    gate: Gate,
}

impl OpenGate {
    /// Blocks this thread on a future.
    fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// Runs until the source has ended, then blocks on `then`.
    fn run<T>(self, then: impl Future<Output = T>) -> T {
        let Self { runtime, gate } = self;
        let _heart = Heartbeat::of_this_thread().on(runtime.handle());
        runtime.block_on(gate.run());
        runtime.block_on(then)
    }
}

/// The task of the gate.
#[derive(Debug)]
struct Gate {
    pool: String,
    rules: Idempotency,
    /// True if the store is the database of the messages themselves.
    is_own_database: bool,
    store: Box<dyn FinishedStore>,
    ends: Ends,
    pool_is_gone: bool,
    source_is_gone: bool,
    /// Messages to be looked up.
    arrived: VecDeque<Delivery>,
    in_hand: InHand<Delivery>,
    /// Messages at the pool, by the number under which they were passed on.
    out: HashMap<u64, InFlight>,
    next: u64,
    /// Finished messages to be entered.
    done: Vec<PendingEntry>,
    /// Identities that the source reports once it has entered them.
    entered: Arc<EnteredIdentities>,
    /// Reason that the store can't be used, while that is so.
    problem: Option<String>,
    pause: Pause,
    /// Number of messages that were done twice.
    repeated: u64,
    next_expiry: Instant,
}

/// A message at the pool.
#[derive(Debug)]
struct InFlight {
    receipt: Receipt,
    /// None if it has no key.
    finished: Option<Box<Finished>>,
}

/// A message that is finished, and not yet entered.
#[derive(Debug)]
struct PendingEntry {
    receipt: Receipt,
    finished: Box<Finished>,
    outcome: Outcome,
    span: Option<SpanContext>,
}

impl Gate {
    fn new(
        pool: String,
        rules: Idempotency,
        is_own_database: bool,
        store: Box<dyn FinishedStore>,
        ends: Ends,
    ) -> Self {
        ends.pool.facts.note(|figures| {
            figures.repetitions = Some(0);
            figures.unkeyed = Some(0);
        });
        let mut gate = Self {
            pool,
            rules,
            is_own_database,
            store,
            ends,
            pool_is_gone: false,
            source_is_gone: false,
            arrived: VecDeque::new(),
            in_hand: InHand::default(),
            out: HashMap::new(),
            next: 0,
            done: Vec::new(),
            entered: Arc::default(),
            problem: None,
            pause: Pause::default(),
            repeated: 0,
            next_expiry: Instant::now(),
        };
        gate.plan_expiry();
        gate
    }

    /// Ends when the source does, which is after the last settlement.
    async fn run(mut self) {
        while !self.source_is_gone {
            self.pass_on_intake();
            self.report_state();
            self.event().await;
            self.collect();
            self.give_back_expired();
            if !self.pause.is_on(Instant::now()) {
                let result = self.look_and_write().await;
                self.record_result(result);
            }
        }
        self.store.close();
    }

    /// Waits for an event. Rare events come first.
    async fn event(&mut self) {
        let timer = self.timer();
        let Ends { pool, source } = &mut self.ends;
        tokio::select! {
            biased;
            changed = pool.intake.changed(), if !self.pool_is_gone => {
                self.pool_is_gone = changed.is_err();
            }
            Ok(()) = source.state.changed() => {}
            entered = self.entered.next() => {
                for identity in entered {
                    self.arrived.extend(self.in_hand.release(&identity));
                }
            }
            Some(settlement) = pool.settlements.recv() => self.settle(settlement),
            delivery = source.deliveries.recv() => match delivery {
                Some(delivery) => self.arrived.push_back(delivery),
                None => self.source_is_gone = true,
            },
            () = sleep_until(timer) => {}
        }
    }

    fn timer(&self) -> Instant {
        let tick = Instant::now() + TICK;
        let waits = !self.arrived.is_empty() || self.in_hand.any_waits();
        let timer = if waits { tick } else { self.next_expiry };
        self.pause.timer(timer).min(tick.max(timer))
    }

    /// Adds all settlements and deliveries that are already in the channels, for one turn of the
    /// database.
    fn collect(&mut self) {
        while let Ok(settlement) = self.ends.pool.settlements.try_recv() {
            self.settle(settlement);
        }
        while let Ok(delivery) = self.ends.source.deliveries.try_recv() {
            self.arrived.push_back(delivery);
        }
    }

    /// Gives back messages that must not be started any more: others have taken them over, their deadline
    /// at the broker has passed, or the intake is closed.
    fn give_back_expired(&mut self) {
        let now = Instant::now();
        let is_closed = self.intake() == Intake::Closed;
        let may_wait = |delivery: &Delivery| {
            let in_time = delivery.begin_by.is_none_or(|by| now < by);
            !is_closed && in_time && !delivery.is_void()
        };
        self.arrived.retain(may_wait);
        self.in_hand.retain_waiting(may_wait);
    }

    fn intake(&self) -> Intake {
        credit::intake(&self.ends.pool)
    }

    /// Passes the pool's intake on to the source, and no credit while the store can't be used.
    fn pass_on_intake(&self) {
        let intake = match (self.intake(), &self.problem) {
            (Intake::Credit(_), Some(_)) => Intake::Credit(0),
            (intake, _) => intake,
        };
        self.ends
            .source
            .intake
            .send_if_modified(|known| std::mem::replace(known, intake) != intake);
    }

    /// Reports the state of the source and of the store to the pool.
    fn report_state(&self) {
        let mut state = self.ends.source.state.borrow().clone();
        state.likely_duplicates += self.repeated;
        if let Some(problem) = &self.problem {
            state.healthy = false;
            state.problem = Some(format!("finished messages can't be looked up: {problem}"));
        }
        self.ends.pool.state.send_if_modified(|known| {
            let changed = *known != state;
            *known = state;
            changed
        });
    }

    /// Handles a settlement by the pool.
    fn settle(&mut self, settlement: Settlement) {
        let Settlement {
            token,
            outcome,
            span,
            result,
            ..
        } = settlement;
        let Some(InFlight { receipt, finished }) = self.out.remove(&token) else {
            tracing::error!(token, "settled, but never handed out");
            return;
        };
        let receipt = receipt.with_result(result);
        match finished {
            Some(finished) if outcome.is_finish() && self.is_own_database => {
                self.enter_at_source(receipt, *finished, outcome, span);
            }
            Some(finished) if outcome.is_finish() => self.done.push(PendingEntry {
                receipt,
                finished,
                outcome,
                span,
            }),
            Some(finished) => {
                receipt.settle(outcome, span, None);
                self.release(&finished);
            }
            None => receipt.settle(outcome, span, None),
        }
    }

    /// Has the source enter the message. It stays in hand until that is written.
    fn enter_at_source(
        &self,
        receipt: Receipt,
        finished: Finished,
        outcome: Outcome,
        span: Option<SpanContext>,
    ) {
        let notice = EntryNotice::new(finished.identity.clone(), &self.entered);
        let finished = Box::new(Finished {
            entry_notice: Some(notice),
            ..finished
        });
        receipt.settle(outcome, span, Some(finished));
    }

    /// Releases a message that is no longer in flight: those that waited behind it are looked up.
    fn release(&mut self, finished: &Finished) {
        self.arrived
            .extend(self.in_hand.release(&finished.identity));
    }

    /// Records and logs whether the store can be used.
    fn record_result(&mut self, result: Result<(), Fault>) {
        let pool = self.pool.as_str();
        match result {
            Ok(()) => {
                self.pause.end();
                if self.problem.take().is_some() {
                    tracing::info!(pool, "resolved: finished messages can't be looked up");
                }
            }
            Err(Fault { problem, .. }) => {
                self.pause.begin(Instant::now(), fastrand::f64());
                if self.problem.is_none() {
                    let store = &self.rules.store;
                    tracing::error!(
                        pool,
                        store,
                        problem,
                        "finished messages can't be looked up; nothing is acknowledged, intake pauses"
                    );
                }
                self.problem = Some(problem);
            }
        }
    }

    fn plan_expiry(&mut self) {
        let (least, most) = EXPIRY_EVERY;
        self.next_expiry = Instant::now() + (self.rules.window / 10).clamp(least, most);
    }
}
