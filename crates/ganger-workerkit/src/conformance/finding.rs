//! What is found about one duty of a worker, and what to tell whoever has to mend it. Plain data.

use serde::Serialize;

/// How a worker stands to one of its duties.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It does what it must.
    Passed,
    /// It does not.
    Failed,
    /// It does, and something about it should be mended all the same.
    Warned,
    /// The duty is none of this worker's.
    NotApplicable,
    /// It was not looked at: a duty that comes before it is not met.
    NotRun,
}

/// A verdict with its reasons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) verdict: Verdict,
    /// What was seen, in a sentence.
    pub(super) said: String,
    /// What to do about it.
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

/// Why a worker could not be asked any further.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trouble {
    /// It said nothing for too long.
    Silent,
    /// It has ended, or closed its pipe.
    Gone,
    /// It has written what the protocol does not allow.
    Broken(Breach),
    /// It has no process, or none that connects.
    Unstarted(String),
}

/// How a worker has broken the protocol: what the daemon calls it.
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
    /// What to do about it.
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
                "send one answer for each message, and none that no message has asked for; what is \
                 no answer has the status -1 or one from 101 to 199"
            }
            Self::KnownId => {
                "answer with the id (key \"4\") of the message that the answer is about, as it came: \
                 a whole number of up to 64 bits"
            }
            Self::NeedsId => {
                "with several messages in hand, give each answer the id (key \"4\") of its message"
            }
        }
    }
}
