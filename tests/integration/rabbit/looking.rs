//! Looking at dead letters: whatever their queue is like, and however it ends, it changes nothing.

use std::sync::Arc;

use lapin::types::AMQPValue;
use serde_json::Value;

use super::client::{id, list};
use crate::harness::rabbit::{DEAD, Letter, RabbitScene, Vhost, kind, rabbit_site, rough, text};
use crate::harness::{DEADLINE, Pool, Workspace, look_for, trials};
use crate::servers::rabbit::binary;

trials![
    many_keep_their_order_whatever_is_dropped,
    letters_outlive_any_number_of_readings_whatever_the_limit,
    a_full_queue_is_read_and_loses_nothing,
    a_queue_that_has_more_than_it_may_is_read_all_the_same,
    a_reading_that_is_killed_loses_and_doubles_nothing,
    an_alarm_is_told_before_anything_is_taken,
    a_letter_that_is_there_twice_is_one,
    what_others_have_in_hand_is_left_to_them,
    two_readings_at_once_see_everything,
    a_list_is_read_page_by_page,
    a_list_may_be_larger_than_memory,
];

const LETTERS: &str = "letters";

/// A virtual host with that queue of dead letters, and a directory for commands.
fn place(vhost: Vhost, arguments: &[(&str, AMQPValue)]) -> (Vhost, Workspace) {
    vhost.client().declare(LETTERS, arguments);
    let site = rabbit_site(&vhost.url(), "");
    let pool = Pool::new(&["--v2=1"]).text("dead_letter", LETTERS);
    site.configure_commands(&[pool]);
    (vhost, site)
}

/// So many letters, as the source writes them, in a queue of this kind.
fn many_letters(vhost: &Vhost, queue: &str, count: usize) {
    let letter = |n: usize| {
        let id = format!("letter-{n:05}");
        Letter::new(queue, format!("body {n}"))
            .header("x-ganger-letter-id", text(&id))
            .header("x-ganger-pool", text("work"))
            .header("x-ganger-queue", text("work"))
            .with(|properties| properties.with_delivery_mode(2))
    };
    let all: Vec<Letter> = (0..count).map(letter).collect();
    vhost.client().publish(&all);
}

fn listed_ids(site: &Workspace) -> Vec<String> {
    let args = ["dead", "list", "--limit", "100000", "-o", "json"];
    let letters = site.ganger(&args).json();
    letters.as_array().unwrap().iter().map(id).collect()
}

fn expected(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("letter-{n:05}")).collect()
}

/// Many batches, on both kinds of queues.
fn many_keep_their_order_whatever_is_dropped() {
    for queue_type in ["quorum", "classic"] {
        let pool = Pool::new(&["--v2=1"]).text("queue_type", queue_type);
        let scene = RabbitScene::of(pool.clone());
        scene.daemon.stop();
        scene.site.configure_commands(&[pool]);
        let (vhost, site) = (scene.vhost, scene.site);
        many_letters(&vhost, DEAD, 2_500);
        let every = |step: usize| -> Vec<String> {
            let numbers = (0..2_500).filter(|n| n % 5 % step == 0);
            numbers.map(|n| format!("letter-{n:05}")).collect()
        };
        assert_eq!(listed_ids(&site), every(1), "{queue_type}");
        let gone: Vec<String> = every(1)
            .into_iter()
            .filter(|id| !every(5).contains(id))
            .collect();
        let ids = gone.iter().map(String::as_str);
        let args: Vec<&str> = ["dead", "drop"].into_iter().chain(ids).collect();
        assert_eq!(site.ganger(&args).good(), "dropped 2000\n");
        for _ in 0..3 {
            assert_eq!(listed_ids(&site), every(5), "{queue_type}");
        }
        let args = ["dead", "retry", "--all"];
        assert_eq!(site.ganger(&args).good(), "retried 500\n");
        assert_eq!(vhost.client().ready("work"), Some(500));
        assert_eq!(vhost.client().ready(DEAD), Some(0));
    }
}

/// A quorum queue drops what came back more often than it allows, and a policy may allow less than
/// the queue's own arguments.
fn letters_outlive_any_number_of_readings_whatever_the_limit() {
    let limit = |limit| ("x-delivery-limit", AMQPValue::LongInt(limit));
    let high = || ("x-delivery-limit", AMQPValue::LongLongInt(1_000_000_000));
    let places = [
        (vec![kind("quorum"), limit(3)], None),
        (vec![kind("quorum"), limit(1)], None),
        (vec![kind("quorum"), high()], Some(2)),
        (vec![kind("classic")], None),
    ];
    for (arguments, policy) in places {
        let (vhost, site) = place(Vhost::shared(), &arguments);
        if let Some(limit) = policy {
            let name = binary(vhost.name());
            vhost.order(&format!(
                "rabbit_policy:set({name}, <<\"limit\">>, <<\".*\">>,
                    [{{<<\"delivery-limit\">>, {limit}}}], 0, <<\"queues\">>, <<\"tests\">>)"
            ));
        }
        many_letters(&vhost, LETTERS, 40);
        for time in 0..6 {
            assert_eq!(listed_ids(&site), expected(40), "{arguments:?} {time}");
        }
        let shown = site.ganger(&["dead", "show", "letter-00039", "-o", "json"]);
        assert_eq!(shown.json()["body"], "body 39");
        let letters = vhost.client().take_all(LETTERS);
        assert_eq!(letters.len(), 40);
        for letter in letters {
            let count = letter.value("x-delivery-count");
            let is_new = matches!(count, None | Some(AMQPValue::LongLongInt(0)));
            assert!(is_new, "{letter:?}");
        }
    }
}

/// A copy fits where the message was: neither is the head dropped for it nor the copy refused.
fn a_full_queue_is_read_and_loses_nothing() {
    for queue_type in ["quorum", "classic"] {
        for overflow in ["drop-head", "reject-publish"] {
            let arguments = [
                kind(queue_type),
                ("x-max-length", AMQPValue::LongInt(200)),
                ("x-overflow", text(overflow)),
            ];
            let (vhost, site) = place(Vhost::shared(), &arguments);
            many_letters(&vhost, LETTERS, 200);
            for _ in 0..3 {
                assert_eq!(listed_ids(&site), expected(200), "{queue_type} {overflow}");
            }
            let ran = site.ganger(&["dead", "drop", "letter-00000", "letter-00199"]);
            assert_eq!(ran.good(), "dropped 2\n");
            assert_eq!(vhost.client().ready(LETTERS), Some(198));
        }
    }
}

/// A policy came later, and what is there is more than it allows. The broker tells who publishes a moment
/// late that there is no room: mostly all copies are there by then, and what is not comes back by itself.
fn a_queue_that_has_more_than_it_may_is_read_all_the_same() {
    let arguments = [kind("quorum"), ("x-overflow", text("reject-publish"))];
    let (vhost, site) = place(Vhost::shared(), &arguments);
    many_letters(&vhost, LETTERS, 100);
    let name = binary(vhost.name());
    vhost.order(&format!(
        "rabbit_policy:set({name}, <<\"small\">>, <<\".*\">>,
            [{{<<\"max-length\">>, 30}}], 0, <<\"queues\">>, <<\"tests\">>)"
    ));
    let client = vhost.client();
    let count = 100 + client.fill(LETTERS);
    for _ in 0..2 {
        let ran = site.ganger(&["dead", "list", "--limit", "100000", "-o", "json"]);
        let letters: Vec<Value> = serde_json::from_str(&ran.out).unwrap();
        assert_eq!(letters.len() as u64, count);
        let mut ids: Vec<String> = letters.iter().map(id).collect();
        ids.retain(|id| id.starts_with("letter-"));
        ids.sort_unstable();
        assert_eq!(ids, expected(100));
        if ran.code != Some(0) {
            let why = ran.bad(1);
            assert!(why.contains("has no room for"), "{why}");
        }
        assert_eq!(client.ready(LETTERS).map(u64::from), Some(count));
    }
    let ran = site.ganger(&["dead", "drop", "--all"]);
    assert_eq!(ran.good(), format!("dropped {count}\n"));
}

/// The broker reads no more copies from some moment on, so it is killed with a batch in hand. Then
/// it reads them all the same.
fn a_reading_that_is_killed_loses_and_doubles_nothing() {
    const COUNT: usize = 20_000;
    let node = rough();
    let limit = ("x-delivery-limit", AMQPValue::LongInt(1));
    let (vhost, site) = place(node.vhost(), &[kind("quorum"), limit]);
    many_letters(&vhost, LETTERS, COUNT);
    let client = vhost.client();
    for _ in 0..3 {
        let running = site.begin(&["dead", "list"]);
        let in_hand = || (vhost.in_hand(&client, LETTERS) > 0).then_some(());
        assert!(look_for(DEADLINE, in_hand).is_some(), "it never began");
        node.set_memory_alarm(true);
        assert!(look_for(DEADLINE, in_hand).is_some(), "nothing in hand");
        drop(running);
        node.set_memory_alarm(false);
        let is_back = || (vhost.in_hand(&client, LETTERS) == 0).then_some(());
        assert!(
            look_for(DEADLINE, is_back).is_some(),
            "they do not come back"
        );
        let mut ids = listed_ids(&site);
        // It was turned round.
        ids.sort_unstable();
        assert_eq!(ids, expected(COUNT));
    }
    assert_eq!(client.ready(LETTERS).map(|left| left as usize), Some(COUNT));
}

/// What is taken then could only come back, and be counted: this queue bears that once.
fn an_alarm_is_told_before_anything_is_taken() {
    let node = rough();
    let limit = ("x-delivery-limit", AMQPValue::LongInt(1));
    let (vhost, site) = place(node.vhost(), &[kind("quorum"), limit]);
    many_letters(&vhost, LETTERS, 40);
    node.set_memory_alarm(true);
    for command in ["list", "show letter-00001", "drop --all"] {
        let args: Vec<&str> = ["dead"].into_iter().chain(command.split(' ')).collect();
        let why = site.ganger(&args).bad(1);
        assert!(
            why.contains("because they could not be put back"),
            "{command}: {why}"
        );
        assert!(why.contains("out of memory or disk"), "{command}: {why}");
    }
    node.set_memory_alarm(false);
    assert_eq!(listed_ids(&site), expected(40));
}

/// A command was killed between a copy and the acknowledgement of what it is a copy of.
fn a_letter_that_is_there_twice_is_one() {
    let letters = |count| {
        let (vhost, site) = place(Vhost::shared(), &[kind("quorum")]);
        many_letters(&vhost, LETTERS, count);
        // The copies of the first three.
        many_letters(&vhost, LETTERS, 3);
        (vhost, site)
    };
    // Within one batch, and in different ones.
    for count in [5, 300] {
        let (vhost, site) = letters(count);
        assert_eq!(listed_ids(&site), expected(count));
        assert_eq!(vhost.client().ready(LETTERS).unwrap() as usize, count);
        let (vhost, site) = letters(count);
        let ran = site.ganger(&["dead", "retry", "letter-00001"]);
        let why = ran.bad(1);
        assert!(why.contains("there is no queue `work`"), "{why}");
        vhost.client().declare("work", &[kind("quorum")]);
        let ran = site.ganger(&["dead", "retry", "letter-00001"]);
        assert_eq!(ran.good(), "retried 1\n");
        assert_eq!(vhost.client().ready("work"), Some(1));
        assert_eq!(listed_ids(&site).len(), count - 1);
    }
}

fn what_others_have_in_hand_is_left_to_them() {
    let (vhost, site) = place(Vhost::shared(), &[kind("quorum")]);
    many_letters(&vhost, LETTERS, 40);
    let client = vhost.client();
    let held = client.hold(LETTERS);
    assert_eq!(listed_ids(&site), expected(40)[1..]);
    drop(held);
    let is_back = || (client.ready(LETTERS) == Some(40)).then_some(());
    assert!(
        look_for(DEADLINE, is_back).is_some(),
        "it does not come back"
    );
    let mut ids = listed_ids(&site);
    ids.sort_unstable();
    assert_eq!(ids, expected(40));
}

/// Each page is a whole pass: the order stays, and nothing is lost or doubled.
fn a_list_is_read_page_by_page() {
    let (vhost, site) = place(Vhost::shared(), &[kind("quorum")]);
    many_letters(&vhost, LETTERS, 400);
    let mut seen: Vec<String> = Vec::new();
    loop {
        let mut args = vec!["dead", "list", "--limit", "150", "-o", "json"];
        args.extend(seen.last().into_iter().flat_map(|id| ["--after", id]));
        let ran = site.ganger(&args);
        let told = ran.err.clone();
        seen.extend(ran.json().as_array().unwrap().iter().map(id));
        match seen.last() {
            Some(last) if told.contains(&format!("--after {last}")) => {}
            _ => break,
        }
    }
    assert_eq!(seen, expected(400));
    let gone = ["dead", "list", "--after", "letter-00400"];
    let why = site.ganger(&gone).bad(1);
    assert!(why.contains("no dead letter letter-00400"), "{why}");
    // A reader that has seen enough ends quietly, and the queue is as it was.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    site.ganger_into(writer, &["dead", "list", "-o", "json"]);
    assert_eq!(listed_ids(&site), expected(400));
    assert_eq!(vhost.client().ready(LETTERS), Some(400));
}

/// Letters of 100 KiB, a batch of which is all that is in memory.
fn a_list_may_be_larger_than_memory() {
    const COUNT: usize = 2_000;
    let (vhost, site) = place(Vhost::shared(), &[kind("classic")]);
    let client = vhost.client();
    for _ in 0..COUNT / 100 {
        let letter = |_| Letter::new(LETTERS, "x".repeat(100 << 10));
        let some: Vec<Letter> = (0..100).map(letter).collect();
        client.publish(&some);
    }
    let all = ["dead", "list", "--limit", "100000", "-o", "json"];
    let printed = site.ganger_within(160 << 10, &all);
    let text = std::fs::read_to_string(&printed).unwrap();
    let letters: Vec<serde::de::IgnoredAny> = serde_json::from_str(&text).unwrap();
    assert_eq!(letters.len(), COUNT);
    assert_eq!(client.ready(LETTERS).map(|left| left as usize), Some(COUNT));
    client.delete(LETTERS);
}

/// One waits for the other.
fn two_readings_at_once_see_everything() {
    let (vhost, site) = place(Vhost::shared(), &[kind("quorum")]);
    many_letters(&vhost, LETTERS, 600);
    let site = Arc::new(site);
    let readers = [(); 2].map(|()| {
        let site = Arc::clone(&site);
        std::thread::spawn(move || listed_ids(&site))
    });
    for reader in readers {
        assert_eq!(reader.join().unwrap(), expected(600));
    }
    assert_eq!(
        list(&site).iter().map(id).collect::<Vec<_>>(),
        expected(600)
    );
    assert_eq!(vhost.client().ready(LETTERS), Some(600));
}
