//! A dead letter, whatever broker stores it.

use bytes::Bytes;

use crate::delivery::Headers;

/// A message that was given up, and the reason.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeadLetter {
    /// Its id; never used again for another.
    pub id: String,
    /// The pool that gave up the message.
    pub pool: String,
    /// The queue that it came from.
    pub queue: String,
    /// Name of the message in its source and in log records, such as `orders:17` for row 17 of a table.
    /// None if it has none, or an older version wrote this.
    pub message_name: Option<String>,
    /// The kind of failure.
    pub reason: String,
    /// Description of the failure, in a sentence.
    pub error: String,
    /// Number of charged attempts.
    pub attempts: u32,
    /// Number of workers or daemons that it took down.
    pub crashes: u32,
    /// The exit code of the worker that died, if it exited by itself.
    pub exit_code: Option<i32>,
    /// The number of the signal that ended the worker, if one did.
    pub signal: Option<i32>,
    /// The kernel killed the worker for lack of memory.
    pub oom: bool,
    /// The last lines that the worker wrote to stderr.
    pub stderr: Vec<String>,
    /// Time of the first failed attempt, RFC 3339.
    pub first_failed_at: String,
    /// Time of the last failed attempt, RFC 3339.
    pub last_failed_at: String,
    /// Correlation id; empty if it has none.
    pub correlation_id: String,
    /// Queue for the reply.
    pub reply_to: Option<String>,
    /// Message id set by the producer.
    pub message_id: Option<String>,
    /// The MIME type of the body.
    pub content_type: Option<String>,
    /// The ordering or partition key.
    pub key: Option<String>,
    /// Priority; higher goes first.
    pub priority: i64,
    /// Its headers; unreadable ones are left out, and `error` says why.
    pub headers: Headers,
    /// The body, byte for byte.
    pub body: Bytes,
    /// Reply of finished work that could not be delivered.
    pub reply: Option<DeadReply>,
}

/// A reply that could not be delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadReply {
    /// Queue that it was for.
    pub queue: String,
    /// The body, byte for byte.
    pub body: Bytes,
    /// Its headers.
    pub headers: Headers,
}
