//! A daemon under test: the real program, its log, its signals, its end.

use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::log::{Log, said};
use super::processes::{self, Process};

/// A variable that the daemon has and its workers must not.
pub(crate) const SECRET: (&str, &str) = ("DAEMON_SECRET", "hunter2");

/// How a daemon is started.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Launch {
    /// A program, with its arguments, that becomes the daemon.
    pub(crate) through: &'static [&'static str],
    /// What `ganger run` is told beside its configuration.
    pub(crate) args: &'static [&'static str],
}

/// What starts a daemon whose clock is a day ahead.
pub(crate) const AHEAD: &[&str] = &["env", PRELOAD, "DONT_FAKE_MONOTONIC=1", "FAKETIME=+1d"];
/// The same, a day behind.
pub(crate) const BEHIND: &[&str] = &["env", PRELOAD, "DONT_FAKE_MONOTONIC=1", "FAKETIME=-1d"];
const PRELOAD: &str = "LD_PRELOAD=/usr/$LIB/faketime/libfaketimeMT.so.1";

/// A daemon. Dropped, it and everything that it has started are killed; if that happens because a
/// test fails, its log is shown.
pub(crate) struct Daemon {
    child: Mutex<Child>,
    pid: Pid,
    log: Log,
    config: PathBuf,
    mark: String,
}

/// Variables of a daemon's environment.
pub(super) type Environment<'a> = &'a [(String, String)];

/// The tests' daemons run side by side: on the network they listen only where a test says so.
fn admin_side(config: &Path) -> Option<(&'static str, &'static str)> {
    let text = std::fs::read_to_string(config).unwrap_or_default();
    let is_silent = !text.contains("[admin]");
    is_silent.then_some(("GANGER_ADMIN__LISTEN", "off"))
}

impl Daemon {
    /// Starts it and waits until it says that it runs.
    pub(super) fn start(config: &Path, mark: &str, launch: Launch, more: Environment<'_>) -> Self {
        let mut daemon = Self::spawn(config, mark, launch, more, Stdio::piped());
        let stderr = daemon.child.get_mut().unwrap().stderr.take().unwrap();
        daemon.listen(stderr);
        daemon.logged("ganger is running");
        daemon
    }

    /// Starts it with something else as its stderr, which nobody reads.
    pub(super) fn spawn(
        config: &Path,
        mark: &str,
        launch: Launch,
        more: Environment<'_>,
        stderr: Stdio,
    ) -> Self {
        let config_text = config.to_str().unwrap();
        let own = [super::PROGRAM, "run", "--config", config_text];
        let words = [launch.through, &own, launch.args].concat();
        let child = Command::new(words[0])
            .args(&words[1..])
            .env_clear()
            .envs(std::env::vars_os().filter(|(name, _)| name == "PATH" || name == "HOME"))
            .env(SECRET.0, SECRET.1)
            .envs(admin_side(config))
            .envs(more.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            .process_group(0)
            .spawn()
            .unwrap();
        let pid = Pid::from_raw(child.id().try_into().unwrap());
        Self {
            child: Mutex::new(child),
            pid,
            log: Log::read(std::io::empty()),
            config: config.into(),
            mark: mark.into(),
        }
    }

    /// Reads its log from now on.
    pub(crate) fn listen(&mut self, stderr: impl Read + Send + 'static) {
        self.log = Log::read(stderr);
    }

    /// Its configuration file.
    pub(crate) fn config(&self) -> &Path {
        &self.config
    }

    pub(super) fn mark(&self) -> &str {
        &self.mark
    }

    // -- what it says --

    /// Waits for the first record with that message.
    pub(crate) fn logged(&self, message: &str) -> Value {
        self.logs(message, |_| true)
    }

    /// Waits until the schedules of its configuration are in the ledger: commands know them from then on.
    pub(crate) fn entered(&self) -> Value {
        self.logged("schedules of the configuration are in the ledger")
    }

    /// Waits for the first record with that message that is as wanted.
    pub(crate) fn logs(&self, message: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let found = self
            .log
            .find(|record| said(record, message) && wanted(record));
        found.unwrap_or_else(|| panic!("the daemon did not log {message:?} (or not as wanted)"))
    }

    /// The records so far that are as wanted.
    pub(crate) fn records(&self, wanted: impl FnMut(&Value) -> bool) -> Vec<Value> {
        self.log.all(wanted)
    }

    /// How many records so far have that message.
    pub(crate) fn times_logged(&self, message: &str) -> usize {
        self.records(|record| said(record, message)).len()
    }

    // -- waiting --

    /// Waits until it is so.
    pub(crate) fn eventually(&self, what: &str, mut condition: impl FnMut() -> bool) {
        self.eventually_some(what, || condition().then_some(()));
    }

    /// Waits until there is something to return.
    pub(crate) fn eventually_some<T>(&self, what: &str, condition: impl FnMut() -> Option<T>) -> T {
        super::look(condition).unwrap_or_else(|| panic!("waited in vain for {what}"))
    }

    /// The same as [`Self::eventually`], with a deadline of its own.
    pub(crate) fn within(&self, time: Duration, what: &str, mut condition: impl FnMut() -> bool) {
        let found = super::look_for(time, || condition().then_some(()));
        assert!(found.is_some(), "waited {time:?} in vain for {what}");
    }

    #[expect(clippy::print_stderr, reason = "what a failed test has to say")]
    fn show(&self) {
        eprintln!("--- {}: {}\n---", self.config.display(), self.log.tail());
    }

    // -- its processes --

    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// The workers that have connected and have not ended, by its log, the oldest first.
    pub(crate) fn workers_up(&self) -> Vec<i32> {
        let mut up = Vec::new();
        for record in self.records(|record| !record["pid"].is_null()) {
            let pid = record["pid"].as_i64().unwrap().try_into().unwrap();
            match record["message"].as_str() {
                Some("worker up") => up.push(pid),
                Some("worker lost" | "worker gone") => up.retain(|other| *other != pid),
                _ => {}
            }
        }
        up
    }

    /// Waits until so many workers are up, and returns them.
    pub(crate) fn has_workers(&self, count: usize) -> Vec<i32> {
        self.eventually_some(&format!("{count} workers to be up"), || {
            Some(self.workers_up()).filter(|up| up.len() == count)
        })
    }

    /// What it has started and what that has started, as far as it lives.
    pub(crate) fn processes(&self) -> Vec<Process> {
        processes::marked(&self.mark)
    }

    /// How much of a processor it has used so far, its workers not included.
    pub(crate) fn processor_time(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap();
        // After the name in brackets come the state, which is field 3, and so on.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split(' ').collect();
        let ticks: u64 = [14, 15]
            .map(|n: usize| fields[n - 2].parse::<u64>().unwrap())
            .iter()
            .sum();
        Duration::from_millis(ticks * 10)
    }

    /// The most memory that it has had so far.
    pub(crate) fn resident_kib_max(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let number = line.unwrap().split_whitespace().next().unwrap();
        number.parse().unwrap()
    }

    /// Its threads' names, as far as the kernel keeps them.
    pub(crate) fn threads(&self) -> Vec<String> {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.pid)).unwrap();
        // One may end meanwhile.
        let names =
            threads.filter_map(|it| std::fs::read_to_string(it.ok()?.path().join("comm")).ok());
        names.map(|name| name.trim_end().to_owned()).collect()
    }

    /// Waits until nothing that it has started lives any more.
    pub(crate) fn leaves_nothing(&self) {
        let gone = super::look(|| self.processes().is_empty().then_some(()));
        assert!(gone.is_some(), "left behind: {:#?}", self.processes());
    }

    // -- its end --

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid, signal).unwrap();
    }

    /// Waits for its end and for its last words.
    pub(crate) fn exit(&self) -> ExitStatus {
        let ended = || self.child.lock().unwrap().try_wait().unwrap();
        let status = self.eventually_some("the daemon's end", ended);
        assert!(self.log.ends(), "something holds the daemon's stderr open");
        status
    }

    /// SIGTERM: it must end well and leave nothing behind. No thread of it may have panicked before.
    pub(crate) fn stop(&self) {
        self.signal(Signal::SIGTERM);
        let status = self.exit();
        assert!(status.success(), "the daemon ended with {status}");
        self.leaves_nothing();
        // What workers write is no error of the daemon.
        let is_panic = |line: &Value| {
            let of_daemon = line["level"] == "ERROR";
            let message = line["message"].as_str().filter(|_| of_daemon);
            message.is_some_and(|text| text.starts_with("panicked at"))
        };
        let panics = self.log.all(is_panic);
        assert!(panics.is_empty(), "{panics:#?}");
    }

    /// SIGKILL: what it has started must end with it.
    pub(crate) fn crash(&self) {
        self.signal(Signal::SIGKILL);
        assert_eq!(self.exit().signal(), Some(Signal::SIGKILL as i32));
        self.leaves_nothing();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // One that has ended already is no news.
        let mut child = self
            .child
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        drop(child.kill());
        drop(child.wait());
        processes::kill_marked(&self.mark);
        if std::thread::panicking() {
            self.show();
        }
    }
}
