//! Reasons that nothing is sent to a collector.

use std::io;

use opentelemetry_otlp::ExporterBuildError;

use super::transport::TransportError;

/// Reason that nothing is sent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OtlpError {
    /// The transport to the collector can't be set up.
    #[error("the OTLP collector can't be reached: {0}")]
    Transport(String),
    /// The exporter rejects its settings.
    #[error("the OTLP exporter can't be made: {0}")]
    Exporter(#[from] ExporterBuildError),
    /// The operating system could not start a thread.
    #[error("no thread for the OTLP exporter: {0}")]
    Thread(#[from] io::Error),
}

impl From<TransportError> for OtlpError {
    fn from(error: TransportError) -> Self {
        Self::Transport(error.to_string())
    }
}
