//! The command line's access to RabbitMQ from outside. The commands block; the connection lives on a thread
//! of its own, where a [`CommandConnection`] carries out requests, so that heartbeats continue while a
//! command waits for its input. This module does not communicate with the broker.

mod browse;
mod connection;
mod dead;
mod dead_letter_index;
mod list;
mod reader;
mod replies;
mod rotation;

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
use connection::CommandConnection;
use dead::Steps;
use ganger_config::model::{PoolConfig, RabbitMqSource};
use ganger_queue::client::{
    DeadChange, DeadFilter, Depth, Each, Listed, Pace, Page, Partial, Reply, RetryTarget,
    SourceWarning, Step,
};
use ganger_queue::delivery::Outgoing;
use ganger_queue::fault::SourceFault;

/// A request to the connection.
type Request = Box<dyn FnOnce(&mut CommandConnection) -> RequestFuture<'_> + Send>;
type RequestFuture<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// A connection of an operator or a producer. Dropping it closes it in an orderly way.
pub(crate) struct RabbitMqClient {
    requests: Option<mpsc::Sender<Request>>,
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
        let (requests, incoming) = mpsc::channel(1);
        let (sender, receiver) = sync_channel(1);
        let (config, pools) = (config.clone(), pools.to_vec());
        let thread = thread::Builder::new()
            .name("rabbitmq-client".to_owned())
            .spawn(move || work(config, pools, &sender, incoming))
            .map_err(|error| RabbitMqError::System {
                why: error.to_string(),
            })?;
        let client = Self {
            requests: Some(requests),
            thread: Some(thread),
        };
        receiver.recv().unwrap_or_else(|_| Err(thread_ended()))?;
        Ok(client)
    }

    /// Runs a request over the connection, and waits for its result.
    fn ask<T: Send + 'static>(
        &mut self,
        work: impl for<'a> AsyncFnOnce(&'a mut CommandConnection) -> T + Send + 'static,
    ) -> Result<T, RabbitMqError> {
        let receiver = self.submit(work)?;
        receiver.recv().map_err(|_| thread_ended())
    }

    /// Submits a request to the connection. Its result comes later.
    fn submit<T: Send + 'static>(
        &mut self,
        work: impl for<'a> AsyncFnOnce(&'a mut CommandConnection) -> T + Send + 'static,
    ) -> Result<Receiver<T>, RabbitMqError> {
        let (sender, receiver) = sync_channel(1);
        let request: Request = Box::new(move |connection| {
            Box::pin(async move {
                // The caller is waiting.
                drop(sender.send(work(connection).await));
            })
        });
        let requests = self.requests.as_ref().ok_or_else(thread_ended)?;
        requests
            .blocking_send(request)
            .map_err(|_| thread_ended())?;
        Ok(receiver)
    }
}

impl Drop for RabbitMqClient {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            // If it panicked, the connection is lost as well.
            drop(thread.join());
        }
    }
}

/// Error for the connection's thread, which can only have panicked.
fn thread_ended() -> RabbitMqError {
    RabbitMqError::System {
        why: "the connection's thread has ended".to_owned(),
    }
}

/// Runs the connection's thread, from the connect to the last request.
fn work(
    config: RabbitMqSource,
    pools: Vec<Arc<PoolConfig>>,
    sender: &SyncSender<Result<(), RabbitMqError>>,
    mut requests: mpsc::Receiver<Request>,
) {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            let why = error.to_string();
            drop(sender.send(Err(RabbitMqError::System { why })));
            return;
        }
    };
    runtime.block_on(async {
        let (mut connection, opened) = match CommandConnection::open(config, pools).await {
            Ok(connection) => (Some(connection), Ok(())),
            Err(error) => (None, Err(error)),
        };
        drop(sender.send(opened));
        while let Some(connection) = &mut connection
            && let Some(request) = requests.recv().await
        {
            request(connection).await;
        }
        if let Some(connection) = connection {
            connection.close().await;
        }
    });
}

impl ganger_queue::client::QueueClient for RabbitMqClient {
    fn check(&mut self) -> Result<Vec<String>, SourceFault> {
        let problems = self.ask(async |connection| connection.check().await)??;
        Ok(problems)
    }

    fn warnings(&mut self) -> Result<Vec<SourceWarning>, SourceFault> {
        let warnings = self.ask(async |connection| connection.warnings().await)??;
        Ok(warnings)
    }

    fn send(&mut self, messages: &[Outgoing]) -> Result<(), Partial> {
        let messages = messages.to_vec();
        self.ask(async move |connection| connection.send(&messages).await)?
    }

    fn depth(&mut self, queue: &str) -> Result<Depth, SourceFault> {
        let queue = queue.to_owned();
        let depth = self.ask(async move |connection| connection.depth(&queue).await)??;
        Ok(depth)
    }

    fn reply_to(&mut self, _unique: &str) -> Result<String, SourceFault> {
        let name = self.ask(async |connection| connection.reply_to().await)??;
        Ok(name)
    }

    fn take_reply(
        &mut self,
        _queue: &str,
        correlation_id: &str,
    ) -> Result<Option<Reply>, SourceFault> {
        let id = correlation_id.to_owned();
        let reply = self.ask(async move |connection| connection.take_reply(&id))??;
        Ok(reply)
    }

    fn wait_for_change(&mut self, timeout: Duration) {
        // A problem is reported when the reply is queried.
        drop(self.ask(async move |connection| connection.wait_for_reply(timeout).await));
    }

    fn dead_list(&mut self, page: &Page, each: &mut Each<'_>) -> Result<Listed, SourceFault> {
        let page = page.clone();
        let (to, mut letters) = mpsc::channel(1);
        let receiver =
            self.submit(async move |connection| connection.dead_list(&page, to).await)?;
        while let Some(some) = letters.blocking_recv() {
            if some.into_iter().try_for_each(&mut *each).is_break() {
                break;
            }
        }
        // The request continues in any case: a pass that has begun to rotate the queue must finish.
        drop(letters);
        Ok(receiver.recv().map_err(|_| thread_ended())??)
    }

    fn dead_retry(&mut self, filter: &DeadFilter, target: &RetryTarget) -> Result<usize, Partial> {
        let (filter, target) = (filter.clone(), target.clone());
        self.ask(async move |connection| connection.dead_retry(&filter, &target).await)?
    }

    fn dead_drop(&mut self, filter: &DeadFilter) -> Result<usize, Partial> {
        let filter = filter.clone();
        self.ask(async move |connection| connection.dead_drop(&filter).await)?
    }

    fn dead_change(
        &mut self,
        filter: &DeadFilter,
        change: DeadChange,
        pace: &mut Pace<'_>,
    ) -> Result<(), Partial> {
        let most = pace(Step::default());
        let (results, mut steps) = mpsc::channel(1);
        let (allow, allowed) = mpsc::channel(1);
        let paced = Steps {
            most,
            results,
            allowed,
            told: Step::default(),
        };
        let filter = filter.clone();
        let receiver = self
            .submit(async move |connection| connection.dead_change(&filter, change, paced).await)?;
        while let Some(step) = steps.blocking_recv() {
            // If the request has failed meanwhile, its result says so.
            allow.blocking_send(pace(step)).unwrap_or_default();
        }
        receiver.recv().map_err(|_| thread_ended())?
    }
}
