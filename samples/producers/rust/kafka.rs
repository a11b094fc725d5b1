//! Sends a record to Kafka and ends when all replicas in sync have it.

use std::env;
use std::io::Write as _;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord, Producer as _};
use uuid::Uuid;

async fn send(brokers: &str, correlation_id: &str) -> Result<(), Box<dyn std::error::Error>> {
    let producer: FutureProducer = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("enable.idempotence", "true") // acks=all, and a retry is no duplicate
        .set("partitioner", "murmur2_random") // a key goes where other clients' producers put it
        .set("delivery.timeout.ms", "30000")
        .create()?;
    let (message_id, traceparent) = (Uuid::new_v4().to_string(), env::var("TRACEPARENT")?);
    let headers = [
        ("CorrelationId", correlation_id),
        ("ReplyTo", "orders.replies"),
        ("MessageId", &message_id),
        ("content-type", "application/json"),
        ("tenant", "blue"),
        ("traceparent", &traceparent),
    ];
    let headers = headers
        .into_iter()
        .fold(OwnedHeaders::new(), |headers, (key, value)| {
            headers.insert(Header {
                key,
                value: Some(value),
            })
        });
    let record = FutureRecord::to("orders")
        .key("customer-4")
        .payload(r#"{"order": 17}"#)
        .headers(headers);
    producer
        .send(record, Duration::ZERO)
        .await
        .map_err(|(error, _)| error)?;
    producer.flush(Duration::from_secs(1))?;
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let brokers = env::var("KAFKA_BROKERS").unwrap_or_else(|_| "localhost:9092".into());
    let correlation_id = Uuid::new_v4().to_string();
    send(&brokers, &correlation_id).await?;
    writeln!(std::io::stdout(), "{correlation_id}")?;
    Ok(())
}
