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
    let meaning = "The queues that get each message of a topic, each under a `[[subscriptions]]` of its \
                   own. The daemon adds them to those of the table when it starts and when it reloads; \
                   `ganger subscriptions drop` removes them.";
    t.list("subscriptions", meaning, |t| {
        let subscription = Subscription {
            source: source(
                t,
                sources,
                "The table that both are in; may be left out where there is only one source.",
            ),
            topic: t.must("topic", word(), "The topic, as its senders name it."),
            queue: t.must("queue", word(), "The queue that gets a message of its own."),
        };
        let is_table = |source| matches!(source, &SourceConfig::Table(_));
        if !sources.get(&subscription.source).is_none_or(is_table) {
            let help = "on RabbitMQ a pool has `bind`";
            t.wrong("source", &Wrong::new("must be a table queue", help));
        }
        if !subscription.topic.is_empty() && !taken.insert(subscription.clone()) {
            t.wrong(
                "queue",
                &Wrong::new("is subscribed to this topic already", "leave one out"),
            );
        }
        subscription
    })
}
