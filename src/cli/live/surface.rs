//! External interfaces of a running daemon: the admin API with the metrics, and alerts. `no_surface.rs` is
//! its twin for builds without them.

use std::sync::Arc;

use miette::IntoDiagnostic;
use tokio::sync::mpsc;

use super::open::login_url;
use super::remote::block_on;
use crate::cli::common::ConfigFile;
use crate::kinds;
use ganger_admin::alerts::{self, Alerts};
use ganger_admin::client::{Remote, Target};
use ganger_admin::{Admin, Daemon, Silences};
use ganger_config::Problems;
use ganger_config::model::{AdminConfig, Config, TelemetryConfig};
use ganger_pool::overview::Overview;
use ganger_pool::request::Request;

/// The interfaces, open until this is dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct Surface {
    _alerts: Alerts,
    _admin: Admin,
}

/// Returns the URL of the dashboard of the daemon with that configuration. It is valid once and for a minute.
pub(crate) fn login(file: &ConfigFile) -> miette::Result<String> {
    let remote = Remote::new(Target::Here(file.places(None)));
    let login = block_on(remote.post("/v1/logins", None))?.into_diagnostic()?;
    Ok(login_url(&login, None)?.into())
}

/// Opens the admin API and starts the alerts. The configuration is read to show it, and loaded for a reload.
pub(crate) fn open(
    (file, admin, telemetry): (&ConfigFile, &AdminConfig, &TelemetryConfig),
    overview: Overview,
    requests: mpsc::Sender<Request>,
    read: impl Fn() -> Result<Config, Problems> + Send + Sync + 'static,
    load: impl Fn() -> Result<Config, Problems> + Send + Sync + 'static,
) -> miette::Result<Surface> {
    let silences = Silences::read(file.state("silences"));
    let daemon = Daemon {
        overview: overview.clone(),
        requests,
        read: Arc::new(read),
        load: Arc::new(load),
        connect: kinds::client,
        open_ledger: |config| kinds::ledger(config, false),
        jobs: file.state("jobs"),
        silences: silences.clone(),
    };
    let places = file.places(admin.socket.as_deref());
    Ok(Surface {
        _admin: ganger_admin::start(admin, telemetry, &places, daemon).into_diagnostic()?,
        _alerts: alerts::start(overview, silences).into_diagnostic()?,
    })
}
