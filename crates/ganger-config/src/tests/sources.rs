//! Problems of the keys of a source.

use super::{LEAST, messages, read};

/// Lines of a source, and the problems reported.
const WRONG_SOURCES: &[(&str, &str)] = &[
    (
        "kind = \"nats\"\nbrokers = \"a\"",
        "kind must be `\"table\"`, `\"rabbitmq\"` or `\"kafka\"`: `\"nats\"`",
    ),
    (
        "kind = \"table\"\nurl = \"sqlite:a\"\nheartbeat = \"5s\"",
        "heartbeat is a setting for RabbitMQ only",
    ),
    (
        "kind = \"kafka\"\nbrokers = \"a\"\ngroup = \"g\"\nurl = \"amqp://h\"",
        "url is a setting for a table queue or RabbitMQ only",
    ),
    ("kind = \"kafka\"\nbrokers = \"a\"", "group is missing"),
    (
        "kind = \"kafka\"\nbrokers = \"a\"\ngroup = \"g\"\nproducer = { acks = 1 }",
        "producer.acks is always `all`: a reply or a retry stored on one broker only can be lost: \
         `acks`",
    ),
    (
        "kind = \"rabbitmq\"\nurl = \"sqlite:a\"",
        "url must begin with `amqp://` or `amqps://`: `\"sqlite:a\"`",
    ),
    (
        "kind = \"rabbitmq\"\nurl = \"amqp://u:p/w@h\"",
        "url must be a URL (invalid port number): `\"amqp://u:***@h\"`",
    ),
    (
        "kind = \"rabbitmq\"\nurl = \"amqp://h\"\nca_file = \"ca.pem\"",
        "ca_file has an effect with TLS only: `\"ca.pem\"`",
    ),
    (
        "kind = \"rabbitmq\"\nurl = \"amqps://h\"\ncert_file = \"c.pem\"",
        "key_file is missing",
    ),
    (
        "kind = \"rabbitmq\"\nurl = \"amqp://h\"\nhosts = [\"u@h\"]",
        "hosts must hold hosts: `[\"u@h\"]`",
    ),
    (
        "kind = \"rabbitmq\"\nurl = \"amqp://h\"\nqueue_type = \"stream\"",
        "queue_type must be `\"quorum\"` or `\"classic\"`: `\"stream\"`",
    ),
    (
        "kind = \"rabbitmq\"\nurl = \"amqp://h\"\nqueue_arguments = { x-delivery-limit = 3 }",
        "queue_arguments.x-delivery-limit is set so high that the broker drops nothing: \
         `x-delivery-limit`",
    ),
    (
        "kind = \"table\"\nurl = \"oracle://a:b@c/d\"",
        "url must begin with `sqlite:`, `postgres:` or `mysql:`: `\"oracle://a:*@c/d\"`",
    ),
    (
        "kind = \"table\"\nurl = \"mysql://a:b@c/d?ssl-mode=x\"",
        "url must have one of `DISABLED`, `PREFERRED`, `REQUIRED`, `VERIFY_CA`, `VERIFY_IDENTITY` as its \
         ssl-mode: `\"mysql://a:*@c/d?ssl-mode=x\"`",
    ),
    (
        "kind = \"table\"\nurl = \"mysql://a:b@c/d\"\npgbouncer = true",
        "pgbouncer is a setting for PostgreSQL only",
    ),
    (
        "kind = \"table\"\nurl = \"mysql://a:b@c/d\"\nmode = \"0600\"",
        "mode has an effect with SQLite only: `\"0600\"`",
    ),
    (
        "kind = \"table\"\nurl = \"postgres://h/d\"",
        "username is missing",
    ),
    (
        "kind = \"table\"\nurl = \"postgres://u@h/d\"\npassword = \"a\"\npassword_file = \"/dev/null\"",
        "password_file and `password` can't both be given: `\"*********\"`",
    ),
    (
        "kind = \"table\"\nurl = \"sqlite:a\"\nusername = \"u\"",
        "username is a setting for RabbitMQ, PostgreSQL, MySQL or MariaDB only",
    ),
    (
        "kind = \"table\"\nurl = \"sqlite:a\"\nurl_file = \"/dev/null\"",
        "url_file and `url` can't both be given: `\"/dev/null\"`",
    ),
    (
        "kind = \"table\"\nurl_file = \"/dev/null\"",
        "url_file holds a URL that must begin with `sqlite:`, `postgres:` or `mysql:`: `\"/dev/null\"`",
    ),
    (
        "kind = \"table\"\nurl_file = \"/no/such\"",
        "url_file can't be read (No such file or directory (os error 2)): `\"/no/such\"`",
    ),
    (
        "kind = \"table\"\nurl = \"sqlite:a\"\nlease = \"0s\"",
        "lease must be within 1s..=1h: `\"0s\"`",
    ),
];

#[test]
fn sources_keep_their_rules() {
    for (lines, message) in WRONG_SOURCES {
        let text = LEAST.replace("kind = \"table\"\nurl = \"sqlite:ganger.db\"", lines);
        let expected = [format!("sources.main.{message}")];
        assert_eq!(messages(read(&text, &[])), expected);
    }
}
