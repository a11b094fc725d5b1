//! Workers that break the protocol, or leave us hanging in it: the message is charged, the worker
//! goes, the others flow.

use std::collections::BTreeSet;

use rusqlite::types::Value;

use crate::harness::{Entry, Event, NewMessage, Pool, Scene, field, said, trials};

trials![
    garbage,
    an_answer_that_is_no_map_is_a_failure_of_a_version_1_worker,
    an_answer_that_is_no_map_breaks_version_2,
    a_value_that_is_no_map_with_nothing_in_flight,
    a_length_of_zero,
    a_length_with_its_top_bit_set,
    a_claim_of_100_mib,
    half_a_frame_and_silence,
    an_answer_for_an_id_that_is_not_in_flight,
    a_second_answer_with_nothing_in_flight,
    a_second_answer_of_a_version_2_worker,
    a_pipe_that_is_closed_by_a_worker_that_lives_on,
    an_answer_before_the_pipe_was_closed_counts,
    a_worker_that_never_reads_its_pipe,
    a_worker_that_never_reads_its_stdin,
    control_lines_never_wait_for_a_full_stdin,
    much_in_both_directions_at_once,
    an_input_that_is_too_large_leaves_the_worker_alone,
    an_input_with_too_many_headers_leaves_the_worker_alone,
    a_binary_body_is_never_sent_to_a_version_1_worker,
    a_binary_body_reaches_a_version_2_worker_as_bytes,
];

/// A message breaks the protocol with `step`; it is charged with what `error` says.
fn breaks_the_protocol(step: &str, error: &str) {
    breaks_it(&Scene::of(Pool::new(&[]).attempts(1)), step, error);
}

fn breaks_it(scene: &Scene, step: &str, error: &str) {
    let body = format!("mode:{step},hang");
    scene.send(&[&body, "another"]);
    let dead = scene.one_dead();
    assert_eq!(
        (dead.reason.as_str(), dead.attempts, dead.crashes),
        ("protocol_error", 1, 0),
        "{dead:#?}"
    );
    assert!(
        dead.error.starts_with("protocol error: ") && dead.error.contains(error),
        "{}",
        dead.error
    );
    let record = scene.record();
    record.assert_done_once(&["another"]);
    assert_ne!(
        record.of(Event::Began, &body)[0].pid,
        record.of(Event::Began, "another")[0].pid
    );
    scene.daemon.stop();
}

fn garbage() {
    breaks_the_protocol("garbage", "MessagePack");
}

/// As the sample of MessageWorkerPool in C# answers an exception: its process stays, however many such
/// messages come one after the other, and what comes behind them is done.
fn an_answer_that_is_no_map_is_a_failure_of_a_version_1_worker() {
    let scene = Scene::of(Pool::new(&[]).set("workers", "3").attempts(2));
    let bad: Vec<String> = (0..8).map(|n| format!("mode:bare:oops-{n}")).collect();
    let good: Vec<String> = (0..20).map(|n| format!("good {n}")).collect();
    let bodies: Vec<&str> = bad.iter().chain(&good).map(String::as_str).collect();
    scene.send(&bodies);
    scene.settled();
    let dead = scene.table.dead();
    assert_eq!(dead.len(), bad.len(), "{dead:#?}");
    for dead in &dead {
        let said = dead
            .error
            .strip_prefix("the worker answered 500 UNKNOWN_ERROR: ");
        let body = said.map(|said| Value::Text(format!("mode:bare:{said}")));
        let found = (dead.reason.as_str(), dead.attempts, Some(&dead.body));
        assert_eq!(found, ("failed", 2, body.as_ref()), "{dead:#?}");
    }
    let record = scene.record();
    record.assert_done_once(&bodies[bad.len()..]);
    let began = record.all(Event::Began);
    let pids: BTreeSet<i32> = began.iter().map(|entry| entry.pid).collect();
    assert_eq!(pids.len(), 3, "a worker was replaced");
    scene.finish();
}

fn an_answer_that_is_no_map_breaks_version_2() {
    let scene = Scene::of(Pool::new(&["--v2=1"]).attempts(1));
    breaks_it(&scene, "bare:oops", "the frame must be a map");
}

/// It answers no message, so it is none.
fn a_value_that_is_no_map_with_nothing_in_flight() {
    let scene = Scene::of(Pool::new(&[]));
    scene.send(&["mode:answer:200,bare:oops"]);
    let lost = scene.daemon.logged("worker lost");
    assert!(field(&lost, "cause").contains("protocol error"), "{lost}");
    scene.send(&["another"]);
    scene.all_done();
    scene.finish();
}

fn a_length_of_zero() {
    breaks_the_protocol("length:0", "its length is 0");
}

fn a_length_with_its_top_bit_set() {
    breaks_the_protocol("length:80000001", "0x80000001");
}

fn a_claim_of_100_mib() {
    breaks_the_protocol("length:6400000", "104857600");
}

fn half_a_frame_and_silence() {
    let pool = Pool::new(&[])
        .attempts(1)
        .text("timeout", "200ms")
        .text("timeout_grace", "0s");
    let scene = Scene::of(pool);
    scene.send(&["mode:half-frame,hang", "another"]);
    assert_eq!(scene.one_dead().reason, "timed_out");
    scene.record().assert_done_once(&["another"]);
    scene.finish();
}

fn an_answer_for_an_id_that_is_not_in_flight() {
    let scene = Scene::of(Pool::new(&["--v2=1"]).attempts(1));
    breaks_it(&scene, "wrong-id", "18446744073709551615");
}

/// The first answer counts: the work is done. The second belongs to nothing, and its worker goes.
fn second_answer(pool: Pool) {
    let scene = Scene::of(pool);
    scene.send(&["mode:twice"]);
    let lost = scene.daemon.logged("worker lost");
    assert!(field(&lost, "cause").contains("protocol error"), "{lost}");
    scene.send(&["another"]);
    scene.all_done();
    scene.record().assert_done_once(&["mode:twice", "another"]);
    assert_eq!(
        scene.record().all(Event::Began).len(),
        2,
        "none was begun again"
    );
    scene.finish();
}

fn a_second_answer_with_nothing_in_flight() {
    second_answer(Pool::new(&[]));
}

fn a_second_answer_of_a_version_2_worker() {
    second_answer(Pool::new(&["--v2=2"]));
}

fn a_pipe_that_is_closed_by_a_worker_that_lives_on() {
    let pool = Pool::new(&["--stubborn"]).attempts(1);
    let scene = Scene::of(pool.text("stop_timeout", "200ms"));
    breaks_it(&scene, "close-pipe", "closed its pipe");
    let record = scene.record();
    let begun = record.all(Event::Began)[0].pid;
    let told = |entry: &&Entry| entry.pid == begun && entry.text == "__quit__";
    let told = record
        .all(Event::Told)
        .into_iter()
        .any(|entry| told(&entry));
    assert!(told, "it is asked to leave before it is made to");
}

/// We are in the middle of a write when the pipe is closed, so that is how we learn of it.
fn an_answer_before_the_pipe_was_closed_counts() {
    let scene = Scene::of(Pool::new(&[]).set("pipeline", "2"));
    scene.send(&["first"]);
    scene.all_done();
    let answered = "mode:wait:go,answer:200,close-pipe,hang";
    let large = "x".repeat(10 << 20);
    scene
        .table
        .insert(&[NewMessage::new(answered), NewMessage::new(&large)]);
    scene.begun(&[answered]);
    scene.daemon.eventually("both to be handed out", || {
        let messages = scene.table.messages("work");
        messages.iter().all(|message| message.claimed)
    });
    scene.site.touch("go");
    scene.all_done();
    let lost = scene.daemon.logged("worker lost");
    assert!(field(&lost, "cause").contains("closed its pipe"), "{lost}");
    let began = scene.record().of(Event::Began, answered).len();
    assert_eq!(began, 1, "it was answered");
    scene.finish();
}

/// Ten megabytes do not fit into any socket's buffer: the write waits, and the deadline ends it.
fn a_worker_that_never_reads_its_pipe() {
    let pool = Pool::new(&["--deaf-to-pipe"]).attempts(1);
    let scene = Scene::of(pool.text("timeout", "300ms").text("timeout_grace", "0s"));
    scene
        .table
        .insert(&[NewMessage::new(&"x".repeat(10 << 20))]);
    let dead = scene.one_dead();
    assert_eq!((dead.reason.as_str(), dead.attempts), ("timed_out", 1));
    scene.finish();
}

fn a_worker_that_never_reads_its_stdin() {
    let scene = Scene::of(Pool::new(&["--deaf-to-stdin", "--mode=reply:answers"]));
    scene
        .table
        .insert(&[NewMessage::new(&"x".repeat(10 << 20))]);
    scene.all_done();
    assert_eq!(
        scene.table.messages("answers")[0].body.len(),
        "re: ".len() + (10 << 20)
    );
    // The end of its pipe is what makes it leave.
    scene.finish();
}

/// Six thousand cancellations do not fit into a pipe that nobody reads. The answers come all the same.
fn control_lines_never_wait_for_a_full_stdin() {
    let pool = Pool::new(&["--v2=1000", "--deaf-to-stdin"]);
    let scene = Scene::of(pool.text("timeout", "10ms").text("timeout_grace", "10m"));
    let bodies: Vec<String> = (0..6000).map(|n| format!("mode:sleep:50 {n}")).collect();
    scene.send(&bodies.iter().map(String::as_str).collect::<Vec<_>>());
    scene.all_done();
    assert_eq!(scene.record().all(Event::Done).len(), 6000);
    let refused = |record: &serde_json::Value| field(record, "line").starts_with("__cancel__");
    assert!(
        !scene.daemon.records(refused).is_empty(),
        "stdin was never full"
    );
    scene.finish();
}

/// The worker writes ten megabytes and reads nothing meanwhile, while we write it as many: neither
/// waits for the other.
fn much_in_both_directions_at_once() {
    let scene = Scene::of(Pool::new(&[]).set("pipeline", "2"));
    scene.send(&["warm up"]);
    scene.settled();
    let writes = NewMessage::new("mode:wait:go,reply-bytes:10485760").reply_to("answers");
    let padding = "x".repeat(10 << 20);
    let read = NewMessage::new(&format!("mode:reply-bytes:10485760 {padding}")).reply_to("answers");
    scene.table.insert(&[writes, read]);
    scene.begun(&["mode:wait:go,reply-bytes:10485760"]);
    scene.site.touch("go");
    scene.all_done();
    let lengths: Vec<usize> = scene
        .table
        .messages("answers")
        .iter()
        .map(|reply| reply.body.len())
        .collect();
    assert_eq!(lengths, [10 << 20, 10 << 20]);
    assert_eq!(
        scene.record().all(Event::Began).len(),
        3,
        "none was begun again"
    );
    scene.finish();
}

fn an_input_that_is_too_large_leaves_the_worker_alone() {
    let scene = Scene::of(Pool::new(&[]).attempts(5).text("frame_bytes_max", "64KiB"));
    scene.send(&["before", &"x".repeat(100_000), "after"]);
    let dead = scene.one_dead();
    assert_eq!((dead.reason.as_str(), dead.attempts), ("undeliverable", 1));
    assert!(dead.error.contains("frame_bytes_max"), "{}", dead.error);
    same_worker_did(&scene, &["before", "after"]);
    scene.finish();
}

fn an_input_with_too_many_headers_leaves_the_worker_alone() {
    let scene = Scene::of(Pool::new(&[]).attempts(5));
    let headers = |body: &str, count: usize| {
        let message = NewMessage::new(body);
        (0..count).fold(message, |message, n| message.header(&format!("h{n}"), "v"))
    };
    let messages = [headers("many", 9_999), headers("too many", 10_001)];
    scene.table.insert(&messages);
    scene.send(&["after"]);
    let dead = scene.one_dead();
    assert_eq!((dead.reason.as_str(), dead.attempts), ("undeliverable", 1));
    assert!(
        dead.error.contains("at most 10000 headers"),
        "{}",
        dead.error
    );
    same_worker_did(&scene, &["many", "after"]);
    scene.finish();
}

fn same_worker_did(scene: &Scene, bodies: &[&str]) {
    let record = scene.record();
    record.assert_done_once(bodies);
    let mut pids: Vec<i32> = record
        .all(Event::Done)
        .iter()
        .map(|entry| entry.pid)
        .collect();
    pids.dedup();
    assert_eq!(pids.len(), 1, "{:#?}", record.0);
    assert_eq!(
        scene
            .daemon
            .records(|record| said(record, "worker lost"))
            .len(),
        0
    );
}

fn a_binary_body_is_never_sent_to_a_version_1_worker() {
    // The first answer tells the version.
    let scene = Scene::of(Pool::new(&[]).attempts(5));
    scene.send(&["before"]);
    scene.settled();
    scene
        .table
        .insert(&[NewMessage::binary(b"ab\xff\x00"), NewMessage::new("after")]);
    let dead = scene.one_dead();
    assert_eq!((dead.reason.as_str(), dead.attempts), ("undeliverable", 1));
    assert!(dead.error.contains("UTF-8"), "{}", dead.error);
    assert_eq!(dead.body, b"ab\xff\x00".to_vec().into());
    same_worker_did(&scene, &["before", "after"]);
    scene.finish();
}

fn a_binary_body_reaches_a_version_2_worker_as_bytes() {
    let scene = Scene::of(Pool::new(&["--v2=1"]));
    scene.table.insert(&[
        NewMessage::binary(b"mode:note:form \xff"),
        NewMessage::new("mode:note:form text"),
    ]);
    scene.all_done();
    assert_eq!(scene.record().texts(Event::Noted), ["form=bin", "form=str"]);
    scene.finish();
}
