//! Topics that a pool reads, and those beside them: checks whether they exist and meet the
//! requirements, and creates missing ones. All missing or unfit topics are reported at once.

use std::collections::BTreeMap;
use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::RDKafkaErrorCode as Code;
use rdkafka::metadata::Metadata;
use tokio::time::{Instant, sleep};

use super::consumer::Context;
use super::error::{KafkaError, words};
use super::fitness::{Described, Needed, POLICY, RETENTION, Role, check, made_with, number};
use super::settings;
use super::topic_requirements::{
    ExistingTopics, Found, TopicRequirements, names, roles, split, tiers,
};
use ganger_config::model::KafkaSource;

/// Timeout of a request.
const REQUEST: Duration = Duration::from_secs(10);
/// Time that a new topic may take to get a leader.
const APPEARANCE: Duration = Duration::from_secs(10);
/// Retention of the answers to a command that does not end normally.
const REPLY_RETENTION: Duration = Duration::from_secs(3600);
/// A tier only delivers what is due, and keeps just the first message of each partition in memory.
const TIER_PARTITIONS_MAX: i32 = 3;
const RECHECK_AFTER: Duration = Duration::from_millis(50);

/// Client that queries topics. It is a consumer's, since a producer's query may create the topic.
type Client = BaseConsumer<Context>;

/// Checks the topics, and creates missing ones if `declare` is on.
pub(crate) async fn prepare(
    config: &KafkaSource,
    wanted: &TopicRequirements,
    client: &Client,
) -> Result<Found, KafkaError> {
    let admin = admin(config)?;
    let there = list(client)?;
    let roles = roles(config, wanted, &there)?;
    let (old, missing) = split(roles.clone(), &there);
    if !missing.is_empty() && !config.declare {
        return Err(KafkaError::MissingTopics(names(missing)));
    }
    // The size of the copies depends on that of the messages.
    let (main, beside): (Vec<Needed>, Vec<Needed>) = missing
        .into_iter()
        .partition(|needed| needed.role == Role::Main);
    create(&admin, config, &main, &Described::new()).await?;
    let mains = roles.iter().filter(|needed| needed.role == Role::Main);
    let mut known = describe(&admin, mains.cloned().collect()).await?;
    create(&admin, config, &beside, &known).await?;
    let (_, old): (Vec<Needed>, Vec<Needed>) = old
        .into_iter()
        .partition(|needed| needed.role == Role::Main);
    known.extend(describe(&admin, old.clone()).await?);
    check(&known, &old, config)?;
    let there = appeared(client, &names(roles)).await?;
    // Every metadata answer contains it, so it is cached; a cluster that did not report it just now has none.
    let cluster = client.client().fetch_cluster_id(Duration::ZERO);
    let topics = wanted.topics.among(there.keys()).into_iter();
    Ok(Found {
        cluster: cluster.unwrap_or_default(),
        topics: topics
            .map(|topic| {
                let partitions = there.get(&topic).copied().unwrap_or(1);
                (topic, partitions)
            })
            .collect(),
        tiers: tiers(config, &wanted.topics, there.keys()),
    })
}

/// Checks the topics and creates none. Returns the missing topics that may not be created, and those that do
/// not meet the requirements, a sentence each.
pub(crate) async fn find_problems(
    config: &KafkaSource,
    wanted: &TopicRequirements,
    client: &Client,
) -> Result<Vec<String>, KafkaError> {
    let there = list(client)?;
    let roles = match roles(config, wanted, &there) {
        Ok(roles) => roles,
        Err(error) => return Ok(vec![error.to_string()]),
    };
    let (old, missing) = split(roles, &there);
    let mut problems = Vec::new();
    if !missing.is_empty() && !config.declare {
        problems.push(KafkaError::MissingTopics(names(missing)).to_string());
    }
    let admin = admin(config)?;
    let known = describe(&admin, old.clone()).await?;
    if let Err(error) = check(&known, &old, config) {
        problems.push(error.to_string());
    }
    Ok(problems)
}

/// Creates a topic for answers to one command, and waits until it is usable.
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
    appeared(client, &[topic.to_owned()]).await?;
    Ok(())
}

/// Deletes a topic.
pub(crate) async fn delete(config: &KafkaSource, topic: &str) -> Result<(), KafkaError> {
    const ACTION: &str = "deleting a topic";
    let options = AdminOptions::new().request_timeout(Some(REQUEST));
    let results = admin(config)?.delete_topics(&[topic], &options).await;
    let results = results.map_err(|error| KafkaError::of_request(ACTION, &error))?;
    match results.into_iter().find_map(Result::err) {
        None => Ok(()),
        Some((_, code)) => Err(KafkaError::Failed {
            action: ACTION,
            why: words(code),
        }),
    }
}

/// Returns how long a topic retains its messages; below zero for no limit. None if access is denied.
pub(crate) async fn retention_ms(config: &KafkaSource, topic: &str) -> Option<i64> {
    let asked = vec![Needed::main(topic)];
    let described = describe(&admin(config).ok()?, asked).await.ok()?;
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

/// Returns every visible topic that has a leader, with its number of partitions.
pub(crate) fn list(client: &Client) -> Result<BTreeMap<String, usize>, KafkaError> {
    Ok(led(&metadata(client)?))
}

/// Returns the existing topics among those that a pool reads.
pub(crate) fn existing(
    config: &KafkaSource,
    wanted: &TopicRequirements,
    client: &Client,
) -> Result<ExistingTopics, KafkaError> {
    let metadata = metadata(client)?;
    let all = metadata.topics().iter().map(|topic| topic.name());
    Ok(ExistingTopics {
        topics: all
            .filter(|name| wanted.topics.include(name))
            .map(str::to_owned)
            .collect(),
        tiers: tiers(config, &wanted.topics, led(&metadata).keys()),
    })
}

fn metadata(client: &Client) -> Result<Metadata, KafkaError> {
    // If queried by name, a missing topic might be created by the broker with settings of its own.
    let metadata = client.fetch_metadata(None, REQUEST);
    metadata.map_err(|error| KafkaError::of_request("listing topics", &error))
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
    names: &[String],
) -> Result<BTreeMap<String, usize>, KafkaError> {
    let deadline = Instant::now() + APPEARANCE;
    loop {
        let there = list(client)?;
        let late = names.iter().find(|name| !there.contains_key(*name));
        match late {
            None => return Ok(there),
            Some(topic) if Instant::now() >= deadline => {
                return Err(KafkaError::NotCreated {
                    topic: topic.clone(),
                    why: format!("it has no leader after {APPEARANCE:?}"),
                });
            }
            Some(_) => sleep(RECHECK_AFTER).await,
        }
    }
}

async fn create(
    admin: &AdminClient<DefaultClientContext>,
    config: &KafkaSource,
    missing: &[Needed],
    known: &Described,
) -> Result<(), KafkaError> {
    if missing.is_empty() {
        return Ok(());
    }
    let settings: Vec<Vec<(&str, String)>> = missing
        .iter()
        .map(|needed| made_with(needed, config, known))
        .collect();
    let topics: Vec<NewTopic<'_>> = missing
        .iter()
        .zip(&settings)
        .map(|(needed, settings)| {
            let partitions = partitions(needed.role, config);
            new_topic(&needed.name, settings, partitions, config)
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
            // Another daemon has created it first.
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
    /// Value for the broker's default.
    const DEFAULT: i32 = -1;
    let partitions = partitions.unwrap_or(DEFAULT);
    let replication = TopicReplication::Fixed(config.replication.unwrap_or(DEFAULT));
    let topic = NewTopic::new(name, partitions, replication);
    settings
        .iter()
        .fold(topic, |topic, (key, value)| topic.set(key, value))
}

/// Returns the number of partitions of a new topic; none for the broker's default.
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

/// Returns the settings of topics. A topic whose settings may not be read is left out.
async fn describe(
    admin: &AdminClient<DefaultClientContext>,
    topics: Vec<Needed>,
) -> Result<Described, KafkaError> {
    if topics.is_empty() {
        return Ok(Described::new());
    }
    let asked: Vec<ResourceSpecifier<'_>> = topics
        .iter()
        .map(|topic| ResourceSpecifier::Topic(&topic.name))
        .collect();
    let options = AdminOptions::new().request_timeout(Some(REQUEST));
    let results = admin.describe_configs(&asked, &options).await;
    let results = results.map_err(|error| KafkaError::of_request("describing topics", &error))?;
    let mut described = Described::new();
    for (topic, result) in topics.into_iter().zip(results) {
        match result {
            Ok(resource) => {
                let entries = resource.entries.into_iter();
                let settings = entries.filter_map(|entry| Some((entry.name, entry.value?)));
                described.insert(topic.name, settings.collect());
            }
            Err(code) => {
                let why = words(code);
                tracing::warn!(
                    topic = topic.name,
                    why,
                    "the topic's settings can't be checked"
                );
            }
        }
    }
    Ok(described)
}
