//! Addresses of servers, and TLS settings of connections to them.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

/// A host and a port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Host {
    /// Name or address; IPv6 without brackets.
    pub name: String,
    /// The port.
    pub port: u16,
}

impl Host {
    /// Returns whether it is this machine, so that nothing goes over a network: a Unix socket or
    /// loopback.
    pub fn is_here(&self) -> bool {
        self.name.starts_with('/') || is_loopback(&self.name)
    }
}

/// Returns whether a host name or address is this machine.
pub fn is_loopback(host: &str) -> bool {
    let host = host.trim_matches(['[', ']']);
    let name = host.trim_end_matches('.').to_ascii_lowercase();
    let address: Option<IpAddr> = host.parse().ok();
    address.map_or_else(
        || name == "localhost" || name.ends_with(".localhost"),
        |address| address.to_canonical().is_loopback(),
    )
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.contains(':') {
            write!(f, "[{}]:{}", self.name, self.port)
        } else {
            write!(f, "{}:{}", self.name, self.port)
        }
    }
}

/// TLS settings of a connection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tls {
    /// PEM: the authorities that may have signed the server's certificate; none for the system's.
    pub ca_file: Option<PathBuf>,
    /// PEM: our certificate and its private key.
    pub identity: Option<Identity>,
    /// The name that the server's certificate must hold; none for the host's.
    pub server_name: Option<String>,
}

/// A client certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// PEM: the certificate, then its chain to the authority.
    pub cert_file: PathBuf,
    /// PEM: its private key.
    pub key_file: PathBuf,
}
