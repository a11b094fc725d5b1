//! The decision itself: how many workers there should be, from what is known of the load, the rules
//! and the machine. A pure function: no clock, no dice, no process.

use std::time::Duration;

use super::reason::{Held, Reason};
use ganger_config::model::Autoscale;

/// Below this share of their time at work workers have time to spare, and more would not help.
pub(super) const SATURATED: f64 = 0.9;
/// So much of a worker may be missing before one is added: what is measured is never exact.
const TOLERANCE: f64 = 0.2;
/// What is added where nobody knows how much waits: half of what is there.
const BLIND_STEP: f64 = 1.5;

/// How the machine stands, as far as the rules ask for it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Machine {
    /// How much memory it has to give, in bytes.
    pub memory_free: Option<u64>,
    /// How much a worker has, in bytes.
    pub worker_bytes: Option<u64>,
    /// How busy its processors are, 0 to 1.
    pub cpu: Option<f64>,
}

/// What a decision is made of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Facts {
    /// How many workers there should be so far.
    pub target: usize,
    /// The number that someone has set by hand.
    pub pinned: Option<usize>,
    /// Why this is no time for a change.
    pub held: Option<Held>,
    /// Workers that are to be and do not take messages yet.
    pub coming: usize,
    /// Workers that had room all the time since the last look.
    pub idle: usize,
    /// The share of their time that workers worked since the last look.
    pub busy: f64,
    /// Since the last change; none if there was none.
    pub since_change: Option<Duration>,
    /// How many workers it takes.
    pub need: Need,
    /// How many would have been enough at every moment for as long as a shrinking asks for; none
    /// before so long has passed.
    pub enough: Option<usize>,
    /// How the machine stands.
    pub machine: Machine,
}

/// How many workers it takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Need {
    /// So many, to keep up with what comes and clear what waits in time.
    Workers {
        /// How many, with the fraction.
        workers: f64,
        /// How many messages wait.
        waiting: u64,
        /// How long one takes a worker, in seconds.
        seconds_each: f64,
    },
    /// Nobody knows how much waits, but for how long something has.
    Unknown {
        /// For how long messages have waited for a worker without a break.
        waited: Duration,
    },
}

/// What should be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Decision {
    /// How many workers.
    pub target: usize,
    /// Why.
    pub reason: Reason,
}

/// How many workers there should be, and why.
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
        None if cooling => stay(Reason::CoolingDown),
        None => grow(rules, facts)
            .or_else(|| shrink(rules, facts))
            .unwrap_or(stay(Reason::Enough)),
    }
}

/// More workers, or what keeps them from coming; none where no more are needed. At most as many come
/// as there are, to see first what those do: messages that wait for one another need no second.
fn grow(rules: &Autoscale, facts: &Facts) -> Option<Decision> {
    let (wanted, reason) = wanted(rules, facts)?;
    let step = facts.target.saturating_mul(2).max(1);
    let allowed = wanted.min(step).min(rules.max).min(room(rules, facts));
    let hindrance = match () {
        () if facts.coming > 0 => Some(Reason::Coming(facts.coming)),
        () if facts.idle > 0 => Some(Reason::IdleWorkers(facts.idle)),
        // They were not all at work for long enough to say that they are too few.
        () if facts.busy < SATURATED => return None,
        () if facts.target >= rules.max => Some(Reason::AtMax),
        () if is_busy(rules, facts) => Some(Reason::Cpu),
        () if allowed <= facts.target => Some(Reason::Memory),
        () => None,
    };
    // Workers that idle may be too many all the same.
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

/// How many workers it takes, if that is more than there are.
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

/// Fewer workers, where they were enough for long. For one of many that may be back soon nothing is
/// changed.
fn shrink(rules: &Autoscale, facts: &Facts) -> Option<Decision> {
    let enough = facts.enough?.clamp(rules.min, rules.max);
    let is_worth_it = enough == rules.min || enough * 10 <= facts.target * 9;
    (enough < facts.target && is_worth_it).then_some(Decision {
        target: enough,
        reason: Reason::Spare(enough),
    })
}

/// For how many workers the machine has memory.
fn room(rules: &Autoscale, facts: &Facts) -> usize {
    let (Some(kept), Some(free)) = (rules.memory_free_min, facts.machine.memory_free) else {
        return usize::MAX;
    };
    // Of what nobody knows the size of one is added, to see.
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

/// At least so many, whole.
pub(super) fn whole(workers: f64) -> usize {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to what no pool has"
    )]
    let workers = workers.ceil().clamp(0.0, 1e6) as usize;
    workers
}
