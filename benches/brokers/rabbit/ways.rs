//! The two paths whose latency is measured: through the daemon to a worker, and to a consumer of lapin in
//! this process.

use std::rc::Rc;
use std::sync::Arc;

use futures_util::StreamExt;
use lapin::options::{BasicAckOptions, BasicPublishOptions};
use lapin::{Channel, Connection, Consumer};
use miette::{IntoDiagnostic, miette};
use tokio::runtime::Runtime;

use super::place::{Kind, Letter, Place, QUEUE};
use super::raw;
use crate::common::machine::monotonic_nanos;
use crate::common::one_thread;
use crate::latency::Way;
use crate::pool::{Pool, Workers};
use crate::running::Running;

const WORKERS: Workers = Workers::rust(4);

/// Returns the path through a daemon, which ends when the value is dropped.
pub(super) fn daemon(place: &Place<'_>, kind: Kind) -> miette::Result<Way> {
    place.declare(kind)?;
    let running = Arc::new(Running::start(place, &Pool::of(WORKERS))?);
    let client = Rc::new(Client::connect(place)?);
    let sender = Rc::clone(&client);
    Ok(Way {
        name: format!("{}, daemon", kind.describe()),
        is_ours: true,
        send: Box::new(move || sender.send()),
        receive: Box::new(move || {
            let running = Arc::clone(&running);
            client.drive_while(move || running.wait_for(1))
        }),
    })
}

/// Returns the path to a consumer in this process.
pub(super) fn raw(place: &Place<'_>, kind: Kind) -> miette::Result<Way> {
    place.declare(kind)?;
    let client = Rc::new(Client::connect(place)?);
    let mut consumer = client.consume()?;
    let sender = Rc::clone(&client);
    Ok(Way {
        name: format!("{}, raw", kind.describe()),
        is_ours: false,
        send: Box::new(move || sender.send()),
        receive: Box::new(move || client.receive(&mut consumer)),
    })
}

/// A connection. Data handed to it is sent while one of its functions is awaited.
struct Client {
    runtime: Runtime,
    channel: Channel,
    letter: Letter,
    _connection: Connection,
}

impl Client {
    fn connect(place: &Place<'_>) -> miette::Result<Self> {
        let runtime = one_thread()?;
        let connection = runtime.block_on(place.connect())?;
        let channel = runtime.block_on(connection.create_channel());
        Ok(Self {
            runtime,
            channel: channel.into_diagnostic()?,
            letter: Letter::default(),
            _connection: connection,
        })
    }

    fn send(&self) -> miette::Result<()> {
        let Letter { body, properties } = &self.letter;
        let options = BasicPublishOptions::default();
        let (exchange, queue) = ("".into(), QUEUE.into());
        let publish =
            self.channel
                .basic_publish(exchange, queue, options, body, properties.clone());
        let published = self.runtime.block_on(publish);
        published.map(drop).into_diagnostic()
    }

    /// Runs something else that blocks.
    fn drive_while<T: Send + 'static>(
        &self,
        what: impl FnOnce() -> miette::Result<T> + Send + 'static,
    ) -> miette::Result<T> {
        let done = async { tokio::task::spawn_blocking(what).await };
        self.runtime.block_on(done).into_diagnostic()?
    }

    fn consume(&self) -> miette::Result<Consumer> {
        let consumer = self.runtime.block_on(raw::consume(&self.channel));
        consumer.into_diagnostic()
    }

    /// Waits for the next message. Returns the time of its arrival.
    fn receive(&self, consumer: &mut Consumer) -> miette::Result<i64> {
        self.runtime.block_on(async {
            let delivery = consumer.next().await;
            let received = monotonic_nanos();
            let delivery = delivery.ok_or_else(|| miette!("the consumer was cancelled"))?;
            let tag = delivery.into_diagnostic()?.delivery_tag;
            let ack = self.channel.basic_ack(tag, BasicAckOptions::default());
            ack.await.into_diagnostic()?;
            Ok(received)
        })
    }
}
