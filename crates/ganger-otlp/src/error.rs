//! Reasons that nothing is sent to a collector.

use std::io;

use opentelemetry_otlp::ExporterBuildError;

use super::transport::TransportError;

/// Reason that nothing is sent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OtlpError {
    /// The transport to the collector can't be set up.
    #[error("connecting to the OTLP collector failed: {0}")]
    Transport(String),
    /// The exporter rejects its settings.
    #[error("creating the OTLP exporter failed: {0}")]
    Exporter(#[from] ExporterBuildError),
    /// The operating system could not start a thread.
    #[error("spawning the OTLP exporter's thread failed: {0}")]
    Thread(#[from] io::Error),
}

impl From<TransportError> for OtlpError {
    fn from(error: TransportError) -> Self {
        Self::Transport(error.to_string())
    }
}
