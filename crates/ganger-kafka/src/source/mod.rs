//! Source of a pool that reads from Kafka: one consumer for the pool, however many workers it has. `startup`
//! waits for a broker, `event_loop` for everything else. The latter does one thing after the other, by calls
//! to parts that keep their own state and return the work to be done: `pool_link` (the pool), `member` (the
//! consumer and its group), `assignment` (partitions and their messages), `outbox` (publications),
//! `known_topics`, `commits`, `blocking_calls` (queries). The other files are parts of these, or make
//! decisions for them.

mod assignment;
mod blocking_calls;
mod commits;
mod contact;
mod dead_letter_write;
mod deadlines;
mod event_loop;
mod external_topics;
mod group;
mod health;
mod incoming;
mod known_topics;
mod member;
mod ordering;
mod outbox;
mod partition;
mod partitions;
mod pool_link;
mod positions;
mod progress;
mod purpose;
mod resume_position;
mod session_gap;
mod settle;
mod startup;
mod throttle;
mod turns;
mod watermark;

use std::sync::Arc;

use crate::broker::error::KafkaError;
use crate::broker::setup::{self, Setup};
use ganger_config::model::KafkaSource;
use ganger_core::heartbeat::Heartbeat;
use ganger_queue::source::Link;

/// Opens the source; the returned function runs it to its end on this thread.
///
/// # Errors
/// If the properties are invalid, the broker rejects the client, or a topic is missing or unfit. An
/// unreachable broker is no error: the source waits for it.
pub(crate) fn open(config: &KafkaSource, link: Link) -> Result<impl FnOnce() + use<>, KafkaError> {
    let runtime = setup::event_loop()?;
    let heartbeat = Heartbeat::of_this_thread().on(runtime.handle());
    let pool = Arc::clone(&link.policy.borrow());
    let mut setup = Setup::new(config, &pool)?;
    // It makes blocking queries, which may take as long as a broker takes to answer.
    let found = match heartbeat.away(|| runtime.block_on(setup.prepare(setup::PATIENCE))) {
        Ok(found) => Some(found),
        Err(error) if error.is_transient() => {
            let problem = error.to_string();
            tracing::warn!(pool = pool.name, problem, "waiting for Kafka");
            None
        }
        Err(error) => return Err(error),
    };
    Ok(move || {
        let _heartbeat = heartbeat;
        runtime.block_on(event_loop::run(setup, found, link));
    })
}
