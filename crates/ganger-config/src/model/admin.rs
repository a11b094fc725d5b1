//! Addresses of the admin API and the metrics, and the telemetry sent.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use ipnet::IpNet;
use jiff::Timestamp;
use url::Url;

use super::telemetry::Otlp;
use crate::secret::Secret;

/// Default address of the API. If it is in use, the daemon runs without it; any other address was asked
/// for.
pub const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9464);

/// `[admin]`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AdminConfig {
    /// Address of the API; none for no TCP listener.
    pub listen: Option<SocketAddr>,
    /// Its Unix socket; none for the first place where one can be made.
    pub socket: Option<PathBuf>,
    /// Token with the role admin, for requests over the network.
    pub token: Option<Secret>,
    /// Further tokens, each with a name and a role.
    pub tokens: Vec<NamedToken>,
    /// The proxy that names the users of its requests.
    pub proxy_auth: Option<ProxyAuth>,
    /// The dashboard is served.
    pub ui: bool,
    /// Parts of messages that viewers do not see: JSONPaths, which begin with `$`, and names of headers.
    pub redact: Vec<String>,
    /// URL at which browsers reach the daemon; none for its own address.
    pub public_url: Option<PublicUrl>,
    /// Other daemons that the dashboard shows, by name.
    pub peers: BTreeMap<String, AdminPeer>,
}

/// `admin.public_url`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicUrl {
    /// As in `https://ganger.example`.
    pub origin: String,
    /// Path below which a proxy offers the daemon, as in `/ganger`; empty if that is all of the host.
    pub path: String,
}

impl fmt::Display for PublicUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.origin, self.path)
    }
}

impl AdminConfig {
    /// Returns the origin of the URL at which browsers reach the daemon.
    pub fn public_origin(&self) -> Option<&str> {
        self.public_url.as_ref().map(|url| &*url.origin)
    }
}

/// `[admin.peers.NAME]`.
#[derive(Debug, Clone, PartialEq)]
pub struct AdminPeer {
    /// URL of its admin API: `http://HOST:PORT`.
    pub url: Url,
    /// Token that it requires.
    pub token: Option<Secret>,
}

/// Permission of a caller of the admin API; each role includes those before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// May read.
    #[default]
    Viewer,
    /// May also change messages, and steer pools and schedules.
    Operator,
    /// May also change the daemon, and define and remove schedules.
    Admin,
}

impl Role {
    /// Every role by its name.
    pub const ALL: &[(&str, Self)] = &[
        ("viewer", Self::Viewer),
        ("operator", Self::Operator),
        ("admin", Self::Admin),
    ];

    /// Returns the role of that name.
    pub fn named(name: &str) -> Option<Self> {
        let found = Self::ALL.iter().find(|(own, _)| *own == name);
        found.map(|(_, role)| *role)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = Self::ALL.iter().find(|(_, role)| role == self);
        f.write_str(found.map_or("", |(name, _)| name))
    }
}

/// `[[admin.tokens]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedToken {
    /// Its name, which the record of changes shows.
    pub name: String,
    /// Permission of its holder.
    pub role: Role,
    /// SHA-256 of the token.
    pub sha256: [u8; 32],
    /// Time from which on it is refused; none if it does not expire.
    pub expires: Option<Timestamp>,
}

/// `admin.proxy_auth`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyAuth {
    /// Name of the header that names the user, in lower case.
    pub header: String,
    /// Addresses of the proxy; the headers are ignored in requests from elsewhere.
    pub from: Vec<IpNet>,
    /// Role of the users, unless a header has it.
    pub role: Role,
    /// Name of the header that has the user's role, in lower case.
    pub role_header: Option<String>,
}

/// `[telemetry]`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TelemetryConfig {
    /// Metrics are exposed for Prometheus.
    pub prometheus: bool,
    /// Address where metrics and health need no token; none for no such listener.
    pub listen: Option<SocketAddr>,
    /// Metrics are also exposed under the seed system's names.
    pub seed_names: bool,
    /// The OpenTelemetry collector.
    pub otlp: Otlp,
}
