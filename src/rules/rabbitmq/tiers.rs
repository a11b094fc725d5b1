//! The tiers that delayed messages wait in: which there are, and which a delay belongs to.

use std::time::Duration;

use crate::rules::attempts::REQUEUE_MAX;

/// The shortest delay that has a tier of its own.
const TIER_MIN: Duration = Duration::from_millis(250);

/// The first tier that is followed by one of four times its length.
const COARSE_FROM: Duration = Duration::from_secs(64);

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
pub(crate) fn tiers(longest: Duration) -> Vec<Duration> {
    let longest = longest.max(REQUEUE_MAX);
    let mut tiers = vec![TIER_MIN];
    while let Some(last) = tiers.last().filter(|last| **last < longest) {
        tiers.push(next_tier(*last));
    }
    tiers
}

/// The tiers that a daemon of an earlier version may have left messages in: all powers of two. They
/// come back to the queue by themselves.
pub(crate) fn former_tiers(longest: Duration) -> impl Iterator<Item = Duration> {
    let longest = tier(longest.max(REQUEUE_MAX));
    std::iter::successors(Some(COARSE_FROM * 2), |tier| Some(*tier * 4))
        .take_while(move |tier| *tier < longest)
}

/// The tier that a delay belongs to: the shortest that is no shorter. What one may have to wait
/// behind another is less than the tier.
pub(crate) fn tier(delay: Duration) -> Duration {
    let mut tier = TIER_MIN;
    while tier < delay {
        tier = next_tier(tier);
    }
    tier
}

/// The name of a tier's queue.
pub(crate) fn tier_queue(queue: &str, tier: Duration) -> String {
    match tier.as_secs() {
        0 => format!("{queue}.retry.{}ms", tier.as_millis()),
        seconds => format!("{queue}.retry.{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
