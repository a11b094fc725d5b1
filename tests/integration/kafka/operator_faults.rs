//! What an operator with bad luck meets: topics deleted that are in use, offsets set back, records as
//! large as they may be.

use std::time::Duration;

use tokio::time::Instant;

use crate::harness::kafka::{Kafka, KafkaSite, NewRecord, Plan, in_trouble, is_well};
use crate::harness::{Daemon, Event, field, said, trials};

trials![
    offsets_that_are_set_back_are_read_again,
    a_hundred_partitions,
    the_largest_record_waits_and_dies_like_any_other,
    a_thousand_headers_come_through,
    headers_without_end_make_a_dead_letter_and_hold_up_nobody,
    a_deleted_tier_stops_nothing,
    a_tier_that_is_deleted_with_a_message_in_hand_stops_nothing,
    a_deleted_dead_letter_topic_loses_no_letter,
    a_damaged_record_is_told_and_not_passed_over,
];

/// By someone who wants it all once more.
fn offsets_that_are_set_back_are_read_again() {
    let site = KafkaSite::new(1);
    let pool = site.pool(&["--v2=4"]);
    let bodies: Vec<String> = (0..10).map(|n| format!("message {n}")).collect();
    let daemon = site.start(&pool);
    site.send(&bodies);
    site.all_done(&daemon);
    daemon.stop();
    site.group.commit(&site.topic, 0, 3, "");
    let daemon = site.start(&pool);
    site.done(&daemon, 17);
    site.all_done(&daemon);
    daemon.stop();
    let record = site.record();
    record.assert_none_lost(&bodies);
    let times = |n: usize| record.of(Event::Done, &bodies[n]).len();
    assert_eq!((0..10).map(times).sum::<usize>(), 17);
    assert!((3..10).all(|n| times(n) == 2));
}

fn a_hundred_partitions() {
    let site = KafkaSite::new(100);
    let daemon = site.start(&site.pool(&["--v2=4"]));
    let bodies: Vec<String> = (0..100).map(|n| format!("message {n}")).collect();
    let record = |(partition, body): (i32, &String)| site.message(body).partition(partition);
    let records: Vec<NewRecord> = (0..).zip(&bodies).map(record).collect();
    site.kafka.send(&records);
    site.done(&daemon, 100);
    site.all_done(&daemon);
    site.record().assert_done_once(&bodies);
    daemon.stop();
}

/// A pool whose retries go to a tier.
fn with_tier(site: &KafkaSite) -> Daemon {
    let retry =
        r#"{ attempts = 3, initial = "500ms", factor = 1.0, jitter = 0.0, in_place_max = "0ms" }"#;
    site.start(&site.pool(&["--v2=1"]).set("retry", retry))
}

/// What is added to copies of it must not make them too large.
fn the_largest_record_waits_and_dies_like_any_other() {
    let site = KafkaSite::new(1);
    let daemon = with_tier(&site);
    // A broker takes batches of 1,048,588 bytes: this leaves a few for their frame.
    let size = 1_048_500;
    let filled = |mode: &str| format!("{mode} {}", "x".repeat(size - mode.len() - 1));
    let twice = filled("mode:until-attempt:2:500");
    let dead = filled("mode:answer:500");
    site.send(&[&twice, &dead]);
    site.settled(&daemon);
    assert_eq!(site.record().all(Event::Done).len(), 1);
    assert_eq!(site.kafka.texts(&site.dead_topic()), [dead]);
    daemon.stop();
}

fn a_thousand_headers_come_through() {
    let site = KafkaSite::new(1);
    let daemon = with_tier(&site);
    let record = site.message("mode:answer:500 a");
    let record = (0..1_000).fold(record, |record, n| {
        record.header(&format!("header {n}"), format!("value {n}"))
    });
    site.kafka.send(&[record]);
    site.settled(&daemon);
    let dead = site.kafka.read(&site.dead_topic());
    assert_eq!(dead.len(), 1);
    for n in 0..1_000 {
        let value = dead[0].header(&format!("header {n}"));
        assert_eq!(value, Some(format!("value {n}")));
    }
    daemon.stop();
}

/// As many as a record of 1 MiB holds. To look each up among the others would take 11 s, in which the
/// daemon would do nothing else.
fn headers_without_end_make_a_dead_letter_and_hold_up_nobody() {
    const COUNT: usize = 90_000;
    let site = KafkaSite::new(1);
    let daemon = site.start(&site.pool(&["--v2=1"]));
    let record = site.message("many");
    let record = (0..COUNT).fold(record, |record, n| record.header(&format!("{n:05}"), "v"));
    site.kafka.send(&[record, site.message("after")]);
    site.settled(&daemon);
    assert_eq!(site.record().texts(Event::Began), ["after"]);
    let dead = daemon.logged("message dead-lettered");
    assert_eq!(field(&dead, "reason"), "undeliverable");
    let stalls = daemon.records(|record| said(record, "thread of the daemon stalled"));
    assert!(stalls.is_empty(), "{stalls:?}");
    daemon.stop();
    let dead = site.kafka.read(&site.dead_topic()).remove(0);
    let own = |(name, _): &&(String, _)| !name.starts_with("x-ganger-");
    assert_eq!(dead.headers.iter().filter(own).count(), COUNT);
}

/// What waited in it is gone; what would wait there waits elsewhere.
fn a_deleted_tier_stops_nothing() {
    let site = hasty();
    let daemon = with_tier(&site);
    site.send(&["before"]);
    site.done(&daemon, 1);
    let tiers = site.tier_topics();
    assert!(!tiers.is_empty());
    for tier in tiers {
        site.kafka.delete_topic(&tier);
    }
    let again = "mode:until-attempt:3:500 again";
    site.send(&[again, "after"]);
    site.done(&daemon, 3);
    site.settled(&daemon);
    is_well(&daemon);
    daemon.stop();
    site.record().assert_done_once(&["before", again, "after"]);
}

/// Where it stood can't be committed any more, and need not be.
fn a_tier_that_is_deleted_with_a_message_in_hand_stops_nothing() {
    let site = hasty();
    let daemon = with_tier(&site);
    let again = "mode:until-attempt:2:500,wait:go again";
    site.send(&[again]);
    daemon.eventually("it to come out of the tier", || {
        site.record().of(Event::Began, again).len() == 2
    });
    for tier in site.tier_topics() {
        site.kafka.delete_topic(&tier);
    }
    site.site.touch("go");
    site.done(&daemon, 1);
    site.send(&["after"]);
    site.done(&daemon, 2);
    site.settled(&daemon);
    is_well(&daemon);
    daemon.stop();
    site.record().assert_done_once(&[again, "after"]);
}

/// Less than a daemon may take to write the last settlements.
const DRAIN: Duration = Duration::from_secs(10);

/// A daemon that soon believes that a topic is not there.
fn hasty() -> KafkaSite {
    let producer = "[sources.main.producer]\n\"topic.metadata.propagation.max.ms\" = \"500\"";
    Plan::new(1).tables(producer).make()
}

/// It is made again by the next start, and then there is a letter.
fn a_deleted_dead_letter_topic_loses_no_letter() {
    let site = hasty();
    let pool = site.pool(&["--v2=1"]);
    let daemon = site.start(&pool);
    site.send(&["before"]);
    site.all_done(&daemon);
    site.kafka.delete_topic(&site.dead_topic());
    let (one, other) = ("mode:answer:400 one", "mode:answer:400 other");
    site.send(&[one, "after"]);
    in_trouble(&daemon, &site.dead_topic());
    site.done(&daemon, 2);
    site.send(&["even later"]);
    site.done(&daemon, 3);
    site.kafka.make_topic(&site.dead_topic(), 1);
    daemon.eventually("the letter", || {
        site.kafka.read(&site.dead_topic()).len() == 1
    });
    is_well(&daemon);
    site.settled(&daemon);
    // And where nobody makes it again, the next start does.
    site.kafka.delete_topic(&site.dead_topic());
    site.send(&[other]);
    in_trouble(&daemon, &site.dead_topic());
    // It is not waited for.
    let asked = Instant::now();
    daemon.stop();
    assert!(asked.elapsed() < DRAIN, "{:?}", asked.elapsed());
    daemon.logged(
        "not all publications were accepted: their messages are not committed and run again",
    );
    let daemon = site.start(&pool);
    site.settled(&daemon);
    assert_eq!(site.kafka.texts(&site.dead_topic()), [other]);
    daemon.stop();
    site.record()
        .assert_none_lost(&["before", "after", "even later"]);
}

/// It may be mended; until then nothing behind it is read, and all else goes on.
fn a_damaged_record_is_told_and_not_passed_over() {
    let site = Plan::on(Kafka::own(), 2).make();
    let (before, damaged, behind) = ("before", "the damaged one", "behind it");
    for body in [before, damaged, behind] {
        site.send(&[body]);
    }
    site.kafka.damage(&site.topic, damaged);
    let daemon = site.start(&site.pool(&["--v2=1"]));
    in_trouble(&daemon, "is damaged");
    site.kafka.send(&[site.message("elsewhere").partition(1)]);
    site.done(&daemon, 2);
    site.record().assert_done_once(&[before, "elsewhere"]);
    site.kafka.damage(&site.topic, damaged);
    site.done(&daemon, 4);
    is_well(&daemon);
    site.all_done(&daemon);
    daemon.stop();
    site.record()
        .assert_done_once(&[before, damaged, behind, "elsewhere"]);
}
