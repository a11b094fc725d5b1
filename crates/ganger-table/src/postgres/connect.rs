//! Connections to a server: how they are made, the settings of each, and its notifications.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, OnceCell};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::config::{Host as PgHost, SslMode as PgSslMode, TargetSessionAttrs};
use tokio_postgres::{AsyncMessage, Config, Connection, Error, Socket};

use super::client::{Client, Statement};
use super::error::{PostgresError, connect_error, failed};
use super::ledger_statements::LedgerStatements;
use super::schema;
use super::tls::Encryption;
use crate::server::names::Names;
use crate::server::tables::Tables;
use ganger_config::model::{Host, PostgresDatabase, SslMode};
use ganger_core::threads::or_refused;

/// Maximum time to connect to one address of a host, and to all of them, including everything before the
/// first statement of the caller.
const CONNECTS_WITHIN: Duration = Duration::from_secs(5);
const OPENS_WITHIN: Duration = Duration::from_secs(10);

/// Idle time after which TCP keepalive probes a connection, interval and number of the probes, and
/// maximum time without an acknowledgement of sent data.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(2);
const KEEPALIVES: u32 = 3;
const UNHEARD_FOR: Duration = Duration::from_secs(15);

/// Settings of every connection, whatever the defaults of the server or the database.
///
/// A table that is small today may hold millions of rows tomorrow, or have held them when its statistics
/// were taken. So statements use the indexes that they are written for, and are planned once.
const SETTINGS: &[(&str, &str)] = &[
    ("statement_timeout", "'10s'"),
    ("lock_timeout", "'5s'"),
    ("idle_in_transaction_session_timeout", "'20s'"),
    ("default_transaction_isolation", "'read committed'"),
    ("plan_cache_mode", "'force_generic_plan'"),
    ("enable_seqscan", "off"),
    ("enable_bitmapscan", "off"),
    ("enable_sort", "off"),
    ("jit", "off"),
];
/// Additional settings of a session that no pooler shares.
const SESSION: &[(&str, &str)] = &[
    ("tcp_keepalives_idle", "5"),
    ("tcp_keepalives_interval", "2"),
    ("tcp_keepalives_count", "3"),
    // A client that is stopped in the middle of a large result is not idle for the server.
    ("tcp_user_timeout", "15000"),
];

/// Address and options for connections.
#[derive(Debug, Clone)]
pub(crate) struct ConnectTarget {
    /// Options for each host.
    configs: Vec<Config>,
    encryption: Option<Encryption>,
    /// Hosts and database for messages, without secrets.
    pub(crate) server: String,
    pub(crate) schema: String,
    /// True if missing tables are to be created.
    declare: bool,
    /// True if a pooler hands each transaction to any free session.
    pub(crate) is_pooled: bool,
    names: Names,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct RawConnection {
    pub(crate) client: Client,
    /// Task that drives the connection; it ends with the connection.
    pub(crate) driver: JoinHandle<()>,
    /// Signalled by each notification from the server.
    pub(crate) notification: Arc<Notify>,
    /// The schema that the tables are in.
    pub(crate) schema: String,
    /// Statement that reads the other owners. It runs twice a second.
    pub(super) others: OnceCell<Statement>,
    /// Statement that releases expired unique keys. It runs twice a second.
    pub(super) release: OnceCell<Statement>,
    pub(super) ledger: LedgerStatements,
}

impl ConnectTarget {
    /// Makes the address of that database. The server lists the connections under `name`.
    pub(crate) fn of(database: &PostgresDatabase, name: &str) -> Result<Self, PostgresError> {
        let mut config = Config::new();
        config
            .user(&database.username)
            .dbname(&database.database)
            .application_name(name)
            .connect_timeout(CONNECTS_WITHIN)
            .keepalives_idle(KEEPALIVE_IDLE)
            .keepalives_interval(KEEPALIVE_EVERY)
            .keepalives_retries(KEEPALIVES)
            .tcp_user_timeout(UNHEARD_FOR)
            .target_session_attrs(TargetSessionAttrs::ReadWrite)
            .ssl_mode(match database.ssl_mode {
                SslMode::Disable => PgSslMode::Disable,
                SslMode::Prefer => PgSslMode::Prefer,
                SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => PgSslMode::Require,
            });
        if let Some(password) = &database.password {
            config.password(password.expose());
        }
        let of_host = |host: &Host| {
            let mut config = config.clone();
            config.host(&host.name).port(host.port);
            config
        };
        let mut configs: Vec<Config> = database.hosts.iter().map(of_host).collect();
        let by_tcp = configs
            .iter()
            .flat_map(Config::get_hosts)
            .all(|host| matches!(host, PgHost::Tcp(_)));
        let encrypts = by_tcp && database.ssl_mode != SslMode::Disable;
        let encryption = encrypts.then(|| Encryption::of(database)).transpose()?;
        if encryption.is_none() {
            // A Unix socket has no TLS.
            for config in &mut configs {
                config.ssl_mode(PgSslMode::Disable);
            }
        }
        Ok(Self {
            configs,
            encryption,
            server: format!("{}/{}", database.servers(), database.database),
            schema: database.schema.clone(),
            declare: database.declare,
            is_pooled: database.pgbouncer,
            names: Names::with_prefix(&database.table_prefix),
        })
    }

    /// Connects, and makes sure that the tables of the queues exist.
    pub(crate) async fn connect(&self) -> Result<RawConnection, PostgresError> {
        let raw = self.connect_bare().await?;
        self.prepare(&raw.client, Tables::Queues).await?;
        Ok(raw)
    }

    /// Makes sure that the tables exist, and creates missing ones if that is configured.
    pub(crate) async fn prepare(
        &self,
        client: &Client,
        tables: Tables,
    ) -> Result<(), PostgresError> {
        // Boxed, since it is large and rarely used: otherwise every future that contains it would be as
        // large.
        Box::pin(schema::prepare(client, tables, &self.schema, self.declare)).await
    }

    /// Returns the problem with the tables, if there is one; tables that will be created are none.
    /// Creates nothing.
    pub(crate) async fn look(
        &self,
        client: &Client,
        tables: Tables,
    ) -> Result<Option<String>, PostgresError> {
        as_problem(schema::look(client, tables, &self.schema, self.declare).await)
    }

    /// Returns whether all tables of the queues exist in their current form.
    pub(crate) async fn is_made(&self, client: &Client) -> Result<bool, PostgresError> {
        schema::is_made(client, &self.schema).await
    }

    /// Connects to the first usable server, whether or not the tables exist. A silent host is given up
    /// after [`OPENS_WITHIN`], and the next one tried.
    pub(crate) async fn connect_bare(&self) -> Result<RawConnection, PostgresError> {
        let mut first = None;
        for config in &self.configs {
            // The driver resolves the name, which needs a thread.
            let opening = or_refused(Box::pin(self.open(config)));
            let error = match timeout(OPENS_WITHIN, opening).await {
                Ok(Ok(Ok(raw))) => return Ok(raw),
                Ok(Ok(Err(error))) => error,
                Ok(Err(refused)) => self.away(refused.to_string()),
                Err(_) => {
                    let seconds = OPENS_WITHIN.as_secs();
                    self.away(format!("no answer within {seconds} s"))
                }
            };
            // A host that may return takes precedence: waiting for it may help, whatever the others
            // answer.
            match &first {
                Some(PostgresError::Away { .. }) => {}
                _ if error.is_transient() => first = Some(error),
                Some(_) => {}
                None => first = Some(error),
            }
        }
        Err(first.unwrap_or_else(|| self.away("no host is configured".to_owned())))
    }

    fn away(&self, why: String) -> PostgresError {
        let server = self.server.clone();
        PostgresError::Away { server, why }
    }

    async fn open(&self, config: &Config) -> Result<RawConnection, PostgresError> {
        let away = |error| connect_error(&self.server, &error);
        let ours = |client| Client::new(client, self.names.clone(), self.is_pooled);
        let mut raw = match &self.encryption {
            Some(encryption) => {
                let connected = config.connect(encryption.clone()).await;
                let (client, connection) = connected.map_err(away)?;
                RawConnection::driven(ours(client), connection, &self.schema)
            }
            None => {
                let connected = config.connect(tokio_postgres::NoTls).await;
                let (client, connection) = connected.map_err(away)?;
                RawConnection::driven(ours(client), connection, &self.schema)
            }
        };
        let further = self.fit(&raw.client).await?;
        let set = self.set_up(&mut raw.client, &further).await;
        set.map_err(failed("setting up the connection"))?;
        Ok(raw)
    }

    async fn set_up(&self, client: &mut Client, further: &[(&str, &str)]) -> Result<(), Error> {
        client.set(SETTINGS).await?;
        if !client.is_pooled() {
            client.set(SESSION).await?;
        }
        if !further.is_empty() {
            client.set(further).await?;
        }
        let schema = schema::quoted(&self.schema);
        client.set(&[("search_path", schema.as_str())]).await
    }

    /// Checks that the server can be used. Returns additional settings for it.
    async fn fit(
        &self,
        client: &Client,
    ) -> Result<Vec<(&'static str, &'static str)>, PostgresError> {
        let info = "SELECT current_setting('server_version_num')::integer, \
                     current_setting('server_version'), current_setting('server_encoding'), \
                     current_setting('synchronous_commit') <> 'off'";
        let info = client.query_one(info, &[]).await;
        let info = info.map_err(|error| connect_error(&self.server, &error))?;
        let server = self.server.clone();
        let version = info.get::<_, i32>(0);
        if version < schema::OLDEST_SERVER {
            let found = info.get(1);
            return Err(PostgresError::Old { server, found });
        }
        match info.get::<_, String>(2) {
            utf8 if utf8 == "UTF8" => Ok(further(version, info.get(3))),
            found => Err(PostgresError::Encoding { server, found }),
        }
    }
}

/// The first version with a timeout of idle sessions.
const ENDS_IDLE_SESSIONS: i32 = 140_000;

/// The first version with a timeout of whole transactions.
const LIMITS_TRANSACTIONS: i32 = 170_000;

/// Returns additional settings for a server of that version. `commits` is false if it does not wait
/// until a commit is safe.
fn further(version: i32, commits: bool) -> Vec<(&'static str, &'static str)> {
    let mut further = Vec::new();
    if !commits {
        further.push(("synchronous_commit", "on"));
    }
    // A source that listens or waits for work sends nothing for long periods.
    if version >= ENDS_IDLE_SESSIONS {
        further.push(("idle_session_timeout", "0"));
    }
    // A transaction may take as long as its statements, and a migration may rebuild tables with millions
    // of rows.
    if version >= LIMITS_TRANSACTIONS {
        further.push(("transaction_timeout", "0"));
    }
    further
}

/// Returns what is wrong with tables as a problem; an error is what kept them from being looked at.
fn as_problem(looked: Result<(), PostgresError>) -> Result<Option<String>, PostgresError> {
    match looked {
        Ok(()) => Ok(None),
        Err(error @ PostgresError::Command { .. }) => Err(error),
        Err(wrong) => Ok(Some(wrong.to_string())),
    }
}

impl RawConnection {
    fn driven<S>(client: Client, mut connection: Connection<Socket, S>, schema: &str) -> Self
    where
        S: tokio_postgres::tls::TlsStream + Unpin + Send + 'static,
    {
        let notification = Arc::new(Notify::new());
        let signal = Arc::clone(&notification);
        let driver = tokio::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
                if matches!(message, AsyncMessage::Notification(_)) {
                    signal.notify_one();
                }
            }
        });
        Self {
            client,
            driver,
            notification,
            schema: schema.to_owned(),
            others: OnceCell::new(),
            release: OnceCell::new(),
            ledger: LedgerStatements::default(),
        }
    }

    /// Closes the connection at once, even while a statement is running. Without this, it ends after the
    /// last answer.
    pub(crate) fn abort(self) {
        self.driver.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_later_servers_know_is_set_only_there() {
        let idle = ("idle_session_timeout", "0");
        let unlimited = ("transaction_timeout", "0");
        let safe = ("synchronous_commit", "on");
        assert_eq!(further(130_014, true), []);
        assert_eq!(further(130_014, false), [safe]);
        assert_eq!(further(160_009, true), [idle]);
        assert_eq!(further(170_000, true), [idle, unlimited]);
        assert_eq!(further(180_001, false), [safe, idle, unlimited]);
    }
}
