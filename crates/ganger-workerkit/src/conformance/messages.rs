//! Cases about messages: their contents, and their transport.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep};

use super::duties::Duty;
use super::finding::{Breach, Finding, Rule, SubjectError};
use super::frames;
use super::subject::{SendOptions, Spoken, Subject};
use super::supplies::Supplies;
use ganger_protocol::Output;
use ganger_queue::delivery::Message;

/// Number of messages in a test of many.
const MANY: usize = 20;
/// Number of messages in the pipe of a version 1 worker: the daemon may choose a deeper one by
/// itself, which proves no more.
const PIPELINED: usize = 8;
/// Maximum number of messages that a version 2 worker is given at once.
const CONCURRENT_MAX: usize = 16;
/// Size of a large body.
const LARGE_BYTES: usize = 10 << 20;
/// Number of a frame's first bytes that are sent one by one.
const SINGLE_BYTES: usize = 12;
/// Number of pieces in which the rest is sent.
const PIECES: usize = 4;
/// Pause between the pieces, so that they are not read as one.
const PAUSE: Duration = Duration::from_millis(5);
/// Timeout of a message that has one.
const LIMIT: Duration = Duration::from_millis(250);

pub(super) async fn one(
    subject: &mut Subject,
    supplies: &Supplies,
) -> Result<Finding, SubjectError> {
    let answer = subject.ask(&supplies.message(0)).await?;
    Ok(Finding::passed(format!("answered {}", answer.status)))
}

pub(super) async fn many(
    subject: &mut Subject,
    supplies: &Supplies,
) -> Result<Finding, SubjectError> {
    for number in 0..MANY {
        subject.ask(&supplies.message(number)).await?;
    }
    Ok(Finding::passed(format!("{MANY} messages, {MANY} answers")))
}

pub(super) async fn pipelined(
    subject: &mut Subject,
    supplies: &Supplies,
) -> Result<Finding, SubjectError> {
    // It says by its first frame what it speaks.
    subject.ask(&supplies.message(0)).await?;
    let ids = subject.send_together(&supplies.messages(PIPELINED));
    let answers = subject.answers().await?;
    in_order(&ids, &answers)?;
    Ok(Finding::passed(format!(
        "{PIPELINED} messages in one piece, {PIPELINED} answers"
    )))
}

/// Checks the order of the answers. Version 1 answers usually carry no id; those that do must be in
/// order.
fn in_order(ids: &[u64], answers: &[Output]) -> Result<(), SubjectError> {
    let swapped = ids.iter().zip(answers).find_map(|(id, answer)| {
        let told = answer.id?;
        (told != *id).then(|| format!("the answer for id {told} came before that for id {id}"))
    });
    swapped.map_or(Ok(()), |said| {
        let rule = Rule::KnownId;
        Err(SubjectError::Broken(Breach { rule, said }))
    })
}

pub(super) async fn concurrent(
    subject: &mut Subject,
    supplies: &Supplies,
) -> Result<Finding, SubjectError> {
    subject.ask(&supplies.message(0)).await?;
    let Some(Spoken::Two(concurrency)) = subject.spoken() else {
        return Ok(Finding::not_applicable("it speaks version 1"));
    };
    if concurrency == 1 {
        return Ok(Finding::not_applicable("its HELLO allows 1"));
    }
    let together = concurrency.min(CONCURRENT_MAX);
    let ids = subject.send_together(&supplies.messages(together));
    let answers = subject.answers().await?;
    let answered: Vec<u64> = answers.iter().filter_map(|answer| answer.id).collect();
    let order = match answered == ids {
        true => "in order",
        false => "in another order",
    };
    Ok(Finding::passed(format!(
        "{together} messages at once, {together} answers, {order}"
    )))
}

pub(super) async fn ids(
    subject: &mut Subject,
    supplies: &Supplies,
) -> Result<Finding, SubjectError> {
    for id in [0, 1 << 32, (1 << 53) + 1, 1 << 63, u64::MAX] {
        let way = SendOptions {
            id: Some(id),
            ..SendOptions::default()
        };
        subject.send(&supplies.message(0), way);
        subject.answers().await?;
    }
    Ok(Finding::passed(
        "0, 2^32, 2^53+1, 2^63 and 2^64-1 came back",
    ))
}

pub(super) async fn headers(
    subject: &mut Subject,
    supplies: &Supplies,
) -> Result<Finding, SubjectError> {
    let plain = supplies.message(0);
    let awkward = [
        ("empty", String::new()),
        ("lines", "one\ntwo\r\n\tthree\0four".to_owned()),
        ("quotes", "\"'\\{}%s$HOME".to_owned()),
        ("number", "-0".to_owned()),
        ("long", "x".repeat(64 << 10)),
        ("scripts", "Größe 大小 🦀 \u{202e}\u{301}".to_owned()),
        ("Größe 大小 🦀", "a name of many scripts".to_owned()),
        ("a name with spaces: and signs", "x".to_owned()),
        ("", "no name".to_owned()),
        // Built-in in one language or another, where a map is an object.
        ("constructor", "x".to_owned()),
        ("__proto__", "x".to_owned()),
        ("toString", "x".to_owned()),
        ("hasOwnProperty", "x".to_owned()),
        ("__class__", "x".to_owned()),
        ("length", "x".to_owned()),
    ];
    let mut message = plain.clone();
    for (name, value) in awkward {
        message.headers.push((name.to_owned(), value));
    }
    subject.ask(&message).await?;
    let mut message = plain;
    for number in 0..200 {
        let name = format!("header-{number}");
        message.headers.push((name, number.to_string()));
    }
    subject.ask(&message).await?;
    Ok(Finding::passed(
        "empty, long, of many scripts, named like built-ins; 200 at once",
    ))
}

pub(super) async fn correlation(
    subject: &mut Subject,
    supplies: &Supplies,
) -> Result<Finding, SubjectError> {
    let mut said = Vec::new();
    for correlation_id in ["c-1", "Bestellung 7\n🦀", &"7".repeat(1000)] {
        let message = Message {
            correlation_id: correlation_id.to_owned(),
            ..supplies.message(0)
        };
        said.push(subject.ask(&message).await?.status.to_string());
    }
    said.dedup();
    Ok(Finding::passed(format!("answered {}", said.join(", "))))
}

/// Tests a body that the worker need not understand.
pub(super) async fn body(
    duty: Duty,
    subject: &mut Subject,
    supplies: &Supplies,
) -> Result<Finding, SubjectError> {
    let body: Bytes = match duty {
        Duty::EmptyBody => Bytes::new(),
        Duty::LargeBody => vec![b'x'; LARGE_BYTES].into(),
        Duty::UnicodeBody => "Grüße, 世界 🦀👩‍👩‍👧 \0 \u{202e}عربي\u{202c} é\u{301} \u{10ffff}".into(),
        _ => {
            // Bytes that are no text are for who has said HELLO.
            subject.ask(&supplies.message(0)).await?;
            (0..=u8::MAX).collect()
        }
    };
    let message = Message {
        body,
        ..supplies.message(0)
    };
    let answer = subject.ask(&message).await?;
    Ok(Finding::passed(format!("answered {}", answer.status)))
}

pub(super) async fn unknown_keys(
    subject: &mut Subject,
    supplies: &Supplies,
) -> Result<Finding, SubjectError> {
    let (id, frame) = subject.frame(&supplies.message(0), SendOptions::default());
    let what = format!("message {id} with keys of a later version");
    subject.write_recorded(&what, &frames::with_unknown_keys(&frame));
    let answer = subject.answers().await?.remove(0);
    Ok(Finding::passed(format!("answered {}", answer.status)))
}

pub(super) async fn sends_in_pieces(
    subject: &mut Subject,
    supplies: &Supplies,
) -> Result<Finding, SubjectError> {
    for number in 0..2 {
        let (id, frame) = subject.frame(&supplies.message(number), SendOptions::default());
        subject.note(&format!("message {id} in many pieces"), &frame);
        let (singles, rest) = frame.split_at(SINGLE_BYTES.min(frame.len()));
        let pieces = rest.chunks(rest.len().div_ceil(PIECES).max(1));
        for piece in singles.chunks(1).chain(pieces) {
            subject.put(piece);
            subject.all_sent().await?;
            sleep(PAUSE).await;
        }
        subject.answers().await?;
    }
    Ok(Finding::passed("2 messages in many pieces, 2 answers"))
}

pub(super) async fn limited(
    subject: &mut Subject,
    supplies: &Supplies,
) -> Result<Finding, SubjectError> {
    let way = SendOptions {
        timeout: Some(LIMIT),
        ..SendOptions::default()
    };
    let begun = Instant::now();
    subject.send(&supplies.slow(), way);
    subject.answers().await?;
    let took = begun.elapsed();
    let mut never = supplies.message(0);
    let header = (
        ganger_core::names::TIMEOUT_HEADER.to_owned(),
        "-1".to_owned(),
    );
    never.headers.push(header);
    subject.ask(&never).await?;
    if took > LIMIT + subject.rig().policy.timeout_grace {
        let said = format!(
            "a message that had {LIMIT:?} was answered after {took:.1?}: the daemon would have \
             killed the worker"
        );
        return Ok(Finding::warned(said, Duty::Timeout.mend()));
    }
    Ok(Finding::passed(format!("a limit of {LIMIT:?}, and none")))
}
