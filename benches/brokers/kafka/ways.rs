//! The two paths whose latency is measured: through the daemon to a worker, and to a consumer of librdkafka
//! in this process.

use miette::IntoDiagnostic;
use rdkafka::consumer::CommitMode;
use rdkafka::producer::{BaseRecord, DefaultProducerContext, ThreadedProducer};

use super::raw;
use super::topic::{Topic, VALUE_BYTES};
use crate::common::machine::monotonic_nanos;
use crate::latency::Way;
use crate::pool::{Pool, Workers};
use crate::running::Running;

const WORKERS: Workers = Workers::rust(4);

/// Returns the path through a daemon, which ends when the value is dropped.
pub(super) fn daemon(topic: &Topic<'_>) -> miette::Result<Way> {
    let running = Running::start(topic, &Pool::of(WORKERS))?;
    Ok(Way {
        name: "daemon".into(),
        is_ours: true,
        send: sender(topic)?,
        receive: Box::new(move || running.wait_for(1)),
    })
}

/// Returns the path to a consumer in this process.
pub(super) fn raw(topic: &Topic<'_>) -> miette::Result<Way> {
    let consumer = raw::connect(topic)?;
    raw::begin(&consumer, topic)?;
    Ok(Way {
        name: "raw".into(),
        is_ours: false,
        send: sender(topic)?,
        receive: Box::new(move || {
            raw::receive(&consumer)?;
            let received = monotonic_nanos();
            raw::commit(&consumer, CommitMode::Async)?;
            Ok(received)
        }),
    })
}

/// Returns a function that hands one message to librdkafka, which sends it at once.
fn sender(topic: &Topic<'_>) -> miette::Result<Box<dyn FnMut() -> miette::Result<()>>> {
    let producer: ThreadedProducer<DefaultProducerContext> = topic.client(&[("linger.ms", "0")])?;
    let name = topic.name.clone();
    Ok(Box::new(move || {
        let record = BaseRecord::to(&name)
            .key("key")
            .payload(&[b'x'; VALUE_BYTES]);
        let sent = producer.send(record);
        sent.map_err(|(error, _)| error).into_diagnostic()
    }))
}
