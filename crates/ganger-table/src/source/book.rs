//! Deliveries in flight, settlements that are not written yet, and publishes that are not confirmed.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::rules;
use crate::table::{Claim, ClaimRequest, OccurrenceRun, Settled, Work};
use ganger_core::budget::Hold;
use ganger_queue::delivery::{Begun, MessageRecord, Publish, Settlement};
use ganger_queue::publishing::confirm;

/// Maximum number of publishes that are kept while the database takes none.
const PUBLISHES_KEPT_MAX: usize = 64;

/// Time after which the ledger shows that a run has begun: a run that has ended by then costs no write.
const BEGUN_AFTER: Duration = Duration::from_millis(200);

/// A delivery in flight.
#[derive(Debug)]
struct OpenDelivery {
    claim: Claim,
    /// None once it is settled: its body is no longer needed.
    hold: Option<Hold>,
    /// Its occurrence in the ledger.
    occurrence: Option<OccurrenceRun>,
    /// Its record in the ledger otherwise.
    record: Option<MessageRecord>,
}

/// Deliveries, settlements and publishes of one source.
#[derive(Debug)]
pub(super) struct Book {
    out: HashMap<u64, OpenDelivery>,
    settled: Vec<Settled>,
    /// Runs that have begun, by the claims of their rows, which the ledger does not show yet.
    begun: Vec<(Claim, OccurrenceRun)>,
    publishes: Vec<Publish>,
    bytes_per_turn: usize,
}

/// Number of the publishes and of the settlements, from the first on, that one transaction writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Batch {
    publishes: usize,
    settled: usize,
    /// True if the transaction also asks for a suspect.
    pub(super) asks_for_suspect: bool,
}

impl Book {
    /// Makes an empty book. A transaction writes up to `bytes_per_turn` bytes, or a single larger message.
    pub(super) fn new(bytes_per_turn: usize) -> Self {
        Self {
            out: HashMap::new(),
            settled: Vec::new(),
            begun: Vec::new(),
            publishes: Vec::new(),
            bytes_per_turn,
        }
    }

    /// Returns the number of deliveries in flight, settled or not.
    pub(super) fn out(&self) -> usize {
        self.out.len()
    }

    /// Returns the number of deliveries in flight once pending settlements are written.
    pub(super) fn unsettled(&self) -> usize {
        self.out.len() - self.settled.len()
    }

    /// Returns the settlements that are not written yet.
    pub(super) fn settled(&self) -> &[Settled] {
        &self.settled
    }

    /// Returns the same settlements, so that those that can't be written now can be taken out.
    pub(super) fn settled_mut(&mut self) -> &mut Vec<Settled> {
        &mut self.settled
    }

    /// Returns the number of publishes that are not confirmed yet.
    pub(super) fn publishes(&self) -> usize {
        self.publishes.len()
    }

    pub(super) fn has_work(&self) -> bool {
        !self.settled.is_empty() || !self.publishes.is_empty()
    }

    /// Returns whether no delivery is in flight and nothing is to be written.
    pub(super) fn is_empty(&self) -> bool {
        self.out.is_empty() && !self.has_work()
    }

    /// Enters a delivery that is handed out.
    pub(super) fn hand_out(
        &mut self,
        claim: Claim,
        hold: Hold,
        occurrence: Option<OccurrenceRun>,
        record: Option<MessageRecord>,
    ) {
        let delivery = OpenDelivery {
            claim,
            hold: Some(hold),
            occurrence,
            record,
        };
        self.out.insert(claim.number(), delivery);
    }

    /// Records that a worker has received a delivery. Has an effect only if the ledger shows its end.
    pub(super) fn begin(&mut self, token: u64, begun: Begun) {
        let out = self.out.get_mut(&token).filter(|out| out.hold.is_some());
        let Some(out) = out else { return };
        if let Some(run) = &mut out.occurrence {
            run.begun = Some(begun.clone());
            self.begun.push((out.claim, run.clone()));
        }
        if let Some(record) = &mut out.record {
            record.begun = Some(begun);
        }
    }

    /// Returns the time at which the ledger should show the runs that have begun: most are settled before.
    pub(super) fn begun_due(&self) -> Option<Instant> {
        let (_, first) = self.begun.first()?;
        Some(first.begun.as_ref()?.at + BEGUN_AFTER)
    }

    /// Forgets the runs that have begun and that the ledger does not show. Returns whether there were any.
    pub(super) fn forget_begun(&mut self) -> bool {
        !std::mem::take(&mut self.begun).is_empty()
    }

    /// Records a settlement, which is to be written.
    pub(super) fn settle(&mut self, settlement: Settlement) {
        match self.out.get_mut(&settlement.token) {
            Some(out) => {
                out.hold = None;
                let outcome = settlement.outcome;
                let mut occurrence = out.occurrence.take();
                let record = out.record.take();
                let end = record.and_then(|record| record.end(&outcome, &settlement.result));
                if let Some(run) = &mut occurrence {
                    run.result = settlement.result;
                    let claim = out.claim;
                    self.begun.retain(|(other, _)| *other != claim);
                }
                self.settled.push(Settled {
                    claim: out.claim,
                    outcome,
                    span: settlement.span,
                    finished: settlement.finished,
                    occurrence,
                    recorded: end.map(Box::new),
                });
            }
            None => tracing::error!(token = settlement.token, "settled, but never handed out"),
        }
    }

    pub(super) fn has_room_for_publishes(&self) -> bool {
        self.publishes.len() < PUBLISHES_KEPT_MAX
    }

    /// Keeps a publish, which is to be written.
    pub(super) fn publish(&mut self, publish: Publish) {
        self.publishes.push(publish);
    }

    /// Drops publishes whose task no longer waits for them: it has failed, and publishes again.
    pub(super) fn drop_abandoned_publishes(&mut self) {
        self.publishes
            .retain(|publish| !publish.confirmed.is_closed());
    }

    /// Chooses the content of the next transaction: as much as it has room for.
    pub(super) fn batch(&self) -> Batch {
        let publishes = self.publishes.iter();
        let publishes = publishes.map(|publish| publish.message.bytes());
        let settled = self.settled.iter();
        let settled = settled.map(|settled| {
            let run = settled.occurrence.as_ref().map(|run| run.result.len());
            let end = settled.recorded.as_ref().map(|end| end.end.bytes());
            let result = run.or(end).unwrap_or(0);
            rules::bytes(&settled.outcome) + result
        });
        let together = rules::fitting_together(publishes.chain(settled), self.bytes_per_turn);
        let publishes = together.min(self.publishes.len());
        Batch {
            publishes,
            settled: together - publishes,
            asks_for_suspect: false,
        }
    }

    /// Returns whether all settlements are in the batch.
    pub(super) fn is_last(&self, batch: Batch) -> bool {
        batch.settled == self.settled.len()
    }

    /// Returns the work of a transaction that writes the batch.
    pub(super) fn work<'a>(
        &'a self,
        batch: Batch,
        ask: Option<ClaimRequest<'a>>,
        probe: bool,
    ) -> Work<'a> {
        Work {
            publishes: &self.publishes[..batch.publishes],
            settled: &self.settled[..batch.settled],
            begun: &self.begun,
            ask,
            probe,
        }
    }

    /// Confirms the publishes of a durable batch. Returns its settlements, whose deliveries are still in
    /// flight.
    pub(super) fn written(&mut self, batch: Batch) -> Vec<Settled> {
        self.begun.clear();
        for publish in self.publishes.drain(..batch.publishes) {
            confirm(publish.confirmed, &publish.message.queue, Ok(()));
        }
        self.settled.drain(..batch.settled).collect()
    }

    /// Removes a delivery whose settlement is written.
    pub(super) fn remove(&mut self, claim: Claim) {
        self.out.remove(&claim.number());
    }

    /// Takes all pending work, to be written one by one.
    pub(super) fn take_work(&mut self) -> (Vec<Publish>, Vec<Settled>) {
        let settled = std::mem::take(&mut self.settled);
        (std::mem::take(&mut self.publishes), settled)
    }

    #[cfg(test)]
    pub(super) fn set_bytes_per_turn(&mut self, bytes: usize) {
        self.bytes_per_turn = bytes;
    }
}
