//! The daemon looked at and steered from outside: the API over its socket and the network, and the
//! commands that use it.

mod access;
mod browser;
mod cancel;
mod changes;
mod crowds;
mod daemons;
mod description;
mod elsewhere;
mod logins;
mod logs;
mod messages;
mod metrics;
mod pages;
mod pausing;
mod roles;
mod schedules;
mod steering;
mod tokens;
mod top;
mod waiting;

use libtest_mimic::Trial;
use serde_json::Value;

use crate::harness::{Api, Daemon, Pool, Ran, Scene, Workspace};

/// The tests of this module.
pub(crate) fn trials() -> Vec<Trial> {
    let parts = [
        access::trials(),
        cancel::trials(),
        changes::trials(),
        crowds::trials(),
        description::trials(),
        elsewhere::trials(),
        elsewhere::schedules::trials(),
        logins::trials(),
        logs::trials(),
        messages::trials(),
        metrics::trials(),
        pages::trials(),
        pausing::trials(),
        browser::trials(),
        daemons::trials(),
        roles::trials(),
        schedules::trials(),
        steering::trials(),
        top::trials(),
        waiting::trials(),
    ];
    parts.into_iter().flatten().collect()
}

/// A directory whose daemons have these lines under `[admin]`.
fn site(admin: &str) -> Workspace {
    site_with(r#"drain_timeout = "10s""#, admin)
}

/// Likewise with these under `[daemon]`.
fn site_with(daemon: &str, admin: &str) -> Workspace {
    let table = "[sources.main]\nkind = \"table\"\nurl = \"sqlite:queue.db\"";
    let admin = format!("{table}\n[admin]\nlisten = \"127.0.0.1:0\"\n{admin}");
    Workspace::make(daemon, &admin)
}

/// A daemon with that pool that listens on a port of its own.
fn scene(pool: Pool) -> Scene {
    Scene::at(site(""), &[pool])
}

/// Where it listens on the network, asked without a token.
fn open(daemon: &Daemon) -> Api {
    let listening = daemon.logs("listening", |record| record["key"] == "admin.listen");
    let address = listening["address"].as_str().unwrap().to_owned();
    Api::Port(address.rsplit_once(':').unwrap().1.parse().unwrap())
}

/// Likewise with the token that the daemon has made.
pub(crate) fn api(daemon: &Daemon) -> Api {
    let token = std::fs::read_to_string(socket(daemon).with_extension("token")).unwrap();
    Api::Authorized {
        port: open(daemon).port(),
        token: token.trim().to_owned(),
    }
}

/// Its socket.
pub(crate) fn socket(daemon: &Daemon) -> std::path::PathBuf {
    let listening = daemon.logs("listening", |record| record["key"] == "admin.socket");
    listening["path"].as_str().unwrap().into()
}

/// A command that asks that daemon.
fn command(scene: &Scene, args: &[&str]) -> Ran {
    let config = scene.daemon.config().to_str().unwrap().to_owned();
    scene.site.ganger(&[args, &["--config", &config]].concat())
}

/// How the only pool stands.
fn pool(api: &Api) -> Value {
    api.get("/v1/status").json()["pools"][0].clone()
}
