//! Warnings about a valid configuration that is likely to end badly: other users may write or read it,
//! passwords go unencrypted, work may take too long. The caller decides whether that is an error.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use jiff::Timestamp;

use super::model::{
    AdminPeer, Config, Database, KafkaSource, PoolConfig, RabbitMqSource, SourceConfig, SslMode,
    is_loopback,
};
use super::places::Places;
use super::problem::Problem;
use super::rights::{self, Fault};
use ganger_core::units::show_duration;

/// The keys of a source that name a file with a secret.
const SECRET_FILES: [&str; 4] = [
    "url_file",
    "password_file",
    "key_file",
    "signing_secret_file",
];

/// The keys of a webhook that name a file with a secret.
const WEBHOOK_FILES: [&str; 3] = [
    "webhook_file",
    "signing_secret_file",
    "integration_key_file",
];

/// Length under which a token is called short, in bytes.
const TOKEN_BYTES_MIN: usize = 16;

/// The addresses of this machine that a local program has.
const LOOPBACK: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::LOCALHOST),
    IpAddr::V6(Ipv6Addr::LOCALHOST),
];

/// Returns all such warnings that follow from the configuration alone.
pub fn warnings(config: &Config, places: &Places) -> Vec<Problem> {
    let mut warnings = rights::faults(places.files());
    warnings.extend(exposed_file(&["admin", "token_file"], places));
    warnings.extend(expired_tokens(config, places));
    warnings.extend(short_token(config, places));
    warnings.extend(open_proxy(config, places));
    warnings.extend(plain_dashboard(config, places));
    for (name, peer) in &config.admin.peers {
        let key = ["admin", "peers", name.as_str()];
        warnings.extend(exposed_file(
            &[key[0], key[1], key[2], "token_file"],
            places,
        ));
        warnings.extend(plain_peer(name, peer, places));
    }
    warnings.extend(exposed_of_webhooks(places));
    warnings.extend(plain_webhooks(config, places));
    for (name, source) in &config.sources {
        let name = name.as_str();
        let exposed = |file: &&str| exposed_file(&["sources", name, file], places);
        warnings.extend(SECRET_FILES.iter().filter_map(exposed));
        warnings.extend(match source {
            SourceConfig::RabbitMq(source) => plain_password(name, source, places),
            SourceConfig::Kafka(source) => unverified_brokers(name, source, places),
            SourceConfig::Table(source) => unverified_server(name, &source.database, places),
        });
    }
    let late = |pool| longer_than_the_broker_waits(pool, config, places);
    warnings.extend(config.pools.iter().filter_map(|pool| late(pool)));
    warnings
}

fn exposed_file(key: &[&str], places: &Places) -> Option<Problem> {
    exposed(key, places.text(key)?, places)
}

fn exposed(key: &[&str], file: &str, places: &Places) -> Option<Problem> {
    let file = places.directory.join(file);
    let Fault { words, help } = rights::fault_of_secret(&file)?;
    let message = format!("{} {words}", key.join("."));
    Some(places.about(&[key], message, help))
}

fn expired_tokens(config: &Config, places: &Places) -> Vec<Problem> {
    let now = Timestamp::now();
    let expired = config.admin.tokens.iter().filter_map(|token| {
        let expires = token.expires.filter(|expires| *expires <= now)?;
        let name = token.name.as_str();
        let message = format!("admin.tokens.{name} has expired: `{expires}`");
        let key = ["admin", "tokens", name, "expires"];
        let help = "make another one with `ganger token new`, or remove it";
        Some(places.about(&[&key], message, help))
    });
    expired.collect()
}

/// Warns of a token that can be guessed.
fn short_token(config: &Config, places: &Places) -> Option<Problem> {
    let token = config.admin.token.as_ref()?;
    (token.expose().len() < TOKEN_BYTES_MIN).then(|| {
        let message =
            format!("admin.token has fewer than {TOKEN_BYTES_MIN} characters, and can be guessed");
        let help = "let a program choose it, such as `openssl rand -hex 24`";
        let keys: [&[&str]; 2] = [&["admin", "token"], &["admin", "token_file"]];
        places.about(&keys, message, help)
    })
}

/// Warns of a proxy that any program on this machine can take the place of, a worker too.
fn open_proxy(config: &Config, places: &Places) -> Option<Problem> {
    let proxy = config.admin.proxy_auth.as_ref()?;
    let is_local = |network: &&IpNet| LOOPBACK.iter().any(|local| network.contains(local));
    let local = proxy.from.iter().find(is_local)?;
    let message = format!(
        "admin.proxy_auth.from has a loopback address, so that every program on this machine, a worker too, \
         can name any user: `{local}`"
    );
    let help =
        "run the proxy where it has an address of its own, unless all programs here are trusted";
    Some(places.about(&[&["admin", "proxy_auth", "from"]], message, help))
}

/// Warns of logins from other machines without encryption: who reads a session on its way can use it.
fn plain_dashboard(config: &Config, places: &Places) -> Option<Problem> {
    let url = config.admin.public_origin()?;
    let message = format!(
        "admin.public_url is not encrypted, so that logins can be read on their way: `{url}`"
    );
    let help = "put a proxy with TLS before the daemon, and write https://";
    let key: &[&str] = &["admin", "public_url"];
    is_plain_elsewhere(url).then(|| places.about(&[key], message, help))
}

/// Warns of a token that is sent to another host without encryption.
fn plain_peer(name: &str, peer: &AdminPeer, places: &Places) -> Option<Problem> {
    let url = peer.token.as_ref().map(|_| peer.url.as_str())?;
    let message = format!(
        "admin.peers.{name} sends its token unencrypted, to a host that is not this one: `{url}`"
    );
    let help = "let it be a token with the role viewer, in a network that is trusted";
    let key: &[&str] = &["admin", "peers", name, "url"];
    is_plain_elsewhere(url).then(|| places.about(&[key], message, help))
}

/// Returns whether a URL is one of another host, without encryption.
fn is_plain_elsewhere(url: &str) -> bool {
    let url = url::Url::parse(url).ok();
    let url = url.filter(|url| url.scheme() == "http");
    url.is_some_and(|url| !is_loopback(url.host_str().unwrap_or_default()))
}

fn exposed_of_webhooks(places: &Places) -> Vec<Problem> {
    let of_key = |key: &'static str| {
        let own = exposed_file(&["alerts", key], places);
        let files = places.texts(&["alerts", "webhooks"], key).into_iter();
        let path = ["alerts", "webhooks", key];
        let others = files.filter_map(move |file| exposed(&path, file, places));
        own.into_iter().chain(others)
    };
    WEBHOOK_FILES.into_iter().flat_map(of_key).collect()
}

fn plain_password(name: &str, source: &RabbitMqSource, places: &Places) -> Option<Problem> {
    if source.tls.is_some() || source.password.expose().is_empty() {
        return None;
    }
    let remote = source.hosts.iter().find(|host| !host.is_here())?;
    let message = format!(
        "sources.{name} sends its password unencrypted, to a host that is not this one: `{remote}`"
    );
    let help = "write amqps:// in the URL, with ca_file if the broker's certificate is your own \
                authority's";
    let keys = [["sources", name, "url"], ["sources", name, "url_file"]];
    Some(places.about(&keys.each_ref().map(|key| &key[..]), message, help))
}

/// Warns of a server that is not verified: an impostor gets the password, the messages and the replies.
fn unverified_server(name: &str, database: &Database, places: &Places) -> Option<Problem> {
    let (hosts, mode, ca_file, verify) = match database {
        Database::Sqlite(_) => return None,
        Database::Postgres(at) => (&at.hosts, at.ssl_mode, &at.ca_file, "sslmode=verify-full"),
        Database::Mysql(at) => (
            &at.hosts,
            at.ssl_mode,
            &at.ca_file,
            "ssl-mode=VERIFY_IDENTITY",
        ),
    };
    let verifies = match mode {
        SslMode::Disable | SslMode::Prefer => false,
        SslMode::Require => ca_file.is_some(),
        SslMode::VerifyCa | SslMode::VerifyFull => true,
    };
    let remote = hosts.iter().find(|host| !host.is_here() && !verifies)?;
    let message = format!(
        "sources.{name} does not verify its server, so that an impostor could get the password and \
         the messages: `{remote}`"
    );
    let help = format!(
        "write {verify} in the URL, with ca_file if the server's certificate is your own authority's"
    );
    let keys = [["sources", name, "url"], ["sources", name, "url_file"]];
    Some(places.about(&keys.each_ref().map(|key| &key[..]), message, &help))
}

/// Warns of properties of librdkafka by which it trusts any broker, or logs in unencrypted.
fn unverified_brokers(name: &str, source: &KafkaSource, places: &Places) -> Option<Problem> {
    let tables = [
        ("consumer", &source.consumer),
        ("producer", &source.producer),
        ("client", &source.client),
    ];
    let set = |property: &'static str, value: &str| {
        let is_it = |found: &String| found.eq_ignore_ascii_case(value);
        let mut tables = tables.iter();
        let (table, _) = tables.find(|(_, set)| set.get(property).is_some_and(is_it))?;
        Some([*table, property])
    };
    let whatever = "enable.ssl.certificate.verification";
    let whoever = "ssl.endpoint.identification.algorithm";
    let believes = "does not verify the brokers, so that an impostor would be trusted";
    let (key, what, help) = if let Some(key) = set(whatever, "false") {
        (
            key,
            believes,
            "leave it out, and name the authorities with `ssl.ca.location`",
        )
    } else if let Some(key) = set(whoever, "none") {
        (
            key,
            believes,
            "leave it out: the name of a broker has to be in its certificate",
        )
    } else {
        let key = set("security.protocol", "sasl_plaintext")?;
        let is_here = |broker: &str| is_loopback(host_of(broker.trim()));
        if source.brokers.split(',').all(is_here) {
            return None;
        }
        (
            key,
            "logs in unencrypted, to a host that is not this one",
            "write `sasl_ssl`",
        )
    };
    let [table, property] = key;
    let message = format!("sources.{name} {what}: `{property}` in `{table}`");
    Some(places.about(&[&["sources", name, table, property]], message, help))
}

/// Returns the host of a broker, which may have a protocol before and a port behind it.
fn host_of(broker: &str) -> &str {
    let address = broker.split_once("://").map_or(broker, |(_, rest)| rest);
    match address.rsplit_once(':') {
        Some((host, _)) if !host.contains(':') || host.ends_with(']') => host,
        _ => address,
    }
}

/// Warns of webhooks without encryption: whoever reads the URL on its way may send to it.
fn plain_webhooks(config: &Config, places: &Places) -> Vec<Problem> {
    let webhooks = config.alerts.iter().flat_map(|alerts| &alerts.webhooks);
    let plain = webhooks.filter_map(|webhook| {
        let url = webhook.webhook.expose();
        is_plain_elsewhere(url).then(|| {
            let url = url::Url::parse(url).ok();
            let host = url.as_ref().and_then(|url| url.host_str()).unwrap_or_default();
            let message = format!(
                "alerts sends unencrypted, the URL included, to a host that is not this one: `{host}`"
            );
            let keys = [
                ["alerts", "webhook"],
                ["alerts", "webhook_file"],
                ["alerts", "webhooks"],
            ];
            let keys = keys.each_ref().map(|key| &key[..]);
            places.about(&keys, message, "write https:// in the URL")
        })
    });
    plain.collect()
}

fn longer_than_the_broker_waits(
    pool: &PoolConfig,
    config: &Config,
    places: &Places,
) -> Option<Problem> {
    let SourceConfig::RabbitMq(source) = config.sources.get(&pool.source)? else {
        return None;
    };
    let (name, whole) = (&pool.name, pool.timeout? + pool.timeout_grace);
    (whole > source.consumer_timeout).then(|| {
        let message = format!(
            "pools.{name}.timeout with its grace exceeds the broker's timeout for an \
             acknowledgement, after which the message is redelivered: `{}` against `{}`",
            show_duration(whole),
            show_duration(source.consumer_timeout)
        );
        let help = format!(
            "raise consumer_timeout in the broker's own configuration and tell the source, with \
             sources.{}.consumer_timeout; or shorten the timeout",
            pool.source
        );
        places.about(&[&["pools", name, "timeout"]], message, &help)
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::super::{Environment, load};
    use super::*;

    /// Returns the warnings of a configuration in a file that only its owner may use.
    fn said(text: &str) -> Vec<(String, Option<usize>, String)> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        let environment = Environment::new();
        let config = load(file.path(), &environment).unwrap();
        let places = Places::read(file.path(), &environment);
        let warnings = warnings(&config, &places).into_iter();
        let said = warnings.map(|it| (it.path, it.line, it.message));
        said.collect()
    }

    fn rabbit(url: &str, source: &str, pool: &str) -> String {
        format!(
            "[sources.main]\nkind = \"rabbitmq\"\nurl = \"{url}\"\n{source}\n\
             [[pools]]\nname = \"p\"\nsource = \"main\"\nqueue = \"q\"\ncommand = \"true\"\n{pool}\n"
        )
    }

    #[test]
    fn a_password_over_plain_tcp_is_told_of_unless_it_stays_here() {
        for (url, hosts, told) in [
            (
                "amqp://u:secret@broker.example/",
                "",
                Some("broker.example:5672"),
            ),
            ("amqp://u:secret@10.0.0.7:5673/", "", Some("10.0.0.7:5673")),
            (
                "amqp://u:secret@[2001:db8::1]/",
                "",
                Some("[2001:db8::1]:5672"),
            ),
            (
                "amqp://localhost/",
                "hosts = [\"other\"]",
                Some("other:5672"),
            ),
            ("amqps://u:secret@broker.example/", "", None),
            ("amqp://u:secret@localhost/", "", None),
            ("amqp://u:secret@LOCALHOST./", "", None),
            ("amqp://u:secret@rabbit.localhost/", "", None),
            ("amqp://u:secret@127.8.9.1/", "", None),
            ("amqp://u:secret@[::1]/", "", None),
        ] {
            let said = said(&rabbit(url, hosts, ""));
            let expected = told.map(|host| {
                let message = format!(
                    "sources.main sends its password unencrypted, to a host that is not this one: \
                     `{host}`"
                );
                ("sources.main.url".to_owned(), Some(3), message)
            });
            assert_eq!(said, Vec::from_iter(expected), "{url}");
        }
    }

    #[test]
    fn a_server_that_is_not_verified_is_told_of() {
        let server = |url: &str, more: &str| {
            format!(
                "[sources.main]\nkind = \"table\"\nurl = \"{url}\"\n{more}\n[[pools]]\nname = \"p\"\nqueue \
                 = \"q\"\ncommand = \"c\"\n"
            )
        };
        for (url, more, told) in [
            ("postgres://u:p@db.example/d", "", true),
            ("postgres://u:p@db.example/d?sslmode=require", "", true),
            ("postgres://u:p@localhost,db.example/d", "", true),
            ("postgres://u:p@db.example/d?sslmode=disable", "", true),
            (
                "postgres://u:p@db.example/d?sslmode=require",
                "ca_file = \"c\"",
                false,
            ),
            ("postgres://u:p@db.example/d?sslmode=verify-ca", "", false),
            ("postgres://u:p@localhost/d", "", false),
            ("postgres://u:p@%2Frun%2Fpg/d", "", false),
            ("mysql://u:p@db.example/d", "", true),
            ("mysql://u:p@db.example/d?ssl-mode=DISABLED", "", true),
            (
                "mysql://u:p@db.example/d?ssl-mode=VERIFY_IDENTITY",
                "",
                false,
            ),
            ("mysql://u:p@127.0.0.1/d", "", false),
        ] {
            let said = said(&server(url, more));
            assert_eq!(said.len(), usize::from(told), "{url}: {said:?}");
            if let Some((path, line, message)) = said.first() {
                assert_eq!((path.as_str(), *line), ("sources.main.url", Some(3)));
                assert!(message.contains("does not verify its server"), "{message}");
            }
        }
    }

    #[test]
    fn brokers_that_are_not_verified_are_told_of() {
        let kafka = |brokers: &str, client: &str| {
            format!(
                "[sources.main]\nkind = \"kafka\"\nbrokers = \"{brokers}\"\ngroup = \"g\"\nclient = {{ \
                 {client} }}\n[[pools]]\nname = \"p\"\nqueue = \"q\"\ncommand = \"c\"\n"
            )
        };
        let (ssl, plain) = ("\"security.protocol\" = \"SSL\"", "sasl_plaintext");
        let plain = format!("\"security.protocol\" = \"{plain}\"");
        let believes = "does not verify the brokers, so that an impostor would be trusted";
        for (brokers, client, told) in [
            ("b:1", ssl.to_owned(), None),
            (
                "localhost:1",
                format!("{ssl}, \"enable.ssl.certificate.verification\" = false"),
                Some(believes),
            ),
            (
                "b:1",
                format!("{ssl}, \"ssl.endpoint.identification.algorithm\" = \"none\""),
                Some(believes),
            ),
            ("b:1", plain.clone(), Some("logs in unencrypted")),
            (
                "localhost:1,SASL_PLAINTEXT://[::1]:2,127.0.0.1",
                plain.clone(),
                None,
            ),
            ("localhost:1, b:1", plain, Some("logs in unencrypted")),
        ] {
            let said = said(&kafka(brokers, &client));
            let message = said.first().map(|(_, _, message)| message.as_str());
            assert_eq!(message.is_some(), told.is_some(), "{client}: {said:?}");
            assert!(
                message
                    .unwrap_or_default()
                    .contains(told.unwrap_or_default()),
                "{said:?}"
            );
        }
    }

    #[test]
    fn a_token_that_has_expired_and_a_proxy_on_this_machine_are_told_of() {
        let with = |lines: &str| {
            let sha256 = "ab".repeat(32);
            let text = lines.replace("HASH", &format!("sha256 = \"{sha256}\""));
            said(&format!("{}{text}", rabbit("amqp://localhost/", "", "")))
        };
        let token = "[[admin.tokens]]\nname = \"t\"\nrole = \"viewer\"\nHASH\nexpires = ";
        assert_eq!(with(&format!("{token}\"2999-01-01T00:00:00Z\"")), []);
        let told = with(&format!("{token}\"2001-01-01T00:00:00+01:00\""));
        let message = "admin.tokens.t has expired: `2000-12-31T23:00:00Z`".to_owned();
        let path = "admin.tokens.t.expires".to_owned();
        assert_eq!(told, [(path, Some(15), message)]);
        let public = "public_url = \"https://ganger.example\"";
        let proxy =
            format!("[admin]\n{public}\nproxy_auth = {{ header = \"x-user\", from = FROM }}");
        assert_eq!(with(&proxy.replace("FROM", "\"10.0.0.0/8\"")), []);
        for local in ["127.0.0.1/32", "126.0.0.0/7", "::/96", "::1/128"] {
            let from = format!("[\"10.0.0.0/8\", \"{local}\"]");
            let told = with(&proxy.replace("FROM", &from));
            let expected = format!("can name any user: `{local}`");
            assert!(told[0].2.ends_with(&expected), "{told:?}");
        }
    }

    #[test]
    fn what_lets_others_into_the_admin_api_is_told_of() {
        let token = tempfile::NamedTempFile::new().unwrap();
        fs::write(token.path(), "a token that others read").unwrap();
        fs::set_permissions(token.path(), fs::Permissions::from_mode(0o644)).unwrap();
        let file = format!("token_file = \"{}\"", token.path().display());
        let short = "has fewer than 16 characters, and can be guessed";
        let plain = "admin.public_url is not encrypted";
        let sends = "admin.peers.b sends its token unencrypted";
        let peer = |url: &str, token: &str| format!("[admin.peers.b]\nurl = \"{url}\"\n{token}");
        for (admin, told) in [
            ("token = \"123456789012345\"".to_owned(), Some(short)),
            ("token = \"1234567890123456\"".to_owned(), None),
            (
                "public_url = \"http://10.0.0.7:9464\"".to_owned(),
                Some(plain),
            ),
            ("public_url = \"http://localhost:9464\"".to_owned(), None),
            ("public_url = \"https://ganger.example\"".to_owned(), None),
            (peer("http://10.0.0.7:1", "token = \"t\""), Some(sends)),
            (peer("http://10.0.0.7:1", ""), None),
            (peer("http://127.0.0.1:1", "token = \"t\""), None),
            (
                peer("http://localhost:1", &file),
                Some("admin.peers.b.token_file holds secrets and is readable by others"),
            ),
        ] {
            let text = format!("{}\n[admin]\n{admin}", rabbit("amqp://localhost/", "", ""));
            let messages = said(&text).into_iter().map(|(_, _, message)| message);
            let messages: Vec<String> = messages.collect();
            assert_eq!(
                messages.len(),
                usize::from(told.is_some()),
                "{admin}: {messages:?}"
            );
            assert!(
                messages
                    .iter()
                    .all(|one| one.contains(told.unwrap_or_default())),
                "{messages:?}"
            );
        }
    }

    #[test]
    fn a_timeout_beyond_the_brokers_patience_is_told_of() {
        let local = "amqp://localhost/";
        for (source, pool, told) in [
            ("", "timeout = \"31m\"", Some("`31m 5s` against `30m`")),
            ("", "timeout = \"30m\"", Some("`30m 5s` against `30m`")),
            (
                "",
                "timeout = \"29m\"\ntimeout_grace = \"2m\"",
                Some("`31m` against `30m`"),
            ),
            ("", "timeout = \"29m\"", None),
            ("consumer_timeout = \"1h\"", "timeout = \"31m\"", None),
            (
                "consumer_timeout = \"1m\"",
                "timeout = \"1m\"",
                Some("`1m 5s` against `1m`"),
            ),
            ("", "", None),
        ] {
            let said = said(&rabbit(local, source, pool));
            assert_eq!(
                said.len(),
                usize::from(told.is_some()),
                "{source} {pool}: {said:?}"
            );
            if let (Some(told), Some((path, _, message))) = (told, said.first()) {
                assert_eq!(path, "pools.p.timeout");
                assert!(message.ends_with(told), "{message}");
            }
        }
    }

    #[test]
    fn a_secret_in_a_file_that_others_read_is_told_of() {
        let secret = tempfile::NamedTempFile::new().unwrap();
        fs::write(secret.path(), "amqp://u:secret@localhost/").unwrap();
        let text = rabbit("", "", "").replace(
            "url = \"\"",
            &format!("url_file = \"{}\"", secret.path().display()),
        );
        for (mode, told) in [(0o600, false), (0o604, true), (0o644, true), (0o602, true)] {
            fs::set_permissions(secret.path(), fs::Permissions::from_mode(mode)).unwrap();
            let said = said(&text);
            assert_eq!(said.len(), usize::from(told), "{mode:o}: {said:?}");
            if let Some((path, line, message)) = said.first() {
                assert_eq!((path.as_str(), *line), ("sources.main.url_file", Some(3)));
                let ends = format!("has mode {mode:04o} and owner ");
                assert!(message.contains(&ends), "{message}");
            }
        }
    }
}
