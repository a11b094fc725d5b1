//! The queues that a pool needs: checked for existence, declared if allowed, and compared with their
//! configuration. A request that the broker refuses ends its channel, so each is sent over a channel that has
//! no other use.

use std::collections::BTreeSet;

use lapin::Channel;
use lapin::options::{BasicConsumeOptions, QueueDeclareOptions};
use lapin::protocol::AMQPSoftError;
use lapin::types::{AMQPValue, FieldTable, ShortString};

use super::bindings;
use super::connect::{Broker, close};
use super::consumers::table;
use super::error::{RabbitMqError, error_text, soft};
use super::field_table::long;
use super::lifetime::{ShortLived, lifetime};
use crate::rules::tiers;
use ganger_config::model::{
    Binding, DeadLetters, Options, PoolConfig, QueueDeclaration, QueueType, RabbitMqOptions,
};
use ganger_queue::ladder::Tier;

/// Delivery limit, so high that the broker drops nothing: ganger counts the attempts. It is the same in all
/// versions, so that a redeclaration never differs.
const DELIVERY_LIMIT: i64 = 1_000_000_000;

/// The queues of one pool.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Topology {
    /// The queue that it reads.
    pub(crate) work: QueueSpec,
    /// Queues in which delayed messages wait, one for each tier.
    pub(crate) tiers: Vec<QueueSpec>,
    /// The queue of dead letters; `None` if the broker handles them.
    pub(crate) dead: Option<QueueSpec>,
    /// Bindings of the queue that it reads.
    bindings: Vec<Binding>,
}

/// A queue with its expected properties.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct QueueSpec {
    /// Name.
    pub(crate) name: String,
    /// Arguments of its declaration.
    arguments: FieldTable,
    /// Arguments declared by an older version, which are accepted.
    before: Option<FieldTable>,
    /// True if the queue is ganger's own: other arguments are an error.
    ours: bool,
}

impl Topology {
    /// Queues that a pool needs by its rules.
    pub(crate) fn of(pool: &PoolConfig) -> Self {
        let default = RabbitMqOptions::default();
        let options = match &pool.options {
            Options::RabbitMq(options) => options,
            Options::Table | Options::Kafka(_) => &default,
        };
        let queue = &*pool.queue;
        let tier = |tier| QueueSpec::tier(queue, tier);
        let plain = QueueDeclaration {
            queue_type: options.queue.queue_type,
            ..QueueDeclaration::default()
        };
        let dead = dead_queue(queue, &options.dead_letter).map(|name| QueueSpec {
            name,
            arguments: dead_arguments(&plain),
            before: Some(declared(&plain)),
            ours: options.dead_letter == DeadLetters::Default,
        });
        Self {
            work: QueueSpec::plain(queue, &options.queue),
            tiers: tiers::tiers(pool.retry.backoff.max)
                .into_iter()
                .map(tier)
                .collect(),
            dead,
            bindings: options.bind.clone(),
        }
    }

    /// All queues, the one that is read first.
    fn all(&self) -> impl Iterator<Item = &QueueSpec> {
        std::iter::once(&self.work)
            .chain(&self.tiers)
            .chain(&self.dead)
    }

    /// Ensures that every queue exists, and is bound.
    ///
    /// # Errors
    /// All queues that are missing and may not be declared; a queue of ganger's own, or an exchange, that
    /// does not match the configuration; or the loss of the connection.
    pub(crate) async fn check(&self, broker: &Broker, declare: bool) -> Result<(), RabbitMqError> {
        ensure(broker, self.all(), declare).await?;
        bindings::ensure(broker, &self.work.name, &self.bindings).await
    }

    /// Checks every queue, and creates none. Returns those that are missing and may not be declared, and
    /// those that do not match the configuration.
    ///
    /// # Errors
    /// If the connection is lost.
    pub(crate) async fn find_problems(
        &self,
        broker: &Broker,
        declare: bool,
    ) -> Result<Vec<RabbitMqError>, RabbitMqError> {
        let mut asking = QueueQueries::new(broker);
        let (mut problems, mut missing) = (Vec::new(), Vec::new());
        for spec in self.all() {
            let looked = match asking.exists(&spec.name).await {
                Ok(true) if declare && spec.ours => asking.declare(spec).await,
                Ok(true) if spec.ours => asking.compare(spec).await,
                Ok(true) => Ok(()),
                Ok(false) => {
                    missing.push(spec.name.clone());
                    Ok(())
                }
                Err(error) => Err(error),
            };
            match looked {
                Err(error @ RabbitMqError::Lost { .. }) => return Err(error),
                Err(error) => problems.push(error),
                Ok(()) => {}
            }
        }
        asking.end().await;
        problems.extend(bindings::find_problems(broker, &self.bindings).await?);
        if !missing.contains(&self.work.name)
            && let Err(error) = self.refuse_stream(broker).await
        {
            problems.push(error);
        }
        if !declare && !missing.is_empty() {
            problems.push(RabbitMqError::MissingQueues { queues: missing });
        }
        Ok(problems)
    }

    /// Returns those queues that the broker may delete with the messages in them: the one that is read, and
    /// one of dead letters that others have created. Both exist.
    ///
    /// # Errors
    /// If the connection is lost.
    pub(crate) async fn short_lived(
        &self,
        broker: &Broker,
    ) -> Result<Vec<ShortLived>, RabbitMqError> {
        let mut found = Vec::new();
        let dead = self.dead.iter().filter(|dead| !dead.ours);
        for spec in std::iter::once(&self.work).chain(dead) {
            let lifetime = lifetime(broker, &spec.short_name()?).await?;
            if lifetime.needs_consumers() {
                let queue = spec.name.clone();
                found.push(ShortLived { queue, lifetime });
            }
        }
        Ok(found)
    }

    /// Refuses a stream, from which messages can't be removed.
    pub(crate) async fn refuse_stream(&self, broker: &Broker) -> Result<(), RabbitMqError> {
        let channel = broker.channel().await?;
        let queue = self.work.short_name()?;
        // Only consumers of a stream have this argument, and no stream accepts this value. So the broker
        // rejects the request in any case, and its error text shows the type of the queue.
        let mut arguments = FieldTable::default();
        arguments.insert("x-stream-offset".into(), AMQPValue::Boolean(true));
        let options = BasicConsumeOptions::default();
        let asked = channel.basic_consume(queue, "ganger-probe".into(), options, arguments);
        match broker.ask(asked).await? {
            Err(error) if soft(&error).is_some() => {
                if is_stream(&error_text(&error)) {
                    return Err(RabbitMqError::Stream {
                        queue: self.work.name.clone(),
                    });
                }
                Ok(())
            }
            Err(error) => Err(RabbitMqError::lost(&error)),
            Ok(_) => {
                close(&channel).await;
                Ok(())
            }
        }
    }
}

/// Ensures that these queues exist, as [`Topology::check`] does.
pub(crate) async fn ensure(
    broker: &Broker,
    queues: impl IntoIterator<Item = &QueueSpec>,
    declare: bool,
) -> Result<(), RabbitMqError> {
    let mut asking = QueueQueries::new(broker);
    let mut missing = Vec::new();
    for spec in queues {
        if declare && spec.ours {
            asking.declare(spec).await?;
        } else if !asking.exists(&spec.name).await? {
            missing.push(spec);
        } else if spec.ours {
            match asking.compare(spec).await {
                // Unlike in a tier, messages stay there, so other arguments are tolerated.
                Err(error @ RabbitMqError::OtherArguments { .. }) if !spec.is_tier() => {
                    tracing::warn!(
                        queue = spec.name,
                        %error,
                        "dead letters may be lost in this queue"
                    );
                }
                compared => compared?,
            }
        }
    }
    if declare {
        for spec in missing {
            asking.declare(spec).await?;
        }
    } else if !missing.is_empty() {
        let names: BTreeSet<&String> = missing.iter().map(|spec| &spec.name).collect();
        return Err(RabbitMqError::MissingQueues {
            queues: names.into_iter().cloned().collect(),
        });
    }
    asking.end().await;
    Ok(())
}

/// Number of ready messages of a queue; `None` if there is no such queue.
pub(crate) async fn count(broker: &Broker, queue: &str) -> Result<Option<u64>, RabbitMqError> {
    let mut asking = QueueQueries::new(broker);
    let count = asking.count(queue).await?;
    asking.end().await;
    Ok(count)
}

/// Number of messages in all of these queues together, of which some may not exist.
pub(crate) async fn count_all(
    broker: &Broker,
    queues: impl Iterator<Item = String>,
) -> Result<u64, RabbitMqError> {
    let mut asking = QueueQueries::new(broker);
    let mut all = 0;
    for queue in queues {
        all += asking.count(&queue).await?.unwrap_or(0);
    }
    asking.end().await;
    Ok(all)
}

/// Returns whether the broker's message about the argument indicates a stream: for other queues it names
/// their type. (RabbitMQ 3 misses a prefetch before it checks the value, but only with a stream.)
fn is_stream(text: &str) -> bool {
    let about_the_value = "invalid arg 'x-stream-offset'";
    text.contains("consumer prefetch count is not set")
        || (text.contains(about_the_value) && !text.contains(" of queue type "))
}

/// Name of the queue of dead letters.
pub(crate) fn dead_queue(queue: &str, dead_letter: &DeadLetters) -> Option<String> {
    match dead_letter {
        DeadLetters::Default => Some(format!("{queue}.dead")),
        DeadLetters::Queue(name) => Some(name.clone()),
        DeadLetters::Broker => None,
    }
}

impl QueueSpec {
    /// A queue without a pool's options.
    pub(crate) fn plain(queue: &str, declaration: &QueueDeclaration) -> Self {
        Self {
            name: queue.to_owned(),
            arguments: declared(declaration),
            before: None,
            ours: false,
        }
    }

    /// A tier of a queue.
    pub(crate) fn tier(queue: &str, tier: Tier) -> Self {
        Self {
            name: tiers::tier_queue(queue, tier),
            arguments: tier_arguments(queue),
            before: None,
            ours: true,
        }
    }

    /// Returns whether messages leave the queue only because of its arguments.
    fn is_tier(&self) -> bool {
        self.ours && self.before.is_none()
    }

    fn short_name(&self) -> Result<ShortString, RabbitMqError> {
        short(&self.name)
    }
}

fn short(name: &str) -> Result<ShortString, RabbitMqError> {
    ShortString::try_new(name).map_err(|_| RabbitMqError::LongName {
        queue: name.to_owned(),
    })
}

fn declared(declaration: &QueueDeclaration) -> FieldTable {
    let mut arguments = table(&declaration.arguments);
    let queue_type = long(declaration.queue_type.as_str());
    arguments.insert("x-queue-type".into(), queue_type);
    if declaration.queue_type == QueueType::Quorum {
        let limit = AMQPValue::LongLongInt(DELIVERY_LIMIT);
        arguments.insert("x-delivery-limit".into(), limit);
    }
    arguments
}

/// If its length is limited, dead letters are rejected and kept rather than dropped from its head.
fn dead_arguments(declaration: &QueueDeclaration) -> FieldTable {
    let mut arguments = declared(declaration);
    arguments.insert("x-overflow".into(), long("reject-publish"));
    arguments
}

/// Without the strategy and the overflow a returning message can be lost inside the broker.
fn tier_arguments(queue: &str) -> FieldTable {
    let mut arguments = declared(&QueueDeclaration::default());
    for (name, value) in [
        ("x-dead-letter-exchange", ""),
        ("x-dead-letter-routing-key", queue),
        ("x-dead-letter-strategy", "at-least-once"),
        ("x-overflow", "reject-publish"),
    ] {
        arguments.insert(name.into(), long(value));
    }
    arguments
}

/// Requests, on a channel that is replaced after an answer has ended it.
struct QueueQueries<'a> {
    broker: &'a Broker,
    channel: Option<Channel>,
    /// True if this user may not configure queues, so that the broker does not compare any.
    may_not_configure: bool,
}

impl<'a> QueueQueries<'a> {
    fn new(broker: &'a Broker) -> Self {
        Self {
            broker,
            channel: None,
            may_not_configure: false,
        }
    }

    async fn exists(&mut self, queue: &str) -> Result<bool, RabbitMqError> {
        Ok(self.count(queue).await?.is_some())
    }

    async fn count(&mut self, queue: &str) -> Result<Option<u64>, RabbitMqError> {
        let options = QueueDeclareOptions {
            passive: true,
            durable: true,
            ..QueueDeclareOptions::default()
        };
        let asked = self.ask(short(queue)?, options, FieldTable::default());
        match asked.await? {
            Ok(count) => Ok(Some(count)),
            Err(error) if soft(&error) == Some(&AMQPSoftError::NOTFOUND) => Ok(None),
            Err(error) => Err(refusal(queue, &error)),
        }
    }

    async fn declare(&mut self, spec: &QueueSpec) -> Result<(), RabbitMqError> {
        let declared = self.declare_with(spec, &spec.arguments).await;
        match (&declared, &spec.before) {
            (Err(RabbitMqError::OtherArguments { .. }), Some(before)) => {
                let older = self.declare_with(spec, before).await;
                if older.is_ok() {
                    tracing::warn!(
                        queue = spec.name,
                        "the queue was declared without `x-overflow = reject-publish`: a policy \
                         that limits its length would drop dead letters; delete the queue once it \
                         is empty, and it is declared again"
                    );
                }
                older
            }
            _ => declared,
        }
    }

    /// Compares an existing queue with its expected properties, as far as this user may. The broker compares
    /// only a declaration; if the queue was deleted meanwhile, it is created.
    async fn compare(&mut self, spec: &QueueSpec) -> Result<(), RabbitMqError> {
        if self.may_not_configure {
            return Ok(());
        }
        match self.declare(spec).await {
            Err(RabbitMqError::Queue { .. }) => {
                self.may_not_configure = true;
                Ok(())
            }
            compared => compared,
        }
    }

    async fn declare_with(
        &mut self,
        spec: &QueueSpec,
        arguments: &FieldTable,
    ) -> Result<(), RabbitMqError> {
        let options = QueueDeclareOptions {
            durable: true,
            ..QueueDeclareOptions::default()
        };
        let asked = self.ask(spec.short_name()?, options, arguments.clone());
        let answered = asked.await?;
        answered
            .map(drop)
            .map_err(|error| refusal(&spec.name, &error))
    }

    async fn ask(
        &mut self,
        queue: ShortString,
        options: QueueDeclareOptions,
        arguments: FieldTable,
    ) -> Result<lapin::Result<u64>, RabbitMqError> {
        let open = |channel: &Channel| channel.status().connected();
        let channel = match self.channel.take().filter(open) {
            Some(channel) => channel,
            None => self.broker.channel().await?,
        };
        let declared = channel.queue_declare(queue, options, arguments);
        let answer = self.broker.ask(declared).await?;
        self.channel = Some(channel);
        Ok(answer.map(|queue| u64::from(queue.message_count())))
    }

    async fn end(self) {
        if let Some(channel) = self.channel {
            close(&channel).await;
        }
    }
}

fn refusal(queue: &str, error: &lapin::Error) -> RabbitMqError {
    let (queue, why) = (queue.to_owned(), error_text(error));
    match soft(error) {
        Some(AMQPSoftError::PRECONDITIONFAILED) => RabbitMqError::OtherArguments { queue, why },
        Some(_) => RabbitMqError::Queue { queue, why },
        None => RabbitMqError::lost(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_told_by_what_it_does_not_say() {
        let classic = "PRECONDITION_FAILED - invalid arg 'x-stream-offset' for queue 'q' in vhost \
                       '/' of queue type rabbit_classic_queue";
        let stream = "PRECONDITION_FAILED - invalid arg 'x-stream-offset' for queue 'q' in vhost \
                      '/': {unacceptable_type,bool}";
        assert!(!is_stream(classic) && is_stream(stream));
        let no_prefetch = "PRECONDITION_FAILED - consumer prefetch count is not set for 'queue 'q' in \
                           vhost '/''";
        assert!(is_stream(no_prefetch));
        assert!(!is_stream("ACCESS_REFUSED - access to queue 'q' refused"));
    }
}
