//! Entries of finished messages, in PostgreSQL: written in the open transaction, looked up, and removed.

use std::collections::{HashMap, HashSet};

use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};

use super::client::{Client, Statement};
use super::columns::body;
use super::row;
use super::settle::now_ms;
use crate::server::delays::delay_ms;
use crate::table::finished::{Entry, Found, Scope, StoredEntry};
use crate::table::headers;
use ganger_queue::delivery::Identity;

/// Writes entries in the order of their keys, so that two transactions with the same entries can't
/// deadlock.
const ENTER: &str = concat!(
    "
INSERT INTO finished_messages AS f (source, queue, key, emit_id, step, finished_at, expires_at,
  reply_queue, reply_body, reply_body_bytes, reply_headers)
SELECT $1::text, e.queue, e.key, e.emit_id, e.step, ",
    now_ms!(),
    ", ",
    now_ms!(),
    " + e.window_ms,
  e.reply_queue, e.reply_body, e.reply_bytes, e.reply_headers
FROM unnest($2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::text[], $8::text[],
  $9::bytea[], $10::text[]) WITH ORDINALITY
  AS e(queue, key, emit_id, step, window_ms, reply_queue, reply_body, reply_bytes, reply_headers, place)
ORDER BY e.place
ON CONFLICT (source, queue, key, emit_id, step) DO UPDATE SET
  finished_at = excluded.finished_at, expires_at = excluded.expires_at,
  reply_queue = excluded.reply_queue, reply_body = excluded.reply_body,
  reply_body_bytes = excluded.reply_body_bytes, reply_headers = excluded.reply_headers
WHERE f.expires_at <= excluded.finished_at
RETURNING queue, key, emit_id, step"
);

/// Looks up each entry by itself, which the `OFFSET` enforces: if its statistics say that the table is
/// nearly empty, the server would otherwise join all entries of a source to the wanted ones.
const FIND: &str = concat!(
    "
SELECT f.queue, f.key, f.emit_id, f.step, f.reply_queue, f.reply_body, f.reply_body_bytes, f.reply_headers
FROM unnest($2::text[], $3::text[], $4::text[], $5::bigint[]) AS e(queue, key, emit_id, step)
CROSS JOIN LATERAL (
  SELECT * FROM finished_messages f WHERE f.source = $1 AND f.queue = e.queue
    AND f.key = e.key AND f.emit_id = e.emit_id AND f.step = e.step OFFSET 0) AS f
WHERE f.expires_at > ",
    now_ms!()
);

/// Finds rows again by `ctid`: a locked row keeps its place.
const EXPIRE: &str = concat!(
    "
DELETE FROM finished_messages WHERE ctid = ANY(ARRAY(
  SELECT ctid FROM finished_messages
  WHERE expires_at <= ",
    now_ms!(),
    " ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED))"
);

/// The statements, prepared on a connection.
#[derive(Debug)]
pub(super) struct FinishedStatements {
    enter: Statement,
    find: Statement,
    expire: Statement,
}

impl FinishedStatements {
    pub(super) async fn prepare(client: &Client) -> Result<Self, Error> {
        let prepared = client.as_one(async {
            tokio::try_join!(
                client.prepare(ENTER),
                client.prepare(FIND),
                client.prepare(EXPIRE),
            )
        });
        let (enter, find, expire) = prepared.await?;
        Ok(Self {
            enter,
            find,
            expire,
        })
    }
}

/// The keys of entries, as columns.
#[derive(Debug, Default)]
struct Known<'a> {
    queues: Vec<&'a str>,
    keys: Vec<&'a str>,
    emits: Vec<&'a str>,
    steps: Vec<i64>,
}

impl<'a> Known<'a> {
    fn of(identities: impl Iterator<Item = &'a Identity>) -> Self {
        let mut known = Self::default();
        for identity in identities {
            known.queues.push(&identity.queue);
            known.keys.push(&identity.key);
            known.emits.push(&identity.emit);
            known.steps.push(identity.step.into());
        }
        known
    }
}

/// Writes entries. Returns the earlier entries, which stay unchanged.
pub(super) async fn enter(
    client: &Client,
    statements: &FinishedStatements,
    scope: &Scope,
    entries: &[Entry<'_>],
) -> Result<Found, Error> {
    let mut sorted: Vec<&Entry<'_>> = entries.iter().collect();
    sorted.sort_unstable_by_key(|entry| &entry.finished.identity);
    let known = Known::of(sorted.iter().map(|entry| &entry.finished.identity));
    let windows = sorted.iter().map(|entry| entry.finished.window);
    let windows: Vec<i64> = windows.map(delay_ms).collect();
    let replies = sorted
        .iter()
        .map(|entry| entry.finished.reply_in(entry.outcome));
    let replies: Vec<_> = replies.collect();
    let queues: Vec<Option<&str>> = replies
        .iter()
        .map(|reply| reply.and_then(|r| r.0))
        .collect();
    let bodies = replies
        .iter()
        .map(|reply| reply.map_or((None, None), |(_, reply)| body(&reply.body)));
    let (texts, bytes): (Vec<_>, Vec<_>) = bodies.unzip();
    let headers: Vec<String> = sorted.iter().map(|entry| entry.headers()).collect();
    let values: [&(dyn ToSql + Sync); 10] = [
        &scope.source,
        &known.queues,
        &known.keys,
        &known.emits,
        &known.steps,
        &windows,
        &queues,
        &texts,
        &bytes,
        &headers,
    ];
    let entered = client.query(&statements.enter, &values).await?;
    let entered = entered
        .iter()
        .map(identity)
        .collect::<Result<HashSet<_>, _>>()?;
    let identities = entries.iter().map(|entry| &entry.finished.identity);
    let left: Vec<&Identity> = identities
        .filter(|identity| !entered.contains(identity))
        .collect();
    // By another statement, which sees what others have committed since the first one began.
    let mut found = search(client, statements, scope, &left).await?;
    let first = entries.iter().map(|entry| {
        let found = found.remove(&entry.finished.identity);
        entry.first(found)
    });
    Ok(first.collect())
}

async fn search(
    client: &Client,
    statements: &FinishedStatements,
    scope: &Scope,
    identities: &[&Identity],
) -> Result<HashMap<Identity, StoredEntry>, Error> {
    if identities.is_empty() {
        return Ok(HashMap::new());
    }
    let known = Known::of(identities.iter().copied());
    let values: [&(dyn ToSql + Sync); 5] = [
        &scope.source,
        &known.queues,
        &known.keys,
        &known.emits,
        &known.steps,
    ];
    let found = client.query(&statements.find, &values).await?;
    let found = found.iter();
    found
        .map(|row| Ok((identity(row)?, stored_entry(row)?)))
        .collect()
}

fn identity(row: &Row) -> Result<Identity, Error> {
    Ok(Identity {
        queue: row.try_get::<_, &str>("queue")?.into(),
        key: row.try_get("key")?,
        emit: row.try_get("emit_id")?,
        step: u32::try_from(row.try_get::<_, i64>("step")?).unwrap_or(u32::MAX),
    })
}

fn stored_entry(row: &Row) -> Result<StoredEntry, Error> {
    let body = row::body(row, "reply_body", "reply_body_bytes")?;
    let headers: Option<&str> = row.try_get("reply_headers")?;
    // Only ganger writes them.
    let headers = headers::parse(headers.unwrap_or("{}")).unwrap_or_default();
    Ok(StoredEntry::read(
        row.try_get("reply_queue")?,
        body,
        headers,
    ))
}

/// Looks up the entry of each.
pub(super) async fn find(
    client: &Client,
    statements: &FinishedStatements,
    scope: &Scope,
    identities: &[&Identity],
) -> Result<Found, Error> {
    let mut found = search(client, statements, scope, identities).await?;
    let identities = identities.iter();
    Ok(identities.map(|identity| found.remove(identity)).collect())
}

/// Removes at most `most` expired entries. Returns their number.
pub(super) async fn expire(
    client: &Client,
    statements: &FinishedStatements,
    most: u32,
) -> Result<u64, Error> {
    let most = i64::from(most);
    client.execute(&statements.expire, &[&most]).await
}
