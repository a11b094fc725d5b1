//! Features of librdkafka that a source requires and this build lacks, by librdkafka's own report. It
//! would fail only when the first client is created, and say no more than that a setting is wrong.

use std::collections::{BTreeMap, BTreeSet};

use rdkafka::config::ClientConfig;

use ganger_config::model::KafkaSource;

/// Tables of properties, by their keys in the configuration.
type Tables<'a> = [(&'static str, BTreeMap<&'a str, &'a str>); 2];

/// A required feature that is missing.
#[derive(Debug, PartialEq, Eq)]
pub struct MissingFeature {
    /// Property that requires it; it may be a default.
    pub property: &'static str,
    /// Tables of properties that may hold it, the likeliest first.
    pub tables: [&'static str; 2],
    /// Description of the problem, without the source's name.
    pub message: String,
    /// Remedy.
    pub help: String,
}

/// A feature that a property requires.
#[derive(Debug)]
struct RequiredFeature {
    /// Name of the feature in `builtin.features`.
    feature: &'static str,
    property: &'static str,
    value: String,
    instead: &'static str,
}

const OTHER_LOGIN: &str = "log in with SCRAM-SHA-512, PLAIN or a client certificate \
                           (ssl.certificate.location, ssl.key.location)";
const OTHER_COMPRESSION: &str = "choose another compression, such as lz4";
const NO_TLS: &str = "reach the brokers without TLS";
const NO_PLUGINS: &str = "leave the plugins out";

/// Returns the features that the source requires and this build of librdkafka lacks.
pub fn lacking(config: &KafkaSource) -> Vec<MissingFeature> {
    let built_in = ClientConfig::new()
        .create_native_config()
        .and_then(|native| native.get("builtin.features"));
    match built_in {
        Ok(features) => missing_in(config, &features),
        Err(error) => {
            tracing::debug!(%error, "the features of librdkafka are unknown");
            Vec::new()
        }
    }
}

/// Returns the required features missing from a comma-separated list.
fn missing_in(config: &KafkaSource, built_in: &str) -> Vec<MissingFeature> {
    let known: BTreeSet<&str> = built_in.split(',').map(str::trim).collect();
    let mut found: Vec<MissingFeature> = Vec::new();
    for (table, properties) in tables(config) {
        let wanted = wanted(&properties).into_iter();
        for wanted in wanted.filter(|wanted| !known.contains(wanted.feature)) {
            let lacking = missing_feature(table, &wanted, built_in);
            let is_told = found.iter().any(|other| other.message == lacking.message);
            found.extend((!is_told).then_some(lacking));
        }
    }
    found
}

/// Returns the user's properties for consumers and producers.
fn tables(config: &KafkaSource) -> Tables<'_> {
    [
        ("consumer", merged(&config.client, &config.consumer)),
        ("producer", merged(&config.client, &config.producer)),
    ]
}

fn merged<'a>(
    client: &'a BTreeMap<String, String>,
    own: &'a BTreeMap<String, String>,
) -> BTreeMap<&'a str, &'a str> {
    let all = client.iter().chain(own);
    all.map(|(name, value)| (name.as_str(), value.as_str()))
        .collect()
}

fn missing_feature(
    table: &'static str,
    wanted: &RequiredFeature,
    built_in: &str,
) -> MissingFeature {
    let RequiredFeature {
        feature,
        property,
        value,
        instead,
    } = wanted;
    MissingFeature {
        property,
        tables: ["client", table],
        message: format!(
            "{property} = `{value}` needs `{feature}` of librdkafka, which this ganger was built \
             without"
        ),
        help: format!(
            "{instead}, or build ganger with a librdkafka that has it; this one has: {built_in}"
        ),
    }
}

fn wanted(properties: &BTreeMap<&str, &str>) -> Vec<RequiredFeature> {
    let get = |names: &[&'static str]| {
        let mut set = names.iter();
        set.find_map(|name| Some((*name, *properties.get(name)?)))
    };
    let mut wanted = Vec::new();
    let mut want = |feature, property, value: &str, instead| {
        let value = value.to_owned();
        wanted.push(RequiredFeature {
            feature,
            property,
            value,
            instead,
        });
    };
    if let Some((property, protocol)) = get(&["security.protocol"]) {
        let lower = protocol.to_ascii_lowercase();
        if lower.ends_with("ssl") {
            want("ssl", property, protocol, NO_TLS);
        }
        if lower.starts_with("sasl_") {
            // Default of librdkafka.
            let mechanism = get(&["sasl.mechanism", "sasl.mechanisms"]);
            let (property, mechanism) = mechanism.unwrap_or(("sasl.mechanism", "GSSAPI"));
            if let Some(feature) = sasl(mechanism) {
                want(feature, property, mechanism, OTHER_LOGIN);
            }
            if let Some((property, method)) = get(&["sasl.oauthbearer.method"])
                && method.eq_ignore_ascii_case("oidc")
            {
                want("oidc", property, method, OTHER_LOGIN);
            }
        }
    }
    let compression = get(&["compression.type", "compression.codec"]);
    if let Some((property, codec)) = compression
        && let Some(feature) = compressor(codec)
    {
        want(feature, property, codec, OTHER_COMPRESSION);
    }
    if let Some((property, plugins)) = get(&["plugin.library.paths"]) {
        want("plugins", property, plugins, NO_PLUGINS);
    }
    wanted
}

fn sasl(mechanism: &str) -> Option<&'static str> {
    match mechanism.to_ascii_uppercase().as_str() {
        "GSSAPI" => Some("sasl_gssapi"),
        "PLAIN" => Some("sasl_plain"),
        "OAUTHBEARER" => Some("sasl_oauthbearer"),
        scram if scram.starts_with("SCRAM-") => Some("sasl_scram"),
        // librdkafka reports its own error.
        _ => None,
    }
}

fn compressor(codec: &str) -> Option<&'static str> {
    let known = ["gzip", "snappy", "lz4", "zstd"];
    known
        .into_iter()
        .find(|name| codec.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ganger_config::model::{Config, SourceConfig};
    use ganger_config::{Environment, parse};

    fn source(properties: &str) -> KafkaSource {
        let text = format!(
            "[sources.main]\nkind = \"kafka\"\nbrokers = \"h\"\ngroup = \"g\"\n{properties}\n\
             [[pools]]\nname = \"p\"\nsource = \"main\"\nqueue = \"q\"\ncommand = \"true\"\n"
        );
        let Config { sources, .. } = parse(&text, "ganger.toml", &Environment::new()).unwrap();
        match &sources["main"] {
            SourceConfig::Kafka(source) => source.clone(),
            SourceConfig::Table(_) | SourceConfig::RabbitMq(_) => panic!("another kind"),
        }
    }

    fn features(properties: &str, built_in: &str) -> Vec<(&'static str, String)> {
        let lacking = missing_in(&source(properties), built_in).into_iter();
        let named = lacking.map(|it| {
            let feature = it.message.split("needs `").nth(1).unwrap();
            let feature = feature.split('`').next().unwrap().to_owned();
            (it.property, feature)
        });
        named.collect()
    }

    #[test]
    fn what_is_asked_for_and_not_there_is_named() {
        for (properties, lacking) in [
            ("", vec![]),
            (
                "[sources.main.client]\n\"security.protocol\" = \"plaintext\"",
                vec![],
            ),
            (
                "[sources.main.client]\n\"security.protocol\" = \"SASL_SSL\"",
                vec![
                    ("security.protocol", "ssl"),
                    ("sasl.mechanism", "sasl_gssapi"),
                ],
            ),
            (
                "[sources.main.client]\n\"security.protocol\" = \"sasl_plaintext\"\n\
                 \"sasl.mechanisms\" = \"GSSAPI\"",
                vec![("sasl.mechanisms", "sasl_gssapi")],
            ),
            (
                "[sources.main.client]\n\"security.protocol\" = \"sasl_plaintext\"\n\
                 \"sasl.mechanism\" = \"scram-sha-512\"",
                vec![("sasl.mechanism", "sasl_scram")],
            ),
            (
                "[sources.main.client]\n\"security.protocol\" = \"sasl_plaintext\"\n\
                 \"sasl.mechanism\" = \"OAUTHBEARER\"\n\"sasl.oauthbearer.method\" = \"oidc\"",
                vec![
                    ("sasl.mechanism", "sasl_oauthbearer"),
                    ("sasl.oauthbearer.method", "oidc"),
                ],
            ),
            (
                "[sources.main.client]\n\"sasl.mechanism\" = \"GSSAPI\"",
                vec![],
            ),
            (
                "[sources.main.producer]\n\"compression.type\" = \"zstd\"",
                vec![("compression.type", "zstd")],
            ),
            (
                "[sources.main.producer]\n\"compression.type\" = \"none\"",
                vec![],
            ),
        ] {
            let lacking: Vec<(&str, String)> = lacking
                .into_iter()
                .map(|(property, feature)| (property, feature.to_owned()))
                .collect();
            assert_eq!(features(properties, "sasl, regex"), lacking, "{properties}");
            let all = "gzip,ssl, sasl,sasl_gssapi,sasl_plain,sasl_scram,sasl_oauthbearer,oidc,zstd";
            assert_eq!(features(properties, all), [], "{properties}");
        }
    }

    #[test]
    fn this_build_says_what_it_has() {
        let login = |mechanism: &str| {
            let properties = format!(
                "[sources.main.client]\n\"security.protocol\" = \"sasl_ssl\"\n\
                 \"sasl.mechanism\" = \"{mechanism}\""
            );
            lacking(&source(&properties))
        };
        assert_eq!(login("PLAIN"), []);
        assert_eq!(login("SCRAM-SHA-256"), []);
        let kerberos = login("GSSAPI");
        assert_eq!(kerberos.len(), 1);
        assert!(kerberos[0].help.contains("sasl_scram"), "{kerberos:?}");
    }
}
