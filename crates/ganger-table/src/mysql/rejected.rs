//! The search for rows that the database refuses to have claimed or dead-lettered: the rows that a claim
//! would change are tried in parts.

use super::client::Client;
use super::error::{CallError, fault, sentence};
use super::settle;
use super::transaction::roll_back_unless;
use super::value::{Value, now_ms};
use crate::rules::ROWS_PER_TURN_MAX;
use crate::server::rejected::{self, Candidate};
use ganger_queue::attempts::Limits;
use ganger_queue::delivery::Failure;

/// Some of the rows that are not claimed, by the index for claims.
macro_rules! candidates {
    ($which:expr) => {
        concat!(
            "
SELECT id, crashes >= ? OR lapses >= ? OR JSON_TYPE(headers) <> 'OBJECT'
FROM consumer_messages FORCE INDEX (consumer_messages_ready)
WHERE queue = ? AND owner IS NULL AND id NOT IN ? AND ",
            $which,
            " LIMIT ? FOR UPDATE SKIP LOCKED"
        )
    };
}

/// Rows that a claim would take or make ready: the next ones, suspects, and due ones. The range with two
/// equal bounds keeps the order of the index, as in a claim.
const CANDIDATES: [&str; 3] = [
    candidates!(
        "available_after = 0 AND suspicion >= 0 AND suspicion <= 0 ORDER BY suspicion, turn, id"
    ),
    candidates!("available_after = 0 AND suspicion > 0 ORDER BY suspicion, turn, id"),
    candidates!(concat!(
        "available_after > 0 AND available_after <= ",
        now_ms!(),
        " ORDER BY available_after"
    )),
];

const TRY: &str = "
UPDATE consumer_messages FORCE INDEX (PRIMARY) SET available_after = 0, owner = 0, claim = 1
WHERE id IN ?";

/// Tries to change the next rows, and rolls that back. Returns the rows that are permanently refused.
pub(super) async fn refused(
    client: &mut Client,
    queue: &str,
    limits: Limits,
    known: &[i64],
) -> Result<Vec<i64>, CallError> {
    client.begin().await?;
    let refused = tried(client, queue, limits, known).await;
    let refused = roll_back_unless(client, refused).await?;
    client.roll_back().await?;
    Ok(refused)
}

async fn tried(
    client: &mut Client,
    queue: &str,
    limits: Limits,
    known: &[i64],
) -> Result<Vec<i64>, CallError> {
    let values = [
        limits.crashes_max.max(1).into(),
        limits.lapses_max.into(),
        queue.into(),
        Value::from(known),
        ROWS_PER_TURN_MAX.into(),
    ];
    let mut script = client.script();
    for some in CANDIDATES {
        script.add(some, &values);
    }
    let mut candidates = Vec::new();
    for row in client.run(script).await?.iter().flat_map(|some| &some.rows) {
        candidates.push(Candidate {
            row: row.get(0)?,
            is_dead: row.get::<i64>(1)? != 0,
        });
    }
    rejected::refused(&candidates, async |some| refusal(client, some).await).await
}

/// Returns the database's error for these rows, if it refuses them.
async fn refusal(client: &mut Client, some: &[Candidate]) -> Result<Option<String>, CallError> {
    client.batch_execute("SAVEPOINT part").await?;
    let refusal = match try_some(client, some).await {
        Err(error) if fault(&error).is_permanent => Some(sentence(&error)),
        tried => {
            tried?;
            None
        }
    };
    client.batch_execute("ROLLBACK TO SAVEPOINT part").await?;
    Ok(refusal)
}

async fn try_some(client: &mut Client, some: &[Candidate]) -> Result<(), CallError> {
    let rows: Vec<i64> = some.iter().map(|one| one.row).collect();
    let mut script = client.script();
    script.add(TRY, &[Value::from(&rows)]);
    let failure = Failure::default();
    let dead = some.iter().filter(|one| one.is_dead);
    let dead: Vec<_> = dead.map(|one| (one.row, &failure)).collect();
    settle::bury(&mut script, "", &dead, false);
    client.run(script).await.map(drop)
}
