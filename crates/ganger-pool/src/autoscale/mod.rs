//! Autoscaling of a pool whose number of workers is a range: enough to keep up and to clear a
//! backlog in time, and no more than were needed lately. Plain data: the pool decides what to
//! measure and when. `demand` estimates the demand on the workers, `decide` decides, `reason` gives
//! the reasons.

mod decide;
mod demand;
mod reason;

use tokio::time::Instant;

pub use decide::{Decision, Facts, Machine, Need, decide};
use demand::Demand;
pub use demand::Measurements;
use ganger_config::model::Autoscale;
pub use reason::{Held, Reason};

/// State of a pool's autoscaling.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Report {
    /// Target number of workers.
    pub target: usize,
    /// Minimum.
    pub min: usize,
    /// Maximum.
    pub max: usize,
    /// Reason for the target.
    pub reason: Reason,
    /// Time and reason of the last change of the target; `None` if it never has changed.
    pub changed: Option<(Instant, Reason)>,
}

/// Follows one pool's load, as far as the pool reports it.
#[derive(Debug, Clone)]
pub struct Autoscaler {
    target: usize,
    pinned: Option<usize>,
    demand: Demand,
    reason: Reason,
    changed: Option<(Instant, Reason)>,
}

impl Autoscaler {
    /// Creates the autoscaler of a pool that begins with `target` workers.
    pub fn new(target: usize) -> Self {
        Self {
            target,
            pinned: None,
            demand: Demand::default(),
            reason: Reason::Started,
            changed: None,
        }
    }

    /// Fixes the target at a number; `None` lets it follow the load again from its current value.
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

    /// Starts with one worker again, since a message has come.
    pub fn wake(&mut self, now: Instant) -> Decision {
        let decision = Decision {
            target: 1,
            reason: Reason::Woken,
        };
        self.decided(decision, now);
        decision
    }

    /// Returns the target number of workers.
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

    /// Evaluates a sample of the pool. Returns the decision if the target or the kind of reason has changed.
    pub fn look(&mut self, rules: &Autoscale, look: &Measurements) -> Option<Decision> {
        // Workers that have only just started have shown nothing yet.
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
            nothing_for: self.demand.nothing_for(look.now),
            machine: look.machine,
        };
        let decision = decide(rules, &facts);
        let is_news = decision.target != self.target || !decision.reason.is_like(&self.reason);
        self.decided(decision, look.now);
        is_news.then_some(decision)
    }

    /// Returns the current state.
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
