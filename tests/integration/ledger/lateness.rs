//! Lateness of slots beside what a test does to their ledger, by its own record of that.

use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::harness::Workspace;

/// Lateness of a slot that is allowed besides the outages.
const LATE_MAX: SignedDuration = SignedDuration::from_secs(1);
/// Interval at which the machine is asked for a step of so much work and a write to the disk.
const STEP_EVERY: Duration = Duration::from_millis(50);
/// Work of a step: more than a process that has slept gets at once.
const WORK: Duration = Duration::from_millis(5);
/// Interval at which daemons look at the clock.
const LOOK_EVERY: SignedDuration = SignedDuration::from_secs(1);

/// A time at which something waited, by the clock of periods.
type Span = (Timestamp, Timestamp);

/// A watch over the slots of a ledger, from before the first outage on.
pub(crate) struct Lateness {
    /// Seconds by which the clock of periods is ahead of the machine's.
    forward: Arc<AtomicI64>,
    /// Seconds by which the clock of periods was ahead of the ledger's at any time.
    ahead: Mutex<Vec<i64>>,
    outages: Mutex<Vec<Span>>,
    control: (SyncSender<()>, JoinHandle<Vec<Step>>),
}

/// A step of work, which shows what the machine keeps the daemons waiting for as well.
struct Step {
    /// Time for which it was not begun, or not written.
    delays: [Span; 2],
    /// Factor by which its work took longer than the processor's time for it.
    slowness: f64,
}

impl Lateness {
    pub(crate) fn watch(site: &Workspace) -> Self {
        let forward = Arc::new(AtomicI64::new(0));
        let file = File::create(site.path("control")).unwrap();
        let (ended, until) = sync_channel(0);
        let clock = Arc::clone(&forward);
        let control = std::thread::spawn(move || steps(file, &clock, &until));
        Self {
            forward,
            ahead: Mutex::new(vec![0]),
            outages: Mutex::default(),
            control: (ended, control),
        }
    }

    /// Returns the time by the clock of periods.
    pub(crate) fn now(&self) -> Timestamp {
        now(&self.forward)
    }

    /// Does something that keeps the slots of that time from being dispatched.
    pub(crate) fn outage<T>(&self, work: impl FnOnce() -> T) -> T {
        let begun = self.now();
        let result = work();
        locked(&self.outages).push((begun, self.now()));
        result
    }

    /// Notes that the clock of the ledger is about to be set, so many seconds from the machine's. Slots of the time that
    /// it leaves out are due at once; if it is set back, the clock of periods goes on.
    pub(crate) fn sets_clock(&self, offset: i64) {
        let begun = self.now();
        let forward = self
            .forward
            .fetch_max(offset, Ordering::Relaxed)
            .max(offset);
        locked(&self.ahead).push(forward - offset);
        locked(&self.outages).push((begun, self.now() + LOOK_EVERY));
    }

    /// Sees that none of these occurrences was late by more than a second, as slow as the machine was, besides the
    /// outages since its slot and what a step of work was held up for.
    pub(crate) fn assert_small(self, occurrences: &[Value]) {
        let (ended, control) = self.control;
        drop(ended);
        let steps = control.join().unwrap();
        let delays: Vec<Span> = steps.iter().flat_map(|step| step.delays).collect();
        let (outages, ahead) = (locked(&self.outages), locked(&self.ahead));
        for one in occurrences {
            let at = |key: &str| one[key].as_str().unwrap().parse::<Timestamp>().unwrap();
            let (slot, queued) = (at("slot"), at("queued_at"));
            let queued = ahead
                .iter()
                .map(|ahead| queued + SignedDuration::from_secs(*ahead));
            // What daemons measure of a step is inexact, so one may be early as well.
            let queued = queued
                .filter(|queued| slot.duration_since(*queued) < LATE_MAX)
                .min();
            let queued = queued.unwrap_or_else(|| panic!("queued before it was due: {one}"));
            let late = queued.duration_since(slot);
            let (out, held_up) = (
                within(&outages, (slot, queued)),
                within(&delays, (slot, queued)),
            );
            let slowness = slowness(&steps, (slot, queued));
            assert!(
                late <= LATE_MAX.mul_f64(slowness) + out + held_up,
                "late by {late:#} with outages of {out:#}, on a machine that was {slowness:.1} times slower and held up \
                 for {held_up:#}: {one}"
            );
        }
    }
}

/// Takes steps until the end.
fn steps(mut file: File, clock: &AtomicI64, until: &Receiver<()>) -> Vec<Step> {
    let mut steps = Vec::new();
    loop {
        let due = now(clock) + STEP_EVERY;
        if until.recv_timeout(STEP_EVERY) == Err(RecvTimeoutError::Disconnected) {
            return steps;
        }
        let (begun, used) = (now(clock), processor_time());
        while processor_time() - used < WORK {}
        let worked = now(clock);
        file.write_all(b"x").unwrap();
        file.sync_data().unwrap();
        let took = worked.duration_since(begun).as_secs_f64();
        steps.push(Step {
            delays: [(due, begun), (worked, now(clock))],
            slowness: (took / WORK.as_secs_f64()).max(1.0),
        });
    }
}

/// Returns the time that this thread has had a processor.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(
        time.tv_sec.try_into().unwrap(),
        time.tv_nsec.try_into().unwrap(),
    )
}

/// Returns the mean of the factors of that time.
fn slowness(steps: &[Step], (begin, end): Span) -> f64 {
    let steps = steps
        .iter()
        .filter(|step| step.delays[0].0 < end && begin < step.delays[1].1);
    let (sum, count) = steps.fold((0.0, 0.0), |(sum, count), step| {
        (sum + step.slowness, count + 1.0)
    });
    if count > 0.0 { sum / count } else { 1.0 }
}

/// Returns how much of that time these spans take together.
fn within(spans: &[Span], (begin, end): Span) -> SignedDuration {
    let parts = spans.iter().map(|(begun, ended)| {
        let part = (*ended).min(end).duration_since((*begun).max(begin));
        part.max(SignedDuration::ZERO)
    });
    parts.fold(SignedDuration::ZERO, |sum, part| sum + part)
}

/// Returns the time by the clock of periods.
fn now(forward: &AtomicI64) -> Timestamp {
    Timestamp::now() + SignedDuration::from_secs(forward.load(Ordering::Relaxed))
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
