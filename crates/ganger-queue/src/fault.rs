//! Faults of sources: one type for all kinds of queue, which names none of them.

use std::error::Error;
use std::fmt;

/// A fault at the other end of a source.
#[derive(Debug)]
pub struct SourceFault {
    /// Name of the source in the configuration, once it is known.
    place: Option<String>,
    kind: FaultKind,
    cause: Box<dyn Error + Send + Sync>,
}

/// Kinds of fault that are treated differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// The source can't be reached, or is not fit to be used.
    Unusable,
    /// The queue or topic does not exist.
    NoQueue,
    /// The source can be used, and does not take this message.
    Refused,
    /// This kind of queue does not support the request.
    Unsupported,
    /// This program was built without the kind of queue.
    MissingFeature,
    /// Reported by a daemon over its admin API, which names the source itself.
    Remote,
}

impl SourceFault {
    /// Makes a fault of that kind.
    pub fn new(kind: FaultKind, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self {
            place: None,
            kind,
            cause: cause.into(),
        }
    }

    /// Makes the fault of a source that can't be used.
    pub fn unusable(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(FaultKind::Unusable, cause)
    }

    /// Makes the fault of a request that this kind of queue does not support.
    pub fn unsupported(rule: &'static str) -> Self {
        Self::new(FaultKind::Unsupported, rule)
    }

    /// Makes the fault of a kind of queue that this program was built without.
    pub fn missing_feature(feature: &str) -> Self {
        let cause = format!(
            "this ganger was built without {feature}: build it with the cargo feature `{feature}`"
        );
        Self::new(FaultKind::MissingFeature, cause)
    }

    /// Makes the fault that a daemon reported.
    pub fn remote(report: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(FaultKind::Remote, report)
    }

    /// Returns the fault with `name` as its source.
    #[must_use]
    pub fn of(self, name: &str) -> Self {
        Self {
            place: Some(name.to_owned()),
            ..self
        }
    }

    /// Returns its kind.
    pub fn kind(&self) -> FaultKind {
        self.kind
    }
}

impl fmt::Display for SourceFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(name) if self.kind != FaultKind::Remote => {
                write!(f, "source `{name}`: {}", self.cause)
            }
            _ => write!(f, "{}", self.cause),
        }
    }
}

impl Error for SourceFault {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.source()
    }
}
