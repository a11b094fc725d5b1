//! Effects of settlements on their rows. First the rows are locked, and their claims compared; then one
//! statement removes all finished rows, and each other row has a statement of its own, all sent
//! together. A row that is no longer claimed under the same token is not changed, and no reply is
//! published for it.

use std::collections::HashSet;
use std::time::Duration;

use super::client::{Answer, Client};
use super::columns::{Sent, message, message_values};
use super::error::CallError;
use super::value::{Script, Value, now_ms};
use crate::rules::{error_text, texts};
use crate::server::delays::delay_ms;
use crate::table::{Claim, Settled, headers};
use ganger_queue::delivery::{Failure, Outcome, Outgoing};

/// Locks rows in the order of their ids, so that two transactions with the same rows can't deadlock.
const HELD: &str = "
SELECT id, claim FROM consumer_messages FORCE INDEX (PRIMARY) WHERE id IN ? ORDER BY id FOR UPDATE";

/// Rows that exist, and those of them that are not locked.
const THERE: &str = "
SELECT id FROM consumer_messages FORCE INDEX (PRIMARY) WHERE id IN ?";
const FREE: &str = "
SELECT id FROM consumer_messages FORCE INDEX (PRIMARY) WHERE id IN ? ORDER BY id FOR UPDATE SKIP LOCKED";

const DELETE: &str = "
DELETE m FROM consumer_messages AS m FORCE INDEX (PRIMARY) WHERE m.id IN ?";

const PUBLISH: &str = concat!(
    "
INSERT INTO consumer_messages (queue, ",
    message!(),
    ") VALUES "
);
const PUBLISHED: &str = concat!("(?, ", message_values!(), ")");

/// The worker has answered, so the row is no longer a suspect.
const LATER: &str = "
UPDATE consumer_messages FORCE INDEX (PRIMARY) SET
  owner = NULL, claim = NULL, lapses = 0, suspect = 0, attempts = GREATEST(attempts - 1, 0),
  requeues = LEAST(requeues, 4294967294) + ?, available_after = ?, span = COALESCE(?, span)
WHERE id = ?";

/// No worker has answered, so the suspicion stays.
const RETURN: &str = "
UPDATE consumer_messages FORCE INDEX (PRIMARY) SET
  owner = NULL, claim = NULL, attempts = GREATEST(attempts - 1, 0), suspect = GREATEST(suspect, ?),
  span = COALESCE(?, span)
WHERE id = ?";

const RETRY: &str = concat!(
    "
UPDATE consumer_messages FORCE INDEX (PRIMARY) SET
  owner = NULL, claim = NULL, lapses = 0, suspect = 0, requeues = 0,
  crashes = LEAST(crashes, 4294967294) + ?, available_after = ?, last_error = ?,
  first_failed_at = COALESCE(first_failed_at, ",
    now_ms!(),
    "), span = COALESCE(?, span)
WHERE id = ?"
);

/// Copies the row as it is to the dead letters. A settled failure adds its crash; one found at the claim
/// was counted before, and that claim does not count as an attempt.
const BURY: &str = concat!(
    "
INSERT INTO poisoned_messages (pool, queue, reason, error, attempts, crashes, lapses, exit_code,
  `signal`, oom, stderr, first_failed_at, last_failed_at, body, headers, correlation_id, reply_to,
  message_id, content_type, `key`, priority, created_at, unique_key, unique_scope, unique_until,
  row_id, reply_queue, reply_body, reply_headers)
SELECT ?, queue, ?, ?, GREATEST(attempts - ?, 0), LEAST(crashes, 4294967294) + ?, lapses, ?,
  ?, ?, ?, COALESCE(first_failed_at, ",
    now_ms!(),
    "), ",
    now_ms!(),
    ", body, headers, correlation_id, reply_to,
  message_id, content_type, `key`, priority, created_at, unique_key, unique_scope, unique_until,
  id, ?, ?, ?
FROM consumer_messages FORCE INDEX (PRIMARY) WHERE id = ?"
);

/// Locks the rows of these claims, and reads their current tokens. Returns the position of the answer.
pub(super) fn hold(script: &mut Script, claims: impl Iterator<Item = Claim>) -> Option<usize> {
    let rows: Vec<i64> = claims.map(|claim| claim.row).collect();
    (!rows.is_empty()).then(|| script.add(HELD, &[Value::from(&rows)]))
}

/// Returns the current claims of the locked rows.
pub(super) fn held(answer: &Answer) -> Result<HashSet<Claim>, CallError> {
    let mut held = HashSet::with_capacity(answer.rows.len());
    for row in &answer.rows {
        if let Some(token) = row.get::<Option<i64>>(1)? {
            let row = row.get(0)?;
            held.insert(Claim { row, token });
        }
    }
    Ok(held)
}

/// Returns those of the rows that can't be settled now, since somebody has locked them.
pub(super) async fn locked(client: &mut Client, rows: &[i64]) -> Result<Vec<i64>, CallError> {
    let mut script = client.script();
    let rows = Value::from(rows);
    let (there, free) = (script.add(THERE, &[rows]), script.add(FREE, &[rows]));
    let answers = client.run(script).await?;
    let free: HashSet<i64> = numbers(&answers[free])?;
    let mut locked: Vec<i64> = numbers(&answers[there])?;
    locked.retain(|row| !free.contains(row));
    Ok(locked)
}

pub(super) fn numbers<T: FromIterator<i64>>(answer: &Answer) -> Result<T, CallError> {
    answer.rows.iter().map(|row| row.get(0)).collect()
}

/// Applies settlements to rows whose claims were confirmed.
pub(super) fn settle<'a>(
    script: &mut Script,
    pool: &str,
    settled: impl Iterator<Item = &'a Settled>,
) {
    let (mut gone, mut replies, mut letters) = (Vec::new(), Vec::new(), Vec::new());
    for settled in settled {
        let row = settled.claim.row;
        let span = settled.span.map(|span| span.to_string());
        let span = Value::from(span.as_deref());
        let mut later = |delay: Duration, requeued: bool| {
            let delay = Value::Later(delay_ms(delay));
            script.add(LATER, &[requeued.into(), delay, span, row.into()]);
        };
        match &settled.outcome {
            Outcome::Done => gone.push(row),
            Outcome::Reply(reply) => {
                gone.push(row);
                replies.push(reply.as_ref());
            }
            Outcome::Requeue { after } => later(*after, true),
            Outcome::ReturnAfter { delay } => later(*delay, false),
            Outcome::Return { suspect } => {
                script.add(RETURN, &[(*suspect).into(), span, row.into()]);
            }
            Outcome::RetryAfter { delay, failure } => {
                let error = error_text(failure);
                let values = [
                    failure.reason.is_crash().into(),
                    Value::Later(delay_ms(*delay)),
                    error.as_ref().into(),
                    span,
                    row.into(),
                ];
                script.add(RETRY, &values);
            }
            Outcome::DeadLetter(failure) => letters.push((row, failure.as_ref())),
        }
    }
    publish(script, replies.into_iter());
    bury(script, pool, &letters, true);
    remove(script, &gone);
}

fn remove(script: &mut Script, rows: &[i64]) {
    if !rows.is_empty() {
        script.add(DELETE, &[rows.into()]);
    }
}

/// Moves locked rows to the dead letters. `tried` is false if the failure was found at the claim.
pub(super) fn bury(script: &mut Script, pool: &str, letters: &[(i64, &Failure)], tried: bool) {
    for (row, failure) in letters {
        write_dead_letter(script, pool, *row, failure, tried);
    }
    let rows: Vec<i64> = letters.iter().map(|(row, _)| *row).collect();
    remove(script, &rows);
}

fn write_dead_letter(script: &mut Script, pool: &str, row: i64, failure: &Failure, tried: bool) {
    let texts = texts(failure);
    let exit = failure.exit.unwrap_or_default();
    let reply = failure.reply.as_deref();
    let headers = reply.map(|reply| headers::json(&reply.headers));
    let values = [
        pool.into(),
        failure.reason.as_str().into(),
        texts.error.as_ref().into(),
        (!tried).into(),
        (tried && failure.reason.is_crash()).into(),
        exit.code.into(),
        exit.signal.into(),
        exit.oom.into(),
        Value::from(&texts.stderr),
        texts.reply_queue.as_deref().into(),
        reply.map(|reply| reply.body.as_ref()).into(),
        headers.as_deref().into(),
        row.into(),
    ];
    script.add(BURY, &values);
}

/// Inserts messages, in their order.
pub(super) fn publish<'a>(script: &mut Script, messages: impl Iterator<Item = &'a Outgoing>) {
    let sent: Vec<_> = messages.map(Sent::of).collect();
    script.add_rows(PUBLISH, PUBLISHED, sent.iter().map(Sent::values));
}
