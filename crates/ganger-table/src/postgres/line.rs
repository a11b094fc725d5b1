//! A connection to a server: how one is made, what is asked of each, and what is heard on it.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, OnceCell};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::config::{Host as PgHost, SslMode as PgSslMode, TargetSessionAttrs};
use tokio_postgres::{AsyncMessage, Config, Connection, Error, Socket};

use super::client::{Client, Statement};
use super::error::{PostgresError, failed, unconnected};
use super::schema;
use super::tls::Encryption;
use crate::server::names::Names;
use ganger_config::model::{Host, PostgresDatabase, SslMode};
use ganger_core::threads::or_refused;

/// How long an attempt to connect may take, to one address of a host and to all of them, with all that is
/// said before the first statement.
const CONNECTS_WITHIN: Duration = Duration::from_secs(5);
const OPENS_WITHIN: Duration = Duration::from_secs(10);

/// When a connection that nothing is heard of is asked after, and given up.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(2);
const KEEPALIVES: u32 = 3;
const UNHEARD_FOR: Duration = Duration::from_secs(15);

/// What holds for every connection of ours, whatever the server or the database is set to.
///
/// What is small today may hold millions of rows tomorrow, or have held them when the server last
/// counted: so statements go by the indexes that they are written for, and are planned once.
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
/// What a session has for itself.
const SESSION: &[(&str, &str)] = &[
    ("tcp_keepalives_idle", "5"),
    ("tcp_keepalives_interval", "2"),
    ("tcp_keepalives_count", "3"),
];

/// Where connections are made to.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// Of each host.
    configs: Vec<Config>,
    encryption: Option<Encryption>,
    /// As people are told of it: no secret.
    pub(crate) server: String,
    pub(crate) schema: String,
    /// Whether tables that are missing are made.
    declare: bool,
    /// A pooler is between that hands each transaction to another session.
    pub(crate) is_pooled: bool,
    names: Names,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) client: Client,
    /// Ends with it.
    pub(crate) driver: JoinHandle<()>,
    /// Rung when something was heard that was not asked for.
    pub(crate) bell: Arc<Notify>,
    /// The schema that the tables are in.
    pub(crate) schema: String,
    /// What is done twice a second: the look at all owners,
    pub(super) others: OnceCell<Statement>,
    /// and what tidies up.
    pub(super) release: OnceCell<Statement>,
}

impl Place {
    /// The server of that database, which lists us by that name.
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
            // A Unix socket has none.
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
            names: Names::behind(&database.table_prefix),
        })
    }

    /// Connects, and sees that the tables are there.
    pub(crate) async fn connect(&self) -> Result<Line, PostgresError> {
        let line = self.connect_bare().await?;
        self.prepare(&line.client).await?;
        Ok(line)
    }

    /// Sees that the tables are there, and makes them if that is wanted.
    pub(crate) async fn prepare(&self, client: &Client) -> Result<(), PostgresError> {
        // Boxed, as what is large and rare: all that waits for it would be as large, on a small stack.
        Box::pin(schema::prepare(client, &self.schema, self.declare)).await
    }

    /// What is wrong with the tables, if anything is, but for what will be made. Makes nothing.
    pub(crate) async fn look(&self, client: &Client) -> Result<Option<String>, PostgresError> {
        match schema::look(client, &self.schema, self.declare).await {
            Ok(()) => Ok(None),
            Err(error @ PostgresError::Command { .. }) => Err(error),
            Err(wrong) => Ok(Some(wrong.to_string())),
        }
    }

    /// Whether the tables are there, all of them and as they are to be.
    pub(crate) async fn is_made(&self, client: &Client) -> Result<bool, PostgresError> {
        schema::is_made(client, &self.schema).await
    }

    /// Connects to the first server that can be used, whatever is there. One that is silent is not waited
    /// for while there is another.
    pub(crate) async fn connect_bare(&self) -> Result<Line, PostgresError> {
        let mut first = None;
        for config in &self.configs {
            // The driver looks names up.
            let opening = or_refused(Box::pin(self.open(config)));
            let error = match timeout(OPENS_WITHIN, opening).await {
                Ok(Ok(Ok(line))) => return Ok(line),
                Ok(Ok(Err(error))) => error,
                Ok(Err(refused)) => self.away(refused.to_string()),
                Err(_) => {
                    let seconds = OPENS_WITHIN.as_secs();
                    self.away(format!("it has not answered for {seconds} s"))
                }
            };
            // What is to be waited for at one is not to be mended at another.
            match &first {
                Some(PostgresError::Away { .. }) => {}
                _ if error.is_passing() => first = Some(error),
                Some(_) => {}
                None => first = Some(error),
            }
        }
        Err(first.unwrap_or_else(|| self.away("no host is named".to_owned())))
    }

    fn away(&self, why: String) -> PostgresError {
        let server = self.server.clone();
        PostgresError::Away { server, why }
    }

    async fn open(&self, config: &Config) -> Result<Line, PostgresError> {
        let away = |error| unconnected(&self.server, &error);
        let ours = |client| Client::new(client, self.names.clone(), self.is_pooled);
        let mut line = match &self.encryption {
            Some(encryption) => {
                let connected = config.connect(encryption.clone()).await;
                let (client, connection) = connected.map_err(away)?;
                Line::driven(ours(client), connection, &self.schema)
            }
            None => {
                let connected = config.connect(tokio_postgres::NoTls).await;
                let (client, connection) = connected.map_err(away)?;
                Line::driven(ours(client), connection, &self.schema)
            }
        };
        let further = self.fit(&line.client).await?;
        let set = self.set_up(&mut line.client, &further).await;
        set.map_err(failed("setting up the connection"))?;
        Ok(line)
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

    /// Whether the server is one that can serve. Returns what this one is to be set to beside the usual.
    async fn fit(
        &self,
        client: &Client,
    ) -> Result<Vec<(&'static str, &'static str)>, PostgresError> {
        let about = "SELECT current_setting('server_version_num')::integer, \
                     current_setting('server_version'), current_setting('server_encoding'), \
                     current_setting('synchronous_commit') <> 'off'";
        let about = client.query_one(about, &[]).await;
        let about = about.map_err(|error| unconnected(&self.server, &error))?;
        let server = self.server.clone();
        let version = about.get::<_, i32>(0);
        if version < schema::OLDEST_SERVER {
            let found = about.get(1);
            return Err(PostgresError::Old { server, found });
        }
        match about.get::<_, String>(2) {
            utf8 if utf8 == "UTF8" => Ok(further(version, about.get(3))),
            found => Err(PostgresError::Encoding { server, found }),
        }
    }
}

/// The oldest server that ends sessions which are idle for long.
const ENDS_IDLE_SESSIONS: i32 = 140_000;

/// The oldest server that limits a transaction as a whole.
const LIMITS_TRANSACTIONS: i32 = 170_000;

/// What a server of that version is to be set to beside the usual, which waits or not until what is committed is
/// safe.
fn further(version: i32, commits: bool) -> Vec<(&'static str, &'static str)> {
    let mut further = Vec::new();
    if !commits {
        further.push(("synchronous_commit", "on"));
    }
    // Whoever listens, or waits for work, says nothing for long.
    if version >= ENDS_IDLE_SESSIONS {
        further.push(("idle_session_timeout", "0"));
    }
    // What is written may take as long as its statements, and tables of millions of rows are made anew.
    if version >= LIMITS_TRANSACTIONS {
        further.push(("transaction_timeout", "0"));
    }
    further
}

impl Line {
    fn driven<S>(client: Client, mut connection: Connection<Socket, S>, schema: &str) -> Self
    where
        S: tokio_postgres::tls::TlsStream + Unpin + Send + 'static,
    {
        let bell = Arc::new(Notify::new());
        let heard = Arc::clone(&bell);
        let driver = tokio::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
                if matches!(message, AsyncMessage::Notification(_)) {
                    heard.notify_one();
                }
            }
        });
        Self {
            client,
            driver,
            bell,
            schema: schema.to_owned(),
            others: OnceCell::new(),
            release: OnceCell::new(),
        }
    }

    /// Ends it at once, whatever is under way. Else it ends when what was asked is answered.
    pub(crate) fn hang_up(self) {
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
