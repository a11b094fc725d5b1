//! Variables in values, variables over keys, and the workers' own variables.

use super::{LEAST, environment, messages, pool_with, read};
use crate::model::{Database, Prefetch, SourceConfig, Workers};

#[test]
fn variables_are_expanded_in_values() {
    let pairs = [
        ("DIR", "/var/q"),
        ("N", "7"),
        ("ARGS", "[\"a\", \"b\"]"),
        ("QUEUE", "123"),
    ];
    let text = LEAST
        .replace("ganger.db", "${DIR}/${NAME:-jobs}.db")
        .replace("\"mails\"", "\"${QUEUE}\"");
    let lines = "workers = \"${N}\"\nargs = \"${ARGS}\"\nenv = { PRICE = \"5$$\" }\n";
    let config = read(&format!("{text}{lines}"), &pairs).unwrap();
    let SourceConfig::Table(table) = &config.sources["main"] else {
        panic!("another kind of source");
    };
    assert_eq!(table.database, Database::Sqlite("/var/q/jobs.db".into()));
    let pool = &config.pools[0];
    assert_eq!((pool.workers, &*pool.queue), (Workers::Fixed(7), "123"));
    assert_eq!(pool.command.args, ["a", "b"]);
    assert_eq!(pool.command.env["PRICE"], "5$");
}

#[test]
fn an_unset_variable_is_a_problem() {
    assert_eq!(
        messages(pool_with("user = \"${WHO}\"", &[])),
        ["pools.email.user needs the environment variable WHO, which is not set: `\"${WHO}\"`"]
    );
}

#[test]
fn what_a_variable_holds_is_not_shown() {
    assert_eq!(
        messages(pool_with("timeout = \"${T}\"", &[("T", "hush")])),
        ["pools.email.timeout must be a duration: `\"${T}\"`"]
    );
}

#[test]
fn variables_override_keys() {
    let lines = "worker_unit_count = 2\nenv = { LOG = \"info\" }";
    let pairs = [
        ("GANGER_DAEMON__DRAIN_TIMEOUT", "10s"),
        ("GANGER_SOURCES__MAIN__URL", "sqlite:/other.db"),
        ("GANGER_POOLS__EMAIL__WORKERS", "8"),
        ("GANGER_POOLS__EMAIL__QUEUE", "42"),
        ("GANGER_POOLS__email__RETRY__ATTEMPTS", "9"),
        ("GANGER_POOLS__EMAIL__ARGS", "[\"-v\"]"),
        ("GANGER_POOLS__EMAIL__ENV__LOG", "debug"),
        ("GANGER_POOLS__EMAIL__ENV__My__Own", "${X}"),
        ("GANGER_POOLS__EMAIL__PREFETCH", "auto"),
        ("GANGER_POOL", "x"),
        ("GANGER_CONFIG", "x"),
        ("GANGER_LOG", "x"),
    ];
    let config = pool_with(lines, &pairs).unwrap();
    assert_eq!(config.daemon.drain_timeout.as_secs(), 10);
    let SourceConfig::Table(table) = &config.sources["main"] else {
        panic!("another kind of source");
    };
    assert_eq!(table.database, Database::Sqlite("/other.db".into()));
    let pool = &config.pools[0];
    assert_eq!((pool.workers, pool.retry.attempts), (Workers::Fixed(8), 9));
    assert_eq!((&*pool.queue, pool.prefetch), ("42", Prefetch::Auto));
    assert_eq!(pool.command.args, ["-v"]);
    let expected = environment(&[("LOG", "debug"), ("My__Own", "${X}")]);
    assert_eq!(pool.command.env, expected);
}

#[test]
fn a_problem_in_an_override_names_the_variable() {
    for (name, value, file, message) in [
        (
            "GANGER_POOLS__EMAIL__WORKERS",
            "0",
            "GANGER_POOLS__EMAIL__WORKERS",
            "pools.email.workers must be within 1..=1024: `0`",
        ),
        (
            "GANGER_DAEMON__COLOUR",
            "1",
            "GANGER_DAEMON__COLOUR",
            "daemon.colour is not a known key",
        ),
        (
            "GANGER_SOURCES__X__URL",
            "a",
            "GANGER_SOURCES__X__URL",
            "GANGER_SOURCES__X__URL names no source of the configuration",
        ),
        (
            "GANGER_POOLS__EMAIL__NAME",
            "a",
            "GANGER_POOLS__EMAIL__NAME",
            "GANGER_POOLS__EMAIL__NAME can't rename it: other variables refer to it by its name",
        ),
        (
            "GANGER_POOLS__EMAIL__QUEUE__X",
            "a",
            "GANGER_POOLS__EMAIL__QUEUE__X",
            "GANGER_POOLS__EMAIL__QUEUE__X leads into `queue`, which is not a table",
        ),
        (
            "GANGER_SOURCES__MAIN__URL",
            "amqp://a:hunter2@b",
            "GANGER_SOURCES__MAIN__URL",
            "sources.main.url must begin with `sqlite:`, `postgres:` or `mysql:`: `amqp://a:*******@b`",
        ),
        (
            "GANGER_POOLS__EMAIL__API_TOKEN",
            "t",
            "GANGER_POOLS__EMAIL__API_TOKEN",
            "pools.email.api_token is not a known key",
        ),
    ] {
        let problems = read(LEAST, &[(name, value)]).unwrap_err();
        let [problem] = problems.messages() else {
            panic!("{problems:?}");
        };
        assert_eq!((&*problem.file, &*problem.message), (file, message));
        assert!(!format!("{problems:?}").contains("hunter2"));
    }
}

#[test]
fn an_override_that_can_mean_two_pools_is_refused() {
    let two = "[[pools]]\nname = \"a-b\"\nqueue = \"x\"\ncommand = \"w\"\n\
               [[pools]]\nname = \"a.b\"\nqueue = \"y\"\ncommand = \"w\"\n";
    assert_eq!(
        messages(pool_with(two, &[("GANGER_POOLS__A_B__WORKERS", "2")])),
        ["GANGER_POOLS__A_B__WORKERS can mean the pool `a-b` and the pool `a.b`"]
    );
}

#[test]
fn workers_inherit_what_they_are_meant_to() {
    let own = [
        ("PATH", "/bin"),
        ("TZ", "UTC"),
        ("SHELL", "/bin/sh"),
        ("EDITOR", "vi"),
        ("GANGER_SECRET", "x"),
        ("NOTIFY_SOCKET", "/run/systemd/notify"),
    ];
    for (lines, expected) in [
        ("", vec![("PATH", "/bin"), ("TZ", "UTC")]),
        (
            "env = { TZ = \"CET\" }",
            vec![("PATH", "/bin"), ("TZ", "CET")],
        ),
        ("env_inherit = false", vec![("PATH", "/bin"), ("TZ", "UTC")]),
        (
            "env_inherit = [\"SHELL\", \"UNSET\"]",
            vec![("PATH", "/bin"), ("SHELL", "/bin/sh"), ("TZ", "UTC")],
        ),
        (
            "env_inherit = true",
            vec![
                ("EDITOR", "vi"),
                ("PATH", "/bin"),
                ("SHELL", "/bin/sh"),
                ("TZ", "UTC"),
            ],
        ),
    ] {
        let config = pool_with(lines, &own).unwrap();
        assert_eq!(
            config.pools[0].command.env,
            environment(&expected),
            "{lines}"
        );
    }
}
