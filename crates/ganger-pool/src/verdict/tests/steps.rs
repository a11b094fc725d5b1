//! Tests of the messages that continue a message, and of their limit.

use super::*;
use ganger_config::model::{KafkaOptions, Topics};
use ganger_core::names::{ATTEMPTS_MAX_HEADER, OCCURRENCE_HEADER};

/// Returns the outcome of a message of this step that a worker answers, naming a queue or not.
fn replied(policy: &PoolConfig, message: &Message, step: u32, queue: Option<&str>) -> Outcome {
    let history = History {
        step,
        ..History::default()
    };
    let case = Case {
        message,
        history,
        policy,
        chance: 0.5,
    };
    let output = Output {
        reply_queue: queue.map(ToOwned::to_owned),
        ..output(201)
    };
    decide(Event::Answered(output), case)
}

fn asking(reply_to: &str) -> Message {
    Message {
        reply_to: Some(reply_to.to_owned()),
        ..message()
    }
}

/// Returns the dead letter's error, after checking that it has the reply.
fn refused(outcome: Outcome) -> String {
    let Outcome::DeadLetter(failure) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(failure.reason, Reason::UnroutableReply);
    assert_eq!(failure.reply.unwrap().body, "said");
    failure.error
}

#[test]
fn what_continues_a_message_is_its_next_step() {
    let policy = PoolConfig {
        steps_max: u32::MAX,
        ..policy()
    };
    for (step, expected) in [(0, "1"), (1, "2"), (u32::MAX - 1, "4294967295")] {
        let Outcome::Reply(reply) = replied(&policy, &message(), step, None) else {
            panic!("it is a reply");
        };
        let found = reply.headers.iter().find(|(name, _)| name == STEP_HEADER);
        assert_eq!(found.map(|(_, step)| step.as_str()), Some(expected));
    }
}

/// An emit is a task of its own, wherever it goes.
#[test]
fn a_step_is_of_the_same_run_and_another_message_is_not() {
    let message = Message {
        occurrence: Some("id".into()),
        ..message()
    };
    let history = History {
        attempts_max: Some(3),
        ..History::default()
    };
    let policy = policy();
    let case = Case {
        message: &message,
        history,
        policy: &policy,
        chance: 0.5,
    };
    let of_run = |message: &Outgoing| {
        let of = |name| message.headers.iter().find(|(other, _)| *other == name);
        [ATTEMPTS_MAX_HEADER, OCCURRENCE_HEADER].map(|name| Some(of(name)?.1.clone()))
    };
    let step = [Some("3".to_owned()), Some("id".to_owned())];
    for (queue, expected) in [("q", &step), ("answers", &[None, None])] {
        let next = continued(queue.to_owned(), output(201), case);
        assert_eq!(of_run(&next), *expected);
        let emitted = outgoing(queue.to_owned(), output(201), case);
        assert_eq!(of_run(&emitted), [None, None]);
    }
}

/// A worker that always answers would receive the same message again and again.
#[test]
fn a_reply_to_that_is_the_queue_itself_is_not_answered() {
    let error = refused(replied(&policy(), &asking("q"), 0, None));
    assert!(
        error.contains("reply-to is `q`, which this pool reads"),
        "{error}"
    );
    let goes_on = replied(&policy(), &asking("q"), 0, Some("q"));
    assert!(matches!(goes_on, Outcome::Reply(reply) if reply.queue == "q"));

    let topics = Topics::read(&["q".to_owned(), "^orders".to_owned()]).unwrap();
    let kafka = PoolConfig {
        options: Options::Kafka(KafkaOptions {
            topics,
            ..KafkaOptions::default()
        }),
        ..policy()
    };
    refused(replied(&kafka, &asking("orders.eu"), 0, None));
    assert!(matches!(
        replied(&kafka, &asking("answers"), 0, None),
        Outcome::Reply(_)
    ));
}

#[test]
fn a_task_goes_on_so_often() {
    for queue in [Some("q"), Some("another"), None] {
        assert!(matches!(
            replied(&policy(), &message(), 99, queue),
            Outcome::Reply(_)
        ));
        let error = refused(replied(&policy(), &message(), 100, queue));
        assert!(
            error.contains("continued as another message 100 times"),
            "{error}"
        );
        assert!(error.contains("pools.p.steps_max is 100"), "{error}");
    }
}
