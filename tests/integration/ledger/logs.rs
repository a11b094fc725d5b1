//! Logs of runs: what their workers print, their LOG frames, their progress, and signs of life.

use nix::sys::signal::Signal;
use serde_json::Value;

use super::{becomes as is, elsewhere, schedule, trigger};
use crate::harness::{Daemon, Pool, Workspace, trials_on};

trials_on![
    the_lines_of_each_attempt_are_kept_in_order,
    a_log_keeps_its_limits,
    a_log_is_followed_to_the_end_of_the_run,
    of_a_worker_with_several_messages_only_frames_are_theirs,
    messages_elsewhere_have_logs_too,
    what_is_written_as_the_daemon_ends_is_kept,
    ; sqlite:
    what_a_worker_prints_moves_no_cursor,
    without_a_log_progress_is_still_shown,
    a_log_that_is_not_there_is_told,
    ; long:
    a_run_that_goes_on_is_heard_of,
];

/// Waits until the log of an occurrence has so many lines, and returns these.
pub(crate) fn becomes(site: &Workspace, daemon: &Daemon, id: &str, lines: usize) -> Vec<Value> {
    daemon.eventually_some(&format!("{lines} lines in the log of {id}"), || {
        let log = ["occurrence", "log", id, "-o", "json"];
        let log = site.ganger(&log).json().as_array().unwrap().clone();
        (log.len() == lines).then_some(log)
    })
}

/// Returns the lines of a stream: attempt, level and text.
pub(crate) fn of(lines: &[Value], stream: &str) -> Vec<String> {
    let lines = lines.iter().filter(|line| line["stream"] == stream);
    let text = |line: &Value, key: &str| line[key].as_str().unwrap().to_owned();
    let shown = lines.map(|line| {
        let (level, written) = (text(line, "level"), text(line, "text"));
        format!("{} {level} {written}", line["attempt"])
    });
    shown.collect()
}

/// A daemon with a schedule of that body, and its pool.
fn running(site: &Workspace, pool: Pool, body: &str, more: &str) -> Daemon {
    let keys = format!("at = \"2100-01-01T00:00:00\"\nbody = \"{body}\"");
    let pools = [pool.after(&(schedule("logs", &keys) + more))];
    site.configure_commands(&pools);
    let daemon = site.start(&pools);
    daemon.entered();
    daemon
}

fn shown(site: &Workspace, id: &str) -> Value {
    let show = ["occurrence", "show", id, "-o", "json"];
    site.ganger(&show).json()
}

fn the_lines_of_each_attempt_are_kept_in_order() {
    let site = Workspace::new();
    let body = "mode:print:one,complain:uh,log:error:two|lines,print:three,answer:500";
    let daemon = running(&site, Pool::new(&["--v2=1"]), body, "");
    let id = trigger(&site, "logs");
    is(&site, &daemon, &id, "failed");
    let lines = becomes(&site, &daemon, &id, 8);
    let numbers: Vec<_> = lines.iter().map(|line| line["line"].as_i64()).collect();
    assert_eq!(numbers, (0..8).map(Some).collect::<Vec<_>>());
    let expected = ["1 info one", "1 info three", "2 info one", "2 info three"];
    assert_eq!(of(&lines, "stdout"), expected);
    assert_eq!(of(&lines, "stderr"), ["1 info uh", "2 info uh"]);
    let frames = [1, 2].map(|attempt| format!("{attempt} error two\nlines step=log"));
    assert_eq!(of(&lines, "log"), frames);
    // All of the first attempt comes before all of the second.
    let attempts: Vec<_> = lines.iter().map(|line| line["attempt"].as_u64()).collect();
    assert!(attempts.is_sorted(), "{lines:?}");
    let one = shown(&site, &id);
    assert_eq!(
        (&one["log_lines"], &one["log_dropped"]),
        (&8.into(), &0.into())
    );
    assert!(one["heard_at"].is_string(), "{one}");
    daemon.stop();
}

/// Those at the beginning and at the end.
fn a_log_keeps_its_limits() {
    let site = Workspace::new();
    let limits = "[ledger]\nlog = { lines = 10, bytes = \"64KiB\" }\n";
    let body = "mode:print-lines:40,wait:go,print-lines:40";
    let daemon = running(&site, Pool::new(&["--v2=1"]), body, limits);
    let id = trigger(&site, "logs");
    daemon.eventually("the first lines to be written", || {
        shown(&site, &id)["log_dropped"] == 30
    });
    site.touch("go");
    is(&site, &daemon, &id, "completed");
    daemon.eventually("the other lines to be written", || {
        shown(&site, &id)["log_dropped"] == 70
    });
    let lines = becomes(&site, &daemon, &id, 10);
    let numbers: Vec<_> = lines
        .iter()
        .map(|line| line["line"].as_i64().unwrap())
        .collect();
    assert_eq!(numbers, [0, 1, 72, 73, 74, 75, 76, 77, 78, 79]);
    assert_eq!(lines[9]["text"], "line 39");
    let told = site.ganger(&["occurrence", "log", &id]);
    assert!(told.out.contains("\n… 70 dropped …\n"), "{}", told.out);
    assert!(
        told.err.contains("70 lines of this log were dropped"),
        "{}",
        told.err
    );
    let told = site.ganger(&["occurrence", "show", &id]).good();
    assert!(told.contains("10 lines, 70 dropped"), "{told}");
    daemon.stop();
}

fn a_log_is_followed_to_the_end_of_the_run() {
    let site = Workspace::new();
    let body = "mode:print:one,progress:half,wait:go,print:two,log:warn:three,print:four";
    let daemon = running(&site, Pool::new(&["--v2=1"]), body, "");
    let id = trigger(&site, "logs");
    let mut followed = site.begin(&["occurrence", "log", "--follow", &id]);
    let mut objects = site.begin(&["occurrence", "log", "-f", &id, "-o", "json"]);
    for following in [&followed, &objects] {
        daemon.eventually("the first line", || following.printed().contains("one"));
    }
    assert_eq!(shown(&site, &id)["progress"], "half");
    assert!(!followed.has_ended_well());
    site.touch("go");
    daemon.eventually("it to end", || followed.has_ended_well());
    daemon.eventually("the other to end", || objects.has_ended_well());
    let printed = followed.printed();
    for text in [
        "stdout INFO  one\n",
        "stdout INFO  two\n",
        "log    WARN  three step=log\n",
    ] {
        assert!(printed.contains(text), "{printed}");
    }
    let lines: Vec<Value> = objects
        .printed()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let expected = ["1 info one", "1 info two", "1 info four"];
    assert_eq!(of(&lines, "stdout"), expected);
    is(&site, &daemon, &id, "completed");
    daemon.stop();
}

fn of_a_worker_with_several_messages_only_frames_are_theirs() {
    let site = Workspace::new();
    let pool = Pool::new(&["--v2=2"]);
    let body = "mode:wait:go,print:whose,log:info:mine,wait:end";
    let daemon = running(&site, pool, body, "");
    let trigger = ["schedule", "trigger", "logs", "--force"];
    let ids = [(); 2].map(|()| site.ganger(&trigger).good().trim().to_owned());
    for id in &ids {
        is(&site, &daemon, id, "running");
    }
    site.touch("go");
    for id in &ids {
        assert_eq!(
            of(&becomes(&site, &daemon, id, 1), "log"),
            ["1 info mine step=log"]
        );
    }
    site.touch("end");
    for id in &ids {
        is(&site, &daemon, id, "completed");
    }
    daemon.stop();
}

fn messages_elsewhere_have_logs_too() {
    let site = Workspace::new();
    let pools = [elsewhere("mode:print:one,progress:half,answer:500")];
    site.configure_commands(&pools);
    let daemon = site.start(&pools);
    daemon.entered();
    let id = trigger(&site, "elsewhere");
    is(&site, &daemon, &id, "failed");
    let lines = becomes(&site, &daemon, &id, 2);
    assert_eq!(of(&lines, "stdout"), ["1 info one", "2 info one"]);
    daemon.stop();
}

fn what_is_written_as_the_daemon_ends_is_kept() {
    let site = Workspace::new();
    let body = "mode:wait:go,print:last,progress:all";
    let daemon = running(&site, Pool::new(&["--v2=1"]), body, "");
    let id = trigger(&site, "logs");
    is(&site, &daemon, &id, "running");
    daemon.signal(Signal::SIGTERM);
    daemon.logged("stopping: messages in hand are finished first");
    site.touch("go");
    daemon.exit();
    let one = shown(&site, &id);
    assert_eq!(
        (&one["state"], &one["log_lines"], &one["progress"]),
        (&"completed".into(), &1.into(), &"all".into())
    );
}

fn what_a_worker_prints_moves_no_cursor() {
    let site = Workspace::new();
    let body = "mode:print:\\u001b[2Jclear,progress:\\u001b[1mbold";
    let daemon = running(&site, Pool::new(&["--v2=1"]), body, "");
    let id = trigger(&site, "logs");
    is(&site, &daemon, &id, "completed");
    let lines = becomes(&site, &daemon, &id, 1);
    assert_eq!(lines[0]["text"], "\u{1b}[2Jclear");
    for args in [
        &["occurrence", "log", &id][..],
        &["occurrence", "log", &id, "-f"],
        &["occurrence", "log", &id, "-o", "json"],
        &["occurrence", "show", &id],
    ] {
        let screen = site.shown(args);
        assert!(
            !screen.contains("\u{1b}[2J") && !screen.contains("\u{1b}[1mbold"),
            "{screen:?}"
        );
        assert!(
            screen.contains("clear") || screen.contains("bold"),
            "{screen:?}"
        );
    }
    daemon.stop();
}

fn without_a_log_progress_is_still_shown() {
    let site = Workspace::new();
    let body = "mode:print:one,log:info:two,progress:half";
    let off = "[ledger]\nlog = { lines = 0 }\n";
    let daemon = running(&site, Pool::new(&["--v2=1"]), body, off);
    let id = trigger(&site, "logs");
    is(&site, &daemon, &id, "completed");
    daemon.eventually("the progress", || shown(&site, &id)["progress"] == "half");
    let one = shown(&site, &id);
    assert_eq!(
        (&one["log_lines"], &one["log_dropped"]),
        (&0.into(), &0.into())
    );
    assert_eq!(site.ganger(&["occurrence", "log", &id]).good(), "");
    daemon.stop();
}

fn a_log_that_is_not_there_is_told() {
    let site = Workspace::new();
    let daemon = running(&site, Pool::new(&[]), "x", "");
    let why = site.ganger(&["occurrence", "log", "typo"]).bad(1);
    assert!(why.contains("there is no occurrence typo"), "{why}");
    daemon.stop();
}

/// Though it tells nothing.
fn a_run_that_goes_on_is_heard_of() {
    let site = Workspace::new();
    let daemon = running(&site, Pool::new(&["--v2=1"]), "mode:wait:go", "");
    let id = trigger(&site, "logs");
    is(&site, &daemon, &id, "running");
    assert!(shown(&site, &id)["heard_at"].is_null());
    daemon.eventually("a sign of life", || {
        shown(&site, &id)["heard_at"].is_string()
    });
    let first = shown(&site, &id)["heard_at"].clone();
    daemon.eventually("another", || shown(&site, &id)["heard_at"] != first);
    site.touch("go");
    is(&site, &daemon, &id, "completed");
    daemon.stop();
}
