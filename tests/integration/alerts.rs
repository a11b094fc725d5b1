//! Alerts by webhook: the real daemon, and a server of the tests' own that it tells.

mod kinds;
mod silences;
mod webhooks;

use std::fs;

use libtest_mimic::Trial;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::harness::{Daemon, Hook, Pool, Scene, Workspace};

/// The tests of this module.
pub(crate) fn trials() -> Vec<Trial> {
    let parts = [kinds::trials(), silences::trials(), webhooks::trials()];
    parts.into_iter().flatten().collect()
}

const DEGRADED: &str = "firing pool_degraded";
const IS_DEGRADED: &str = "pool degraded: its workers keep failing; starting one at a time";
const WORKS: &str = "resolved pool_degraded";
const AWAY: &str = "the webhook does not accept alerts: they are sent again until it does";
const TABLE: &str = "[sources.main]\nkind = \"table\"\nurl = \"sqlite:queue.db\"\n";

/// The section for that webhook; it is told at once.
fn section(hook: &Hook, more: &str) -> String {
    let url = Value::from(hook.url());
    format!("[alerts]\nwebhook = {url}\nhold = \"0s\"\nwindow = \"2s\"\n{more}\n")
}

fn site(alerts: &str) -> Workspace {
    Workspace::with_sections(&format!("{TABLE}{alerts}"))
}

fn scene(hook: &Hook, more: &str, pools: &[Pool]) -> Scene {
    Scene::at(site(&section(hook, more)), pools)
}

/// Workers that exit at once until the file `up` is in the directory.
fn broken() -> Pool {
    gated("--start=exit:3")
}

/// Workers that have that option until the file `up` is in the directory.
fn gated(option: &str) -> Pool {
    let script = "if [ -e \"$(dirname \"$RECORD\")/up\" ]; then exec \"$@\"; fi; \
                  exec \"$@\" \"$OPTION\"";
    let worker = std::env::current_exe().unwrap();
    let worker = worker.to_str().unwrap();
    let args = ["-c", script, "sh", worker, crate::modes_worker::NAME];
    Pool::of_program("/bin/sh", &args).env("OPTION", option)
}

/// Starts a daemon whose only pool is degraded; it may have come to that already.
fn degraded(hook: &Hook, more: &str) -> Scene {
    scene(hook, &format!("crashes = \"off\"\n{more}"), &[broken()])
}

/// Messages that it was told, but for those about workers that can't start.
fn told(hook: &Hook) -> Vec<String> {
    let told = hook.told().into_iter();
    told.filter(|it| !it.ends_with(" workers_not_starting"))
        .collect()
}

/// Nothing in the log tells the secret parts of the webhook's URL.
fn keeps_the_secret(daemon: &Daemon) {
    let tells = daemon.records(|record| record.to_string().contains("s3cret"));
    assert!(tells.is_empty(), "{tells:#?}");
}

fn reload(scene: &Scene) {
    let times = scene.daemon.times_logged("configuration reloaded");
    scene.daemon.signal(Signal::SIGHUP);
    scene.daemon.eventually("the reload", || {
        scene.daemon.times_logged("configuration reloaded") > times
    });
}

/// Writes another text into its configuration in place of one, and has it read.
fn change(scene: &Scene, old: &str, new: &str) {
    let config = scene.daemon.config();
    let text = fs::read_to_string(config).unwrap();
    assert!(text.contains(old), "no {old:?} in {text}");
    fs::write(config, text.replace(old, new)).unwrap();
    reload(scene);
}
