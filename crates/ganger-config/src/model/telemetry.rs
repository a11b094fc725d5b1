//! Where telemetry is sent.

use std::fmt;

/// Whether anything is sent to an OpenTelemetry collector.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Otlp {
    /// If its environment variables say where.
    #[default]
    Auto,
    /// Nothing, whatever they say.
    Off,
    /// To this URL, in place of `OTEL_EXPORTER_OTLP_ENDPOINT`.
    Url(String),
}

impl fmt::Debug for Otlp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Off => "off",
            // It may hold a password.
            Self::Url(_) => "a URL",
        })
    }
}
