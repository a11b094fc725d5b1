//! Times at which a source polls its queue and checks the owners. Pure, except for the clock.

use std::time::Duration;

use tokio::time::Instant;

use crate::rules;
use crate::table::Stop;

/// Minimum time between two polls of a queue in which nothing was ready, however often others write to the
/// database.
const GAP: Duration = Duration::from_millis(1);

/// The kernel notifies of a closed lock file just before it releases the lock, so a check at once may come too
/// early.
const OWNERS_RECHECK: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(super) struct Schedule {
    poll_interval: Duration,
    next: Instant,
    last: Instant,
    owners: Instant,
    /// True if the next check of the owners is followed by another soon.
    is_owner_gone: bool,
    beat: Instant,
}

impl Schedule {
    /// Makes a schedule in which everything is due at once.
    pub(super) fn new(poll_interval: Duration) -> Self {
        let now = Instant::now();
        Self {
            poll_interval,
            next: now,
            last: now,
            owners: now,
            is_owner_gone: false,
            beat: now,
        }
    }

    /// Returns the time of the next poll or check, apart from the heartbeat.
    pub(super) fn next(&self) -> Instant {
        self.next.min(self.owners)
    }

    /// Returns the time of the next poll of the queue.
    pub(super) fn next_poll(&self) -> Instant {
        self.next
    }

    /// Returns the time of the next heartbeat.
    pub(super) fn next_beat(&self) -> Instant {
        self.beat
    }

    /// Plans a poll of the queue at once.
    pub(super) fn poll_now(&mut self) {
        self.next = Instant::now();
    }

    /// Plans two checks of the owners, one of whom seems to be gone.
    pub(super) fn check_owners_now(&mut self) {
        self.owners = Instant::now();
        self.is_owner_gone = true;
    }

    /// Records that others have written to the database.
    pub(super) fn database_changed(&mut self) {
        self.next = self.next.min(self.last + GAP);
    }

    /// Returns whether a heartbeat is due, and plans the next one after `interval`.
    pub(super) fn beat_if_due(&mut self, now: Instant, interval: Duration) -> bool {
        let is_due = now >= self.beat;
        if is_due {
            self.beat = now + interval;
        }
        is_due
    }

    /// Returns whether a check of the owners is due. The queue is polled with it.
    pub(super) fn are_owners_due(&mut self, now: Instant) -> bool {
        let is_due = now >= self.owners;
        if is_due {
            self.owners = now
                + match std::mem::take(&mut self.is_owner_gone) {
                    true => OWNERS_RECHECK,
                    false => self.poll_interval,
                };
            self.next = now;
        }
        is_due
    }

    /// Records the start of a poll; until more is known the next comes after the poll interval.
    pub(super) fn poll_started(&mut self, now: Instant) {
        self.last = now;
        self.next = now + self.poll_interval;
    }

    /// Records when the next row falls due, as the poll found.
    pub(super) fn polled(&mut self, due_in: Option<Duration>) {
        self.next = self.last + rules::next_poll(self.poll_interval, due_in);
    }

    /// Records the reason that a claim ended, and whether it claimed anything.
    pub(super) fn claimed(&mut self, stop: Stop, any: bool, due_in: Option<Duration>) {
        let now = Instant::now();
        self.last = now;
        self.next = match stop {
            Stop::Long => now,
            Stop::Full if any => now,
            // Not even one row fitted: settlements have to make room first, and the write that settles
            // them claims anyway.
            Stop::Full => now + self.poll_interval,
            Stop::Empty => now + rules::next_poll(self.poll_interval, due_in),
        };
    }

    #[cfg(test)]
    pub(super) fn set_beat(&mut self, beat: Instant) {
        self.beat = beat;
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const POLL: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn the_next_poll_follows_from_how_a_claim_ended() {
        let (some, soon) = (Some(POLL * 9), Some(POLL / 4));
        let table = [
            (Stop::Long, false, None, Duration::ZERO),
            (Stop::Full, true, None, Duration::ZERO),
            (Stop::Full, false, None, POLL),
            (Stop::Empty, true, None, POLL),
            (Stop::Empty, true, some, POLL),
            (Stop::Empty, false, soon, POLL / 4),
        ];
        for (stop, any, due_in, expected) in table {
            let mut schedule = Schedule::new(POLL);
            schedule.claimed(stop, any, due_in);
            let wait = schedule.next_poll() - Instant::now();
            assert_eq!(wait, expected, "{stop:?} {any} {due_in:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_owners_are_checked_twice_if_one_is_gone_and_the_queue_with_them() {
        let mut schedule = Schedule::new(POLL);
        let now = Instant::now();
        assert!(schedule.are_owners_due(now));
        schedule.poll_started(now);
        assert!(!schedule.are_owners_due(now));
        assert_eq!(schedule.next(), now + POLL);
        for wait in [OWNERS_RECHECK, POLL] {
            if wait == OWNERS_RECHECK {
                schedule.check_owners_now();
            }
            assert!(schedule.are_owners_due(Instant::now()));
            assert_eq!(schedule.next_poll(), Instant::now());
            schedule.poll_started(Instant::now());
            assert_eq!(schedule.next(), Instant::now() + wait);
            advance(wait).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn changes_bring_the_next_poll_no_closer_than_the_gap() {
        let mut schedule = Schedule::new(POLL);
        let now = Instant::now();
        schedule.poll_started(now);
        schedule.database_changed();
        assert_eq!(schedule.next_poll(), now + GAP);
        schedule.poll_now();
        schedule.database_changed();
        assert_eq!(schedule.next_poll(), now);
    }
}
