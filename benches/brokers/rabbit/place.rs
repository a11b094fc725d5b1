//! A virtual host with one queue, and the work that other programs do there: the queue is declared, filled,
//! and checked for being empty. Nothing here is part of a measurement.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lapin::options::{
    BasicGetOptions, BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use miette::{IntoDiagnostic, WrapErr, miette};
use serde::Serialize;
use tokio::time::{sleep, timeout};

use crate::common::{machine, one_thread};
use crate::running::Queue;
use crate::servers::look;
use crate::servers::rabbit::Node;

/// Name of the queue.
pub(super) const QUEUE: &str = "bench";

/// Bytes of each message.
pub(crate) const BODY_BYTES: usize = 200;

/// Delivery mode of a message that is stored on disk.
const PERSISTENT: u8 = 2;

/// A kind of queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Classic,
    Quorum,
}

impl Kind {
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::Classic => "classic",
            Self::Quorum => "quorum",
        }
    }
}

/// A message to be published.
#[derive(Debug, Clone)]
pub(crate) struct Letter {
    pub(crate) body: Vec<u8>,
    pub(crate) properties: BasicProperties,
}

impl Default for Letter {
    fn default() -> Self {
        Self {
            body: vec![b'x'; BODY_BYTES],
            properties: BasicProperties::default().with_delivery_mode(PERSISTENT),
        }
    }
}

/// The virtual host. On drop it is removed with everything in it.
pub(crate) struct Place<'a> {
    node: &'a Node,
    vhost: String,
}

impl<'a> Place<'a> {
    pub(crate) fn new(node: &'a Node) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let vhost = format!("bench{}", NEXT.fetch_add(1, Ordering::Relaxed));
        node.add_vhost(&vhost);
        Self { node, vhost }
    }

    /// Returns the address for clients.
    pub(crate) fn url(&self) -> String {
        self.node.url(&self.vhost)
    }

    /// Declares the queue.
    pub(crate) fn declare(&self, kind: Kind) -> miette::Result<()> {
        let kind = AMQPValue::LongString(kind.describe().into());
        let mut arguments = FieldTable::default();
        arguments.insert("x-queue-type".into(), kind);
        self.visit(async move |channel| {
            let options = QueueDeclareOptions::durable();
            let declare = channel.queue_declare(QUEUE.into(), options, arguments);
            declare.await.map(drop)
        })
    }

    /// Publishes a message `messages` times. All are stored when this returns.
    pub(crate) fn publish(&self, letter: &Letter, messages: usize) -> miette::Result<()> {
        let mut left = messages;
        while left > 0 {
            // A quorum queue that was just declared refuses some.
            left = self.visit(async |channel| publish(&channel, letter, left).await)?;
        }
        Ok(())
    }

    /// Removes the first message from the queue, and returns it.
    pub(crate) fn take(&self) -> miette::Result<Letter> {
        let options = BasicGetOptions { no_ack: true };
        let got = self.visit(async |channel| channel.basic_get(QUEUE.into(), options).await)?;
        let delivery = got.ok_or_else(|| miette!("nothing in {QUEUE}"))?.delivery;
        Ok(Letter {
            body: delivery.data,
            properties: delivery.properties,
        })
    }

    /// Waits until all remaining messages are delivered but unacknowledged, with polls at the given interval
    /// and up to the given time.
    pub(crate) fn wait_until_handed_out(
        &self,
        look_every: Duration,
        at_most: Duration,
    ) -> miette::Result<()> {
        self.visit(async |channel| {
            let wait = async {
                while ready(channel.clone()).await? > 0 {
                    sleep(look_every).await;
                }
                Ok::<_, lapin::Error>(())
            };
            timeout(at_most, wait).await.unwrap_or(Ok(()))
        })
    }

    /// Runs `what` on a connection of its own.
    fn visit<T>(&self, what: impl AsyncFnOnce(Channel) -> lapin::Result<T>) -> miette::Result<T> {
        one_thread()?.block_on(async {
            let connection = self.connect().await?;
            let done = async {
                // Held until the end: a dropped channel closes in the background, and meanwhile the
                // connection could not be closed.
                let channel = connection.create_channel().await?;
                let done = what(channel.clone()).await?;
                connection.close(200, "done".into()).await?;
                Ok::<_, lapin::Error>(done)
            };
            done.await.into_diagnostic()
        })
    }

    pub(crate) async fn connect(&self) -> miette::Result<Connection> {
        let options = ConnectionProperties::default();
        let connection = Connection::connect(&self.url(), options).await;
        connection.into_diagnostic().wrap_err("connecting")
    }
}

/// Publishes a message `messages` times. Returns the number that the broker refused.
async fn publish(channel: &Channel, letter: &Letter, messages: usize) -> lapin::Result<usize> {
    let confirm = ConfirmSelectOptions::default();
    channel.confirm_select(confirm).await?;
    let mut confirms = Vec::with_capacity(messages);
    for _ in 0..messages {
        let Letter { body, properties } = letter;
        let options = BasicPublishOptions::default();
        let publish =
            channel.basic_publish("".into(), QUEUE.into(), options, body, properties.clone());
        confirms.push(publish.await?);
    }
    let mut refused = 0;
    for confirm in confirms {
        refused += usize::from(confirm.await?.is_nack());
    }
    Ok(refused)
}

/// Returns the number of messages that are ready for delivery.
pub(crate) async fn ready(channel: Channel) -> lapin::Result<u32> {
    let options = QueueDeclareOptions {
        passive: true,
        ..QueueDeclareOptions::default()
    };
    let queue = channel.queue_declare(QUEUE.into(), options, FieldTable::default());
    Ok(queue.await?.message_count())
}

impl Queue for Place<'_> {
    fn name(&self) -> &str {
        QUEUE
    }

    fn source(&self) -> String {
        format!("kind = \"rabbitmq\"\nurl = \"{}\"\n", self.url())
    }

    fn fill(&self, messages: usize) -> miette::Result<()> {
        self.publish(&Letter::default(), messages)
    }

    fn broker_seconds(&self) -> miette::Result<f64> {
        machine::cpu_seconds(&self.node.pid().to_string())
    }

    /// Checks that the queue is empty. Waits for that, since acknowledgements of the last messages may be
    /// lost if a consumer disconnects before they are processed.
    fn ensure_settled(&self) -> miette::Result<()> {
        let left = || self.node.totals(&self.vhost).get(QUEUE).copied();
        look(|| (left()? == 0).then_some(()))
            .ok_or_else(|| miette!("the queue has {:?} messages left", left()))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        // After a failure the state of the node is unknown.
        if !std::thread::panicking() {
            self.node.delete_vhost(&self.vhost);
        }
    }
}
