//! Every name that the outside world sees in more than one place: control lines, the pipe's path,
//! environment variables, header names. Nothing here has behaviour.

/// The control line that asks a worker to leave.
pub const QUIT: &str = "__quit__";
/// The control line that asks a version 1 worker to save its state and answer now.
pub const CONTEXT_SWITCH: &str = "__context_switch__";
/// The control line that asks a version 2 worker to abandon one message; its id follows.
pub const CANCEL: &str = "__cancel__";

/// Where .NET's named pipes live on Unix, and so where every version 1 worker looks.
/// Source: `NamedPipeClientStream` in the .NET runtime, `PipeStream.Unix.cs`.
pub const PIPE_DIR: &str = "/tmp";
/// What .NET puts before a pipe's name in the file system.
pub const PIPE_PREFIX: &str = "CoreFxPipe_";

/// The header by which a message says how long its work may take, in milliseconds.
pub const TIMEOUT_HEADER: &str = "TimeoutMilliseconds";
/// Headers that begin so are ours: hidden from workers, stripped from their answers.
pub const OWN_HEADER_PREFIX: &str = "x-ganger-";
/// The header that tells the steps of a long task apart, which share a message id. It belongs to the
/// message: every copy keeps it, and what continues the message has it one higher.
pub const STEP_HEADER: &str = "x-ganger-step";
/// The header that says which span of a trace a message comes from, as W3C has it.
pub const TRACEPARENT: &str = "traceparent";
/// What else the tracing systems on its way have to say.
pub const TRACESTATE: &str = "tracestate";
/// The header that tells one emit from another when a task is tried again.
pub const EMIT_ID_HEADER: &str = "ganger-emit-id";
/// The header by which an answer says the MIME type of its body, in whatever case.
pub const CONTENT_TYPE_HEADER: &str = "content-type";
/// The header by which a message says how its body is encoded, in whatever case.
pub const CONTENT_ENCODING_HEADER: &str = "content-encoding";
/// What the topics of Kafka are called that take the answers to one command.
pub const REPLY_TOPICS: &str = "ganger.reply.";
/// The queue of a table whose rows pause other queues for all daemons: each has a queue's name as its key.
pub const PAUSED_QUEUE: &str = "ganger.paused";
/// The property of a message that says where a reply to it goes.
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
