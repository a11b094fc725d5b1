//! Records in the formats before Kafka 0.11, which clusters that were upgraded for years still have and
//! librdkafka reads by code of its own: none may come emptied, and none that may be is taken for done.

use std::sync::Arc;

use crate::harness::kafka::{Kafka, KafkaSite, NewRecord, Plan, in_trouble, is_before_4, is_well};
use crate::harness::{Event, Pool, trials};

trials![records_of_the_legacy_formats_come_whole_or_not_at_all];

/// All that a legacy format can compress with.
const CODECS: [&str; 4] = ["none", "gzip", "snappy", "lz4"];
const TIMESTAMP: i64 = 1_700_000_000_500;
/// Of what a worker is asked for, what is not there.
const NONE: &str = "(none)";

/// One broker for all, since it takes the longest here.
fn records_of_the_legacy_formats_come_whole_or_not_at_all() {
    // Version 4 has converted all that it had.
    if is_before_4() {
        let kafka = Kafka::legacy();
        each_format_is_read(&kafka);
        copies_are_kept(&kafka);
        an_empty_one_is_not_taken_for_done(&kafka);
    }
}

fn site(kafka: &Arc<Kafka>, format: &'static str) -> KafkaSite {
    Plan::on(Arc::clone(kafka), 1)
        .topic("message.format.version", format)
        .topic("retention.ms", "-1")
        .make()
}

fn pool(site: &KafkaSite) -> Pool {
    let properties = ["key", "tombstone", "timestamp"];
    let steps = properties.map(|name| format!("note:property:{name}"));
    let pool = site.pool(&["--v2=1", &format!("--mode={}", steps.join(","))]);
    pool.text("order", "partition")
}

fn each_format_is_read(kafka: &Arc<Kafka>) {
    let time = format!("Integer({TIMESTAMP})");
    for (format, time) in [("0.9.0", NONE), ("0.10.2", &time)] {
        let site = site(kafka, format);
        let (mut bodies, mut noted) = (Vec::new(), Vec::new());
        for codec in CODECS {
            let [whole, keyless] =
                ["whole", "without a key"].map(|what| format!("{codec}: {what}"));
            let records = [
                site.message(&whole).key("k"),
                site.message(&keyless),
                site.message("").key("k"),
                NewRecord::tombstone(&site.topic).key("k"),
                site.message("").key(""),
            ];
            let records = records.map(|record| record.timestamp(TIMESTAMP));
            kafka.send_with(
                &[("compression.type", codec), ("linger.ms", "100")],
                &records,
            );
            bodies.extend(
                [whole, keyless]
                    .into_iter()
                    .chain(["", "", ""].map(str::to_owned)),
            );
            let there = "Boolean(true)";
            for (key, tombstone) in [
                ("k", NONE),
                (NONE, NONE),
                ("k", NONE),
                ("k", there),
                ("", NONE),
            ] {
                let all = [("key", key), ("tombstone", tombstone), ("timestamp", time)];
                noted.extend(all.map(|(name, value)| format!("property:{name}={value}")));
            }
        }
        let daemon = site.start(&pool(&site));
        site.done(&daemon, bodies.len());
        site.all_done(&daemon);
        daemon.stop();
        let record = site.record();
        assert_eq!(record.texts(Event::Done), bodies, "{format}");
        assert_eq!(record.texts(Event::Noted), noted, "{format}");
    }
}

/// The broker would keep them in a format without headers, and take none.
fn copies_are_kept(kafka: &Arc<Kafka>) {
    let site = Plan::on(Arc::clone(kafka), 1).make();
    let retry = r#"{ initial = "500ms", in_place_max = "0ms" }"#;
    let daemon = site.start(&site.pool(&["--v2=1"]).set("retry", retry));
    let (again, dead) = ("mode:until-attempt:2:500", "mode:answer:400");
    site.send(&[again, dead]);
    site.settled(&daemon);
    daemon.stop();
    assert_eq!(site.record().texts(Event::Done), [again]);
    assert_eq!(site.kafka.texts(&site.dead_topic()), [dead]);
}

/// It can't be told from one that was emptied by the library. What is behind it waits, too.
fn an_empty_one_is_not_taken_for_done(kafka: &Arc<Kafka>) {
    let site = site(kafka, "0.10.2");
    let committed = || site.group.committed(&site.topic)[0].offset;
    let daemon = site.start(&pool(&site));
    site.send(&["before"]);
    let empty = NewRecord::tombstone(&site.topic).partition(0);
    site.kafka
        .send(&[empty, site.message("behind").partition(0)]);
    in_trouble(&daemon, "legacy format");
    daemon.eventually("the commit of what is before it", || committed() == Some(1));
    daemon.stop();
    assert_eq!(committed(), Some(1));
    assert_eq!(site.record().texts(Event::Done), ["before"]);
    // An operator has looked at it.
    site.group.commit(&site.topic, 0, 2, "");
    let daemon = site.start(&pool(&site));
    site.done(&daemon, 2);
    is_well(&daemon);
    site.all_done(&daemon);
    daemon.stop();
    assert_eq!(site.record().texts(Event::Done), ["before", "behind"]);
}
