//! The source of a pool that reads from Kafka: one consumer for the pool, however many workers it
//! has. `task` waits, and does one thing after the other; what it does is in the files beside it:
//! `intake` takes messages in and hands them out, `settle` carries out outcomes, `group` follows
//! the group's decisions, `positions` knows where partitions are read from, `commits` writes down
//! how far they are. What they decide is pure: `lanes` (what may go out next), `watermark` and
//! `metadata` (how far a partition is done), `names`, `headers`, `record`.

mod asking;
mod begins;
mod burial;
mod commits;
mod consumer;
mod desk;
mod error;
mod fitness;
mod fork;
mod group;
mod headers;
mod health;
mod intake;
mod lag;
mod lanes;
mod line;
mod load;
mod metadata;
mod names;
mod partition;
mod parts;
mod positions;
mod producer;
mod record;
mod settings;
mod settle;
mod setup;
mod standstill;
mod strangers;
mod task;
mod throttle;
mod tiers;
mod topics;
mod vain;
mod watermark;
mod whence;

use std::sync::Arc;

use super::Link;
use crate::config::model::KafkaSource;
pub(super) use desk::Desk;
pub use error::KafkaError;
use setup::Setup;

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
    Ok(move || runtime.block_on(task::run(setup, found, link)))
}
