//! Tests of the verdict: a row for every status and event, and properties that hold for all of them.

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use ganger_config::model::Options;
use ganger_config::sample::policy;
use ganger_queue::delivery::{Exit, Property};

mod labels;
mod steps;

fn message() -> Message {
    Message {
        queue: "q".into(),
        body: Bytes::from_static(b"body"),
        headers: vec![
            ("a".into(), "1".into()),
            ("X-Ganger-Attempts".into(), "7".into()),
            ("b".into(), "2".into()),
        ],
        correlation_id: "c".into(),
        reply_to: Some("answers".into()),
        properties: vec![
            ("message_id", Property::Text("m".into())),
            ("priority", Property::Integer(4)),
        ],
        occurrence: None,
    }
}

fn output(status: i64) -> Output {
    Output {
        message: "said".into(),
        status: Status(status),
        headers: None,
        reply_queue: None,
        id: None,
        retry_after_ms: None,
    }
}

fn on_attempt(attempt: u32, event: Event) -> Outcome {
    let history = History {
        attempt,
        ..History::default()
    };
    decide(
        event,
        Case {
            message: &message(),
            history,
            policy: &policy(),
            chance: 0.5,
        },
    )
}

fn delay(outcome: &Outcome) -> Option<u64> {
    match outcome {
        Outcome::RetryAfter { delay, .. } => Some(delay.as_secs()),
        _ => None,
    }
}

fn dead(outcome: &Outcome) -> Option<(Reason, &str)> {
    match outcome {
        Outcome::DeadLetter(failure) => Some((failure.reason, &failure.error)),
        _ => None,
    }
}

#[test]
fn every_status_has_its_verdict() {
    let answer = |status| on_attempt(2, Event::Answered(output(status)));
    assert_eq!(answer(200), Outcome::Done);
    assert_eq!(answer(299), Outcome::Done, "as [pools.statuses] says");
    assert!(matches!(answer(201), Outcome::Reply(_)));
    assert_eq!(
        answer(300),
        Outcome::Requeue {
            after: Duration::from_millis(100)
        }
    );
    for status in [400, 404] {
        assert_eq!(
            dead(&answer(status)).unwrap().0,
            Reason::Rejected,
            "{status}"
        );
    }
    for status in [429, 503, 500, 0, 7, 202, 777, -2, i64::MIN, i64::MAX] {
        assert_eq!(
            delay(&answer(status)),
            Some(2),
            "{status} is a failed second attempt"
        );
    }
}

#[test]
fn an_answer_after_a_yield_counts_if_it_settles_the_matter() {
    let yielded = |output| on_attempt(5, Event::Yielded(output));
    let back = Outcome::Return { suspect: false };
    assert_eq!(yielded(output(200)), Outcome::Done);
    assert_eq!(yielded(output(299)), Outcome::Done, "by [pools.statuses]");
    assert!(matches!(yielded(output(201)), Outcome::Reply(_)));
    for status in [400, 404] {
        let outcome = yielded(output(status));
        assert_eq!(dead(&outcome).unwrap().0, Reason::Rejected, "{status}");
    }
    for status in [500, 300, 429, 503, 0, 777, -2] {
        assert_eq!(
            yielded(output(status)),
            back,
            "{status} on the last attempt"
        );
    }
    let asking = |status, ms| Output {
        retry_after_ms: Some(ms),
        ..output(status)
    };
    for (status, ms, seconds) in [(429, 7_000, 7), (503, u64::MAX, 60)] {
        let delay = Duration::from_secs(seconds);
        assert_eq!(
            yielded(asking(status, ms)),
            Outcome::ReturnAfter { delay },
            "{status} keeps the delay that it asked for, uncharged"
        );
    }
    assert_eq!(yielded(asking(500, 7_000)), back, "500 asks for nothing");
}

#[test]
fn what_is_cancelled_does_not_run_again_and_what_is_done_is_done() {
    let cancelled = |status| on_attempt(1, Event::Cancelled(output(status)));
    assert_eq!(cancelled(200), Outcome::Done);
    assert!(matches!(cancelled(201), Outcome::Reply(_)));
    assert_eq!(dead(&cancelled(400)).unwrap().0, Reason::Rejected);
    for status in [500, 300, 429, 503, 0, 777, -2] {
        let outcome = cancelled(status);
        let (reason, error) = dead(&outcome).unwrap();
        assert_eq!(reason, Reason::Cancelled, "{status}");
        assert!(error.starts_with(CANCELLED), "{error}");
    }
    let failure = Failure::new(Reason::Cancelled, CANCELLED);
    let outcome = on_attempt(1, Event::Failed(failure));
    assert_eq!(dead(&outcome).unwrap().0, Reason::Cancelled);
}

#[test]
fn a_message_may_have_more_or_fewer_attempts_than_its_pool_gives() {
    let most = policy().retry.attempts;
    for (attempts_max, last) in [(None, most), (Some(1), 1), (Some(most + 2), most + 2)] {
        let is_dead = |attempt| {
            let history = History {
                attempt,
                attempts_max,
                ..History::default()
            };
            let case = Case {
                message: &message(),
                history,
                policy: &policy(),
                chance: 0.5,
            };
            dead(&decide(Event::Answered(output(500)), case)).is_some()
        };
        assert!(
            is_dead(last) && (last == 1 || !is_dead(last - 1)),
            "{attempts_max:?}"
        );
    }
}

/// The reason for a failure after the timeout does not matter: the worker had its full time.
#[test]
fn a_worker_that_gives_up_at_its_limit_has_timed_out() {
    let limit = Duration::from_millis(1500);
    let late = |answer| on_attempt(5, Event::TimedOut { answer, limit });
    let table = [
        (
            503,
            "timed out after 1.5s: the worker asked for a retry: said",
        ),
        (
            500,
            "timed out after 1.5s: the worker answered 500 UNKNOWN_ERROR: said",
        ),
    ];
    for (status, error) in table {
        let outcome = late(output(status));
        assert_eq!(dead(&outcome), Some((Reason::TimedOut, error)));
    }
    assert_eq!(late(output(200)), Outcome::Done);
    let rejected = late(output(400));
    assert_eq!(
        dead(&rejected).map(|(reason, _)| reason),
        Some(Reason::Rejected)
    );
    let answer = Output {
        retry_after_ms: Some(7_000),
        ..output(503)
    };
    assert_eq!(
        delay(&on_attempt(1, Event::TimedOut { answer, limit })),
        Some(7)
    );
}

#[test]
fn an_unknown_status_is_named_in_the_error() {
    let outcome = on_attempt(5, Event::Answered(output(777)));
    let (reason, error) = dead(&outcome).unwrap();
    assert_eq!(reason, Reason::Failed);
    assert!(error.contains("777") && error.ends_with("said"), "{error}");
}

#[test]
fn a_worker_may_ask_for_a_delay_up_to_the_longest() {
    let asking = |ms| Output {
        retry_after_ms: Some(ms),
        ..output(503)
    };
    assert_eq!(
        delay(&on_attempt(1, Event::Answered(asking(7_000)))),
        Some(7)
    );
    assert_eq!(
        delay(&on_attempt(1, Event::Answered(asking(u64::MAX)))),
        Some(60)
    );
}

#[test]
fn requeues_wait_longer_each_time_and_are_bounded() {
    let after = |requeues| {
        let history = History {
            attempt: 1,
            requeues,
            ..History::default()
        };
        let event = Event::Answered(output(300));
        match decide(
            event,
            Case {
                message: &message(),
                history,
                policy: &policy(),
                chance: 0.5,
            },
        ) {
            Outcome::Requeue { after } => after.as_millis(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(
        [0, 1, 2, 20, u32::MAX].map(after),
        [100, 200, 400, 30_000, 30_000]
    );
}

#[test]
fn a_message_that_kills_its_workers_is_dead_before_its_attempts_are_spent() {
    let crashed = |crashes| {
        let failure = Failure {
            reason: Reason::Crashed,
            exit: Some(Exit {
                signal: Some(9),
                ..Exit::default()
            }),
            ..Failure::default()
        };
        let history = History {
            attempt: 1 + crashes,
            crashes,
            ..History::default()
        };
        let case = Case {
            message: &message(),
            history,
            policy: &policy(),
            chance: 0.5,
        };
        decide(Event::Failed(failure), case)
    };
    assert_eq!(delay(&crashed(1)), Some(2));
    let outcome = crashed(2);
    let (reason, error) = dead(&outcome).unwrap();
    assert_eq!(reason, Reason::Crashed);
    assert!(error.starts_with("crashed the worker 3 times"), "{error}");
}

#[test]
fn what_can_not_be_delivered_is_not_tried_again() {
    let failure = Failure {
        reason: Reason::Undeliverable,
        ..Failure::default()
    };
    assert!(dead(&on_attempt(1, Event::Failed(failure))).is_some());
}

#[test]
fn a_reply_goes_on_with_the_messages_properties() {
    let answer = Output {
        headers: Some(vec![
            ("b".into(), "3".into()),
            ("x-ganger-z".into(), "1".into()),
        ]),
        ..output(201)
    };
    let Outcome::Reply(reply) = on_attempt(1, Event::Answered(answer)) else {
        panic!("no reply")
    };
    assert_eq!(reply.queue, "answers");
    assert_eq!(
        (reply.correlation_id.as_str(), reply.reply_to.as_deref()),
        ("c", Some("answers"))
    );
    assert_eq!(
        (reply.message_id.as_deref(), reply.priority),
        (Some("m"), 4)
    );
    assert_eq!(
        reply.headers,
        [("a", "1"), ("b", "3"), (STEP_HEADER, "1")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
    );
}

#[test]
fn a_reply_that_may_not_go_there_is_kept_with_the_dead_letter() {
    let policy = PoolConfig {
        publish_to: Some(vec!["results.*".into()]),
        ..policy()
    };
    let message = message();
    let decided = |to: Option<&str>| {
        let case = Case {
            message: &message,
            history: History::default(),
            policy: &policy,
            chance: 0.5,
        };
        let reply_queue = to.map(str::to_owned);
        let output = Output {
            reply_queue,
            ..output(201)
        };
        decide(Event::Answered(output), case)
    };
    assert!(matches!(decided(Some("results.eu")), Outcome::Reply(_)));
    for (to, named) in [(Some("elsewhere"), "elsewhere"), (None, "answers")] {
        let outcome = decided(to);
        let (reason, error) = dead(&outcome).unwrap();
        assert_eq!(reason, Reason::UnroutableReply);
        assert!(
            error.ends_with(&format!("must allow its queue: `{named}`")),
            "{error}"
        );
        let Outcome::DeadLetter(failure) = outcome else {
            unreachable!()
        };
        assert_eq!(
            failure.reply.unwrap().queue,
            named,
            "the message's reply-to is bound, too"
        );
    }
}

/// The ledger keeps it as the result.
#[test]
fn a_reply_that_is_kept_needs_no_destination() {
    for (followed, keeps_result) in [(false, true), (true, true), (true, false)] {
        let message = Message {
            reply_to: None,
            ..message()
        };
        let history = History {
            attempt: 1,
            followed,
            keeps_result,
            ..History::default()
        };
        let policy = policy();
        let case = |message| Case {
            message,
            history,
            policy: &policy,
            chance: 0.5,
        };
        let answered = || Event::Answered(output(201));
        let decided = decide(answered(), case(&message));
        let is_kept = decided == Outcome::Done;
        assert_eq!(is_kept, keeps_result, "{decided:?}");
        let asked = Message {
            reply_to: Some("answers".into()),
            ..message.clone()
        };
        let replied = decide(answered(), case(&asked));
        assert!(matches!(replied, Outcome::Reply(_)), "{replied:?}");
    }
}

#[test]
fn a_reply_without_a_destination_is_kept_with_the_dead_letter() {
    let message = Message {
        reply_to: None,
        ..message()
    };
    let history = History {
        attempt: 1,
        ..History::default()
    };
    let case = Case {
        message: &message,
        history,
        policy: &policy(),
        chance: 0.5,
    };
    let Outcome::DeadLetter(failure) = decide(Event::Answered(output(201)), case) else {
        panic!("not dead")
    };
    assert_eq!(failure.reason, Reason::UnroutableReply);
    assert_eq!(failure.reply.unwrap().body, "said");
}

proptest! {
    #[test]
    fn nothing_is_done_by_accident(status in any::<i64>(), attempt in 1u32..20, crashes in 0u32..5) {
        let history = History { attempt, crashes, ..History::default() };
        let policy = policy();
        let event = Event::Answered(output(status));
        let outcome = decide(event, Case { message: &message(), history, policy: &policy, chance: 0.5 });
        let done = matches!(outcome, Outcome::Done | Outcome::Reply(_));
        prop_assert_eq!(done, matches!(status, 200 | 201 | 299));
        prop_assert!(delay(&outcome).is_none_or(|_| attempt < policy.retry.attempts));
    }

    #[test]
    fn a_failure_is_tried_again_or_kept_never_dropped(attempt in 1u32..20, crashes in 0u32..5, crash in any::<bool>()) {
        let reason = if crash { Reason::Crashed } else { Reason::TimedOut };
        let history = History { attempt, crashes, ..History::default() };
        let policy = policy();
        let event = Event::Failed(Failure { reason, ..Failure::default() });
        let outcome = decide(event, Case { message: &message(), history, policy: &policy, chance: 0.5 });
        let last = attempt >= policy.retry.attempts || (crash && crashes + 1 >= policy.crashes_max);
        prop_assert_eq!(dead(&outcome).is_some(), last);
        prop_assert_eq!(delay(&outcome).is_some(), !last);
    }
}
