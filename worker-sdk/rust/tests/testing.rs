//! The harness for handlers of others, and with it the library on a socket pair.
#![cfg(all(feature = "log", feature = "tokio"))]

use std::sync::Mutex;
use std::time::Duration;

use ganger_worker::testing::{Answer, Message, work, work_async, work_in_version};
use ganger_worker::{AsyncTask, Cancelled, Error, Level, Outcome, Task, Value, Worker};

fn shout(task: &Task) -> Result<Outcome, Error> {
    let text = task.text().expect("text");
    task.emit("heard", text, &[])?;
    task.progress("half way");
    task.log(Level::Info, "shouting", &[("volume", 11.into())]);
    Ok(Outcome::reply(text.to_uppercase())
        .header("loud", true)
        .to("answers"))
}

async fn shout_async(task: AsyncTask) -> Result<Outcome, Error> {
    let text = task.text().expect("text");
    task.emit("heard", text, &[]).await?;
    task.progress("half way");
    tokio::task::yield_now().await;
    task.log(Level::Info, "shouting", &[("volume", 11.into())]);
    Ok(Outcome::reply(text.to_uppercase())
        .header("loud", true)
        .to("answers"))
}

fn check(answers: &[Answer]) {
    assert_eq!(answers.len(), 500);
    for (n, answer) in answers.iter().enumerate() {
        assert_eq!(
            (answer.status, answer.text()),
            (201, &*format!("MESSAGE {n}"))
        );
        assert_eq!(answer.headers, [("loud".to_owned(), Value::Boolean(true))]);
        assert_eq!(answer.queue.as_deref(), Some("answers"));
        assert_eq!(answer.retry_after, None);
        assert_eq!(answer.emits.len(), 1, "{answer:?}");
        assert_eq!(answer.emits[0].message, format!("message {n}").as_bytes());
        assert_eq!(answer.emits[0].queue.as_deref(), Some("heard"));
        assert_eq!(answer.logs.len(), 1, "{answer:?}");
        let fields = [
            ("level".to_owned(), "info".into()),
            ("volume".to_owned(), 11.into()),
        ];
        assert_eq!(
            (&*answer.logs[0].message, &*answer.logs[0].headers),
            (&b"shouting"[..], &fields[..])
        );
        assert_eq!(answer.progress, ["half way"]);
    }
}

#[test]
fn answers_are_in_the_order_of_the_messages() {
    for concurrency in [1, 16] {
        let worker = Worker::new().concurrency(concurrency);
        check(&work(&worker, shout, (0..500).map(|n| format!("message {n}"))).expect("answers"));
    }
}

#[tokio::test]
async fn async_answers_are_in_the_order_of_the_messages() {
    for concurrency in [1, 16] {
        let worker = Worker::new().concurrency(concurrency);
        let messages = (0..500).map(|n| format!("message {n}"));
        check(
            &work_async(&worker, shout_async, messages)
                .await
                .expect("answers"),
        );
    }
}

#[test]
fn everything_of_a_message_reaches_the_handler() {
    let mut message = Message::new([255]).header("a", "b");
    message.correlation_id = "c".to_owned();
    message.queue = "q".to_owned();
    message.attempt = 3;
    message.milliseconds_left = Some(100);
    message.properties.insert("row_id".to_owned(), 7.into());
    let seen = Mutex::new(String::new());
    let answers = work(
        &Worker::new(),
        |task: &Task| {
            *seen.lock().expect("no panic") = format!(
                "{:?} {} {} {:?} {:?} {:?} {:?}",
                task.message,
                task.correlation_id,
                task.queue,
                task.headers,
                task.attempt,
                task.milliseconds_left,
                task.properties
            );
            assert!(task.text().is_err());
        },
        [message],
    );
    assert_eq!(answers.expect("answers")[0].status, 200);
    let wanted = "[255] c q {\"a\": \"b\"} Some(3) Some(100) {\"row_id\": Integer(7)}";
    assert_eq!(*seen.lock().expect("no panic"), wanted);
}

fn soon() -> Message {
    let mut message = Message::new("");
    message.cancel_after = Some(Duration::from_millis(10));
    message
}

#[test]
fn a_handler_sees_that_it_is_cancelled() {
    let minute = Duration::from_secs(60);
    let gives_up = |task: &Task| {
        assert!(task.cancellation().wait(minute));
        Outcome::retry("gave up").after(minute)
    };
    let answers = work(&Worker::new(), gives_up, [soon()]).expect("answers");
    assert_eq!((answers[0].status, answers[0].text()), (429, "gave up"));
    assert_eq!(answers[0].retry_after, Some(minute));
    let checks = |task: &Task| -> Result<(), Cancelled> {
        task.cancellation().wait(minute);
        task.check()
    };
    let answers = work(&Worker::new(), checks, [soon()]).expect("answers");
    assert_eq!((answers[0].status, answers[0].text()), (429, "cancelled"));
}

#[tokio::test]
async fn the_future_of_a_cancelled_message_is_dropped() {
    let forever = |_| std::future::pending::<()>();
    let answers = work_async(&Worker::new(), forever, [soon()])
        .await
        .expect("answers");
    assert_eq!((answers[0].status, answers[0].text()), (429, "cancelled"));
    let heeds = async |task: AsyncTask| {
        task.cancellation().cancelled().await;
        Outcome::reject("enough")
    };
    let answers = work_async(&Worker::new(), heeds, [soon()])
        .await
        .expect("answers");
    assert_eq!((answers[0].status, answers[0].text()), (400, "enough"));
}

#[tokio::test]
async fn a_future_that_panics_when_dropped_is_a_failure() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("dropped with a bang");
        }
    }
    let bomb = |_| async {
        let _bomb = Bomb;
        std::future::pending::<()>().await;
    };
    let answers = work_async(&Worker::new(), bomb, [soon()])
        .await
        .expect("answers");
    assert_eq!(answers[0].status, 500);
    assert!(
        answers[0].text().contains("dropped with a bang"),
        "{answers:?}"
    );
}

#[tokio::test]
async fn nothing_is_said_of_a_message_that_is_answered() {
    let (keep, kept) = std::sync::mpsc::sync_channel(1);
    let lets_go = move |task: AsyncTask| {
        keep.send(task).expect("someone listens");
        async {}
    };
    let answers = work_async(&Worker::new(), lets_go, ["x"])
        .await
        .expect("answers");
    assert_eq!(answers[0].status, 200);
    let task = kept.recv().expect("the task");
    let late = task.emit("parts", "x", &[]).await;
    assert!(late.is_err_and(|error| error.to_string().contains("answered already")));
}

#[tokio::test]
async fn what_is_sent_without_waiting_has_a_bound() {
    let large = |task: AsyncTask| async move {
        let megabyte = "x".repeat(1 << 20);
        // Nobody writes while this does not wait.
        let many = (0..10).map(|_| Task::emit(&task, "parts", &megabyte, &[]));
        let refused = many.filter(Result::is_err).count();
        for _ in 0..10 {
            task.emit("parts", &megabyte, &[]).await?;
        }
        Ok::<_, Error>(Outcome::reply(refused.to_string()))
    };
    let answers = work_async(&Worker::new(), large, [""])
        .await
        .expect("answers");
    assert_eq!((answers[0].status, answers[0].text()), (201, "9"));
    assert_eq!(answers[0].emits.len(), 11);
}

#[test]
fn version_1_is_spoken_too() {
    let echo = |task: &Task| Outcome::reply(task.message.clone());
    let worker = Worker::new().concurrency(4);
    let answers = work_in_version(1, &worker, echo, ["a", "b"]).expect("answers");
    assert_eq!((answers[0].text(), answers[1].text()), ("a", "b"));
}

#[test]
fn bad_arguments_and_messages_are_told() {
    let nothing = |_: &Task| {};
    let mut zero = Message::new("");
    zero.attempt = 0;
    for (wanted, result) in [
        (
            "concurrency must be within 1 and 65535: 0",
            work(&Worker::new().concurrency(0), nothing, [""]),
        ),
        (
            "frame_bytes_max must be",
            work(&Worker::new().frame_bytes_max(1 << 31), nothing, [""]),
        ),
        (
            "version must be 1 or 2: 3",
            work_in_version(3, &Worker::new(), nothing, [""]),
        ),
        (
            "\"5\": an input must begin with attempt 1",
            work(&Worker::new(), nothing, [zero]),
        ),
    ] {
        let error = result.expect_err(wanted).to_string();
        assert!(error.contains(wanted), "{error}, not {wanted}");
    }
    let nowhere = |task: &Task| task.emit("", "x", &[]);
    let answers = work(&Worker::new(), nowhere, [""]).expect("answers");
    assert!(
        answers[0].text().contains("emit needs the name of a queue"),
        "{answers:?}"
    );
}
