//! Topics that a pool needs: those that it reads, and the tiers and the dead letters beside each; and
//! which of them exist. Pure: nothing here queries a broker.

use std::collections::{BTreeMap, BTreeSet};

use super::error::KafkaError;
use super::fitness::{Needed, Role};
use super::topic_names;
use ganger_config::model::{KafkaSource, Topics};
use ganger_queue::ladder::Tier;

/// Topics that a pool needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TopicRequirements {
    pub(crate) topics: Topics,
    /// Tiers needed for each topic.
    pub(crate) tiers: Vec<Tier>,
    /// Topic of all dead letters; none if each topic has its own.
    pub(crate) dead: Option<String>,
}

/// Existing tiers of each topic.
pub(crate) type Tiers = BTreeMap<String, BTreeMap<Tier, String>>;

/// Existing topics.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// Id of the cluster; empty if it has none.
    pub(crate) cluster: String,
    /// The pool's topics, with their numbers of partitions.
    pub(crate) topics: BTreeMap<String, usize>,
    /// Every tier of such a topic and the group, including those of an earlier policy, and of deleted
    /// topics: they may still hold messages.
    pub(crate) tiers: Tiers,
}

impl Found {
    /// Adds the known topics: tiers created by others meanwhile, topics without a leader now, and topics that
    /// could not be determined this time.
    pub(crate) fn with(mut self, before: Self) -> Self {
        for (topic, tiers) in before.tiers {
            let known = self.tiers.entry(topic).or_default();
            for (tier, topic) in tiers {
                known.entry(tier).or_insert(topic);
            }
        }
        for (topic, partitions) in before.topics {
            self.topics.entry(topic).or_insert(partitions);
        }
        if self.cluster.is_empty() {
            self.cluster = before.cluster;
        }
        self
    }

    /// Returns the approximate number of partitions that are read; one for a tier.
    pub(crate) fn partitions(&self) -> usize {
        let tiers: usize = self.tiers.values().map(BTreeMap::len).sum();
        self.topics.values().sum::<usize>() + tiers
    }
}

/// Existing topics among those that a pool reads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ExistingTopics {
    /// The pool's topics, including those without a leader.
    pub(crate) topics: BTreeSet<String>,
    /// Their tiers that have a leader.
    pub(crate) tiers: Tiers,
}

/// Returns every topic that is needed, with the existing ones that match the patterns.
pub(super) fn roles(
    config: &KafkaSource,
    wanted: &TopicRequirements,
    there: &BTreeMap<String, usize>,
) -> Result<Vec<Needed>, KafkaError> {
    let topics = wanted.topics.among(there.keys());
    let group = config.group.as_str();
    let mut roles: Vec<Needed> = topics.iter().map(|topic| Needed::main(topic)).collect();
    for topic in &topics {
        let beside = |name: String, role| Needed {
            name,
            role,
            of: [topic.clone()].into(),
        };
        let tiers = wanted.tiers.iter();
        roles.extend(tiers.map(|tier| {
            let name = topic_names::tier_topic(topic, group, *tier);
            beside(name, Role::Tier)
        }));
        if wanted.dead.is_none() {
            roles.push(beside(topic_names::dead_topic(topic, group), Role::Dead));
        }
    }
    roles.extend(wanted.dead.as_ref().map(|dead| Needed {
        name: dead.clone(),
        role: Role::Dead,
        of: topics,
    }));
    for Needed { name, .. } in &roles {
        if let Some(rule) = topic_names::fault_in(name) {
            let name = name.clone();
            return Err(KafkaError::TopicName { name, rule });
        }
    }
    Ok(roles)
}

pub(super) fn split(
    roles: Vec<Needed>,
    there: &BTreeMap<String, usize>,
) -> (Vec<Needed>, Vec<Needed>) {
    let mut roles = roles.into_iter();
    roles
        .by_ref()
        .partition(|needed| there.contains_key(&needed.name))
}

pub(super) fn names(roles: Vec<Needed>) -> Vec<String> {
    roles.into_iter().map(|needed| needed.name).collect()
}

/// Returns the existing tiers of these topics and the group.
pub(crate) fn tiers<'a>(
    config: &KafkaSource,
    topics: &Topics,
    there: impl Iterator<Item = &'a String>,
) -> Tiers {
    let mut tiers = Tiers::new();
    for name in there {
        if let Some((topic, tier)) = topic_names::tier_of(name, &config.group)
            && topics.include(topic)
        {
            let known = tiers.entry(topic.to_owned()).or_default();
            known.insert(tier, name.clone());
        }
    }
    tiers
}

/// Returns the existing dead letter topics of such topics and the group.
pub(crate) fn dead<'a>(
    config: &KafkaSource,
    wanted: &TopicRequirements,
    there: impl Iterator<Item = &'a String>,
) -> BTreeSet<String> {
    let is_dead = |name: &&String| match &wanted.dead {
        Some(dead) => *name == dead,
        None => {
            let topic = topic_names::topic_of_dead(name, &config.group);
            topic.is_some_and(|topic| wanted.topics.include(topic))
        }
    };
    there.filter(is_dead).cloned().collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::settings;
    use super::super::topic_names::LADDER;
    use super::*;

    fn wanted(topics: &[&str], dead: Option<&str>) -> TopicRequirements {
        let topics: Vec<String> = topics.iter().map(ToString::to_string).collect();
        TopicRequirements {
            topics: Topics::read(&topics).unwrap(),
            tiers: vec![LADDER.tier(Duration::from_secs(60))],
            dead: dead.map(str::to_owned),
        }
    }

    fn there(topics: &[&str]) -> BTreeMap<String, usize> {
        topics
            .iter()
            .map(|topic| ((*topic).to_owned(), 1))
            .collect()
    }

    #[test]
    fn what_was_known_before_is_not_forgotten() {
        let found = |cluster: &str, topic: &str, seconds: &[u64]| {
            let tier = |seconds: &u64| {
                let tier = LADDER.tier(Duration::from_secs(*seconds));
                (tier, seconds.to_string())
            };
            Found {
                cluster: cluster.to_owned(),
                topics: there(&[topic]),
                tiers: [(topic.to_owned(), seconds.iter().map(tier).collect())].into(),
            }
        };
        let before = found("c", "orders", &[1, 64]);
        let more = found("c", "orders", &[1, 16]).with(before.clone());
        assert_eq!(more.tiers["orders"].len(), 3);
        assert_eq!(more.partitions(), 4);
        let after = found("", "payments", &[1]).with(before);
        assert_eq!((after.cluster.as_str(), after.tiers.len()), ("c", 2));
        assert_eq!(after.topics, there(&["orders", "payments"]));
    }

    #[test]
    fn each_topic_has_tiers_and_dead_letters_of_its_own() {
        let config = settings::tests::source(&[]);
        let there = there(&["a.1", "a.2", "a.1.g.dead", "b", "c"]);
        let roles = |dead| names(roles(&config, &wanted(&[r"^a\.", "b"], dead), &there).unwrap());
        let group = &config.group;
        let beside =
            |what: &str| ["a.1", "a.2", "b"].map(|topic| format!("{topic}.{group}.{what}"));
        let mut all: Vec<String> = ["a.1", "a.2", "b"].map(str::to_owned).into();
        all.extend(beside("retry.64s"));
        let with_one = [all.clone(), vec!["dead".to_owned()]].concat();
        all.extend(beside("dead"));
        let sorted = |mut names: Vec<String>| {
            names.sort();
            names
        };
        assert_eq!(sorted(roles(None)), sorted(all));
        assert_eq!(sorted(roles(Some("dead"))), sorted(with_one));
    }

    #[test]
    fn what_is_beside_a_topic_is_found_also_when_that_is_gone() {
        let config = settings::tests::source(&[]);
        let group = &config.group;
        let names = [
            format!("a.1.{group}.retry.64s"),
            format!("a.1.{group}.dead"),
            "a.1.other.dead".to_owned(),
            "a.1.other.retry.64s".to_owned(),
            format!("b.{group}.dead"),
            "mine".to_owned(),
        ];
        let pattern = wanted(&[r"^a\."], None);
        let tiers = tiers(&config, &pattern.topics, names.iter());
        assert_eq!(tiers["a.1"].values().collect::<Vec<_>>(), [&names[0]]);
        assert_eq!(tiers.len(), 1);
        assert_eq!(
            dead(&config, &pattern, names.iter()),
            [names[1].clone()].into()
        );
        let mine = wanted(&[r"^a\."], Some("mine"));
        assert_eq!(
            dead(&config, &mine, names.iter()),
            [names[5].clone()].into()
        );
    }

    #[test]
    fn names_too_long_for_a_topic_are_refused() {
        let long = "t".repeat(240);
        let wanted = wanted(&[&long], Some("dead"));
        let config = settings::tests::source(&[]);
        let error = roles(&config, &wanted, &there(&[])).unwrap_err();
        let expected = "the name of a topic must be at most 249 bytes long: `ttt";
        assert!(error.to_string().starts_with(expected), "{error}");
    }
}
