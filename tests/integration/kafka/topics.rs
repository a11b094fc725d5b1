//! Topics that are not there, come later, are deleted, grow, or no longer hold what was to be read
//! next; and whose topics the daemon makes by itself.

use nix::sys::signal::Signal;

use crate::harness::kafka::{KafkaSite, NewRecord, Plan, Stored};
use crate::harness::{Daemon, Event, field, trials};

trials![
    a_missing_topic_is_made,
    partitions_and_replicas_as_asked_for,
    what_is_missing_is_named_where_nothing_may_be_made,
    nothing_is_made_where_all_is_there,
    a_topic_that_appears_later,
    a_topic_that_is_deleted_and_made_again,
    partitions_that_are_added,
    an_offset_below_what_is_there,
    an_offset_past_the_end,
    many_places_lost_at_once_are_asked_about_at_once,
    two_groups_have_tiers_and_dead_letters_of_their_own,
    a_compacted_topic,
    only_what_was_committed_of_transactions,
];

fn a_missing_topic_is_made() {
    let site = KafkaSite::new(0);
    let daemon = site.start(&site.pool(&["--v2=1"]));
    daemon.eventually("the topic to be made", || {
        site.kafka.topics().contains(&site.topic)
    });
    site.send(&["a"]);
    site.all_done(&daemon);
    site.record().assert_done_once(&["a"]);
    daemon.stop();
}

fn partitions_and_replicas_as_asked_for() {
    let site = Plan::new(0)
        .source("partitions = 4\nreplication = 1")
        .make();
    let daemon = site.start(&site.pool(&["--v2=1"]));
    assert_eq!(site.kafka.partitions(&site.topic), 4);
    for tier in site.tier_topics() {
        // Few, whatever the topic has.
        assert_eq!(site.kafka.partitions(&tier), 3, "{tier}");
    }
    daemon.stop();
    // More replicas than there are brokers.
    let site = Plan::new(0).source("replication = 2").make();
    site.site.configure_commands(&[site.pool(&["--v2=1"])]);
    let wrong = site.site.ganger(&["run"]).bad(1);
    assert!(
        wrong.contains(&format!("topic `{}`", site.topic)),
        "{wrong}"
    );
    assert!(wrong.contains("fewer brokers than replicas"), "{wrong}");
}

fn what_is_missing_is_named_where_nothing_may_be_made() {
    let site = Plan::new(0).source("declare = false").make();
    let retry = r#"{ max = "4s", in_place_max = "300ms" }"#;
    let pool = site.pool(&["--v2=1"]).set("retry", retry);
    site.site.configure_commands(&[pool]);
    let wrong = site.site.ganger(&["run"]).bad(1).replace(' ', "");
    let beside = format!("{}.{}", site.topic, site.group.name());
    let tiers = ["1s", "4s"].map(|tier| format!("{beside}.retry.{tier}"));
    let [short, long] = tiers;
    let dead = site.dead_topic();
    for missing in [&site.topic, &short, &long, &dead] {
        assert!(wrong.contains(missing.as_str()), "{missing} in: {wrong}");
    }
    assert!(!site.kafka.topics().contains(&site.topic));
    assert!(!site.kafka.topics().contains(&dead));
}

fn nothing_is_made_where_all_is_there() {
    let maker = KafkaSite::new(1);
    let pool = maker
        .pool(&["--v2=1"])
        .text("dead_letter", &maker.named("dead"));
    maker.start(&pool).stop();
    let before = maker.kafka.topics();
    assert!(before.contains(&maker.named("dead")));
    let site = Plan::new(0)
        .source("declare = false")
        .group(maker.group.name())
        .make();
    let daemon = site.start(&pool);
    maker.send(&["a", "mode:answer:400 b"]);
    maker.settled(&daemon);
    site.record().assert_done_once(&["a"]);
    assert_eq!(maker.kafka.read(&maker.named("dead")).len(), 1);
    daemon.stop();
}

/// One that may not be made, and that somebody else makes after all.
fn a_topic_that_appears_later() {
    let site = KafkaSite::new(1);
    let daemon = site.start(&site.pool(&["--v2=1"]));
    site.send(&["before"]);
    site.all_done(&daemon);
    site.kafka.delete_topic(&site.topic);
    daemon.logs("Kafka reports an error", |record| {
        let reason = field(record, "reason");
        reason.contains("there is no such topic") && reason.contains(&site.topic)
    });
    site.kafka.make_topic(&site.topic, 2);
    site.send(&["after"]);
    site.done(&daemon, 2);
    site.all_done(&daemon);
    daemon.stop();
}

/// Its offsets begin anew, and what was committed for the old one is no measure for them.
fn a_topic_that_is_deleted_and_made_again() {
    let site = KafkaSite::new(1);
    let pool = site.pool(&["--v2=1"]);
    let daemon = site.start(&pool);
    let old: Vec<String> = (0..10).map(|n| format!("old {n}")).collect();
    site.send(&old);
    site.all_done(&daemon);
    site.kafka.delete_topic(&site.topic);
    site.kafka.make_topic(&site.topic, 1);
    let new: Vec<String> = (0..10).map(|n| format!("new {n}")).collect();
    site.send(&new[..5]);
    site.done(&daemon, 15);
    site.send(&new[5..]);
    site.done(&daemon, 20);
    site.all_done(&daemon);
    site.record().assert_done_once(&old);
    site.record().assert_none_lost(&new);
    daemon.stop();
}

fn partitions_that_are_added() {
    let site = KafkaSite::new(1);
    let daemon = site.start(&site.pool(&["--v2=1"]));
    site.send(&["before"]);
    site.all_done(&daemon);
    site.kafka.widen_topic(&site.topic, 3);
    let record = |partition: i32| {
        site.message(&format!("in {partition}"))
            .partition(partition)
    };
    site.kafka.send(&[record(0), record(1), record(2)]);
    site.done(&daemon, 4);
    site.all_done(&daemon);
    site.record()
        .assert_done_once(&["before", "in 0", "in 1", "in 2"]);
    daemon.stop();
}

fn numbered(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("message {n}")).collect()
}

/// What was committed has been deleted since: it goes on with the oldest that is there.
fn an_offset_below_what_is_there() {
    let site = KafkaSite::new(1);
    let bodies = numbered(10);
    site.send(&bodies);
    site.group.commit(&site.topic, 0, 2, "");
    site.kafka.delete_records(&site.topic, 0, 6);
    let daemon = site.start(&site.pool(&["--v2=1"]));
    site.all_done(&daemon);
    let record = site.record();
    record.assert_done_once(&bodies[6..]);
    assert_eq!(record.all(Event::Began).len(), 4);
    out_of_range(&site, &daemon);
    daemon.stop();
}

fn out_of_range(site: &KafkaSite, daemon: &Daemon) {
    let partition = format!("{}/0", site.topic);
    let told = daemon.logs(
        "offset to resume from no longer exists; resuming at another",
        |record| field(record, "partition") == partition,
    );
    assert_eq!(field(&told, "level"), "WARN", "{told}");
}

/// As after a topic was made anew, or a broker has lost its disk. The commit is a stranger's, which
/// has no epoch that would tell how much is as it was.
fn an_offset_past_the_end() {
    let site = KafkaSite::new(1);
    let bodies = numbered(10);
    site.send(&bodies);
    site.group.commit(&site.topic, 0, 1_000, "");
    let daemon = site.start(&site.pool(&["--v2=1"]));
    site.all_done(&daemon);
    site.record().assert_done_once(&bodies);
    let told = daemon.logs(
        "log has lost messages that were read (topic recreated, or unclean election); resuming \
         where it diverges",
        |record| field(record, "partition") == format!("{}/0", site.topic),
    );
    assert_eq!(field(&told, "level"), "ERROR", "{told}");
    daemon.stop();
}

/// By one client, which has a few threads, and not by one for each partition.
fn many_places_lost_at_once_are_asked_about_at_once() {
    const PARTITIONS: i32 = 50;
    let plan = Plan::new(50).consumer("session.timeout.ms", "60000");
    let site = plan.make();
    let daemon = site.start(&site.pool(&["--v2=1"]));
    let send = |what: &str, partitions: std::ops::Range<i32>| {
        let record = |partition: i32| {
            let text = format!("{what} {partition}");
            site.message(&text).partition(partition)
        };
        let records: Vec<NewRecord> = partitions.map(record).collect();
        site.kafka.send(&records);
    };
    send("before", 0..PARTITIONS);
    site.all_done(&daemon);
    let usual = daemon.threads().len();
    daemon.signal(Signal::SIGSTOP);
    // The question that is under way is answered with that.
    send("lure", 0..1);
    send("gone", 1..PARTITIONS);
    (1..PARTITIONS).for_each(|partition| site.kafka.delete_records(&site.topic, partition, 2));
    daemon.signal(Signal::SIGCONT);
    let mut most = 0;
    let lost = "offset to resume from no longer exists; resuming at another";
    daemon.eventually("most of them to go on elsewhere", || {
        most = daemon.threads().len().max(most);
        daemon.times_logged(lost) > 40
    });
    assert!(most < usual + 25, "{most} threads, usually {usual}");
    send("after", 0..PARTITIONS);
    site.all_done(&daemon);
    daemon.stop();
    let after: Vec<String> = (0..PARTITIONS).map(|n| format!("after {n}")).collect();
    site.record().assert_done_once(&after);
}

fn two_groups_have_tiers_and_dead_letters_of_their_own() {
    let first = KafkaSite::new(1);
    let second = Plan::new(0).make();
    let pool = |mode: &str| {
        let retry = r#"{ attempts = 2, initial = "600ms", factor = 1.0, jitter = 0.0, in_place_max = "0ms" }"#;
        first.pool(&["--v2=1", mode]).set("retry", retry)
    };
    // The same topic, in which one group fails and the other does not.
    let failing = first.start(&pool("--mode=answer:500"));
    let working = second.start(&pool("--mode="));
    first.send(&["a", "b"]);
    failing.eventually("both to be dead", || {
        first.kafka.read(&first.dead_topic()).len() == 2
    });
    first.settled(&failing);
    working.eventually("both to be done", || second.group.lag(&first.topic) == 0);
    second.record().assert_done_once(&["a", "b"]);
    assert_eq!(second.record().all(Event::Began).len(), 2);
    let other = format!("{}.{}.", first.topic, second.group.name());
    let mut others = first.kafka.topics();
    others.retain(|topic| topic.starts_with(&other));
    assert!(others.contains(&format!("{other}dead")), "{others:?}");
    assert!(others.len() >= 2, "{others:?}");
    assert!(
        others
            .iter()
            .all(|topic| first.kafka.read(topic).is_empty())
    );
    failing.stop();
    working.stop();
}

/// Offsets with gaps, as a log cleaner leaves them.
fn a_compacted_topic() {
    let plan = Plan::new(1)
        .topic("cleanup.policy", "compact")
        .topic("segment.ms", "1")
        .topic("min.cleanable.dirty.ratio", "0.001")
        .topic("max.compaction.lag.ms", "1");
    let site = plan.make();
    for n in 0..3 {
        let record = |key: &str| site.message(&format!("{key} {n}")).key(key);
        site.kafka.send(&["a", "b", "a", "c"].map(record));
    }
    let left = crate::harness::look(|| {
        let left = site.kafka.read(&site.topic);
        // What was written last is never compacted.
        (left.len() < 8).then_some(left)
    });
    let left: Vec<String> = left.expect("compaction").iter().map(Stored::text).collect();
    let daemon = site.start(&site.pool(&["--v2=1"]));
    site.all_done(&daemon);
    let record = site.record();
    let mut done = record.texts(Event::Done);
    let mut left: Vec<&str> = left.iter().map(String::as_str).collect();
    done.sort_unstable();
    left.sort_unstable();
    assert_eq!(done, left);
    daemon.stop();
}

/// The markers at the ends of transactions have offsets too, but are no messages.
fn only_what_was_committed_of_transactions() {
    let site = KafkaSite::new(1);
    let daemon = site.start(&site.pool(&["--v2=1"]));
    let records = |name: &str| [0, 1, 2].map(|n| site.message(&format!("{name} {n}")).partition(0));
    site.kafka.send_in_transaction(&records("committed"), true);
    site.kafka.send_in_transaction(&records("aborted"), false);
    site.send(&["plain"]);
    site.kafka
        .send_in_transaction(&records("aborted again"), false);
    site.kafka
        .send_in_transaction(&records("committed too"), true);
    site.kafka
        .send_in_transaction(&records("aborted at last"), false);
    site.done(&daemon, 7);
    let last = site.kafka.read(&site.topic).last().unwrap().offset;
    daemon.eventually("all of it to be committed", || {
        site.group.committed(&site.topic)[0].offset > Some(last)
    });
    let record = site.record();
    assert!(
        record
            .texts(Event::Began)
            .iter()
            .all(|text| !text.contains("aborted"))
    );
    assert_eq!(record.all(Event::Began).len(), 7);
    daemon.stop();
    let daemon = site.start(&site.pool(&["--v2=1"]));
    site.send(&["the last"]);
    site.done(&daemon, 8);
    assert_eq!(site.record().all(Event::Began).len(), 8);
    daemon.stop();
}
