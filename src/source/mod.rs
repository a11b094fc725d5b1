//! Where messages come from. A source is one task that holds the connection to a broker and talks to its
//! pool through a [`SourceEnd`], on a thread of its own or, where it never blocks, on its pool's. This file
//! knows which kinds there are; what a kind does is its own room's business, and no kind sees another.

mod error;
#[cfg(feature = "sqlite")]
mod idempotency;
#[cfg(feature = "kafka")]
mod kafka;
mod link;
#[cfg(feature = "rabbitmq")]
mod rabbitmq;
#[cfg(feature = "sqlite")]
mod table;
mod thread;

#[cfg(feature = "sqlite")]
use std::panic;
use std::sync::Arc;

use tokio::sync::watch;

use crate::broker::Fault;
#[cfg(feature = "sqlite")]
use crate::config::model::Idempotency;
use crate::config::model::{PoolConfig, SourceConfig};
use crate::delivery::SourceEnd;
use link::Link;
#[cfg(feature = "rabbitmq")]
use thread::opened_beside_its_pool;
#[cfg(any(feature = "kafka", feature = "sqlite"))]
use thread::opened_on_a_thread;

pub use error::SourceError;
pub use link::Shared;
pub use thread::{Opening, Running, SharedThread, ThreadBody};

/// Begins to open the source of a pool, which reads its queue through the connection `source` called
/// `name`. Several can be on their way at once; nothing of it is done on the caller's thread, which
/// a slow disk or a silent broker would hold up.
///
/// # Errors
/// If there is no thread to be had.
pub fn open(
    name: &str,
    source: &SourceConfig,
    policy: watch::Receiver<Arc<PoolConfig>>,
    end: SourceEnd,
    shared: &Shared,
) -> Result<Opening, SourceError> {
    let idempotency = policy.borrow().idempotency.clone();
    match idempotency {
        None => open_alone(name, source, policy, end, shared),
        #[cfg(feature = "sqlite")]
        Some(idempotency) => {
            let pool = Arc::clone(&policy.borrow());
            let (inner, ends) = idempotency::between(end);
            let source = open_alone(name, source, policy, inner, shared)?;
            open_beside(source, idempotency, pool, ends)
        }
        #[cfg(not(feature = "sqlite"))]
        Some(idempotency) => Err(Fault::LeftOut("sqlite").of(&idempotency.store).into()),
    }
}

/// Begins to open what stands between a source and its pool, where repetitions are not to be worked
/// on. It ends with the source, or as that does.
#[cfg(feature = "sqlite")]
fn open_beside(
    mut source: Opening,
    idempotency: Idempotency,
    pool: Arc<PoolConfig>,
    ends: idempotency::Ends,
) -> Result<Opening, SourceError> {
    let name = pool.name.clone();
    opened_on_a_thread("finished", &name, move || {
        let store = idempotency.store.clone();
        let opened = idempotency::open(idempotency, &pool, ends);
        let opened = opened.map_err(|fault| fault.of(&store))?;
        opened.wait(source.opened())?;
        let mut source = source.running();
        Ok(move || {
            if let Err(SourceError::Panicked { what, .. }) = opened.run(source.ended()) {
                panic::resume_unwind(Box::new(what));
            }
        })
    })
}

fn open_alone(
    name: &str,
    source: &SourceConfig,
    policy: watch::Receiver<Arc<PoolConfig>>,
    end: SourceEnd,
    shared: &Shared,
) -> Result<Opening, SourceError> {
    let pool = policy.borrow().name.clone();
    let name = name.to_owned();
    let link = Link {
        end,
        policy,
        exclusive: shared.exclusive.clone(),
        share: shared.budget.share(&pool),
    };
    match source {
        #[cfg(feature = "sqlite")]
        SourceConfig::Table(config) => {
            let (config, stores) = (config.clone(), shared.stores.clone());
            let reader = shared.unread.reader(&name, &link.policy.borrow().queue);
            opened_on_a_thread("source", &pool, move || {
                table::open(&config, link, &stores, reader).map_err(|fault| fault.of(&name).into())
            })
        }
        #[cfg(feature = "rabbitmq")]
        SourceConfig::RabbitMq(config) => {
            let config = config.clone();
            opened_beside_its_pool(&pool, move |event_loop| {
                let source = rabbitmq::open(&config, link, event_loop);
                source.map_err(|error| Fault::from(error).of(&name).into())
            })
        }
        #[cfg(feature = "kafka")]
        SourceConfig::Kafka(config) => {
            let config = config.clone();
            opened_on_a_thread("source", &pool, move || {
                kafka::open(&config, link).map_err(|error| Fault::from(error).of(&name).into())
            })
        }
        #[cfg(not(all(feature = "kafka", feature = "rabbitmq", feature = "sqlite")))]
        left_out => Err(Fault::left_out(left_out).of(&name).into()),
    }
}
