//! The keys of a pool that reads a queue of RabbitMQ.

use super::source::rabbitmq::{QUEUE_TYPES, arguments};
use crate::model::{
    Binding, DeadLetters, ExchangeType, QueueDeclaration, RabbitMqOptions, SourceConfig,
    UnroutableReply,
};
use crate::print;
use crate::reader::Reader;
use crate::value_types::choice::choice;
use crate::value_types::{Kind as _, Wrong, integer, plain, text, word};

/// Reads the keys.
pub(super) fn options(
    t: &mut Reader<'_>,
    source: Option<&SourceConfig>,
    dead_letter: Option<String>,
) -> RabbitMqOptions {
    let mut queue = match source {
        Some(SourceConfig::RabbitMq(source)) => source.queue.clone(),
        _ => QueueDeclaration::default(),
    };
    let queue_type = t.maybe(
        "queue_type",
        choice(&QUEUE_TYPES),
        "Type of this queue if it is declared, instead of the source's.",
    );
    queue.queue_type = queue_type.unwrap_or(queue.queue_type);
    queue.arguments.extend(arguments(t));
    // The settings inherited from its source are printed, too.
    t.print("queue_type", Some(print::text(queue.queue_type.as_str())));
    let arguments = queue.arguments.iter();
    let arguments = arguments.map(|(name, value)| (print::key(name), plain().show(value)));
    t.print("queue_arguments", Some(print::table(arguments)));
    RabbitMqOptions {
        dead_letter: match dead_letter {
            None => DeadLetters::Default,
            Some(word) if word == "broker" => DeadLetters::Broker,
            Some(queue) => DeadLetters::Queue(queue),
        },
        unroutable_reply: t.or(
            "unroutable_reply",
            choice(&[
                ("dead_letter", UnroutableReply::DeadLetter),
                ("drop", UnroutableReply::Drop),
            ]),
            "dead_letter",
            "Outcome of a finished message whose reply can't be routed to any queue: a dead letter \
             with the reply, or done with the reply dropped.",
        ),
        consumer_priority: t.maybe(
            "consumer_priority",
            integer(-1_000_000..=1_000_000),
            "Priority of the consumer: those of a higher priority get messages first; the broker's \
             default, 0, if omitted.",
        ),
        consumer_arguments: t.map(
            "consumer_arguments",
            "an argument's name",
            |name| match name {
                "x-priority" => Err(Wrong::new("is set by `consumer_priority`", "leave it out")),
                name => Ok(name.to_owned()),
            },
            plain(),
            "Further arguments of the consumer.",
        ),
        bind: bind(t, source),
        queue,
    }
}

fn bind(t: &mut Reader<'_>, source: Option<&SourceConfig>) -> Vec<Binding> {
    let meaning = "Bindings of the queue to exchanges, created at the start and never removed.";
    let bind = t.list("bind", meaning, |t| Binding {
        exchange: t.must("exchange", word(), "The exchange."),
        exchange_type: t.maybe(
            "type",
            choice(&[
                ("direct", ExchangeType::Direct),
                ("topic", ExchangeType::Topic),
                ("headers", ExchangeType::Headers),
                ("fanout", ExchangeType::Fanout),
            ]),
            "Type with which a missing exchange is declared, as durable. If omitted, the exchange \
             must exist; its type does not matter.",
        ),
        routing_key: t.or(
            "routing_key",
            text(),
            "",
            "Routing key of the messages, or for a topic exchange a pattern, in which `*` matches \
             one word and `#` any number of them.",
        ),
        arguments: t.map(
            "arguments",
            "an argument's name",
            |name| Ok(name.to_owned()),
            plain(),
            "Arguments of the binding: for an exchange of the type `headers` the required headers, \
             and `x-match`.",
        ),
    });
    if let Some(SourceConfig::RabbitMq(source)) = source
        && !source.declare
        && !bind.is_empty()
    {
        let help = "leave it out, and bind the queue where it is declared";
        let rule = "has no effect if the source's `declare` is false";
        t.wrong("bind", &Wrong::new(rule, help));
    }
    bind
}
