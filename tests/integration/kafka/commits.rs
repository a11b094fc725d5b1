//! What is committed, when, and what is made of it after a restart: only what is done, all of it in
//! good time, and nothing that a stranger has left there.

use crate::harness::kafka::{Commit, KafkaSite, NewRecord, Plan, is_draining};
use crate::harness::{Event, field, trials};

trials![
    only_the_run_from_the_start_is_committed,
    nothing_finished_behind_a_slow_message_runs_again,
    what_no_commit_could_hold_is_not_taken_in,
    all_that_is_earned_is_committed_on_the_way_out,
    what_is_in_hand_is_finished_on_the_way_out,
    what_can_not_be_finished_on_the_way_out_is_not_committed,
    a_strangers_metadata_is_ignored,
    damaged_metadata_is_ignored,
    a_group_that_has_committed_nothing_begins_at_the_start,
];

fn commit(site: &KafkaSite) -> Commit {
    site.group.committed(&site.topic).remove(0)
}

fn only_the_run_from_the_start_is_committed() {
    let site = KafkaSite::new(1);
    let daemon = site.start(&site.pool(&["--v2=1"]).set("workers", "2"));
    let slow = "mode:wait:go slow";
    let mut bodies: Vec<String> = (0..20).map(|n| format!("message {n}")).collect();
    bodies.insert(10, slow.to_owned());
    site.send(&bodies);
    site.done(&daemon, 20);
    daemon.eventually("ten to be committed", || commit(&site).offset == Some(10));
    daemon.eventually("the rest to be noted beside it", || {
        !commit(&site).metadata.is_empty()
    });
    assert_eq!(commit(&site).offset, Some(10));
    site.site.touch("go");
    site.all_done(&daemon);
    site.record().assert_done_once(&bodies);
    daemon.stop();
    assert_eq!(commit(&site).offset, Some(21));
}

/// One is slow, all that come after it are done, and then the daemon dies.
fn nothing_finished_behind_a_slow_message_runs_again() {
    let site = Plan::new(1).source(r#"commit_interval = "100ms""#).make();
    let pool = site.pool(&["--v2=8"]).set("workers", "2");
    let daemon = site.start(&pool);
    let count = 50_000;
    let slow = "mode:wait:go slow";
    let bodies: Vec<String> = (0..count).map(|n| format!("message {n}")).collect();
    let record = |body: &String| site.message(body).partition(0);
    site.kafka.send(&[site.message(slow).partition(0)]);
    site.kafka
        .send(&bodies.iter().map(record).collect::<Vec<NewRecord>>());
    let mut progress = site.progress();
    daemon.within(
        4 * crate::harness::DEADLINE,
        "all but one to be done",
        || progress.done() == count,
    );
    // Two commits later at most, what was done before the first of them is part of it.
    for marker in ["one more", "another"] {
        let before = commit(&site);
        site.send(&[marker]);
        daemon.eventually("another commit", || commit(&site) != before);
    }
    assert_eq!(commit(&site).offset.unwrap_or(0), 0);
    daemon.crash();
    let daemon = site.start(&pool);
    site.site.touch("go");
    site.all_done(&daemon);
    let record = site.record();
    let twice = record.assert_none_lost(&bodies);
    assert!(twice < count / 100, "{twice} of {count} done twice");
    assert_eq!(record.of(Event::Began, slow).len(), 2);
    daemon.stop();
}

/// What is done has more gaps, further apart, than a commit can tell of.
fn what_no_commit_could_hold_is_not_taken_in() {
    let site = Plan::new(1).source(r#"commit_interval = "100ms""#).make();
    let pool = site.pool(&["--v2=500"]).set("workers", "2");
    let daemon = site.start(&pool);
    let count = 30_000;
    let body = |n: usize| match n % 40 {
        0 => format!("mode:wait:go slow {n}"),
        _ => format!("fast {n}"),
    };
    let bodies: Vec<String> = (0..count).map(body).collect();
    site.send(&bodies);
    let full = daemon.logs(FULL, |record| field(record, "topic") == site.topic);
    assert_eq!(field(&full, "partition"), "0", "{full}");
    let length = commit(&site).metadata.len();
    assert!((1_000..=4_096).contains(&length), "{length} bytes");
    let done_before = site.progress().done();
    daemon.crash();
    site.site.touch("go");
    let daemon = site.start(&pool);
    site.all_done(&daemon);
    let twice = site.record().assert_none_lost(&bodies);
    assert!(
        done_before > count / 10,
        "{done_before} done before it was full"
    );
    assert!(twice < count / 10, "{twice} done twice");
    daemon.stop();
}

const FULL: &str = "commit metadata is full: intake paused until older messages are done";

fn all_that_is_earned_is_committed_on_the_way_out() {
    let site = Plan::new(3).source(r#"commit_interval = "1m""#).make();
    let daemon = site.start(&site.pool(&["--v2=4"]));
    let bodies: Vec<String> = (0..300).map(|n| format!("message {n}")).collect();
    let record = |body: &String| site.message(body).key(body);
    site.kafka
        .send(&bodies.iter().map(record).collect::<Vec<NewRecord>>());
    site.done(&daemon, bodies.len());
    daemon.stop();
    assert_eq!(site.group.lag(&site.topic), 0);
    site.record().assert_done_once(&bodies);
    assert_eq!(
        site.group.members(),
        Vec::<String>::new(),
        "it has left the group"
    );
}

fn what_is_in_hand_is_finished_on_the_way_out() {
    let site = Plan::new(1).source(r#"commit_interval = "1m""#).make();
    let daemon = site.start(&site.pool(&["--v2=1"]).set("workers", "2"));
    let slow = ["mode:wait:go a", "mode:wait:go b"];
    site.send(&slow);
    site.begun(&daemon, &slow);
    site.send(&["not begun"]);
    daemon.signal(nix::sys::signal::Signal::SIGTERM);
    is_draining(&daemon);
    site.site.touch("go");
    assert!(daemon.exit().success());
    site.record().assert_done_once(&slow);
    assert!(site.record().of(Event::Began, "not begun").is_empty());
    assert_eq!(commit(&site).offset, Some(2));
}

fn what_can_not_be_finished_on_the_way_out_is_not_committed() {
    let site = Plan::new(1).daemon(r#"drain_timeout = "1s""#).make();
    let pool = site.pool(&["--v2=1"]).set("workers", "2");
    let daemon = site.start(&pool);
    let slow = "mode:wait:go slow";
    site.send(&["fast", slow, "behind"]);
    site.begun(&daemon, &[slow]);
    site.done(&daemon, 2);
    daemon.stop();
    let left = commit(&site);
    assert_eq!(left.offset, Some(1));
    assert_ne!(left.metadata, "", "what is done behind it is known");
    site.site.touch("go");
    let daemon = site.start(&pool);
    site.all_done(&daemon);
    let record = site.record();
    assert_eq!(record.of(Event::Began, slow).len(), 2);
    assert_eq!(
        record.of(Event::Began, slow)[1].attempt,
        Some(1),
        "uncharged"
    );
    record.assert_done_once(&["fast", slow, "behind"]);
    daemon.stop();
}

/// What is read after a commit with that metadata at offset 3 of ten messages.
fn after_commit_with(metadata: &str, why: &str) {
    let site = KafkaSite::new(1);
    let bodies: Vec<String> = (0..10).map(|n| format!("message {n}")).collect();
    site.send(&bodies);
    site.group.commit(&site.topic, 0, 3, metadata);
    let daemon = site.start(&site.pool(&["--v2=1"]));
    site.all_done(&daemon);
    let record = site.record();
    record.assert_done_once(&bodies[3..]);
    assert_eq!(
        record.all(Event::Began).len(),
        7,
        "what was committed is done"
    );
    let ignored = format!("metadata of the commit ignored: {why}; more messages may run twice");
    let warning = daemon.logs(&ignored, |record| field(record, "topic") == site.topic);
    assert_eq!(field(&warning, "partition"), "0", "{warning}");
    assert_eq!(field(&warning, "level"), "WARN", "{warning}");
    daemon.stop();
}

fn a_strangers_metadata_is_ignored() {
    after_commit_with("committed by hand, grüße", "it is not ours");
}

fn damaged_metadata_is_ignored() {
    let site = KafkaSite::new(1);
    let pool = site.pool(&["--v2=1"]).set("workers", "2");
    let daemon = site.start(&pool);
    let slow = "mode:wait:go slow";
    site.send(&[slow, "a", "b", "c"]);
    site.done(&daemon, 3);
    daemon.eventually("what is done to be noted", || {
        !commit(&site).metadata.is_empty()
    });
    let good = commit(&site).metadata;
    site.site.touch("go");
    site.all_done(&daemon);
    daemon.stop();
    let shorter = &good[..good.len() - 1];
    after_commit_with(
        shorter,
        "it is damaged, or belongs to another offset, partition or cluster",
    );
}

fn a_group_that_has_committed_nothing_begins_at_the_start() {
    let site = KafkaSite::new(2);
    let record = |n: i32| site.message(&format!("message {n}")).partition(n % 2);
    site.kafka
        .send(&(0..10).map(record).collect::<Vec<NewRecord>>());
    let daemon = site.start(&site.pool(&["--v2=1"]));
    site.all_done(&daemon);
    assert_eq!(site.record().all(Event::Done).len(), 10);
    daemon.stop();
}
