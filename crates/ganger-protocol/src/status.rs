//! The status numbers by which a worker reports the outcome of a message: their names and meanings.
//! The daemon's reaction is decided elsewhere.

use std::fmt;

/// The status of an [`Output`](super::Output). Any number may arrive; those that the protocol
/// knows have names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(pub i64);

/// Meaning of a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// The message stays in the worker's hands.
    Note(Note),
    /// The task ends.
    Answer(Answer),
}

/// Kind of a worker's note while the work goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Note {
    /// Nothing.
    Feedback,
    /// The protocol version that the worker speaks.
    Hello,
    /// A record for the log.
    Log,
    /// Progress of the work.
    Progress,
    /// A message to publish.
    Emit,
    /// A note of a newer protocol version.
    Unknown,
}

/// Effect of an answer on the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The message is done.
    Done,
    /// The message is done and this is its reply.
    Reply,
    /// The message is to be redelivered, uncharged.
    Requeue,
    /// The message failed, and may be retried when the worker says.
    Retry,
    /// The message failed and always will.
    Reject,
    /// The message failed.
    Failed,
}

/// The statuses of the protocol, one line each: a status is defined with its name and its meaning,
/// or not at all.
macro_rules! statuses {
    ($($(#[$doc:meta])* $constant:ident = $code:literal, $name:literal, $kind:ident($meaning:ident);)*) => {
        impl Status {
            $($(#[$doc])* pub const $constant: Self = Self($code);)*

            /// Returns the name that the protocol gives the status, if any.
            pub fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$constant => Some($name),)*
                    _ => None,
                }
            }

            /// Returns its meaning. An unknown status is a note among the hundreds, and a failure
            /// otherwise: never taken for done by accident.
            pub fn meaning(self) -> Meaning {
                match self {
                    $(Self::$constant => Meaning::$kind($kind::$meaning),)*
                    Self(100..=199) => Meaning::Note(Note::Unknown),
                    _ => Meaning::Answer(Answer::Failed),
                }
            }
        }

        #[cfg(test)]
        const KNOWN: &[Status] = &[$(Status::$constant),*];
    };
}

statuses! {
    /// Feedback of a version 1 worker; not an answer.
    IGNORE = -1, "IGNORE_MESSAGE", Note(Feedback);
    /// The first frame of a version 2 worker.
    HELLO = 100, "HELLO", Note(Hello);
    /// A log record.
    LOG = 101, "LOG", Note(Log);
    /// Progress of the work; also a sign of life.
    PROGRESS = 102, "PROGRESS", Note(Progress);
    /// A message to publish while the work goes on.
    EMIT = 103, "EMIT", Note(Emit);
    /// The work is done.
    DONE = 200, "DONE", Answer(Done);
    /// The work is done and this is the reply.
    DONE_WITH_REPLY = 201, "DONE_WITH_REPLY", Answer(Reply);
    /// A request to redeliver the message.
    REQUEUE = 300, "REQUEUE", Answer(Requeue);
    /// The work failed and always will.
    REJECT = 400, "REJECT", Answer(Reject);
    /// The work failed for now.
    RETRY = 429, "RETRY", Answer(Retry);
    /// The work failed.
    UNKNOWN_ERROR = 500, "UNKNOWN_ERROR", Answer(Failed);
    /// The same as [`Status::RETRY`], for workers whose dependency is unavailable.
    UNAVAILABLE = 503, "RETRY", Answer(Retry);
}

impl Status {
    /// Returns whether the status leaves the message in the worker's hands.
    pub fn is_note(self) -> bool {
        matches!(self.meaning(), Meaning::Note(_))
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

    /// As in proto-spec/README.md.
    #[test]
    fn each_is_in_the_table_of_the_specification() {
        let spec = include_str!("../../../proto-spec/README.md");
        for status in KNOWN {
            let (code, name) = (status.0.to_string(), status.name().unwrap());
            let mut rows = spec.lines().map(|line| line.split('|').map(str::trim));
            let row = rows.find_map(|mut cells| {
                let codes = cells.nth(1)?;
                let is_it = codes.split(", ").any(|other| other == code);
                (is_it && cells.next() == Some(name)).then(|| cells.next())?
            });
            let ends = match status.meaning() {
                Meaning::Note(Note::Hello) => "–",
                Meaning::Note(_) => "no",
                Meaning::Answer(_) => "yes",
            };
            assert_eq!(row, Some(ends), "{status}");
        }
    }

    #[test]
    fn what_is_not_known_is_a_note_among_the_hundreds_and_a_failure_else() {
        for code in [104, 150, 199] {
            assert_eq!(Status(code).meaning(), Meaning::Note(Note::Unknown));
        }
        for code in [i64::MIN, -2, 0, 99, 202, 299, 404, 599, 777, i64::MAX] {
            assert_eq!(Status(code).meaning(), Meaning::Answer(Answer::Failed));
        }
    }
}
