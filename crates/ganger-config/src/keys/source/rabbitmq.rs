//! The keys of a connection to RabbitMQ, and those of a pool that declare its queue.

use std::collections::BTreeMap;
use std::time::Duration;

use percent_encoding::percent_decode_str;

use super::login::Login;
use super::tls::TlsFiles;
use super::url::Url;
use crate::keys::secret_file::secret_file;
use crate::keys::shared::{DAY, HOUR, ReadContext};
use crate::model::{Argument, Host, QueueDeclaration, QueueType, RabbitMqSource, Secret, Tls};
use crate::print;
use crate::reader::Reader;
use crate::value_types::choice::choice;
use crate::value_types::compound::list_of;
use crate::value_types::{Wrong, boolean, duration, plain, word};

/// The ports that IANA has registered for `amqp` and `amqps`.
const PORT: u16 = 5672;
const TLS_PORT: u16 = 5671;
/// User name and password of a fresh broker's default user.
const GUEST: &str = "guest";

const SECOND: Duration = Duration::from_secs(1);

/// The types of a queue of RabbitMQ.
pub(crate) const QUEUE_TYPES: [(&str, QueueType); 2] = [
    ("quorum", QueueType::Quorum),
    ("classic", QueueType::Classic),
];

/// Reads a connection.
pub(super) fn read(
    t: &mut Reader<'_>,
    url: Option<&Url>,
    declare: bool,
    files: TlsFiles,
    login: Login,
    around: ReadContext<'_>,
) -> RabbitMqSource {
    if !t.has("url") && !t.has("url_file") {
        let help = "write url = \"amqp://USER:PASSWORD@HOST/VHOST\"";
        t.missing("url", help);
    }
    let address = url.and_then(|url| url.read(t, parse)).unwrap_or_default();
    let scheme = if address.tls { "amqps" } else { "amqp" };
    // The login is shown by keys of its own.
    let url = format!("{scheme}://{}", address.host);
    t.print("url", Some(print::text(&url)));
    let tls = tls(t, &address, files);
    let guest = || Some(GUEST.to_owned());
    let login = login
        .or(address.username.clone(), address.password.clone())
        .or(guest(), guest());
    login.print(t);
    RabbitMqSource {
        hosts: hosts(t, &address),
        tls,
        vhost: vhost(t, &address),
        username: login.username.unwrap_or_default(),
        password: Secret::new(login.password.unwrap_or_default()),
        signing_secret: signing_secret(t, around),
        unsigned_copies: t.or(
            "unsigned_copies",
            boolean(),
            "false",
            "Accept copies without a signature as those of a daemon, too, for versions that did \
             not sign them. Any producer can forge such copies: enable it only while some are \
             waiting.",
        ),
        heartbeat: t.or(
            "heartbeat",
            duration(SECOND..=HOUR),
            "30s",
            "Time within which each side sends at least two heartbeats; the connection to a broker \
             that is silent for twice as long is closed. In whole seconds; the shorter of this and \
             the broker's own value applies.",
        ),
        connect_timeout: t.or(
            "connect_timeout",
            duration(Duration::from_millis(100)..=HOUR),
            "10s",
            "Maximum time of an attempt to connect to one host.",
        ),
        connection_name: t.or(
            "connection_name",
            word(),
            "ganger",
            "Name of the connection in the broker's list, followed by the pool's name.",
        ),
        declare,
        queue: queue(t),
        consumer_timeout: t.or(
            "consumer_timeout",
            duration(SECOND..=DAY),
            "30m",
            "Time that the broker waits for an acknowledgement: the value of its own setting of \
             this name, which can't be queried.",
        ),
    }
}

/// Reads the secret that copies are signed with.
fn signing_secret(t: &mut Reader<'_>, around: ReadContext<'_>) -> Option<Secret> {
    let secret = t.maybe(
        "signing_secret",
        word(),
        "Secret that signs copies of messages, for a retry and as dead letters, so that no \
         producer can forge them; the password if omitted. All daemons of a queue and the commands \
         must have the same. Set it to the old password before that changes, so that waiting \
         copies remain valid.",
    );
    let file = secret_file(
        t,
        around,
        "signing_secret",
        "signing_secret_file",
        "File with the secret; relative to the directory of this file.",
    );
    let secret = secret.or(file);
    let shown = secret.as_ref().map(|_| print::hidden("signing_secret"));
    t.print("signing_secret", shown);
    secret.map(Secret::new)
}

/// Reads the settings by which queues are declared.
fn queue(t: &mut Reader<'_>) -> QueueDeclaration {
    QueueDeclaration {
        queue_type: t.or(
            "queue_type",
            choice(&QUEUE_TYPES),
            "quorum",
            "Type of the queues that are declared.",
        ),
        arguments: arguments(t),
    }
}

/// Reads the arguments that queues are declared with.
pub(crate) fn arguments(t: &mut Reader<'_>) -> BTreeMap<String, Argument> {
    t.map(
        "queue_arguments",
        "an argument's name",
        |name| match name {
            "x-queue-type" => Err(Wrong::new("is set by `queue_type`", "leave it out")),
            "x-delivery-limit" => Err(Wrong::new(
                "is set so high that the broker drops nothing",
                "attempts are counted by the pool: see its `retry` and `crashes_max`",
            )),
            name => Ok(name.to_owned()),
        },
        plain(),
        "Further arguments of the queues that are declared, such as `x-max-length`.",
    )
}

fn hosts(t: &mut Reader<'_>, address: &Address) -> Vec<Host> {
    let further = t.maybe(
        "hosts",
        list_of(word()),
        "Further hosts of the same cluster, each `HOST` or `HOST:PORT`: if one can't be reached, \
         the next is tried.",
    );
    let mut hosts = vec![address.host.clone()];
    for text in further.unwrap_or_default() {
        match host(&text, address.host.port) {
            Some(host) => hosts.push(host),
            None => {
                let help = format!("`{text}` is not a host: write \"HOST\" or \"HOST:PORT\"");
                t.wrong("hosts", &Wrong::new("must hold hosts", help));
            }
        }
    }
    hosts
}

fn host(text: &str, port: u16) -> Option<Host> {
    let whole = url::Url::parse(&format!("amqp://{text}")).ok()?;
    let bare = whole.username().is_empty() && matches!(whole.path(), "" | "/");
    let name = whole.host_str()?.trim_matches(['[', ']']).to_owned();
    let port = whole.port().unwrap_or(port);
    (bare && !name.is_empty()).then_some(Host { name, port })
}

fn vhost(t: &mut Reader<'_>, address: &Address) -> String {
    let given = t.maybe(
        "vhost",
        word(),
        "Virtual host, not percent-encoded, instead of the URL's; `/` if neither is given.",
    );
    let vhost = given.unwrap_or_else(|| address.vhost.clone());
    t.print("vhost", Some(print::text(&vhost)));
    vhost
}

fn tls(t: &mut Reader<'_>, address: &Address, files: TlsFiles) -> Option<Tls> {
    let server_name = t.maybe(
        "server_name",
        word(),
        "Name that the broker's certificate must contain, if it is not the host's.",
    );
    let keys = ["ca_file", "cert_file", "key_file", "server_name"];
    if let Some(key) = keys.into_iter().find(|key| t.has(key) && !address.tls) {
        let help = "write amqps:// in the URL";
        t.wrong(key, &Wrong::new("has an effect with TLS only", help));
    }
    address.tls.then_some(Tls {
        ca_file: files.ca_file,
        identity: files.identity,
        server_name,
    })
}

/// Contents of a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Address {
    tls: bool,
    host: Host,
    vhost: String,
    username: Option<String>,
    password: Option<String>,
}

/// Stands in for a URL that is missing or wrong, so that the other keys are still read.
impl Default for Address {
    fn default() -> Self {
        Self {
            tls: true,
            host: Host {
                name: String::new(),
                port: PORT,
            },
            vhost: "/".into(),
            username: None,
            password: None,
        }
    }
}

/// Reads a URL as <https://www.rabbitmq.com/docs/uri-spec> defines it, except that a path of `/` alone
/// means the virtual host `/`, as people expect.
fn parse(text: &str) -> Result<Address, Wrong> {
    let form = "write amqp://USER:PASSWORD@HOST:PORT/VHOST, each part percent-encoded (`@` as \
                %40, `/` as %2F, `%` as %25), or give the keys `username`, `password` and `vhost`";
    let tls = match text.split_once("://") {
        Some(("amqp", _)) => false,
        Some(("amqps", _)) => true,
        _ => return Err(Wrong::new("must begin with `amqp://` or `amqps://`", form)),
    };
    let url = url::Url::parse(text)
        .map_err(|error| Wrong::new(format!("must be a URL ({error})"), form))?;
    if url.query().is_some() || url.fragment().is_some() {
        let help = "give heartbeat, connect_timeout and the like as keys of the source";
        return Err(Wrong::new("must hold nothing after the virtual host", help));
    }
    let decode = |part: &str| match percent_decode_str(part).decode_utf8() {
        Ok(text) => Ok(text.into_owned()),
        Err(_) => Err(Wrong::new("must hold UTF-8, percent-encoded", form)),
    };
    let name = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    if name.is_empty() {
        return Err(Wrong::new("must name a host", form));
    }
    let vhost = match url.path().strip_prefix('/') {
        None | Some("") => "/".to_owned(),
        Some(path) if path.contains('/') => {
            let rule = "must hold no `/` in the virtual host but as %2F";
            return Err(Wrong::new(rule, form));
        }
        Some(path) => decode(path)?,
    };
    let username = Some(url.username()).filter(|name| !name.is_empty());
    Ok(Address {
        tls,
        host: Host {
            name: decode(name)?,
            port: url.port().unwrap_or(if tls { TLS_PORT } else { PORT }),
        },
        vhost,
        username: username.map(decode).transpose()?,
        password: url.password().map(decode).transpose()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Result<String, String> {
        let address = parse(text).map_err(|wrong| wrong.rule)?;
        let Address {
            tls,
            host,
            vhost,
            username,
            password,
        } = address;
        Ok(format!("{tls} {host} {vhost} {username:?} {password:?}"))
    }

    #[test]
    fn a_url_says_where_and_who() {
        for (url, expected) in [
            ("amqp://h", r#"false h:5672 / None None"#),
            ("amqps://h/", r#"true h:5671 / None None"#),
            ("amqp://u:p@h:1/v", r#"false h:1 v Some("u") Some("p")"#),
            (
                "amqp://a%40b:%2F%25%40@h/%2fa%2F",
                r#"false h:5672 /a/ Some("a@b") Some("/%@")"#,
            ),
            (
                "amqp://u:p@ss@h",
                r#"false h:5672 / Some("u") Some("p@ss")"#,
            ),
            ("amqp://[::1]:7", r#"false [::1]:7 / None None"#),
        ] {
            assert_eq!(shown(url).as_deref(), Ok(expected), "{url}");
        }
    }

    #[test]
    fn a_wrong_url_is_told_from_another() {
        for (url, rule) in [
            ("h:5672", "must begin with `amqp://` or `amqps://`"),
            ("amqp://", "must name a host"),
            ("amqp://u:p/w@h", "must be a URL (invalid port number)"),
            (
                "amqp://h/a/b",
                "must hold no `/` in the virtual host but as %2F",
            ),
            (
                "amqp://h/v?heartbeat=3",
                "must hold nothing after the virtual host",
            ),
            ("amqp://%ff@h", "must hold UTF-8, percent-encoded"),
        ] {
            assert_eq!(shown(url), Err(rule.to_owned()), "{url}");
        }
    }

    #[test]
    fn further_hosts_have_the_urls_port_unless_they_say() {
        let hosts = ["b", "c:7", "[::1]", "[::1]:9"].map(|text| host(text, 5).unwrap().to_string());
        assert_eq!(hosts, ["b:5", "c:7", "[::1]:5", "[::1]:9"]);
        for text in ["", "u@h", "h/v", "h:x"] {
            assert_eq!(host(text, 5), None, "{text}");
        }
    }
}
