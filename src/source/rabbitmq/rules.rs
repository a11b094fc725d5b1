//! The decisions of a RabbitMQ source as pure functions: what becomes of a message that arrives,
//! which tier a delay belongs to, how many messages to ask for. No broker, no clock, no channel.

use std::time::Duration;

use super::super::letter::Counters;
use crate::delivery::{CREDIT_MAX, Failure, History, Intake, Reason};
use crate::source::Limits;

/// So often a message came back by itself before it runs alone in the whole daemon. One time is
/// forgiven: a connection that was lost, or a daemon that was killed, would otherwise make every
/// message that was out run one after the other.
const RETURNS_ALONE: u64 = 2;

/// RabbitMQ 4 drops a message of a quorum queue after 20 returns unless the queue says otherwise.
/// From here on it goes back as a copy, whose count begins anew.
const RETURNS_MAX: u64 = 15;

/// The shortest delay that has a tier of its own.
const TIER_MIN: Duration = Duration::from_millis(250);

/// The longest wait after REQUEUE, whatever the policy's longest delay.
const REQUEUE_MAX: Duration = Duration::from_secs(30);

/// The most bytes of bodies that are asked for at once, by the size that they have had lately.
const BYTES_ASKED_MAX: usize = 64 << 20;

/// What a message says of itself when it arrives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Arrival {
    /// What we have counted of it so far.
    pub(super) counters: Counters,
    /// We have marked it: it was in the hands of a worker that died with several.
    pub(super) suspect: bool,
    /// The broker has handed it out before.
    pub(super) redelivered: bool,
    /// How often it came back, where the queue counts that.
    pub(super) returns: u64,
    /// Its queue is no queue: nothing can be taken from it.
    pub(super) of_a_stream: bool,
}

/// What becomes of a message that arrives.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Fate {
    /// It's handed out.
    HandOut,
    /// It's handed out with nothing else of this daemon in hand.
    Solo,
    /// It has taken the daemon down too often: it is charged for that, by a copy with these
    /// counters, and runs then.
    Charge(Counters),
    /// It goes to the dead letters, with these counters.
    Bury(Counters, Failure),
}

/// Decides it.
pub(super) fn fate(arrival: Arrival, limits: Limits) -> Fate {
    let crashes_max = limits.crashes_max.max(1);
    let Arrival {
        counters, returns, ..
    } = arrival;
    if counters.crashes >= crashes_max {
        let error = format!("crashed the worker {} times", counters.crashes);
        return Fate::Bury(counters, crashed(error));
    }
    if returns > u64::from(crashes_max) {
        let charged = Counters {
            attempts: counters.attempts.saturating_add(1),
            crashes: counters.crashes.saturating_add(1),
            ..counters
        };
        let spent = charged.attempts >= limits.attempts_max.max(1);
        if charged.crashes >= crashes_max || spent {
            let error = format!("came back {returns} times without an answer");
            return Fate::Bury(charged, crashed(error));
        }
        return Fate::Charge(charged);
    }
    if returns >= RETURNS_ALONE {
        return Fate::Solo;
    }
    Fate::HandOut
}

fn crashed(error: String) -> Failure {
    Failure {
        reason: Reason::Crashed,
        error,
        ..Failure::default()
    }
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

/// Whether a message that goes back must go as a copy, before the broker counts once too often.
pub(super) fn returns_as_copy(arrival: Arrival) -> bool {
    arrival.returns >= RETURNS_MAX
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

/// All tiers that a policy with this longest delay needs: 250 ms and every power of two of it, up
/// to the first that is no shorter than any delay.
pub(super) fn tiers(longest: Duration) -> Vec<Duration> {
    let longest = longest.max(REQUEUE_MAX);
    let mut tiers = vec![TIER_MIN];
    while let Some(last) = tiers.last().filter(|last| **last < longest) {
        tiers.push(*last * 2);
    }
    tiers
}

/// The tier that a delay belongs to: the shortest that is no shorter. Those in one tier differ by
/// at most half of it, which is what one may have to wait behind another.
pub(super) fn tier(delay: Duration) -> Duration {
    let mut tier = TIER_MIN;
    while tier < delay {
        tier *= 2;
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
    };

    #[test]
    fn fate_by_crashes_and_returns() {
        let table = [
            ((0, 0, 0), "out"),
            ((4, 2, 1), "out"),
            ((0, 0, 2), "solo"),
            ((4, 2, 3), "solo"),
            ((0, 0, 4), "charged 1 1"),
            ((3, 1, 9), "charged 4 2"),
            ((3, 2, 4), "came back 4 times without an answer"),
            ((4, 0, 7), "came back 7 times without an answer"),
            ((3, 3, 0), "crashed the worker 3 times"),
        ];
        for ((attempts, crashes, returns), expected) in table {
            let counters = Counters {
                attempts,
                crashes,
                ..Counters::default()
            };
            let arrival = Arrival {
                counters,
                returns,
                ..Arrival::default()
            };
            let got = match fate(arrival, LIMITS) {
                Fate::HandOut => "out".to_owned(),
                Fate::Solo => "solo".to_owned(),
                Fate::Charge(to) => format!("charged {} {}", to.attempts, to.crashes),
                Fate::Bury(_, failure) => failure.error,
            };
            assert_eq!(got, expected, "{arrival:?}");
        }
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
    fn tiers_are_powers_of_two() {
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
        assert_eq!(of(seconds(600.0)).last(), Some(&1024.0));
        let table = [
            (0.0, 0.25),
            (0.25, 0.25),
            (0.251, 0.5),
            (1.0, 1.0),
            (600.0, 1024.0),
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

    proptest! {
        #[test]
        fn every_delay_has_a_tier_within_its_double(millis in 1u64..3_000_000_000) {
            let delay = Duration::from_millis(millis);
            let tier = tier(delay);
            prop_assert!(tier >= delay && (tier < delay * 2 || tier == TIER_MIN));
            prop_assert!(tiers(delay).contains(&tier));
        }
    }
}
