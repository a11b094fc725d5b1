//! Replies, retries and emits that nobody takes, when there is no time to wait for them: at a stop,
//! and when their partition goes to someone else. Their messages run again; nobody waits for them.

use std::sync::Arc;

use crate::harness::kafka::{Kafka, KafkaSite, Plan};
use crate::harness::{Event, field, trials};

trials![
    what_nobody_takes_holds_up_no_stop,
    a_reply_that_nobody_takes_holds_up_no_rebalance,
];

/// A cluster of two nodes, and a topic for answers that takes none once the second, which comes back
/// with it, is down.
fn with_answers(partitions: usize, source: &str) -> (KafkaSite, Arc<Kafka>, String) {
    let plan = Plan::on(Kafka::own(), partitions).source(source);
    let site = plan.daemon("drain_timeout = \"1s\"").make();
    // What the group commits is on the first node then.
    site.group.committed(&site.topic);
    let second = site.kafka.beside(2);
    let answers = site.named("answers");
    site.kafka.make_topic_on_all(&answers, &[1, 2]);
    (site, second, answers)
}

fn what_nobody_takes_holds_up_no_stop() {
    let (site, second, answers) = with_answers(1, "replication = 2");
    let retry =
        r#"{ attempts = 3, initial = "500ms", factor = 1.0, jitter = 0.0, in_place_max = "0ms" }"#;
    let pool = site
        .pool(&["--v2=1"])
        .set("workers", "3")
        .text("stop_timeout", "1s")
        .set("retry", retry);
    let daemon = site.start(&pool);
    let tiers = site.tier_topics();
    for tier in tiers {
        site.kafka.set_topic(&tier, "min.insync.replicas=2");
    }
    second.kill();
    let (reply, retry) = ("mode:reply a", "mode:until-attempt:2:500 b");
    let emit = format!("mode:emit:{answers}:news c");
    let question = site.message(reply).header("ReplyTo", &answers);
    site.kafka
        .send(&[question, site.message(retry), site.message(&emit)]);
    site.begun(&daemon, &[reply, retry, &emit]);
    daemon.eventually("the reply to be wanted", || {
        !site.record().of(Event::Done, reply).is_empty()
    });
    // With exit code 0: nothing is lost.
    daemon.stop();
    let left = "not all publications were accepted: their messages are not committed and run again";
    let left = daemon.logged(left);
    assert_eq!(
        (field(&left, "replies"), field(&left, "retries")),
        ("1".into(), "1".into())
    );
    second.start_again();
    second.is_ready();
    let daemon = site.start(&pool);
    site.all_done(&daemon);
    daemon.stop();
    site.record().assert_none_lost(&[reply, retry, &emit]);
    let mut told = site.kafka.texts(&answers);
    told.sort_unstable();
    told.dedup();
    assert_eq!(told, ["news", "re: mode:reply a"]);
}

/// Half of `max.poll.interval.ms`, here 150 s, would be what other work in hand may take.
fn a_reply_that_nobody_takes_holds_up_no_rebalance() {
    let (site, second, answers) = with_answers(2, "");
    let daemon = site.start(&site.pool(&["--v2=1"]));
    second.kill();
    let bodies = ["mode:reply 0", "mode:reply 1"];
    let question = |(partition, body): (i32, &&str)| {
        let message = site.message(body).partition(partition);
        message.header("ReplyTo", &answers)
    };
    let questions: Vec<_> = (0..).zip(&bodies).map(question).collect();
    site.kafka.send(&questions);
    daemon.eventually("both to be done", || {
        site.record().all(Event::Done).len() == 2
    });
    let group = Plan::on(Arc::clone(&site.kafka), 0).group(site.group.name());
    // What is not settled in time comes to this one, too.
    let neighbour = group.make();
    let other = neighbour.start(&site.pool(&["--v2=1"]));
    other.logs("partitions assigned", |record| {
        field(record, "partitions").contains(&site.topic)
    });
    second.start_again();
    second.is_ready();
    site.settled(&other);
    daemon.stop();
    other.stop();
    let mut told = site.kafka.texts(&answers);
    told.sort_unstable();
    told.dedup();
    assert_eq!(told, ["re: mode:reply 0", "re: mode:reply 1"]);
}
