//! A pool's number of workers where it follows the load: records the load between two samples and carries the
//! decisions out. The decision itself is made in `autoscale`.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::autoscale::{Autoscaler, Decision, Held, Measurements, Reason};
use super::least_loaded::Work;
use super::machine::MachineWatch;
use super::status::ScalingStatus;
use ganger_config::model::{Autoscale, Workers};

/// State of the pool at a sample, in addition to the records between samples.
#[derive(Debug)]
pub(super) struct PoolLoad {
    /// Number of workers that are planned and have not connected.
    pub(super) coming: usize,
    /// Number of messages answered so far.
    pub(super) finished: u64,
    /// Number of messages taken in and not settled.
    pub(super) out: usize,
    /// Number of those in progress.
    pub(super) worked_on: usize,
    /// Number of messages in the queue in addition to those, where the source knows.
    pub(super) queued: Option<u64>,
    /// Reason not to change the number of workers now.
    pub(super) held: Option<Held>,
    /// Number of workers set by hand.
    pub(super) scaled: Option<usize>,
}

/// State kept from one sample to the next.
#[derive(Debug)]
pub(super) struct Scaling {
    scaler: Autoscaler,
    next_look: Instant,
    /// Load of the workers since the last turn of the pool.
    work: Work,
    up: usize,
    since: Instant,
    /// Total time that workers have worked, and total time that workers were available, in seconds.
    worked: f64,
    available: f64,
    /// Smallest number of workers with room at any moment since the last sample.
    idle: usize,
    /// Time since which messages have waited here at every sample.
    waiting_since: Option<Instant>,
    machine: MachineWatch,
    /// Last reported reason for having no more workers.
    hindrance: Option<&'static str>,
    /// Number of changes of the target, by the word for the reason.
    changes: BTreeMap<&'static str, u64>,
}

impl Scaling {
    /// Creates the state of a pool that begins with `target` workers; `None` if their number is fixed.
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

    /// Returns the state under new rules for the number of workers, which is `target` now.
    pub(super) fn renewed(
        before: Option<Self>,
        workers: &Workers,
        target: usize,
        now: Instant,
    ) -> Option<Self> {
        match (before, workers) {
            (Some(scaling), Workers::Range(_)) => Some(Self {
                next_look: now,
                ..scaling
            }),
            (_, workers) => Self::new(workers, target, now),
        }
    }

    /// Returns the target number of workers.
    pub(super) fn target(&self) -> usize {
        self.scaler.target()
    }

    /// Starts with one worker again, since a message has come, and logs that.
    pub(super) fn wake(&mut self, pool: &str, now: Instant) {
        let Decision { target, reason } = self.scaler.wake(now);
        *self.changes.entry(reason.as_str()).or_default() += 1;
        let why = reason.to_string();
        tracing::info!(
            pool,
            from = 0,
            to = target,
            why,
            "number of workers changed"
        );
    }

    /// Returns the time of the next sample of the load.
    pub(super) fn next_look(&self) -> Instant {
        self.next_look
    }

    /// Returns the state for the status.
    pub(super) fn status(
        &self,
        rules: &Autoscale,
        queued: Option<u64>,
        now: Instant,
    ) -> ScalingStatus {
        let report = self.scaler.report(rules);
        let changes = self.changes.iter();
        ScalingStatus {
            min: report.min,
            max: report.max,
            reason: report.reason.as_str().to_owned(),
            why: report.reason.to_string(),
            changed_seconds_ago: report.changed.map(|(at, _)| (now - at).as_secs_f64()),
            changed_for: report.changed.map(|(_, why)| why.to_string()),
            queued,
            changes: changes
                .map(|(why, count)| ((*why).into(), *count))
                .collect(),
        }
    }

    /// Adds the time with the previous load, and sets the load from now on.
    pub(super) fn note(&mut self, work: Work, up: usize, now: Instant) {
        let seconds = (now - self.since).as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "thousands of workers at most")]
        let (worked, available) = (self.work.busy_thousandths as f64, self.up as f64);
        self.worked += worked * seconds / 1000.0;
        self.available += available * seconds;
        (self.work, self.up, self.since) = (work, up, now);
        self.idle = self.idle.min(work.with_room);
    }

    /// Checks whether there are too few or too many workers, and logs the decision. Returns whether
    /// the target has changed.
    pub(super) fn look(
        &mut self,
        pool: &str,
        rules: &Autoscale,
        load: PoolLoad,
        pids: impl Iterator<Item = u32>,
        now: Instant,
    ) -> bool {
        self.next_look = now + rules.look_every();
        let scaled = load.scaled;
        let look = self.measure(rules, load, pids, now);
        self.scaler.pin(scaled, now);
        let before = self.scaler.target();
        let Some(decision) = self.scaler.look(rules, &look) else {
            return false;
        };
        let has_changed = decision.target != before;
        if has_changed {
            *self.changes.entry(decision.reason.as_str()).or_default() += 1;
        }
        self.log(pool, decision, before, &look);
        has_changed
    }

    fn measure(
        &mut self,
        rules: &Autoscale,
        load: PoolLoad,
        pids: impl Iterator<Item = u32>,
        now: Instant,
    ) -> Measurements {
        self.note(self.work, self.up, now);
        let waiting = load.out.saturating_sub(load.worked_on) as u64;
        let since = self.waiting_since.unwrap_or(now);
        self.waiting_since = (waiting > 0).then_some(since);
        Measurements {
            now,
            up: self.up,
            coming: load.coming,
            idle: std::mem::replace(&mut self.idle, usize::MAX),
            worked: self.worked,
            available: self.available,
            finished: load.finished,
            waiting,
            out: load.out as u64,
            queued: load.queued,
            waiting_since: self.waiting_since,
            held: load.held,
            machine: self.machine.look(rules, pids),
        }
    }

    fn log(&mut self, pool: &str, decision: Decision, before: usize, look: &Measurements) {
        let Decision { target, reason } = decision;
        let is_hindered = self.is_new_hindrance(&reason);
        let why = reason.to_string();
        let (queued, here) = (look.queued, look.out);
        if target != before {
            tracing::info!(
                pool,
                from = before,
                to = target,
                why,
                queued,
                here,
                "number of workers changed"
            );
        } else if is_hindered {
            tracing::info!(pool, workers = target, why, queued, here, "no worker added");
        } else {
            tracing::debug!(pool, workers = target, why, "number of workers unchanged");
        }
    }

    /// Returns whether a reason for having no more workers is new.
    fn is_new_hindrance(&mut self, reason: &Reason) -> bool {
        let word = match reason {
            Reason::AtMax | Reason::Memory | Reason::Cpu => Some(reason.as_str()),
            // The previous hindrance may still exist.
            Reason::CoolingDown | Reason::Coming(_) | Reason::Held(_) => return false,
            _ => None,
        };
        std::mem::replace(&mut self.hindrance, word) != word && word.is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn rules(min: usize) -> Autoscale {
        Autoscale {
            min,
            max: 8,
            clear_within: 60 * SECOND,
            cooldown: SECOND,
            shrink_after: 60 * SECOND,
            memory_free_min: None,
            cpu_max: None,
        }
    }

    fn load(scaled: Option<usize>) -> PoolLoad {
        PoolLoad {
            coming: 0,
            finished: 0,
            out: 0,
            worked_on: 0,
            queued: None,
            held: None,
            scaled,
        }
    }

    #[test]
    fn a_change_of_the_target_is_reported_once_and_counted() {
        let now = Instant::now();
        let workers = Workers::Range(rules(3));
        let mut scaling = Scaling::new(&workers, 1, now).unwrap();
        let mut look = |seconds, scaled| {
            let now = now + seconds * SECOND;
            let none = std::iter::empty();
            scaling.look("p", &rules(3), load(scaled), none, now)
        };
        assert!(look(0, None), "there are to be three at least");
        assert!(!look(9, None));
        assert_eq!(scaling.target(), 3);
        assert!(scaling.next_look() > now + 9 * SECOND);
        let changes = scaling.status(&rules(3), None, now).changes;
        assert_eq!(changes.values().sum::<u64>(), 1, "{changes:?}");
    }

    #[test]
    fn new_rules_are_looked_at_at_once_and_keep_the_target() {
        let now = Instant::now();
        let later = now + SECOND;
        let (range, fixed) = (Workers::Range(rules(1)), Workers::Fixed(5));
        let mut before = Scaling::new(&range, 4, now).unwrap();
        before.next_look = later + SECOND;
        let again = Scaling::renewed(Some(before), &Workers::Range(rules(2)), 7, later).unwrap();
        assert_eq!((again.target(), again.next_look()), (4, later));
        assert!(Scaling::renewed(Some(again), &fixed, 7, later).is_none());
        let anew = Scaling::renewed(None, &range, 7, later).unwrap();
        assert_eq!(anew.target(), 7);
    }

    #[test]
    fn a_hindrance_is_news_until_it_has_gone() {
        let mut scaling = Scaling::new(&Workers::Range(rules(1)), 1, Instant::now()).unwrap();
        let table = [
            (Reason::AtMax, true),
            (Reason::AtMax, false),
            (Reason::CoolingDown, false),
            (Reason::AtMax, false),
            (Reason::Memory, true),
            (Reason::Enough, false),
            (Reason::Memory, true),
        ];
        for (step, (reason, expected)) in (0..).zip(table) {
            assert_eq!(scaling.is_new_hindrance(&reason), expected, "{step}");
        }
    }
}
