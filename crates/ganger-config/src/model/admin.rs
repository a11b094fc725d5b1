//! Addresses of the admin API and the metrics, and the telemetry sent.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

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
    /// Token that requests over the network must carry.
    pub token: Option<Secret>,
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
