//! The vocabulary of all other crates: messages, names, units, back-off, budget, shutdown, threads,
//! trace context.

pub mod backoff;
pub mod budget;
pub mod event_loop;
pub mod foreign;
pub mod heartbeat;
pub mod host;
pub mod log_name;
pub mod message;
pub mod names;
pub mod shell;
pub mod shutdown;
pub mod started_in;
pub mod suggest;
pub mod threads;
pub mod trace_context;
pub mod units;
