//! Consumers: their prefetch, and reading their messages. The last messages of a cancelled consumer still
//! count. Messages are interpreted elsewhere.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use futures_util::Stream;
use lapin::message::Delivery;
use lapin::options::{BasicCancelOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{Channel, Consumer};

use super::connect::Broker;
use super::error::{RabbitMqError, error_text};
use super::field_table::long;
use super::republish::fitting;
use crate::rules::demand::Flow;
use ganger_config::model::{Argument, RabbitMqOptions};

/// Queue argument by which one consumer gets all messages until it ends.
const SINGLE_ACTIVE: &str = "x-single-active-consumer";

/// Parameters by which a queue is consumed.
#[derive(Debug, Clone)]
pub(crate) struct ConsumerSpec {
    /// The queue.
    pub(crate) queue: ShortString,
    /// Name of the pool, the prefix of the consumer tags.
    pub(crate) pool: String,
    /// Arguments of the consumers.
    pub(crate) arguments: FieldTable,
    /// The queue feeds one consumer only, by its declaration.
    pub(crate) single: bool,
    /// The queue is lost with its last consumer.
    pub(crate) stays: bool,
}

impl ConsumerSpec {
    /// Builds the parameters of a pool.
    pub(crate) fn new(
        queue: &str,
        pool: &str,
        options: &RabbitMqOptions,
    ) -> Result<Self, RabbitMqError> {
        let mut arguments = table(&options.consumer_arguments);
        if let Some(priority) = options.consumer_priority {
            arguments.insert("x-priority".into(), AMQPValue::LongInt(priority));
        }
        Ok(Self {
            queue: fitting("name", queue).map_err(|_| RabbitMqError::LongName {
                queue: queue.to_owned(),
            })?,
            pool: pool.to_owned(),
            arguments,
            single: options.queue.arguments.get(SINGLE_ACTIVE) == Some(&Argument::Boolean(true)),
            stays: false,
        })
    }
}

/// Converts arguments to their AMQP form.
pub(crate) fn table(arguments: &BTreeMap<String, Argument>) -> FieldTable {
    let mut table = FieldTable::default();
    for (name, value) in arguments {
        let value = match value {
            Argument::Text(text) => long(text),
            Argument::Integer(integer) => AMQPValue::LongLongInt(*integer),
            Argument::Boolean(yes) => AMQPValue::Boolean(*yes),
        };
        if let Ok(name) = ShortString::try_new(name.as_str()) {
            table.insert(name, value);
        }
    }
    table
}

type ConsumerChange = Pin<Box<dyn Future<Output = Result<Option<Consumer>, RabbitMqError>>>>;

/// The consumers of one channel: a steady one, and while the pool is fast an extra one. Only the extra one is
/// added and cancelled. The steady one was created before it, so that a queue with a single active consumer
/// feeds the steady one, and no change of the extra one hands the queue to another daemon.
pub(crate) struct Consumers {
    broker: Rc<Broker>,
    channel: Channel,
    spec: ConsumerSpec,
    /// The consumers, in the order of their creation.
    consumers: Vec<TrackedConsumer>,
    changing: Option<(ConsumerChange, u16)>,
    /// The broker has cancelled a consumer: the queue no longer exists.
    queue_gone: bool,
    created: usize,
}

/// One consumer.
struct TrackedConsumer {
    consumer: Consumer,
    /// Prefetch: maximum number of unacknowledged messages.
    prefetch: u16,
    /// Cancelled by this daemon; its last messages are still being read.
    leaving: bool,
}

impl fmt::Debug for Consumers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumers")
            .field("consumers", &self.consumers.len())
            .finish_non_exhaustive()
    }
}

/// Result of polling the consumers.
#[derive(Debug)]
pub(crate) enum ConsumerNews {
    /// Messages were read.
    Read,
    /// A change is complete.
    Changed,
    /// The broker has cancelled the last consumer: the queue no longer exists.
    Cancelled,
}

impl Consumers {
    /// Starts without consumers.
    pub(crate) fn new(broker: Rc<Broker>, channel: Channel, spec: ConsumerSpec) -> Self {
        Self {
            broker,
            channel,
            spec,
            consumers: Vec::new(),
            changing: None,
            queue_gone: false,
            created: 0,
        }
    }

    /// Maximum number of unacknowledged messages.
    pub(crate) fn prefetch(&self) -> u16 {
        let Flow { steady, extra, .. } = self.flow(false);
        steady.saturating_add(extra)
    }

    /// Current prefetch; `full` is true if it was used up since the last change.
    pub(crate) fn flow(&self, full: bool) -> Flow {
        let live = self.consumers.iter().filter(|tracked| !tracked.leaving);
        let mut each = live.map(|tracked| tracked.prefetch);
        Flow {
            steady: each.next().unwrap_or(0),
            extra: each.next().unwrap_or(0),
            single: self.spec.single,
            stays: self.spec.stays,
            full,
        }
    }

    /// Sets whether the queue is lost with its last consumer.
    pub(crate) fn stay(&mut self, stays: bool) {
        self.spec.stays = stays;
    }

    /// Name of the consumed queue.
    pub(crate) fn queue(&self) -> ShortString {
        self.spec.queue.clone()
    }

    /// Returns whether a change is in progress or messages of a cancelled consumer are still expected.
    pub(crate) fn is_changing(&self) -> bool {
        self.changing.is_some() || self.consumers.iter().any(|tracked| tracked.leaving)
    }

    /// Returns whether no more messages can arrive.
    pub(crate) fn is_dry(&self) -> bool {
        self.changing.is_none() && self.consumers.is_empty()
    }

    /// Begins to add a consumer. Not to be called while a change is in progress.
    pub(crate) fn add(&mut self, prefetch: u16) {
        self.created += 1;
        let tag = format!("{}-{}", self.spec.pool, self.created);
        let (broker, channel) = (Rc::clone(&self.broker), self.channel.clone());
        let added = add(broker, channel, self.spec.clone(), tag, prefetch);
        self.changing = Some((Box::pin(added), prefetch));
    }

    /// Begins to cancel the newest consumer. Messages already sent to it still arrive. Not to be called while
    /// a change is in progress.
    pub(crate) fn cancel_newest(&mut self) {
        self.cancel_from(self.consumers.len().saturating_sub(1));
    }

    /// Begins to cancel all consumers in the same way.
    pub(crate) fn cancel_all(&mut self) {
        self.cancel_from(0);
    }

    fn cancel_from(&mut self, first: usize) {
        let tags = self.consumers.iter_mut().skip(first).map(|tracked| {
            tracked.leaving = true;
            tracked.consumer.tag()
        });
        let (broker, channel) = (Rc::clone(&self.broker), self.channel.clone());
        let cancelled = cancel(broker, channel, tags.collect());
        self.changing = Some((Box::pin(cancelled), 0));
    }

    /// Reads the messages that have arrived, at most `most` of each consumer.
    ///
    /// # Errors
    /// If the channel has ended.
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        most: usize,
        read: &mut Vec<Delivery>,
    ) -> Poll<Result<ConsumerNews, RabbitMqError>> {
        if let Some(news) = self.poll_change(cx)? {
            return Poll::Ready(Ok(news));
        }
        let mut has_ended = false;
        for index in (0..self.consumers.len()).rev() {
            let TrackedConsumer {
                consumer, leaving, ..
            } = &mut self.consumers[index];
            let is_dry = read_available(consumer, cx, most, read)
                .map_err(|error| RabbitMqError::lost(&error))?;
            if is_dry {
                self.queue_gone |= !*leaving;
                self.consumers.remove(index);
                has_ended = true;
            }
        }
        if self.queue_gone && self.is_dry() {
            self.queue_gone = false;
            Poll::Ready(Ok(ConsumerNews::Cancelled))
        } else if !read.is_empty() {
            Poll::Ready(Ok(ConsumerNews::Read))
        } else if has_ended {
            Poll::Ready(Ok(ConsumerNews::Changed))
        } else {
            Poll::Pending
        }
    }

    fn poll_change(&mut self, cx: &mut Context<'_>) -> Result<Option<ConsumerNews>, RabbitMqError> {
        let Some((changing, prefetch)) = &mut self.changing else {
            return Ok(None);
        };
        let Poll::Ready(changed) = changing.as_mut().poll(cx) else {
            return Ok(None);
        };
        let prefetch = *prefetch;
        self.changing = None;
        if let Some(consumer) = changed? {
            self.consumers.push(TrackedConsumer {
                consumer,
                prefetch,
                leaving: false,
            });
        }
        Ok(Some(ConsumerNews::Changed))
    }
}

/// Reads the messages of one consumer. Returns whether it has ended.
fn read_available(
    consumer: &mut Consumer,
    cx: &mut Context<'_>,
    most: usize,
    read: &mut Vec<Delivery>,
) -> lapin::Result<bool> {
    for _ in 0..most {
        match Pin::new(&mut *consumer).poll_next(cx) {
            Poll::Ready(Some(Ok(delivery))) => read.push(delivery),
            Poll::Ready(Some(Err(error))) => return Err(error),
            Poll::Ready(None) => return Ok(true),
            Poll::Pending => return Ok(false),
        }
    }
    // Reading stops here with messages left, so this task must be woken again.
    cx.waker().wake_by_ref();
    Ok(false)
}

/// Creates a consumer. A prefetch applies only to consumers created after it was set.
async fn add(
    broker: Rc<Broker>,
    channel: Channel,
    spec: ConsumerSpec,
    tag: String,
    prefetch: u16,
) -> Result<Option<Consumer>, RabbitMqError> {
    let each = BasicQosOptions { global: false };
    broker.answer(channel.basic_qos(prefetch, each)).await?;
    let consumer = channel.basic_consume(
        spec.queue,
        ShortString::try_new(tag).unwrap_or_default(),
        BasicConsumeOptions::default(),
        spec.arguments,
    );
    Ok(Some(broker.answer(consumer).await?))
}

/// Cancels consumers.
async fn cancel(
    broker: Rc<Broker>,
    channel: Channel,
    tags: Vec<ShortString>,
) -> Result<Option<Consumer>, RabbitMqError> {
    for tag in tags {
        let cancelled = channel.basic_cancel(tag, BasicCancelOptions::default());
        if let Err(error) = broker.ask(cancelled).await? {
            tracing::debug!(error = error_text(&error), "consumer already cancelled");
        }
    }
    Ok(None)
}
