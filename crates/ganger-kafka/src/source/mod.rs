//! Source of a pool that reads from Kafka: one consumer for the pool, however many workers it has.
//! `beginning` waits for a broker, `event_loop` for all else, and does one thing after the other. The
//! files beside it are of two kinds. Parts keep their state to themselves and decide what is to be
//! done: `partitions` and `ordering` (assigned partitions, next message to hand out), `group`,
//! `positions`, `known_topics`, `commits`, `throttle`. Their decisions are carried out by `intake`,
//! which takes messages in and hands them out, `settle`, which carries out outcomes, `rebalance`,
//! `start_offsets`, `committing`, `pausing` and `retry_topics`.

mod beginning;
mod blocking_calls;
mod burial;
mod commits;
mod committing;
mod deadlines;
mod event_loop;
mod group;
mod health;
mod incoming;
mod intake;
mod known_topics;
mod ordering;
mod partition;
mod partitions;
mod pausing;
mod positions;
mod progress;
mod purpose;
mod rebalance;
mod retry_topics;
mod session_gap;
mod settle;
mod start_offsets;
mod strangers;
mod throttle;
mod turns;
mod vain;
mod watermark;
mod whence;

use std::sync::Arc;

use crate::broker::error::KafkaError;
use crate::broker::setup::{self, Setup};
use ganger_config::model::KafkaSource;
use ganger_core::heartbeat::Heart;
use ganger_queue::source::Link;

/// Opens the source; the returned function runs it to its end on this thread.
///
/// # Errors
/// If the properties are invalid, the broker rejects the client, or a topic is missing or unfit. An
/// unreachable broker is no error: the source waits for it.
pub(crate) fn open(config: &KafkaSource, link: Link) -> Result<impl FnOnce() + use<>, KafkaError> {
    let runtime = setup::event_loop()?;
    let heart = Heart::of_this_thread().on(runtime.handle());
    let pool = Arc::clone(&link.policy.borrow());
    let mut setup = Setup::new(config, &pool)?;
    // It makes blocking queries, for as long as a broker may take.
    let found = match heart.away(|| runtime.block_on(setup.look(setup::PATIENCE))) {
        Ok(found) => Some(found),
        Err(error) if error.may_pass() => {
            let problem = error.to_string();
            tracing::warn!(pool = pool.name, problem, "waiting for Kafka");
            None
        }
        Err(error) => return Err(error),
    };
    Ok(move || {
        let _heart = heart;
        runtime.block_on(event_loop::run(setup, found, link));
    })
}
