//! The tiers that delayed messages wait in on RabbitMQ.

use std::time::Duration;

use ganger_queue::attempts::REQUEUE_MAX;
use ganger_queue::ladder::{Ladder, Tier};

/// Twice as long each, from a minute on four times: a day of back-off then takes few queues, and who
/// waits for an hour bears to wait behind another.
const LADDER: Ladder = Ladder { fine: 8 };

/// All tiers that a policy with this longest delay needs. REQUEUE waits in them, too.
pub(crate) fn tiers(longest: Duration) -> Vec<Tier> {
    LADDER.tiers(None, longest.max(REQUEUE_MAX))
}

/// The tiers that a daemon of an earlier version may have left messages in. They come back to the
/// queue by themselves.
pub(crate) fn former_tiers(longest: Duration) -> Vec<Tier> {
    LADDER.former(longest.max(REQUEUE_MAX))
}

/// The tier that a delay belongs to: what one may have to wait behind another is less than that.
pub(crate) fn tier(delay: Duration) -> Tier {
    LADDER.tier(delay)
}

/// The name of a tier's queue.
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
