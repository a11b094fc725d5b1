//! Pending queries for the positions of partitions, and partitions that cannot be read. Pure.

use std::collections::BTreeSet;

use tokio::time::Instant;

use super::deadlines::Deadlines;
use super::group::AGAIN;
use crate::broker::consumer::TopicPartition;
use crate::broker::start_positions::Part;

/// Partitions with unknown positions.
#[derive(Debug, Default)]
pub(super) struct Positions {
    /// Assigned partitions whose start position is not known yet.
    unstarted: Vec<TopicPartition>,
    ask_unstarted_at: Option<Instant>,
    /// Partitions whose position no longer exists, and the times at which to query their state.
    lost: Deadlines,
    /// True while the state of some is being queried.
    is_asking: bool,
    /// Partitions that cannot be read, by name.
    unread: BTreeSet<String>,
}

impl Positions {
    /// Returns the time of the next timer.
    pub(super) fn due(&self) -> Option<Instant> {
        let lost = self.lost.next().filter(|_| !self.is_asking);
        lost.into_iter().chain(self.ask_unstarted_at).min()
    }

    /// Removes partitions that are no longer assigned; those that had not started have no number.
    pub(super) fn forget(&mut self, parts: &[Part], names: &[TopicPartition]) {
        parts.iter().for_each(|part| self.lost.set(*part, None));
        self.unstarted.retain(|each| !names.contains(each));
    }

    // -- start positions --

    /// Records that a partition's start position is not known yet.
    pub(super) fn unknown(&mut self, partition: TopicPartition, now: Instant) {
        self.unstarted.push(partition);
        self.ask_for_unstarted(now);
    }

    /// Schedules the next query for partitions without a start position.
    pub(super) fn ask_for_unstarted(&mut self, now: Instant) {
        self.ask_unstarted_at = Some(now + AGAIN);
    }

    /// Returns the partitions to query now for their start position.
    pub(super) fn take_unstarted(&mut self, now: Instant) -> Option<Vec<TopicPartition>> {
        self.ask_unstarted_at.take_if(|when| *when <= now)?;
        (!self.unstarted.is_empty()).then(|| self.unstarted.clone())
    }

    /// Returns whether a partition has no start position and is still assigned.
    pub(super) fn is_unstarted(&self, partition: &TopicPartition) -> bool {
        self.unstarted.contains(partition)
    }

    /// Records that a partition has started.
    pub(super) fn begun(&mut self, partition: &TopicPartition) {
        self.unstarted.retain(|each| each != partition);
    }

    // -- states --

    /// Returns whether its state is to be queried.
    pub(super) fn has_lost_position(&self, part: Part) -> bool {
        self.lost.has(part)
    }

    /// Schedules the query of its state.
    pub(super) fn ask_at(&mut self, part: Part, when: Instant) {
        self.lost.set(part, Some(when));
    }

    /// Takes the partitions whose state is to be queried now. None while another query is open.
    pub(super) fn take_lost_positions(&mut self, now: Instant) -> Vec<Part> {
        if self.is_asking {
            return Vec::new();
        }
        let due = self.lost.until(now);
        due.iter().for_each(|part| self.lost.set(*part, None));
        due
    }

    /// Sets whether a query is open.
    pub(super) fn set_asking(&mut self, is_asking: bool) {
        self.is_asking = is_asking;
    }

    // -- unreadable partitions --

    /// Records that a partition cannot be read.
    pub(super) fn unread(&mut self, name: String) {
        self.unread.insert(name);
    }

    /// Records that a partition can be read, or is no longer assigned. True if it was the last.
    pub(super) fn read(&mut self, name: &str) -> bool {
        self.unread.remove(name) && self.unread.is_empty()
    }

    /// Returns whether some partition cannot be read.
    pub(super) fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn those_that_have_not_begun_are_asked_about_until_they_have_or_go() {
        let (mut positions, now) = (Positions::default(), Instant::now());
        let partition = |number| ("orders".to_owned(), number);
        positions.unknown(partition(1), now);
        positions.unknown(partition(2), now);
        assert_eq!(positions.take_unstarted(now), None);
        let then = positions.due().unwrap();
        assert_eq!(
            positions.take_unstarted(then),
            Some(vec![partition(1), partition(2)])
        );
        assert_eq!(positions.due(), None, "it is being asked");
        positions.begun(&partition(1));
        positions.ask_for_unstarted(then);
        assert!(!positions.is_unstarted(&partition(1)) && positions.is_unstarted(&partition(2)));
        positions.forget(&[], &[partition(2)]);
        assert_eq!(positions.take_unstarted(then + AGAIN), None);
    }

    #[test]
    fn of_those_astray_all_that_are_due_are_asked_about_at_once() {
        let (mut positions, now) = (Positions::default(), Instant::now());
        let later = now + Duration::from_secs(1);
        positions.ask_at(1, now);
        positions.ask_at(2, now);
        positions.ask_at(3, later);
        assert_eq!(positions.due(), Some(now));
        assert_eq!(positions.take_lost_positions(now), [1, 2]);
        positions.set_asking(true);
        assert_eq!(
            (positions.due(), positions.has_lost_position(1)),
            (None, false)
        );
        assert!(positions.take_lost_positions(later).is_empty());
        positions.set_asking(false);
        positions.forget(&[3], &[]);
        assert!(positions.take_lost_positions(later).is_empty());
    }

    #[test]
    fn the_trouble_is_over_with_the_last_that_can_be_read() {
        let mut positions = Positions::default();
        positions.unread("orders/1".to_owned());
        positions.unread("orders/2".to_owned());
        assert!(!positions.read("orders/1") && positions.has_unread());
        assert!(!positions.read("orders/1"));
        assert!(positions.read("orders/2") && !positions.has_unread());
    }
}
