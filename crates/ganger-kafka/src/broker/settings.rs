//! Properties of the librdkafka clients: the user's override the defaults, and those that the delivery
//! guarantee depends on override both. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use rdkafka::config::{ClientConfig, RDKafkaLogLevel};

use ganger_config::model::KafkaSource;

/// Properties of a consumer and of a producer beside the user's common ones.
const CONSUMER_DEFAULTS: &[(&str, &str)] = &[
    // Otherwise full local queues are checked again only after a second, and a fast pool would have to wait
    // for that.
    ("fetch.queue.backoff.ms", "20"),
    // A broker has only one outstanding fetch, for all partitions whose local queues have room. If only empty
    // partitions are left to fetch, such as tiers, the others are not fetched until the broker has waited for
    // this time (500 by default), however fast they are processed meanwhile.
    ("fetch.wait.max.ms", "100"),
    // Interval at which new topics and added partitions are noticed.
    ("topic.metadata.refresh.interval.ms", "30000"),
    // It limits the decompressed size of a batch, including one of internal copies: a larger one could
    // never be read. (A response is limited by `fetch.max.bytes` all the same.)
    ("receive.message.max.bytes", "2147483647"),
];
const OLD_PROTOCOL_DEFAULTS: &[(&str, &str)] = &[
    ("partition.assignment.strategy", "cooperative-sticky"),
    // The heartbeats inform the members of a group of a rebalance.
    ("heartbeat.interval.ms", "1000"),
];
const CONSUMER_MUSTS: &[(&str, &str)] = &[
    ("enable.auto.commit", "false"),
    ("enable.auto.offset.store", "false"),
    ("enable.partition.eof", "false"),
    ("isolation.level", "read_committed"),
    // The source resets offsets itself, to log what is skipped, and never skips anything in a tier.
    ("auto.offset.reset", "error"),
    ("allow.auto.create.topics", "false"),
    // Damaged records are then reported, and block the partition; otherwise librdkafka would skip them.
    ("check.crcs", "true"),
    // For the lag, and to notice partitions that are not fetched.
    ("statistics.interval.ms", "5000"),
];
const LOOKING_MUSTS: &[(&str, &str)] = &[
    ("enable.partition.eof", "true"),
    ("statistics.interval.ms", "0"),
    ("fetch.wait.max.ms", "10"),
    // One message of each partition is enough.
    ("fetch.message.max.bytes", "1"),
    ("queued.min.messages", "1"),
    ("queued.max.messages.kbytes", "1"),
];
const PRODUCER_DEFAULTS: &[(&str, &str)] = &[
    // The partition that Java clients choose for a key.
    ("partitioner", "murmur2_random"),
    ("linger.ms", "1"),
    // Time that a newly created topic may be unknown.
    ("topic.metadata.propagation.max.ms", "10000"),
];
const PRODUCER_MUSTS: &[(&str, &str)] = &[
    ("acks", "all"),
    ("enable.idempotence", "true"),
    // The broker and the topic limit the size of messages as they arrive there. This is librdkafka's maximum:
    // it checks the uncompressed size.
    ("message.max.bytes", "1000000000"),
];
/// Both names of the property that limits how long records for external topics are tried.
const PATIENCE: &[&str] = &["message.timeout.ms", "delivery.timeout.ms"];
/// Properties by which a user may set the compression of records for external consumers.
const COMPRESSION: &[&str] = &["compression.type", "compression.codec", "compression.level"];

const QUEUED_KIB: &str = "queued.max.messages.kbytes";
const FETCHED_BYTES: &str = "fetch.message.max.bytes";
/// Default of librdkafka.
const FETCH_BYTES_MAX: usize = 1 << 20;
/// Minimum number of fetch responses that the buffer would hold.
const ANSWERS_IN_BUFFER: usize = 16;
/// Size of a small message in librdkafka's memory.
const BYTES_PER_LOCAL_MESSAGE: usize = 512;
/// `topic.metadata.refresh.interval.ms` if not set.
const TOPICS_EVERY_MS: u64 = 30_000;
/// `max.poll.interval.ms` if not set.
const MAX_POLL_INTERVAL_MS: u64 = 300_000;
/// `session.timeout.ms` if not set. While a member is gone and its session has not timed out, all
/// others wait during a rebalance and cannot commit; but the restart of a broker should end no session.
const SESSION_TIMEOUT_MS: u64 = 20_000;
/// Time after the session timeout at which a client that reaches no broker is given up: by then its group
/// membership is lost anyway, and brokers that only restart are back.
const OUT_OF_REACH_MAX: Duration = Duration::from_secs(60);
/// Session timeout of a static member, for which the group should wait.
const STATIC_SESSION_TIMEOUT_MS: u64 = 45_000;

/// Start position of a partition for which the group has committed nothing, or a position that no longer
/// exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reset {
    /// At its first message.
    Earliest,
    /// At new messages only.
    Latest,
    /// Reading is refused and reported.
    Refuse,
}

/// Returns the properties of a pool's consumer. `local_bytes` limits the data that librdkafka keeps of each
/// partition.
pub(crate) fn consumer(config: &KafkaSource, pool: &str, local_bytes: usize) -> ClientConfig {
    let mut properties = base(config, pool, CONSUMER_DEFAULTS, &config.consumer);
    // In the newer protocol the broker decides these.
    if properties.get("group.protocol") != Some("consumer") {
        for (property, value) in OLD_PROTOCOL_DEFAULTS {
            if properties.get(property).is_none() {
                properties.set(*property, *value);
            }
        }
        if properties.get("session.timeout.ms").is_none() {
            let session = session_timeout(config).as_millis();
            properties.set("session.timeout.ms", session.to_string());
        }
    }
    bound(&mut properties, config, local_bytes);
    // Each pool is a member of its own.
    if let Some(instance) = properties.get("group.instance.id") {
        let instance = format!("{instance}-{pool}");
        properties.set("group.instance.id", instance);
    }
    properties.set("group.id", &config.group);
    all(&mut properties, CONSUMER_MUSTS);
    properties
}

/// Returns the properties of a consumer that only checks the first message at an offset of a partition.
pub(crate) fn looking(config: &KafkaSource, pool: &str) -> ClientConfig {
    let mut properties = consumer(config, pool, 1);
    // It joins no group.
    properties.remove("group.instance.id");
    all(&mut properties, LOOKING_MUSTS);
    properties
}

/// Limits the data that librdkafka keeps of a partition, the data that it fetches at once beyond that, and
/// the size of one fetch response: a whole response stays in memory as long as one of its messages does.
fn bound(properties: &mut ClientConfig, config: &KafkaSource, local_bytes: usize) {
    let kib = (local_bytes / 1024).clamp(1, 2_097_151);
    // It counts only the bytes of values; its overhead for each message is a few hundred.
    let messages = (local_bytes / BYTES_PER_LOCAL_MESSAGE).clamp(100, 100_000);
    let answer = (config.buffered_bytes_max / ANSWERS_IN_BUFFER).clamp(1 << 20, 50 << 20);
    let bounds = [
        (&[QUEUED_KIB][..], kib),
        (&["queued.min.messages"], messages),
        (
            &[FETCHED_BYTES, "max.partition.fetch.bytes"],
            fetch_bytes(local_bytes),
        ),
        (&["fetch.max.bytes"], answer),
    ];
    for (names, value) in bounds {
        if names.iter().all(|name| properties.get(name).is_none()) {
            properties.set(names[0], value.to_string());
        }
    }
}

/// Number of bytes fetched at once from a partition.
fn fetch_bytes(local_bytes: usize) -> usize {
    local_bytes.min(FETCH_BYTES_MAX)
}

/// Returns the maximum size that librdkafka may hold of one partition, except for a last record, by its
/// properties.
pub(crate) fn queue_bytes(properties: &ClientConfig) -> usize {
    let number = |name| properties.get(name)?.parse::<usize>().ok();
    let kib = number(QUEUED_KIB).unwrap_or_default();
    let fetched = number(FETCHED_BYTES).or_else(|| number("max.partition.fetch.bytes"));
    kib.saturating_mul(1024)
        .saturating_add(fetched.unwrap_or_default())
}

/// Profile of a producer: how its records are published.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ProducerProfile {
    /// True for compression, so that a copy of a compressed message, too, takes no more than the
    /// message.
    pub(crate) compressed: bool,
    /// True for a batch of its own.
    pub(crate) alone: bool,
}

/// Returns the properties of a producer.
pub(crate) fn producer(config: &KafkaSource, name: &str, profile: ProducerProfile) -> ClientConfig {
    let mut properties = base(config, name, PRODUCER_DEFAULTS, &config.producer);
    let mut patience = patience(config).unwrap_or_default();
    if profile.compressed {
        for name in COMPRESSION {
            properties.remove(name);
        }
        properties.set("compression.codec", "zstd");
        // Internal copies are retried without a limit.
        patience = Duration::ZERO;
    }
    for name in PATIENCE {
        properties.remove(name);
    }
    properties.set("message.timeout.ms", patience.as_millis().to_string());
    if profile.alone {
        properties.set("batch.num.messages", "1");
    }
    all(&mut properties, PRODUCER_MUSTS);
    properties
}

/// Returns the maximum time for which a reply waits for a topic that accepts nothing while the brokers are
/// reachable; none for no limit.
pub(crate) fn patience(config: &KafkaSource) -> Option<Duration> {
    let tables = [&config.producer, &config.client];
    let mut set = tables.into_iter().flat_map(|table| {
        let names = PATIENCE.iter();
        names.filter_map(|name| table.get(*name)?.parse().ok())
    });
    match set.next() {
        None => Some(ganger_queue::publishing::UNDELIVERABLE_AFTER),
        Some(ms) => (ms > 0).then(|| Duration::from_millis(ms)),
    }
}

/// Returns the properties of an administrative client: it has the settings for consumers, such as
/// passwords.
pub(crate) fn admin(config: &KafkaSource, name: &str) -> ClientConfig {
    base(config, name, &[], &config.consumer)
}

fn base(
    config: &KafkaSource,
    name: &str,
    defaults: &[(&str, &str)],
    own: &BTreeMap<String, String>,
) -> ClientConfig {
    let mut properties = ClientConfig::new();
    properties.set("client.id", format!("ganger-{name}"));
    all(&mut properties, defaults);
    for (property, value) in config.client.iter().chain(own) {
        properties.set(property, value);
    }
    properties.set("bootstrap.servers", &config.brokers);
    // Debug contexts set by the user appear in ganger's own log at its debug level.
    let asked = properties.get("debug").is_some();
    properties.set_log_level(if asked {
        RDKafkaLogLevel::Debug
    } else {
        RDKafkaLogLevel::Info
    });
    properties
}

fn all(properties: &mut ClientConfig, list: &[(&str, &str)]) {
    for (property, value) in list {
        properties.set(*property, *value);
    }
}

/// Returns a property as the user set it for consumers.
fn of_consumer<'a>(config: &'a KafkaSource, property: &str) -> Option<&'a str> {
    let set = config
        .consumer
        .get(property)
        .or_else(|| config.client.get(property));
    set.map(String::as_str)
}

/// Returns the start position set by `auto.offset.reset`.
pub(crate) fn reset(config: &KafkaSource) -> Reset {
    match of_consumer(config, "auto.offset.reset") {
        Some("latest" | "largest" | "end") => Reset::Latest,
        Some("error" | "none") => Reset::Refuse,
        _ => Reset::Earliest,
    }
}

/// Returns whether the consumer is a static member of its group.
pub(crate) fn is_static_member(config: &KafkaSource) -> bool {
    of_consumer(config, "group.instance.id").is_some()
}

/// Returns the maximum time without a poll before a consumer's group revokes its partitions.
pub(crate) fn max_poll_interval(config: &KafkaSource) -> Duration {
    let default = Duration::from_millis(MAX_POLL_INTERVAL_MS);
    milliseconds(config, "max.poll.interval.ms").unwrap_or(default)
}

/// Returns the interval at which librdkafka looks for new topics.
pub(crate) fn topics_every(config: &KafkaSource) -> Duration {
    let every = milliseconds(config, "topic.metadata.refresh.interval.ms");
    every
        .unwrap_or(Duration::from_millis(TOPICS_EVERY_MS))
        .max(Duration::from_millis(10))
}

/// Returns the maximum time of silence before a consumer's group revokes its partitions.
pub(crate) fn session_timeout(config: &KafkaSource) -> Duration {
    let default = if is_static_member(config) {
        STATIC_SESSION_TIMEOUT_MS
    } else {
        SESSION_TIMEOUT_MS
    };
    // librdkafka requires it to be no longer than that.
    let default = Duration::from_millis(default).min(max_poll_interval(config));
    milliseconds(config, "session.timeout.ms").unwrap_or(default)
}

/// Returns the maximum time without a reachable broker before a client is replaced. It is always longer than
/// the session, which has timed out by then, so that the group does not lose the member because of it.
pub(crate) fn out_of_reach_max(config: &KafkaSource) -> Duration {
    let session = session_timeout(config);
    session + (session * 2).min(OUT_OF_REACH_MAX)
}

fn milliseconds(config: &KafkaSource, property: &str) -> Option<Duration> {
    let set = of_consumer(config, property)?;
    Some(Duration::from_millis(set.parse().ok()?))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn source(consumer: &[(&str, &str)]) -> KafkaSource {
        let map = |pairs: &[(&str, &str)]| {
            let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
            pairs.iter().map(owned).collect()
        };
        KafkaSource {
            brokers: "127.0.0.1:1".to_owned(),
            group: "billing".to_owned(),
            declare: true,
            partitions: None,
            replication: None,
            commit_interval: Duration::from_millis(500),
            buffered_bytes_max: 64 << 20,
            retry_retention: Duration::from_secs(3600),
            client: BTreeMap::new(),
            consumer: map(consumer),
            producer: BTreeMap::new(),
        }
    }

    #[test]
    fn the_users_properties_win_over_defaults_and_lose_to_the_promise() {
        let mut config = source(&[
            ("fetch.queue.backoff.ms", "5"),
            ("auto.offset.reset", "latest"),
        ]);
        config
            .client
            .insert("client.id".to_owned(), "mine".to_owned());
        let properties = consumer(&config, "p", 1 << 20);
        let get = |name| properties.get(name);
        assert_eq!(get("fetch.queue.backoff.ms"), Some("5"));
        assert_eq!(get("fetch.wait.max.ms"), Some("100"));
        assert_eq!(get("client.id"), Some("mine"));
        assert_eq!(get("group.id"), Some("billing"));
        assert_eq!(get("queued.max.messages.kbytes"), Some("1024"));
        assert_eq!(queue_bytes(&properties), 2 << 20);
        assert_eq!(
            get("partition.assignment.strategy"),
            Some("cooperative-sticky")
        );
        assert_eq!(get("auto.offset.reset"), Some("error"));
        assert_eq!(reset(&config), Reset::Latest);
        let properties = producer(&config, "p", ProducerProfile::default());
        assert_eq!(properties.get("message.max.bytes"), Some("1000000000"));
        assert_eq!(properties.get("acks"), Some("all"));
    }

    #[test]
    fn copies_are_compressed_our_way_and_replies_the_users() {
        let mut config = source(&[]);
        let set = [("compression.type", "gzip"), ("compression.level", "9")];
        for (name, value) in set {
            config.producer.insert(name.to_owned(), value.to_owned());
        }
        let compression = |compressed| {
            let profile = ProducerProfile {
                compressed,
                ..ProducerProfile::default()
            };
            let properties = producer(&config, "p", profile);
            let get = |name| properties.get(name).map(ToOwned::to_owned);
            [
                get("compression.type"),
                get("compression.codec"),
                get("compression.level"),
            ]
        };
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(compression(false), [text("gzip"), None, text("9")]);
        assert_eq!(compression(true), [None, text("zstd"), None]);
    }

    #[test]
    fn pools_are_members_of_their_own() {
        let config = source(&[("group.instance.id", "host-1")]);
        let properties = consumer(&config, "p", 1);
        assert_eq!(properties.get("group.instance.id"), Some("host-1-p"));
        let config = source(&[("group.protocol", "consumer")]);
        let properties = consumer(&config, "p", 1);
        assert_eq!(properties.get("partition.assignment.strategy"), None);
    }

    #[test]
    fn librdkafka_takes_them_all() {
        let config = source(&[]);
        let ways = [(false, false), (false, true), (true, false), (true, true)];
        let mut all = vec![
            consumer(&config, "p", 1 << 20),
            admin(&config, "p"),
            looking(&config, "p"),
        ];
        all.extend(ways.map(|(compressed, alone)| {
            producer(&config, "p", ProducerProfile { compressed, alone })
        }));
        for properties in all {
            properties.create_native_config().unwrap();
        }
    }

    #[test]
    fn replies_are_tried_for_as_long_as_is_set_and_copies_for_ever() {
        let timeout = |set: Option<(&str, &str)>| {
            let mut config = source(&[]);
            config
                .producer
                .extend(set.map(|(name, value)| (name.to_owned(), value.to_owned())));
            let of = |compressed| {
                let profile = ProducerProfile {
                    compressed,
                    ..ProducerProfile::default()
                };
                let properties = producer(&config, "p", profile);
                assert_eq!(properties.get("delivery.timeout.ms"), None, "it may win");
                properties.get("message.timeout.ms").map(ToOwned::to_owned)
            };
            (of(false).unwrap(), of(true).unwrap(), patience(&config))
        };
        let (five, zero) = ("300000".to_owned(), "0".to_owned());
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(timeout(None), (five, zero.clone(), seconds(300)));
        let set = Some(("delivery.timeout.ms", "7000"));
        assert_eq!(timeout(set), ("7000".to_owned(), zero.clone(), seconds(7)));
        let set = Some(("message.timeout.ms", "0"));
        assert_eq!(timeout(set), (zero.clone(), zero, None));
    }

    #[test]
    fn a_client_is_given_up_after_its_session() {
        let seconds = |set: &[(&str, &str)]| out_of_reach_max(&source(set)).as_secs();
        assert_eq!(seconds(&[]), 60);
        assert_eq!(seconds(&[("group.instance.id", "a")]), 105);
        assert_eq!(seconds(&[("session.timeout.ms", "6000")]), 18);
        assert_eq!(seconds(&[("session.timeout.ms", "1800000")]), 1860);
    }

    #[test]
    fn the_poll_interval_as_set() {
        assert_eq!(max_poll_interval(&source(&[])), Duration::from_secs(300));
        let config = source(&[("max.poll.interval.ms", "10000")]);
        assert_eq!(max_poll_interval(&config), Duration::from_secs(10));
    }
}
