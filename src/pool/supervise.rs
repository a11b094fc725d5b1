//! Keeps a pool at its size: from the roster, the ends of workers and the time to what should be
//! started, drained or waited for. Pure state, no process and no clock of its own.

use tokio::time::Instant;

use super::roster::{Generation, Roster, Slot, Stage};
use crate::backoff::Backoff;

/// So many ends in a row without one answer from any worker make a crash loop.
pub const CRASH_LOOP_ENDS: u32 = 5;

/// What the pool should do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Start a process of that generation in the slot.
    Start(usize, Generation),
    /// Let the worker in the slot finish what it has and leave.
    Drain(usize),
    /// The rolling restart is over: every worker is of this generation.
    Rolled(Generation),
    /// A worker of the new generation did not come up: the old ones stay.
    RollFailed(Generation),
}

/// How a worker ended, as far as it matters for its successor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// It had connected.
    pub connected: bool,
    /// It had answered at least one message.
    pub answered: bool,
    /// It died over a message that has killed workers before, which says nothing against it.
    pub explained: bool,
    /// Its time had come: it was asked to leave, or was recycled.
    pub orderly: bool,
    /// Any worker of the pool has answered since the last such end.
    pub pool_answered: bool,
    /// Another worker that has answered before is up.
    pub others_proven: bool,
}

/// Where a rolling restart stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Roll {
    from: Generation,
    /// The new worker that is to take over from an old one.
    surge: Option<usize>,
}

/// Decides when which worker is started or drained.
#[derive(Debug, Clone)]
pub struct Supervisor {
    target: usize,
    restart: Backoff,
    generation: Generation,
    /// The highest generation so far: a number is never used for two commands.
    latest: Generation,
    roster: Roster,
    roll: Option<Roll>,
    fruitless: u32,
    /// Of the fruitless ends: whether none had even connected.
    none_connected: bool,
    reported: Vec<Action>,
}

impl Supervisor {
    /// For a pool of `target` workers, none of them started yet.
    pub fn new(target: usize, restart: Backoff) -> Self {
        Self {
            target,
            restart,
            generation: 0,
            latest: 0,
            roster: Roster::default(),
            roll: None,
            fruitless: 0,
            none_connected: true,
            reported: Vec::new(),
        }
    }

    /// The slots.
    pub fn roster(&self) -> &Roster {
        &self.roster
    }

    /// Whether workers fail one after the other, so that nothing should be pulled but a probe.
    pub fn degraded(&self) -> bool {
        self.fruitless >= CRASH_LOOP_ENDS
    }

    /// Changes the number of workers and how soon they are restarted.
    pub fn resize(&mut self, target: usize, restart: Backoff) {
        self.target = target;
        self.restart = restart;
    }

    /// Begins to replace every worker, new before old, and returns the new generation. With no
    /// worker up there is nothing to be careful about: the next starts are the new one's.
    pub fn roll(&mut self, now: Instant) -> Generation {
        let from = self.roll.map_or(self.generation, |roll| roll.from);
        self.latest += 1;
        self.generation = self.latest;
        if self.roster.count(|stage| stage == Stage::Up) > 0 {
            self.roll = Some(Roll { from, surge: None });
        } else {
            let mut actions = std::mem::take(&mut self.reported);
            self.end_roll(&mut actions);
            self.reported = actions;
        }
        self.retry_now(now);
        self.generation
    }

    /// A worker has connected. If all that had failed before was to come so far, that is over.
    pub fn connected(&mut self, number: usize, now: Instant) {
        if let Some(slot) = self.roster.get_mut(number)
            && slot.stage == Stage::Starting
        {
            slot.stage = Stage::Up;
        }
        if self.none_connected {
            self.answered(now);
        }
    }

    /// A worker has answered: a crash loop, if there was one, is over.
    pub fn answered(&mut self, now: Instant) {
        if self.degraded() {
            self.retry_now(now);
        }
        self.forget_failures();
    }

    fn forget_failures(&mut self) {
        self.fruitless = 0;
        self.none_connected = true;
    }

    /// A worker has ended. `chance` between 0 and 1 is for the jitter.
    pub fn ended(&mut self, number: usize, end: End, now: Instant, chance: f64) {
        if end.pool_answered || end.others_proven {
            self.forget_failures();
        }
        let Some(slot) = self.roster.get_mut(number) else {
            return;
        };
        let (was, generation) = (slot.stage, slot.generation);
        if was == Stage::Leaving {
            self.roster.close(number);
            return;
        }
        if end.orderly {
            slot.fruitless = 0;
            slot.stage = Stage::Waiting(now);
            return;
        }
        let fruitful = end.answered || end.explained;
        slot.fruitless = if fruitful {
            0
        } else {
            slot.fruitless.saturating_add(1)
        };
        let wait = self.restart.wait(slot.fruitless.max(1), chance);
        slot.stage = Stage::Waiting(now + wait);
        if !fruitful {
            self.fruitless = self.fruitless.saturating_add(1);
            self.none_connected &= !end.connected;
        }
        let rolling = self.roll.is_some_and(|_| generation == self.generation);
        if rolling && !end.connected {
            self.give_up_roll(number);
        }
    }

    /// What should be done now. What it returns is taken to be done.
    pub fn plan(&mut self, now: Instant) -> Vec<Action> {
        let mut actions = std::mem::take(&mut self.reported);
        self.shrink(&mut actions);
        self.grow(now);
        self.advance_roll(now, &mut actions);
        self.start_due(now, &mut actions);
        actions
    }

    /// When [`Supervisor::plan`] should be asked again, if nothing happens before.
    pub fn next_start(&self) -> Option<Instant> {
        let waiting = |(_, slot): (usize, &Slot)| match slot.stage {
            Stage::Waiting(until) => Some(until),
            Stage::Starting | Stage::Up | Stage::Leaving => None,
        };
        if self.probe_is_out() {
            return None;
        }
        self.roster.iter().filter_map(waiting).min()
    }

    /// All waits are over.
    fn retry_now(&mut self, now: Instant) {
        let numbers: Vec<usize> = self.roster.iter().map(|(number, _)| number).collect();
        for number in numbers {
            if let Some(slot) = self.roster.get_mut(number)
                && let Stage::Waiting(_) = slot.stage
            {
                slot.stage = Stage::Waiting(now);
            }
        }
    }

    /// How many places there should be, the one for a worker that takes over included.
    fn wanted(&self) -> usize {
        self.target + usize::from(self.roll.is_some_and(|roll| roll.surge.is_some()))
    }

    fn grow(&mut self, now: Instant) {
        while self.roster.staying() < self.wanted() {
            self.roster.open(Slot {
                generation: self.generation,
                stage: Stage::Waiting(now),
                fruitless: 0,
            });
        }
    }

    /// Empty places go first, then starting ones, then the highest numbers.
    fn shrink(&mut self, actions: &mut Vec<Action>) {
        while self.roster.staying() > self.wanted() {
            let rank = |stage| match stage {
                Stage::Waiting(_) => 0,
                Stage::Starting => 1,
                Stage::Up => 2,
                Stage::Leaving => 3,
            };
            let spare = self
                .roster
                .iter()
                .rev()
                .min_by_key(|(_, slot)| rank(slot.stage));
            let Some((number, stage)) = spare.map(|(number, slot)| (number, slot.stage)) else {
                return;
            };
            if let Stage::Waiting(_) = stage {
                self.roster.close(number);
            } else {
                self.drain(number, actions);
            }
        }
    }

    fn drain(&mut self, number: usize, actions: &mut Vec<Action>) {
        if let Some(slot) = self.roster.get_mut(number) {
            slot.stage = Stage::Leaving;
            actions.push(Action::Drain(number));
        }
    }

    /// One step of a rolling restart: open a place for a new worker; once it is up, drain an old
    /// one; once that is gone, the next.
    fn advance_roll(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let Some(roll) = self.roll else { return };
        if self.roster.count(|stage| stage == Stage::Leaving) > 0 {
            return;
        }
        let old = |slot: &Slot| slot.generation != self.generation && slot.stage == Stage::Up;
        let old = self
            .roster
            .iter()
            .find(|(_, slot)| old(slot))
            .map(|(number, _)| number);
        let Some(old) = old else {
            return self.end_roll(actions);
        };
        match roll.surge {
            None => {
                let stage = Stage::Waiting(now);
                let surge = Slot {
                    generation: self.generation,
                    stage,
                    fruitless: 0,
                };
                let number = self.roster.open(surge);
                self.roll = Some(Roll {
                    surge: Some(number),
                    ..roll
                });
            }
            Some(surge) => {
                let up = self
                    .roster
                    .get_mut(surge)
                    .is_none_or(|slot| slot.stage == Stage::Up);
                if up {
                    self.roll = Some(Roll {
                        surge: None,
                        ..roll
                    });
                    self.drain(old, actions);
                }
            }
        }
    }

    /// No old worker is up any more. One that is only starting is not worth waiting for.
    fn end_roll(&mut self, actions: &mut Vec<Action>) {
        self.roll = None;
        let outdated =
            |slot: &Slot| slot.generation != self.generation && slot.stage == Stage::Starting;
        let outdated = self.roster.iter().filter(|(_, slot)| outdated(slot));
        for number in outdated.map(|(number, _)| number).collect::<Vec<_>>() {
            self.drain(number, actions);
        }
        actions.push(Action::Rolled(self.generation));
    }

    /// A worker of the new generation failed to come up: back to the old command, and its place is
    /// given up if it was an extra one.
    fn give_up_roll(&mut self, number: usize) {
        let Some(roll) = self.roll.take() else { return };
        self.reported.push(Action::RollFailed(self.generation));
        self.generation = roll.from;
        if roll.surge == Some(number) {
            self.roster.close(number);
        }
        // The failure was the new command's, not this pool's.
        self.forget_failures();
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
                slot.generation = self.generation;
                actions.push(Action::Start(number, self.generation));
            }
        }
    }

    /// In a crash loop one worker at a time is tried.
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
