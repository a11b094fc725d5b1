//! The book of the deliveries of one connection: one record of each, with its state, and the next step for
//! it. No other module changes a record. A delivery is acknowledged only after its work is done and the
//! publications for it are confirmed; any failure gives it back. Nothing here communicates with a broker, and
//! the time is passed in.

mod held;
mod suspects;

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use super::publication;
use super::publication::{DeadLetterDetail, Publication};
use super::purpose::Purpose;
use super::survived::Fingerprint;
use super::terms::Terms;
use crate::broker::ledger::{Ack, Ledger, Others};
use crate::broker::publisher::OutboundMessage;
use crate::rules;
use crate::rules::Fate;
use ganger_core::trace_context::SpanContext;
use ganger_queue::attempts;
use ganger_queue::delivery::{Failure, Outcome};
use ganger_telemetry::metrics::dead_lettered;
use held::DeliveryState;
use suspects::Suspects;

pub(super) use held::Held;

/// The deliveries of a connection.
#[derive(Debug)]
pub(super) struct DeliveryBook {
    /// The token of the delivery with tag 0.
    base: u64,
    /// The records by their tags, and the tags to be acknowledged.
    ledger: Ledger<Box<Held>>,
    /// Tags of those that are ready: the pool gets the lowest first.
    ready: BTreeSet<u64>,
    /// Order of the suspects, of which one runs at a time.
    suspects: Suspects,
    /// Number of those that are parked.
    parked: usize,
}

/// Next step of a delivery.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum DeliveryStep {
    /// Publish these for the delivery with this tag, each after the confirm of the previous one.
    Publish(u64, Purpose, VecDeque<OutboundMessage>),
    /// Return the delivery to its queue as it is.
    Return(u64),
    /// Reject it, for the broker to handle.
    Reject(u64),
}

/// Deliveries held for too long, by their tags in order: they are given back.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Aged {
    /// Not begun by a worker.
    pub(super) unbegun: Vec<u64>,
    /// Publications for them are not accepted.
    pub(super) stuck: Vec<u64>,
}

/// Time that a delivery may wait for a worker. The broker's timeout is configured in ganger as well, since
/// the broker does not report it.
pub(super) fn begin_within(patience: Duration) -> Duration {
    patience / 2
}

/// Returns whether the broker's timeout is close.
fn is_late(age: Duration, patience: Duration) -> bool {
    age >= patience / 4 * 3
}

impl DeliveryBook {
    /// Starts without deliveries. Tags begin at 1.
    pub(super) fn new(next_token: u64) -> Self {
        Self {
            base: next_token,
            ledger: Ledger::new(),
            ready: BTreeSet::new(),
            suspects: Suspects::default(),
            parked: 0,
        }
    }

    /// Tag of a token; `None` for one of an earlier connection.
    pub(super) fn tag(&self, token: u64) -> Option<u64> {
        token.checked_sub(self.base).filter(|tag| *tag > 0)
    }

    /// A token that no delivery of this connection or an earlier one has.
    pub(super) fn next_token(&self) -> u64 {
        self.base + self.ledger.next_tag()
    }

    // -- arrivals and hand-outs --

    /// Records a delivery. The error is the reason why it can't be one.
    pub(super) fn receive(&mut self, tag: u64, held: Held) -> Result<(), String> {
        match self.ledger.receive(tag, Box::new(held)) {
            None => Ok(()),
            Some(_) => Err(format!("the broker has used the delivery tag {tag} twice")),
        }
    }

    /// Queues a delivery that has arrived, from the broker or the pool, by its state; it may become a dead
    /// letter.
    pub(super) fn enqueue(&mut self, tag: u64, terms: &Terms<'_>) -> Option<DeliveryStep> {
        let held = self.ledger.get_mut(tag)?;
        let arrival = &mut held.arrival;
        match rules::fate(*arrival, terms.limits) {
            Fate::HandOut => {
                held.state = DeliveryState::Ready;
                self.ready.insert(tag);
                None
            }
            Fate::Suspect(lapses) => {
                (arrival.lapses, arrival.turn) = (lapses, None);
                held.state = DeliveryState::Suspect;
                self.suspects.wait(tag);
                None
            }
            Fate::InTurn(turn) => {
                held.state = DeliveryState::Suspect;
                self.suspects.add_begun(tag, turn);
                None
            }
            Fate::Renew(lapses) => {
                arrival.lapses = lapses;
                self.publish(tag, Publication::Back, terms)
            }
            Fate::Bury(counters, failure) => {
                dead_lettered(terms.composer.pool, &held.log_name(), &failure);
                if let Some(following) = terms.following
                    && let Some(occurrence) = held.original.occurrence()
                {
                    following.buried(occurrence, failure.clone());
                }
                let failure = Box::new(failure);
                let form = DeadLetterDetail::Full;
                let letter = Publication::DeadLetter {
                    counters,
                    failure,
                    form,
                };
                self.publish(tag, letter, terms)
            }
        }
    }

    /// Next delivery for the pool, with its token.
    pub(super) fn hand_out(&mut self) -> Option<(u64, &Held)> {
        let tag = self.ready.pop_first()?;
        self.mark_out(tag)
    }

    /// The suspect whose turn it is, for the pool, with its token.
    pub(super) fn hand_out_suspect(&mut self) -> Option<(u64, &Held)> {
        let tag = self.suspects.take_here()?;
        self.mark_out(tag)
    }

    fn mark_out(&mut self, tag: u64) -> Option<(u64, &Held)> {
        let held = self.ledger.get_mut(tag)?;
        held.state = DeliveryState::Out;
        Some((self.base + tag, held))
    }

    // -- settled --

    /// Settles a delivery. If the span of its attempt was recorded, the next attempt gets it.
    pub(super) fn settle(
        &mut self,
        tag: u64,
        outcome: Outcome,
        span: Option<SpanContext>,
        terms: &Terms<'_>,
    ) -> Option<DeliveryStep> {
        let held = self.ledger.get_mut(tag);
        let Some(held) = held.filter(|held| held.state == DeliveryState::Out) else {
            tracing::error!(tag, "settled, but never handed out");
            return None;
        };
        let counters = &mut held.arrival.counters;
        counters.span = span.or(counters.span);
        let (counters, now_ms) = (*counters, terms.composer.now_ms);
        let charged = |failure: &Failure| attempts::charged(counters, failure.reason, now_ms);
        let publication = match outcome {
            Outcome::Done => {
                self.ledger.settle(tag);
                return None;
            }
            Outcome::Return { suspect } => {
                held.arrival.suspect |= suspect;
                return self.take_back(tag, terms);
            }
            Outcome::Reply(reply) => Publication::Reply(reply),
            Outcome::Requeue { after } => Publication::Requeue {
                counters: attempts::requeued(counters),
                after,
            },
            Outcome::ReturnAfter { delay } => Publication::Requeue {
                counters,
                after: delay,
            },
            Outcome::RetryAfter { delay, failure } => Publication::Retry {
                counters: charged(&failure),
                delay,
                failure,
            },
            Outcome::DeadLetter(failure) => Publication::DeadLetter {
                counters: charged(&failure),
                failure,
                form: DeadLetterDetail::Full,
            },
        };
        self.publish(tag, publication, terms)
    }

    /// Takes back a delivery that was not begun. As long as messages are taken in, it is handed out again
    /// from here, which costs the broker nothing and leaves no mark on the message.
    fn take_back(&mut self, tag: u64, terms: &Terms<'_>) -> Option<DeliveryStep> {
        let age = self.ledger.get(tag)?.age(terms.now);
        if age >= begin_within(terms.patience) {
            return self.return_to_queue(tag, terms);
        }
        // During the shutdown it is given back from there, when it can't be redelivered here.
        self.enqueue(tag, terms)
    }

    // -- publications --

    /// Publishes for a delivery, in the first form that the protocol has room for.
    fn publish(
        &mut self,
        tag: u64,
        mut publication: Publication,
        terms: &Terms<'_>,
    ) -> Option<DeliveryStep> {
        loop {
            if terms.rejects_dead && matches!(publication, Publication::DeadLetter { .. }) {
                self.ledger.give_back(tag)?;
                return Some(DeliveryStep::Reject(tag));
            }
            let held = self.ledger.get_mut(tag)?;
            let why = match terms.composer.parcels(&held.subject(), &publication) {
                Ok(parcels) => {
                    let purpose = publication.purpose();
                    held.state = DeliveryState::Publishing(publication);
                    return Some(DeliveryStep::Publish(tag, purpose, parcels.into()));
                }
                Err(why) => why,
            };
            match substitute(held, &publication, &why, terms) {
                Some(substitute) => publication = substitute,
                None => return self.abandon(tag, &publication, &why, terms),
            }
        }
    }

    /// Settles a delivery whose publication is confirmed, or not wanted: it is to be acknowledged.
    pub(super) fn is_published(&mut self, tag: u64) {
        if self.publication(tag).is_some() {
            self.ledger.settle(tag);
        }
    }

    /// Publishes for a delivery in another form, since this one is permanently rejected.
    pub(super) fn refuse(
        &mut self,
        tag: u64,
        why: &str,
        terms: &Terms<'_>,
    ) -> Option<DeliveryStep> {
        let publication = self.publication(tag)?.clone();
        match substitute(self.ledger.get(tag)?, &publication, why, terms) {
            Some(substitute) => self.publish(tag, substitute, terms),
            None => self.abandon(tag, &publication, why, terms),
        }
    }

    /// Gives up publishing for a delivery, in any form.
    pub(super) fn give_up(
        &mut self,
        tag: u64,
        why: &str,
        terms: &Terms<'_>,
    ) -> Option<DeliveryStep> {
        let publication = self.publication(tag)?.clone();
        self.abandon(tag, &publication, why, terms)
    }

    fn abandon(
        &mut self,
        tag: u64,
        publication: &Publication,
        why: &str,
        terms: &Terms<'_>,
    ) -> Option<DeliveryStep> {
        let held = self.ledger.get_mut(tag)?;
        match publication {
            // The work is not done: it is returned unchanged.
            Publication::Back | Publication::Parked => return self.return_as_is(tag),
            // It runs in its turn in any case, if it is not too late for that.
            Publication::Turn => {
                held.state = DeliveryState::Suspect;
                let turn = held.arrival.turn.take();
                self.suspects.run_unmarked(tag, turn);
            }
            Publication::Requeue { .. }
            | Publication::Reply(_)
            | Publication::Retry { .. }
            | Publication::DeadLetter { .. } => {
                held.state = DeliveryState::Parked;
                self.parked += 1;
                tracing::error!(
                    pool = terms.composer.pool,
                    tag,
                    why,
                    "publication for a settled message permanently rejected; message parked until \
                     the connection ends"
                );
            }
        }
        None
    }

    /// Publication under way for a delivery.
    fn publication(&self, tag: u64) -> Option<&Publication> {
        match &self.ledger.get(tag)?.state {
            DeliveryState::Publishing(publication) => Some(publication),
            DeliveryState::Here
            | DeliveryState::Ready
            | DeliveryState::Suspect
            | DeliveryState::Out
            | DeliveryState::Parked => None,
        }
    }

    /// Number of deliveries whose publication the broker refuses.
    pub(super) fn parked(&self) -> usize {
        self.parked
    }

    /// Number of deliveries settled without the broker's knowledge.
    pub(super) fn unsure(&self) -> usize {
        let publishing = self
            .ledger
            .iter()
            .filter(|(tag, _)| self.publication(*tag).is_some());
        publishing.count() + self.parked + self.ledger.settled()
    }

    // -- given back --

    /// Finds the ready deliveries beyond `most`, and the suspects if they are to be given back, too. Returns
    /// their tags in order.
    pub(super) fn surplus(&self, most: usize, with_suspects: bool) -> Vec<u64> {
        let mut back: Vec<u64> = self.ready.iter().skip(most).copied().collect();
        if with_suspects {
            back.extend(self.suspects.tags());
            back.sort_unstable();
        }
        back
    }

    /// Finds deliveries held for long, and warns of those that workers have had for long.
    pub(super) fn find_aged(&mut self, terms: &Terms<'_>) -> Aged {
        let (patience, now) = (terms.patience, terms.now);
        let old = |held: &Held| held.age(now) >= begin_within(patience);
        let tags = self.ledger.iter().filter(|(_, held)| old(held));
        let tags: Vec<u64> = tags.map(|(tag, _)| tag).collect();
        let mut aged = Aged::default();
        for tag in tags {
            let Some(held) = self.ledger.get_mut(tag) else {
                continue;
            };
            let late = is_late(held.age(now), patience);
            match held.state {
                DeliveryState::Here | DeliveryState::Ready | DeliveryState::Suspect => {
                    aged.unbegun.push(tag);
                }
                DeliveryState::Publishing(_) | DeliveryState::Parked if late => {
                    aged.stuck.push(tag)
                }
                DeliveryState::Publishing(_) | DeliveryState::Parked => {}
                DeliveryState::Out => {
                    if held.is_to_be_warned_of(late) {
                        warn_of_age(held, terms);
                    }
                }
            }
        }
        aged
    }

    /// Counts deliveries in progress for nearly the broker's timeout, each once.
    pub(super) fn count_late(&mut self, patience: Duration, now: Instant) -> usize {
        let is_late =
            |held: &Held| held.state == DeliveryState::Out && is_late(held.age(now), patience);
        let late = self.ledger.iter().filter(|(_, held)| is_late(held));
        let late: Vec<u64> = late.map(|(tag, _)| tag).collect();
        let mut is_new = |tag| {
            self.ledger
                .get_mut(tag)
                .is_some_and(|held| held.is_to_be_counted())
        };
        late.into_iter().filter(|tag| is_new(*tag)).count()
    }

    /// Returns a delivery to its queue that waits, or is stuck. The pool must not have it.
    pub(super) fn give_back(&mut self, tag: u64, terms: &Terms<'_>) -> Option<DeliveryStep> {
        match self.ledger.get(tag)?.state {
            DeliveryState::Out => None,
            DeliveryState::Ready => {
                self.ready.remove(&tag);
                self.return_to_queue(tag, terms)
            }
            DeliveryState::Suspect => {
                self.suspects.remove(tag);
                self.return_to_queue(tag, terms)
            }
            // A copy may be in the queue, or there is no room for one.
            DeliveryState::Publishing(Publication::Back) => self.return_as_is(tag),
            DeliveryState::Here | DeliveryState::Publishing(_) => self.return_to_queue(tag, terms),
            // Nothing else can be published for it either.
            DeliveryState::Parked => {
                self.parked -= 1;
                self.return_as_is(tag)
            }
        }
    }

    /// Returns a delivery to its queue, as a copy if the broker would count that once too often.
    fn return_to_queue(&mut self, tag: u64, terms: &Terms<'_>) -> Option<DeliveryStep> {
        if rules::returns_as_copy(self.ledger.get(tag)?.arrival) {
            self.publish(tag, Publication::Back, terms)
        } else {
            self.return_as_is(tag)
        }
    }

    /// Returns a delivery to its queue unchanged, although the broker counts that.
    fn return_as_is(&mut self, tag: u64) -> Option<DeliveryStep> {
        self.ledger.give_back(tag)?;
        Some(DeliveryStep::Return(tag))
    }

    // -- the turns of suspects --

    /// Suspects, of which one runs at a time.
    pub(super) fn suspects(&self) -> &Suspects {
        &self.suspects
    }

    /// Gives up a turn that has not come in time.
    pub(super) fn give_up_turn(&mut self, now: Instant) {
        self.suspects.give_up(now);
    }

    /// Returns whether suspects wait, if the pool has to be notified.
    pub(super) fn take_suspect_report(&mut self) -> Option<bool> {
        self.suspects.take_report()
    }

    /// Takes the first copy whose turn has begun. It runs next if it is its turn here, which is the case if
    /// no other suspect has the turn and `ask` grants it. Otherwise it must not be held as if it were: it
    /// would be charged for the effects of another.
    pub(super) fn take_begun(
        &mut self,
        ask: impl FnOnce() -> bool,
        terms: &Terms<'_>,
    ) -> Option<DeliveryStep> {
        let (tag, turn) = self.suspects.take_begun()?;
        if self.suspects.is_its_turn(turn).unwrap_or_else(ask) {
            self.suspects.mark_here(tag);
            return None;
        }
        self.publish(tag, Publication::Back, terms)
    }

    /// Begins the turn of the suspect that has waited longest, with a marked copy.
    pub(super) fn begin_turn(&mut self, turn: u64, terms: &Terms<'_>) -> Option<DeliveryStep> {
        let tag = self.suspects.begin(turn, terms.now)?;
        let held = self.ledger.get_mut(tag)?;
        held.arrival.turn = Some(turn);
        let (pool, lapses) = (terms.composer.pool, held.arrival.lapses);
        tracing::warn!(
            pool,
            lapses,
            "daemons vanished while they held a message: it is a suspect and runs alone in its \
             worker"
        );
        self.publish(tag, Publication::Turn, terms)
    }

    /// Parks the suspect that arrived last for a while.
    pub(super) fn send_surplus_suspect(&mut self, terms: &Terms<'_>) -> Option<DeliveryStep> {
        let tag = self.suspects.take_last()?;
        self.publish(tag, Publication::Parked, terms)
    }

    // -- acknowledged --

    /// Returns whether any delivery waits to be acknowledged.
    pub(super) fn has_settled(&self) -> bool {
        self.ledger.has_settled()
    }

    /// Number of deliveries that wait to be acknowledged.
    pub(super) fn settled(&self) -> usize {
        self.ledger.settled()
    }

    /// Number of unacknowledged deliveries, as the broker counts them.
    pub(super) fn unacknowledged(&self) -> usize {
        self.ledger.unacknowledged()
    }

    /// Number of deliveries that wait for the pool's credit.
    pub(super) fn waiting(&self) -> usize {
        self.ready.len()
    }

    /// Fingerprints of the held deliveries.
    pub(super) fn fingerprints(&self) -> impl Iterator<Item = Fingerprint> {
        let all = self.ledger.iter();
        all.map(|(_, held)| Fingerprint::of(&held.original, &held.body))
    }

    /// Collects the acknowledgements that can be written.
    pub(super) fn acks(&mut self, others: Others, write: &mut Vec<Ack>) {
        self.ledger.acks(others, write);
    }
}

/// Substitute for a publication that is permanently rejected. For the pool the message is done, or will be
/// redelivered; its dead letter is logged here.
fn substitute(
    held: &Held,
    publication: &Publication,
    why: &str,
    terms: &Terms<'_>,
) -> Option<Publication> {
    let composer = &terms.composer;
    let substitute =
        publication::substitute(publication.clone(), held.arrival, composer.now_ms, why)?;
    if let Publication::DeadLetter { failure, .. } = &substitute
        && !matches!(publication, Publication::DeadLetter { .. })
    {
        dead_lettered(composer.pool, &held.log_name(), failure);
    }
    Some(substitute)
}

fn warn_of_age(held: &Held, terms: &Terms<'_>) {
    let name = held.log_name();
    tracing::warn!(
        pool = terms.composer.pool,
        correlation_id = name.correlation_id(),
        message_name = name.message(),
        age = ?held.age(terms.now),
        consumer_timeout = ?terms.patience,
        "message held by a worker for so long that the broker will take it back, with all others \
         of this connection: raise the broker's consumer_timeout"
    );
}

#[cfg(test)]
mod tests;
