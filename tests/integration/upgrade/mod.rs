//! Two versions of the daemon on one queue, and back: that of the commit that `tests/old_version` builds,
//! and this one. Both are killed while they share the queue, and what is sent is in the newer one's form
//! too, as far as the older one's queue has room for it: delayed, for a topic, under a key. Nothing is
//! lost, and none is refused what the other has left, be it a message or a dead letter. Only
//! `tests/run --long` runs these, since they need the older program.

mod queues;

use std::time::Duration;

use serde_json::json;

use crate::harness::rabbit::DEAD;
use crate::harness::{Daemon, Event, Progress, Workspace};
use queues::{
    A_PART, BOTH, Queue, Version, body, on_kafka, on_rabbitmq, on_table, table_of_the_old,
};

crate::harness::trials![
    ; long:
    a_table_goes_on_to_the_new_version_and_back,
    a_queue_of_rabbitmq_goes_on_to_the_new_version_and_back,
    a_topic_of_kafka_goes_on_to_the_new_version_and_back,
    what_is_to_be_tried_again_on_a_table_changes_hands_with_its_count,
    what_is_to_be_tried_again_on_rabbitmq_changes_hands_with_its_count,
    what_is_to_be_tried_again_on_kafka_changes_hands_with_its_count,
    dead_letters_of_a_table_go_back_by_either_version,
    dead_letters_of_rabbitmq_go_back_by_either_version,
    dead_letters_of_kafka_go_back_by_either_version,
    the_older_version_keeps_a_key_until_its_message_is_gone,
    the_older_version_refuses_the_dead_letter_queue_of_the_newer,
];

/// The parts of a run, in each of which more comes.
const PARTS: usize = 4;
/// How often one of two is killed while both read the queue.
const KILLS: usize = 6;
/// How long a part may take on a busy machine.
const IN_TIME: Duration = Duration::from_mins(5);

/// The old version alone, both, the new one alone, both, and the old one alone.
fn goes_on_and_back(queue: &Queue<'_>) {
    queue.is_known_to_commands();
    let mut progress = Progress::of(queue.site);
    let old = queue.start(Version::Old);
    queue.sends(Version::Old, 0);
    old.within(IN_TIME, "some to be done", || progress.done() > A_PART / 4);

    let new = queue.start(Version::New);
    queue.sends(Version::New, 1);
    let [old, new] = are_killed(queue, [old, new], &mut progress, 2);
    old.stop();

    queue.sends(Version::Old, 2);
    new.within(IN_TIME, "the new one to do more", || {
        progress.done() > 2 * A_PART + A_PART / 2
    });
    new.crash();
    let new = queue.start(Version::New);

    queue.sends(Version::New, 3);
    let pair = are_killed(queue, [queue.start(Version::Old), new], &mut progress, 3);
    let [old, new] = pair;
    new.stop();
    old.within(IN_TIME, "all to be done", || {
        progress.done() == PARTS * A_PART
    });
    old.within(IN_TIME, "all to be settled", || (queue.left)() == 0);
    old.stop();
    queue.has_no_letters();
    let bodies: Vec<String> = (0..PARTS * A_PART).map(body).collect();
    queue.site.record().assert_none_lost(&bodies);
}

/// Kills one and the other in turn while the queue is worked off, and starts it again.
fn are_killed(
    queue: &Queue<'_>,
    mut pair: [Daemon; 2],
    progress: &mut Progress,
    parts: usize,
) -> [Daemon; 2] {
    for round in 0..KILLS {
        let before = progress.done();
        let more = before + A_PART / (2 * KILLS);
        let enough = more.min(parts * A_PART);
        let (turn, version) = match round % 2 {
            0 => (0, Version::Old),
            _ => (1, Version::New),
        };
        pair[1 - turn].within(IN_TIME, "more to be done", || progress.done() >= enough);
        pair[turn].crash();
        pair[turn] = queue.start(version);
    }
    pair
}

/// While it waits one version goes and the other one comes. All that is there the newer one has made, and
/// the older one takes it over.
fn changes_hands(queue: &Queue<'_>) {
    let waits = r#"{ attempts = 5, initial = "4s", max = "1h", jitter = 0.0 }"#;
    let queue = Queue {
        pool: queue.pool.clone().set("retry", waits),
        ..*queue
    };
    queue.is_known_to_commands();
    queue.start(Version::New).stop();
    let message = "mode:until-attempt:4:500:4000";
    let send = ["send", queue.name, message, "--delay", "1s"];
    queue.command(Version::New, &send).good();
    let turns = [Version::Old, Version::New, Version::Old, Version::New];
    for (attempt, version) in (1..).zip(turns) {
        let daemon = queue.start(version);
        daemon.within(IN_TIME, "the next attempt", || {
            let record = queue.site.record();
            let attempts = record.of(Event::Began, message).into_iter();
            attempts
                .map(|entry| entry.attempt)
                .eq((1..=attempt).map(Some))
        });
        if attempt == 4 {
            daemon.within(IN_TIME, "it to be settled", || (queue.left)() == 0);
        }
        daemon.stop();
    }
    queue.site.record().assert_done_once(&[message]);
}

/// Of each version a letter, which the other one shows as its maker does, and sends back; and what goes
/// back is done by either.
fn letters_go_back(queue: &Queue<'_>) {
    queue.is_known_to_commands();
    for version in BOTH {
        let daemon = queue.start(version);
        let send = [
            "send",
            queue.name,
            "--header",
            "tenant=blue",
            letter_of(version),
        ];
        queue.command(version, &send).good();
        daemon.within(IN_TIME, "it to be dead", || {
            queue.letter(version, letter_of(version)).is_some()
        });
        daemon.within(IN_TIME, "it to be settled", || (queue.left)() == 0);
        daemon.stop();
    }
    let [of_old, of_new] = BOTH.map(|version| queue.letters(version));
    assert_eq!(
        (of_old.len(), of_new.len()),
        (2, 2),
        "{of_old:#?} {of_new:#?}"
    );
    for (old, new) in of_old.iter().zip(&of_new) {
        for (name, value) in old.as_object().unwrap() {
            // The id of a row was a number.
            let is_same = *value == new[name] || new[name] == json!(value.to_string());
            assert!(is_same, "{name} of {old:#} and {new:#}");
        }
    }
    for by in BOTH {
        let of_other = letter_of(by.other());
        let letter = queue.letter(by, of_other).unwrap();
        let id = letter["id"]
            .as_str()
            .map_or_else(|| letter["id"].to_string(), str::to_owned);
        queue.command(by, &["dead", "retry", &id]).good();
        assert_eq!(queue.letter(by.other(), of_other), None);
    }
    queue.site.touch("mended");
    let daemons = BOTH.map(|version| queue.start(version));
    daemons[0].within(IN_TIME, "both to be done", || (queue.left)() == 0);
    for daemon in daemons {
        daemon.stop();
    }
    queue.has_no_letters();
    let both = BOTH.map(letter_of);
    queue.site.record().assert_none_lost(&both);
}

fn letter_of(version: Version) -> &'static str {
    match version {
        Version::Old => "mode:unless:mended:400 old",
        Version::New => "mode:unless:mended:400 new",
    }
}

// -- on a table --

fn a_table_goes_on_to_the_new_version_and_back() {
    let site = table_of_the_old();
    let table = site.table();
    let left = || table.count("work").into();
    goes_on_and_back(&on_table(&site, &left));
    let claims = table.ask("SELECT count(*) FROM owners");
    assert_eq!(claims, "0", "owners that nobody has struck out");
}

fn what_is_to_be_tried_again_on_a_table_changes_hands_with_its_count() {
    let site = Workspace::with_source("lease = \"2s\"");
    let table = site.table();
    let left = || table.count("work").into();
    changes_hands(&on_table(&site, &left));
}

fn dead_letters_of_a_table_go_back_by_either_version() {
    let site = table_of_the_old();
    let table = site.table();
    let left = || table.count("work").into();
    letters_go_back(&on_table(&site, &left));
}

/// It does not know of keys. What is sent meanwhile is refused, and the sender told; nothing keeps the
/// key for good.
fn the_older_version_keeps_a_key_until_its_message_is_gone() {
    let site = table_of_the_old();
    let table = site.table();
    let left = || table.count("work").into();
    let queue = on_table(&site, &left);
    queue.is_known_to_commands();
    let sends = |body| {
        let send = ["send", "work", body, "--unique", "k", "-o", "json"];
        queue.command(Version::New, &send)
    };
    let first = "mode:wait:go a";
    sends(first).sent(1);
    let old = queue.start(Version::Old);
    old.eventually("it to be begun", || {
        !site.record().of(Event::Began, first).is_empty()
    });
    assert_eq!(sends("b").json(), json!({ "sent": 0, "kept": 1 }));
    site.touch("go");
    old.eventually("it to be done", || table.count("work") == 0);
    sends("c").sent(1);
    old.eventually("the next to be done", || table.count("work") == 0);
    old.stop();
    site.record().assert_done_once(&[first, "c"]);
}

// -- on brokers --

fn a_queue_of_rabbitmq_goes_on_to_the_new_version_and_back() {
    on_rabbitmq(goes_on_and_back);
}

/// As docs/deploys.md says.
fn what_is_to_be_tried_again_on_rabbitmq_changes_hands_with_its_count() {
    on_rabbitmq(|queue| {
        changes_hands(&Queue {
            pool: queue.pool.clone(),
            older: |pool| pool.text("dead_letter", DEAD),
            ..*queue
        });
    });
}

fn the_older_version_refuses_the_dead_letter_queue_of_the_newer() {
    on_rabbitmq(|queue| {
        queue.is_known_to_commands();
        queue.start(Version::New).stop();
        let why = queue.command(Version::Old, &["run"]).bad(1);
        assert!(
            why.contains("`work.dead` exists with other arguments than ours"),
            "{why}"
        );
    });
}

fn dead_letters_of_rabbitmq_go_back_by_either_version() {
    on_rabbitmq(letters_go_back);
}

fn a_topic_of_kafka_goes_on_to_the_new_version_and_back() {
    on_kafka(goes_on_and_back);
}

fn what_is_to_be_tried_again_on_kafka_changes_hands_with_its_count() {
    on_kafka(changes_hands);
}

fn dead_letters_of_kafka_go_back_by_either_version() {
    on_kafka(letters_go_back);
}
