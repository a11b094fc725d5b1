//! The table queue on a server: one store and one memory of finished messages over the SQL of a dialect,
//! with reconnecting connections, owners and their leases, polling, and turns to write. No SQL here.

mod away;
pub(crate) mod client;
mod cut_off;
pub(crate) mod delays;
pub(crate) mod dialect;
pub(crate) mod lasting;
mod lease;
pub(crate) mod memory;
pub(crate) mod names;
mod notifications;
mod patience;
pub(crate) mod poll_plan;
pub(crate) mod registry;
pub(crate) mod rejected;
pub(crate) mod rhythm;
pub(crate) mod seldom;
pub(crate) mod selection;
pub(crate) mod store;
mod take_back;
mod tidying;
pub(crate) mod turns;
pub(crate) mod vigil;
