//! Commands on a server: one client over the SQL of a database. Nothing here is an owner of claims.

use std::fmt::{Debug, Display};
use std::io;
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::{Builder, Runtime};
use tokio::time::sleep;

use super::away::Away;
use super::selection::Selection;
use crate::dead_letters::{SOME, list};
use crate::rules::{BYTES_PER_TURN_MAX, together};
use crate::server::dialect::StatementError;
use ganger_config::model::Subscription;
use ganger_queue::client::{
    DeadFilter, Depth, Each, Listed, Page, Partial, QueueClient, Reply, Subscribed, WayBack,
};
use ganger_queue::dead_letter::DeadLetter;
use ganger_queue::delivery::{IfUnsubscribed, Outgoing, Post, Unique};
use ganger_queue::fault::SourceFault;

/// Number of times that a question is asked again after others were in its way.
const TRIES: u32 = 10;

/// A connection for commands, with the SQL of its database. What changes several rows changes all or none.
pub(crate) trait Commands: Debug + Send + Sized {
    type Place: Debug + Send;
    type Refusal: Display + Into<SourceFault>;
    type Error: StatementError;

    /// Connects, whatever tables are there.
    async fn connect(place: &Self::Place) -> Result<Self, Self::Refusal>;

    fn is_closed(&self) -> bool;

    /// Creates the tables that are missing, if that is wanted.
    async fn prepare(&mut self, place: &Self::Place) -> Result<(), Self::Refusal>;

    /// Creates what topics need beyond that.
    async fn prepare_topics(&mut self, _place: &Self::Place) -> Result<(), Self::Refusal> {
        Ok(())
    }

    /// Returns what is wrong with the server or its tables. Creates nothing.
    async fn problem(&mut self, place: &Self::Place) -> Result<Option<String>, Self::Refusal>;

    /// Returns whether all tables are there and as they are to be.
    async fn is_made(&mut self, place: &Self::Place) -> Result<bool, Self::Refusal>;

    fn no_runtime(error: &io::Error) -> Self::Refusal;

    fn refusal(doing: &'static str, error: Self::Error) -> Self::Refusal;

    fn is_passing(refusal: &Self::Refusal) -> bool;

    async fn begin(&mut self) -> Result<(), Self::Error>;

    async fn commit(&mut self) -> Result<(), Self::Error>;

    async fn roll_back(&mut self) -> Result<(), Self::Error>;

    /// Inserts messages, no more than there is room for in one turn, in the transaction that is open.
    async fn publish(&mut self, messages: &[&Outgoing]) -> Result<(), Self::Error>;

    /// Inserts a message for a topic, in the transaction that is open.
    async fn publish_to_topic(
        &mut self,
        message: &Outgoing,
        unsubscribed: IfUnsubscribed,
    ) -> Result<(), Self::Error>;

    /// Inserts a message with a key, in the transaction that is open. Returns the row that has it already.
    async fn publish_unique(
        &mut self,
        message: &Outgoing,
        unique: &Unique,
    ) -> Result<Option<i64>, Self::Error>;

    /// Subscribes queues to topics, in the transaction that is open. Returns the pairs that were not yet.
    async fn subscribe(
        &mut self,
        wanted: &[Subscription],
    ) -> Result<Vec<(String, String)>, Self::Error>;

    async fn subscriptions(&mut self) -> Result<Vec<Subscribed>, Self::Error>;

    /// Returns whether the subscription was there.
    async fn unsubscribe(&mut self, topic: &str, queue: &str) -> Result<bool, Self::Error>;

    async fn depth(&mut self, queue: &str) -> Result<Depth, Self::Error>;

    /// Makes dead letters of some waiting messages with that id, in the transaction that is open. Returns their
    /// number.
    async fn cancel(&mut self, pool: &str, queue: &str, id: &str) -> Result<usize, Self::Error>;

    async fn is_paused(&mut self, queue: &str) -> Result<bool, Self::Error>;

    async fn unpause(&mut self, queue: &str) -> Result<(), Self::Error>;

    /// Returns the number of daemons among the owners.
    async fn daemons(&mut self) -> Result<u64, Self::Error>;

    /// Takes the first reply to a message, if one has come.
    async fn take_reply(
        &mut self,
        queue: &str,
        correlation_id: &str,
    ) -> Result<Option<Reply>, Self::Error>;

    /// Waits until a reply may have come, at most so long.
    async fn wait(&mut self, longest: Duration);

    /// Reads dead letters behind that row, at most so many, and no more of them than memory has room for.
    async fn dead_letters(
        &mut self,
        selection: &Selection<'_>,
        after: i64,
        most: usize,
    ) -> Result<Vec<(i64, DeadLetter)>, Self::Error>;

    /// Sends dead letters back in the transaction that is open, perhaps with another body: first those without a
    /// key, then those with one, each of which takes its key or stays. Returns how many went.
    async fn send_back(
        &mut self,
        selection: &Selection<'_>,
        body: Option<&Bytes>,
    ) -> Result<usize, Self::Error>;

    /// Returns how many can't go back because another message has their key.
    async fn held(&mut self, selection: &Selection<'_>) -> Result<usize, Self::Error>;

    /// Deletes dead letters. Returns their number.
    async fn drop_dead_letters(&mut self, selection: &Selection<'_>) -> Result<usize, Self::Error>;
}

/// A client for commands.
#[derive(Debug)]
pub(crate) struct ServerClient<C: Commands> {
    runtime: Runtime,
    place: C::Place,
    connection: C,
    /// True once the tables have been found or created.
    prepared: bool,
    away: Away,
}

impl<C: Commands> ServerClient<C> {
    /// Connects. Tables are made with the first question that needs them.
    pub(crate) fn open(place: C::Place) -> Result<Self, C::Refusal> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| C::no_runtime(&error))?;
        let connection = runtime.block_on(C::connect(&place))?;
        Ok(Self {
            runtime,
            place,
            connection,
            prepared: false,
            away: Away::default(),
        })
    }

    /// Connects again where the connection was lost, and sees to the tables.
    fn be_ready(&mut self) -> Result<(), C::Refusal> {
        if self.connection.is_closed() {
            self.connection = self.runtime.block_on(C::connect(&self.place))?;
        }
        if !self.prepared {
            let preparing = self.connection.prepare(&self.place);
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

    /// Asks a question; again where others were in its way, as two may be who send under the same keys.
    fn try_to_ask<T>(
        &mut self,
        doing: &'static str,
        question: impl AsyncFn(&mut C) -> Result<T, C::Error>,
    ) -> Result<T, C::Refusal> {
        self.be_ready()?;
        let connection = &mut self.connection;
        let answer = self.runtime.block_on(async {
            let mut tries = TRIES;
            loop {
                match question(connection).await {
                    Err(error) if tries > 0 && error.is_a_clash() => tries -= 1,
                    answer => return answer,
                }
            }
        });
        answer.map_err(|error| C::refusal(doing, error))
    }

    /// Asks a question in a transaction, of which all is done or nothing.
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
        self.be_ready().map_err(Into::into)?;
        let preparing = self.connection.prepare_topics(&self.place);
        self.runtime.block_on(preparing).map_err(Into::into)
    }
}

/// Publishes messages, no more in one turn than the server takes.
async fn publish_all<C: Commands>(
    connection: &mut C,
    messages: &[&Outgoing],
) -> Result<(), C::Error> {
    let mut left = messages;
    while !left.is_empty() {
        let bytes = left.iter().take(SOME).map(|message| message.bytes());
        let (some, rest) = left.split_at(together(bytes, BYTES_PER_TURN_MAX));
        connection.publish(some).await?;
        left = rest;
    }
    Ok(())
}

/// Publishes those that need neither topic nor key together, as far as they follow one another.
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
        let problem = self.connection.problem(&self.place);
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
        let made = self.connection.is_made(&self.place);
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
        self.away.tolerate(taken, C::is_passing).map_err(Into::into)
    }

    fn wait_for_change(&mut self, longest: Duration) {
        let (runtime, connection) = (&self.runtime, &mut self.connection);
        match self.away.pause() {
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

    fn dead_retry(&mut self, filter: &DeadFilter, way: &WayBack) -> Result<usize, Partial> {
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
