//! What a valid configuration says that is likely to end badly: who else may read or write it, what
//! passwords go over, how long work may take. Whoever asks decides whether that is an error.

use std::net::IpAddr;

use super::model::{Config, PoolConfig, RabbitMqSource, SourceConfig};
use super::places::Places;
use super::problem::Problem;
use super::rights;
use super::units::show_duration;

/// The keys of a source that name a file with a secret in it.
const SECRET_FILES: [&str; 3] = ["url_file", "password_file", "key_file"];

/// Everything of that kind that the configuration alone tells.
pub fn warnings(config: &Config, places: &Places) -> Vec<Problem> {
    let mut warnings = rights::faults(places.files());
    warnings.extend(exposed_file(&["admin", "token_file"], places));
    warnings.extend(exposed_file(&["alerts", "webhook_file"], places));
    warnings.extend(plain_webhook(config, places));
    for (name, source) in &config.sources {
        let name = name.as_str();
        let exposed = |file: &&str| exposed_file(&["sources", name, file], places);
        warnings.extend(SECRET_FILES.iter().filter_map(exposed));
        if let SourceConfig::RabbitMq(source) = source {
            warnings.extend(plain_password(name, source, places));
        }
    }
    let late = |pool| longer_than_the_broker_waits(pool, config, places);
    warnings.extend(config.pools.iter().filter_map(|pool| late(pool)));
    warnings
}

fn exposed_file(key: &[&str], places: &Places) -> Option<Problem> {
    let file = places.directory.join(places.text(key)?);
    let message = format!("{} {}", key.join("."), rights::fault_of_secret(&file)?);
    Some(places.about(&[key], message, rights::HELP))
}

fn plain_password(name: &str, source: &RabbitMqSource, places: &Places) -> Option<Problem> {
    if source.tls.is_some() || source.password.expose().is_empty() {
        return None;
    }
    let remote = source.hosts.iter().find(|host| !is_loopback(&host.name))?;
    let message = format!(
        "sources.{name} sends its password unencrypted, to a host that is not this one: `{remote}`"
    );
    let help = "write amqps:// in the URL, with ca_file if the broker's certificate is your own \
                authority's";
    let keys = [["sources", name, "url"], ["sources", name, "url_file"]];
    Some(places.about(&keys.each_ref().map(|key| &key[..]), message, help))
}

/// Whoever reads it on its way may send to it.
fn plain_webhook(config: &Config, places: &Places) -> Option<Problem> {
    let url = url::Url::parse(config.alerts.as_ref()?.webhook.expose()).ok()?;
    let host = url.host_str().unwrap_or_default();
    let is_safe = url.scheme() == "https" || is_loopback(host.trim_matches(['[', ']']));
    (!is_safe).then(|| {
        let message = format!(
            "alerts sends unencrypted, the URL included, to a host that is not this one: `{host}`"
        );
        let keys = [["alerts", "webhook"], ["alerts", "webhook_file"]];
        let keys = keys.each_ref().map(|key| &key[..]);
        places.about(&keys, message, "write https:// in the URL")
    })
}

fn is_loopback(host: &str) -> bool {
    let name = host.trim_end_matches('.').to_ascii_lowercase();
    let address: Option<IpAddr> = host.parse().ok();
    address.map_or_else(
        || name == "localhost" || name.ends_with(".localhost"),
        |address| address.to_canonical().is_loopback(),
    )
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
            "pools.{name}.timeout with its grace is longer than the broker waits for an \
             acknowledgement before it takes the message back: `{}` against `{}`",
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

    /// What is said of a configuration that is in a file for its owner alone.
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
                let ends = format!("has mode {mode:04o}");
                assert!(message.ends_with(&ends), "{message}");
            }
        }
    }
}
