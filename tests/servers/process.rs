//! A server's process: it ends with the tests, however they end. What kind of server it is, this
//! file does not know.

use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Where ports are looked for: below those that the kernel gives to clients, one of which could
/// else take a server's port while that is being restarted.
const PORTS: std::ops::Range<u16> = 10_000..32_000;

/// The process. Dropped, it is killed.
pub(crate) struct Server {
    pid: Pid,
    child: Mutex<Child>,
    /// Held until the process may end: see [`spawn`].
    _keeper: SyncSender<()>,
}

impl Server {
    /// Starts a program, which must not fork into the background; `kill -9` on the tests ends it.
    pub(crate) fn start(program: &str, setup: impl FnOnce(&mut Command)) -> Self {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", program]).env_clear();
        let path = std::env::var_os("PATH").unwrap();
        command.env("PATH", path).stdin(Stdio::null());
        setup(&mut command);
        let (child, keeper) = spawn(command);
        Self {
            pid: Pid::from_raw(child.id().try_into().unwrap()),
            child: Mutex::new(child),
            _keeper: keeper,
        }
    }

    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid, signal).unwrap();
    }

    /// How it has ended, if it has.
    pub(crate) fn ended(&self) -> Option<ExitStatus> {
        self.child.lock().unwrap().try_wait().unwrap()
    }

    /// Sends the signal and waits for the end.
    pub(crate) fn end(&self, signal: Signal) {
        self.signal(signal);
        let ended = super::look(|| self.ended());
        assert!(ended.is_some(), "{} outlives {signal}", self.pid);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let child = self.child.get_mut();
        let child = child.unwrap_or_else(std::sync::PoisonError::into_inner);
        // One that has ended already is no news.
        drop(child.kill());
        drop(child.wait());
    }
}

/// Starts it on a thread that lives as long as what is returned: the kernel takes the end of the
/// *thread* that started a process for the end of its parent.
fn spawn(mut command: Command) -> (Child, SyncSender<()>) {
    let (tell, told) = sync_channel(0);
    let (keeper, kept) = sync_channel::<()>(0);
    std::thread::spawn(move || {
        tell.send(command.spawn()).unwrap();
        // Nothing is ever sent: this is the end of the other side.
        assert!(kept.recv().is_err(), "nothing is ever sent");
    });
    (told.recv().unwrap().unwrap(), keeper)
}

/// A port of 127.0.0.1 that nothing listens on.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Runs of the tests side by side begin at different places.
    let first = u16::try_from(std::process::id() % 1_000).unwrap() * 22;
    let port = || {
        let offset = first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        PORTS.start + offset % (PORTS.end - PORTS.start)
    };
    std::iter::repeat_with(port)
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .unwrap()
}
