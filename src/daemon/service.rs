//! Notification of the service manager by the protocol of sd_notify(3): the daemon is ready, reloads or
//! stops, its status, and that all its threads are alive. One thread notifies the manager and watches the
//! others: a manager that does not read blocks nobody else, and a stalled thread is logged whether there is a
//! manager or not.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sd_notify::NotifyState;
use tokio::time::Instant;

use super::watchdog::{ThreadReport, Watchdog};
use ganger_core::foreign;
use ganger_core::heartbeat::{self, EVERY, Heartbeat};
use ganger_pool::overview::{Overview, Status, pool_not_ready};

/// Variable with the manager's socket.
const MANAGER: &str = "NOTIFY_SOCKET";

/// Maximum number of notices that wait for the manager; of more the oldest are dropped.
const NOTICES_WAITING_MAX: usize = 64;

/// Time for which the end of the daemon waits for the manager to take the last notices.
const LAST_NOTICES_WITHIN: Duration = Duration::from_secs(1);

/// Maximum length of a status, in characters: the manager shows it as one line.
const STATUS_CHARS_MAX: usize = 500;

/// Notifies the service manager. Clones share one connection; the default has no manager.
#[derive(Debug, Clone, Default)]
pub struct Service(Option<Arc<ServiceState>>);

#[derive(Debug)]
struct ServiceState {
    state: Mutex<State>,
    /// Signalled when there is something to send.
    news: Condvar,
    /// Signalled when everything is sent.
    idle: Condvar,
}

#[derive(Debug)]
struct State {
    notices: VecDeque<ManagerNotice>,
    /// True while notices are being sent.
    telling: bool,
    /// Maximum silence of a thread.
    stall_timeout: Duration,
}

/// Notices that are sent in order. Of everything else only the last state matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ManagerNotice {
    Ready,
    /// Start of the reload by the monotonic clock, in microseconds.
    Reloading(i128),
    Stopping,
}

impl Service {
    /// Starts the thread that notifies the manager which started us, if any, and watches that all threads are
    /// alive.
    ///
    /// # Errors
    /// If the operating system gives no thread.
    pub fn start(stall_timeout: Duration, overview: Overview) -> io::Result<Self> {
        let shared = Arc::new(ServiceState::new(stall_timeout));
        let teller = NotifyThread::new(Arc::clone(&shared), overview);
        let thread = std::thread::Builder::new().name("watchdog".into());
        thread.spawn(move || teller.run())?;
        Ok(Self(Some(shared)))
    }

    /// Reports that all pools are running, or that a reload is done or refused.
    pub fn ready(&self) {
        self.change(|state| state.tell(ManagerNotice::Ready));
    }

    /// Reports that a reload begins.
    pub fn reloading(&self) {
        match NotifyState::monotonic_usec_now() {
            Ok(NotifyState::MonotonicUsec(now)) => {
                self.change(|state| state.tell(ManagerNotice::Reloading(now)));
            }
            // There is no clock to tell it by.
            Ok(_) | Err(_) => tracing::warn!("sd_notify of the reload failed"),
        }
    }

    /// Reports that the daemon stops.
    pub fn stopping(&self) {
        self.change(|state| state.tell(ManagerNotice::Stopping));
    }

    /// Sets the maximum silence of a thread.
    pub fn set_stall_timeout(&self, stall_timeout: Duration) {
        self.change(|state| state.stall_timeout = stall_timeout);
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        if let Some(shared) = &self.0 {
            change(&mut shared.state());
            shared.news.notify_one();
        }
    }

    /// Waits a moment until the manager has taken all notices.
    pub fn finish(&self) {
        if let Some(shared) = &self.0 {
            let waits = |state: &mut State| state.telling || !state.notices.is_empty();
            let state = shared.state();
            // What is not told by then never is.
            drop(
                shared
                    .idle
                    .wait_timeout_while(state, LAST_NOTICES_WITHIN, waits),
            );
        }
    }
}

impl ServiceState {
    fn new(stall_timeout: Duration) -> Self {
        let state = State {
            notices: VecDeque::new(),
            telling: false,
            stall_timeout,
        };
        Self {
            state: Mutex::new(state),
            news: Condvar::new(),
            idle: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // What it guards is never left half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn tell(&mut self, notice: ManagerNotice) {
        if self.notices.len() == NOTICES_WAITING_MAX {
            self.notices.pop_front();
        }
        self.notices.push_back(notice);
    }
}

/// State of the thread.
#[derive(Debug)]
struct NotifyThread {
    shared: Arc<ServiceState>,
    overview: Overview,
    watchdog: Watchdog,
    /// Last status sent.
    status: String,
    /// True once a failed notification was logged.
    complained: bool,
}

impl NotifyThread {
    fn new(shared: Arc<ServiceState>, overview: Overview) -> Self {
        Self {
            shared,
            overview,
            watchdog: Watchdog::new(Instant::now(), sd_notify::watchdog_enabled()),
            status: String::new(),
            complained: false,
        }
    }

    fn run(mut self) {
        let heart = Heartbeat::of_this_thread();
        let pause = self.watchdog.every().unwrap_or(EVERY).min(EVERY);
        loop {
            let (notices, stall_timeout) = self.next(pause);
            heart.beat();
            let stalled = heartbeat::stalled(stall_timeout);
            let seen = self.watchdog.look(Instant::now(), stalled);
            log(&seen, self.watchdog.every().is_some());
            heart.away(|| self.tell(&notices, seen.lives));
        }
    }

    /// Waits for notices, at most for `pause`.
    fn next(&self, pause: Duration) -> (VecDeque<ManagerNotice>, Duration) {
        let mut state = self.shared.state();
        state.telling = false;
        if state.notices.is_empty() {
            self.shared.idle.notify_all();
            let waited = self.shared.news.wait_timeout(state, pause);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let notices = std::mem::take(&mut state.notices);
        state.telling = !notices.is_empty();
        (notices, state.stall_timeout)
    }

    fn tell(&mut self, notices: &VecDeque<ManagerNotice>, lives: bool) {
        let Some(manager) = std::env::var_os(MANAGER) else {
            return;
        };
        let status = shown(&self.overview.status(), self.watchdog.stalled());
        if status != self.status {
            self.notify(&manager, &[NotifyState::Status(&status)]);
            self.status = status;
        }
        for notice in notices {
            match *notice {
                ManagerNotice::Ready => self.notify(&manager, &[NotifyState::Ready]),
                ManagerNotice::Reloading(at) => {
                    let since = NotifyState::MonotonicUsec(at);
                    self.notify(&manager, &[NotifyState::Reloading, since]);
                }
                ManagerNotice::Stopping => self.notify(&manager, &[NotifyState::Stopping]),
            }
        }
        if lives {
            self.notify(&manager, &[NotifyState::Watchdog]);
        }
    }

    fn notify(&mut self, manager: &OsStr, what: &[NotifyState<'_>]) {
        if let Err(error) = send(manager, what)
            && !std::mem::replace(&mut self.complained, true)
        {
            tracing::warn!(%error, "sd_notify failed");
        }
    }
}

/// Sends a message to the manager's socket: a path, or after an `@` an abstract name, as in sd_notify(3).
/// sd-notify's own function takes it for a path.
fn send(manager: &OsStr, what: &[NotifyState<'_>]) -> io::Result<()> {
    let address = match manager.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(manager)?,
    };
    let lines = what.iter().map(|state| format!("{state}\n"));
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    socket.send(lines.collect::<String>().as_bytes())?;
    Ok(())
}

/// Formats the status in one line: it may hold text of others, and a second line would be a second message.
fn shown<'a>(status: &Status, stalled: impl Iterator<Item = &'a str>) -> String {
    let mut shown = standing(status);
    for thread in stalled {
        shown += &format!("; thread {thread} is stalled");
    }
    if let Some(why) = status.reload.refusal() {
        shown += &format!("; the last reload was refused: {why}");
    }
    foreign::line(&shown)
        .chars()
        .take(STATUS_CHARS_MAX)
        .collect()
}

/// Formats the daemon's state, the number of its workers that are up, and the problems of its pools.
fn standing(status: &Status) -> String {
    let workers = status.pools.iter().flat_map(|pool| &pool.workers);
    let up = workers.filter(|worker| !matches!(&*worker.state, "waiting" | "starting"));
    let (state, pools, up) = (status.state, status.pools.len(), up.count());
    let wanted: usize = status.pools.iter().map(|pool| pool.workers_wanted).sum();
    let first = format!("{state}: {pools} pool(s), {up} of {wanted} worker(s) up");
    let mut parts = vec![first];
    parts.extend(status.pools.iter().filter_map(pool_not_ready));
    parts.join("; ")
}

fn log(seen: &ThreadReport, watched: bool) {
    for stalled in &seen.stalled {
        let (thread, silent) = (&stalled.thread, stalled.silent);
        tracing::error!(
            thread,
            ?silent,
            restart_follows = watched,
            "thread of the daemon stalled"
        );
    }
    for thread in &seen.turn_again {
        tracing::warn!(thread, "stalled thread recovered or exited");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ganger_config as config;
    use ganger_core::budget::Budget;

    fn shared() -> ServiceState {
        ServiceState::new(Duration::from_secs(60))
    }

    #[test]
    fn the_status_is_one_line_of_a_length() {
        let text = "[sources.main]\nkind = \"table\"\nurl = \"sqlite:a.db\"\n\
                    [[pools]]\nname = \"p\"\nqueue = \"q\"\ncommand = \"true\"";
        let config = config::parse(text, "test.toml", &config::Environment::new()).unwrap();
        let overview = Overview::new(Budget::new(Some(1 << 20)), &config);
        let stalled = shown(&overview.status(), ["pool-p"].into_iter());
        let running = "starting: 0 pool(s), 0 of 0 worker(s) up";
        assert_eq!(stalled, format!("{running}; thread pool-p is stalled"));
        overview.reload_refused(vec!["no\nMAINPID=1".to_owned()]);
        let refused = format!("{running}; the last reload was refused: no\\nMAINPID=1");
        assert_eq!(shown(&overview.status(), std::iter::empty()), refused);
        overview.reload_refused(vec!["x".repeat(10_000)]);
        let long = shown(&overview.status(), std::iter::empty());
        assert_eq!(long.len(), STATUS_CHARS_MAX);
    }

    #[test]
    fn notices_keep_their_order_and_have_a_bound() {
        let shared = shared();
        let mut state = shared.state();
        for n in 0..100 {
            state.tell(ManagerNotice::Reloading(n));
        }
        state.tell(ManagerNotice::Stopping);
        assert_eq!(state.notices.len(), NOTICES_WAITING_MAX);
        assert_eq!(state.notices[0], ManagerNotice::Reloading(37));
        assert_eq!(state.notices.back(), Some(&ManagerNotice::Stopping));
    }
}
