//! Record of a pool's load between two looks. `scaling` acts on it.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::autoscale::{Autoscaler, Reason};
use super::least_loaded::Work;
use super::machine::MachineWatch;
use ganger_config::model::Workers;

/// State kept from one look to the next.
pub(super) struct Scaling {
    pub(super) scaler: Autoscaler,
    pub(super) next_look: Instant,
    /// Load of the workers since the last turn of the pool.
    pub(super) work: Work,
    pub(super) up: usize,
    since: Instant,
    /// Time that workers have worked, and time that workers were available, added up, in seconds.
    pub(super) worked: f64,
    pub(super) available: f64,
    /// Smallest number of workers with room at any moment since the last look.
    pub(super) idle: usize,
    /// Time since which messages have waited here at every look.
    pub(super) waiting_since: Option<Instant>,
    pub(super) machine: MachineWatch,
    /// Last reported reason for having no more workers.
    hindrance: Option<&'static str>,
    /// Number of changes of the target, by the word for the reason.
    pub(super) changes: BTreeMap<&'static str, u64>,
}

impl Scaling {
    /// Creates the record of a pool that begins with so many workers; `None` if their number is
    /// fixed.
    pub(super) fn new(workers: &Workers, target: usize, now: Instant) -> Option<Self> {
        workers.range()?;
        Some(Self {
            scaler: Autoscaler::new(target),
            next_look: now,
            work: Work::default(),
            up: 0,
            since: now,
            worked: 0.0,
            available: 0.0,
            idle: usize::MAX,
            waiting_since: None,
            machine: MachineWatch::default(),
            hindrance: None,
            changes: BTreeMap::new(),
        })
    }

    /// Adds up the time with the previous load, and sets the load from now on.
    pub(super) fn goes_on(&mut self, work: Work, up: usize, now: Instant) {
        let seconds = (now - self.since).as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "thousands of workers at most")]
        let (worked, available) = (self.work.busy_thousandths as f64, self.up as f64);
        self.worked += worked * seconds / 1000.0;
        self.available += available * seconds;
        (self.work, self.up, self.since) = (work, up, now);
        self.idle = self.idle.min(work.with_room);
    }

    /// Returns whether a reason for having no more workers is new.
    pub(super) fn is_new_hindrance(&mut self, reason: &Reason) -> bool {
        let word = match reason {
            Reason::AtMax | Reason::Memory | Reason::Cpu => Some(reason.as_str()),
            // The previous hindrance may still be there.
            Reason::CoolingDown | Reason::Coming(_) | Reason::Held(_) => return false,
            _ => None,
        };
        std::mem::replace(&mut self.hindrance, word) != word && word.is_some()
    }
}
