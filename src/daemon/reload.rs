//! A reload: from the running configuration to the next one, all or nothing.

use std::collections::HashMap;
use std::sync::Arc;

use super::error::{DaemonError, chain};
use super::pending_reload::{Opened, PendingReload};
use super::subscribing::Subscribing;
use super::{Asker, Daemon, Next};
use ganger_config::changed::{ChangedKeys, taken_up};
use ganger_config::diff::{Change, difference};
use ganger_config::model::{Config, PoolConfig};
use ganger_pool::Steering;
use ganger_pool::overview::DaemonState;
use ganger_telemetry as telemetry;

impl Daemon {
    pub(super) fn reload(&mut self, config: Config, asker: Asker) {
        if self.stopping {
            tracing::warn!("reload ignored: the daemon is stopping");
            return asker.tell(Err("the daemon is stopping".into()));
        }
        if let Some(before) = self.next.replace(Next { config, asker }) {
            before
                .asker
                .tell(Err("a later reload has replaced it".into()));
        }
        if self.pending_reload.is_some() {
            // What it changes is known only then.
            tracing::info!("reload is waiting for the previous one");
        } else {
            self.begin_next();
        }
    }

    /// Begins to prepare the requested configuration. The start is a reload from an empty one.
    pub(super) fn begin_next(&mut self) {
        let Some(Next { config, asker }) = self.next.take() else {
            return;
        };
        self.asker = asker;
        let changes = difference(&self.config, &config);
        match PendingReload::begin(config, changes, &self.shared) {
            Ok(pending_reload) => self.pending_reload = Some(pending_reload),
            Err(error) => self.refuse(error),
        }
    }

    /// Applies the new configuration, if all of it is possible: everything it needs is opened
    /// before anything is changed.
    pub(super) fn apply_prepared(&mut self, ready: Result<(), DaemonError>) {
        let Some(pending_reload) = self.pending_reload.take() else {
            return;
        };
        match ready {
            Ok(()) => self.change(pending_reload),
            Err(error) => self.refuse(error),
        }
        if !self.stopping {
            self.begin_next();
        }
    }

    fn change(&mut self, pending_reload: PendingReload) {
        let mut opened = pending_reload.opened;
        let keys = ChangedKeys::between(&self.config, &pending_reload.config);
        let ledger = self.config.ledger.take();
        self.config = taken_up(&self.config, pending_reload.config);
        self.overview.set_config(&self.config);
        if self.started {
            self.reloads += 1;
        }
        for change in pending_reload.changes {
            if self.stopping {
                // One of them failed. What starts now would have missed the stop.
                break;
            }
            if change == Change::Schedules {
                self.scheduling = std::mem::take(&mut self.scheduling).begin(
                    &self.config,
                    ledger.as_ref(),
                    &self.overview,
                );
            }
            self.apply(change, &mut opened);
        }
        self.tell_number();
        if self.started {
            log(&keys);
            let status = self.overview.reloaded(self.reloads, keys);
            std::mem::take(&mut self.asker).tell(Ok(status));
        }
        if !self.started && self.failure.is_none() {
            self.started = true;
            self.overview.set_state(DaemonState::Running);
            let (pools, pid) = (self.pools.len(), std::process::id());
            tracing::info!(pools, pid, "ganger is running");
        }
        if !self.stopping {
            self.service.ready();
        }
    }

    /// Refuses the configuration: a start permanently, a reload without any change.
    fn refuse(&mut self, error: DaemonError) {
        if self.started {
            let error = chain(&error);
            tracing::error!(error, "reload refused: starting a pool failed");
            self.overview.reload_refused(vec![error.clone()]);
            self.service.ready();
            std::mem::take(&mut self.asker).tell(Err(error));
        } else {
            self.failure = Some(error);
            self.stopping = true;
        }
    }

    fn apply(&mut self, change: Change, opened: &mut HashMap<String, Opened>) {
        match change {
            Change::Start(pool) | Change::Replace(pool) => {
                let Some(opened) = opened.remove(&pool.name) else {
                    return;
                };
                if self.pools.contains_key(&pool.name) {
                    // Its predecessor goes first; it may be on its way out already.
                    self.successors.insert(pool.name.clone(), opened);
                    self.dismiss(&pool.name);
                } else {
                    let held = self.overview.pauses().of(&opened.policy.name);
                    self.launch(opened, Steering::held(held));
                }
            }
            Change::Stop { name } => {
                self.successors.remove(&name);
                if let Some(pool) = self.pools.get_mut(&name) {
                    pool.steered = None;
                }
                self.dismiss(&name);
            }
            Change::Update { pool, roll } => self.update(pool, roll),
            // The rest is looked up when it is needed.
            Change::Daemon(daemon) => {
                self.budget.set(daemon.buffered_bytes_max);
                self.service.set_stall_timeout(daemon.stall_timeout);
            }
            Change::LogLevel(filter) => match telemetry::set_level(&filter) {
                Ok(()) => tracing::info!(filter, "log level changed"),
                Err(error) => tracing::error!(%error, "log level unchanged"),
            },
            // Who sends them sees it in the overview.
            Change::Alerts | Change::Schedules => {}
            Change::Subscriptions => self.subscribing = Subscribing::begin(&self.config),
        }
    }

    /// Stops a pool that the configuration has removed or changed.
    pub(super) fn dismiss(&mut self, name: &str) {
        if let Some(pool) = self.pools.get_mut(name) {
            pool.dismissed = true;
            let drain_timeout = self.config.daemon.drain_timeout;
            pool.tell(|orders| orders.stop(drain_timeout));
        }
        self.give_up_if_unbegun(name);
    }

    fn update(&mut self, pool: Arc<PoolConfig>, roll: bool) {
        let name = pool.name.clone();
        if let Some(successor) = self.successors.get_mut(&name) {
            // The one that runs is on its way out.
            successor.rules.send_replace(Arc::clone(&pool));
            successor.policy = pool;
        } else if let Some(running) = self.pools.get_mut(&name) {
            running.rules.send_replace(Arc::clone(&pool));
            running.tell(|orders| orders.update(pool, roll));
        }
    }

    /// Gives every remaining pool the number of the last reload.
    fn tell_number(&self) {
        let number = self.reloads;
        for pool in self.pools.values().filter(|pool| !pool.dismissed) {
            pool.tell(|orders| orders.reloaded(number));
        }
    }
}

/// Logs the changes.
fn log(keys: &ChangedKeys) {
    let list = |keys: &[String]| (!keys.is_empty()).then(|| keys.join(", "));
    tracing::info!(
        changes = keys.count(),
        changed = list(&keys.changed),
        added = list(&keys.added),
        removed = list(&keys.removed),
        "configuration reloaded"
    );
    if let Some(keys) = list(&keys.restart_needed) {
        tracing::warn!(
            keys,
            "these settings take effect after a restart of the daemon"
        );
    }
}
