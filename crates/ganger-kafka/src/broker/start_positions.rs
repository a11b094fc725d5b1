//! Start positions of newly assigned partitions: the group's committed offset while the log is still
//! the one that the commit refers to, otherwise one end of the log. Every function here blocks; all
//! partitions are queried at once.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use rdkafka::config::ClientConfig;
use rdkafka::consumer::Consumer as _;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::commit_metadata;
use super::commit_metadata::{Carried, PartitionSeed};
use super::consumer::{Native, TopicPartition};
use super::ends::{ANSWER_WITHIN, ends_of, leaders};
use super::error::KafkaError;
use super::fork::forks;
use super::settings::Reset;

/// Number of one assignment of a partition; never reused for another.
pub(crate) type Part = u32;

/// Parameters of the query for start positions.
#[derive(Debug, Clone)]
pub(crate) struct QueryContext {
    pub(crate) pool: String,
    /// Topics that are tiers, not the pool's own.
    pub(crate) tiers: BTreeSet<String>,
    /// Id of the cluster.
    pub(crate) cluster: String,
    pub(crate) reset: Reset,
    /// Properties of the client that checks whether a log is still the one that was read.
    pub(crate) looking: ClientConfig,
}

/// Start position of a partition.
#[derive(Debug)]
pub(crate) struct StartPosition {
    pub(crate) topic: String,
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    /// Metadata of the group's commit; none if the group has committed nothing that counts.
    pub(crate) committed: Option<String>,
    /// Decoded content of that metadata.
    pub(crate) carried: Carried,
}

/// Start positions of partitions.
#[derive(Debug, Default)]
pub(crate) struct StartPositions {
    pub(crate) begun: Vec<StartPosition>,
    /// Commits of the partitions in `begun`, with their leader epochs.
    pub(crate) commits: Option<TopicPartitionList>,
    /// Partitions whose start position cannot be determined now, with the reasons.
    pub(crate) unknown: Vec<(TopicPartition, String)>,
    /// Partitions that are not to be read, with the reasons.
    pub(crate) unread: Vec<(TopicPartition, String)>,
}

/// An assigned partition whose position no longer exists, and the offset up to which it was read.
#[derive(Debug, Clone)]
pub(crate) struct LogQuery {
    pub(crate) part: Part,
    pub(crate) name: TopicPartition,
    pub(crate) read_to: i64,
}

/// State of such a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogState {
    /// First offset, and one past the last.
    pub(crate) ends: (i64, i64),
    /// True if the group has committed an offset for it.
    pub(crate) is_committed: bool,
    /// Offset from which the log is no longer the one that was read.
    pub(crate) fork: Option<i64>,
}

impl LogState {
    /// Returns the state with its fork as the reader knows it. Deleting a topic deletes the group's commits
    /// too, so a topic whose commit no longer exists is another topic from its first message on.
    pub(crate) fn known_of(self, was_committed: bool) -> Self {
        let is_another = was_committed && !self.is_committed;
        Self {
            fork: is_another.then_some(self.ends.0).or(self.fork),
            ..self
        }
    }
}

/// Determines the start positions of partitions.
pub(crate) fn determine(
    native: &Native,
    partitions: &[TopicPartition],
    query_context: &QueryContext,
) -> Result<StartPositions, KafkaError> {
    let mut begins = StartPositions::default();
    let led = led(native, partitions, &mut begins)?;
    // A tier is read from its first message, whatever is set for the topic.
    let (tiers, main): (Vec<_>, Vec<_>) = led
        .into_iter()
        .partition(|(topic, _)| query_context.tiers.contains(topic));
    for (partitions, reset) in [(main, query_context.reset), (tiers, Reset::Earliest)] {
        if !partitions.is_empty() {
            begin_each(native, &partitions, reset, query_context, &mut begins)?;
        }
    }
    let begun = begins.begun.iter();
    let begun: Vec<TopicPartition> = begun
        .map(|begin| (begin.topic.clone(), begin.partition))
        .collect();
    if !begun.is_empty() {
        begins.commits = Some(committed(native, &begun)?);
    }
    Ok(begins)
}

/// Returns the partitions that have a leader. One query for several would wait for a partition that has none.
fn led(
    native: &Native,
    partitions: &[TopicPartition],
    begins: &mut StartPositions,
) -> Result<Vec<TopicPartition>, KafkaError> {
    let led = leaders(native, partitions)?;
    let (with, without): (Vec<_>, Vec<_>) = partitions
        .iter()
        .cloned()
        .partition(|partition| led.contains_key(partition));
    let without = without.into_iter();
    begins
        .unknown
        .extend(without.map(|partition| (partition, "it has no leader".to_owned())));
    Ok(with)
}

fn begin_each(
    native: &Native,
    partitions: &[TopicPartition],
    reset: Reset,
    query_context: &QueryContext,
    begins: &mut StartPositions,
) -> Result<(), KafkaError> {
    let commits = committed(native, partitions)?;
    let mut fresh = Vec::new();
    let mut resumed = Vec::new();
    for mut element in commits.elements() {
        let partition = (element.topic().to_owned(), element.partition());
        let Offset::Offset(offset) = element.offset() else {
            fresh.push(partition);
            // The group has committed nothing for it.
            drop(element.set_offset(Offset::End));
            continue;
        };
        // The library panics over text that is not UTF-8.
        let text = catch_unwind(AssertUnwindSafe(|| element.metadata().to_owned()));
        let text = text.unwrap_or_else(|_| "not UTF-8".to_owned());
        let begin = resume(partition, offset, text, query_context);
        drop(element.set_offset(Offset::Offset(begin.carried.end(offset))));
        resumed.push(begin);
    }
    begin_fresh(native, fresh, reset, begins);
    let looking = looking(&query_context.looking, reset);
    let mut forks = forks(native, &looking, &query_context.pool, &commits)?;
    for mut begin in resumed {
        let partition = (begin.topic.clone(), begin.partition);
        match forks.remove(&partition).unwrap_or(Ok(None)) {
            Ok(None) => begins.begun.push(begin),
            Ok(Some(fork)) if reset == Reset::Refuse => {
                let why = refusal(begin.offset, fork);
                begins.unread.push((partition, why));
            }
            Ok(Some(fork)) => {
                log_fork(
                    &query_context.pool,
                    &partition,
                    begin.carried.end(begin.offset),
                    fork,
                );
                begin.offset = begin.offset.min(fork);
                begin.carried.cut(fork);
                begin.committed = None;
                begins.begun.push(begin);
            }
            Err(why) => begins.unknown.push((partition, why)),
        }
    }
    Ok(())
}

fn resume(
    partition: TopicPartition,
    offset: i64,
    text: String,
    query_context: &QueryContext,
) -> StartPosition {
    let (topic, partition) = partition;
    let place = PartitionSeed::new(&query_context.cluster, &topic, partition);
    let carried = commit_metadata::decode(place, offset, &text).unwrap_or_else(|why| {
        tracing::warn!(
            pool = query_context.pool,
            topic,
            partition,
            offset,
            "metadata of the commit ignored: {why}; more messages may run twice"
        );
        Carried::default()
    });
    StartPosition {
        topic,
        partition,
        offset,
        committed: Some(text),
        carried,
    }
}

/// Logs that a log is no longer the one that was read.
pub(crate) fn log_fork(pool: &str, partition: &TopicPartition, read_to: i64, fork: i64) {
    let (topic, number) = partition;
    tracing::error!(
        pool,
        partition = format!("{topic}/{number}"),
        read_to,
        fork,
        "log has lost messages that were read (topic recreated, or unclean election); resuming \
         where it diverges"
    );
}

/// Returns the reason why a partition whose log has diverged is not read.
pub(crate) fn refusal(position: i64, fork: i64) -> String {
    format!(
        "the log was read to offset {position} and diverges from offset {fork} on, and \
         auto.offset.reset is `error`"
    )
}

fn begin_fresh(
    native: &Native,
    partitions: Vec<TopicPartition>,
    reset: Reset,
    begins: &mut StartPositions,
) {
    if reset == Reset::Refuse {
        let why = "nothing is committed for it, and auto.offset.reset is `error`";
        let unread = partitions.into_iter();
        begins
            .unread
            .extend(unread.map(|partition| (partition, why.to_owned())));
        return;
    }
    if partitions.is_empty() {
        return;
    }
    let end = if reset == Reset::Latest {
        Offset::End
    } else {
        Offset::Beginning
    };
    for (partition, end) in ends_of(native, &partitions, end) {
        match end {
            Ok(offset) => begins.begun.push(StartPosition {
                topic: partition.0,
                partition: partition.1,
                offset,
                committed: None,
                carried: Carried::default(),
            }),
            Err(why) => begins.unknown.push((partition, why)),
        }
    }
}

/// Returns the group's commits, with their leader epochs. The caller must know that the library panics
/// over metadata that is not UTF-8.
fn committed(
    native: &Native,
    partitions: &[TopicPartition],
) -> Result<TopicPartitionList, KafkaError> {
    const ACTION: &str = "reading the group's commits";
    let mut list = TopicPartitionList::with_capacity(partitions.len());
    for (topic, partition) in partitions {
        list.add_partition(topic, *partition);
    }
    let commits = native
        .committed_offsets(list, ANSWER_WITHIN)
        .map_err(|error| KafkaError::of_request(ACTION, &error))?;
    for element in commits.elements() {
        let fault = element.error();
        fault.map_err(|error| KafkaError::of_request(ACTION, &error))?;
    }
    Ok(commits)
}

/// Returns the state of each of these partitions. One client checks all that are read alike, however many
/// there are.
pub(crate) fn log_states(
    native: &Native,
    asked: &[LogQuery],
    query_context: &QueryContext,
) -> Vec<(Part, Result<LogState, String>)> {
    let (tiers, main): (Vec<_>, Vec<_>) = asked
        .iter()
        .cloned()
        .partition(|asked| query_context.tiers.contains(&asked.name.0));
    let mut all = Vec::with_capacity(asked.len());
    for (asked, reset) in [(main, query_context.reset), (tiers, Reset::Earliest)] {
        if asked.is_empty() {
            continue;
        }
        let mut told = log_states_alike(native, &asked, reset, query_context);
        for LogQuery { part, name, .. } in asked {
            let state = match &mut told {
                Ok(told) => told
                    .remove(&name)
                    .unwrap_or(Err("the broker did not report it".to_owned())),
                Err(error) => Err(error.to_string()),
            };
            all.push((part, state));
        }
    }
    all
}

fn log_states_alike(
    native: &Native,
    asked: &[LogQuery],
    reset: Reset,
    query_context: &QueryContext,
) -> Result<HashMap<TopicPartition, Result<LogState, String>>, KafkaError> {
    let names: Vec<TopicPartition> = asked.iter().map(|asked| asked.name.clone()).collect();
    let read_to: HashMap<&TopicPartition, i64> = asked
        .iter()
        .map(|asked| (&asked.name, asked.read_to))
        .collect();
    let mut firsts = ends_of(native, &names, Offset::Beginning);
    let mut ends = ends_of(native, &names, Offset::End);
    let commits = committed(native, &names)?;
    let mut with_commits = HashSet::new();
    for mut element in commits.elements() {
        let name = (element.topic().to_owned(), element.partition());
        let to = read_to.get(&name).copied().unwrap_or_default();
        if matches!(element.offset(), Offset::Offset(_)) {
            with_commits.insert(name);
        }
        drop(element.set_offset(Offset::Offset(to)));
    }
    let looking = looking(&query_context.looking, reset);
    let mut forks = forks(native, &looking, &query_context.pool, &commits)?;
    let unasked = || Err("it was not queried".to_owned());
    let mut stand = |name: &TopicPartition| {
        Ok(LogState {
            ends: (
                firsts.remove(name).unwrap_or_else(unasked)?,
                ends.remove(name).unwrap_or_else(unasked)?,
            ),
            is_committed: with_commits.contains(name),
            fork: forks.remove(name).unwrap_or(Ok(None))?,
        })
    };
    let told = names.iter().map(|name| (name.clone(), stand(name)));
    Ok(told.collect())
}

/// Returns the properties of the client that checks logs, with the start position for a log that no longer
/// holds any part that was read.
fn looking(properties: &ClientConfig, reset: Reset) -> ClientConfig {
    let mut properties = properties.clone();
    let reset = match reset {
        Reset::Latest => "latest",
        Reset::Earliest | Reset::Refuse => "earliest",
    };
    properties.set("auto.offset.reset", reset);
    properties
}
