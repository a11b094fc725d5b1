//! The source of a pool that reads from Kafka: one consumer for the pool, however many workers it
//! has. `event_loop` waits, and does one thing after the other; what it does is in the files beside it:
//! `intake` takes messages in and hands them out, `settle` carries out outcomes, `rebalance` follows
//! the group's decisions, `start_offsets` knows where partitions are read from, `commits` writes down
//! how far they are. What they decide is pure: `ordering` (what may go out next), `watermark` and
//! `commit_metadata` (how far a partition is done).

mod blocking_calls;
mod burial;
mod commits;
mod deadlines;
mod event_loop;
mod health;
mod incoming;
mod intake;
mod ordering;
mod partition;
mod partitions;
mod progress;
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

use super::link::Link;
use crate::broker::kafka::error::KafkaError;
use crate::broker::kafka::setup::{self, Setup};
use crate::config::model::KafkaSource;

/// Opens the source; what is returned runs it to its end on this thread.
///
/// # Errors
/// If the properties are no good, the broker refuses us, or a topic is missing or unfit. A broker
/// that can't be reached is no error: it is waited for.
pub(super) fn open(config: &KafkaSource, link: Link) -> Result<impl FnOnce() + use<>, KafkaError> {
    let runtime = setup::event_loop()?;
    let pool = Arc::clone(&link.policy.borrow());
    let mut setup = Setup::new(config, &pool)?;
    let found = match runtime.block_on(setup.look(setup::PATIENCE)) {
        Ok(found) => Some(found),
        Err(error) if error.may_pass() => {
            let problem = error.to_string();
            tracing::warn!(pool = pool.name, problem, "Kafka is waited for");
            None
        }
        Err(error) => return Err(error),
    };
    Ok(move || runtime.block_on(event_loop::run(setup, found, link)))
}
