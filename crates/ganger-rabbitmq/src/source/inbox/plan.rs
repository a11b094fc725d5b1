//! Decisions on the consumers, by the messages that the pool can use and those requested before. Pure, except
//! for the times passed in.

use tokio::time::Instant;

use crate::rules::demand;
use crate::rules::demand::{Demand, Flow, PrefetchChange};

/// The current plan, and its reasons.
#[derive(Debug, Default)]
pub(super) struct InboxPlan {
    /// Average size of the recent bodies, in bytes.
    body_bytes: usize,
    /// Time at which the consumers change, if the pool's demand has not changed.
    change_at: Option<Instant>,
    /// True if the pool could use less than its workers usually can when the steady consumer was cancelled.
    is_short: bool,
    /// True if a consumer is cancelled whose messages are still arriving. During the shutdown all are,
    /// permanently.
    is_cancelled: bool,
    /// True if, during the shutdown, messages not handed out have been given back.
    has_given_back: bool,
    /// True if the whole prefetch was used up since the consumers last changed.
    is_full: bool,
    /// True if it was reported that the pool could use more than the prefetch of its one consumer.
    is_outgrown: bool,
}

/// Input of a decision.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outlook {
    /// Number of messages that the pool can use now.
    pub(super) useful: u16,
    /// Additional number sent ahead, for messages that wait for their publications.
    pub(super) ahead: u16,
    /// Number of messages that its workers use at any pace.
    pub(super) usual: usize,
    /// Number of bytes for which there is room.
    pub(super) most_bytes: usize,
    /// Number of unacknowledged deliveries.
    pub(super) unacknowledged: usize,
    /// True if no more messages are wanted.
    pub(super) closing: bool,
    /// True if the queue exists, as far as known.
    pub(super) consumable: bool,
}

/// State of the consumers.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConsumersState {
    /// True if a change is in progress, or messages of a cancelled consumer are still expected.
    pub(super) is_changing: bool,
    /// True if no more messages can arrive.
    pub(super) is_dry: bool,
    /// Their prefetch. The plan itself knows whether it was used up.
    pub(super) flow: Flow,
}

/// Decision of the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PlanStep {
    /// Nothing.
    Stay,
    /// Messages of the cancelled consumers that the pool can't use may be given back.
    Surplus,
    /// Add a consumer with this prefetch.
    Add(u16),
    /// Cancel the newest consumer.
    CancelNewest,
    /// Cancel all consumers.
    CancelAll,
    /// Report that the prefetch of the one consumer, which stays, is far below the pool's demand.
    Outgrown,
}

impl InboxPlan {
    /// Records the arrival of a message with a body of this size.
    pub(super) fn weigh(&mut self, bytes: usize) {
        self.body_bytes = average(self.body_bytes, bytes);
    }

    pub(super) fn body_bytes(&self) -> usize {
        self.body_bytes
    }

    /// Time at which the consumers may change.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.change_at
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.is_cancelled
    }

    /// Decides the next step.
    pub(super) fn step(
        &mut self,
        outlook: &Outlook,
        consumers: ConsumersState,
        now: Instant,
    ) -> PlanStep {
        let change_at = self.change_at.take();
        if consumers.is_changing {
            return PlanStep::Stay;
        }
        if self.is_cancelled && (!outlook.closing || consumers.is_dry) {
            return PlanStep::Surplus;
        }
        if outlook.closing {
            return self.cancel(PlanStep::CancelAll);
        }
        if !outlook.consumable {
            return PlanStep::Stay;
        }
        let Flow { steady, extra, .. } = consumers.flow;
        self.is_full |= outlook.unacknowledged >= usize::from(steady.saturating_add(extra));
        let demand = self.demand(outlook);
        let flow = Flow {
            full: self.is_full,
            ..consumers.flow
        };
        let settled = change_at.is_some_and(|at| at <= now);
        match demand::step(flow, demand, settled) {
            PrefetchChange::Stay => PlanStep::Stay,
            PrefetchChange::Wait(patience) => {
                self.change_at = change_at.or(Some(now + patience));
                PlanStep::Stay
            }
            PrefetchChange::Add(prefetch) => {
                (self.is_full, self.is_outgrown) = (false, false);
                PlanStep::Add(prefetch)
            }
            // Messages that wait for their publications occupy the prefetch only for a while.
            PrefetchChange::Outgrown if outlook.ahead > 0 || self.is_outgrown => PlanStep::Stay,
            PrefetchChange::Outgrown => {
                self.is_outgrown = true;
                PlanStep::Outgrown
            }
            PrefetchChange::CancelNewest => {
                self.is_short |= extra == 0;
                self.cancel(PlanStep::CancelNewest)
            }
            PrefetchChange::CancelAll => self.cancel(PlanStep::CancelAll),
        }
    }

    /// Number of messages to send ahead, by the number that is useful now.
    fn demand(&mut self, outlook: &Outlook) -> Demand {
        let now = match outlook.useful {
            0 => 0,
            now => now.saturating_add(outlook.ahead),
        };
        let usual = demand::prefetch(outlook.usual, self.body_bytes, outlook.most_bytes);
        self.is_short &= 0 < now && now < usual;
        Demand {
            now,
            usual: if self.is_short { now } else { usual },
        }
    }

    fn cancel(&mut self, which: PlanStep) -> PlanStep {
        self.is_cancelled = true;
        self.is_full = false;
        which
    }

    /// Records that the messages of cancelled consumers are given back. During the shutdown they stay
    /// cancelled: nothing more is consumed. Returns whether this is the first time during the shutdown.
    pub(super) fn gives_back(&mut self, closing: bool) -> bool {
        let first = closing && !self.has_given_back;
        self.has_given_back |= closing;
        self.is_cancelled = closing;
        first
    }
}

/// Moving average that follows growth at once.
fn average(old: usize, new: usize) -> usize {
    if new >= old {
        new
    } else {
        old - (old - new) / 64
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    /// A model of consumers: live ones in the order of their creation, and changes in progress.
    #[derive(Debug, Default)]
    struct ConsumersModel {
        live: Vec<u16>,
        single: bool,
        /// Number of cancelled ones that are not dry.
        leaving: usize,
        adding: Option<u16>,
    }

    impl ConsumersModel {
        fn state(&self) -> ConsumersState {
            let at = |index| self.live.get(index).copied().unwrap_or(0);
            ConsumersState {
                is_changing: self.adding.is_some() || self.leaving > 0,
                is_dry: self.adding.is_none() && self.leaving == 0 && self.live.is_empty(),
                flow: Flow {
                    steady: at(0),
                    extra: at(1),
                    single: self.single,
                    stays: false,
                    full: false,
                },
            }
        }

        /// Completes all changes in progress.
        fn go_on(&mut self) {
            self.live.extend(self.adding.take());
            self.leaving = 0;
        }
    }

    /// One step: the input, whether a change has ended before it, seconds since the last step.
    type Look = (Outlook, bool, u64);

    fn look() -> impl Strategy<Value = Look> {
        let counts = (0u16..40, 0u16..3, 0usize..80);
        (counts, any::<(bool, bool)>(), 0u64..12).prop_map(|(counts, flags, seconds)| {
            let (useful, ahead, unacknowledged) = counts;
            let outlook = Outlook {
                useful,
                ahead,
                usual: 8,
                most_bytes: 1 << 20,
                unacknowledged,
                closing: false,
                consumable: flags.0,
            };
            (outlook, flags.1, seconds)
        })
    }

    /// Makes a plan, and carries it out.
    fn plan(
        plan: &mut InboxPlan,
        consumers: &mut ConsumersModel,
        outlook: &Outlook,
        now: Instant,
    ) -> Result<PlanStep, TestCaseError> {
        let before = consumers.state();
        let was_cancelled = plan.is_cancelled();
        let step = plan.step(outlook, before, now);
        if before.is_changing {
            prop_assert_eq!(step, PlanStep::Stay, "one change comes after the other");
        } else if was_cancelled && !outlook.closing {
            prop_assert_eq!(step, PlanStep::Surplus, "what they had comes first");
        }
        match step {
            PlanStep::Stay => {}
            PlanStep::Outgrown => {
                prop_assert!(consumers.single && outlook.useful / 2 >= before.flow.steady);
            }
            PlanStep::Surplus => {
                prop_assert!(was_cancelled);
            }
            PlanStep::Add(prefetch) => {
                prop_assert!(prefetch > 0, "that would mean no limit");
                prop_assert!(outlook.consumable && !outlook.closing && outlook.useful > 0);
                let most = if consumers.single { 0 } else { 1 };
                prop_assert!(
                    consumers.live.len() <= most,
                    "a third one, or a second of one"
                );
                consumers.adding = Some(prefetch);
            }
            PlanStep::CancelNewest => {
                prop_assert!(!consumers.single, "another daemon would get the queue");
                prop_assert!(consumers.live.pop().is_some());
                consumers.leaving += 1;
            }
            PlanStep::CancelAll => {
                prop_assert!(outlook.closing || outlook.useful == 0);
                // There is an answer to wait for even if there are no consumers.
                consumers.leaving = consumers.live.len().max(1);
                consumers.live.clear();
            }
        }
        prop_assert_eq!(
            plan.is_cancelled(),
            was_cancelled || consumers.leaving > 0 && !before.is_changing
        );
        Ok(step)
    }

    proptest! {
        #[test]
        fn consumers_change_one_after_the_other_and_end_once(
            looks in proptest::collection::vec(look(), 0..60),
            single in any::<bool>(),
        ) {
            let mut consumers = ConsumersModel { single, ..ConsumersModel::default() };
            let (mut inbox, mut now) = (InboxPlan::default(), Instant::now());
            let mut last = None;
            for (outlook, goes_on, seconds) in looks {
                now += Duration::from_secs(seconds);
                if goes_on {
                    consumers.go_on();
                }
                if plan(&mut inbox, &mut consumers, &outlook, now)? == PlanStep::Surplus {
                    prop_assert!(!inbox.gives_back(false));
                    prop_assert!(!inbox.is_cancelled());
                }
                last = Some(outlook);
            }
            let Some(last) = last else {
                return Ok(());
            };
            // No more messages are wanted: all are cancelled, and then their messages are given back, once.
            let closing = Outlook { closing: true, ..last };
            let mut times = 0;
            for _ in 0..8 {
                if plan(&mut inbox, &mut consumers, &closing, now)? == PlanStep::Surplus {
                    prop_assert!(consumers.state().is_dry);
                    times += usize::from(inbox.gives_back(true));
                }
                consumers.go_on();
            }
            prop_assert!(times == 1 && inbox.is_cancelled() && consumers.state().is_dry);
        }
    }

    #[test]
    fn a_consumer_that_must_stay_is_told_of_once_if_it_is_too_small_for_long() {
        let mut consumers = ConsumersModel {
            live: vec![2],
            single: true,
            ..ConsumersModel::default()
        };
        let grown = Outlook {
            useful: 32,
            ahead: 0,
            usual: 2,
            most_bytes: 1 << 20,
            unacknowledged: 2,
            closing: false,
            consumable: true,
        };
        let published = Outlook { ahead: 1, ..grown };
        let (mut inbox, mut now) = (InboxPlan::default(), Instant::now());
        let mut look = |outlook: &Outlook, seconds| {
            now += Duration::from_secs(seconds);
            plan(&mut inbox, &mut consumers, outlook, now).unwrap()
        };
        assert_eq!(look(&grown, 0), PlanStep::Stay);
        assert_eq!(look(&grown, 9), PlanStep::Stay);
        assert_eq!(look(&published, 1), PlanStep::Stay, "it is in the way");
        assert_eq!(look(&grown, 0), PlanStep::Stay);
        assert_eq!(look(&grown, 10), PlanStep::Outgrown);
        for _ in 0..5 {
            assert_eq!(look(&grown, 10), PlanStep::Stay, "it is told");
        }
        // The pool is paused and resumed: the next consumer is created for the pool's demand at that time.
        let paused = Outlook { useful: 0, ..grown };
        assert_eq!(look(&paused, 0), PlanStep::CancelAll);
    }

    #[test]
    fn a_body_that_is_larger_counts_at_once() {
        let mut plan = InboxPlan::default();
        for (bytes, expected) in [(640, 640), (0, 630), (1000, 1000), (999, 1000)] {
            plan.weigh(bytes);
            assert_eq!(plan.body_bytes(), expected);
        }
    }
}
