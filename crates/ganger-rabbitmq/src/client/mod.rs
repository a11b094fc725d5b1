//! The command line's access to RabbitMQ from outside. The commands block; the connection lives on
//! a thread of its own, where a [`Clerk`] carries out requests, so that heartbeats continue while a
//! command waits for its input. Nothing here speaks to the broker.

mod browse;
mod connection;
mod dead;
mod letter_index;
mod list;
mod reader;
mod replies;
mod round;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::sync::mpsc;

use crate::broker::error::RabbitMqError;
use connection::Clerk;
use ganger_config::model::{PoolConfig, RabbitMqSource};
use ganger_queue::client::{
    DeadFilter, Depth, Each, Listed, Page, Partial, Reply, RetryTarget, SourceWarning,
};
use ganger_queue::delivery::Outgoing;
use ganger_queue::fault::SourceFault;

/// A request to the clerk.
type Order = Box<dyn FnOnce(&mut Clerk) -> Doing<'_> + Send>;
type Doing<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// A connection of an operator or a producer. Dropping it closes it in order.
pub(crate) struct RabbitMqClient {
    orders: Option<mpsc::Sender<Order>>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for RabbitMqClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RabbitMqClient").finish_non_exhaustive()
    }
}

impl RabbitMqClient {
    /// Connects.
    pub(crate) fn open(
        config: &RabbitMqSource,
        pools: &[Arc<PoolConfig>],
    ) -> Result<Self, RabbitMqError> {
        let (orders, coming) = mpsc::channel(1);
        let (tell, told) = sync_channel(1);
        let (config, pools) = (config.clone(), pools.to_vec());
        let thread = thread::Builder::new()
            .name("rabbitmq-client".to_owned())
            .spawn(move || work(config, pools, &tell, coming))
            .map_err(|error| RabbitMqError::System {
                why: error.to_string(),
            })?;
        let client = Self {
            orders: Some(orders),
            thread: Some(thread),
        };
        told.recv().unwrap_or_else(|_| Err(gone()))?;
        Ok(client)
    }

    /// Has the clerk do something, and waits for the result.
    fn ask<T: Send + 'static>(
        &mut self,
        work: impl for<'a> AsyncFnOnce(&'a mut Clerk) -> T + Send + 'static,
    ) -> Result<T, RabbitMqError> {
        let told = self.order(work)?;
        told.recv().map_err(|_| gone())
    }

    /// Has the clerk do something. The result comes later.
    fn order<T: Send + 'static>(
        &mut self,
        work: impl for<'a> AsyncFnOnce(&'a mut Clerk) -> T + Send + 'static,
    ) -> Result<Receiver<T>, RabbitMqError> {
        let (tell, told) = sync_channel(1);
        let order: Order = Box::new(move |clerk| {
            Box::pin(async move {
                // Whoever asked is waiting.
                drop(tell.send(work(clerk).await));
            })
        });
        let orders = self.orders.as_ref().ok_or_else(gone)?;
        orders.blocking_send(order).map_err(|_| gone())?;
        Ok(told)
    }
}

impl Drop for RabbitMqClient {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            // If it panicked, the connection is gone all the same.
            drop(thread.join());
        }
    }
}

/// Error for the clerk's thread, which can only have panicked.
fn gone() -> RabbitMqError {
    RabbitMqError::System {
        why: "the thread of the connection is gone".to_owned(),
    }
}

/// Runs the clerk's thread, from its connection to the last request.
fn work(
    config: RabbitMqSource,
    pools: Vec<Arc<PoolConfig>>,
    tell: &SyncSender<Result<(), RabbitMqError>>,
    mut orders: mpsc::Receiver<Order>,
) {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            let why = error.to_string();
            drop(tell.send(Err(RabbitMqError::System { why })));
            return;
        }
    };
    runtime.block_on(async {
        let (mut clerk, opened) = match Clerk::open(config, pools).await {
            Ok(clerk) => (Some(clerk), Ok(())),
            Err(error) => (None, Err(error)),
        };
        drop(tell.send(opened));
        while let Some(clerk) = &mut clerk
            && let Some(order) = orders.recv().await
        {
            order(clerk).await;
        }
        if let Some(clerk) = clerk {
            clerk.close().await;
        }
    });
}

impl ganger_queue::client::QueueClient for RabbitMqClient {
    fn check(&mut self) -> Result<Vec<String>, SourceFault> {
        let problems = self.ask(async |clerk| clerk.check().await)??;
        Ok(problems)
    }

    fn warnings(&mut self) -> Result<Vec<SourceWarning>, SourceFault> {
        let warnings = self.ask(async |clerk| clerk.warnings().await)??;
        Ok(warnings)
    }

    fn send(&mut self, messages: &[Outgoing]) -> Result<(), Partial> {
        let messages = messages.to_vec();
        self.ask(async move |clerk| clerk.send(&messages).await)?
    }

    fn depth(&mut self, queue: &str) -> Result<Depth, SourceFault> {
        let queue = queue.to_owned();
        let depth = self.ask(async move |clerk| clerk.depth(&queue).await)??;
        Ok(depth)
    }

    fn reply_to(&mut self, _unique: &str) -> Result<String, SourceFault> {
        let name = self.ask(async |clerk| clerk.reply_to().await)??;
        Ok(name)
    }

    fn take_reply(
        &mut self,
        _queue: &str,
        correlation_id: &str,
    ) -> Result<Option<Reply>, SourceFault> {
        let id = correlation_id.to_owned();
        let reply = self.ask(async move |clerk| clerk.take_reply(&id))??;
        Ok(reply)
    }

    fn wait_for_change(&mut self, timeout: Duration) {
        // What is wrong is told when the reply is asked for.
        drop(self.ask(async move |clerk| clerk.wait_for_reply(timeout).await));
    }

    fn dead_list(&mut self, page: &Page, each: &mut Each<'_>) -> Result<Listed, SourceFault> {
        let page = page.clone();
        let (to, mut letters) = mpsc::channel(1);
        let told = self.order(async move |clerk| clerk.dead_list(&page, to).await)?;
        while let Some(some) = letters.blocking_recv() {
            if some.into_iter().try_for_each(&mut *each).is_break() {
                break;
            }
        }
        // The clerk goes on all the same: a pass that has begun to rotate the queue must finish.
        drop(letters);
        Ok(told.recv().map_err(|_| gone())??)
    }

    fn dead_retry(&mut self, filter: &DeadFilter, way: &RetryTarget) -> Result<usize, Partial> {
        let (filter, way) = (filter.clone(), way.clone());
        self.ask(async move |clerk| clerk.dead_retry(&filter, &way).await)?
    }

    fn dead_drop(&mut self, filter: &DeadFilter) -> Result<usize, Partial> {
        let filter = filter.clone();
        self.ask(async move |clerk| clerk.dead_drop(&filter).await)?
    }
}
