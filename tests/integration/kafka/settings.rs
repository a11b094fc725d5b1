//! How a connection to Kafka is configured: what is passed through, what is refused, and how it says
//! that a broker does not let it in or is not there.

use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;

use crate::harness::kafka::{
    Kafka, KafkaSite, MECHANISM, PASSWORD, Plan, in_trouble, is_before_4, is_well,
};
use crate::harness::{Event, Workspace, field, trials};

trials![
    tls_and_a_password_are_passed_through,
    a_wrong_password_is_told,
    a_wrong_mechanism_is_told,
    a_wrong_certificate_is_told,
    a_plain_connection_to_a_port_with_tls_is_told,
    properties_that_would_break_the_promise_are_refused,
    a_property_that_librdkafka_does_not_know_is_told,
    a_value_that_librdkafka_does_not_take_is_told,
    no_secret_is_printed_or_logged,
    a_broker_that_is_not_there_yet_is_waited_for,
    a_broker_that_does_not_know_the_groups_protocol_is_told,
    two_pools_of_a_group_on_one_topic_are_refused,
    the_order_is_for_kafka_only,
    a_group_may_have_a_name_that_no_topic_may_have,
];

/// A source on the port that wants TLS and a password, with these in place of what is right.
fn secure(password: &str, mechanism: &str, certificate: &Path) -> Plan {
    Plan::new(1).secure(password, mechanism, certificate)
}

fn certificate() -> PathBuf {
    Kafka::shared().certificate()
}

fn tls_and_a_password_are_passed_through() {
    let site = secure(PASSWORD, MECHANISM, &certificate()).make();
    let answers = site.named("answers");
    site.kafka.make_topic(&answers, 1);
    let daemon = site.start(&site.pool(&["--v2=1"]));
    let question = site.message("mode:reply a").header("ReplyTo", &answers);
    site.kafka
        .send(&[question, site.message("mode:answer:400 b")]);
    site.settled(&daemon);
    assert_eq!(site.kafka.texts(&answers), ["re: mode:reply a"]);
    assert_eq!(site.kafka.texts(&site.dead_topic()), ["mode:answer:400 b"]);
    daemon.stop();
}

/// The topics beside the pool's own are named after it.
fn a_group_may_have_a_name_that_no_topic_may_have() {
    let site = Plan::new(1).group("team:billing").make();
    let retry = r#"{ initial = "500ms", in_place_max = "0ms" }"#;
    let pool = site.pool(&["--v2=1"]).set("retry", retry);
    site.site.configure_commands(std::slice::from_ref(&pool));
    let daemon = site.start(&pool);
    let (again, dead) = ("mode:until-attempt:2:500", "mode:answer:400");
    site.send(&[again, dead]);
    site.done(&daemon, 1);
    site.settled(&daemon);
    let beside = |what: &str| format!("{}.team_3abilling.{what}", site.topic);
    assert!(site.kafka.topics().contains(&beside("retry.1s")));
    assert_eq!(site.kafka.texts(&beside("dead")), [dead]);
    let listed = site.site.ganger(&["dead", "list"]).good();
    assert!(listed.contains(dead), "{listed}");
    assert_eq!(
        site.site.ganger(&["dead", "retry", "--all"]).good(),
        "retried 1\n"
    );
    daemon.stop();
    assert_eq!(site.record().texts(Event::Done), [again]);
}

/// What a daemon that can't start complains of.
fn complaint(site: &KafkaSite) -> String {
    site.site.configure_commands(&[site.pool(&["--v2=1"])]);
    site.site.ganger(&["run"]).bad(1)
}

fn says(complaint: &str, words: &[&str]) {
    let lower = complaint.to_lowercase();
    for word in words {
        assert!(
            lower.contains(&word.to_lowercase()),
            "{word:?} in: {complaint}"
        );
    }
}

fn a_wrong_password_is_told() {
    let wrong = complaint(&secure("off-with-her-head", MECHANISM, &certificate()).make());
    says(
        &wrong,
        &["source `main`", "authentication failed", MECHANISM],
    );
    assert!(!wrong.contains("off-with-her-head"), "{wrong}");
}

fn a_wrong_mechanism_is_told() {
    let wrong = complaint(&secure(PASSWORD, "PLAIN", &certificate()).make());
    says(&wrong, &["source `main`", "PLAIN", MECHANISM]);
}

fn a_wrong_certificate_is_told() {
    let stranger = Kafka::own();
    let certificate = stranger.certificate();
    let wrong = complaint(&secure(PASSWORD, MECHANISM, &certificate).make());
    says(&wrong, &["source `main`", "certificate verify failed"]);
}

/// It can't be told from a broker that is about to die, so it is waited for.
fn a_plain_connection_to_a_port_with_tls_is_told() {
    let kafka = Kafka::shared();
    let brokers = format!("brokers = \"{}\"", kafka.secure_address());
    let site = Plan::on(kafka, 1).source(&brokers).make();
    let daemon = site.start(&site.pool(&["--v2=1"]));
    daemon.eventually("it to say what is wrong", || {
        daemon.signal(Signal::SIGUSR1);
        let status = daemon.records(|record| !record["source_problem"].is_null());
        status
            .iter()
            .any(|record| field(record, "source_problem").contains("closed by peer"))
    });
    daemon.stop();
}

fn properties_that_would_break_the_promise_are_refused() {
    let refused = [
        ("consumer", "enable.auto.commit", "true"),
        ("consumer", "enable.auto.offset.store", "true"),
        ("consumer", "isolation.level", "read_uncommitted"),
        ("consumer", "group.id", "another"),
        ("consumer", "check.crcs", "false"),
        ("consumer", "statistics.interval.ms", "0"),
        ("producer", "acks", "1"),
        ("producer", "request.required.acks", "0"),
        ("producer", "enable.idempotence", "false"),
        ("producer", "transactional.id", "mine"),
        ("producer", "message.max.bytes", "1000000"),
        ("client", "enable.auto.commit", "true"),
        ("client", "bootstrap.servers", "elsewhere:9092"),
    ];
    for (table, property, value) in refused {
        let sections = format!(
            "[sources.main]\nkind = \"kafka\"\nbrokers = \"127.0.0.1:1\"\ngroup = \"g\"\n\
             [sources.main.{table}]\n\"{property}\" = \"{value}\""
        );
        let site = Workspace::with_sections(&sections);
        site.configure_commands(&[crate::harness::Pool::new(&[])]);
        let wrong = site.ganger(&["check"]).bad(2);
        let problem = format!("sources.main.{table}.{property}");
        assert!(wrong.contains(&problem), "{property}: {wrong}");
        let reasons = [
            "would commit",
            "is always `all`",
            "is set by",
            "is always `true`",
            "is always `read_committed`",
            "would fence",
            "would lose",
        ];
        assert!(
            reasons.iter().any(|reason| wrong.contains(reason)),
            "{wrong}"
        );
    }
}

fn a_property_that_librdkafka_does_not_know_is_told() {
    let wrong = complaint(&Plan::new(1).consumer("fetch.wait.max.sm", "5").make());
    says(&wrong, &["source `main`", "fetch.wait.max.sm"]);
}

fn a_value_that_librdkafka_does_not_take_is_told() {
    let plan = Plan::new(1).tables("[sources.main.producer]\n\"linger.ms\" = \"soon\"");
    let wrong = complaint(&plan.make());
    says(&wrong, &["source `main`", "linger.ms"]);
}

fn no_secret_is_printed_or_logged() {
    let site = secure(PASSWORD, MECHANISM, &certificate()).make();
    site.site.configure_commands(&[site.pool(&["--v2=1"])]);
    let printed = site.site.ganger(&["config", "print"]).good();
    assert!(printed.contains("sasl.password"), "{printed}");
    assert!(!printed.contains(PASSWORD), "{printed}");
    let daemon = site.start(&site.pool(&["--v2=1"]));
    site.send(&["a"]);
    site.all_done(&daemon);
    daemon.stop();
    let leaks = daemon.records(|record| record.to_string().contains(PASSWORD));
    assert!(leaks.is_empty(), "{leaks:#?}");
}

fn a_broker_that_is_not_there_yet_is_waited_for() {
    let kafka = Kafka::own();
    let site = Plan::on(kafka, 1).make();
    site.send(&["a"]);
    site.kafka.kill();
    let daemon = site.start(&site.pool(&["--v2=1"]));
    daemon.eventually("it to say so", || {
        daemon.signal(Signal::SIGUSR1);
        let status = daemon.records(|record| !record["source_problem"].is_null());
        status
            .iter()
            .any(|record| field(record, "state") == "source down")
    });
    site.kafka.start_again();
    site.done(&daemon, 1);
    site.all_done(&daemon);
    daemon.stop();
}

/// librdkafka wants a later version of the newer protocol than this broker has, and says nothing.
fn a_broker_that_does_not_know_the_groups_protocol_is_told() {
    let site = Plan::new(1).newer_protocol().make();
    let daemon = site.start(&site.pool(&["--v2=1"]));
    if is_before_4() {
        in_trouble(&daemon, "does not support this group.protocol");
    } else {
        site.send(&["known"]);
        site.all_done(&daemon);
        is_well(&daemon);
        site.record().assert_done_once(&["known"]);
    }
    daemon.stop();
}

fn two_pools_of_a_group_on_one_topic_are_refused() {
    let section = |name: &str, group: &str| {
        format!(
            "[sources.{name}]\nkind = \"kafka\"\nbrokers = \"127.0.0.1:1\"\ngroup = \"{group}\"\n"
        )
    };
    let pool = |name: &str| {
        crate::harness::Pool::new(&[])
            .text("name", name)
            .text("source", name)
    };
    let check = |groups: [&str; 2]| {
        let sections = section("one", groups[0]) + &section("two", groups[1]);
        let site = Workspace::with_sections(&sections);
        site.configure_commands(&[pool("one"), pool("two")]);
        site.ganger(&["check"])
    };
    let wrong = check(["g", "g"]).bad(2);
    assert!(
        wrong.contains("is already read by the pool `one`"),
        "{wrong}"
    );
    check(["g", "h"]).good();
}

fn the_order_is_for_kafka_only() {
    let site = Workspace::new();
    site.configure_commands(&[crate::harness::Pool::new(&[]).text("order", "key")]);
    let wrong = site.ganger(&["check"]).bad(2);
    assert!(wrong.contains("order"), "{wrong}");
    assert!(wrong.contains("Kafka"), "{wrong}");
}
