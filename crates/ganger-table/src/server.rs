//! The table queue on a server: one store for messages and one for finished messages, over the SQL of a
//! dialect, with reconnecting connections, owners and their leases, polling, and turns to write. No SQL
//! here.

mod cleanup;
pub(crate) mod client;
pub(crate) mod delays;
pub(crate) mod dialect;
pub(crate) mod finished_store;
mod heartbeat_watch;
mod lease;
pub(crate) mod ledger;
pub(crate) mod names;
mod notifications;
pub(crate) mod occurrences;
mod outage;
pub(crate) mod owner_watch;
pub(crate) mod poll_interval;
pub(crate) mod poll_plan;
pub(crate) mod rare_rows;
pub(crate) mod reconnecting;
pub(crate) mod registry;
pub(crate) mod rejected;
pub(crate) mod selection;
pub(crate) mod sql;
pub(crate) mod store;
pub(crate) mod tables;
mod take_back;
mod time_limits;
pub(crate) mod writer_queue;
