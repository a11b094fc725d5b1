//! Cases about the start, control lines and the end.

use std::rc::Rc;
use std::time::Duration;

use tokio::time::Instant;

use super::duties::Duty;
use super::finding::{Finding, SubjectError};
use super::subject::{Rig, SendOptions, Subject};
use super::supplies::Supplies;
use ganger_core::names;
use ganger_pool::worker::Introduction;

/// Time for a worker to end a connection that is of no use any more. One that does not only gets a
/// warning, so it is not waited for as long as for an answer.
const HANG_UP_WITHIN: Duration = Duration::from_secs(2);
/// Length of a line that is nearly as long as allowed.
const LONG_LINE_CHARS: usize = 500;
/// Number of messages after lines that a worker does not know: it may read them late.
const AFTER_LINES: usize = 5;

/// Tests that the worker finds its pipe without our variables.
pub(super) async fn by_name(rig: &Rc<Rig>, supplies: &Supplies) -> Finding {
    let started = Subject::start(rig, Introduction::NameOnly).await;
    let trouble = match started {
        Ok(mut subject) => {
            let asked = subject.ask(&supplies.message(0)).await;
            subject.terminate().await;
            match asked {
                Ok(_) => return Finding::passed("without GANGER_PIPE"),
                Err(_) => "it connected but did not answer".to_owned(),
            }
        }
        Err((SubjectError::Unstarted(why), _)) => why,
        Err(_) => "it did not start".to_owned(),
    };
    Finding::warned(
        format!("without GANGER_PIPE, as under MessageWorkerPool: {trouble}"),
        Duty::PipeName.mend(),
    )
}

/// Tests the first frame, once a message is answered.
pub(super) async fn hello(
    subject: &mut Subject,
    supplies: &Supplies,
) -> Result<Finding, SubjectError> {
    subject.ask(&supplies.message(0)).await?;
    let mend = Duty::Hello.mend();
    let Some(hello) = &subject.seen.hello else {
        let said = "its first frame is not a HELLO: it speaks version 1";
        return Ok(Finding::failed(said, mend));
    };
    let header = |name: &str| {
        let mut headers = hello.headers.iter().flatten();
        let found = headers.find(|(other, _)| other == name);
        found.map(|(_, value)| value.trim())
    };
    let concurrency = header("concurrency");
    if let Some(told) = concurrency
        && !told.parse::<usize>().is_ok_and(|number| number > 0)
    {
        let said = format!("concurrency must be a whole number from 1: `{told}`");
        return Ok(Finding::failed(said, mend));
    }
    let lacks = ["sdk", "version", "concurrency"].map(|name| (name, header(name).is_none()));
    let lacks: Vec<&str> = lacks
        .iter()
        .filter(|(_, is)| *is)
        .map(|(n, _)| *n)
        .collect();
    if !lacks.is_empty() {
        let said = format!("HELLO lacks the headers {}", lacks.join(", "));
        return Ok(Finding::warned(said, mend));
    }
    if hello.id.is_some() || !hello.message.is_empty() {
        let said = "a HELLO concerns no message: it must have no id and no text";
        return Ok(Finding::warned(said, mend));
    }
    Ok(subject.seen.complaint(Duty::Hello).unwrap_or_else(|| {
        let told = |name: &str| header(name).unwrap_or_default().to_owned();
        let (sdk, version) = (told("sdk"), told("version"));
        let concurrency = concurrency.unwrap_or("1");
        Finding::passed(format!("{sdk} {version}, concurrency {concurrency}"))
    }))
}

pub(super) async fn unknown_lines(
    subject: &mut Subject,
    supplies: &Supplies,
) -> Result<Finding, SubjectError> {
    subject.ask(&supplies.message(0)).await?;
    for line in ["__of_a_later_version__ 1", "", &"x".repeat(LONG_LINE_CHARS)] {
        subject.tell(line);
    }
    for number in 0..AFTER_LINES {
        subject.ask(&supplies.message(number)).await?;
    }
    Ok(Finding::passed("3 lines, and messages after them"))
}

pub(super) async fn yielding(
    subject: &mut Subject,
    supplies: &Supplies,
) -> Result<Finding, SubjectError> {
    subject.ask(&supplies.message(0)).await?;
    subject.tell(names::CONTEXT_SWITCH);
    subject.send(&supplies.slow(), SendOptions::default());
    subject.tell(names::CONTEXT_SWITCH);
    let answer = subject.answers().await?.remove(0);
    subject.ask(&supplies.message(0)).await?;
    Ok(Finding::passed(format!(
        "idle and busy: answered {}",
        answer.status
    )))
}

pub(super) async fn cancel(
    subject: &mut Subject,
    supplies: &Supplies,
) -> Result<Finding, SubjectError> {
    subject.ask(&supplies.message(0)).await?;
    subject.tell(&format!("{} {}", names::CANCEL, u64::MAX));
    let begun = Instant::now();
    let id = subject.send(&supplies.slow(), SendOptions::default());
    subject.tell(&format!("{} {id}", names::CANCEL));
    let answer = subject.answers().await?.remove(0);
    let took = begun.elapsed();
    subject.tell(&format!("{} {id}", names::CANCEL));
    subject.ask(&supplies.message(0)).await?;
    Ok(Finding::passed(format!(
        "answered {} after {}",
        answer.status,
        millis(took)
    )))
}

/// Tests the request to exit with nothing in flight.
pub(super) async fn quit(
    subject: &mut Subject,
    supplies: &Supplies,
) -> Result<Finding, SubjectError> {
    subject.ask(&supplies.message(0)).await?;
    subject.dismiss();
    leaves(subject, Duty::Quit).await
}

/// Tests the end of the daemon.
pub(super) async fn end_of_file(
    subject: &mut Subject,
    supplies: &Supplies,
) -> Result<Finding, SubjectError> {
    subject.ask(&supplies.message(0)).await?;
    subject.disconnect();
    leaves(subject, Duty::EndOfFile).await
}

async fn leaves(subject: &mut Subject, duty: Duty) -> Result<Finding, SubjectError> {
    let begun = Instant::now();
    let within = subject.rig().policy.stop_timeout;
    subject.read_to_close(within).await?;
    let left = within.saturating_sub(begun.elapsed());
    let Some(exit) = subject.exit(left.max(Duration::from_millis(100))).await else {
        let said = format!("it is still running after {within:?}");
        return Ok(Finding::failed(said, duty.mend()));
    };
    if exit.code != Some(0) {
        let said = format!("it {exit}: it should exit with code 0");
        return Ok(Finding::warned(said, duty.mend()));
    }
    let took = millis(begun.elapsed());
    Ok(Finding::passed(format!("exited after {took}")))
}

/// Tests the request to exit with a message in flight.
pub(super) async fn quit_busy(
    subject: &mut Subject,
    supplies: &Supplies,
) -> Result<Finding, SubjectError> {
    subject.ask(&supplies.message(0)).await?;
    subject.send(&supplies.slow(), SendOptions::default());
    subject.all_sent().await?;
    subject.dismiss();
    let within = subject.rig().answer_within;
    let has_gone = subject.read_to_close(within).await?;
    let unanswered = subject.in_flight().next();
    Ok(match unanswered {
        None => Finding::passed("the message in hand was answered"),
        Some(_) if subject.left_unread() => Finding::passed(
            "it exited before it had read the message, which goes to another worker",
        ),
        Some(id) if has_gone => Finding::failed(
            format!("it exited with message {id} read and not answered"),
            Duty::QuitBusy.mend(),
        ),
        Some(id) => Finding::failed(
            format!("no answer to message {id} within {within:?}"),
            Duty::QuitBusy.mend(),
        ),
    })
}

/// Tests input that no daemon sends. A worker that interprets it gets a warning.
pub(super) async fn invalid_input(
    duty: Duty,
    subject: &mut Subject,
    supplies: &Supplies,
) -> Result<Finding, SubjectError> {
    subject.ask(&supplies.message(0)).await?;
    let bytes: &[u8] = match duty {
        Duty::BadLength => b"\xff\xff\xff\xf0",
        _ => b"\0\0\0\x05\x93\x01\x02\x03\xc1",
    };
    subject.write_recorded("what no daemon sends", bytes);
    let until = Instant::now() + HANG_UP_WITHIN;
    Ok(loop {
        match subject.next(until).await {
            Ok(None) => break Finding::passed("it ended the connection"),
            // With nothing in flight only a note comes so far.
            Ok(Some(_)) => {}
            Err(SubjectError::Silent) => {
                let said = format!("it still waits for more after {HANG_UP_WITHIN:?}");
                break Finding::warned(said, duty.mend());
            }
            Err(_) => break Finding::warned("it answered it", duty.mend()),
        }
    })
}

fn millis(time: Duration) -> String {
    format!("{} ms", time.as_millis())
}
