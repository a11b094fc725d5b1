//! ganger keeps pools of worker processes busy with the messages of a queue, and never loses one.
//!
//! The rooms of this crate are stacked: each imports only from those below it, as ARCHITECTURE.md
//! draws. The library exists for the binary, the benchmarks and the fuzz targets; its interface
//! is not kept stable for others.

#![cfg_attr(
    not(all(
        feature = "admin",
        feature = "alerts",
        feature = "kafka",
        feature = "otlp",
        feature = "postgres",
        feature = "rabbitmq",
        feature = "sqlite"
    )),
    allow(
        dead_code,
        unused,
        reason = "some of what all share is used by one broker only"
    )
)]

#[cfg(feature = "admin")]
pub mod admin;
#[cfg(feature = "alerts")]
pub mod alerts;
pub mod broker;
pub mod cli;
pub mod client;
pub mod config;
pub mod conformance;
pub mod daemon;
mod dead_letter;
pub mod delivery;
pub mod exec;
#[cfg(feature = "admin")]
pub mod exposition;
#[cfg(any(feature = "alerts", feature = "otlp"))]
mod https;
pub mod metrics;
pub mod pauses;
pub mod pool;
pub mod protocol;
pub mod request;
mod rules;
pub mod source;
pub mod status;
pub mod telemetry;
#[cfg(any(
    feature = "alerts",
    feature = "mysql",
    feature = "otlp",
    feature = "postgres"
))]
mod trust;
pub mod unread;
pub mod worker;
