//! Where those that wait begin, as far as we know. The entries of rows that are gone stay in the index
//! until the server next cleans up, on a busy queue hundreds of thousands before the first that counts, and
//! longer while anyone's transaction is open for long; a look from the start steps over each of them. So
//! once that takes long we go on from the last row that we have claimed, and look from the start again
//! after a multiple of the time that it took. What comes in before that place, as what is given back or was
//! committed late, waits no longer than that; what is more urgent does not wait.

use std::cmp::Reverse;
use std::time::Duration;

use tokio::time::Instant;
use tokio_postgres::{Error, Row};

/// A look from the start that takes no longer than this is always one.
const SHORT: Duration = Duration::from_millis(2);

/// After so many times what one took comes the next.
const PARTS: u32 = 20;

/// However long they take.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// A row's place among those that are no suspects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) priority: i32,
    pub(crate) id: i64,
}

impl Position {
    /// That of a row.
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

/// What we know of it.
#[derive(Debug, Default)]
pub(super) struct Front {
    /// What is before it was claimed, or could not be, when we last looked from the start.
    last: Option<Position>,
    /// When that ended, and how long it took.
    looked: Option<(Instant, Duration)>,
}

impl Front {
    /// Beyond which place to look now; none for all that there is.
    pub(super) fn beyond(&self, now: Instant) -> Option<Position> {
        let again = self.again()?;
        self.last.filter(|_| now < again)
    }

    /// When to look from the start again, if not every time.
    pub(super) fn again(&self) -> Option<Instant> {
        let (ended, took) = self.looked?;
        let pause = took.saturating_mul(PARTS).min(PAUSE_MAX);
        (took >= SHORT).then(|| ended + pause)
    }

    /// A look from the start has taken so long. What it has found may be anywhere, so what is claimed next
    /// is claimed from the start, too.
    pub(super) fn looked(&mut self, ended: Instant, took: Duration, is_ready: bool) {
        self.looked = Some((ended, took));
        if is_ready {
            self.last = None;
        }
    }

    /// The last one has been claimed; others may be ready that are between it and what was the last.
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
