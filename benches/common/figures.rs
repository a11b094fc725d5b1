//! Figures of one run, and their aggregation over several runs.

use serde::{Serialize, Serializer};

/// One measured interval.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Run {
    pub(crate) messages: usize,
    pub(crate) seconds: f64,
    /// Processor time of the process that drives the workers, without the workers.
    pub(crate) cpu_seconds: f64,
}

#[expect(clippy::cast_precision_loss, reason = "there are far fewer messages")]
impl Run {
    pub(crate) fn per_second(&self) -> f64 {
        self.messages as f64 / self.seconds
    }

    pub(crate) fn cpu_micros(&self) -> f64 {
        self.cpu_seconds / self.messages as f64 * 1e6
    }
}

/// The same measurement in every round.
#[derive(Debug, Clone, Default)]
pub(crate) struct Series(pub(crate) Vec<Run>);

impl Series {
    pub(crate) fn push(&mut self, run: Run) {
        self.0.push(run);
    }

    /// Returns the median of the messages per second.
    pub(crate) fn per_second(&self) -> f64 {
        median(self.0.iter().map(Run::per_second))
    }

    /// Returns the median of the processor time per message, in microseconds.
    pub(crate) fn cpu_micros(&self) -> f64 {
        median(self.0.iter().map(Run::cpu_micros))
    }

    /// Returns the median over the rounds of this throughput as a share of the other's in the same round.
    pub(crate) fn ratio_to(&self, other: &Self) -> f64 {
        let pairs = self.0.iter().zip(&other.0);
        median(pairs.map(|(ours, theirs)| ours.per_second() / theirs.per_second()))
    }
}

impl Serialize for Series {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Shown<'a> {
            messages_per_second: f64,
            cpu_micros_per_message: f64,
            rounds: &'a [Run],
        }
        Shown {
            messages_per_second: self.per_second(),
            cpu_micros_per_message: self.cpu_micros(),
            rounds: &self.0,
        }
        .serialize(serializer)
    }
}

/// Returns the median; for an even number of values the mean of the middle two, and zero for none.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let sorted = sorted(values);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        odd if odd % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// Returns the least value that `percent` of all values do not exceed; zero for none.
pub(crate) fn percentile(values: impl IntoIterator<Item = f64>, percent: usize) -> f64 {
    let sorted = sorted(values);
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
}

fn sorted(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    sorted
}
