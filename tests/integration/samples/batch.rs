//! `samples/batch`: what is long gives way to what is short, and loses nothing when its worker or its
//! daemon goes.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::Sample;
use crate::harness::{NewMessage, Table, trials};

trials![
    a_long_job_gives_way_and_its_count_is_exact,
    what_is_no_job_is_rejected,
];

/// A turn, so that a job that takes seconds has many.
const TURN: (&str, &str) = ("GANGER_POOLS__PRIMES__TIMEOUT", "100ms");

/// How far the long job has come that waits in the table; nothing while it is new.
fn next(table: &Table) -> Option<u64> {
    let [waiting] = &table.messages("primes")[..] else {
        return None;
    };
    let job: Value = serde_json::from_str(&waiting.body).unwrap();
    job["next"].as_u64()
}

fn a_long_job_gives_way_and_its_count_is_exact() {
    let sample = Sample::of("batch");
    let table = sample.table();
    let job = |below: u64| {
        let body = format!("{{\"below\": {below}}}");
        NewMessage::new(&body).to("primes").reply_to("answers")
    };
    table.insert(&[job(20_000_000), job(1_000)]);
    let daemon = sample.start(&[TURN]);
    daemon.eventually("the short job to be done", || table.count("answers") > 0);
    let killed = daemon.eventually_some("the long one to go on", || next(&table));
    for pid in daemon.workers_up() {
        kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    }
    daemon.eventually("it to go on in another worker", || {
        next(&table).is_some_and(|next| next > killed)
    });
    daemon.stop();
    let stopped = next(&table).unwrap();
    assert!(stopped > killed);
    let daemon = sample.start(&[TURN]);
    daemon.eventually("the end", || table.count("primes") == 0);
    let answers = table.messages("answers");
    let answers: Vec<&str> = answers.iter().map(|it| it.body.as_str()).collect();
    assert_eq!(answers, ["168", "1270607"]);
    assert!(table.dead().is_empty(), "{:#?}", table.dead());
    daemon.stop();
}

fn what_is_no_job_is_rejected() {
    let sample = Sample::of("batch");
    let table = sample.table();
    let bodies = ["ten", "[]", r#"{"below": 1}"#, r#"{"below": 9, "over": 1}"#];
    table.insert(&bodies.map(|body| NewMessage::new(body).to("primes")));
    let daemon = sample.start(&[]);
    daemon.eventually("them to be rejected", || table.count("primes") == 0);
    let dead = table.dead();
    assert_eq!(dead.len(), bodies.len(), "{dead:#?}");
    for letter in dead {
        assert_eq!((&*letter.reason, letter.attempts), ("rejected", 1));
        assert!(letter.error.contains("no job"), "{letter:?}");
    }
    daemon.stop();
}
