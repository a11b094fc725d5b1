//! The dashboard in a real browser: Chromium, driven by the flows of `tests/browser`.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::Signal;

use super::{command, site};
use crate::harness::{Pool, Scene, Workspace, trials};
use crate::jobs::bury;
use crate::ledger::{schedule, trigger};
use crate::servers::process::free_port;

trials![
    pages_are_accessible_and_fit_a_phone,
    two_operators_see_the_same,
    forms_work_without_a_script,
    a_token_logs_in,
    a_form_is_sent_once,
    a_change_before_the_stream_is_shown,
    a_pool_that_is_gone_is_told,
    keys_lead_to_pages,
    a_definition_that_was_edited_stays,
    a_search_is_completed,
    times_are_those_of_the_reader,
    pages_are_printed,
    pages_are_usable_over_a_slow_link,
    what_is_in_use_is_left_alone,
    of_two_operators_the_later_one_is_told,
    a_message_that_waits_is_seen_and_cancelled,
    a_job_is_followed_and_cancelled,
    an_alert_is_silenced_and_told_again,
    what_a_run_writes_is_read_live,
    a_daemon_that_was_restarted_is_found_again,
    pages_are_below_the_path_of_a_proxy,
];

/// A schedule, so that there is a ledger.
const LEDGER: &str = "[[schedules]]\nname = \"nightly\"\nqueue = \"work\"\ncron = \"30 2 * * *\"\n";

fn pools() -> [Pool; 1] {
    [Pool::new(&[]).after(LEDGER)]
}

fn scene() -> Scene {
    at(site(""))
}

fn at(site: Workspace) -> Scene {
    let pools = pools();
    let scene = Scene::at(site, &pools);
    scene.site.configure_commands(&pools);
    scene.daemon.entered();
    scene
}

/// A site whose daemon has a port of its own, and more settings.
fn site_at(port: u16, settings: &str) -> Workspace {
    let sections = format!(
        "[sources.main]\nkind = \"table\"\nurl = \"sqlite:queue.db\"\n\
         [admin]\nlisten = \"127.0.0.1:{port}\"\n{settings}\n"
    );
    Workspace::make("", &sections)
}

/// A flow in a browser that is logged in.
fn begin(scene: &Scene, flow: &str) -> Child {
    let url = command(scene, &["open", "--print"]).good();
    let prepared = |variable: &str| {
        let path = std::env::var_os(variable).map(PathBuf::from);
        path.unwrap_or_else(|| panic!("{variable} is not set: run tests/run"))
    };
    let flows = prepared("GANGER_TEST_BROWSER").join("flows.mjs");
    let node = prepared("GANGER_TEST_PRODUCERS").join("node/bin/node");
    let mut command = Command::new(node);
    command.arg(flows).args([flow, url.trim()]);
    command.arg(scene.site.path("told")).stderr(Stdio::piped());
    command.spawn().unwrap()
}

fn end(flow: Child) {
    let ended = flow.wait_with_output().unwrap();
    assert!(
        ended.status.success(),
        "{}",
        String::from_utf8_lossy(&ended.stderr)
    );
}

fn run(flow: &str) {
    let scene = scene();
    end(begin(&scene, flow));
    scene.finish();
}

fn pages_are_accessible_and_fit_a_phone() {
    let scene = scene();
    // A schedule has results then.
    trigger(&scene.site, "nightly");
    let later = [
        "send",
        "work",
        "{\"order\": 17}",
        "--delay",
        "1h",
        "-H",
        "tenant=blue",
    ];
    command(&scene, &later).good();
    end(begin(&scene, "pages"));
    scene.finish();
}

fn two_operators_see_the_same() {
    run("operator");
}

fn forms_work_without_a_script() {
    run("without_script");
}

fn a_token_logs_in() {
    let scene = at(site("token = \"that-of-the-browser\""));
    end(begin(&scene, "token"));
    scene.finish();
}

fn a_pool_that_is_gone_is_told() {
    let scene = scene();
    let flow = begin(&scene, "gone");
    let told = scene.site.path("told");
    scene.daemon.eventually("a page", || told.exists());
    let other = Pool::new(&[]).text("name", "other").after(LEDGER);
    scene.site.reconfigure(&scene.daemon, &[other]);
    scene.daemon.signal(Signal::SIGHUP);
    scene.daemon.logged("configuration reloaded");
    end(flow);
    scene.finish();
}

fn a_form_is_sent_once() {
    paused("twice");
}

fn a_change_before_the_stream_is_shown() {
    paused("before_stream");
}

fn a_definition_that_was_edited_stays() {
    run("by_hand");
}

fn keys_lead_to_pages() {
    run("keys");
}

fn a_search_is_completed() {
    run("completion");
}

fn times_are_those_of_the_reader() {
    let scene = scene();
    command(&scene, &["schedule", "pause", "nightly"]).good();
    end(begin(&scene, "zones"));
    scene.finish();
}

fn pages_are_printed() {
    let scene = scene();
    trigger(&scene.site, "nightly");
    end(begin(&scene, "print"));
    scene.finish();
}

fn pages_are_usable_over_a_slow_link() {
    run("slow_link");
}

fn what_is_in_use_is_left_alone() {
    let scene = scene();
    let flow = begin(&scene, "in_use");
    let told = scene.site.path("told");
    scene
        .daemon
        .eventually("a number to be typed", || told.exists());
    command(&scene, &["pause", "work"]).good();
    end(flow);
    scene.finish();
}

fn of_two_operators_the_later_one_is_told() {
    let scene = Scene::at(site(""), &[Pool::new(&[]).attempts(1)]);
    scene.site.configure_commands(&[Pool::new(&[])]);
    let hostile =
        "mode:answer:400 <img src=x onerror=globalThis.hacked=1><script>hacked=1</script>";
    scene.send(&[hostile]);
    let dead = || scene.table.dead().len() == 1;
    scene.daemon.eventually("it to be dead", dead);
    end(begin(&scene, "dead_letter"));
    scene.finish();
}

fn a_message_that_waits_is_seen_and_cancelled() {
    paused("waiting");
}

/// Runs a flow while the pool is paused.
fn paused(flow: &str) {
    let scene = scene();
    command(&scene, &["pause", "work"]).good();
    end(begin(&scene, flow));
    scene.finish();
}

fn a_job_is_followed_and_cancelled() {
    let scene = scene();
    bury(&scene, 200);
    end(begin(&scene, "job"));
    scene.finish();
}

fn an_alert_is_silenced_and_told_again() {
    let scene = at(site(
        "[alerts]\nwebhook = \"http://127.0.0.1:1/\"\npaused = \"1s\"\n",
    ));
    command(&scene, &["pause", "work"]).good();
    end(begin(&scene, "silence"));
    scene.finish();
}

fn what_a_run_writes_is_read_live() {
    let keys = "at = \"2100-01-01T00:00:00\"\nbody = \"mode:print:one,wait:go,print:two\"";
    let pools = [Pool::new(&["--v2=1"]).after(&schedule("logs", keys))];
    let scene = Scene::at(site(""), &pools);
    scene.site.configure_commands(&pools);
    scene.daemon.entered();
    trigger(&scene.site, "logs");
    let flow = begin(&scene, "run");
    let told = scene.site.path("told");
    let is_told = || told.exists();
    scene
        .daemon
        .eventually("the first line to be read", is_told);
    scene.site.touch("go");
    end(flow);
    scene.finish();
}

fn a_daemon_that_was_restarted_is_found_again() {
    let port = free_port();
    let mut scene = at(site_at(port, ""));
    let flow = begin(&scene, "restart");
    let told = scene.site.path("told");
    scene
        .daemon
        .eventually("a page to be open", || told.exists());
    scene.daemon.signal(Signal::SIGTERM);
    scene.daemon.exit();
    scene.daemon.eventually("the page to say so", || {
        fs::read_to_string(&told).unwrap() == "lost"
    });
    scene.daemon = scene.site.start(&pools());
    end(flow);
    scene.finish();
}

fn pages_are_below_the_path_of_a_proxy() {
    let port = free_port();
    let url = format!("public_url = \"http://127.0.0.1:{port}/tools/ganger\"");
    let scene = at(site_at(port, &url));
    end(begin(&scene, "below_a_path"));
    scene.finish();
}
