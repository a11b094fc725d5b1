//! `ganger worker try`: one message through one worker, without a queue.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};

use nix::sys::ptrace;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use serde_json::Value;

use super::{faulty, own_program};
use crate::harness::{NewMessage, PROGRAM, Pool, Scene, Workspace, trials};
use crate::modes_worker;

trials![
    shows_what_the_worker_says_and_takes,
    any_answer_but_done_is_a_failure,
    what_goes_wrong_is_told,
    a_body_comes_from_a_file_or_from_stdin,
    a_pools_worker_is_started_as_it_is_configured,
    a_dead_letter_is_tried_and_stays,
    waits_for_enter,
    waits_for_a_debugger,
];

/// Tries a modes-worker with these steps.
fn tried(site: &Workspace, options: &[&str], version: &str, mode: &str) -> (i32, Value) {
    let own = own_program();
    let record = format!("RECORD={}", site.path("record").display());
    let start = ["worker", "try", "-o", "json", "--env", &record];
    let mode = format!("--mode={mode}");
    let worker = ["--", own.as_str(), modes_worker::NAME, version, &mode];
    let ran = site.ganger(&[&start, options, &worker].concat());
    let told =
        serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("no JSON, {error}: {ran:#?}"));
    (ran.code.unwrap(), told)
}

fn shows_what_the_worker_says_and_takes() {
    let site = Workspace::new();
    let mode = "print:hello,complain:there,log:warn:hot,progress:half,emit:parts:one,reply";
    let options = ["-m", "ten", "-H", "colour=red", "--correlation-id", "c-1"];
    let options = [&options[..], &["--reply-to", "answers"]].concat();
    let (code, told) = tried(&site, &options, "--v2=1", mode);
    assert_eq!((code, &told["done"]), (0, &true.into()), "{told:#}");
    let answer = &told["answer"];
    assert_eq!(answer["status"], 201, "{told:#}");
    assert_eq!(answer["body"], "re: ten", "{told:#}");
    assert_eq!(answer["goes_to"], "answers", "{told:#}");
    assert_eq!(answer["headers"]["answered-by"], "modes-worker", "{told:#}");
    let notes = told["notes"].as_array().unwrap();
    let names: Vec<&str> = notes
        .iter()
        .map(|note| note["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["LOG", "PROGRESS", "EMIT"], "{told:#}");
    assert_eq!(notes[2]["reply_queue"], "parts", "{told:#}");
    assert_eq!(told["stdout"], serde_json::json!(["hello"]), "{told:#}");
    assert_eq!(told["stderr"], serde_json::json!(["there"]), "{told:#}");
    assert_eq!(told["version"], 2, "{told:#}");
    assert_eq!(told["exit_code"], 0, "{told:#}");
    assert!(
        told["peak_memory_bytes"].as_u64().unwrap() > 1 << 20,
        "{told:#}"
    );
    assert!(
        told["cpu_seconds"].is_number() && told["seconds"].is_number(),
        "{told:#}"
    );
}

fn any_answer_but_done_is_a_failure() {
    let site = Workspace::new();
    for (version, mode, code) in [
        ("--deaf-to-stdin", "answer:200", 0),
        ("--v2=4", "answer:400", 1),
        ("--deaf-to-stdin", "answer:500", 1),
        ("--v2=1", "answer:503:2500", 1),
    ] {
        let (ended, told) = tried(&site, &["-m", "x"], version, mode);
        assert_eq!(ended, code, "{mode}: {told:#}");
        assert!(
            mode.contains(&told["answer"]["status"].to_string()),
            "{told:#}"
        );
    }
}

fn what_goes_wrong_is_told() {
    let site = Workspace::new();
    let problem = |version: &str, mode: &str| {
        let (code, told) = tried(&site, &["-m", "x"], version, mode);
        assert_eq!(code, 1, "{told:#}");
        (told["problem"].as_str().unwrap().to_owned(), told)
    };
    let (said, told) = problem("--v2=1", "complain:oh no,die:exit:7");
    assert!(said.contains("exited with code 7"), "{told:#}");
    assert_eq!(told["stderr"], serde_json::json!(["oh no"]), "{told:#}");
    assert!(problem("--v2=1", "wrong-id").0.contains("not in flight"));
    assert!(problem("--v2=1", "garbage").0.contains("protocol error"));
    let (said, told) = problem("--v2=1", "twice");
    assert!(said.contains("a second answer"), "{told:#}");
    assert_eq!(told["answer"]["status"], 200, "{told:#}");
    assert!(
        problem("--start=exit:3", "")
            .0
            .contains("before it connected")
    );
}

fn a_body_comes_from_a_file_or_from_stdin() {
    let site = Workspace::new();
    std::fs::write(site.path("body"), b"\xff\x00\xfe").unwrap();
    let (_, told) = tried(&site, &["-m", "@body"], "--v2=1", "note:form,reply");
    assert_eq!(told["answer"]["body"], "re: \u{fffd}\0\u{fffd}", "{told:#}");
    let (code, told) = tried(
        &site,
        &["-m", "@body", "--start-timeout", "3s"],
        "--deaf-to-stdin",
        "",
    );
    assert_eq!(code, 1, "{told:#}");
    let own = own_program();
    let worker = [
        "worker",
        "try",
        "-m",
        "-",
        "--",
        &own,
        faulty::NAME,
        "none",
        "1",
    ];
    let ran = site.ganger_reading(&worker, b"from stdin");
    assert!(ran.good().contains("answer         200 DONE"));
}

fn a_pools_worker_is_started_as_it_is_configured() {
    let site = Workspace::new();
    let pool = Pool::new(&["--v2=1", "--mode=hang"]);
    let pool = pool.text("timeout", "300ms");
    site.configure_commands(&[pool.text("timeout_grace", "200ms")]);
    let options = ["worker", "try", "--pool", "work", "-m", "x"];
    let gives_up = |limit: &[&str], said: &str| {
        let ran = site.ganger(&[&options[..], limit].concat());
        assert_eq!(ran.code, Some(1), "{ran:#?}");
        assert!(ran.out.contains(said), "{ran:#?}");
    };
    let of_its_own = "no answer within 300ms and 200ms of grace";
    gives_up(&[], of_its_own);
    let shorter = ["--header", "TimeoutMilliseconds=250"];
    gives_up(&shorter, "no answer within 250ms and 200ms of grace");
    let told = ["--timeout", "200ms"];
    gives_up(&told, "no answer within 200ms and 200ms of grace");
    let ran = site.ganger(&["worker", "try", "--pool", "none", "-m", "x"]);
    assert!(ran.bad(2).contains("no pool `none`"));
    let ran = site.ganger(&["worker", "try", "-m", "x"]);
    assert!(ran.bad(2).contains("name the worker"));
}

fn a_dead_letter_is_tried_and_stays() {
    let pool = Pool::new(&["--v2=1", "--mode=answer:400"]);
    let scene = Scene::of(pool.clone());
    let message = NewMessage::new("ten").header("colour", "red");
    scene
        .table
        .insert(&[message.correlation_id("c-1").reply_to("answers")]);
    scene.one_dead();
    scene.daemon.stop();
    scene.site.configure_commands(&[pool]);
    // Where it died, it would die again.
    let letters = scene.site.ganger(&["dead", "list", "-o", "json"]).json();
    let id = letters[0]["id"].as_str().unwrap();
    let again = scene.site.ganger(&["worker", "try", "--dead", id]);
    assert_eq!(again.code, Some(1), "{again:#?}");
    assert!(again.out.contains("400 REJECT"), "{again:#?}");
    let (code, told) = tried(
        &scene.site,
        &["--dead", id, "--source", "main"],
        "--v2=1",
        "reply",
    );
    assert_eq!(code, 0, "{told:#}");
    assert_eq!(told["answer"]["body"], "re: ten", "{told:#}");
    assert_eq!(told["answer"]["goes_to"], "answers", "{told:#}");
    assert_eq!(scene.table.dead().len(), 1);
    let missing = scene.site.ganger(&["worker", "try", "--dead", "999"]);
    assert!(missing.bad(1).contains("no dead letter 999"));
}

/// One that waits, and the process id of its worker.
fn waiting() -> (Child, Pid) {
    let mut child = Command::new(PROGRAM)
        .args(["worker", "try", "--wait", "-m", "x", "--"])
        .args([&own_program(), faulty::NAME, "none", "2"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let stderr = child.stderr.as_mut().unwrap();
    BufReader::new(stderr).read_line(&mut line).unwrap();
    let pid = line.split(' ').nth(1).unwrap();
    let pid = Pid::from_raw(
        pid.parse()
            .unwrap_or_else(|_| panic!("no process: {line:?}")),
    );
    (child, pid)
}

fn answered(mut child: Child) {
    let mut out = String::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut out)
        .unwrap();
    assert!(child.wait().unwrap().success(), "{out}");
    assert!(out.contains("200 DONE"), "{out}");
}

fn waits_for_enter() {
    let (mut child, _) = waiting();
    assert_eq!(child.try_wait().unwrap(), None);
    child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    answered(child);
}

/// Of which there is none who could press anything: stdin stays open and silent.
fn waits_for_a_debugger() {
    let (child, pid) = waiting();
    ptrace::seize(pid, ptrace::Options::empty()).unwrap();
    // Its parent can wait for it only when its tracer has.
    assert_eq!(waitpid(pid, None).unwrap(), WaitStatus::Exited(pid, 0));
    answered(child);
}
