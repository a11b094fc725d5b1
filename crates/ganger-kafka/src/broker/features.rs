//! Check of a source's properties by librdkafka itself, which rejects properties that its build does not
//! support only when a client is created. The clients of this check have no brokers.

use rdkafka::config::{ClientConfig, FromClientConfig};
use rdkafka::consumer::BaseConsumer;
use rdkafka::error::KafkaError as Native;
use rdkafka::producer::BaseProducer;

use super::error::KafkaError;
use super::settings;
use super::settings::ProducerProfile;
use ganger_config::model::KafkaSource;

/// Name of the clients, which no broker sees.
const CLIENT: &str = "check";
/// Properties that name external code, which a check does not run.
const FOREIGN_CODE: [&str; 3] = [
    "plugin.library.paths",
    "ssl.engine.location",
    "ssl.providers",
];
/// Features of a build whose clients act before they have a broker: they run `kinit`, or fetch a token.
const ACTIVE: [&str; 2] = ["sasl_gssapi", "oidc"];

/// Returns librdkafka's reason to reject the source's properties, with the features of this build: it may
/// lack a feature that they need. None if it accepts them.
pub fn refusal(config: &KafkaSource) -> Option<String> {
    let built_in = ClientConfig::new()
        .create_native_config()
        .and_then(|native| native.get("builtin.features"))
        .unwrap_or_default();
    let is_active = built_in
        .split(',')
        .any(|name| ACTIVE.contains(&name.trim()));
    let consumer = settings::consumer(config, CLIENT, config.buffered_bytes_max);
    let producer = settings::producer(config, CLIENT, ProducerProfile::default());
    let error = refused::<BaseConsumer>(consumer, is_active)
        .or_else(|| refused::<BaseProducer>(producer, is_active))?;
    let why = KafkaError::of_client(error);
    Some(format!("{why}; this build of librdkafka has: {built_in}"))
}

/// Returns the error of a client with these properties. The client and its threads are removed again, and its
/// log is discarded. If clients are active, each property is checked alone.
fn refused<C: FromClientConfig>(mut properties: ClientConfig, is_active: bool) -> Option<Native> {
    let is_foreign = |name: &&str| properties.get(name).is_some();
    if FOREIGN_CODE.iter().any(is_foreign) {
        return None;
    }
    for of_the_cluster in ["bootstrap.servers", "group.id"] {
        properties.remove(of_the_cluster);
    }
    match is_active {
        true => properties.create_native_config().err(),
        false => properties.create::<C>().err(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::settings::tests::source;

    fn told(client: &[(&str, &str)]) -> String {
        let mut config = source(&[]);
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        config.client = client.iter().map(owned).collect();
        refusal(&config).unwrap_or_default()
    }

    #[test]
    fn librdkafka_says_what_it_lacks() {
        let login = |mechanism| {
            told(&[
                ("security.protocol", "sasl_ssl"),
                ("sasl.mechanism", mechanism),
                ("sasl.username", "u"),
                ("sasl.password", "hunter2"),
            ])
        };
        for mechanism in ["PLAIN", "SCRAM-SHA-512"] {
            assert_eq!(login(mechanism), "");
        }
        let kerberos = login("GSSAPI");
        for part in ["GSSAPI", "sasl_scram"] {
            assert!(kerberos.contains(part), "{part}: {kerberos}");
        }
        assert!(!kerberos.contains("hunter2"), "{kerberos}");
        assert_eq!(told(&[("compression.type", "zstd")]), "");
        let engine = ("ssl.engine.location", "/no/such/engine");
        assert_eq!(told(&[engine, ("no.such.property", "1")]), "");
        let unknown = told(&[("no.such.property", "1")]);
        assert!(unknown.contains("`no.such.property`"), "{unknown}");
    }
}
