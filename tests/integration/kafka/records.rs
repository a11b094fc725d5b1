//! What a worker is told of a record, whatever it is made of, and what a reply carries.

use crate::harness::kafka::{KafkaSite, NewRecord, Plan};
use crate::harness::{Event, field, trials};

trials![
    a_tombstone_is_an_empty_message_that_says_so,
    empty_and_binary_values,
    what_is_known_of_a_record,
    the_last_of_several_values_under_one_header_name_counts,
    a_reply_carries_key_headers_and_correlation,
    a_reply_goes_where_the_worker_says,
    an_emit_goes_out_beside_the_answer,
    a_long_task_in_parts_answers_its_caller,
    a_message_for_a_worker_that_can_not_have_it,
];

fn noted(site: &KafkaSite) -> Vec<String> {
    let record = site.record();
    let texts = record.texts(Event::Noted).into_iter();
    texts.map(str::to_owned).collect()
}

fn a_tombstone_is_an_empty_message_that_says_so() {
    let site = KafkaSite::new(1);
    let mode = "--mode=note:form,note:property:key,note:property:tombstone";
    let daemon = site.start(&site.pool(&["--v2=1", mode]));
    let tombstone = NewRecord::tombstone(&site.topic).partition(0);
    site.kafka.send(&[tombstone.clone().key("k"), tombstone]);
    site.all_done(&daemon);
    assert_eq!(site.record().texts(Event::Done), ["", ""]);
    let same = ["form=str", "property:tombstone=Boolean(true)"];
    let noted = noted(&site);
    assert!(
        noted.iter().filter(|text| **text == same[0]).count() == 2,
        "{noted:?}"
    );
    assert!(
        noted.iter().filter(|text| **text == same[1]).count() == 2,
        "{noted:?}"
    );
    assert!(
        noted.contains(&"property:key=(none)".to_owned()),
        "{noted:?}"
    );
    daemon.stop();
}

fn empty_and_binary_values() {
    let site = KafkaSite::new(1);
    let daemon =
        site.start(&site.pool(&["--v2=1", "--mode=note:form,note:property:tombstone,reply"]));
    let answers = site.named("answers");
    site.kafka.make_topic(&answers, 1);
    let record = |value: &[u8]| {
        NewRecord::binary(&site.topic, value)
            .key("k")
            .header("ReplyTo", &answers)
    };
    site.kafka.send(&[record(b""), record(b"\xff\x00\xfe")]);
    site.all_done(&daemon);
    let not = "property:tombstone=(none)";
    assert_eq!(noted(&site), ["form=str", not, "form=bin", not]);
    assert_eq!(site.kafka.texts(&answers).len(), 2);
    daemon.stop();
}

fn what_is_known_of_a_record() {
    let site = Plan::new(2).topic("retention.ms", "-1").make();
    let names = [
        "topic",
        "partition",
        "offset",
        "key",
        "timestamp",
        "message_id",
        "content_type",
    ];
    let steps: Vec<String> = names
        .iter()
        .map(|name| format!("note:property:{name}"))
        .collect();
    let daemon = site.start(&site.pool(&["--v2=1", &format!("--mode={}", steps.join(","))]));
    let record = site
        .message("a")
        .key("k")
        .partition(1)
        .timestamp(1_700_000_000_500)
        .header("MessageId", "m-1")
        .header("content-type", "text/plain");
    site.kafka.send(&[record]);
    site.all_done(&daemon);
    let values = [
        site.topic.as_str(),
        "Integer(1)",
        "Integer(0)",
        "k",
        "Integer(1700000000500)",
        "m-1",
        "text/plain",
    ];
    let wanted = names.iter().zip(values);
    let wanted: Vec<String> = wanted
        .map(|(name, value)| format!("property:{name}={value}"))
        .collect();
    assert_eq!(noted(&site), wanted);
    daemon.stop();
}

/// A worker has one value for a name; the record keeps them all.
fn the_last_of_several_values_under_one_header_name_counts() {
    let site = KafkaSite::new(1);
    let mode = "--mode=note:header:colour,note:header:nothing,note:header:binary,reply";
    let daemon = site.start(&site.pool(&["--v2=1", mode]));
    let answers = site.named("answers");
    site.kafka.make_topic(&answers, 1);
    let record = site
        .message("a")
        .header("colour", "red")
        .header("colour", "green")
        .null_header("nothing")
        .header("binary", [0xff, 0xfe])
        .header("ReplyTo", &answers);
    site.kafka.send(&[record]);
    site.all_done(&daemon);
    let noted = noted(&site);
    let wanted = [
        "header:colour=green",
        "header:nothing=",
        "header:binary=//4=",
    ];
    assert_eq!(noted, wanted);
    daemon.stop();
}

fn a_reply_carries_key_headers_and_correlation() {
    let site = KafkaSite::new(1);
    let daemon = site.start(&site.pool(&["--v2=1"]));
    let answers = site.named("answers");
    site.kafka.make_topic(&answers, 1);
    let record = site
        .message("mode:reply a")
        .key([0xff, b'k'])
        .header("ReplyTo", &answers)
        .header("CorrelationId", "c-1")
        .header("colour", "red")
        .header("colour", "green")
        .header("binary", [0xff, 0xfe])
        .header("answered-by", "nobody yet");
    site.kafka.send(&[record]);
    site.all_done(&daemon);
    let answer = site.kafka.read(&answers).remove(0);
    assert_eq!(answer.text(), "re: mode:reply a");
    assert_eq!(answer.key.as_deref(), Some([0xff, b'k'].as_slice()));
    assert_eq!(answer.header("CorrelationId").as_deref(), Some("c-1"));
    assert_eq!(
        answer.header("answered-by").as_deref(),
        Some("modes-worker")
    );
    let values = |name: &str| {
        let of_name = answer.headers.iter().filter(|(header, _)| header == name);
        of_name
            .map(|(_, value)| value.clone().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(values("colour"), [b"red".to_vec(), b"green".to_vec()]);
    assert_eq!(values("binary"), [vec![0xff, 0xfe]]);
    assert_eq!(values("answered-by").len(), 1);
    let names = answer.headers.iter().map(|(name, _)| name.as_str());
    let ours: Vec<&str> = names.filter(|name| name.starts_with("x-ganger")).collect();
    assert_eq!(ours, ["x-ganger-step"]);
    daemon.stop();
}

fn a_reply_goes_where_the_worker_says() {
    let site = KafkaSite::new(1);
    let [here, there] = ["here", "there"].map(|name| site.named(name));
    site.kafka.make_topic(&here, 1);
    site.kafka.make_topic(&there, 1);
    let daemon = site.start(&site.pool(&["--v2=1"]));
    let body = format!("mode:reply:{there} a");
    site.kafka.send(&[
        site.message(&body).header("ReplyTo", &here),
        site.message("mode:reply nowhere"),
    ]);
    site.settled(&daemon);
    assert_eq!(site.kafka.texts(&here), Vec::<String>::new());
    assert_eq!(site.kafka.texts(&there), [format!("re: {body}")]);
    daemon.stop();
}

fn an_emit_goes_out_beside_the_answer() {
    let site = KafkaSite::new(1);
    let there = site.named("there");
    site.kafka.make_topic(&there, 1);
    let daemon = site.start(&site.pool(&["--v2=1"]));
    let body = format!("mode:emit:{there}:news a");
    site.kafka.send(&[site.message(&body).key("k")]);
    site.all_done(&daemon);
    let emitted = site.kafka.read(&there);
    assert_eq!(emitted.len(), 1);
    assert_eq!(emitted[0].text(), "news");
    assert!(emitted[0].header("ganger-emit-id").is_some());
    daemon.stop();
}

fn a_long_task_in_parts_answers_its_caller() {
    let site = KafkaSite::new(2);
    let answers = site.named("answers");
    site.kafka.make_topic(&answers, 1);
    let daemon = site.start(&site.pool(&["--v2=1"]));
    let record = site
        .message("mode:switch:3")
        .key("k")
        .header("ReplyTo", &answers)
        .header("CorrelationId", "c-1");
    site.kafka.send(&[record]);
    site.done(&daemon, 4);
    site.all_done(&daemon);
    let parts = [
        "mode:switch:3",
        "mode:switch:2",
        "mode:switch:1",
        "mode:switch:0",
    ];
    assert_eq!(site.record().texts(Event::Done), parts);
    let answer = site.kafka.read(&answers).remove(0);
    assert_eq!(answer.text(), "all parts done");
    assert_eq!(answer.header("CorrelationId").as_deref(), Some("c-1"));
    assert_eq!(answer.key.as_deref(), Some(b"k".as_slice()));
    daemon.stop();
}

/// A version 1 worker is never sent what is not text.
fn a_message_for_a_worker_that_can_not_have_it() {
    let site = KafkaSite::new(1);
    let daemon = site.start(&site.pool(&[]));
    site.send(&["text"]);
    site.done(&daemon, 1);
    site.kafka.send(&[
        NewRecord::binary(&site.topic, &[0xff]),
        site.message("text too"),
    ]);
    site.done(&daemon, 2);
    site.settled(&daemon);
    let dead = daemon.logged("message dead-lettered");
    assert_eq!(field(&dead, "reason"), "undeliverable");
    let dead = site.kafka.read(&site.dead_topic());
    assert_eq!(dead.len(), 1);
    assert_eq!(dead[0].value.as_deref(), Some([0xff].as_slice()));
    daemon.stop();
}
