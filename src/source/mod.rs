//! Where messages come from. A source is one task on a thread of its own that holds the connection
//! to a broker and talks to its pool through a [`SourceEnd`]. This file knows which kinds there
//! are; what a kind does is its own room's business, and no kind sees another.

#[cfg(feature = "sqlite")]
mod idempotency;
#[cfg(feature = "kafka")]
mod kafka;
mod link;
#[cfg(feature = "rabbitmq")]
mod rabbitmq;
#[cfg(feature = "sqlite")]
mod table;

use std::any::Any;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::{io, thread};

use tokio::sync::{oneshot, watch};

use crate::broker::{Fault, UnusableSource};
#[cfg(feature = "sqlite")]
use crate::config::model::Idempotency;
use crate::config::model::{PoolConfig, SourceConfig};
use crate::delivery::SourceEnd;
use link::Link;

/// A build without optimisation keeps the states of all futures within each other on the stack, which is
/// more than the usual 2 MiB hold with some to spare. What is not used costs no memory.
const STACK_BYTES: usize = 8 << 20;
pub use link::Shared;

/// Why a source could not be opened, or ended otherwise than by being told to.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// What is at the other end can't be used.
    #[error(transparent)]
    Unusable(#[from] UnusableSource),
    /// The operating system gave no thread.
    #[error("the thread for the source of pool `{pool}` could not be started: {error}")]
    Thread {
        /// The pool's name.
        pool: String,
        /// The system's word.
        error: io::Error,
    },
    /// A bug: the task died. Its claims are given back when the process ends.
    #[error("the source of pool `{pool}` panicked: {what}")]
    Panicked {
        /// The pool's name.
        pool: String,
        /// The panic's message.
        what: String,
    },
}

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
            let (config, owners) = (config.clone(), shared.owners.clone());
            opened_on_a_thread("source", &pool, move || {
                table::open(&config, link, &owners).map_err(|fault| fault.of(&name).into())
            })
        }
        #[cfg(feature = "rabbitmq")]
        SourceConfig::RabbitMq(config) => {
            let config = config.clone();
            opened_on_a_thread("source", &pool, move || {
                rabbitmq::open(&config, link).map_err(|error| Fault::from(error).of(&name).into())
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

/// A source that is being opened.
#[derive(Debug)]
pub struct Opening {
    running: Running,
    opened: oneshot::Receiver<Result<(), SourceError>>,
}

impl Opening {
    /// Waits until the connection is opened, and what the source needs there is checked or made, so
    /// that what is wrong refuses the start. A broker that can't be reached is waited for later
    /// instead. From then on the source mends itself: whatever fails is reported in its state and
    /// tried again. It ends when its intake is closed and all it handed out is settled. Loses
    /// nothing when it is dropped before it has resolved.
    ///
    /// # Errors
    /// If the connection can't be opened or used.
    pub async fn opened(&mut self) -> Result<(), SourceError> {
        match (&mut self.opened).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(error),
            // It can only have panicked.
            Err(_) => Err(self.running.panicked().await),
        }
    }

    /// The source, once it is open.
    pub fn running(self) -> Running {
        self.running
    }
}

fn on_a_thread(
    what: &str,
    pool: &str,
    work: impl FnOnce() + Send + 'static,
) -> Result<Running, SourceError> {
    let (tell, told) = oneshot::channel();
    let body = move || {
        let end = panic::catch_unwind(AssertUnwindSafe(work));
        // Nobody listening is no trouble: the end was not awaited.
        drop(tell.send(end.map_err(panic_text)));
    };
    thread::Builder::new()
        .name(format!("{what}-{pool}"))
        .stack_size(STACK_BYTES)
        .spawn(body)
        .map_err(|error| SourceError::Thread {
            pool: pool.to_owned(),
            error,
        })?;
    Ok(Running {
        pool: pool.to_owned(),
        told,
        end: None,
    })
}

/// Opens and works on the same thread, which a connection may be bound to.
fn opened_on_a_thread<W: FnOnce()>(
    what: &str,
    pool: &str,
    open: impl FnOnce() -> Result<W, SourceError> + Send + 'static,
) -> Result<Opening, SourceError> {
    let (tell, opened) = oneshot::channel();
    let running = on_a_thread(what, pool, move || {
        let (opened, work) = match open() {
            Ok(work) => (Ok(()), Some(work)),
            Err(error) => (Err(error), None),
        };
        if tell.send(opened).is_ok()
            && let Some(work) = work
        {
            work();
        }
    })?;
    Ok(Opening { running, opened })
}

fn panic_text(payload: Box<dyn Any + Send>) -> String {
    match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => payload
            .downcast_ref::<&str>()
            .map_or_else(|| "no message".to_owned(), ToString::to_string),
    }
}

/// A source at work.
#[derive(Debug)]
pub struct Running {
    pool: String,
    told: oneshot::Receiver<Result<(), String>>,
    end: Option<Result<(), String>>,
}

impl Running {
    /// Waits until the source has ended, with its connection closed. Dropping the future loses
    /// nothing, and asking again gives the same answer.
    ///
    /// # Errors
    /// If it ended by a panic: never taken for a clean end.
    pub async fn ended(&mut self) -> Result<(), SourceError> {
        if self.end.is_none() {
            let told = (&mut self.told).await;
            self.end = Some(told.unwrap_or_else(|_| Err("its thread is gone".to_owned())));
        }
        match &self.end {
            Some(Err(what)) => Err(self.panic(what.clone())),
            Some(Ok(())) | None => Ok(()),
        }
    }

    async fn panicked(&mut self) -> SourceError {
        let ended = self.ended().await;
        ended
            .err()
            .unwrap_or_else(|| self.panic("no message".to_owned()))
    }

    fn panic(&self, what: String) -> SourceError {
        SourceError::Panicked {
            pool: self.pool.clone(),
            what,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_never_a_clean_end() {
        let mut running = on_a_thread("source", "p", || panic!("the sky fell")).unwrap();
        for _ in 0..2 {
            let error = running.ended().await.unwrap_err().to_string();
            assert_eq!(error, "the source of pool `p` panicked: the sky fell");
        }
    }

    #[tokio::test]
    async fn a_clean_end_is_told_as_often_as_asked() {
        let mut running = on_a_thread("source", "p", || ()).unwrap();
        running.ended().await.unwrap();
        running.ended().await.unwrap();
    }
}
