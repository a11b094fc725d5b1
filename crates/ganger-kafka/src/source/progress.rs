//! Progress of a partition, and the content of its next commit. Pure.

use std::collections::BTreeMap;

use super::watermark::{Delivered, Watermark};
use crate::broker::commit_metadata;
use crate::broker::commit_metadata::{Carried, PartitionSeed, Tried};

/// Size of a commit's metadata above which no message is handed out that would add to it.
const METADATA_BYTES_PAUSE: usize = 2800;
/// Number of tried messages with the same effect.
const TRIED_MAX: usize = 150;

/// Progress of a partition.
#[derive(Debug, Default)]
pub(super) struct Progress {
    mark: Watermark,
    /// Messages that were tried and are not done.
    tried: BTreeMap<i64, Tried>,
    /// Last commit; none if nothing was committed.
    committed: Option<(i64, String)>,
    /// Commit in flight.
    sent: Option<(i64, String)>,
    /// Number of messages done since the last confirmed commit.
    uncommitted: u64,
    /// Number of those that the commit in flight covers.
    telling: u64,
    /// True if the progress has changed since the last commit was written.
    dirty: bool,
}

impl Progress {
    /// Begins at the last commit, or, without one, at a chosen offset, which is to be committed.
    pub(super) fn new(offset: i64, committed: Option<String>, carried: Carried) -> Self {
        Self {
            mark: Watermark::new(offset, carried.ahead),
            tried: carried.tried.into_iter().collect(),
            dirty: committed.is_none(),
            committed: committed.map(|metadata| (offset, metadata)),
            sent: None,
            uncommitted: 0,
            telling: 0,
        }
    }

    /// Records that a message was read.
    pub(super) fn delivered(&mut self, offset: i64) -> Delivered {
        let delivered = self.mark.delivered(offset);
        self.dirty |= delivered == Delivered::DoneBefore;
        delivered
    }

    /// Returns the attempts of a message before a restart.
    pub(super) fn tried(&self, offset: i64) -> Option<Tried> {
        self.tried.get(&offset).copied()
    }

    /// Records that a message is kept for another attempt.
    pub(super) fn retried(&mut self, offset: i64, tried: Tried) {
        self.tried.insert(offset, tried);
        self.dirty = true;
    }

    /// Marks a message as done.
    pub(super) fn done(&mut self, offset: i64) {
        self.dirty = true;
        self.uncommitted += 1;
        self.mark.done(offset);
        self.tried.remove(&offset);
    }

    /// Declares that unread offsets below this one will never be read.
    pub(super) fn skip_to(&mut self, offset: i64) {
        self.mark.skip_to(offset);
        self.dirty = true;
    }

    /// Returns whether a message may be handed out: the commit's metadata has room for the growth by its
    /// completion out of order. Offsets below the highest one done only make it shorter, as does the lowest
    /// that is not done, and messages that were tried are included already.
    pub(super) fn has_room(&self, offset: i64) -> bool {
        let adds_nothing = !self.mark.is_ahead_of_all(offset)
            || offset <= self.mark.committable()
            || self.tried.contains_key(&offset);
        if adds_nothing {
            return true;
        }
        let (span, runs) = self.mark.spread(offset);
        commit_metadata::text_bytes(span, runs) <= METADATA_BYTES_PAUSE
            && self.tried.len() <= TRIED_MAX
    }

    /// Returns the commit to send, if it differs from the last; with `force`, even if not.
    pub(super) fn commit(
        &mut self,
        place: PartitionSeed,
        metadata_bytes_max: usize,
        force: bool,
    ) -> Option<(i64, String)> {
        if !self.dirty && !force {
            return None;
        }
        self.dirty = false;
        let offset = self.mark.committable();
        // Done long ago, before a restart.
        self.tried = self.tried.split_off(&offset);
        let text = commit_metadata::encode(place, offset, &self.carried(), metadata_bytes_max);
        let commit = (offset, text);
        if self.committed.as_ref() == Some(&commit) && !force {
            return None;
        }
        self.sent = Some(commit.clone());
        self.telling = self.uncommitted;
        Some(commit)
    }

    /// Returns the next offset to read.
    pub(super) fn position(&self) -> i64 {
        self.mark.position()
    }

    /// Returns the offset below which everything is done.
    pub(super) fn committable(&self) -> i64 {
        self.mark.committable()
    }

    /// Returns the number of messages that were read and are not done.
    pub(super) fn undone(&self) -> usize {
        self.mark.undone()
    }

    /// Returns the number of messages not read yet that are known to be done.
    pub(super) fn done_ahead(&self) -> u64 {
        self.mark.done_ahead()
    }

    /// Returns the known progress beyond the offset to commit.
    pub(super) fn carried(&self) -> Carried {
        Carried {
            ahead: self.mark.ahead(),
            tried: self.tried.iter().map(|(at, tried)| (*at, *tried)).collect(),
        }
    }

    /// Returns one past the highest offset that was read, by this reader or an earlier one.
    pub(super) fn read_to(&self) -> i64 {
        let position = self.mark.position();
        self.mark
            .ahead()
            .last()
            .map_or(position, |last| last.end.max(position))
    }

    /// Returns whether progress was ever committed.
    pub(super) fn was_committed(&self) -> bool {
        self.committed.is_some()
    }

    /// Handles the outcome of the commit in flight.
    pub(super) fn committed(&mut self, taken: bool) {
        match self.sent.take() {
            Some(sent) if taken => {
                self.committed = Some(sent);
                self.uncommitted -= self.telling;
            }
            Some(_) => self.dirty = true,
            None => {}
        }
    }

    /// Returns the number of messages done that the broker does not know of yet: the next reader of the
    /// partition gets them again.
    pub(super) fn uncommitted(&self) -> u64 {
        self.uncommitted
    }

    /// Gives up committing the rest: no reader needs it.
    pub(super) fn give_up(&mut self) {
        self.dirty = false;
    }

    /// Returns whether all progress is committed.
    pub(super) fn is_committed(&self) -> bool {
        !self.dirty && self.sent.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = commit_metadata::TEXT_BYTES_MAX;

    fn here() -> PartitionSeed {
        PartitionSeed::new("cluster", "topic", 0)
    }

    fn reading(count: i64) -> Progress {
        let mut progress = Progress::new(0, Some(String::new()), Carried::default());
        for offset in 0..count {
            assert_eq!(progress.mark.delivered(offset), Delivered::New);
        }
        progress
    }

    #[test]
    fn only_what_changed_is_committed() {
        let mut progress = reading(3);
        assert_eq!(progress.commit(here(), MAX, false), None);
        progress.done(0);
        assert!(!progress.is_committed());
        assert_eq!(
            progress.commit(here(), MAX, false),
            Some((1, String::new()))
        );
        assert_eq!(progress.commit(here(), MAX, false), None);
        assert!(!progress.is_committed());
        progress.committed(false);
        assert_eq!(
            progress.commit(here(), MAX, false),
            Some((1, String::new()))
        );
        progress.committed(true);
        assert!(progress.is_committed());
        assert_eq!(progress.commit(here(), MAX, true), Some((1, String::new())));
    }

    #[test]
    fn what_the_broker_does_not_know_to_be_done_is_counted() {
        let mut progress = reading(5);
        progress.done(0);
        progress.done(3);
        assert_eq!(progress.uncommitted(), 2);
        progress.commit(here(), MAX, false).unwrap();
        progress.done(1);
        progress.committed(false);
        assert_eq!(progress.uncommitted(), 3);
        progress.commit(here(), MAX, false).unwrap();
        progress.done(2);
        progress.committed(true);
        assert_eq!(progress.uncommitted(), 1);
    }

    #[test]
    fn where_nothing_was_committed_the_start_is() {
        let mut progress = Progress::new(7, None, Carried::default());
        assert_eq!(
            progress.commit(here(), MAX, false),
            Some((7, String::new()))
        );
    }

    #[test]
    fn attempts_and_what_is_done_ahead_survive() {
        let mut progress = reading(5);
        let tried = Tried {
            attempts: 2,
            crashes: 1,
        };
        progress.retried(1, tried);
        progress.done(0);
        progress.done(3);
        let (offset, text) = progress.commit(here(), MAX, false).unwrap();
        assert_eq!(offset, 1);
        let carried = commit_metadata::decode(here(), offset, &text).unwrap();
        let mut again = Progress::new(offset, Some(text), carried);
        let kinds: Vec<Delivered> = (1..5).map(|offset| again.mark.delivered(offset)).collect();
        use Delivered::{DoneBefore, New};
        assert_eq!(kinds, [New, New, DoneBefore, New]);
        assert_eq!(again.tried(1), Some(tried));
        for offset in [1, 2, 4] {
            again.done(offset);
        }
        assert_eq!(again.commit(here(), MAX, false), Some((5, String::new())));
    }

    #[test]
    fn what_has_been_tried_is_tried_again() {
        let mut progress = reading(1000);
        let tried = Tried {
            attempts: 1,
            crashes: 0,
        };
        for offset in 0..=300 {
            progress.retried(offset, tried);
        }
        assert!((0..=300).all(|offset| progress.has_room(offset)));
        assert!(!progress.has_room(301), "it could be one more");
    }

    #[test]
    fn what_would_not_fit_is_not_handed_out() {
        let mut progress = reading(100_000);
        for offset in (1..99_000).step_by(2) {
            if !progress.has_room(offset) {
                break;
            }
            progress.done(offset);
        }
        let text = progress.commit(here(), MAX, false).unwrap().1;
        assert!(text.len() > 1000 && text.len() < MAX, "{}", text.len());
        assert!(!progress.has_room(99_999), "it would lengthen it");
        assert!(
            progress.has_room(0) && progress.has_room(2),
            "these shorten it"
        );
        let known = commit_metadata::decode(here(), 0, &text).unwrap();
        assert_eq!(known.ahead, progress.mark.ahead());
    }

    proptest::proptest! {
        #[test]
        fn the_lowest_undone_message_always_has_room(
            steps in proptest::collection::vec((0i64..3000, proptest::bool::ANY), 0..3000),
        ) {
            let mut progress = reading(3000);
            for (offset, is_done) in steps {
                if is_done {
                    progress.done(offset);
                } else if offset >= progress.mark.committable() {
                    let tried = Tried { attempts: 1, crashes: 0 };
                    progress.retried(offset, tried);
                }
                proptest::prop_assert!(progress.has_room(progress.mark.committable()));
            }
        }
    }
}
