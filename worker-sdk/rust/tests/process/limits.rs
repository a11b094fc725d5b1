//! What comes late, what children have, and how a worker begins and ends by itself.

use std::io::Write;
use std::process::Stdio;

use crate::each_kind;
use crate::peer::{FRAME_BYTES_MAX, KINDS, Peer, frame, modes, task, texts};

const BUILT_INS: [&str; 6] = [
    "",
    "__proto__",
    "constructor",
    "hasOwnProperty",
    "length",
    "toString",
];

#[test]
fn names_that_are_built_in_elsewhere() {
    each_kind(&[1], 2, |mut peer| {
        let headers = BUILT_INS.map(|name| (name, name));
        peer.write(&frame(&task("names", 1, &[("3", texts(&headers))])));
        for name in BUILT_INS {
            let record = peer.expect(101, "named\nand more", Some(1));
            assert_eq!(
                (record.header("level"), record.header(name)),
                ("info", name)
            );
            assert_eq!(record.headers.len(), 2);
        }
        let reply = peer.expect(201, "named", Some(1));
        assert_eq!(
            reply.headers,
            BUILT_INS.map(|name| (name.to_owned(), name.into()))
        );
    });
}

#[test]
fn the_daemons_longest_frame_counts() {
    for kind in KINDS {
        for own in [FRAME_BYTES_MAX, 1024] {
            let told = [("GANGER_FRAME_BYTES_MAX", "4096")];
            let mut peer = Peer::told(kind, 1, 2, own, &told);
            let refused = peer.ask("large 5000", 1);
            assert_eq!(refused.status, 500);
            assert!(
                refused.text().contains("at most 4096 bytes: 50"),
                "{refused:?}"
            );
            assert_eq!(peer.ask("large 4000", 2).status, 201);
        }
    }
}

#[test]
fn what_comes_late_is_on_stderr_or_refused() {
    for kind in ["tokio", "tokio-threads"] {
        let mut peer = Peer::start(kind, 2, 2, FRAME_BYTES_MAX);
        peer.send("last", 1);
        peer.expect(200, "", Some(1));
        peer.send("late", 2);
        peer.expect(201, "its message is answered already", Some(2));
        peer.tell("__quit__");
        assert_eq!(peer.ended(0), "warn: too late n=1\n");
    }
}

#[test]
fn a_child_has_nothing_on_stdin() {
    each_kind(&[2], 2, |mut peer| {
        peer.begin("stuck", 1);
        peer.send("child", 2);
        peer.expect(201, "", Some(2));
        peer.tell("__cancel__ 1");
        peer.expect(429, "gave up", Some(1));
        peer.tell("__quit__");
        peer.ended(0);
    });
}

#[test]
fn a_forked_child_says_nothing_in_its_parents_name() {
    for kind in KINDS {
        let mut peer = Peer::start(kind, 1, 2, FRAME_BYTES_MAX);
        peer.send("fork", 1);
        peer.expect(201, "the parent's, of 0", Some(1));
        peer.send("echo on", 2);
        peer.expect(201, "on", Some(2));
        peer.tell("__quit__");
        let said = peer.ended(0);
        assert!(
            said.contains("warn: of a child\nonly the process that"),
            "{said}"
        );
    }
}

#[test]
fn a_handler_that_obeys_says_why() {
    each_kind(&[1], 2, |mut peer| {
        if peer.kind != "sync" {
            return; // its future is dropped
        }
        let timeout = [("3", texts(&[("TimeoutMilliseconds", "20")]))];
        peer.write(&frame(&task("wrapped 20", 1, &timeout)));
        peer.expect(102, "begun", Some(1));
        peer.tell("__cancel__ 1");
        let why = "timed out: the limit is 20 ms\nwhile it waited\ncaused by: cancelled";
        peer.expect(429, why, Some(1));
        peer.begin("wrapped 0", 2);
        peer.tell("__cancel__ 2");
        peer.expect(
            429,
            "cancelled\nwhile it waited\ncaused by: cancelled",
            Some(2),
        );
    });
}

#[test]
fn an_exit_in_one_handler_ends_the_process_at_once() {
    each_kind(&[2], 2, |mut peer| {
        peer.begin("stuck", 1);
        peer.send("exit", 2);
        peer.ended(7);
    });
}

#[test]
fn a_stopper_leaves_when_all_is_answered() {
    each_kind(&[2], 2, |mut peer| {
        peer.begin("stuck", 1);
        peer.send("stop", 2);
        peer.expect(200, "", Some(2));
        peer.tell("__cancel__ 1");
        peer.expect(429, "gave up", Some(1));
        peer.ended(0);
    });
}

#[test]
fn what_comes_after_the_stop_is_given_back() {
    const REASON: &str = "the worker is about to end";
    each_kind(&[2], 2, |mut peer| {
        peer.begin("stuck", 1);
        peer.send("stop", 2);
        peer.expect(200, "", Some(2));
        // The places of those that are answered are filled again; a cancelled one is given back at once.
        peer.send("echo x", 3);
        peer.tell("__cancel__ 3");
        peer.expect(300, REASON, Some(3));
        peer.tell("__cancel__ 4");
        peer.send("echo x", 4);
        peer.expect(300, REASON, Some(4));
        peer.send("echo x", 5);
        peer.tell("__cancel__ 1");
        peer.expect(429, "gave up", Some(1));
        peer.expect(300, REASON, Some(5));
        peer.ended(0);
    });
}

#[test]
fn a_warm_up_that_fails_connects_nowhere() {
    for kind in KINDS {
        let mut command = modes();
        // Who connects finds nothing there, and says another thing.
        command
            .env("COLD", "no model")
            .env("GANGER_PIPE", "/tmp/ganger-nowhere");
        command.args([kind, "1", "1000"]);
        command.stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().expect("a start");
        let mut stdin = process.stdin.take().expect("a stdin");
        stdin.write_all(b"pipe\n").expect("a reader");
        let output = process.wait_with_output().expect("an end");
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(said, "the warm-up has failed: no model\n");
    }
}
