//! Finds the source of a queue when only the queue is named; makes unique names.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use ganger_config::model::{Config, DeadLetters, Options, PoolConfig, SourceConfig};

/// A source, and the pools that read from it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SourceInfo {
    /// Name of the source.
    pub name: String,
    /// Kind of the source: `table`, `rabbitmq` or `kafka`.
    pub kind: String,
    /// Pools that read from it.
    pub pools: Vec<PoolInfo>,
}

/// A pool that reads from a source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct PoolInfo {
    /// Name of the pool.
    pub name: String,
    /// Queue or topic that it reads.
    pub queue: String,
    /// Its dead letters go where the broker's policy sends them, and are not listed with those of the
    /// source.
    pub dead_letters_at_broker: bool,
}

impl SourceInfo {
    /// Describes one source of a configuration.
    pub fn of(config: &Config, name: &str, source: &SourceConfig) -> Self {
        let pools = config.pools.iter().filter(|pool| pool.source == name);
        Self {
            name: name.to_owned(),
            kind: source.kind().to_owned(),
            pools: pools.map(|pool| PoolInfo::of(pool)).collect(),
        }
    }

    /// Describes all sources of a configuration.
    pub fn all(config: &Config) -> Vec<Self> {
        let sources = config.sources.iter();
        sources
            .map(|(name, source)| Self::of(config, name, source))
            .collect()
    }

    /// Returns whether it is a table.
    pub fn is_table(&self) -> bool {
        self.kind == "table"
    }
}

impl PoolInfo {
    fn of(pool: &PoolConfig) -> Self {
        let dead_letters_at_broker = match &pool.options {
            Options::RabbitMq(options) => options.dead_letter == DeadLetters::Broker,
            Options::Table | Options::Kafka(_) => false,
        };
        Self {
            name: pool.name.clone(),
            queue: pool.queue.to_string(),
            dead_letters_at_broker,
        }
    }
}

/// The source can't be determined.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnknownSource {
    /// There is no source of that name.
    #[error("there is no source `{name}`; there is {known}")]
    NoSuch {
        /// The name.
        name: String,
        /// The names of the existing sources.
        known: String,
    },
    /// No pool reads the queue.
    #[error("no pool reads queue `{queue}`: choose its source with --source; there is {known}")]
    NotRead {
        /// The queue.
        queue: String,
        /// The names of the existing sources.
        known: String,
    },
    /// Pools read it from more than one.
    #[error("queue `{queue}` is read from several sources: choose one with --source: {among}")]
    Several {
        /// The queue.
        queue: String,
        /// The names of those sources.
        among: String,
    },
}

/// Returns the source of a queue: the one that is named, otherwise the one that pools read the queue
/// from, otherwise the only one.
///
/// # Errors
/// If there is none, or it can't be determined.
pub fn source_of<'a>(
    config: &'a Config,
    queue: &str,
    source: Option<&str>,
) -> Result<(&'a str, &'a SourceConfig), UnknownSource> {
    let reading: BTreeSet<&str> = config
        .pools
        .iter()
        .filter(|pool| pool.reads(queue))
        .map(|pool| pool.source.as_str())
        .collect();
    among(config, queue, source, reading)
}

/// Returns the source of a topic in the same way, by the subscriptions.
///
/// # Errors
/// If there is none, or it can't be determined.
pub fn source_of_topic<'a>(
    config: &'a Config,
    topic: &str,
    source: Option<&str>,
) -> Result<(&'a str, &'a SourceConfig), UnknownSource> {
    let subscribed: BTreeSet<&str> = config
        .subscriptions
        .iter()
        .filter(|subscription| subscription.topic == topic)
        .map(|subscription| subscription.source.as_str())
        .collect();
    among(config, topic, source, subscribed)
}

fn among<'a>(
    config: &'a Config,
    queue: &str,
    source: Option<&str>,
    reading: BTreeSet<&'a str>,
) -> Result<(&'a str, &'a SourceConfig), UnknownSource> {
    let known = || list(config.sources.keys().map(String::as_str));
    let mut names = reading.iter().copied();
    let name = match (source, names.next(), names.next()) {
        (Some(name), _, _) | (None, Some(name), None) => Some(name),
        (None, None, _) if config.sources.len() == 1 => {
            config.sources.keys().next().map(String::as_str)
        }
        (None, None, _) => None,
        (None, Some(_), Some(_)) => {
            return Err(UnknownSource::Several {
                queue: queue.to_owned(),
                among: list(reading.into_iter()),
            });
        }
    };
    let Some(name) = name else {
        return Err(UnknownSource::NotRead {
            queue: queue.to_owned(),
            known: known(),
        });
    };
    let found = config.sources.get_key_value(name);
    let unknown = || UnknownSource::NoSuch {
        name: name.to_owned(),
        known: known(),
    };
    let found = found.map(|(name, source)| (name.as_str(), source));
    found.ok_or_else(unknown)
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let quoted: Vec<String> = names.map(|name| format!("`{name}`")).collect();
    quoted.join(", ")
}

/// Returns a name that is unique and can't be guessed.
///
/// # Errors
/// If the system has no random numbers.
pub fn unique_name() -> Result<String, getrandom::Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)?;
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ganger_config as config;

    fn config(sources: &[&str], pools: &[(&str, &str)]) -> Config {
        let mut text = String::new();
        for name in sources {
            text += &format!("[sources.{name}]\nkind = \"table\"\nurl = \"sqlite:{name}.db\"\n");
        }
        for (number, (queue, source)) in pools.iter().enumerate() {
            text += &format!(
                "[[pools]]\nname = \"p{number}\"\nqueue = \"{queue}\"\nsource = \"{source}\"\ncommand = \"true\"\n"
            );
        }
        config::parse(&text, "test.toml", &config::Environment::new()).unwrap()
    }

    #[test]
    fn a_queue_is_where_pools_read_it() {
        let both = config(
            &["a", "b"],
            &[("q", "b"), ("r", "a"), ("s", "a"), ("s", "b")],
        );
        let of = |queue, source| source_of(&both, queue, source).map(|(name, _)| name.to_owned());
        assert_eq!(of("q", None).unwrap(), "b");
        assert_eq!(of("q", Some("a")).unwrap(), "a");
        let says = |queue, source| of(queue, source).unwrap_err().to_string();
        assert_eq!(
            says("s", None),
            "queue `s` is read from several sources: choose one with --source: `a`, `b`"
        );
        assert!(says("t", None).starts_with("no pool reads queue `t`"));
        assert_eq!(
            says("q", Some("c")),
            "there is no source `c`; there is `a`, `b`"
        );
        let one = config(&["a"], &[("q", "a")]);
        assert_eq!(source_of(&one, "elsewhere", None).unwrap().0, "a");
    }
}
