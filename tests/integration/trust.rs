//! A worker against the daemon that has started it.

use std::fs;
use std::os::unix::fs::chown;

use nix::unistd::{Uid, User};

use crate::admin::{api, socket};
use crate::harness::{Launch, Pool, Workspace, trials};

trials![
    a_worker_cannot_type_into_the_terminal_of_the_daemon,
    a_worker_of_the_same_user_reads_neither_environment_nor_memory_of_the_daemon,
    a_worker_of_another_user_has_no_way_into_the_admin_api,
];

/// A pool of Python programs that do this and then wait for the daemon to end them. Users without
/// privileges find this Python, too.
fn python(script: &str) -> Pool {
    let script = format!("{script}\nsys.stdin.read()");
    Pool::of_program("python3", &["-c", &script]).env("PATH", "/usr/local/bin:/usr/bin:/bin")
}

/// The daemon, as root, has its workers run as somebody else; Ctrl-C still ends it.
fn a_worker_cannot_type_into_the_terminal_of_the_daemon() {
    let script = "
import fcntl, os, sys, termios
try:
    terminal = os.open('/dev/tty', os.O_RDWR)
    fcntl.ioctl(terminal, termios.TIOCSTI, b'#')
    said = 'has typed'
except OSError as error:
    said = f'has no terminal: {error.errno}'
print(said, file=sys.stderr, flush=True)";
    let mut pool = python(script);
    if Uid::effective().is_root() {
        pool = pool.text("user", "nobody");
    }
    let sections =
        "[admin]\nlisten = \"off\"\n[sources.main]\nkind = \"table\"\nurl = \"sqlite:queue.db\"\n";
    let site = Workspace::with_sections(sections);
    site.configure_commands(&[pool.text("stop_timeout", "100ms")]);
    // No record is longer than its lines.
    let mut seat = site.seat((4096, 50), &["run"]);
    seat.shows("has no terminal: 6");
    seat.press("\u{3}");
    assert!(seat.left().success());
}

const AS_NOBODY: &[&str] = &[
    "setpriv",
    "--reuid=nobody",
    "--regid=nogroup",
    "--clear-groups",
    "--",
];

/// Root may read everything, so neither is root here.
fn a_worker_of_the_same_user_reads_neither_environment_nor_memory_of_the_daemon() {
    let site = Workspace::new();
    let mut launch = Launch::default();
    if Uid::effective().is_root() {
        let nobody = User::from_name("nobody").unwrap().unwrap();
        let owner = Some(nobody.uid.as_raw());
        chown(site.path(""), owner, None).unwrap();
        for entry in fs::read_dir(site.path("")).unwrap() {
            chown(entry.unwrap().path(), owner, None).unwrap();
        }
        launch.through = AS_NOBODY;
    }
    let script = "
import os, sys
daemon = os.getppid()
def read(name):
    try:
        return open(f'/proc/{daemon}/{name}', 'rb').read(1) and 'readable'
    except OSError as error:
        return error.strerror
print(*[f'{name}: {read(name)}' for name in ('environ', 'maps', 'mem')], sep='; ', file=sys.stderr)";
    let daemon = site.launch(&[python(script).text("stop_timeout", "100ms")], launch);
    let denied = "environ: Permission denied; maps: Permission denied; mem: Permission denied";
    daemon.logged(denied);
    daemon.stop();
}

/// Over TCP it has no token, and neither that nor the socket can be opened. A user who is not root can't start
/// workers of another.
fn a_worker_of_another_user_has_no_way_into_the_admin_api() {
    let script = r#"
import http.client, os, socket, sys, time
places = os.environ['PLACES']
while not os.path.exists(places):
    time.sleep(0.01)
port, path, token = open(places).read().split()
def errno(work):
    try:
        work()
        return 'no error'
    except OSError as error:
        return error.strerror
tcp = http.client.HTTPConnection('127.0.0.1', int(port))
tcp.request('GET', '/v1/dead/main', headers={'Authorization': 'Bearer '})
status = tcp.getresponse().status
unix = socket.socket(socket.AF_UNIX)
print(f'TCP: {status}; socket: {errno(lambda: unix.connect(path))}; '
      f'token: {errno(lambda: open(token))}', file=sys.stderr)"#;
    let sections = "[admin]\nlisten = \"127.0.0.1:0\"\n[sources.main]\nkind = \"table\"\nurl = \"sqlite:queue.db\"\n";
    let site = Workspace::with_sections(sections);
    let path = site.path("places");
    let mut pool = python(script).env("PLACES", path.to_str().unwrap());
    pool = pool.text("stop_timeout", "100ms");
    let is_root = Uid::effective().is_root();
    if is_root {
        pool = pool.text("user", "nobody");
    }
    let daemon = site.start(&[pool]);
    let (port, socket) = (api(&daemon).port(), socket(&daemon));
    let token = socket.with_extension("token");
    let places = format!("{port} {} {}", socket.display(), token.display());
    site.put("places", &places, false);
    daemon.logged(match is_root {
        true => "TCP: 401; socket: Permission denied; token: Permission denied",
        false => "TCP: 401; socket: no error; token: no error",
    });
    daemon.stop();
}
