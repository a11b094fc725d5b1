//! Entries of finished messages, in MySQL and MariaDB: written in the open transaction, and looked up.

use std::collections::HashMap;

use bytes::Bytes;

use super::client::Client;
use super::error::CallError;
use super::row::Row;
use super::value::{Script, Value, now_ms};
use crate::rules::{bytes, fitting_together};
use crate::server::delays::delay_ms;
use crate::table::finished::{Entry, Found, Scope, StoredEntry};
use crate::table::headers;
use ganger_queue::delivery::Identity;

/// Maximum bytes of a statement; a single larger entry has one of its own.
const STATEMENT_BYTES: usize = 1 << 20;

const ENTER: &str = "
INSERT INTO finished_messages (source, queue, `key`, emit_id, step, finished_at, expires_at, token,
  reply_queue, reply_body, reply_headers) VALUES ";

const ENTRY: &str = concat!(
    "(?, ?, ?, ?, ?, ",
    now_ms!(),
    ", ",
    now_ms!(),
    " + ?, ?, ?, ?, ?)"
);

/// Leaves an existing entry as it is, unless it has expired. The assignments run in this order, so the
/// column that decides comes last.
const UNLESS_THERE: &str = "
ON DUPLICATE KEY UPDATE
  token = IF(expires_at <= VALUES(finished_at), VALUES(token), token),
  reply_queue = IF(expires_at <= VALUES(finished_at), VALUES(reply_queue), reply_queue),
  reply_body = IF(expires_at <= VALUES(finished_at), VALUES(reply_body), reply_body),
  reply_headers = IF(expires_at <= VALUES(finished_at), VALUES(reply_headers), reply_headers),
  finished_at = IF(expires_at <= VALUES(finished_at), VALUES(finished_at), finished_at),
  expires_at = IF(expires_at <= VALUES(finished_at), VALUES(expires_at), expires_at)";

/// Looks up each entry by its whole key: a queue may have many entries.
const FIND: &str = concat!(
    "
SELECT queue, `key`, emit_id, step, token, reply_queue, reply_body, reply_headers
FROM finished_messages FORCE INDEX (PRIMARY) WHERE expires_at > ",
    now_ms!(),
    " AND ("
);

const ONE: &str = "(source = ? AND queue = ? AND `key` = ? AND emit_id = ? AND step = ?)";

/// Removes expired entries, up to a number.
pub(super) const EXPIRE: &str = concat!(
    "DELETE FROM finished_messages WHERE expires_at <= ",
    now_ms!(),
    " ORDER BY expires_at LIMIT ?"
);

/// Returns the values of an entry's key.
fn known<'v>(scope: &'v Scope, identity: &'v Identity) -> [Value<'v>; 5] {
    [
        Value::from(&scope.source),
        Value::from(&*identity.queue),
        // Compared byte for byte.
        Value::Bytes(identity.key.as_bytes()),
        Value::Bytes(identity.emit.as_bytes()),
        identity.step.into(),
    ]
}

/// Writes entries in the open transaction. Returns the earlier entries, which stay unchanged.
pub(super) async fn enter(
    client: &mut Client,
    scope: &Scope,
    entries: &[Entry<'_>],
) -> Result<Found, CallError> {
    // Sorted, so that two transactions with the same entries can't deadlock.
    let mut sorted: Vec<&Entry<'_>> = entries.iter().collect();
    sorted.sort_unstable_by_key(|entry| &entry.finished.identity);
    let token = fastrand::i64(..);
    let mut script = client.script();
    let mut left = &sorted[..];
    while !left.is_empty() {
        let sizes = left.iter().map(|entry| 1024 + bytes(entry.outcome));
        let (some, rest) = left.split_at(fitting_together(sizes, STATEMENT_BYTES));
        add_entries(&mut script, scope, some, token);
        left = rest;
    }
    let identities: Vec<&Identity> = entries
        .iter()
        .map(|entry| &entry.finished.identity)
        .collect();
    add_search(&mut script, scope, &identities);
    let answers = client.run(script).await?;
    let rows = answers.iter().flat_map(|answer| &answer.rows);
    let mut found = HashMap::new();
    for row in rows {
        // A row with another token was there before.
        if row.get::<i64>("token")? != token {
            found.insert(identity(row)?, stored_entry(row)?);
        }
    }
    let first = entries.iter().map(|entry| {
        let found = found.remove(&entry.finished.identity);
        entry.first(found)
    });
    Ok(first.collect())
}

fn add_entries(script: &mut Script, scope: &Scope, entries: &[&Entry<'_>], token: i64) {
    let replies = entries.iter().map(|entry| {
        let reply = entry.finished.reply_in(entry.outcome);
        (reply, entry.headers())
    });
    let replies: Vec<_> = replies.collect();
    let values = entries
        .iter()
        .zip(&replies)
        .flat_map(|(entry, (reply, headers))| {
            let reply_queue = reply.and_then(|(queue, _)| queue);
            let body = reply.map_or(Value::Null, |(_, reply)| Value::Bytes(&reply.body));
            let rest = [
                delay_ms(entry.finished.window).into(),
                token.into(),
                reply_queue.into(),
                body,
                Value::from(headers),
            ];
            known(scope, &entry.finished.identity)
                .into_iter()
                .chain(rest)
        });
    let rows = vec![ENTRY; entries.len()].join(", ");
    script.add(
        &format!("{ENTER}{rows}{UNLESS_THERE}"),
        &values.collect::<Vec<_>>(),
    );
}

/// Adds a search for the entry of each, in as many statements as needed.
fn add_search(script: &mut Script, scope: &Scope, identities: &[&Identity]) {
    for some in identities.chunks(500) {
        let each = vec![ONE; some.len()].join(" OR ");
        let values = some.iter().flat_map(|identity| known(scope, identity));
        let values: Vec<_> = values.collect();
        script.add(&format!("{FIND}{each})"), &values);
    }
}

/// Looks up the entry of each.
pub(super) async fn find(
    client: &mut Client,
    scope: &Scope,
    identities: &[&Identity],
) -> Result<Found, CallError> {
    let mut script = client.script();
    add_search(&mut script, scope, identities);
    let answers = client.run(script).await?;
    let rows = answers.iter().flat_map(|answer| &answer.rows);
    let found = rows.map(|row| Ok((identity(row)?, stored_entry(row)?)));
    let mut found: HashMap<_, _> = found.collect::<Result<_, CallError>>()?;
    let identities = identities.iter();
    Ok(identities.map(|identity| found.remove(*identity)).collect())
}

fn identity(row: &Row) -> Result<Identity, CallError> {
    Ok(Identity {
        queue: row.get::<String>("queue")?.into(),
        key: row.get("key")?,
        emit: row.get("emit_id")?,
        step: u32::try_from(row.get::<i64>("step")?).unwrap_or(u32::MAX),
    })
}

fn stored_entry(row: &Row) -> Result<StoredEntry, CallError> {
    let body: Option<Vec<u8>> = row.get("reply_body")?;
    let headers: Option<String> = row.get("reply_headers")?;
    // Only ganger writes them.
    let headers = headers::parse(headers.as_deref().unwrap_or("{}")).unwrap_or_default();
    Ok(StoredEntry::read(
        row.get("reply_queue")?,
        body.map(Bytes::from),
        headers,
    ))
}
