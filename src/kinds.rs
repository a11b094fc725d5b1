//! The kinds of queue that this program knows. A further one is a crate, a section of the configuration and a
//! line in the list here.

use std::sync::Arc;

use tokio::sync::watch;

use ganger_config::model::{LedgerConfig, PoolConfig, SourceConfig};
use ganger_core::budget::Budget;
use ganger_queue::client::Client;
use ganger_queue::delivery::{Follower, Following, SourceEnd};
use ganger_queue::exclusive::Exclusive;
use ganger_queue::fault::SourceFault;
use ganger_queue::ledger::LedgerClient;
use ganger_queue::source::{Link, Opening, Source, SourceError};
use ganger_queue::unread::UnreadQueues;
#[cfg(feature = "sqlite")]
use ganger_table::ledger::Ledger;
#[cfg(feature = "sqlite")]
use ganger_table::{Stores, Table, idempotency};

/// State that all sources of one daemon share.
#[derive(Debug, Clone)]
pub struct Shared {
    budget: Budget,
    exclusive: Exclusive,
    unread: UnreadQueues,
    follower: Follower,
    #[cfg(feature = "sqlite")]
    stores: Stores,
}

impl Shared {
    /// Returns the state for a daemon that has no source yet. Its sources share this budget, report in
    /// `unread` the queues that no pool reads, and by `follower` what becomes of messages for a ledger elsewhere.
    pub fn new(budget: Budget, unread: UnreadQueues, follower: Follower) -> Self {
        Self {
            budget,
            exclusive: Exclusive::default(),
            unread,
            follower,
            #[cfg(feature = "sqlite")]
            stores: Stores::default(),
        }
    }
}

impl Default for Shared {
    fn default() -> Self {
        Self::new(
            Budget::new(None),
            UnreadQueues::default(),
            Follower::default(),
        )
    }
}

/// Returns the source called `name`. Nothing is connected yet.
fn source(
    name: &str,
    config: &SourceConfig,
    shared: &Shared,
) -> Result<Box<dyn Source>, SourceFault> {
    Ok(match config {
        #[cfg(feature = "kafka")]
        SourceConfig::Kafka(config) => Box::new(ganger_kafka::Kafka::new(name, config)),
        #[cfg(feature = "rabbitmq")]
        SourceConfig::RabbitMq(config) => Box::new(ganger_rabbitmq::RabbitMq::new(name, config)),
        #[cfg(feature = "sqlite")]
        SourceConfig::Table(config) => {
            Box::new(Table::new(name, config, &shared.stores, &shared.unread))
        }
        #[cfg(not(all(feature = "kafka", feature = "rabbitmq", feature = "sqlite")))]
        other => return Err(missing(other).of(name)),
    })
}

#[cfg(not(all(feature = "kafka", feature = "rabbitmq", feature = "sqlite")))]
fn missing(source: &SourceConfig) -> SourceFault {
    SourceFault::missing_feature(match source {
        SourceConfig::Table(_) => "sqlite",
        SourceConfig::RabbitMq(_) => "rabbitmq",
        SourceConfig::Kafka(_) => "kafka",
    })
}

/// Begins to open a reader for a pool, which reads its queue through the connection that `config` calls
/// `name`.
///
/// # Errors
/// If no thread can be started.
pub fn open(
    name: &str,
    config: &SourceConfig,
    policy: watch::Receiver<Arc<PoolConfig>>,
    mut end: SourceEnd,
    shared: &Shared,
) -> Result<Opening, SourceError> {
    let own = match config {
        SourceConfig::Table(table) => Some(table.database.clone()),
        SourceConfig::RabbitMq(_) | SourceConfig::Kafka(_) => None,
    };
    end.following = Some(Following::new(&shared.follower, own, policy.clone()));
    let pool = Arc::clone(&policy.borrow());
    let source = source(name, config, shared)?;
    let reader = |end| {
        source.reader(Link {
            end,
            policy,
            exclusive: shared.exclusive.clone(),
            share: shared.budget.share(&pool.name),
        })
    };
    match &pool.idempotency {
        None => reader(end),
        #[cfg(feature = "sqlite")]
        Some(wanted) => idempotency::between(wanted, &pool, end, reader),
        #[cfg(not(feature = "sqlite"))]
        Some(wanted) => Err(SourceFault::missing_feature("sqlite")
            .of(&wanted.store)
            .into()),
    }
}

/// Connects to the source called `name` for a command or a request. The `pools` that read from it determine
/// its queues.
///
/// # Errors
/// If the source can't be reached or used.
pub fn client(
    name: &str,
    source: &SourceConfig,
    pools: &[Arc<PoolConfig>],
) -> Result<Client, SourceFault> {
    let pools = pools.iter().filter(|pool| pool.source == name);
    let pools: Vec<Arc<PoolConfig>> = pools.cloned().collect();
    let kind = self::source(name, source, &Shared::default())?;
    let kind = kind.client(&pools).map_err(|fault| fault.of(name))?;
    Ok(Client::new(name, kind))
}

/// Opens a ledger. A command waits longer than a daemon while others write.
///
/// # Errors
/// If the database can't be reached or used.
pub fn ledger(
    config: &LedgerConfig,
    is_command: bool,
) -> Result<Box<dyn LedgerClient>, SourceFault> {
    #[cfg(feature = "sqlite")]
    let opened = Ledger::open(config, is_command).map(|ledger| Box::new(ledger) as _);
    #[cfg(not(feature = "sqlite"))]
    let opened = {
        let _ = is_command;
        Err(SourceFault::missing_feature("sqlite").of(&config.source))
    };
    opened
}

/// Returns the problem with the tables of a ledger, if there is one; tables that will be created are none.
///
/// # Errors
/// If the database can't be reached.
pub fn ledger_problem(config: &LedgerConfig) -> Result<Option<String>, SourceFault> {
    #[cfg(feature = "sqlite")]
    let problem = Ledger::problem(config);
    #[cfg(not(feature = "sqlite"))]
    let problem = Err(SourceFault::missing_feature("sqlite").of(&config.source));
    problem
}

/// Returns the statements that create the tables of a source; none for one that has no tables, or that this
/// build was left without.
pub fn schema(config: &SourceConfig) -> Option<String> {
    source("", config, &Shared::default()).ok()?.schema()
}
