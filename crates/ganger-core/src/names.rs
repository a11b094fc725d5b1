//! Names that the outside world sees in more than one place: control lines, the pipe's path,
//! environment variables, header names; and the rule for names that users choose.

/// Rule for names that users choose.
pub const NAME_RULE: &str =
    "must be 1 to 64 of the characters A-Z, a-z, 0-9, `_`, `.` and `-`, but not `.` or `..`";

/// Returns true if a text is a valid name of a pool, a source or a schedule. No browser opens a page whose address has a
/// part `.` or `..`, however it is written.
pub fn is_name(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && !matches!(text, "." | "..")
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
}

/// The control line that asks a worker to leave.
pub const QUIT: &str = "__quit__";
/// The control line that asks a version 1 worker to save its state and answer now.
pub const CONTEXT_SWITCH: &str = "__context_switch__";
/// The control line that asks a version 2 worker to abandon one message; its id follows.
pub const CANCEL: &str = "__cancel__";

/// Directory of .NET's named pipes on Unix, where every version 1 worker looks. Source:
/// `NamedPipeClientStream` in the .NET runtime, `PipeStream.Unix.cs`.
pub const PIPE_DIR: &str = "/tmp";
/// Prefix that .NET puts before a pipe's name in the file system.
pub const PIPE_PREFIX: &str = "CoreFxPipe_";

/// Header with the time that a message's work may take, in milliseconds.
pub const TIMEOUT_HEADER: &str = "TimeoutMilliseconds";
/// Prefix of ganger's own headers: hidden from workers, stripped from their answers.
pub const OWN_HEADER_PREFIX: &str = "x-ganger-";
/// Header that tells the steps of a long task apart, which share a message id. It belongs to the
/// message: every copy keeps it, and a message that continues it has it one higher.
pub const STEP_HEADER: &str = "x-ganger-step";
/// Header with the id of the occurrence that a message belongs to, in the ledger.
pub const OCCURRENCE_HEADER: &str = "x-ganger-occurrence";
/// Header with the number of attempts that a message has, instead of its pool's.
pub const ATTEMPTS_MAX_HEADER: &str = "x-ganger-attempts-max";
/// Greatest number of attempts that a message may ask for by that header, which whoever may publish can write.
pub const ATTEMPTS_MAX: u32 = 1000;
/// Headers of the run that a message belongs to: the next step of a long task keeps them.
pub const RUN_HEADERS: [&str; 2] = [OCCURRENCE_HEADER, ATTEMPTS_MAX_HEADER];
/// Headers of ganger's own that belong to the message itself: every copy keeps them.
pub const KEPT_HEADERS: [&str; 3] = [STEP_HEADER, OCCURRENCE_HEADER, ATTEMPTS_MAX_HEADER];
/// Header with the name of the schedule that has sent a message.
pub const SCHEDULE_HEADER: &str = "ganger-schedule";
/// Header with the slot of a schedule's message, in RFC 3339.
pub const SLOT_HEADER: &str = "ganger-slot";
/// Header that names the span of a trace that a message comes from, as W3C defines it.
pub const TRACEPARENT: &str = "traceparent";
/// Header with further data of the tracing systems on the message's way.
pub const TRACESTATE: &str = "tracestate";
/// Header that tells one emit from another when a task is retried.
pub const EMIT_ID_HEADER: &str = "ganger-emit-id";
/// Header with the MIME type of an answer's body, in whatever case.
pub const CONTENT_TYPE_HEADER: &str = "content-type";
/// Header with the encoding of a message's body, in whatever case.
pub const CONTENT_ENCODING_HEADER: &str = "content-encoding";
/// Prefix of the Kafka topics that take the answers to one command.
pub const REPLY_TOPICS: &str = "ganger.reply.";
/// Queue of a table whose rows pause other queues for all daemons: the key of each is a queue's
/// name.
pub const PAUSED_QUEUE: &str = "ganger.paused";
/// Property of a message with the destination of a reply to it.
pub const REPLY_TO_PROPERTY: &str = "reply_to";

/// The protocol version that the daemon offers its workers.
pub const ENV_PROTOCOL: &str = "GANGER_PROTOCOL";
/// The pool that the worker belongs to.
pub const ENV_POOL: &str = "GANGER_POOL";
/// The worker's slot, counted from 0.
pub const ENV_WORKER: &str = "GANGER_WORKER";
/// The absolute path of the worker's pipe.
pub const ENV_PIPE: &str = "GANGER_PIPE";
/// The longest frame that the daemon takes, in bytes.
pub const ENV_FRAME_BYTES_MAX: &str = "GANGER_FRAME_BYTES_MAX";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_part_of_an_address() {
        for name in ["a", "nightly-1_a", "...", ".a", "a..", "-q"] {
            assert!(is_name(name), "{name}");
        }
        for text in ["", ".", "..", "a b", "a/b", "gr\u{fc}n", &"a".repeat(65)] {
            assert!(!is_name(text), "{text}");
        }
    }
}
