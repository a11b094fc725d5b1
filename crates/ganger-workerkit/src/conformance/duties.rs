//! The duties of a worker, one after the other: name, protocol version, and the remedy for a worker that
//! fails it. Their tests are in the cases.

/// A version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// Version 1.
    One,
    /// Version 2.
    Two,
}

/// Versions of the protocol with the duty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Versions {
    Both,
    One,
    Two,
}

/// Duties, one entry each, in the order in which they are tested: name, versions, title, and remedy for a
/// worker that fails it.
macro_rules! duties {
    ($($duty:ident, $name:literal, $whose:ident, $title:literal, $mend:literal;)*) => {
        /// A duty of a worker, or an optional feature that it must implement correctly.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Duty { $(#[doc = $title] $duty,)* }

        impl Duty {
            /// All duties.
            pub const ALL: &'static [Self] = &[$(Self::$duty),*];

            /// Returns its name, which never changes.
            pub fn name(self) -> &'static str {
                match self { $(Self::$duty => $name,)* }
            }

            /// Returns its title, in a few words.
            pub fn title(self) -> &'static str {
                match self { $(Self::$duty => $title,)* }
            }

            /// Returns the remedy for a worker that fails it.
            pub(super) fn mend(self) -> &'static str {
                match self { $(Self::$duty => $mend,)* }
            }

            fn whose(self) -> Versions {
                match self { $(Self::$duty => Versions::$whose,)* }
            }
        }
    };
}

duties! {
    Start, "start", Both, "connects to its pipe and waits",
        "read one line from stdin and connect to the stream socket at $GANGER_PIPE, or at \
         /tmp/CoreFxPipe_ and that line without its newline; then wait for messages, without a \
         time limit";
    Message, "message", Both, "answers a message, once",
        "read the length and the frame, work, and write one answer: a map with \"0\" and \"1\"; also \
         for a body that it does not understand (400 or 500)";
    PipeName, "pipe-name", One, "finds its pipe by the name on stdin only",
        "connect to /tmp/CoreFxPipe_ and the line on stdin, without its newline: MessageWorkerPool \
         sets no GANGER_PIPE";
    Hello, "hello", Two, "sends HELLO first",
        "where GANGER_PROTOCOL is 2, make the first frame a HELLO: status 100, an empty message, the \
         headers sdk, version and concurrency (a whole number from 1), no id";
    Many, "many", Both, "answers one message after the other",
        "go back to reading after each answer, and keep nothing of the message before";
    Pipelined, "pipelined", One, "answers messages that wait in its pipe, in order",
        "take exactly one frame at a time out of what was read, and keep the rest for the next: \
         several may come in one piece";
    Concurrent, "concurrent", Two, "answers as many messages at once as its HELLO allows",
        "take exactly one frame at a time out of what was read, keep the rest, and give each answer \
         the id of its message; or say a smaller concurrency";
    Ids, "ids", Two, "returns any id unchanged",
        "keep the id (key \"4\") as an unsigned number of 64 bits: a floating-point number or one of \
         32 bits changes it";
    Headers, "headers", Both, "accepts any headers",
        "names and values are any text, empty, long or of many lines, `constructor` and `__proto__` \
         too: do not parse those that you do not know, nor look them up in an object";
    Correlation, "correlation", Both, "answers a message with a correlation id",
        "whoever sends a correlation id waits for an answer (201 where there is one to give): treat \
         the id as any text";
    EmptyBody, "empty-body", Both, "answers an empty body",
        "an empty body is a message like any other: answer it, if only with 400";
    LargeBody, "large-body", Both, "answers a body of 10 MiB",
        "read until the frame is whole, however many reads that takes, and do not limit it below the \
         pool's frame_bytes_max (64 MiB)";
    UnicodeBody, "unicode-body", Both, "answers a body in many scripts",
        "read and write str as UTF-8: the length in front of a frame counts bytes, not characters";
    BinaryBody, "binary-body", Two, "answers a body that is not text",
        "accept key \"0\" as str or as bin: a body that is not UTF-8 arrives as bin; answer it, if \
         only with 400";
    UnknownKeys, "unknown-keys", Both, "ignores unknown keys",
        "skip unknown keys, whatever their values";
    UnknownLines, "unknown-lines", Both, "ignores unknown control lines",
        "compare each line of stdin with the known ones, and ignore all others, including empty \
         ones";
    Dribbles, "dribbles", Both, "reads a frame that arrives in pieces",
        "read until the four bytes of the length are there, then until the frame is whole: one read \
         may return less";
    Timeout, "timeout", Both, "answers a message with a time limit",
        "the header TimeoutMilliseconds is text: give up and answer after that time; absent or \
         negative means no limit";
    Yield, "context-switch", One, "answers after __context_switch__",
        "on __context_switch__ save your state and answer now, or ignore the line; the message in hand \
         is answered once in any case";
    Cancel, "cancel", Two, "answers a cancelled message once",
        "on __cancel__ and an id give that message up and answer it (429 or 500, say), or finish it: \
         once in any case; ignore an id that is not in flight";
    Quit, "quit", Both, "exits when asked to",
        "on the line __quit__ or on end of file of the pipe finish the messages in hand and exit \
         with code 0; a worker that still runs after stop_timeout gets SIGTERM, then SIGKILL";
    QuitBusy, "quit-busy", Both, "finishes messages in hand before it exits",
        "after __quit__ and after the end of file your side of the pipe is still open: finish and \
         answer what you have read, then exit";
    EndOfFile, "end-of-file", Both, "exits when the daemon has died",
        "exit on end of file of the pipe and of stdin, also without __quit__: nothing else stops a \
         worker whose daemon is dead";
    BadLength, "bad-length", Both, "closes the connection on an impossible length",
        "check a length before you allocate or wait for so many bytes: close the connection on 0, \
         on one with its top bit set and on one beyond your limit";
    BadMap, "bad-map", Both, "closes the connection on a frame that is not a map",
        "close the connection on a frame that is not a MessagePack map: nothing after it can be \
         trusted";
    Feedback, "feedback", Both, "IGNORE_MESSAGE frames, if it sends some", "";
    Reply, "reply", Both, "DONE_WITH_REPLY answers, if it sends some", "";
    BareValue, "bare-value", One, "answers that are not maps, if it sends some", "";
    Log, "log", Two, "LOG frames, if it sends some", "";
    Progress, "progress", Two, "PROGRESS frames, if it sends some", "";
    Emit, "emit", Two, "EMIT frames, if it sends some", "";
    LaterNotes, "later-notes", Two, "other frames of 104 to 199, if it sends some", "";
    Pool, "pool", Both, "works in the daemon's own pool",
        "the daemon's pool failed this worker for the reason above; the cases before this one test \
         its single steps";
}

impl Duty {
    /// Returns whether a worker that speaks this version has it.
    pub fn is_of(self, version: Version) -> bool {
        match self.whose() {
            Versions::Both => true,
            Versions::One => version == Version::One,
            Versions::Two => version == Version::Two,
        }
    }

    /// Returns whether it is no case of its own: the frames that the worker sends in the other cases are
    /// examined.
    pub(super) fn is_observed(self) -> bool {
        (Self::Feedback..=Self::LaterNotes).contains(&self)
    }

    /// Returns whether nothing else can be tested without it.
    pub(super) fn is_basic(self) -> bool {
        matches!(self, Self::Start | Self::Message)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_has_a_name_of_its_own_and_says_what_to_mend() {
        let names: BTreeSet<&str> = Duty::ALL.iter().map(|duty| duty.name()).collect();
        assert_eq!(names.len(), Duty::ALL.len());
        for duty in Duty::ALL {
            assert_eq!(duty.mend().is_empty(), duty.is_observed(), "{duty:?}");
            assert!(duty.is_of(Version::One) || duty.is_of(Version::Two));
        }
    }
}
