//! A raw loop for comparison: a queue in the same tables is claimed and completed in batches, without
//! workers, owners, delays or any other feature. One transaction removes the batch that is done and claims
//! the next, with the same statements and the same durability as ganger's.

use ganger_queue::delivery::Headers;
use miette::IntoDiagnostic;
use rusqlite::{Connection, Row, Transaction, TransactionBehavior, params};
use tokio::time::Instant;

use crate::common::figures::Run;
use crate::common::machine::cpu_seconds;
use crate::queue::{Load, QueueFile};

/// Number of messages in a transaction.
const BATCH: i64 = 50;

const QUEUE: &str = "bench-0";

const NEXT: &str = "
SELECT id, attempts, crashes, lapses, requeues, suspect, priority, created_at,
       correlation_id, reply_to, message_id, content_type, key, headers, body
FROM consumer_messages INDEXED BY consumer_messages_ready
WHERE suspicion = 0 AND queue = ?1 AND owner IS NULL AND available_after = 0
ORDER BY priority DESC, id LIMIT ?2";

const MARK: &str = "
UPDATE consumer_messages
SET owner = ?2, claim = ?3, claim_alone = ?4, attempts = max(attempts, 0) + 1 WHERE id = ?1";

const DELETE: &str = "DELETE FROM consumer_messages WHERE id = ?1 AND claim = ?2";

/// Measures the throughput of claiming and completing a load.
pub(crate) fn measure(load: Load) -> miette::Result<Run> {
    let queue = QueueFile::create()?;
    queue.fill(&[QUEUE.to_owned()], load)?;
    queue.checkpoint()?;
    let mut conn = queue.connect()?;
    let cpu = cpu_seconds("self")?;
    let begun = Instant::now();
    work_off(&mut conn).into_diagnostic()?;
    let seconds = begun.elapsed().as_secs_f64();
    Ok(Run {
        messages: load.messages,
        seconds,
        cpu_seconds: cpu_seconds("self")? - cpu,
    })
}

/// A claimed row, with the data that a worker would be sent.
struct Claimed {
    id: i64,
    claim: i64,
    _headers: Headers,
    _body: Vec<u8>,
}

fn work_off(conn: &mut Connection) -> rusqlite::Result<()> {
    let mut done = Vec::new();
    loop {
        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        complete(&tx, &done)?;
        let claimed = claim(&tx)?;
        tx.commit()?;
        if claimed.is_empty() {
            return Ok(());
        }
        done = claimed;
    }
}

fn complete(tx: &Transaction<'_>, done: &[Claimed]) -> rusqlite::Result<()> {
    let mut delete = tx.prepare_cached(DELETE)?;
    for Claimed { id, claim, .. } in done {
        delete.execute([id, claim])?;
    }
    Ok(())
}

fn claim(tx: &Transaction<'_>) -> rusqlite::Result<Vec<Claimed>> {
    let mut next = tx.prepare_cached(NEXT)?;
    let rows = next.query_map(params![QUEUE, BATCH], read)?;
    let claimed: Vec<Claimed> = rows.collect::<Result<_, _>>()?;
    let mut mark = tx.prepare_cached(MARK)?;
    for Claimed { id, claim, .. } in &claimed {
        mark.execute(params![id, 1, claim, false])?;
    }
    Ok(claimed)
}

fn read(row: &Row<'_>) -> rusqlite::Result<Claimed> {
    Ok(Claimed {
        id: row.get(0)?,
        claim: fastrand::i64(1..),
        _headers: Headers::new(),
        _body: row.get_ref(14)?.as_bytes()?.to_vec(),
    })
}
