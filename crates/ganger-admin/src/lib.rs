//! The daemon's interface for operators and monitoring systems: HTTP on a unix socket and,
//! optionally, on the network. It runs on a thread of its own, so that it blocks no pool and no
//! pool blocks it.
//!
//! ```text
//! connection ─▶ listen ─▶ guard ─▶ routes ─▶ Overview (reads) · Registry, Request (asks)
//! ```

pub mod alerts;
mod answer;
mod at_ledger;
mod base_path;
mod body;
mod browser;
mod by_hand;
mod caller;
mod cancel;
pub mod client;
mod connections;
mod context;
mod control;
mod credentials;
mod daemons;
mod dead;
mod error;
mod events;
mod explain;
pub mod exposition;
#[cfg(test)]
mod golden;
mod guard;
mod health;
mod history;
mod in_force;
mod job_routes;
mod jobs;
mod ledger;
mod listen;
mod log;
mod login;
mod messages;
mod occurrence_log;
mod occurrences;
mod openapi;
mod pause;
mod places;
mod pools;
mod precondition;
mod recording;
mod redaction;
mod reload;
mod remote_ledger;
mod remote_source;
mod reports;
mod roles;
mod routes;
mod schedules;
mod session;
mod silence_routes;
mod silences;
mod socket;
mod sources;
mod token;
mod trends;
mod ui;
mod waiting;
mod waits;
mod within;

use std::thread;

use tokio::runtime;

pub use context::{Daemon, Load};
use credentials::Token;
pub use error::AdminError;
use ganger_config::model::{AdminConfig, TelemetryConfig};
use ganger_core::heartbeat::Heartbeat;
use jobs::Jobs;
use listen::Listeners;
pub use places::Places;
pub use remote_ledger::RemoteLedger;
pub use remote_source::RemoteSource;
pub use routes::document;
pub use silences::Silences;
pub use token::NewToken;

/// Maximum number of threads for slow requests, such as reading the configuration.
const BLOCKING_THREADS_MAX: usize = 24;

/// The admin API. It continues until the process ends, so that a stop can be watched; on drop its
/// socket is removed.
#[derive(Debug)]
#[must_use]
pub struct Admin {
    /// Removes the socket's file on drop.
    _socket: Option<socket::Removal>,
    jobs: Jobs,
}

impl Drop for Admin {
    fn drop(&mut self) {
        self.jobs.close();
    }
}

/// Starts to listen, and answers on a thread of its own. If an explicitly configured listener is
/// unavailable, that is an error; an unavailable default is logged, and omitted until it is
/// available.
///
/// # Errors
/// If an address, a socket or a thread is unavailable.
pub fn start(
    admin: &AdminConfig,
    telemetry: &TelemetryConfig,
    places: &Places,
    daemon: Daemon,
) -> Result<Admin, AdminError> {
    let listeners = Listeners::open(admin, telemetry, places)?;
    let socket = listeners.removal();
    let token = match &admin.token {
        Some(token) => Token::Configured(token.clone()),
        None => Token::Made(listeners.token()),
    };
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .build()?;
    let routes = routes::Routes::new(&token, telemetry, daemon);
    let jobs = routes.jobs();
    jobs.continue_unfinished();
    let serve = move || {
        let _heart = Heartbeat::of_this_thread().on(runtime.handle());
        runtime.block_on(listeners.serve(routes));
    };
    thread::Builder::new().name("admin".into()).spawn(serve)?;
    Ok(Admin {
        _socket: socket,
        jobs,
    })
}
