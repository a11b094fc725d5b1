//! Messages, dead letters and claims as columns: PostgreSQL takes a set of rows as one array for each
//! column.

use std::borrow::Cow;

use tokio_postgres::types::ToSql;

use crate::rules::{FailureTexts, texts};
use crate::server::delays::delay_ms;
use crate::table::{Claim, headers};
use ganger_queue::delivery::{Failure, Outgoing};

/// Returns the occurrence of a row, by the header in a column: also of JSON that the server can't read.
macro_rules! occurrence {
    ($headers:literal) => {
        concat!(
            "substring(",
            $headers,
            "::text from '\"x-ganger-occurrence\"[[:space:]]*:[[:space:]]*\"([0-9A-Za-z-]+)\"')"
        )
    };
}
pub(super) use occurrence;

/// The columns that a dead letter has in addition to its message.
#[derive(Debug, Default)]
pub(super) struct DeadLetterColumns<'a> {
    reasons: Vec<&'static str>,
    errors: Vec<Cow<'a, str>>,
    crashes: Vec<i64>,
    uncharged: Vec<i64>,
    codes: Vec<Option<i32>>,
    signals: Vec<Option<i32>>,
    ooms: Vec<i16>,
    stderrs: Vec<String>,
    reply_queues: Vec<Option<Cow<'a, str>>>,
    reply_texts: Vec<Option<&'a str>>,
    reply_bytes: Vec<Option<&'a [u8]>>,
    reply_headers: Vec<Option<String>>,
}

impl<'a> DeadLetterColumns<'a> {
    pub(super) fn of(failures: impl Iterator<Item = &'a Failure>, tried: bool) -> Self {
        let mut columns = Self::default();
        for failure in failures {
            let FailureTexts {
                error,
                stderr,
                reply_queue,
            } = texts(failure);
            let exit = failure.exit.unwrap_or_default();
            let reply = failure.reply.as_deref();
            let (text, bytes) = reply.map_or((None, None), |reply| body(&reply.body));
            columns.reasons.push(failure.reason.as_str());
            columns.errors.push(error);
            columns
                .crashes
                .push((tried && failure.reason.is_crash()).into());
            columns.uncharged.push((!tried).into());
            columns.codes.push(exit.code);
            columns.signals.push(exit.signal);
            columns.ooms.push(exit.oom.into());
            columns.stderrs.push(stderr);
            columns.reply_queues.push(reply_queue);
            columns.reply_texts.push(text);
            columns.reply_bytes.push(bytes);
            columns
                .reply_headers
                .push(reply.map(|reply| headers::json(&reply.headers)));
        }
        columns
    }

    pub(super) fn values(&self) -> [&(dyn ToSql + Sync); 12] {
        [
            &self.reasons,
            &self.errors,
            &self.crashes,
            &self.uncharged,
            &self.codes,
            &self.signals,
            &self.ooms,
            &self.stderrs,
            &self.reply_queues,
            &self.reply_texts,
            &self.reply_bytes,
            &self.reply_headers,
        ]
    }
}

/// The columns of messages.
#[derive(Debug, Default)]
pub(super) struct Columns<'a> {
    queues: Vec<&'a str>,
    texts: Vec<Option<&'a str>>,
    bytes: Vec<Option<&'a [u8]>>,
    headers: Vec<String>,
    correlation_ids: Vec<Option<&'a str>>,
    reply_tos: Vec<Option<&'a str>>,
    message_ids: Vec<Option<&'a str>>,
    content_types: Vec<Option<&'a str>>,
    keys: Vec<Option<&'a str>>,
    priorities: Vec<i32>,
    delays: Vec<i64>,
}

impl<'a> Columns<'a> {
    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    pub(super) fn of(messages: impl Iterator<Item = &'a Outgoing>) -> Self {
        let mut columns = Self::default();
        for message in messages {
            let (text, bytes) = body(&message.body);
            let id = Some(message.correlation_id.as_str()).filter(|id| !id.is_empty());
            columns.queues.push(&message.queue);
            columns.texts.push(text);
            columns.bytes.push(bytes);
            columns.headers.push(headers::json(&message.headers));
            columns.correlation_ids.push(id);
            columns.reply_tos.push(message.reply_to.as_deref());
            columns.message_ids.push(message.message_id.as_deref());
            columns.content_types.push(message.content_type());
            columns.keys.push(message.key.as_deref());
            columns.priorities.push(message.priority);
            columns.delays.push(delay_ms(message.delay));
        }
        columns
    }

    pub(super) fn values(&self) -> Vec<&(dyn ToSql + Sync)> {
        vec![
            &self.queues,
            &self.texts,
            &self.bytes,
            &self.headers,
            &self.correlation_ids,
            &self.reply_tos,
            &self.message_ids,
            &self.content_types,
            &self.keys,
            &self.priorities,
            &self.delays,
        ]
    }
}

/// Returns the rows and the tokens of claims.
pub(super) fn parted(claims: impl Iterator<Item = Claim>) -> (Vec<i64>, Vec<i64>) {
    claims.map(|claim| (claim.row, claim.token)).unzip()
}

/// Returns a body for storage: as text where possible, so that people can read and edit it. A text in
/// PostgreSQL can't contain NUL.
pub(crate) fn body(body: &[u8]) -> (Option<&str>, Option<&[u8]>) {
    match std::str::from_utf8(body) {
        Ok(text) if !body.contains(&0) => (Some(text), None),
        _ => (None, Some(body)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_text_and_bytes_stay_bytes() {
        assert_eq!(body("grüß".as_bytes()), (Some("grüß"), None));
        assert_eq!(body(b""), (Some(""), None));
        for bytes in [&b"\xff"[..], b"a\0b"] {
            assert_eq!(body(bytes), (None, Some(bytes)));
        }
    }
}
