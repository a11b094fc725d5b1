//! The clocks by which schedules are dispatched: of all daemons, in the ledger, and of this one since it last looked.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::store::{LedgerStore, LedgerTransaction};
use crate::table::Fault;
use ganger_schedule::clock::{Clock, Jump, Reading, step};

/// Grain of the wall clock.
const GRAIN: Duration = Duration::from_millis(1);
/// Time after which the clocks are noted again. Nobody dispatches meanwhile: so who changes schedules waits no longer
/// for daemons that dispatch one beside the other without end.
const NOTED_EVERY: SignedDuration = SignedDuration::from_secs(1);

/// Result of a look at the ledger.
#[derive(Debug, Clone, Copy)]
pub(super) struct Look {
    /// Time until something is due; none if something is.
    pub(super) wait: Option<Duration>,
    pub(super) clocks: Clocks,
}

impl Look {
    /// The clocks have changed: all may be due.
    const CHANGED: Self = Self {
        wait: None,
        clocks: Clocks::Changed,
    };
}

/// State of the clocks in the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Clocks {
    /// They have changed since the last look, or there was none: they are noted before anything is dispatched.
    Changed,
    /// They were noted some time ago, and are noted after the dispatch.
    Due,
    /// They were noted a moment ago.
    Noted,
}

/// The clocks of a daemon.
#[derive(Debug)]
pub(super) struct ClockWatch {
    /// The clocks when they were last read.
    reading: Option<Reading>,
    /// The last jump, until it is reported.
    jump: Option<Jump>,
    /// A clock that no one sets, and that goes on while the machine sleeps.
    monotonic: fn() -> Duration,
}

impl ClockWatch {
    pub(super) fn new(monotonic: fn() -> Duration) -> Self {
        Self {
            reading: None,
            jump: None,
            monotonic,
        }
    }

    /// Returns the time of the clock that no one sets.
    pub(super) fn monotonic(&self) -> Duration {
        (self.monotonic)()
    }

    /// Looks at the clocks, and whether something is due.
    pub(super) fn look(&mut self, store: &mut dyn LedgerStore) -> Result<Look, Fault> {
        let Some(before) = self.reading else {
            return Ok(Look::CHANGED);
        };
        let monotonic = self.monotonic;
        let (mut reading, mut seen) = (before, Timestamp::UNIX_EPOCH);
        let mut wait = None;
        store.read(&mut |tx| {
            reading = read_clocks(tx, monotonic)?;
            seen = tx.seen()?;
            let is_held = tx.hold()?.is_some();
            let next = match is_held {
                true => None,
                false => next_look(tx, reading.clock)?,
            };
            let next = next.unwrap_or(Duration::MAX);
            let has_ends = !is_held && !tx.ended(1)?.is_empty();
            wait = (!has_ends && !next.is_zero()).then_some(next);
            Ok(())
        })?;
        if has_changed(before, reading) {
            return Ok(Look::CHANGED);
        }
        self.reading = Some(reading);
        let clocks = match reading.clock.wall.duration_since(seen) >= NOTED_EVERY {
            true => Clocks::Due,
            false => Clocks::Noted,
        };
        Ok(Look { wait, clocks })
    }

    /// Reads the clocks; none if they have changed since the last look.
    pub(super) fn read(&self, tx: &mut dyn LedgerTransaction) -> Result<Option<Clock>, Fault> {
        let now = read_clocks(tx, self.monotonic)?;
        let before = self.reading.filter(|before| !has_changed(*before, now));
        Ok(before.map(|_| now.clock))
    }

    /// Returns a jump that was not reported yet.
    pub(super) fn take_jump(&mut self) -> Option<Jump> {
        self.jump.take()
    }

    /// Compares the clocks with those of the last look, and notes them for all daemons. Nobody dispatches meanwhile.
    pub(super) fn note(&mut self, store: &mut dyn LedgerStore) -> Result<(), Fault> {
        let Self {
            reading, monotonic, ..
        } = self;
        let mut noted = (*reading, None);
        store.write(&mut |tx| {
            let now = read_clocks(tx, *monotonic)?;
            let (clock, jump) = compare(tx, *reading, now)?;
            noted = (Some(Reading { clock, ..now }), jump);
            Ok(())
        })?;
        self.reading = noted.0;
        self.jump = noted.1.or(self.jump);
        Ok(())
    }
}

/// Compares the clocks with those of the last look, and notes them. Returns them as they are now, and a jump.
fn compare(
    tx: &mut dyn LedgerTransaction,
    before: Option<Reading>,
    now: Reading,
) -> Result<(Clock, Option<Jump>), Fault> {
    let ahead = now.clock.ahead;
    let (ahead, jump, is_set) = match before {
        Some(before) => {
            let step = step(before, now);
            (step.ahead, step.jump, has_changed(before, now))
        }
        // It may have been set while no daemon ran.
        None => (ahead, None, now.clock.wall < tx.seen()?),
    };
    if is_set {
        // Schedules are due at other times of this clock.
        tx.wake_all()?;
    }
    let clock = Clock { ahead, ..now.clock };
    tx.set_clock(clock)?;
    Ok((clock, jump))
}

/// Returns whether the clocks have changed besides the time that has passed.
fn has_changed(before: Reading, now: Reading) -> bool {
    let step = step(before, now);
    step.jump.is_some() || step.ahead != now.clock.ahead
}

fn read_clocks(
    tx: &mut dyn LedgerTransaction,
    monotonic: fn() -> Duration,
) -> Result<Reading, Fault> {
    let sent = monotonic();
    let clock = tx.clock()?;
    // The wall clock is read in whole milliseconds.
    Ok(Reading {
        clock,
        sent: sent.saturating_sub(GRAIN),
        received: monotonic() + GRAIN,
    })
}

/// Returns the time until a schedule is due, or is to be reviewed; none if none is.
pub(super) fn next_look(
    tx: &mut dyn LedgerTransaction,
    clock: Clock,
) -> Result<Option<Duration>, Fault> {
    let next = tx.next_wake()?.into_iter().chain(tx.next_review()?).min();
    let wait = next.map(|next| next.duration_since(clock.wall));
    Ok(wait.map(|wait| Duration::try_from(wait).unwrap_or_default()))
}

/// Returns the time of a clock that no one sets, and that goes on while the machine sleeps.
pub(super) fn monotonic() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}
