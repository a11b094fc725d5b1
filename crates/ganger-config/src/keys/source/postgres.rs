//! The keys of a table queue in PostgreSQL.

use super::server::{self, OnServer, Scheme, ServerAddress};
use crate::model::{PostgresDatabase, Secret, SslMode};
use crate::reader::Reader;
use crate::value_types::{Wrong, boolean, word};

/// URL scheme of PostgreSQL: as libpq reads it, except that the URL must name the database.
pub(super) const SCHEME: Scheme = Scheme {
    names: &["postgres", "postgresql"],
    // The port that IANA has registered.
    port: 5432,
    form: "write postgres://USER:PASSWORD@HOST:PORT/DATABASE, or several HOST:PORT with commas, each part percent-encoded (`@` \
           as %40, `/` as %2F, `%` as %25)",
    rest: "must hold nothing after the database but `sslmode` and \
           `target_session_attrs=read-write`",
    option,
};

/// Values of its keys.
#[derive(Debug, Clone, Default)]
pub(super) struct ServerKeys {
    schema: String,
    pgbouncer: bool,
}

/// Reads its keys.
pub(super) fn keys(t: &mut Reader<'_>) -> ServerKeys {
    ServerKeys {
        schema: t.or("schema", word(), "public", "Schema of the tables."),
        pgbouncer: t.or(
            "pgbouncer",
            boolean(),
            "false",
            "The server is reached through PgBouncer in transaction mode, or another pooler that \
             assigns each transaction to another session. New messages are then detected by \
             `poll_interval` alone, and a dead daemon by its `lease` alone.",
        ),
    }
}

/// Returns the database of that address with its other settings.
pub(super) fn database(
    address: ServerAddress,
    keys: ServerKeys,
    server: OnServer,
) -> PostgresDatabase {
    let (files, login) = (server.files, server.login);
    PostgresDatabase {
        hosts: address.hosts,
        database: address.database,
        username: login.username.unwrap_or_default(),
        password: login.password.map(Secret::new),
        ssl_mode: address.ssl_mode,
        ca_file: files.ca_file,
        identity: files.identity,
        schema: keys.schema,
        table_prefix: server.table_prefix,
        pgbouncer: keys.pgbouncer,
        declare: server.declare,
    }
}

/// Returns its URL without the login, which has keys of its own.
pub(super) fn shown(at: &PostgresDatabase) -> String {
    let mode = format!("sslmode={}", at.ssl_mode.as_str());
    SCHEME.shown(&at.hosts, &at.database, &mode)
}

/// Reads an option behind the `?`: the TLS mode, if it is that.
fn option(name: &str, value: &str) -> Option<Result<Option<SslMode>, Wrong>> {
    match name {
        "sslmode" => Some(server::mode(&SslMode::ALL, (name, value)).map(Some)),
        // We always use a server that accepts writes.
        "target_session_attrs" if value == "read-write" => Some(Ok(None)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> Result<String, String> {
        let address = SCHEME.parse(text).map_err(|wrong| wrong.rule)?;
        let ServerAddress {
            hosts,
            database,
            username,
            password,
            ssl_mode,
        } = address;
        let mode = ssl_mode.as_str();
        let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
        let host = hosts.join(",");
        let username = username.unwrap_or("nobody".to_owned());
        Ok(format!("{host} {database} {username} {password:?} {mode}"))
    }

    #[test]
    fn a_url_says_where_and_who() {
        for (url, expected) in [
            ("postgres://u@h/d", "h:5432 d u None prefer"),
            ("postgres://h/d", "h:5432 d nobody None prefer"),
            (
                "postgresql://u:p%40@h:7/d?sslmode=verify-full",
                "h:7 d u Some(\"p@\") verify-full",
            ),
            ("postgres://u@[::1]/d", "[::1]:5432 d u None prefer"),
            (
                "postgres://u@%2Frun%2Fpg/d%2Fe",
                "/run/pg:5432 d/e u None prefer",
            ),
            (
                "postgres://u:p@h1,[::1]:7,h3:8/d?target_session_attrs=read-write&sslmode=require",
                "h1:5432,[::1]:7,h3:8 d u Some(\"p\") require",
            ),
        ] {
            assert_eq!(told(url).as_deref(), Ok(expected), "{url}");
        }
    }

    #[test]
    fn a_wrong_url_is_told_from_another() {
        let rest = "must hold nothing after the database but `sslmode` and \
                    `target_session_attrs=read-write`";
        for (url, rule) in [
            ("postgres:///d", "must name a host"),
            ("postgres://u@h", "must name a database"),
            ("postgres://u@h/", "must name a database"),
            ("postgres://u@h/d?options=x", rest),
            ("postgres://u@h/d?host=x", rest),
            ("postgres://u@h/d?target_session_attrs=any", rest),
            ("postgres://u@h,/d", "must name a host"),
            (
                "postgres://u:p/w@h/d",
                "must be a URL (invalid port number)",
            ),
            (
                "postgres://u@h/d?sslmode=no",
                "must have one of `disable`, `prefer`, `require`, `verify-ca`, `verify-full` as its \
                 sslmode",
            ),
        ] {
            assert_eq!(told(url), Err(rule.to_owned()), "{url}");
        }
    }
}
