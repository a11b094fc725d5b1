//! A cluster of which a node is down: what the others lead is worked on.

use serde_json::Value;

use crate::harness::kafka::{Kafka, Plan, in_trouble, is_well};
use crate::harness::{Event, field, trials};

trials![
    a_partition_without_a_leader_keeps_no_other_from_being_read,
    a_reply_for_a_partition_without_a_leader_waits_alone,
];

/// One of which nothing is committed: where it begins only its leader knows.
fn a_partition_without_a_leader_keeps_no_other_from_being_read() {
    let site = Plan::on(Kafka::own(), 1).make();
    let pool = site.pool(&["--v2=1"]);
    // All topics but that partition are on the first node.
    let daemon = site.start(&pool);
    site.send(&["before"]);
    site.all_done(&daemon);
    daemon.stop();
    let second = site.kafka.beside(2);
    site.kafka.widen_topic_onto(&site.topic, 2);
    site.kafka.send(&[site.message("in 1").partition(1)]);
    second.kill();
    site.kafka.lacks_a_leader(&site.topic);
    let daemon = site.start(&pool);
    site.send(&["in 0"]);
    site.done(&daemon, 2);
    in_trouble(&daemon, &format!("partition {}/1", site.topic));
    second.start_again();
    second.is_ready();
    site.done(&daemon, 3);
    is_well(&daemon);
    // And one that goes away while it is read.
    second.kill();
    site.kafka.lacks_a_leader(&site.topic);
    site.send(&["in 0 meanwhile"]);
    site.done(&daemon, 4);
    second.start_again();
    second.is_ready();
    site.kafka.send(&[site.message("in 1 again").partition(1)]);
    site.done(&daemon, 5);
    site.all_done(&daemon);
    is_well(&daemon);
    daemon.stop();
    let record = site.record();
    record.assert_done_once(&["before", "in 0", "in 1", "in 0 meanwhile", "in 1 again"]);
    assert_eq!(record.all(Event::Began).len(), 5);
}

/// It waits for longer than anyone is silent; then it is a dead letter, and so at once are those that
/// come after one more that tries whether there is a leader again.
fn a_reply_for_a_partition_without_a_leader_waits_alone() {
    let patience = "[sources.main.producer]\n\"message.timeout.ms\" = \"25000\"";
    let site = Plan::on(Kafka::own(), 1).tables(patience).make();
    let answers = site.named("answers");
    site.kafka.make_topic(&answers, 1);
    let pool = site.pool(&["--v2=1"]);
    site.site.configure_commands(std::slice::from_ref(&pool));
    // All topics but that partition are on the first node.
    let daemon = site.start(&pool);
    let second = site.kafka.beside(2);
    site.kafka.widen_topic_onto(&answers, 2);
    let ask = |body: &str, key: &str| {
        let question = site.message(&format!("mode:reply {body}")).key(key);
        site.kafka.send(&[question.header("ReplyTo", &answers)]);
    };
    let keys: Vec<String> = (0..16).map(|n| format!("key {n}")).collect();
    keys.iter().for_each(|key| ask("before", key));
    site.all_done(&daemon);
    let told = site.kafka.read(&answers);
    // A message waits for others of its key.
    let key_in = |partition, nth| {
        let mut there = told.iter().filter(|answer| answer.partition == partition);
        String::from_utf8(there.nth(nth).unwrap().key.clone().unwrap()).unwrap()
    };
    let (here, away, beside) = (key_in(0, 0), key_in(1, 0), key_in(1, 1));
    second.kill();
    site.kafka.lacks_a_leader(&answers);
    ask("stuck", &away);
    let silence = format!("no record for the topic `{answers}` is confirmed");
    daemon.logs("replies and copies can't be published", |record| {
        field(record, "problem") == silence
    });
    ask("heard", &here);
    site.send(&["no reply"]);
    daemon.eventually("the others to be done", || {
        let record = site.record();
        let done = |body| !record.of(Event::Done, body).is_empty();
        done("mode:reply heard") && done("no reply")
    });
    let dead = || site.kafka.texts(&site.dead_topic());
    daemon.eventually("a dead letter", || dead() == ["mode:reply stuck"]);
    ask("a try", &away);
    site.begun(&daemon, &["mode:reply a try"]);
    ask("too many", &beside);
    daemon.eventually("another one at once", || dead().len() == 2);
    assert_eq!(dead()[1], "mode:reply too many");
    second.start_again();
    second.is_ready();
    site.settled(&daemon);
    is_well(&daemon);
    daemon.stop();
    let list = site.site.ganger(&["dead", "list", "-o", "json"]).json();
    let letters = list.as_array().unwrap();
    let reply = |letter: &Value| letter["reply"]["body"].as_str().unwrap().to_owned();
    let kept: Vec<String> = letters.iter().map(reply).collect();
    let sure = ["re: mode:reply stuck", "re: mode:reply too many"];
    assert_eq!(kept[..2], sure);
    // The leader may be back too late for what was tried.
    let tried = "re: mode:reply a try".to_owned();
    let is_told = site.kafka.texts(&answers).contains(&tried);
    assert!(is_told || kept[2..].contains(&tried), "{kept:?}");
    let asked = ["heard", "stuck", "a try", "too many"].map(|body| format!("mode:reply {body}"));
    site.record().assert_done_once(&asked);
}
