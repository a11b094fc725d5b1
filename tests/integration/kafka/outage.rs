//! The broker itself fails: work goes on, what is earned is kept until it can be committed, and
//! everything is as before once the broker is back.

use nix::sys::signal::Signal;

use crate::harness::kafka::{Kafka, KafkaSite, MECHANISM, PASSWORD, Plan, USER};
use crate::harness::{Daemon, Event, field, trials};

trials![
    a_broker_that_dies_and_comes_back,
    a_broker_that_stands_still,
    a_broker_that_comes_back_elsewhere,
];

/// On a broker of its own that is soon found missing.
fn impatient() -> Plan {
    Plan::on(Kafka::own(), 1).tables(
        r#"
        [sources.main.client]
        "socket.timeout.ms" = "3000"
        "#,
    )
}

/// Two in hand whose answers are wanted, and one that is to die.
fn in_hand(plan: Plan) -> (KafkaSite, Daemon, String) {
    let site = plan.make();
    let answers = site.named("answers");
    site.kafka.make_topic(&answers, 1);
    let daemon = site.start(&site.pool(&["--v2=1"]).set("workers", "3"));
    let bodies = [
        "mode:wait:go,reply a",
        "mode:wait:go,reply b",
        "mode:wait:go,answer:400 c",
    ];
    let records = bodies.map(|body| site.message(body).header("ReplyTo", &answers));
    site.kafka.send(&records);
    site.begun(&daemon, &bodies);
    (site, daemon, answers)
}

fn is_told(daemon: &Daemon) {
    daemon.eventually("it to say that the broker is away", || {
        daemon.signal(Signal::SIGUSR1);
        let status = daemon.records(|record| !record["source_problem"].is_null());
        status
            .iter()
            .any(|record| field(record, "state") == "source down")
    });
}

/// The answers go out once the broker is there, each message ran once or, where the broker no
/// longer knew the daemon, a second time.
fn is_settled(site: &KafkaSite, daemon: &Daemon, answers: &str) {
    site.settled(daemon);
    let mut texts = site.kafka.texts(answers);
    texts.sort_unstable();
    texts.dedup();
    assert_eq!(
        texts,
        ["re: mode:wait:go,reply a", "re: mode:wait:go,reply b"]
    );
    let dead = site.kafka.texts(&site.dead_topic());
    assert!(dead.iter().all(|text| text == "mode:wait:go,answer:400 c"));
    assert!(!dead.is_empty());
    site.send(&["after that"]);
    daemon.eventually("the work to go on", || {
        site.record().of(Event::Done, "after that").len() == 1
    });
    site.settled(daemon);
    daemon.signal(Signal::SIGUSR1);
    daemon.logs("status of the pool", |status| {
        field(status, "state") == "running"
    });
}

fn a_broker_that_dies_and_comes_back() {
    let (site, daemon, answers) = in_hand(impatient());
    site.kafka.kill();
    is_told(&daemon);
    site.site.touch("go");
    daemon.eventually("both to be done", || {
        site.record().all(Event::Done).len() == 2
    });
    site.kafka.start_again();
    is_settled(&site, &daemon, &answers);
    assert_eq!(daemon.times_logged("worker lost"), 0);
    daemon.stop();
}

fn a_broker_that_stands_still() {
    let (site, daemon, answers) = in_hand(impatient());
    site.kafka.signal(Signal::SIGSTOP);
    site.site.touch("go");
    daemon.eventually("both to be done", || {
        site.record().all(Event::Done).len() == 2
    });
    is_told(&daemon);
    site.kafka.signal(Signal::SIGCONT);
    is_settled(&site, &daemon, &answers);
    assert_eq!(daemon.times_logged("worker lost"), 0);
    daemon.stop();
}

/// The consumer has forgotten what it was configured with, as librdkafka does, and all that it has
/// learnt is gone: only a new one gets anywhere. So does the producer, if it has not kept an address.
fn a_broker_that_comes_back_elsewhere() {
    let kafka = Kafka::own();
    let (first, then) = (kafka.secure_address(), kafka.spare_address());
    let client = format!(
        r#"
        [sources.main.client]
        "security.protocol" = "sasl_ssl"
        "sasl.mechanisms" = "{MECHANISM}"
        "sasl.username" = "{USER}"
        "sasl.password" = "{PASSWORD}"
        "ssl.ca.location" = "{}"
        "metadata.recovery.strategy" = "none"
        "#,
        kafka.certificate().display()
    );
    let brokers = format!("brokers = \"{first},{then}\"");
    let plan = Plan::on(kafka, 1).source(&brokers).tables(&client);
    let (site, daemon, answers) = in_hand(plan);
    site.kafka.kill();
    is_told(&daemon);
    site.site.touch("go");
    daemon.eventually("both to be done", || {
        site.record().all(Event::Done).len() == 2
    });
    site.kafka.move_secure();
    site.kafka.start_again();
    is_settled(&site, &daemon, &answers);
    let consumer = "no broker was reached for long: the consumer is recreated, and messages in \
                    hand may run twice";
    assert!(daemon.times_logged(consumer) > 0);
    assert_eq!(daemon.times_logged("worker lost"), 0);
    daemon.stop();
}
