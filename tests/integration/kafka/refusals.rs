//! A broker that refuses for a while what it has let us do before: it is told while it lasts, nothing
//! is lost, and it is over by itself once it has passed.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use crate::harness::kafka::{
    Kafka, KafkaSite, MECHANISM, PASSWORD, Plan, Stored, WITH_ACLS, in_trouble, is_well,
};
use crate::harness::{DEADLINE, Daemon, Event, field, said, trials};

trials![
    a_password_that_is_changed_and_changed_back,
    a_topic_that_may_not_be_read_for_a_while,
    commits_that_are_refused_pause_the_intake,
    commits_that_are_refused_are_no_trouble_of_a_member_without_partitions,
    a_producer_that_is_refused_is_made_anew_in_good_time,
    a_member_that_can_not_come_back_tries_again,
    a_dead_letter_that_may_not_be_written_is_kept_until_it_may,
    a_dead_letter_that_may_not_be_written_holds_up_no_rebalance,
];

/// A daemon at work on that broker as the user of its second listener.
fn as_user(kafka: Arc<Kafka>) -> (KafkaSite, Daemon) {
    // Whoever is refused is not put out by the group as well, however slow the machine.
    with_session(kafka, "60000")
}

/// The same with so many milliseconds until the group puts out a member that it does not hear.
fn with_session(kafka: Arc<Kafka>, session: &'static str) -> (KafkaSite, Daemon) {
    let certificate = kafka.certificate();
    let plan = Plan::on(kafka, 1).secure(PASSWORD, MECHANISM, &certificate);
    let site = plan.consumer("session.timeout.ms", session).make();
    let daemon = site.start(&site.pool(&["--v2=1"]));
    site.send(&["before"]);
    site.all_done(&daemon);
    (site, daemon)
}

/// All is as it was, and nothing ran twice.
fn goes_on(site: &KafkaSite, daemon: &Daemon) {
    site.send(&["after"]);
    daemon.eventually("the work to go on", || {
        !site.record().of(Event::Done, "after").is_empty()
    });
    is_well(daemon);
    site.all_done(daemon);
    daemon.stop();
    site.record().assert_done_once(&["before", "after"]);
}

fn a_password_that_is_changed_and_changed_back() {
    // Connections that are there are not asked again otherwise.
    let (site, daemon) = as_user(Kafka::own_with("connections.max.reauth.ms=2000\n"));
    site.kafka.change_password("off-with-her-head");
    in_trouble(&daemon, "authentication failed");
    site.kafka.change_password(PASSWORD);
    goes_on(&site, &daemon);
}

fn a_topic_that_may_not_be_read_for_a_while() {
    let (site, daemon) = as_user(Kafka::own_with(WITH_ACLS));
    let topic = ["--operation", "Read", "--topic", &site.topic];
    site.kafka.deny(&topic, true);
    in_trouble(&daemon, "access to the topic is denied");
    site.kafka.deny(&topic, false);
    // Also if nothing comes that would show it.
    is_well(&daemon);
    goes_on(&site, &daemon);
}

/// What is begun while nothing can be committed would run again after a crash.
fn commits_that_are_refused_pause_the_intake() {
    let (site, daemon) = as_user(Kafka::own_with(WITH_ACLS));
    let group = ["--operation", "Read", "--group", site.group.name()];
    site.kafka.deny(&group, true);
    let trouble = "progress can't be committed";
    site.send(&["not committed"]);
    daemon.logged(trouble);
    in_trouble(&daemon, "access to the group is denied");
    site.send(&["later"]);
    site.kafka.deny(&group, false);
    daemon.logged(&format!("resolved: {trouble}"));
    goes_on(&site, &daemon);
    let record = site.record();
    record.assert_none_lost(&["not committed"]);
    record.assert_done_once(&["later"]);
    let over = daemon.logged(&format!("resolved: {trouble}"));
    let begun = record.of(Event::Began, "later")[0].micros;
    assert!(begun >= micros(&over), "{begun} µs, {over}");
}

/// What it could not commit is another's meanwhile.
fn commits_that_are_refused_are_no_trouble_of_a_member_without_partitions() {
    let (site, daemon) = with_session(Kafka::own_with(WITH_ACLS), "6000");
    let group = ["--operation", "Read", "--group", site.group.name()];
    site.kafka.deny(&group, true);
    site.send(&["not committed"]);
    daemon.logged("progress can't be committed");
    let other = Plan::on(Arc::clone(&site.kafka), 0)
        .group(site.group.name())
        .make();
    let other = other.start(&site.pool(&["--v2=1"]));
    other.logs("partitions assigned", |record| {
        field(record, "partitions").contains(&site.topic)
    });
    site.kafka.deny(&group, false);
    daemon.eventually("both to be members", || {
        site.group.members().len() == 2 && site.group.is_settled()
    });
    is_well(&daemon);
    site.settled(&other);
    other.stop();
    daemon.stop();
}

/// When it was logged, in microseconds of Unix time.
fn micros(record: &Value) -> u64 {
    let at: jiff::Timestamp = field(record, "timestamp").parse().unwrap();
    at.as_microsecond().try_into().unwrap()
}

/// It may write nowhere, so the broker gives it no number, and librdkafka calls that fatal.
fn a_producer_that_is_refused_is_made_anew_in_good_time() {
    let (site, daemon) = as_user(Kafka::own_with(WITH_ACLS));
    daemon.stop();
    let answers = site.named("answers");
    site.kafka.make_topic(&answers, 1);
    let cluster = ["--operation", "IdempotentWrite", "--cluster"];
    let topics = [
        ["--operation", "Read"],
        ["--operation", "DescribeConfigs"],
        ["--topic", "*"],
    ]
    .concat();
    site.kafka.deny(&cluster, true);
    site.kafka.allow_only(&topics, true);
    let daemon = site.start(&site.pool(&["--v2=1"]));
    let question = site.message("mode:reply a").header("ReplyTo", &answers);
    site.kafka.send(&[question]);
    in_trouble(&daemon, "this is not permitted in this cluster");
    let anew = "producer is unusable and is recreated: unconfirmed records may be sent twice";
    daemon.eventually("some more tries", || daemon.times_logged(anew) > 4);
    let tries = daemon.records(|record| said(record, anew));
    let gaps: Vec<u64> = tries
        .windows(2)
        .map(|pair| micros(&pair[1]) - micros(&pair[0]))
        .collect();
    assert!(gaps[3] > gaps[0], "ever longer pauses: {gaps:?} µs");
    // First what it may write, or it would find itself let in and every topic refused.
    site.kafka.allow_only(&topics, false);
    site.kafka.deny(&cluster, false);
    daemon.eventually("the answer", || {
        site.kafka.texts(&answers) == ["re: mode:reply a"]
    });
    goes_on(&site, &daemon);
}

/// Another takes its name, and what a new connection needs is not there then.
fn a_member_that_can_not_come_back_tries_again() {
    let kafka = Kafka::own();
    let certificate = kafka.certificate();
    let named = |plan: Plan| plan.consumer("group.instance.id", "the-only");
    let plan = Plan::on(Arc::clone(&kafka), 1).secure(PASSWORD, MECHANISM, &certificate);
    let site = named(plan).make();
    let daemon = site.start(&site.pool(&["--v2=1"]));
    site.send(&["before"]);
    site.all_done(&daemon);
    let away = certificate.with_extension("away");
    fs::rename(&certificate, &away).unwrap();
    let other = named(Plan::on(kafka, 1).group(site.group.name())).make();
    let usurper = other.start(&other.pool(&["--v2=1"]));
    daemon.logged("no new consumer could be created");
    usurper.stop();
    fs::rename(&away, &certificate).unwrap();
    site.send(&["after"]);
    // Two pauses, the second of which is the longer one.
    daemon.within(3 * DEADLINE, "the work to go on", || {
        !site.record().of(Event::Done, "after").is_empty()
    });
    is_well(&daemon);
    site.all_done(&daemon);
    daemon.stop();
    site.record().assert_done_once(&["before", "after"]);
}

/// Nothing of it is left out because of that, and the others go on, of its key or not: for longer
/// than a broker may be silent, beside more letters than would be kept of what is not answered, and
/// after the broker was away.
fn a_dead_letter_that_may_not_be_written_is_kept_until_it_may() {
    let (site, daemon) = as_user(Kafka::own_with(WITH_ACLS));
    let dead_topic = site.dead_topic();
    let write = ["--operation", "Write", "--topic", &dead_topic];
    site.kafka.deny(&write, true);
    let dead = "mode:answer:400 a";
    let letter = site.message(dead).key("k").header("colour", "red");
    site.kafka.send(&[letter]);
    in_trouble(&daemon, "access to the topic is denied");
    in_trouble(&daemon, &dead_topic);
    let since = Instant::now();
    let mut progress = site.progress();
    let mut others = 1;
    while since.elapsed() < LONGER_THAN_SILENCE {
        let other = site.message(&format!("other {others}")).key("k");
        site.kafka.send(&[other]);
        others += 1;
        daemon.eventually("another to be done", || progress.done() == others);
    }
    let more: Vec<String> = (0..1_500).map(|n| format!("{dead} {n}")).collect();
    site.send(&more);
    site.kafka.kill();
    site.kafka.start_again();
    site.send(&["after"]);
    daemon.eventually("what comes after", || progress.done() == others + 1);
    in_trouble(&daemon, &dead_topic);
    site.kafka.deny(&write, false);
    daemon.eventually("all letters", || {
        site.kafka.read(&dead_topic).len() > more.len()
    });
    is_well(&daemon);
    site.settled(&daemon);
    let letters = site.kafka.read(&dead_topic);
    let first = letters.iter().find(|letter| letter.text() == dead).unwrap();
    assert_eq!(first.header("colour"), Some("red".into()), "{first:?}");
    let texts: BTreeSet<String> = letters.iter().map(Stored::text).collect();
    assert_eq!(texts.len(), 1 + more.len());
    daemon.stop();
    let record = site.record();
    record.assert_done_once(&["before", "after"]);
    assert_eq!(record.of(Event::Began, dead).len(), 1);
}

/// What the producer takes for silence is less.
const LONGER_THAN_SILENCE: Duration = Duration::from_secs(20);

/// Half of `max.poll.interval.ms` would be what other work in hand may take.
fn a_dead_letter_that_may_not_be_written_holds_up_no_rebalance() {
    let kafka = Kafka::own_with(WITH_ACLS);
    let certificate = kafka.certificate();
    let plan = Plan::on(kafka, 2).secure(PASSWORD, MECHANISM, &certificate);
    let site = plan.make();
    let daemon = site.start(&site.pool(&["--v2=1"]));
    site.send(&["before"]);
    site.all_done(&daemon);
    let dead_topic = site.dead_topic();
    let write = ["--operation", "Write", "--topic", &dead_topic];
    site.kafka.deny(&write, true);
    let dead = ["mode:answer:400 0", "mode:answer:400 1"];
    let record = |(partition, body): (i32, &&str)| site.message(body).partition(partition);
    let records: Vec<_> = (0..).zip(&dead).map(record).collect();
    site.kafka.send(&records);
    in_trouble(&daemon, &dead_topic);
    // This one may.
    let other = Plan::on(Arc::clone(&site.kafka), 0)
        .group(site.group.name())
        .make();
    let other = other.start(&site.pool(&["--v2=1"]));
    other.logs("partitions assigned", |record| {
        field(record, "partitions").contains(&site.topic)
    });
    site.kafka.deny(&write, false);
    daemon.stop();
    site.settled(&other);
    other.stop();
    let texts: BTreeSet<String> = site.kafka.texts(&dead_topic).into_iter().collect();
    assert_eq!(texts, dead.map(str::to_owned).into());
}
