//! Occurrences of a ledger in the database, which follow their messages. What the database refuses about them
//! is logged: messages are never held up by it.

use std::collections::HashSet;

use super::dialect::StatementError;
use super::sql::Sql;
use crate::ledger::change::{CHANGE, Change, EVENT, Effect};
use crate::ledger::failure::KeptFailure;
use crate::ledger::recorded::{RECORD, RecordRow};
use crate::ledger::values::{SqlRow, SqlValue};
use crate::table::{Claim, Settled, Work};
use ganger_queue::delivery::{CANCELLED, Failure, Reason, RecordedEnd};
use ganger_schedule::occurrence::OccurrenceState;

/// Makes a change as far as the tables of every version have columns for it: for tables that are not upgraded yet. A run
/// whose end was not shown would hold up its schedule.
const PLAIN_CHANGE: &str = "
UPDATE occurrences SET state = ?, reason = ?, attempt = coalesce(?, attempt), error = coalesce(?, error),
  ended_at = ?
WHERE id = ? AND state = coalesce(?, state)";

/// Returns the claims of the work that the ledger shows, in the order of their rows.
pub(crate) fn followed(work: &Work<'_>) -> Vec<Claim> {
    let settled = work.settled.iter();
    let settled = settled.filter(|one| one.is_in_ledger());
    let settled = settled.map(|one| one.claim);
    let begun = work.begun.iter().map(|(claim, _)| *claim);
    let mut claims: Vec<Claim> = settled.chain(begun).collect();
    claims.sort_unstable_by_key(|claim| claim.row);
    claims
}

/// Notes the runs that have begun or are settled, of those claims that are `held`: their rows are locked.
pub(crate) async fn follow<S: Sql>(
    sql: &mut S,
    held: &HashSet<Claim>,
    settled: &[Settled],
    work: &Work<'_>,
) -> Result<(), S::Error> {
    let is_held = |claim: &Claim| held.contains(claim);
    let begun = work.begun.iter().filter(|(claim, _)| is_held(claim));
    let begun = begun.map(|(_, run)| Change::begun(run));
    let settled: Vec<_> = settled.iter().filter(|one| is_held(&one.claim)).collect();
    let ends = settled.iter().filter_map(|one| one.recorded.as_deref());
    let settled = settled.iter().filter_map(|one| {
        let run = one.occurrence.as_ref()?;
        Some(Change::settled(run, &one.outcome))
    });
    change(sql, &settled.chain(begun).collect::<Vec<_>>()).await?;
    record(sql, &ends.collect::<Vec<_>>()).await
}

/// Records the ends of messages that are of no occurrence, but those that the database refuses.
async fn record<S: Sql>(sql: &mut S, ends: &[&RecordedEnd]) -> Result<(), S::Error> {
    if ends.is_empty() {
        return Ok(());
    }
    let now_ms = sql.now_ms().await?;
    let rows: Vec<_> = ends.iter().map(|end| RecordRow::new(end, now_ms)).collect();
    let write = |rows| Write::Records(rows);
    if try_to_write(sql, &write(&rows)).await?.is_ok() {
        return Ok(());
    }
    for (end, row) in ends.iter().zip(&rows) {
        if let Err(problem) = try_to_write(sql, &write(std::slice::from_ref(row))).await? {
            tracing::error!(
                message_id = end.message.message_id,
                problem,
                "the database rejects the record of a message: the ledger does not show it"
            );
        }
    }
    Ok(())
}

/// Notes that messages became dead letters without an attempt, if they are of occurrences. Their rows must
/// still be there.
pub(crate) async fn buried<S: Sql>(
    sql: &mut S,
    dead_letters: &[(i64, &Failure)],
) -> Result<(), S::Error> {
    if dead_letters.is_empty() || !sql.has_ledger().await? {
        return Ok(());
    }
    let of_row = format!(
        "SELECT {} FROM consumer_messages m WHERE m.id = ?",
        S::OCCURRENCE
    );
    let rows = dead_letters.iter().map(|(row, _)| vec![(*row).into()]);
    let found = sql.query_each(&of_row, &rows.collect::<Vec<_>>()).await?;
    let ids = found.iter().map(|rows| rows.first()?.text(0));
    let ids: Vec<Option<String>> = ids.collect();
    let changes = ids.iter().zip(dead_letters);
    let changes =
        changes.filter_map(|(id, (_, failure))| Some(Change::buried(id.as_ref()?, failure)));
    change(sql, &changes.collect::<Vec<_>>()).await
}

/// Notes that the messages of these occurrences were cancelled while they waited.
pub(crate) async fn cancelled<S: Sql>(sql: &mut S, ids: &[String]) -> Result<(), S::Error> {
    if ids.is_empty() || !sql.has_ledger().await? {
        return Ok(());
    }
    let failure = Failure::new(Reason::Cancelled, CANCELLED);
    let changes = ids.iter().map(|id| Change::buried(id, &failure));
    change(sql, &changes.collect::<Vec<_>>()).await
}

/// Notes that the daemon of an owner is lost whose workers had messages of occurrences. Its rows must still
/// be claimed.
pub(crate) async fn lost<S: Sql>(sql: &mut S, owner: i64) -> Result<(), S::Error> {
    if !sql.has_ledger().await? {
        return Ok(());
    }
    // Locked before the occurrences, as when they are settled: so two transactions can't deadlock.
    let of_owner = format!(
        "SELECT {} FROM consumer_messages m{} WHERE m.owner = ? FOR UPDATE",
        S::OCCURRENCE,
        S::BY_OWNER
    );
    let found = sql.query(&of_owner, &[owner.into()]).await?;
    let ids = found.iter().filter_map(|row: &SqlRow| row.text(0));
    let ids: Vec<String> = ids.collect();
    let changes = ids.iter().map(|id| Change::lost(id));
    change(sql, &changes.collect::<Vec<_>>()).await
}

/// Makes the changes together; if the database refuses that, one by one; if it refuses one, as far as tables of every
/// version show it.
async fn change<S: Sql>(sql: &mut S, changes: &[Change<'_>]) -> Result<(), S::Error> {
    let write = |changes| Write::Changes(changes);
    if changes.is_empty() || try_to_write(sql, &write(changes)).await?.is_ok() {
        return Ok(());
    }
    for change in changes {
        let Err(problem) = try_to_write(sql, &write(std::slice::from_ref(change))).await? else {
            continue;
        };
        let occurrence = change.id();
        match try_to_write(sql, &Write::Plain(change)).await? {
            Ok(()) => tracing::error!(
                occurrence,
                problem,
                "the database rejects a part of a change of an occurrence: the ledger shows its state only"
            ),
            Err(_) => tracing::error!(
                occurrence,
                problem,
                "the database rejects a change of an occurrence: the ledger does not show it"
            ),
        }
    }
    Ok(())
}

/// Rows of the ledger that are written together.
enum Write<'a> {
    Changes(&'a [Change<'a>]),
    Plain(&'a Change<'a>),
    Records(&'a [RecordRow<'a>]),
}

/// Writes all of the rows, or none. Returns the problem if the database refuses one, as a trigger of
/// someone's or missing rights may.
async fn try_to_write<S: Sql>(
    sql: &mut S,
    write: &Write<'_>,
) -> Result<Result<(), String>, S::Error> {
    run(sql, "SAVEPOINT changes").await?;
    let written = match write {
        Write::Changes(changes) => make(sql, changes).await,
        Write::Plain(change) => make_plain(sql, change).await,
        Write::Records(rows) => enter(sql, rows).await,
    };
    match written {
        Err(error) if error.is_refusal() => {
            run(sql, "ROLLBACK TO SAVEPOINT changes").await?;
            Ok(Err(error.fault().problem))
        }
        done => done.map(Ok),
    }
}

async fn make<S: Sql>(sql: &mut S, changes: &[Change<'_>]) -> Result<(), S::Error> {
    let now_ms = sql.now_ms().await?;
    let events = changes.iter().map(|change| change.event(now_ms));
    enter_events(sql, &events.collect::<Vec<_>>()).await?;
    let changed = changes.iter().map(|change| change.change(now_ms));
    sql.each(CHANGE, &changed.collect::<Vec<_>>())
        .await
        .map(drop)
}

/// Enters events. Their occurrences are locked from here on, so that the events are in the order of the changes.
async fn enter_events<S: Sql>(sql: &mut S, events: &[Vec<SqlValue<'_>>]) -> Result<(), S::Error> {
    let event = format!("{EVENT} FOR UPDATE");
    sql.each(&event, events).await.map(drop)
}

async fn make_plain<S: Sql>(sql: &mut S, change: &Change<'_>) -> Result<(), S::Error> {
    let now_ms = sql.now_ms().await?;
    enter_events(sql, &[change.event(now_ms)]).await?;
    let Effect {
        to,
        reason,
        failure,
        ..
    } = &change.effect;
    let values = vec![
        to.code().into(),
        (*reason).into(),
        change.attempt.map(i64::from).into(),
        failure.as_ref().map(KeptFailure::error).into(),
        to.is_end().then(|| change.at(now_ms)).into(),
        change.id().into(),
        change.from.map(OccurrenceState::code).into(),
    ];
    sql.each(PLAIN_CHANGE, &[values]).await.map(drop)
}

async fn enter<S: Sql>(sql: &mut S, rows: &[RecordRow<'_>]) -> Result<(), S::Error> {
    let values = rows.iter().map(RecordRow::values);
    sql.each(RECORD, &values.collect::<Vec<_>>())
        .await
        .map(drop)
}

async fn run<S: Sql>(sql: &mut S, text: &str) -> Result<(), S::Error> {
    sql.each(text, &[Vec::<SqlValue<'_>>::new()])
        .await
        .map(drop)
}
