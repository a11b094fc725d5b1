//! The keys of a table queue in MySQL or MariaDB.

use super::server::{self, OnServer, Scheme, ServerAddress};
use crate::model::{MysqlDatabase, Secret, SslMode};
use crate::value_types::Wrong;

/// URL scheme of MySQL and MariaDB.
pub(super) const SCHEME: Scheme = Scheme {
    names: &["mysql", "mariadb"],
    // The port that IANA has registered.
    port: 3306,
    form: "write mysql://USER:PASSWORD@HOST:PORT/DATABASE, or several HOST:PORT with commas, each part percent-encoded (`@` \
           as %40, `/` as %2F, `%` as %25)",
    rest: "must hold nothing after the database but `ssl-mode`",
    option,
};

/// The TLS modes by the names that MySQL's own programs use.
const MODES: [(&str, SslMode); 5] = [
    ("DISABLED", SslMode::Disable),
    ("PREFERRED", SslMode::Prefer),
    ("REQUIRED", SslMode::Require),
    ("VERIFY_CA", SslMode::VerifyCa),
    ("VERIFY_IDENTITY", SslMode::VerifyFull),
];

/// Returns the database of that address with its other settings.
pub(super) fn database(address: ServerAddress, server: OnServer) -> MysqlDatabase {
    let (files, login) = (server.files, server.login);
    MysqlDatabase {
        hosts: address.hosts,
        database: address.database,
        username: login.username.unwrap_or_default(),
        password: login.password.map(Secret::new),
        ssl_mode: address.ssl_mode,
        ca_file: files.ca_file,
        identity: files.identity,
        table_prefix: server.table_prefix,
        declare: server.declare,
    }
}

/// Returns its URL without the login, which has keys of its own.
pub(super) fn shown(at: &MysqlDatabase) -> String {
    let named = MODES.into_iter().find(|(_, mode)| *mode == at.ssl_mode);
    let mode = format!("ssl-mode={}", named.map_or("", |(name, _)| name));
    SCHEME.shown(&at.hosts, &at.database, &mode)
}

/// Reads an option of the URL. MySQL's other programs say `ssl-mode`, those of others `sslmode`, with
/// libpq's names.
fn option(name: &str, value: &str) -> Option<Result<Option<SslMode>, Wrong>> {
    match name {
        "ssl-mode" => Some(server::mode(&MODES, (name, value)).map(Some)),
        "sslmode" => Some(server::mode(&SslMode::ALL, (name, value)).map(Some)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_where_and_who() {
        for (url, server, mode) in [
            ("mysql://u@h/d", "h:3306", SslMode::Prefer),
            (
                "mariadb://u@h:7/d?ssl-mode=REQUIRED",
                "h:7",
                SslMode::Require,
            ),
            (
                "mysql://u@h/d?ssl-mode=verify_identity",
                "h:3306",
                SslMode::VerifyFull,
            ),
            (
                "mysql://u@[::1]/d?sslmode=verify-ca",
                "[::1]:3306",
                SslMode::VerifyCa,
            ),
            (
                "mysql://u@h1,h2:8/d?ssl-mode=DISABLED",
                "h1:3306,h2:8",
                SslMode::Disable,
            ),
        ] {
            let address = SCHEME.parse(url).unwrap();
            let hosts: Vec<String> = address.hosts.iter().map(ToString::to_string).collect();
            assert_eq!(
                (hosts.join(","), address.ssl_mode),
                (server.to_owned(), mode),
                "{url}"
            );
            assert_eq!(
                (address.username.as_deref(), address.database.as_str()),
                (Some("u"), "d")
            );
        }
    }

    #[test]
    fn a_wrong_url_is_told_from_another() {
        for (url, rule) in [
            ("mysql://u@h", "must name a database"),
            (
                "mysql://u@h/d?schema=x",
                "must hold nothing after the database but `ssl-mode`",
            ),
            (
                "mysql://u@h/d?ssl-mode=require",
                "must have one of `DISABLED`, `PREFERRED`, `REQUIRED`, `VERIFY_CA`, `VERIFY_IDENTITY` \
                 as its ssl-mode",
            ),
        ] {
            let wrong = SCHEME.parse(url).map_err(|wrong| wrong.rule);
            assert_eq!(wrong.err().as_deref(), Some(rule), "{url}");
        }
    }
}
