//! What stands between the source of a pool and the pool where repetitions are not to be worked on:
//! it looks up each message before the pool gets it, and enters each that is done before its source
//! is told. It speaks to both by the one contract, so it is the same for every kind of source, and
//! where it is not wanted nothing passes through it.
//!
//! Where the messages are in the database themselves, their own source enters what is done, in the
//! transaction that takes it from the queue; then only the looking up is left here.

mod in_hand;
mod known;
mod looking;
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
use ganger_core::heartbeat::Heart;
use ganger_core::trace_context::SpanContext;
use ganger_queue::credit;
use ganger_queue::delivery::{
    Delivery, Entered, Finished, Intake, OnceWritten, Outcome, PoolEnd, Receipt, Settlement,
    SourceEnd, link,
};
use ganger_queue::fault::SourceFault;
use ganger_queue::pause::Pause;
use ganger_queue::source::{Opening, SourceError, opened_on_a_thread};
use in_hand::InHand;

/// How often it is looked whether what waits may wait on.
const TICK: Duration = Duration::from_secs(1);

/// How often what is out of date is removed: a tenth of the window, within these.
const EXPIRY_EVERY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// The ends that face the pool and the source.
#[derive(Debug)]
struct Ends {
    pool: SourceEnd,
    source: PoolEnd,
}

/// The end that the source gets instead of the pool's, and the ends between the two. Emits, which
/// settle nothing, and the source's figures go past.
fn ends(mut end: SourceEnd) -> (SourceEnd, Ends) {
    let (mut inner, source) = link();
    std::mem::swap(&mut end.publishes, &mut inner.publishes);
    inner.facts = end.facts.clone();
    (inner, Ends { pool: end, source })
}

/// Begins to open the reader of a pool, and what stands between the two, which ends with the reader, or as that
/// does.
///
/// # Errors
/// If there is no thread to be had.
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
    opened_on_a_thread("finished", &name, move || {
        let store = rules.store.clone();
        let opened = open(rules, &pool, ends).map_err(|fault| fault.of(&store))?;
        opened.wait(source.opened())?;
        let mut source = source.running();
        Ok(move || {
            if let Err(SourceError::Panicked { what, .. }) = opened.run(source.ended()) {
                panic::resume_unwind(Box::new(what));
            }
        })
    })
}

/// Opens the store.
///
/// # Errors
/// What someone has to mend.
///
/// # Panics
/// If the operating system refuses a runtime its means.
fn open(idempotency: Idempotency, pool: &PoolConfig, ends: Ends) -> Result<Opened, SourceFault> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime needs an event queue and a pipe of the system, no more");
    let store = runtime.block_on(database(&idempotency.table)?.memory(pool))?;
    let is_here = idempotency.store == pool.source;
    let task = Filter::new(pool.name.clone(), idempotency, is_here, store, ends);
    Ok(Opened { runtime, task })
}

/// It is open, and has not begun.
#[derive(Debug)]
struct Opened {
    runtime: Runtime,
    task: Filter,
}

impl Opened {
    /// Waits for something on this thread.
    fn wait<T>(&self, what: impl Future<Output = T>) -> T {
        self.runtime.block_on(what)
    }

    /// Runs until the source has ended, and then waits for what is to be waited for.
    fn run<T>(self, then: impl Future<Output = T>) -> T {
        let Self { runtime, task } = self;
        let _heart = Heart::of_this_thread().on(runtime.handle());
        runtime.block_on(task.run());
        runtime.block_on(then)
    }
}

/// What passes messages on.
#[derive(Debug)]
struct Filter {
    pool: String,
    rules: Idempotency,
    /// The store is the database that the messages are in.
    is_here: bool,
    store: Box<dyn FinishedStore>,
    ends: Ends,
    pool_is_gone: bool,
    source_is_gone: bool,
    /// What is to be looked up.
    arrived: VecDeque<Delivery>,
    in_hand: InHand<Delivery>,
    /// What the pool has, by the number under which it was passed on.
    out: HashMap<u64, Out>,
    next: u64,
    /// What is to be entered.
    done: Vec<Done>,
    /// Where the source tells what it has entered.
    entered: Arc<Entered>,
    /// Why the store can't be used, while it can't.
    problem: Option<String>,
    pause: Pause,
    /// Messages that were done twice.
    twice: u64,
    next_expiry: Instant,
}

/// A message that the pool has.
#[derive(Debug)]
struct Out {
    receipt: Receipt,
    /// None if it has no key.
    finished: Option<Box<Finished>>,
}

/// A message that is done, and not entered.
#[derive(Debug)]
struct Done {
    receipt: Receipt,
    finished: Box<Finished>,
    outcome: Outcome,
    span: Option<SpanContext>,
}

impl Filter {
    fn new(
        pool: String,
        rules: Idempotency,
        is_here: bool,
        store: Box<dyn FinishedStore>,
        ends: Ends,
    ) -> Self {
        ends.pool.facts.note(|figures| {
            figures.repetitions = Some(0);
            figures.unkeyed = Some(0);
        });
        let mut task = Self {
            pool,
            rules,
            is_here,
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
            twice: 0,
            next_expiry: Instant::now(),
        };
        task.plan_expiry();
        task
    }

    /// Ends when the source does, which is after the last settlement.
    async fn run(mut self) {
        while !self.source_is_gone {
            self.pass_on_intake();
            self.tell();
            self.event().await;
            self.collect();
            self.let_go();
            if !self.pause.is_on(Instant::now()) {
                let result = self.look_and_write().await;
                self.judge(result);
            }
        }
        self.store.close();
    }

    /// Waits for something to happen. What comes seldom comes first.
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

    /// Takes along what else is at hand, for one turn of the database.
    fn collect(&mut self) {
        while let Ok(settlement) = self.ends.pool.settlements.try_recv() {
            self.settle(settlement);
        }
        while let Ok(delivery) = self.ends.source.deliveries.try_recv() {
            self.arrived.push_back(delivery);
        }
    }

    /// Gives back what is not to be begun any more: it is another's by now, its broker waits no
    /// longer, or nothing is begun.
    fn let_go(&mut self) {
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

    /// The source takes in what the pool lets it, and nothing while the store can't be used.
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

    /// The pool is told how the source is doing, and the store.
    fn tell(&self) {
        let mut state = self.ends.source.state.borrow().clone();
        state.likely_duplicates += self.twice;
        if let Some(problem) = &self.problem {
            state.healthy = false;
            state.problem = Some(format!("what is finished can't be looked up: {problem}"));
        }
        self.ends.pool.state.send_if_modified(|known| {
            let news = *known != state;
            *known = state;
            news
        });
    }

    /// What has become of a message.
    fn settle(&mut self, settlement: Settlement) {
        let Settlement {
            token,
            outcome,
            span,
            ..
        } = settlement;
        let Some(Out { receipt, finished }) = self.out.remove(&token) else {
            tracing::error!(token, "settled, but never handed out");
            return;
        };
        match finished {
            Some(finished) if outcome.is_finish() && self.is_here => {
                self.enter_there(receipt, *finished, outcome, span);
            }
            Some(finished) if outcome.is_finish() => self.done.push(Done {
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

    /// The source enters it; it is in hand until that is written.
    fn enter_there(
        &self,
        receipt: Receipt,
        finished: Finished,
        outcome: Outcome,
        span: Option<SpanContext>,
    ) {
        let once = OnceWritten::new(finished.identity.clone(), &self.entered);
        let finished = Box::new(Finished {
            once_written: Some(once),
            ..finished
        });
        receipt.settle(outcome, span, Some(finished));
    }

    /// It is not in hand any more: what has waited behind it is looked up.
    fn release(&mut self, finished: &Finished) {
        self.arrived
            .extend(self.in_hand.release(&finished.identity));
    }

    /// Whether the store can be used.
    fn judge(&mut self, result: Result<(), Fault>) {
        let pool = self.pool.as_str();
        match result {
            Ok(()) => {
                self.pause.end();
                if self.problem.take().is_some() {
                    tracing::info!(pool, "resolved: what is finished can't be looked up");
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
                        "what is finished can't be looked up; nothing is acknowledged, intake pauses"
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
