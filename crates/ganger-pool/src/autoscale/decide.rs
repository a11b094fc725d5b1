//! The decision on the number of workers, from the known load, the rules and the machine. A pure
//! function: no clock, no dice, no process.

use std::time::Duration;

use super::reason::{Held, Reason};
use ganger_config::model::Autoscale;

/// Share of busy time below which workers have time to spare, and more would not help.
pub(super) const SATURATED: f64 = 0.9;
/// Fraction of a worker that may be missing before one is added: measurements are never exact.
const TOLERANCE: f64 = 0.2;
/// Growth factor where the number of waiting messages is unknown: half of the workers are added.
const BLIND_STEP: f64 = 1.5;

/// State of the machine, as far as the rules need it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Machine {
    /// Free memory, in bytes.
    pub memory_free: Option<u64>,
    /// Memory that a worker takes, in bytes.
    pub worker_bytes: Option<u64>,
    /// Busy share of the processors, 0 to 1.
    pub cpu: Option<f64>,
}

/// Facts for a decision.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Facts {
    /// Target number of workers so far.
    pub target: usize,
    /// Number set by hand.
    pub pinned: Option<usize>,
    /// Reason not to change the number now.
    pub held: Option<Held>,
    /// Number of workers that are planned and do not take messages yet.
    pub coming: usize,
    /// Number of workers that had room during the whole interval since the last sample.
    pub idle: usize,
    /// Share of their time that workers worked since the last sample.
    pub busy: f64,
    /// Time since the last change; `None` if there was none.
    pub since_change: Option<Duration>,
    /// Number of workers needed.
    pub need: Need,
    /// Number of workers that would have been enough at every moment of the time required for
    /// shrinking; `None` before that time has passed.
    pub enough: Option<usize>,
    /// Time for which there has been nothing to do; `None` if there is something.
    pub nothing_for: Option<Duration>,
    /// State of the machine.
    pub machine: Machine,
}

/// Number of workers needed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Need {
    /// Number needed to keep up with arrivals and clear the backlog in time.
    Workers {
        /// Number of workers, with the fraction.
        workers: f64,
        /// Number of waiting messages.
        waiting: u64,
        /// Time that a message takes a worker, in seconds.
        seconds_each: f64,
    },
    /// The number of waiting messages is unknown, but not how long some have waited.
    Unknown {
        /// Time for which messages have waited for a worker without a break.
        waited: Duration,
    },
}

/// A decision.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Decision {
    /// Target number of workers.
    pub target: usize,
    /// Reason for it.
    pub reason: Reason,
}

/// Decides the target number of workers, with the reason.
pub fn decide(rules: &Autoscale, facts: &Facts) -> Decision {
    let stay = |reason| Decision {
        target: facts.target,
        reason,
    };
    if let Some(target) = facts.pinned {
        let reason = Reason::Pinned;
        return Decision { target, reason };
    }
    let within = facts.target.clamp(rules.min, rules.max);
    let cooling = facts
        .since_change
        .is_some_and(|since| since < rules.cooldown);
    match facts.held {
        _ if within != facts.target => Decision {
            target: within,
            reason: Reason::Bounds,
        },
        Some(held) => stay(Reason::Held(held)),
        None if facts.target == 0 => stay(Reason::Nothing),
        None if cooling => stay(Reason::CoolingDown),
        None => grow(rules, facts)
            .or_else(|| shrink(rules, facts))
            .unwrap_or(stay(Reason::Enough)),
    }
}

/// Decides to add workers, or returns the reason against it; `None` if no more are needed. At most doubles
/// their number, to see the effect first: messages that wait for one another need no second worker.
fn grow(rules: &Autoscale, facts: &Facts) -> Option<Decision> {
    let (wanted, reason) = wanted(rules, facts)?;
    let step = facts.target.saturating_mul(2).max(1);
    let allowed = wanted.min(step).min(rules.max).min(room(rules, facts));
    let hindrance = match () {
        () if facts.coming > 0 => Some(Reason::Coming(facts.coming)),
        () if facts.idle > 0 => Some(Reason::IdleWorkers(facts.idle)),
        // The workers were not busy enough to show that there are too few.
        () if facts.busy < SATURATED => return None,
        () if facts.target >= rules.max => Some(Reason::AtMax),
        () if is_busy(rules, facts) => Some(Reason::Cpu),
        () if allowed <= facts.target => Some(Reason::Memory),
        () => None,
    };
    // Idle workers may be too many all the same.
    if let Some(Reason::IdleWorkers(_)) = hindrance
        && let Some(fewer) = shrink(rules, facts)
    {
        return Some(fewer);
    }
    Some(Decision {
        target: hindrance.map_or(allowed, |_| facts.target),
        reason: hindrance.unwrap_or(reason),
    })
}

/// Returns the number of workers needed, if that is more than there are.
fn wanted(rules: &Autoscale, facts: &Facts) -> Option<(usize, Reason)> {
    match facts.need {
        Need::Workers {
            workers,
            waiting,
            seconds_each,
        } => {
            let reason = Reason::Backlog {
                waiting,
                seconds_each,
            };
            let wanted = whole(workers - TOLERANCE);
            (waiting > 0 && wanted > facts.target).then_some((wanted, reason))
        }
        Need::Unknown { waited } => {
            #[expect(clippy::cast_precision_loss, reason = "thousands at most")]
            let wanted = whole(facts.target as f64 * BLIND_STEP);
            (waited >= rules.clear_within).then_some((wanted, Reason::Waited(waited)))
        }
    }
}

/// Decides to remove workers if fewer have been enough for long. A single worker out of many is kept, since
/// it may soon be needed again. The last one is removed only if there was nothing to do.
fn shrink(rules: &Autoscale, facts: &Facts) -> Option<Decision> {
    let has_rested = |time: Duration| time >= rules.shrink_after;
    if rules.min == 0 && facts.nothing_for.is_some_and(has_rested) && facts.target > 0 {
        let reason = Reason::Nothing;
        return Some(Decision { target: 0, reason });
    }
    let least = rules.min.max(1);
    let enough = facts.enough?.clamp(least, rules.max);
    let is_worth_it = enough == least || enough * 10 <= facts.target * 9;
    (enough < facts.target && is_worth_it).then_some(Decision {
        target: enough,
        reason: Reason::Spare(enough),
    })
}

/// Returns the number of workers that the machine has memory for.
fn room(rules: &Autoscale, facts: &Facts) -> usize {
    let (Some(kept), Some(free)) = (rules.memory_free_min, facts.machine.memory_free) else {
        return usize::MAX;
    };
    // If the size of a worker is unknown, one is added, to measure it.
    let more = match facts.machine.worker_bytes {
        _ if free <= kept => 0,
        None | Some(0) => 1,
        Some(bytes) => (free - kept) / bytes,
    };
    let more = usize::try_from(more).unwrap_or(usize::MAX);
    facts.target.saturating_add(more)
}

fn is_busy(rules: &Autoscale, facts: &Facts) -> bool {
    let (Some(most), Some(cpu)) = (rules.cpu_max, facts.machine.cpu) else {
        return false;
    };
    cpu > most
}

/// Rounds up to a whole number.
pub(super) fn whole(workers: f64) -> usize {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to what no pool has"
    )]
    let workers = workers.ceil().clamp(0.0, 1e6) as usize;
    workers
}
