//! What is to be done about the consumers, by what the pool can use and what was asked for before.
//! Pure, but for the moments it is given.

use tokio::time::Instant;

use crate::rules::demand;
use crate::rules::demand::{Demand, Flow, Step};

/// What was asked for, and why.
#[derive(Debug, Default)]
pub(super) struct InboxPlan {
    /// The size of a body, as an average of the recent ones, in bytes.
    body_bytes: usize,
    /// When the consumers change, if the pool has not changed its mind.
    change_at: Option<Instant>,
    /// The pool could use less than its workers usually can when the steady consumer was cancelled.
    is_short: bool,
    /// A consumer is cancelled; what it has been sent is on its way. At the end all are, for good.
    is_cancelled: bool,
    /// At the end: what was not handed out has gone back.
    has_given_back: bool,
    /// The broker has sent all that it may, since the consumers last changed.
    is_full: bool,
    /// That the pool could use more than its one consumer may be sent has been told.
    is_outgrown: bool,
}

/// What there is to be planned for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outlook {
    /// How many messages the pool can use now,
    pub(crate) useful: u16,
    /// and how many more are sent ahead for those that wait to be published.
    pub(crate) ahead: u16,
    /// How many its workers use at any pace.
    pub(crate) usual: usize,
    /// How many bytes there is room for.
    pub(crate) most_bytes: usize,
    /// How many deliveries are not acknowledged.
    pub(crate) unacknowledged: usize,
    /// Nothing more is wanted.
    pub(crate) closing: bool,
    /// The queue is there, as far as we know.
    pub(crate) consumable: bool,
}

/// How it is with the consumers.
#[derive(Debug, Clone, Copy)]
pub(super) struct TapsState {
    /// A change is under way, or what a cancelled one was sent still comes.
    pub(super) is_changing: bool,
    /// No message can come any more.
    pub(super) is_dry: bool,
    /// What they may be sent. Whether that was used up is known here.
    pub(super) flow: Flow,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PlanStep {
    /// Nothing.
    Stay,
    /// What those had that are cancelled, and the pool has no use for, may go back.
    Surplus,
    /// One more consumer, for so many messages.
    Add(u16),
    /// The newest is to be cancelled,
    CancelNewest,
    /// or all are.
    CancelAll,
    /// The one consumer, which stays, may be sent far less than the pool can use: that is to be told.
    Outgrown,
}

impl InboxPlan {
    /// A message with a body of so many bytes has come.
    pub(super) fn weigh(&mut self, bytes: usize) {
        self.body_bytes = average(self.body_bytes, bytes);
    }

    pub(super) fn body_bytes(&self) -> usize {
        self.body_bytes
    }

    /// When the consumers may change.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.change_at
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.is_cancelled
    }

    /// Decides it.
    pub(super) fn step(&mut self, outlook: &Outlook, taps: TapsState, now: Instant) -> PlanStep {
        let change_at = self.change_at.take();
        if taps.is_changing {
            return PlanStep::Stay;
        }
        if self.is_cancelled && (!outlook.closing || taps.is_dry) {
            return PlanStep::Surplus;
        }
        if outlook.closing {
            return self.cancel(PlanStep::CancelAll);
        }
        if !outlook.consumable {
            return PlanStep::Stay;
        }
        let Flow { steady, extra, .. } = taps.flow;
        self.is_full |= outlook.unacknowledged >= usize::from(steady.saturating_add(extra));
        let demand = self.demand(outlook);
        let flow = Flow {
            full: self.is_full,
            ..taps.flow
        };
        let settled = change_at.is_some_and(|at| at <= now);
        match demand::step(flow, demand, settled) {
            Step::Stay => PlanStep::Stay,
            Step::Wait(patience) => {
                self.change_at = change_at.or(Some(now + patience));
                PlanStep::Stay
            }
            Step::Add(prefetch) => {
                (self.is_full, self.is_outgrown) = (false, false);
                PlanStep::Add(prefetch)
            }
            // What waits to be published is in its way for a while only.
            Step::Outgrown if outlook.ahead > 0 || self.is_outgrown => PlanStep::Stay,
            Step::Outgrown => {
                self.is_outgrown = true;
                PlanStep::Outgrown
            }
            Step::CancelNewest => {
                self.is_short |= extra == 0;
                self.cancel(PlanStep::CancelNewest)
            }
            Step::CancelAll => self.cancel(PlanStep::CancelAll),
        }
    }

    /// How many messages are to be sent ahead where so many are useful now.
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

    /// What the cancelled consumers had goes back. At the end of all they stay cancelled: nothing
    /// more is consumed. Returns whether this is the first time there.
    pub(super) fn gives_back(&mut self, closing: bool) -> bool {
        let first = closing && !self.has_given_back;
        self.has_given_back |= closing;
        self.is_cancelled = closing;
        first
    }
}

/// A moving average that believes a growth at once.
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

    /// Consumers by the book: live ones in the order in which they were made, and what is under way.
    #[derive(Debug, Default)]
    struct Taps {
        live: Vec<u16>,
        single: bool,
        /// Cancelled ones that are not dry.
        leaving: usize,
        adding: Option<u16>,
    }

    impl Taps {
        fn state(&self) -> TapsState {
            let at = |index| self.live.get(index).copied().unwrap_or(0);
            TapsState {
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

        /// What is under way comes to its end.
        fn go_on(&mut self) {
            self.live.extend(self.adding.take());
            self.leaving = 0;
        }
    }

    /// One look: what there is, whether a change has come to its end before it, seconds since the
    /// last.
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

    /// Plans, and does what is planned.
    fn plan(
        plan: &mut InboxPlan,
        taps: &mut Taps,
        outlook: &Outlook,
        now: Instant,
    ) -> Result<PlanStep, TestCaseError> {
        let before = taps.state();
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
                prop_assert!(taps.single && outlook.useful / 2 >= before.flow.steady);
            }
            PlanStep::Surplus => {
                prop_assert!(was_cancelled);
            }
            PlanStep::Add(prefetch) => {
                prop_assert!(prefetch > 0, "that would mean no limit");
                prop_assert!(outlook.consumable && !outlook.closing && outlook.useful > 0);
                let most = if taps.single { 0 } else { 1 };
                prop_assert!(taps.live.len() <= most, "a third one, or a second of one");
                taps.adding = Some(prefetch);
            }
            PlanStep::CancelNewest => {
                prop_assert!(!taps.single, "another daemon would get the queue");
                prop_assert!(taps.live.pop().is_some());
                taps.leaving += 1;
            }
            PlanStep::CancelAll => {
                prop_assert!(outlook.closing || outlook.useful == 0);
                // Of none there is an answer to wait for all the same.
                taps.leaving = taps.live.len().max(1);
                taps.live.clear();
            }
        }
        prop_assert_eq!(
            plan.is_cancelled(),
            was_cancelled || taps.leaving > 0 && !before.is_changing
        );
        Ok(step)
    }

    proptest! {
        #[test]
        fn consumers_change_one_after_the_other_and_end_once(
            looks in proptest::collection::vec(look(), 0..60),
            single in any::<bool>(),
        ) {
            let mut taps = Taps { single, ..Taps::default() };
            let (mut inbox, mut now) = (InboxPlan::default(), Instant::now());
            let mut last = None;
            for (outlook, goes_on, seconds) in looks {
                now += Duration::from_secs(seconds);
                if goes_on {
                    taps.go_on();
                }
                if plan(&mut inbox, &mut taps, &outlook, now)? == PlanStep::Surplus {
                    prop_assert!(!inbox.gives_back(false));
                    prop_assert!(!inbox.is_cancelled());
                }
                last = Some(outlook);
            }
            let Some(last) = last else {
                return Ok(());
            };
            // Nothing more is wanted: all are cancelled, and then what they had goes back, once.
            let closing = Outlook { closing: true, ..last };
            let mut times = 0;
            for _ in 0..8 {
                if plan(&mut inbox, &mut taps, &closing, now)? == PlanStep::Surplus {
                    prop_assert!(taps.state().is_dry);
                    times += usize::from(inbox.gives_back(true));
                }
                taps.go_on();
            }
            prop_assert!(times == 1 && inbox.is_cancelled() && taps.state().is_dry);
        }
    }

    #[test]
    fn a_consumer_that_must_stay_is_told_of_once_if_it_is_too_small_for_long() {
        let mut taps = Taps {
            live: vec![2],
            single: true,
            ..Taps::default()
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
            plan(&mut inbox, &mut taps, outlook, now).unwrap()
        };
        assert_eq!(look(&grown, 0), PlanStep::Stay);
        assert_eq!(look(&grown, 9), PlanStep::Stay);
        assert_eq!(look(&published, 1), PlanStep::Stay, "it is in the way");
        assert_eq!(look(&grown, 0), PlanStep::Stay);
        assert_eq!(look(&grown, 10), PlanStep::Outgrown);
        for _ in 0..5 {
            assert_eq!(look(&grown, 10), PlanStep::Stay, "it is told");
        }
        // The pool is paused and goes on: the next one is made for what it can use then.
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
