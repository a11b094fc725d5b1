//! Commands on a server: one client over the SQL of a database. It owns no claims.

use std::fmt::{Debug, Display};
use std::io;
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::{Builder, Runtime};
use tokio::time::sleep;

use super::outage::Outage;
use super::selection::Selection;
use crate::dead_letters::{BATCH_MAX, list};
use crate::rules::{BYTES_PER_TURN_MAX, fitting_together};
use crate::server::dialect::StatementError;
use ganger_config::model::Subscription;
use ganger_queue::client::{
    DeadFilter, Depth, Each, Listed, Page, Partial, QueueClient, Reply, RetryTarget, Subscribed,
    WaitingList, WaitingMessage,
};
use ganger_queue::dead_letter::DeadLetter;
use ganger_queue::delivery::{IfUnsubscribed, Outgoing, Post, Unique};
use ganger_queue::fault::SourceFault;

/// Number of times that a request is retried at once after a conflict with others.
const TRIES: u32 = 10;

/// A connection for commands, with the SQL of its database. A change to several rows changes all or
/// none.
pub(crate) trait Commands: Debug + Send + Sized {
    type Target: Debug + Send;
    type Refusal: Display + Into<SourceFault>;
    type Error: StatementError;

    /// Connects, whether or not the tables exist.
    async fn connect(target: &Self::Target) -> Result<Self, Self::Refusal>;

    fn is_closed(&self) -> bool;

    /// Creates the missing tables, if the configuration allows it.
    async fn prepare(&mut self, target: &Self::Target) -> Result<(), Self::Refusal>;

    /// Creates the tables that topics need in addition.
    async fn prepare_topics(&mut self, _target: &Self::Target) -> Result<(), Self::Refusal> {
        Ok(())
    }

    /// Returns the problem with the server or its tables, if there is one. Creates nothing.
    async fn problem(&mut self, target: &Self::Target) -> Result<Option<String>, Self::Refusal>;

    /// Returns whether all tables exist in their current form.
    async fn is_made(&mut self, target: &Self::Target) -> Result<bool, Self::Refusal>;

    fn no_runtime(error: &io::Error) -> Self::Refusal;

    fn refusal(doing: &'static str, error: Self::Error) -> Self::Refusal;

    fn is_transient(refusal: &Self::Refusal) -> bool;

    async fn begin(&mut self) -> Result<(), Self::Error>;

    async fn commit(&mut self) -> Result<(), Self::Error>;

    async fn roll_back(&mut self) -> Result<(), Self::Error>;

    /// Inserts messages in the open transaction: no more than fit into one turn.
    async fn publish(&mut self, messages: &[&Outgoing]) -> Result<(), Self::Error>;

    /// Inserts a message for a topic in the open transaction.
    async fn publish_to_topic(
        &mut self,
        message: &Outgoing,
        unsubscribed: IfUnsubscribed,
    ) -> Result<(), Self::Error>;

    /// Inserts a message with a unique key in the open transaction. Returns the row that already holds
    /// the key.
    async fn publish_unique(
        &mut self,
        message: &Outgoing,
        unique: &Unique,
    ) -> Result<Option<i64>, Self::Error>;

    /// Subscribes queues to topics in the open transaction. Returns the pairs that are new.
    async fn subscribe(
        &mut self,
        wanted: &[Subscription],
    ) -> Result<Vec<(String, String)>, Self::Error>;

    async fn subscriptions(&mut self) -> Result<Vec<Subscribed>, Self::Error>;

    /// Ends a subscription. Returns whether it existed.
    async fn unsubscribe(&mut self, topic: &str, queue: &str) -> Result<bool, Self::Error>;

    async fn depth(&mut self, queue: &str) -> Result<Depth, Self::Error>;

    /// Returns the first rows of the queue without a claim, up to `most`, and the beginning of each body.
    async fn waiting_list(
        &mut self,
        queue: &str,
        most: usize,
    ) -> Result<Vec<WaitingMessage>, Self::Error>;

    /// Moves some waiting messages with that id to the dead letters, in the open transaction. Returns
    /// their number.
    async fn cancel(&mut self, pool: &str, queue: &str, id: &str) -> Result<usize, Self::Error>;

    async fn is_paused(&mut self, queue: &str) -> Result<bool, Self::Error>;

    async fn unpause(&mut self, queue: &str) -> Result<(), Self::Error>;

    /// Returns the number of daemons that have owners in the table.
    async fn daemons(&mut self) -> Result<u64, Self::Error>;

    /// Takes the first reply to a message, if one has arrived.
    async fn take_reply(
        &mut self,
        queue: &str,
        correlation_id: &str,
    ) -> Result<Option<Reply>, Self::Error>;

    /// Waits until a reply may have arrived, for at most `longest`.
    async fn wait(&mut self, longest: Duration);

    /// Reads at most `most` dead letters behind the row `after`, and no more of them than memory has
    /// room for.
    async fn dead_letters(
        &mut self,
        selection: &Selection<'_>,
        after: i64,
        most: usize,
    ) -> Result<Vec<(i64, DeadLetter)>, Self::Error>;

    /// Sends dead letters back in the open transaction, optionally with another body: first those
    /// without a key, then those with one, each of which takes its key or stays. Returns the number
    /// sent.
    async fn send_back(
        &mut self,
        selection: &Selection<'_>,
        body: Option<&Bytes>,
    ) -> Result<usize, Self::Error>;

    /// Returns the number of dead letters that can't go back because another message holds their key.
    async fn held(&mut self, selection: &Selection<'_>) -> Result<usize, Self::Error>;

    /// Deletes dead letters. Returns their number.
    async fn drop_dead_letters(&mut self, selection: &Selection<'_>) -> Result<usize, Self::Error>;
}

/// A client for commands.
#[derive(Debug)]
pub(crate) struct ServerClient<C: Commands> {
    runtime: Runtime,
    target: C::Target,
    connection: C,
    /// True once the tables have been found or created.
    prepared: bool,
    outage: Outage,
}

impl<C: Commands> ServerClient<C> {
    /// Connects. Tables are created by the first request that needs them.
    pub(crate) fn open(target: C::Target) -> Result<Self, C::Refusal> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| C::no_runtime(&error))?;
        let connection = runtime.block_on(C::connect(&target))?;
        Ok(Self {
            runtime,
            target,
            connection,
            prepared: false,
            outage: Outage::default(),
        })
    }

    /// Reconnects if the connection was lost, and prepares the tables.
    fn ensure_prepared(&mut self) -> Result<(), C::Refusal> {
        if self.connection.is_closed() {
            self.connection = self.runtime.block_on(C::connect(&self.target))?;
        }
        if !self.prepared {
            let preparing = self.connection.prepare(&self.target);
            self.runtime.block_on(preparing)?;
            self.prepared = true;
        }
        Ok(())
    }

    fn ask<T>(
        &mut self,
        doing: &'static str,
        question: impl AsyncFn(&mut C) -> Result<T, C::Error>,
    ) -> Result<T, SourceFault> {
        self.try_to_ask(doing, question).map_err(Into::into)
    }

    /// Sends a request. It is retried after a conflict, such as a deadlock of two senders with the same
    /// keys.
    fn try_to_ask<T>(
        &mut self,
        doing: &'static str,
        question: impl AsyncFn(&mut C) -> Result<T, C::Error>,
    ) -> Result<T, C::Refusal> {
        self.ensure_prepared()?;
        let connection = &mut self.connection;
        let answer = self.runtime.block_on(async {
            let mut tries = TRIES;
            loop {
                match question(connection).await {
                    Err(error) if tries > 0 && error.is_conflict() => tries -= 1,
                    answer => return answer,
                }
            }
        });
        answer.map_err(|error| C::refusal(doing, error))
    }

    /// Runs a request in a transaction.
    fn ask_for_all<T>(
        &mut self,
        doing: &'static str,
        question: impl AsyncFn(&mut C) -> Result<T, C::Error>,
    ) -> Result<T, SourceFault> {
        self.ask(doing, async |connection| {
            connection.begin().await?;
            match question(connection).await {
                Ok(done) => connection.commit().await.map(|()| done),
                Err(error) => {
                    // If that fails, too, the connection is lost, and the transaction with it.
                    drop(connection.roll_back().await);
                    Err(error)
                }
            }
        })
    }

    fn prepare_topics(&mut self) -> Result<(), SourceFault> {
        self.ensure_prepared().map_err(Into::into)?;
        let preparing = self.connection.prepare_topics(&self.target);
        self.runtime.block_on(preparing).map_err(Into::into)
    }
}

/// Publishes messages, in one turn no more than the server accepts.
async fn publish_all<C: Commands>(
    connection: &mut C,
    messages: &[&Outgoing],
) -> Result<(), C::Error> {
    let mut left = messages;
    while !left.is_empty() {
        let bytes = left.iter().take(BATCH_MAX).map(|message| message.bytes());
        let (some, rest) = left.split_at(fitting_together(bytes, BYTES_PER_TURN_MAX));
        connection.publish(some).await?;
        left = rest;
    }
    Ok(())
}

/// Publishes messages; consecutive ones without topic and key together. Returns for each the row that
/// already holds its key, if there is one.
async fn post_all<C: Commands>(
    connection: &mut C,
    posts: &[Post],
) -> Result<Vec<Option<i64>>, C::Error> {
    let mut there = Vec::with_capacity(posts.len());
    let plain = |post: &Post| post.unique.is_none() && post.topic.is_none();
    for some in posts.chunk_by(|a, b| plain(a) && plain(b)) {
        let mut kept = None;
        match some {
            [
                Post {
                    message,
                    topic: Some(unsubscribed),
                    ..
                },
            ] => connection.publish_to_topic(message, *unsubscribed).await?,
            [
                Post {
                    message,
                    unique: Some(unique),
                    topic: None,
                },
            ] => kept = connection.publish_unique(message, unique).await?,
            some => {
                let messages: Vec<&Outgoing> = some.iter().map(|post| &post.message).collect();
                publish_all(connection, &messages).await?;
            }
        }
        there.resize(there.len() + some.len(), kept);
    }
    Ok(there)
}

impl<C: Commands> QueueClient for ServerClient<C> {
    fn check(&mut self) -> Result<Vec<String>, SourceFault> {
        let problem = self.connection.problem(&self.target);
        let problem = self.runtime.block_on(problem).map_err(Into::into)?;
        Ok(problem.into_iter().collect())
    }

    fn send(&mut self, messages: &[Outgoing]) -> Result<(), Partial> {
        let messages: Vec<&Outgoing> = messages.iter().collect();
        let sent = self.ask_for_all("sending", async |connection| {
            publish_all(connection, &messages).await
        });
        Ok(sent?)
    }

    fn post(&mut self, posts: &[Post]) -> Result<Vec<Option<i64>>, Partial> {
        if posts.iter().any(|post| post.topic.is_some()) {
            self.prepare_topics()?;
        }
        let posted = self.ask_for_all("sending", async |connection| {
            post_all(connection, posts).await
        });
        Ok(posted?)
    }

    fn subscribe(&mut self, wanted: &[Subscription]) -> Result<Vec<Subscription>, SourceFault> {
        self.prepare_topics()?;
        let added = self.ask_for_all("subscribing", async |connection| {
            connection.subscribe(wanted).await
        });
        let added = added?;
        let is_new = |one: &&Subscription| {
            let mut added = added.iter();
            added.any(|(topic, queue)| *topic == one.topic && *queue == one.queue)
        };
        Ok(wanted.iter().filter(is_new).cloned().collect())
    }

    fn subscriptions(&mut self) -> Result<Vec<Subscribed>, SourceFault> {
        self.ask("reading the subscriptions", async |connection| {
            connection.subscriptions().await
        })
    }

    fn look_for_subscriptions(&mut self) -> Result<Option<Vec<Subscribed>>, SourceFault> {
        let made = self.connection.is_made(&self.target);
        match self.runtime.block_on(made).map_err(Into::into)? {
            true => self.subscriptions().map(Some),
            false => Ok(None),
        }
    }

    fn unsubscribe(&mut self, topic: &str, queue: &str) -> Result<bool, SourceFault> {
        self.ask("ending the subscription", async |connection| {
            connection.unsubscribe(topic, queue).await
        })
    }

    fn depth(&mut self, queue: &str) -> Result<Depth, SourceFault> {
        self.ask("counting", async |connection| connection.depth(queue).await)
    }

    fn waiting_list(&mut self, queue: &str, limit: usize) -> Result<WaitingList, SourceFault> {
        let list = self.ask("listing the waiting messages", async |connection| {
            connection.waiting_list(queue, limit + 1).await
        });
        Ok(WaitingList::of(list?, limit))
    }

    fn cancel_waiting(&mut self, pool: &str, queue: &str, id: &str) -> Result<usize, SourceFault> {
        let mut cancelled = 0;
        loop {
            let some = self.ask_for_all("cancelling", async |connection| {
                connection.cancel(pool, queue, id).await
            });
            match some? {
                0 => return Ok(cancelled),
                some => cancelled += some,
            }
        }
    }

    fn is_paused(&mut self, queue: &str) -> Result<bool, SourceFault> {
        self.ask("looking for a pause", async |connection| {
            connection.is_paused(queue).await
        })
    }

    fn unpause(&mut self, queue: &str) -> Result<(), SourceFault> {
        self.ask("ending the pause", async |connection| {
            connection.unpause(queue).await
        })
    }

    fn daemons(&mut self) -> Result<Option<u64>, SourceFault> {
        let count = self.ask("counting the daemons", async |connection| {
            connection.daemons().await
        });
        count.map(Some)
    }

    fn reply_to(&mut self, unique: &str) -> Result<String, SourceFault> {
        Ok(format!("ganger.reply.{unique}"))
    }

    fn take_reply(
        &mut self,
        queue: &str,
        correlation_id: &str,
    ) -> Result<Option<Reply>, SourceFault> {
        let taken = self.try_to_ask("taking the reply", async |connection| {
            connection.take_reply(queue, correlation_id).await
        });
        self.outage
            .tolerate(taken, C::is_transient)
            .map_err(Into::into)
    }

    fn wait_for_change(&mut self, longest: Duration) {
        let (runtime, connection) = (&self.runtime, &mut self.connection);
        match self.outage.pause() {
            Some(pause) => runtime.block_on(async { sleep(longest.min(pause)).await }),
            None => runtime.block_on(connection.wait(longest)),
        }
    }

    fn dead_list(&mut self, page: &Page, each: &mut Each<'_>) -> Result<Listed, SourceFault> {
        let selection = Selection::of(&page.filter);
        list(page, each, |after, most| {
            self.ask("reading the dead letters", async |connection| {
                connection.dead_letters(&selection, after, most).await
            })
        })
    }

    fn dead_retry(&mut self, filter: &DeadFilter, way: &RetryTarget) -> Result<usize, Partial> {
        let body = way.body_for_a_table()?;
        let selection = Selection::of(filter);
        let moved = self.ask_for_all("sending the dead letters back", async |connection| {
            connection.send_back(&selection, body).await
        });
        Ok(moved?)
    }

    fn dead_held(&mut self, filter: &DeadFilter) -> Result<usize, SourceFault> {
        let selection = Selection::of(filter);
        self.ask("counting the dead letters", async |connection| {
            connection.held(&selection).await
        })
    }

    fn dead_drop(&mut self, filter: &DeadFilter) -> Result<usize, Partial> {
        let selection = Selection::of(filter);
        let dropped = self.ask("dropping the dead letters", async |connection| {
            connection.drop_dead_letters(&selection).await
        });
        Ok(dropped?)
    }
}
