//! The deliveries of one connection in our hands: the state of each, and its next step. Nothing
//! else changes one. It is acknowledged after its work is done and what there is to publish for it
//! is safe, and in no other case; any failure gives it back. Pure, but for the times it is given.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::held::{DeliveryStep, Held, HeldState};
use super::publication::{LetterDetail, Publication};
use super::survived::Fingerprint;
use super::suspects::Suspects;
use crate::broker::ledger::{Ack, Ledger, Others};
use crate::rules;
use crate::rules::Fate;
use ganger_core::trace_context::SpanContext;
use ganger_queue::attempts;
use ganger_queue::attempts::Limits;
use ganger_queue::delivery::{Failure, Outcome};

/// The deliveries of a connection.
#[derive(Debug)]
pub(super) struct Deliveries {
    /// The token of the delivery with tag 0.
    base: u64,
    ledger: Ledger<Box<Held>>,
    /// Tags of those that wait for the pool's credit, in order.
    ready: VecDeque<u64>,
    /// Suspects, of which one runs at a time.
    suspects: Suspects,
}

/// Parameters of a decision.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    pub(super) limits: Limits,
    /// Time that the broker waits for an acknowledgement.
    pub(super) patience: Duration,
    pub(super) now: Instant,
    /// Unix time, for people to read only; no decision depends on it.
    pub(super) now_ms: i64,
}

/// Deliveries in hand for long, by their tags in order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Aged {
    /// Not begun by a worker, and not waiting for one any more.
    pub(super) unbegun: Vec<u64>,
    /// Worked on for so long that a warning is due.
    pub(super) slow: Vec<u64>,
    /// Publications for them are not accepted.
    pub(super) stuck: Vec<u64>,
}

/// Time that a delivery may wait for a worker. The broker's timeout is a setting of ours as well,
/// since the broker does not tell it.
pub(super) fn begin_within(patience: Duration) -> Duration {
    patience / 2
}

/// Returns whether the broker's timeout is close.
fn is_late(age: Duration, patience: Duration) -> bool {
    age >= patience / 4 * 3
}

impl Deliveries {
    /// Starts without deliveries. Tags begin at 1.
    pub(super) fn new(next_token: u64) -> Self {
        Self {
            base: next_token,
            ledger: Ledger::new(),
            ready: VecDeque::new(),
            suspects: Suspects::default(),
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

    /// A delivery in our hands.
    pub(super) fn get(&self, tag: u64) -> Option<&Held> {
        self.ledger.get(tag).map(|held| &**held)
    }

    /// Number of held deliveries, without the settled ones.
    pub(super) fn held(&self) -> usize {
        self.ledger.held()
    }

    /// Fingerprints of the held deliveries.
    pub(super) fn fingerprints(&self) -> impl Iterator<Item = Fingerprint> {
        let all = self.ledger.iter();
        all.map(|(_, held)| Fingerprint::of(&held.original, &held.body))
    }

    // -- in and out --

    /// Takes in a delivery. Returns `None` if the broker has used its tag before.
    pub(super) fn receive(&mut self, tag: u64, held: Held, limits: Limits) -> Option<DeliveryStep> {
        match self.ledger.receive(tag, Box::new(held)) {
            None => Some(self.line_up(tag, limits)),
            Some(_) => None,
        }
    }

    /// Puts a delivery where it belongs, which may be the dead letters.
    fn line_up(&mut self, tag: u64, limits: Limits) -> DeliveryStep {
        let Some(held) = self.ledger.get_mut(tag) else {
            return DeliveryStep::Rest;
        };
        let arrival = &mut held.arrival;
        match rules::fate(*arrival, limits) {
            // Those that come back from the pool were there before the others.
            Fate::HandOut => {
                held.is_ready();
                let at = self.ready.partition_point(|other| *other < tag);
                self.ready.insert(at, tag);
            }
            Fate::Suspect(lapses) => {
                arrival.lapses = lapses;
                arrival.turn = None;
                held.waits();
                self.suspects.wait(tag);
            }
            Fate::InTurn(turn) => {
                held.waits();
                self.suspects.come(tag, turn);
            }
            Fate::Renew(lapses) => {
                arrival.lapses = lapses;
                return held.publish(Publication::Back);
            }
            Fate::Bury(counters, failure) => {
                return held.bury(counters, failure);
            }
        }
        DeliveryStep::Rest
    }

    /// Next delivery for the pool, with its token.
    pub(super) fn hand_out(&mut self) -> Option<(u64, &Held)> {
        let tag = self.ready.pop_front()?;
        self.goes_out(tag)
    }

    /// The suspect whose turn it is, for the pool, with its token.
    pub(super) fn hand_out_suspect(&mut self) -> Option<(u64, &Held)> {
        let tag = self.suspects.take_here()?;
        self.goes_out(tag)
    }

    fn goes_out(&mut self, tag: u64) -> Option<(u64, &Held)> {
        let held = self.ledger.get_mut(tag)?;
        held.goes_out();
        Some((self.base + tag, held))
    }

    // -- settled --

    /// Settles a delivery. Returns `None` if the pool does not have it.
    pub(super) fn settle(
        &mut self,
        tag: u64,
        outcome: Outcome,
        terms: &Terms,
    ) -> Option<DeliveryStep> {
        let held = self.ledger.get_mut(tag);
        let held = held.filter(|held| held.state() == HeldState::Out)?;
        let counters = held.arrival.counters;
        let charged = |failure: &Failure| attempts::charged(counters, failure.reason, terms.now_ms);
        let aim = match outcome {
            Outcome::Done => {
                self.ledger.settle(tag);
                return Some(DeliveryStep::Rest);
            }
            Outcome::Return { suspect } => {
                held.arrival.suspect |= suspect;
                return Some(self.take_back(tag, terms));
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
            Outcome::DeadLetter(failure) => Publication::Letter {
                counters: charged(&failure),
                failure,
                form: LetterDetail::Full,
            },
        };
        Some(held.publish(aim))
    }

    /// Records the end of an attempt; if its span was recorded, the next one gets it.
    pub(super) fn attempted(&mut self, tag: u64, span: Option<SpanContext>) {
        if let (Some(_), Some(held)) = (span, self.ledger.get_mut(tag)) {
            held.arrival.counters.span = span;
        }
    }

    /// Takes back a delivery that was not begun. As long as we take messages it is handed out again
    /// from here, which costs the broker nothing and leaves no mark on the message.
    fn take_back(&mut self, tag: u64, terms: &Terms) -> DeliveryStep {
        let Some(held) = self.ledger.get_mut(tag) else {
            return DeliveryStep::Rest;
        };
        if held.age(terms.now) >= begin_within(terms.patience) {
            return held.go_back();
        }
        // At the end of all it goes back from there, when it can't come again.
        self.line_up(tag, terms.limits)
    }

    /// Settles a delivery whose publication is safe, or not wanted: it is to be acknowledged.
    pub(super) fn is_published(&mut self, tag: u64) {
        let held = self.ledger.get(tag);
        if held.is_some_and(|held| held.state() == HeldState::Publishing) {
            self.ledger.settle(tag);
        }
    }

    /// Gives up a publication that has no substitute left.
    pub(super) fn give_up(&mut self, tag: u64, aim: &Publication) -> DeliveryStep {
        let Some(held) = self.ledger.get_mut(tag) else {
            return DeliveryStep::Rest;
        };
        match aim {
            // The work is not done: it goes back as it is.
            Publication::Back | Publication::Aside => return held.go(),
            // It runs in its turn all the same, if it is not too late for that.
            Publication::Turn => {
                held.waits();
                let turn = held.arrival.turn.take();
                self.suspects.run_unmarked(tag, turn);
            }
            Publication::Requeue { .. }
            | Publication::Reply(_)
            | Publication::Retry { .. }
            | Publication::Letter { .. } => held.put_aside(),
        }
        DeliveryStep::Rest
    }

    /// Returns whether the broker refuses the publication for this delivery.
    pub(super) fn is_aside(&self, tag: u64) -> bool {
        let held = self.ledger.get(tag);
        held.is_some_and(|held| held.state() == HeldState::Aside)
    }

    /// Number of deliveries whose publication the broker refuses.
    pub(super) fn aside(&self) -> usize {
        self.count(|state| state == HeldState::Aside)
    }

    /// Number of deliveries settled without the broker knowing.
    pub(super) fn unsure(&self) -> usize {
        let settled = |state| matches!(state, HeldState::Publishing | HeldState::Aside);
        self.count(settled) + self.ledger.settled()
    }

    fn count(&self, is_one: impl Fn(HeldState) -> bool) -> usize {
        let all = self.ledger.iter();
        all.filter(|(_, held)| is_one(held.state())).count()
    }

    // -- back --

    /// Removes the ready deliveries beyond `most`, and the suspects if they are to go, too. Returns
    /// their tags in order.
    pub(super) fn surplus(&mut self, most: usize, with_suspects: bool) -> Vec<u64> {
        let mut back: Vec<u64> = self.ready.split_off(most.min(self.ready.len())).into();
        if with_suspects {
            back.extend(self.suspects.drain());
            back.sort_unstable();
        }
        self.leave(&back);
        back
    }

    /// Finds deliveries in hand for long.
    pub(super) fn look_at_age(&mut self, patience: Duration, now: Instant) -> Aged {
        let old = |held: &Held| held.age(now) >= begin_within(patience);
        let tags = self.ledger.iter().filter(|(_, held)| old(held));
        let tags: Vec<u64> = tags.map(|(tag, _)| tag).collect();
        let mut aged = Aged::default();
        for tag in tags {
            let Some(held) = self.ledger.get_mut(tag) else {
                continue;
            };
            let late = is_late(held.age(now), patience);
            match held.state() {
                HeldState::Ready | HeldState::Waiting | HeldState::Leaving => {
                    aged.unbegun.push(tag);
                }
                HeldState::Publishing | HeldState::Aside if late => aged.stuck.push(tag),
                HeldState::Publishing | HeldState::Aside => {}
                HeldState::Out if held.is_to_be_warned_of(late) => aged.slow.push(tag),
                HeldState::Out => {}
            }
        }
        self.leave(&aged.unbegun);
        aged
    }

    /// Counts deliveries worked on for nearly the broker's timeout, each once.
    pub(super) fn count_late(&mut self, patience: Duration, now: Instant) -> usize {
        let is_late =
            |held: &Held| held.state() == HeldState::Out && is_late(held.age(now), patience);
        let late = self.ledger.iter().filter(|(_, held)| is_late(held));
        let late: Vec<u64> = late.map(|(tag, _)| tag).collect();
        let mut is_new = |tag| {
            self.ledger
                .get_mut(tag)
                .is_some_and(|held| held.is_to_be_counted())
        };
        late.into_iter().filter(|tag| is_new(*tag)).count()
    }

    /// Ends the waiting of these deliveries, given in order.
    fn leave(&mut self, tags: &[u64]) {
        if tags.is_empty() {
            return;
        }
        let stays = |tag: &u64| tags.binary_search(tag).is_err();
        self.ready.retain(stays);
        self.suspects.retain(|tag| stays(&tag));
        for tag in tags {
            if let Some(held) = self.ledger.get_mut(*tag) {
                held.leave();
            }
        }
    }

    /// Returns a delivery that waits for nothing any more to its queue.
    pub(super) fn give_back(&mut self, tag: u64) -> DeliveryStep {
        let held = self.ledger.get_mut(tag);
        held.map_or(DeliveryStep::Rest, |held| held.go_back())
    }

    /// Returns a stuck delivery. If it is `copied`, a copy may be in the queue, or there is no room
    /// for one; nor is there for a delivery for which nothing can be published at all.
    pub(super) fn give_back_stuck(&mut self, tag: u64, copied: bool) -> DeliveryStep {
        let Some(held) = self.ledger.get_mut(tag) else {
            return DeliveryStep::Rest;
        };
        if copied || held.state() == HeldState::Aside {
            held.go()
        } else {
            held.go_back()
        }
    }

    /// Forgets a delivery that is not ours any more.
    pub(super) fn let_go(&mut self, tag: u64) {
        self.ledger.give_back(tag);
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

    /// Returns whether suspects wait, if the pool is to be told.
    pub(super) fn turn_news(&mut self) -> Option<bool> {
        self.suspects.news()
    }

    /// Takes the first copy whose turn has begun: it runs next if it is its turn here. Otherwise it
    /// must not be held as if it were: it would be charged for what another does meanwhile.
    pub(super) fn take_begun(&mut self, its_turn: bool) -> Option<(u64, DeliveryStep)> {
        let tag = self.suspects.take_begun()?;
        if its_turn {
            self.suspects.is_here(tag);
            return Some((tag, DeliveryStep::Rest));
        }
        Some((tag, self.publish(tag, Publication::Back)))
    }

    /// Begins the turn of the suspect that has waited longest, with a marked copy.
    pub(super) fn begin_turn(&mut self, turn: u64, now: Instant) -> Option<(u64, DeliveryStep)> {
        let tag = self.suspects.begin(turn, now)?;
        if let Some(held) = self.ledger.get_mut(tag) {
            held.arrival.turn = Some(turn);
        }
        Some((tag, self.publish(tag, Publication::Turn)))
    }

    /// Sends one suspect beyond the maximum in hand away for a while.
    pub(super) fn take_surplus_suspect(&mut self, prefetch: usize) -> Option<(u64, DeliveryStep)> {
        let tag = self.suspects.take_surplus(prefetch)?;
        Some((tag, self.publish(tag, Publication::Aside)))
    }

    fn publish(&mut self, tag: u64, aim: Publication) -> DeliveryStep {
        let held = self.ledger.get_mut(tag);
        held.map_or(DeliveryStep::Rest, |held| held.publish(aim))
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

    /// Collects the acknowledgements that can be written.
    pub(super) fn acks(&mut self, others: Others, write: &mut Vec<Ack>) {
        self.ledger.acks(others, write);
    }
}

#[cfg(test)]
mod tests;
