//! Keeps a pool at its size: decides from the roster, the ends of workers and the time which
//! workers to start, drain or wait for. Pure state, without processes and without a clock of its
//! own.

use tokio::time::Instant;

use super::roster::{Generation, Roster, Slot, Stage};
use super::trial::{Progress, Trial, TrialSample};
use ganger_config::model::Restart;

/// Number of consecutive ends, over different messages or none, that make a crash loop if no worker shows in
/// between that it works.
pub const CRASH_LOOP_ENDS: u32 = 5;

/// An action that the pool should take now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Start a process of that generation in the slot.
    Start(usize, Generation),
    /// Let the worker in the slot finish the messages it has, then leave.
    Drain(usize),
    /// The rolling restart is done: every worker is of this generation.
    Rolled(Generation),
    /// A worker of the new generation failed its trial: the old workers stay.
    RollFailed(Generation),
}

/// The end of a worker, as far as it matters for its successor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// The worker had connected.
    pub connected: bool,
    /// The worker had shown that it works.
    pub worked: bool,
    /// The worker died over a message that has killed workers before, which is no evidence against the
    /// worker.
    pub explained: bool,
    /// The worker was killed over a message's timeout, which is no evidence about the next worker's start.
    pub late: bool,
    /// Hash of the name of the message that the worker failed.
    pub over: Option<u64>,
    /// The end was due: the worker was asked to leave, or was recycled.
    pub orderly: bool,
    /// The worker was recycled.
    pub recycled: bool,
    /// Any worker of the pool has shown that it works since the last such end.
    pub pool_worked: bool,
    /// Another worker that has shown that it works is up.
    pub others_proven: bool,
}

/// Decides when to start and drain which worker.
#[derive(Debug, Clone)]
pub struct Supervisor {
    target: usize,
    restart: Restart,
    generation: Generation,
    /// Highest generation so far: a number is never used for two commands.
    latest: Generation,
    roster: Roster,
    /// Old generation while a rolling restart is under way: workers that end meanwhile are replaced
    /// by workers of their own generation. The new ones get slots of their own, on trial.
    roll_from: Option<Generation>,
    fruitless: u32,
    /// True if no worker of the fruitless ends had even connected.
    none_connected: bool,
    /// Messages that the fruitless ends were over. One message alone makes no crash loop.
    failed: Vec<u64>,
    reported: Vec<Action>,
    /// Time of the next action if nothing happens before; `None` if something has happened since
    /// the last plan, so that everything has to be checked.
    quiet_until: Option<Option<Instant>>,
}

impl Supervisor {
    /// Creates the supervisor of a pool of `target` workers, none of them started yet.
    pub fn new(target: usize, restart: Restart) -> Self {
        Self {
            target,
            restart,
            generation: 0,
            latest: 0,
            roster: Roster::default(),
            roll_from: None,
            fruitless: 0,
            none_connected: true,
            failed: Vec::new(),
            reported: Vec::new(),
            quiet_until: None,
        }
    }

    /// Returns the slots.
    pub fn roster(&self) -> &Roster {
        &self.roster
    }

    /// Returns whether workers fail one after another, so that only a single probe may be taken from the
    /// source.
    pub fn degraded(&self) -> bool {
        self.fruitless >= CRASH_LOOP_ENDS
    }

    /// Returns whether workers have failed since one has last shown that it works.
    pub fn has_failed(&self) -> bool {
        self.fruitless > 0
    }

    /// Returns whether a rolling restart is under way.
    pub fn is_rolling(&self) -> bool {
        self.roll_from.is_some()
    }

    /// Returns the number of rolling restarts begun so far.
    pub fn rolls(&self) -> u64 {
        self.latest
    }

    /// Returns the generations of the old and the new workers while a rolling restart is under way.
    pub fn rolling(&self) -> Option<(Generation, Generation)> {
        Some((self.roll_from?, self.generation))
    }

    /// Returns the target number of workers.
    pub fn target(&self) -> usize {
        self.target
    }

    /// Returns the number of slots whose workers have yet to connect.
    pub fn coming(&self) -> usize {
        let comes = |stage| matches!(stage, Stage::Waiting(_) | Stage::Starting);
        self.roster.count(comes)
    }

    /// Changes the target number of workers and the rules for restarting them.
    pub fn resize(&mut self, target: usize, restart: Restart) {
        self.quiet_until = None;
        self.target = target;
        self.restart = restart;
    }

    /// Begins to replace every worker, new before old, and returns the new generation. If no worker
    /// is up, or none works, no care is needed: the next starts are of the new generation, and the
    /// failures so far do not count against it.
    pub fn roll(&mut self, now: Instant) -> Generation {
        self.quiet_until = None;
        let from = self.roll_from.unwrap_or(self.generation);
        let mut actions = std::mem::take(&mut self.reported);
        self.end_trials(&mut actions);
        self.latest += 1;
        self.generation = self.latest;
        if self.roster.count(|stage| stage == Stage::Up) > 0 && !self.degraded() {
            self.roll_from = Some(from);
        } else {
            self.end_roll(&mut actions);
            self.forget_failures();
        }
        self.reported = actions;
        self.retry_now(now);
        self.generation
    }

    /// Returns whether the worker in the slot has yet to show that its build works.
    pub fn is_on_trial(&self, number: usize) -> bool {
        self.roster
            .get(number)
            .is_some_and(|slot| slot.trial.is_some())
    }

    /// Returns the workers on trial that are up; the caller passes their state to `observe`.
    pub fn on_trial(&self) -> Vec<usize> {
        if self.roll_from.is_none() {
            return Vec::new();
        }
        let up = |slot: &Slot| slot.trial.is_some() && slot.stage == Stage::Up;
        let up = self.roster.iter().filter(|(_, slot)| up(slot));
        up.map(|(number, _)| number).collect()
    }

    /// Records the current state of a worker on trial. Returns the progress of the trial.
    pub fn observe(&mut self, number: usize, seen: TrialSample, now: Instant) -> Progress {
        let success = self.restart.success;
        let slot = self.roster.get_mut(number);
        let Some(slot) = slot.filter(|slot| slot.stage == Stage::Up) else {
            return Progress::Pending;
        };
        let before = slot.trial;
        let Some(trial) = &mut slot.trial else {
            return Progress::Pending;
        };
        let progress = trial.look(seen, success, now);
        if progress == Progress::Passed {
            slot.trial = None;
        }
        if slot.trial != before {
            self.quiet_until = None;
        }
        progress
    }

    /// Returns to the old command because the new workers are worse than the old ones. New workers that have
    /// passed their trials are removed as well. They may finish the messages they have.
    pub fn roll_back(&mut self) {
        self.quiet_until = None;
        let failed = self.generation;
        self.give_up_roll();
        let mut actions = std::mem::take(&mut self.reported);
        let new = self.roster.iter();
        let new = new.filter(|(_, slot)| slot.generation == failed && failed != self.generation);
        for number in new.map(|(number, _)| number).collect::<Vec<_>>() {
            self.vacate(number, &mut actions);
        }
        self.reported = actions;
    }

    /// Records that a worker has connected. Failures so far that were all failures to connect are
    /// forgotten.
    pub fn connected(&mut self, number: usize, now: Instant) {
        self.quiet_until = None;
        if let Some(slot) = self.roster.get_mut(number)
            && slot.stage == Stage::Starting
        {
            slot.stage = Stage::Up;
            slot.trial = slot.trial.map(|trial| trial.begin_again(now));
        }
        if self.none_connected {
            self.worked(now);
        }
    }

    /// Records that a worker has shown that it works: this ends a crash loop.
    pub fn worked(&mut self, now: Instant) {
        self.quiet_until = None;
        if self.degraded() {
            self.retry_now(now);
        }
        self.forget_failures();
    }

    fn forget_failures(&mut self) {
        self.fruitless = 0;
        self.none_connected = true;
        self.failed.clear();
    }

    /// Records that a worker has ended. `chance` between 0 and 1 is for the jitter.
    pub fn ended(&mut self, number: usize, end: End, now: Instant, chance: f64) {
        self.quiet_until = None;
        if end.pool_worked || end.others_proven {
            self.forget_failures();
        }
        let again = end
            .over
            .is_some_and(|message| self.failed.contains(&message));
        let Some(slot) = self.roster.get_mut(number) else {
            return;
        };
        let on_trial = slot.trial.is_some();
        if slot.stage == Stage::Leaving {
            self.roster.close(number);
            return;
        }
        if end.orderly {
            // An end caused by an operator proves nothing.
            if end.recycled {
                slot.trial = slot.trial.map(Trial::served);
            }
            slot.fruitless = 0;
            slot.stage = Stage::Waiting(now);
            return;
        }
        let fruitful = end.worked || end.explained || end.late || again;
        slot.fruitless = if fruitful {
            0
        } else {
            slot.fruitless.saturating_add(1)
        };
        let wait = self.restart.backoff.wait(slot.fruitless.max(1), chance);
        slot.stage = Stage::Waiting(now + wait);
        if !fruitful {
            let is_counting = !self.degraded();
            self.failed.extend(end.over.filter(|_| is_counting));
            self.fruitless = self.fruitless.saturating_add(1);
            self.none_connected &= !end.connected;
        }
        if on_trial && !end.explained {
            self.give_up_roll();
        }
    }

    /// Returns the actions that are due, and records them as done. Surplus workers that are not busy are
    /// removed first.
    pub fn plan(&mut self, now: Instant, is_busy: impl Fn(usize) -> bool) -> Vec<Action> {
        if let Some(until) = self.quiet_until
            && until.is_none_or(|until| now < until)
        {
            return Vec::new();
        }
        let mut actions = std::mem::take(&mut self.reported);
        self.shrink(&mut actions, is_busy);
        if self.roll_from.is_some() {
            self.advance_roll(now, &mut actions);
        }
        self.grow(now);
        self.start_due(now, &mut actions);
        self.quiet_until = Some(self.look_ahead());
        actions
    }

    /// Returns the time to call [`Supervisor::plan`] again if nothing happens before.
    pub fn next_start(&self) -> Option<Instant> {
        self.quiet_until.unwrap_or_else(|| self.look_ahead())
    }

    fn look_ahead(&self) -> Option<Instant> {
        let probe_is_out = self.probe_is_out();
        let next = |(_, slot): (usize, &Slot)| match slot.stage {
            Stage::Waiting(until) if !probe_is_out => Some(until),
            Stage::Up => Some(slot.trial?.ends()),
            Stage::Waiting(_) | Stage::Starting | Stage::Leaving => None,
        };
        self.roster.iter().filter_map(next).min()
    }

    /// Ends all restart delays.
    fn retry_now(&mut self, now: Instant) {
        for number in self.roster.numbers() {
            if let Some(slot) = self.roster.get_mut(number)
                && let Stage::Waiting(_) = slot.stage
            {
                slot.stage = Stage::Waiting(now);
            }
        }
    }

    /// Returns the number of slots with workers that count, or soon will.
    fn settled(&self) -> usize {
        self.roster.staying() - self.trials()
    }

    fn trials(&self) -> usize {
        let trial = |slot: &Slot| slot.trial.is_some() && slot.stage != Stage::Leaving;
        self.roster.iter().filter(|(_, slot)| trial(slot)).count()
    }

    fn open(&mut self, trial: Option<Trial>, now: Instant) {
        self.roster.open(Slot {
            generation: self.generation,
            stage: Stage::Waiting(now),
            fruitless: 0,
            trial,
        });
    }

    /// Opens missing slots. During a rolling restart missing workers come on trial instead.
    fn grow(&mut self, now: Instant) {
        while self.roll_from.is_none() && self.settled() < self.target {
            self.open(None, now);
        }
    }

    /// Gives up surplus slots: empty ones first, then starting ones, old workers, idle workers, and
    /// the highest numbers.
    fn shrink(&mut self, actions: &mut Vec<Action>, is_busy: impl Fn(usize) -> bool) {
        while self.settled() > self.target {
            let rank = |number: usize, slot: &Slot| match slot.stage {
                Stage::Waiting(_) => (0, false),
                Stage::Starting => (1, false),
                Stage::Up if slot.generation != self.generation => (2, is_busy(number)),
                Stage::Up => (3, is_busy(number)),
                Stage::Leaving => (4, false),
            };
            let counted = self
                .roster
                .iter()
                .rev()
                .filter(|(_, slot)| slot.trial.is_none());
            let spare = counted.min_by_key(|(number, slot)| rank(*number, slot));
            let Some(number) = spare.map(|(number, _)| number) else {
                return;
            };
            self.vacate(number, actions);
        }
    }

    /// Gives up a slot, whatever is in it.
    fn vacate(&mut self, number: usize, actions: &mut Vec<Action>) {
        let Some(slot) = self.roster.get_mut(number) else {
            return;
        };
        match slot.stage {
            Stage::Waiting(_) => drop(self.roster.close(number)),
            Stage::Starting | Stage::Up => {
                slot.stage = Stage::Leaving;
                actions.push(Action::Drain(number));
            }
            Stage::Leaving => {}
        }
    }

    /// Continues a rolling restart: starts as many new workers on trial as are allowed at once. A worker that
    /// passes is one too many, so that an old one is removed; until that has exited, it uses up one of the
    /// allowed trials.
    fn advance_roll(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let old = |(_, slot): &(usize, &Slot)| slot.generation != self.generation;
        let stays = |(_, slot): &(usize, &Slot)| slot.stage != Stage::Leaving;
        let trials = self.trials();
        let none_left = self.roster.iter().find(old).is_none() && trials == 0;
        if none_left || self.degraded() {
            return self.end_roll(actions);
        }
        let old = self.roster.iter().filter(old).filter(stays).count();
        let missing = self.target.saturating_sub(self.settled());
        let leaving = self.roster.count(|stage| stage == Stage::Leaving);
        let room = self.restart.surge.saturating_sub(leaving);
        for _ in trials..room.min(old + missing) {
            self.open(Some(Trial::begin(now)), now);
        }
    }

    /// Ends the rolling restart: every worker is new, or no old one was worth keeping, since the rest is only
    /// starting, or fails.
    fn end_roll(&mut self, actions: &mut Vec<Action>) {
        self.roll_from = None;
        let worthless = |slot: &Slot| match slot.stage {
            Stage::Starting => true,
            Stage::Up => self.degraded(),
            Stage::Waiting(_) | Stage::Leaving => false,
        };
        let outdated = |slot: &Slot| slot.generation != self.generation && worthless(slot);
        let outdated = self.roster.iter().filter(|(_, slot)| outdated(slot));
        for number in outdated.map(|(number, _)| number).collect::<Vec<_>>() {
            self.vacate(number, actions);
        }
        for number in self.roster.numbers() {
            if let Some(slot) = self.roster.get_mut(number) {
                slot.trial = None;
            }
        }
        actions.push(Action::Rolled(self.generation));
    }

    /// Returns to the old command because a worker on trial has failed. The other workers on trial
    /// are no better; they may finish the messages they have.
    fn give_up_roll(&mut self) {
        let Some(from) = self.roll_from.take() else {
            return;
        };
        let mut actions = std::mem::take(&mut self.reported);
        self.end_trials(&mut actions);
        actions.push(Action::RollFailed(self.generation));
        self.reported = actions;
        self.generation = from;
        // The failure was the new command's, not this pool's.
        self.forget_failures();
    }

    /// Gives up the slots of the workers on trial.
    fn end_trials(&mut self, actions: &mut Vec<Action>) {
        for number in self.roster.numbers() {
            if self.is_on_trial(number) {
                self.vacate(number, actions);
            }
        }
    }

    fn start_due(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let due: Vec<usize> = self
            .roster
            .iter()
            .filter(|(_, slot)| matches!(slot.stage, Stage::Waiting(until) if until <= now))
            .map(|(number, _)| number)
            .collect();
        for number in due {
            if self.probe_is_out() {
                return;
            }
            if let Some(slot) = self.roster.get_mut(number) {
                slot.stage = Stage::Starting;
                slot.generation = match self.roll_from {
                    Some(from) if slot.generation != self.generation => from,
                    Some(_) | None => self.generation,
                };
                actions.push(Action::Start(number, slot.generation));
            }
        }
    }

    /// Returns whether the single worker that a crash loop allows at a time is already being tried.
    fn probe_is_out(&self) -> bool {
        self.degraded()
            && self
                .roster
                .count(|stage| matches!(stage, Stage::Starting | Stage::Up))
                > 0
    }
}

#[cfg(test)]
mod tests;
