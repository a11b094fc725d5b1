//! Metrics for monitoring systems: every series, made from one look at the status. Names, labels and their
//! meaning are here and nowhere else; labels are pool, queue, source, outcome, reason, cause, kind, slot and
//! partition, none of which grows without bound.

mod alerts;
mod backlogs;
mod families;
mod family;
mod figures;
mod ledger;
pub mod process;
pub mod prometheus;
mod seed;

pub use families::families;
pub use family::{Family, FamilyKind, Sample, SampleValue};
