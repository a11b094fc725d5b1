//! This source as an owner of claims: a row, a lock that the server frees when our session ends, a
//! heartbeat by the server's clock; and the look after the other owners. All on a connection of its
//! own, which listens for news beside that, so that a slow statement holds none of it up.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};

use super::client::Client;
use super::cut_off::watch_heartbeats;
use super::error::{ends_the_connection, sentence};
use super::line::{ANSWERS_WITHIN, Line, Place};
use super::owners::{BEAT, ENTER, LOCK, OTHERS, channel, host};
use super::schema::quoted;
use super::take_back::{STUCK_FOR, TakeBack};
use super::unique::RELEASE;
use super::vigil::{Sight, Vigil};

/// So many heartbeats go into a lease.
const BEATS_PER_LEASE: u32 = 4;

/// How often the others are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The pause before a lost connection is made again: no longer than others wait for us once the
/// server is back.
const RECONNECT: Duration = Duration::from_millis(250);

/// The pause before a server is asked again that does not let us in.
const REFUSED: Duration = Duration::from_secs(5);

/// How we stand among the owners.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Standing {
    /// Whose claims ours are.
    owner: Option<i64>,
    /// Why nothing may be claimed, if so.
    problem: Option<String>,
}

/// By what its lock is known: a positive number, so that it is found again among the locks, or a negative
/// one for an owner without, whose heartbeat alone counts.
fn key(is_pooled: bool) -> i64 {
    let key = fastrand::i64(1..);
    if is_pooled { -key } else { key }
}

/// Our lease, kept by a task beside the source's.
#[derive(Debug)]
pub(super) struct Lease {
    standing: watch::Receiver<Standing>,
    news: Arc<Notify>,
    doubt: Arc<Notify>,
    losses: watch::Receiver<u64>,
    keeper: JoinHandle<()>,
}

/// Whose lease it is.
#[derive(Debug)]
pub(super) struct Tenant {
    pub(super) place: Place,
    pub(super) pool: String,
    pub(super) queue: Arc<str>,
    pub(super) lease: Duration,
}

impl Lease {
    /// Begins to keep it, within the runtime that we are in. The first connection is the caller's, if
    /// there is one.
    pub(super) fn begin(tenant: Tenant, line: Option<Line>) -> Self {
        let (tell, standing) = watch::channel(Standing {
            owner: None,
            problem: Some("the database is not reached yet".to_owned()),
        });
        let (news, doubt) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (beaten, heard) = watch::channel(Instant::now());
        let (lose, losses) = watch::channel(0);
        // Ends with the keeper.
        tokio::spawn(watch_heartbeats(heard, tenant.lease, lose.clone()));
        let keeper = Keeper {
            key: key(tenant.place.is_pooled),
            owner: None,
            tell,
            news: Arc::clone(&news),
            doubt: Arc::clone(&doubt),
            beaten,
            lose,
            take_back: TakeBack::default(),
            keys_stuck: None,
            tenant,
        };
        Self {
            standing,
            news,
            doubt,
            losses,
            keeper: tokio::spawn(keeper.keep(line)),
        }
    }

    /// Whose claims ours are, if any may be made now.
    pub(super) fn owner(&self) -> Result<i64, String> {
        let standing = self.standing.borrow();
        match (&standing.problem, standing.owner) {
            (Some(problem), _) => Err(problem.clone()),
            (None, Some(owner)) => Ok(owner),
            (None, None) => Err("this daemon is not among the owners yet".to_owned()),
        }
    }

    /// Waits until we are among the owners, but not for long.
    pub(super) async fn entered(&mut self) {
        let entered = self.standing.wait_for(|standing| standing.owner.is_some());
        // Who waits in vain is told why when it claims.
        drop(timeout(ANSWERS_WITHIN, entered).await);
    }

    /// How often it was that others may have had what is claimed under it.
    pub(super) fn losses(&self) -> watch::Receiver<u64> {
        self.losses.clone()
    }

    /// Whose claims ours are or were.
    pub(super) fn last_owner(&self) -> Option<i64> {
        self.standing.borrow().owner
    }

    /// Ends the session, and with it the lock. The row stays.
    pub(super) fn end(&self) {
        self.keeper.abort();
    }

    /// Others seem to have struck us.
    pub(super) fn doubt(&self) {
        self.doubt.notify_one();
    }

    /// Resolves when there may be something new. Loses nothing when it is dropped.
    pub(super) async fn news(&self) {
        self.news.notified().await;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

/// What keeps it.
#[derive(Debug)]
struct Keeper {
    tenant: Tenant,
    key: i64,
    owner: Option<i64>,
    tell: watch::Sender<Standing>,
    news: Arc<Notify>,
    doubt: Arc<Notify>,
    /// When the last heartbeat was sent that the server has answered.
    beaten: watch::Sender<Instant>,
    lose: watch::Sender<u64>,
    take_back: TakeBack,
    /// Keys whose time is over can't be let go, since then.
    keys_stuck: Option<Instant>,
}

/// Why a session ended.
#[derive(Debug)]
enum Ended {
    Server(Error),
    Silent,
    Lost,
}

impl From<Error> for Ended {
    fn from(error: Error) -> Self {
        Self::Server(error)
    }
}

impl Ended {
    fn why(&self) -> String {
        match self {
            Self::Server(error) => sentence(error),
            Self::Silent => format!("the server is silent for {} s", ANSWERS_WITHIN.as_secs()),
            Self::Lost => "the connection was lost".to_owned(),
        }
    }
}

impl Keeper {
    async fn keep(mut self, mut first: Option<Line>) {
        loop {
            let connected = match first.take() {
                Some(line) => Ok(line),
                None => self.tenant.place.connect().await,
            };
            let (pause, why) = match connected {
                Ok(mut line) => {
                    let ended = self.serve(&mut line).await;
                    line.hang_up();
                    (RECONNECT, ended.why())
                }
                Err(error) if error.is_passing() => (RECONNECT, error.to_string()),
                Err(error) => (REFUSED, error.to_string()),
            };
            let why = format!("the connection that keeps this daemon's lease is away: {why}");
            self.tell(Some(why));
            sleep(pause.mul_f64(0.5 + fastrand::f64())).await;
        }
    }

    fn tell(&self, problem: Option<String>) {
        let owner = self.owner;
        self.tell.send_replace(Standing { owner, problem });
    }

    /// Keeps the lease as long as the connection lives.
    async fn serve(&mut self, line: &mut Line) -> Ended {
        let Line {
            client,
            driver,
            bell,
        } = line;
        let entered = timeout(ANSWERS_WITHIN, self.enter(client)).await;
        let mut locked = match entered {
            Ok(Ok(locked)) => locked,
            Ok(Err(error)) => return error.into(),
            Err(_) => return Ended::Silent,
        };
        // What came while nobody listened was not told.
        self.news.notify_one();
        let mut vigil = Vigil::default();
        let mut last_look = Instant::now();
        let mut next_beat = last_look;
        loop {
            tokio::select! {
                biased;
                _ = &mut *driver => return Ended::Lost,
                () = bell.notified() => {
                    self.news.notify_one();
                    continue;
                }
                () = self.doubt.notified() => next_beat = Instant::now(),
                () = sleep_until((last_look + LOOK_EVERY).min(next_beat)) => {}
            }
            let now = Instant::now();
            let beats = now >= next_beat;
            if beats {
                next_beat = now + self.tenant.lease / BEATS_PER_LEASE;
            }
            let tending = self.tend(client, &mut locked, beats);
            let seen = match timeout(ANSWERS_WITHIN, tending).await {
                Ok(Ok(seen)) => seen,
                Ok(Err(error)) => return error.into(),
                Err(_) => return Ended::Silent,
            };
            let gone = vigil.observe(&seen, now - last_look);
            last_look = now;
            let taking = self.take_back.from(client, &gone, beats);
            match timeout(ANSWERS_WITHIN, taking).await {
                Ok(Ok(false)) => {}
                Ok(Ok(true)) => self.news.notify_one(),
                Ok(Err(error)) => return error.into(),
                Err(_) => return Ended::Silent,
            }
        }
    }

    /// Locks, enters, and listens, as far as a session is ours. Returns whether the lock is ours already:
    /// the server may not know yet that our last session has ended.
    async fn enter(&mut self, client: &Client) -> Result<bool, Error> {
        if client.is_pooled() {
            self.beat(client).await?;
            return Ok(true);
        }
        let locked = self.lock(client).await?;
        self.beat(client).await?;
        let channel = channel(client, &self.tenant.place.schema, &self.tenant.queue).await?;
        let listen = format!("LISTEN {}", quoted(&channel));
        client.batch_execute(&listen).await?;
        Ok(locked)
    }

    async fn lock(&self, client: &Client) -> Result<bool, Error> {
        client.query_one(LOCK, &[&self.key]).await?.try_get(0)
    }

    /// Shows that we live, and enters us if we are not among the owners, or not any more.
    async fn beat(&mut self, client: &Client) -> Result<(), Error> {
        let began = Instant::now();
        if let Some(owner) = self.owner
            && client.execute(BEAT, &[&owner]).await? > 0
        {
            self.beaten.send_replace(began);
            self.tell(None);
            return Ok(());
        }
        let lease_ms = i64::try_from(self.tenant.lease.as_millis()).unwrap_or(i64::MAX >> 8);
        let pid = i32::try_from(std::process::id()).unwrap_or(0);
        let (host, pool) = (host(), &self.tenant.pool);
        let values: [&(dyn ToSql + Sync); 5] = [&host, &pid, pool, &lease_ms, &self.key];
        let id: i64 = client.query_one(ENTER, &values).await?.try_get(0)?;
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

    /// Beats if that is due, and looks at the others.
    async fn tend(
        &mut self,
        client: &Client,
        locked: &mut bool,
        beats: bool,
    ) -> Result<Vec<Sight>, Error> {
        if !*locked {
            *locked = self.lock(client).await?;
        }
        if beats {
            self.beat(client).await?;
        }
        self.release_keys(client).await?;
        let rows = client.query(OTHERS, &[&self.owner]).await?;
        let sight = |row: &Row| {
            Ok(Sight {
                owner: row.try_get(0)?,
                heartbeat: row.try_get(1)?,
                free: row.try_get(2)?,
                stale: row.try_get(3)?,
            })
        };
        rows.iter().map(sight).collect()
    }

    /// Lets go the keys whose time is over.
    async fn release_keys(&mut self, client: &Client) -> Result<(), Error> {
        if self
            .keys_stuck
            .is_some_and(|since| since.elapsed() < STUCK_FOR)
        {
            return Ok(());
        }
        self.keys_stuck = None;
        match client.execute(RELEASE, &[]).await {
            Ok(_) => Ok(()),
            Err(error) if ends_the_connection(&error) => Err(error),
            Err(error) => {
                let problem = sentence(&error);
                tracing::error!(
                    problem,
                    "unique keys whose time is over can't be let go; it is tried again after a while"
                );
                self.keys_stuck = Some(Instant::now());
                Ok(())
            }
        }
    }
}
