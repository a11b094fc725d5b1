//! A dead letter, whatever broker it is stored at.

use bytes::Bytes;

use crate::delivery::Headers;

/// A message that was given up, and why.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeadLetter {
    /// By which it is named; never used again for another.
    pub id: String,
    /// The pool that gave it up.
    pub pool: String,
    /// The queue that it came from.
    pub queue: String,
    /// The name by which its source and log records call the message, such as `orders:17` for row 17 of
    /// a table. None where it has none, or an older version wrote this.
    pub message_name: Option<String>,
    /// The kind of failure.
    pub reason: String,
    /// What happened, in a sentence.
    pub error: String,
    /// How many attempts were charged.
    pub attempts: u32,
    /// How many workers, or daemons, it took down.
    pub crashes: u32,
    /// The exit code of the worker that died, if it exited by itself.
    pub exit_code: Option<i32>,
    /// The number of the signal that ended it.
    pub signal: Option<i32>,
    /// The kernel killed it for want of memory.
    pub oom: bool,
    /// The last lines that it wrote to stderr.
    pub stderr: Vec<String>,
    /// When its first attempt failed, RFC 3339.
    pub first_failed_at: String,
    /// When its last one did, RFC 3339.
    pub last_failed_at: String,
    /// Empty where it has none.
    pub correlation_id: String,
    /// Where an answer to it goes.
    pub reply_to: Option<String>,
    /// The producer's own id for it.
    pub message_id: Option<String>,
    /// The MIME type of the body.
    pub content_type: Option<String>,
    /// The ordering or partition key.
    pub key: Option<String>,
    /// Higher goes first.
    pub priority: i64,
    /// Its headers; those that can't be read as such are left out, `error` says why.
    pub headers: Headers,
    /// The body, byte for byte.
    pub body: Bytes,
    /// The result of work that was done but could not be delivered.
    pub reply: Option<DeadReply>,
}

/// A reply that had nowhere to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadReply {
    /// Where it was to go.
    pub queue: String,
    /// The body, byte for byte.
    pub body: Bytes,
    /// Its headers.
    pub headers: Headers,
}
