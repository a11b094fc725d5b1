//! A configuration in one file, or in a directory of them.

use std::fs;
use std::path::Path;

use super::{LEAST, environment, messages};
use crate::model::{Database, Secret, SourceConfig};
use crate::{Environment, load, print};

fn directory(files: &[(&str, &str)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(directory.path().join(name), text).unwrap();
    }
    directory
}

#[test]
fn paths_start_from_the_directory_of_the_file() {
    let files = [("ganger.toml", LEAST), ("url", "sqlite:q/jobs.db\n")];
    let directory = directory(&files);
    let file = directory.path().join("ganger.toml");
    let database = |text: &str| {
        fs::write(&file, text).unwrap();
        let config = load(&file, &Environment::new()).unwrap();
        let SourceConfig::Table(table) = &config.sources["main"] else {
            panic!("another kind of source");
        };
        (table.database.clone(), config.pools[0].command.cwd.clone())
    };
    let at = |path: &str| directory.path().join(path);
    let text = format!("{LEAST}cwd = \"work\"\n");
    let expected = (Database::Sqlite(at("ganger.db")), Some(at("work")));
    assert_eq!(database(&text), expected);
    let text = LEAST.replace("url = \"sqlite:ganger.db\"", "url_file = \"url\"");
    assert_eq!(database(&text), (Database::Sqlite(at("q/jobs.db")), None));
}

/// Editors on Windows write one.
#[test]
fn a_byte_order_mark_is_no_part_of_a_file() {
    let text = LEAST.replace("url = \"sqlite:ganger.db\"", "url_file = \"url\"");
    let text = format!("\u{feff}{text}").replace('\n', "\r\n");
    let files = [("ganger.toml", &*text), ("url", "\u{feff}sqlite:/q.db\r\n")];
    let directory = directory(&files);
    let config = load(&directory.path().join("ganger.toml"), &Environment::new()).unwrap();
    let SourceConfig::Table(table) = &config.sources["main"] else {
        panic!("another kind of source");
    };
    assert_eq!(table.database, Database::Sqlite("/q.db".into()));
}

#[test]
fn a_scheme_may_be_in_capitals() {
    let read = |url: &str, kind: &str| {
        let source = format!("kind = \"{kind}\"\nurl = \"{url}\"");
        let text = LEAST.replace("kind = \"table\"\nurl = \"sqlite:ganger.db\"", &source);
        let directory = directory(&[("ganger.toml", &text)]);
        let config = load(&directory.path().join("ganger.toml"), &Environment::new()).unwrap();
        let shown = format!("{:?}", config.sources["main"]);
        shown.replace(directory.path().to_str().unwrap(), "")
    };
    for (url, kind) in [
        ("amqp://u:p@h/V", "rabbitmq"),
        ("amqps://u:p@h/V", "rabbitmq"),
        ("sqlite:Q.db", "table"),
        ("postgres://u:p@h/D", "table"),
        ("mysql://u:p@h1,h2/D", "table"),
    ] {
        let (scheme, rest) = url.split_once(':').unwrap();
        let capitals = format!(" {}:{rest}", scheme.to_uppercase());
        assert_eq!(read(&capitals, kind), read(url, kind));
    }
}

#[test]
fn a_url_file_is_never_shown() {
    let directory = directory(&[("url", "oracle://u:hunter2@h/d")]);
    let file = directory.path().join("ganger.toml");
    fs::write(
        &file,
        LEAST.replace("url = \"sqlite:ganger.db\"", "url_file = \"url\""),
    )
    .unwrap();
    let problems = load(&file, &Environment::new()).unwrap_err();
    assert_eq!(problems.messages().len(), 1);
    assert!(!format!("{problems:?}").contains("oracle:"));
}

#[test]
fn who_we_are_to_a_server_is_said_by_keys_or_by_its_url() {
    for (keys, username, password) in [
        ("", "u", Some("in url")),
        ("username = \"app\"", "app", Some("in url")),
        ("password = \"${WORD}\"", "u", Some("p@ss/w")),
        ("password_file = \"word\"", "u", Some("in a/file")),
    ] {
        let url = "kind = \"table\"\nurl = \"postgres://u:in%20url@h/d\"";
        let lines = format!("{url}\n{keys}");
        let text = LEAST.replace("kind = \"table\"\nurl = \"sqlite:ganger.db\"", &lines);
        let files = directory(&[("main.toml", &text), ("word", "in a/file\n")]);
        let own = |value| environment(&[("PATH", "/bin"), ("WORD", "p@ss/w"), ("PASSWORD", value)]);
        let config = load(files.path(), &own("")).unwrap();
        let SourceConfig::Table(table) = &config.sources["main"] else {
            panic!("another kind of source");
        };
        let Database::Postgres(database) = &table.database else {
            panic!("another database");
        };
        let given = database.password.as_ref().map(Secret::expose);
        assert_eq!((&*database.username, given), (username, password), "{keys}");
        // The variable holds any password literally.
        let printed = print(files.path(), &own("")).unwrap();
        for secret in ["in%20url", "p@ss", "in a/file"] {
            assert!(!printed.contains(secret), "{printed}");
        }
        let again = directory(&[("main.toml", &printed)]);
        let again = load(again.path(), &own(password.unwrap())).unwrap();
        assert_eq!(again.sources, config.sources, "{printed}");
    }
}

#[test]
fn a_directory_is_merged_in_the_order_of_names() {
    let pool = "[[pools]]\nname = \"sms\"\nqueue = \"texts\"\ncommand = \"w\"\n";
    let directory = directory(&[
        ("20-main.toml", LEAST),
        ("30-more.toml", "[sources.main]\nlease = \"9s\"\n"),
        ("10-sms.toml", pool),
        (".hidden.toml", "= nonsense"),
        ("notes.txt", "= nonsense"),
    ]);
    let config = load(directory.path(), &Environment::new()).unwrap();
    let names: Vec<&str> = config.pools.iter().map(|p| &*p.name).collect();
    assert_eq!(names, ["sms", "email"]);
    let SourceConfig::Table(table) = &config.sources["main"] else {
        panic!("another kind of source");
    };
    assert_eq!(table.lease.as_secs(), 9);
    assert_eq!(
        table.database,
        Database::Sqlite(directory.path().join("ganger.db"))
    );
}

#[test]
fn a_key_is_set_once() {
    let directory = directory(&[
        ("a.toml", LEAST),
        ("b.toml", "[sources.main]\nkind = \"table\"\n"),
        ("c.toml", "sources = 1\n"),
    ]);
    let first = directory.path().join("a.toml");
    let expected = [
        format!(
            "sources.main.kind is set twice, first in {}:3",
            first.display()
        ),
        format!("sources is set twice, first in {}:2", first.display()),
    ];
    assert_eq!(
        messages(load(directory.path(), &Environment::new())),
        expected
    );
}

#[test]
fn what_can_not_be_read_is_said() {
    let empty = directory(&[]);
    let bad = directory(&[("a.toml", "")]);
    fs::write(bad.path().join("a.toml"), [0xff, 0xfe]).unwrap();
    for (path, why) in [
        (Path::new("/no/such.toml"), "No such file"),
        (Path::new(""), "can't be read"),
        (empty.path(), "contains no *.toml"),
        (bad.path(), "UTF-8"),
    ] {
        let problems = load(path, &Environment::new()).unwrap_err();
        let [problem] = problems.messages() else {
            panic!("{problems:?}");
        };
        assert!(problem.message.contains(why), "{problem}");
        assert_eq!(problem.line, None);
    }
}
