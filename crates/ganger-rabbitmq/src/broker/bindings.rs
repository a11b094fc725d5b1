//! Bindings of a pool's queue to exchanges, created if they are missing. None is ever removed: a daemon with
//! an older configuration may still need it.

use lapin::options::{ExchangeDeclareOptions, QueueBindOptions};
use lapin::protocol::AMQPSoftError;
use lapin::types::{FieldTable, ShortString};
use lapin::{Channel, ExchangeKind};

use super::connect::{Broker, close};
use super::consumers::table;
use super::error::{RabbitMqError, error_text, soft};
use ganger_config::model::{Binding, ExchangeType};

/// Binds the queue as configured. An exchange whose type is given is declared.
///
/// # Errors
/// If an exchange is missing or does not match the configuration, or the connection is lost.
pub(super) async fn ensure(
    broker: &Broker,
    queue: &str,
    bindings: &[Binding],
) -> Result<(), RabbitMqError> {
    for binding in bindings {
        let channel = broker.channel().await?;
        declare(broker, &channel, binding, binding.exchange_type.is_none()).await?;
        bind(broker, &channel, queue, binding).await?;
        close(&channel).await;
    }
    Ok(())
}

/// Checks the exchanges and creates nothing: AMQP can't query whether a queue is bound to one. Returns the
/// problems for which a start would be refused.
///
/// # Errors
/// If the connection is lost.
pub(super) async fn find_problems(
    broker: &Broker,
    bindings: &[Binding],
) -> Result<Vec<RabbitMqError>, RabbitMqError> {
    let mut problems = Vec::new();
    for binding in bindings {
        let channel = broker.channel().await?;
        let mut looked = declare(broker, &channel, binding, true).await;
        match (&looked, binding.exchange_type) {
            // It will be created.
            (Err(RabbitMqError::MissingExchange { .. }), Some(_)) => looked = Ok(()),
            // The broker compares only the declared properties; an existing exchange is not changed.
            (Ok(()), Some(_)) => looked = declare(broker, &channel, binding, false).await,
            _ => {}
        }
        match looked {
            Ok(()) => close(&channel).await,
            Err(error @ RabbitMqError::Lost { .. }) => return Err(error),
            Err(error) => problems.push(error),
        }
    }
    Ok(problems)
}

async fn declare(
    broker: &Broker,
    channel: &Channel,
    binding: &Binding,
    passive: bool,
) -> Result<(), RabbitMqError> {
    let options = ExchangeDeclareOptions {
        passive,
        durable: true,
        ..ExchangeDeclareOptions::default()
    };
    let name = short(&binding.exchange)?;
    let kind = kind(binding.exchange_type.unwrap_or_default());
    let asked = channel.exchange_declare(name, kind, options, FieldTable::default());
    let answered = broker.ask(asked).await?;
    answered.map_err(|error| refusal(&binding.exchange, &error))
}

async fn bind(
    broker: &Broker,
    channel: &Channel,
    queue: &str,
    binding: &Binding,
) -> Result<(), RabbitMqError> {
    let (queue, exchange) = (short(queue)?, short(&binding.exchange)?);
    let key = short(&binding.routing_key)?;
    let arguments = table(&binding.arguments);
    let asked = channel.queue_bind(queue, exchange, key, QueueBindOptions::default(), arguments);
    let answered = broker.ask(asked).await?;
    answered.map_err(|error| refusal(&binding.exchange, &error))
}

fn kind(exchange_type: ExchangeType) -> ExchangeKind {
    match exchange_type {
        ExchangeType::Direct => ExchangeKind::Direct,
        ExchangeType::Topic => ExchangeKind::Topic,
        ExchangeType::Headers => ExchangeKind::Headers,
        ExchangeType::Fanout => ExchangeKind::Fanout,
    }
}

fn short(name: &str) -> Result<ShortString, RabbitMqError> {
    ShortString::try_new(name).map_err(|_| RabbitMqError::LongName {
        queue: name.to_owned(),
    })
}

fn refusal(exchange: &str, error: &lapin::Error) -> RabbitMqError {
    let (exchange, why) = (exchange.to_owned(), error_text(error));
    match soft(error) {
        // This also covers a queue that was deleted since it was checked; it is checked again.
        Some(AMQPSoftError::NOTFOUND) if why.contains("no queue") => {
            RabbitMqError::ChannelClosed { why }
        }
        Some(AMQPSoftError::NOTFOUND) => RabbitMqError::MissingExchange { exchange },
        Some(_) => RabbitMqError::Exchange { exchange, why },
        None => RabbitMqError::lost(error),
    }
}
