//! Requirements on the topics that a pool reads and on those that it writes in addition, and the settings
//! with which missing ones are created. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::error::KafkaError;
use ganger_config::model::KafkaSource;

/// Maximum overhead of a copy over its message: headers and its own key.
const COPY_BYTES_MORE: usize = 64 << 10;
/// Kafka's default maximum message size, plus librdkafka's overhead.
const MESSAGE_BYTES_MAX: usize = 1_048_588;
const MAX_BYTES: &str = "max.message.bytes";
pub(crate) const POLICY: &str = "cleanup.policy";
pub(crate) const RETENTION: &str = "retention.ms";
const RETENTION_BYTES: &str = "retention.bytes";
/// Setting for the storage format of records. Brokers since version 4 have only one format and no such
/// setting.
const FORMAT: &str = "message.format.version";
/// First format with headers.
const FORMAT_MIN: &str = "0.11.0";

/// Role of a topic, which sets its requirements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Main,
    Tier,
    Dead,
}

/// A required topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Needed {
    pub(crate) name: String,
    pub(crate) role: Role,
    /// Topics whose messages' copies it takes.
    pub(crate) of: BTreeSet<String>,
}

impl Needed {
    /// Returns the requirement for a topic that a pool reads.
    pub(crate) fn main(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            role: Role::Main,
            of: BTreeSet::new(),
        }
    }

    /// Returns whether a topic whose copies it takes is stored in a format without headers.
    fn is_of_a_legacy_one(&self, known: &Described) -> bool {
        let mut formats = self
            .of
            .iter()
            .filter_map(|topic| known.get(topic)?.get(FORMAT));
        formats.any(|format| is_legacy(format))
    }

    /// Returns the maximum size of such a copy.
    fn copy_bytes_max(&self, known: &Described) -> usize {
        let sizes = self.of.iter().map(|topic| copy_bytes_max(known.get(topic)));
        sizes.max().unwrap_or_else(|| copy_bytes_max(None))
    }
}

/// Settings of a topic, by name.
pub(crate) type Settings = BTreeMap<String, String>;

/// Settings of topics, by topic name.
pub(crate) type Described = BTreeMap<String, Settings>;

/// Returns the maximum size of a copy of a message, by the settings of its topic.
fn copy_bytes_max(settings: Option<&Settings>) -> usize {
    let message_bytes = settings.and_then(|settings| number(settings, MAX_BYTES));
    let message_bytes = message_bytes.map_or(MESSAGE_BYTES_MAX, |bytes| {
        usize::try_from(bytes).unwrap_or(MESSAGE_BYTES_MAX)
    });
    message_bytes + COPY_BYTES_MORE
}

fn is_legacy(format: &str) -> bool {
    let versions = ["0.8", "0.9", "0.10"];
    let mut rests = versions
        .iter()
        .filter_map(|version| format.strip_prefix(version));
    rests.any(|rest| !rest.starts_with(|next: char| next.is_ascii_digit()))
}

/// Returns the settings with which a topic is created.
pub(crate) fn made_with(
    needed: &Needed,
    config: &KafkaSource,
    known: &Described,
) -> Vec<(&'static str, String)> {
    let bytes = (MAX_BYTES, needed.copy_bytes_max(known).to_string());
    let mut settings = match needed.role {
        Role::Main => Vec::new(),
        Role::Tier => vec![
            bytes,
            (POLICY, "delete".to_owned()),
            (RETENTION, config.retry_retention.as_millis().to_string()),
            (RETENTION_BYTES, "-1".to_owned()),
        ],
        Role::Dead => vec![bytes, (POLICY, "compact".to_owned())],
    };
    if needed.is_of_a_legacy_one(known) {
        settings.push((FORMAT, FORMAT_MIN.to_owned()));
    }
    settings
}

/// Checks existing topics and reports all faults at once.
pub(crate) fn check(
    known: &Described,
    topics: &[Needed],
    config: &KafkaSource,
) -> Result<(), KafkaError> {
    let faults: Vec<String> = topics
        .iter()
        .filter_map(|topic| Some((topic, known.get(&topic.name)?)))
        .flat_map(|(topic, settings)| {
            let bytes_max = topic.copy_bytes_max(known);
            let faults = faults(topic.role, settings, config.retry_retention, bytes_max);
            faults
                .into_iter()
                .map(|fault| format!("topic `{}`: {fault}", topic.name))
        })
        .collect();
    if faults.is_empty() {
        return Ok(());
    }
    Err(KafkaError::UnfitTopics(faults))
}

/// Returns the faults of an existing topic.
fn faults(
    role: Role,
    settings: &Settings,
    retention: Duration,
    copy_bytes_max: usize,
) -> Vec<String> {
    let mut faults = Vec::new();
    let get = |key| settings.get(key).map_or("", String::as_str);
    let policy = get(POLICY);
    match role {
        Role::Main => return faults,
        Role::Tier => {
            if policy.contains("compact") {
                // It would keep one message of each key.
                faults.push(format!("{POLICY} must be delete: `{policy}`"));
            }
            let needed = i64::try_from(retention.as_millis()).unwrap_or(i64::MAX);
            let set = number(settings, RETENTION).unwrap_or(-1);
            if (0..needed).contains(&set) {
                faults.push(format!(
                    "{RETENTION} must be at least {needed} or -1: `{set}`"
                ));
            }
            let bytes = number(settings, RETENTION_BYTES).unwrap_or(-1);
            if bytes >= 0 {
                faults.push(format!("{RETENTION_BYTES} must be -1: `{bytes}`"));
            }
        }
        Role::Dead => {
            let limits = [RETENTION, RETENTION_BYTES];
            let forgets = limits.iter().any(|key| number(settings, key) != Some(-1));
            if !policy.contains("compact") {
                faults.push(format!("{POLICY} must be compact: `{policy}`"));
            } else if policy.contains("delete") && forgets {
                faults.push(format!(
                    "{POLICY} must be compact alone, or dead letters are deleted by their age and \
                     number: `{policy}`"
                ));
            }
        }
    }
    let format = get(FORMAT);
    if is_legacy(format) {
        // It has no headers, and each copy has some.
        faults.push(format!(
            "{FORMAT} must be at least {FORMAT_MIN}: `{format}`"
        ));
    }
    let bytes = number(settings, MAX_BYTES).unwrap_or(i64::MAX);
    if usize::try_from(bytes).is_ok_and(|bytes| bytes < copy_bytes_max) {
        faults.push(format!(
            "{MAX_BYTES} must be at least {copy_bytes_max}: `{bytes}`"
        ));
    }
    faults
}

pub(crate) fn number(settings: &Settings, key: &str) -> Option<i64> {
    settings.get(key)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::settings;
    use super::*;

    fn faults_of(role: Role, settings: &[(&str, &str)]) -> Vec<String> {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let settings = settings.iter().map(owned).collect();
        faults(role, &settings, Duration::from_secs(60), 1000)
    }

    #[test]
    fn what_we_make_is_fit() {
        let config = settings::tests::source(&[]);
        let size = |bytes: &str| [(MAX_BYTES.to_owned(), bytes.to_owned())].into();
        let known = [("a", size("9")), ("b", size("1000"))];
        let known: Described = known.map(|(name, size)| (name.to_owned(), size)).into();
        for role in [Role::Tier, Role::Dead] {
            let needed = Needed {
                role,
                of: ["a", "b"].map(str::to_owned).into(),
                ..Needed::main("beside")
            };
            let settings = made_with(&needed, &config, &known);
            let settings = settings
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value));
            let bytes_max = 1000 + COPY_BYTES_MORE;
            let faults = faults(role, &settings.collect(), config.retry_retention, bytes_max);
            assert_eq!(faults, [""; 0]);
        }
    }

    /// If all topics had the legacy format by the broker's default, new ones would have it too, and would
    /// accept no copy.
    #[test]
    fn what_we_make_beside_a_topic_of_a_legacy_format_takes_headers() {
        let config = settings::tests::source(&[]);
        let needed = Needed {
            role: Role::Dead,
            of: ["a".to_owned()].into(),
            ..Needed::main("beside")
        };
        let format = |format: Option<&str>| {
            let settings = format.map(|format| (FORMAT.to_owned(), format.to_owned()));
            let known = [("a".to_owned(), settings.into_iter().collect())].into();
            let made = made_with(&needed, &config, &known);
            made.into_iter().find(|(key, _)| *key == FORMAT)
        };
        for legacy in ["0.8.2", "0.9.0", "0.10", "0.10.2-IV0"] {
            assert_eq!(format(Some(legacy)), Some((FORMAT, "0.11.0".to_owned())));
        }
        for newer in [None, Some("0.11.0-IV2"), Some("1.0"), Some("3.0-IV1")] {
            assert_eq!(format(newer), None, "{newer:?}");
        }
    }

    #[test]
    fn unfit_topics_are_told_why() {
        assert_eq!(faults_of(Role::Main, &[(POLICY, "compact")]), [""; 0]);
        assert_eq!(
            faults_of(
                Role::Tier,
                &[
                    (POLICY, "compact,delete"),
                    (RETENTION, "59999"),
                    (RETENTION_BYTES, "9")
                ]
            ),
            [
                "cleanup.policy must be delete: `compact,delete`",
                "retention.ms must be at least 60000 or -1: `59999`",
                "retention.bytes must be -1: `9`",
            ]
        );
        for role in [Role::Tier, Role::Dead] {
            let faults = faults_of(role, &[(FORMAT, "0.10.2-IV0")]);
            let without_headers = "message.format.version must be at least 0.11.0: `0.10.2-IV0`";
            assert!(
                faults.iter().any(|fault| fault == without_headers),
                "{faults:?}"
            );
        }
        assert_eq!(
            faults_of(Role::Dead, &[(POLICY, "delete"), (MAX_BYTES, "999")]),
            [
                "cleanup.policy must be compact: `delete`",
                "max.message.bytes must be at least 1000: `999`",
            ]
        );
        let forgetful = "cleanup.policy must be compact alone, or dead letters are deleted by \
                         their age and number: `compact,delete`";
        let both = (POLICY, "compact,delete");
        let limits = [(RETENTION, "604800000"), (RETENTION_BYTES, "-1")];
        let expected = [forgetful];
        assert_eq!(faults_of(Role::Dead, &[both]), expected);
        assert_eq!(
            faults_of(Role::Dead, &[both, limits[0], limits[1]]),
            expected
        );
        let unlimited = [both, (RETENTION, "-1"), (RETENTION_BYTES, "-1")];
        assert_eq!(faults_of(Role::Dead, &unlimited), [""; 0]);
        assert_eq!(
            faults_of(Role::Tier, &[(POLICY, "delete"), (RETENTION, "-1")]),
            [""; 0]
        );
    }
}
