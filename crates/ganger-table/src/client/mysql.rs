//! The operator's and the producer's side of a database of MySQL or MariaDB: sending, counting, taking
//! replies, and the dead letters. Nothing here is an owner of claims.

mod dead;
mod waiting;

use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::sleep;

use super::away::Away;
use crate::mysql::MysqlError;
use crate::mysql::client::{Client, Dialect};
use crate::mysql::columns::{Sent, message, message_values};
use crate::mysql::error::{CallError, failed};
use crate::mysql::line::Place;
use crate::mysql::row::Row;
use crate::mysql::{claim, topics, unique};
use crate::rules::{BYTES_PER_TURN_MAX, together};
use crate::server::dialect::StatementError;
use dead::{SOME, Selection};
use ganger_config::model::{MysqlDatabase, Subscription};
use ganger_core::names::PAUSED_QUEUE;
use ganger_queue::client::{
    DeadFilter, Depth, Each, Listed, Page, Partial, QueueClient, Reply, Subscribed, WayBack,
};
use ganger_queue::delivery::{Outgoing, Post};
use ganger_queue::fault::SourceFault;

/// So often what two did to each other is tried again.
const TRIES: u32 = 10;

/// A command may wait much longer than a daemon, which has other things to do.
const PATIENCE_OF_MARIADB: &str =
    "SET SESSION max_statement_time = 600, lock_wait_timeout = 60, innodb_lock_wait_timeout = 60";
const PATIENCE_OF_MYSQL: &str = "SET SESSION max_execution_time = 600000, lock_wait_timeout = 60, innodb_lock_wait_timeout = 60";

/// How often is looked for an answer: nobody tells of one.
const LOOK_EVERY: Duration = Duration::from_millis(20);

const INSERT: &str = concat!(
    "INSERT INTO consumer_messages (queue, ",
    message!(),
    ") VALUES "
);
const VALUES: &str = concat!("(?, ", message_values!(), ")");

/// A connection for commands.
#[derive(Debug)]
pub(crate) struct MysqlClient {
    runtime: Runtime,
    place: Place,
    client: Client,
    /// The tables were seen, or made.
    prepared: bool,
    away: Away,
}

impl MysqlClient {
    /// Connects. Tables are made with the first thing that needs them.
    pub(crate) fn open(database: &MysqlDatabase) -> Result<Self, MysqlError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| MysqlError::System {
            why: error.to_string(),
        })?;
        let place = Place::of(database, "ganger")?;
        let client = runtime.block_on(connect(&place))?;
        Ok(Self {
            runtime,
            place,
            client,
            prepared: false,
            away: Away::default(),
        })
    }

    /// Asks it with the tables in their place.
    fn ask<T>(
        &mut self,
        doing: &'static str,
        question: impl AsyncFnOnce(&mut Client) -> Result<T, CallError>,
    ) -> Result<T, MysqlError> {
        if self.client.is_closed() {
            self.client = self.runtime.block_on(connect(&self.place))?;
        }
        if !self.prepared {
            let preparing = async {
                self.place.prepare(&mut self.client).await?;
                be_patient(&mut self.client).await
            };
            self.runtime.block_on(preparing)?;
            self.prepared = true;
        }
        let asked = self.runtime.block_on(question(&mut self.client));
        asked.map_err(failed(doing))
    }

    fn look_and_take(
        &mut self,
        queue: &str,
        correlation_id: &str,
    ) -> Result<Option<Reply>, MysqlError> {
        let there = self.ask("looking for the reply", async |client| {
            waiting::reply_there(client, queue, correlation_id).await
        });
        let Some(row) = there? else {
            return Ok(None);
        };
        self.ask_for_all("taking the reply", async |client| {
            waiting::take_reply(client, row).await
        })
    }

    /// Sees that there can be messages for topics.
    fn prepare_topics(&mut self) -> Result<(), MysqlError> {
        // The tables in their place, and a connection.
        self.ask("looking for the tables", async |_| Ok(()))?;
        let preparing = async {
            self.place.prepare_topics(&mut self.client).await?;
            be_patient(&mut self.client).await
        };
        self.runtime.block_on(preparing)
    }

    /// The same in a transaction, of which all is done or nothing. Two who send under the same keys may
    /// wait for each other: then it is done again.
    fn ask_for_all<T>(
        &mut self,
        doing: &'static str,
        question: impl AsyncFn(&mut Client) -> Result<T, CallError>,
    ) -> Result<T, MysqlError> {
        self.ask(doing, async |client| {
            let mut tries = TRIES;
            loop {
                match client.in_a_transaction(&question).await {
                    Err(error) if tries > 0 && error.is_a_clash() => tries -= 1,
                    done => return done,
                }
            }
        })
    }
}

async fn connect(place: &Place) -> Result<Client, MysqlError> {
    let mut client = place.connect_bare().await?;
    be_patient(&mut client).await?;
    Ok(client)
}

async fn be_patient(client: &mut Client) -> Result<(), MysqlError> {
    let patience = match client.dialect() {
        Dialect::MariaDb => PATIENCE_OF_MARIADB,
        Dialect::MySql => PATIENCE_OF_MYSQL,
    };
    let set = client.batch_execute(patience).await;
    set.map_err(failed("setting up the connection"))
}

/// Those that need no key together, as far as they follow one another.
async fn post_all(client: &mut Client, posts: &[Post]) -> Result<Vec<Option<i64>>, CallError> {
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
            ] => topics::publish(client, message, *unsubscribed).await?,
            [
                Post {
                    message,
                    unique: Some(unique),
                    topic: None,
                },
            ] => kept = unique::publish(client, message, unique).await?,
            some => {
                let messages: Vec<&Outgoing> = some.iter().map(|post| &post.message).collect();
                publish_all(client, &messages).await?;
            }
        }
        there.resize(there.len() + some.len(), kept);
    }
    Ok(there)
}

/// No more at once than there is room for.
async fn publish_all(client: &mut Client, messages: &[&Outgoing]) -> Result<(), CallError> {
    let mut left = messages;
    while !left.is_empty() {
        let bytes = left.iter().take(SOME).map(|message| message.bytes());
        let (some, rest) = left.split_at(together(bytes, BYTES_PER_TURN_MAX));
        let sent: Vec<Sent<'_>> = some.iter().map(|message| Sent::of(message)).collect();
        let mut script = client.script();
        script.add_rows(INSERT, VALUES, sent.iter().map(Sent::values));
        client.run(script).await?;
        left = rest;
    }
    Ok(())
}

impl QueueClient for MysqlClient {
    fn check(&mut self) -> Result<Vec<String>, SourceFault> {
        let looked = self.place.look(&mut self.client);
        Ok(self.runtime.block_on(looked)?.into_iter().collect())
    }

    fn send(&mut self, messages: &[Outgoing]) -> Result<(), Partial> {
        let messages: Vec<&Outgoing> = messages.iter().collect();
        let sent = self.ask_for_all("sending", async |client| {
            publish_all(client, &messages).await
        });
        Ok(sent?)
    }

    fn post(&mut self, posts: &[Post]) -> Result<Vec<Option<i64>>, Partial> {
        if posts.iter().any(|post| post.topic.is_some()) {
            self.prepare_topics()?;
        }
        let posted = self.ask_for_all("sending", async |client| post_all(client, posts).await);
        Ok(posted?)
    }

    fn subscribe(&mut self, wanted: &[Subscription]) -> Result<Vec<Subscription>, SourceFault> {
        self.prepare_topics()?;
        let pair = |one: &'_ Subscription| (one.topic.clone(), one.queue.clone());
        let pairs: Vec<(String, String)> = wanted.iter().map(pair).collect();
        let added = self.ask_for_all("subscribing", async |client| {
            topics::subscribe(client, &pairs).await
        })?;
        let is_new = |one: &&Subscription| added.contains(&pair(one));
        Ok(wanted.iter().filter(is_new).cloned().collect())
    }

    fn subscriptions(&mut self) -> Result<Vec<Subscribed>, SourceFault> {
        let all = "SELECT topic, queue, subscribed_at FROM subscriptions ORDER BY topic, queue";
        let subscribed = |row: &Row| {
            Ok(Subscribed {
                topic: row.get(0)?,
                queue: row.get(1)?,
                since_ms: row.get(2)?,
            })
        };
        let all = self.ask("reading the subscriptions", async |client| {
            let all = client.query(all, &[]).await?;
            all.iter().map(subscribed).collect()
        });
        Ok(all?)
    }

    fn look_for_subscriptions(&mut self) -> Result<Option<Vec<Subscribed>>, SourceFault> {
        let made = self.place.is_made(&mut self.client);
        match self.runtime.block_on(made)? {
            true => self.subscriptions().map(Some),
            false => Ok(None),
        }
    }

    fn unsubscribe(&mut self, topic: &str, queue: &str) -> Result<bool, SourceFault> {
        let end = "DELETE FROM subscriptions WHERE topic = ? AND queue = ?";
        let ended = self.ask("ending the subscription", async |client| {
            client.execute(end, &[topic.into(), queue.into()]).await
        });
        Ok(ended? > 0)
    }

    fn depth(&mut self, queue: &str) -> Result<Depth, SourceFault> {
        let depth = self.ask("counting", async |client| {
            waiting::depth(client, queue).await
        });
        Ok(depth?)
    }

    fn cancel_waiting(&mut self, pool: &str, queue: &str, id: &str) -> Result<usize, SourceFault> {
        let mut cancelled = 0;
        loop {
            let some = self.ask_for_all("cancelling", async |client| {
                waiting::cancel(client, pool, queue, id).await
            })?;
            match some {
                0 => return Ok(cancelled),
                some => cancelled += some,
            }
        }
    }

    fn is_paused(&mut self, queue: &str) -> Result<bool, SourceFault> {
        let paused = self.ask("looking for a pause", async |client| {
            claim::is_paused(client, queue).await
        });
        Ok(paused?)
    }

    fn unpause(&mut self, queue: &str) -> Result<(), SourceFault> {
        let end = "DELETE FROM consumer_messages
                   WHERE queue = ? AND owner IS NULL AND available_after = 0 AND `key` = ?";
        self.ask("ending the pause", async |client| {
            client
                .execute(end, &[PAUSED_QUEUE.into(), queue.into()])
                .await
        })?;
        Ok(())
    }

    fn daemons(&mut self) -> Result<Option<u64>, SourceFault> {
        let count = "SELECT COUNT(DISTINCT host, pid) FROM owners";
        let count = self.ask("counting the daemons", async |client| {
            client.query_one(count, &[]).await?.get(0)
        });
        Ok(Some(count?))
    }

    fn reply_to(&mut self, unique: &str) -> Result<String, SourceFault> {
        Ok(format!("ganger.reply.{unique}"))
    }

    fn take_reply(
        &mut self,
        queue: &str,
        correlation_id: &str,
    ) -> Result<Option<Reply>, SourceFault> {
        let taken = self.look_and_take(queue, correlation_id);
        Ok(self.away.tolerate(taken, MysqlError::is_passing)?)
    }

    fn wait_for_change(&mut self, longest: Duration) {
        let pause = self.away.pause().unwrap_or(LOOK_EVERY);
        let pause = longest.min(pause);
        self.runtime.block_on(async { sleep(pause).await });
    }

    fn dead_list(&mut self, page: &Page, each: &mut Each<'_>) -> Result<Listed, SourceFault> {
        let mut after = match page.after.as_deref().map(str::parse) {
            None => i64::MIN,
            Some(Ok(row)) => row,
            Some(Err(_)) => return Ok(Listed::Lost),
        };
        let mut left = page.limit;
        let chosen = Selection::of(&page.filter);
        loop {
            let most = left.saturating_add(1).min(SOME);
            let some = self.ask("reading the dead letters", async |client| {
                dead::some(client, &chosen, after, most).await
            })?;
            if some.is_empty() {
                return Ok(Listed::All);
            }
            for (row, letter) in some {
                if left == 0 || each(letter).is_break() {
                    return Ok(Listed::More);
                }
                (left, after) = (left - 1, row);
            }
        }
    }

    fn dead_retry(&mut self, filter: &DeadFilter, way: &WayBack) -> Result<usize, Partial> {
        let edit = way.body_for_a_table()?;
        let chosen = Selection::of(filter);
        let moved = self.ask_for_all("sending the dead letters back", async |client| {
            dead::send_back(client, &chosen, edit).await
        });
        Ok(moved?)
    }

    fn dead_held(&mut self, filter: &DeadFilter) -> Result<usize, SourceFault> {
        let chosen = Selection::of(filter);
        let held = self.ask("counting the dead letters", async |client| {
            dead::held(client, &chosen).await
        });
        Ok(held?)
    }

    fn dead_drop(&mut self, filter: &DeadFilter) -> Result<usize, Partial> {
        let chosen = Selection::of(filter);
        let dropped = self.ask("dropping the dead letters", async |client| {
            dead::discard(client, &chosen).await
        });
        Ok(usize::try_from(dropped?).unwrap_or(usize::MAX))
    }
}
