//! Handling of a failed transaction: nothing is lost, whatever can be written is written, and a message
//! that the database rejects does not hold up the others.

use tokio::time::Instant;

use super::health::HealthIssue;
use super::{Task, health};
use crate::rules;
use crate::table::{Fault, Settled, Work, WriteResult};
use ganger_queue::delivery::{Outcome, Publish};
use ganger_queue::publishing::confirm;
use ganger_telemetry::metrics::dead_lettered;

impl Task {
    /// Handles a failed transaction, which was rolled back. If it had `more` than pending work, that is a
    /// claim or a probe, the work is retried without that. Work that is permanently rejected, or whose
    /// row another program has locked, is separated from the rest; the rest is kept.
    pub(super) async fn handle_failed_write(&mut self, fault: &Fault, more: bool) {
        // The records of begun runs may be the cause, and the ends of these runs will be recorded anyway: the
        // rest is retried without them.
        if fault.is_permanent && self.book.forget_begun() {
            self.schedule.poll_now();
            return;
        }
        if !self.book.has_work() {
            return self.report_failure(fault);
        }
        if fault.is_lock_timeout {
            match self.set_locked_aside().await {
                Ok(true) => {
                    self.schedule.poll_now();
                    return;
                }
                Ok(false) => {}
                Err(fault) => return self.report_failure(&fault),
            }
        }
        let without = if more {
            self.write(false, false).await
        } else {
            Err(fault.clone())
        };
        match without {
            Ok((batch, written)) => {
                self.written(batch, written);
                self.report_failure(fault);
            }
            Err(fault) if fault.is_permanent => self.one_by_one().await,
            Err(fault) => self.report_failure(&fault),
        }
    }

    /// Returns whether settlements wait for locks and it is time to check these: also before each
    /// settlement, since a program that holds locks for long may have locked more rows.
    pub(super) fn must_check_locks(&self) -> bool {
        let is_due = |next_look| !self.book.settled().is_empty() || Instant::now() >= next_look;
        self.locked.next_look().is_some_and(is_due)
    }

    /// Sets aside the settlements of rows that another program has locked, until it releases them.
    /// Returns whether any of these are new.
    pub(super) async fn set_locked_aside(&mut self) -> Result<bool, Fault> {
        let settled = self.book.settled().iter().map(|settled| settled.claim.row);
        let rows: Vec<i64> = self.locked.rows().chain(settled).collect();
        let locked = self.store.locked(&rows).await?;
        let locked = locked.into_iter().collect();
        let any_new = self
            .locked
            .sort(self.book.settled_mut(), &locked, Instant::now());
        match self.locked.len() {
            0 => self.health.resolve(&self.end, HealthIssue::Locked),
            count => {
                let problem =
                    format!("{count} settlements wait for rows that another program has locked");
                self.health.begin(&self.end, HealthIssue::Locked, problem);
            }
        }
        Ok(any_new)
    }

    /// Writes each publish and each settlement in a transaction of its own, so that one that the database
    /// rejects does not block the others. If a transient failure occurs, the rest is kept for later.
    async fn one_by_one(&mut self) {
        self.schedule.poll_now();
        let (publishes, settled) = self.book.take_work();
        for publish in publishes {
            if self.pause.is_on(Instant::now()) {
                self.book.publish(publish);
            } else {
                self.publish_one(publish).await;
            }
        }
        for settled in settled {
            if self.pause.is_on(Instant::now()) {
                self.book.settled_mut().push(settled);
            } else {
                self.settle_one(settled).await;
            }
        }
        self.report_parked();
    }

    async fn publish_one(&mut self, publish: Publish) {
        let publishes = std::slice::from_ref(&publish);
        let work = Work {
            publishes,
            ..Work::default()
        };
        match self.write_alone(&work).await {
            Ok(_) => confirm(publish.confirmed, &publish.message.queue, Ok(())),
            Err(fault) if fault.is_permanent => {
                let queue = &publish.message.queue;
                confirm(publish.confirmed, queue, Err(fault.problem));
            }
            Err(fault) => {
                self.book.publish(publish);
                self.report_failure(&fault);
            }
        }
    }

    async fn settle_one(&mut self, settled: Settled) {
        match self.write_simplified(&settled).await {
            Ok(written) => {
                self.report_lost_and_repeated(&written);
                self.forget(settled.claim);
            }
            Err(fault) if fault.is_permanent => {
                health::rejected(&self.pool, &settled, &fault);
                self.forget(settled.claim);
                self.park(settled, &fault);
            }
            Err(fault) => {
                self.book.settled_mut().push(settled);
                self.report_failure(&fault);
            }
        }
    }

    async fn write_alone(&mut self, work: &Work<'_>) -> Result<WriteResult, Fault> {
        let writing = self.store.writing();
        let turn = writing.turn(1).await;
        self.store.write(turn, work).await
    }

    /// Writes a settlement, with less content if the database rejects it.
    async fn write_simplified(&mut self, wanted: &Settled) -> Result<WriteResult, Fault> {
        let mut settled = wanted.clone();
        let mut unrecorded = None;
        loop {
            let work = Work {
                settled: std::slice::from_ref(&settled),
                ..Work::default()
            };
            match self.write_alone(&work).await {
                // Settling finished work is worth more than recognising a repetition of it.
                Err(fault) if fault.is_permanent && settled.finished.take().is_some() => {
                    health::not_entered(&self.pool, &settled, &fault);
                }
                // So is it worth more than its occurrence in the ledger.
                Err(fault) if fault.is_permanent && settled.is_in_ledger() => {
                    settled.occurrence = None;
                    settled.recorded = None;
                    unrecorded = Some(fault);
                }
                Err(fault) if fault.is_permanent => {
                    let simplified = rules::simplified(&settled.outcome, &fault.problem);
                    settled.settle_otherwise(simplified.ok_or(fault)?, wanted);
                    unrecorded = None;
                }
                Ok(written) => {
                    if let Some(fault) = &unrecorded {
                        health::not_recorded(&self.pool, &settled, fault);
                    }
                    if let (Outcome::Reply(reply), Outcome::DeadLetter(failure)) =
                        (&wanted.outcome, &settled.outcome)
                    {
                        let name = self.name(&reply.correlation_id, settled.claim.row);
                        dead_lettered(&self.pool, &name, failure);
                    }
                    return Ok(written);
                }
                Err(fault) => return Err(fault),
            }
        }
    }

    fn park(&mut self, settled: Settled, fault: &Fault) {
        let given_up = self.parked.keep(settled, &fault.problem, Instant::now());
        health::given_up(&self.pool, given_up);
    }

    /// Updates the health with the number of settlements that are kept.
    fn report_parked(&mut self) {
        let issue = HealthIssue::Parked;
        match self.parked.problem() {
            Some(problem) => self.health.begin(&self.end, issue, problem),
            None => self.health.resolve(&self.end, issue),
        }
    }

    /// Retries settlements that were permanently rejected: the cause may have been removed. If a
    /// transient failure occurs, the rest is kept as it is.
    pub(super) async fn retry_parked(&mut self) {
        let kept = self.parked.take();
        if kept.is_empty() {
            return;
        }
        let mut transient: Option<Fault> = None;
        for settled in kept {
            if let Some(fault) = &transient {
                self.park(settled, fault);
                continue;
            }
            match self.write_simplified(&settled).await {
                Ok(written) => self.report_lost_and_repeated(&written),
                Err(fault) => {
                    self.park(settled, &fault);
                    transient = Some(fault).filter(|fault| !fault.is_permanent);
                }
            }
        }
        self.report_parked();
        if let Some(fault) = transient {
            self.report_failure(&fault);
        }
    }

    /// Retries the rejected settlements for the last time, and gives up those that fail.
    pub(super) async fn give_up_parked(&mut self) {
        self.retry_parked().await;
        health::given_up(&self.pool, self.parked.take());
    }
}
