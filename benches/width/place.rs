//! A source that many pools read: a file, or a private server.

use std::cell::Cell;

use clap::ValueEnum;
use miette::IntoDiagnostic;
use serde::Serialize;
use tempfile::TempDir;

use crate::servers::kafka::Broker;
use crate::servers::mariadb::Mariadb;
use crate::servers::postgres::Cluster;
use crate::servers::rabbit::Node;

/// Kind of source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Sqlite,
    Postgres,
    Mariadb,
    Rabbitmq,
    Kafka,
}

impl Kind {
    pub(crate) const ALL: [Self; 5] = [
        Self::Sqlite,
        Self::Postgres,
        Self::Mariadb,
        Self::Rabbitmq,
        Self::Kafka,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "SQLite",
            Self::Postgres => "PostgreSQL",
            Self::Mariadb => "MariaDB",
            Self::Rabbitmq => "RabbitMQ",
            Self::Kafka => "Kafka",
        }
    }
}

/// Number of connections that a server accepts: two for each pool, and some for others.
const CONNECTIONS: &str = "max_connections=400";

/// The server, or nothing where the source is a file.
enum Server {
    None,
    Postgres(Cluster),
    Mariadb(Mariadb),
    Rabbitmq(Node),
    Kafka(Broker),
}

/// The place of sources, each of which is empty.
pub(crate) struct Place {
    server: Server,
    directory: TempDir,
    sources: Cell<u32>,
}

impl Place {
    pub(crate) fn start(kind: Kind) -> miette::Result<Self> {
        let server = match kind {
            Kind::Sqlite => Server::None,
            Kind::Postgres => Server::Postgres(Cluster::start(&[CONNECTIONS])),
            Kind::Mariadb => Server::Mariadb(Mariadb::start(&[CONNECTIONS])),
            Kind::Rabbitmq => Server::Rabbitmq(Node::start("")),
            Kind::Kafka => {
                let broker = Broker::prepare();
                broker.start();
                broker.is_ready();
                Server::Kafka(broker)
            }
        };
        let directory = TempDir::with_prefix_in("bench-", env!("CARGO_TARGET_TMPDIR"));
        Ok(Self {
            server,
            directory: directory.into_diagnostic()?,
            sources: Cell::new(0),
        })
    }

    /// Returns the keys of a source that nobody has used.
    pub(crate) fn source(&self) -> String {
        self.sources.set(self.sources.get() + 1);
        let name = format!("bench{}", self.sources.get());
        let table = |url: &str| format!("kind = \"table\"\nurl = \"{url}\"\n");
        match &self.server {
            Server::None => {
                let file = self.directory.path().join(name);
                table(&format!("sqlite:{}", file.display()))
            }
            Server::Postgres(cluster) => {
                cluster.create_database(&name);
                table(&cluster.url(&name))
            }
            Server::Mariadb(server) => {
                server.create_database(&name);
                table(&server.url(&name))
            }
            Server::Rabbitmq(node) => {
                node.add_vhost(&name);
                format!("kind = \"rabbitmq\"\nurl = \"{}\"\n", node.url(&name))
            }
            Server::Kafka(broker) => {
                let brokers = broker.plain();
                format!("kind = \"kafka\"\nbrokers = \"{brokers}\"\ngroup = \"{name}\"\n")
            }
        }
    }
}
