//! `ganger exec`: programs that know nothing of the protocol are workers. In most of these tests a
//! message is itself a shell script, which the program runs.

use std::path::PathBuf;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rusqlite::types::Value;

use crate::harness::{Dead, NewMessage, PROGRAM, Pool, Scene, Workspace, field, trials};

use crate::sdk::{CONCURRENCY, outlives_kills};

trials![
    its_exit_code_says_what_becomes_of_a_message,
    its_file_says_it_too,
    a_retry_comes_when_the_file_says,
    what_it_prints_is_the_reply_where_one_is_awaited,
    a_reply_that_is_too_large_is_a_failure,
    bodies_of_ten_mebibytes_go_in_and_out,
    a_body_that_nobody_reads_is_no_error,
    the_body_may_be_a_file,
    what_is_known_of_a_message_is_in_variables,
    the_last_lines_of_stderr_are_the_reason_and_in_the_log,
    what_it_leaves_behind_neither_holds_it_up_nor_stays,
    its_files_are_for_its_user_whatever_the_umask,
    several_run_at_once,
    a_timeout_stops_one_of_them,
    one_that_does_not_obey_is_killed,
    a_worker_that_is_killed_takes_its_programs_along,
    a_daemon_that_is_killed_takes_them_along,
    a_stop_waits_for_what_is_in_hand,
    what_the_stop_can_t_wait_for_is_terminated,
    without_its_guard_a_worker_is_replaced,
    a_program_that_is_not_there_is_no_messages_fault,
    a_program_that_has_gone_is_no_messages_fault,
    a_script_without_its_interpreter_degrades_the_pool,
    a_script_of_windows_degrades_the_pool,
    a_program_that_turns_out_not_to_run_degrades_the_pool,
    it_speaks_version_1,
    it_does_its_duties,
    it_outlives_kills,
];

/// Runs the message.
const EVALUATE: [&str; 3] = ["sh", "-c", r#"eval "$(cat)""#];

/// A pool of it, with options and a command.
fn pool(options: &[&str], command: &[&str]) -> Pool {
    let args: Vec<&str> = ["exec"]
        .iter()
        .chain(options)
        .chain(&["--"])
        .chain(command)
        .copied()
        .collect();
    Pool::of_program(PROGRAM, &args)
}

pub(crate) fn shell() -> Pool {
    pool(&[], &EVALUATE)
}

/// In a directory to which the scripts' relative paths are, too.
fn scene(pool: Pool) -> Scene {
    let site = Workspace::new();
    let here = site.path("");
    Scene::at(site, &[pool.text("cwd", here.to_str().unwrap())])
}

impl Scene {
    fn file(&self, name: &str) -> String {
        let path = self.site.path(name);
        self.daemon
            .eventually(&format!("{name} to be there"), || path.exists());
        std::fs::read_to_string(path).unwrap()
    }

    fn dead_of(&self, body: &str) -> Dead {
        let of = |dead: &Dead| dead.body == Value::Text(body.into());
        self.table.dead().into_iter().find(of).unwrap()
    }

    /// The replies to messages with these bodies, in this order.
    fn replies(&self, bodies: &[&str]) -> Vec<String> {
        for (n, body) in bodies.iter().enumerate() {
            let message = NewMessage::new(body).reply_to(&format!("answers-{n}"));
            self.table.insert(&[message]);
        }
        self.all_done();
        let reply = |n| self.table.messages(&format!("answers-{n}"))[0].body.clone();
        (0..bodies.len()).map(reply).collect()
    }
}

fn its_exit_code_says_what_becomes_of_a_message() {
    let scene = scene(shell());
    let retried = "echo x >> retried; [ $GANGER_ATTEMPT = 2 ] || exit 75";
    let cases = [
        (
            "echo bad >&2; exit 100",
            "rejected",
            1,
            "rejected by the worker: exited with code 100: bad",
        ),
        (
            "exit 3",
            "failed",
            2,
            "the worker answered 500 UNKNOWN_ERROR: exited with code 3",
        ),
        ("no-such-program", "failed", 2, "no-such-program: not found"),
        (
            "echo late >&2; exit 75",
            "failed",
            2,
            "the worker asked for a retry: exited with code 75: late",
        ),
        ("kill -KILL $$", "failed", 2, "killed by signal 9 (SIGKILL)"),
    ];
    scene.send(&["exit 0", "", retried]);
    scene.send(&cases.map(|(body, ..)| body));
    scene.settled();
    for (body, reason, attempts, error) in cases {
        let dead = scene.dead_of(body);
        assert_eq!(
            (dead.reason.as_str(), dead.attempts, dead.crashes),
            (reason, attempts, 0),
            "{dead:?}"
        );
        assert!(dead.error.ends_with(error), "{dead:?}");
    }
    assert_eq!(scene.table.dead().len(), cases.len());
    assert_eq!(scene.file("retried"), "x\nx\n");
    scene.daemon.has_workers(1);
    scene.finish();
}

fn its_file_says_it_too() {
    let scene = scene(shell().attempts(1));
    let result = |text: &str| format!("printf '{text}' > \"$GANGER_RESULT\"");
    let cases = [
        (
            result("status=reject\\nreason=no such shop\\n"),
            "rejected by the worker: no such shop",
        ),
        (
            result("status=failed\\n"),
            "the worker answered 500 UNKNOWN_ERROR",
        ),
        (
            result("reason=no such shop") + "; exit 9",
            "exited with code 9: no such shop",
        ),
        (result("status=done\\n") + "; exit 9", "exited with code 9"),
        (
            result("colour=red\\n"),
            "line 1 of $GANGER_RESULT: unknown key: `colour=red`",
        ),
    ];
    let requeued = "[ -e again ] || echo status=requeue > $GANGER_RESULT; touch again";
    scene.send(&[requeued]);
    scene.send(&cases.each_ref().map(|(body, _)| body.as_str()));
    scene.settled();
    for (body, error) in &cases {
        let dead = scene.dead_of(body);
        assert!(dead.error.ends_with(error), "{dead:?}");
    }
    assert_eq!(scene.table.dead().len(), cases.len());
    let question = NewMessage::new("echo quiet; echo status=done > $GANGER_RESULT");
    scene.table.insert(&[question.reply_to("answers")]);
    scene.settled();
    assert_eq!(scene.table.count("answers"), 0, "done, and no reply");
    scene.finish();
}

fn a_retry_comes_when_the_file_says() {
    let retry = r#"{ attempts = 3, initial = "10ms", max = "2h", jitter = 0.0 }"#;
    let scene = scene(shell().set("retry", retry));
    scene.send(&["echo retry_after=1h > $GANGER_RESULT; touch tried; exit 75"]);
    let wait = "SELECT (available_after - created_at) / 1000 FROM consumer_messages
        WHERE attempts = 1 AND owner IS NULL";
    let seconds = scene.daemon.eventually_some("it to wait", || {
        scene
            .table
            .0
            .query_row(wait, [], |row| row.get::<_, i64>(0))
            .ok()
    });
    assert!((3600..3700).contains(&seconds), "{seconds} s");
    scene.finish();
}

fn what_it_prints_is_the_reply_where_one_is_awaited() {
    let scene = scene(shell());
    let headed = "(echo header.colour=red; echo header.Content-Type=text/x-test) > $GANGER_RESULT; \
                  printf %s \"$GANGER_REPLY_TO\"";
    let question = NewMessage::new(headed)
        .reply_to("answers")
        .correlation_id("c-1");
    let bytes = NewMessage::new(r"printf '\377\000\376'").reply_to("bytes");
    let elsewhere = "echo reply_to=elsewhere > $GANGER_RESULT; echo gone";
    let unasked = NewMessage::new("echo nobody asked").correlation_id("c-2");
    scene
        .table
        .insert(&[question, bytes, NewMessage::new(elsewhere), unasked]);
    scene.all_done();
    let reply = &scene.table.messages("answers")[0];
    assert_eq!(reply.body, "answers");
    assert_eq!(reply.headers["colour"], "red");
    assert_eq!(reply.correlation_id.as_deref(), Some("c-1"));
    let select = "SELECT content_type FROM consumer_messages WHERE queue = 'answers'";
    let kind: Value = scene
        .table
        .0
        .query_row(select, [], |row| row.get(0))
        .unwrap();
    assert_eq!(kind, Value::Text("text/x-test".to_owned()));
    let select = "SELECT body FROM consumer_messages WHERE queue = 'bytes'";
    let body: Value = scene
        .table
        .0
        .query_row(select, [], |row| row.get(0))
        .unwrap();
    assert_eq!(body, Value::Blob(b"\xff\x00\xfe".to_vec()));
    assert_eq!(scene.table.messages("elsewhere")[0].body, "gone\n");
    let record = scene.daemon.logged("nobody asked");
    assert_eq!(record["correlation_id"], "c-2", "{record}");
    scene.finish();
}

fn a_reply_that_is_too_large_is_a_failure() {
    let scene = scene(shell().attempts(1).text("frame_bytes_max", "1MiB"));
    let without_end = NewMessage::new("yes").reply_to("answers");
    let just_so = "head -c 1048570 /dev/zero | tr '\\0' x; echo header.a=b > $GANGER_RESULT";
    scene
        .table
        .insert(&[without_end, NewMessage::new(just_so).reply_to("answers")]);
    scene.settled();
    for dead in scene.table.dead() {
        let error =
            "the reply must fit into a frame of 1048576 bytes (frame_bytes_max): it is larger";
        assert!(dead.error.ends_with(error), "{}", dead.error);
    }
    assert_eq!(scene.table.dead().len(), 2);
    scene.send(&["yes | head -c 3000000"]);
    scene.settled();
    assert_eq!(
        scene.table.dead().len(),
        2,
        "what is no reply may be as long as it likes"
    );
    scene.daemon.has_workers(1);
    scene.finish();
}

fn bodies_of_ten_mebibytes_go_in_and_out() {
    let scene = scene(pool(&[], &["cat"]));
    let large = "ü".repeat(5 << 20);
    scene
        .table
        .insert(&[NewMessage::new(&large).reply_to("answers")]);
    scene.all_done();
    assert!(scene.table.messages("answers")[0].body == large);
    scene.finish();
}

fn a_body_that_nobody_reads_is_no_error() {
    let scene = scene(pool(&[], &["true"]));
    scene.send(&["x".repeat(10 << 20).as_str(), "", "little"]);
    scene.all_done();
    scene.finish();
}

fn the_body_may_be_a_file() {
    let script = r#"cat "$1"; stat -c ' %a' "$1"; echo "$1" > name; wc -c; echo "$2""#;
    let command = ["sh", "-c", script, "sh", "{}", "--body={}"];
    let scene = scene(pool(&[], &command));
    let replies = scene.replies(&["what is in it"]);
    let name = scene.file("name");
    let path = PathBuf::from(name.trim());
    assert_eq!(replies[0], format!("what is in it 600\n0\n--body={name}"));
    let directory = path.parent().unwrap();
    assert_eq!(
        std::fs::read_dir(directory).unwrap().count(),
        0,
        "it is removed"
    );
    let worker = scene.daemon.has_workers(1)[0];
    kill(Pid::from_raw(worker), Signal::SIGKILL).unwrap();
    scene
        .daemon
        .eventually("its directory to be gone", || !directory.exists());
    scene.finish();
}

fn what_is_known_of_a_message_is_in_variables() {
    let scene = scene(shell().text("timeout", "1h").text("timeout_grace", "1m"));
    let body = r#"left=$((GANGER_DEADLINE - $(date +%s)))
        [ $left -gt 3500 ] && [ $left -le 3660 ] && [ $GANGER_MILLISECONDS_LEFT -le 3660000 ] || exit 9
        [ -z "$GANGER_PIPE$GANGER_PROTOCOL" ] || exit 8
        for v in QUEUE CORRELATION_ID ATTEMPT POOL WORKER REPLY_TO PROPERTY_MESSAGE_ID \
            HEADER_X_ODD_N_ME_ HEADER_LINES LEFT_OUT; do eval "echo $v=\$GANGER_$v"; done
        echo "$TRACEPARENT"; cat "$GANGER_METADATA""#;
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let message = NewMessage::new(body)
        .reply_to("answers")
        .correlation_id("c-1")
        .message_id("m-1")
        .header("x-odd näme!", "v")
        .header("lines", "a\nb")
        .header("traceparent", trace)
        .header("nul", "a\0b");
    scene
        .table
        .insert(&[message.header("long", "x".repeat(40_000))]);
    scene.all_done();
    let reply = scene.table.messages("answers")[0].body.clone();
    let expected = format!(
        "QUEUE=work\nCORRELATION_ID=c-1\nATTEMPT=1\nPOOL=work\nWORKER=0\nREPLY_TO=answers\n\
         PROPERTY_MESSAGE_ID=m-1\nHEADER_X_ODD_N_ME_=v\nHEADER_LINES=a b\n\
         LEFT_OUT=GANGER_HEADER_LONG GANGER_HEADER_NUL\n{trace}\n"
    );
    let metadata = reply
        .strip_prefix(&expected)
        .unwrap_or_else(|| panic!("{reply}"));
    let metadata: serde_json::Value = serde_json::from_str(metadata).unwrap();
    assert_eq!(metadata["headers"]["x-odd näme!"], "v");
    assert_eq!(metadata["headers"]["nul"], "a\0b");
    assert_eq!(metadata["headers"]["long"].as_str().unwrap().len(), 40_000);
    scene.finish();
}

fn the_last_lines_of_stderr_are_the_reason_and_in_the_log() {
    let scene = scene(shell().attempts(1));
    let body =
        "i=0; while [ $i -lt 300 ]; do echo line $i; i=$((i+1)); done >&2; printf end >&2; exit 1";
    scene
        .table
        .insert(&[NewMessage::new(body).correlation_id("c-1")]);
    let dead = scene.one_dead();
    assert!(
        dead.error.contains("exited with code 1: line 1") && dead.error.ends_with("line 299\nend"),
        "{}",
        dead.error
    );
    for line in ["line 0", "end"] {
        let record = scene.daemon.logged(line);
        assert_eq!(record["correlation_id"], "c-1", "{record}");
    }
    scene.finish();
}

fn what_it_leaves_behind_neither_holds_it_up_nor_stays() {
    let scene = scene(shell());
    let late = "(sleep 0.1; echo late) & echo early";
    let replies = scene.replies(&[
        "sleep 1000 & echo out",
        late,
        "setsid sleep 1000 & echo away",
    ]);
    assert_eq!(replies, ["out\n", "early\nlate\n", "away\n"]);
    let all = scene.daemon.processes();
    let left: Vec<_> = all
        .iter()
        .filter(|process| process.command == "sleep 1000")
        .collect();
    assert_eq!(
        (all.len(), left.len()),
        (3, 1),
        "what has left its group: {all:#?}"
    );
    kill(Pid::from_raw(left[0].pid), Signal::SIGKILL).unwrap();
    scene.finish();
}

fn its_files_are_for_its_user_whatever_the_umask() {
    let exec = format!("umask 000; exec '{PROGRAM}' exec -- sh -c 'eval \"$(cat)\"'");
    let scene = scene(Pool::of_program("sh", &["-c", &exec]));
    let looked = r#"stat -c %a "$(dirname "$GANGER_RESULT")""#;
    assert_eq!(scene.replies(&[looked]), ["700\n"]);
    scene.finish();
}

fn several_run_at_once() {
    let scene = scene(pool(&["--concurrency", "3"], &EVALUATE));
    let meet = |own: &str| {
        format!("touch {own}; until [ -e a -a -e b -a -e c ]; do sleep 0.02; done; echo met >&2")
    };
    let message = |own: &str| NewMessage::new(&meet(own)).correlation_id(own);
    scene
        .table
        .insert(&[message("a"), message("b"), message("c")]);
    scene.all_done();
    scene.daemon.logged("[b] met");
    scene.finish();
}

/// Its whole group is told, and it may still say what has become of the message.
fn a_timeout_stops_one_of_them() {
    let pool = pool(&["--concurrency", "2"], &EVALUATE).attempts(1);
    let scene = scene(pool.text("timeout", "10m").text("timeout_grace", "10m"));
    let slow = "trap 'echo bye >&2; exit 100' TERM; (trap 'touch told; exit' TERM; touch up; sleep 1000 & wait) & wait";
    let other = "until [ -e go ]; do sleep 0.02; done; echo undisturbed";
    scene.table.insert(&[
        NewMessage::new(other).reply_to("answers"),
        NewMessage::new(slow).header("TimeoutMilliseconds", 1000),
    ]);
    scene.file("up");
    scene
        .daemon
        .eventually("it to be stopped", || scene.table.count("work") == 1);
    scene.file("told");
    scene.site.touch("go");
    let dead = scene.one_dead();
    assert_eq!(
        dead.error,
        "rejected by the worker: exited with code 100 after it was asked to stop: bye"
    );
    assert_eq!(scene.table.messages("answers")[0].body, "undisturbed\n");
    scene.finish();
}

fn one_that_does_not_obey_is_killed() {
    let pool = pool(&["--kill-after", "200ms"], &EVALUATE).attempts(1);
    let scene = scene(pool.text("timeout", "300ms").text("timeout_grace", "10m"));
    scene.send(&["trap '' TERM; while :; do sleep 1000; done"]);
    let dead = scene.one_dead();
    let error = "killed by signal 9 (SIGKILL) after it was asked to stop";
    assert!(dead.error.ends_with(error), "{}", dead.error);
    scene.daemon.has_workers(1);
    assert_eq!(scene.daemon.processes().len(), 2, "it and its guard");
    scene.finish();
}

/// By the time that the message is begun again, nobody works on it any more.
fn a_worker_that_is_killed_takes_its_programs_along() {
    let scene = scene(shell());
    let body = r#"if [ -e pids ]; then
            for pid in $(cat pids); do grep -q ') [^ZX]' /proc/$pid/stat 2>/dev/null && echo $pid lives; done
            echo checked
        else
            sleep 1000 & echo $! > new; sh -c 'sleep 1000 & echo $! >> new; wait' &
            echo $$ >> new; until [ $(wc -l < new) = 3 ]; do sleep 0.01; done; mv new pids; wait
        fi"#;
    scene
        .table
        .insert(&[NewMessage::new(body).reply_to("answers")]);
    assert_eq!(scene.file("pids").lines().count(), 3);
    let worker = scene.daemon.has_workers(1)[0];
    kill(Pid::from_raw(worker), Signal::SIGKILL).unwrap();
    scene.all_done();
    assert_eq!(scene.table.messages("answers")[0].body, "checked\n");
    scene.finish();
}

fn a_daemon_that_is_killed_takes_them_along() {
    let scene = scene(pool(&["--concurrency", "2"], &EVALUATE));
    scene.send(&["sleep 1000 & touch a; wait", "sleep 1000 & touch b; wait"]);
    scene.file("a");
    scene.file("b");
    scene.daemon.crash();
}

fn a_stop_waits_for_what_is_in_hand() {
    let scene = scene(shell());
    scene.send(&["touch up; until [ -e go ]; do sleep 0.02; done; echo done >> done"]);
    scene.file("up");
    scene.daemon.signal(Signal::SIGTERM);
    scene.site.touch("go");
    assert!(scene.daemon.exit().success());
    scene.daemon.leaves_nothing();
    assert_eq!(scene.file("done"), "done\n");
    assert_eq!(scene.table.count("work"), 0);
}

fn what_the_stop_can_t_wait_for_is_terminated() {
    let site = Workspace::with_daemon(r#"drain_timeout = "100ms""#);
    let here = site.path("");
    let scene = Scene::at(site, &[shell().text("cwd", here.to_str().unwrap())]);
    scene.send(&["trap 'touch told; exit 1' TERM; touch up; sleep 1000 & wait"]);
    scene.file("up");
    scene.daemon.stop();
    scene.file("told");
    let left = &scene.table.messages("work")[0];
    assert_eq!((left.attempts, left.claimed), (0, false), "not charged");
}

fn without_its_guard_a_worker_is_replaced() {
    let scene = scene(shell());
    let guard = scene.daemon.eventually_some("the guard", || {
        let all = scene.daemon.processes();
        all.into_iter()
            .find(|process| process.command.contains("exec-guard"))
    });
    kill(Pid::from_raw(guard.pid), Signal::SIGKILL).unwrap();
    scene.daemon.logged("worker lost");
    assert_eq!(scene.replies(&["echo well"]), ["well\n"]);
    scene.finish();
}

fn a_program_that_is_not_there_is_no_messages_fault() {
    let scene = scene(pool(&[], &["./script"]));
    scene.send(&["a"]);
    let why = "the program can't be run: `./script` does not exist";
    scene.daemon.logs("worker lost", |record| {
        field(record, "stderr").contains(why)
    });
    let waiting = &scene.table.messages("work")[0];
    assert_eq!((waiting.attempts, waiting.claimed), (0, false));
    scene.site.put("script", "#!/bin/sh\ntouch run", true);
    scene.all_done();
    scene.file("run");
    scene.finish();
}

fn a_program_that_has_gone_is_no_messages_fault() {
    let site = Workspace::new();
    site.put("script", "#!/bin/sh\necho $GANGER_ATTEMPT", true);
    let here = site.path("");
    let scene = Scene::at(
        site,
        &[pool(&[], &["./script"]).text("cwd", here.to_str().unwrap())],
    );
    scene.daemon.has_workers(1);
    std::fs::remove_file(scene.site.path("script")).unwrap();
    scene
        .table
        .insert(&[NewMessage::new("a").reply_to("answers")]);
    scene.daemon.logged("worker lost");
    scene
        .site
        .put("script", "#!/bin/sh\necho $GANGER_ATTEMPT", true);
    scene.all_done();
    assert_eq!(
        scene.table.messages("answers")[0].body,
        "1\n",
        "not charged"
    );
    scene.finish();
}

const DEGRADED: &str = "pool degraded: its workers keep failing; starting one at a time";

/// Such a file can't be run: the pool is degraded with that cause, and no message is charged, until the
/// file is mended.
fn degrades(file: &[u8], why: &str) {
    let site = Workspace::new();
    site.put("script", "", true);
    std::fs::write(site.path("script"), file).unwrap();
    let here = site.path("");
    let pool = pool(&[], &["./script"]).text("cwd", here.to_str().unwrap());
    let scene = Scene::at(site, &[pool.set("workers", "3")]);
    scene.send(&["a", "b", "c", "d"]);
    scene.daemon.logged(DEGRADED);
    scene.daemon.logs("worker lost", |record| {
        field(record, "stderr").contains(why)
    });
    for waiting in scene.table.messages("work") {
        assert_eq!(waiting.attempts - u32::from(waiting.claimed), 0);
    }
    scene.site.put("mended", "#!/bin/sh\nexit 0\n", true);
    std::fs::rename(scene.site.path("mended"), scene.site.path("script")).unwrap();
    scene.all_done();
    scene.daemon.logged("pool recovered");
    scene.finish();
}

fn a_script_without_its_interpreter_degrades_the_pool() {
    degrades(b"#!/usr/bin/env no-such-python\n", "`no-such-python`");
}

fn a_script_of_windows_degrades_the_pool() {
    degrades(
        b"#!/bin/sh\r\nexit 0\r\n",
        r"`/bin/sh\r`; its lines end with CR LF",
    );
}

/// What is wrong shows when a message is there: each worker hands it back and ends.
fn a_program_that_turns_out_not_to_run_degrades_the_pool() {
    let mut program = std::fs::read("/bin/true").unwrap();
    let loader = b"/ld-linux";
    let at = program
        .windows(loader.len())
        .position(|some| some == loader);
    program[at.expect("a loader") + 1] = b'x';
    degrades(&program, "exists, but the loader that it requires does not");
}

fn it_speaks_version_1() {
    let mut words = vec![
        "GANGER_PROTOCOL=1",
        PROGRAM,
        "exec",
        "--kill-after",
        "200ms",
        "--",
    ];
    words.extend(EVALUATE);
    let scene = scene(Pool::of_program("env", &words).attempts(1));
    let question = |body: &str| {
        NewMessage::new(body)
            .reply_to("answers")
            .correlation_id("c")
    };
    let slow = NewMessage::new("sleep 1000").header("TimeoutMilliseconds", 300);
    scene
        .table
        .insert(&[question("echo here"), slow, question(r"printf '\377'")]);
    scene.send(&["true"; 20]);
    scene.settled();
    assert_eq!(scene.table.messages("answers")[0].body, "here\n");
    let errors = [
        "killed by signal 15 (SIGTERM) after it was asked to stop",
        "the reply must be UTF-8 for version 1: it is not",
    ];
    let dead = scene.table.dead();
    assert_eq!(dead.len(), errors.len(), "{dead:#?}");
    for (dead, error) in dead.iter().zip(errors) {
        assert!(dead.error.ends_with(error), "{}", dead.error);
    }
    scene.finish();
}

/// What `ganger worker check` looks at.
fn it_does_its_duties() {
    let site = Workspace::new();
    site.put("slow", "1", false);
    let script = "read n; [ \"$n\" != 1 ] || sleep 1; cat";
    let told = site.ganger(&[
        "worker",
        "check",
        "--timeout",
        "60s",
        "--slow-message",
        "slow",
        "--",
        PROGRAM,
        "exec",
        "--concurrency",
        "4",
        "--",
        "sh",
        "-c",
        script,
    ]);
    let told = told.good();
    assert!(told.contains(" 0 failed, 0 warned,"), "{told}");
}

fn it_outlives_kills() {
    let script = r#"read -r body
        note() { printf '%s\t%s\t%s\t%s\t0\n' "$1" "$body" $$$$ "$GANGER_ATTEMPT" >> "$RECORD"; }
        note began; note done"#;
    let concurrency = CONCURRENCY.to_string();
    outlives_kills(pool(
        &["--concurrency", &concurrency],
        &["sh", "-c", script],
    ));
}
