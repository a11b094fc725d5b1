//! How many workers a pool should have, where that is a range: enough to keep up and to clear a
//! backlog in time, and no more than were needed lately. Plain data: what is looked at and when is
//! told by the pool. `demand` estimates what is asked of the workers, `decide` decides, `reason`
//! says why.

mod decide;
mod demand;
mod reason;

use tokio::time::Instant;

pub use decide::{Decision, Facts, Machine, Need, decide};
use demand::Demand;
pub use demand::Look;
use ganger_config::model::Autoscale;
pub use reason::{Held, Reason};

/// A pool's number of workers as it stands, for whoever wants to know.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Report {
    /// How many there should be.
    pub target: usize,
    /// The fewest.
    pub min: usize,
    /// The most.
    pub max: usize,
    /// Why it is so many.
    pub reason: Reason,
    /// When that number last changed, and why; none if it never has.
    pub changed: Option<(Instant, Reason)>,
}

/// Follows one pool's load. What it is told is all that it knows.
#[derive(Debug, Clone)]
pub struct Autoscaler {
    target: usize,
    pinned: Option<usize>,
    demand: Demand,
    reason: Reason,
    changed: Option<(Instant, Reason)>,
}

impl Autoscaler {
    /// Of a pool that has so many workers to begin with.
    pub fn new(target: usize) -> Self {
        Self {
            target,
            pinned: None,
            demand: Demand::default(),
            reason: Reason::Started,
            changed: None,
        }
    }

    /// From now on there are so many, whatever comes; or it goes on by itself from where it is.
    pub fn pin(&mut self, pinned: Option<usize>, now: Instant) {
        self.pinned = pinned;
        if let Some(target) = pinned {
            self.decided(
                Decision {
                    target,
                    reason: Reason::Pinned,
                },
                now,
            );
        }
    }

    /// How many workers there should be.
    pub fn target(&self) -> usize {
        self.target
    }

    fn decided(&mut self, decision: Decision, now: Instant) {
        if decision.target != self.target {
            self.target = decision.target;
            self.changed = Some((now, decision.reason));
        }
        self.reason = decision.reason;
    }

    /// Looks at the pool. Returns what is new: another number, or another kind of reason.
    pub fn look(&mut self, rules: &Autoscale, look: &Look) -> Option<Decision> {
        // What has only just come up has shown nothing yet.
        let came = look.up.saturating_sub(self.demand.up());
        self.demand.look(rules, look, self.target);
        let since = |(at, _): (Instant, Reason)| look.now - at;
        let facts = Facts {
            target: self.target,
            pinned: self.pinned,
            held: look.held,
            coming: look.coming + came,
            idle: look.idle,
            busy: self.demand.busy(),
            since_change: self.changed.map(since),
            need: self.demand.need(rules, look),
            enough: self.demand.enough(rules, look.now),
            machine: look.machine,
        };
        let decision = decide(rules, &facts);
        let is_news = decision.target != self.target || !decision.reason.is_like(&self.reason);
        self.decided(decision, look.now);
        is_news.then_some(decision)
    }

    /// How things stand.
    pub fn report(&self, rules: &Autoscale) -> Report {
        Report {
            target: self.target,
            min: rules.min,
            max: rules.max,
            reason: self.reason,
            changed: self.changed,
        }
    }
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
