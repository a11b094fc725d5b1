//! Record of the workers that ended unasked: the last of them, the number of consecutive failed starts, and
//! whether any worker has shown since the last end that it works.

use std::time::SystemTime;

use super::lane::Ended;
use super::status::WorkerLoss;

/// A pool's record of lost workers.
#[derive(Debug, Default)]
pub(super) struct Losses {
    last: Option<WorkerLoss>,
    /// Number of consecutive workers that did not get as far as connecting.
    failed_starts: u64,
    proofs_at_last_end: u64,
}

impl Losses {
    /// Records that a worker has connected.
    pub(super) fn connected(&mut self) {
        self.failed_starts = 0;
    }

    /// Records the end of a worker, given the number of proofs so far that a worker works. Returns whether
    /// there were any since the end before.
    pub(super) fn ended(
        &mut self,
        slot: usize,
        ended: &Ended,
        on_trial: bool,
        proofs: u64,
    ) -> bool {
        if !ended.orderly {
            self.last = Some(WorkerLoss {
                slot,
                cause: ended.cause.clone(),
                stderr: ended.printed.stderr.clone(),
                at: SystemTime::now(),
            });
        }
        // A failed start on trial stops the rolling restart, while the pool itself is well.
        if !ended.connected && !ended.orderly && !on_trial {
            self.failed_starts += 1;
        }
        std::mem::replace(&mut self.proofs_at_last_end, proofs) < proofs
    }

    /// Returns whether a worker has shown since the last end that it works, given the number of
    /// proofs so far.
    pub(super) fn has_worked_since(&self, proofs: u64) -> bool {
        proofs > self.proofs_at_last_end
    }

    /// Returns the last worker that ended unasked.
    pub(super) fn last(&self) -> Option<&WorkerLoss> {
        self.last.as_ref()
    }

    pub(super) fn failed_starts(&self) -> u64 {
        self.failed_starts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::output::LastLines;
    use ganger_telemetry::metrics::WorkerEnd;

    fn ended(connected: bool, orderly: bool) -> Ended {
        Ended {
            connected,
            orderly,
            how: WorkerEnd::Lost,
            cause: "why".to_owned(),
            printed: LastLines::default(),
            worked: false,
            explained: false,
            over: None,
        }
    }

    #[test]
    fn failed_starts_count_until_a_worker_connects() {
        let mut losses = Losses::default();
        let table = [
            // Connected, orderly, on trial; the count, and whether it is the last loss.
            ((false, false, false), 1, true),
            ((false, true, false), 1, false),
            ((false, false, true), 1, true),
            ((true, false, false), 1, true),
            ((false, false, false), 2, true),
        ];
        for (slot, ((connected, orderly, on_trial), count, is_loss)) in (0..).zip(table) {
            losses.ended(slot, &ended(connected, orderly), on_trial, 0);
            assert_eq!(losses.failed_starts(), count, "{slot}");
            assert_eq!(losses.last().unwrap().slot == slot, is_loss, "{slot}");
        }
        losses.connected();
        assert_eq!(losses.failed_starts(), 0);
        assert!(losses.last().is_some());
    }

    #[test]
    fn a_proof_counts_for_the_next_end_only() {
        let mut losses = Losses::default();
        let mut end = |proofs| losses.ended(0, &ended(true, false), false, proofs);
        assert_eq!([0, 2, 2, 3].map(&mut end), [false, true, false, true]);
        assert!(!losses.has_worked_since(3) && losses.has_worked_since(4));
    }
}
