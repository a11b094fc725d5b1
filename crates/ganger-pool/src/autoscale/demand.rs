//! What a pool's workers are asked for: how long a message takes, how many come, how many workers
//! would have been enough lately. Estimates of what was looked at; no decision.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::decide::{Machine, Need, SATURATED, whole};
use super::reason::Held;
use ganger_config::model::Autoscale;

/// How many messages it takes to believe that they take longer, or less long, than before.
const BELIEVED_AFTER: f64 = 16.0;
/// And for how many seconds that must have been so.
const BELIEVED_IN: f64 = 5.0;
/// What comes is measured over at least so many looks.
const LOOKS_MIN: f64 = 3.0;
/// Workers that are enough have a fifth of their time to spare.
const ENOUGH: f64 = 0.8;
/// The time for which fewer must have been enough is remembered in so many parts.
const PARTS: u32 = 12;
/// Fewer must have been enough for so many tasks one after the other, but for a day at most.
const TASKS_OBSERVED: f64 = 4.0;
const SHRINK_AFTER_MAX: f64 = 24.0 * 3600.0;

/// What a pool shows of itself. Totals are since its start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Look {
    /// When it was looked at.
    pub now: Instant,
    /// Workers that take messages.
    pub up: usize,
    /// Workers that are to be: starting, or waiting to be started.
    pub coming: usize,
    /// The fewest workers with room for a message at any moment since the last look.
    pub idle: usize,
    /// How long workers have worked, together, in seconds; half of what it can do at once is half
    /// a worker.
    pub worked: f64,
    /// How long there have been workers to work, together, in seconds.
    pub available: f64,
    /// Messages whose attempt came to an end.
    pub finished: u64,
    /// Messages here that wait behind those that are worked on.
    pub waiting: u64,
    /// Messages here, those included that are worked on.
    pub out: u64,
    /// Messages that are still in the queue, where its source knows.
    pub queued: Option<u64>,
    /// Since when messages have waited here at every look.
    pub waiting_since: Option<Instant>,
    /// Why this is no time for a change, if it is none.
    pub held: Option<Held>,
    /// How the machine stands, as far as it matters.
    pub machine: Machine,
}

/// What was seen of a pool's load so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Demand {
    last: Option<Look>,
    /// Since when it has been looked at.
    since: Option<Instant>,
    /// How long a message takes a worker, in seconds; nothing before one has ended.
    seconds_each: Option<f64>,
    /// Time worked, and when it began, since a message last ended.
    unended: f64,
    unended_for: f64,
    ended: u64,
    /// How many messages come, a second.
    arrivals: Option<f64>,
    /// The share of their time that workers worked since the last look.
    busy: f64,
    /// How many workers' work is done, over a longer time.
    worked: Option<f64>,
    /// How many would have been enough, the most in each part of the time, oldest first.
    enough: VecDeque<(Instant, usize)>,
}

impl Demand {
    /// Takes in what the pool shows now, with so many workers to be.
    pub(super) fn look(&mut self, rules: &Autoscale, look: &Look, target: usize) {
        self.since.get_or_insert(look.now);
        if let Some(last) = self.last.replace(*look) {
            let seconds = (look.now - last.now).as_secs_f64();
            if seconds > 0.0 {
                self.measure(rules, &last, look, seconds);
            }
        }
        let enough = match self.worked {
            // While little is taken in it says nothing that workers idle.
            Some(worked) if self.busy < SATURATED && look.held.is_none() => {
                whole(worked / ENOUGH).max(1)
            }
            Some(_) | None => target,
        };
        self.remember(rules, look.now, enough);
    }

    fn measure(&mut self, rules: &Autoscale, last: &Look, look: &Look, seconds: f64) {
        let worked = (look.worked - last.worked).max(0.0);
        let available = (look.available - last.available).max(0.0);
        self.busy = if available > 0.0 {
            worked / available
        } else {
            0.0
        };
        let ended = look.finished.saturating_sub(last.finished);
        self.time_messages(ended, worked, seconds);
        let each = self.seconds_each().unwrap_or_default();
        let clear_within = rules.clear_within.as_secs_f64();
        let span = clear_within.max(2.0 * each).max(LOOKS_MIN * seconds);
        if let (Some(before), Some(now)) = (queued(last), queued(look)) {
            let before = before.saturating_add(last.out);
            let now = now.saturating_add(look.out).saturating_add(ended);
            let came = difference(now, before) / seconds;
            average(&mut self.arrivals, came, seconds / span);
        }
        let span = rules.shrink_after.as_secs_f64() / 6.0;
        let span = span.max(2.0 * each).max(LOOKS_MIN * seconds);
        average(&mut self.worked, worked / seconds, seconds / span);
    }

    fn time_messages(&mut self, ended: u64, worked: f64, seconds: f64) {
        self.unended += worked;
        self.unended_for += seconds;
        if ended == 0 {
            return;
        }
        self.ended = self.ended.saturating_add(ended);
        let ended = difference(ended, 0);
        // The first ones count alike; later, many in a short time are no proof.
        let steps = (ended / BELIEVED_AFTER).min(self.unended_for / BELIEVED_IN);
        let first = ended / difference(self.ended, 0);
        let each = self.unended / ended;
        let known = *self.seconds_each.get_or_insert(each);
        let weight = (1.0 - f64::exp(-steps)).max(first);
        self.seconds_each = Some(known + (each - known) * weight);
        (self.unended, self.unended_for) = (0.0, 0.0);
    }

    /// How long a message takes a worker, in seconds. Work on those that have not ended counts as it
    /// grows, so that longer ones are noticed before they end.
    fn seconds_each(&self) -> Option<f64> {
        match self.seconds_each {
            Some(each) => Some((each * BELIEVED_AFTER + self.unended) / (BELIEVED_AFTER + 1.0)),
            None => {
                let up = self.up().max(1);
                (self.unended > 0.0).then(|| self.unended / difference(up as u64, 0))
            }
        }
    }

    fn remember(&mut self, rules: &Autoscale, now: Instant, enough: usize) {
        let shrink_after = self.shrink_after(rules);
        let part = shrink_after / PARTS;
        match self.enough.back_mut() {
            Some((began, most)) if now - *began < part => *most = enough.max(*most),
            Some(_) | None => self.enough.push_back((now, enough)),
        }
        // A part counts until all of it is too long ago.
        let is_old = |(began, _): &mut (Instant, usize)| {
            now.saturating_duration_since(*began) > shrink_after + part
        };
        while self.enough.pop_front_if(is_old).is_some() {}
        // The time may have become shorter, and its parts with it.
        while self.enough.len() > PARTS as usize + 2 {
            self.enough.pop_front();
        }
    }

    /// For how long fewer must have been enough: where tasks are long the load changes as slowly.
    fn shrink_after(&self, rules: &Autoscale) -> Duration {
        let tasks = TASKS_OBSERVED * self.seconds_each.unwrap_or_default();
        let longest = Duration::from_secs_f64(tasks.clamp(0.0, SHRINK_AFTER_MAX));
        rules.shrink_after.max(longest)
    }

    /// How many workers there were to work when it was looked at last.
    pub(super) fn up(&self) -> usize {
        self.last.map_or(0, |last| last.up)
    }

    /// The share of their time that workers worked since the last look.
    pub(super) fn busy(&self) -> f64 {
        self.busy
    }

    /// How many workers would have been enough at every moment for as long as it takes.
    pub(super) fn enough(&self, rules: &Autoscale, now: Instant) -> Option<usize> {
        let seen_for = now - self.since?;
        let most = self.enough.iter().map(|(_, most)| *most).max();
        most.filter(|_| seen_for >= self.shrink_after(rules))
    }

    /// How many workers it takes.
    pub(super) fn need(&self, rules: &Autoscale, look: &Look) -> Need {
        let (Some(queued), Some(arrivals)) = (queued(look), self.arrivals) else {
            let waited = look.waiting_since.map(|since| look.now - since);
            let waited = waited.unwrap_or_default();
            return Need::Unknown { waited };
        };
        let waiting = queued.saturating_add(look.waiting);
        let seconds_each = self.seconds_each().unwrap_or_default();
        // However long a message takes, more than one worker can't take it on.
        let clear_within = rules.clear_within.as_secs_f64();
        let clear = difference(waiting, 0) * (seconds_each / clear_within).min(1.0);
        let workers = arrivals.max(0.0) * seconds_each + clear;
        Need::Workers {
            workers,
            waiting,
            seconds_each,
        }
    }
}

/// How many messages are still in the queue. Where its source does not know, there are none as long
/// as none waits here.
fn queued(look: &Look) -> Option<u64> {
    look.queued.or(look.waiting_since.is_none().then_some(0))
}

fn difference(more: u64, less: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    let difference = more as f64 - less as f64;
    difference
}

/// Moves an average that forgets; the first value is the average.
fn average(average: &mut Option<f64>, value: f64, share_of_span: f64) {
    let known = *average.get_or_insert(value);
    *average = Some(known + (value - known) * (1.0 - f64::exp(-share_of_span)));
}
