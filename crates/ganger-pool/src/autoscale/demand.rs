//! Demand on a pool's workers: time per message, arrival rate, number of workers that would have been enough
//! lately. Estimates from samples of the pool; no decision.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::decide::{Machine, Need, SATURATED, whole};
use super::reason::Held;
use ganger_config::model::Autoscale;

/// Number of messages after which a change of their duration is accepted.
const BELIEVED_AFTER: f64 = 16.0;
/// Number of seconds for which the change must have lasted.
const BELIEVED_IN: f64 = 5.0;
/// Minimum number of samples over which arrivals are measured.
const LOOKS_MIN: f64 = 3.0;
/// Share of busy time at which workers are enough: a fifth is left to spare.
const ENOUGH: f64 = 0.8;
/// Number of parts of the time for which fewer workers must have been enough.
const PARTS: u32 = 12;
/// Number of consecutive tasks for which fewer workers must have been enough, but for a day at
/// most.
const TASKS_OBSERVED: f64 = 4.0;
const SHRINK_AFTER_MAX: f64 = 24.0 * 3600.0;

/// Measurements of a pool. Totals are since its start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measurements {
    /// Time of the sample.
    pub now: Instant,
    /// Number of workers that take messages.
    pub up: usize,
    /// Number of workers that are starting, or waiting to be started.
    pub coming: usize,
    /// Smallest number of workers with room for a message at any moment since the last sample.
    pub idle: usize,
    /// Total time that workers have worked, in seconds; a worker that uses half of its concurrency counts as
    /// half.
    pub worked: f64,
    /// Total time that workers were available, in seconds.
    pub available: f64,
    /// Number of messages whose attempt has ended.
    pub finished: u64,
    /// Number of messages here that wait behind those in progress.
    pub waiting: u64,
    /// Number of messages here, those in progress included.
    pub out: u64,
    /// Number of messages that are still in the queue, where the source knows.
    pub queued: Option<u64>,
    /// Time since which messages have waited here at every sample.
    pub waiting_since: Option<Instant>,
    /// Reason not to change the number now, if any.
    pub held: Option<Held>,
    /// State of the machine, as far as the rules need it.
    pub machine: Machine,
}

/// Observed load of a pool so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Demand {
    last: Option<Measurements>,
    /// Time of the first sample.
    since: Option<Instant>,
    /// Time that a message takes a worker, in seconds; `None` before one has ended.
    seconds_each: Option<f64>,
    /// Time worked since a message last ended, and the time elapsed over it.
    unended: f64,
    unended_for: f64,
    ended: u64,
    /// Arrivals per second.
    arrivals: Option<f64>,
    /// Share of their time that workers worked since the last sample.
    busy: f64,
    /// Number of workers whose work is done, averaged over a longer time.
    worked: Option<f64>,
    /// Time since which every sample has shown nothing to do.
    nothing_since: Option<Instant>,
    /// Number of workers that would have been enough, the maximum of each part of the time, oldest
    /// first.
    enough: VecDeque<(Instant, usize)>,
}

impl Demand {
    /// Records a sample of the pool, given the target number of workers.
    pub(super) fn look(&mut self, rules: &Autoscale, look: &Measurements, target: usize) {
        self.since.get_or_insert(look.now);
        self.nothing_since = match has_nothing(look, self.last.as_ref()) {
            true => self.nothing_since.or(Some(look.now)),
            false => None,
        };
        if let Some(last) = self.last.replace(*look) {
            let seconds = (look.now - last.now).as_secs_f64();
            if seconds > 0.0 {
                self.measure(rules, &last, look, seconds);
            }
        }
        let enough = match self.worked {
            // While little is taken in, idle workers prove nothing.
            Some(worked) if self.busy < SATURATED && look.held.is_none() => {
                whole(worked / ENOUGH).max(1)
            }
            Some(_) | None => target,
        };
        self.remember(rules, look.now, enough);
    }

    fn measure(
        &mut self,
        rules: &Autoscale,
        last: &Measurements,
        look: &Measurements,
        seconds: f64,
    ) {
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
        // The first messages have equal weight; later, many in a short time are no proof.
        let steps = (ended / BELIEVED_AFTER).min(self.unended_for / BELIEVED_IN);
        let first = ended / difference(self.ended, 0);
        let each = self.unended / ended;
        let known = *self.seconds_each.get_or_insert(each);
        let weight = (1.0 - f64::exp(-steps)).max(first);
        self.seconds_each = Some(known + (each - known) * weight);
        (self.unended, self.unended_for) = (0.0, 0.0);
    }

    /// Returns the time that a message takes a worker, in seconds. Time on messages in progress
    /// counts as it grows, so that longer ones are noticed before they end.
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

    /// Returns the time for which fewer workers must have been enough: where tasks are long, the load also
    /// changes slowly.
    fn shrink_after(&self, rules: &Autoscale) -> Duration {
        let tasks = TASKS_OBSERVED * self.seconds_each.unwrap_or_default();
        let longest = Duration::from_secs_f64(tasks.clamp(0.0, SHRINK_AFTER_MAX));
        rules.shrink_after.max(longest)
    }

    /// Returns the number of workers at the last sample.
    pub(super) fn up(&self) -> usize {
        self.last.map_or(0, |last| last.up)
    }

    /// Returns the share of their time that workers worked since the last sample.
    pub(super) fn busy(&self) -> f64 {
        self.busy
    }

    /// Returns the number of workers that would have been enough at every moment of the time
    /// required.
    pub(super) fn enough(&self, rules: &Autoscale, now: Instant) -> Option<usize> {
        let seen_for = now - self.since?;
        let most = self.enough.iter().map(|(_, most)| *most).max();
        most.filter(|_| seen_for >= self.shrink_after(rules))
    }

    /// Returns the time for which there has been nothing to do.
    pub(super) fn nothing_for(&self, now: Instant) -> Option<Duration> {
        self.nothing_since.map(|since| now - since)
    }

    /// Returns the number of workers needed.
    pub(super) fn need(&self, rules: &Autoscale, look: &Measurements) -> Need {
        let (Some(queued), Some(arrivals)) = (queued(look), self.arrivals) else {
            let waited = look.waiting_since.map(|since| look.now - since);
            let waited = waited.unwrap_or_default();
            return Need::Unknown { waited };
        };
        let waiting = queued.saturating_add(look.waiting);
        let seconds_each = self.seconds_each().unwrap_or_default();
        // A message can't keep more than one worker busy, however long it takes.
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

/// Returns whether a sample shows nothing to do, neither now nor since the last one. While nothing is taken in, that
/// proves nothing.
fn has_nothing(look: &Measurements, last: Option<&Measurements>) -> bool {
    let finished = last.map_or(0, |last| last.finished);
    let is_empty = look.out == 0 && look.queued.unwrap_or(0) == 0;
    is_empty && look.finished == finished && look.held.is_none()
}

/// Returns the number of messages still in the queue. If the source does not know, zero as long as
/// none waits here.
fn queued(look: &Measurements) -> Option<u64> {
    look.queued.or(look.waiting_since.is_none().then_some(0))
}

fn difference(more: u64, less: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    let difference = more as f64 - less as f64;
    difference
}

/// Updates a moving average; the first value is the average.
fn average(average: &mut Option<f64>, value: f64, share_of_span: f64) {
    let known = *average.get_or_insert(value);
    *average = Some(known + (value - known) * (1.0 - f64::exp(-share_of_span)));
}
