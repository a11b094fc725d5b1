//! The position at which the search for ready rows begins. The index keeps the entries of removed rows until
//! the server's next vacuum: on a busy queue hundreds of thousands before the first live one, and more if any
//! transaction stays open for long. A search from the start steps over each of them. So once that takes long,
//! searches begin behind the last claimed row, and a search from the start follows only after a multiple of
//! its duration. A row that appears before the position, such as one that was released or was committed late,
//! waits no longer than that; a row of a higher priority does not wait.

use std::cmp::Reverse;
use std::time::Duration;

use tokio::time::Instant;
use tokio_postgres::{Error, Row};

/// Duration up to which each search is from the start.
const SHORT: Duration = Duration::from_millis(2);

/// Pause before the next search from the start, as a multiple of its duration.
const PARTS: u32 = 20;

/// Maximum of that pause.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Position of a row among those that are not suspects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) priority: i32,
    pub(crate) id: i64,
}

impl Position {
    /// Returns the position of a row.
    pub(super) fn of(row: &Row) -> Result<Self, Error> {
        Ok(Self {
            priority: row.try_get("priority")?,
            id: row.try_get("id")?,
        })
    }

    fn order(self) -> (Reverse<i32>, i64) {
        (Reverse(self.priority), self.id)
    }
}

/// The position, and the searches that it is based on.
#[derive(Debug, Default)]
pub(super) struct Front {
    /// At the last search from the start, every row before it was claimed, or could not be.
    last: Option<Position>,
    /// End and duration of the last search from the start.
    looked: Option<(Instant, Duration)>,
}

impl Front {
    /// Returns the position at which to begin now; none for the start.
    pub(super) fn beyond(&self, now: Instant) -> Option<Position> {
        let again = self.again()?;
        self.last.filter(|_| now < again)
    }

    /// Returns the time of the next search from the start, unless each search is from there.
    pub(super) fn again(&self) -> Option<Instant> {
        let (ended, took) = self.looked?;
        let pause = took.saturating_mul(PARTS).min(PAUSE_MAX);
        (took >= SHORT).then(|| ended + pause)
    }

    /// Records a search from the start. A row that it has found may be anywhere, so the next claim is from
    /// the start, too.
    pub(super) fn looked(&mut self, ended: Instant, took: Duration, is_ready: bool) {
        self.looked = Some((ended, took));
        if is_ready {
            self.last = None;
        }
    }

    /// Records the position of the last claimed row. Unless the claim took all ready rows (`are_all`),
    /// there may be others between it and the previous position.
    pub(super) fn claimed(&mut self, last: Option<Position>, are_all: bool) {
        let before = self.last.filter(|_| are_all);
        let last = before.into_iter().chain(last);
        self.last = last.max_by_key(|place| place.order()).or(self.last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(priority: i32, id: i64) -> Position {
        Position { priority, id }
    }

    #[tokio::test]
    async fn a_short_look_is_always_from_the_start() {
        let mut front = Front::default();
        let now = Instant::now();
        front.claimed(Some(place(0, 5)), false);
        assert_eq!(front.beyond(now), None);
        front.looked(now, SHORT / 2, false);
        assert_eq!((front.beyond(now), front.again()), (None, None));
    }

    #[tokio::test]
    async fn a_long_one_is_made_again_after_a_while() {
        let mut front = Front::default();
        let now = Instant::now();
        front.claimed(Some(place(0, 5)), false);
        for (took, pause) in [(SHORT, SHORT * PARTS), (Duration::from_secs(9), PAUSE_MAX)] {
            front.looked(now, took, false);
            assert_eq!(front.again(), Some(now + pause));
            let almost = now + pause - Duration::from_nanos(1);
            assert_eq!(front.beyond(almost), Some(place(0, 5)));
            assert_eq!(front.beyond(now + pause), None);
        }
    }

    #[tokio::test]
    async fn what_a_look_from_the_start_has_found_is_claimed_from_there() {
        let mut front = Front::default();
        let now = Instant::now();
        front.claimed(Some(place(0, 5)), false);
        front.looked(now, SHORT, true);
        assert_eq!(front.beyond(now), None);
        front.claimed(Some(place(0, 1)), true);
        assert_eq!(front.beyond(now), Some(place(0, 1)));
    }

    #[test]
    fn a_place_is_kept_only_if_nothing_was_left_before_it() {
        let mut front = Front::default();
        let later = [place(9, 1), place(9, 2), place(0, 1), place(-9, 1)];
        for place in later {
            front.claimed(Some(place), true);
            assert_eq!(front.last, Some(place));
        }
        front.claimed(Some(place(0, 1)), true);
        front.claimed(None, true);
        front.claimed(None, false);
        assert_eq!(front.last, Some(place(-9, 1)));
        front.claimed(Some(place(0, 1)), false);
        assert_eq!(front.last, Some(place(0, 1)));
    }
}
