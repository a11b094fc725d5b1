//! Tests of a worker's environment and limits.

use std::collections::BTreeMap;

use nix::unistd::{Uid, User};

use super::*;
use crate::worker::process::SpawnError;

#[test]
fn the_environment_is_the_configured_one_and_ours() {
    on_a_pool_thread(async {
        let mut command = shell("exec env >&2");
        command.env.insert("COLOUR".into(), "blue".into());
        let lines = stderr_of(&command).await;
        let mut env: BTreeMap<&str, &str> = lines
            .iter()
            .map(|line| line.split_once('=').unwrap())
            .collect();
        for the_shells_own in ["PWD", "OLDPWD", "SHLVL", "_"] {
            env.remove(the_shells_own);
        }
        let pipe = env.remove("GANGER_PIPE").unwrap();
        assert!(pipe.starts_with("/tmp/CoreFxPipe_"), "{pipe}");
        let frame_bytes_max = FRAME_BYTES_MAX.to_string();
        let expected = [
            ("COLOUR", "blue"),
            ("GANGER_FRAME_BYTES_MAX", frame_bytes_max.as_str()),
            ("GANGER_POOL", "tests"),
            ("GANGER_PROTOCOL", "2"),
            ("GANGER_WORKER", "3"),
            ("PATH", "/usr/local/bin:/usr/bin:/bin"),
        ];
        assert_eq!(env, expected.into());
    });
}

#[test]
fn a_relative_program_is_taken_from_the_workers_directory() {
    on_a_pool_thread(async {
        let directory = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/bin/sh", directory.path().join("interpreter")).unwrap();
        let mut command = command("./interpreter", &["-c", "pwd -P >&2"]);
        command.cwd = Some(directory.path().into());
        let expected = directory.path().canonicalize().unwrap();
        assert_eq!(stderr_of(&command).await, [expected.to_str().unwrap()]);
    });
}

#[test]
fn limits_hold() {
    on_a_pool_thread(async {
        let mut command = shell(
            "ulimit -n >&2; ulimit -d >&2; nice >&2
            test ! -e /proc/self/autogroup || cat /proc/self/autogroup >&2",
        );
        command.limits = Limits {
            memory_bytes: Some(512 * 1024 * 1024),
            open_files: Some(77),
            cpu_nice: Some(19),
        };
        let lines = stderr_of(&command).await;
        assert_eq!(lines[..3], ["77", "524288", "19"]);
        // The kernel need not support it, and accepts it at any time from root only.
        if let (Some(session), true) = (lines.get(3), Uid::effective().is_root()) {
            assert!(session.ends_with(" nice 19"), "{session}");
        }
    });
}

#[test]
fn a_worker_becomes_its_user_with_that_users_groups() {
    on_a_pool_thread(async {
        if !Uid::effective().is_root() {
            return changing_user_is_refused().await;
        }
        let mut command = shell("id -u >&2; id -G >&2");
        command.user = Some("nobody".into());
        let nobody = User::from_name("nobody").unwrap().unwrap();
        let words = stderr_of(&command).await;
        assert_eq!(words[0], nobody.uid.to_string());
        assert_eq!(words[1], nobody.gid.to_string());
    });
}

/// Only its owner may reopen a pipe, as programs without `dup2` do to move it.
#[test]
fn a_worker_of_another_user_can_open_its_stdin_anew() {
    on_a_pool_thread(async {
        let mut command = shell("exec 5</proc/self/fd/0 && echo opened >&2");
        command.user = Uid::effective().is_root().then(|| "nobody".into());
        assert_eq!(stderr_of(&command).await, ["opened"]);
    });
}

async fn changing_user_is_refused() {
    let mut command = shell("exit 0");
    command.user = Some("root".into());
    let command = std::sync::Arc::new(command);
    let spawned = spawn(
        &SPAWNER,
        &command,
        &identity(),
        Introduction::Full,
        FRAME_BYTES_MAX,
    )
    .await;
    let error = spawned.unwrap_err();
    // The pipe is created first, and changing its owner is refused as changing the user would be.
    assert!(matches!(error, SpawnError::Pipe(_)), "{error}");
    let text = "giving a worker's pipe to its user failed: Operation not permitted, the privileges \
                are missing";
    assert!(error.to_string().starts_with(text), "{error}");
}

#[test]
fn a_worker_leads_a_session_of_its_own() {
    on_a_pool_thread(async {
        let script = "echo $$ >&2; cut -d ' ' -f 5,6 /proc/$$/stat >&2";
        let lines = stderr_of(&shell(script)).await;
        let pid = &lines[0];
        assert_eq!(lines[1], format!("{pid} {pid}"));
    });
}

#[test]
fn a_workers_own_user_needs_no_privileges() {
    on_a_pool_thread(async {
        let own = User::from_uid(Uid::effective()).unwrap().unwrap();
        let mut command = shell("id -un >&2");
        command.user = Some(own.name.clone());
        assert_eq!(stderr_of(&command).await, [own.name]);
    });
}

#[test]
fn a_worker_inherits_no_file_but_its_standard_streams() {
    use nix::fcntl::{FcntlArg, FdFlag, fcntl};
    on_a_pool_thread(async {
        let left_open = std::fs::File::open("/dev/null").unwrap();
        fcntl(&left_open, FcntlArg::F_SETFD(FdFlag::empty())).unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&left_open);
        let look = format!("if [ -e /proc/$$/fd/{number} ]; then echo inherited >&2; fi");
        assert!(stderr_of(&shell(&look)).await.is_empty());
    });
}
