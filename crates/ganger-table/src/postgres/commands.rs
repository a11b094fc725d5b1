//! Commands on a database of PostgreSQL: the SQL and the errors.

mod dead;

use std::io;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::OnceCell;
use tokio::time::timeout;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};

use super::columns::occurrence;
use super::connect::{ConnectTarget, RawConnection};
use super::error::{PostgresError, failed};
use super::owners::{listen, request_notifications, withdraw_request};
use super::settle::{Statements, is_row, now_ms, publish};
use super::{claim, pooler, row, topics, unique, waiting};
use crate::dead_letters::BATCH_MAX;
use crate::server::client::{Commands, ServerClient};
use crate::server::occurrences;
use crate::server::registry::NotifyState;
use crate::server::selection::Selection;
use crate::server::tables::Tables;
use crate::table::headers;
use ganger_config::model::{PostgresDatabase, Subscription};
use ganger_core::names::PAUSED_QUEUE;
use ganger_queue::client::{Depth, Reply, Subscribed, WaitingMessage};
use ganger_queue::dead_letter::DeadLetter;
use ganger_queue::delivery::{CANCELLED, IfUnsubscribed, Outgoing, Reason, Unique};

/// Settings of a command. The timeouts are much longer than a daemon's, which has other work to do.
///
/// A command runs each statement once, with different conditions each time, so statements are planned
/// for their parameters.
const SETTINGS: &[(&str, &str)] = &[
    ("statement_timeout", "'10min'"),
    ("lock_timeout", "'1min'"),
    ("plan_cache_mode", "'force_custom_plan'"),
];

/// Interval between two polls for a reply if it may come without a notification.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Connects for commands.
pub(crate) fn open(
    database: &PostgresDatabase,
) -> Result<ServerClient<CommandConnection>, PostgresError> {
    ServerClient::open(ConnectTarget::of(database, "ganger")?)
}

/// A connection for commands.
#[derive(Debug)]
pub(crate) struct CommandConnection {
    raw: RawConnection,
    statements: OnceCell<Statements>,
    /// The reply queue that the connection listens to.
    listens: Option<String>,
    /// Coverage of the notifications for it.
    notifications: NotifyState,
}

impl CommandConnection {
    /// Listens to the queue, and requests notifications as far as possible.
    async fn listen(&mut self, queue: &str) -> Result<(), Error> {
        let RawConnection { client, schema, .. } = &self.raw;
        // A pooler keeps no session that could listen: the queue is polled.
        if client.is_pooled() {
            return Ok(());
        }
        if self.listens.as_deref() != Some(queue) {
            self.notifications = NotifyState::Incomplete;
            withdraw_request(client).await?;
            listen(client, schema, queue).await?;
            self.listens = Some(queue.to_owned());
        }
        if self.notifications != NotifyState::Own {
            self.notifications = request_notifications(client, schema, queue).await?;
        }
        Ok(())
    }
}

impl Commands for CommandConnection {
    type Target = ConnectTarget;
    type Refusal = PostgresError;
    type Error = Error;

    async fn connect(target: &ConnectTarget) -> Result<Self, PostgresError> {
        let mut raw = target.connect_bare().await?;
        let set = raw.client.set(SETTINGS).await;
        set.map_err(failed("setting up the connection"))?;
        Ok(Self {
            raw,
            statements: OnceCell::new(),
            listens: None,
            notifications: NotifyState::Incomplete,
        })
    }

    fn is_closed(&self) -> bool {
        self.raw.client.is_closed()
    }

    async fn prepare(&mut self, target: &ConnectTarget) -> Result<(), PostgresError> {
        target.prepare(&self.raw.client, Tables::Queues).await
    }

    async fn problem(&mut self, target: &ConnectTarget) -> Result<Option<String>, PostgresError> {
        pooler::reject_pooled(target, &self.raw).await?;
        target.look(&self.raw.client, Tables::Queues).await
    }

    async fn is_made(&mut self, target: &ConnectTarget) -> Result<bool, PostgresError> {
        target.is_made(&self.raw.client).await
    }

    fn no_runtime(error: &io::Error) -> PostgresError {
        PostgresError::System {
            why: error.to_string(),
        }
    }

    fn refusal(doing: &'static str, error: Error) -> PostgresError {
        failed(doing)(error)
    }

    fn is_transient(refusal: &PostgresError) -> bool {
        refusal.is_transient()
    }

    async fn begin(&mut self) -> Result<(), Error> {
        self.raw.client.begin().await
    }

    async fn commit(&mut self) -> Result<(), Error> {
        self.raw.client.commit().await
    }

    async fn roll_back(&mut self) -> Result<(), Error> {
        self.raw.client.roll_back().await
    }

    async fn publish(&mut self, messages: &[&Outgoing]) -> Result<(), Error> {
        let client = &self.raw.client;
        let prepare = || Statements::prepare(client);
        let statements = self.statements.get_or_try_init(prepare).await?;
        publish(client, statements, messages.iter().copied()).await
    }

    async fn publish_to_topic(
        &mut self,
        message: &Outgoing,
        unsubscribed: IfUnsubscribed,
    ) -> Result<(), Error> {
        topics::publish(&self.raw.client, message, unsubscribed).await
    }

    async fn publish_unique(
        &mut self,
        message: &Outgoing,
        unique: &Unique,
    ) -> Result<Option<i64>, Error> {
        unique::publish(&self.raw.client, message, unique).await
    }

    async fn subscribe(&mut self, wanted: &[Subscription]) -> Result<Vec<(String, String)>, Error> {
        let topics: Vec<&str> = wanted.iter().map(|one| one.topic.as_str()).collect();
        let queues: Vec<&str> = wanted.iter().map(|one| one.queue.as_str()).collect();
        topics::subscribe(&self.raw.client, &topics, &queues).await
    }

    async fn subscriptions(&mut self) -> Result<Vec<Subscribed>, Error> {
        let all = "SELECT topic, queue, subscribed_at FROM subscriptions ORDER BY topic, queue";
        let subscribed = |row: &Row| {
            Ok(Subscribed {
                topic: row.try_get(0)?,
                queue: row.try_get(1)?,
                since_ms: row.try_get(2)?,
            })
        };
        let all = self.raw.client.query(all, &[]).await?;
        all.iter().map(subscribed).collect()
    }

    async fn unsubscribe(&mut self, topic: &str, queue: &str) -> Result<bool, Error> {
        let end = "DELETE FROM subscriptions WHERE topic = $1 AND queue = $2";
        let ended = self.raw.client.execute(end, &[&topic, &queue]).await?;
        Ok(ended > 0)
    }

    async fn depth(&mut self, queue: &str) -> Result<Depth, Error> {
        let row = self.raw.client.query_one(DEPTH, &[&queue]).await?;
        let count = |column: usize| row.try_get(column).map(i64::unsigned_abs);
        Ok(Depth {
            ready: count(0)?,
            delayed: count(1)?,
            claimed: count(2)?,
        })
    }

    async fn waiting_list(
        &mut self,
        queue: &str,
        most: usize,
    ) -> Result<Vec<WaitingMessage>, Error> {
        waiting::list(&self.raw.client, queue, most).await
    }

    async fn cancel(&mut self, pool: &str, queue: &str, id: &str) -> Result<usize, Error> {
        cancel(&self.raw, pool, queue, id).await
    }

    async fn is_paused(&mut self, queue: &str) -> Result<bool, Error> {
        claim::is_paused(&self.raw.client, queue).await
    }

    async fn unpause(&mut self, queue: &str) -> Result<(), Error> {
        let end = "DELETE FROM consumer_messages
                   WHERE queue = $1 AND owner IS NULL AND available_after = 0 AND key = $2";
        let values: [&(dyn ToSql + Sync); 2] = [&PAUSED_QUEUE, &queue];
        self.raw.client.execute(end, &values).await.map(drop)
    }

    async fn daemons(&mut self) -> Result<u64, Error> {
        let count = "SELECT count(DISTINCT (host, pid)) FROM owners";
        let count = self.raw.client.query_one(count, &[]).await?;
        count.try_get(0).map(i64::unsigned_abs)
    }

    async fn take_reply(
        &mut self,
        queue: &str,
        correlation_id: &str,
    ) -> Result<Option<Reply>, Error> {
        // Before the query, so that a reply that comes later is notified.
        self.listen(queue).await?;
        let values: [&(dyn ToSql + Sync); 2] = [&queue, &correlation_id];
        let taken = self.raw.client.query_opt(TAKE_REPLY, &values).await?;
        taken.as_ref().map(reply).transpose()
    }

    async fn wait(&mut self, longest: Duration) {
        let longest = match self.notifications {
            NotifyState::Own => longest,
            // Behind a pooler, while somebody sends without notifying, or while another source may
            // withdraw its request.
            NotifyState::Others | NotifyState::Incomplete => longest.min(LOOK_EVERY),
        };
        // The caller queries again after a notification and after a timeout.
        drop(timeout(longest, self.raw.notification.notified()).await);
    }

    async fn dead_letters(
        &mut self,
        selection: &Selection<'_>,
        after: i64,
        most: usize,
    ) -> Result<Vec<(i64, DeadLetter)>, Error> {
        dead::read_batch(&self.raw.client, selection, after, most).await
    }

    async fn send_back(
        &mut self,
        selection: &Selection<'_>,
        body: Option<&Bytes>,
    ) -> Result<usize, Error> {
        let moved = dead::send_back(&self.raw.client, selection, body);
        moved.await.map(count)
    }

    async fn held(&mut self, selection: &Selection<'_>) -> Result<usize, Error> {
        let held = dead::held(&self.raw.client, selection).await?;
        Ok(count(held.unsigned_abs()))
    }

    async fn drop_dead_letters(&mut self, selection: &Selection<'_>) -> Result<usize, Error> {
        let dropped = dead::discard(&self.raw.client, selection);
        dropped.await.map(count)
    }
}

fn count(rows: u64) -> usize {
    usize::try_from(rows).unwrap_or(usize::MAX)
}

const DEPTH: &str = "
SELECT
  (SELECT count(*) FROM consumer_messages
   WHERE queue = $1 AND owner IS NULL AND available_after = 0),
  (SELECT count(*) FROM consumer_messages
   WHERE queue = $1 AND owner IS NULL AND available_after > 0),
  (SELECT count(*) FROM consumer_messages WHERE owner IS NOT NULL AND queue = $1)";

/// Moves some of the messages that wait under that id to the dead letters, in the open transaction. Returns
/// their number.
pub(super) async fn cancel(
    mut raw: &RawConnection,
    pool: &str,
    queue: &str,
    id: &str,
) -> Result<usize, Error> {
    let row = id.strip_prefix(queue).and_then(|end| end.strip_prefix(':'));
    let row: Option<i64> = row.and_then(|row| row.parse().ok());
    let some = i64::try_from(BATCH_MAX).unwrap_or(i64::MAX);
    let (reason, error) = (Reason::Cancelled.as_str(), CANCELLED);
    let values: [&(dyn ToSql + Sync); 7] = [&pool, &queue, &id, &row, &some, &reason, &error];
    let cancelled = raw.client.query(CANCEL, &values).await?;
    let occurrences = cancelled.iter().map(|row| row.try_get(0));
    let occurrences: Vec<Option<String>> = occurrences.collect::<Result<_, Error>>()?;
    let occurrences: Vec<String> = occurrences.into_iter().flatten().collect();
    occurrences::cancelled(&mut raw, &occurrences).await?;
    Ok(cancelled.len())
}

/// Uses the indexes of waiting rows: the table may be large, and most rows another queue's.
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
FROM gone, now ORDER BY id
RETURNING ",
    occurrence!("headers")
);

/// Takes the first reply in the order of the index. In the order of ids, the server would read the rows
/// of all queues.
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
