//! Attempt accounting of a message and its consequences: whether an attempt is charged, the delay after
//! REQUEUE, which messages run alone, which are suspects, and which are dead-lettered. Each kind of queue
//! stores the counts in its own way: in headers, in a commit's metadata, in columns.

use std::time::Duration;

use crate::dead_letter::Counters;
use crate::delivery::{Failure, History, Reason};
use ganger_config::model::PoolConfig;
use ganger_core::backoff::Backoff;
use ganger_core::names::ATTEMPTS_MAX;

/// Number of daemons in a row that vanished over a message, at which it is a suspect. One is forgiven:
/// otherwise everything in flight when a daemon was killed, or the power failed, would be suspect. The
/// tables know it too, as the column `suspicion`.
pub const LAPSES_SUSPECT: u32 = 2;

/// Back-off after REQUEUE, for the same message, so that it can't spin.
const REQUEUE: Backoff = Backoff {
    initial: Duration::from_millis(100),
    factor: 2.0,
    max: Duration::from_secs(30),
    jitter: 0.0,
};

/// Longest of those delays, whatever the policy's longest delay.
pub const REQUEUE_MAX: Duration = REQUEUE.max;

/// Part of a pool's retry policy that a source applies by itself, to messages that took the whole daemon
/// down and so never came back with a settlement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Number of crashes at which a message is dead-lettered, whatever attempts are left.
    pub crashes_max: u32,
    /// Number of daemons in a row that vanished over a message, at which it is dead-lettered.
    pub lapses_max: u32,
}

impl Limits {
    /// Returns the limits of the pool.
    pub fn of(pool: &PoolConfig) -> Self {
        Self {
            crashes_max: pool.crashes_max,
            lapses_max: pool.lapses_max,
        }
    }
}

/// Returns the delay before a requeued message comes again, after `requeues` earlier requeues in a row.
pub fn requeue_after(requeues: u32) -> Duration {
    REQUEUE.wait(requeues.saturating_add(1), 0.0)
}

/// Returns the counters after a worker asked to see the message again.
pub fn requeued(counters: Counters) -> Counters {
    Counters {
        requeues: counters.requeues.saturating_add(1),
        ..counters
    }
}

/// Returns the counters after an attempt that failed at that Unix time.
pub fn charged(counters: Counters, reason: Reason, now_ms: i64) -> Counters {
    Counters {
        attempts: counters.attempts.saturating_add(1),
        crashes: crashes(counters.crashes, reason),
        requeues: 0,
        first_failed_ms: counters.first_failed_ms.or(Some(now_ms)),
        span: counters.span,
    }
}

/// Returns the number of crashes after an attempt that failed for that reason.
pub fn crashes(before: u32, reason: Reason) -> u32 {
    before.saturating_add(u32::from(reason.is_crash()))
}

/// Returns a message's history for the pool. A message that has killed workers, or is suspected of it,
/// must not share one.
pub fn history(counters: Counters, is_suspected: bool) -> History {
    History {
        attempt: counters.attempts.saturating_add(1),
        crashes: counters.crashes,
        requeues: counters.requeues,
        alone: is_suspected || counters.crashes > 0,
        earlier: counters.span,
        step: 0,
        attempts_max: None,
        followed: false,
        keeps_result: false,
    }
}

/// Returns the number of attempts of a message by its header, if that is a number from 1 on.
pub fn attempts_max(header: Option<&str>) -> Option<u32> {
    let asked: u64 = header?.trim().parse().ok()?;
    let asked = u32::try_from(asked).unwrap_or(u32::MAX);
    (asked > 0).then(|| asked.min(ATTEMPTS_MAX))
}

/// Returns whether a message that crashed so many workers is dead-lettered.
pub fn is_spent(crashes: u32, crashes_max: u32) -> bool {
    crashes >= crashes_max.max(1)
}

/// Returns the error text of such a message.
pub fn crashed(crashes: u32) -> String {
    format!("crashed the worker {crashes} times")
}

/// Returns the reason that a message is dead-lettered instead of being handed out, if it is. Attempts
/// that ended with the daemon's end are not among the reasons: a suspect has more of them than the policy
/// allows, since others may have been the cause.
pub fn dead(crashes: u32, lapses: u32, limits: Limits) -> Option<Failure> {
    let error = if is_spent(crashes, limits.crashes_max) {
        crashed(crashes)
    } else if lapses >= limits.lapses_max {
        format!("took the daemon down {lapses} times in a row")
    } else {
        return None;
    };
    Some(Failure::new(Reason::Crashed, error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_message_asks_for_attempts_within_bounds() {
        for (header, expected) in [
            (None, None),
            (Some("3"), Some(3)),
            (Some(" 1 "), Some(1)),
            (Some("0"), None),
            (Some("-1"), None),
            (Some("many"), None),
            (Some("1001"), Some(ATTEMPTS_MAX)),
            (Some("99999999999"), Some(ATTEMPTS_MAX)),
        ] {
            assert_eq!(attempts_max(header), expected, "{header:?}");
        }
    }

    #[test]
    fn requeue_waits_longer_each_time_and_thirty_seconds_at_the_most() {
        let waits = [0, 1, 2, 7, 8, 9, u32::MAX].map(|n| requeue_after(n).as_millis());
        assert_eq!(waits, [100, 200, 400, 12_800, 25_600, 30_000, 30_000]);
        assert_eq!(requeue_after(u32::MAX), REQUEUE_MAX);
    }

    #[test]
    fn dead_by_crashes_and_lapses() {
        let limits = Limits {
            crashes_max: 3,
            lapses_max: 10,
        };
        let table = [
            ((0, 0), 3, None),
            ((2, 9), 3, None),
            ((3, 0), 3, Some("crashed the worker 3 times")),
            ((3, 10), 3, Some("crashed the worker 3 times")),
            ((1, 10), 3, Some("took the daemon down 10 times in a row")),
            ((0, 0), 0, None),
            ((1, 0), 0, Some("crashed the worker 1 times")),
        ];
        for ((crashes, lapses), crashes_max, expected) in table {
            let limits = Limits {
                crashes_max,
                ..limits
            };
            let got = dead(crashes, lapses, limits);
            assert!(got.iter().all(|failure| failure.reason.is_crash()));
            let got = got.map(|failure| failure.error);
            assert_eq!(got.as_deref(), expected, "{crashes} {lapses} {crashes_max}");
        }
    }

    #[test]
    fn an_attempt_that_failed_is_charged_and_one_more_is_told_of() {
        let fresh = Counters::default();
        assert!(!history(fresh, false).alone && history(fresh, true).alone);
        let asked = requeued(requeued(fresh));
        assert_eq!((asked.attempts, history(asked, false).requeues), (0, 2));
        let failed = charged(asked, Reason::TimedOut, 7);
        assert_eq!((failed.requeues, failed.first_failed_ms), (0, Some(7)));
        assert!(!history(failed, false).alone);
        let crashed = history(charged(failed, Reason::Crashed, 9), false);
        assert_eq!((crashed.attempt, crashed.crashes), (3, 1));
        assert!(crashed.alone, "it has killed a worker");
    }

    proptest! {
        #[test]
        fn counts_only_grow_and_the_first_failure_stays(
            attempts: u32, crashes: u32, requeues: u32, first: Option<i64>, crash: bool, now: i64,
        ) {
            let before = Counters { attempts, crashes, requeues, first_failed_ms: first, span: None };
            let reason = if crash { Reason::Crashed } else { Reason::Failed };
            let after = charged(before, reason, now);
            prop_assert!(after.attempts >= attempts && after.crashes >= crashes);
            prop_assert!(after.attempts > attempts || attempts == u32::MAX);
            prop_assert_eq!(after.first_failed_ms, Some(first.unwrap_or(now)));
            prop_assert_eq!(requeued(before).attempts, attempts);
        }
    }
}
