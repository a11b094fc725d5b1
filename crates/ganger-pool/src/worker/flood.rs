//! Rate limit for the lines of a stream that are logged: a token bucket that counts suppressed lines. Pure;
//! the caller provides the time.

use std::time::Duration;

use tokio::time::Instant;

/// Number of lines that may come at once.
const BURST: f64 = 1000.0;
/// Number of lines per second that may come permanently.
const PER_SECOND: f64 = 200.0;
/// Number of tokens that must gather, once the bucket is empty, before lines are logged again: a flood is
/// reported about once a second, not at every line that is logged.
const RESUME_AT: f64 = PER_SECOND;

/// Rate limit on one stream.
#[derive(Debug)]
pub(super) struct Flood {
    tokens: f64,
    refilled_at: Instant,
    suppressed: u64,
}

/// Decision about a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    /// It is logged, after a report of the suppressed lines, if there were any.
    Log { suppressed: u64 },
    /// It is suppressed.
    Suppress,
}

impl Flood {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            tokens: BURST,
            refilled_at: now,
            suppressed: 0,
        }
    }

    /// Decides about one line.
    pub(super) fn admit(&mut self, now: Instant) -> Admission {
        self.refill(now);
        let needed = if self.is_suppressing() {
            RESUME_AT
        } else {
            1.0
        };
        if self.tokens < needed {
            self.suppressed += 1;
            return Admission::Suppress;
        }
        self.tokens -= 1.0;
        let suppressed = self.take_suppressed();
        Admission::Log { suppressed }
    }

    /// Returns whether there are suppressed lines that are not reported.
    pub(super) fn is_suppressing(&self) -> bool {
        self.suppressed > 0
    }

    /// Returns the time at which the stream, if it stays silent, is calm enough to report the suppressed
    /// lines.
    pub(super) fn calm_at(&self) -> Instant {
        let after = ((RESUME_AT - self.tokens) / PER_SECOND).max(0.0);
        self.refilled_at + Duration::from_secs_f64(after)
    }

    /// Takes the number of lines suppressed since the last call or report.
    pub(super) fn take_suppressed(&mut self) -> u64 {
        std::mem::take(&mut self.suppressed)
    }

    fn refill(&mut self, now: Instant) {
        let gained = now.duration_since(self.refilled_at).as_secs_f64() * PER_SECOND;
        self.tokens = (self.tokens + gained).min(BURST);
        self.refilled_at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOGGED: Admission = Admission::Log { suppressed: 0 };

    #[test]
    fn a_burst_passes_then_the_flood_is_held_back_and_counted() {
        let start = Instant::now();
        let mut flood = Flood::new(start);
        assert!((0..1000).all(|_| flood.admit(start) == LOGGED));
        assert!((0..50).all(|_| flood.admit(start) == Admission::Suppress));
        let later = start + Duration::from_millis(900);
        assert_eq!(flood.admit(later), Admission::Suppress);
        let calm = flood.calm_at();
        assert_eq!(flood.admit(calm), Admission::Log { suppressed: 51 });
        assert_eq!(flood.admit(calm), LOGGED);
    }

    #[test]
    fn a_steady_flood_gets_its_share_and_no_more() {
        let start = Instant::now();
        let mut flood = Flood::new(start);
        let (mut logged, mut told) = (0_u32, 0_u64);
        for millisecond in 0..10_000 {
            if let Admission::Log { suppressed } =
                flood.admit(start + Duration::from_millis(millisecond))
            {
                logged += 1;
                told += suppressed;
            }
        }
        assert!((2800..=3000).contains(&logged), "{logged}");
        assert_eq!(u64::from(logged) + told + flood.take_suppressed(), 10_000);
    }

    #[test]
    fn a_slow_stream_is_never_held_back() {
        let start = Instant::now();
        let mut flood = Flood::new(start);
        assert!((0..5000).all(|n| flood.admit(start + Duration::from_millis(5 * n)) == LOGGED));
    }
}
