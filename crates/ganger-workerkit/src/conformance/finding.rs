//! Result for one duty of a worker, with the remedy. Plain data.

use serde::Serialize;

/// Verdict on a worker for one of its duties.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The worker meets it.
    Passed,
    /// The worker does not meet it.
    Failed,
    /// The worker meets it, and something about it should be fixed all the same.
    Warned,
    /// The duty does not apply to this worker.
    NotApplicable,
    /// It was not tested: a duty that comes before it is not met.
    NotRun,
}

/// A verdict with its reasons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) verdict: Verdict,
    /// The observation, in a sentence.
    pub(super) said: String,
    /// The remedy.
    pub(super) mend: Option<String>,
}

impl Finding {
    pub(super) fn passed(said: impl Into<String>) -> Self {
        Self::of(Verdict::Passed, said, None)
    }

    pub(super) fn not_applicable(said: impl Into<String>) -> Self {
        Self::of(Verdict::NotApplicable, said, None)
    }

    pub(super) fn not_run(said: impl Into<String>) -> Self {
        Self::of(Verdict::NotRun, said, None)
    }

    pub(super) fn warned(said: impl Into<String>, mend: &str) -> Self {
        Self::of(Verdict::Warned, said, Some(mend))
    }

    pub(super) fn failed(said: impl Into<String>, mend: &str) -> Self {
        Self::of(Verdict::Failed, said, Some(mend))
    }

    fn of(verdict: Verdict, said: impl Into<String>, mend: Option<&str>) -> Self {
        Self {
            verdict,
            said: said.into(),
            mend: mend.map(str::to_owned),
        }
    }
}

/// Reason why a test of a worker can't continue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SubjectError {
    /// It was silent for too long.
    Silent,
    /// It has ended, or closed its pipe.
    Gone,
    /// It has written a frame that the protocol does not allow.
    Broken(Breach),
    /// It has no process, or none that connects.
    Unstarted(String),
}

/// A breach of the protocol, in the daemon's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Breach {
    pub(super) rule: Rule,
    pub(super) said: String,
}

/// A rule for what a worker writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    Length,
    Map,
    OneAnswer,
    KnownId,
    NeedsId,
}

impl Rule {
    /// Returns the remedy.
    pub(super) fn mend(self) -> &'static str {
        match self {
            Self::Length => {
                "before each map write its length in bytes: four bytes, big-endian, from 1 to the \
                 pool's frame_bytes_max; and print to stdout or stderr, never to the pipe"
            }
            Self::Map => {
                "write one MessagePack map with the string keys \"0\" (message) and \"1\" (status, an \
                 integer), and nothing after it"
            }
            Self::OneAnswer => {
                "send one answer for each message, and no other answers; frames that are not \
                 answers have the status -1 or one from 101 to 199"
            }
            Self::KnownId => {
                "answer with the id (key \"4\") of the message, unchanged: a whole number of up to \
                 64 bits"
            }
            Self::NeedsId => {
                "with several messages in hand, give each answer the id (key \"4\") of its message"
            }
        }
    }
}
