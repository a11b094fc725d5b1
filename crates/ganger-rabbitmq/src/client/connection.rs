//! Actions over the connection of a command: checking queues, sending, waiting for replies. Actions
//! on dead letters are in `dead.rs`.

use std::collections::{BTreeSet, HashMap};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use lapin::BasicProperties;
use lapin::types::ShortString;
use tokio::time::timeout;

use super::replies;
use super::replies::Replies;
use crate::broker::command_error::CommandError;
use crate::broker::connect::{Broker, connect};
use crate::broker::error::RabbitMqError;
use crate::broker::publisher::{OutboundMessage, Publisher, Verdict};
use crate::broker::republish::{Marks, Original, check_size, fitting, published};
use crate::broker::signature::CopyKey;
use crate::broker::topology;
use crate::broker::topology::{QueueSpec, Topology};
use crate::rules::tiers;
use ganger_config::model::{PoolConfig, RabbitMqSource};
use ganger_queue::client::{Depth, Partial, Reply, SourceWarning};
use ganger_queue::delivery::Outgoing;

/// Time without any confirm after which a command gives up.
const CONFIRM_WITHIN: Duration = Duration::from_secs(60);
/// The same timeout before any change depends on it.
const PROBE_WITHIN: Duration = Duration::from_secs(10);

/// A connection, and everything opened over it.
#[derive(Debug)]
pub(super) struct CommandConnection {
    pub(super) config: RabbitMqSource,
    /// Key by which copies are recognised.
    pub(super) key: CopyKey,
    /// Pools that read from this source.
    pub(super) pools: Vec<Arc<PoolConfig>>,
    pub(super) broker: Rc<Broker>,
    publisher: Option<Publisher>,
    replies: Option<Replies>,
    /// Queues that are known to exist, and so are not checked again.
    known_queues: BTreeSet<String>,
}

impl CommandConnection {
    /// Connects.
    pub(super) async fn open(
        config: RabbitMqSource,
        pools: Vec<Arc<PoolConfig>>,
    ) -> Result<Self, RabbitMqError> {
        let name = format!("{} command", config.connection_name);
        let broker = Rc::new(connect(&config, &name).await?);
        Ok(Self {
            key: CopyKey::of(&config),
            config,
            pools,
            broker,
            publisher: None,
            replies: None,
            known_queues: BTreeSet::new(),
        })
    }

    /// Closes the connection in an orderly way.
    pub(super) async fn close(self) {
        // They hold references to it.
        drop((self.publisher, self.replies));
        if let Some(broker) = Rc::into_inner(self.broker) {
            broker.close().await;
        }
    }

    /// Returns the missing queues of the pools, and those that do not match the configuration.
    pub(super) async fn check(&mut self) -> Result<Vec<String>, RabbitMqError> {
        let mut problems = BTreeSet::new();
        for pool in &self.pools {
            let topology = Topology::of(pool);
            let found = topology
                .find_problems(&self.broker, self.config.declare)
                .await?;
            problems.extend(found.iter().map(ToString::to_string));
        }
        Ok(problems.into_iter().collect())
    }

    /// Warnings of the pools' queues that may be deleted with their messages.
    pub(super) async fn warnings(&mut self) -> Result<Vec<SourceWarning>, RabbitMqError> {
        let mut warnings = Vec::new();
        for pool in &self.pools {
            let found = Topology::of(pool).short_lived(&self.broker).await?;
            warnings.extend(found.iter().map(|one| SourceWarning {
                pool: pool.name.clone(),
                message: one.to_string(),
                help: "use a queue that lasts: durable, without auto-delete and `x-expires`",
            }));
        }
        Ok(warnings)
    }

    /// Counts the messages in a queue and in its tiers. AMQP does not report the number of unacknowledged
    /// ones.
    pub(super) async fn depth(&mut self, queue: &str) -> Result<Depth, RabbitMqError> {
        let reading = self.pools.iter().find(|pool| *pool.queue == *queue);
        let longest = reading.map(|pool| pool.retry.backoff.max);
        let tiers = longest.into_iter().flat_map(|longest| {
            let tiers = tiers::tiers(longest).into_iter();
            tiers.chain(tiers::former_tiers(longest))
        });
        let places = tiers.map(|tier| tiers::tier_queue(queue, tier));
        let delayed = topology::count_all(&self.broker, places).await?;
        Ok(Depth {
            ready: topology::count(&self.broker, queue).await?.unwrap_or(0),
            delayed,
            claimed: 0,
        })
    }

    /// Sends all messages, and waits until the broker has answered for each.
    pub(super) async fn send(&mut self, messages: &[Outgoing]) -> Result<(), Partial> {
        let mut parcels = Vec::with_capacity(messages.len());
        for message in messages {
            self.ensure_queue(message).await?;
            parcels.push(self.parcel(message)?);
        }
        let mut open: HashMap<u64, Rc<OutboundMessage>> = HashMap::with_capacity(parcels.len());
        let publisher = self.publisher().await?;
        for parcel in parcels {
            let parcel = Rc::new(parcel);
            open.insert(publisher.send(Rc::clone(&parcel)), parcel);
        }
        let mut sent = Partial {
            done: 0,
            fault: RabbitMqError::from(CommandError::Unconfirmed {
                within: CONFIRM_WITHIN,
            })
            .into(),
        };
        let mut failed = false;
        while !open.is_empty() {
            let verdicts = self.verdicts().await;
            let verdicts = verdicts.map_err(|error| Partial {
                done: sent.done,
                fault: error.into(),
            })?;
            for (id, verdict) in verdicts {
                let parcel = open.remove(&id);
                match parcel.and_then(|parcel| refusal(&parcel, verdict)) {
                    None => sent.done += 1,
                    Some(error) if !failed => {
                        failed = true;
                        sent.fault = RabbitMqError::from(error).into();
                    }
                    Some(_) => {}
                }
            }
        }
        if failed { Err(sent) } else { Ok(()) }
    }

    /// Ensures that the queue of a message exists: a queue that a pool reads may be declared as the pool
    /// would.
    async fn ensure_queue(&mut self, message: &Outgoing) -> Result<(), RabbitMqError> {
        // Which queues an exchange has is known to the broker alone: it returns what it can't route.
        if message.exchange.is_some() || message.queue.starts_with(replies::DIRECT) {
            return Ok(());
        }
        let declare = self.config.declare;
        if !self.known_queues.contains(&message.queue) {
            let queue = &message.queue;
            match self.pools.iter().find(|pool| *pool.queue == **queue) {
                Some(pool) if declare => Topology::of(pool).check(&self.broker, true).await?,
                // A queue that no pool reads may be a typing error, so it is not declared.
                _ if topology::count(&self.broker, queue).await?.is_none() => {
                    let queue = queue.clone();
                    return Err(CommandError::NoQueue { queue }.into());
                }
                _ => {}
            }
            self.known_queues.insert(message.queue.clone());
        }
        if !message.delay.is_zero() {
            let tier = tiers::tier(message.delay);
            let spec = QueueSpec::tier(&message.queue, tier);
            if !self.known_queues.contains(&spec.name) {
                topology::ensure(&self.broker, [&spec], declare).await?;
                self.known_queues.insert(spec.name);
            }
        }
        Ok(())
    }

    fn parcel(&self, message: &Outgoing) -> Result<OutboundMessage, RabbitMqError> {
        let fail = |why| CommandError::Message {
            queue: message.queue.clone(),
            why,
        };
        let (to, properties) = addressed(message, &self.key).map_err(fail)?;
        check_size(&properties, self.frame_max()).map_err(fail)?;
        let exchange = message.exchange.as_deref().unwrap_or_default();
        Ok(OutboundMessage {
            exchange: fitting("exchange's name", exchange).map_err(fail)?,
            to: fitting("queue's name", &to).map_err(fail)?,
            mandatory: !to.starts_with(replies::DIRECT),
            properties,
            body: message.body.clone(),
        })
    }

    pub(super) fn frame_max(&self) -> u32 {
        self.broker.connection().configuration().frame_max()
    }

    /// The publisher and its channel.
    pub(super) async fn publisher(&mut self) -> Result<&mut Publisher, RabbitMqError> {
        let publisher = match self.publisher.take() {
            Some(publisher) => publisher,
            None => Publisher::over(Rc::clone(&self.broker)).await?,
        };
        Ok(self.publisher.insert(publisher))
    }

    /// Drops the publisher, so that it sends nothing more once its request has failed. The channel for
    /// replies is dropped with it.
    pub(super) fn drop_publisher(&mut self) {
        drop((self.publisher.take(), self.replies.take()));
    }

    /// Waits for the broker's verdicts on some of the published messages.
    pub(super) async fn verdicts(&mut self) -> Result<Vec<(u64, Verdict)>, RabbitMqError> {
        self.verdicts_within(CONFIRM_WITHIN).await
    }

    async fn verdicts_within(
        &mut self,
        within: Duration,
    ) -> Result<Vec<(u64, Verdict)>, RabbitMqError> {
        let publisher = self.publisher().await?;
        let news = poll_fn(|cx| publisher.poll_news(cx));
        match timeout(within, news).await {
            Ok(news) => Ok(news?.verdicts),
            Err(_) => Err(CommandError::Unconfirmed { within }.into()),
        }
    }

    /// Checks that the broker accepts publishes, and that this user may publish, with messages that are not
    /// stored, or into a `place` that is about to be deleted.
    pub(super) async fn can_publish(&mut self, place: ShortString) -> Result<(), RabbitMqError> {
        let parcel = Rc::new(OutboundMessage {
            exchange: ShortString::default(),
            to: place,
            mandatory: false,
            properties: BasicProperties::default(),
            body: Bytes::new(),
        });
        // A broker that is low on memory or disk accepts the first message of a connection, and then reads
        // nothing more of it.
        for _ in 0..2 {
            let id = self.publisher().await?.send(Rc::clone(&parcel));
            let verdict = self.verdict(id).await?;
            if let Some(error) = refusal(&parcel, verdict) {
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Waits for the verdict on the only message in flight.
    async fn verdict(&mut self, id: u64) -> Result<Verdict, RabbitMqError> {
        loop {
            let verdicts = self.verdicts_within(PROBE_WITHIN).await?;
            if let Some((_, verdict)) = verdicts.into_iter().find(|(other, _)| *other == id) {
                return Ok(verdict);
            }
        }
    }

    /// Address for replies.
    pub(super) async fn reply_to(&mut self) -> Result<String, RabbitMqError> {
        if self.replies.is_none() {
            let channel = self.publisher().await?.channel();
            let channel = channel.ok_or_else(|| RabbitMqError::ChannelClosed {
                why: "a message was refused".to_owned(),
            })?;
            self.replies = Some(Replies::open(&channel).await?);
        }
        Ok(replies::DIRECT.to_owned())
    }

    /// Takes a reply that has arrived.
    pub(super) fn take_reply(&mut self, id: &str) -> Result<Option<Reply>, RabbitMqError> {
        match &mut self.replies {
            Some(replies) => replies.take(id),
            None => Ok(None),
        }
    }

    /// Waits until a reply has arrived, or for the given time.
    pub(super) async fn wait_for_reply(&mut self, longest: Duration) {
        if let Some(replies) = &mut self.replies {
            replies.wait(longest).await;
        }
    }
}

/// Queue that a message is published to, and its properties there: a delayed one is sent to the tier of its
/// delay, as a copy, so that data which the broker adds on the way is not taken for its own.
fn addressed(message: &Outgoing, key: &CopyKey) -> Result<(String, BasicProperties), String> {
    let properties = published(message, None)?;
    if message.delay.is_zero() {
        return Ok((message.queue.clone(), properties));
    }
    let original = Original {
        properties,
        exchange: String::new(),
        routing_key: message.queue.clone(),
    };
    let marks = Marks::none(&message.queue);
    let delay = message.delay.as_millis().to_string();
    let properties = original
        .copied(&marks, &message.body, key)
        .with_expiration(fitting("delay", &delay)?);
    let tier = tiers::tier(message.delay);
    Ok((tiers::tier_queue(&message.queue, tier), properties))
}

/// Reason why a message did not arrive; `None` if it did.
pub(super) fn refusal(parcel: &OutboundMessage, verdict: Verdict) -> Option<CommandError> {
    let queue = parcel.to.to_string();
    match verdict {
        Verdict::Confirmed => None,
        Verdict::Returned if !parcel.exchange.as_str().is_empty() => {
            let exchange = parcel.exchange.to_string();
            Some(CommandError::NoRoute {
                exchange,
                key: queue,
            })
        }
        Verdict::Returned => Some(CommandError::NoQueue { queue }),
        Verdict::NotNow => Some(CommandError::Full { queue }),
        Verdict::Refused(why) | Verdict::EndsConnection(why) => {
            Some(CommandError::Refused { queue, why })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delayed_message_waits_in_its_tier_for_its_own_time() {
        let key = CopyKey::from_secret("s");
        let message = Outgoing {
            queue: "work".into(),
            delay: Duration::from_secs(5),
            headers: vec![("tenant".into(), "blue".into())],
            ..Outgoing::default()
        };
        let (queue, properties) = addressed(&message, &key).unwrap();
        assert_eq!(queue, "work.retry.8s");
        let expiration = properties.expiration().as_ref().unwrap();
        assert_eq!(expiration.as_str(), "5000");
        let at_once = Outgoing {
            delay: Duration::ZERO,
            ..message
        };
        let (queue, properties) = addressed(&at_once, &key).unwrap();
        assert_eq!((queue.as_str(), properties.expiration()), ("work", &None));
    }

    #[test]
    fn what_became_of_a_message() {
        let parcel = OutboundMessage {
            exchange: ShortString::default(),
            to: "work".into(),
            mandatory: true,
            properties: BasicProperties::default(),
            body: bytes::Bytes::new(),
        };
        let said = |verdict| refusal(&parcel, verdict).map(|error| error.to_string());
        assert_eq!(said(Verdict::Confirmed), None);
        assert_eq!(said(Verdict::Returned).unwrap(), "there is no queue `work`");
        let routed = OutboundMessage {
            exchange: "events".into(),
            ..parcel.clone()
        };
        assert_eq!(
            refusal(&routed, Verdict::Returned).unwrap().to_string(),
            "the exchange `events` routes a message with the key `work` to no queue"
        );
        assert!(said(Verdict::NotNow).unwrap().contains("full"));
        assert!(
            said(Verdict::Refused("why".into()))
                .unwrap()
                .contains("why")
        );
    }
}
