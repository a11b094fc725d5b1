//! One case: a worker of its own, the test of its duty, its end, and the result.

use std::rc::Rc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::duties::{Duty, Version};
use super::finding::{Finding, Rule, SubjectError};
use super::observations::Observations;
use super::report::DutyResult;
use super::subject::{Rig, Spoken, Subject};
use super::supplies::Supplies;
use super::{control, messages};
use ganger_pool::worker::Introduction;

/// Maximum duration of a case, as a multiple of the timeout of one answer: some cases wait for many
/// answers.
const ANSWERS_MAX: u32 = 6;

/// Time for a worker to exit when its case is over.
const LEAVE_WITHIN: Duration = Duration::from_secs(1);

/// Result of a case.
#[derive(Debug)]
pub(super) struct CaseResult {
    pub(super) tried: DutyResult,
    /// Frames that the worker has written of its own accord.
    pub(super) seen: Observations,
    /// Protocol that it speaks, if it has written anything.
    pub(super) spoken: Option<Spoken>,
}

/// Tests one duty.
pub(super) async fn run(
    duty: Duty,
    version: Version,
    rig: &Rc<Rig>,
    supplies: &Supplies,
) -> CaseResult {
    let begun = Instant::now();
    if duty == Duty::PipeName {
        let finding = control::by_name(rig, supplies).await;
        let tried = DutyResult::new(duty, finding, begun.elapsed(), Vec::new(), Vec::new());
        return CaseResult::only(tried);
    }
    let introduction = match version {
        Version::One => Introduction::Version1,
        Version::Two => Introduction::Full,
    };
    let mut subject = match Subject::start(rig, introduction).await {
        Ok(subject) => subject,
        Err((trouble, stderr)) => {
            let finding = unstarted(trouble);
            let tried = DutyResult::new(duty, finding, begun.elapsed(), Vec::new(), stderr);
            return CaseResult::only(tried);
        }
    };
    let limit = rig.answer_within * ANSWERS_MAX;
    let performed = async {
        if !supplies.are_text() && !subject.says_hello().await? {
            let said = "it sends no HELLO, and its messages are not text, which version 1 does not \
                 support";
            return Ok(Finding::failed(said, Duty::Hello.mend()));
        }
        let found = perform(duty, &mut subject, supplies).await?;
        dismiss_cleanly(&mut subject).await.map(|()| found)
    };
    let found = timeout(limit, performed).await;
    let finding = match found {
        Ok(Ok(finding)) => finding,
        Ok(Err(trouble)) => explain(duty, trouble, &mut subject).await,
        Err(_) => Finding::failed(
            format!("the case did not end within {limit:?}"),
            duty.mend(),
        ),
    };
    let took = begun.elapsed();
    let stderr = subject.terminate().await;
    let spoken = subject.spoken();
    let exchange = subject.transcript.into_pieces();
    CaseResult {
        tried: DutyResult::new(duty, finding, took, exchange, stderr),
        seen: subject.seen,
        spoken,
    }
}

impl CaseResult {
    fn only(tried: DutyResult) -> Self {
        Self {
            tried,
            seen: Observations::default(),
            spoken: None,
        }
    }
}

async fn perform(
    duty: Duty,
    subject: &mut Subject,
    supplies: &Supplies,
) -> Result<Finding, SubjectError> {
    match duty {
        Duty::Start => Ok(Finding::passed("connected")),
        Duty::Message => messages::one(subject, supplies).await,
        Duty::Hello => control::hello(subject, supplies).await,
        Duty::Many => messages::many(subject, supplies).await,
        Duty::Pipelined => messages::pipelined(subject, supplies).await,
        Duty::Concurrent => messages::concurrent(subject, supplies).await,
        Duty::Ids => messages::ids(subject, supplies).await,
        Duty::Headers => messages::headers(subject, supplies).await,
        Duty::Correlation => messages::correlation(subject, supplies).await,
        Duty::EmptyBody | Duty::LargeBody | Duty::UnicodeBody | Duty::BinaryBody => {
            messages::body(duty, subject, supplies).await
        }
        Duty::UnknownKeys => messages::unknown_keys(subject, supplies).await,
        Duty::UnknownLines => control::unknown_lines(subject, supplies).await,
        Duty::Dribbles => messages::sends_in_pieces(subject, supplies).await,
        Duty::Timeout => messages::limited(subject, supplies).await,
        Duty::Yield => control::yielding(subject, supplies).await,
        Duty::Cancel => control::cancel(subject, supplies).await,
        Duty::Quit => control::quit(subject, supplies).await,
        Duty::QuitBusy => control::quit_busy(subject, supplies).await,
        Duty::EndOfFile => control::end_of_file(subject, supplies).await,
        Duty::BadLength | Duty::BadMap => control::invalid_input(duty, subject, supplies).await,
        Duty::PipeName
        | Duty::Feedback
        | Duty::Reply
        | Duty::BareValue
        | Duty::Log
        | Duty::Progress
        | Duty::Emit
        | Duty::LaterNotes
        | Duty::Pool => unreachable!("{duty:?} is not a case of this kind"),
    }
}

/// Asks the worker to exit and reads its remaining output: a frame that no message has asked for is
/// a breach. Its exit is another duty.
async fn dismiss_cleanly(subject: &mut Subject) -> Result<(), SubjectError> {
    if subject.is_dismissed() {
        return Ok(());
    }
    subject.dismiss();
    subject.read_to_close(LEAVE_WITHIN).await.map(drop)
}

fn unstarted(trouble: SubjectError) -> Finding {
    let said = match trouble {
        SubjectError::Unstarted(why) => why,
        SubjectError::Silent | SubjectError::Gone | SubjectError::Broken(_) => {
            "it did not start".to_owned()
        }
    };
    Finding::failed(said, Duty::Start.mend())
}

async fn explain(duty: Duty, trouble: SubjectError, subject: &mut Subject) -> Finding {
    let first = subject.in_flight().next();
    let hand = first.map_or_else(String::new, |id| format!(", with message {id} unanswered"));
    match trouble {
        SubjectError::Broken(breach) => {
            let mend = match (breach.rule, duty) {
                (Rule::KnownId, Duty::Ids) | (Rule::Length | Rule::Map, Duty::UnicodeBody) => {
                    duty.mend()
                }
                (rule, _) => rule.mend(),
            };
            Finding::failed(breach.said, mend)
        }
        SubjectError::Gone => {
            let way = subject.describe_end().await;
            Finding::failed(format!("{way}{hand}"), duty.mend())
        }
        SubjectError::Silent => {
            let within = subject.rig().answer_within;
            let id = first.unwrap_or_default();
            let said = format!("no answer to message {id} within {within:?}");
            Finding::failed(said, duty.mend())
        }
        unstarted @ SubjectError::Unstarted(_) => self::unstarted(unstarted),
    }
}
