//! Client of the command line: it joins no group and changes no commit. Every call blocks until it is
//! done.

mod dead;
mod dead_letter_index;
mod fetched_records;
mod reader;
mod replies;
mod send;
mod waiting;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use tokio::runtime::{Builder, Runtime};

use crate::broker::command_error::CommandError;
use crate::broker::consumer::Consumer;
use crate::broker::error::KafkaError;
use crate::broker::headers::Raw;
use crate::broker::record::Outbound;
use crate::broker::setup::Setup;
use crate::broker::topic_names::LADDER;
use crate::broker::{headers, setup, topic_names, topics};
use ganger_config::model::{KafkaSource, Options, PoolConfig};
use ganger_queue::client::{
    DeadChange, DeadFilter, Depth, Each, Listed, Pace, Page, Partial, Reply, RetryTarget,
    WaitingList,
};
use ganger_queue::dead_letter::header;
use ganger_queue::delivery::Outgoing;
use ganger_queue::fault::SourceFault;
use ganger_queue::ladder::Tier;
use reader::{Reader, Span};
use replies::Replies;
use send::CommandProducer;

/// Timeout for reaching a broker.
const PATIENCE: Duration = Duration::from_secs(10);

/// Connection of an operator or a producer.
pub(crate) struct KafkaClient {
    config: KafkaSource,
    /// Pools that read from this source.
    pools: Vec<Arc<PoolConfig>>,
    /// Runtime that waits for the library's own threads.
    runtime: Runtime,
    /// Client for queries about topics.
    probe: Consumer,
    producer: Option<CommandProducer>,
    replies: Option<Replies>,
    /// Existing topics and their numbers of partitions, as last listed.
    topics: BTreeMap<String, usize>,
    /// Retention of topics, as far as it was queried and is known.
    retentions: BTreeMap<String, Option<i64>>,
}

impl fmt::Debug for KafkaClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaClient").finish_non_exhaustive()
    }
}

impl KafkaClient {
    /// Connects the client.
    pub(crate) fn open(
        config: &KafkaSource,
        pools: &[Arc<PoolConfig>],
    ) -> Result<Self, KafkaError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime =
            runtime.map_err(|error| KafkaError::Client(format!("no event loop: {error}")))?;
        let probe = Consumer::new(&reader::properties(config), "command", Arc::default())?;
        setup::reach(&probe, &mut None, PATIENCE)?;
        let topics = topics::list(probe.native())?;
        Ok(Self {
            config: config.clone(),
            pools: pools.to_vec(),
            runtime,
            probe,
            producer: None,
            replies: None,
            topics,
            retentions: BTreeMap::new(),
        })
    }

    /// Returns the record to send, once the topic is known to exist: a topic that a pool reads may be created
    /// as the pool would.
    fn outbound(&mut self, message: &Outgoing) -> Result<Outbound, KafkaError> {
        let topic = &message.queue;
        let reading = self.pools.iter().find(|pool| names(pool, topic));
        if !self.topics.contains_key(topic) {
            match reading {
                Some(pool) if self.config.declare => {
                    let mut setup = Setup::new(&self.config, pool)?;
                    self.runtime.block_on(setup.prepare(PATIENCE))?;
                    self.topics = topics::list(self.probe.native())?;
                }
                // The name of a topic that no pool reads may be a typing error, so it is not created.
                _ => {
                    let topic = topic.clone();
                    return Err(CommandError::NoTopic { topic }.into());
                }
            }
        }
        let mut outbound = Outbound {
            topic: topic.clone(),
            key: message.key.clone().map(Bytes::from),
            value: Some(message.body.clone()),
            headers: headers::outgoing(message, &Raw::new()),
            timestamp_ms: None,
            compressed: false,
        };
        if !message.delay.is_zero() {
            let tiers = self.tiers(topic);
            let now_ms = Timestamp::now().as_millisecond();
            outbound = delayed(outbound, message.delay, &tiers, now_ms)?;
        }
        Ok(outbound)
    }

    /// Returns the tiers of a topic and the group.
    fn tiers(&self, topic: &str) -> BTreeMap<Tier, String> {
        let tiers = self.topics.keys().filter_map(|name| {
            let (of, tier) = topic_names::tier_of(name, &self.config.group)?;
            (of == topic).then(|| (tier, name.clone()))
        });
        tiers.collect()
    }

    /// Sends all records and waits until the brokers have reported the outcome of each.
    fn send_records(&mut self, records: Vec<Outbound>) -> Result<send::SendResults, KafkaError> {
        let mut producer = match self.producer.take() {
            Some(producer) => producer,
            None => CommandProducer::open(&self.config)?,
        };
        let sent = producer.send(&self.runtime, records);
        if sent.stalled.is_none() {
            self.producer = Some(producer);
        }
        Ok(sent)
    }

    /// Returns the lag of the group in one topic.
    fn lag(&self, reader: &Reader, topic: &str) -> Result<u64, KafkaError> {
        let Some(partitions) = self.topics.get(topic) else {
            return Ok(0);
        };
        let open = self.uncommitted(reader, topic, *partitions)?;
        let open = open.values();
        Ok(open.map(|span| span.end.abs_diff(span.from)).sum())
    }

    /// Returns the ranges of a topic that the group has not committed; empty ones are left out.
    fn uncommitted(
        &self,
        reader: &Reader,
        topic: &str,
        partitions: usize,
    ) -> Result<BTreeMap<i32, Span>, KafkaError> {
        let mut spans = reader.spans(topic, partitions)?;
        let committed = reader.committed(topic, &spans)?;
        spans.retain(|partition, span| {
            let done = committed.get(partition).copied();
            span.from = span.from.max(done.unwrap_or(span.from));
            span.from < span.end
        });
        Ok(spans)
    }
}

/// Returns whether the pool reads a topic even if it does not exist.
fn names(pool: &PoolConfig, topic: &str) -> bool {
    match &pool.options {
        Options::Kafka(options) => options.topics.names().iter().any(|name| name == topic),
        Options::Table | Options::RabbitMq(_) => false,
    }
}

/// Returns the message as stored in a tier of the group: the shortest that is no shorter than its
/// delay.
fn delayed(
    message: Outbound,
    delay: Duration,
    tiers: &BTreeMap<Tier, String>,
    now_ms: i64,
) -> Result<Outbound, CommandError> {
    let Some((_, tier)) = tiers.range(LADDER.tier(delay)..).next() else {
        let topic = message.topic;
        return Err(CommandError::NoTier { topic, delay });
    };
    let due_ms = now_ms.saturating_add(i64::try_from(delay.as_millis()).unwrap_or(i64::MAX));
    let mut headers = message.headers;
    headers.extend(headers::own(vec![
        (header::QUEUE, message.topic),
        (headers::TIMESTAMP, now_ms.to_string()),
        (headers::DUE, due_ms.to_string()),
    ]));
    Ok(Outbound {
        topic: tier.clone(),
        headers,
        ..message
    })
}

impl ganger_queue::client::QueueClient for KafkaClient {
    fn check(&mut self) -> Result<Vec<String>, SourceFault> {
        let mut problems = Vec::new();
        for pool in &self.pools {
            let wanted = Setup::new(&self.config, pool)?.plan.wanted;
            let look = topics::find_problems(&self.config, &wanted, self.probe.native());
            problems.extend(self.runtime.block_on(look)?);
        }
        problems.sort();
        problems.dedup();
        Ok(problems)
    }

    fn send(&mut self, messages: &[Outgoing]) -> Result<(), Partial> {
        let records = messages.iter().map(|message| self.outbound(message));
        let records: Vec<Outbound> = records.collect::<Result<_, KafkaError>>()?;
        let topics: Vec<String> = records.iter().map(|record| record.topic.clone()).collect();
        let sent = self.send_records(records)?;
        let done = sent.confirmed();
        match sent.first_error(|index| topics[index].clone()) {
            None => Ok(()),
            Some(error) => Err(Partial {
                done,
                fault: error.into(),
            }),
        }
    }

    fn depth(&mut self, queue: &str) -> Result<Depth, SourceFault> {
        self.topics = topics::list(self.probe.native())?;
        let reader = Reader::open(&self.config)?;
        let tiers = self.tiers(queue);
        let mut delayed = 0;
        for tier in tiers.values() {
            delayed += self.lag(&reader, tier)?;
        }
        Ok(Depth {
            ready: self.lag(&reader, queue)?,
            delayed,
            claimed: 0,
        })
    }

    fn waiting_list(&mut self, queue: &str, limit: usize) -> Result<WaitingList, SourceFault> {
        self.topics = topics::list(self.probe.native())?;
        let Some(partitions) = self.topics.get(queue) else {
            let topic = queue.to_owned();
            return Err(KafkaError::from(CommandError::NoTopic { topic }).into());
        };
        let reader = Reader::open(&self.config)?;
        let open = self.uncommitted(&reader, queue, *partitions)?;
        Ok(waiting::list(&reader, queue, &open, limit)?)
    }

    fn reply_to(&mut self, unique: &str) -> Result<String, SourceFault> {
        let replies = match self.replies.take() {
            Some(replies) => replies,
            None => Replies::open(&self.config, &self.runtime, unique)?,
        };
        Ok(self.replies.insert(replies).topic().to_owned())
    }

    fn take_reply(
        &mut self,
        _queue: &str,
        correlation_id: &str,
    ) -> Result<Option<Reply>, SourceFault> {
        match &mut self.replies {
            Some(replies) => Ok(replies.take(correlation_id)?),
            None => Ok(None),
        }
    }

    fn wait_for_change(&mut self, timeout: Duration) {
        if let Some(replies) = &mut self.replies {
            replies.wait(timeout);
        }
    }

    fn dead_list(&mut self, page: &Page, each: &mut Each<'_>) -> Result<Listed, SourceFault> {
        Ok(self.list(page, each)?)
    }

    fn dead_retry(&mut self, filter: &DeadFilter, target: &RetryTarget) -> Result<usize, Partial> {
        self.retry(filter, target)
    }

    fn dead_drop(&mut self, filter: &DeadFilter) -> Result<usize, Partial> {
        self.drop_selected(filter)
    }

    fn dead_change(
        &mut self,
        filter: &DeadFilter,
        change: DeadChange,
        pace: &mut Pace<'_>,
    ) -> Result<(), Partial> {
        self.change_in_steps(filter, change, pace)
    }
}

impl Drop for KafkaClient {
    fn drop(&mut self) {
        if let Some(replies) = self.replies.take() {
            replies.remove(&self.runtime);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delayed_message_waits_in_the_shortest_tier_that_is_there() {
        let topic = |seconds| {
            let tier = LADDER.tier(Duration::from_secs(seconds));
            (tier, topic_names::tier_topic("orders", "billing", tier))
        };
        let tiers: BTreeMap<Tier, String> = [topic(16), topic(64)].into();
        let message = Outbound {
            topic: "orders".into(),
            ..Outbound::default()
        };
        let sent = delayed(message.clone(), Duration::from_secs(5), &tiers, 1000).unwrap();
        assert_eq!(sent.topic, "orders.billing.retry.16s");
        assert_eq!(headers::number(&sent.headers, headers::DUE), Some(6000));
        let sent = delayed(message.clone(), Duration::from_secs(33), &tiers, 0).unwrap();
        assert_eq!(sent.topic, "orders.billing.retry.64s");
        let error = delayed(message, Duration::from_secs(65), &tiers, 0).unwrap_err();
        assert!(error.to_string().contains("delay of 65s"), "{error}");
    }
}
