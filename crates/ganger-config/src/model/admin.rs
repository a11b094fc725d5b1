//! Where the daemon can be looked at and steered, and what it shows of itself.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use super::telemetry::Otlp;
use crate::secret::Secret;

/// Where the API listens by itself. Where another has that address it is done without; any other has
/// been asked for.
pub const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9464);

/// `[admin]`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AdminConfig {
    /// Where the API listens; none for nowhere.
    pub listen: Option<SocketAddr>,
    /// Its unix socket; none for where one can be made.
    pub socket: Option<PathBuf>,
    /// What requests over the network must bring.
    pub token: Option<Secret>,
}

/// `[telemetry]`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TelemetryConfig {
    /// Whether there are metrics for Prometheus.
    pub prometheus: bool,
    /// Where metrics and health can be had without a token; none for nowhere.
    pub listen: Option<SocketAddr>,
    /// Whether metrics have the seed system's names too.
    pub seed_names: bool,
    /// The OpenTelemetry collector.
    pub otlp: Otlp,
}
