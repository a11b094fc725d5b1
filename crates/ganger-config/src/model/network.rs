//! Where a server is, and how a connection to it is encrypted.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

/// A host and a port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Host {
    /// A name or an address; one of IPv6 without brackets.
    pub name: String,
    /// The port.
    pub port: u16,
}

impl Host {
    /// Returns true for this machine, to which nothing goes over a network: a Unix socket or loopback.
    pub fn is_here(&self) -> bool {
        self.name.starts_with('/') || is_loopback(&self.name)
    }
}

/// Returns true if a host of that name, or of that address, is this machine.
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

/// How a connection is encrypted.
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
    /// PEM: the certificate, then those that lead to its authority.
    pub cert_file: PathBuf,
    /// PEM: its private key.
    pub key_file: PathBuf,
}
