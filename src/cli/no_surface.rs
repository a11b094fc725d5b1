//! Replaces `live/surface.rs` in a build without the admin API.

use miette::miette;
use tokio::sync::mpsc;

use super::common::ConfigFile;
use ganger_config::Problems;
use ganger_config::model::{AdminConfig, Config, TelemetryConfig};
use ganger_pool::overview::Overview;
use ganger_pool::request::Request;

/// The interfaces of a build without the admin API: empty.
#[derive(Debug)]
#[must_use]
pub(super) struct NoSurface;

#[expect(clippy::unnecessary_wraps, reason = "its twin may fail")]
pub(super) fn open(
    _: (&ConfigFile, &AdminConfig, &TelemetryConfig),
    _: Overview,
    _: mpsc::Sender<Request>,
    _: impl Fn() -> Result<Config, Problems>,
    _: impl Fn() -> Result<Config, Problems>,
) -> miette::Result<NoSurface> {
    Ok(NoSurface)
}

/// Says that there is no dashboard.
pub(super) fn login(_: &ConfigFile) -> miette::Result<String> {
    Err(miette!(
        "this build has no dashboard; `cargo demo-ui` builds and runs one that does"
    ))
}
