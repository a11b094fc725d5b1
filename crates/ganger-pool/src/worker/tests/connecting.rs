//! Tests of connecting: from the name on stdin to frames over the pipe.

use std::fs::DirEntry;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use bytes::{BufMut, Bytes};
use nix::unistd::{Uid, User};

use super::*;
use crate::worker::connection::{Connection, Received};
use crate::worker::error::PipeError;
use ganger_queue::delivery::Exit;

/// Beginning of Python programs that connect like a version 1 worker; the test's script follows.
const CONNECT: &str = "
import os, socket, struct, sys
name = sys.stdin.buffer.readline().strip().decode()
pipe = socket.socket(socket.AF_UNIX)
def connect(directory='/tmp'):
    pipe.connect(directory + '/CoreFxPipe_' + name)
def read():
    head = pipe.recv(4, socket.MSG_WAITALL)
    return head and pipe.recv(struct.unpack('>I', head)[0], socket.MSG_WAITALL)
def write(body):
    pipe.sendall(struct.pack('>I', len(body)) + body)
def echo():
    while body := read():
        write(body)
";

fn python(script: &str) -> WorkerCommand {
    command("python3", &["-c", &format!("{CONNECT}\n{script}")])
}

async fn exchange(connection: &mut Connection, body: &[u8]) -> Option<Bytes> {
    connection
        .outgoing()
        .put_u32(body.len().try_into().unwrap());
    connection.outgoing().put_slice(body);
    loop {
        connection.flush().unwrap();
        if let Some(frame) = connection.next_frame().unwrap() {
            return Some(frame);
        }
        connection.ready().await.unwrap();
        if connection.receive().unwrap() == Received::Eof {
            return None;
        }
    }
}

/// Connects, exchanges frames both ways, and ends at the daemon's end of file; the paths are removed with the
/// connection.
async fn works(command: &WorkerCommand) {
    let Starting {
        mut process,
        mut listener,
    } = start(command).await;
    let path = listener.path().to_owned();
    let mut connection = listener.accept().await.unwrap();
    assert!(!path.exists(), "{}", path.display());
    assert_eq!(exchange(&mut connection, b"hello").await.unwrap(), "hello");
    let big = vec![5; 700_000];
    assert_eq!(exchange(&mut connection, &big).await.unwrap(), big);
    assert_eq!(connection.sent_total(), 5 + 700_000 + 8);
    connection.finish_sending();
    assert_eq!(process.wait().await.code, Some(0));
    let error = listener.accept().await.unwrap_err();
    assert!(matches!(error, PipeError::Taken { .. }), "{error}");
}

#[test]
fn a_worker_is_told_its_pipe_and_exchanges_frames() {
    on_a_pool_thread(works(&python("connect(); echo()")));
}

#[test]
fn a_workers_child_may_connect_for_it() {
    on_a_pool_thread(works(&python(
        "
child = os.fork()
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
os.setsid()
connect(); echo()",
    )));
}

#[test]
fn a_worker_of_another_user_can_open_its_pipe() {
    let mut command = python("connect(); echo()");
    // Without privileges there is no such worker; confinement.rs tests the refusal.
    command.user = Uid::effective().is_root().then(|| "nobody".into());
    on_a_pool_thread(works(&command));
}

#[test]
fn a_worker_that_looks_below_tmpdir_finds_its_pipe() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = python("connect(os.environ['TMPDIR']); echo()");
    let path = directory.path().to_str().unwrap().to_owned();
    command.env.insert("TMPDIR".into(), path);
    on_a_pool_thread(works(&command));
    assert_eq!(directory.path().read_dir().unwrap().count(), 0);
}

/// If the daemon created the link, it could do so where the worker's user may not write, and could change the
/// owner of a file that this user has put in its place.
#[test]
fn the_link_below_tmpdir_is_made_by_the_workers_user() {
    if !Uid::effective().is_root() {
        // In that case there is no user but the daemon's.
        return;
    }
    let nobody = User::from_name("nobody").unwrap().unwrap().uid;
    let owners = |owner: Uid| {
        let directory = tempfile::tempdir().unwrap();
        chown(directory.path(), Some(owner.as_raw()), None).unwrap();
        let mut command = shell("read name");
        command.user = Some("nobody".into());
        let path = directory.path().to_str().unwrap().to_owned();
        command.env.insert("TMPDIR".into(), path);
        on_a_pool_thread(async {
            let starting = start(&command).await;
            let links = directory.path().read_dir().unwrap();
            let owner = |link: io::Result<DirEntry>| link.unwrap().metadata().unwrap().uid();
            let owners: Vec<u32> = links.map(owner).collect();
            drop(starting);
            assert_eq!(directory.path().read_dir().unwrap().count(), 0);
            owners
        })
    };
    assert_eq!(owners(nobody), [nobody.as_raw()]);
    assert_eq!(owners(Uid::effective()), [0; 0], "in a directory of root's");
}

#[test]
fn a_tmpdir_that_is_not_there_does_not_matter_to_others() {
    let mut command = python("connect(); echo()");
    command.env.insert("TMPDIR".into(), "/no/such/place".into());
    on_a_pool_thread(works(&command));
}

#[test]
fn a_stranger_is_turned_away_and_the_worker_still_let_in() {
    on_a_pool_thread(async {
        let Starting {
            mut process,
            mut listener,
        } = start(&python("sys.stdin.readline(); connect(); echo()")).await;
        // The test is the worker's parent, which the worker has not started.
        let mut stranger = UnixStream::connect(listener.path()).unwrap();
        assert!(process.tell("now you"));
        let mut connection = listener.accept().await.unwrap();
        assert_eq!(stranger.read(&mut [0; 1]).unwrap(), 0);
        assert_eq!(exchange(&mut connection, b"mine").await.unwrap(), "mine");
    });
}

#[test]
fn the_paths_go_with_a_worker_that_never_connects() {
    on_a_pool_thread(async {
        let directory = tempfile::tempdir().unwrap();
        let mut command = shell("exit 1");
        let path = directory.path().to_str().unwrap().to_owned();
        command.env.insert("TMPDIR".into(), path);
        let starting = start(&command).await;
        let path: PathBuf = starting.listener.path().into();
        assert!(path.exists());
        assert_eq!(directory.path().read_dir().unwrap().count(), 1);
        drop(starting);
        assert!(!path.exists());
        assert_eq!(directory.path().read_dir().unwrap().count(), 0);
    });
}

#[test]
fn a_full_stdin_never_waits_and_holds_whole_lines_only() {
    on_a_pool_thread(async {
        let script = "
connect()
read()
lines = sys.stdin.buffer.read().split(b'\\n')
assert lines.pop() == b'' and set(lines) == {b'x' * 100}, lines
write(str(len(lines)).encode())";
        let Starting {
            mut process,
            mut listener,
        } = start(&python(script)).await;
        let mut connection = listener.accept().await.unwrap();
        let line = "x".repeat(100);
        let told = (0..1_000_000).take_while(|_| process.tell(&line)).count();
        assert!(told < 1_000_000, "a pipe is never that large");
        process.close_stdin();
        let counted = exchange(&mut connection, b"count").await.unwrap();
        assert_eq!(counted, told.to_string());
        let done = Exit {
            code: Some(0),
            ..Exit::default()
        };
        assert_eq!(process.wait().await, done);
    });
}
