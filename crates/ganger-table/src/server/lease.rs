//! This source as an owner of claims on a server: a row, a lock that the server releases when the
//! session ends, and a heartbeat by the server's clock. It also watches the other owners. All of that
//! runs on a connection of its own, which listens for notifications, too, so that slow statements delay
//! none of it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{self, Instant, sleep_until, timeout};

use super::cut_off::watch_heartbeats;
use super::lasting::ANSWERS_WITHIN;
use super::notifications::{NotificationKeeper, Notifications, notifications};
use super::registry::{Endpoint, Heard, Newcomer, Registry, Undone};
use super::take_back::TakeBack;
use super::tidying::Tidying;
use super::vigil::{BEATS_PER_LEASE, Sight, Vigil};

/// Interval between two checks of the other owners.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Pause before a lost connection is opened again: shorter than the time for which others wait for this
/// source once the server is back.
const RECONNECT: Duration = Duration::from_millis(250);

/// Pause before another attempt after the server refused the connection.
const REFUSED: Duration = Duration::from_secs(5);

/// State of this source among the owners.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Standing {
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
    standing: watch::Receiver<Standing>,
    news: Arc<Notify>,
    doubt: Arc<Notify>,
    notifications: Notifications,
    losses: watch::Receiver<u64>,
    keeper: JoinHandle<()>,
}

/// The source that a lease is for.
#[derive(Debug)]
pub(crate) struct Tenant<P> {
    pub(crate) place: P,
    pub(crate) pool: String,
    pub(crate) queue: Arc<str>,
    pub(crate) lease: Duration,
}

impl Lease {
    /// Starts the task that keeps the lease, in the current runtime. `line` is its first connection, if
    /// there already is one.
    pub(crate) fn begin<P: Endpoint>(tenant: Tenant<P>, line: Option<P::Line>) -> Self {
        let (tell, standing) = watch::channel(Standing {
            owner: None,
            problem: Some("the database is not reached yet".to_owned()),
        });
        let (news, doubt) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (beaten, heard) = watch::channel(Instant::now());
        let (lose, losses) = watch::channel(0);
        let (notifications, notification_keeper) = notifications();
        // Ends with the keeper.
        tokio::spawn(watch_heartbeats(heard, tenant.lease, lose.clone()));
        let keeper = Keeper {
            key: fastrand::i64(1..),
            owner: None,
            tell,
            news: Arc::clone(&news),
            doubt: Arc::clone(&doubt),
            notifications: notification_keeper,
            beaten,
            lose,
            take_back: TakeBack::default(),
            tidying: Tidying::default(),
            tenant,
        };
        Self {
            standing,
            news,
            doubt,
            notifications,
            losses,
            keeper: tokio::spawn(keeper.keep(line)),
        }
    }

    /// Returns the owner of new claims.
    ///
    /// # Errors
    /// The reason that none may be made now.
    pub(crate) fn owner(&self) -> Result<i64, String> {
        let standing = self.standing.borrow();
        match (&standing.problem, standing.owner) {
            (Some(problem), _) => Err(problem.clone()),
            (None, Some(owner)) => Ok(owner),
            (None, None) => Err("this daemon is not among the owners yet".to_owned()),
        }
    }

    /// Waits until this source is among the owners, for at most [`ANSWERS_WITHIN`].
    pub(crate) async fn entered(&mut self) {
        let entered = self.standing.wait_for(|standing| standing.owner.is_some());
        // After a timeout, the first claim reports the reason.
        drop(timeout(ANSWERS_WITHIN, entered).await);
    }

    /// Returns the number of times that others may have taken over the claims.
    pub(crate) fn losses(&self) -> watch::Receiver<u64> {
        self.losses.clone()
    }

    /// Returns the owner of the claims made so far, even if no new ones may be made.
    pub(crate) fn last_owner(&self) -> Option<i64> {
        self.standing.borrow().owner
    }

    /// Ends the session, and with it the lock. The row stays.
    pub(crate) fn end(&self) {
        self.keeper.abort();
    }

    /// Requests a heartbeat at once: others seem to have removed this source from the owners.
    pub(crate) fn doubt(&self) {
        self.doubt.notify_one();
    }

    /// Returns the notifications of messages sent to the queue.
    pub(crate) fn notifications(&self) -> &Notifications {
        &self.notifications
    }

    /// Resolves when there may be something new. Cancel-safe.
    pub(crate) async fn news(&self) {
        self.news.notified().await;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

/// State of the task that keeps the lease.
#[derive(Debug)]
struct Keeper<P> {
    tenant: Tenant<P>,
    key: i64,
    owner: Option<i64>,
    tell: watch::Sender<Standing>,
    news: Arc<Notify>,
    doubt: Arc<Notify>,
    notifications: NotificationKeeper,
    /// Time at which the last answered heartbeat was sent.
    beaten: watch::Sender<Instant>,
    lose: watch::Sender<u64>,
    take_back: TakeBack,
    tidying: Tidying,
}

/// Reason that a session ended.
#[derive(Debug)]
enum Ended {
    Server(Undone),
    Silent,
    Lost,
}

impl From<Undone> for Ended {
    fn from(undone: Undone) -> Self {
        Self::Server(undone)
    }
}

impl Ended {
    fn why(self) -> String {
        match self {
            Self::Server(undone) => undone.fault.problem,
            Self::Silent => format!("the server is silent for {} s", ANSWERS_WITHIN.as_secs()),
            Self::Lost => "the connection was lost".to_owned(),
        }
    }
}

impl<P: Endpoint> Keeper<P> {
    async fn keep(mut self, mut first: Option<P::Line>) {
        loop {
            let connected = match first.take() {
                Some(line) => Ok(line),
                None => self.tenant.place.connect().await,
            };
            let (pause, why) = match connected {
                Ok(mut line) => {
                    let ended = self.serve(&mut line).await;
                    line.hang_up();
                    self.notifications.forget();
                    (RECONNECT, ended.why())
                }
                Err(error) if error.is_passing => (RECONNECT, error.why),
                Err(error) => (REFUSED, error.why),
            };
            let why = format!("the connection that keeps this daemon's lease is away: {why}");
            self.tell(Some(why));
            time::sleep(pause.mul_f64(0.5 + fastrand::f64())).await;
        }
    }

    fn tell(&self, problem: Option<String>) {
        let owner = self.owner;
        self.tell.send_replace(Standing { owner, problem });
    }

    /// Keeps the lease until the connection ends.
    async fn serve(&mut self, line: &mut P::Line) -> Ended {
        let entered = timeout(ANSWERS_WITHIN, self.enter(line)).await;
        let mut locked = match entered {
            Ok(Ok(locked)) => locked,
            Ok(Err(undone)) => return undone.into(),
            Err(_) => return Ended::Silent,
        };
        // Nothing that was sent before this session was notified.
        self.news.notify_one();
        let mut vigil = Vigil::default();
        let mut last_look = Instant::now();
        let mut next_beat = last_look;
        loop {
            match timeout(ANSWERS_WITHIN, self.arrange(line)).await {
                Ok(Ok(())) => {}
                Ok(Err(undone)) => return undone.into(),
                Err(_) => return Ended::Silent,
            }
            let next_look = (last_look + LOOK_EVERY).min(next_beat);
            let again = self.notifications.again().unwrap_or(next_look);
            tokio::select! {
                biased;
                heard = line.heard() => match heard {
                    Heard::Lost => return Ended::Lost,
                    Heard::News => self.news.notify_one(),
                },
                () = self.doubt.notified() => next_beat = Instant::now(),
                () = self.notifications.changed() => {}
                () = sleep_until(next_look.min(again)) => {}
            }
            let now = Instant::now();
            if now < next_look.min(next_beat) {
                continue;
            }
            let beats = now >= next_beat;
            if beats {
                next_beat = now + self.tenant.lease / BEATS_PER_LEASE;
            }
            let tending = self.tend(line, &mut locked, beats);
            let seen = match timeout(ANSWERS_WITHIN, tending).await {
                Ok(Ok(seen)) => seen,
                Ok(Err(undone)) => return undone.into(),
                Err(_) => return Ended::Silent,
            };
            let gone = vigil.observe(&seen, now - last_look);
            last_look = now;
            let taking = self.take_back.from(line, &gone, beats);
            match timeout(ANSWERS_WITHIN, taking).await {
                Ok(Ok(false)) => {}
                Ok(Ok(true)) => self.news.notify_one(),
                Ok(Err(undone)) => return undone.into(),
                Err(_) => return Ended::Silent,
            }
        }
    }

    /// Requests or releases notifications, as the source wants.
    async fn arrange(&mut self, line: &mut P::Line) -> Result<(), Undone> {
        if self.notifications.is_due()
            && self.notifications.arrange(line, &self.tenant.queue).await?
        {
            self.news.notify_one();
        }
        Ok(())
    }

    /// Takes the lock, enters this source among the owners and begins to listen. Returns false if the
    /// lock is still taken: the server may not have noticed yet that the previous session ended.
    async fn enter(&mut self, line: &mut P::Line) -> Result<bool, Undone> {
        let locked = self.lock(line).await?;
        self.beat(line).await?;
        line.listen(&self.tenant.queue).await?;
        Ok(locked)
    }

    async fn lock(&self, line: &mut P::Line) -> Result<bool, Undone> {
        Ok(!line.has_locks() || line.lock(self.key).await?)
    }

    /// Writes a heartbeat, and enters this source if it is not, or no longer, among the owners.
    async fn beat(&mut self, line: &mut P::Line) -> Result<(), Undone> {
        let began = Instant::now();
        if let Some(owner) = self.owner
            && line.beat(owner).await?
        {
            self.beaten.send_replace(began);
            self.tell(None);
            return Ok(());
        }
        let key = match line.has_locks() {
            true => self.key,
            false => -self.key,
        };
        let newcomer = Newcomer {
            host: &host(),
            pid: i32::try_from(std::process::id()).unwrap_or(0),
            pool: &self.tenant.pool,
            lease_ms: i64::try_from(self.tenant.lease.as_millis()).unwrap_or(i64::MAX >> 8),
            key,
        };
        let id = line.enter(newcomer).await?;
        if let Some(before) = self.owner.replace(id) {
            tracing::warn!(
                pool = self.tenant.pool,
                id = before,
                new_id = id,
                "others took this daemon for dead and have its messages; it goes on under a new id"
            );
            self.lose.send_modify(|count| *count += 1);
        }
        self.beaten.send_replace(began);
        self.tell(None);
        Ok(())
    }

    /// Takes the lock if it is still missing, writes the heartbeat if it is due, and returns the other
    /// owners.
    async fn tend(
        &mut self,
        line: &mut P::Line,
        locked: &mut bool,
        beats: bool,
    ) -> Result<Vec<Sight>, Undone> {
        if !*locked {
            *locked = self.lock(line).await?;
        }
        if beats {
            self.beat(line).await?;
        }
        self.tidying.by(line).await?;
        line.others(self.owner).await
    }
}
