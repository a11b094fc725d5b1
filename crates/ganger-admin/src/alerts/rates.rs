//! How many there were lately, of counts that only grow until they begin anew. Pure; the
//! clock is the caller's.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// Samples are no closer than that part of the window, so that there are few.
const PARTS: u32 = 60;

/// A count over the last time.
#[derive(Debug)]
pub(super) struct Recent {
    /// How far the count was when it was last seen.
    seen: u64,
    /// All that was counted since the first look.
    total: u64,
    /// What that was before, a second apart.
    samples: VecDeque<(Instant, u64)>,
}

impl Recent {
    /// Looks at the count from now on; what it says already was long ago.
    pub(super) fn from(count: u64, now: Instant) -> Self {
        Self {
            seen: count,
            total: 0,
            samples: VecDeque::from([(now, 0)]),
        }
    }

    /// The count is so far now. Returns how much came within that time.
    pub(super) fn see(&mut self, count: u64, now: Instant, window: Duration) -> u64 {
        // Who counts less than before has begun anew.
        let more = count.checked_sub(self.seen).unwrap_or(count);
        (self.seen, self.total) = (count, self.total + more);
        let is_due = |(at, _): &(Instant, u64)| now - *at >= window / PARTS;
        if self.samples.back().is_none_or(is_due) {
            self.samples.push_back((now, self.total));
        }
        // The oldest of those that are left is as old as the window, so that it is covered.
        while self
            .samples
            .get(1)
            .is_some_and(|(at, _)| now - *at >= window)
        {
            self.samples.pop_front();
        }
        let before = self.samples.front().map_or(self.total, |(_, total)| *total);
        self.total - before
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn what_was_there_before_and_what_is_long_ago_does_not_count() {
        let start = Instant::now();
        let mut rate = Recent::from(1000, start);
        let at = |seconds| start + Duration::from_secs(seconds);
        let table = [(1, 1000, 0), (2, 1007, 7), (30, 1008, 8), (61, 1008, 8)];
        for (second, count, told) in table {
            assert_eq!(rate.see(count, at(second), MINUTE), told, "{second}");
        }
        assert_eq!(
            rate.see(3, at(62), MINUTE),
            4,
            "it has begun anew, and one was since the second 2"
        );
        assert_eq!(rate.see(3, at(200), MINUTE), 0);
    }

    proptest! {
        /// Never less than there were in 59 seconds nor more than in 62, however often it is looked.
        #[test]
        fn it_is_what_was_counted_in_a_minute(steps in prop::collection::vec((1..3000_u64, 0..5_u64), 1..300)) {
            let start = Instant::now();
            let mut rate = Recent::from(0, start);
            let (mut now, mut count, mut all) = (start, 0, Vec::new());
            for (ms, more) in steps {
                now += Duration::from_millis(ms);
                count += more;
                all.push((now, more));
                let within = |seconds: u64| -> u64 {
                    let long = Duration::from_secs(seconds);
                    all.iter().filter(|(at, _)| now - *at < long).map(|(_, more)| more).sum()
                };
                let told = rate.see(count, now, MINUTE);
                // A look every three seconds sees what came between only then.
                prop_assert!((within(56)..=within(67)).contains(&told), "{told}");
                prop_assert!(rate.samples.len() <= 63);
            }
        }
    }
}
