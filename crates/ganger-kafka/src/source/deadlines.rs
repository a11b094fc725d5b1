//! Deadlines of partitions. Pure.

use std::collections::{BTreeSet, HashMap};

use tokio::time::Instant;

use crate::broker::start_positions::Part;

/// At most one deadline for each partition.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    of: HashMap<Part, Instant>,
    order: BTreeSet<(Instant, Part)>,
}

impl Deadlines {
    /// Sets or removes the deadline of a partition.
    pub(super) fn set(&mut self, part: Part, when: Option<Instant>) {
        let before = match when {
            Some(when) => self.of.insert(part, when),
            None => self.of.remove(&part),
        };
        if let Some(before) = before {
            self.order.remove(&(before, part));
        }
        self.order.extend(when.map(|when| (when, part)));
    }

    pub(super) fn has(&self, part: Part) -> bool {
        self.of.contains_key(&part)
    }

    /// Returns the earliest deadline.
    pub(super) fn next(&self) -> Option<Instant> {
        self.order.first().map(|(when, _)| *when)
    }

    /// Returns the partitions whose deadline has passed.
    pub(super) fn until(&self, now: Instant) -> Vec<Part> {
        let due = self.order.range(..=(now, Part::MAX));
        due.map(|(_, part)| *part).collect()
    }

    /// Returns the partitions whose deadline is later than `when`.
    pub(super) fn after(&self, when: Instant) -> Vec<Part> {
        let later = self.order.range((when, Part::MAX)..);
        later.map(|(_, part)| *part).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_falls_due_once_and_in_order() {
        let now = Instant::now();
        let at = |ms| now + Duration::from_millis(ms);
        let mut deadlines = Deadlines::default();
        deadlines.set(1, Some(at(5)));
        deadlines.set(2, Some(at(3)));
        deadlines.set(1, Some(at(1)));
        deadlines.set(3, Some(at(9)));
        assert_eq!(deadlines.next(), Some(at(1)));
        assert_eq!(deadlines.until(at(3)), [1, 2]);
        assert_eq!(deadlines.after(at(3)), [3]);
        deadlines.set(1, None);
        assert!(!deadlines.has(1) && deadlines.has(2));
        assert_eq!(deadlines.next(), Some(at(3)));
    }
}
