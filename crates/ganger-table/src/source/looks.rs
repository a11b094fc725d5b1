//! The times at which a source looks at its queue and at the owners. Pure, but for the clock.

use std::time::Duration;

use tokio::time::Instant;

use crate::rules;
use crate::table::Stop;

/// Minimum time between two looks at a queue in which nothing was ready, however often others
/// write to the database.
const GAP: Duration = Duration::from_millis(1);

/// The kernel notifies of a closed lock file just before it releases the lock, so a look at once
/// may come too early.
const SECOND_LOOK_AT_OWNERS: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(super) struct Looks {
    poll_interval: Duration,
    next: Instant,
    last: Instant,
    owners: Instant,
    owners_again: Option<Instant>,
    beat: Instant,
}

impl Looks {
    /// All are due at once.
    pub(super) fn new(poll_interval: Duration) -> Self {
        let now = Instant::now();
        Self {
            poll_interval,
            next: now,
            last: now,
            owners: now,
            owners_again: None,
            beat: now,
        }
    }

    /// Time of the next look of any kind, without the heartbeat.
    pub(super) fn next(&self) -> Instant {
        let next = self.next.min(self.owners);
        next.min(self.owners_again.unwrap_or(next))
    }

    /// Time of the next look at the queue.
    pub(super) fn next_at_queue(&self) -> Instant {
        self.next
    }

    /// Time of the next heartbeat.
    pub(super) fn next_beat(&self) -> Instant {
        self.beat
    }

    /// The queue is looked at as soon as possible.
    pub(super) fn look_now(&mut self) {
        self.next = Instant::now();
    }

    /// The owners are looked at as soon as possible.
    pub(super) fn look_at_owners_now(&mut self) {
        self.owners = Instant::now();
    }

    /// Others have written to the database.
    pub(super) fn news(&mut self) {
        self.next = self.next.min(self.last + GAP);
    }

    /// Returns whether a heartbeat is due, of which one comes in each interval.
    pub(super) fn beats(&mut self, now: Instant, interval: Duration) -> bool {
        let is_due = now >= self.beat;
        if is_due {
            self.beat = now + interval;
        }
        is_due
    }

    /// Returns whether the owners are to be looked at. The queue is looked at with them.
    pub(super) fn are_owners_due(&mut self, now: Instant) -> bool {
        let again = self.owners_again.is_some_and(|again| now >= again);
        let is_due = now >= self.owners || again;
        if is_due {
            self.owners_again = (!again).then(|| now + SECOND_LOOK_AT_OWNERS);
            self.owners = now + self.poll_interval;
            self.next = now;
        }
        is_due
    }

    /// Begins a look at the queue; until more is known the next is that of the poll interval.
    pub(super) fn begin(&mut self, now: Instant) {
        self.last = now;
        self.next = now + self.poll_interval;
    }

    /// That look has found when something falls due.
    pub(super) fn found(&mut self, due_in: Option<Duration>) {
        self.next = self.last + rules::next_look(self.poll_interval, due_in);
    }

    /// A claim has ended so, and whether it has claimed anything.
    pub(super) fn claimed(&mut self, stop: Stop, any: bool, due_in: Option<Duration>) {
        let now = Instant::now();
        self.last = now;
        self.next = match stop {
            Stop::Long => now,
            Stop::Full if any => now,
            // Not even one row fitted: settlements have to make room first, and the write that settles
            // them claims anyway.
            Stop::Full => now + self.poll_interval,
            Stop::Empty => now + rules::next_look(self.poll_interval, due_in),
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
    async fn the_next_look_follows_from_how_a_claim_ended() {
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
            let mut looks = Looks::new(POLL);
            looks.claimed(stop, any, due_in);
            let wait = looks.next_at_queue() - Instant::now();
            assert_eq!(wait, expected, "{stop:?} {any} {due_in:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_owners_are_looked_at_twice_and_the_queue_with_them() {
        let mut looks = Looks::new(POLL);
        let now = Instant::now();
        assert!(looks.are_owners_due(now));
        looks.begin(now);
        assert!(!looks.are_owners_due(now));
        assert_eq!(looks.next(), now + SECOND_LOOK_AT_OWNERS);
        advance(SECOND_LOOK_AT_OWNERS).await;
        assert!(looks.are_owners_due(Instant::now()));
        assert_eq!(looks.next_at_queue(), Instant::now());
        looks.begin(Instant::now());
        assert_eq!(looks.next(), Instant::now() + POLL);
        looks.look_at_owners_now();
        assert!(looks.are_owners_due(Instant::now()));
    }

    #[tokio::test(start_paused = true)]
    async fn news_bring_the_next_look_no_closer_than_the_gap() {
        let mut looks = Looks::new(POLL);
        let now = Instant::now();
        looks.begin(now);
        looks.news();
        assert_eq!(looks.next_at_queue(), now + GAP);
        looks.look_now();
        looks.news();
        assert_eq!(looks.next_at_queue(), now);
    }
}
