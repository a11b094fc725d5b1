//! The keys of `[sources.NAME]`.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value as Json, json};

use super::super::kinds::{Kind, NAME_RULE, Wrong, choice, duration, hinted, is_name, word};
use super::super::model::{Database, Source, TableSource};
use super::super::reader::Reader;
use super::super::tree::Node;
use super::{HOUR, Surroundings};

/// The longest URL that a file may hold, in bytes.
const URL_BYTES_MAX: u64 = 4096;

/// Reads one source.
pub(super) fn read(t: &mut Reader<'_>, around: Surroundings<'_>) -> Source {
    if !t.must("kind", kind(), "What is at the other end.") && t.has("kind") {
        // Its other keys are those of another kind: one problem says enough.
        t.give_up();
    }
    Source::Table(TableSource {
        database: database(t, around),
        poll_interval: t.or(
            "poll_interval",
            duration(Duration::from_millis(10)..=Duration::from_secs(60)),
            "500ms",
            "The longest time between two looks at the table when nothing else wakes the daemon.",
        ),
        lease: t.or(
            "lease",
            duration(Duration::from_secs(1)..=HOUR),
            "30s",
            "How long another daemon's heartbeat may stand still before its messages are taken \
             over.",
        ),
    })
}

/// Checks a source's name.
pub(super) fn check_name(name: &str) -> Result<(), Wrong> {
    if is_name(name) {
        return Ok(());
    }
    Err(Wrong::new(NAME_RULE, ""))
}

/// Reads into whether the kind is known, so that a missing one can be told from a wrong one.
fn kind() -> impl Kind<Value = bool> {
    let help = "this version reads table queues only: write kind = \"table\" \
                and url = \"sqlite:PATH\"";
    hinted(choice(&[("table", true)]), help)
}

fn database(t: &mut Reader<'_>, around: Surroundings<'_>) -> Database {
    let given = t.maybe(
        "url",
        Url(around.directory),
        "Where the database is: `sqlite:PATH`, relative to the directory of this file. This or \
         `url_file` must be given.",
    );
    let file = t.maybe(
        "url_file",
        word(),
        "A file that holds the URL, instead of `url`; relative to the directory of this file.",
    );
    match (t.has("url"), t.has("url_file")) {
        (false, false) => t.missing("url", "write url = \"sqlite:ganger.db\""),
        (true, true) => t.wrong("url_file", &Wrong::new("and `url` can't both be given", "")),
        (true, false) | (false, true) => {}
    }
    let read = |file: String| match url_in(&around.directory.join(file), around.directory) {
        Ok(database) => Some(database),
        Err(wrong) => {
            t.wrong("url_file", &wrong);
            None
        }
    };
    let placeholder = || Database::Sqlite(PathBuf::new());
    given
        .or_else(|| file.and_then(read))
        .unwrap_or_else(placeholder)
}

/// What the file holds is a secret: no problem shows it.
fn url_in(file: &Path, directory: &Path) -> Result<Database, Wrong> {
    let mut text = String::new();
    File::open(file)
        .and_then(|file| file.take(URL_BYTES_MAX).read_to_string(&mut text))
        .map_err(|error| Wrong::new(format!("can't be read ({error})"), ""))?;
    let inside = |wrong: Wrong| Wrong::new(format!("holds a URL that {}", wrong.rule), wrong.help);
    parse(text.trim(), directory).map_err(inside)
}

/// A database's URL; relative paths start from the directory.
struct Url<'a>(&'a Path);

impl Kind for Url<'_> {
    type Value = Database;

    fn read(&self, node: &Node) -> Result<Database, Wrong> {
        parse(&word().read(node)?, self.0)
    }

    fn describe(&self) -> String {
        "URL".into()
    }

    fn schema(&self) -> Json {
        json!({ "type": "string", "pattern": r"^sqlite:|\$\{" })
    }
}

fn parse(url: &str, directory: &Path) -> Result<Database, Wrong> {
    let Some(path) = url.strip_prefix("sqlite:") else {
        return Err(Wrong::new("must begin with `sqlite:`", other_scheme(url)));
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
    Ok(Database::Sqlite(directory.join(path)))
}

fn other_scheme(url: &str) -> &'static str {
    match url.split_once(':').map(|(scheme, _)| scheme) {
        Some("postgres" | "postgresql" | "mysql" | "mariadb") => {
            "this version keeps table queues in SQLite only: write url = \"sqlite:PATH\""
        }
        _ => "write url = \"sqlite:PATH\", such as \"sqlite:ganger.db\"",
    }
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
            ("postgres://h/db", Err("must begin with `sqlite:`")),
            ("ganger.db", Err("must begin with `sqlite:`")),
        ] {
            let parsed = parse(url, directory).map_err(|wrong| wrong.rule);
            let expected = expected
                .map(|path| Database::Sqlite(path.into()))
                .map_err(String::from);
            assert_eq!(parsed, expected, "{url}");
        }
    }
}
