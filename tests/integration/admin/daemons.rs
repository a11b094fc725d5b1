//! Several daemons in one view.

use nix::sys::signal::Signal;
use serde_json::Value;

use super::{api, command, site};
use crate::harness::{Api, Pool, Scene, trials};

trials![peers_are_shown_also_when_they_are_gone];

fn daemons(scene: &Scene) -> Vec<Value> {
    let daemons = api(&scene.daemon).get("/v1/daemons").json();
    daemons.as_array().unwrap().clone()
}

/// Returns the page of daemons.
fn page(scene: &Scene) -> String {
    api(&scene.daemon).get("/ui/daemons").body
}

fn peers_are_shown_also_when_they_are_gone() {
    let other = Scene::at(site(""), &[Pool::new(&[]).text("name", "theirs")]);
    let Api::Authorized { port, token } = api(&other.daemon) else {
        panic!("it listens on a port, and wants a token");
    };
    let peers = format!(
        "[admin.peers.other]\nurl = \"http://127.0.0.1:{port}\"\ntoken = \"{token}\"\n\
         [admin.peers.stranger]\nurl = \"http://127.0.0.1:{port}\"\ntoken = \"wrong\"\n"
    );
    let pools = [Pool::new(&[]).after(&peers)];
    let scene = Scene::at(site(""), &pools);
    scene.site.configure_commands(&pools);
    // A busy one answers later.
    let shown = scene.daemon.eventually_some("the peers to answer", || {
        let shown = daemons(&scene);
        let problem = shown[2]["problem"].as_str().unwrap_or_default();
        let is_refused = problem.contains("Authorization: Bearer");
        (is_refused && shown[1]["status"].is_object()).then_some(shown)
    });
    assert_eq!(shown[0]["url"], Value::Null);
    assert_eq!(shown[0]["status"]["pools"][0]["name"], "work");
    assert_eq!(shown[1]["name"], "other");
    assert_eq!(shown[1]["status"]["pools"][0]["name"], "theirs");
    assert_eq!(shown[1]["problem"], Value::Null);
    assert_eq!(shown[2]["name"], "stranger");
    assert_eq!(shown[2]["status"], Value::Null);
    assert!(page(&scene).contains(">theirs</a>"));
    // No secret is printed.
    let printed = command(&scene, &["config", "print"]).good();
    assert!(!printed.contains(&token), "{printed}");
    other.daemon.signal(Signal::SIGTERM);
    other.daemon.exit();
    // An answer is good for two seconds.
    let gone = scene.daemon.eventually_some("it to be missed", || {
        let other = daemons(&scene).swap_remove(1);
        other["problem"].is_string().then_some(other)
    });
    assert_eq!(gone["status"]["pools"][0]["name"], "theirs");
    let problem = gone["problem"].as_str().unwrap();
    assert!(problem.contains("connecting to"), "{problem}");
    assert!(page(&scene).contains("connecting to"));
    scene.finish();
}
