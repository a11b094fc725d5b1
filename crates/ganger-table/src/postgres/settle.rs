//! Effects of settlements on their rows: one statement for all settlements of a kind, each row fenced by
//! the claim's token. A row that is no longer claimed under it is not changed, and no reply is published
//! for it.

use std::borrow::Cow;
use std::collections::HashSet;
use std::time::Duration;

use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};

use super::client::{Client, Statement};
use super::columns::{Columns, DeadLetterColumns, parted};
use crate::rules::error_text;
use crate::server::delays::delay_ms;
use crate::table::{Claim, Settled};
use ganger_queue::delivery::{Failure, Outcome, Outgoing};

/// Now by the server's clock, in milliseconds, rounded down, so that nothing is due early. As a subquery
/// it is evaluated once for each statement, and its value can be searched in an index. The function
/// alone is volatile: the server would read the whole index and compare each row.
macro_rules! now_ms {
    () => {
        "(SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)"
    };
}
pub(crate) use now_ms;

/// Time at which a message with that delay, in milliseconds, falls due, rounded up so that it is never
/// early. 0 without a delay, so that a clock that is set back hides no message that was never delayed.
macro_rules! available_after {
    ($delay:literal) => {
        concat!(
            "CASE WHEN ",
            $delay,
            " = 0 THEN 0 ELSE \
             ceil(extract(epoch FROM clock_timestamp()) * 1000)::bigint + ",
            $delay,
            " END"
        )
    };
}
pub(super) use available_after;

/// Condition that an id is that of the other side of a join. With a plain comparison the server could
/// read the whole table in the order of ids and join each row, if its statistics say that the table is
/// nearly empty, as they do if the queue was when they were taken. With this it can only look up each
/// id.
macro_rules! is_row {
    ($id:literal) => {
        concat!("= ANY(ARRAY[", $id, "])")
    };
}
pub(crate) use is_row;

const DONE: &str = concat!(
    "
DELETE FROM consumer_messages m
USING unnest($1::bigint[], $2::bigint[]) AS s(id, token)
WHERE m.id ",
    is_row!("s.id"),
    " AND m.claim = s.token
RETURNING s.token"
);

const PUBLISH: &str = concat!("
INSERT INTO consumer_messages (queue, body, body_bytes, headers, correlation_id, reply_to, message_id,
  content_type, key, priority, available_after)
SELECT p.queue, p.body, p.bytes, p.headers::json, p.correlation_id, p.reply_to, p.message_id,
  p.content_type, p.key, p.priority, ", available_after!("p.delay"), "
FROM unnest($1::text[], $2::text[], $3::bytea[], $4::text[], $5::text[], $6::text[], $7::text[],
  $8::text[], $9::text[], $10::integer[], $11::bigint[]) WITH ORDINALITY
  AS p(queue, body, bytes, headers, correlation_id, reply_to, message_id, content_type, key, priority,
    delay, place)
ORDER BY p.place");

/// Removes rows and inserts their replies, if the rows were still claimed under the same token.
const REPLY: &str = concat!("
WITH replies AS (
  SELECT * FROM unnest($1::text[], $2::text[], $3::bytea[], $4::text[], $5::text[], $6::text[],
    $7::text[], $8::text[], $9::text[], $10::integer[], $11::bigint[], $12::bigint[], $13::bigint[])
    AS p(queue, body, bytes, headers, correlation_id, reply_to, message_id, content_type, key, priority,
      delay, id, token)),
gone AS (
  DELETE FROM consumer_messages m USING replies p
  WHERE m.id ", is_row!("p.id"), " AND m.claim = p.token RETURNING p.token),
sent AS (
  INSERT INTO consumer_messages (queue, body, body_bytes, headers, correlation_id, reply_to,
    message_id, content_type, key, priority, available_after)
  SELECT p.queue, p.body, p.bytes, p.headers::json, p.correlation_id, p.reply_to, p.message_id,
    p.content_type, p.key, p.priority, ", available_after!("p.delay"), "
  FROM replies p JOIN gone USING (token) ORDER BY p.id)
SELECT token FROM gone");

/// The worker has answered, so the row is no longer a suspect.
const LATER: &str = concat!(
    "
UPDATE consumer_messages m SET
  owner = NULL, claim = NULL, lapses = 0, suspect = 0, attempts = greatest(attempts - 1, 0),
  requeues = least(requeues, 4294967294) + s.requeued,
  available_after = ",
    available_after!("s.delay"),
    ", span = coalesce(s.span, m.span)
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[])
  AS s(id, token, delay, requeued, span)
WHERE m.id ",
    is_row!("s.id"),
    " AND m.claim = s.token
RETURNING s.token"
);

/// No worker has answered, so the suspicion stays.
const RETURN: &str = concat!(
    "
UPDATE consumer_messages m SET
  owner = NULL, claim = NULL, attempts = greatest(attempts - 1, 0),
  suspect = greatest(m.suspect, s.suspect), span = coalesce(s.span, m.span)
FROM unnest($1::bigint[], $2::bigint[], $3::smallint[], $4::text[]) AS s(id, token, suspect, span)
WHERE m.id ",
    is_row!("s.id"),
    " AND m.claim = s.token
RETURNING s.token"
);

const RETRY: &str = concat!(
    "
UPDATE consumer_messages m SET
  owner = NULL, claim = NULL, lapses = 0, suspect = 0, requeues = 0,
  crashes = least(crashes, 4294967294) + s.crash,
  available_after = ",
    available_after!("s.delay"),
    ",
  last_error = s.error, first_failed_at = coalesce(first_failed_at, ",
    now_ms!(),
    "),
  span = coalesce(s.span, m.span)
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[], $6::text[])
  AS s(id, token, delay, crash, error, span)
WHERE m.id ",
    is_row!("s.id"),
    " AND m.claim = s.token
RETURNING s.token"
);

/// Moves the rows as they are to the dead letters. A settled failure adds its crash; one found at the
/// claim was counted before, and that claim does not count as an attempt.
const BURY: &str = concat!("
WITH letters AS (
  SELECT * FROM unnest($2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::bigint[], $7::bigint[],
    $8::integer[], $9::integer[], $10::smallint[], $11::text[], $12::text[], $13::text[],
    $14::bytea[], $15::text[])
    AS l(id, token, reason, error, crash, uncharged, code, signal, oom, stderr, reply_queue,
      reply_body, reply_bytes, reply_headers)),
gone AS (
  DELETE FROM consumer_messages m USING letters l
  WHERE m.id ", is_row!("l.id"), " AND m.claim = l.token RETURNING m.*),
buried AS (
  INSERT INTO poisoned_messages (pool, queue, reason, error, attempts, crashes, lapses, exit_code,
    signal, oom, stderr, first_failed_at, last_failed_at, body, body_bytes, headers, correlation_id,
    reply_to, message_id, content_type, key, priority, created_at, unique_key, unique_scope,
    unique_until, row_id, reply_queue, reply_body, reply_body_bytes, reply_headers)
  SELECT $1::text, gone.queue, l.reason, l.error, greatest(gone.attempts - l.uncharged, 0),
    least(gone.crashes, 4294967294) + l.crash, gone.lapses, l.code, l.signal, l.oom, l.stderr::json,
    coalesce(gone.first_failed_at, ", now_ms!(), "), ", now_ms!(), ", gone.body, gone.body_bytes,
    gone.headers, gone.correlation_id, gone.reply_to, gone.message_id, gone.content_type, gone.key,
    gone.priority, gone.created_at, gone.unique_key, gone.unique_scope, gone.unique_until,
    gone.id, l.reply_queue, l.reply_body, l.reply_bytes, l.reply_headers::json
  FROM gone JOIN letters l ON l.token = gone.claim ORDER BY gone.id)
SELECT claim FROM gone");

/// Those of the given rows that others have locked.
const LOCKED: &str = "
WITH free AS (
  SELECT id FROM consumer_messages WHERE id = ANY($1::bigint[]) FOR UPDATE SKIP LOCKED)
SELECT id FROM consumer_messages WHERE id = ANY($1::bigint[]) AND id NOT IN (SELECT id FROM free)";

/// Locks rows, and reads their claims.
const HELD: &str = "
SELECT id, claim FROM consumer_messages WHERE id = ANY($1::bigint[]) ORDER BY id FOR UPDATE";

/// The statements, prepared on a connection.
#[derive(Debug)]
pub(crate) struct Statements {
    done: Statement,
    publish: Statement,
    reply: Statement,
    later: Statement,
    back: Statement,
    retry: Statement,
    bury: Statement,
}

impl Statements {
    pub(crate) async fn prepare(client: &Client) -> Result<Self, Error> {
        let prepared = client.as_one(async {
            tokio::try_join!(
                client.prepare(DONE),
                client.prepare(PUBLISH),
                client.prepare(REPLY),
                client.prepare(LATER),
                client.prepare(RETURN),
                client.prepare(RETRY),
                client.prepare(BURY),
            )
        });
        let (done, publish, reply, later, back, retry, bury) = prepared.await?;
        Ok(Self {
            done,
            publish,
            reply,
            later,
            back,
            retry,
            bury,
        })
    }
}

/// Settlements by their kind, each kind in the order of the rows, so that two transactions with the same
/// rows can't deadlock.
#[derive(Debug, Default)]
pub(crate) struct Sorted<'a> {
    done: Vec<Claim>,
    replies: Vec<(Claim, &'a Outgoing)>,
    later: Vec<Later>,
    back: Vec<(Claim, bool, Option<String>)>,
    retries: Vec<(Claim, Later, &'a Failure)>,
    dead_letters: Vec<(Claim, &'a Failure)>,
}

#[derive(Debug)]
struct Later {
    claim: Claim,
    delay: Duration,
    requeued: bool,
    span: Option<String>,
}

impl<'a> Sorted<'a> {
    pub(crate) fn of(settled: &'a [Settled]) -> Self {
        let mut by_row: Vec<&Settled> = settled.iter().collect();
        by_row.sort_unstable_by_key(|settled| settled.claim.row);
        let mut sorted = Self::default();
        for settled in by_row {
            sorted.add(settled);
        }
        sorted
    }

    fn add(&mut self, settled: &'a Settled) {
        let claim = settled.claim;
        let span = settled.span.map(|span| span.to_string());
        let later = |delay: &Duration, requeued, span| Later {
            claim,
            delay: *delay,
            requeued,
            span,
        };
        match &settled.outcome {
            Outcome::Done => self.done.push(claim),
            Outcome::Reply(reply) => self.replies.push((claim, reply)),
            Outcome::Requeue { after } => self.later.push(later(after, true, span)),
            Outcome::ReturnAfter { delay } => self.later.push(later(delay, false, span)),
            Outcome::Return { suspect } => self.back.push((claim, *suspect, span)),
            Outcome::RetryAfter { delay, failure } => {
                self.retries
                    .push((claim, later(delay, false, span), failure));
            }
            Outcome::DeadLetter(failure) => self.dead_letters.push((claim, failure)),
        }
    }
}

/// Applies settlements: one statement for each kind, sent one after the other without waiting. Returns
/// the tokens of the rows that were still claimed under them.
pub(crate) async fn settle(
    client: &Client,
    statements: &Statements,
    pool: &str,
    sorted: &Sorted<'_>,
) -> Result<Vec<i64>, Error> {
    let (done, replied, later, back, retried, buried) = tokio::join!(
        biased;
        finish(client, &statements.done, &sorted.done),
        reply(client, &statements.reply, &sorted.replies),
        put_off(client, &statements.later, &sorted.later),
        give_back(client, &statements.back, &sorted.back),
        retry(client, &statements.retry, &sorted.retries),
        bury(client, statements, pool, &sorted.dead_letters, true),
    );
    // The first error has caused the others.
    let all = [done?, replied?, later?, back?, retried?, buried?];
    Ok(all.concat())
}

async fn hit(
    client: &Client,
    statement: &Statement,
    values: &[&(dyn ToSql + Sync)],
) -> Result<Vec<i64>, Error> {
    numbers(&client.query(statement, values).await?)
}

fn numbers(rows: &[Row]) -> Result<Vec<i64>, Error> {
    rows.iter().map(|row| row.try_get(0)).collect()
}

/// Returns those of the rows that can't be settled now, since somebody has locked them.
pub(super) async fn locked(client: &Client, rows: &[i64]) -> Result<Vec<i64>, Error> {
    numbers(&client.query(LOCKED, &[&rows]).await?)
}

/// Locks the rows of these claims. Returns those claims that are still held.
pub(super) async fn held(client: &Client, claims: &[Claim]) -> Result<HashSet<Claim>, Error> {
    let rows: Vec<i64> = claims.iter().map(|claim| claim.row).collect();
    let mut held = HashSet::new();
    for row in client.query(HELD, &[&rows]).await? {
        if let Some(token) = row.try_get(1)? {
            let row = row.try_get(0)?;
            held.insert(Claim { row, token });
        }
    }
    Ok(held)
}

async fn finish(
    client: &Client,
    statement: &Statement,
    claims: &[Claim],
) -> Result<Vec<i64>, Error> {
    if claims.is_empty() {
        return Ok(Vec::new());
    }
    let (ids, tokens) = parted(claims.iter().copied());
    hit(client, statement, &[&ids, &tokens]).await
}

async fn reply(
    client: &Client,
    statement: &Statement,
    replies: &[(Claim, &Outgoing)],
) -> Result<Vec<i64>, Error> {
    if replies.is_empty() {
        return Ok(Vec::new());
    }
    let (ids, tokens) = parted(replies.iter().map(|(claim, _)| *claim));
    let columns = Columns::of(replies.iter().map(|(_, reply)| *reply));
    let mut values = columns.values();
    values.extend::<[&(dyn ToSql + Sync); 2]>([&ids, &tokens]);
    hit(client, statement, &values).await
}

async fn put_off(
    client: &Client,
    statement: &Statement,
    later: &[Later],
) -> Result<Vec<i64>, Error> {
    if later.is_empty() {
        return Ok(Vec::new());
    }
    let (ids, tokens) = parted(later.iter().map(|later| later.claim));
    let delays: Vec<i64> = later.iter().map(|later| delay_ms(later.delay)).collect();
    let requeued: Vec<i64> = later.iter().map(|later| later.requeued.into()).collect();
    let spans: Vec<Option<&str>> = later.iter().map(|later| later.span.as_deref()).collect();
    hit(
        client,
        statement,
        &[&ids, &tokens, &delays, &requeued, &spans],
    )
    .await
}

async fn give_back(
    client: &Client,
    statement: &Statement,
    back: &[(Claim, bool, Option<String>)],
) -> Result<Vec<i64>, Error> {
    if back.is_empty() {
        return Ok(Vec::new());
    }
    let (ids, tokens) = parted(back.iter().map(|(claim, _, _)| *claim));
    let suspects: Vec<i16> = back
        .iter()
        .map(|(_, suspect, _)| (*suspect).into())
        .collect();
    let spans: Vec<Option<&str>> = back.iter().map(|(_, _, span)| span.as_deref()).collect();
    hit(client, statement, &[&ids, &tokens, &suspects, &spans]).await
}

async fn retry(
    client: &Client,
    statement: &Statement,
    retries: &[(Claim, Later, &Failure)],
) -> Result<Vec<i64>, Error> {
    if retries.is_empty() {
        return Ok(Vec::new());
    }
    let (ids, tokens) = parted(retries.iter().map(|(claim, _, _)| *claim));
    let delays = retries.iter().map(|(_, later, _)| delay_ms(later.delay));
    let delays: Vec<i64> = delays.collect();
    let crashes = retries
        .iter()
        .map(|(_, _, failure)| failure.reason.is_crash().into());
    let crashes: Vec<i64> = crashes.collect();
    let errors = retries.iter().map(|(_, _, failure)| error_text(failure));
    let errors: Vec<Cow<'_, str>> = errors.collect();
    let spans = retries.iter().map(|(_, later, _)| later.span.as_deref());
    let spans: Vec<Option<&str>> = spans.collect();
    let values: [&(dyn ToSql + Sync); 6] = [&ids, &tokens, &delays, &crashes, &errors, &spans];
    hit(client, statement, &values).await
}

/// Moves claimed rows to the dead letters. `tried` is false if the failure was found at the claim.
/// Returns the tokens of the rows that were still claimed under them.
pub(crate) async fn bury(
    client: &Client,
    statements: &Statements,
    pool: &str,
    letters: &[(Claim, &Failure)],
    tried: bool,
) -> Result<Vec<i64>, Error> {
    if letters.is_empty() {
        return Ok(Vec::new());
    }
    let (ids, tokens) = parted(letters.iter().map(|(claim, _)| *claim));
    let columns = DeadLetterColumns::of(letters.iter().map(|(_, failure)| *failure), tried);
    let mut values: Vec<&(dyn ToSql + Sync)> = vec![&pool, &ids, &tokens];
    values.extend(columns.values());
    hit(client, &statements.bury, &values).await
}

/// Inserts messages, in their order.
pub(crate) async fn publish(
    client: &Client,
    statements: &Statements,
    messages: impl Iterator<Item = &Outgoing>,
) -> Result<(), Error> {
    let columns = Columns::of(messages);
    if !columns.is_empty() {
        client
            .execute(&statements.publish, &columns.values())
            .await?;
    }
    Ok(())
}
