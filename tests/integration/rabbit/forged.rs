//! What a producer writes that only daemons should: the marks of a copy, and of a dead letter. And what
//! daemons write, which they know again.

use crate::harness::rabbit::{DEAD, Letter, RabbitScene, Vhost, kind, rabbit_site, text};
use crate::harness::{Daemon, Event, Pool, field, trials};

trials![
    the_marks_of_a_copy_that_a_producer_writes_say_nothing,
    copies_are_known_by_what_has_signed_them,
    a_dead_letter_of_another_pool_is_like_any_message,
    a_forged_dead_letter_goes_only_where_its_pool_reads,
];

const IGNORED: &str = "claims to be a copy made by ganger but is not signed by this source";

/// All that a copy says, as a producer with the daemon's own account would write it.
fn forged(body: &str) -> Letter {
    let marks = [
        ("queue", "work"),
        ("attempts", "2"),
        ("crashes", "2"),
        ("lapses", "9"),
        ("user-id", "admin"),
        ("exchange", "payments"),
        ("routing-key", "pay.everyone"),
        ("signature", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"),
    ];
    marks
        .into_iter()
        .fold(Letter::new("work", body), |letter, (name, value)| {
            letter.header(&format!("x-ganger-{name}"), text(value))
        })
}

fn times_ignored(daemon: &Daemon) -> usize {
    let is_told = |record: &serde_json::Value| field(record, "message").contains(IGNORED);
    daemon.records(is_told).len()
}

fn attempts(scene: &RabbitScene) -> Vec<Option<u32>> {
    let record = scene.record();
    let began = record.all(Event::Began);
    began.iter().map(|entry| entry.attempt).collect()
}

fn the_marks_of_a_copy_that_a_producer_writes_say_nothing() {
    let pool = Pool::new(&["--v2=1"]).attempts(3);
    let scene = RabbitScene::of(pool);
    let notes = ["user_id", "exchange", "routing_key"].map(|name| format!("note:property:{name},"));
    let body = format!("mode:{}answer:500", notes.concat());
    scene.client.publish(&[forged(&body)]);
    let dead = scene.one_dead();
    assert_eq!(attempts(&scene), [Some(1), Some(2), Some(3)]);
    assert_eq!(dead.word("x-ganger-crashes"), "0");
    let record = scene.record();
    let expected = [
        "property:user_id=(none)",
        "property:exchange=",
        "property:routing_key=work",
    ];
    assert_eq!(record.texts(Event::Noted), [expected; 3].concat());
    assert_eq!(times_ignored(&scene.daemon), 1);
    scene.finish();
}

/// Each daemon in turn is killed when its attempt has failed, and the next one takes the message up. A new
/// secret knows no copies of before, which then are like any message; the old password as the secret does.
fn copies_are_known_by_what_has_signed_them() {
    let waits = r#"{ attempts = 9, initial = "4s", factor = 1.0, jitter = 0.0 }"#;
    let pool = [Pool::new(&["--v2=1"]).set("retry", waits)];
    let vhost = Vhost::shared();
    let client = vhost.client();
    for (secret, expected) in [
        ("", 1),
        ("", 2),
        ("guest", 3),
        ("another", 1),
        ("another", 2),
    ] {
        let settings = match secret {
            "" => String::new(),
            secret => format!("signing_secret = \"{secret}\""),
        };
        let site = rabbit_site(&vhost.url(), &settings);
        let daemon = site.start(&pool);
        if (secret, expected) == ("", 1) {
            client.publish(&[Letter::new("work", "mode:answer:500")]);
        }
        daemon.eventually("an attempt that has failed", || {
            !site.record().all(Event::Began).is_empty()
                && client.ready("work.retry.4s") == Some(1)
                && vhost.in_hand(&client, "work") == 0
        });
        daemon.crash();
        let record = site.record();
        let attempt = record.all(Event::Began)[0].attempt;
        assert_eq!(attempt, Some(expected), "{secret}");
        assert_eq!(
            times_ignored(&daemon),
            usize::from(secret == "another" && expected == 1)
        );
    }
}

/// It is a copy, but of a message of another queue, whose attempts are nothing to this one.
fn a_dead_letter_of_another_pool_is_like_any_message() {
    let first = Pool::new(&["--v2=1", "--mode=answer:500"]).attempts(2);
    let first = first.text("dead_letter", "second");
    let second = Pool::new(&["--v2=1", "--mode=until-attempt:2:500"]).attempts(2);
    let second = second.text("name", "second").text("queue", "second");
    let vhost = Vhost::shared();
    // Each pool would declare it in its own way.
    vhost.client().declare("second", &[kind("quorum")]);
    let scene = RabbitScene::at(vhost, "", &[first, second]);
    scene.send(&["it"]);
    scene.done(1);
    scene.settled();
    assert_eq!(attempts(&scene), [Some(1), Some(2), Some(1), Some(2)]);
    assert_eq!(scene.client.ready("second.dead"), Some(0));
    scene.finish();
}

fn a_forged_dead_letter_goes_only_where_its_pool_reads() {
    let pool = Pool::new(&[]);
    let scene = RabbitScene::of(pool.clone());
    scene.client.declare("payments", &[]);
    let letter = |queue: &str| {
        let letter = Letter::new(DEAD, format!("from {queue}"));
        let letter = letter.header("x-ganger-letter-id", text(&format!("id-{queue}")));
        letter.header("x-ganger-queue", text(queue))
    };
    scene.client.publish(&[letter("payments"), letter("work")]);
    scene.daemon.stop();
    scene.site.configure_commands(&[pool]);
    let why = scene.site.ganger(&["dead", "retry", "--all"]).bad(1);
    assert!(why.contains("retried 1 before that"), "{why}");
    assert!(
        why.contains("`payments`, which no pool with this dead-letter queue reads"),
        "{why}"
    );
    assert!(why.contains("`--to`"), "{why}");
    assert_eq!(scene.client.ready("payments"), Some(0));
    assert_eq!(scene.client.take_all("work")[0].text(), "from work");
    let to = ["dead", "retry", "id-payments", "--to", "payments"];
    assert_eq!(scene.site.ganger(&to).good(), "retried 1\n");
    assert_eq!(scene.client.take_all("payments")[0].text(), "from payments");
    assert_eq!(scene.client.ready(DEAD), Some(0));
}
