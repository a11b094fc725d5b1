//! Tests that the forms of a report, and of a message's result, are unchanged: a change of the
//! texts that people and programs read shows in the snapshots.

use std::time::Duration;

use super::{attempt_result, junit, table};
use ganger_pool::worker::output::LastLines;
use ganger_pool::worker::usage::Usage;
use ganger_protocol::{Output, Status};
use ganger_queue::delivery::{Exit, Message};
use ganger_workerkit::conformance::{
    AttemptResult, Counts, Direction, Duty, DutyResult, Part, Piece, Report, Single, Verdict,
};

fn tried(duty: Duty, verdict: Verdict, said: &str) -> DutyResult {
    DutyResult {
        duty,
        title: duty.title(),
        verdict,
        said: said.to_owned(),
        mend: None,
        took: Duration::from_millis(120),
        exchange: Vec::new(),
        stderr: Vec::new(),
    }
}

/// A report with all verdicts, and with characters that are special to a terminal or in XML.
fn report() -> Report {
    let piece = |direction, what: &str, bytes: &str, length| Piece {
        direction,
        what: what.to_owned(),
        length,
        bytes: bytes.to_owned(),
    };
    let failed = DutyResult {
        mend: Some("write one <map> & nothing after it".to_owned()),
        exchange: vec![
            piece(Direction::ToWorker, "message 1", &"61".repeat(64), 72),
            piece(Direction::FromWorker, "no frame", "0000000382a1301b", 8),
            piece(
                Direction::ToStdin,
                "a control line",
                "5f5f717569745f5f0a",
                9,
            ),
            piece(Direction::ToWorker, "end of file", "", 0),
        ],
        stderr: vec!["Traceback \u{1b}[31m\"x\"".to_owned()],
        ..tried(
            Duty::Many,
            Verdict::Failed,
            "no answer: `\u{1b}[2J` < 1\u{202e}",
        )
    };
    let warned = DutyResult {
        mend: Some("judge a length first".to_owned()),
        ..tried(Duty::BadLength, Verdict::Warned, "it waits for more")
    };
    Report {
        command: vec!["python3".into(), "worker.py".into()],
        passed: false,
        counts: Counts {
            passed: 2,
            failed: 1,
            warned: 1,
            not_applicable: 1,
            not_run: 2,
        },
        parts: vec![
            Part {
                name: "version 2",
                remark: Some("it sends no HELLO: it speaks version 1".to_owned()),
                duties: vec![tried(Duty::Start, Verdict::Passed, "connected")],
            },
            Part {
                name: "version 1",
                remark: None,
                duties: vec![
                    tried(Duty::Message, Verdict::Passed, "answered 200 DONE"),
                    failed,
                    warned,
                    tried(Duty::Feedback, Verdict::NotApplicable, "none was sent"),
                    tried(Duty::Quit, Verdict::NotRun, "`start` comes first"),
                    tried(Duty::EndOfFile, Verdict::NotRun, "`start` comes first"),
                ],
            },
        ],
    }
}

#[test]
fn the_table() {
    insta::assert_snapshot!(table::of(&report()));
}

#[test]
fn the_json() {
    insta::assert_snapshot!(serde_json::to_string_pretty(&report()).unwrap());
}

#[test]
fn the_junit() {
    insta::assert_snapshot!(junit::of(&report()));
}

fn single() -> Single {
    let configured = "[sources.none]\nkind = \"table\"\nurl = \"sqlite:none.db\"\n\
        [[pools]]\nname = \"p\"\nqueue = \"q\"\ncommand = \"true\"";
    let config = ganger_config::parse(configured, "t.toml", &Default::default()).unwrap();
    Single {
        policy: config.pools[0].clone(),
        message: Message {
            queue: "q".into(),
            body: "ten".into(),
            headers: Vec::new(),
            correlation_id: "c-1".into(),
            reply_to: Some("answers".into()),
            properties: Vec::new(),
            occurrence: None,
        },
        attempt: 1,
        limit: None,
    }
}

/// A result with every kind of output of a worker, and control sequences for a terminal.
fn told() -> AttemptResult {
    let frame = |status, message: &str, headers: &[(&str, &str)]| {
        let mut output = Output::new(status, None, message.to_owned());
        let header = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        output.headers = (!headers.is_empty()).then(|| headers.iter().map(header).collect());
        output
    };
    let mut emit = frame(Status::EMIT, "part", &[]);
    emit.reply_queue = Some("parts".into());
    let hello = frame(Status::HELLO, "", &[("sdk", "ganger-go"), ("version", "1")]);
    AttemptResult {
        pid: 4711,
        answer: Some(frame(
            Status::DONE_WITH_REPLY,
            "two\nlines\u{1b}[2J",
            &[("a", "b")],
        )),
        notes: vec![
            (
                Duration::from_micros(1500),
                frame(Status::LOG, "hot", &[("level", "warn")]),
            ),
            (Duration::from_millis(20), emit),
        ],
        trouble: Some((
            "protocol error: a second answer for id 1".into(),
            "answer once",
        )),
        hello: Some(hello),
        took: Duration::from_millis(23),
        used: Some(Usage {
            cpu: Duration::from_millis(10),
            peak_bytes: 5 << 20,
        }),
        printed: LastLines {
            stdout: vec!["one".into(), "two".into()],
            stderr: vec!["oh\u{7}".into()],
            ended: None,
        },
        exit: Some(Exit {
            code: Some(0),
            ..Exit::default()
        }),
    }
}

#[test]
fn one_message_as_text() {
    insta::assert_snapshot!(attempt_result::as_text(&single(), &told()));
}

#[test]
fn one_message_as_json() {
    let json = attempt_result::as_json(&single(), &told());
    insta::assert_snapshot!(serde_json::to_string_pretty(&json).unwrap());
}
