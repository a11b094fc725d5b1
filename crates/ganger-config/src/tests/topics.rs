//! The topics of pools on Kafka.

use super::{messages, printed, read};
use crate::model::Options;

fn with(pools: &[&str]) -> String {
    let sources = r#"
[sources.main]
kind = "kafka"
brokers = "h"
group = "g"
[sources.apart]
kind = "kafka"
brokers = "h"
group = "h"
"#;
    let pool = |(number, keys): (usize, &&str)| {
        let source = if keys.contains("source") {
            ""
        } else {
            "source = \"main\""
        };
        format!("[[pools]]\nname = \"p{number}\"\n{source}\n{keys}\ncommand = \"w\"\n")
    };
    let pools = pools.iter().enumerate().map(pool);
    std::iter::once(sources.to_owned()).chain(pools).collect()
}

/// Returns the problems of these pools.
fn wrong(pools: &[&str]) -> Vec<String> {
    match read(&with(pools), &[]) {
        Ok(_) => Vec::new(),
        refused => messages(refused),
    }
}

#[test]
fn one_or_more_and_patterns_are_read_and_printed() {
    for (queue, label, one) in [
        (r#""orders""#, "orders", "orders"),
        (r#"["orders"]"#, "orders", "orders"),
        (r#"["orders", "payments"]"#, "orders, payments", "orders"),
        (r"'^orders\.'", r"^orders\.", r"^orders\."),
        (
            r"['^orders\.', 'payments']",
            r"^orders\., payments",
            "payments",
        ),
    ] {
        let text = with(&[&format!("queue = {queue}")]);
        let config = read(&text, &[]).unwrap();
        assert_eq!(&*config.pools[0].queue, label);
        assert_eq!(config.pools[0].one_queue(), one);
        let printed = printed(&text, &[]);
        assert_eq!(read(&printed, &[]).unwrap(), config, "{printed}");
        let Options::Kafka(options) = &config.pools[0].options else {
            panic!("another kind of pool");
        };
        assert_eq!(
            options.topics.has_patterns(),
            queue.contains('^'),
            "{queue}"
        );
    }
}

#[test]
fn what_topics_may_not_be() {
    let wrong = |queue: &str| wrong(&[&format!("queue = {queue}")]);
    assert_eq!(
        wrong("[]"),
        ["pools.p0.queue must have at least one value: `[]`"]
    );
    assert_eq!(
        wrong(r#"["a", ""]"#),
        ["pools.p0.queue[1] must not be empty: `\"\"`"]
    );
    assert_eq!(
        wrong(r#"["a", "^a(b"]"#),
        ["pools.p0.queue[1] must be a regular expression, as it begins with `^`: `\"^a(b\"`"]
    );
    assert_eq!(
        wrong(r#"["a", "b", "a"]"#),
        ["pools.p0.queue must not contain `a` twice: `[\"a\", \"b\", \"a\"]`"]
    );
    for own in ["a.g.dead", "a.g.retry.4s"] {
        let queue = format!(r#"["a", "{own}"]"#);
        let expected = format!(
            "pools.p0.queue must not contain `{own}`, which the pool itself uses for failed messages: \
             `[\"a\", \"{own}\"]`"
        );
        assert_eq!(wrong(&queue), [expected]);
    }
    assert_eq!(wrong(r#"["a", "a.other.dead", "b.g.dead"]"#), [""; 0]);
}

#[test]
fn no_two_pools_of_a_group_read_one_topic() {
    let second = |first: &str, second: &str| wrong(&[first, second]);
    let several = r#"queue = ["a", "b"]"#;
    assert_eq!(second(several, r#"queue = ["c", "d"]"#), [""; 0]);
    assert_eq!(
        second(several, "queue = [\"c\", \"b\"]\nsource = \"apart\""),
        [""; 0]
    );
    assert_eq!(
        second(several, r#"queue = ["c", "b"]"#),
        ["pools.p1.queue may match `b`, as may the pool `p0`: `[\"c\", \"b\"]`"]
    );
    assert_eq!(
        second(several, r#"queue = "b""#),
        ["pools.p1.queue is already read by the pool `p0`: `\"b\"`"]
    );
    assert_eq!(
        second(r"queue = '^orders\.'", r#"queue = "orders.eu""#),
        ["pools.p1.queue may match `orders.eu`, as may the pool `p0`: `\"orders.eu\"`"]
    );
    assert_eq!(
        second(r"queue = '^orders\.'", r"queue = '^payments\.'"),
        [""; 0]
    );
    assert_eq!(
        second(r"queue = '^orders\.'", "queue = '^.*eu$'"),
        ["pools.p1.queue may match `^.*eu$`, as may the pool `p0`: `'^.*eu$'`"]
    );
}

#[test]
fn no_pattern_takes_dead_letters() {
    let pools = |first: &str, second: &str| wrong(&[first, second]);
    let pattern = "queue = '^all-'";
    let dead = "queue = \"b\"\nsource = \"apart\"\ndead_letter = \"all-graves\"";
    assert_eq!(
        pools(pattern, dead),
        ["pools.p1.dead_letter matches a pattern of the pool `p0`: `\"all-graves\"`"]
    );
    assert_eq!(
        pools(dead, pattern),
        [
            "pools.p1.queue matches `all-graves`, which takes the dead letters of the pool `p0`: \
             `'^all-'`"
        ]
    );
    // Topics given by name are read.
    assert_eq!(pools(dead, "queue = [\"a\", \"all-graves\"]"), [""; 0]);
    assert_eq!(
        wrong(&["queue = '^all-'\ndead_letter = \"all-graves\""]),
        ["pools.p0.dead_letter must not be what the pool itself reads: `\"all-graves\"`"]
    );
}

#[test]
fn only_kafka_has_several() {
    let text = super::LEAST.replace("queue = \"mails\"", "queue = [\"a\", \"b\"]");
    let wrong = messages(read(&text, &[]));
    assert_eq!(wrong, ["pools.email.queue must be text: `[\"a\", \"b\"]`"]);
}
