//! A client of the test's own, in blocking calls: what any other program at the broker would do.

use std::sync::LazyLock;
use std::sync::mpsc::{Receiver, sync_channel};

use lapin::options::{
    BasicConsumeOptions, BasicGetOptions, BasicNackOptions, BasicPublishOptions,
    ConfirmSelectOptions, ExchangeDeclareOptions, ExchangeDeleteOptions, QueueBindOptions,
    QueueDeclareOptions, QueueDeleteOptions, QueuePurgeOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{
    Channel, Confirmation, Connection, ConnectionProperties, ErrorKind, ExchangeKind,
    PublisherConfirm,
};
use tokio::runtime::Runtime;

use super::letter::Letter;
use crate::servers::DEADLINE;

/// How many messages are published before their confirmations are waited for.
const IN_FLIGHT_MAX: usize = 1_000;

/// All clients' connections live here.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().build().unwrap()
});

fn wait<T>(what: impl Future<Output = T>) -> T {
    let in_time = async { tokio::time::timeout(DEADLINE, what).await };
    let done = RUNTIME.block_on(in_time);
    done.expect("the broker did not answer the test's own client")
}

/// Arguments of a queue.
pub(crate) type Arguments<'a> = &'a [(&'a str, AMQPValue)];

/// An argument or a header that is a text.
pub(crate) fn text(value: &str) -> AMQPValue {
    AMQPValue::LongString(value.into())
}

/// The arguments of a queue of that kind.
pub(crate) fn kind(kind: &str) -> (&'static str, AMQPValue) {
    ("x-queue-type", text(kind))
}

/// The client. Dropped, it is gone.
pub(crate) struct Client {
    connection: Connection,
    publishing: Channel,
}

impl Client {
    pub(crate) fn connect(url: &str) -> Self {
        let connect = async {
            // Without a limit of its own or the broker's the library asks for 128 GiB of memory.
            let url = format!("{url}?frame_max=1048576");
            let connection = Connection::connect(&url, ConnectionProperties::default()).await?;
            let publishing = connection.create_channel().await?;
            let options = ConfirmSelectOptions::default();
            publishing.confirm_select(options).await?;
            Ok::<_, lapin::Error>(Self {
                connection,
                publishing,
            })
        };
        wait(connect).unwrap()
    }

    /// A channel for one thing: an error closes it.
    async fn channel(&self) -> lapin::Result<Channel> {
        self.connection.create_channel().await
    }

    // -- queues --

    /// Declares a durable queue.
    pub(crate) fn declare(&self, queue: &str, arguments: Arguments<'_>) {
        self.declare_with(queue, QueueDeclareOptions::durable(), arguments);
    }

    /// Declares a queue with these options.
    pub(crate) fn declare_with(
        &self,
        queue: &str,
        options: QueueDeclareOptions,
        arguments: Arguments<'_>,
    ) {
        let declare = async {
            let channel = self.channel().await?;
            let arguments = table(arguments);
            channel
                .queue_declare(queue.into(), options, arguments)
                .await
        };
        wait(declare).unwrap();
    }

    /// How many messages of a queue nobody has in hand; none where there is no such queue.
    pub(crate) fn ready(&self, queue: &str) -> Option<u32> {
        let options = QueueDeclareOptions::durable().passive();
        let look = async {
            let channel = self.channel().await?;
            let arguments = FieldTable::default();
            channel
                .queue_declare(queue.into(), options, arguments)
                .await
        };
        match wait(look) {
            Ok(queue) => Some(queue.message_count()),
            Err(error) if is_not_found(&error) => None,
            Err(error) => panic!("looking for `{queue}`: {error}"),
        }
    }

    /// Deletes a queue with all that is in it.
    pub(crate) fn delete(&self, queue: &str) {
        let options = QueueDeleteOptions::default();
        let delete = async {
            self.channel()
                .await?
                .queue_delete(queue.into(), options)
                .await
        };
        wait(delete).unwrap();
    }

    /// Throws away all that nobody has in hand.
    pub(crate) fn purge(&self, queue: &str) {
        let options = QueuePurgeOptions::default();
        let purge = async {
            self.channel()
                .await?
                .queue_purge(queue.into(), options)
                .await
        };
        wait(purge).unwrap();
    }

    // -- exchanges --

    /// Declares a durable exchange of that kind.
    pub(crate) fn declare_exchange(&self, exchange: &str, kind: ExchangeKind) {
        wait(self.ask_exchange(exchange, kind, false)).unwrap();
    }

    /// Whether there is one.
    pub(crate) fn has_exchange(&self, exchange: &str) -> bool {
        match wait(self.ask_exchange(exchange, ExchangeKind::Direct, true)) {
            Ok(()) => true,
            Err(error) if is_not_found(&error) => false,
            Err(error) => panic!("looking for `{exchange}`: {error}"),
        }
    }

    async fn ask_exchange(
        &self,
        exchange: &str,
        kind: ExchangeKind,
        passive: bool,
    ) -> lapin::Result<()> {
        let options = ExchangeDeclareOptions {
            durable: true,
            passive,
            ..ExchangeDeclareOptions::default()
        };
        let none = FieldTable::default();
        let channel = self.channel().await?;
        let declare = channel.exchange_declare(exchange.into(), kind, options, none);
        declare.await?;
        channel.close(200, "done".into()).await
    }

    /// Deletes one, and its bindings with it.
    pub(crate) fn delete_exchange(&self, exchange: &str) {
        let options = ExchangeDeleteOptions::default();
        let delete = async {
            let channel = self.channel().await?;
            channel.exchange_delete(exchange.into(), options).await
        };
        wait(delete).unwrap();
    }

    /// Lets a durable exchange of that kind feed a queue.
    pub(crate) fn bind(&self, exchange: &str, kind: ExchangeKind, key: &str, queue: &str) {
        self.declare_exchange(exchange, kind);
        let bind = async {
            let channel = self.channel().await?;
            let options = QueueBindOptions::default();
            let (queue, exchange, key) = (queue.into(), exchange.into(), key.into());
            let none = FieldTable::default();
            channel
                .queue_bind(queue, exchange, key, options, none)
                .await
        };
        wait(bind).unwrap();
    }

    // -- messages --

    /// Publishes them, and waits until the broker has confirmed each.
    pub(crate) fn publish(&self, letters: &[Letter]) {
        for some in letters.chunks(IN_FLIGHT_MAX) {
            let publish = async {
                let mut confirms = Vec::with_capacity(some.len());
                for letter in some {
                    confirms.push(self.hand_over(letter).await?);
                }
                for (confirm, letter) in confirms.into_iter().zip(some) {
                    let confirmation = confirm.await?;
                    assert_eq!(confirmation, Confirmation::Ack(None), "{letter:?}");
                }
                Ok::<_, lapin::Error>(())
            };
            wait(publish).unwrap();
        }
    }

    /// Publishes until the queue is full. Returns how many it took.
    pub(crate) fn fill(&self, queue: &str) -> u64 {
        let letter = Letter::new(queue, "in the way");
        let offer = || async { self.hand_over(&letter).await?.await };
        let took = || wait(offer()).unwrap() == Confirmation::Ack(None);
        let mut count = 0;
        while took() {
            count += 1;
        }
        count
    }

    /// Publishes it; whether any queue has taken it.
    pub(crate) fn is_routed(&self, letter: &Letter) -> bool {
        let confirmation = wait(async { self.hand_over(letter).await?.await });
        confirmation.unwrap() == Confirmation::Ack(None)
    }

    async fn hand_over(&self, letter: &Letter) -> lapin::Result<PublisherConfirm> {
        let options = BasicPublishOptions {
            mandatory: true,
            ..BasicPublishOptions::default()
        };
        let (exchange, key) = (&*letter.exchange, &*letter.routing_key);
        let properties = letter.properties.clone();
        self.publishing
            .basic_publish(
                exchange.into(),
                key.into(),
                options,
                &letter.body,
                properties,
            )
            .await
    }

    /// Takes the first message out of a queue.
    pub(crate) fn take(&self, queue: &str) -> Option<Letter> {
        let options = BasicGetOptions { no_ack: true };
        let take = async { self.channel().await?.basic_get(queue.into(), options).await };
        let got = wait(take).unwrap()?;
        Some(Letter::from(got.delivery))
    }

    /// Takes all messages out of a queue.
    pub(crate) fn take_all(&self, queue: &str) -> Vec<Letter> {
        let options = BasicGetOptions { no_ack: true };
        let channel = wait(self.channel()).unwrap();
        let mut letters = Vec::new();
        while let Some(got) = wait(channel.basic_get(queue.into(), options)).unwrap() {
            letters.push(Letter::from(got.delivery));
        }
        letters
    }

    /// Takes the first message of a queue and gives it back.
    pub(crate) fn give_back(&self, queue: &str) {
        let (options, back) = (
            BasicGetOptions::default(),
            BasicNackOptions {
                requeue: true,
                ..BasicNackOptions::default()
            },
        );
        let give_back = async {
            let channel = self.channel().await?;
            let got = channel.basic_get(queue.into(), options).await?;
            got.unwrap().nack(back).await?;
            channel.close(200, "done".into()).await
        };
        wait(give_back).unwrap();
    }

    /// Has the first message of a queue in hand, until what is returned is dropped.
    pub(crate) fn hold(&self, queue: &str) -> Channel {
        let options = BasicGetOptions::default();
        let hold = async {
            let channel = self.channel().await?;
            let got = channel.basic_get(queue.into(), options).await?;
            assert!(got.is_some(), "nothing in `{queue}`");
            Ok::<_, lapin::Error>(channel)
        };
        wait(hold).unwrap()
    }

    /// Consumes a queue, acknowledging everything, on the channel that publishes: as is asked of
    /// those who use the direct reply-to.
    pub(crate) fn listen(&self, queue: &str) -> Receiver<Box<Letter>> {
        let (tell, told) = sync_channel(IN_FLIGHT_MAX);
        let options = BasicConsumeOptions {
            no_ack: true,
            ..BasicConsumeOptions::default()
        };
        let listen = async {
            let (queue, tag) = (queue.into(), "".into());
            let consume = self
                .publishing
                .basic_consume(queue, tag, options, FieldTable::default());
            let consumer = consume.await?;
            consumer.set_delegate(move |delivery: lapin::message::DeliveryResult| {
                let letter = delivery.ok().flatten().map(Letter::from);
                if let Some(letter) = letter {
                    // A test that has heard enough no longer listens.
                    drop(tell.try_send(Box::new(letter)));
                }
                std::future::ready(())
            });
            Ok::<_, lapin::Error>(())
        };
        wait(listen).unwrap();
        told
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Its broker may be gone, which is no news.
        let close = self.connection.close(200, "done".into());
        let in_time = async { tokio::time::timeout(DEADLINE, close).await };
        drop(RUNTIME.block_on(in_time));
    }
}

pub(super) fn table(arguments: Arguments<'_>) -> FieldTable {
    let mut table = FieldTable::default();
    for (name, value) in arguments {
        table.insert((*name).into(), value.clone());
    }
    table
}

fn is_not_found(error: &lapin::Error) -> bool {
    match error.kind() {
        ErrorKind::ProtocolError(error) => error.get_id() == 404,
        _ => false,
    }
}
