//! The operator's and the producer's side of a database of PostgreSQL: sending, counting, taking
//! replies, and the dead letters. Nothing here is an owner of claims.

mod all_or_none;
mod dead;

use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};

use super::away::Away;
use crate::postgres::PostgresError;
use crate::postgres::client::Client;
use crate::postgres::error::failed;
use crate::postgres::line::{Line, Place};
use crate::postgres::owners::{let_go, listen, request_notifications};
use crate::postgres::settle::{Statements, is_row, now_ms, publish};
use crate::postgres::{claim, pooler, row, topics, unique};
use crate::rules::{BYTES_PER_TURN_MAX, together};
use crate::server::registry::NotifyState;
use crate::table::headers;
use all_or_none::in_a_transaction;
use dead::Chosen;
use ganger_config::model::{PostgresDatabase, Subscription};
use ganger_core::names::PAUSED_QUEUE;
use ganger_queue::client::{
    DeadFilter, Depth, Each, Listed, Page, Partial, QueueClient, Reply, Subscribed, WayBack,
};
use ganger_queue::delivery::{CANCELLED, Outgoing, Post, Reason};
use ganger_queue::fault::SourceFault;

/// So many messages are moved, or letters read, at once.
const SOME: usize = 500;

/// So often what two did to each other is tried again.
const TRIES: u32 = 10;

/// A command may wait much longer than a daemon, which has other things to do.
///
/// What it asks it asks once, with other conditions each time: so its statements are planned for these.
const SETTINGS: &[(&str, &str)] = &[
    ("statement_timeout", "'10min'"),
    ("lock_timeout", "'1min'"),
    ("plan_cache_mode", "'force_custom_plan'"),
];

/// How often is looked for an answer that nobody tells of.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A connection for commands.
#[derive(Debug)]
pub(crate) struct PostgresClient {
    runtime: Runtime,
    place: Place,
    line: Line,
    /// The tables were seen, or made.
    prepared: bool,
    /// The reply queue that is listened to.
    listens: Option<String>,
    /// Whether all that is sent to it is told of.
    notifications: NotifyState,
    away: Away,
}

impl PostgresClient {
    /// Connects. Tables are made with the first thing that needs them.
    pub(crate) fn open(database: &PostgresDatabase) -> Result<Self, PostgresError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| PostgresError::System {
            why: error.to_string(),
        })?;
        let place = Place::of(database, "ganger")?;
        let line = runtime.block_on(connect(&place))?;
        Ok(Self {
            runtime,
            place,
            line,
            prepared: false,
            listens: None,
            notifications: NotifyState::Incomplete,
            away: Away::default(),
        })
    }

    /// Asks it with the tables in their place.
    fn ask<T>(
        &mut self,
        doing: &'static str,
        question: impl AsyncFnOnce(&Client) -> Result<T, Error>,
    ) -> Result<T, PostgresError> {
        if self.line.client.is_closed() {
            self.line = self.runtime.block_on(connect(&self.place))?;
            self.listens = None;
            self.notifications = NotifyState::Incomplete;
        }
        if !self.prepared {
            let preparing = self.place.prepare(&self.line.client);
            self.runtime.block_on(preparing)?;
            self.prepared = true;
        }
        let asked = self.runtime.block_on(question(&self.line.client));
        asked.map_err(failed(doing))
    }

    fn listen_and_take(
        &mut self,
        queue: &str,
        correlation_id: &str,
    ) -> Result<Option<Reply>, PostgresError> {
        // Before it is looked for: what comes after that is told.
        self.listen(queue)?;
        self.ask("taking the reply", async |client| {
            let taken = client
                .query_opt(TAKE_REPLY, &[&queue, &correlation_id])
                .await?;
            taken.as_ref().map(reply).transpose()
        })
    }

    /// Sees to it that what is sent to the queue is told of, as far as it can be.
    fn listen(&mut self, queue: &str) -> Result<(), PostgresError> {
        // Without a session it is looked for now and then.
        if self.place.is_pooled {
            return Ok(());
        }
        let schema = self.place.schema.clone();
        if self.listens.as_deref() != Some(queue) {
            self.notifications = NotifyState::Incomplete;
            self.ask("listening for the reply", async |client| {
                let_go(client).await?;
                listen(client, &schema, queue).await
            })?;
            self.listens = Some(queue.to_owned());
        }
        if self.notifications != NotifyState::Own {
            self.notifications = self.ask("listening for the reply", async |client| {
                request_notifications(client, &schema, queue).await
            })?;
        }
        Ok(())
    }
}

async fn connect(place: &Place) -> Result<Line, PostgresError> {
    let mut line = place.connect_bare().await?;
    let set = line.client.set(SETTINGS).await;
    set.map_err(failed("setting up the connection"))?;
    Ok(line)
}

/// Those that need no key together, as far as they follow one another.
async fn post_all(
    client: &Client,
    statements: &Statements,
    posts: &[Post],
) -> Result<Vec<Option<i64>>, Error> {
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
                publish_all(client, statements, &messages).await?;
            }
        }
        there.resize(there.len() + some.len(), kept);
    }
    Ok(there)
}

/// No more in one statement than the server takes.
async fn publish_all(
    client: &Client,
    statements: &Statements,
    messages: &[&Outgoing],
) -> Result<(), Error> {
    let mut left = messages;
    while !left.is_empty() {
        let bytes = left.iter().take(SOME).map(|message| message.bytes());
        let (some, rest) = left.split_at(together(bytes, BYTES_PER_TURN_MAX));
        publish(client, statements, some.iter().copied()).await?;
        left = rest;
    }
    Ok(())
}

fn may_succeed_again(error: &Error) -> bool {
    let passing = [
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::T_R_SERIALIZATION_FAILURE,
    ];
    error.code().is_some_and(|code| passing.contains(code))
}

impl QueueClient for PostgresClient {
    fn check(&mut self) -> Result<Vec<String>, SourceFault> {
        let looked = self.runtime.block_on(async {
            pooler::refuse(&self.place, &self.line).await?;
            self.place.look(&self.line.client).await
        });
        Ok(looked?.into_iter().collect())
    }

    fn send(&mut self, messages: &[Outgoing]) -> Result<(), Partial> {
        let sent = self.ask("sending", async |client| {
            let statements = Statements::prepare(client).await?;
            let messages: Vec<&Outgoing> = messages.iter().collect();
            in_a_transaction(client, publish_all(client, &statements, &messages)).await
        });
        Ok(sent?)
    }

    fn post(&mut self, posts: &[Post]) -> Result<Vec<Option<i64>>, Partial> {
        let posted = self.ask("sending", async |client| {
            let statements = Statements::prepare(client).await?;
            let mut tries = TRIES;
            loop {
                let work = post_all(client, &statements, posts);
                match in_a_transaction(client, work).await {
                    // Two who send under the same keys may wait for each other.
                    Err(error) if tries > 0 && may_succeed_again(&error) => tries -= 1,
                    posted => return posted,
                }
            }
        });
        Ok(posted?)
    }

    fn subscribe(&mut self, wanted: &[Subscription]) -> Result<Vec<Subscription>, SourceFault> {
        let topics: Vec<&str> = wanted.iter().map(|one| one.topic.as_str()).collect();
        let queues: Vec<&str> = wanted.iter().map(|one| one.queue.as_str()).collect();
        let added = self.ask("subscribing", async |client| {
            topics::subscribe(client, &topics, &queues).await
        })?;
        let is_new = |one: &&Subscription| {
            let mut added = added.iter();
            added.any(|(topic, queue)| *topic == one.topic && *queue == one.queue)
        };
        Ok(wanted.iter().filter(is_new).cloned().collect())
    }

    fn subscriptions(&mut self) -> Result<Vec<Subscribed>, SourceFault> {
        let all = "SELECT topic, queue, subscribed_at FROM subscriptions ORDER BY topic, queue";
        let subscribed = |row: &Row| {
            Ok(Subscribed {
                topic: row.try_get(0)?,
                queue: row.try_get(1)?,
                since_ms: row.try_get(2)?,
            })
        };
        let all = self.ask("reading the subscriptions", async |client| {
            let all = client.query(all, &[]).await?;
            all.iter().map(subscribed).collect()
        });
        Ok(all?)
    }

    fn look_for_subscriptions(&mut self) -> Result<Option<Vec<Subscribed>>, SourceFault> {
        let (place, client) = (&self.place, &self.line.client);
        match self.runtime.block_on(place.is_made(client))? {
            true => self.subscriptions().map(Some),
            false => Ok(None),
        }
    }

    fn unsubscribe(&mut self, topic: &str, queue: &str) -> Result<bool, SourceFault> {
        let end = "DELETE FROM subscriptions WHERE topic = $1 AND queue = $2";
        let ended = self.ask("ending the subscription", async |client| {
            client.execute(end, &[&topic, &queue]).await
        });
        Ok(ended? > 0)
    }

    fn depth(&mut self, queue: &str) -> Result<Depth, SourceFault> {
        let row = self.ask("counting", async |client| {
            client.query_one(DEPTH, &[&queue]).await
        })?;
        let count = |column| row.get::<_, i64>(column).unsigned_abs();
        Ok(Depth {
            ready: count(0),
            delayed: count(1),
            claimed: count(2),
        })
    }

    fn cancel_waiting(&mut self, pool: &str, queue: &str, id: &str) -> Result<usize, SourceFault> {
        let row = id.strip_prefix(queue).and_then(|end| end.strip_prefix(':'));
        let row: Option<i64> = row.and_then(|row| row.parse().ok());
        let some = i64::try_from(SOME).unwrap_or(i64::MAX);
        let (reason, error) = (Reason::Cancelled.as_str(), CANCELLED);
        let cancelled = self.ask("cancelling", async |client| {
            let mut cancelled = 0;
            loop {
                let values: [&(dyn ToSql + Sync); 7] =
                    [&pool, &queue, &id, &row, &some, &reason, &error];
                match client.execute(CANCEL, &values).await? {
                    0 => return Ok(cancelled),
                    moved => cancelled += moved,
                }
            }
        });
        Ok(usize::try_from(cancelled?).unwrap_or(usize::MAX))
    }

    fn is_paused(&mut self, queue: &str) -> Result<bool, SourceFault> {
        let paused = self.ask("looking for a pause", async |client| {
            claim::is_paused(client, queue).await
        });
        Ok(paused?)
    }

    fn unpause(&mut self, queue: &str) -> Result<(), SourceFault> {
        let end = "DELETE FROM consumer_messages
                   WHERE queue = $1 AND owner IS NULL AND available_after = 0 AND key = $2";
        self.ask("ending the pause", async |client| {
            client.execute(end, &[&PAUSED_QUEUE, &queue]).await
        })?;
        Ok(())
    }

    fn daemons(&mut self) -> Result<Option<u64>, SourceFault> {
        let count = "SELECT count(DISTINCT (host, pid)) FROM owners";
        let count = self.ask("counting the daemons", async |client| {
            client.query_one(count, &[]).await?.try_get::<_, i64>(0)
        })?;
        Ok(Some(count.unsigned_abs()))
    }

    fn reply_to(&mut self, unique: &str) -> Result<String, SourceFault> {
        Ok(format!("ganger.reply.{unique}"))
    }

    fn take_reply(
        &mut self,
        queue: &str,
        correlation_id: &str,
    ) -> Result<Option<Reply>, SourceFault> {
        let taken = self.listen_and_take(queue, correlation_id);
        Ok(self.away.tolerate(taken, PostgresError::is_passing)?)
    }

    fn wait_for_change(&mut self, longest: Duration) {
        if let Some(pause) = self.away.pause() {
            let pause = longest.min(pause);
            return self.runtime.block_on(async { sleep(pause).await });
        }
        let longest = match self.notifications {
            NotifyState::Own => longest,
            // Behind a pooler, or while someone sends who tells nobody, or another may cease to sleep.
            NotifyState::Others | NotifyState::Incomplete => longest.min(LOOK_EVERY),
        };
        let heard = self.line.bell.notified();
        // Woken or out of time: the caller looks either way.
        drop(
            self.runtime
                .block_on(async { timeout(longest, heard).await }),
        );
    }

    fn dead_list(&mut self, page: &Page, each: &mut Each<'_>) -> Result<Listed, SourceFault> {
        let mut after = match page.after.as_deref().map(str::parse) {
            None => i64::MIN,
            Some(Ok(row)) => row,
            Some(Err(_)) => return Ok(Listed::Lost),
        };
        let mut left = page.limit;
        let chosen = Chosen::of(&page.filter);
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
        let chosen = Chosen::of(filter);
        let moved = self.ask("sending the dead letters back", async |client| {
            dead::send_back(client, &chosen, edit).await
        });
        Ok(usize::try_from(moved?).unwrap_or(usize::MAX))
    }

    fn dead_held(&mut self, filter: &DeadFilter) -> Result<usize, SourceFault> {
        let chosen = Chosen::of(filter);
        let held = self.ask("counting the dead letters", async |client| {
            dead::held(client, &chosen).await
        });
        Ok(usize::try_from(held?).unwrap_or(usize::MAX))
    }

    fn dead_drop(&mut self, filter: &DeadFilter) -> Result<usize, Partial> {
        let chosen = Chosen::of(filter);
        let dropped = self.ask("dropping the dead letters", async |client| {
            dead::discard(client, &chosen).await
        });
        Ok(usize::try_from(dropped?).unwrap_or(usize::MAX))
    }
}

const DEPTH: &str = "
SELECT
  (SELECT count(*) FROM consumer_messages
   WHERE queue = $1 AND owner IS NULL AND available_after = 0),
  (SELECT count(*) FROM consumer_messages
   WHERE queue = $1 AND owner IS NULL AND available_after > 0),
  (SELECT count(*) FROM consumer_messages WHERE owner IS NOT NULL AND queue = $1)";

/// By the indexes of what waits: the table may be large, and most of it another queue's.
const CANCEL: &str = concat!(
    "
WITH waiting AS (
  SELECT id FROM consumer_messages
  WHERE queue = $2 AND owner IS NULL AND available_after = 0
    AND (correlation_id = $3 OR message_id = $3 OR id = $4)
  UNION ALL
  SELECT id FROM consumer_messages
  WHERE queue = $2 AND owner IS NULL AND available_after > 0
    AND (correlation_id = $3 OR message_id = $3 OR id = $4)
  LIMIT $5),
gone AS (
  DELETE FROM consumer_messages m USING waiting
  WHERE m.id ",
    is_row!("waiting.id"),
    " AND m.owner IS NULL RETURNING m.*),
now AS (SELECT ",
    now_ms!(),
    " AS ms)
INSERT INTO poisoned_messages (pool, queue, reason, error, attempts, crashes, lapses, oom, stderr,
  first_failed_at, last_failed_at, body, body_bytes, headers, correlation_id, reply_to, message_id,
  content_type, key, priority, created_at, unique_key, unique_scope, unique_until, row_id)
SELECT $1, queue, $6, $7, attempts, crashes, lapses, 0, '[]', coalesce(first_failed_at, ms), ms, body,
  body_bytes, headers, correlation_id, reply_to, message_id, content_type, key, priority, created_at,
  unique_key, unique_scope, unique_until, id
FROM gone, now ORDER BY id"
);

/// The first in the order of the index: in that of the ids the rows of all queues would be read.
const TAKE_REPLY: &str = "
DELETE FROM consumer_messages WHERE id = (
  SELECT id FROM consumer_messages
  WHERE queue = $1 AND owner IS NULL AND available_after = 0 AND correlation_id = $2
  ORDER BY suspicion, priority DESC, id LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING body, body_bytes, headers::text, correlation_id, content_type";

fn reply(row: &Row) -> Result<Reply, Error> {
    let headers = headers::parse(row.try_get("headers")?);
    Ok(Reply {
        body: row::body(row, "body", "body_bytes")?.unwrap_or_default(),
        headers: headers::not_ours(headers.unwrap_or_default()),
        correlation_id: row::text(row, "correlation_id")?.unwrap_or_default(),
        content_type: row::text(row, "content_type")?,
    })
}
