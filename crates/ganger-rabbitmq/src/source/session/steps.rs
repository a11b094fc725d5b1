//! The steps of a connection's loop: each queries the parts for the work to be done, and does it.

use std::time::Duration;

use lapin::message::Delivery;
use tokio::time::Instant;

use super::Session;
use crate::broker::error::RabbitMqError;
use crate::broker::ledger::Others;
use crate::broker::publisher::Verdict;
use crate::source::acks::AcksEnd;
use crate::source::book::{DeliveryBook, DeliveryStep, Held};
use crate::source::health::HealthIssue;
use crate::source::inbox::{InboxStep, Needs};
use crate::source::outbox::Job;
use crate::source::purpose::{Consequence, Purpose};
use crate::source::targets::given_up_reason;
use crate::source::task::Task;
use crate::source::terms::Terms;
use ganger_queue::credit;
use ganger_queue::delivery::{Intake, Publish, Settlement};

/// Maximum time between two checks of old deliveries.
const CHECK_EVERY: Duration = Duration::from_secs(5);

impl Session {
    /// Lets the book decide, and carries out its steps.
    fn decide(
        &mut self,
        decision: impl FnOnce(&mut DeliveryBook, &Terms<'_>) -> Option<DeliveryStep>,
    ) -> Result<(), RabbitMqError> {
        let topology = self.checks.topology();
        let terms = self.rules.terms(topology, self.outbox.targets());
        match decision(&mut self.book, &terms) {
            None => Ok(()),
            Some(DeliveryStep::Publish(tag, purpose, parcels)) => {
                self.outbox.publish(tag, purpose, parcels);
                Ok(())
            }
            Some(DeliveryStep::Return(tag)) => self.acks.give_back(tag),
            Some(DeliveryStep::Reject(tag)) => self.acks.reject(tag),
        }
    }

    // -- arrivals and hand-outs --

    /// Takes in a message.
    pub(super) fn receive(
        &mut self,
        task: &mut Task,
        delivery: Delivery,
    ) -> Result<(), RabbitMqError> {
        let tag = delivery.delivery_tag;
        let (original, arrival, body) = task.arrivals.read(delivery, &self.rules.pool);
        self.inbox.weigh(body.len());
        let hold = task.share.hold(body.len());
        let held = Held::new(original, arrival, body, hold, Instant::now());
        let received = self.book.receive(tag, held);
        received.map_err(|why| RabbitMqError::Lost { why })?;
        self.decide(|book, terms| book.enqueue(tag, terms))
    }

    /// Requests as many messages from the broker as the pool can use.
    pub(super) fn plan_prefetch(&mut self, task: &Task, now: Instant) -> Result<(), RabbitMqError> {
        let needs = Needs {
            credit: credit::room(task.intake(), 0),
            ahead: self.outbox.backlog().ahead(),
            unacknowledged: self.book.unacknowledged(),
            closing: self.closing,
            consumable: self.checks.is_consumable(),
        };
        let step = self
            .inbox
            .plan(needs, &task.policy.borrow(), &task.share, now);
        match step {
            InboxStep::Nothing => Ok(()),
            InboxStep::Cancelled => {
                self.acks.restart_count();
                Ok(())
            }
            InboxStep::Surplus => self.give_back_the_surplus(task),
        }
    }

    /// Returns messages of the cancelled consumers that the pool can't use to the queue, so that others can
    /// have them. Before the consumers are cancelled they would only be redelivered here.
    fn give_back_the_surplus(&mut self, task: &Task) -> Result<(), RabbitMqError> {
        if self.inbox.gives_back(self.closing) {
            // The messages that are returned now would hold back acknowledgements that come after them.
            self.acks.write(&mut self.book, Others::Single)?;
            let backs = self.outbox.take_returns();
            self.give_back_all(&backs)?;
        }
        let kept = if self.closing { 0 } else { task.room() };
        let with_suspects = self.closing || task.intake() == Intake::Credit(0);
        let back = self.book.surplus(kept, with_suspects);
        self.give_back_all(&back)
    }

    /// Returns messages to their queue, from the last on, so that the first of them is the first there again.
    fn give_back_all(&mut self, tags: &[u64]) -> Result<(), RabbitMqError> {
        for tag in tags.iter().rev() {
            self.decide(|book, terms| book.give_back(*tag, terms))?;
        }
        Ok(())
    }

    /// Gives the suspects their turns: requested, begun with a marked copy, given back. If that copy is
    /// redelivered, the daemon has vanished with it once more.
    pub(super) fn take_turns(
        &mut self,
        task: &mut Task,
        now: Instant,
    ) -> Result<(), RabbitMqError> {
        let has_room = !self.is_held_up() && task.room() > 0;
        let closing = self.closing;
        self.book.give_up_turn(now);
        while self.book.suspects().has_begun() {
            let ask = || !closing && task.turns.ask();
            self.decide(|book, terms| book.take_begun(ask, terms))?;
        }
        let suspects = self.book.suspects();
        if !suspects.has_turn() && task.turns.ask_for(suspects.has_waiting(), has_room) {
            self.decide(|book, terms| book.begin_turn(fastrand::u64(..), terms))?;
        }
        let prefetch = usize::from(self.inbox.prefetch());
        while self.book.suspects().has_surplus(prefetch) {
            self.decide(|book, terms| book.send_surplus_suspect(terms))?;
        }
        if has_room && let Some((token, held)) = self.book.hand_out_suspect() {
            task.turns.mark_out(token);
            task.deliver(&self.claim, &self.rules.pool, token, held);
        }
        if let Some(has_waiting) = self.book.take_suspect_report() {
            task.turns.report_waiting(&task.end, has_waiting);
        }
        Ok(())
    }

    /// Hands out as many messages as the pool has credit for.
    pub(super) fn hand_out(&mut self, task: &mut Task) {
        if self.is_held_up() {
            return;
        }
        for _ in 0..task.room() {
            let Some((token, held)) = self.book.hand_out() else {
                return;
            };
            task.deliver(&self.claim, &self.rules.pool, token, held);
        }
    }

    /// Returns whether no more work is begun.
    fn is_held_up(&self) -> bool {
        self.closing || self.outbox.backlog().is_full()
    }

    // -- settled --

    /// Handles the pool's settlements: all of them, even if the connection is lost in the middle. Those after
    /// the loss are void, as all later ones are.
    pub(super) fn settle_all(
        &mut self,
        task: &mut Task,
        settlements: impl Iterator<Item = Settlement>,
    ) -> Result<(), RabbitMqError> {
        let mut result = Ok(());
        let mut void = 0;
        for settlement in settlements {
            task.is_back(settlement.token);
            let Settlement { outcome, span, .. } = settlement;
            match self.book.tag(settlement.token).filter(|_| result.is_ok()) {
                Some(tag) => {
                    result = self.decide(|book, terms| book.settle(tag, outcome, span, terms));
                }
                None => void += u64::from(outcome.is_of_work()),
            }
        }
        task.void(void);
        result
    }

    /// Publishes for a worker that continues its work.
    pub(super) fn emit(&mut self, publish: Publish) {
        let topology = self.checks.topology();
        let terms = self.rules.terms(topology, self.outbox.targets());
        let parcel = terms.composer.outgoing(&publish.message, None);
        self.outbox.emit(publish, parcel);
    }

    /// Handles the broker's verdicts on publications.
    pub(super) fn judge_all(
        &mut self,
        task: &mut Task,
        verdicts: Vec<(u64, Verdict)>,
    ) -> Result<(), RabbitMqError> {
        let again = self.outbox.take_sent_again();
        let why = "they were published again after the channel or its connection was lost";
        task.health.may_run_twice(&task.end, again, why);
        for (id, verdict) in verdicts {
            if let Some(job) = self.outbox.answered(id, &verdict) {
                self.judge(task, job, verdict)?;
            }
        }
        Ok(())
    }

    fn judge(&mut self, task: &mut Task, job: Job, verdict: Verdict) -> Result<(), RabbitMqError> {
        let (pool, to) = (&self.rules.pool.name, job.to());
        match &verdict {
            Verdict::EndsConnection(why) if job.purpose() == Purpose::Reply => {
                tracing::warn!(pool, to, why, "reply makes the broker close the connection");
            }
            Verdict::Refused(why) | Verdict::EndsConnection(why) => {
                tracing::warn!(pool, to, why, "broker rejected a message");
            }
            Verdict::Confirmed | Verdict::NotNow | Verdict::Returned => {}
        }
        let (now, drops) = (Instant::now(), self.rules.drops_replies());
        match job.purpose().consequence(verdict, self.closing, drops) {
            Consequence::Safe => self.end_safely(job),
            Consequence::Dropped(why) => {
                tracing::info!(pool, queue = to, why, "reply dropped");
                self.end_safely(job);
            }
            Consequence::Full => {
                let problem = format!(
                    "the queue `{to}` does not accept it: is it full, or without a \
                     leader?"
                );
                if let Some(job) = self.outbox.wait_for_room(job, now) {
                    return self.refuse(job, &given_up_reason());
                }
                task.health
                    .begin(&task.end, HealthIssue::Publishing, problem);
            }
            Consequence::Missing => {
                let problem = format!("the queue `{to}` is missing");
                task.health
                    .begin(&task.end, HealthIssue::Publishing, problem);
                self.checks.check_now();
                self.outbox.wait(job, now);
            }
            Consequence::Refused(why) => self.refuse(job, &why)?,
            Consequence::GivenUp(why) => {
                if let Some(tag) = self.outbox.end(job, Err(why)) {
                    self.decide(|book, terms| book.give_up(tag, why, terms))?;
                }
            }
        }
        Ok(())
    }

    /// Ends a publication that is confirmed, or not wanted.
    fn end_safely(&mut self, job: Job) {
        if let Some(tag) = self.outbox.end(job, Ok(())) {
            self.book.is_published(tag);
        }
    }

    /// Ends a publication that can't be made: there may be another form for a delivery.
    pub(super) fn refuse(&mut self, job: Job, why: &str) -> Result<(), RabbitMqError> {
        match self.outbox.end(job, Err(why)) {
            Some(tag) => self.decide(|book, terms| book.refuse(tag, why, terms)),
            None => Ok(()),
        }
    }

    /// Writes the acknowledgements that are due.
    pub(super) fn acknowledge(&mut self, task: &Task, now: Instant) -> Result<(), RabbitMqError> {
        let end = match self.closing {
            false => AcksEnd::Later,
            true if task.out > 0 || self.outbox.pending() > 0 => AcksEnd::More,
            true => AcksEnd::Last,
        };
        let prefetch = self.inbox.prefetch();
        self.acks.acknowledge(&mut self.book, prefetch, end, now)
    }

    // -- old deliveries --

    /// Finds deliveries that have waited too long for a worker, for the end of their work, or for the
    /// broker's answer.
    pub(super) fn check_all_ages(
        &mut self,
        task: &mut Task,
        now: Instant,
    ) -> Result<(), RabbitMqError> {
        if now < self.age_at {
            return Ok(());
        }
        self.age_at = now + (self.rules.patience / 32).min(CHECK_EVERY);
        let (problem, undeliverable) = self.outbox.check_unconfirmed(now);
        for job in undeliverable {
            self.refuse(job, &given_up_reason())?;
        }
        if let Some(problem) = problem {
            task.health
                .begin(&task.end, HealthIssue::Publishing, problem);
        }
        self.check_ages(task)
    }

    /// Finds old deliveries. The broker ends the channel, with everything on it, when one delivery is not
    /// acknowledged for too long. A delivery that is not begun is given back in time; for others there is a
    /// warning. A delivery that can't be settled is given back in the end: it runs again, so that the others
    /// are not lost with it.
    fn check_ages(&mut self, task: &mut Task) -> Result<(), RabbitMqError> {
        let topology = self.checks.topology();
        let terms = self.rules.terms(topology, self.outbox.targets());
        let aged = self.book.find_aged(&terms);
        if !aged.unbegun.is_empty() {
            tracing::warn!(
                pool = self.rules.pool.name,
                count = aged.unbegun.len(),
                "messages waited for a worker for half of the broker's consumer_timeout and are \
                 returned"
            );
        }
        self.give_back_all(&aged.unbegun)?;
        let why = "their publications were not accepted in time";
        let count = u64::try_from(aged.stuck.len()).unwrap_or(u64::MAX);
        task.health.may_run_twice(&task.end, count, why);
        self.outbox.forget_all(&aged.stuck);
        self.give_back_all(&aged.stuck)
    }
}
