//! Releases in directories of their own, with a link to the newest one, in which the daemon is started.

use std::fs;
use std::os::unix::fs::symlink;

use nix::sys::signal::Signal;

use crate::harness::{Event, Launch, NewMessage, Pool, Workspace, trials};
use crate::modes_worker;

trials![
    what_is_started_or_read_after_the_link_was_changed_is_the_new_release,
    a_worker_without_a_directory_of_its_own_starts_in_the_new_release,
];

/// Enters the release that is there, as a shell does, and has the configuration there.
const IN_CURRENT: Launch = Launch {
    through: &[
        "sh",
        "-c",
        r#"cd "$(dirname "$3")/current" && cp "$3" ganger.toml && export PWD && exec "$0" run -c ganger.toml"#,
    ],
    args: &[],
};

/// Two releases, the first of which is the current one.
fn site() -> Workspace {
    let url = "[sources.main]\nkind = \"table\"\nurl = \"sqlite:../queue.db\"";
    let site = Workspace::make("", url);
    for release in ["one", "two"] {
        fs::create_dir(site.path(release)).unwrap();
        symlink(
            std::env::current_exe().unwrap(),
            site.path(release).join("worker"),
        )
        .unwrap();
    }
    symlink("one", site.path("current")).unwrap();
    site
}

fn deploy(site: &Workspace) {
    let text = fs::read_to_string(site.path("one/ganger.toml")).unwrap();
    let text = text.replace("RELEASE = \"one\"", "RELEASE = \"two\"");
    fs::write(site.path("two/ganger.toml"), text).unwrap();
    symlink("two", site.path("next")).unwrap();
    fs::rename(site.path("next"), site.path("current")).unwrap();
}

fn pool() -> Pool {
    Pool::of_program("./worker", &[modes_worker::NAME]).env("RELEASE", "one")
}

fn what_is_started_or_read_after_the_link_was_changed_is_the_new_release() {
    let site = site();
    let daemon = site.launch(&[pool().text("cwd", ".")], IN_CURRENT);
    let noted = |body: &str| {
        site.table().insert(&[NewMessage::new(body)]);
        daemon.eventually(body, || !site.record().of(Event::Done, body).is_empty());
        let record = site.record();
        let noted = record.texts(Event::Noted).into_iter();
        noted.map(str::to_owned).collect::<Vec<_>>().pop().unwrap()
    };
    let cwd = |release: &str| {
        format!(
            "cwd={}",
            site.path(release).canonicalize().unwrap().display()
        )
    };
    assert_eq!(noted("mode:note:cwd first"), cwd("one"));
    deploy(&site);
    // The old release is kept for a while, and then it is gone.
    fs::remove_dir_all(site.path("one")).unwrap();
    daemon.signal(Signal::SIGUSR2);
    daemon.logged("rolling restart completed");
    assert_eq!(noted("mode:note:cwd second"), cwd("two"));
    assert_eq!(noted("mode:note:env:RELEASE second"), "env:RELEASE=one");
    daemon.signal(Signal::SIGHUP);
    daemon.logged("configuration reloaded");
    daemon.eventually("the new configuration", || {
        daemon.times_logged("rolling restart completed") == 2
    });
    assert_eq!(noted("mode:note:env:RELEASE third"), "env:RELEASE=two");
    daemon.stop();
}

fn a_worker_without_a_directory_of_its_own_starts_in_the_new_release() {
    let site = site();
    let daemon = site.launch(&[pool()], IN_CURRENT);
    daemon.has_workers(1);
    deploy(&site);
    fs::remove_dir_all(site.path("one")).unwrap();
    daemon.signal(Signal::SIGUSR2);
    daemon.logged("rolling restart completed");
    let body = "mode:note:cwd";
    site.table().insert(&[NewMessage::new(body)]);
    daemon.eventually("it to be done", || {
        !site.record().of(Event::Done, body).is_empty()
    });
    let there = site.path("two").canonicalize().unwrap();
    assert_eq!(
        site.record().texts(Event::Noted),
        [format!("cwd={}", there.display())]
    );
    daemon.stop();
}
