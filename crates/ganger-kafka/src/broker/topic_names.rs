//! Names of the topics beside each one that a pool reads: its tiers and its dead letters. They contain
//! the group, since several groups may read one topic. Pure: nothing here queries a broker.

use ganger_config::model::{group_in_topics, is_legal_in_topics};
use ganger_queue::ladder::{Ladder, Tier};

/// Tiers, each four times as long as the previous one, since a topic has partitions on each broker. Earlier
/// daemons had one for each doubling, and those are read until they are empty.
pub(crate) const LADDER: Ladder = Ladder { fine: 0 };
/// Maximum length of a topic name in Kafka.
const NAME_BYTES_MAX: usize = 249;

/// Returns the topic of a tier.
pub(crate) fn tier_topic(topic: &str, group: &str, tier: Tier) -> String {
    format!("{topic}.{}.retry.{}", group_in_topics(group), tier.word())
}

/// Returns the topic and the tier whose tier topic of the group has this name.
pub(crate) fn tier_of<'a>(name: &'a str, group: &str) -> Option<(&'a str, Tier)> {
    let (stem, tier) = name.rsplit_once(".retry.")?;
    Some((of_group(stem, group)?, Tier::parse(tier)?))
}

/// Returns the topic of the dead letters.
pub(crate) fn dead_topic(topic: &str, group: &str) -> String {
    format!("{topic}.{}.dead", group_in_topics(group))
}

/// Returns the topic whose dead letters of the group this topic holds.
pub(crate) fn topic_of_dead<'a>(name: &'a str, group: &str) -> Option<&'a str> {
    of_group(name.strip_suffix(".dead")?, group)
}

fn of_group<'a>(stem: &'a str, group: &str) -> Option<&'a str> {
    stem.strip_suffix(&*group_in_topics(group))?
        .strip_suffix('.')
}

/// Returns the defect of a topic's name, or of a part of it.
pub(crate) fn fault_in(name: &str) -> Option<&'static str> {
    match name {
        "" => Some("must not be empty"),
        "." | ".." => Some("must not be `.` or `..`"),
        name if name.len() > NAME_BYTES_MAX => Some("must be at most 249 bytes long"),
        name if !name.bytes().all(is_legal_in_topics) => {
            Some("must consist of ASCII letters, digits, `.`, `_` and `-`")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn names_are_read_back() {
        let seconds = |seconds| LADDER.tier(Duration::from_secs(seconds));
        let name = tier_topic("orders", "billing", seconds(4));
        assert_eq!(name, "orders.billing.retry.4s");
        assert_eq!(tier_of(&name, "billing"), Some(("orders", seconds(4))));
        // A tier created by an older daemon.
        let (_, old) = tier_of("orders.billing.retry.8s", "billing").unwrap();
        assert_eq!((old.word(), seconds(8).word()), ("8s".into(), "16s".into()));
        for other in [
            "orders.billing.retry.3s",
            "orders.billing.retry.",
            "orders.billing.retry.4",
            "orders.billing.retry.1000ms",
            "orders.shipping.retry.4s",
            "ordersbilling.retry.4s",
            "orders",
        ] {
            assert_eq!(tier_of(other, "billing"), None, "{other}");
        }
        let dead = dead_topic("orders.eu", "billing");
        assert_eq!(dead, "orders.eu.billing.dead");
        assert_eq!(topic_of_dead(&dead, "billing"), Some("orders.eu"));
        assert_eq!(topic_of_dead(&dead, "shipping"), None);
        assert_eq!(topic_of_dead("orders.billing", "billing"), None);
    }

    /// Kafka accepts any text as a group name, but not as a topic name.
    #[test]
    fn a_group_may_have_what_a_topic_may_not() {
        let group = "team:billing/ü";
        let (dead, tier) = (
            dead_topic("orders", group),
            tier_topic("orders", group, LADDER.tier(Duration::from_secs(4))),
        );
        assert_eq!(dead, "orders.team_3abilling_2f_c3_bc.dead");
        assert_eq!(tier, "orders.team_3abilling_2f_c3_bc.retry.4s");
        assert_eq!((fault_in(&dead), fault_in(&tier)), (None, None));
        assert_eq!(topic_of_dead(&dead, group), Some("orders"));
        assert_eq!(tier_of(&tier, group).unwrap().0, "orders");
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
}
