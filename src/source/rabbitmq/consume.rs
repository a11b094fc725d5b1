//! Consuming: how many messages the broker sends ahead, and reading them. Of a consumer that was
//! cancelled the last messages still count. What a message means is known elsewhere.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::Stream;
use lapin::message::Delivery;
use lapin::options::{BasicCancelOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{Channel, Consumer};

use super::copy::fitting;
use super::error::{RabbitMqError, words};
use super::rules::Flow;
use super::value::long;
use crate::config::model::{Argument, RabbitMqOptions};

/// How a queue is consumed.
#[derive(Debug, Clone)]
pub(super) struct Order {
    /// The queue.
    pub(super) queue: ShortString,
    /// The name of the pool, which the consumers' tags begin with.
    pub(super) pool: String,
    /// Arguments of the consumers.
    pub(super) arguments: FieldTable,
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

type Change = Pin<Box<dyn Future<Output = lapin::Result<Option<Consumer>>>>>;

/// The consumers of one channel. To have more sent ahead, one is added, which asks for what is
/// missing; to have less, one takes the place of all.
pub(super) struct Consumers {
    channel: Channel,
    order: Order,
    taps: Vec<Tap>,
    changing: Option<(Change, u16)>,
    /// Only one consumer of the queue gets messages, and which one must not change.
    single: bool,
    made: u64,
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
    pub(super) fn new(channel: Channel, order: Order) -> Self {
        Self {
            channel,
            order,
            taps: Vec::new(),
            changing: None,
            single: false,
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

    /// What there is, with so many messages unacknowledged.
    pub(super) fn flow(&self, unacknowledged: usize) -> Flow {
        let prefetch = self.prefetch();
        Flow {
            prefetch,
            consumers: self.live().count(),
            single: self.single,
            full: unacknowledged >= usize::from(prefetch),
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
    pub(super) fn is_busy(&self) -> bool {
        self.changing.is_some() || !self.taps.is_empty()
    }

    /// Begins to add a consumer. Not to be called while a change is under way.
    pub(super) fn add(&mut self, prefetch: u16) {
        self.change(Vec::new(), prefetch);
    }

    /// Begins to put one consumer in the place of all; none at all for zero. Not to be called
    /// while a change is under way.
    pub(super) fn replace(&mut self, prefetch: u16) {
        let live = self.taps.iter_mut().filter(|tap| !tap.leaving);
        let old = live.map(|tap| {
            tap.leaving = true;
            tap.consumer.tag()
        });
        let old = old.collect();
        self.change(old, prefetch);
    }

    fn change(&mut self, old: Vec<ShortString>, prefetch: u16) {
        self.made += 1;
        let tag = format!("{}-{}", self.order.pool, self.made);
        let change = change(self.channel.clone(), self.order.clone(), tag, prefetch, old);
        self.changing = Some((Box::pin(change), prefetch));
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
    ) -> Poll<lapin::Result<News>> {
        if let Some(news) = self.poll_change(cx)? {
            return Poll::Ready(Ok(news));
        }
        let (had, mut ended, mut cancelled) = (self.taps.len(), false, false);
        let mut index = 0;
        while let Some(tap) = self.taps.get_mut(index) {
            let before = read.len();
            let dry = drain(&mut tap.consumer, cx, most, read)?;
            tap.had += read.len() - before;
            if dry {
                ended = true;
                cancelled |= !self.taps.remove(index).leaving;
            } else {
                index += 1;
            }
        }
        self.watch_for_single();
        let none_left = had > 0 && self.live().next().is_none() && self.changing.is_none();
        if cancelled && none_left {
            Poll::Ready(Ok(News::Cancelled))
        } else if !read.is_empty() {
            Poll::Ready(Ok(News::Read))
        } else if ended {
            Poll::Ready(Ok(News::Changed))
        } else {
            Poll::Pending
        }
    }

    fn poll_change(&mut self, cx: &mut Context<'_>) -> lapin::Result<Option<News>> {
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
    /// added get nothing. To cancel the first would hand the queue to another daemon, in the middle
    /// of its messages: from here on it is left as it is.
    fn watch_for_single(&mut self) {
        let mut live = self.taps.iter().filter(|tap| !tap.leaving);
        let first = live.next().map_or(0, |tap| tap.had);
        let others = live.map(|tap| tap.had).max();
        if others == Some(0) && first >= SINGLE_AFTER {
            self.single = true;
        }
    }
}

/// So many messages go to the first consumer, and none to others, before we believe that it must be
/// so.
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

/// Makes a consumer and cancels those before. A new prefetch reaches only consumers that are made
/// after it was told.
async fn change(
    channel: Channel,
    order: Order,
    tag: String,
    prefetch: u16,
    old: Vec<ShortString>,
) -> lapin::Result<Option<Consumer>> {
    let mut new = None;
    if prefetch > 0 {
        let each = BasicQosOptions { global: false };
        channel.basic_qos(prefetch, each).await?;
        let consumer = channel.basic_consume(
            order.queue,
            ShortString::try_new(tag).unwrap_or_default(),
            BasicConsumeOptions::default(),
            order.arguments,
        );
        new = Some(consumer.await?);
    }
    for old in old {
        let cancelled = channel.basic_cancel(old, BasicCancelOptions::default());
        if let Err(error) = cancelled.await {
            tracing::debug!(error = words(&error), "the old consumer was gone");
        }
    }
    Ok(new)
}
