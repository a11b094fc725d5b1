//! The topics that a pool on Kafka reads, and those it must not read.

use std::sync::Arc;

use serde_json::Value as Json;

use crate::model::{KafkaSource, Options, PoolConfig, Topics, group_in_topics};
use crate::reader::Reader;
use crate::tree::Node;
use crate::value_types::compound::one_or_more;
use crate::value_types::{Kind, Wrong, word};

/// Reads the queue, or the topics where several are allowed.
pub(super) fn queue(t: &mut Reader<'_>, is_kafka: bool) -> (Arc<str>, Topics) {
    let meaning = "Queue that the pool reads; on Kafka a topic, or a list of topics and of patterns of their \
         names, which are regular expressions that begin with `^`.";
    if !is_kafka {
        return (t.must("queue", word(), meaning).into(), Topics::default());
    }
    let wanted = t.must("queue", one_or_more(Topic), meaning);
    for (index, name) in wanted.iter().enumerate() {
        if wanted[..index].contains(name) {
            let wrong = Wrong::new(format!("must not contain `{name}` twice"), "");
            t.wrong("queue", &wrong);
        }
    }
    // A wrong pattern has been reported already.
    let topics = Topics::read(&wanted).unwrap_or_default();
    (wanted.join(", ").into(), topics)
}

/// A topic's name, or a pattern of names.
#[derive(Debug, Clone, Copy)]
struct Topic;

impl Kind for Topic {
    type Value = String;

    fn read(&self, node: &Node) -> Result<String, Wrong> {
        let text = word().read(node)?;
        let checked = Topics::read(std::slice::from_ref(&text));
        let wrong = |(_, why)| {
            let help = format!("{why}; or leave out the `^` if it is a name");
            Wrong::new("must be a regular expression, as it begins with `^`", help)
        };
        checked.map(|_| text).map_err(wrong)
    }

    fn show(&self, value: &String) -> String {
        word().show(value)
    }

    fn describe(&self) -> String {
        word().describe()
    }

    fn schema(&self) -> Json {
        word().schema()
    }
}

/// The pools on Kafka read so far.
#[derive(Debug, Default)]
pub(super) struct Readers(Vec<TopicReader>);

#[derive(Debug)]
struct TopicReader {
    pool: String,
    brokers: String,
    group: String,
    topics: Topics,
    dead_letter: Option<String>,
}

impl Readers {
    /// Checks that no two pools of a group read one topic, and that no pool reads dead letters by a
    /// pattern.
    pub(super) fn check(&mut self, t: &Reader<'_>, pool: &PoolConfig, source: &KafkaSource) {
        let Options::Kafka(options) = &pool.options else {
            return;
        };
        let new = TopicReader {
            pool: pool.name.clone(),
            brokers: source.brokers.clone(),
            group: source.group.clone(),
            topics: options.topics.clone(),
            dead_letter: options.dead_letter.clone(),
        };
        new.check_itself(t);
        let mut others = self.0.iter();
        if let Some((key, wrong)) = others.find_map(|other| new.wrong_beside(other)) {
            t.wrong(key, &wrong);
        }
        self.0.push(new);
    }
}

impl TopicReader {
    /// Checks that a topic that this pool makes for itself is not also one that it reads.
    fn check_itself(&self, t: &Reader<'_>) {
        let is_beside = |name: &String| {
            let dead = name.strip_suffix(".dead");
            let tier = || Some(name.rsplit_once(".retry.")?.0);
            let stem = dead
                .or_else(tier)
                .and_then(|stem| stem.strip_suffix(&*group_in_topics(&self.group)));
            let topic = stem.and_then(|stem| stem.strip_suffix('.'));
            topic.is_some_and(|topic| self.topics.include(topic))
        };
        if let Some(name) = self.topics.names().iter().find(|name| is_beside(name)) {
            let rule = format!(
                "must not contain `{name}`, which the pool itself uses for failed messages"
            );
            let help = "its messages would be read and fail again: leave it out, or give it a pool of its own";
            t.wrong("queue", &Wrong::new(rule, help));
        }
    }

    fn wrong_beside(&self, other: &Self) -> Option<(&'static str, Wrong)> {
        if self.brokers != other.brokers {
            return None;
        }
        let help =
            "its dead letters would be read as messages: name another topic, or another pattern";
        if let Some(dead) = &self.dead_letter
            && other.topics.match_by_pattern(dead)
        {
            let rule = format!("matches a pattern of the pool `{}`", other.pool);
            return Some(("dead_letter", Wrong::new(rule, help)));
        }
        if let Some(dead) = &other.dead_letter
            && self.topics.match_by_pattern(dead)
        {
            let rule = format!(
                "matches `{dead}`, which takes the dead letters of the pool `{}`",
                other.pool
            );
            return Some(("queue", Wrong::new(rule, help)));
        }
        if self.group != other.group {
            return None;
        }
        let common = other.topics.common(&self.topics)?;
        let rule = match self.topics.names() {
            [only] if only == common && other.topics.names().contains(only) => {
                format!("is already read by the pool `{}`", other.pool)
            }
            _ => format!("may match `{common}`, as may the pool `{}`", other.pool),
        };
        let help = "two programs would share its messages at random: give each pool topics of its own and \
             patterns that begin differently, or a source with another group";
        Some(("queue", Wrong::new(rule, help)))
    }
}
