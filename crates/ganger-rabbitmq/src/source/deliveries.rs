//! The deliveries of one connection that are in our hands: where each is on its way, and what is to
//! be done about it next. Nobody else moves one. It is acknowledged after its work is done and what
//! there is to publish for it is safe, and in no other case; whatever goes wrong gives it back. Pure,
//! but for the moments it is given.

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

/// All of them.
#[derive(Debug)]
pub(super) struct Deliveries {
    /// The token of the delivery with tag 0.
    base: u64,
    ledger: Ledger<Box<Held>>,
    /// Tags of those that wait for the pool's credit, in order.
    ready: VecDeque<u64>,
    /// Those of which one runs at a time.
    suspects: Suspects,
}

/// By what is decided.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    pub(super) limits: Limits,
    /// How long the broker waits for an acknowledgement.
    pub(super) patience: Duration,
    pub(super) now: Instant,
    /// Unix time. It decides nothing: people read it.
    pub(super) now_ms: i64,
}

/// Those that are in hand for long, by their tags in order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Aged {
    /// No worker has begun them, and they wait for none any more.
    pub(super) unbegun: Vec<u64>,
    /// A worker is at them for so long that someone is to be warned.
    pub(super) slow: Vec<u64>,
    /// What there is to publish for them is not taken.
    pub(super) stuck: Vec<u64>,
}

/// How long a delivery may wait for a worker. The broker's patience is a setting of ours as well,
/// since it does not tell.
pub(super) fn begin_within(patience: Duration) -> Duration {
    patience / 2
}

/// After so long the broker's patience is at its end soon.
fn is_late(age: Duration, patience: Duration) -> bool {
    age >= patience / 4 * 3
}

impl Deliveries {
    /// None yet. Tags begin at 1.
    pub(super) fn new(next_token: u64) -> Self {
        Self {
            base: next_token,
            ledger: Ledger::new(),
            ready: VecDeque::new(),
            suspects: Suspects::default(),
        }
    }

    /// The tag of a token; none if it is of an earlier connection.
    pub(super) fn tag(&self, token: u64) -> Option<u64> {
        token.checked_sub(self.base).filter(|tag| *tag > 0)
    }

    /// A token that no delivery of this connection or an earlier one has.
    pub(super) fn next_token(&self) -> u64 {
        self.base + self.ledger.next_tag()
    }

    /// One that is in our hands.
    pub(super) fn get(&self, tag: u64) -> Option<&Held> {
        self.ledger.get(tag).map(|held| &**held)
    }

    /// How many are, those that are settled not counted.
    pub(super) fn held(&self) -> usize {
        self.ledger.held()
    }

    /// What they look like.
    pub(super) fn fingerprints(&self) -> impl Iterator<Item = Fingerprint> {
        let all = self.ledger.iter();
        all.map(|(_, held)| Fingerprint::of(&held.original, &held.body))
    }

    // -- in and out --

    /// Takes in a delivery. None if the broker has used its tag before.
    pub(super) fn receive(&mut self, tag: u64, held: Held, limits: Limits) -> Option<DeliveryStep> {
        match self.ledger.receive(tag, Box::new(held)) {
            None => Some(self.line_up(tag, limits)),
            Some(_) => None,
        }
    }

    /// Puts one where it belongs, which may be the dead letters.
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

    /// The next that goes to the pool, with its token.
    pub(super) fn hand_out(&mut self) -> Option<(u64, &Held)> {
        let tag = self.ready.pop_front()?;
        self.goes_out(tag)
    }

    /// The suspect that goes to the pool in its turn, with its token.
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

    /// The pool has settled one. None if it does not have it.
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

    /// An attempt has ended; if it was recorded, the next one is told of its span.
    pub(super) fn attempted(&mut self, tag: u64, span: Option<SpanContext>) {
        if let (Some(_), Some(held)) = (span, self.ledger.get_mut(tag)) {
            held.arrival.counters.span = span;
        }
    }

    /// One that was not begun. As long as we take messages it is handed out again from here, which
    /// costs the broker nothing and leaves no mark on the message.
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

    /// What there was to publish for one is safe, or nobody wants it: it is to be acknowledged.
    pub(super) fn is_published(&mut self, tag: u64) {
        let held = self.ledger.get(tag);
        if held.is_some_and(|held| held.state() == HeldState::Publishing) {
            self.ledger.settle(tag);
        }
    }

    /// This can't be published for one, nor anything else in its place.
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

    /// Whether the broker refuses what there is to publish for one.
    pub(super) fn is_aside(&self, tag: u64) -> bool {
        let held = self.ledger.get(tag);
        held.is_some_and(|held| held.state() == HeldState::Aside)
    }

    /// Of how many it does.
    pub(super) fn aside(&self) -> usize {
        self.count(|state| state == HeldState::Aside)
    }

    /// How many are settled without the broker knowing.
    pub(super) fn unsure(&self) -> usize {
        let settled = |state| matches!(state, HeldState::Publishing | HeldState::Aside);
        self.count(settled) + self.ledger.settled()
    }

    fn count(&self, is_one: impl Fn(HeldState) -> bool) -> usize {
        let all = self.ledger.iter();
        all.filter(|(_, held)| is_one(held.state())).count()
    }

    // -- back --

    /// Those that are ready beyond so many, and the suspects where they are to go, too, wait no
    /// more. By their tags, in order.
    pub(super) fn surplus(&mut self, most: usize, with_suspects: bool) -> Vec<u64> {
        let mut back: Vec<u64> = self.ready.split_off(most.min(self.ready.len())).into();
        if with_suspects {
            back.extend(self.suspects.drain());
            back.sort_unstable();
        }
        self.leave(&back);
        back
    }

    /// Finds those that are in hand for long.
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

    /// Counts those that are worked on for so long that the broker's patience is at its end, each once.
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

    /// These, in order, wait for nothing any more.
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

    /// One that waits for nothing any more goes back to its queue.
    pub(super) fn give_back(&mut self, tag: u64) -> DeliveryStep {
        let held = self.ledger.get_mut(tag);
        held.map_or(DeliveryStep::Rest, |held| held.go_back())
    }

    /// One goes back that is stuck. Of one that is `copied` a copy may be there, or there is no room
    /// for one; nor is there of one for which nothing can be published at all.
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

    /// One is none of ours any more.
    pub(super) fn let_go(&mut self, tag: u64) {
        self.ledger.give_back(tag);
    }

    // -- the turns of suspects --

    /// Those of which one runs at a time.
    pub(super) fn suspects(&self) -> &Suspects {
        &self.suspects
    }

    /// Gives up a turn that has not come in time.
    pub(super) fn give_up_turn(&mut self, now: Instant) {
        self.suspects.give_up(now);
    }

    /// Whether some wait, if the pool is to be told.
    pub(super) fn turn_news(&mut self) -> Option<bool> {
        self.suspects.news()
    }

    /// The one that came first of those that say that their turn has begun: it runs next if it is
    /// its turn here. If not it must not be held as if it were: it would be charged for what another
    /// does meanwhile.
    pub(super) fn take_begun(&mut self, its_turn: bool) -> Option<(u64, DeliveryStep)> {
        let tag = self.suspects.take_begun()?;
        if its_turn {
            self.suspects.is_here(tag);
            return Some((tag, DeliveryStep::Rest));
        }
        Some((tag, self.publish(tag, Publication::Back)))
    }

    /// Begins the turn of the one that has waited longest, with a copy that says so.
    pub(super) fn begin_turn(&mut self, turn: u64, now: Instant) -> Option<(u64, DeliveryStep)> {
        let tag = self.suspects.begin(turn, now)?;
        if let Some(held) = self.ledger.get_mut(tag) {
            held.arrival.turn = Some(turn);
        }
        Some((tag, self.publish(tag, Publication::Turn)))
    }

    /// One suspect more than may wait in hand goes away for a while.
    pub(super) fn take_surplus_suspect(&mut self, prefetch: usize) -> Option<(u64, DeliveryStep)> {
        let tag = self.suspects.take_surplus(prefetch)?;
        Some((tag, self.publish(tag, Publication::Aside)))
    }

    fn publish(&mut self, tag: u64, aim: Publication) -> DeliveryStep {
        let held = self.ledger.get_mut(tag);
        held.map_or(DeliveryStep::Rest, |held| held.publish(aim))
    }

    // -- acknowledged --

    /// Whether any wait to be.
    pub(super) fn has_settled(&self) -> bool {
        self.ledger.has_settled()
    }

    /// How many do.
    pub(super) fn settled(&self) -> usize {
        self.ledger.settled()
    }

    /// How many the broker counts as ours.
    pub(super) fn unacknowledged(&self) -> usize {
        self.ledger.unacknowledged()
    }

    /// How many wait for the pool to have credit.
    pub(super) fn waiting(&self) -> usize {
        self.ready.len()
    }

    /// The acknowledgements that can be written.
    pub(super) fn acks(&mut self, others: Others, write: &mut Vec<Ack>) {
        self.ledger.acks(others, write);
    }
}

#[cfg(test)]
mod tests;
