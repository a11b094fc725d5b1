//! A look at a worker that hangs, before it is killed.

use std::path::Path;

use crate::harness::{Event, Pool, Scene, Workspace, field, trials};

trials![
    what_a_look_at_a_worker_shows_is_kept_with_the_dead_letter,
    a_worker_that_is_silent_is_looked_at_too,
    a_look_that_hangs_is_stopped_in_time_and_the_worker_killed,
    of_a_look_that_floods_the_end_is_kept,
    a_program_that_is_not_there_holds_up_no_kill,
    an_answer_during_the_look_counts_and_others_go_on,
    what_is_begun_during_the_look_is_not_charged_for_the_stall_before_it,
];

const AUTOPSY: &str = "autopsy of a hanging worker";

/// Its messages hang, and each time a script looks at its worker.
fn pool(script: &str) -> Pool {
    looked_at(&["/bin/sh", "-c", script, "{pid}"])
        .text("timeout", "200ms")
        .text("timeout_grace", "50ms")
}

fn looked_at(words: &[&str]) -> Pool {
    let words = serde_json::to_string(words).unwrap();
    Pool::new(&[]).set("on_timeout", &words)
}

fn what_a_look_at_a_worker_shows_is_kept_with_the_dead_letter() {
    let script = "tr '\\0' ' ' < /proc/$0/cmdline; echo; pwd; echo \"$WORD in $GANGER_POOL\" >&2";
    let site = Workspace::new();
    let place = site.path("").canonicalize().unwrap();
    let pool = pool(script).env("WORD", "hung").attempts(2);
    let scene = Scene::at(site, &[pool.text("cwd", place.to_str().unwrap())]);
    scene.send(&["mode:hang"]);
    let dead = scene.one_dead();
    assert_eq!((dead.reason.as_str(), dead.attempts), ("timed_out", 2));
    let shown = &dead.stderr[dead.stderr.len() - 4..];
    assert_eq!(shown[0], "--- on_timeout: /bin/sh");
    assert!(shown[1].contains("modes-worker"), "{shown:?}");
    assert_eq!(Path::new(&shown[2]), place);
    assert_eq!(shown[3], "hung in work");
    // Of the attempt that was followed by another, too.
    assert_eq!(scene.daemon.times_logged(AUTOPSY), 2);
    let logged = scene.daemon.logged(AUTOPSY);
    assert!(
        field(&logged, "output").contains("hung in work"),
        "{logged}"
    );
    scene.finish();
}

fn a_worker_that_is_silent_is_looked_at_too() {
    let pool = looked_at(&["echo", "looked at {pid}"]).text("stall_timeout", "200ms");
    let scene = Scene::of(pool.attempts(1));
    scene.send(&["mode:hang"]);
    let pid = scene.daemon.has_workers(1)[0];
    let dead = scene.one_dead();
    assert_eq!(dead.reason, "stalled");
    assert_eq!(dead.stderr.last().unwrap(), &format!("looked at {pid}"));
    scene.finish();
}

fn a_look_that_hangs_is_stopped_in_time_and_the_worker_killed() {
    let pool = pool("echo begun; exec sleep 1000").text("on_timeout_within", "300ms");
    let scene = Scene::of(pool.attempts(1));
    scene.send(&["mode:hang"]);
    let dead = scene.one_dead();
    let shown = &dead.stderr[dead.stderr.len() - 2..];
    let heading = "--- on_timeout: /bin/sh (it was stopped after 300ms)";
    assert_eq!(shown, [heading, "begun"]);
    // The program that looked is gone as well.
    scene.finish();
}

fn of_a_look_that_floods_the_end_is_kept() {
    let scene = Scene::of(pool("yes flooded").attempts(1));
    scene.send(&["mode:hang"]);
    let dead = scene.one_dead();
    let bytes: usize = dead.stderr.iter().map(String::len).sum();
    assert!(bytes < 9 << 10, "{bytes}");
    assert!(
        dead.stderr
            .iter()
            .any(|line| line.ends_with("bytes cut) …"))
    );
    assert_eq!(dead.stderr[dead.stderr.len() - 2], "flooded");
    scene.finish();
}

/// It may take longer than a test waits for anything.
fn a_program_that_is_not_there_holds_up_no_kill() {
    let pool = looked_at(&["/nonexistent/py-spy"])
        .text("timeout", "100ms")
        .text("timeout_grace", "0s")
        .text("on_timeout_within", "1m");
    let scene = Scene::of(pool.attempts(1));
    scene.send(&["mode:hang"]);
    let dead = scene.one_dead();
    assert_eq!(dead.reason, "timed_out");
    let logged = scene.daemon.logged(AUTOPSY);
    assert!(
        field(&logged, "problem").contains("/nonexistent/py-spy"),
        "{logged}"
    );
    scene.finish();
}

fn an_answer_during_the_look_counts_and_others_go_on() {
    let site = Workspace::new();
    let script = format!(
        "touch '{0}/go'; until [ -e '{0}/over' ]; do sleep 0.02; done; echo over",
        site.path("").display()
    );
    let pool = pool(&script)
        .set("workers", "2")
        .text("on_timeout_within", "1m");
    let scene = Scene::at(site, &[pool.attempts(1)]);
    scene.send(&["mode:wait:go"]);
    scene.begun(&["mode:wait:go"]);
    scene.send(&["another", "and another"]);
    // Its worker is looked at until we say so, and its message is done meanwhile.
    scene.all_done();
    assert_eq!(scene.daemon.times_logged(AUTOPSY), 0);
    scene.site.touch("over");
    scene.daemon.logged("worker lost");
    assert_eq!(scene.daemon.times_logged(AUTOPSY), 1);
    let record = scene.record();
    record.assert_done_once(&["mode:wait:go", "another", "and another"]);
    assert_eq!(record.all(Event::Began).len(), 3, "none was begun twice");
    scene.finish();
}

/// The one that was silent is done, and the one behind it, which hangs, is begun when the worker is
/// killed: its own time comes, with another worker.
fn what_is_begun_during_the_look_is_not_charged_for_the_stall_before_it() {
    let site = Workspace::new();
    let script = format!(
        "touch '{0}/go'; until [ -e '{0}/over' ]; do sleep 0.02; done",
        site.path("").display()
    );
    let pool = looked_at(&["/bin/sh", "-c", &script])
        .text("stall_timeout", "500ms")
        .text("on_timeout_within", "1m")
        .set("pipeline", "2");
    let scene = Scene::at(site, &[pool.attempts(1)]);
    scene.send(&["warm up"]);
    scene.all_done();
    scene.send(&["mode:wait:go", "mode:hang"]);
    scene.begun(&["mode:hang"]);
    scene.site.touch("over");
    let dead = scene.one_dead();
    assert_eq!(
        (dead.reason.as_str(), dead.body, dead.attempts),
        ("stalled", "mode:hang".to_owned().into(), 1)
    );
    let record = scene.record();
    record.assert_done_once(&["warm up", "mode:wait:go"]);
    let began = record.of(Event::Began, "mode:hang").len();
    assert_eq!(began, 2, "the first time is not charged");
    scene.finish();
}
