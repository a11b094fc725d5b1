//! Destination of telemetry.

use std::fmt;

/// Export to an OpenTelemetry collector.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Otlp {
    /// If OpenTelemetry's environment variables name a collector.
    #[default]
    Auto,
    /// Off, whatever they say.
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
