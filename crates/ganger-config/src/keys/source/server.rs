//! URLs of servers that hold a database: PostgreSQL, MySQL, MariaDB. Each kind describes its own form.

use percent_encoding::percent_decode_str;
use url::Url;

use super::login::Login;
use super::tls::TlsFiles;
use crate::model::{Host, SslMode};
use crate::reader::Reader;
use crate::value_types::Wrong;

/// Contents of a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ServerAddress {
    pub(super) hosts: Vec<Host>,
    pub(super) database: String,
    pub(super) username: Option<String>,
    pub(super) password: Option<String>,
    pub(super) ssl_mode: SslMode,
}

/// Values of the keys that databases on servers share.
#[derive(Debug)]
pub(super) struct OnServer {
    pub(super) table_prefix: String,
    pub(super) declare: bool,
    pub(super) files: TlsFiles,
    pub(super) login: Login,
}

impl OnServer {
    /// Adds the login from the URL; the URL or a key must give it.
    pub(super) fn known(mut self, t: &mut Reader<'_>, address: &ServerAddress) -> Self {
        let (username, password) = (address.username.clone(), address.password.clone());
        self.login = self.login.or(username, password);
        self.login.print(t);
        if self.login.username.is_none() {
            t.missing("username", "write it as a key, or in the URL before an `@`");
        }
        self
    }
}

/// Reads an option behind a URL's `?`: the TLS mode, if it is that. Returns none if there is no such
/// option.
type ReadOption = fn(name: &str, value: &str) -> Option<Result<Option<SslMode>, Wrong>>;

/// Form of the URLs of one kind of server.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scheme {
    /// Prefixes of the URLs, the usual one first.
    pub(super) names: &'static [&'static str],
    /// Default port.
    pub(super) port: u16,
    /// Form of a URL, for messages.
    pub(super) form: &'static str,
    /// Options allowed behind the `?`.
    pub(super) rest: &'static str,
    pub(super) option: ReadOption,
}

impl Scheme {
    /// Returns whether the URL is of this kind.
    pub(super) fn is_of(&self, url: &str) -> bool {
        let scheme = url.split_once(':').map(|(scheme, _)| scheme);
        scheme.is_some_and(|scheme| self.names.contains(&scheme))
    }

    /// Reads a URL, which must name the database.
    pub(super) fn parse(&self, text: &str) -> Result<ServerAddress, Wrong> {
        let (text, others) = first_host(text);
        let url = self.url(&text)?;
        let mut ssl_mode = SslMode::default();
        for (name, value) in url.query_pairs() {
            let read = (self.option)(&name, &value);
            let read = read
                .ok_or_else(|| Wrong::new(self.rest, "give other settings as keys of the source"));
            ssl_mode = read??.unwrap_or(ssl_mode);
        }
        let mut hosts = vec![self.host(&url)?];
        for other in others {
            hosts.push(self.host(&self.url(&format!("{}://{other}/", self.names[0]))?)?);
        }
        let database = self.decode(url.path().trim_start_matches('/'))?;
        if database.is_empty() {
            return Err(Wrong::new("must name a database", self.form));
        }
        let username = Some(url.username()).filter(|name| !name.is_empty());
        Ok(ServerAddress {
            hosts,
            database,
            username: username.map(|part| self.decode(part)).transpose()?,
            password: url.password().map(|part| self.decode(part)).transpose()?,
            ssl_mode,
        })
    }

    fn url(&self, text: &str) -> Result<Url, Wrong> {
        Url::parse(text).map_err(|error| Wrong::new(format!("must be a URL ({error})"), self.form))
    }

    fn host(&self, url: &Url) -> Result<Host, Wrong> {
        let name = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        match self.decode(name)? {
            name if name.is_empty() => Err(Wrong::new("must name a host", self.form)),
            name => Ok(Host {
                name,
                port: url.port().unwrap_or(self.port),
            }),
        }
    }

    fn decode(&self, part: &str) -> Result<String, Wrong> {
        match percent_decode_str(part).decode_utf8() {
            Ok(text) => Ok(text.into_owned()),
            Err(_) => Err(Wrong::new("must hold UTF-8, percent-encoded", self.form)),
        }
    }

    /// Returns the URL without the login.
    pub(super) fn shown(&self, hosts: &[Host], database: &str, options: &str) -> String {
        let hosts: Vec<String> = hosts.iter().map(shown_host).collect();
        let hosts = hosts.join(",");
        let (scheme, database) = (self.names[0], encoded(database));
        format!("\"{scheme}://{hosts}/{database}?{options}\"")
    }
}

fn encoded(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}

fn shown_host(Host { name, port }: &Host) -> String {
    match name.contains(':') {
        true => format!("[{name}]:{port}"),
        false => {
            let name = encoded(name).replace("%2E", ".").replace("%2D", "-");
            format!("{name}:{port}")
        }
    }
}

/// Splits a URL into one with only the first of its hosts, as URLs usually are, and the other hosts.
fn first_host(text: &str) -> (String, Vec<&str>) {
    let start = text.find("://").map_or(0, |scheme| scheme + 3);
    let end = text[start..].find(['/', '?', '#']);
    let end = end.map_or(text.len(), |end| start + end);
    let start = text[start..end]
        .rfind('@')
        .map_or(start, |at| start + at + 1);
    let mut hosts = text[start..end].split(',');
    let first = hosts.next().unwrap_or_default();
    let whole = format!("{}{first}{}", &text[..start], &text[end..]);
    (whole, hosts.collect())
}

/// Returns the mode of that name, among those of one kind of server.
pub(super) fn mode(modes: &[(&str, SslMode)], (key, name): (&str, &str)) -> Result<SslMode, Wrong> {
    let known = modes
        .iter()
        .find(|(known, _)| known.eq_ignore_ascii_case(name));
    known.map(|(_, mode)| *mode).ok_or_else(|| {
        let names: Vec<String> = modes.iter().map(|(name, _)| format!("`{name}`")).collect();
        let rule = format!("must have one of {} as its {key}", names.join(", "));
        Wrong::new(rule, "")
    })
}
