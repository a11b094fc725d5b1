//! The keys for remembering finished messages.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value as Json, json};

use super::shared::YEAR;
use crate::model::{Idempotency, MessageKey, SourceConfig, TableSource};
use crate::print;
use crate::reader::Reader;
use crate::tree::Node;
use crate::value_types::{Kind, VARIABLE, Wrong, duration, word};
use ganger_core::suggest::nearest;

/// Prefix before a header's name.
const HEADER: &str = "header:";

/// Long enough for a redelivery that comes at once.
const WINDOW_MIN: Duration = Duration::from_secs(1);

pub(super) fn idempotency(
    t: &mut Reader<'_>,
    source: &str,
    sources: &BTreeMap<String, SourceConfig>,
) -> Option<Idempotency> {
    t.table_if_given(
        "idempotency",
        "Record of finished messages: a message that is delivered again, as after a lost \
         connection or because its producer has sent it twice, is acknowledged without being \
         processed again, and its reply is sent again.",
        |t| {
            let key = t.or(
                "key",
                MessageKeys,
                "message_id",
                "Value by which a message is recognised as the same as another. A message without \
                 it is processed as usual, and counted.",
            );
            let window = t.or(
                "window",
                duration(WINDOW_MIN..=YEAR),
                "24h",
                "Time for which a finished message is remembered.",
            );
            let (store, table) = store(t, source, sources)?;
            Some(Idempotency {
                key,
                window,
                store,
                table,
                scope: scope(source, sources.get(source)),
            })
        },
    )
    .flatten()
}

/// Returns the source's name with whatever tells its messages from those of another daemon's source of
/// that name. It does not hold the address: the daemons of a cluster may know the source by several.
fn scope(name: &str, source: Option<&SourceConfig>) -> String {
    match source {
        Some(SourceConfig::Kafka(kafka)) => format!("{name}:{}", kafka.group),
        Some(SourceConfig::RabbitMq(rabbitmq)) => format!("{name}:{}", rabbitmq.vhost),
        Some(SourceConfig::Table(_)) | None => name.to_owned(),
    }
}

fn store(
    t: &mut Reader<'_>,
    source: &str,
    sources: &BTreeMap<String, SourceConfig>,
) -> Option<(String, TableSource)> {
    let given = t.maybe(
        "store",
        word(),
        "Source of kind `table` whose database holds the record; may be omitted if the pool's own \
         source is one, or if there is only one.",
    );
    let tables = sources.iter().filter_map(|(name, source)| match source {
        SourceConfig::Table(table) => Some((name.as_str(), table)),
        SourceConfig::RabbitMq(_) | SourceConfig::Kafka(_) => None,
    });
    let tables: BTreeMap<&str, &TableSource> = tables.collect();
    let only = || match tables.keys().copied().collect::<Vec<_>>()[..] {
        [only] => Some(only),
        _ => None,
    };
    let own = || tables.contains_key(source).then_some(source);
    let Some(name) = given.as_deref().or_else(own).or_else(only) else {
        t.missing("store", &among(&tables));
        return None;
    };
    t.print("store", Some(print::text(name)));
    let Some(table) = tables.get(name) else {
        let rule = match sources.contains_key(name) {
            true => "must be a source of kind `table`",
            false => "must be one of the sources",
        };
        let help = match nearest(name, tables.keys().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => among(&tables),
        };
        t.wrong("store", &Wrong::new(rule, help));
        return None;
    };
    Some((name.to_owned(), (*table).clone()))
}

fn among(tables: &BTreeMap<&str, &TableSource>) -> String {
    let names: Vec<&str> = tables.keys().copied().collect();
    match names.is_empty() {
        true => {
            "no source is of kind `table`: add one, as [sources.finished] with kind = \"table\" \
             and a url"
                .to_owned()
        }
        false => format!("the sources of kind `table` are: {}", names.join(", ")),
    }
}

/// Kinds of message key by which repetitions are recognised.
#[derive(Debug, Clone, Copy)]
struct MessageKeys;

impl Kind for MessageKeys {
    type Value = MessageKey;

    fn read(&self, node: &Node) -> Result<MessageKey, Wrong> {
        let text = node.as_text().unwrap_or_default();
        let header = text.strip_prefix(HEADER).unwrap_or_default();
        match text {
            "message_id" => Ok(MessageKey::MessageId),
            "correlation_id" => Ok(MessageKey::CorrelationId),
            _ if !header.is_empty() => Ok(MessageKey::Header(header.to_owned())),
            _ => {
                let rule = format!("must be {}", self.describe());
                let help = "a header is named as in \"header:order-id\"";
                Err(Wrong::new(rule, help))
            }
        }
    }

    fn show(&self, key: &MessageKey) -> String {
        match key {
            MessageKey::MessageId => print::text("message_id"),
            MessageKey::CorrelationId => print::text("correlation_id"),
            MessageKey::Header(name) => print::text(&format!("{HEADER}{name}")),
        }
    }

    fn describe(&self) -> String {
        format!("`\"message_id\"`, `\"correlation_id\"` or `\"{HEADER}NAME\"`")
    }

    fn schema(&self) -> Json {
        json!({ "anyOf": [
            { "enum": ["message_id", "correlation_id"] },
            { "type": "string", "pattern": format!("^{HEADER}.") },
            { "type": "string", "pattern": VARIABLE },
        ] })
    }
}
