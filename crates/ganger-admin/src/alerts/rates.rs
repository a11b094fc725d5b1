//! Recent increase of counts that only grow until they restart. Pure; the clock is the caller's.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// Number of parts of the window; samples are at least one part apart, so that there are few.
const PARTS: u32 = 60;

/// Increase of a count over the last window.
#[derive(Debug)]
pub(super) struct Recent {
    /// Last value of the count.
    seen: u64,
    /// Total increase since the first look.
    total: u64,
    /// Earlier totals, a part of the window apart.
    samples: VecDeque<(Instant, u64)>,
}

impl Recent {
    /// Starts to watch the count; its present value is ignored as old.
    pub(super) fn from(count: u64, now: Instant) -> Self {
        Self {
            seen: count,
            total: 0,
            samples: VecDeque::from([(now, 0)]),
        }
    }

    /// Takes the present count. Returns the increase within the window.
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
        /// Never less than the count of 59 seconds nor more than that of 62, however often it is looked.
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
