//! The tiers in which delayed messages wait on RabbitMQ.

use std::time::Duration;

use ganger_queue::attempts::REQUEUE_MAX;
use ganger_queue::ladder::{Ladder, Tier};

/// Each tier is twice as long, from a minute on four times: a day of back-off then takes few queues, and a
/// message that waits for an hour may well wait behind another.
const LADDER: Ladder = Ladder { fine: 8 };

/// All tiers that a policy with this maximum delay needs. REQUEUE uses them, too.
pub(crate) fn tiers(longest: Duration) -> Vec<Tier> {
    LADDER.tiers(None, longest.max(REQUEUE_MAX))
}

/// Tiers in which a daemon of an earlier version may have left messages. These return to the queue by
/// themselves.
pub(crate) fn former_tiers(longest: Duration) -> Vec<Tier> {
    LADDER.former(longest.max(REQUEUE_MAX))
}

/// Tier of a delay: the wait behind another message is less than that.
pub(crate) fn tier(delay: Duration) -> Tier {
    LADDER.tier(delay)
}

/// Name of a tier's queue.
pub(crate) fn tier_queue(queue: &str, tier: Tier) -> String {
    format!("{queue}.retry.{}", tier.word())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_always_tiers_for_requeue_and_none_that_nobody_needs() {
        let names = |longest: u64| {
            let tiers = tiers(Duration::from_secs(longest)).into_iter();
            let names: Vec<String> = tiers.map(|tier| tier_queue("q", tier)).collect();
            names.join(" ").replace("q.retry.", "")
        };
        let least = "250ms 500ms 1s 2s 4s 8s 16s 32s";
        assert_eq!(names(0), least);
        assert_eq!(names(32), least);
        assert_eq!(names(3600), format!("{least} 64s 256s 1024s 4096s"));
        let sixty_four = tier(Duration::from_secs(33));
        assert_eq!(tier_queue("q", sixty_four), "q.retry.64s");
        assert_eq!(former_tiers(Duration::from_secs(65)).len(), 1);
    }
}
