//! All problems are reported at once.

use miette::{GraphicalReportHandler, GraphicalTheme};

use super::{LEAST, messages, pool_with, read};
use crate::Problems;

const MISTAKES: &str = r#"
[daemon]
drain_timeout = 30
log_format = "xml"
colour = true

[sources.main]
kind = "table"
url = "postgres://app:hunter2@db/jobs"

[sources.stream]
kind = "kafka"
brokers = "localhost:9092"

[[pools]]
name = "email"
source = "mian"
queue = "mails"
workers = 0
command = "worker"
arg = ["--fast"]
args = ["--retries", 5]
env = { GANGER_POOL = "x", API_TOKEN = "t0ps3cret", LOG = 1, TZ = "${ZONE}" }
retry = { attempts = 0, initial = "2h" }
timeout = "-5s"
order = "key"

[[pools]]
name = "email"
source = "main"
workers = { min = 5, max = 4, cooldown = 10 }
frame_bytes_max = 1024
command = ""

[pools.statuses]
102 = "done"
404 = "drop"
"#;

fn rendered(problems: &Problems) -> String {
    let mut page = String::new();
    GraphicalReportHandler::new_themed(GraphicalTheme::unicode_nocolor())
        .with_width(100)
        .render_report(&mut page, problems)
        .unwrap();
    page
}

#[test]
fn many_mistakes_are_shown_at_once() {
    let problems = read(MISTAKES, &[("GANGER_POOLS__EMIAL__WORKERS", "3")]).unwrap_err();
    let page = rendered(&problems);
    for secret in ["hunter2", "t0ps3cret"] {
        assert!(!page.contains(secret), "{page}");
        assert!(!format!("{problems:?}").contains(secret));
    }
    insta::assert_snapshot!(page);
}

/// An unknown key may be a mistyped one.
#[test]
fn what_a_key_of_no_known_name_says_is_not_shown() {
    let lines = "pin = \"hunter2\"\n[pools.login]\nname = \"me\"\nwords = [\"hunter2\"]";
    let page = rendered(&pool_with(lines, &[]).unwrap_err());
    assert!(
        page.contains("pools.email.pin is not a known key"),
        "{page}"
    );
    assert!(!page.contains("hunter2"), "{page}");
}

#[test]
fn problems_are_told_to_programs() {
    let problems = pool_with("workers = 0", &[]).unwrap_err();
    let json = serde_json::to_value(problems.messages()).unwrap();
    let expected = serde_json::json!([{
        "path": "pools.email.workers",
        "file": "/etc/ganger/ganger.toml",
        "line": 10,
        "column": 11,
        "message": "pools.email.workers must be within 1..=1024: `0`",
        "help": "write a number, or a range such as { min = 1, max = 16 }",
    }]);
    assert_eq!(json, expected);
}

#[test]
fn mistakes_in_toml_hide_the_rest() {
    let text = "[daemon\n[[pools]]\nworkers = 0\nAPI_TOKEN = \"t0ps3cret\nx = = 1\n";
    let problems = read(text, &[]).unwrap_err();
    let all = problems.messages();
    assert!(
        all.iter()
            .all(|p| p.message.starts_with("this is not TOML"))
    );
    assert_eq!(
        all.iter().map(|p| p.line).collect::<Vec<_>>(),
        [Some(1), Some(4), Some(5), Some(5)]
    );
    assert!(!rendered(&problems).contains("t0ps3cret"));
}

#[test]
fn what_must_be_there_is_missed() {
    assert_eq!(
        messages(read("", &[])),
        ["sources is missing", "pools is missing"]
    );
    assert_eq!(
        messages(read("[sources.main]\n[[pools]]\n", &[])),
        [
            "sources.main.kind is missing",
            "pools[0].name is missing",
            "pools[0].queue is missing",
            "pools[0].command is missing",
        ]
    );
}

/// Lines of a pool, and their problems.
const WRONG_VALUES: &[(&str, &str)] = &[
    ("workers = 1025", "workers must be within 1..=1024: `1025`"),
    (
        "workers = 9223372036854775808",
        "workers is too large a number: `9223372036854775808`",
    ),
    ("workers = 1.5", "workers must be a whole number: `1.5`"),
    ("workers = \"4\"", "workers must be a whole number: `\"4\"`"),
    (
        "workers = 2000-01-01",
        "workers must be a whole number: `2000-01-01`",
    ),
    (
        "prefetch = 0",
        "prefetch must be within 1..=10000 or `\"auto\"`: `0`",
    ),
    (
        "prefetch = \"all\"",
        "prefetch must be a whole number or `\"auto\"`: `\"all\"`",
    ),
    (
        "pipeline = 1025",
        "pipeline must be within 1..=1024 or `\"auto\"`: `1025`",
    ),
    (
        "frame_bytes_max = \"1023B\"",
        "frame_bytes_max must be within 1KiB..=1GiB: `\"1023B\"`",
    ),
    (
        "frame_bytes_max = \"64\"",
        "frame_bytes_max must be a size: `\"64\"`",
    ),
    ("timeout = 30", "timeout must be a duration: `30`"),
    (
        "timeout = \"0s\"",
        "timeout must be within 1ms..=720h: `\"0s\"`",
    ),
    (
        "crashes_max = 0",
        "crashes_max must be within 1..=1000000: `0`",
    ),
    (
        "lapses_max = 2",
        "lapses_max must be within 3..=1000000: `2`",
    ),
    (
        "retry.factor = 0.5",
        "retry.factor must be within 1.0..=100.0: `0.5`",
    ),
    (
        "retry.factor = nan",
        "retry.factor must be within 1.0..=100.0: `nan`",
    ),
    (
        "retry.jitter = 2",
        "retry.jitter must be within 0.0..=1.0: `2`",
    ),
    ("retry = 3", "retry must be a table: `3`"),
    (
        "retry.max = \"1ms\"",
        "retry.max must leave `initial` no longer than `max`: `\"1ms\"`",
    ),
    (
        "restart.initial = \"31s\"",
        "restart.initial must leave `initial` no longer than `max`: `\"31s\"`",
    ),
    (
        "limits.cpu_nice = 20",
        "limits.cpu_nice must be within -20..=19: `20`",
    ),
    (
        "limits.memory = \"1B\"",
        "limits.memory must be within 1MiB..=16TiB: `\"1B\"`",
    ),
    (
        "limits.open_files = -1",
        "limits.open_files must be within 16..=1048576: `-1`",
    ),
    (
        "cwd = \"a\\u0000b\"",
        "cwd must not hold a NUL character: `\"a\\u0000b\"`",
    ),
    ("user = \"\"", "user must not be empty: `\"\"`"),
    (
        "args = 'a \"b'",
        "args must not hold an unterminated quote: `'a \"b'`",
    ),
    ("args = [\"a\", 1]", "args[1] must be text: `1`"),
    (
        "env_inherit = [1]",
        "env_inherit must be a list of variables, or true: `[1]`",
    ),
    (
        "env_inherit = [\"GANGER_X\"]",
        "env_inherit must not begin with `GANGER_`: `[\"GANGER_X\"]`",
    ),
    (
        "env_inherit = [\"NOTIFY_SOCKET\"]",
        "env_inherit must not name `NOTIFY_SOCKET`: `[\"NOTIFY_SOCKET\"]`",
    ),
    (
        "env = { GANGER_X = \"1\" }",
        "env.GANGER_X must not begin with `GANGER_`: `GANGER_X`",
    ),
    (
        "env.\"a=b\" = \"1\"",
        "env.a=b must be the name of a variable: `\"a=b\"`",
    ),
    ("env.PASSWORD = 5", "env.PASSWORD must be text: `*`"),
    (
        "statuses = { 199 = \"done\" }",
        "statuses.199 must be a status within 200..=599: `199`",
    ),
    (
        "statuses = { ok = \"done\" }",
        "statuses.ok must be a status within 200..=599: `ok`",
    ),
    ("on_timeout = []", "on_timeout must name a program: `[]`"),
    ("workers = { min = 1 }", "workers.max is missing"),
    (
        "workers = { max = 4, step = 2 }",
        "workers.step is not a known key",
    ),
    (
        "workers = { min = 3, max = 2 }",
        "workers.min must leave `min` no more than `max`: `3`",
    ),
    (
        "workers = { max = 1025 }",
        "workers.max must be within 1..=1024: `1025`",
    ),
    ("order = \"key\"", "order is a setting for Kafka only"),
    (
        "dead_letter = \"x\"",
        "dead_letter is a setting for RabbitMQ or Kafka only",
    ),
    (
        "unroutable_reply = \"drop\"",
        "unroutable_reply is a setting for RabbitMQ only",
    ),
    (
        "retry.in_place_max = \"1s\"",
        "retry.in_place_max is a setting for Kafka only",
    ),
    (
        "worker_unit_count = 2\nworkers = 2",
        "worker_unit_count is another name of `workers`, which is set too",
    ),
    (
        "idempotency.store = \"mian\"",
        "idempotency.store must be one of the sources: `\"mian\"`",
    ),
    (
        "idempotency.key = \"header:\"",
        "idempotency.key must be `\"message_id\"`, `\"correlation_id\"` or `\"header:NAME\"`: `\"header:\"`",
    ),
    (
        "idempotency.window = \"1ms\"",
        "idempotency.window must be within 1s..=8760h: `\"1ms\"`",
    ),
    (
        "source = \"other\"",
        "source must be one of the sources: `\"other\"`",
    ),
];

#[test]
fn values_keep_their_rules() {
    for (lines, message) in WRONG_VALUES {
        let expected = [format!("pools.email.{message}")];
        assert_eq!(messages(pool_with(lines, &[])), expected);
    }
}

/// The store may be left out if only one is possible.
#[test]
fn a_store_is_a_source_of_kind_table() {
    let rabbit = "[sources.rabbit]\nkind = \"rabbitmq\"\nurl = \"amqp://h/\"";
    let pool = "[[pools]]\nname = \"a\"\nqueue = \"q\"\ncommand = \"w\"\nsource = ";
    let store = |sources: &str, store: &str| {
        let text = format!("{sources}\n{pool}\"rabbit\"\nidempotency = {{ {store} }}\n");
        read(&format!("{rabbit}\n{text}"), &[])
    };
    let table =
        |name: &str| format!("[sources.{name}]\nkind = \"table\"\nurl = \"sqlite:{name}.db\"\n");
    let found = store(&table("one"), "").unwrap();
    let found = found.pools[0].idempotency.as_ref();
    let found = found.map(|found| (found.store.as_str(), found.scope.as_str()));
    assert_eq!(found, Some(("one", "rabbit:/")));
    assert_eq!(
        messages(store("", "")),
        ["pools.a.idempotency.store is missing"]
    );
    let two = [table("one"), table("two")].concat();
    assert_eq!(
        messages(store(&two, "")),
        ["pools.a.idempotency.store is missing"]
    );
    assert_eq!(
        messages(store(&two, "store = \"rabbit\"")),
        ["pools.a.idempotency.store must be a source of kind `table`: `\"rabbit\"`"]
    );
    store(&two, "store = \"two\"").unwrap();
}

#[test]
fn pools_do_not_get_into_each_others_way() {
    let second = |name: &str, source: &str, queue: &str| {
        let sources = "[sources.other]\nkind = \"table\"\nurl = \"sqlite:ganger.db\"";
        let first = LEAST.replace("queue =", "source = \"main\"\nqueue =");
        let pool = format!("[[pools]]\nname = \"{name}\"\nsource = \"{source}\"");
        read(
            &format!("{sources}\n{first}{pool}\nqueue = \"{queue}\"\ncommand = \"w\"\n"),
            &[],
        )
    };
    assert!(second("sms", "main", "texts").is_ok());
    assert_eq!(
        messages(second("email", "main", "texts")),
        ["pools.email.name is already used by the pool in /etc/ganger/ganger.toml:10: `\"email\"`"]
    );
    for source in ["main", "other"] {
        assert_eq!(
            messages(second("sms", source, "mails")),
            ["pools.sms.queue is already read by the pool `email`: `\"mails\"`"]
        );
    }
}

#[test]
fn dead_letters_do_not_come_back_to_their_own_pool() {
    let of = |kind: &str, dead: &str| {
        let source = match kind {
            "rabbitmq" => "url = \"amqp://h\"",
            _ => "brokers = \"h\"\ngroup = \"g\"",
        };
        let text = format!(
            "[sources.main]\nkind = \"{kind}\"\n{source}\n[[pools]]\nname = \"email\"\n\
             queue = \"mails\"\ncommand = \"w\"\ndead_letter = \"{dead}\"\n"
        );
        read(&text, &[])
    };
    for kind in ["rabbitmq", "kafka"] {
        let wrong = |dead: &str, why: &str| {
            let expected = [format!("pools.email.dead_letter {why}: `\"{dead}\"`")];
            assert_eq!(messages(of(kind, dead)), expected);
        };
        wrong("mails", "must not be what the pool itself reads");
        let waits = "must not be where the pool's messages wait for a retry";
        wrong("mails.retry.1s", waits);
        assert!(of(kind, "mails.dead").is_ok() && of(kind, "graveyard").is_ok());
    }
}

#[test]
fn a_log_level_is_a_level_or_a_clear_filter() {
    for (level, right) in [
        ("info", true),
        ("WARN", true),
        ("off", true),
        ("info,ganger_pool=debug", true),
        ("ganger::pool", true),
        ("verbose", false),
        ("info,debgu", false),
        ("ganger=loud", false),
        ("", false),
    ] {
        let text = format!("[daemon]\nlog_level = \"{level}\"\n{LEAST}");
        assert_eq!(read(&text, &[]).is_ok(), right, "{level}");
    }
}

#[test]
fn a_tier_keeps_a_message_for_longer_than_it_waits() {
    let with = |retention: &str, longest: &str| {
        let kafka = format!(
            "kind = \"kafka\"\nbrokers = \"a\"\ngroup = \"g\"\nretry_retention = \"{retention}\""
        );
        let text = LEAST.replace("kind = \"table\"\nurl = \"sqlite:ganger.db\"", &kafka);
        read(&format!("{text}{longest}\n"), &[])
    };
    let rule = "pools.email.retry.max must be shorter than the source's `retry_retention`, which \
                keeps messages that wait";
    assert!(with("7d", "retry.max = \"6d\"").is_ok());
    assert_eq!(
        messages(with("7d", "retry.max = \"7d\"")),
        [format!("{rule}: `\"7d\"`")]
    );
    assert_eq!(messages(with("10m", "")), [rule]);
}

#[test]
fn tokens_are_checked_and_never_shown() {
    let hash = "ab".repeat(32);
    let token = |name: &str, more: &str| format!("[[admin.tokens]]\nname = \"{name}\"\n{more}\n");
    let good = |name: &str| token(name, &format!("role = \"viewer\"\nsha256 = \"{hash}\""));
    for (lines, expected) in [
        (token("a", ""), "admin.tokens.a.role is missing"),
        (
            token("a", "role = \"root\""),
            "admin.tokens.a.role must be `\"viewer\"`, `\"operator\"` or `\"admin\"`: `\"root\"`",
        ),
        (
            token("a", "role = \"admin\"\nsha256 = \"t0ps3cret\""),
            "admin.tokens.a.sha256 must be the SHA-256 of the token, 64 hexadecimal digits",
        ),
        (good("a") + &good("a"), "admin.tokens.a.name is taken"),
        (
            good("a") + &good("b"),
            "admin.tokens.b.sha256 is that of another token",
        ),
        (
            good("a") + "expires = \"tomorrow\"",
            "admin.tokens.a.expires must be a time with `Z` or an offset",
        ),
        (
            good("a") + "expires = 2027-06-30T00:00:00Z",
            "admin.tokens.a.expires must be text",
        ),
    ] {
        is_refused(&lines, expected);
    }
}

#[test]
fn what_lets_others_into_the_admin_api_is_checked() {
    for (lines, expected) in [
        (
            "[admin.proxy_auth]\nheader = \"X User\"\nfrom = \"10.0.0.1\"".to_owned(),
            "admin.proxy_auth.header must be the name of an HTTP header",
        ),
        (
            "[admin.proxy_auth]\nheader = \"X-User\"\nfrom = [\"10.0.0.0/33\"]".to_owned(),
            "admin.proxy_auth.from[0] must be an IP address or a network",
        ),
        (
            "[admin.proxy_auth]\nheader = \"X-User\"\nfrom = \"0.0.0.0/0\"".to_owned(),
            "admin.proxy_auth.from must not be every address",
        ),
        (
            "[admin.proxy_auth]\nheader = \"X-User\"".to_owned(),
            "admin.proxy_auth.from is missing",
        ),
        (
            "[admin.proxy_auth]\nheader = \"X-User\"\nfrom = \"10.0.0.1\"".to_owned(),
            "admin.public_url is missing: proxy_auth requires it",
        ),
        (
            "[admin]\nredact = [\"$.a[\"]".to_owned(),
            "admin.redact[0] must be a path into JSON",
        ),
        (
            "[admin]\nredact = [\"a\", \"a b\"]".to_owned(),
            "admin.redact[1] must be a path into JSON",
        ),
        (
            "[admin]\nredact = [\"$\"]".to_owned(),
            "admin.redact[0] must be a path into JSON",
        ),
        (
            "[admin]\npublic_url = \"https://ganger.example/ops?a=b\"".to_owned(),
            "admin.public_url must have no query, no fragment and no user",
        ),
        (
            "[admin]\npublic_url = \"https://ganger.example/ui/x\"".to_owned(),
            "admin.public_url has a path that can't be put before others",
        ),
        (
            "[admin]\npublic_url = \"https://ganger.example/metrics\"".to_owned(),
            "admin.public_url has a path that can't be put before others",
        ),
        (
            "[admin]\npublic_url = \"https://ganger.example/a//b\"".to_owned(),
            "admin.public_url has a path that can't be put before others",
        ),
        (
            "[admin]\npublic_url = \"https://ganger.example/a&b\"".to_owned(),
            "admin.public_url has a path that can't be put before others",
        ),
        (
            "[admin]\npublic_url = \"https://u:t0ps3cret@ganger.example\"".to_owned(),
            "admin.public_url must have no query, no fragment and no user",
        ),
    ] {
        is_refused(&lines, expected);
    }
}

#[test]
fn peers_are_checked_and_their_tokens_never_shown() {
    let peer = |name: &str, lines: &str| format!("[admin.peers.{name}]\n{lines}\n");
    let url = "url = \"http://h:1\"\n";
    for (lines, expected) in [
        (
            peer("\"a b\"", url),
            "admin.peers.a b must be 1 to 64 of the characters",
        ),
        (peer("a", ""), "admin.peers.a.url is missing"),
        (
            peer("a", "url = \"h:1\""),
            "admin.peers.a.url must be a URL",
        ),
        (
            peer("a", "url = \"https://h:1\""),
            "admin.peers.a.url must begin with http://",
        ),
        (
            peer("a", "url = \"http://u:t0ps3cret@h:1\""),
            "admin.peers.a.url must have no user and no password",
        ),
        (
            peer(
                "a",
                &format!("{url}token = \"t0ps3cret\"\ntoken_file = \"f\""),
            ),
            "admin.peers.a.token_file and `token` can't both be given",
        ),
        (
            peer("a", &format!("{url}token_file = \"none\"")),
            "admin.peers.a.token_file",
        ),
        (
            peer("a", &format!("{url}tokn = \"t0ps3cret\"")),
            "admin.peers.a.tokn is not a known key",
        ),
        (
            "[admin]\npeers = \"a\"".to_owned(),
            "admin.peers must be a table",
        ),
    ] {
        is_refused(&lines, expected);
    }
}

/// Checks that these lines have that problem, and that their secret is not shown.
fn is_refused(lines: &str, expected: &str) {
    let text = format!("{LEAST}\n{lines}");
    let page = rendered(&read(&text, &[]).unwrap_err());
    let said = messages(read(&text, &[]));
    assert!(
        !page.contains("t0ps3cret") && !said.concat().contains("t0ps3cret"),
        "{page}"
    );
    let is_it = |message: &String| message.starts_with(expected);
    assert!(said.iter().any(is_it), "{said:?} for {lines}");
}
