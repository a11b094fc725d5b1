//! Publishing that is held up: by an alarm of the broker, by callers who do not take their replies,
//! by the loss of the connection that publishes. What needs no publishing goes on meanwhile.

use lapin::types::AMQPValue;
use serde_json::Value;
use std::time::Duration;

use crate::harness::rabbit::{DEAD, Letter, RabbitScene, Vhost, kind, rough, text};
use crate::harness::{Event, Pool, Progress, field, trials};
use crate::servers::rabbit::binary;

trials![
    what_needs_no_reply_is_done_and_acknowledged_during_an_alarm,
    intake_pauses_when_a_thousand_wait_and_goes_on_after_the_alarm,
    callers_who_do_not_take_their_replies_stop_nobody,
    messages_that_have_become_too_large_to_bury_hold_nobody_up,
    a_reply_that_is_too_large_for_the_broker_is_kept_in_part,
    a_lost_publishing_connection_makes_nothing_void,
    publishing_has_a_connection_of_its_own_when_there_is_something_to_publish;
    long: a_reply_queue_that_is_full_for_five_minutes_costs_dead_letters,
];

/// What many messages may take on a busy machine.
const LONG: Duration = Duration::from_mins(5);
const LOST: &str = "not connected to the broker";
const UNPUBLISHED: &str = "no connection for publishing";
const PUBLISHED: &str = "resolved: no connection for publishing";
/// What RabbitMQ takes unless it is told otherwise: 3 takes more.
const MESSAGE_BYTES_MAX: usize = 16 << 20;
const TWICE: &str = "messages may run twice";
const PAUSES: &str = "publish backlog is full; intake paused";

fn bodies(what: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{what} {n}")).collect()
}

fn pool() -> Pool {
    Pool::new(&["--mode=wait:go"])
        .set("workers", "2")
        .set("prefetch", "4")
}

/// Every tenth has a reply, and many more of those than what is fetched for the workers alone.
fn what_needs_no_reply_is_done_and_acknowledged_during_an_alarm() {
    let node = rough();
    let vhost = node.vhost();
    let url = vhost.url();
    let scene = RabbitScene::by(&url, vhost, "heartbeat = \"2s\"", &[pool()]);
    scene.client.declare("answers", &[]);
    let body = |n: usize| match n % 10 {
        0 => format!("mode:wait:go,reply:answers with reply {n}"),
        _ => format!("without {n}"),
    };
    let all: Vec<String> = (0..600).map(body).collect();
    let replies: Vec<String> = all
        .iter()
        .filter(|one| one.contains("reply"))
        .cloned()
        .collect();
    scene.send(&all);
    scene.begun(&all[..1]);
    node.set_memory_alarm(true);
    scene.site.touch("go");
    scene.done(all.len());
    let waiting = u64::try_from(replies.len()).unwrap();
    scene
        .daemon
        .eventually("all others to be acknowledged", || scene.left() == waiting);
    assert_eq!(scene.daemon.times_logged(PAUSES), 0);
    scene.has_problem("low on memory");
    node.set_memory_alarm(false);
    scene.all_done();
    scene.has_no_problem();
    scene.record().assert_done_once(&all);
    scene.assert_answered("answers", &replies);
    assert_eq!(scene.daemon.times_logged(LOST), 0);
    scene.finish();
}

fn intake_pauses_when_a_thousand_wait_and_goes_on_after_the_alarm() {
    let node = rough();
    let vhost = node.vhost();
    let url = vhost.url();
    // As many are out as are fetched, however fast the workers look.
    let pool = pool().set("prefetch", "10").set("pipeline", "1");
    let scene = RabbitScene::by(&url, vhost, "heartbeat = \"2s\"", &[pool]);
    scene.client.declare("answers", &[]);
    let all = bodies("mode:wait:go,reply:answers message", 1_500);
    scene.send(&all);
    scene.begun(&all[..1]);
    node.set_memory_alarm(true);
    scene.site.touch("go");
    let mut progress = Progress::of(&scene.site);
    scene
        .daemon
        .within(LONG, "the pause", || scene.daemon.times_logged(PAUSES) == 1);
    // What the pool had in hand at the bound is done, too.
    let done = progress.done();
    assert!((1_000..=1_020).contains(&done), "{done}");
    scene.has_problem("low on memory");
    assert!(progress.done() <= 1_020);
    node.set_memory_alarm(false);
    scene
        .daemon
        .within(LONG, "all to be settled", || scene.left() == 0);
    scene.all_done();
    scene.record().assert_done_once(&all);
    scene.assert_answered("answers", &all);
    scene.finish();
}

/// A queue that takes one message.
fn narrow(scene: &RabbitScene, queue: &str) {
    let most = ("x-max-length", AMQPValue::LongInt(1));
    let refuse = ("x-overflow", text("reject-publish"));
    scene.client.declare(queue, &[most, refuse]);
    scene.client.fill(queue);
}

/// Beyond the bound the oldest replies become dead letters; the others wait until they are taken.
fn callers_who_do_not_take_their_replies_stop_nobody() {
    let scene = RabbitScene::of(Pool::new(&[]).set("workers", "2").set("prefetch", "10"));
    let name = binary(scene.vhost.name());
    scene.client.declare("answers", &[]);
    scene.vhost.order(&format!(
        "rabbit_policy:set({name}, <<\"narrow\">>, <<\"^answers$\">>,
            [{{<<\"max-length\">>, 1}}, {{<<\"overflow\">>, <<\"reject-publish\">>}}],
            0, <<\"queues\">>, <<\"tests\">>)"
    ));
    scene.client.fill("answers");
    let replied = bodies("mode:reply:answers message", 1_300);
    let others = bodies("other", 300);
    scene.send(&replied);
    scene.send(&others);
    let all = replied.len() + others.len();
    let mut progress = Progress::of(&scene.site);
    scene
        .daemon
        .within(LONG, "all to be done", || progress.done() == all);
    scene.daemon.within(LONG, "replies among the dead", || {
        scene.client.ready(DEAD).unwrap_or_default() >= 300
    });
    let widen = format!("rabbit_policy:delete({name}, <<\"narrow\">>, <<\"tests\">>)");
    scene.vhost.order(&widen);
    scene
        .daemon
        .within(LONG, "all to be settled", || scene.left() == 0);
    let dead = scene.client.take_all(DEAD);
    let is_kept = |letter: &Letter| {
        letter.says("x-ganger-reason", "unroutable_reply")
            && letter
                .word("x-ganger-error")
                .contains("publish backlog is full")
    };
    assert!(dead.iter().all(is_kept), "{:#?}", dead[0]);
    let buried: Vec<String> = dead.iter().map(|letter| letter.text().to_owned()).collect();
    let (kept, waited): (Vec<String>, Vec<String>) = replied
        .iter()
        .cloned()
        .partition(|body| buried.contains(body));
    assert!((300..=400).contains(&kept.len()), "{}", kept.len());
    scene.assert_answered("answers", &waited);
    let record = scene.record();
    record.assert_done_once(&replied);
    record.assert_done_once(&others);
    scene.has_no_problem();
    scene.finish();
}

/// The broker's `max_message_size` was lowered: no copy of what it took before is taken. More of
/// those than the workers are sent ahead. What the library is handed just when the broker ends a
/// channel still goes out over it, which ends the connection for publishing: that is no failure.
fn messages_that_have_become_too_large_to_bury_hold_nobody_up() {
    let node = rough();
    let vhost = node.vhost();
    let client = vhost.client();
    client.declare("work", &[kind("quorum")]);
    let large = "x".repeat(100_000);
    let large: Vec<String> = bodies(&format!("mode:answer:400 {large}"), 10);
    let letters: Vec<Letter> = large.iter().map(|body| Letter::new("work", body)).collect();
    client.publish(&letters);
    node.set_max_message_size(50_000);
    let url = vhost.url();
    let pool = [Pool::new(&[]).set("prefetch", "2")];
    let mut scene = RabbitScene::by(&url, vhost, "", &pool);
    scene.has_problem("permanently rejects the publications");
    let small = bodies("small", 50);
    scene.send(&small);
    scene.done(small.len());
    scene.record().assert_done_once(&small);
    assert_eq!(scene.client.ready(DEAD), Some(0));
    assert_eq!(scene.daemon.times_logged(LOST), 0);
    node.set_max_message_size(MESSAGE_BYTES_MAX);
    scene.daemon.stop();
    scene.daemon = scene.site.start(&pool);
    scene.settled();
    let mut buried: Vec<String> = Vec::new();
    for letter in scene.client.take_all(DEAD) {
        buried.push(letter.text().to_owned());
    }
    buried.sort_unstable();
    assert!(buried == large, "{} of {}", buried.len(), large.len());
    scene.finish();
}

/// It can't be in any queue there. The letter has its beginning, and says how much is missing; who
/// looks at it sees both.
fn a_reply_that_is_too_large_for_the_broker_is_kept_in_part() {
    let node = rough();
    node.set_max_message_size(2_000_000);
    let vhost = node.vhost();
    let url = vhost.url();
    let pool = [Pool::new(&[])];
    let scene = RabbitScene::by(&url, vhost, "", &pool);
    scene.site.configure_commands(&pool);
    scene.client.declare("answers", &[]);
    let letter = Letter::new("work", "mode:reply-bytes:3000000").reply_to("answers");
    scene.client.publish(&[letter]);
    scene.send(&["other"]);
    scene.settled();
    scene
        .record()
        .assert_done_once(&["mode:reply-bytes:3000000", "other"]);
    let letters = scene.site.ganger(&["dead", "list", "-o", "json"]).json();
    let letters = letters.as_array().unwrap();
    assert_eq!(letters.len(), 1, "{letters:#?}");
    let error = field(&letters[0], "error");
    assert!(
        error.contains("the reply to `answers` can't be delivered"),
        "{error}"
    );
    assert_eq!(field(&letters[0]["reply"], "queue"), "answers");
    let mut dead = scene.client.take_all(DEAD);
    let kept = dead.remove(0);
    assert!(kept.body == vec![b'y'; 1 << 20], "{}", kept.body.len());
    let headers = kept.word("x-ganger-reply-headers");
    let cut = format!(r#"["x-ganger-reply-cut","{}"]"#, 3_000_000 - (1 << 20));
    assert!(headers.contains(&cut), "{headers}");
    assert_eq!(dead.len(), 1, "its letter, and nothing else");
    assert_eq!(scene.client.ready("answers"), Some(0));
    assert_eq!(scene.daemon.times_logged(LOST), 0);
    assert_eq!(scene.daemon.times_logged(TWICE), 0);
    node.set_max_message_size(MESSAGE_BYTES_MAX);
    scene.finish();
}

// -- its connection --

/// Closes those connections that publish, and no others. Returns how many they were.
fn close_publishing(vhost: &Vhost) -> usize {
    let name = binary(vhost.name());
    let closed = vhost.eval(&format!(
        "length([catch rabbit_networking:close_connection(Pid, \"by order\") ||
            [{{pid, Pid}}, {{client_properties, Told}}, {{vhost, {name}}}] <-
                rabbit_networking:connection_info_all([pid, client_properties, vhost]),
            {{longstr, Name}} <- [rabbit_misc:table_lookup(Told, <<\"connection_name\">>)],
            binary:match(Name, <<\"publishing\">>) =/= nomatch])"
    ));
    closed.parse().unwrap()
}

/// Each reply arrives at least once, and no message runs twice.
fn a_lost_publishing_connection_makes_nothing_void() {
    let pool = Pool::new(&["--mode=sleep:1,reply:answers"])
        .set("workers", "2")
        .set("prefetch", "10");
    let scene = RabbitScene::of(pool);
    scene.client.declare("answers", &[kind("quorum")]);
    let all = bodies("message", 600);
    scene.send(&all);
    for times in 1..=3 {
        scene.done(150 * times);
        assert_eq!(close_publishing(&scene.vhost), 1);
        scene.daemon.eventually("the loss to be noticed", || {
            scene.daemon.times_logged(UNPUBLISHED) == times
        });
        scene.daemon.eventually("another connection", || {
            scene.daemon.times_logged(PUBLISHED) == times
        });
    }
    scene.all_done();
    scene.record().assert_done_once(&all);
    scene.assert_answered("answers", &all);
    // With nothing to publish it comes back, too.
    assert_eq!(close_publishing(&scene.vhost), 1);
    scene.daemon.eventually("another connection", || {
        scene.daemon.times_logged(PUBLISHED) == 4
    });
    assert_eq!(scene.daemon.times_logged(LOST), 0);
    scene.has_no_problem();
    scene.finish();
}

fn publishing_has_a_connection_of_its_own_when_there_is_something_to_publish() {
    let scene = RabbitScene::of(Pool::new(&[]));
    scene.client.declare("answers", &[]);
    scene.send(&["a"]);
    scene.all_done();
    let before = scene.vhost.connections();
    assert_eq!(before.len(), 1, "{before:?}");
    scene.send(&["mode:reply:answers b"]);
    scene.all_done();
    let after = scene.vhost.connections();
    assert_eq!(after.len(), 2, "{after:?}");
    let publishes = |name: &&String| name.contains("work publishing");
    assert_eq!(after.iter().filter(publishes).count(), 1, "{after:?}");
    scene.finish();
    // What is left of it at the end is nothing: the daemon has said good-bye over both.
}

// -- patience --

/// Meanwhile replies wait, and others are done; afterwards each costs its message a dead letter at
/// once, and an emit its task, until the queue takes something again.
fn a_reply_queue_that_is_full_for_five_minutes_costs_dead_letters() {
    let scene = RabbitScene::of(Pool::new(&["--v2=1"]).attempts(1).set("workers", "2"));
    narrow(&scene, "answers");
    scene.send(&["mode:reply:answers early"]);
    scene.send(&["other"]);
    scene.daemon.eventually("both to be done", || {
        scene.record().all(Event::Done).len() == 2
    });
    assert_eq!(scene.client.ready(DEAD), Some(0));
    let patient = Duration::from_mins(8);
    scene.daemon.within(patient, "the end of patience", || {
        scene.client.ready(DEAD) == Some(1)
    });
    let given_up = |record: &Value| field(record, "queue") == "answers";
    assert!(!scene.daemon.records(given_up).is_empty());
    scene.send(&["mode:reply:answers late"]);
    scene
        .daemon
        .eventually("a letter at once", || scene.client.ready(DEAD) == Some(2));
    scene.send(&["mode:emit:answers:x emits"]);
    scene
        .daemon
        .eventually("a failed task", || scene.client.ready(DEAD) == Some(3));
    let dead = scene.client.take_all(DEAD);
    let errors: Vec<String> = dead.iter().map(|one| one.word("x-ganger-error")).collect();
    assert!(
        errors
            .iter()
            .all(|error| error.contains("accepted nothing for 300s")),
        "{errors:?}"
    );
    scene.client.take_all("answers");
    scene.send(&["mode:reply:answers again"]);
    scene.all_done();
    let answer = scene.client.take("answers").unwrap();
    assert_eq!(answer.text(), "re: mode:reply:answers again");
    scene.has_no_problem();
    scene.finish();
}
