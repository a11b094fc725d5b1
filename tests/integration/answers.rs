//! What a worker's answer makes of its message: every status, replies, emits, retries.

use crate::harness::{Entry, Event, NewMessage, Pool, Scene, trials};

trials![
    what_workers_send_goes_where_the_pool_allows_it,
    feedback_shifts_no_answer,
    an_unknown_status_is_a_failure_with_its_code,
    requeue_is_uncharged_and_does_not_spin,
    a_failure_is_retried_until_it_succeeds,
    the_last_failed_attempt_is_the_end,
    a_retrys_delay_is_obeyed,
    a_retrys_delay_is_clamped,
    reject_is_at_once,
    statuses_may_be_given_another_meaning,
    a_reply_goes_to_the_reply_queue,
    a_worker_may_name_the_reply_queue,
    a_reply_without_a_place_is_kept_with_its_message,
    a_long_task_in_parts_answers_the_first_caller,
    a_long_task_ends_after_so_many_parts,
    a_reply_to_that_is_the_queue_itself_is_not_answered,
    emits_are_published_with_ids_of_their_own,
    emits_come_again_with_the_same_ids,
    an_emit_without_a_place_fails_the_task,
    many_messages_each_once,
];

/// A tenth is left to the wall clock, which the workers' records are stamped with.
const TOLERANCE_PERCENT: u64 = 90;

/// The time between one entry and the next, in milliseconds.
pub(crate) fn gaps(entries: &[&Entry]) -> Vec<u64> {
    entries
        .windows(2)
        .map(|pair| pair[1].micros.saturating_sub(pair[0].micros) / 1000)
        .collect()
}

pub(crate) fn assert_at_least(gaps: &[u64], least: &[u64]) {
    let late = |(gap, least): (&u64, &u64)| *gap >= least * TOLERANCE_PERCENT / 100;
    assert!(
        gaps.len() >= least.len() && gaps.iter().zip(least).all(late),
        "{gaps:?} ms, at least {least:?}"
    );
}

fn feedback_shifts_no_answer() {
    let scene = Scene::of(Pool::new(&[]).set("workers", "1"));
    let messages: Vec<NewMessage> = (0..6)
        .map(|n| {
            NewMessage::new(&format!("mode:answer:-1,answer:-1,reply {n}")).reply_to("answers")
        })
        .enumerate()
        .map(|(n, message)| message.correlation_id(&format!("c-{n}")))
        .collect();
    scene.table.insert(&messages);
    scene.all_done();
    let replies = scene.table.messages("answers");
    assert_eq!(replies.len(), 6);
    for reply in replies {
        let id = reply.correlation_id.unwrap();
        let expected = format!("re: mode:answer:-1,answer:-1,reply {}", &id["c-".len()..]);
        assert_eq!(reply.body, expected);
    }
    scene.finish();
}

fn an_unknown_status_is_a_failure_with_its_code() {
    let scene = Scene::of(Pool::new(&["--v2=1"]).attempts(2));
    scene.send(&["mode:answer:777"]);
    let dead = scene.one_dead();
    assert_eq!(
        (dead.reason.as_str(), dead.attempts, dead.crashes),
        ("failed", 2, 0)
    );
    assert!(dead.error.contains("777"), "{}", dead.error);
    assert_eq!(attempts(&scene), [Some(1), Some(2)]);
    scene.finish();
}

fn attempts(scene: &Scene) -> Vec<Option<u32>> {
    scene
        .record()
        .all(Event::Began)
        .iter()
        .map(|entry| entry.attempt)
        .collect()
}

fn requeue_is_uncharged_and_does_not_spin() {
    let scene = Scene::of(Pool::new(&["--v2=1"]).attempts(1));
    let body = "mode:unless:go:300";
    scene.send(&[body]);
    scene.daemon.eventually("four tries", || {
        scene.record().of(Event::Began, body).len() == 4
    });
    assert!(scene.table.messages("work")[0].requeues >= 3);
    scene.site.touch("go");
    scene.all_done();
    let record = scene.record();
    // The fourth may have found the file already.
    assert_at_least(&gaps(&record.of(Event::Began, body)), &[100, 200, 400]);
    assert!(
        attempts(&scene).iter().all(|attempt| *attempt == Some(1)),
        "{record:?}"
    );
    scene.finish();
}

fn a_failure_is_retried_until_it_succeeds() {
    let retry = r#"{ attempts = 5, initial = "100ms", factor = 2.0, max = "1s", jitter = 0.0 }"#;
    let scene = Scene::of(Pool::new(&["--v2=1"]).set("retry", retry));
    let body = "mode:until-attempt:4:500";
    scene.send(&[body]);
    scene.all_done();
    let record = scene.record();
    assert_eq!(attempts(&scene), [Some(1), Some(2), Some(3), Some(4)]);
    assert_at_least(&gaps(&record.of(Event::Began, body)), &[100, 200, 400]);
    record.assert_done_once(&[body]);
    scene.finish();
}

fn the_last_failed_attempt_is_the_end() {
    let scene = Scene::of(Pool::new(&[]).attempts(3));
    scene
        .table
        .insert(&[NewMessage::new("mode:answer:500").correlation_id("c-1")]);
    let dead = scene.one_dead();
    assert_eq!((dead.reason.as_str(), dead.attempts), ("failed", 3));
    assert!(
        dead.error.contains("the word on mode:answer:500"),
        "{}",
        dead.error
    );
    assert_eq!(dead.correlation_id.as_deref(), Some("c-1"));
    assert_eq!(scene.record().all(Event::Began).len(), 3);
    scene.finish();
}

fn a_retrys_delay_is_obeyed() {
    let scene = Scene::of(Pool::new(&["--v2=1"]));
    scene.send(&["mode:answer:503:400"]);
    let dead = scene.one_dead();
    assert_eq!((dead.reason.as_str(), dead.attempts), ("failed", 2));
    assert_at_least(&gaps(&scene.record().all(Event::Began)), &[400]);
    scene.finish();
}

/// A worker asks for a minute; the pool's longest is a fifth of a second.
fn a_retrys_delay_is_clamped() {
    let retry = r#"{ attempts = 2, initial = "10ms", max = "200ms", jitter = 0.0 }"#;
    let scene = Scene::of(Pool::new(&["--v2=1"]).set("retry", retry));
    scene.send(&["mode:answer:429:60000"]);
    assert_eq!(scene.one_dead().attempts, 2);
    let gaps = gaps(&scene.record().all(Event::Began));
    assert_at_least(&gaps, &[200]);
    assert!(gaps[0] < 30_000, "{gaps:?}");
    scene.finish();
}

fn reject_is_at_once() {
    let scene = Scene::of(Pool::new(&[]).attempts(5));
    scene.send(&["mode:answer:400"]);
    let dead = scene.one_dead();
    assert_eq!((dead.reason.as_str(), dead.attempts), ("rejected", 1));
    assert!(
        dead.error.contains("the word on mode:answer:400"),
        "{}",
        dead.error
    );
    assert_eq!(scene.record().all(Event::Began).len(), 1);
    scene.finish();
}

fn statuses_may_be_given_another_meaning() {
    let statuses = r#"{ 404 = "reject", 418 = "done", 222 = "reply", 200 = "done" }"#;
    let scene = Scene::of(Pool::new(&[]).attempts(5).set("statuses", statuses));
    let asks = NewMessage::new("mode:answer:222").reply_to("answers");
    scene.table.insert(&[
        NewMessage::new("mode:answer:418"),
        NewMessage::new("mode:answer:404"),
        asks,
    ]);
    let dead = scene.one_dead();
    assert_eq!(
        (dead.reason.as_str(), dead.body),
        ("rejected", "mode:answer:404".to_owned().into())
    );
    assert_eq!(
        scene.table.messages("answers")[0].body,
        "the word on mode:answer:222"
    );
    assert_eq!(scene.record().all(Event::Began).len(), 3);
    scene.finish();
}

fn a_reply_goes_to_the_reply_queue() {
    let scene = Scene::of(Pool::new(&[]));
    let asks = NewMessage::new("mode:reply")
        .reply_to("answers")
        .correlation_id("c-1");
    scene.table.insert(&[asks.header("x-ganger-own", "hidden")]);
    scene.all_done();
    let replies = scene.table.messages("answers");
    assert_eq!(replies.len(), 1);
    assert_eq!(replies[0].body, "re: mode:reply");
    assert_eq!(replies[0].correlation_id.as_deref(), Some("c-1"));
    assert_eq!(replies[0].headers["answered-by"], "modes-worker");
    assert!(
        replies[0].headers.get("x-ganger-own").is_none(),
        "{:?}",
        replies[0].headers
    );
    assert_eq!((replies[0].attempts, replies[0].claimed), (0, false));
    scene.finish();
}

fn a_worker_may_name_the_reply_queue() {
    let scene = Scene::of(Pool::new(&[]));
    scene
        .table
        .insert(&[NewMessage::new("mode:reply:elsewhere").reply_to("answers")]);
    scene.all_done();
    assert_eq!(
        (scene.table.count("elsewhere"), scene.table.count("answers")),
        (1, 0)
    );
    scene.finish();
}

fn a_reply_without_a_place_is_kept_with_its_message() {
    let scene = Scene::of(Pool::new(&[]).attempts(5));
    scene.send(&["mode:reply"]);
    let dead = scene.one_dead();
    assert_eq!(dead.reason, "unroutable_reply");
    assert_eq!(dead.reply_body.as_deref(), Some("re: mode:reply"));
    assert_eq!(
        scene.record().all(Event::Began).len(),
        1,
        "the work is done and is not repeated"
    );
    scene.finish();
}

/// As many parts as the longest test of MessageWorkerPool has, which sets no limit.
fn a_long_task_in_parts_answers_the_first_caller() {
    const LAST: usize = 400;
    let scene = Scene::of(Pool::new(&["--v2=1"]).attempts(1));
    let asks = NewMessage::new(&format!("mode:switch:{LAST}"))
        .reply_to("answers")
        .correlation_id("c-1");
    scene.table.insert(&[asks.header("traceparent", "00-1")]);
    scene.daemon.eventually("the last part's answer", || {
        scene.table.count("answers") == 1
    });
    scene.all_done();
    let parts = (0..=LAST).rev().map(|part| format!("mode:switch:{part}"));
    assert_eq!(scene.record().texts(Event::Done), parts.collect::<Vec<_>>());
    assert_eq!(
        attempts(&scene),
        [Some(1); LAST + 1],
        "each part starts with a clean count"
    );
    let reply = &scene.table.messages("answers")[0];
    assert_eq!(reply.body, "all parts done");
    assert_eq!(reply.correlation_id.as_deref(), Some("c-1"));
    scene.finish();
}

fn a_long_task_ends_after_so_many_parts() {
    let scene = Scene::of(Pool::new(&["--v2=1"]).attempts(1).set("steps_max", "3"));
    let asks = NewMessage::new("mode:switch:9").reply_to("answers");
    scene.table.insert(&[asks]);
    let dead = scene.one_dead();
    assert_eq!(dead.reason, "unroutable_reply");
    assert!(
        dead.error.contains("pools.work.steps_max is 3"),
        "{}",
        dead.error
    );
    assert_eq!(dead.reply_body.as_deref(), Some("mode:switch:5"));
    assert_eq!(scene.record().all(Event::Done).len(), 4);
    scene.finish();
}

/// A worker that always answers would answer one message for ever, and so would one that emits.
fn a_reply_to_that_is_the_queue_itself_is_not_answered() {
    let scene = Scene::of(Pool::new(&["--v2=1"]).attempts(1));
    scene.table.insert(&[
        NewMessage::new("mode:reply").reply_to("work"),
        NewMessage::new("mode:emit::again").reply_to("work"),
    ]);
    scene.settled();
    let mut dead = scene.table.dead();
    dead.sort_by(|a, b| a.reason.cmp(&b.reason));
    let reasons: Vec<_> = dead.iter().map(|letter| letter.reason.as_str()).collect();
    assert_eq!(reasons, ["failed", "unroutable_reply"], "{dead:#?}");
    let why = "the message's reply-to is `work`, which this pool reads";
    assert!(
        dead.iter().all(|letter| letter.error.contains(why)),
        "{dead:#?}"
    );
    assert_eq!(dead[1].reply_body.as_deref(), Some("re: mode:reply"));
    assert_eq!(scene.record().all(Event::Began).len(), 2);
    scene.finish();
}

fn emits_are_published_with_ids_of_their_own() {
    let scene = Scene::of(Pool::new(&["--v2=1"]));
    let message = NewMessage::new("mode:emit:out:one,emit:out:two,emit:out:three");
    scene
        .table
        .insert(&[message.message_id("m-1").correlation_id("c-1")]);
    scene.all_done();
    let emitted = scene.table.messages("out");
    let bodies: Vec<&str> = emitted.iter().map(|emit| emit.body.as_str()).collect();
    assert_eq!(bodies, ["one", "two", "three"]);
    let ids: Vec<&str> = emitted
        .iter()
        .map(|emit| emit.headers["ganger-emit-id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, ["work:1:1", "work:1:2", "work:1:3"]);
    assert!(
        emitted
            .iter()
            .all(|emit| emit.correlation_id.as_deref() == Some("c-1"))
    );
    scene.finish();
}

fn emits_come_again_with_the_same_ids() {
    let scene = Scene::of(Pool::new(&["--v2=1"]));
    scene
        .table
        .insert(&[NewMessage::new("mode:emit:out:part,until-attempt:2:500").message_id("m-1")]);
    scene.all_done();
    let ids: Vec<String> = scene
        .table
        .messages("out")
        .iter()
        .map(|emit| emit.headers["ganger-emit-id"].to_string())
        .collect();
    assert_eq!(ids, ["\"work:1:1\"", "\"work:1:1\""]);
    scene.finish();
}

fn an_emit_without_a_place_fails_the_task() {
    let scene = Scene::of(Pool::new(&["--v2=1"]).attempts(1));
    scene.send(&["mode:emit::lost,answer:200"]);
    let dead = scene.one_dead();
    assert_eq!(dead.reason, "failed");
    assert!(dead.error.contains("no destination"), "{}", dead.error);
    scene.finish();
}

/// Deep pipes, several workers, both versions: each message is done once and nothing is left.
fn many_messages_each_once() {
    for args in [&[][..], &["--v2=4"]] {
        let scene = Scene::of(Pool::new(args).set("workers", "3"));
        let bodies: Vec<String> = (0..3000).map(|n| format!("message {n}")).collect();
        scene.send(&bodies.iter().map(String::as_str).collect::<Vec<_>>());
        scene.all_done();
        let record = scene.record();
        let mut done = record.texts(Event::Done);
        done.sort_unstable();
        let mut expected: Vec<&str> = bodies.iter().map(String::as_str).collect();
        expected.sort_unstable();
        assert_eq!(done, expected);
        scene.finish();
    }
}

fn what_workers_send_goes_where_the_pool_allows_it() {
    let pool = Pool::new(&["--v2=1"])
        .set("publish_to", r#"["answers.*"]"#)
        .attempts(1);
    let scene = Scene::of(pool);
    scene.table.insert(&[
        NewMessage::new("mode:reply:answers.eu allowed"),
        NewMessage::new("mode:reply elsewhere").reply_to("private"),
        NewMessage::new("mode:emit:answers.us:fine,emit:private:secret emits"),
    ]);
    scene.settled();
    let mut dead = scene.table.dead();
    dead.sort_by(|a, b| a.reason.cmp(&b.reason));
    let reasons: Vec<_> = dead.iter().map(|letter| letter.reason.as_str()).collect();
    assert_eq!(reasons, ["failed", "unroutable_reply"], "{dead:#?}");
    let refused = |letter: usize| {
        dead[letter]
            .error
            .ends_with("must allow its queue: `private`")
    };
    assert!(refused(0) && refused(1), "{dead:#?}");
    assert_eq!(scene.table.count("private"), 0);
    assert_eq!(scene.table.count("answers.eu"), 1);
    assert_eq!(scene.table.count("answers.us"), 1);
    scene.finish();
}
