//! Dead letters survive being written and read, and never exceed their bounds.

use proptest::prelude::*;

use super::*;
use crate::delivery::{Exit, Reason};

const ID: &str = "0192c0de-0000-7000-8000-00000000002a";

fn letter_of(failure: &Failure) -> DeadLetterRecord<'_> {
    DeadLetterRecord {
        id: ID,
        pool: "email",
        queue: "emails",
        message_name: Some("emails:2a".to_owned()),
        counters: Counters {
            attempts: 5,
            crashes: 2,
            requeues: 0,
            first_failed_ms: Some(1_700_000_000_000),
            span: None,
        },
        now_ms: 1_700_000_060_001,
        failure,
    }
}

/// Returns the headers as a broker gives them back, beside those of the message.
fn stored(own: &OwnHeaders) -> Headers {
    let theirs = ("tenant", "blue".to_owned());
    let all = std::iter::once(&theirs).chain(own);
    all.map(|(name, value)| ((*name).to_owned(), value.clone()))
        .collect()
}

fn reply(body: impl Into<Bytes>) -> Box<Outgoing> {
    Box::new(Outgoing {
        queue: "gone".into(),
        body: body.into(),
        headers: vec![("b".into(), "2\"".into()), ("a".into(), String::new())],
        ..Outgoing::default()
    })
}

#[test]
fn a_letter_says_all_that_is_known() {
    let failure = Failure {
        reason: Reason::Crashed,
        error: "crashed: signal 9".into(),
        exit: Some(Exit {
            code: None,
            signal: Some(9),
            oom: true,
        }),
        stderr: vec!["out of".into(), String::new(), "memory".into()],
        reply: None,
    };
    let written = letter_of(&failure).write();
    assert_eq!(written.reply, None);
    let read = read(&stored(&written.headers)).unwrap();
    let expected = DeadLetter {
        id: ID.into(),
        pool: "email".into(),
        queue: "emails".into(),
        message_name: Some("emails:2a".into()),
        reason: "crashed".into(),
        error: failure.error.clone(),
        attempts: 5,
        crashes: 2,
        signal: Some(9),
        oom: true,
        stderr: failure.stderr.clone(),
        first_failed_at: "2023-11-14T22:13:20Z".into(),
        last_failed_at: "2023-11-14T22:14:20.001Z".into(),
        headers: vec![("tenant".into(), "blue".into())],
        ..DeadLetter::default()
    };
    assert_eq!(read, expected);
}

#[test]
fn a_small_reply_is_within_the_letter() {
    let failure = Failure {
        reply: Some(reply(&b"\xff\0"[..])),
        ..Failure::default()
    };
    let written = letter_of(&failure).write();
    assert_eq!(written.reply, None);
    let read = read(&stored(&written.headers)).unwrap().reply.unwrap();
    let wanted = failure.reply.unwrap();
    let wanted = (&wanted.queue, &wanted.headers, &wanted.body);
    assert_eq!((&read.queue, &read.headers, &read.body), wanted);
}

#[test]
fn a_large_reply_is_a_message_that_names_its_letter() {
    let body = Bytes::from(vec![0xff; 100_000]);
    let failure = Failure {
        reply: Some(reply(body.clone())),
        ..Failure::default()
    };
    let written = letter_of(&failure).write();
    let headers = stored(&written.headers);
    assert!(has_separate_reply(&headers) && size(&written.headers) < 1024);
    assert_eq!(read(&headers).unwrap().reply, None);
    assert_eq!(
        read_separate_reply(&headers, &body),
        None,
        "the letter is no reply"
    );

    let apart = written.reply.unwrap();
    let headers = stored(&apart.headers);
    assert_eq!(read(&headers), None, "the reply is no letter");
    let (id, read) = read_separate_reply(&headers, &apart.body).unwrap();
    assert_eq!(id, ID);
    let wanted = failure.reply.unwrap();
    let wanted = (&wanted.queue, &wanted.headers, &wanted.body);
    assert_eq!((&read.queue, &read.headers, &read.body), wanted);
}

#[test]
fn what_is_cut_is_told() {
    let failure = Failure {
        error: "e".repeat(10_000),
        stderr: vec!["first".into(), "s".repeat(10_000), "last".into()],
        ..Failure::default()
    };
    let letter = read(&stored(&letter_of(&failure).write().headers)).unwrap();
    assert_eq!(letter.error, failure.error, "stderr is cut first");
    assert!(
        letter.stderr[0].ends_with(" bytes cut) …"),
        "{}",
        letter.stderr[0]
    );
    assert_eq!(letter.stderr.last().unwrap(), "last");

    let long = Failure {
        error: "e".repeat(1_000_000),
        stderr: failure.stderr,
        ..Failure::default()
    };
    let letter = read(&stored(&letter_of(&long).write().headers)).unwrap();
    assert!(letter.error.ends_with(" bytes cut)"));
    assert!(letter.stderr[0].ends_with(" bytes cut) …"));
    assert_eq!(letter.stderr.last().unwrap(), "last");
}

#[test]
fn ids_are_in_the_order_of_time_and_no_numbers() {
    assert_eq!(id(0x0192_c0de_0000, 42), ID);
    assert_eq!(id(-1, u128::MAX).len(), 36);
    assert!(id(1_700_000_000_000, u128::MAX) < id(1_700_000_000_001, 0));
    id(1, 1).parse::<f64>().unwrap_err();
}

#[test]
fn what_is_no_number_counts_for_nothing() {
    let headers = |value: &str| vec![(header::ATTEMPTS.to_owned(), value.to_owned())];
    assert_eq!(Counters::read(&headers("many")), Counters::default());
    assert_eq!(Counters::read(&headers("3")).attempts, 3);
    assert_eq!(Counters::default().write(), []);
}

fn failures() -> impl Strategy<Value = Failure> {
    let lines = proptest::collection::vec("[^\n]{0,400}", 0..60);
    let pairs = proptest::collection::vec((".{0,300}", ".{0,3000}"), 0..30);
    let body = proptest::collection::vec(any::<u8>(), 0..6000);
    let reply = proptest::option::of((".{0,300}", pairs, body));
    (".{0,9000}", lines, reply, any::<Option<i32>>()).prop_map(|(error, stderr, reply, code)| {
        let exit = code.map(|code| Exit {
            code: Some(code),
            ..Exit::default()
        });
        let reply = reply.map(|(queue, headers, body)| {
            Box::new(Outgoing {
                queue,
                headers,
                body: body.into(),
                ..Outgoing::default()
            })
        });
        Failure {
            reason: Reason::Failed,
            error,
            exit,
            stderr,
            reply,
        }
    })
}

proptest! {
    #[test]
    fn a_letter_never_takes_more_than_it_may(failure in failures(), queue in "[a-z]{1,255}") {
        let written = DeadLetterRecord { queue: &queue, ..letter_of(&failure) }.write();
        prop_assert!(size(&written.headers) <= DEAD_LETTER_BYTES_MAX);
        let read = read(&stored(&written.headers)).unwrap();
        prop_assert_eq!(&read.queue, &queue);
        prop_assert_eq!(read.exit_code, failure.exit.and_then(|exit| exit.code));
        let whole = |text: &str| !text.contains(" bytes cut)");
        if whole(&read.error) {
            prop_assert_eq!(&read.error, &failure.error);
        }
        if read.stderr.first().is_none_or(|line| whole(line)) {
            prop_assert_eq!(&read.stderr, &failure.stderr);
        }
        let apart = written.reply.map(|apart| (size(&apart.headers), stored(&apart.headers), apart.body));
        if let Some((size, headers, body)) = &apart {
            prop_assert!(*size <= REPLY_HEADERS_BYTES_MAX + 1024);
            prop_assert_eq!(&read_separate_reply(headers, body).unwrap().0, ID);
        }
        let reply = read.reply.or_else(|| apart.and_then(|(_, headers, body)| Some(read_separate_reply(&headers, &body)?.1)));
        prop_assert_eq!(reply.is_some(), failure.reply.is_some());
        if let (Some(read), Some(sent)) = (reply, failure.reply) {
            prop_assert_eq!(&read.body, &sent.body);
            let kept = read.headers.iter().filter(|(name, _)| name != header::REPLY_HEADERS_CUT).count();
            prop_assert_eq!(&read.headers[..kept], &sent.headers[..kept]);
            prop_assert!(kept == sent.headers.len() || kept < read.headers.len());
        }
    }

    #[test]
    fn counters_survive(
        attempts: u32,
        crashes: u32,
        requeues: u32,
        first_failed_ms: Option<i64>,
        trace_id: Option<u64>,
    ) {
        let span = trace_id.map(|id| SpanContext::in_trace(u128::from(id) + 1));
        let counters = Counters { attempts, crashes, requeues, first_failed_ms, span };
        prop_assert_eq!(Counters::read(&stored(&counters.write())), counters);
    }
}
