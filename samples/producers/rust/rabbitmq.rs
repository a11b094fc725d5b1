//! Sends a message to RabbitMQ and ends when the broker has it.

use std::env;
use std::io::Write as _;

use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Confirmation, Connection, ConnectionProperties};
use uuid::Uuid;

const PERSISTENT: u8 = 2;

async fn send(url: &str, correlation_id: &str) -> Result<(), Box<dyn std::error::Error>> {
    let connection = Connection::connect(url, ConnectionProperties::default()).await?;
    let channel = connection.create_channel().await?;
    channel
        .confirm_select(ConfirmSelectOptions::default())
        .await?;
    let mut headers = FieldTable::default();
    headers.insert("tenant".into(), AMQPValue::LongString("blue".into()));
    let traceparent = env::var("TRACEPARENT")?;
    headers.insert(
        "traceparent".into(),
        AMQPValue::LongString(traceparent.into()),
    );
    let properties = BasicProperties::default()
        .with_delivery_mode(PERSISTENT)
        .with_content_type("application/json".into())
        .with_message_id(Uuid::new_v4().to_string().into())
        .with_correlation_id(correlation_id.into())
        .with_reply_to("orders.replies".into())
        .with_headers(headers);
    // Without the queue it comes back.
    let options = BasicPublishOptions {
        mandatory: true,
        ..BasicPublishOptions::default()
    };
    let body = br#"{"order": 17}"#;
    let publish = channel.basic_publish("".into(), "orders".into(), options, body, properties);
    match publish.await?.await? {
        Confirmation::Ack(None) => {}
        other => return Err(format!("not sent: {other:?}").into()),
    }
    connection.close(200, "done".into()).await?;
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = env::var("AMQP_URL").unwrap_or_else(|_| "amqp://localhost".into());
    let correlation_id = Uuid::new_v4().to_string();
    send(&url, &correlation_id).await?;
    writeln!(std::io::stdout(), "{correlation_id}")?;
    Ok(())
}
