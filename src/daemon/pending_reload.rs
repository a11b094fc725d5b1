//! Preparation of a change: the sources of new pools are opened before anything old is stopped.
//! Nothing runs here yet.

use std::collections::{HashMap, VecDeque};
use std::future::pending;
use std::sync::Arc;

use tokio::sync::watch;

use super::error::DaemonError;
use crate::kinds;
use ganger_config::diff::Change;
use ganger_config::model::{Config, PoolConfig};
use ganger_queue::{delivery, source};

/// A pool that can be started: its source is open.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) policy: Arc<PoolConfig>,
    /// Sends changed rules to the source.
    pub(super) rules: watch::Sender<Arc<PoolConfig>>,
    pub(super) source: source::Running,
    pub(super) end: delivery::PoolEnd,
}

/// A pool whose source is being opened.
#[derive(Debug)]
struct Opening {
    policy: Arc<PoolConfig>,
    rules: watch::Sender<Arc<PoolConfig>>,
    source: source::Opening,
    end: delivery::PoolEnd,
}

impl Opening {
    fn begin(
        config: &Config,
        pool: &Arc<PoolConfig>,
        shared: &kinds::Shared,
    ) -> Result<Self, DaemonError> {
        let (source_end, end) = delivery::link();
        let (rules, rules_rx) = watch::channel(Arc::clone(pool));
        let settings = &config.sources[&pool.source];
        let source = kinds::open(&pool.source, settings, rules_rx, source_end, shared);
        Ok(Self {
            source: source.map_err(|error| not_started(pool, error))?,
            policy: pool.clone(),
            rules,
            end,
        })
    }

    fn opened(self) -> Opened {
        Opened {
            policy: self.policy,
            rules: self.rules,
            source: self.source.running(),
            end: self.end,
        }
    }
}

fn not_started(pool: &PoolConfig, source: source::SourceError) -> DaemonError {
    DaemonError::Start {
        pool: pool.name.clone(),
        source: Box::new(source),
    }
}

/// A change that is being prepared, ready once everything new in it is open. If dropped, it has no
/// effect: a source without a pool ends by itself.
#[derive(Debug)]
pub(super) struct PendingReload {
    pub(super) config: Config,
    pub(super) changes: Vec<Change>,
    opening: VecDeque<Opening>,
    pub(super) opened: HashMap<String, Opened>,
}

impl PendingReload {
    /// Begins to open the sources that these changes need.
    pub(super) fn begin(
        config: Config,
        changes: Vec<Change>,
        shared: &kinds::Shared,
    ) -> Result<Self, DaemonError> {
        let begun = changes.iter().filter_map(Change::begins);
        let opening = begun.map(|pool| Opening::begin(&config, pool, shared));
        Ok(Self {
            opening: opening.collect::<Result<_, _>>()?,
            config,
            changes,
            opened: HashMap::new(),
        })
    }

    /// Waits until everything is open. Brokers that don't answer are waited for together.
    /// Cancel-safe.
    async fn ready(&mut self) -> Result<(), DaemonError> {
        while let Some(first) = self.opening.front_mut() {
            let opened = first.source.opened().await;
            opened.map_err(|error| not_started(&first.policy, error))?;
            let opened = self.opening.pop_front().map(Opening::opened);
            let named = opened.map(|opened| (opened.policy.name.clone(), opened));
            self.opened.extend(named);
        }
        Ok(())
    }
}

/// Waits for a change that is being prepared, if there is one.
pub(super) async fn ready(pending_reload: &mut Option<PendingReload>) -> Result<(), DaemonError> {
    match pending_reload {
        Some(pending_reload) => pending_reload.ready().await,
        None => pending().await,
    }
}
