//! The topics beside the one that a pool reads, and that one: whether they are there and fit, and
//! making them. What is missing or unfit is told all at once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::RDKafkaErrorCode as Code;
use rdkafka::metadata::Metadata;
use tokio::time::{Instant, sleep};

use super::consumer::Context;
use super::error::{KafkaError, words};
use super::fitness::{POLICY, RETENTION, Role, Settings, check, copy_bytes_max, made_with, number};
use super::{settings, topic_names};
use crate::config::model::KafkaSource;
use crate::rules::ladder::Tier;

/// How long a request may take.
const REQUEST: Duration = Duration::from_secs(10);
/// How long a new topic may take until it has a leader.
const APPEARANCE: Duration = Duration::from_secs(10);
/// How long answers to a command are kept, if it does not end in order.
const REPLY_RETENTION: Duration = Duration::from_secs(3600);
/// A tier gives out what is due, and no more waits at hand than the first message of each partition.
const TIER_PARTITIONS_MAX: i32 = 3;
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// What a pool needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) topic: String,
    pub(crate) tiers: Vec<Tier>,
    pub(crate) dead: String,
}

/// What there is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// The cluster's id; empty if it has none.
    pub(crate) cluster: String,
    /// How many partitions the pool's topic has.
    pub(crate) partitions: usize,
    /// Every tier of the topic and the group, also those of an earlier policy: they may hold
    /// messages yet.
    pub(crate) tiers: BTreeMap<Tier, String>,
}

impl Found {
    /// With what was known before: a tier that others have made meanwhile, or that has no leader now,
    /// and what could not be told this time.
    pub(crate) fn with(mut self, before: Self) -> Self {
        for (tier, topic) in before.tiers {
            self.tiers.entry(tier).or_insert(topic);
        }
        if self.cluster.is_empty() {
            self.cluster = before.cluster;
        }
        self
    }
}

/// Asks about topics. A consumer's, for a producer's may have topics made that it asks about.
type Client = BaseConsumer<Context>;

/// Checks the topics, and makes those that are missing where `declare` is on.
pub(crate) async fn prepare(
    config: &KafkaSource,
    wanted: &Wanted,
    client: &Client,
) -> Result<Found, KafkaError> {
    let admin = admin(config)?;
    let roles = roles(config, wanted)?;
    let there = list(client)?;
    let missing: Vec<&(String, Role)> = roles
        .iter()
        .filter(|(name, _)| !there.contains_key(name))
        .collect();
    if !missing.is_empty() && !config.declare {
        let names = missing.iter().map(|(name, _)| name.clone()).collect();
        return Err(KafkaError::MissingTopics(names));
    }
    // The copies' size follows from that of the messages.
    let (main, beside): (Vec<_>, Vec<_>) = missing
        .into_iter()
        .partition(|(_, role)| *role == Role::Main);
    create(&admin, config, main, 0).await?;
    let known = describe(&admin, &[(wanted.topic.clone(), Role::Main)]).await?;
    let copy_bytes_max = copy_bytes_max(known.get(&wanted.topic));
    let created: BTreeSet<String> = beside.iter().map(|(name, _)| name.clone()).collect();
    create(&admin, config, beside, copy_bytes_max).await?;
    let old: Vec<(String, Role)> = roles
        .iter()
        .filter(|(name, role)| *role != Role::Main && !created.contains(name))
        .cloned()
        .collect();
    check(&describe(&admin, &old).await?, &old, config, copy_bytes_max)?;
    let there = appeared(client, &roles).await?;
    // Every answer about topics has it, so it is here; a cluster that did not tell it just now has none.
    let cluster = client.client().fetch_cluster_id(Duration::ZERO);
    Ok(Found {
        cluster: cluster.unwrap_or_default(),
        partitions: there.get(&wanted.topic).copied().unwrap_or(1),
        tiers: tiers(config, &wanted.topic, &there),
    })
}

/// Looks at the topics, and makes none. Returns what is missing and may not be made, and what is not
/// as it must be, a sentence each.
pub(crate) async fn look(
    config: &KafkaSource,
    wanted: &Wanted,
    client: &Client,
) -> Result<Vec<String>, KafkaError> {
    let roles = match roles(config, wanted) {
        Ok(roles) => roles,
        Err(error) => return Ok(vec![error.to_string()]),
    };
    let there = list(client)?;
    let (old, missing): (Vec<_>, Vec<_>) = roles
        .into_iter()
        .partition(|(name, _)| there.contains_key(name));
    let mut problems = Vec::new();
    if !missing.is_empty() && !config.declare {
        let names = missing.into_iter().map(|(name, _)| name).collect();
        problems.push(KafkaError::MissingTopics(names).to_string());
    }
    let admin = admin(config)?;
    let known = describe(&admin, &old).await?;
    let copy_bytes_max = copy_bytes_max(known.get(&wanted.topic));
    if let Err(error) = check(&known, &old, config, copy_bytes_max) {
        problems.push(error.to_string());
    }
    Ok(problems)
}

/// Makes a topic for answers to one command, and waits until it can be used.
pub(crate) async fn create_for_replies(
    config: &KafkaSource,
    topic: &str,
    client: &Client,
) -> Result<(), KafkaError> {
    let settings = [
        (POLICY, "delete".to_owned()),
        (RETENTION, REPLY_RETENTION.as_millis().to_string()),
    ];
    let topic_of_one = new_topic(topic, &settings, Some(1), config);
    create_all(&admin(config)?, &[topic_of_one]).await?;
    appeared(client, &[(topic.to_owned(), Role::Main)]).await?;
    Ok(())
}

/// Deletes a topic.
pub(crate) async fn delete(config: &KafkaSource, topic: &str) -> Result<(), KafkaError> {
    const WHAT: &str = "deleting a topic";
    let options = AdminOptions::new().request_timeout(Some(REQUEST));
    let results = admin(config)?.delete_topics(&[topic], &options).await;
    let results = results.map_err(|error| KafkaError::of_request(WHAT, &error))?;
    match results.into_iter().find_map(Result::err) {
        None => Ok(()),
        Some((_, code)) => Err(KafkaError::Failed {
            what: WHAT,
            why: words(code),
        }),
    }
}

/// How long a topic keeps its messages, below zero for as long as it is there. None if we may not
/// know.
pub(crate) async fn retention_ms(config: &KafkaSource, topic: &str) -> Option<i64> {
    let asked = [(topic.to_owned(), Role::Main)];
    let described = describe(&admin(config).ok()?, &asked).await.ok()?;
    let settings = described.get(topic)?;
    if settings.get(POLICY)?.contains("delete") {
        number(settings, RETENTION)
    } else {
        Some(-1)
    }
}

fn admin(config: &KafkaSource) -> Result<AdminClient<DefaultClientContext>, KafkaError> {
    settings::admin(config, "admin")
        .create()
        .map_err(KafkaError::of_client)
}

fn roles(config: &KafkaSource, wanted: &Wanted) -> Result<Vec<(String, Role)>, KafkaError> {
    let tier = |tier: &Tier| topic_names::tier_topic(&wanted.topic, &config.group, *tier);
    let mut roles = vec![(wanted.topic.clone(), Role::Main)];
    roles.extend(wanted.tiers.iter().map(|each| (tier(each), Role::Tier)));
    roles.push((wanted.dead.clone(), Role::Dead));
    for (name, _) in &roles {
        if let Some(rule) = topic_names::fault_in(name) {
            let name = name.clone();
            return Err(KafkaError::TopicName { name, rule });
        }
    }
    Ok(roles)
}

/// The tiers of a topic and the group that are there.
pub(crate) fn tiers(
    config: &KafkaSource,
    topic: &str,
    there: &BTreeMap<String, usize>,
) -> BTreeMap<Tier, String> {
    let tier = |name: &String| {
        let tier = topic_names::tier_of(name, topic, &config.group)?;
        Some((tier, name.clone()))
    };
    there.keys().filter_map(tier).collect()
}

/// Every topic that we may see and that has a leader, with its partitions.
pub(crate) fn list(client: &Client) -> Result<BTreeMap<String, usize>, KafkaError> {
    // Asked for by name, a missing topic might be made by the broker with settings of its own.
    let metadata = client
        .fetch_metadata(None, REQUEST)
        .map_err(|error| KafkaError::of_request("listing topics", &error))?;
    Ok(led(&metadata))
}

fn led(metadata: &Metadata) -> BTreeMap<String, usize> {
    let topics = metadata.topics().iter();
    topics
        .filter(|topic| topic.error().is_none() && !topic.partitions().is_empty())
        .map(|topic| (topic.name().to_owned(), topic.partitions().len()))
        .collect()
}

async fn appeared(
    client: &Client,
    roles: &[(String, Role)],
) -> Result<BTreeMap<String, usize>, KafkaError> {
    let deadline = Instant::now() + APPEARANCE;
    loop {
        let there = list(client)?;
        let late = roles.iter().find(|(name, _)| !there.contains_key(name));
        match late {
            None => return Ok(there),
            Some((topic, _)) if Instant::now() >= deadline => {
                return Err(KafkaError::NotCreated {
                    topic: topic.clone(),
                    why: format!("it has no leader after {APPEARANCE:?}"),
                });
            }
            Some(_) => sleep(LOOK_AGAIN).await,
        }
    }
}

async fn create(
    admin: &AdminClient<DefaultClientContext>,
    config: &KafkaSource,
    missing: Vec<&(String, Role)>,
    copy_bytes_max: usize,
) -> Result<(), KafkaError> {
    if missing.is_empty() {
        return Ok(());
    }
    let settings: Vec<Vec<(&str, String)>> = missing
        .iter()
        .map(|(_, role)| made_with(*role, config, copy_bytes_max))
        .collect();
    let topics: Vec<NewTopic<'_>> = missing
        .iter()
        .zip(&settings)
        .map(|((name, role), settings)| {
            new_topic(name, settings, partitions(*role, config), config)
        })
        .collect();
    create_all(admin, &topics).await
}

async fn create_all(
    admin: &AdminClient<DefaultClientContext>,
    topics: &[NewTopic<'_>],
) -> Result<(), KafkaError> {
    let options = AdminOptions::new()
        .request_timeout(Some(REQUEST))
        .operation_timeout(Some(REQUEST));
    let results = admin.create_topics(topics, &options).await;
    let results = results.map_err(|error| KafkaError::of_request("creating topics", &error))?;
    for result in results {
        match result {
            Ok(topic) => tracing::info!(topic, "topic created"),
            // Another daemon was faster.
            Err((_, Code::TopicAlreadyExists)) => {}
            Err((topic, code)) => {
                let why = words(code);
                return Err(KafkaError::NotCreated { topic, why });
            }
        }
    }
    Ok(())
}

fn new_topic<'a>(
    name: &'a str,
    settings: &'a [(&'a str, String)],
    partitions: Option<i32>,
    config: &KafkaSource,
) -> NewTopic<'a> {
    /// Of the broker's choosing.
    const DEFAULT: i32 = -1;
    let partitions = partitions.unwrap_or(DEFAULT);
    let replication = TopicReplication::Fixed(config.replication.unwrap_or(DEFAULT));
    let topic = NewTopic::new(name, partitions, replication);
    settings
        .iter()
        .fold(topic, |topic, (key, value)| topic.set(key, value))
}

/// How many partitions a topic gets; none for as many as the broker likes.
fn partitions(role: Role, config: &KafkaSource) -> Option<i32> {
    let tier = || {
        config
            .partitions
            .unwrap_or(TIER_PARTITIONS_MAX)
            .min(TIER_PARTITIONS_MAX)
    };
    match role {
        Role::Main | Role::Dead => config.partitions,
        Role::Tier => Some(tier()),
    }
}

/// The settings of topics. One whose settings we may not see is left out.
async fn describe(
    admin: &AdminClient<DefaultClientContext>,
    topics: &[(String, Role)],
) -> Result<BTreeMap<String, Settings>, KafkaError> {
    if topics.is_empty() {
        return Ok(BTreeMap::new());
    }
    let asked: Vec<ResourceSpecifier<'_>> = topics
        .iter()
        .map(|(name, _)| ResourceSpecifier::Topic(name))
        .collect();
    let options = AdminOptions::new().request_timeout(Some(REQUEST));
    let results = admin.describe_configs(&asked, &options).await;
    let results = results.map_err(|error| KafkaError::of_request("describing topics", &error))?;
    let mut described = BTreeMap::new();
    for ((name, _), result) in topics.iter().zip(results) {
        match result {
            Ok(resource) => {
                let entries = resource.entries.into_iter();
                let settings = entries.filter_map(|entry| Some((entry.name, entry.value?)));
                described.insert(name.clone(), settings.collect());
            }
            Err(code) => {
                let why = words(code);
                tracing::warn!(topic = name, why, "the topic's settings can't be checked");
            }
        }
    }
    Ok(described)
}

#[cfg(test)]
mod tests {
    use super::super::topic_names::LADDER;
    use super::*;

    #[test]
    fn what_was_known_before_is_not_forgotten() {
        let found = |cluster: &str, seconds: &[u64]| Found {
            cluster: cluster.to_owned(),
            partitions: seconds.len(),
            tiers: seconds
                .iter()
                .map(|seconds| {
                    (
                        LADDER.tier(Duration::from_secs(*seconds)),
                        seconds.to_string(),
                    )
                })
                .collect(),
        };
        let before = found("c", &[1, 64]);
        assert_eq!(found("c", &[1, 16]).with(before.clone()).tiers.len(), 3);
        let after = found("", &[1]).with(before);
        assert_eq!((after.cluster.as_str(), after.partitions), ("c", 1));
    }

    #[test]
    fn names_too_long_for_a_topic_are_refused() {
        let wanted = Wanted {
            topic: "t".repeat(240),
            tiers: vec![LADDER.tier(Duration::from_secs(60))],
            dead: "dead".to_owned(),
        };
        let error = roles(&settings::tests::source(&[]), &wanted).unwrap_err();
        let expected = "the name of a topic must be at most 249 bytes long: `ttt";
        assert!(error.to_string().starts_with(expected), "{error}");
    }
}
