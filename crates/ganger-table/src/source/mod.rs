//! The source task of a table queue: it decides when to poll and when to write, and keeps work that could not
//! be written. It knows no SQL and no database: it writes through [`TableStore`], and its decisions are in
//! `rules`.

mod book;
mod depth;
mod facts;
mod gather;
mod health;
mod locked;
mod parked;
mod paused;
mod schedule;
mod shared_claim;
mod suspects;
#[cfg(test)]
mod tests;
mod unread;
mod write_failure;

use std::sync::Arc;

use bytes::Bytes;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::databases::database;
use crate::rules;
use crate::store::{Stores, TableStore};
use crate::table::{
    Claim, ClaimRequest, Claimed, Fault, OccurrenceRun, Stop, WakeReason, WriteResult,
};
use book::{Batch, Book};
use facts::Facts;
use ganger_config::model::{PoolConfig, TableSource};
use ganger_core::budget::Share;
use ganger_core::heartbeat::Heartbeat;
use ganger_queue::attempts::Limits;
use ganger_queue::credit;
use ganger_queue::delivery::{History, Intake, LogName, SourceEnd};
use ganger_queue::exclusive::Turn;
use ganger_queue::fault::SourceFault;
use ganger_queue::pause::Pause;
use ganger_queue::source::Link;
use ganger_queue::unread::Reader;
use ganger_telemetry::metrics::dead_lettered;
use gather::Gather;
use health::{Health, HealthIssue};
use locked::LockedRows;
use parked::Parked;
use paused::Paused;
use schedule::Schedule;
use shared_claim::SharedClaim;
use suspects::Suspects;

/// Source of one pool.
#[derive(Debug)]
pub(super) struct Task {
    end: SourceEnd,
    store: Box<dyn TableStore>,
    policy: watch::Receiver<Arc<PoolConfig>>,
    suspects: Suspects,
    /// Name of the pool.
    pool: String,
    health: Health,
    pause: Pause,
    /// Share of the memory budget, for bodies and headers of rows that are in flight and not settled.
    share: Share,
    shared_claim: SharedClaim,
    book: Book,
    parked: Parked,
    locked: LockedRows,
    schedule: Schedule,
    facts: Facts,
    reader: Reader,
    gather: Gather,
    paused: Paused,
}

/// Opens the source. The returned function runs it to its end on the calling thread, where its blocking
/// calls hinder no other task.
///
/// # Errors
/// If the database can't be used.
///
/// # Panics
/// If the operating system refuses the resources of a runtime.
pub(crate) fn open(
    config: &TableSource,
    link: Link,
    stores: &Stores,
    reader: Reader,
) -> Result<impl FnOnce() + use<>, SourceFault> {
    let runtime = runtime();
    let pool = Arc::clone(&link.policy.borrow());
    let database = database(config)?;
    let store = runtime.block_on(database.store(config, &pool, stores))?;
    let task = Task::new(store, config, link, reader);
    Ok(move || run(&runtime, task))
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime needs an event queue and a pipe of the system, no more")
}

fn run(runtime: &Runtime, task: Task) {
    let _heart = Heartbeat::of_this_thread().on(runtime.handle());
    let watch_claim = task
        .shared_claim
        .clone()
        .watch(task.store.losses(), task.end.state.clone());
    runtime.block_on(async {
        tokio::select! {
            () = task.run() => {}
            () = watch_claim => {}
        }
    });
}

impl Task {
    fn new(store: Box<dyn TableStore>, config: &TableSource, link: Link, reader: Reader) -> Self {
        let pool = link.policy.borrow().name.clone();
        Self {
            health: Health::new(&pool),
            pause: Pause::default(),
            end: link.end,
            store,
            policy: link.policy,
            suspects: Suspects::new(Turn::new(&link.exclusive, &pool)),
            pool,
            share: link.share.within(rules::BYTES_OUT_MAX),
            shared_claim: SharedClaim::default(),
            book: Book::new(rules::BYTES_PER_TURN_MAX),
            parked: Parked::default(),
            locked: LockedRows::default(),
            schedule: Schedule::new(config.poll_interval),
            facts: Facts::new(),
            reader,
            gather: Gather::default(),
            paused: Paused::default(),
        }
    }

    async fn run(mut self) {
        self.health.publish(&self.end);
        self.store.listen();
        if let Err(fault) = self.store.sweep() {
            self.report_failure(&fault);
        }
        while !self.is_finished() {
            self.event().await;
            self.collect();
            self.tend_owners().await;
            if !self.pause.is_on(Instant::now()) {
                self.follow_the_file().await;
                self.gather().await;
                self.write_and_claim().await;
                self.retry_parked_if_due().await;
                let pool = self.policy.borrow().clone();
                let store = &mut *self.store;
                self.facts.report_backlog(store, &self.end, &pool).await;
                unread::search(&mut self.reader, store).await;
            }
            let (store, is_failing) = (&mut *self.store, self.pause.is_failing());
            let facts = &mut self.facts;
            facts.report(store, &self.end, &self.book, is_failing).await;
        }
        self.give_up_parked().await;
        self.store.close().await;
    }

    /// Returns whether the intake is closed and nothing is left to settle or publish.
    fn is_finished(&self) -> bool {
        self.intake() == Intake::Closed && self.book.is_empty() && self.end.publishes.is_empty()
    }

    fn intake(&self) -> Intake {
        credit::intake(&self.end)
    }

    /// Waits for an event. Rare events come first, so that a steady stream of settlements can't hide
    /// them.
    async fn event(&mut self) {
        let timer = self.timer();
        // Without room for another row, there is no use for wake-ups by new rows.
        let wants_data = self.room() > 0;
        let room_for_publishes = self.book.has_room_for_publishes();
        let (end, policy, schedule) = (&mut self.end, &mut self.policy, &mut self.schedule);
        tokio::select! {
            biased;
            // Everything else reads the newest rules when it needs them.
            Ok(()) = policy.changed() => self.facts.count_now(),
            _ = end.intake.changed(), if end.intake.has_changed().is_ok() => schedule.poll_now(),
            woken = self.store.woken(wants_data) => match woken {
                WakeReason::Data => schedule.database_changed(),
                WakeReason::Owners => schedule.check_owners_now(),
            },
            () = self.suspects.called() => schedule.poll_now(),
            () = self.share.freed() => schedule.poll_now(),
            Some(publish) = end.publishes.recv(), if room_for_publishes => self.book.publish(publish),
            Some((token, begun)) = end.begun.recv() => self.book.begin(token, begun),
            Some(settlement) = end.settlements.recv() => {
                note_begun(&mut self.book, end);
                self.book.settle(settlement);
            }
            () = sleep_until(timer) => {}
        }
    }

    /// Returns the time of the next timed event. A pause after a failure delays it, or the loop would
    /// spin; but not the heartbeat, without which others would take over this daemon's claims.
    fn timer(&self) -> Instant {
        let mut timer = self.schedule.next().min(self.facts.next_count());
        let begun = self.book.begun_due();
        for when in [self.parked.next_retry(), self.locked.next_look(), begun] {
            timer = timer.min(when.unwrap_or(timer));
        }
        self.pause.timer(timer).min(self.schedule.next_beat())
    }

    /// Adds all settlements and publishes that are already in the channels, for one transaction.
    fn collect(&mut self) {
        note_begun(&mut self.book, &mut self.end);
        while let Ok(settlement) = self.end.settlements.try_recv() {
            self.book.settle(settlement);
        }
        while self.book.has_room_for_publishes() {
            match self.end.publishes.try_recv() {
                Ok(publish) => self.book.publish(publish),
                Err(_) => break,
            }
        }
        self.book.drop_abandoned_publishes();
    }

    /// Waits briefly for settlements that are about to come, where that saves a transaction.
    async fn gather(&mut self) {
        let out = self.book.out() - self.locked.len();
        let nearly_all = gather::nearly_all(out);
        let settled = self.book.settled().len();
        let is_enough = settled == 0 || settled >= nearly_all || self.book.publishes() > 0;
        if is_enough || self.pause.is_failing() || self.room() == 0 {
            return;
        }
        let turn = self.end.facts.turn();
        let Some(wait) = self.gather.wait(out, turn) else {
            return;
        };
        let until = sleep_until(Instant::now() + wait);
        tokio::pin!(until);
        let book = &mut self.book;
        while book.settled().len() < nearly_all && book.publishes() == 0 {
            tokio::select! {
                biased;
                Some(publish) = self.end.publishes.recv() => book.publish(publish),
                Some(settlement) = self.end.settlements.recv() => {
                    note_begun(book, &mut self.end);
                    book.settle(settlement);
                }
                () = &mut until => break,
            }
        }
        self.gather.waited(book.settled().len() >= nearly_all);
    }

    /// Writes the heartbeat, and releases the claims of owners that are gone.
    async fn tend_owners(&mut self) {
        let now = Instant::now();
        let mut found = Ok(false);
        if self.schedule.beat_if_due(now, self.store.beat_interval()) {
            found = self.store.beat();
        }
        if self.schedule.are_owners_due(now) {
            self.paused.request_query();
            if found.is_ok() {
                found = self.store.take_back_from_dead_owners();
            }
        }
        match found {
            Ok(true) => self.schedule.poll_now(),
            // After a failure the next write shows whether it persists, and must not wait for the owners.
            Err(fault) if !self.pause.is_failing() => self.report_failure(&fault),
            Ok(false) | Err(_) => {}
        }
    }

    /// Switches to the file that has replaced the database, once nothing is left to settle in the old
    /// one.
    async fn follow_the_file(&mut self) {
        if !self.book.is_empty() || !self.pause.is_failing() || !self.store.is_replaced() {
            return;
        }
        self.give_up_parked().await;
        if let Err(fault) = self.store.reopen() {
            self.report_failure(&fault);
        }
    }

    async fn retry_parked_if_due(&mut self) {
        let again = self.parked.next_retry();
        if again.is_some_and(|again| Instant::now() >= again) {
            self.retry_parked().await;
        }
    }

    /// Writes pending work and claims as many rows as there is room for.
    async fn write_and_claim(&mut self) {
        if let Err(fault) = self.paused.query(&mut *self.store, &self.end).await {
            self.report_failure(&fault);
        }
        if self.must_check_locks()
            && let Err(fault) = self.set_locked_aside().await
        {
            return self.report_failure(&fault);
        }
        let has_begun = self
            .book
            .begun_due()
            .is_some_and(|due| due <= Instant::now());
        let must_write = self.book.has_work() || has_begun || self.pause.is_failing();
        let look = Instant::now() >= self.schedule.next_poll();
        let may_claim = must_write || (look && self.poll_queue().await);
        if !may_claim {
            return;
        }
        let claim = self.room() > 0;
        let probe = self.pause.is_failing();
        let began = Instant::now();
        match self.write(claim, probe).await {
            Ok((batch, written)) => {
                if claim {
                    self.end.facts.took_turn(began.elapsed());
                }
                self.pause.end();
                self.health.resolve(&self.end, HealthIssue::Table);
                self.written(batch, written);
            }
            Err(fault) => self.handle_failed_write(&fault, probe || claim).await,
        }
        if claim {
            self.share.rest();
        }
    }

    /// Searches for rows to claim without taking a lock, so that an idle queue disturbs no other connection.
    async fn poll_queue(&mut self) -> bool {
        self.schedule.poll_started(Instant::now());
        if let Err(fault) = self.store.is_in_place() {
            self.report_failure(&fault);
            return false;
        }
        if self.room() == 0 {
            self.suspects.pause_turn();
            return false;
        }
        match self.store.peek(self.limits()).await {
            Ok(outlook) => {
                self.schedule.polled(outlook.due_in);
                if !outlook.ready && !outlook.suspects_wait {
                    self.facts.record_empty();
                }
                let suspect = self.suspects.request_turn(outlook.suspects_wait, &self.end);
                if outlook.ready || suspect {
                    self.store.found_rows();
                }
                if !outlook.ready && !suspect {
                    self.share.rest();
                }
                outlook.ready || suspect
            }
            Err(fault) => {
                self.report_failure(&fault);
                false
            }
        }
    }

    /// Returns the number of rows that there is room for, once the pending settlements are written.
    fn room(&self) -> usize {
        let rows = match self.paused.is_on() {
            true => 0,
            false => rules::room(self.intake(), self.book.unsettled()),
        };
        if rows == 0 {
            self.share.rest();
        }
        if rows > 0 && self.share.used() > 0 && self.share.room() == 0 {
            return 0;
        }
        rows
    }

    fn limits(&self) -> Limits {
        Limits::of(&self.policy.borrow())
    }

    /// Writes pending work, and claims as many rows as there is room for. Includes whatever arrived while
    /// other sources were writing, unless rows are locked. Work beyond the limit of one transaction is left
    /// for the next, which then makes the claim.
    async fn write(&mut self, claim: bool, probe: bool) -> Result<(Batch, WriteResult), Fault> {
        let writing = self.store.writing();
        let turn = writing.turn(self.book.out()).await;
        // While rows are locked, each settlement waits for a check of its own row.
        if self.locked.len() == 0 {
            self.collect();
        }
        let mut batch = self.book.batch();
        let rows = match claim && self.book.is_last(batch) {
            true => self.room(),
            false => 0,
        };
        let ask = (rows > 0).then(|| ClaimRequest {
            rows,
            share: &self.share,
            suspect: self.suspects.may_be_claimed(),
            limits: Limits::of(&self.policy.borrow()),
        });
        batch.asks_for_suspect = ask.as_ref().is_some_and(|ask| ask.suspect);
        let work = self.book.work(batch, ask, probe);
        Ok((batch, self.store.write(turn, &work).await?))
    }

    /// Handles the result of a durable transaction: only now are settlements forgotten, publishes
    /// confirmed and rows handed out.
    fn written(&mut self, batch: Batch, written: WriteResult) {
        for settled in self.book.written(batch) {
            self.forget(settled.claim);
        }
        self.report_lost_and_repeated(&written);
        for buried in &written.buried {
            let name = self.name(&buried.correlation_id, buried.row);
            dead_lettered(&self.pool, &name, &buried.failure);
        }
        let claimed_any = !written.claimed.is_empty();
        for claimed in written.claimed {
            self.hand_out(claimed);
        }
        if let Some(stop) = written.stop {
            self.gather.claimed(claimed_any && stop == Stop::Full);
            if stop == Stop::Empty {
                self.facts.record_empty();
            }
            self.schedule.claimed(stop, claimed_any, written.due_in);
            if batch.asks_for_suspect && written.suspects_wait {
                self.suspects.none_claimable(self.schedule.next_poll());
            }
            if self.suspects.request_turn(written.suspects_wait, &self.end) {
                self.schedule.poll_now();
            }
        }
        if self.book.has_work() {
            self.schedule.poll_now();
        }
    }

    /// Counts messages that others have run meanwhile, or may run again.
    fn report_lost_and_repeated(&self, written: &WriteResult) {
        health::lost(&self.pool, &self.end, &written.lost);
        health::repeated(&self.pool, &self.end, &written.repeated);
    }

    fn hand_out(&mut self, mut claimed: Claimed) {
        let token = claimed.claim.number();
        if claimed.suspect {
            self.suspects.handed_out(token);
        }
        claimed.message.occurrence.clone_from(&claimed.occurrence);
        let attempt = claimed.history.attempt;
        let occurrence = claimed.occurrence.map(|id| OccurrenceRun {
            id,
            attempt,
            begun: None,
            result: Bytes::new(),
        });
        let following = self.end.following.as_ref();
        let record = following.and_then(|way| way.record_here(&claimed.message, attempt));
        let history = History {
            followed: occurrence.is_some() || record.is_some(),
            ..claimed.history
        };
        self.book
            .hand_out(claimed.claim, claimed.hold, occurrence, record);
        self.shared_claim
            .deliver(&self.end, token, claimed.message, history);
    }

    fn forget(&mut self, claim: Claim) {
        self.book.remove(claim);
        if self.suspects.settled(claim.number()) {
            self.schedule.poll_now();
        }
    }

    /// Returns the name of the row's message in log records.
    fn name(&self, correlation_id: &str, row: i64) -> LogName {
        let queue = &self.policy.borrow().queue;
        LogName::or(correlation_id, || format!("{queue}:{row}"))
    }

    fn report_failure(&mut self, fault: &Fault) {
        self.suspects.pause_turn();
        let now = Instant::now();
        if !self.pause.is_on(now) {
            self.pause.begin(now, fastrand::f64());
            self.health
                .begin(&self.end, HealthIssue::Table, &fault.problem);
        }
    }
}

/// Records the deliveries that workers have received. A settlement comes after the beginning of its work.
fn note_begun(book: &mut Book, end: &mut SourceEnd) {
    while let Ok((token, begun)) = end.begun.try_recv() {
        book.begin(token, begun);
    }
}
