//! Answer to a message by the end of its program: one pure function.

use bytes::Bytes;

use super::result::{ResultFile, ResultStatus};
use ganger_protocol::{Output, Status};
use ganger_queue::delivery::Exit;

/// Temporary failure, as in `sysexits.h` (`EX_TEMPFAIL`).
const RETRY_CODE: i32 = 75;
/// Permanent failure, as in qmail.
const REJECT_CODE: i32 = 100;

/// End of a program.
#[derive(Debug)]
pub(super) struct End {
    pub(super) exit: Exit,
    /// True if we had asked it to end.
    pub(super) is_abandoned: bool,
    /// Its stdout; the error is the maximum size.
    pub(super) printed: Result<Bytes, usize>,
    /// The last lines of its stderr.
    pub(super) last_lines: String,
    /// Contents of its result file.
    pub(super) said: Result<ResultFile, String>,
    /// True if the sender waits for a reply.
    pub(super) awaits_reply: bool,
    /// True if the daemon takes bytes that are no text.
    pub(super) version2: bool,
}

/// Returns the answer, without its message's id.
pub(super) fn answer(end: End) -> Output {
    let status = match &end.said {
        Ok(said) => status(end.exit.code, said.word),
        // What is not understood might have been "not done".
        Err(_) => Status::UNKNOWN_ERROR,
    };
    match status {
        Status::DONE => done(end),
        Status::REQUEUE => Output::new(status, None, ""),
        Status::UNAVAILABLE => {
            let after = end.said.as_ref().ok().and_then(|said| said.retry_after);
            let millis = after.map(|after| after.as_millis().try_into().unwrap_or(u64::MAX));
            Output {
                retry_after_ms: millis,
                ..Output::new(status, None, reason(end))
            }
        }
        _ => Output::new(status, None, reason(end)),
    }
}

/// Returns the status. That of the result file counts only with exit code 0.
fn status(code: Option<i32>, word: Option<ResultStatus>) -> Status {
    match (code, word) {
        (Some(0), None | Some(ResultStatus::Done)) => Status::DONE,
        (Some(0), Some(ResultStatus::Requeue)) => Status::REQUEUE,
        (Some(0), Some(ResultStatus::Retry)) | (Some(RETRY_CODE), _) => Status::UNAVAILABLE,
        (Some(0), Some(ResultStatus::Reject)) | (Some(REJECT_CODE), _) => Status::REJECT,
        _ => Status::UNKNOWN_ERROR,
    }
}

fn done(end: End) -> Output {
    let said = end.said.unwrap_or_default();
    let is_reply = end.awaits_reply || said.reply_to.is_some();
    if !is_reply || said.word == Some(ResultStatus::Done) {
        return Output::new(Status::DONE, None, "");
    }
    let refused = |why: String| Output::new(Status::UNKNOWN_ERROR, None, why);
    match end.printed {
        Err(max) => refused(too_large(max)),
        Ok(printed) if !end.version2 && std::str::from_utf8(&printed).is_err() => {
            refused("the reply must be UTF-8 for version 1: it is not".into())
        }
        Ok(printed) => Output {
            headers: Some(said.headers).filter(|headers| !headers.is_empty()),
            reply_queue: said.reply_to,
            ..Output::new(Status::DONE_WITH_REPLY, None, printed)
        },
    }
}

/// Returns the error of a reply that is too large.
pub(super) fn too_large(max: usize) -> String {
    format!("the reply must fit into a frame of {max} bytes (frame_bytes_max): it is larger")
}

fn reason(end: End) -> String {
    let broken = end.said.as_ref().err().cloned();
    let said = end.said.ok().and_then(|said| said.reason);
    let explained = said.unwrap_or(end.last_lines);
    let how = match (end.exit.code, &end.printed) {
        // Then it was the file that said so.
        (Some(0), _) => String::new(),
        (None, Err(max)) if end.awaits_reply => too_large(*max),
        _ if end.is_abandoned => format!("{} after it was asked to stop", end.exit),
        _ => end.exit.to_string(),
    };
    let parts = [how, broken.unwrap_or_default(), explained];
    let parts: Vec<&str> = parts
        .iter()
        .map(String::as_str)
        .filter(|part| !part.is_empty())
        .collect();
    parts.join(": ")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// End of a program with that exit code, which has printed "out" and, to stderr, "err".
    fn end(code: i32) -> End {
        End {
            exit: Exit {
                code: Some(code),
                ..Exit::default()
            },
            is_abandoned: false,
            printed: Ok(Bytes::from_static(b"out")),
            last_lines: "err".into(),
            said: Ok(ResultFile::default()),
            awaits_reply: false,
            version2: true,
        }
    }

    fn said(text: &str) -> Result<ResultFile, String> {
        ResultFile::read(text)
    }

    fn signal(signal: i32) -> Exit {
        Exit {
            signal: Some(signal),
            ..Exit::default()
        }
    }

    fn told(output: &Output) -> (i64, &str) {
        (
            output.status.0,
            std::str::from_utf8(&output.message).unwrap(),
        )
    }

    #[test]
    fn the_exit_code_says_what_has_become_of_it() {
        let cases = [
            (0, (200, "")),
            (75, (503, "exited with code 75: err")),
            (100, (400, "exited with code 100: err")),
            (1, (500, "exited with code 1: err")),
            (127, (500, "exited with code 127: err")),
            (255, (500, "exited with code 255: err")),
        ];
        for (code, expected) in cases {
            assert_eq!(told(&answer(end(code))), expected);
        }
        let killed = End {
            exit: signal(9),
            ..end(0)
        };
        assert_eq!(
            told(&answer(killed)),
            (500, "killed by signal 9 (SIGKILL): err")
        );
    }

    #[test]
    fn the_file_says_what_exit_code_0_means_and_no_other() {
        let cases = [
            ("", 200),
            ("status=done", 200),
            ("status=requeue", 300),
            ("status=retry", 503),
            ("status=reject", 400),
            ("status=failed", 500),
            ("status=nonsense", 500),
        ];
        for (text, status) in cases {
            let good = End {
                said: said(text),
                ..end(0)
            };
            assert_eq!(answer(good).status.0, status, "{text}");
            for (code, status) in [(1, 500), (75, 503), (100, 400)] {
                let status = if said(text).is_err() { 500 } else { status };
                let bad = End {
                    said: said(text),
                    ..end(code)
                };
                assert_eq!(answer(bad).status.0, status, "{text}, {code}");
            }
        }
    }

    #[test]
    fn the_file_says_when_and_why() {
        let retry = answer(End {
            said: said("retry_after=1.5\nreason=the shop is shut"),
            ..end(75)
        });
        let after = Duration::from_millis(retry.retry_after_ms.unwrap());
        assert_eq!(after, Duration::from_millis(1500));
        assert_eq!(told(&retry), (503, "exited with code 75: the shop is shut"));
        let rejected = answer(End {
            said: said("status=reject\nreason=no such shop"),
            ..end(0)
        });
        assert_eq!(told(&rejected), (400, "no such shop"));
        let unasked = answer(end(75));
        assert_eq!(unasked.retry_after_ms, None, "the pool's own wait");
    }

    #[test]
    fn what_is_printed_is_the_reply_where_one_is_awaited() {
        let asked = |text: &str| {
            answer(End {
                awaits_reply: true,
                said: said(text),
                ..end(0)
            })
        };
        let reply = asked("header.colour=red");
        assert_eq!(told(&reply), (201, "out"));
        assert_eq!(reply.headers, Some(vec![("colour".into(), "red".into())]));
        assert_eq!(told(&asked("status=done")), (200, ""));
        let elsewhere = answer(End {
            said: said("reply_to=there"),
            ..end(0)
        });
        assert_eq!(told(&elsewhere), (201, "out"));
        assert_eq!(elsewhere.reply_queue.as_deref(), Some("there"));
    }

    #[test]
    fn a_reply_that_can_t_be_sent_is_a_failure() {
        let too_large =
            "the reply must fit into a frame of 10 bytes (frame_bytes_max): it is larger";
        for exit in [end(0).exit, signal(9)] {
            let large = End {
                exit,
                awaits_reply: true,
                printed: Err(10),
                last_lines: String::new(),
                ..end(0)
            };
            assert_eq!(told(&answer(large)), (500, too_large));
        }
        let unasked = End {
            printed: Err(10),
            ..end(0)
        };
        assert_eq!(answer(unasked).status, Status::DONE);
        let bytes = |version2| {
            answer(End {
                awaits_reply: true,
                printed: Ok(Bytes::from_static(b"\xff")),
                version2,
                ..end(0)
            })
        };
        assert_eq!(&bytes(true).message[..], b"\xff");
        let error = "the reply must be UTF-8 for version 1: it is not";
        assert_eq!(told(&bytes(false)), (500, error));
    }

    #[test]
    fn one_that_was_asked_to_stop_may_have_been_done() {
        let stopped = |exit| {
            answer(End {
                exit,
                is_abandoned: true,
                last_lines: String::new(),
                ..end(0)
            })
        };
        assert_eq!(told(&stopped(end(0).exit)), (200, ""));
        let why = "killed by signal 15 (SIGTERM) after it was asked to stop";
        assert_eq!(told(&stopped(signal(15))), (500, why));
    }
}
