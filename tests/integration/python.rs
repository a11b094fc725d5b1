//! A worker of another language, which knows ganger from the published protocol only.

use std::path::PathBuf;

use crate::harness::{Event, NewMessage, Pool, Scene, field, said, trials};

trials![a_version_1_worker_runs_unmodified];

/// The interpreter that `tests/run` has prepared: one that has the msgpack package.
pub(crate) fn python() -> PathBuf {
    let prepared = std::env::var_os("GANGER_TEST_PYTHON").map(PathBuf::from);
    let in_target = || {
        PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .with_file_name("venv")
            .join("bin/python3")
    };
    let python = prepared.unwrap_or_else(in_target);
    assert!(
        python.exists(),
        "no Python with msgpack at {}: run tests/run, which prepares it",
        python.display()
    );
    python
}

fn a_version_1_worker_runs_unmodified() {
    let worker = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/workers/v1_worker.py");
    let scene =
        Scene::of(Pool::of_program(python().to_str().unwrap(), &[worker]).set("workers", "2"));
    let bodies: Vec<String> = (0..200).map(|n| format!("message {n} für Zoë")).collect();
    scene.send(&bodies.iter().map(String::as_str).collect::<Vec<_>>());
    let question = NewMessage::new("reply: how are you?")
        .correlation_id("c-1")
        .reply_to("answers");
    scene
        .table
        .insert(&[question.header("colour", "red").header("number", 7)]);
    scene.all_done();
    scene.record().assert_done_once(&bodies);
    let replies = scene.table.messages("answers");
    assert_eq!(replies.len(), 1);
    assert_eq!(replies[0].body, "REPLY: HOW ARE YOU?");
    assert_eq!(replies[0].headers["colour"], "red");
    assert_eq!(replies[0].correlation_id.as_deref(), Some("c-1"));
    assert_eq!(scene.record().all(Event::Done).len(), 201);
    scene.daemon.stop();
    let gone = scene.daemon.records(|record| said(record, "worker gone"));
    assert_eq!(gone.len(), 2, "workers that left by themselves: {gone:#?}");
    assert!(
        gone.iter()
            .all(|record| field(record, "cause").contains("code 0")),
        "{gone:#?}"
    );
}
