//! Messages, replies and dead letters that are larger than a topic takes, or only just not: none is
//! lost, and none keeps its partition or a stop waiting.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::harness::kafka::{KafkaSite, NewRecord, Plan, is_well};
use crate::harness::{Daemon, trials};

trials![
    a_reply_as_large_as_its_topic_takes,
    an_answer_too_large_for_its_topic,
    small_replies_to_a_topic_that_takes_no_more,
    a_compressed_record_dies_and_goes_back,
    what_is_larger_than_the_dead_letters_topic_takes_goes_in_parts,
    the_parts_of_a_letter_go_with_it,
];

const MIB: usize = 1 << 20;

/// Text of so many bytes that no codec makes much smaller.
fn noise(bytes: usize) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let letter = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(LETTERS[usize::try_from(state >> 58).unwrap()])
    };
    (0..bytes).map(letter).collect()
}

/// A site on whose topic messages of any size are.
fn site() -> KafkaSite {
    let site = KafkaSite::new(1);
    site.kafka
        .set_topic(&site.topic, "max.message.bytes=20000000");
    site
}

/// A daemon at work there that does what messages ask for, and commands that know it.
fn start(site: &KafkaSite) -> Daemon {
    let pool = site.pool(&["--v2=1"]);
    site.site.configure_commands(std::slice::from_ref(&pool));
    site.start(&pool)
}

fn answers(site: &KafkaSite, settings: &[(&str, &str)]) -> String {
    let answers = site.named("answers");
    site.kafka.make_topic_with(&answers, 1, settings);
    answers
}

/// What `dead list` says.
fn listed(site: &KafkaSite) -> Vec<Value> {
    let told = site.site.ganger(&["dead", "list", "-o", "json"]).json();
    told.as_array().unwrap().clone()
}

/// The partition goes on, and the daemon ends as it should.
fn all_is_well(site: &KafkaSite, daemon: &Daemon) {
    site.settled(daemon);
    is_well(daemon);
    daemon.stop();
}

fn a_reply_as_large_as_its_topic_takes() {
    let site = KafkaSite::new(1);
    let answers = answers(&site, &[("max.message.bytes", "10000000")]);
    let daemon = start(&site);
    let question = site.message("mode:reply-bytes:3000000 a");
    site.kafka.send(&[question.header("ReplyTo", &answers)]);
    site.all_done(&daemon);
    let told = site.kafka.texts(&answers);
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].len(), 3_000_000);
    all_is_well(&site, &daemon);
}

/// The work is done and can't be told: that is a dead letter with the answer, and everything else
/// goes on.
fn an_answer_too_large_for_its_topic() {
    let site = KafkaSite::new(1);
    let answers = answers(&site, &[]);
    let daemon = start(&site);
    let large = "mode:reply-bytes:3000000 a";
    let question = |body: &str| site.message(body).header("ReplyTo", &answers);
    site.kafka
        .send(&[question(large), question("mode:reply b")]);
    site.settled(&daemon);
    assert_eq!(site.kafka.texts(&answers), ["re: mode:reply b"]);
    let letters = listed(&site);
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0]["body"], large);
    assert_eq!(letters[0]["reply"]["queue"], *answers);
    assert_eq!(letters[0]["reply"]["body"], "y".repeat(3_000_000));
    all_is_well(&site, &daemon);
    site.record().assert_done_once(&[large, "mode:reply b"]);
}

/// Together they are more than it takes at once, and librdkafka sends them together.
fn small_replies_to_a_topic_that_takes_no_more() {
    let together = "[sources.main.producer]\n\"linger.ms\" = \"200\"";
    let site = Plan::new(1).tables(together).make();
    let answers = answers(&site, &[("max.message.bytes", "12000")]);
    let daemon = site.start(&site.pool(&["--v2=32"]));
    let question = |n: usize| {
        let question = site.message(&format!("mode:reply-bytes:8000 {n}"));
        question.header("ReplyTo", &answers)
    };
    let questions: Vec<NewRecord> = (0..200).map(question).collect();
    site.kafka.send(&questions);
    site.all_done(&daemon);
    assert_eq!(site.kafka.read(&answers).len(), questions.len());
    all_is_well(&site, &daemon);
}

/// It came to the topic only because it was compressed, and so do its letter and what is sent back.
fn a_compressed_record_dies_and_goes_back() {
    let site = KafkaSite::new(1);
    let daemon = start(&site);
    let body = format!(
        "mode:unless:mended:400 {}",
        "six million bytes ".repeat(350_000)
    );
    let record = site.message(&body).key("k").header("colour", "red");
    let gzip = [("compression.type", "gzip")];
    site.kafka
        .send_with(&gzip, &[record, site.message("behind")]);
    site.settled(&daemon);
    is_well(&daemon);
    let letters = listed(&site);
    assert_eq!(letters.len(), 1);
    assert!(letters[0]["body"] == *body, "byte for byte");
    site.site.touch("mended");
    site.site.ganger(&["dead", "retry", "--all"]).good();
    site.done(&daemon, 2);
    assert!(listed(&site).is_empty());
    let all = site.kafka.read(&site.topic);
    assert_eq!(all.len(), 3);
    assert!(all[2].value == all[0].value, "byte for byte");
    assert_eq!(
        (&all[2].key, &all[2].headers),
        (&all[0].key, &all[0].headers)
    );
    all_is_well(&site, &daemon);
}

/// A message that is larger than its topic takes by now, dead with a reply that is just as large.
fn in_parts(body_bytes: usize) -> (KafkaSite, Daemon, String) {
    let site = site();
    let answers = answers(&site, &[]);
    let body = format!("mode:reply {}", noise(body_bytes));
    let record = site
        .message(&body)
        .key([0xff, b'k'])
        .header("ReplyTo", &answers)
        .header("binary", [0xff, 0xfe])
        .null_header("nothing");
    site.kafka.send(&[record]);
    site.kafka
        .set_topic(&site.topic, "max.message.bytes=100000");
    let daemon = start(&site);
    site.settled(&daemon);
    is_well(&daemon);
    (site, daemon, body)
}

fn what_is_larger_than_the_dead_letters_topic_takes_goes_in_parts() {
    let (site, daemon, body) = in_parts(3 * MIB);
    let letters = listed(&site);
    assert_eq!(letters.len(), 1);
    let letter = &letters[0];
    assert!(letter["body"] == *body, "byte for byte");
    assert!(
        letter["reply"]["body"] == *format!("re: {body}"),
        "byte for byte"
    );
    assert_eq!(letter["reason"], "unroutable_reply");
    let id = letter["id"].as_str().unwrap();
    let shown = site.site.ganger(&["dead", "show", id, "-o", "json"]).json();
    assert!(shown == *letter);
    // Where it can't go back it stays.
    let wrong = site.site.ganger(&["dead", "retry", id]).bad(1);
    assert!(wrong.contains("larger"), "{wrong}");
    assert_eq!(listed(&site).len(), 1);
    site.kafka
        .set_topic(&site.topic, "max.message.bytes=20000000");
    site.kafka
        .set_topic(&site.named("answers"), "max.message.bytes=20000000");
    site.site.ganger(&["dead", "retry", id]).good();
    daemon.eventually("the answer", || {
        site.kafka.texts(&site.named("answers")) == [format!("re: {body}")]
    });
    assert!(listed(&site).is_empty());
    let all = site.kafka.read(&site.topic);
    assert_eq!(all.len(), 2);
    assert!(all[1].value == all[0].value, "byte for byte");
    assert_eq!(
        (&all[1].key, &all[1].headers),
        (&all[0].key, &all[0].headers)
    );
    all_is_well(&site, &daemon);
}

fn the_parts_of_a_letter_go_with_it() {
    let (site, daemon, _) = in_parts(MIB);
    daemon.stop();
    let alive = |site: &KafkaSite| {
        let records = site.kafka.read(&site.dead_topic());
        let mut alive = BTreeSet::new();
        for record in records {
            if record.value.is_some() {
                alive.insert(record.key);
            } else {
                alive.remove(&record.key);
            }
        }
        alive.len()
    };
    assert!(alive(&site) > 10, "{} records", alive(&site));
    let told = site.site.ganger(&["dead", "drop", "--all"]).good();
    assert_eq!(told, "dropped 1\n");
    assert_eq!(alive(&site), 0);
}
