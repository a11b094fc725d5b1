//! The bindings of a pool on RabbitMQ.

use super::{LEAST, messages, printed, read};
use crate::model::Options;

pub(super) const BOUND: &str = r#"
[sources.main]
kind = "rabbitmq"
url = "amqp://h"
[[pools]]
name = "a"
queue = "a"
command = "worker"
bind = [
  { exchange = "jobs", type = "topic", routing_key = "email.*" },
  { exchange = "tenants", arguments = { tenant = "blue", x-match = "all" } },
]
"#;

#[test]
fn what_is_printed_of_bindings_loads_again() {
    let own = [("PASSWORD", "guest")];
    let config = read(BOUND, &own).unwrap();
    let printed = printed(BOUND, &own);
    assert_eq!(read(&printed, &own).unwrap(), config, "{printed}");
    let Options::RabbitMq(options) = &config.pools[0].options else {
        panic!("another kind of pool");
    };
    let bound = options.bind.iter().map(|binding| &*binding.exchange);
    assert_eq!(bound.collect::<Vec<_>>(), ["jobs", "tenants"]);
}

#[test]
fn who_may_declare_nothing_binds_nothing() {
    let with = |source: &str, bind: &str| {
        let rabbit = format!("kind = \"rabbitmq\"\nurl = \"amqp://h\"\n{source}");
        let text = LEAST.replace("kind = \"table\"\nurl = \"sqlite:ganger.db\"", &rabbit);
        read(&format!("{text}bind = [{bind}]\n"), &[])
    };
    let bound = "{ exchange = \"jobs\" }";
    assert!(with("", bound).is_ok());
    assert_eq!(
        messages(with("declare = false", bound)),
        [
            "pools.email.bind has no effect if the source's `declare` is false: \
          `[{ exchange = \"jobs\" }]`"
        ]
    );
    let named = "{ routing_key = \"a\", kind = \"topic\" }";
    assert_eq!(
        messages(with("", named)),
        [
            "pools.email.bind[0].exchange is missing",
            "pools.email.bind[0].kind is not a known key",
        ]
    );
}
