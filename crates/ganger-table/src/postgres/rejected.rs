//! The search for rows that the database refuses to have claimed or dead-lettered: the rows that a claim
//! would change are tried in parts.

use tokio_postgres::Error;
use tokio_postgres::types::ToSql;

use super::client::{Client, Statement};
use super::error::{fault, sentence};
use super::settle::{Statements, bury, now_ms};
use crate::rules::ROWS_PER_TURN_MAX;
use crate::server::rejected::{self, Candidate, tell};
use crate::table::Claim;
use ganger_queue::attempts::Limits;
use ganger_queue::delivery::Failure;

/// Maximum bytes of a row in a result of the server.
const ROW_BYTES_MAX: i64 = 1000 << 20;

/// Some of the rows that are not claimed: whether a claim would dead-letter them, and their sizes.
macro_rules! candidates {
    ($which:expr) => {
        concat!(
            "
SELECT id, crashes >= $3 OR lapses >= $4 OR json_typeof(headers) <> 'object',
  coalesce(octet_length(body), octet_length(body_bytes))::bigint + octet_length(headers::text)
FROM consumer_messages
WHERE queue = $1 AND owner IS NULL AND id <> ALL($2::bigint[]) AND ",
            $which,
            " LIMIT $5 FOR UPDATE SKIP LOCKED"
        )
    };
}

/// Rows that a claim would take or make ready: the next ones, suspects, and due ones.
const CANDIDATES: [&str; 3] = [
    candidates!("available_after = 0 AND suspicion = 0 ORDER BY priority DESC, id"),
    candidates!("available_after = 0 AND suspicion > 0 ORDER BY suspicion, priority DESC, id"),
    candidates!(concat!(
        "available_after > 0 AND available_after <= ",
        now_ms!(),
        " ORDER BY available_after"
    )),
];

const TRY: &str = "
UPDATE consumer_messages SET available_after = 0, owner = 0, claim = $2 WHERE id = ANY($1::bigint[])";

/// Token of a claim that is rolled back at once.
const TOKEN: i64 = 1;

/// Tries to change the next rows, and rolls that back. Returns the rows that are permanently refused.
pub(super) async fn refused(
    client: &Client,
    statements: &Statements,
    queue: &str,
    limits: Limits,
    known: &[i64],
) -> Result<Vec<i64>, Error> {
    client.begin().await?;
    let refused = tried(client, statements, queue, limits, known).await;
    client.roll_back().await?;
    refused
}

async fn tried(
    client: &Client,
    statements: &Statements,
    queue: &str,
    limits: Limits,
    known: &[i64],
) -> Result<Vec<i64>, Error> {
    let (crashes, lapses) = (limits.crashes_max.max(1), limits.lapses_max);
    let (crashes, lapses) = (i64::from(crashes), i64::from(lapses));
    let most = i64::from(ROWS_PER_TURN_MAX);
    let values: [&(dyn ToSql + Sync); 5] = [&queue, &known, &crashes, &lapses, &most];
    let (mut candidates, mut too_large) = (Vec::new(), Vec::new());
    for some in CANDIDATES {
        for found in client.query(some, &values).await? {
            let (row, is_dead): (i64, bool) = (found.try_get(0)?, found.try_get(1)?);
            if found.try_get::<_, i64>(2)? >= ROW_BYTES_MAX {
                tell(row, "it is larger than PostgreSQL can return");
                too_large.push(row);
            } else {
                candidates.push(Candidate { row, is_dead });
            }
        }
    }
    let mark = client.prepare(TRY).await?;
    let refusal = async |some: &[Candidate]| refusal(client, statements, &mark, some).await;
    let mut refused = rejected::refused(&candidates, refusal).await?;
    refused.append(&mut too_large);
    Ok(refused)
}

/// Returns the database's error for these rows, if it refuses them.
async fn refusal(
    client: &Client,
    statements: &Statements,
    mark: &Statement,
    some: &[Candidate],
) -> Result<Option<String>, Error> {
    client.batch_execute("SAVEPOINT part").await?;
    let refusal = match try_some(client, statements, mark, some).await {
        Err(error) if fault(&error).is_permanent => Some(sentence(&error)),
        tried => {
            tried?;
            None
        }
    };
    client.batch_execute("ROLLBACK TO SAVEPOINT part").await?;
    Ok(refusal)
}

async fn try_some(
    client: &Client,
    statements: &Statements,
    mark: &Statement,
    some: &[Candidate],
) -> Result<(), Error> {
    let rows: Vec<i64> = some.iter().map(|one| one.row).collect();
    client.execute(mark, &[&rows, &TOKEN]).await?;
    let failure = Failure::default();
    let claim = |row: i64| Claim { row, token: TOKEN };
    let dead = some.iter().filter(|one| one.is_dead);
    let dead: Vec<_> = dead.map(|one| (claim(one.row), &failure)).collect();
    bury(client, statements, "", &dead, false).await?;
    Ok(())
}
