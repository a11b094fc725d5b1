//! The daemon's side that operators and monitoring systems speak to: HTTP on a unix socket and, if
//! wanted, on the network. It lives on a thread of its own, so that no pool is held up by it and it
//! by none.
//!
//! ```text
//! connection ─▶ listen ─▶ guard ─▶ routes ─▶ Overview (reads) · Registry, Request (asks)
//! ```

pub mod alerts;
mod answer;
mod body;
mod cancel;
pub mod client;
mod connections;
mod context;
mod dead;
mod error;
mod events;
pub mod exposition;
#[cfg(test)]
mod golden;
mod guard;
mod health;
mod listen;
mod log;
mod login;
mod messages;
mod openapi;
mod pause;
mod places;
mod pools;
mod reload;
mod remote_source;
mod routes;
mod session;
mod socket;
mod sources;
mod token;

use std::thread;

use tokio::runtime;

pub use context::{Daemon, Load};
pub use error::AdminError;
use ganger_config::model::{AdminConfig, TelemetryConfig};
use ganger_core::heartbeat::Heart;
use guard::Token;
use listen::Listeners;
pub use places::Places;
pub use remote_source::RemoteSource;
pub use routes::document;

/// Requests that take longer than a look, such as reading the configuration, each on a thread.
const BLOCKING_THREADS_MAX: usize = 16;

/// The admin side. It goes on until the process ends, so that a stop can be watched; dropped, its
/// socket is removed.
#[derive(Debug)]
#[must_use]
pub struct Admin {
    /// The socket's file, removed on drop.
    _socket: Option<socket::Removal>,
}

/// Starts to listen, and answers on a thread of its own. What was asked for by name and can't be
/// had is an error; a default that can't is logged, and done without until it can.
///
/// # Errors
/// If an address, a socket or a thread can't be had.
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
    let serve = move || {
        let _heart = Heart::of_this_thread().on(runtime.handle());
        runtime.block_on(listeners.serve(routes));
    };
    thread::Builder::new().name("admin".into()).spawn(serve)?;
    Ok(Admin { _socket: socket })
}
