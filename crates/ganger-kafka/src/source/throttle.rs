//! Limit on the data that librdkafka holds locally. Each partition has a queue there, which accepts one
//! record however large it is, so that hundreds of partitions hold hundreds of them. While the partitions
//! that have messages hold as much as the limit allows, the others are paused, and take turns. Pausing
//! discards the local buffer, so a partition that has messages is only paused after a long turn. Pure.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use crate::broker::settings;
use crate::broker::setup::Plan;
use crate::broker::start_positions::Part;
use crate::broker::topic_requirements::Found;

/// Time within which partitions whose turn it is should be fetched, before others are resumed too.
const GRACE: Duration = Duration::from_millis(150);
/// Maximum length of a turn while others wait.
const TURN: Duration = Duration::from_secs(10);
/// Minimum interval between two checks.
const CHECK_EVERY: Duration = Duration::from_millis(5);

/// State of the turns.
#[derive(Debug)]
pub(super) struct Throttle {
    /// Maximum size of all queues together.
    bytes_max: usize,
    /// Assumed size of all queues.
    held: usize,
    /// Assumed size of a queue that has messages, without its last record.
    queue_bytes: usize,
    /// Assumed size of that record: the largest recent one.
    record_bytes: usize,
    /// Paused partitions, in the order of their turns.
    waiting: VecDeque<Part>,
    next_turn: Instant,
    turn_ends: Instant,
    next_look: Instant,
    /// True if a check was requested before it was due.
    is_due: bool,
}

/// Partitions to pause and to resume.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) pause: Vec<Part>,
    pub(super) resume: Vec<Part>,
}

impl Throttle {
    /// Creates the throttle for a source with this plan.
    pub(super) fn of(plan: &Plan, found: &Found) -> Self {
        let queue_bytes = settings::queue_bytes(&plan.properties(found));
        Self::new(plan.fetched_bytes_max(), queue_bytes, Instant::now())
    }

    pub(super) fn new(bytes_max: usize, queue_bytes: usize, now: Instant) -> Self {
        Self {
            bytes_max,
            held: 0,
            queue_bytes,
            record_bytes: 0,
            waiting: VecDeque::new(),
            next_turn: now,
            turn_ends: now,
            next_look: now,
            is_due: false,
        }
    }

    /// Records the size of a record that has just been read.
    pub(super) fn read(&mut self, bytes: usize) {
        self.record_bytes -= self.record_bytes / 64;
        self.record_bytes = self.record_bytes.max(bytes);
    }

    /// Returns the assumed size of all queues together.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// Forgets a partition that is no longer assigned, or is renumbered.
    pub(super) fn forget(&mut self, part: Part) {
        self.waiting.retain(|other| *other != part);
    }

    /// Returns the time of the next timer.
    pub(super) fn due(&self) -> Option<Instant> {
        let turn = (!self.waiting.is_empty()).then_some(self.next_turn);
        let look = self.is_due.then_some(self.next_look);
        turn.into_iter().chain(look).min()
    }

    /// Returns whether a check is due.
    pub(super) fn may_look(&mut self, now: Instant) -> bool {
        let may = self.next_look <= now;
        self.is_due = !may;
        if may {
            self.next_look = now + CHECK_EVERY;
        }
        may
    }

    /// Returns the partitions to pause and to resume, given the fetched ones that have messages in their
    /// local buffer and those that have none. `most` is the memory that the daemon has left for them.
    pub(super) fn turn(
        &mut self,
        full: &BTreeSet<Part>,
        empty: &BTreeSet<Part>,
        most: usize,
        now: Instant,
    ) -> Change {
        let bytes_max = self.bytes_max.min(most);
        let each = self.queue_bytes + self.record_bytes;
        let held = full.len() * each;
        self.held = held;
        let mut change = Change::default();
        if held > bytes_max {
            if self.waiting.is_empty() {
                self.turn_ends = now + TURN;
            }
            change.pause.extend(empty);
        }
        if self.turn_ends <= now && held > bytes_max / 2 && !self.waiting.is_empty() {
            change.pause.extend(full);
            self.turn_ends = now + TURN;
        }
        if !change.pause.is_empty() {
            self.waiting.extend(&change.pause);
            self.next_turn = now + GRACE;
        } else if held <= bytes_max / 2 && self.next_turn <= now {
            let room = (bytes_max / 2 / each.max(1)).max(1).min(self.waiting.len());
            change.resume.extend(self.waiting.drain(..room));
            self.next_turn = now + GRACE;
        } else if self.next_turn <= now {
            // Checked again later, not at once.
            self.next_turn = now + GRACE;
        }
        change
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1024;
    /// More than the partitions may hold by themselves.
    const ALL: usize = usize::MAX;

    /// Returns a throttle with 1000 KiB for all, of which a queue takes ten beside its last record.
    fn throttle() -> (Throttle, Instant) {
        let now = Instant::now();
        let mut throttle = Throttle::new(1000 * KIB, 10 * KIB, now);
        throttle.read(90 * KIB);
        (throttle, now)
    }

    fn set(parts: impl IntoIterator<Item = Part>) -> BTreeSet<Part> {
        parts.into_iter().collect()
    }

    fn change(pause: &[Part], resume: &[Part]) -> Change {
        Change {
            pause: pause.to_vec(),
            resume: resume.to_vec(),
        }
    }

    #[test]
    fn nobody_is_paused_while_there_is_room() {
        let (mut throttle, now) = throttle();
        let full: BTreeSet<Part> = (0..10).collect();
        assert_eq!(
            throttle.turn(&full, &set([20, 21]), ALL, now),
            Change::default()
        );
        assert_eq!(throttle.due(), None);
    }

    #[test]
    fn what_the_daemon_has_left_may_be_less_than_that() {
        let (mut throttle, now) = throttle();
        let full: BTreeSet<Part> = (0..3).collect();
        let half = throttle.turn(&full, &set([20, 21]), 299 * KIB, now);
        assert_eq!((half, throttle.held()), (change(&[20, 21], &[]), 300 * KIB));
        // One at a time is fetched in any case.
        let next = throttle.turn(&set([]), &set([]), 0, now + GRACE);
        assert_eq!((next, throttle.held()), (change(&[], &[20]), 0));
    }

    #[test]
    fn those_without_anything_wait_until_there_is_room() {
        let (mut throttle, now) = throttle();
        let full: BTreeSet<Part> = (0..11).collect();
        assert_eq!(
            throttle.turn(&full, &set([20, 21]), ALL, now),
            change(&[20, 21], &[])
        );
        let later = now + GRACE;
        assert_eq!(throttle.due(), Some(later));
        assert_eq!(
            throttle.turn(&set(0..9), &set([]), ALL, later),
            Change::default()
        );
        let later = later + GRACE;
        assert_eq!(
            throttle.turn(&set(0..2), &set([]), ALL, later),
            change(&[], &[20, 21])
        );
        assert_eq!(throttle.due(), None);
    }

    #[test]
    fn as_many_as_there_is_room_for_come_at_a_time() {
        let (mut throttle, now) = throttle();
        let full: BTreeSet<Part> = (0..11).collect();
        let empty: Vec<Part> = (20..40).collect();
        throttle.turn(&full, &set(empty.clone()), ALL, now);
        let now = now + GRACE;
        assert_eq!(
            throttle.turn(&set([]), &set([]), ALL, now),
            change(&[], &empty[..5])
        );
        assert_eq!(
            throttle.turn(&set([]), &set(empty[..5].to_vec()), ALL, now),
            Change::default()
        );
        let now = now + GRACE;
        assert_eq!(
            throttle.turn(&set([]), &set(empty[..5].to_vec()), ALL, now),
            change(&[], &empty[5..10])
        );
    }

    #[test]
    fn a_record_larger_than_all_that_may_be_held_comes_by_itself() {
        let (mut throttle, now) = throttle();
        throttle.read(5000 * KIB);
        assert_eq!(
            throttle.turn(&set([1]), &set([2, 3]), ALL, now),
            change(&[2, 3], &[])
        );
        assert_eq!(
            throttle.turn(&set([]), &set([1]), ALL, now + GRACE),
            change(&[], &[2])
        );
    }

    /// Even if the partitions that have messages are slow.
    #[test]
    fn everybody_has_a_turn() {
        let (mut throttle, now) = throttle();
        let full: BTreeSet<Part> = (0..11).collect();
        throttle.turn(&full, &set([20, 21]), ALL, now);
        assert_eq!(
            throttle.turn(&full, &set([]), ALL, now + TURN / 2),
            Change::default()
        );
        let now = now + TURN;
        assert_eq!(
            throttle.turn(&full, &set([]), ALL, now),
            change(&full.iter().copied().collect::<Vec<Part>>(), &[])
        );
        let now = now + GRACE;
        let next = throttle.turn(&set([]), &set([]), ALL, now);
        assert_eq!(next, change(&[], &[20, 21, 0, 1, 2]));
    }

    #[test]
    fn one_large_record_is_not_remembered_for_ever() {
        let (mut throttle, _) = throttle();
        for _ in 0..1000 {
            throttle.read(KIB);
        }
        assert!(throttle.record_bytes < 2 * KIB);
    }
}
