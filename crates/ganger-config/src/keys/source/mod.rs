//! The keys of `[sources.NAME]` that several kinds of source have. Those of one kind are in a file of
//! their own beside this one.

mod kafka;
mod login;
mod mysql;
mod postgres;
pub(super) mod rabbitmq;
mod server;
mod table;
mod tls;
mod url;

use self::server::OnServer;
use self::url::Url;
use super::shared::ReadContext;
use crate::model::SourceConfig;
use crate::reader::Reader;
use crate::value_types::choice::choice;
use crate::value_types::{Kind, boolean, table_prefix};

/// Kind of server or database that a source connects to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SourceKind {
    Table,
    RabbitMq,
    Kafka,
}

/// Reads one source.
pub(super) fn read(t: &mut Reader<'_>, around: ReadContext<'_>) -> SourceConfig {
    let kind = t.must("kind", kind(), "Kind of the source.");
    if kind.is_none() {
        // Without a kind its other keys can't be judged: one problem is enough.
        t.give_up();
    }
    let is = |wanted| kind.is_none_or(|kind| kind == wanted);
    let has_url = is(SourceKind::Table) || is(SourceKind::RabbitMq);
    let url = t.only("a table queue or RabbitMQ", has_url, |t| {
        url::url(t, around)
    });
    let is_broker = is(SourceKind::RabbitMq) || is(SourceKind::Kafka);
    let url = url.flatten();
    let may_be = |scheme| url.as_ref().is_none_or(|url: &Url| url.names(scheme));
    let is_postgres = is(SourceKind::Table) && may_be(&postgres::SCHEME);
    let is_mysql = is(SourceKind::Table) && may_be(&mysql::SCHEME);
    let (is_sql, is_server) = (
        is_postgres || is_mysql,
        is_broker || is_postgres || is_mysql,
    );
    let declare = t.only(
        "RabbitMQ, Kafka, PostgreSQL, MySQL or MariaDB",
        is_server,
        declare,
    );
    let declare = declare.unwrap_or_default();
    let has_files = is(SourceKind::RabbitMq) || is_sql;
    let files = t.only("RabbitMQ, PostgreSQL, MySQL or MariaDB", has_files, |t| {
        tls::files(t, around)
    });
    let files = files.unwrap_or_default();
    let login = t.only("RabbitMQ, PostgreSQL, MySQL or MariaDB", has_files, |t| {
        login::login(t, around)
    });
    let login = login.unwrap_or_default();
    let keys = t.only("PostgreSQL", is_postgres, postgres::keys);
    let prefix = t.only("PostgreSQL, MySQL or MariaDB", is_sql, prefix);
    let server = OnServer {
        table_prefix: prefix.unwrap_or_default(),
        declare,
        files: files.clone(),
        login: login.clone(),
    };
    let on_server = (keys.unwrap_or_default(), server);
    let table = t.only("a table queue", is(SourceKind::Table), |t| {
        table::read(t, url.as_ref(), on_server, around)
    });
    let rabbitmq = t.only("RabbitMQ", is(SourceKind::RabbitMq), |t| {
        rabbitmq::read(t, url.as_ref(), declare, files, login, around)
    });
    let kafka = t.only("Kafka", is(SourceKind::Kafka), |t| kafka::read(t, declare));
    // Without a kind all three were read, only to find problems.
    let table = table.map(SourceConfig::Table);
    let broker = || rabbitmq.map(SourceConfig::RabbitMq);
    let log = || kafka.map(SourceConfig::Kafka);
    table
        .or_else(broker)
        .or_else(log)
        .unwrap_or_else(|| unreachable!("one of the kinds is read"))
}

fn kind() -> impl Kind<Value = Option<SourceKind>> {
    choice(&[
        ("table", Some(SourceKind::Table)),
        ("rabbitmq", Some(SourceKind::RabbitMq)),
        ("kafka", Some(SourceKind::Kafka)),
    ])
}

fn prefix(t: &mut Reader<'_>) -> String {
    t.or(
        "table_prefix",
        table_prefix(),
        "",
        "Prefix of the names of all tables, for a database in which another program uses these \
         names.",
    )
}

fn declare(t: &mut Reader<'_>) -> bool {
    t.or(
        "declare",
        boolean(),
        "true",
        "Create missing queues, topics and tables; if false, all that is missing is reported, and \
         the daemon does not start.",
    )
}
