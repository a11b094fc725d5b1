//! The keys of a table queue.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::postgres::ServerKeys;
use super::server::{OnServer, ServerAddress};
use super::url::Url;
use super::{mysql, postgres};
use crate::keys::shared::{HOUR, ReadContext};
use crate::model::{Database, TableSource};
use crate::print;
use crate::reader::Reader;
use crate::value_types::{Wrong, duration, file_mode, octal_mode};

/// Reads a table queue.
pub(super) fn read(
    t: &mut Reader<'_>,
    url: Option<&Url>,
    (keys, server): (ServerKeys, OnServer),
    around: ReadContext<'_>,
) -> TableSource {
    if !t.has("url") && !t.has("url_file") {
        t.missing("url", "write url = \"sqlite:ganger.db\"");
    }
    let place = url.and_then(|url| url.read(t, |text| parse(text, around.directory)));
    let database = place.map(|place| match place {
        TablePlace::File(path) => Database::Sqlite(path),
        TablePlace::Postgres(address) => {
            let server = server.known(t, &address);
            Database::Postgres(Box::new(postgres::database(address, keys, server)))
        }
        TablePlace::Mysql(address) => {
            let server = server.known(t, &address);
            Database::Mysql(Box::new(mysql::database(address, server)))
        }
    });
    let shown = database.as_ref().map(|database| match database {
        Database::Sqlite(path) => print::text(&format!("sqlite://{}", path.display())),
        Database::Postgres(database) => postgres::shown(database),
        Database::Mysql(database) => mysql::shown(database),
    });
    t.print("url", shown);
    let is_on_server = matches!(database, Some(Database::Postgres(_) | Database::Mysql(_)));
    let mode = mode(t, is_on_server);
    TableSource {
        database: database.unwrap_or_else(|| Database::Sqlite(PathBuf::new())),
        mode,
        poll_interval: t.or(
            "poll_interval",
            duration(Duration::from_millis(10)..=Duration::from_secs(60)),
            "500ms",
            "Maximum interval between two polls of the table when nothing else wakes the daemon.",
        ),
        lease: t.or(
            "lease",
            duration(Duration::from_secs(1)..=HOUR),
            "30s",
            "Time without a heartbeat of another daemon after which its messages are taken over.",
        ),
    }
}

fn mode(t: &mut Reader<'_>, is_on_server: bool) -> u32 {
    let mode = file_mode(&t.or(
        "mode",
        octal_mode(),
        "0600",
        "Mode of the database file and of the files beside it, if ganger creates them.",
    ));
    if is_on_server {
        if t.has("mode") {
            let help = "access rights are managed by the server";
            t.wrong("mode", &Wrong::new("has an effect with SQLite only", help));
        }
        t.print("mode", None);
    }
    mode
}

/// Place of a table, as its URL gives it.
#[derive(Debug, PartialEq, Eq)]
enum TablePlace {
    File(PathBuf),
    Postgres(ServerAddress),
    Mysql(ServerAddress),
}

fn parse(url: &str, directory: &Path) -> Result<TablePlace, Wrong> {
    if postgres::SCHEME.is_of(url) {
        return postgres::SCHEME.parse(url).map(TablePlace::Postgres);
    }
    if mysql::SCHEME.is_of(url) {
        return mysql::SCHEME.parse(url).map(TablePlace::Mysql);
    }
    let Some(path) = url.strip_prefix("sqlite:") else {
        return Err(Wrong::new(
            "must begin with `sqlite:`, `postgres:` or `mysql:`",
            "write url = \"sqlite:PATH\", such as \"sqlite:ganger.db\"",
        ));
    };
    let path = path.strip_prefix("//").unwrap_or(path);
    if path.is_empty() || path.starts_with(':') {
        let help = "a queue must outlive the daemon: write sqlite: and the path of a file";
        return Err(Wrong::new("must name a file", help));
    }
    if path.contains(['?', '\0']) {
        return Err(Wrong::new(
            "must hold nothing but a path after `sqlite:`",
            "",
        ));
    }
    Ok(TablePlace::File(directory.join(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_file() {
        let directory = Path::new("/etc/ganger");
        for (url, expected) in [
            ("sqlite:ganger.db", Ok("/etc/ganger/ganger.db")),
            ("sqlite://ganger.db", Ok("/etc/ganger/ganger.db")),
            ("sqlite:/var/q.db", Ok("/var/q.db")),
            ("sqlite:///var/q.db", Ok("/var/q.db")),
            ("sqlite:../q.db", Ok("/etc/ganger/../q.db")),
            ("sqlite:", Err("must name a file")),
            ("sqlite::memory:", Err("must name a file")),
            (
                "sqlite:q.db?mode=ro",
                Err("must hold nothing but a path after `sqlite:`"),
            ),
            (
                "oracle://h/db",
                Err("must begin with `sqlite:`, `postgres:` or `mysql:`"),
            ),
            (
                "ganger.db",
                Err("must begin with `sqlite:`, `postgres:` or `mysql:`"),
            ),
        ] {
            let parsed = parse(url, directory).map_err(|wrong| wrong.rule);
            let expected = expected
                .map(|path| TablePlace::File(path.into()))
                .map_err(String::from);
            assert_eq!(parsed, expected, "{url}");
        }
    }
}
