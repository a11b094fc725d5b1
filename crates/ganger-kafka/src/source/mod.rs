//! The source of a pool that reads from Kafka: one consumer for the pool, however many workers it
//! has. `beginning` waits for a broker, `event_loop` for all else, and does one thing after the other. The
//! files beside it are of two kinds. Parts keep their state to themselves and say what is to be done:
//! `partitions` and `ordering` (what is ours, which message may go out next), `group`, `positions`,
//! `known_topics`, `commits`, `throttle`. What they say is carried out by `intake`, which takes messages in
//! and hands them out, `settle`, which carries out outcomes, `rebalance`, `start_offsets`, `committing`, `pausing` and `retry_topics`.

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

/// Opens the source; what is returned runs it to its end on this thread.
///
/// # Errors
/// If the properties are no good, the broker refuses us, or a topic is missing or unfit. A broker
/// that can't be reached is no error: it is waited for.
pub(crate) fn open(config: &KafkaSource, link: Link) -> Result<impl FnOnce() + use<>, KafkaError> {
    let runtime = setup::event_loop()?;
    let heart = Heart::of_this_thread().on(runtime.handle());
    let pool = Arc::clone(&link.policy.borrow());
    let mut setup = Setup::new(config, &pool)?;
    // It asks by calls that block, for as long as a broker may take.
    let found = match heart.away(|| runtime.block_on(setup.look(setup::PATIENCE))) {
        Ok(found) => Some(found),
        Err(error) if error.may_pass() => {
            let problem = error.to_string();
            tracing::warn!(pool = pool.name, problem, "Kafka is waited for");
            None
        }
        Err(error) => return Err(error),
    };
    Ok(move || {
        let _heart = heart;
        runtime.block_on(event_loop::run(setup, found, link));
    })
}
