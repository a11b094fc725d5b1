//! What is out at the pool, and what of it is settled.

use std::collections::HashMap;

use crate::table::{Claim, Settled};
use ganger_core::budget::Hold;
use ganger_queue::delivery::Settlement;

/// One delivery that is out.
#[derive(Debug)]
pub(super) struct Out {
    pub(super) claim: Claim,
    /// None once it is settled: its body is not needed any more.
    pub(super) hold: Option<Hold>,
}

/// Notes a settlement: it is to be written.
pub(super) fn note(
    out: &mut HashMap<u64, Out>,
    settled: &mut Vec<Settled>,
    settlement: Settlement,
) {
    match out.get_mut(&settlement.token) {
        Some(out) => {
            out.hold = None;
            settled.push(Settled {
                claim: out.claim,
                outcome: settlement.outcome,
                span: settlement.span,
                finished: settlement.finished,
            });
        }
        None => tracing::error!(token = settlement.token, "settled, but never handed out"),
    }
}
