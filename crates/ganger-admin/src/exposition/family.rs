//! A metric and its series, independent of the format.

use ganger_telemetry::metrics::spread::Spread;

/// A metric with all its series.
#[derive(Debug, Clone, PartialEq)]
pub struct Family {
    /// Its name, in Prometheus' form.
    pub name: &'static str,
    /// Its help text.
    pub help: &'static str,
    /// The kind of its values.
    pub kind: FamilyKind,
    /// Its series.
    pub samples: Vec<Sample>,
}

/// Kind of a metric's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FamilyKind {
    /// A total that only grows, until the daemon or the pool starts again.
    Counter,
    /// A value that goes up and down.
    Gauge,
    /// A distribution of durations, in seconds.
    Histogram,
}

impl FamilyKind {
    /// Returns Prometheus' name of the kind.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// One series at this moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Names and values of its labels.
    pub labels: Vec<(&'static str, String)>,
    /// Its value.
    pub value: SampleValue,
}

/// The value of a series.
#[derive(Debug, Clone, PartialEq)]
pub enum SampleValue {
    /// A number.
    Number(f64),
    /// A distribution of durations.
    Spread(Spread),
}

impl Family {
    pub(super) fn new(name: &'static str, kind: FamilyKind, help: &'static str) -> Self {
        Self {
            name,
            help,
            kind,
            samples: Vec::new(),
        }
    }

    /// Returns a total, without series yet.
    pub fn counter(name: &'static str, help: &'static str) -> Self {
        Self::new(name, FamilyKind::Counter, help)
    }

    /// Returns a value that goes up and down, without series yet.
    pub fn gauge(name: &'static str, help: &'static str) -> Self {
        Self::new(name, FamilyKind::Gauge, help)
    }

    /// Returns a distribution, without series yet.
    pub fn histogram(name: &'static str, help: &'static str) -> Self {
        Self::new(name, FamilyKind::Histogram, help)
    }

    /// Adds these series.
    #[must_use]
    pub fn of(mut self, samples: impl IntoIterator<Item = Sample>) -> Self {
        self.samples.extend(samples);
        self
    }
}

impl Sample {
    /// Returns a series of one number.
    pub fn number(labels: Vec<(&'static str, String)>, number: f64) -> Self {
        Self {
            labels,
            value: SampleValue::Number(number),
        }
    }

    /// Returns a series of a count, or a size. Beyond 2⁵³ Prometheus' numbers can't represent each.
    #[expect(
        clippy::cast_precision_loss,
        reason = "Prometheus has no other numbers"
    )]
    pub fn count(labels: Vec<(&'static str, String)>, count: u64) -> Self {
        Self::number(labels, count as f64)
    }
}
