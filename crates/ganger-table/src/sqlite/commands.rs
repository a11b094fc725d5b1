//! The client of a database file, for operators and producers: it sends, counts, and takes replies;
//! `dead` manages dead letters. It owns no claims.

mod dead;

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Row, TransactionBehavior, params};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use super::change_watch::ChangeWatch;
use super::clock::WallClock;
use super::error::SqliteError;
use super::leases::directory;
use super::schema::canonical;
use super::{claim, journal, row, schema, settle, topics, unique, waiting};
use crate::dead_letters::{BATCH_MAX, list};
use ganger_config::model::Subscription;
use ganger_core::names::PAUSED_QUEUE;
use ganger_queue::client::{
    DeadFilter, Depth, Each, Listed, Page, Partial, Reply, RetryTarget, Subscribed, WaitingList,
};
use ganger_queue::delivery::{CANCELLED, Failure, Outgoing, Post, Reason};
use ganger_queue::fault::SourceFault;

/// A connection for commands.
#[derive(Debug)]
pub(crate) struct SqliteClient {
    conn: Connection,
    clock: WallClock,
    database: PathBuf,
    /// The wake-up and its runtime, from the first wait on.
    waiting: Option<(Runtime, ChangeWatch)>,
}

impl SqliteClient {
    /// Opens the database file, and creates it if it is missing.
    pub(crate) fn open(path: &Path, mode: u32) -> Result<Self, SqliteError> {
        let mut conn = schema::open(path, mode)?;
        schema::extend_busy_timeout(&mut conn).map_err(failed("opening"))?;
        Ok(Self {
            conn,
            clock: WallClock::system(),
            database: canonical(path)?,
            waiting: None,
        })
    }

    /// Runs work that writes, and retries it once if there was no room for it and the journal could be
    /// emptied.
    fn write<T>(
        &mut self,
        mut work: impl FnMut(&mut Self) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        match work(self) {
            Err(error) if journal::is_out_of_space(&error) && journal::empty(&self.conn) => {
                work(self)
            }
            done => done,
        }
    }

    fn post_all(&mut self, posts: &[Post]) -> rusqlite::Result<Vec<Option<i64>>> {
        let tx = self
            .conn
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut there = vec![None; posts.len()];
        for (post, there) in posts.iter().zip(&mut there) {
            let (message, clock) = (&post.message, &self.clock);
            match (post.topic, &post.unique) {
                (Some(unsubscribed), _) => topics::publish(&tx, message, unsubscribed, clock)?,
                (None, None) => settle::publish(&tx, message, clock)?,
                (None, Some(unique)) => *there = unique::publish(&tx, message, unique, clock)?,
            }
        }
        tx.commit()?;
        Ok(there)
    }

    fn subscribe_all(&mut self, wanted: &[Subscription]) -> rusqlite::Result<Vec<Subscription>> {
        let tx = self
            .conn
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        topics::make_tables(&tx)?;
        let mut added = Vec::new();
        for subscription in wanted {
            if topics::subscribe(&tx, &subscription.topic, &subscription.queue)? {
                added.push(subscription.clone());
            }
        }
        tx.commit()?;
        Ok(added)
    }

    /// Returns whether the tables for topics exist.
    fn has_topics(&self) -> Result<bool, SourceFault> {
        let are_there = topics::are_there(&self.conn);
        Ok(are_there.map_err(failed("looking for the subscriptions"))?)
    }

    fn all_subscriptions(&self) -> rusqlite::Result<Vec<Subscribed>> {
        if !topics::are_there(&self.conn)? {
            return Ok(Vec::new());
        }
        let all = "SELECT topic, queue, subscribed_at FROM subscriptions ORDER BY topic, queue";
        let mut all = self.conn.prepare(all)?;
        let all = all.query_map([], |row| {
            Ok(Subscribed {
                topic: row.get(0)?,
                queue: row.get(1)?,
                since_ms: row.get(2)?,
            })
        })?;
        all.collect()
    }

    fn insert(&mut self, messages: &[Outgoing]) -> rusqlite::Result<()> {
        let tx = self
            .conn
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        for message in messages {
            settle::publish(&tx, message, &self.clock)?;
        }
        tx.commit()
    }
}

/// Operations on waiting messages.
impl SqliteClient {
    /// Moves waiting messages to the dead letters. They are searched without a lock and moved in batches,
    /// so that no transaction locks the file for long.
    fn bury_waiting(&mut self, pool: &str, queue: &str, id: &str) -> rusqlite::Result<usize> {
        let failure = Failure::new(Reason::Cancelled, CANCELLED);
        let waiting = waiting_rows(&self.conn, queue, id)?;
        let mut buried = 0;
        for some in waiting.chunks(BATCH_MAX) {
            let tx = self
                .conn
                .transaction_with_behavior(TransactionBehavior::Immediate)?;
            for row in some {
                let now_ms = self.clock.now_ms();
                buried += usize::from(settle::bury_unclaimed(&tx, pool, *row, &failure, now_ms)?);
            }
            tx.commit()?;
        }
        Ok(buried)
    }
}

/// Returns the rows of the messages that wait under that id.
pub(super) fn waiting_rows(conn: &Connection, queue: &str, id: &str) -> rusqlite::Result<Vec<i64>> {
    let row = id.strip_prefix(queue).and_then(|end| end.strip_prefix(':'));
    let row: Option<i64> = row.and_then(|row| row.parse().ok());
    let mut waiting = conn.prepare_cached(WAITING)?;
    let rows = waiting.query_map(params![queue, id, row], |row| row.get(0))?;
    rows.collect()
}

impl ganger_queue::client::QueueClient for SqliteClient {
    fn check(&mut self) -> Result<Vec<String>, SourceFault> {
        // Everything that a pool needs is created when the file is opened.
        Ok(Vec::new())
    }

    fn send(&mut self, messages: &[Outgoing]) -> Result<(), Partial> {
        let sent = self.write(|client| client.insert(messages));
        Ok(sent.map_err(failed("sending"))?)
    }

    fn post(&mut self, posts: &[Post]) -> Result<Vec<Option<i64>>, Partial> {
        let posted = self.write(|client| client.post_all(posts));
        Ok(posted.map_err(failed("sending"))?)
    }

    fn subscribe(&mut self, wanted: &[Subscription]) -> Result<Vec<Subscription>, SourceFault> {
        let added = self.write(|client| client.subscribe_all(wanted));
        Ok(added.map_err(failed("subscribing"))?)
    }

    fn subscriptions(&mut self) -> Result<Vec<Subscribed>, SourceFault> {
        let all = self.all_subscriptions();
        Ok(all.map_err(failed("reading the subscriptions"))?)
    }

    fn look_for_subscriptions(&mut self) -> Result<Option<Vec<Subscribed>>, SourceFault> {
        match self.has_topics()? {
            true => self.subscriptions().map(Some),
            false => Ok(None),
        }
    }

    fn unsubscribe(&mut self, topic: &str, queue: &str) -> Result<bool, SourceFault> {
        if !self.has_topics()? {
            return Ok(false);
        }
        let end = "DELETE FROM subscriptions WHERE topic = ?1 AND queue = ?2";
        let ended = self.write(|client| client.conn.execute(end, [topic, queue]));
        Ok(ended.map_err(failed("ending the subscription"))? > 0)
    }

    fn depth(&mut self, queue: &str) -> Result<Depth, SourceFault> {
        let counts = self.conn.query_row(DEPTH, [queue], |row| {
            let count = |column| row.get(column).map(i64::unsigned_abs);
            let (ready, delayed, claimed) = (count(0)?, count(1)?, count(2)?);
            Ok(Depth {
                ready,
                delayed,
                claimed,
            })
        });
        Ok(counts.map_err(failed("counting"))?)
    }

    fn waiting_list(&mut self, queue: &str, limit: usize) -> Result<WaitingList, SourceFault> {
        let list = waiting::list(&self.conn, queue, limit + 1, &self.clock);
        let list = list.map_err(failed("listing the waiting messages"))?;
        Ok(WaitingList::of(list, limit))
    }

    fn cancel_waiting(&mut self, pool: &str, queue: &str, id: &str) -> Result<usize, SourceFault> {
        let cancelled = self.write(|client| client.bury_waiting(pool, queue, id));
        Ok(cancelled.map_err(failed("cancelling"))?)
    }

    fn is_paused(&mut self, queue: &str) -> Result<bool, SourceFault> {
        let paused = claim::is_paused(&self.conn, queue);
        Ok(paused.map_err(failed("looking for a pause"))?)
    }

    fn unpause(&mut self, queue: &str) -> Result<(), SourceFault> {
        let end = "DELETE FROM consumer_messages INDEXED BY consumer_messages_ready
                   WHERE queue = ?1 AND owner IS NULL AND available_after = 0 AND key = ?2";
        let ended = self.write(|client| client.conn.execute(end, [PAUSED_QUEUE, queue]));
        ended.map_err(failed("ending the pause"))?;
        Ok(())
    }

    fn daemons(&mut self) -> Result<Option<u64>, SourceFault> {
        let count = "SELECT count(*) FROM owners";
        let count = self.conn.query_row(count, [], |row| row.get::<_, i64>(0));
        let count = count.map_err(failed("counting the daemons"))?;
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
        let looked = self
            .conn
            .prepare_cached(REPLY_THERE)
            .and_then(|mut statement| statement.exists([queue, correlation_id]));
        if !looked.map_err(failed("looking for the reply"))? {
            return Ok(None);
        }
        let of = [queue, correlation_id];
        let taken = self.write(|client| client.conn.query_row(TAKE_REPLY, of, reply).optional());
        Ok(taken.map_err(failed("taking the reply"))?)
    }

    fn wait_for_change(&mut self, longest: Duration) {
        let Some((runtime, watch)) = &mut self.waiting else {
            // Earlier commits count as a change: the caller looks again at once.
            self.waiting = listen(&self.database, &self.conn);
            return;
        };
        if !watch.others_wrote(&self.conn) {
            // The caller looks again after a wake-up and after a timeout.
            drop(runtime.block_on(async { timeout(longest, watch.woken(&self.conn, true)).await }));
        }
    }

    fn dead_list(&mut self, page: &Page, each: &mut Each<'_>) -> Result<Listed, SourceFault> {
        list(page, each, |after, most| {
            let some = dead::read_batch(&self.conn, &page.filter, after, most);
            Ok(some.map_err(failed("reading the dead letters"))?)
        })
    }

    fn dead_retry(&mut self, filter: &DeadFilter, way: &RetryTarget) -> Result<usize, Partial> {
        let edit = way.body_for_a_table()?;
        let now_ms = self.clock.now_ms();
        let moved = self.write(|client| dead::send_back(&mut client.conn, filter, edit, now_ms));
        Ok(moved.map_err(failed("sending the dead letters back"))?)
    }

    fn dead_held(&mut self, filter: &DeadFilter) -> Result<usize, SourceFault> {
        let held = dead::held(&self.conn, filter, self.clock.now_ms());
        Ok(held.map_err(failed("counting the dead letters"))?)
    }

    fn dead_drop(&mut self, filter: &DeadFilter) -> Result<usize, Partial> {
        let dropped = self.write(|client| dead::drop_all(&mut client.conn, filter));
        Ok(dropped.map_err(failed("dropping the dead letters"))?)
    }
}

fn listen(database: &Path, conn: &Connection) -> Option<(Runtime, ChangeWatch)> {
    let runtime = Builder::new_current_thread().enable_all().build().ok()?;
    let entered = runtime.enter();
    let watch = ChangeWatch::listen(database, &directory(database), conn);
    drop(entered);
    Some((runtime, watch))
}

fn failed(doing: &'static str) -> impl Fn(rusqlite::Error) -> SqliteError {
    move |error| SqliteError::Command { doing, error }
}

const DEPTH: &str = "
SELECT
  (SELECT count(*) FROM consumer_messages
   WHERE queue = ?1 AND owner IS NULL AND available_after = 0),
  (SELECT count(*) FROM consumer_messages
   WHERE queue = ?1 AND owner IS NULL AND available_after > 0),
  (SELECT count(*) FROM consumer_messages WHERE owner IS NOT NULL AND queue = ?1)";

/// Uses the indexes of waiting rows: the table may be large, and most rows another queue's.
const WAITING: &str = "
SELECT id FROM consumer_messages
WHERE queue = ?1 AND owner IS NULL AND available_after = 0
  AND claim IS NULL AND (correlation_id = ?2 OR message_id = ?2)
UNION
SELECT id FROM consumer_messages
WHERE queue = ?1 AND owner IS NULL AND available_after > 0
  AND claim IS NULL AND (correlation_id = ?2 OR message_id = ?2)
UNION
SELECT id FROM consumer_messages WHERE id = ?3 AND queue = ?1 AND claim IS NULL
ORDER BY id";

const REPLY_THERE: &str = "
SELECT 1 FROM consumer_messages
WHERE queue = ?1 AND owner IS NULL AND available_after = 0 AND correlation_id = ?2";

const TAKE_REPLY: &str = "
DELETE FROM consumer_messages WHERE id = (
  SELECT id FROM consumer_messages
  WHERE queue = ?1 AND owner IS NULL AND available_after = 0 AND correlation_id = ?2
  ORDER BY id LIMIT 1)
RETURNING body, headers, correlation_id, content_type";

fn reply(row: &Row<'_>) -> rusqlite::Result<Reply> {
    Ok(Reply {
        body: row::body_bytes(row.get_ref(0)?),
        headers: row::headers(row.get_ref(1)?).unwrap_or_default().headers,
        correlation_id: row::text(row.get_ref(2)?).unwrap_or_default(),
        content_type: row::text(row.get_ref(3)?),
    })
}
