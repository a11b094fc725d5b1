//! Real worker processes, with a daemon by hand on the other side.
#![cfg(all(feature = "log", feature = "tokio"))]

mod limits;
mod peer;

use std::os::unix::net::UnixStream;
use std::process::Stdio;

use rmpv::Value;

use peer::{FRAME_BYTES_MAX, KINDS, Peer, frame, modes, task, texts};

pub(crate) fn each_kind(concurrencies: &[usize], version: u32, mut check: impl FnMut(Peer)) {
    for kind in KINDS {
        for concurrency in concurrencies {
            check(Peer::start(kind, *concurrency, version, FRAME_BYTES_MAX));
        }
    }
}

#[test]
fn outcomes() {
    each_kind(&[1], 2, |mut peer| {
        for (body, status, text, after) in [
            ("", 200, "", None),
            ("done", 200, "", None),
            ("echo Grüße 漢 🦀", 201, "Grüße 漢 🦀", None),
            ("retry", 429, "later", Some(1500)),
            ("reject", 400, "never", None),
            ("requeue", 300, "", None),
            ("status 404", 404, "odd", None),
        ] {
            let found = peer.ask(body, 9);
            assert_eq!(
                (found.status, found.text(), found.id, found.after),
                (status, text, Some(9), after)
            );
        }
        let headers = [("3", texts(&[("a", "ä"), ("b", "")]))];
        peer.write(&frame(&task("headers answers", 0, &headers)));
        let found = peer.expect(201, "[(\"a\", \"ä\"), (\"b\", \"\")]", Some(0));
        assert_eq!(
            found.headers,
            [("n".to_owned(), 7.into()), ("ü".to_owned(), "é".into())]
        );
        assert_eq!(found.queue.as_deref(), Some("answers"));
        let key = Value::Map(vec![("key".into(), Value::Binary(vec![255]))]);
        let all = [
            ("1", "c".into()),
            ("5", 3.into()),
            ("6", 5000.into()),
            ("7", key),
        ];
        peer.write(&frame(&task("about", u64::MAX, &all)));
        peer.expect(
            201,
            "c q Some(3) Some(5000) {\"key\": Bytes([255])}",
            Some(u64::MAX),
        );
    });
}

#[test]
fn a_handler_that_fails_or_panics_answers_and_goes_on() {
    each_kind(&[1, 2], 2, |mut peer| {
        let tokio = peer.kind != "sync";
        for (body, wanted) in [
            ("fail x", &["invalid digit"][..]),
            (
                "traced",
                &[
                    "it has a history\ncaused by: ",
                    "Stack backtrace:\n   0: somewhere",
                ],
            ),
            (
                "panic x",
                &[
                    "panic: no good: x\nat tests/workers/modes.rs:",
                    "modes::mode",
                ],
            ),
            ("speechless", &["panic: without words"]),
            ("unspeakable", &["nested at most 64 deep"]),
            ("unspeakable extension", &["nested at most 64 deep"]),
            ("unspeakable number", &["within -2^63 and 2^64-1"]),
            ("unspeakable many", &["at most 10000 headers: 10001"]),
            ("status 150", &["must be one that ends a message: 150"]),
        ] {
            let found = peer.ask(body, 2);
            assert_eq!(
                (found.status, found.id),
                (500, Some(2)),
                "{body}: {found:?}"
            );
            for part in wanted {
                assert!(
                    found.text().contains(part),
                    "{body}: no {part:?} in {}",
                    found.text()
                );
            }
            assert!(
                !found.text().contains("ganger_worker::current"),
                "{body}: {}",
                found.text()
            );
        }
        if tokio {
            let found = peer.ask("late-panic", 3);
            assert!(found.text().contains("no good, later"), "{found:?}");
        }
        let found = peer.ask("echo on", 4);
        assert_eq!((found.status, found.text()), (201, "on"));
        peer.tell("__quit__");
        let said = peer.ended(0);
        assert!(
            said.contains("no good: x"),
            "the hook from before has it, too: {said}"
        );
    });
}

#[test]
fn a_reply_that_the_daemon_would_refuse_is_a_failure() {
    for kind in KINDS {
        let mut peer = Peer::start(kind, 1, 2, 4096);
        let found = peer.ask("large 5000", 1);
        assert_eq!(found.status, 500);
        assert!(found.text().contains("at most 4096 bytes: 50"), "{found:?}");
        peer.send("large 4000", 2);
        peer.expect(201, &"x".repeat(4000), Some(2));
    }
}

#[test]
fn large_empty_and_binary_bodies() {
    each_kind(&[1], 2, |mut peer| {
        let large = "ü".repeat(5 << 20);
        let found = peer.ask(format!("echo {large}"), 1);
        assert!(found.text() == large, "another text");
        let binary = [0, 1, 2, 253, 254, 255].repeat((10 << 20) / 6);
        let found = peer.ask(Value::Binary(binary.clone()), 2);
        assert!(found.message == Value::Binary(binary), "other bytes");
        peer.send(Value::Binary(Vec::new()), 3);
        peer.expect(200, "", Some(3));
        peer.send("echo ", 4);
        peer.expect(201, "", Some(4));
    });
}

#[test]
fn frames_in_dribbles_and_heaps() {
    each_kind(&[100], 2, |mut peer| {
        for byte in frame(&task("echo slow", 1, &[])) {
            peer.write(&[byte]);
        }
        peer.expect(201, "slow", Some(1));
        let heap: Vec<u8> = (0..100)
            .flat_map(|n| frame(&task(format!("echo {n}"), n, &[])))
            .collect();
        peer.write(&heap[..heap.len() - 5]);
        peer.write(&heap[heap.len() - 5..]);
        let mut seen: Vec<u64> = (0..100)
            .map(|_| {
                let found = peer.receive();
                assert_eq!(found.text(), found.id.expect("an id").to_string());
                found.id.expect("an id")
            })
            .collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..100).collect::<Vec<u64>>());
    });
}

#[test]
fn many_at_once() {
    each_kind(&[8], 2, |mut peer| {
        for round in 0..20 {
            for n in 0..8 {
                peer.send("together", 8 * round + n);
            }
            let mut seen: Vec<u64> = (0..8).map(|_| peer.receive().id.expect("an id")).collect();
            seen.sort_unstable();
            assert_eq!(seen, (8 * round..8 * round + 8).collect::<Vec<u64>>());
        }
    });
}

#[test]
fn a_slow_one_holds_up_no_other() {
    each_kind(&[2], 2, |mut peer| {
        peer.begin("stuck", 1);
        for n in 2..200 {
            peer.send("echo x", n);
            peer.expect(201, "x", Some(n));
        }
        peer.tell("__cancel__ 1");
        peer.expect(429, "gave up", Some(1));
    });
}

#[test]
fn notes_go_out_before_the_answer() {
    each_kind(&[1, 4], 2, |mut peer| {
        peer.send("emit 300", 5);
        for n in 0..300 {
            let found = peer.expect(103, &format!("part {n}"), Some(5));
            assert_eq!(found.headers, [("n".to_owned(), n.into())]);
            assert_eq!(found.queue.as_deref(), Some("parts"));
        }
        peer.expect(200, "", Some(5));
        peer.send("progress", 1);
        peer.expect(102, "1 of 2", Some(1));
        peer.expect(200, "", Some(1));
        peer.send("log", 1);
        let found = peer.expect(101, "noted", Some(1));
        let (level, target) = (found.header("level"), found.header("target"));
        assert_eq!(
            (level, target, &found.headers[2].1),
            ("debug", "tests", &1.into())
        );
        peer.expect(200, "", Some(1));
        peer.send("facade", 1);
        let found = peer.expect(101, "hot stuff", Some(1));
        let fields = ["level", "target", "degrees", "level_"].map(|name| found.header(name));
        assert_eq!(fields, ["warn", "tests", "90", "high"]);
        peer.expect(200, "", Some(1));
    });
}

#[test]
fn cancelling() {
    each_kind(&[1], 2, |mut peer| {
        peer.begin("stuck", 3);
        peer.tell("__cancel__ 77\n__cancel__ \n__cancel__ x\n__cancel__ 3");
        peer.expect(429, "gave up", Some(3));
        // One that overtakes its message: stdin and the pipe have no common order.
        peer.tell("__cancel__ 4");
        peer.begin("stuck", 4);
        peer.expect(429, "gave up", Some(4));
        peer.begin("uncaught", 5);
        peer.tell("__cancel__ 5");
        peer.expect(429, "cancelled", Some(5));
        peer.send("echo on", 6);
        peer.expect(201, "on", Some(6));
        peer.tell("__quit__");
        let tokio = peer.kind != "sync";
        assert_eq!(peer.ended(0).contains("dropped: uncaught"), tokio);
    });
}

#[test]
fn quitting_when_idle() {
    each_kind(&[1, 3], 2, |mut peer| {
        peer.ask("echo x", 1);
        peer.tell("__quit__");
        peer.ended(0);
    });
}

#[test]
fn quitting_when_busy() {
    each_kind(&[2], 2, |mut peer| {
        peer.begin("stuck", 1);
        peer.send("sleep 200", 2);
        peer.tell("__quit__");
        peer.expect(200, "", Some(2));
        peer.tell("__cancel__ 1");
        peer.expect(429, "gave up", Some(1));
        peer.ended(0);
    });
}

#[test]
fn the_end_of_the_pipe_and_of_stdin() {
    each_kind(&[1, 2], 2, |mut peer| {
        peer.send("sleep 100", 1);
        peer.pipe
            .shutdown(std::net::Shutdown::Write)
            .expect("an open pipe");
        peer.expect(200, "", Some(1));
        peer.ended(0);
    });
    each_kind(&[1, 2], 2, |mut peer| {
        peer.send("sleep 100", 1);
        peer.process.stdin = None;
        peer.expect(200, "", Some(1));
        peer.ended(0);
    });
}

#[test]
fn a_daemon_that_is_gone_is_no_error() {
    each_kind(&[1, 2], 2, |mut peer| {
        peer.send("sleep 100", 1);
        peer.pipe = UnixStream::pair().expect("a pair").0;
        assert_eq!(peer.said(0), "");
    });
}

#[test]
fn what_a_worker_does_not_know_it_ignores() {
    each_kind(&[1], 2, |mut peer| {
        peer.tell("__context_switch__\n\n__unheard__ of");
        let new = Value::Map(vec![("new".into(), Value::Array(vec![1.into()]))]);
        let more = [("8", new), ("more", Value::Binary(vec![255]))];
        peer.write(&frame(&task("echo x", 1, &more)));
        peer.expect(201, "x", Some(1));
    });
}

#[test]
fn a_hostile_input_ends_the_connection() {
    each_kind(&[1, 2], 2, |mut peer| {
        peer.write(&frame(&Value::Map(vec![("0".into(), "m".into())])));
        assert!(peer.ended(1).contains("no \"1\""));
    });
    each_kind(&[1, 2], 2, |mut peer| {
        peer.begin("stuck", 1);
        peer.write(b"\x7f\xff\xff\xff");
        // What is in hand is finished.
        peer.tell("__cancel__ 1");
        peer.expect(429, "gave up", Some(1));
        assert!(peer.ended(1).contains("at most 67108864 bytes"));
    });
}

#[test]
fn version_1() {
    each_kind(&[8], 1, |mut peer| {
        // Ahead of the answers, as `pipeline` does it; the answers are in order.
        let old = |n| {
            let body = format!("echo {n}");
            let map = [
                ("0", body.as_str().into()),
                ("1", "".into()),
                ("2", "q".into()),
                ("3", texts(&[])),
            ];
            frame(&Value::Map(
                map.map(|(key, value): (_, Value)| (key.into(), value))
                    .to_vec(),
            ))
        };
        peer.write(&(0..200).flat_map(old).collect::<Vec<u8>>());
        for n in 0..200 {
            peer.expect(201, &n.to_string(), None);
        }
        peer.send("progress", 1);
        peer.expect(-1, "1 of 2", None);
        peer.expect(200, "", None);
        peer.send("log", 1);
        peer.expect(200, "", None);
        peer.send("facade", 1);
        peer.expect(200, "", None);
        let found = peer.ask("emit 1", 1);
        assert!(
            found.status == 500 && found.text().contains("version 2"),
            "{found:?}"
        );
        peer.tell("__quit__");
        let said = peer.ended(0);
        assert!(said.contains("debug: noted target=tests n=1\n"), "{said}");
        assert!(
            said.contains("warn: hot stuff target=tests degrees=90"),
            "{said}"
        );
    });
}

#[test]
fn version_1_gives_up_by_itself_and_yields_when_told() {
    each_kind(&[1], 1, |mut peer| {
        let timeout = |text| [("3", texts(&[("TimeoutMilliseconds", text)]))];
        peer.write(&frame(&task("stuck", 1, &timeout("100"))));
        peer.expect(-1, "begun", None);
        peer.expect(429, "gave up", None);
        for text in ["-1", "soon"] {
            peer.write(&frame(&task("echo x", 1, &timeout(text))));
            peer.expect(201, "x", None);
        }
        peer.begin("stuck", 1);
        peer.tell("__context_switch__");
        peer.expect(429, "gave up", None);
        peer.write(&frame(&task("uncaught", 1, &timeout("100"))));
        peer.expect(-1, "begun", None);
        peer.expect(429, "timed out: the limit is 100 ms", None);
    });
}

#[test]
fn a_process_without_a_daemon_says_what_it_is() {
    let mut command = modes();
    let output = command
        .args(["sync", "1", "1000"])
        .stdin(Stdio::null())
        .output()
        .expect("a run");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("stdin must begin with a line"));
}
