//! Instruction to a source.

use bytes::Bytes;

use super::finished::Finished;
use super::outcome::Outcome;
use ganger_core::trace_context::SpanContext;

/// Instruction to the source for one delivery.
#[derive(Debug)]
pub struct Settlement {
    /// Number that the source gave the delivery.
    pub token: u64,
    /// Outcome of the message.
    pub outcome: Outcome,
    /// The span of the attempt, if it was recorded: if the message comes again, the next attempt links to
    /// it.
    pub span: Option<SpanContext>,
    /// Answer of the worker to a message that is done without a reply: its result. Empty if there is none.
    pub result: Bytes,
    /// Entry for the transaction that settles it. Only the source of a table gets one.
    pub finished: Option<Box<Finished>>,
}
