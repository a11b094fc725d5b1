//! Operations on single runs: operators and schedules cancel them, operators send them back and resolve them.
//!
//! A run is cancelled by a request in its row. It ends at once if nobody but the ledger has its message;
//! otherwise every daemon looks for requests, and has its pools cancel the message. Whatever ends the run
//! takes the request with it.

use super::change::Change;
use super::outbox::{HELD_MAX, millis};
use super::row::{CancelRequest, Occurrence};
use super::sql::{InTransaction, LedgerSql};
use super::store::ControlTransaction;
use super::values::SqlValue;
use crate::table::Fault;
use ganger_queue::ledger::Cancelled;
use ganger_schedule::occurrence::OccurrenceState;

/// Reason of a run that a newer slot of its schedule replaces.
pub(super) const REPLACED: &str = "replaced";

const REQUEST: &str = "
UPDATE occurrences SET cancel_request = coalesce(cancel_request, ?) WHERE id = ? AND ended_at IS NULL";

/// Takes a message that no daemon is publishing.
const TAKE_BACK: &str = "
DELETE FROM schedule_outbox WHERE occurrence = ? AND (held_until <= ? OR held_until > ?)";

/// Condition that a run has not gone on since it ended at that time.
const STILL_ENDED: &str = "
AND ended_at = ?";

const RESOLVE: &str = "
UPDATE occurrences SET resolved = ? WHERE id = ? AND state IN (3, 5) AND ended_at IS NOT NULL";

/// Counts the messages of that id, whether they are claimed or not.
const THERE: &str = "
SELECT count(*) FROM consumer_messages WHERE queue = ? AND message_id = ?";

/// A run as far as it is decided here.
#[derive(Debug)]
struct RunFacts {
    state: OccurrenceState,
    waits_for_others: bool,
    queue: String,
    source: Option<String>,
    /// Id of its message, if it is not its own.
    message_id: Option<String>,
    is_over: bool,
}

/// Returns the run of that id, whose row is locked.
fn run<S: LedgerSql>(tx: &mut InTransaction<S>, id: &str) -> Result<Option<RunFacts>, Fault> {
    let lock = tx.lock();
    let of_id = format!(
        "SELECT state, reason, queue, source, ended_at, message_id FROM occurrences WHERE id = ?{lock}"
    );
    let row = tx.first(&of_id, &[id.into()])?;
    Ok(row.map(|row| RunFacts {
        state: row.state(0),
        waits_for_others: row.state(0) == OccurrenceState::Waiting
            && row.text(1).as_deref() == Some("overlap"),
        queue: row.name(2),
        source: row.text(3),
        is_over: !row.is_null(4),
        message_id: row.text(5),
    }))
}

/// Ends a run that is to be cancelled, if nobody but the ledger has its message, or nobody at all: somebody has
/// deleted it.
fn end<S: LedgerSql>(tx: &mut InTransaction<S>, id: &str, run: &RunFacts) -> Result<bool, Fault> {
    if run.waits_for_others || take_back(tx, id)? {
        tx.change(&[Change::cancelled(id, run.state)])?;
        return Ok(true);
    }
    if run.source.is_some() {
        return Ok(false);
    }
    let message = run.message_id.as_deref().unwrap_or(id);
    let named = [SqlValue::from(&run.queue), message.into()];
    if run.state == OccurrenceState::Running {
        let claimed = format!(
            "SELECT count(*) FROM consumer_messages{} WHERE owner IS NOT NULL AND queue = ? AND message_id = ?",
            tx.by("consumer_messages_claimed")
        );
        let claimed = tx.first(&claimed, &named)?;
        if claimed.is_some_and(|row| row.count(0) > 0) {
            return Ok(false);
        }
    }
    // Its daemon may have stopped, and left it to the next one.
    if tx.0.bury(&run.queue, message)? > 0 {
        return Ok(self::run(tx, id)?.is_none_or(|run| run.is_over));
    }
    let there = tx.first(THERE, &named)?;
    let is_gone = run.message_id.is_none() && there.is_some_and(|row| row.count(0) == 0);
    if is_gone {
        tx.change(&[Change::cancelled(id, run.state)])?;
    }
    Ok(is_gone)
}

/// Takes the message of a run back that waits for another source, unless a daemon is publishing it. Returns
/// whether it was there.
fn take_back<S: LedgerSql>(tx: &mut InTransaction<S>, id: &str) -> Result<bool, Fault> {
    let now_ms = tx.0.now_ms()?;
    let until = now_ms.saturating_add(millis(HELD_MAX));
    let values = vec![SqlValue::from(id), now_ms.into(), until.into()];
    let taken = tx.0.each(TAKE_BACK, &[values])?;
    Ok(taken.first().is_some_and(|rows| *rows > 0))
}

impl<S: LedgerSql> ControlTransaction for InTransaction<S> {
    fn cancel(
        &mut self,
        id: &str,
        reason: &str,
    ) -> Result<Option<Result<Cancelled, OccurrenceState>>, Fault> {
        let Some(run) = run(self, id)? else {
            return Ok(None);
        };
        if run.is_over {
            return Ok(Some(Err(run.state)));
        }
        self.run(REQUEST, &[reason.into(), id.into()])?;
        Ok(Some(Ok(match end(self, id, &run)? {
            true => Cancelled::Ended,
            false => Cancelled::Requested,
        })))
    }

    fn cancel_requests(&mut self, most: u32) -> Result<Vec<CancelRequest>, Fault> {
        let by = self.by("occurrences_cancel");
        let requests = format!(
            "SELECT id, state, source, (SELECT count(*) FROM schedule_outbox WHERE occurrence = o.id)
             FROM occurrences o{by} WHERE cancel_request IS NOT NULL AND ended_at IS NULL LIMIT ?"
        );
        let rows = self.0.query(&requests, &[most.into()])?;
        let requests = rows.iter().map(|row| CancelRequest {
            id: row.name(0),
            may_wait: row.count(3) > 0
                || row.is_null(2) && row.state(1) != OccurrenceState::Running,
        });
        Ok(requests.collect())
    }

    fn end_cancelled(&mut self, id: &str) -> Result<bool, Fault> {
        match run(self, id)? {
            Some(run) if !run.is_over => end(self, id, &run),
            _ => Ok(true),
        }
    }

    fn sent_back(&mut self, run: &Occurrence) -> Result<(), Fault> {
        // Locked, so that it can't go on in between.
        let is_over = self::run(self, &run.id)?.is_some_and(|run| run.is_over);
        let Some(ended_at) = run.ended_at.filter(|_| is_over) else {
            return Ok(());
        };
        let now_ms = self.0.now_ms()?;
        let change = Change::sent_back(&run.id, run.state);
        let of_end = [SqlValue::from(ended_at.as_millisecond())];
        let event = [change.event(now_ms), of_end.to_vec()].concat();
        let values = [change.change(now_ms), of_end.to_vec()].concat();
        self.change_where(STILL_ENDED, &[event], &[values])
    }

    fn resolve(&mut self, id: &str, note: &str) -> Result<Option<OccurrenceState>, Fault> {
        let run = run(self, id)?;
        self.run(RESOLVE, &[note.into(), id.into()])?;
        Ok(run.map(|run| run.state))
    }
}
