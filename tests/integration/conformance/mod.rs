//! `ganger worker check`, on workers that do what they must, of all libraries and of none, and on
//! workers with one fault each.

pub(crate) mod attempt;
pub(crate) mod faulty;

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::harness::{PROGRAM, Pool, Workspace, look, marked, trials};
use crate::modes_worker;
use crate::python::python;

trials![
    the_tests_own_workers_do_what_they_must,
    a_version_1_worker_by_hand_does_what_it_must,
    a_worker_without_a_fault_does_what_it_must,
    each_fault_fails_its_duty_and_says_what_to_mend,
    each_fault_of_version_2_fails_its_duty,
    what_should_be_mended_is_no_failure,
    a_version_that_is_asked_for_must_be_spoken,
    a_pools_worker_is_sent_messages_of_its_queue,
    what_it_understands_may_be_bytes,
    nothing_outlives_the_check,
    the_report_has_three_forms,
    a_wrong_command_line_is_told_from_a_failure,
];

/// What the check is told of itself, so that what it leaves behind would be found.
const MARK: &str = "TEST_MARK=conformance";

/// What `ganger worker check` has found.
#[derive(Debug)]
pub(crate) struct Checked(Value);

impl Checked {
    /// Checks a worker, which is the program and its arguments.
    pub(crate) fn of(site: &Workspace, options: &[&str], worker: &[&str]) -> Self {
        let record = format!("RECORD={}", site.path("record").display());
        let start = ["worker", "check", "--output", "json", "--env", &record];
        let ran = site.ganger(&[&start, options, &["--"], worker].concat());
        assert!(matches!(ran.code, Some(0 | 1)), "{ran:#?}");
        let report: Value = serde_json::from_str(&ran.out)
            .unwrap_or_else(|error| panic!("no JSON, {error}: {ran:#?}"));
        assert_eq!(report["passed"] == true, ran.code == Some(0), "{ran:#?}");
        Self(report)
    }

    /// The duties with that verdict, with what was seen and what to mend.
    fn with(&self, verdict: &str) -> Vec<&Value> {
        let parts = self.0["parts"].as_array().unwrap().iter();
        let duties = parts.flat_map(|part| part["duties"].as_array().unwrap());
        duties.filter(|duty| duty["verdict"] == verdict).collect()
    }

    fn names(&self, verdict: &str) -> BTreeSet<&str> {
        let duties = self.with(verdict).into_iter();
        duties.map(|duty| duty["name"].as_str().unwrap()).collect()
    }

    /// It does all that it must, in these versions and in the daemon's pool.
    pub(crate) fn conforms_in(&self, versions: &[&str]) {
        assert_eq!(self.with("failed"), Vec::<&Value>::new(), "{self:#?}");
        let parts = self.0["parts"].as_array().unwrap().iter();
        let spoken = parts.filter(|part| part["remark"].is_null());
        let spoken: Vec<&str> = spoken.map(|part| part["name"].as_str().unwrap()).collect();
        assert_eq!(spoken, [versions, &["pool"]].concat(), "{self:#?}");
        assert!(self.with("passed").len() > 20, "{self:#?}");
    }

    /// It fails these duties, no others, and is told that.
    fn fails(&self, duties: &[&str], mend: &str) {
        let wanted: BTreeSet<&str> = duties.iter().copied().collect();
        assert_eq!(self.names("failed"), wanted, "{self:#?}");
        for failed in self.with("failed") {
            let what = failed["mend"].as_str().unwrap();
            assert!(!what.is_empty(), "{failed:#?}");
        }
        let told = |failed: &&Value| failed["mend"].as_str().unwrap().contains(mend);
        let first = self.with("failed").into_iter().find(told);
        assert!(first.is_some(), "without {mend:?}: {self:#?}");
    }
}

fn own_program() -> String {
    std::env::current_exe().unwrap().to_str().unwrap().into()
}

fn check_faulty(fault: &str, version: &str, options: &[&str]) -> Checked {
    let site = Workspace::new();
    site.put("slow", "slow", false);
    let slow = site.path("slow");
    let slow = ["--slow-message", slow.to_str().unwrap()];
    let options = [&slow, &["--protocol", version], options].concat();
    let worker = [&own_program(), faulty::NAME, fault, version];
    Checked::of(&site, &options, &worker)
}

fn the_tests_own_workers_do_what_they_must() {
    let site = Workspace::new();
    let own = own_program();
    let check = |args: &[&str]| {
        let worker = [&[own.as_str(), modes_worker::NAME], args].concat();
        Checked::of(&site, &[], &worker)
    };
    check(&["--mode=print:hello,complain:there"]).conforms_in(&["version 1"]);
    let noisy = "--mode=progress:half,log:warn:hot,emit:parts:part,answer:-1,reply";
    // One that takes several at once leaves without them: it is rude.
    let checked = check(&["--v2=1", noisy]);
    checked.conforms_in(&["version 2"]);
    let passed = checked.names("passed");
    for used in ["progress", "log", "emit", "feedback", "reply"] {
        assert!(passed.contains(used), "{used}: {checked:#?}");
    }
}

fn a_version_1_worker_by_hand_does_what_it_must() {
    let site = Workspace::new();
    let python = python();
    for worker in ["tests/workers/v1_worker.py", "samples/python/worker.py"] {
        let worker = format!("{}/{worker}", env!("CARGO_MANIFEST_DIR"));
        let worker = [python.to_str().unwrap(), &worker];
        Checked::of(&site, &[], &worker).conforms_in(&["version 1"]);
    }
}

fn a_worker_without_a_fault_does_what_it_must() {
    for version in ["1", "2"] {
        let name = format!("version {version}");
        check_faulty("none", version, &[]).conforms_in(&[&name]);
    }
}

fn each_fault_fails_its_duty_and_says_what_to_mend() {
    let table: [(&str, &[&str], &str); 18] = [
        ("wrong-pipe", &["start"], "/tmp/CoreFxPipe_"),
        ("two-answers", &["message"], "one answer for each message"),
        ("garbage", &["message"], "four bytes, big-endian"),
        ("little-endian", &["message"], "four bytes, big-endian"),
        ("no-status", &["message"], "\"1\" (status"),
        ("bad-map", &["message"], "MessagePack map"),
        ("one-shot", &["many"], "go back to reading"),
        (
            "counts-characters",
            &["unicode-body"],
            "bytes, not characters",
        ),
        ("fixed-keys", &["unknown-keys"], "skip unknown keys"),
        ("strict-lines", &["unknown-lines"], "ignore all others"),
        ("needs-a-body", &["empty-body"], "an empty body is"),
        ("short-frames", &["large-body"], "frame_bytes_max"),
        ("named-headers", &["headers"], "any text"),
        ("parses-timeout", &["timeout"], "negative means no limit"),
        ("one-line-ids", &["correlation"], "as any text"),
        ("drops-work", &["quit-busy"], "finish and answer"),
        (
            "answers-yield-twice",
            &["context-switch"],
            "one answer for each",
        ),
        ("needs-quit", &["end-of-file"], "also without __quit__"),
    ];
    each_at_once(&table, |(fault, duties, mend)| {
        // What hinders much hinders more than the duty that is about it.
        let more: &[&str] = match *fault {
            "one-shot" => &ALL_THAT_TAKE_TWO,
            _ => &[],
        };
        check_faulty(fault, "1", &[]).fails(&[*duties, more].concat(), mend);
    });
    let silent = check_faulty("no-answer", "1", &["--timeout", "1s"]);
    silent.fails(&["message"], "write one answer");
    let reads = check_faulty("reads-once", "1", &[]);
    let mut failed = reads.names("failed");
    // How deep the daemon's pool fills its pipe depends on how fast it is.
    failed.remove("pool");
    let hindered = ["dribbles", "headers", "large-body", "pipelined"];
    assert_eq!(failed, BTreeSet::from(hindered), "{reads:#?}");
    let stays = check_faulty("stays", "1", &["--stop-timeout", "1s"]);
    stays.fails(&["quit", "end-of-file"], "SIGTERM");
}

/// Looks at several at a time: they wait more than they compute.
fn each_at_once<T: Sync>(all: &[T], look: impl Fn(&T) + Sync) {
    for some in all.chunks(4) {
        std::thread::scope(|scope| {
            for one in some {
                scope.spawn(|| look(one));
            }
        });
    }
}

/// The duties that take more than one message.
const ALL_THAT_TAKE_TWO: [&str; 9] = [
    "pipelined",
    "headers",
    "correlation",
    "unknown-lines",
    "dribbles",
    "timeout",
    "context-switch",
    "quit-busy",
    "pool",
];

fn each_fault_of_version_2_fails_its_duty() {
    let table: [(&str, &[&str], &str); 7] = [
        ("wrong-id", &["message"], "unchanged"),
        ("bad-hello", &["hello"], "a whole number from 1"),
        ("no-hello", &["hello"], "make the first frame a HELLO"),
        ("no-ids", &["concurrent", "pool"], "give each answer the id"),
        ("ids-as-floats", &["ids"], "64 bits"),
        ("text-only", &["binary-body"], "not UTF-8"),
        ("answers-cancel-twice", &["cancel"], "one answer for each"),
    ];
    each_at_once(&table, |(fault, duties, mend)| {
        check_faulty(fault, "2", &[]).fails(duties, mend);
    });
}

fn what_should_be_mended_is_no_failure() {
    let table = [
        ("credulous", &["bad-length", "bad-map"][..]),
        ("ends-badly", &["quit", "end-of-file"]),
        ("bare-text", &["bare-value"]),
    ];
    for (fault, duties) in table {
        let checked = check_faulty(fault, "1", &[]);
        let wanted: BTreeSet<&str> = duties.iter().copied().collect();
        assert_eq!(checked.names("failed"), BTreeSet::new(), "{checked:#?}");
        assert_eq!(checked.names("warned"), wanted, "{checked:#?}");
    }
}

fn a_version_that_is_asked_for_must_be_spoken() {
    let site = Workspace::new();
    let own = own_program();
    for (asked, spoken) in [("2", "1"), ("1", "2")] {
        let worker = [own.as_str(), faulty::NAME, "none", spoken];
        let checked = Checked::of(&site, &["--protocol", asked], &worker);
        checked.fails(&["hello"], "HELLO");
        Checked::of(&site, &[], &worker).conforms_in(&[&format!("version {spoken}")]);
    }
}

/// One that chooses by the queue what to do would refuse all others.
fn a_pools_worker_is_sent_messages_of_its_queue() {
    let site = Workspace::new();
    let pool = Pool::new(&["--mode=note:queue"]).text("queue", "orders");
    site.configure_commands(&[pool]);
    let options = ["worker", "check", "--protocol", "1", "--pool", "work"];
    let ran = site.ganger(&options);
    assert_eq!(ran.code, Some(0), "{ran:#?}");
    let record = std::fs::read(site.path("record")).unwrap();
    let record = String::from_utf8_lossy(&record);
    let queues: BTreeSet<&str> = record
        .split_whitespace()
        .filter(|word| word.starts_with("queue="))
        .collect();
    assert_eq!(queues, BTreeSet::from(["queue=orders"]));
}

/// As for a worker of messages in a binary format: what is no text waits for its HELLO.
fn what_it_understands_may_be_bytes() {
    let site = Workspace::new();
    std::fs::write(site.path("bytes"), b"\xff\x00\xfe").unwrap();
    let own = own_program();
    let worker = [own.as_str(), faulty::NAME, "none", "2"];
    Checked::of(&site, &["--message", "bytes"], &worker).conforms_in(&["version 2"]);
    let ran = site.ganger(&[
        "worker",
        "check",
        "--protocol",
        "1",
        "--message",
        "bytes",
        "--",
        "true",
    ]);
    assert!(ran.bad(2).contains("text only"));
}

fn nothing_outlives_the_check() {
    let site = Workspace::new();
    let own = own_program();
    let worker = [own.as_str(), modes_worker::NAME, "--stubborn"];
    let options = ["--stop-timeout", "1s", "--env", MARK];
    let checked = Checked::of(&site, &options, &worker);
    checked.fails(&["quit", "end-of-file"], "stop_timeout");
    assert_eq!(marked("conformance"), []);
    // Nor does what a worker has set loose, nor what is interrupted.
    let worker = [&own, modes_worker::NAME, "--mode=fork:session"];
    Checked::of(&site, &["--protocol", "1", "--env", MARK], &worker);
    assert_eq!(marked("conformance"), []);
    let mut interrupted = Command::new(PROGRAM)
        .args(["worker", "check", "--env", MARK, "--env"])
        .arg(format!("RECORD={}", site.path("record").display()))
        .args(["--", &own, modes_worker::NAME, "--mode=fork:session,hang"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    look(|| (marked("conformance").len() > 2).then_some(())).expect("a worker with a child");
    let pid = Pid::from_raw(interrupted.id().cast_signed());
    kill(pid, Signal::SIGINT).unwrap();
    assert_eq!(interrupted.wait().unwrap().code(), Some(1));
    assert_eq!(marked("conformance"), []);
}

fn the_report_has_three_forms() {
    let site = Workspace::new();
    let own = own_program();
    let ran = |flag: &str, format: &str| {
        let options = ["worker", "check", "--protocol", "1", flag, format, "--"];
        let worker = [own.as_str(), faulty::NAME, "bad-map", "1"];
        let ran = site.ganger(&[&options[..], &worker].concat());
        assert_eq!(ran.code, Some(1), "{ran:#?}");
        ran.out
    };
    // By the names that the flag and the format had before.
    let table = ran("--format", "table");
    for part in [
        "FAILED: version 1, message",
        "mend: write one MessagePack map",
        "00 00 00 03 c1 ff 00",
        "1 passed, 1 failed",
    ] {
        assert!(table.contains(part), "without {part:?}: {table}");
    }
    let junit = ran("--output", "junit");
    assert!(
        junit.contains("<testcase name=\"message\" classname=\"version 1\""),
        "{junit}"
    );
    assert!(junit.contains("<failure message="), "{junit}");
}

fn a_wrong_command_line_is_told_from_a_failure() {
    let site = Workspace::new();
    let own = own_program();
    let check = |options: &[&str]| {
        let worker = ["--", own.as_str(), faulty::NAME, "none", "1"];
        site.ganger(&[&["worker", "check"], options, &worker].concat())
    };
    assert!(check(&["--message", "nowhere"]).bad(2).contains("nowhere"));
    assert!(check(&["--protocol", "3"]).bad(2).contains("3"));
    let ran = site.ganger(&["worker", "check"]);
    assert!(ran.bad(2).contains("CMD"));
    let missing = site.ganger(&["worker", "check", "--", "no-such-program"]);
    assert_eq!(missing.code, Some(1), "{missing:#?}");
    assert!(missing.out.contains("no-such-program"), "{missing:#?}");
}
