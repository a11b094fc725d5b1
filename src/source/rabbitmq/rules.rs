//! The decisions of a RabbitMQ source as pure functions: what becomes of a message that arrives,
//! which tier a delay belongs to, how many messages to ask for. No broker, no clock, no channel.

use std::cmp::Ordering;
use std::time::Duration;

use super::super::letter::Counters;
use crate::delivery::{CREDIT_MAX, Failure, History, Intake, Reason};
use crate::source::Limits;

/// So often a message came back by itself before it runs alone in the whole daemon. One time is
/// forgiven: a connection that was lost, or a daemon that was killed, would otherwise make every
/// message that was out run one after the other.
const RETURNS_ALONE: u64 = 2;

/// RabbitMQ 4 drops a message of a quorum queue after 20 returns unless the queue says otherwise.
/// One that has so many goes on as a copy, whose count begins anew.
pub(super) const RETURNS_MAX: u64 = 15;

/// The shortest delay that has a tier of its own.
const TIER_MIN: Duration = Duration::from_millis(250);

/// The first tier that is followed by one of four times its length.
const COARSE_FROM: Duration = Duration::from_secs(64);

/// The longest wait after REQUEUE, whatever the policy's longest delay.
const REQUEUE_MAX: Duration = Duration::from_secs(30);

/// The most bytes of bodies that are asked for at once, by the size that they have had lately.
const BYTES_ASKED_MAX: usize = 64 << 20;

/// The most consumers of one channel.
const CONSUMERS_MAX: usize = 16;

/// How long the broker may send ahead more than twice of what is wanted. Shorter, and the consumers
/// would change with every change of a worker's pace; longer, and messages would wait here that
/// others could work on.
const SURPLUS_FOR: Duration = Duration::from_secs(1);
/// How long it may send ahead somewhat more.
const SLIGHT_SURPLUS_FOR: Duration = Duration::from_secs(10);
/// How long it may send ahead somewhat less: workers come up one after the other.
const SCARCE_FOR: Duration = Duration::from_millis(100);
/// How long the credit must have been the same before a consumer is made that can't be changed.
const FINAL_AFTER: Duration = Duration::from_secs(1);

/// What the broker sends ahead at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Flow {
    /// The most messages unacknowledged, of all consumers together.
    pub(super) prefetch: u16,
    /// How many consumers there are.
    pub(super) consumers: usize,
    /// Only one consumer of the queue gets messages, and which one must not change.
    pub(super) single: bool,
    /// All that they may have unacknowledged was so, since the last change.
    pub(super) full: bool,
}

/// What to do about the consumers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing.
    Stay,
    /// Nothing until so much later: the pool may change its mind.
    Wait(Duration),
    /// One more, for so many messages.
    Add(u16),
    /// Cancel all. Without any, the next step adds what is wanted.
    Cancel,
}

/// How to come from what the broker sends ahead to what is wanted. `settled` is whether the last
/// [`Step::Wait`] is over.
pub(super) fn step(flow: Flow, wanted: u16, settled: bool) -> Step {
    let Flow {
        prefetch,
        consumers,
        single,
        full,
    } = flow;
    let doubles = wanted / 2 >= prefetch;
    match wanted.cmp(&prefetch) {
        Ordering::Equal => Step::Stay,
        Ordering::Greater if prefetch == 0 && single && !settled => Step::Wait(FINAL_AFTER),
        Ordering::Greater if prefetch == 0 => Step::Add(wanted),
        Ordering::Less | Ordering::Greater if single && wanted > 0 => Step::Stay,
        // What there is does as long as the broker has no more to send.
        Ordering::Greater if !full => Step::Stay,
        Ordering::Greater if !doubles && !settled => Step::Wait(SCARCE_FOR),
        // What the others have fetched counts, so only what is missing is asked for.
        Ordering::Greater if consumers < CONSUMERS_MAX => Step::Add(wanted - prefetch),
        Ordering::Less | Ordering::Greater if settled => Step::Cancel,
        Ordering::Less if wanted > prefetch / 2 => Step::Wait(SLIGHT_SURPLUS_FOR),
        Ordering::Less | Ordering::Greater => Step::Wait(SURPLUS_FOR),
    }
}

const UNREADABLE: &str = "a property, the name of a header or the routing key is not UTF-8: a byte \
                          that could not be read is a question mark here";

/// What a message says of itself when it arrives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Arrival {
    /// What we have counted of it so far.
    pub(super) counters: Counters,
    /// We have marked it: it was in the hands of a worker that died with several.
    pub(super) suspect: bool,
    /// We have marked it: it was charged for taking a daemon down.
    pub(super) marked: bool,
    /// Our own number for it, which its copies carry on.
    pub(super) number: Option<u64>,
    /// The broker has handed it out before.
    pub(super) redelivered: bool,
    /// How often it came back, where the queue counts that.
    pub(super) returns: u64,
    /// Its queue is no queue: nothing can be taken from it.
    pub(super) of_a_stream: bool,
    /// Some of its texts are not UTF-8, so that we could not hand them on.
    pub(super) is_unreadable: bool,
}

/// What becomes of a message that arrives.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Fate {
    /// It's handed out.
    HandOut,
    /// It's handed out with nothing else of this daemon in hand.
    Solo,
    /// It has taken the daemon down: it is charged for that, by a copy with these counters, and
    /// runs then.
    Charge(Counters),
    /// It goes to the dead letters, with these counters.
    Bury(Counters, Failure),
}

/// Decides it. Whatever takes a daemon down brings back everything that the daemon had fetched: the
/// broker counts that for all alike, but what was being worked on comes first. So only the first
/// that comes is charged; `charged` is whether one has been since we are connected.
pub(super) fn fate(arrival: Arrival, limits: Limits, charged: bool) -> Fate {
    let crashes_max = limits.crashes_max.max(1);
    let Arrival {
        counters, returns, ..
    } = arrival;
    if arrival.is_unreadable {
        return Fate::Bury(counters, Failure::new(Reason::Undeliverable, UNREADABLE));
    }
    if counters.crashes >= crashes_max {
        let error = format!("crashed the worker {} times", counters.crashes);
        return Fate::Bury(counters, crashed(error));
    }
    let suspected = if arrival.marked {
        // It runs with nothing else in hand, so one return says enough.
        returns > 0
    } else {
        returns > u64::from(crashes_max)
    };
    if suspected && !charged {
        return charge(arrival, limits);
    }
    if returns >= RETURNS_MAX {
        return Fate::Charge(counters);
    }
    if returns >= RETURNS_ALONE || arrival.marked {
        return Fate::Solo;
    }
    Fate::HandOut
}

/// The first time it is only marked, and never given up for it: it may have had bad luck.
fn charge(arrival: Arrival, limits: Limits) -> Fate {
    let Arrival {
        counters,
        returns,
        marked,
        ..
    } = arrival;
    let crashes_max = limits.crashes_max.max(1);
    let crashes = counters.crashes.saturating_add(1);
    if !marked {
        return Fate::Charge(Counters {
            crashes: crashes.min(crashes_max - 1),
            ..counters
        });
    }
    let counters = Counters {
        attempts: counters.attempts.saturating_add(1),
        crashes,
        ..counters
    };
    if crashes < crashes_max && counters.attempts < limits.attempts_max.max(1) {
        return Fate::Charge(counters);
    }
    let error = format!(
        "took the daemon down {crashes} times: handed out with nothing beside it, it came back \
         {returns} times without an answer"
    );
    Fate::Bury(counters, crashed(error))
}

fn crashed(error: String) -> Failure {
    Failure::new(Reason::Crashed, error)
}

/// What the pool is told of the message's past.
pub(super) fn history(arrival: Arrival) -> History {
    let Arrival {
        counters,
        suspect,
        redelivered,
        ..
    } = arrival;
    History {
        attempt: counters.attempts.saturating_add(1),
        crashes: counters.crashes,
        requeues: counters.requeues,
        // One that came back without our mark may have killed a daemon: it must not share a worker.
        alone: suspect || redelivered || counters.crashes > 0,
    }
}

/// Whether a message that goes back in order must go as a copy: the broker would count it, and that
/// proves nothing against the message. The first time is no matter.
pub(super) fn returns_as_copy(arrival: Arrival) -> bool {
    arrival.marked || arrival.returns + 1 >= RETURNS_ALONE
}

/// The counters after an attempt that failed.
pub(super) fn charged(counters: Counters, crash: bool, now_ms: i64) -> Counters {
    Counters {
        attempts: counters.attempts.saturating_add(1),
        crashes: counters.crashes.saturating_add(u32::from(crash)),
        requeues: 0,
        first_failed_ms: counters.first_failed_ms.or(Some(now_ms)),
    }
}

/// The counters after a worker asked to see the message again.
pub(super) fn requeued(counters: Counters) -> Counters {
    Counters {
        requeues: counters.requeues.saturating_add(1),
        ..counters
    }
}

/// The tier that follows one: twice as long, from a minute on four times. A day of back-off then
/// takes few queues, and who waits for an hour bears to wait behind another.
fn next_tier(tier: Duration) -> Duration {
    if tier < COARSE_FROM {
        tier * 2
    } else {
        tier * 4
    }
}

/// All tiers that a policy with this longest delay needs, up to the first that is no shorter than
/// any delay.
pub(super) fn tiers(longest: Duration) -> Vec<Duration> {
    let longest = longest.max(REQUEUE_MAX);
    let mut tiers = vec![TIER_MIN];
    while let Some(last) = tiers.last().filter(|last| **last < longest) {
        tiers.push(next_tier(*last));
    }
    tiers
}

/// The tiers that a daemon of an earlier version may have left messages in: all powers of two. They
/// come back to the queue by themselves.
pub(super) fn former_tiers(longest: Duration) -> impl Iterator<Item = Duration> {
    let longest = tier(longest.max(REQUEUE_MAX));
    std::iter::successors(Some(COARSE_FROM * 2), |tier| Some(*tier * 4))
        .take_while(move |tier| *tier < longest)
}

/// The tier that a delay belongs to: the shortest that is no shorter. What one may have to wait
/// behind another is less than the tier.
pub(super) fn tier(delay: Duration) -> Duration {
    let mut tier = TIER_MIN;
    while tier < delay {
        tier = next_tier(tier);
    }
    tier
}

/// The name of a tier's queue.
pub(super) fn tier_queue(queue: &str, tier: Duration) -> String {
    match tier.as_secs() {
        0 => format!("{queue}.retry.{}ms", tier.as_millis()),
        seconds => format!("{queue}.retry.{seconds}s"),
    }
}

/// How many more messages may be handed out.
pub(super) fn room(intake: Intake, out: usize) -> usize {
    match intake {
        Intake::Closed => 0,
        Intake::Credit(credit) => credit.min(CREDIT_MAX).saturating_sub(out),
    }
}

/// How many messages to have the broker send ahead, for bodies of this size. Zero is for none at
/// all: to the broker that would mean no limit.
pub(super) fn prefetch(intake: Intake, body_bytes: usize) -> u16 {
    let credit = room(intake, 0);
    let fitting = BYTES_ASKED_MAX / body_bytes.max(1);
    u16::try_from(credit.min(fitting.max(1))).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMITS: Limits = Limits {
        crashes_max: 3,
        attempts_max: 5,
        lapses_max: 10,
    };

    #[test]
    fn what_could_not_be_read_is_dead_at_once() {
        let arrival = Arrival {
            is_unreadable: true,
            ..Arrival::default()
        };
        let Fate::Bury(counters, failure) = fate(arrival, LIMITS, false) else {
            panic!("it is handed out");
        };
        assert_eq!(
            (counters, failure.reason),
            (Counters::default(), Reason::Undeliverable)
        );
    }

    #[test]
    fn fate_by_crashes_and_returns() {
        let (new, marked) = (false, true);
        let table = [
            ((0, 0, 0), new, false, "out"),
            ((4, 2, 1), new, false, "out"),
            ((0, 0, 2), new, false, "solo"),
            ((4, 2, 3), new, false, "solo"),
            ((0, 0, 4), new, false, "charged 0 1"),
            ((0, 0, 4), new, true, "solo"),
            ((3, 1, 9), new, false, "charged 3 2"),
            ((4, 2, 4), new, false, "charged 4 2"),
            ((3, 3, 0), new, false, "crashed the worker 3 times"),
            ((1, 1, 0), marked, false, "solo"),
            ((1, 1, 1), marked, false, "charged 2 2"),
            ((1, 1, 1), marked, true, "solo"),
            ((2, 2, 1), marked, false, "took the daemon down 3 times"),
            ((4, 1, 2), marked, false, "took the daemon down 2 times"),
            ((0, 0, 15), new, true, "charged 0 0"),
        ];
        for ((attempts, crashes, returns), marked, charged, expected) in table {
            let counters = Counters {
                attempts,
                crashes,
                ..Counters::default()
            };
            let arrival = Arrival {
                counters,
                returns,
                marked,
                ..Arrival::default()
            };
            let got = match fate(arrival, LIMITS, charged) {
                Fate::HandOut => "out".to_owned(),
                Fate::Solo => "solo".to_owned(),
                Fate::Charge(to) => format!("charged {} {}", to.attempts, to.crashes),
                Fate::Bury(_, failure) => failure.error,
            };
            assert!(got.starts_with(expected), "{arrival:?}: {got}");
        }
    }

    #[test]
    fn what_goes_back_in_order_is_never_suspected_for_it() {
        let back = |returns, marked| {
            returns_as_copy(Arrival {
                returns,
                marked,
                ..Arrival::default()
            })
        };
        assert!(!back(0, false) && back(1, false) && back(0, true));
    }

    #[test]
    fn whoever_came_back_runs_alone() {
        let fresh = Arrival::default();
        assert!(!history(fresh).alone);
        let redelivered = Arrival {
            redelivered: true,
            ..fresh
        };
        let suspect = Arrival {
            suspect: true,
            ..fresh
        };
        let crashed = Arrival {
            counters: charged(Counters::default(), true, 7),
            ..fresh
        };
        for arrival in [redelivered, suspect, crashed] {
            assert!(history(arrival).alone, "{arrival:?}");
        }
        assert_eq!((history(crashed).attempt, history(crashed).crashes), (2, 1));
    }

    #[test]
    fn tiers_are_powers_of_two_and_from_a_minute_on_of_four() {
        let seconds = |s: f64| Duration::from_secs_f64(s);
        let of = |longest| {
            tiers(longest)
                .iter()
                .map(Duration::as_secs_f64)
                .collect::<Vec<_>>()
        };
        let least = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0];
        assert_eq!(of(Duration::ZERO), least);
        assert_eq!(of(seconds(32.0)), least);
        let of_an_hour = [&least[..], &[64.0, 256.0, 1024.0, 4096.0]].concat();
        assert_eq!(of(seconds(3600.0)), of_an_hour);
        let former = |longest| {
            former_tiers(seconds(longest))
                .map(|tier| tier.as_secs())
                .collect::<Vec<_>>()
        };
        assert_eq!(former(60.0), [0; 0]);
        assert_eq!(former(65.0), [128]);
        assert_eq!(former(3600.0), [128, 512, 2048]);
        let table = [
            (0.0, 0.25),
            (0.25, 0.25),
            (0.251, 0.5),
            (1.0, 1.0),
            (64.0, 64.0),
            (64.1, 256.0),
            (600.0, 1024.0),
            (3600.0, 4096.0),
        ];
        for (delay, expected) in table {
            assert_eq!(tier(seconds(delay)), seconds(expected), "{delay}");
        }
        assert_eq!(tier_queue("q", TIER_MIN), "q.retry.250ms");
        assert_eq!(tier_queue("q", seconds(64.0)), "q.retry.64s");
    }

    #[test]
    fn prefetch_is_the_credit_unless_bodies_are_large() {
        let table = [
            (Intake::Closed, 0, 0),
            (Intake::Credit(0), 0, 0),
            (Intake::Credit(100), 200, 100),
            (Intake::Credit(usize::MAX), 1, u16::MAX),
            (Intake::Credit(1000), 1 << 20, 64),
            (Intake::Credit(1000), 1 << 30, 1),
        ];
        for (intake, bytes, expected) in table {
            assert_eq!(prefetch(intake, bytes), expected, "{intake:?} {bytes}");
        }
        assert_eq!(room(Intake::Credit(10), 4), 6);
        assert_eq!(room(Intake::Credit(4), 10), 0);
    }

    #[test]
    fn consumers_are_added_at_once_and_cancelled_seldom() {
        let flow = |prefetch, consumers| Flow {
            prefetch,
            consumers,
            single: false,
            full: true,
        };
        let idle = |prefetch| Flow {
            full: false,
            ..flow(prefetch, 1)
        };
        let single = |prefetch| Flow {
            single: true,
            ..flow(prefetch, usize::from(prefetch > 0))
        };
        let (scarce, surplus) = (Step::Wait(SCARCE_FOR), Step::Wait(SURPLUS_FOR));
        let table = [
            (flow(0, 0), 2, false, Step::Add(2)),
            (flow(2, 1), 4, false, Step::Add(2)),
            (flow(4, 1), 6, false, scarce),
            (flow(4, 1), 6, true, Step::Add(2)),
            (flow(6, 2), 6, true, Step::Stay),
            (flow(6, 2), 3, false, surplus),
            (flow(6, 2), 4, false, Step::Wait(SLIGHT_SURPLUS_FOR)),
            (flow(6, 2), 3, true, Step::Cancel),
            (flow(6, 2), 0, true, Step::Cancel),
            (flow(6, 16), 60, false, surplus),
            (flow(6, 16), 60, true, Step::Cancel),
            (idle(2), 100, true, Step::Stay),
            (idle(2), 1, true, Step::Cancel),
            (single(0), 6, false, Step::Wait(FINAL_AFTER)),
            (single(0), 6, true, Step::Add(6)),
            (single(6), 60, true, Step::Stay),
            (single(6), 4, true, Step::Stay),
            (single(6), 0, true, Step::Cancel),
        ];
        for (flow, wanted, settled, expected) in table {
            assert_eq!(step(flow, wanted, settled), expected, "{flow:?} {wanted}");
        }
    }

    proptest! {
        #[test]
        fn every_delay_has_a_tier_that_is_never_early(millis in 1u64..3_000_000_000) {
            let delay = Duration::from_millis(millis);
            let tier = tier(delay);
            let factor = if delay <= COARSE_FROM { 2 } else { 4 };
            prop_assert!(tier >= delay && (tier < delay * factor || tier == TIER_MIN));
            prop_assert!(tiers(delay).contains(&tier));
        }
    }
}
