//! The keys of `[[subscriptions]]`: a topic and the queue that receives its messages.

use std::collections::{BTreeMap, BTreeSet};

use super::pool::source;
use crate::model::{SourceConfig, Subscription};
use crate::reader::Reader;
use crate::value_types::{Wrong, word};

/// Reads all of them.
pub(super) fn read_all(
    t: &mut Reader<'_>,
    sources: &BTreeMap<String, SourceConfig>,
) -> Vec<Subscription> {
    let mut taken = BTreeSet::new();
    let meaning = "Queues that receive each message of a topic, each in its own `[[subscriptions]]`. The \
         daemon adds them to those of the table when it starts and when it reloads; `ganger \
         subscriptions drop` removes them.";
    t.list("subscriptions", meaning, |t| {
        let subscription = Subscription {
            source: source(
                t,
                sources,
                "Table source of both; may be omitted if there is only one source.",
            ),
            topic: t.must("topic", word(), "Topic, as its senders name it."),
            queue: t.must(
                "queue",
                word(),
                "Queue that receives a copy of each message.",
            ),
        };
        let is_table = |source| matches!(source, &SourceConfig::Table(_));
        if !sources.get(&subscription.source).is_none_or(is_table) {
            let help = "on RabbitMQ use `bind` of the pool";
            t.wrong("source", &Wrong::new("must be a table queue", help));
        }
        if !subscription.topic.is_empty() && !taken.insert(subscription.clone()) {
            t.wrong(
                "queue",
                &Wrong::new("is already subscribed to this topic", "leave one out"),
            );
        }
        subscription
    })
}
