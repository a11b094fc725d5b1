//! Tests of workers' exits, and of the processes that are killed with them.

use futures_util::FutureExt;

use super::*;
use crate::worker::process::Signal;
use ganger_queue::delivery::Exit;

/// Reads stdin for ever.
const PATIENT: &str = "cat >/dev/null; exit 0";

fn code(code: i32) -> Exit {
    Exit {
        code: Some(code),
        ..Exit::default()
    }
}

fn signal(signal: i32) -> Exit {
    Exit {
        signal: Some(signal),
        ..Exit::default()
    }
}

#[test]
fn an_end_is_told_by_code_or_signal() {
    on_a_pool_thread(async {
        let cases = [
            ("exit 0", code(0)),
            ("exit 3", code(3)),
            ("kill -SEGV $$", signal(11)),
            ("kill -KILL $$", signal(9)),
        ];
        for (script, exit) in cases {
            let mut process = start(&shell(script)).await.process;
            assert_eq!(process.wait().await, exit, "{script}");
            assert_eq!(process.wait().await, exit, "asked again: {script}");
        }
    });
}

#[test]
fn waiting_can_be_given_up_and_taken_up_again() {
    on_a_pool_thread(async {
        let mut process = start(&shell(PATIENT)).await.process;
        for _ in 0..3 {
            let patience = Duration::from_millis(1);
            let waited = tokio::time::timeout(patience, process.wait()).await;
            assert!(waited.is_err(), "{waited:?}");
        }
        process.close_stdin();
        assert_eq!(process.wait().await, code(0));
    });
}

#[test]
fn signals_reach_the_group() {
    on_a_pool_thread(async {
        for (sent, expected) in [(Signal::Terminate, 15), (Signal::Kill, 9)] {
            let mut process = start(&shell(PATIENT)).await.process;
            process.signal_group(sent);
            assert_eq!(process.wait().await, signal(expected));
            process.signal_group(sent);
        }
    });
}

/// A signal to the group would not reach it outside the group.
#[test]
fn a_leader_cannot_leave_its_group() {
    on_a_pool_thread(async {
        let script = "setpgrp(0, getpgrp(getppid())) or print STDERR $!";
        let words = stderr_of(&command("perl", &["-e", script])).await;
        assert_eq!(words, ["Operation not permitted"]);
    });
}

#[test]
fn the_rest_of_the_group_dies_with_its_leader() {
    on_a_pool_thread(async {
        let script = "sleep 1000 & echo $! >&2; exit 3";
        // The grandchild holds stderr open: there is no end of file before it is dead.
        let words = stderr_of(&shell(script)).await;
        until_gone(words[0].parse().unwrap()).await;
    });
}

#[test]
fn a_dropped_worker_is_killed_and_reaped() {
    on_a_pool_thread(async {
        let process = start(&shell(PATIENT)).await.process;
        let pid = process.pid();
        drop(process);
        until_gone(pid).await;
        let zombie = format!("/proc/{pid}");
        while std::fs::exists(&zombie).unwrap() {
            tokio::task::yield_now().await;
        }
    });
}

/// The kernel would kill the worker if it had been started on that thread.
#[test]
fn a_worker_outlives_the_thread_that_asked_for_it() {
    let asked = std::thread::spawn(|| {
        on_a_pool_thread(async {
            let process = start(&command("sleep", &["1000"])).await.process;
            let pid = process.pid();
            std::mem::forget(process);
            pid
        })
    });
    let pid = asked.join().unwrap();
    on_a_pool_thread(async {
        // A signal would have arrived by the time at which another worker has come and gone.
        drop(stderr_of(&shell("exit 0")).await);
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        assert!(!stat.contains(") Z "), "{stat}");
        let pid = nix::unistd::Pid::from_raw(pid.try_into().unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::SIGKILL).unwrap();
    });
}

#[test]
fn a_start_that_is_given_up_leaves_no_process() {
    on_a_pool_thread(async {
        let directory = tempfile::tempdir().unwrap();
        // A directory is created atomically, unlike a file.
        let script = format!("mkdir '{}'/$$; exec sleep 1000", directory.path().display());
        // Repeated if the worker is up before the first poll returns.
        while start(&shell(&script)).now_or_never().is_some() {}
        // The thread that starts workers has finished all earlier jobs.
        drop(stderr_of(&shell("exit 0")).await);
        for pid in std::fs::read_dir(directory.path()).unwrap() {
            let pid = pid.unwrap().file_name().into_string().unwrap();
            until_gone(pid.parse().unwrap()).await;
        }
    });
}

#[test]
fn a_grandchild_that_left_the_group_holds_nobody_up() {
    on_a_pool_thread(async {
        // The shell continues when the grandchild, in a session of its own, has redirected its stdout from
        // the substitution to stderr.
        let script = "pid=$(setsid sh -c 'echo $$; exec >&2; exec sleep 1000' &)
            echo $pid >&2; exit 1";
        let mut process = start(&shell(script)).await.process;
        assert_eq!(process.wait().await, code(1));
        let words = process.last_words(Duration::from_millis(200)).await;
        let grandchild = words[0].parse().unwrap();
        let grandchild = nix::unistd::Pid::from_raw(grandchild);
        nix::sys::signal::kill(grandchild, nix::sys::signal::SIGKILL).unwrap();
    });
}

#[test]
fn the_last_64_lines_of_stderr_are_kept() {
    on_a_pool_thread(async {
        let script = "i=0; while [ $i -lt 100 ]; do echo line $i >&2; i=$((i+1)); done
            printf '%2000s' unended >&2";
        let words = stderr_of(&shell(script)).await;
        assert_eq!(words.len(), 64);
        assert_eq!(words[0], "line 37");
        assert_eq!(words[62], "line 99");
        assert_eq!(words[63].len(), 1024);
    });
}

#[test]
fn memory_is_told_while_it_lives() {
    on_a_pool_thread(async {
        let mut process = start(&shell(PATIENT)).await.process;
        assert!(process.resident_bytes().unwrap() > 4096);
        process.signal_group(Signal::Kill);
        process.wait().await;
        assert_eq!(process.resident_bytes(), None);
    });
}

#[test]
fn a_closed_stdin_is_told() {
    on_a_pool_thread(async {
        let mut process = start(&shell("exit 0")).await.process;
        process.wait().await;
        assert!(!process.tell("__quit__"));
        process.close_stdin();
        assert!(!process.tell("__quit__"));
        assert!(!process.tell(&"x".repeat(512)));
    });
}
