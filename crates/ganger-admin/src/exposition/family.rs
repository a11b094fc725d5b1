//! A metric and its series, before they are written for anybody.

use ganger_telemetry::metrics::spread::Spread;

/// A metric with all its series.
#[derive(Debug, Clone, PartialEq)]
pub struct Family {
    /// Its name, as Prometheus writes it.
    pub name: &'static str,
    /// What it tells.
    pub help: &'static str,
    /// What its values are.
    pub kind: FamilyKind,
    /// Its series.
    pub samples: Vec<Sample>,
}

/// What the values of a metric are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FamilyKind {
    /// A total that only grows, until the daemon or the pool starts again.
    Counter,
    /// Something that goes up and down.
    Gauge,
    /// How durations are spread, in seconds.
    Histogram,
}

impl FamilyKind {
    /// What Prometheus calls it.
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
    /// A spread of durations.
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

    /// A total, without series yet.
    pub fn counter(name: &'static str, help: &'static str) -> Self {
        Self::new(name, FamilyKind::Counter, help)
    }

    /// A value that goes up and down, without series yet.
    pub fn gauge(name: &'static str, help: &'static str) -> Self {
        Self::new(name, FamilyKind::Gauge, help)
    }

    /// A distribution, without series yet.
    pub fn histogram(name: &'static str, help: &'static str) -> Self {
        Self::new(name, FamilyKind::Histogram, help)
    }

    /// With these series.
    #[must_use]
    pub fn of(mut self, samples: impl IntoIterator<Item = Sample>) -> Self {
        self.samples.extend(samples);
        self
    }
}

impl Sample {
    /// A series of one number.
    pub fn number(labels: Vec<(&'static str, String)>, number: f64) -> Self {
        Self {
            labels,
            value: SampleValue::Number(number),
        }
    }

    /// A count, or a size. Beyond 2⁵³ a number of Prometheus has no room for each.
    #[expect(
        clippy::cast_precision_loss,
        reason = "Prometheus has no other numbers"
    )]
    pub fn count(labels: Vec<(&'static str, String)>, count: u64) -> Self {
        Self::number(labels, count as f64)
    }
}
