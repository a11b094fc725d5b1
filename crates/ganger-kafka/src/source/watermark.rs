//! Watermark of a partition: the offset below which everything is done, which alone can be committed, and the
//! offsets done beyond it. Pure.
//!
//! "Everything" means every offset that was *delivered*: compaction and the markers of transactions leave
//! gaps, which will never be done.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

/// State of one partition since it was assigned.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Watermark {
    /// Lower bound of the next delivered offset.
    next: i64,
    /// Offsets delivered and not done.
    undone: BTreeSet<i64>,
    /// One past the highest offset that is done.
    top: i64,
    /// Number of runs of consecutive undone offsets.
    runs: usize,
    /// Offsets done before the assignment and not yet delivered again: in order, beyond `next`.
    done_before: VecDeque<Range<i64>>,
}

/// State of a delivered offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Delivered {
    /// New, to be worked on.
    New,
    /// Done before a restart.
    DoneBefore,
    /// Delivered before: librdkafka may repeat the last message when it pauses.
    Again,
}

impl Watermark {
    /// Begins at an offset, with the ranges known to be done, in order. It may begin beyond some of them, if
    /// those offsets no longer exist.
    pub(super) fn new(from: i64, done_before: Vec<Range<i64>>) -> Self {
        let top = done_before.last().map_or(from, |range| range.end);
        let mut mark = Self {
            top: top.max(from),
            done_before: done_before.into(),
            ..Self::default()
        };
        mark.skip_to(from);
        mark
    }

    /// Records that a message was delivered.
    pub(super) fn delivered(&mut self, offset: i64) -> Delivered {
        if offset < self.next {
            return Delivered::Again;
        }
        self.next = offset.saturating_add(1);
        while self
            .done_before
            .front()
            .is_some_and(|range| range.end <= offset)
        {
            self.done_before.pop_front();
        }
        if let Some(range) = self.done_before.front_mut()
            && range.contains(&offset)
        {
            range.start = self.next;
            return Delivered::DoneBefore;
        }
        self.runs += usize::from(!self.undone.contains(&(offset - 1)));
        self.undone.insert(offset);
        Delivered::New
    }

    /// Declares that undelivered offsets below this one will never be delivered.
    pub(super) fn skip_to(&mut self, offset: i64) {
        self.next = self.next.max(offset);
        while self
            .done_before
            .front()
            .is_some_and(|range| range.end <= offset)
        {
            self.done_before.pop_front();
        }
        if let Some(range) = self.done_before.front_mut() {
            range.start = range.start.max(offset);
        }
    }

    /// Marks a message as done. False if it was not pending.
    pub(super) fn done(&mut self, offset: i64) -> bool {
        if !self.undone.remove(&offset) {
            return false;
        }
        let neighbours = [offset - 1, offset + 1].map(|other| self.undone.contains(&other));
        match neighbours {
            [true, true] => self.runs += 1,
            [false, false] => self.runs -= 1,
            _ => {}
        }
        self.top = self.top.max(offset.saturating_add(1));
        true
    }

    /// Returns the offset to commit: everything below it is done.
    pub(super) fn committable(&self) -> i64 {
        self.undone.first().copied().unwrap_or(self.next)
    }

    /// Returns one past the highest offset that was delivered.
    pub(super) fn position(&self) -> i64 {
        self.next
    }

    /// Returns the number of delivered messages that are not done.
    pub(super) fn undone(&self) -> usize {
        self.undone.len()
    }

    /// Returns the number of messages not delivered yet that are known to be done.
    pub(super) fn done_ahead(&self) -> u64 {
        let count = |range: &Range<i64>| (range.end - range.start).max(0).unsigned_abs();
        self.done_before.iter().map(count).sum()
    }

    /// Returns the ranges done beyond the offset to commit, in order. Offsets that were never delivered
    /// count as done.
    pub(super) fn ahead(&self) -> Vec<Range<i64>> {
        let mut ranges = Vec::with_capacity(self.runs + self.done_before.len());
        let end = self.top.min(self.next);
        let mut from = self.committable();
        for &offset in self.undone.range(..end) {
            push(&mut ranges, from..offset);
            from = offset + 1;
        }
        push(&mut ranges, from..end);
        for range in &self.done_before {
            push(&mut ranges, range.clone());
        }
        ranges
    }

    /// Returns the extent of completion beyond the commit, if `offset` were done too: the number of offsets
    /// in it, and of runs of undone ones.
    pub(super) fn spread(&self, offset: i64) -> (u64, usize) {
        let top = self.top.max(offset.saturating_add(1));
        let span = top.saturating_sub(self.committable());
        (span.unsigned_abs(), self.runs + self.done_before.len())
    }

    /// Returns whether no offset beyond this one is done.
    pub(super) fn is_ahead_of_all(&self, offset: i64) -> bool {
        offset >= self.top
    }
}

fn push(ranges: &mut Vec<Range<i64>>, range: Range<i64>) {
    if range.is_empty() {
        return;
    }
    match ranges.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ => ranges.push(range),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn marked(delivered: &[i64], done: &[i64]) -> Watermark {
        let mut mark = Watermark::new(0, Vec::new());
        for &offset in delivered {
            assert_eq!(mark.delivered(offset), Delivered::New);
        }
        for &offset in done {
            assert!(mark.done(offset));
        }
        mark
    }

    fn pairs(mark: &Watermark) -> Vec<(i64, i64)> {
        mark.ahead()
            .iter()
            .map(|range| (range.start, range.end))
            .collect()
    }

    #[test]
    fn what_was_done_before_is_not_to_be_done() {
        let mut mark = Watermark::new(0, vec![2..5, 8..9]);
        assert_eq!(mark.done_ahead(), 4);
        assert_eq!(mark.delivered(3), Delivered::DoneBefore);
        assert_eq!(mark.done_ahead(), 2);
        mark.skip_to(8);
        assert_eq!(mark.done_ahead(), 1);
    }

    #[test]
    fn only_what_is_contiguous_can_be_committed() {
        let nothing: &[i64] = &[];
        let table = [
            (nothing, nothing, 0, vec![]),
            (&[0, 1, 2], nothing, 0, vec![]),
            (&[0, 1, 2], &[0, 1], 2, vec![]),
            (&[0, 1, 2], &[1, 2], 0, vec![(1, 3)]),
            (&[0, 1, 2], &[2, 1, 0], 3, vec![]),
            // 3 to 6 and 8 were compacted away.
            (&[0, 2, 7, 9], &[0, 7], 2, vec![(3, 8)]),
        ];
        for (delivered, done, committable, ahead) in table {
            let mark = marked(delivered, done);
            assert_eq!(mark.committable(), committable, "{delivered:?} {done:?}");
            assert_eq!(pairs(&mark), ahead, "{delivered:?} {done:?}");
        }
    }

    #[test]
    fn what_was_done_before_is_known_again() {
        let mut mark = Watermark::new(10, vec![12..14, 20..30]);
        assert_eq!(mark.committable(), 10);
        assert_eq!(mark.ahead(), [12..14, 20..30]);
        assert_eq!(mark.delivered(10), Delivered::New);
        assert_eq!(mark.delivered(12), Delivered::DoneBefore);
        assert_eq!(mark.ahead(), [11..14, 20..30]);
        assert!(mark.done(10));
        assert_eq!(mark.committable(), 13);
        // 13 to 24 no longer exist.
        assert_eq!(mark.delivered(25), Delivered::DoneBefore);
        assert_eq!((mark.committable(), pairs(&mark)), (26, vec![(26, 30)]));
        assert_eq!(mark.delivered(40), Delivered::New);
        assert_eq!((mark.committable(), pairs(&mark)), (40, vec![]));
    }

    #[test]
    fn what_comes_again_changes_nothing() {
        let mut mark = marked(&[0, 1, 2, 3], &[0, 2]);
        let before = mark.clone();
        for offset in 0..4 {
            assert_eq!(mark.delivered(offset), Delivered::Again);
        }
        assert_eq!(mark, before);
        assert!(!mark.done(7) && !mark.done(0));
    }

    #[test]
    fn what_is_gone_is_skipped() {
        let mut mark = Watermark::new(0, vec![20..30, 40..50]);
        mark.delivered(0);
        mark.skip_to(25);
        assert_eq!((mark.committable(), mark.position()), (0, 25));
        assert_eq!(pairs(&mark), [(1, 30), (40, 50)]);
        assert!(mark.done(0));
        assert_eq!(mark.committable(), 25);
        mark.skip_to(5);
        assert_eq!(mark.position(), 25);
    }

    /// A partition with gaps, and an order in which its messages are done.
    fn history() -> impl Strategy<Value = (Vec<i64>, Vec<i64>)> {
        proptest::collection::btree_set(0i64..400, 1..120).prop_flat_map(|offsets| {
            let offsets: Vec<i64> = offsets.into_iter().collect();
            let done = proptest::sample::subsequence(offsets.clone(), 0..=offsets.len());
            (Just(offsets), done.prop_shuffle())
        })
    }

    proptest! {
        #[test]
        fn nothing_undone_is_ever_committed((delivered, done) in history()) {
            let mut mark = Watermark::new(0, Vec::new());
            let (mut coming, mut waiting) = (delivered.iter(), Vec::new());
            for offset in &done {
                // Delivered just in time, so that both are mixed.
                while mark.position() <= *offset {
                    let next = *coming.next().unwrap();
                    mark.delivered(next);
                    waiting.push(next);
                }
                prop_assert!(mark.done(*offset));
                waiting.retain(|other| other != offset);
                let lowest = waiting.first().copied().unwrap_or(mark.position());
                prop_assert_eq!(mark.committable(), lowest);
                for range in mark.ahead() {
                    prop_assert!(!range.is_empty());
                    prop_assert!(waiting.iter().all(|undone| !range.contains(undone)));
                }
                let known = |offset: &i64| {
                    *offset < mark.committable() || mark.ahead().iter().any(|r| r.contains(offset))
                };
                let finished = delivered.iter().filter(|o| **o < mark.position());
                for offset in finished.filter(|offset| !waiting.contains(offset)) {
                    prop_assert!(known(offset));
                }
                let runs = waiting.iter().filter(|o| !waiting.contains(&(**o - 1))).count();
                prop_assert_eq!(mark.spread(0).1, runs);
            }
        }

        #[test]
        fn what_is_done_below_the_start_is_of_no_account(
            (delivered, done) in history(), from in 0i64..500,
        ) {
            let known = marked(&delivered, &done).ahead();
            let mark = Watermark::new(from, known.clone());
            prop_assert_eq!((mark.committable(), mark.position()), (from, from));
            for range in mark.ahead() {
                prop_assert!(from <= range.start && !range.is_empty());
            }
            let beyond = |ranges: Vec<Range<i64>>| -> Vec<i64> {
                ranges.into_iter().flatten().filter(|offset| *offset >= from).collect()
            };
            prop_assert_eq!(beyond(mark.ahead()), beyond(known));
        }

        #[test]
        fn a_restart_replays_what_is_undone_and_nothing_else((delivered, done) in history()) {
            let mut mark = marked(&delivered, &done);
            let mut again = Watermark::new(mark.committable(), mark.ahead());
            let undone: Vec<i64> =
                delivered.iter().copied().filter(|o| !done.contains(o)).collect();
            let coming = delivered.iter().filter(|o| **o >= mark.committable());
            let replayed: Vec<i64> = coming
                .copied()
                .filter(|offset| again.delivered(*offset) == Delivered::New)
                .collect();
            prop_assert_eq!(&replayed, &undone);
            prop_assert_eq!(again.committable(), mark.committable());
            prop_assert_eq!(again.ahead(), mark.ahead());
            for offset in undone {
                prop_assert!(again.done(offset) && mark.done(offset));
            }
            prop_assert_eq!(again.committable(), mark.committable());
        }
    }
}
