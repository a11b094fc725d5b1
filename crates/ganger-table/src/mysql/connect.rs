//! Connections to a server: how they are made, and the settings of each.

use std::time::Duration;

use mysql_async::{Conn, Opts, OptsBuilder, SslOpts};
use tokio::time::timeout;

use super::client::{Client, Product, ServerInfo};
use super::error::{CallError, MysqlError, connect_error, failed, has_no_tls, has_other_tls};
use super::{schema, tls};
use crate::server::names::Names;
use crate::server::tables::Tables;
use ganger_config::model::{Host, MysqlDatabase, SslMode};
use ganger_core::threads::or_refused;

/// Maximum time to connect to one host, including everything before the first statement of the caller.
const CONNECTS_WITHIN: Duration = Duration::from_secs(5);

/// Idle time after which TCP keepalive probes a connection.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);

/// Maximum bytes of a packet from the server. It is the highest that a server can be set to, so only the
/// server's own limit applies.
const RECEIVED_BYTES_MAX: usize = 1 << 30;

/// Settings of every connection, whatever the server's defaults and its `init_connect`. All values are
/// explicit: `DEFAULT` would be the server's own.
const SETTINGS: &str = "
SET NAMES utf8mb4 COLLATE utf8mb4_bin;
SET SESSION sql_mode = 'STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION',
  time_zone = '+00:00', autocommit = 1, completion_type = 0, unique_checks = 1,
  innodb_lock_wait_timeout = 5, wait_timeout = 28800, net_read_timeout = 30, net_write_timeout = 60,
  sql_select_limit = 18446744073709551615, sql_big_selects = 1, sql_safe_updates = 0, sql_auto_is_null = 0;
SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET SESSION TRANSACTION READ WRITE";

/// Timeouts after which the server ends a transaction of a client that fell silent, and so releases its
/// locks.
const SETTINGS_OF_MARIADB: &str = "
SET SESSION idle_transaction_timeout = 20, idle_readonly_transaction_timeout = 0,
  idle_write_transaction_timeout = 0";

/// Makes MySQL read the size of tables when asked, which is seldom, instead of returning a cached value.
const SETTINGS_OF_MYSQL: &str = "SET SESSION information_schema_stats_expiry = 0";

const SERVER_INFO: &str = "
SELECT VERSION(), @@max_allowed_packet, @@innodb_read_only, @@global.read_only, DATABASE()";

/// Address and options for connections.
#[derive(Debug, Clone)]
pub(crate) struct ConnectTarget {
    hosts: Vec<Host>,
    common: Opts,
    encryption: Option<SslOpts>,
    /// True if an unencrypted connection is better than none.
    is_lenient: bool,
    /// Hosts and database for messages, without secrets.
    pub(crate) server: String,
    pub(crate) database: String,
    /// True if missing tables are to be created.
    declare: bool,
    names: Names,
}

impl ConnectTarget {
    /// Makes the address of that database. The server lists the connections under `name`.
    pub(crate) fn of(database: &MysqlDatabase, name: &str) -> Result<Self, MysqlError> {
        let common = OptsBuilder::default()
            .user(Some(&database.username))
            .pass(database.password.as_ref().map(|secret| secret.expose()))
            .db_name(Some(&database.database))
            .tcp_keepalive(Some(KEEPALIVE_IDLE))
            .tcp_nodelay(true)
            .prefer_socket(false)
            .stmt_cache_size(0)
            .max_allowed_packet(Some(RECEIVED_BYTES_MAX))
            .wait_timeout(Some(28_800))
            .client_found_rows(true)
            .connect_attribute("program_name", name);
        Ok(Self {
            hosts: database.hosts.clone(),
            common: common.into(),
            encryption: tls::encryption(database)?,
            is_lenient: database.ssl_mode == SslMode::Prefer,
            server: format!("{}/{}", database.servers(), database.database),
            database: database.database.clone(),
            declare: database.declare,
            names: Names::with_prefix(&database.table_prefix),
        })
    }

    /// Connects, and makes sure that the tables of the queues exist.
    pub(crate) async fn connect(&self) -> Result<Client, MysqlError> {
        let mut client = self.connect_bare().await?;
        self.prepare(&mut client, Tables::Queues).await?;
        Ok(client)
    }

    /// Makes sure that the tables exist, and creates missing ones if that is configured.
    pub(crate) async fn prepare(
        &self,
        client: &mut Client,
        tables: Tables,
    ) -> Result<(), MysqlError> {
        // Boxed, since it is large and rarely used: otherwise every future that contains it would be as
        // large.
        Box::pin(schema::prepare(
            client,
            tables,
            &self.database,
            self.declare,
        ))
        .await
    }

    /// Makes sure that the table for messages to topics exists, which not every account may create.
    pub(crate) async fn prepare_topics(&self, client: &mut Client) -> Result<(), MysqlError> {
        schema::prepare_topics(client, self.declare).await
    }

    /// Returns the problem with the tables, if there is one; tables that will be created are none.
    /// Creates nothing.
    pub(crate) async fn look(
        &self,
        client: &mut Client,
        tables: Tables,
    ) -> Result<Option<String>, MysqlError> {
        as_problem(schema::look(client, tables, &self.database, self.declare).await)
    }

    /// Returns whether all tables of the queues exist in their current form.
    pub(crate) async fn is_made(&self, client: &mut Client) -> Result<bool, MysqlError> {
        schema::is_made(client, &self.database).await
    }

    /// Connects to the first usable server, whether or not the tables exist.
    pub(crate) async fn connect_bare(&self) -> Result<Client, MysqlError> {
        let mut first = None;
        for host in &self.hosts {
            // The driver resolves the name, which needs a thread.
            let opening = or_refused(Box::pin(self.open(host)));
            let error = match timeout(CONNECTS_WITHIN, opening).await {
                Ok(Ok(Ok(client))) => return Ok(client),
                Ok(Ok(Err(error))) => error,
                Ok(Err(refused)) => self.away(host, refused.to_string()),
                Err(_) => {
                    let seconds = CONNECTS_WITHIN.as_secs();
                    self.away(host, format!("no answer within {seconds} s"))
                }
            };
            // A host that may return takes precedence: waiting for it may help, whatever the others
            // answer.
            match &first {
                Some(MysqlError::Away { .. }) => {}
                _ if error.is_transient() => first = Some(error),
                Some(_) => {}
                None => first = Some(error),
            }
        }
        Err(first.unwrap_or_else(|| MysqlError::Away {
            server: self.server.clone(),
            why: "no host is configured".to_owned(),
        }))
    }

    fn host_name(&self, host: &Host) -> String {
        format!("{host}/{}", self.database)
    }

    fn away(&self, host: &Host, why: String) -> MysqlError {
        let server = self.host_name(host);
        MysqlError::Away { server, why }
    }

    async fn open(&self, host: &Host) -> Result<Client, MysqlError> {
        let connect_error = |error| connect_error(&self.host_name(host), &CallError::Driver(error));
        let at = |encryption: Option<SslOpts>| {
            let at = OptsBuilder::from_opts(self.common.clone());
            match host.name.starts_with('/') {
                true => at.socket(Some(&host.name)),
                false => at
                    .ip_or_hostname(&host.name)
                    .tcp_port(host.port)
                    .ssl_opts(encryption),
            }
        };
        let connected = match Conn::new(at(self.encryption.clone())).await {
            Err(error) if self.is_lenient && (has_no_tls(&error) || has_other_tls(&error)) => {
                // Without TLS the driver encrypts the password with whatever key the server sends.
                if !host.is_here() && self.common.pass().is_some() {
                    let server = self.host_name(host);
                    return Err(MysqlError::Unencrypted { server });
                }
                Conn::new(at(None)).await
            }
            connected => connected,
        };
        let mut client = self.fit(host, connected.map_err(connect_error)?).await?;
        let set = self.set_up(&mut client).await;
        set.map_err(failed("setting up the connection"))?;
        Ok(client)
    }

    /// Applies the settings that only one of the two products has.
    async fn set_up(&self, client: &mut Client) -> Result<(), CallError> {
        let settings = match client.product() {
            Product::MariaDb => SETTINGS_OF_MARIADB,
            Product::MySql => SETTINGS_OF_MYSQL,
        };
        client.batch_execute(settings).await?;
        client.set_limits().await
    }

    /// Sets up the connection, and checks that the server can be used.
    async fn fit(&self, host: &Host, conn: Conn) -> Result<Client, MysqlError> {
        let info = ServerInfo {
            product: Product::MySql,
            packet: 1 << 20,
            locks: true,
        };
        let mut client = Client::new(conn, self.names.clone(), info);
        let set = client.batch_execute(SETTINGS).await;
        set.map_err(failed("setting up the connection"))?;
        let said = async {
            let row = client.query_one(SERVER_INFO, &[]).await?;
            let version: String = row.get(0)?;
            let packet: u64 = row.get(1)?;
            let read_only = row.get::<String>(2)? != "0" || is_set(&row.get::<String>(3)?);
            let cluster = "SHOW GLOBAL VARIABLES LIKE 'wsrep_on'";
            let cluster = client.query_opt(cluster, &[]).await?;
            let cluster = cluster.map(|row| row.get::<String>(1)).transpose()?;
            Ok((version, packet, read_only, cluster))
        };
        let said: Result<_, CallError> = said.await;
        let said = said.map_err(|error| connect_error(&self.host_name(host), &error));
        let (version, packet, read_only, cluster) = said?;
        let product = fits(&version, &self.host_name(host))?;
        if read_only {
            return Err(self.away(
                host,
                "the server is read-only: `read_only` is set".to_owned(),
            ));
        }
        Ok(client.with_server_info(ServerInfo {
            product,
            packet: usize::try_from(packet).unwrap_or(usize::MAX),
            locks: !cluster.is_some_and(|on| is_set(&on)),
        }))
    }
}

/// Returns what is wrong with tables as a problem; an error is what kept them from being looked at.
fn as_problem(looked: Result<(), MysqlError>) -> Result<Option<String>, MysqlError> {
    match looked {
        Ok(()) => Ok(None),
        Err(error @ MysqlError::Command { .. }) => Err(error),
        Err(wrong) => Ok(Some(wrong.to_string())),
    }
}

/// Returns whether a variable is on, in any of its spellings.
pub(super) fn is_set(value: &str) -> bool {
    !matches!(value, "0" | "OFF" | "")
}

/// Releases of MariaDB that lose the values of `NOT NULL` columns in an `INSERT … SELECT` of several rows
/// into a table with triggers (MDEV-36026): they refuse it or, without strict mode, store empty values.
/// 11.7.2, which came out a week later, has the correction; so have the enterprise's releases of these
/// numbers, a month later.
const LOSING: [[u32; 3]; 3] = [[10, 6, 21], [10, 11, 11], [11, 4, 5]];

/// Returns the product, unless its version is too old or loses values.
fn fits(version: &str, server: &str) -> Result<Product, MysqlError> {
    let (product, name, oldest) = match version.contains("MariaDB") {
        true => (Product::MariaDb, "MariaDB", [10, 6, 0]),
        false => (Product::MySql, "MySQL", [8, 0, 13]),
    };
    // MariaDB prepended this for the sake of MySQL replicas.
    let version = version.strip_prefix("5.5.5-").unwrap_or(version);
    let mut parts = version
        .split(|c: char| !c.is_ascii_digit())
        .map(|part| part.parse().unwrap_or(0));
    let found: [u32; 3] = std::array::from_fn(|_| parts.next().unwrap_or(0));
    let server = server.to_owned();
    let number = version.split('-').next().unwrap_or_default();
    let release = format!("{name} {number}");
    if found < oldest {
        return Err(MysqlError::Old {
            server,
            found: release,
        });
    }
    let is_community = product == Product::MariaDb && !version.contains("enterprise");
    match is_community && LOSING.contains(&found) {
        true => Err(MysqlError::Losing {
            server,
            found: release,
        }),
        false => Ok(product),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsuitable_servers_are_told_by_name_and_version() {
        for (version, expected) in [
            ("10.11.6-MariaDB-0+deb12u1-log", Ok(Product::MariaDb)),
            ("5.5.5-10.6.0-MariaDB", Ok(Product::MariaDb)),
            ("11.4.2-MariaDB-ubu2404", Ok(Product::MariaDb)),
            ("8.0.13", Ok(Product::MySql)),
            ("8.4.0-commercial", Ok(Product::MySql)),
            ("9.1.0", Ok(Product::MySql)),
            ("11.4.6-MariaDB", Ok(Product::MariaDb)),
            ("11.7.2-MariaDB", Ok(Product::MariaDb)),
            ("11.4.5-3-MariaDB-enterprise", Ok(Product::MariaDb)),
            ("10.5.23-MariaDB", Err("s is MariaDB 10.5.23, but")),
            ("5.5.5-10.3.39-MariaDB", Err("s is MariaDB 10.3.39, but")),
            ("8.0.12", Err("s is MySQL 8.0.12, but")),
            ("5.7.44-log", Err("s is MySQL 5.7.44, but")),
            ("11.4.5-MariaDB-log", Err("s is MariaDB 11.4.5, which")),
            (
                "5.5.5-10.11.11-MariaDB",
                Err("s is MariaDB 10.11.11, which"),
            ),
        ] {
            match (fits(version, "s"), expected) {
                (Ok(product), Ok(expected)) => assert_eq!(product, expected, "{version}"),
                (Err(error), Err(part)) => {
                    assert!(error.to_string().starts_with(part), "{version}: {error}");
                }
                (found, _) => panic!("{version}: {found:?}"),
            }
        }
    }

    #[test]
    fn a_variable_says_yes_in_many_words() {
        for (value, expected) in [
            ("1", true),
            ("ON", true),
            ("NO_LOCK", true),
            ("0", false),
            ("OFF", false),
        ] {
            assert_eq!(is_set(value), expected, "{value}");
        }
    }
}
