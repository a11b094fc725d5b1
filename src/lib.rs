//! The program: commands, the daemon's wiring, the list of queue kinds. Everything else is in `crates/`.

pub mod cli;
#[cfg(feature = "otlp")]
mod collector;
#[cfg(not(feature = "otlp"))]
#[path = "no_collector.rs"]
mod collector;
pub mod daemon;
pub mod kinds;
#[cfg(feature = "otlp")]
mod otlp_metrics;
