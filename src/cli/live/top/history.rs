//! Activity of a pool between one poll and the next, for as long as the screen shows: bounded, and
//! restarted with the pool's counts.

use std::collections::{BTreeMap, VecDeque};

use ganger_pool::status::PoolStatus;

/// Maximum number of samples kept: more than the widest screen shows.
const SAMPLES_MAX: usize = 512;
/// Minimum interval between two polls, in seconds, for a rate.
const APART: f64 = 0.02;

/// Recent activity of a pool.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct History {
    /// Totals at the last poll.
    base: Option<Totals>,
    /// Samples, the newest last.
    samples: VecDeque<Sample>,
}

/// Totals of a pool since it started.
#[derive(Debug, Clone, PartialEq)]
struct Totals {
    /// The daemon's uptime, in seconds.
    at: f64,
    done: u64,
    answered: u64,
    answered_seconds: f64,
    failed: BTreeMap<String, u64>,
}

/// Activity of a pool between two polls.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sample {
    /// Interval between them, in seconds.
    seconds: f64,
    /// Messages done per second.
    pub(super) done: f64,
    /// Average time that a worker took for a message, in seconds; none if none was answered.
    pub(super) latency: Option<f64>,
    /// Failed attempts, by reason.
    failed: BTreeMap<String, u64>,
}

impl Totals {
    fn of(pool: &PoolStatus, at: f64) -> Self {
        let spread = &pool.details.task_duration;
        Self {
            at,
            done: pool.counts.done,
            answered: spread.counts.iter().copied().fold(0, u64::saturating_add),
            answered_seconds: spread.seconds,
            failed: pool.details.failed.clone(),
        }
    }

    /// Returns the activity between the two; none if the counts were restarted.
    fn since(&self, before: &Self) -> Option<Sample> {
        let seconds = Some(self.at - before.at).filter(|seconds| *seconds > 0.0)?;
        let done = self.done.checked_sub(before.done)?;
        let answered = self.answered.checked_sub(before.answered)?;
        let spent = self.answered_seconds - before.answered_seconds;
        let mut failed = BTreeMap::new();
        for (reason, count) in &self.failed {
            let old = before.failed.get(reason).copied().unwrap_or_default();
            failed.insert(reason.clone(), count.checked_sub(old)?);
        }
        failed.retain(|_, count| *count > 0);
        #[expect(clippy::cast_precision_loss, reason = "figures for people")]
        let (done, each) = (done as f64 / seconds, spent / answered as f64);
        Some(Sample {
            seconds,
            done,
            latency: (answered > 0).then_some(each.max(0.0)),
            failed,
        })
    }
}

impl History {
    /// Adds the pool's status at `at`, the daemon's uptime in seconds.
    pub(super) fn add(&mut self, pool: &PoolStatus, at: f64) {
        let now = Totals::of(pool, at);
        let Some(base) = &self.base else {
            self.base = Some(now);
            return;
        };
        // A pool that is busy is shown as it was seen before.
        if (now.at - base.at).abs() < APART {
            return;
        }
        match now.since(base) {
            Some(sample) => self.push(sample),
            None => self.samples.clear(),
        }
        self.base = Some(now);
    }

    fn push(&mut self, sample: Sample) {
        if self.samples.len() == SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
    }

    /// Returns the samples, the newest first.
    pub(super) fn newest(&self) -> impl ExactSizeIterator<Item = &Sample> {
        self.samples.iter().rev()
    }

    /// Returns the failed attempts of about the last `seconds`, by reason, and the actual number of
    /// seconds; none if there is no sample yet.
    pub(super) fn failed_within(&self, seconds: f64) -> Option<(BTreeMap<String, u64>, f64)> {
        let (mut failed, mut covered) = (BTreeMap::new(), 0.0);
        for sample in self.newest() {
            if covered >= seconds {
                break;
            }
            covered += sample.seconds;
            for (reason, count) in &sample.failed {
                let sum: &mut u64 = failed.entry(reason.clone()).or_default();
                *sum = sum.saturating_add(*count);
            }
        }
        (covered > 0.0).then_some((failed, covered))
    }

    /// Returns failed attempts per second, over the last ten; none if there is no sample yet.
    pub(super) fn failed_per_second(&self) -> Option<f64> {
        let (failed, seconds) = self.failed_within(10.0)?;
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let failed = failed.into_values().fold(0, u64::saturating_add) as f64;
        Some(failed / seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ganger_telemetry::metrics::spread::Spread;
    use ganger_telemetry::metrics::{Counts, Details};

    fn see(history: &mut History, at: u32, done: u64, failed: u64) {
        let pool = PoolStatus {
            counts: Counts {
                done,
                ..Counts::default()
            },
            details: Details {
                failed: BTreeMap::from([("timed_out".to_owned(), failed)]),
                task_duration: Spread {
                    counts: vec![done],
                    #[expect(clippy::cast_precision_loss, reason = "it is small")]
                    seconds: done as f64 * 0.25,
                },
                ..Details::default()
            },
            ..PoolStatus::default()
        };
        history.add(&pool, f64::from(at));
    }

    #[test]
    fn what_happened_between_two_looks_is_told_per_second() {
        let mut history = History::default();
        see(&mut history, 10, 100, 3);
        assert_eq!(
            (history.newest().len(), history.failed_per_second()),
            (0, None)
        );
        see(&mut history, 12, 110, 7);
        // It was busy, and is shown as before.
        see(&mut history, 12, 110, 7);
        let sample = history.newest().next().unwrap();
        assert_eq!((sample.done, sample.latency), (5.0, Some(0.25)));
        assert_eq!(history.failed_per_second(), Some(2.0));
        see(&mut history, 13, 110, 7);
        let sample = history.newest().next().unwrap();
        assert_eq!((sample.done, sample.latency), (0.0, None));
        assert_eq!(history.newest().len(), 2);
    }

    #[test]
    fn counts_that_begin_anew_begin_a_new_history() {
        let mut history = History::default();
        for (at, done) in [(10, 100), (11, 110), (12, 2)] {
            see(&mut history, at, done, 0);
        }
        assert_eq!(history.newest().len(), 0);
        see(&mut history, 13, 5, 0);
        assert_eq!(history.newest().next().unwrap().done, 3.0);
        // Another daemon answered, which has not been up for as long.
        see(&mut history, 3, 6, 0);
        assert_eq!(history.newest().len(), 0);
    }

    #[test]
    fn only_the_last_seconds_count_and_no_more_than_a_screen_is_kept() {
        let mut history = History::default();
        let samples = u32::try_from(SAMPLES_MAX).unwrap() + 10;
        for at in 0..=samples {
            // One failed attempt a second at first, then two.
            let failed = at + at.saturating_sub(samples - 5);
            see(&mut history, at, at.into(), failed.into());
        }
        assert_eq!(history.newest().len(), SAMPLES_MAX);
        let (failed, seconds) = history.failed_within(10.0).unwrap();
        assert_eq!((failed["timed_out"], seconds), (15, 10.0));
    }
}
