//! Write workers for ganger: process pools that consume RabbitMQ, Kafka or a table in SQLite.
//!
//! A worker is a handler and a call of [`Worker::run`]. A handler returns an [`Outcome`], or `()`,
//! which is the same as [`Outcome::done`]. One that returns an error or panics has failed: the message
//! is tried again by the pool's rules, and the worker goes on.
//!
//! ```no_run
//! use ganger_worker::{Error, Outcome, Task, Worker};
//!
//! fn shout(task: &Task) -> Result<Outcome, std::str::Utf8Error> {
//!     Ok(Outcome::reply(task.text()?.to_uppercase() + "!"))
//! }
//!
//! fn main() -> Result<(), Error> {
//!     Worker::new().concurrency(4).run(shout)
//! }
//! ```
//!
//! # Features
//!
//! - `tokio`: `Worker::run_async`, for handlers that are `async`.
//! - `log`: `Logger`, by which `log::info!` and the like become records in the daemon's log. The crate
//!   `tracing` writes there too, with its own feature `log`.
//!
//! # Panics
//!
//! A panic of a handler is caught, and its message and backtrace go to the dead letter. For that a
//! panic hook is put before the program's own when a worker starts to run. With `panic = "abort"` the
//! process dies instead, which costs the message an attempt and the pool a worker.
//!
//! # Traces
//!
//! A message that is traced has a header `traceparent`. The headers are what the propagators of
//! OpenTelemetry extract from, so one line makes the message's context the handler's own:
//!
//! ```
//! use ganger_worker::Task;
//! use opentelemetry::global;
//!
//! fn handle(task: &Task) {
//!     let parent = global::get_text_map_propagator(|from| from.extract(&task.headers));
//!     let _attached = parent.attach();
//!     // The work: its spans are children of the daemon's.
//! }
//! # drop(ganger_worker::testing::work(&ganger_worker::Worker::new(), handle, ["ten"])?);
//! # Ok::<(), ganger_worker::Error>(())
//! ```
//!
//! An `async` handler gives it to its future, by `FutureExt::with_context`.

#[cfg(feature = "tokio")]
mod asynchronous;
mod current;
mod error;
mod frames;
mod handle;
mod link;
#[cfg(feature = "log")]
mod logger;
mod outbox;
mod outcome;
mod panics;
mod queue;
mod start;
mod task;
pub mod testing;
mod value;
#[cfg(test)]
mod vectors;
mod wire;
mod worker;

#[cfg(feature = "tokio")]
pub use asynchronous::AsyncTask;
pub use error::{Cancelled, Error};
pub use handle::Cancellation;
#[cfg(feature = "log")]
pub use logger::Logger;
pub use outcome::{Failure, IntoOutcome, Outcome};
pub use task::{Level, Task};
pub use value::Value;
pub use worker::{Stopper, Worker};
