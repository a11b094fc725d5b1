//! Builds what the configuration asks for, runs it, changes it on reload and takes it down again.
//! It owns every pool's thread by name; what happens inside a pool is the pool's affair.

mod error;
mod life;
mod pending_reload;
mod reload;
mod running;
#[cfg_attr(not(feature = "sqlite"), path = "daemon/no_scheduling.rs")]
mod scheduling;
pub mod service;
mod subscribing;
#[cfg(test)]
mod tests;
mod watchdog;

use crate::kinds;
use std::collections::{BTreeMap, HashMap};
use std::future::pending;
use std::sync::Arc;
use std::{io, thread};

use tokio::runtime;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};

pub use error::{DaemonError, chain};
use ganger_config::model::Config;
use ganger_core::budget::Budget;
use ganger_core::heartbeat::Heartbeat;
use ganger_pool::overview::{DaemonState, Overview};
use ganger_pool::pauses::Pauses;
use ganger_pool::request::{Reloaded, Request};
use ganger_pool::status::PoolStatus;
use ganger_pool::{Orders, Steering};
use life::{Ended, Life};
use pending_reload::{Opened, PendingReload, ready};
use running::Running;
use scheduling::Scheduling;
use service::Service;
use subscribing::Subscribing;

/// Maximum number of commands from others that wait for a pool to read them.
const COMMANDS_WAITING_MAX: usize = 64;

/// The next configuration of the daemon, and who asked for it.
#[derive(Debug)]
struct Next {
    config: Config,
    asker: Asker,
}

/// Requester of a reload, who waits for its outcome; may have gone.
#[derive(Debug, Default)]
struct Asker(Option<oneshot::Sender<Reloaded>>);

impl Asker {
    fn tell(self, what: Reloaded) {
        if let Some(asker) = self.0 {
            drop(asker.send(what));
        }
    }
}

/// The daemon.
#[derive(Debug)]
pub struct Daemon {
    config: Config,
    shared: kinds::Shared,
    /// Message memory of the pools: use and limit.
    budget: Budget,
    /// State of the daemon as others see it.
    overview: Overview,
    pools: BTreeMap<String, Running>,
    /// The change in progress.
    pending_reload: Option<PendingReload>,
    /// Requester of that change.
    asker: Asker,
    /// Configuration requested meanwhile; of several the last.
    next: Option<Next>,
    /// Pools that start again, changed, once their predecessors have ended.
    successors: HashMap<String, Opened>,
    ended_tx: mpsc::Sender<Ended>,
    ended: mpsc::Receiver<Ended>,
    /// Number of reloads carried out.
    reloads: u64,
    /// True once the start has succeeded.
    started: bool,
    stopping: bool,
    failure: Option<DaemonError>,
    service: Service,
    subscribing: Subscribing,
    scheduling: Scheduling,
}

impl Daemon {
    /// Returns a daemon that applies the configuration as soon as it runs.
    pub fn new(config: Config) -> Self {
        let (ended_tx, ended) = mpsc::channel(COMMANDS_WAITING_MAX);
        let budget = Budget::new(config.daemon.buffered_bytes_max);
        let overview = Overview::new(budget.clone(), &config);
        Self {
            config: Config {
                daemon: config.daemon.clone(),
                admin: config.admin.clone(),
                telemetry: config.telemetry.clone(),
                alerts: config.alerts.clone(),
                sources: BTreeMap::new(),
                pools: Vec::new(),
                subscriptions: Vec::new(),
                ledger: None,
                schedules: Vec::new(),
                effective: config.effective.clone(),
            },
            shared: kinds::Shared::new(
                budget.clone(),
                overview.unread_queues().clone(),
                overview.follower().clone(),
            ),
            overview,
            budget,
            pools: BTreeMap::new(),
            pending_reload: None,
            asker: Asker::default(),
            next: Some(Next {
                config,
                asker: Asker::default(),
            }),
            successors: HashMap::new(),
            ended_tx,
            ended,
            reloads: 0,
            started: false,
            stopping: false,
            failure: None,
            service: Service::default(),
            subscribing: Subscribing::none(),
            scheduling: Scheduling::default(),
        }
    }

    /// Adds a service that reports the daemon's state to the service manager.
    #[must_use]
    pub fn reporting_to(self, service: Service) -> Self {
        Self { service, ..self }
    }

    /// Pauses, from the start, those pools that `pauses` lists as paused.
    #[must_use]
    pub fn with_pauses(mut self, pauses: Pauses) -> Self {
        self.overview = self.overview.with_pauses(pauses);
        self
    }

    /// Returns the daemon's state as other threads see it.
    pub fn overview(&self) -> Overview {
        self.overview.clone()
    }

    /// Runs until it is asked to stop and has stopped, or until a pool fails: then the others are
    /// drained.
    ///
    /// # Errors
    /// If a source can't be opened at the start, or a pool failed.
    pub async fn run(mut self, mut requests: mpsc::Receiver<Request>) -> Result<(), DaemonError> {
        let _heart = Heartbeat::named("daemon").on(&runtime::Handle::current());
        self.begin_next();
        while !self.is_finished() {
            let next_try = self.next_try();
            tokio::select! {
                biased;
                request = requests.recv() => match request {
                    Some(request) => self.handle_request(request).await,
                    None if self.stopping => self.await_end().await,
                    None => self.stop(),
                },
                Some(ended) = self.ended.recv() => self.pool_ended(ended),
                ready = ready(&mut self.pending_reload) => self.apply_prepared(ready),
                () = at(next_try) => self.try_again(Instant::now()),
            }
        }
        // The pools have settled everything: what they reported is written now.
        std::mem::take(&mut self.scheduling).end().await;
        tracing::info!("ganger has stopped");
        self.failure.map_or(Ok(()), Err)
    }

    fn is_finished(&self) -> bool {
        let nothing_follows = self.successors.is_empty() && self.pending_reload.is_none();
        self.pools.is_empty() && (self.stopping || nothing_follows)
    }

    async fn await_end(&mut self) {
        if let Some(ended) = self.ended.recv().await {
            self.pool_ended(ended);
        }
    }

    async fn handle_request(&mut self, request: Request) {
        match request {
            Request::Stop => self.stop(),
            Request::Reload(config, asker) => self.reload(*config, Asker(asker)),
            Request::LogStatus => self.overview.status_now().await.log(),
            Request::Roll => self.order_all(Orders::roll),
        }
    }

    fn stop(&mut self) {
        let drain_timeout = self.config.daemon.drain_timeout;
        if self.stopping {
            tracing::warn!("asked to stop again: next phase begins at once");
            self.order_all(Orders::escalate_stop);
        } else {
            tracing::info!(
                ?drain_timeout,
                "stopping: messages in hand are finished first"
            );
            self.stopping = true;
            self.scheduling.stop();
            self.service.stopping();
            self.overview.set_state(DaemonState::Stopping);
            self.successors.clear();
            self.pending_reload = None;
            std::mem::take(&mut self.asker).tell(Err("the daemon is stopping".into()));
            self.order_all(|orders| orders.stop(drain_timeout));
            for name in self.pools.keys().cloned().collect::<Vec<_>>() {
                self.give_up_if_unbegun(&name);
            }
        }
    }

    fn order_all(&self, order: impl Fn(&mut Orders)) {
        self.pools.values().for_each(|pool| pool.tell(&order));
    }

    fn pool_ended(&mut self, ended: Ended) {
        let pool = self.pools.remove(&ended.pool);
        let dismissed = pool.as_ref().is_some_and(|pool| pool.dismissed);
        match ended.result {
            Ok(()) => tracing::info!(pool = ended.pool, "pool stopped"),
            // Its source goes on by itself with what it could not write, for as long as we live.
            Err(why) if dismissed && !self.stopping => {
                tracing::error!(
                    pool = ended.pool,
                    why,
                    "a pool that the reload stopped failed; the others continue"
                );
            }
            Err(why) => {
                tracing::error!(pool = ended.pool, why, "pool failed");
                self.failure.get_or_insert(DaemonError::Pool {
                    pool: ended.pool.clone(),
                    why,
                });
                if !self.stopping {
                    self.stop();
                }
            }
        }
        let successor = self
            .successors
            .remove(&ended.pool)
            .filter(|_| !self.stopping);
        // A pool that is replaced is at no time missing among those that others see.
        if let Some(opened) = successor {
            let steering = pool.map(|pool| pool.steering_for(&opened.policy));
            self.launch(opened, steering.unwrap_or_default());
        } else if !self.stopping {
            // At a stop its last figures stay to be seen.
            self.overview.registry().remove(&ended.pool);
        }
    }

    // -- threads --

    fn launch(&mut self, opened: Opened, steering: Steering) {
        let Opened {
            policy,
            rules,
            source,
            end,
        } = opened;
        let name = policy.name.clone();
        let (commands, commands_rx) = mpsc::channel(COMMANDS_WAITING_MAX);
        let mut first = Orders::new(Arc::clone(&policy));
        first.reloaded(self.reloads);
        let (orders, told) = watch::channel(first);
        let (show, shown) = watch::channel(Arc::new(PoolStatus::starting(&policy)));
        let (tell_steering, steered) = watch::channel(steering);
        let mut running = Running {
            orders,
            rules,
            steered: Some(steered),
            unbegun: None,
            dismissed: false,
        };
        let life = Life {
            pool: name.clone(),
            orders: told,
            end,
            commands: commands_rx,
            show,
            steered: tell_steering,
            source,
            feed: self.overview.feed().clone(),
            ended: self.ended_tx.clone(),
        };
        if let Err(unbegun) = life.begin() {
            if !self.started {
                return self.fail(&name, unbegun.why);
            }
            let error = &unbegun.why;
            tracing::error!(pool = name, %error, "starting a pool failed; retrying");
            running.unbegun = Some(unbegun);
        }
        self.overview.registry().insert(&name, commands, shown);
        self.pools.insert(name, running);
    }

    /// Fails a start in which a pool has no thread: the other pools are drained.
    fn fail(&mut self, pool: &str, source: io::Error) {
        let pool = pool.to_owned();
        let error = DaemonError::Thread { pool, source };
        tracing::error!(error = chain(&error), "starting a pool failed");
        self.failure.get_or_insert(error);
        if !self.stopping {
            self.stop();
        }
    }

    /// Returns the time of the next attempt to start a pool that has no thread.
    fn next_try(&self) -> Option<Instant> {
        let unbegun = self.pools.values().filter_map(|pool| pool.unbegun.as_ref());
        unbegun.map(|unbegun| unbegun.again).min()
    }

    fn try_again(&mut self, now: Instant) {
        for (name, pool) in &mut self.pools {
            let Some(unbegun) = pool.unbegun.take_if(|unbegun| unbegun.again <= now) else {
                continue;
            };
            match unbegun.begin(thread::Builder::new()) {
                Ok(()) => tracing::info!(pool = name, "a pool that had no thread has started"),
                Err(unbegun) => pool.unbegun = Some(unbegun),
            }
        }
    }

    /// Ends a pool that has not begun at once; its source ends by itself.
    fn give_up_if_unbegun(&mut self, name: &str) {
        let pool = self.pools.get(name);
        if pool.is_some_and(|pool| pool.unbegun.is_some()) {
            self.pool_ended(Ended {
                pool: name.to_owned(),
                result: Ok(()),
            });
        }
    }
}

/// Sleeps until `time`; for ever if there is none.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => pending().await,
    }
}
