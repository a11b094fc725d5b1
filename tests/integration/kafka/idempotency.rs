//! What is finished is remembered beside Kafka: what is read again is not worked on again. Where that is
//! remembered on a server is tested with what is the same on any.

use crate::harness::kafka::{KafkaSite, NewRecord, Plan};
use crate::harness::{DEADLINE, Daemon, Event, Pool, Record, Table, trials};

trials![
    what_is_read_again_from_the_beginning_is_not_worked_on_again,
    what_a_producer_sends_twice_is_worked_on_once_and_answered_twice,
    the_steps_of_a_long_task_are_no_repetitions,
    every_copy_of_a_message_keeps_its_step,
    nothing_that_is_entered_is_worked_on_again_when_daemons_come_and_go,
];

/// The daemon's word on a repetition.
const REPETITION: &str = "repetition acknowledged without being processed";

fn site(partitions: usize) -> KafkaSite {
    let memory = "[sources.memory]\nkind = \"table\"\nurl = \"sqlite:memory.db\"";
    Plan::new(partitions).tables(memory).make()
}

pub(crate) fn pool(site: &KafkaSite, args: &[&str]) -> Pool {
    let pool = site.pool(args).text("source", "main");
    pool.set("idempotency", "{ store = \"memory\" }")
}

fn message(site: &KafkaSite, body: &str, id: &str) -> NewRecord {
    let answers = site.named("answers");
    let message = site.message(body).header("MessageId", id);
    message.header("ReplyTo", answers)
}

/// The texts of the answers, once there are so many.
fn answers(site: &KafkaSite, daemon: &Daemon, count: usize) -> Vec<String> {
    let topic = site.named("answers");
    daemon.eventually("the answers", || site.kafka.texts(&topic).len() >= count);
    let answers = site.kafka.texts(&topic);
    assert_eq!(answers.len(), count, "{answers:?}");
    answers
}

fn memory(site: &KafkaSite) -> Table {
    Table::open(&site.site.path("memory.db"))
}

/// As after a commit that was lost, or an operator's reset.
fn what_is_read_again_from_the_beginning_is_not_worked_on_again() {
    let site = site(1);
    site.kafka.make_topic(&site.named("answers"), 1);
    let pool = pool(&site, &["--v2=1", "--mode=reply"]);
    let daemon = site.start(&pool);
    let all: Vec<String> = (0..20).map(|n| format!("message {n}")).collect();
    let records: Vec<NewRecord> = all.iter().map(|body| message(&site, body, body)).collect();
    site.kafka.send(&records);
    answers(&site, &daemon, 20);
    site.all_done(&daemon);
    daemon.stop();
    site.group.commit(&site.topic, 0, 0, "");
    let daemon = site.start(&pool);
    let mut texts = answers(&site, &daemon, 40);
    site.all_done(&daemon);
    site.record().assert_done_once(&all);
    daemon.eventually("every repetition to be told", || {
        daemon.times_logged(REPETITION) == 20
    });
    let mut twice: Vec<String> = all
        .iter()
        .flat_map(|body| vec![format!("re: {body}"); 2])
        .collect();
    texts.sort_unstable();
    twice.sort_unstable();
    assert_eq!(texts, twice);
    daemon.stop();
}

/// In whichever partition the second is.
fn what_a_producer_sends_twice_is_worked_on_once_and_answered_twice() {
    let site = site(2);
    site.kafka.make_topic(&site.named("answers"), 1);
    let daemon = site.start(&pool(&site, &["--v2=1"]).set("workers", "2"));
    let first = "mode:wait:go,reply first";
    site.kafka.send(&[message(&site, first, "m").partition(0)]);
    site.begun(&daemon, &[first]);
    site.kafka.send(&[message(&site, first, "m").partition(1)]);
    site.kafka
        .send(&[message(&site, "other", "n").partition(1)]);
    site.done(&daemon, 1);
    site.site.touch("go");
    let texts = answers(&site, &daemon, 2);
    assert_eq!(texts, vec![format!("re: {first}"); 2]);
    site.all_done(&daemon);
    assert_eq!(site.record().of(Event::Began, first).len(), 1);
    daemon.stop();
}

fn the_steps_of_a_long_task_are_no_repetitions() {
    let site = site(1);
    site.kafka.make_topic(&site.named("answers"), 1);
    let daemon = site.start(&pool(&site, &["--v2=1"]));
    for times in 1..=2 {
        site.kafka.send(&[message(&site, "mode:switch:3", "m")]);
        assert_eq!(
            answers(&site, &daemon, times),
            vec!["all parts done"; times]
        );
        site.all_done(&daemon);
        assert_eq!(site.record().all(Event::Done).len(), 4);
    }
    daemon.eventually("every repetition to be told", || {
        daemon.times_logged(REPETITION) == 4
    });
    daemon.stop();
}

/// One that waits in a retry topic, and one that comes back from the dead letters.
fn every_copy_of_a_message_keeps_its_step() {
    let site = site(1);
    let topic = site.named("answers");
    site.kafka.make_topic(&topic, 1);
    let pool = pool(&site, &["--v2=1"]).text("order", "none");
    let daemon = site.start(&pool);
    let fifth = |body, id| message(&site, body, id).header("x-ganger-step", "5");
    let step = |n: usize| {
        answers(&site, &daemon, n);
        site.kafka.read(&topic)[n - 1].header("x-ganger-step")
    };
    site.kafka
        .send(&[fifth("mode:until-attempt:2:500,reply", "m")]);
    assert_eq!(step(1).as_deref(), Some("6"));
    site.kafka
        .send(&[fifth("mode:unless:mended:400,reply", "n")]);
    daemon.eventually("the letter", || {
        !site.kafka.read(&site.dead_topic()).is_empty()
    });
    site.site.touch("mended");
    let config = daemon.config().to_str().unwrap().to_owned();
    let retry = [
        "dead", "retry", "--all", "--source", "main", "--config", &config,
    ];
    site.site.ganger(&retry).good();
    assert_eq!(step(2).as_deref(), Some("6"));
    site.settled(&daemon);
    assert_eq!(daemon.times_logged(REPETITION), 0);
    daemon.stop();
}

/// The effects of the workers, which guard against nothing, are the lines that they write when they
/// have done a message. What had an effect and was not entered when a daemon died has another.
fn nothing_that_is_entered_is_worked_on_again_when_daemons_come_and_go() {
    let site = site(3);
    site.kafka.make_topic(&site.named("answers"), 1);
    let pool = pool(&site, &["--mode=sleep:2,reply"]).set("workers", "2");
    let mut daemons = vec![site.start(&pool), site.start(&pool)];
    let bodies: Vec<String> = (0..1_000).map(|n| format!("message {n}")).collect();
    let record = |(n, body): (usize, &String)| message(&site, body, body).key(n.to_string());
    let records: Vec<NewRecord> = bodies.iter().enumerate().map(record).collect();
    site.kafka.send(&records);
    let memory = memory(&site);
    let mut before: Vec<(String, usize)> = Vec::new();
    for part in 1..=3 {
        daemons[1].within(DEADLINE * 3, "a part to be done", || {
            memory.finished() >= 200 * part
        });
        let leaving = daemons.remove(0);
        if part == 2 {
            leaving.stop();
        } else {
            leaving.crash();
        }
        // What is entered was recorded before.
        let keys = memory.finished_keys();
        before = with_times(&site.record(), keys);
        daemons.push(site.start(&pool));
    }
    daemons[1].within(DEADLINE * 3, "all to be done", || {
        memory.finished() == 1_000
    });
    site.all_done(&daemons[1]);
    let record = site.record();
    for (key, times) in before {
        assert_eq!(
            record.of(Event::Done, &key).len(),
            times,
            "{key} was done again"
        );
    }
    record.assert_none_lost(&bodies);
    let answered = site.kafka.texts(&site.named("answers"));
    for body in &bodies {
        let answer = format!("re: {body}");
        assert!(answered.contains(&answer), "no answer to {body}");
    }
    for daemon in daemons {
        daemon.stop();
    }
}

/// How often each was done.
fn with_times(record: &Record, keys: Vec<String>) -> Vec<(String, usize)> {
    let times = |key: String| {
        let times = record.of(Event::Done, &key).len();
        (key, times)
    };
    keys.into_iter().map(times).collect()
}
