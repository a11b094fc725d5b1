//! Reports on messages on other sources that the ledger does not show yet: the last state of each occurrence,
//! and the settlements that wait a moment for it. Pure.

use std::collections::{HashMap, VecDeque};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::change::{Change, Effect, before};
use crate::table::OccurrenceRun;
use ganger_queue::delivery::{
    Begun, PendingSettlement, RecordedEnd, RecordedEnds, Report, Reported, Reports,
};
use ganger_schedule::occurrence::OccurrenceState;

/// Time after which the ledger shows that a run has begun: one that has ended by then costs no write.
const BEGUN_AFTER: Duration = Duration::from_millis(200);

/// Longest time for which a settlement waits for its report: a slow ledger does not hold up work.
const HELD_MAX: Duration = Duration::from_millis(250);

/// Number of states that wait at most. A ledger that is away dispatches nothing either, so there are not more of
/// them, unless somebody else writes the header.
const STATES_MAX: usize = 100_000;

/// State of an occurrence, as reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportedState {
    occurrence: Arc<str>,
    attempt: Option<u32>,
    effect: Effect<'static>,
    /// Time at which the source handed the message over.
    arrived: Instant,
    /// Its beginning; none if no worker has got it.
    begun: Option<Begun>,
    /// Time of the change.
    made: Instant,
}

impl ReportedState {
    fn of(report: &Report) -> Self {
        let run = OccurrenceRun {
            id: Arc::clone(&report.occurrence),
            attempt: report.attempt.unwrap_or(0),
            begun: report.begun.clone(),
            result: match &report.what {
                Reported::Settled(settlement) => settlement.result(),
                Reported::Begun | Reported::Buried(_) => Bytes::new(),
            },
        };
        let change = match &report.what {
            Reported::Begun => Change::begun(&run),
            Reported::Settled(settlement) => match settlement.outcome() {
                Some(outcome) => Change::settled(&run, outcome),
                None => Change::begun(&run),
            },
            Reported::Buried(failure) => Change::buried(&run.id, failure),
        };
        let effect = change.into_effect().into_owned();
        Self {
            occurrence: Arc::clone(&report.occurrence),
            attempt: report.attempt,
            effect,
            arrived: report.arrived,
            begun: report.begun.clone(),
            made: report.made,
        }
    }

    /// Id of the occurrence.
    pub fn occurrence(&self) -> &str {
        &self.occurrence
    }

    /// Returns the change that shows it.
    pub(crate) fn change(&self) -> Change<'_> {
        Change::reported(
            &self.occurrence,
            self.attempt,
            self.effect.clone(),
            (self.begun.as_ref(), self.made.elapsed()),
        )
    }

    /// Returns the values of the fence for this change, against changes that are older than others.
    pub(crate) fn fence(&self, change: &Change<'_>, now_ms: i64) -> [i64; 4] {
        let arrived = before(now_ms, self.arrived.elapsed());
        let is_end = i64::from(self.effect.to.is_end());
        [arrived, is_end, change.at(now_ms), now_ms]
    }

    /// Returns the time at which it should be shown.
    fn due(&self) -> Instant {
        match self.effect.to {
            OccurrenceState::Running => self.made + BEGUN_AFTER,
            _ => self.made,
        }
    }
}

/// The last state of each occurrence that the ledger does not show yet.
#[derive(Debug, Default)]
pub struct PendingReports {
    states: HashMap<Arc<str>, ReportedState>,
    ends: RecordedEnds,
    held: VecDeque<HeldSettlement>,
    next: u64,
    /// Number of states that were dropped.
    dropped: u64,
    /// The ledger is away: no settlement waits for it.
    is_away: bool,
}

/// A settlement that waits for its report.
#[derive(Debug)]
struct HeldSettlement {
    number: u64,
    since: Instant,
    /// Settles when it is dropped.
    _settlement: PendingSettlement,
}

/// States that are written together.
#[derive(Debug, Default)]
pub struct ReportBatch {
    /// The states.
    pub states: Vec<ReportedState>,
    /// Ends of messages of no schedule.
    pub ends: Vec<RecordedEnd>,
    /// Number of the first settlement that does not belong to them.
    next: u64,
}

impl PendingReports {
    /// Takes reports, in their order.
    pub fn add(&mut self, reports: Reports) {
        self.ends.append(reports.ends);
        for report in reports.of_occurrences {
            let is_full = self.states.len() >= STATES_MAX;
            if is_full && !self.states.contains_key(&report.occurrence) {
                self.dropped += 1;
            } else {
                let state = ReportedState::of(&report);
                self.states.insert(Arc::clone(&state.occurrence), state);
            }
            if let Reported::Settled(settlement) = report.what
                && !self.is_away
            {
                self.held.push_back(HeldSettlement {
                    number: self.next,
                    since: report.made,
                    _settlement: settlement,
                });
                self.next += 1;
            }
        }
    }

    /// Returns the number of states and records that were dropped since the last call, because too many waited.
    pub fn take_dropped(&mut self) -> u64 {
        mem::take(&mut self.dropped) + self.ends.take_dropped()
    }

    /// Returns whether the ledger shows everything.
    pub fn is_empty(&self) -> bool {
        self.states.is_empty() && self.ends.is_empty()
    }

    /// Returns the number of messages that the ledger does not show yet.
    pub fn len(&self) -> usize {
        self.states.len() + self.ends.len()
    }

    /// Returns the time at which something is to be written.
    pub fn due(&self) -> Option<Instant> {
        let states = self.states.values().map(ReportedState::due);
        states.chain(self.ends.first().map(|end| end.made)).min()
    }

    /// Returns the time at which a settlement has waited long enough.
    pub fn release_due(&self) -> Option<Instant> {
        self.held.front().map(|held| held.since + HELD_MAX)
    }

    /// Settles what has waited long enough.
    pub fn release(&mut self, now: Instant) {
        while let Some(due) = self.release_due()
            && due <= now
        {
            self.held.pop_front();
        }
    }

    /// Takes the states that are to be written by that time; all of them without one.
    pub fn take(&mut self, by: Option<Instant>) -> ReportBatch {
        let is_due = |state: &ReportedState| by.is_none_or(|by| state.due() <= by);
        let states = self.states.extract_if(|_, state| is_due(state));
        ReportBatch {
            states: states.map(|(_, state)| state).collect(),
            ends: self.ends.take(),
            next: self.next,
        }
    }

    /// Settles what has waited for states that are written.
    pub fn written(&mut self, batch: &ReportBatch) {
        self.is_away = false;
        while let Some(held) = self.held.front()
            && held.number < batch.next
        {
            self.held.pop_front();
        }
    }

    /// Takes states back that could not be written, but those that have changed since. Nothing waits for them
    /// any more.
    pub fn failed(&mut self, batch: ReportBatch) {
        self.is_away = true;
        self.held.clear();
        self.ends.take_back(batch.ends);
        for state in batch.states {
            let occurrence = Arc::clone(&state.occurrence);
            self.states.entry(occurrence).or_insert(state);
        }
    }
}
