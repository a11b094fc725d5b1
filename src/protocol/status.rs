//! The numbers by which a worker says what has become of a message, and their names. What the
//! daemon does about each is decided elsewhere.

use std::fmt;

/// The status of an [`Output`](super::Output). Any number may arrive; those that the protocol
/// knows have names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(pub i64);

impl Status {
    /// Feedback of a version 1 worker; not an answer.
    pub const IGNORE: Self = Self(-1);
    /// The first frame of a version 2 worker.
    pub const HELLO: Self = Self(100);
    /// A log record.
    pub const LOG: Self = Self(101);
    /// How far the work has come; also a sign of life.
    pub const PROGRESS: Self = Self(102);
    /// A message to publish while the work goes on.
    pub const EMIT: Self = Self(103);
    /// The work is done.
    pub const DONE: Self = Self(200);
    /// The work is done and this is the reply.
    pub const DONE_WITH_REPLY: Self = Self(201);
    /// Please hand the message out again.
    pub const REQUEUE: Self = Self(300);
    /// The work failed and always will.
    pub const REJECT: Self = Self(400);
    /// The work failed for now.
    pub const RETRY: Self = Self(429);
    /// The same as [`Status::RETRY`], for those who think of a service that is away.
    pub const UNAVAILABLE: Self = Self(503);
    /// The work failed.
    pub const UNKNOWN_ERROR: Self = Self(500);

    /// The name that the protocol gives it, if it does.
    pub fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::IGNORE => "IGNORE_MESSAGE",
            Self::HELLO => "HELLO",
            Self::LOG => "LOG",
            Self::PROGRESS => "PROGRESS",
            Self::EMIT => "EMIT",
            Self::DONE => "DONE",
            Self::DONE_WITH_REPLY => "DONE_WITH_REPLY",
            Self::REQUEUE => "REQUEUE",
            Self::REJECT => "REJECT",
            Self::RETRY | Self::UNAVAILABLE => "RETRY",
            Self::UNKNOWN_ERROR => "UNKNOWN_ERROR",
            _ => return None,
        })
    }

    /// Whether it leaves the message in the worker's hands: -1, and the whole of 100 to 199.
    pub fn is_note(self) -> bool {
        self == Self::IGNORE || (100..200).contains(&self.0)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{} {name}", self.0),
            None => write!(f, "{}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_its_name_where_it_has_one() {
        let shown = [-1, 200, 429, 503, 299].map(|code| Status(code).to_string());
        assert_eq!(
            shown,
            [
                "-1 IGNORE_MESSAGE",
                "200 DONE",
                "429 RETRY",
                "503 RETRY",
                "299"
            ]
        );
    }

    #[test]
    fn notes_are_minus_one_and_the_hundreds() {
        let notes: Vec<i64> = [-2, -1, 0, 99, 100, 150, 199, 200, 500]
            .into_iter()
            .filter(|code| Status(*code).is_note())
            .collect();
        assert_eq!(notes, [-1, 100, 150, 199]);
    }
}
