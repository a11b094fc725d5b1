//! Consuming: how many messages the broker sends ahead, and reading them. Of a consumer that was
//! cancelled the last messages still count. What a message means is known elsewhere.

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
use super::copy::fitting;
use super::error::{RabbitMqError, words};
use super::rules::Flow;
use super::value::long;
use crate::config::model::{Argument, RabbitMqOptions};

/// The argument of a queue by which one consumer gets all messages until it ends.
const SINGLE_ACTIVE: &str = "x-single-active-consumer";

/// How a queue is consumed.
#[derive(Debug, Clone)]
pub(super) struct Order {
    /// The queue.
    pub(super) queue: ShortString,
    /// The name of the pool, which the consumers' tags begin with.
    pub(super) pool: String,
    /// Arguments of the consumers.
    pub(super) arguments: FieldTable,
    /// The queue is known to feed one consumer only.
    pub(super) single: bool,
}

impl Order {
    /// As a pool has it.
    pub(super) fn new(
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
        })
    }
}

/// Arguments as AMQP has them.
pub(super) fn table(arguments: &BTreeMap<String, Argument>) -> FieldTable {
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

type Change = Pin<Box<dyn Future<Output = Result<Option<Consumer>, RabbitMqError>>>>;

/// The consumers of one channel. To have more sent ahead one is added, which asks for what is
/// missing; to have less all are cancelled, and one is made anew.
pub(super) struct Consumers {
    broker: Rc<Broker>,
    channel: Channel,
    order: Order,
    taps: Vec<Tap>,
    changing: Option<(Change, u16)>,
    /// Only one consumer of the queue gets messages, and which one must not change.
    single: bool,
    /// Messages wait that are not acknowledged, so that it says nothing who gets others.
    is_partial: bool,
    /// The broker has cancelled one: the queue is gone.
    cut_off: bool,
    made: usize,
}

/// One consumer.
struct Tap {
    consumer: Consumer,
    /// How many messages it may have unacknowledged.
    prefetch: u16,
    /// How many messages it has had since the newest one was made.
    had: usize,
    /// Cancelled by us: it runs dry.
    leaving: bool,
}

impl fmt::Debug for Consumers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumers")
            .field("taps", &self.taps.len())
            .field("single", &self.single)
            .finish_non_exhaustive()
    }
}

/// What came of looking at the consumers.
#[derive(Debug)]
pub(super) enum News {
    /// Messages were read.
    Read,
    /// A change has come to its end.
    Changed,
    /// The broker has cancelled the last of them: the queue is gone.
    Cancelled,
}

impl Consumers {
    /// None yet.
    pub(super) fn new(broker: Rc<Broker>, channel: Channel, order: Order) -> Self {
        Self {
            broker,
            channel,
            single: order.single,
            order,
            taps: Vec::new(),
            changing: None,
            is_partial: false,
            cut_off: false,
            made: 0,
        }
    }

    fn live(&self) -> impl Iterator<Item = &Tap> {
        self.taps.iter().filter(|tap| !tap.leaving)
    }

    /// How many messages may be unacknowledged.
    pub(super) fn prefetch(&self) -> u16 {
        let each = self.live().map(|tap| tap.prefetch);
        each.fold(0, u16::saturating_add)
    }

    /// What there is; `full` is whether it was used up since the last change.
    pub(super) fn flow(&self, full: bool) -> Flow {
        Flow {
            prefetch: self.prefetch(),
            consumers: self.live().count(),
            single: self.single,
            full,
        }
    }

    /// The queue that is consumed.
    pub(super) fn queue(&self) -> ShortString {
        self.order.queue.clone()
    }

    /// Whether a change is under way.
    pub(super) fn is_changing(&self) -> bool {
        self.changing.is_some()
    }

    /// Whether messages may come yet.
    pub(super) fn is_dry(&self) -> bool {
        self.changing.is_none() && self.taps.is_empty()
    }

    /// Whether messages wait for something else than workers: they may have all that one of the
    /// consumers is allowed.
    pub(super) fn some_wait(&mut self, some_wait: bool) {
        self.is_partial = some_wait;
        if some_wait {
            self.taps.iter_mut().for_each(|tap| tap.had = 0);
        }
    }

    /// Begins to add a consumer. Not to be called while a change is under way.
    pub(super) fn add(&mut self, prefetch: u16) {
        self.made += 1;
        let tag = format!("{}-{}", self.order.pool, self.made);
        let (broker, channel) = (Rc::clone(&self.broker), self.channel.clone());
        let added = add(broker, channel, self.order.clone(), tag, prefetch);
        self.changing = Some((Box::pin(added), prefetch));
    }

    /// Begins to cancel all consumers. What they have been sent comes yet. Not to be called while
    /// a change is under way.
    pub(super) fn cancel(&mut self) {
        let live = self.taps.iter_mut().filter(|tap| !tap.leaving);
        let tags = live.map(|tap| {
            tap.leaving = true;
            tap.consumer.tag()
        });
        let (broker, channel) = (Rc::clone(&self.broker), self.channel.clone());
        let cancelled = cancel(broker, channel, tags.collect());
        self.changing = Some((Box::pin(cancelled), 0));
    }

    /// Reads what has come, about `most` messages.
    ///
    /// # Errors
    /// If the channel has ended.
    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        most: usize,
        read: &mut Vec<Delivery>,
    ) -> Poll<Result<News, RabbitMqError>> {
        if let Some(news) = self.poll_change(cx)? {
            return Poll::Ready(Ok(news));
        }
        let mut ended = false;
        for tap in &mut self.taps {
            let before = read.len();
            let dry = drain(&mut tap.consumer, cx, most, read)
                .map_err(|error| RabbitMqError::lost(&error))?;
            tap.had += read.len() - before;
            ended |= dry;
            self.cut_off |= dry && !tap.leaving;
            if dry {
                tap.prefetch = 0;
            }
        }
        if ended {
            self.taps.retain(|tap| tap.prefetch > 0);
        }
        self.watch_for_single();
        // Who is read first has the lower tags; and one must not be read alone.
        if self.taps.len() > 1 {
            self.taps.rotate_left(1);
        }
        if self.cut_off && self.is_dry() {
            self.cut_off = false;
            Poll::Ready(Ok(News::Cancelled))
        } else if !read.is_empty() {
            Poll::Ready(Ok(News::Read))
        } else if ended {
            Poll::Ready(Ok(News::Changed))
        } else {
            Poll::Pending
        }
    }

    fn poll_change(&mut self, cx: &mut Context<'_>) -> Result<Option<News>, RabbitMqError> {
        let Some((changing, prefetch)) = &mut self.changing else {
            return Ok(None);
        };
        let Poll::Ready(changed) = changing.as_mut().poll(cx) else {
            return Ok(None);
        };
        let prefetch = *prefetch;
        self.changing = None;
        if let Some(consumer) = changed? {
            self.taps.iter_mut().for_each(|tap| tap.had = 0);
            self.taps.push(Tap {
                consumer,
                prefetch,
                had: 0,
                leaving: false,
            });
        }
        Ok(Some(News::Changed))
    }

    /// With the argument `x-single-active-consumer`, which the broker does not tell, those that were
    /// added get nothing. To cancel the one that does would hand the queue to another daemon, in the
    /// middle of its messages: from here on it is left as it is.
    fn watch_for_single(&mut self) {
        if self.single || self.is_partial || self.live().count() < 2 {
            return;
        }
        // So many may have been on their way when the newest one was made.
        let enough = |tap: &&Tap| tap.had > usize::from(tap.prefetch) + SINGLE_AFTER;
        let fed = self.live().filter(|tap| tap.had > 0).count();
        let Some(only) = self.live().find(enough).filter(|_| fed == 1) else {
            return;
        };
        tracing::warn!(
            pool = self.order.pool,
            prefetch = only.prefetch,
            "the queue has a single active consumer, whose prefetch can't be changed: name \
             x-single-active-consumer in the pool's queue_arguments, and it is made when all \
             workers are up"
        );
        self.single = true;
    }
}

/// So many messages go to one consumer, and none to another, before we believe that it must be so.
const SINGLE_AFTER: usize = 32;

/// Reads what one consumer has. Returns whether it has ended.
fn drain(
    consumer: &mut Consumer,
    cx: &mut Context<'_>,
    most: usize,
    read: &mut Vec<Delivery>,
) -> lapin::Result<bool> {
    while read.len() < most {
        match Pin::new(&mut *consumer).poll_next(cx) {
            Poll::Ready(Some(Ok(delivery))) => read.push(delivery),
            Poll::Ready(Some(Err(error))) => return Err(error),
            Poll::Ready(None) => return Ok(true),
            Poll::Pending => return Ok(false),
        }
    }
    // Whoever reads no further must ask to be woken.
    cx.waker().wake_by_ref();
    Ok(false)
}

/// Makes a consumer. A prefetch reaches only consumers that are made after it was told.
async fn add(
    broker: Rc<Broker>,
    channel: Channel,
    order: Order,
    tag: String,
    prefetch: u16,
) -> Result<Option<Consumer>, RabbitMqError> {
    let each = BasicQosOptions { global: false };
    broker.answer(channel.basic_qos(prefetch, each)).await?;
    let consumer = channel.basic_consume(
        order.queue,
        ShortString::try_new(tag).unwrap_or_default(),
        BasicConsumeOptions::default(),
        order.arguments,
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
            tracing::debug!(error = words(&error), "the consumer was gone");
        }
    }
    Ok(None)
}
