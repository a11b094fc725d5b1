//! The retry ladder: delayed messages wait beside others with about the same delay, each group in a queue
//! or topic of its own, a tier. A broker gives out from the head only, so a message that waits for a
//! minute would hold up all that wait for a second behind it. Each kind of queue chooses its tiers: a
//! RabbitMQ queue costs little, a Kafka topic has partitions on each broker.

use std::time::Duration;

/// Length of the shortest tier, in milliseconds; each next one is twice as long.
const SHORTEST_MS: u64 = 250;

/// A tier, by the number of times that the shortest is doubled. Its messages wait no longer than its
/// length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tier(u32);

impl Tier {
    /// Returns the longest delay of its messages.
    pub(crate) fn length(self) -> Duration {
        Duration::from_millis(SHORTEST_MS.saturating_mul(1 << self.0.min(63)))
    }

    /// Returns its part of a name.
    pub fn word(self) -> String {
        let ms = self.length().as_millis();
        match ms % 1000 {
            0 => format!("{}s", ms / 1000),
            _ => format!("{ms}ms"),
        }
    }

    /// Reads that part of a name; none if no tier of any version has it.
    pub fn parse(word: &str) -> Option<Self> {
        let (digits, ms) = match word.strip_suffix("ms") {
            Some(digits) => (digits, 1),
            None => (word.strip_suffix('s')?, 1000),
        };
        let length = Duration::from_millis(digits.parse::<u64>().ok()?.checked_mul(ms)?);
        let tier = Self(doublings(length));
        (tier.word() == word).then_some(tier)
    }
}

/// Returns the number of times that the shortest must be doubled to be no shorter than a delay.
fn doublings(delay: Duration) -> u32 {
    let ms = delay.as_nanos().div_ceil(1_000_000);
    let steps = u64::try_from(ms).map_or(u64::MAX, |ms| ms.div_ceil(SHORTEST_MS));
    steps
        .max(1)
        .checked_next_power_of_two()
        .map_or(63, u64::ilog2)
}

/// The tiers in use: one for each doubling up to `fine`, an even number, and beyond that one for every
/// second doubling.
#[derive(Debug, Clone, Copy)]
pub struct Ladder {
    /// Number of consecutive doublings.
    pub fine: u32,
}

impl Ladder {
    /// Returns the shortest tier that is no shorter than the delay.
    pub fn tier(self, delay: Duration) -> Tier {
        match doublings(delay) {
            fine if fine <= self.fine => Tier(fine),
            coarse => Tier(coarse.next_multiple_of(2)),
        }
    }

    fn has(self, tier: Tier) -> bool {
        tier.0 <= self.fine || tier.0.is_multiple_of(2)
    }

    /// Returns every tier that delays longer than `above` and up to `longest` may need.
    pub fn tiers(self, above: Option<Duration>, longest: Duration) -> Vec<Tier> {
        let least = above.map_or(Duration::ZERO, |above| above + Duration::from_millis(1));
        if least > longest {
            return Vec::new();
        }
        let all = (self.tier(least).0..=self.tier(longest).0).map(Tier);
        all.filter(|tier| self.has(*tier)).collect()
    }

    /// Returns the tiers for delays up to `longest` that only earlier versions had, with one for each
    /// doubling.
    pub fn former(self, longest: Duration) -> Vec<Tier> {
        let all = (0..=self.tier(longest).0).map(Tier);
        all.filter(|tier| !self.has(*tier)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const COARSE: Ladder = Ladder { fine: 0 };
    const HALF: Ladder = Ladder { fine: 8 };

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn words(tiers: Vec<Tier>) -> String {
        let words: Vec<String> = tiers.into_iter().map(Tier::word).collect();
        words.join(" ")
    }

    #[test]
    fn tiers_by_delay() {
        let table = [
            (0, "250ms", "250ms"),
            (250, "250ms", "250ms"),
            (251, "1s", "500ms"),
            (1000, "1s", "1s"),
            (8000, "16s", "8s"),
            (30_001, "64s", "32s"),
            (64_000, "64s", "64s"),
            (64_100, "256s", "256s"),
            (600_000, "1024s", "1024s"),
            (3_600_000, "4096s", "4096s"),
        ];
        for (delay, coarse, half) in table {
            let got = [COARSE, HALF].map(|ladder| ladder.tier(ms(delay)).word());
            assert_eq!(got, [coarse, half], "{delay}");
        }
        assert_eq!(COARSE.tier(Duration::from_nanos(250_000_001)).word(), "1s");
    }

    #[test]
    fn only_what_a_policy_can_need() {
        let hour = ms(3_600_000);
        let table = [
            (COARSE, None, ms(1000), "250ms 1s"),
            (COARSE, Some(ms(30_000)), ms(60_000), "64s"),
            (COARSE, Some(ms(60_000)), ms(60_000), ""),
            // The defaults, in order and without.
            (COARSE, Some(ms(30_000)), hour, "64s 256s 1024s 4096s"),
            (COARSE, None, hour, "250ms 1s 4s 16s 64s 256s 1024s 4096s"),
            (
                HALF,
                None,
                hour,
                "250ms 500ms 1s 2s 4s 8s 16s 32s 64s 256s 1024s 4096s",
            ),
            (HALF, None, Duration::ZERO, "250ms"),
        ];
        for (ladder, above, longest, expected) in table {
            let got = words(ladder.tiers(above, longest));
            assert_eq!(got, expected, "{ladder:?} {above:?} {longest:?}");
        }
    }

    #[test]
    fn what_earlier_versions_had_beside_them() {
        let former = |longest| words(HALF.former(ms(longest)));
        assert_eq!(former(60_000), "");
        assert_eq!(former(65_000), "128s");
        assert_eq!(former(3_600_000), "128s 512s 2048s");
        assert_eq!(words(COARSE.former(ms(5000))), "500ms 2s 8s");
    }

    #[test]
    fn words_are_read_back_and_others_are_not() {
        for word in ["250ms", "500ms", "1s", "8s", "4096s"] {
            assert_eq!(Tier::parse(word).unwrap().word(), word);
        }
        for word in ["", "s", "4", "3s", "1000ms", "0s", "-1s", "4 s"] {
            assert_eq!(Tier::parse(word), None, "{word}");
        }
    }

    proptest! {
        /// Never early, and late by no more than the difference between tier and delay.
        #[test]
        fn a_tier_is_as_long_as_its_delays_and_no_longer_than_it_must_be(
            ms in 1u64..100_000_000_000, fine in 0u32..10,
        ) {
            let (ladder, delay) = (Ladder { fine: fine * 2 }, Duration::from_millis(ms));
            let tier = ladder.tier(delay);
            prop_assert!(tier.length() >= delay);
            let factor = if tier.0 <= ladder.fine { 2 } else { 4 };
            prop_assert!(tier == Tier(0) || tier.length() < delay * factor);
            prop_assert!(ladder.tiers(None, delay).contains(&tier));
            prop_assert!(!ladder.former(delay).contains(&tier));
            prop_assert_eq!(Tier::parse(&tier.word()), Some(tier));
        }
    }
}
