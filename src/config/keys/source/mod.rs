//! The keys of `[sources.NAME]`: those that several kinds of source have. What only one kind has
//! is in a file of its own beside this one.

mod kafka;
pub(super) mod rabbitmq;
mod table;

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::Surroundings;
use crate::config::model::{QueueType, SourceConfig};
use crate::config::reader::Reader;
use crate::config::value_types::{Kind, NAME_RULE, Wrong, boolean, choice, is_name, word};

/// The longest secret that a file may hold, in bytes.
const SECRET_BYTES_MAX: u64 = 4096;

/// What is at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SourceKind {
    Table,
    RabbitMq,
    Kafka,
}

/// The types of a queue of RabbitMQ.
pub(super) const QUEUE_TYPES: [(&str, QueueType); 2] = [
    ("quorum", QueueType::Quorum),
    ("classic", QueueType::Classic),
];

/// Reads one source.
pub(super) fn read(t: &mut Reader<'_>, around: Surroundings<'_>) -> SourceConfig {
    let kind = t.must("kind", kind(), "What is at the other end.");
    if kind.is_none() {
        // Nobody knows what its other keys should be: one problem says enough.
        t.give_up();
    }
    let is = |wanted| kind.is_none_or(|kind| kind == wanted);
    let has_url = is(SourceKind::Table) || is(SourceKind::RabbitMq);
    let url = t.only("a table queue or RabbitMQ", has_url, |t| url(t, around));
    let is_broker = is(SourceKind::RabbitMq) || is(SourceKind::Kafka);
    let declare = t.only("RabbitMQ or Kafka", is_broker, declare);
    let (url, declare) = (url.flatten(), declare.unwrap_or_default());
    let table = t.only("a table queue", is(SourceKind::Table), |t| {
        table::read(t, url.as_ref(), around)
    });
    let rabbitmq = t.only("RabbitMQ", is(SourceKind::RabbitMq), |t| {
        rabbitmq::read(t, url.as_ref(), declare, around)
    });
    let kafka = t.only("Kafka", is(SourceKind::Kafka), |t| kafka::read(t, declare));
    // Without a kind all three were read, to no use but to find what is wrong.
    let table = table.map(SourceConfig::Table);
    let broker = || rabbitmq.map(SourceConfig::RabbitMq);
    let log = || kafka.map(SourceConfig::Kafka);
    table
        .or_else(broker)
        .or_else(log)
        .unwrap_or_else(|| unreachable!("one of the kinds is read"))
}

/// Checks a source's name.
pub(super) fn check_name(name: &str) -> Result<(), Wrong> {
    if is_name(name) {
        return Ok(());
    }
    Err(Wrong::new(NAME_RULE, ""))
}

fn kind() -> impl Kind<Value = Option<SourceKind>> {
    choice(&[
        ("table", Some(SourceKind::Table)),
        ("rabbitmq", Some(SourceKind::RabbitMq)),
        ("kafka", Some(SourceKind::Kafka)),
    ])
}

fn declare(t: &mut Reader<'_>) -> bool {
    t.or(
        "declare",
        boolean(),
        "true",
        "Whether queues and topics that are missing are made; else all that is missing is named, \
         and the daemon does not start.",
    )
}

/// A URL as it was given.
#[derive(Debug)]
struct Url {
    /// The key that it was given by.
    key: &'static str,
    text: String,
}

impl Url {
    /// What it means, or a problem. What a file holds is a secret: no problem shows it.
    fn read<T>(&self, t: &Reader<'_>, parse: impl Fn(&str) -> Result<T, Wrong>) -> Option<T> {
        let wrong = |wrong: Wrong| match self.key {
            "url" => t.wrong(self.key, &wrong),
            file => {
                let rule = format!("holds a URL that {}", wrong.rule);
                t.wrong(file, &Wrong::new(rule, wrong.help));
            }
        };
        parse(&self.text).map_err(wrong).ok()
    }
}

fn url(t: &mut Reader<'_>, around: Surroundings<'_>) -> Option<Url> {
    let given = t.maybe(
        "url",
        word(),
        "Where it is: `sqlite:PATH` for a table queue, relative to the directory of this file; \
         `amqp://USER:PASSWORD@HOST:PORT/VHOST`, or `amqps://` with TLS, for RabbitMQ, each part \
         percent-encoded. This or `url_file` must be given.",
    );
    let file = secret_file(
        t,
        around,
        "url",
        "url_file",
        "A file that holds the URL, instead of `url`; relative to the directory of this file.",
    );
    let url = |key| move |text| Url { key, text };
    given.map(url("url")).or_else(|| file.map(url("url_file")))
}

/// A secret that stands in a file, instead of under the key `plain`.
fn secret_file(
    t: &mut Reader<'_>,
    around: Surroundings<'_>,
    plain: &'static str,
    key: &'static str,
    meaning: &'static str,
) -> Option<String> {
    let file = t.maybe(key, word(), meaning)?;
    if t.has(plain) {
        let rule = format!("and `{plain}` can't both be given");
        t.wrong(key, &Wrong::new(rule, ""));
    }
    let text = text_in(&around.directory.join(file));
    text.map_err(|wrong| t.wrong(key, &wrong)).ok()
}

fn text_in(file: &Path) -> Result<String, Wrong> {
    let mut text = String::new();
    File::open(file)
        .and_then(|file| file.take(SECRET_BYTES_MAX).read_to_string(&mut text))
        .map_err(|error| Wrong::new(format!("can't be read ({error})"), ""))?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}
