//! The names of the topics beside the one that a pool reads: its tiers and its dead letters. They
//! carry the group, since several groups may read one topic. Pure: nothing here asks a broker.

use std::time::Duration;

/// The shortest tier, in milliseconds; each further one is four times as long.
const SHORTEST_MS: u64 = 250;
/// Every so many powers of two there is a tier. Older daemons had one for each, and those are read
/// until they are empty.
const STEP: u32 = 2;
/// The longest name that Kafka takes.
const NAME_BYTES_MAX: usize = 249;

/// Messages that wait for about as long as each other: longer than a quarter of the tier's length,
/// at most all of it. A topic gives messages out from its head only, so one that waits for a minute
/// would hold up all that wait for a second behind it. The number is a power of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Tier(u32);

impl Tier {
    /// The shortest tier that is no shorter than the delay.
    pub(crate) fn of(delay: Duration) -> Self {
        Self(power(delay).next_multiple_of(STEP))
    }

    /// The longest delay of its messages.
    pub(crate) fn length(self) -> Duration {
        Duration::from_millis(SHORTEST_MS.saturating_mul(1 << self.0.min(63)))
    }

    /// Every tier that delays longer than `above` and up to `longest` may need.
    pub(crate) fn needed(above: Option<Duration>, longest: Duration) -> Vec<Self> {
        let least = above.map_or(Duration::ZERO, |above| above + Duration::from_millis(1));
        if least > longest {
            return Vec::new();
        }
        (Self::of(least).0..=Self::of(longest).0)
            .step_by(STEP as usize)
            .map(Self)
            .collect()
    }

    fn word(self) -> String {
        let ms = self.length().as_millis();
        match ms % 1000 {
            0 => format!("{}s", ms / 1000),
            _ => format!("{ms}ms"),
        }
    }

    fn parse(word: &str) -> Option<Self> {
        let (digits, ms) = match word.strip_suffix("ms") {
            Some(digits) => (digits, 1),
            None => (word.strip_suffix('s')?, 1000),
        };
        let length = Duration::from_millis(digits.parse::<u64>().ok()?.checked_mul(ms)?);
        let tier = Self(power(length));
        (tier.word() == word).then_some(tier)
    }
}

/// How often the shortest tier must be doubled to be no shorter than a delay.
fn power(delay: Duration) -> u32 {
    let ms = delay.as_nanos().div_ceil(1_000_000);
    let steps = u64::try_from(ms).map_or(u64::MAX, |ms| ms.div_ceil(SHORTEST_MS));
    steps
        .max(1)
        .checked_next_power_of_two()
        .map_or(63, u64::ilog2)
}

/// The topic of a tier.
pub(crate) fn tier_topic(topic: &str, group: &str, tier: Tier) -> String {
    format!("{}{}", tier_prefix(topic, group), tier.word())
}

/// Which tier of the topic and the group this is the name of.
pub(crate) fn tier_of(name: &str, topic: &str, group: &str) -> Option<Tier> {
    Tier::parse(name.strip_prefix(&tier_prefix(topic, group))?)
}

fn tier_prefix(topic: &str, group: &str) -> String {
    format!("{topic}.{group}.retry.")
}

/// The topic of the dead letters.
pub(crate) fn dead_topic(topic: &str, group: &str) -> String {
    format!("{topic}.{group}.dead")
}

/// Says what is wrong with a topic's name, or with a part of it.
pub(crate) fn fault_in(name: &str) -> Option<&'static str> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    match name {
        "" => Some("must not be empty"),
        "." | ".." => Some("must not be `.` or `..`"),
        name if name.len() > NAME_BYTES_MAX => Some("must be at most 249 bytes long"),
        name if !name.bytes().all(legal) => {
            Some("must be made of letters of ASCII, digits, `.`, `_` and `-`")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn tiers_by_delay() {
        let table = [
            (0, "250ms"),
            (250, "250ms"),
            (251, "1s"),
            (1000, "1s"),
            (30_001, "64s"),
            (600_000, "1024s"),
            (3_600_000, "4096s"),
        ];
        for (delay, word) in table {
            assert_eq!(Tier::of(ms(delay)).word(), word, "{delay}");
        }
        assert_eq!(Tier::of(Duration::from_nanos(250_000_001)).word(), "1s");
    }

    #[test]
    fn only_what_a_policy_can_need() {
        let words = |above, longest| -> Vec<String> {
            let tiers = Tier::needed(above, longest);
            tiers.into_iter().map(Tier::word).collect()
        };
        assert_eq!(words(None, ms(1000)), ["250ms", "1s"]);
        assert_eq!(words(Some(ms(30_000)), ms(60_000)), ["64s"]);
        // The defaults, in order and without.
        let hour = ms(3_600_000);
        assert_eq!(
            words(Some(ms(30_000)), hour),
            ["64s", "256s", "1024s", "4096s"]
        );
        assert_eq!(words(None, hour).len(), 8);
        assert_eq!(words(Some(ms(60_000)), ms(60_000)), [""; 0]);
    }

    #[test]
    fn names_are_read_back() {
        let name = tier_topic("orders", "billing", Tier::of(ms(4000)));
        assert_eq!(name, "orders.billing.retry.4s");
        assert_eq!(
            tier_of(&name, "orders", "billing"),
            Some(Tier::of(ms(4000)))
        );
        // One that an older daemon has made.
        let old = tier_of("orders.billing.retry.8s", "orders", "billing").unwrap();
        assert_eq!(
            (old.word(), Tier::of(ms(8000)).word()),
            ("8s".into(), "16s".into())
        );
        for other in [
            "orders.billing.retry.3s",
            "orders.billing.retry.",
            "orders.billing.retry.4",
            "orders.billing.retry.1000ms",
            "orders.shipping.retry.4s",
            "orders",
        ] {
            assert_eq!(tier_of(other, "orders", "billing"), None, "{other}");
        }
        assert_eq!(dead_topic("orders", "billing"), "orders.billing.dead");
    }

    #[test]
    fn illegal_names() {
        for name in ["", ".", "..", "a b", "a/b", "ü", "a\0", &"x".repeat(250)] {
            assert!(fault_in(name).is_some(), "{name}");
        }
        for name in ["a", "A-1_b.c", &"x".repeat(249)] {
            assert_eq!(fault_in(name), None, "{name}");
        }
    }

    proptest! {
        #[test]
        fn a_tier_is_as_long_as_its_delays_and_not_four_times(ms in 1u64..100_000_000_000) {
            let delay = Duration::from_millis(ms);
            let length = Tier::of(delay).length();
            prop_assert!(length >= delay);
            prop_assert!(length <= Duration::from_millis(SHORTEST_MS) || length < delay * 4);
        }
    }
}
