//! Where a server is, and how a connection to it is encrypted.

use std::fmt;
use std::path::PathBuf;

/// A host and a port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Host {
    /// A name or an address; one of IPv6 without brackets.
    pub name: String,
    /// The port.
    pub port: u16,
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
