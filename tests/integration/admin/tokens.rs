//! Daemons with named tokens, and sessions of browsers that have logged in with one.

use nix::sys::signal::Signal;

use super::{open, site};
use crate::harness::{Answer, Api, Pool, Scene};

pub(super) const FORM: &str = "Content-Type: application/x-www-form-urlencoded";

pub(super) const OWN_ORIGIN: &str = "Origin: http://localhost";

/// A token, and its section of the configuration.
pub(super) struct Made {
    pub(super) token: String,
    pub(super) section: String,
}

/// Makes a token with the command.
pub(super) fn made(name: &str, role: &str) -> Made {
    let ran = site("").ganger(&["token", "new", name, "--role", role, "-o", "json"]);
    let made = ran.json();
    let of = |key: &str| made[key].as_str().unwrap().to_owned();
    let sha256 = of("sha256");
    let section =
        format!("[[admin.tokens]]\nname = \"{name}\"\nrole = \"{role}\"\nsha256 = \"{sha256}\"\n");
    Made {
        token: of("token"),
        section,
    }
}

pub(super) fn pool(sections: &str) -> Pool {
    Pool::new(&[]).after(sections)
}

/// A daemon whose configuration has those sections.
pub(super) fn scene(sections: &str) -> Scene {
    scene_at("", sections)
}

/// Likewise, with lines under `[admin]`.
pub(super) fn scene_at(admin: &str, sections: &str) -> Scene {
    let scene = Scene::at(site(admin), &[pool(sections)]);
    scene.site.configure_commands(&[pool(sections)]);
    scene
}

pub(super) fn reload(scene: &Scene, sections: &str) {
    let times = scene.daemon.times_logged("configuration reloaded");
    scene.site.reconfigure(&scene.daemon, &[pool(sections)]);
    scene.daemon.signal(Signal::SIGHUP);
    scene.daemon.eventually("the reload", || {
        scene.daemon.times_logged("configuration reloaded") > times
    });
}

pub(super) fn with(scene: &Scene, token: &str) -> Api {
    Api::Authorized {
        port: open(&scene.daemon).port(),
        token: token.to_owned(),
    }
}

/// Logs in with the form: the answer.
pub(super) fn enter(scene: &Scene, token: &str, next: &str) -> Answer {
    let body = format!("token={token}&next={next}");
    open(&scene.daemon).ask("POST", "/ui/login", &[FORM, OWN_ORIGIN], &body)
}

pub(super) fn header(answer: &Answer, name: &str) -> String {
    let start = format!("{name}: ");
    let mut lines = answer.head.lines();
    let found = lines.find_map(|line| line.strip_prefix(&start));
    found
        .unwrap_or_else(|| panic!("no {name}: {answer:?}"))
        .to_owned()
}

/// The header with the session of an answer.
pub(super) fn session(answer: &Answer) -> String {
    let cookie = header(answer, "set-cookie");
    format!("Cookie: {}", cookie.split(';').next().unwrap())
}
