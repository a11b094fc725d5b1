//! This source as an owner of claims on a server: a row, a lock that the server releases when the
//! session ends, and a heartbeat by the server's clock. It also watches the other owners. All of that
//! runs on a connection of its own, which listens for notifications, too, so that slow statements delay
//! none of it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{self, Instant, sleep_until, timeout};

use super::cleanup::Cleanup;
use super::heartbeat_watch::watch_heartbeats;
use super::notifications::{NotificationKeeper, Notifications, notifications};
use super::owner_watch::{BEATS_PER_LEASE, OwnerSnapshot, OwnerWatch};
use super::reconnecting::ANSWERS_WITHIN;
use super::registry::{Endpoint, NewOwner, Registry, RequestFailure, ServerEvent};
use super::take_back::TakeBack;

/// Interval between two checks of the other owners.
const CHECK_EVERY: Duration = Duration::from_millis(500);

/// Pause before a lost connection is opened again: shorter than the time for which others wait for this
/// source once the server is back.
const RECONNECT: Duration = Duration::from_millis(250);

/// Pause before another attempt after the server refused the connection.
const REFUSED: Duration = Duration::from_secs(5);

/// State of this source among the owners.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LeaseState {
    /// Id under which this source claims rows.
    owner: Option<i64>,
    /// Reason that nothing may be claimed, if there is one.
    problem: Option<String>,
}

/// Returns the host's name, for people who read the table; no decision depends on it.
fn host() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

/// The lease of this source, kept by a task beside the source's.
#[derive(Debug)]
pub(crate) struct Lease {
    state: watch::Receiver<LeaseState>,
    changes: Arc<Notify>,
    heartbeat_request: Arc<Notify>,
    notifications: Notifications,
    losses: watch::Receiver<u64>,
    keeper: JoinHandle<()>,
}

/// The source that a lease is for.
#[derive(Debug)]
pub(crate) struct LeaseConfig<P> {
    pub(crate) target: P,
    pub(crate) pool: String,
    pub(crate) queue: Arc<str>,
    pub(crate) lease: Duration,
}

impl Lease {
    /// Starts the task that keeps the lease, in the current runtime. `connection` is its first one, if
    /// there already is one.
    pub(crate) fn begin<P: Endpoint>(
        config: LeaseConfig<P>,
        connection: Option<P::Connection>,
    ) -> Self {
        let (report, state) = watch::channel(LeaseState {
            owner: None,
            problem: Some("not connected to the database yet".to_owned()),
        });
        let (changes, heartbeat_request) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (beaten, heard) = watch::channel(Instant::now());
        let (lose, losses) = watch::channel(0);
        let (notifications, notification_keeper) = notifications();
        // Ends with the keeper.
        tokio::spawn(watch_heartbeats(heard, config.lease, lose.clone()));
        let keeper = LeaseKeeper {
            key: fastrand::i64(1..),
            owner: None,
            state: report,
            changes: Arc::clone(&changes),
            heartbeat_request: Arc::clone(&heartbeat_request),
            notifications: notification_keeper,
            beaten,
            lose,
            take_back: TakeBack::default(),
            cleanup: Cleanup::default(),
            config,
        };
        Self {
            state,
            changes,
            heartbeat_request,
            notifications,
            losses,
            keeper: tokio::spawn(keeper.keep(connection)),
        }
    }

    /// Returns the owner of new claims.
    ///
    /// # Errors
    /// The reason that none may be made now.
    pub(crate) fn owner(&self) -> Result<i64, String> {
        let state = self.state.borrow();
        match (&state.problem, state.owner) {
            (Some(problem), _) => Err(problem.clone()),
            (None, Some(owner)) => Ok(owner),
            (None, None) => Err("this daemon is not registered as an owner yet".to_owned()),
        }
    }

    /// Waits until this source is among the owners, for at most [`ANSWERS_WITHIN`].
    pub(crate) async fn entered(&mut self) {
        let entered = self.state.wait_for(|state| state.owner.is_some());
        // After a timeout, the first claim reports the reason.
        drop(timeout(ANSWERS_WITHIN, entered).await);
    }

    /// Returns the number of times that others may have taken over the claims.
    pub(crate) fn losses(&self) -> watch::Receiver<u64> {
        self.losses.clone()
    }

    /// Returns the owner of the claims made so far, even if no new ones may be made.
    pub(crate) fn last_owner(&self) -> Option<i64> {
        self.state.borrow().owner
    }

    /// Ends the session, and with it the lock. The row stays.
    pub(crate) fn end(&self) {
        self.keeper.abort();
    }

    /// Requests a heartbeat at once: others seem to have removed this source from the owners.
    pub(crate) fn request_heartbeat(&self) {
        self.heartbeat_request.notify_one();
    }

    /// Returns the notifications of messages sent to the queue.
    pub(crate) fn notifications(&self) -> &Notifications {
        &self.notifications
    }

    /// Resolves when there may be something new. Cancel-safe.
    pub(crate) async fn changed(&self) {
        self.changes.notified().await;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

/// State of the task that keeps the lease.
#[derive(Debug)]
struct LeaseKeeper<P> {
    config: LeaseConfig<P>,
    key: i64,
    owner: Option<i64>,
    state: watch::Sender<LeaseState>,
    changes: Arc<Notify>,
    heartbeat_request: Arc<Notify>,
    notifications: NotificationKeeper,
    /// Time at which the last answered heartbeat was sent.
    beaten: watch::Sender<Instant>,
    lose: watch::Sender<u64>,
    take_back: TakeBack,
    cleanup: Cleanup,
}

/// Reason that a session ended.
#[derive(Debug)]
enum SessionEnd {
    Server(RequestFailure),
    NoAnswer,
    Lost,
}

impl From<RequestFailure> for SessionEnd {
    fn from(failure: RequestFailure) -> Self {
        Self::Server(failure)
    }
}

impl SessionEnd {
    fn why(self) -> String {
        match self {
            Self::Server(failure) => failure.fault.problem,
            Self::NoAnswer => format!(
                "no answer from the server within {} s",
                ANSWERS_WITHIN.as_secs()
            ),
            Self::Lost => "the connection was lost".to_owned(),
        }
    }
}

impl<P: Endpoint> LeaseKeeper<P> {
    async fn keep(mut self, mut first: Option<P::Connection>) {
        loop {
            let connected = match first.take() {
                Some(connection) => Ok(connection),
                None => self.config.target.connect().await,
            };
            let (pause, why) = match connected {
                Ok(mut connection) => {
                    let ended = self.serve(&mut connection).await;
                    connection.abort();
                    self.notifications.forget();
                    (RECONNECT, ended.why())
                }
                Err(error) if error.is_transient => (RECONNECT, error.why),
                Err(error) => (REFUSED, error.why),
            };
            let why = format!("the connection that renews this daemon's lease is down: {why}");
            self.report(Some(why));
            time::sleep(pause.mul_f64(0.5 + fastrand::f64())).await;
        }
    }

    fn report(&self, problem: Option<String>) {
        let owner = self.owner;
        self.state.send_replace(LeaseState { owner, problem });
    }

    /// Keeps the lease until the connection ends.
    async fn serve(&mut self, connection: &mut P::Connection) -> SessionEnd {
        let entered = timeout(ANSWERS_WITHIN, self.enter(connection)).await;
        let mut locked = match entered {
            Ok(Ok(locked)) => locked,
            Ok(Err(failure)) => return failure.into(),
            Err(_) => return SessionEnd::NoAnswer,
        };
        // Nothing that was sent before this session was notified.
        self.changes.notify_one();
        let mut owner_watch = OwnerWatch::default();
        let mut last_check = Instant::now();
        let mut next_beat = last_check;
        loop {
            match timeout(ANSWERS_WITHIN, self.arrange(connection)).await {
                Ok(Ok(())) => {}
                Ok(Err(failure)) => return failure.into(),
                Err(_) => return SessionEnd::NoAnswer,
            }
            let next_check = (last_check + CHECK_EVERY).min(next_beat);
            let next_request = self.notifications.next_request().unwrap_or(next_check);
            tokio::select! {
                biased;
                event = connection.next_event() => match event {
                    ServerEvent::ConnectionLost => return SessionEnd::Lost,
                    ServerEvent::Notification => self.changes.notify_one(),
                },
                () = self.heartbeat_request.notified() => next_beat = Instant::now(),
                () = self.notifications.changed() => {}
                () = sleep_until(next_check.min(next_request)) => {}
            }
            let now = Instant::now();
            if now < next_check.min(next_beat) {
                continue;
            }
            let beats = now >= next_beat;
            if beats {
                next_beat = now + self.config.lease / BEATS_PER_LEASE;
            }
            let tending = self.tend(connection, &mut locked, beats);
            let seen = match timeout(ANSWERS_WITHIN, tending).await {
                Ok(Ok(seen)) => seen,
                Ok(Err(failure)) => return failure.into(),
                Err(_) => return SessionEnd::NoAnswer,
            };
            let gone = owner_watch.observe(&seen, now - last_check);
            last_check = now;
            let taking = self.take_back.from(connection, &gone, beats);
            match timeout(ANSWERS_WITHIN, taking).await {
                Ok(Ok(false)) => {}
                Ok(Ok(true)) => self.changes.notify_one(),
                Ok(Err(failure)) => return failure.into(),
                Err(_) => return SessionEnd::NoAnswer,
            }
        }
    }

    /// Requests or releases notifications, as the source wants.
    async fn arrange(&mut self, connection: &mut P::Connection) -> Result<(), RequestFailure> {
        if self.notifications.is_due()
            && self
                .notifications
                .arrange(connection, &self.config.queue)
                .await?
        {
            self.changes.notify_one();
        }
        Ok(())
    }

    /// Takes the lock, enters this source among the owners and begins to listen. Returns false if the
    /// lock is still taken: the server may not have noticed yet that the previous session ended.
    async fn enter(&mut self, connection: &mut P::Connection) -> Result<bool, RequestFailure> {
        let locked = self.lock(connection).await?;
        self.beat(connection).await?;
        connection.listen(&self.config.queue).await?;
        Ok(locked)
    }

    async fn lock(&self, connection: &mut P::Connection) -> Result<bool, RequestFailure> {
        Ok(!connection.has_locks() || connection.lock(self.key).await?)
    }

    /// Writes a heartbeat, and enters this source if it is not, or no longer, among the owners.
    async fn beat(&mut self, connection: &mut P::Connection) -> Result<(), RequestFailure> {
        let began = Instant::now();
        if let Some(owner) = self.owner
            && connection.beat(owner).await?
        {
            self.beaten.send_replace(began);
            self.report(None);
            return Ok(());
        }
        let key = match connection.has_locks() {
            true => self.key,
            false => -self.key,
        };
        let new_owner = NewOwner {
            host: &host(),
            pid: i32::try_from(std::process::id()).unwrap_or(0),
            pool: &self.config.pool,
            lease_ms: i64::try_from(self.config.lease.as_millis()).unwrap_or(i64::MAX >> 8),
            key,
        };
        let id = connection.enter(new_owner).await?;
        if let Some(before) = self.owner.replace(id) {
            tracing::warn!(
                pool = self.config.pool,
                id = before,
                new_id = id,
                "other daemons took this one for dead and took over its messages; it continues under a new id"
            );
            self.lose.send_modify(|count| *count += 1);
        }
        self.beaten.send_replace(began);
        self.report(None);
        Ok(())
    }

    /// Takes the lock if it is still missing, writes the heartbeat if it is due, and returns the other
    /// owners.
    async fn tend(
        &mut self,
        connection: &mut P::Connection,
        locked: &mut bool,
        beats: bool,
    ) -> Result<Vec<OwnerSnapshot>, RequestFailure> {
        if !*locked {
            *locked = self.lock(connection).await?;
        }
        if beats {
            self.beat(connection).await?;
        }
        self.cleanup.run(connection).await?;
        connection.others(self.owner).await
    }
}
