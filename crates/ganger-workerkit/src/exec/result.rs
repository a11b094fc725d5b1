//! File in which a program may give a more detailed result than an exit code: `key=value`, a line each. Pure.

use std::time::Duration;

use ganger_core::units::duration;
use ganger_queue::delivery::Headers;

/// Maximum number of bytes that are read of it.
pub(super) const RESULT_BYTES_MAX: u64 = 64 << 10;

/// Result that a program with exit code 0 may give instead of "done, and my output is the reply".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResultStatus {
    /// Done, without a reply.
    Done,
    /// Requeue the message without charging an attempt.
    Requeue,
    /// Failed temporarily.
    Retry,
    /// Failed permanently.
    Reject,
    /// Failed.
    Failed,
}

/// Contents of the file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ResultFile {
    pub(super) word: Option<ResultStatus>,
    pub(super) reason: Option<String>,
    pub(super) retry_after: Option<Duration>,
    pub(super) reply_to: Option<String>,
    /// Headers of the reply.
    pub(super) headers: Headers,
}

impl ResultFile {
    /// Parses the file's text. Empty lines and those that begin with `#` are ignored.
    ///
    /// # Errors
    /// The line that can't be understood, and the reason, in a sentence.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let mut said = Self::default();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if !line.is_empty() && !line.starts_with('#') {
                said.take(line)
                    .map_err(|why| format!("line {number} of $GANGER_RESULT: {why}: `{line}`"))?;
            }
        }
        Ok(said)
    }

    fn take(&mut self, line: &str) -> Result<(), &'static str> {
        let (key, value) = line.split_once('=').ok_or("it must be `key=value`")?;
        let (key, value) = (key.trim_end(), value.trim_start());
        match key {
            "status" => self.word = Some(word(value)?),
            "reason" => self.reason = Some(value.into()),
            "retry_after" => {
                let wait = "`retry_after` must be seconds, or a time with its unit such as `5m`";
                self.retry_after = Some(wait_of(value).ok_or(wait)?);
            }
            "reply_to" => self.reply_to = Some(value.into()).filter(|_| !value.is_empty()),
            _ => match key.strip_prefix("header.").filter(|name| !name.is_empty()) {
                Some(name) => self.headers.push((name.into(), value.into())),
                None => return Err("unknown key"),
            },
        }
        Ok(())
    }
}

fn word(text: &str) -> Result<ResultStatus, &'static str> {
    match text {
        "done" => Ok(ResultStatus::Done),
        "requeue" => Ok(ResultStatus::Requeue),
        "retry" => Ok(ResultStatus::Retry),
        "reject" => Ok(ResultStatus::Reject),
        "failed" => Ok(ResultStatus::Failed),
        _ => Err("`status` must be done, requeue, retry, reject or failed"),
    }
}

fn wait_of(text: &str) -> Option<Duration> {
    match text.parse() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        Err(_) => duration(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_says_one_thing() {
        let text = "# no comment\n\nstatus=retry\n retry_after = 1m 30s \nreason=a = b\r\n\
            reply_to=answers\nheader.Content-Type=text/plain\nheader.x=\n";
        let said = ResultFile::read(text).unwrap();
        let headers = [("Content-Type", "text/plain"), ("x", "")];
        assert_eq!(
            said,
            ResultFile {
                word: Some(ResultStatus::Retry),
                reason: Some("a = b".into()),
                retry_after: Some(Duration::from_secs(90)),
                reply_to: Some("answers".into()),
                headers: headers.map(|(n, v)| (n.into(), v.into())).into(),
            }
        );
        assert_eq!(ResultFile::read(""), Ok(ResultFile::default()));
    }

    #[test]
    fn a_time_without_a_unit_is_in_seconds() {
        let cases = [
            ("30", Some(30_000)),
            ("1.5", Some(1_500)),
            ("0", Some(0)),
            ("250ms", Some(250)),
            ("-1", None),
            ("inf", None),
            ("NaN", None),
            ("soon", None),
            ("", None),
        ];
        for (text, millis) in cases {
            assert_eq!(wait_of(text), millis.map(Duration::from_millis), "{text}");
        }
    }

    #[test]
    fn what_is_not_understood_is_told_with_its_line() {
        let cases = [
            (
                "\nstatus",
                "line 2 of $GANGER_RESULT: it must be `key=value`: `status`",
            ),
            (
                "colour=red",
                "line 1 of $GANGER_RESULT: unknown key: `colour=red`",
            ),
            (
                "header.=x",
                "line 1 of $GANGER_RESULT: unknown key: `header.=x`",
            ),
            (
                "status=don",
                "line 1 of $GANGER_RESULT: `status` must be done, requeue, retry, reject or \
                 failed: `status=don`",
            ),
            (
                "retry_after=soon",
                "line 1 of $GANGER_RESULT: `retry_after` must be seconds, or a time with its unit \
                 such as `5m`: `retry_after=soon`",
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(ResultFile::read(text).unwrap_err(), expected);
        }
    }
}
