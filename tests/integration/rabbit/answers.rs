//! What a worker's answer makes of its message: acknowledged, answered, sent back, delayed, buried.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use lapin::types::AMQPValue;

use crate::answers::{assert_at_least, gaps};
use crate::harness::rabbit::{DEAD, Letter, RabbitScene, Vhost, kind, text};
use crate::harness::{Event, Pool, trials};

trials![
    many_messages_each_once,
    a_failure_is_retried_until_it_succeeds,
    the_last_failed_attempt_is_the_end,
    a_retrys_delay_is_obeyed,
    a_retrys_delay_is_clamped,
    short_delays_do_not_wait_for_long_ones,
    requeue_is_uncharged_and_does_not_spin,
    reject_is_at_once,
    a_message_that_crashes_its_worker_is_given_up,
    many_last_words_fit_beside_the_message,
    a_reply_goes_to_the_reply_queue,
    a_reply_to_a_queue_that_is_not_there_is_kept_with_its_message,
    a_reply_to_a_queue_that_is_not_there_may_be_dropped,
    a_reply_without_a_place_is_kept_with_its_message,
    a_long_task_in_parts_answers_the_first_caller,
    emits_are_published_with_ids_of_their_own,
    an_emit_to_a_queue_that_is_not_there_fails_the_task,
    a_full_reply_queue_is_waited_for,
    a_full_dead_letter_queue_loses_nothing,
    a_broker_that_buries_by_itself,
];

const KINDS: [&str; 2] = ["quorum", "classic"];

fn attempts(scene: &RabbitScene) -> Vec<Option<u32>> {
    let record = scene.record();
    let began = record.all(Event::Began);
    began.iter().map(|entry| entry.attempt).collect()
}

/// Waits for the one message that is given up, and returns it with the reason and the error that
/// it tells.
fn given_up(scene: &RabbitScene) -> (Letter, String, String) {
    let letter = scene.one_dead();
    let [reason, error] = ["x-ganger-reason", "x-ganger-error"].map(|name| letter.word(name));
    (letter, reason, error)
}

/// A small reply that could not be delivered.
fn kept_reply(letter: &Letter) -> String {
    let body = BASE64.decode(letter.word("x-ganger-reply-body")).unwrap();
    String::from_utf8(body).unwrap()
}

/// Deep pipes, several workers, both versions, both kinds of queue: each message is done once and
/// nothing is left.
fn many_messages_each_once() {
    for (kind, args) in KINDS.into_iter().zip([&[][..], &["--v2=4"]]) {
        let pool = Pool::new(args).set("workers", "3").text("queue_type", kind);
        let scene = RabbitScene::of(pool);
        let bodies: Vec<String> = (0..3000).map(|n| format!("message {n}")).collect();
        scene.send(&bodies);
        scene.all_done();
        let record = scene.record();
        record.assert_done_once(&bodies);
        assert_eq!(record.all(Event::Done).len(), bodies.len());
        assert_eq!(scene.daemon.times_logged("worker lost"), 0);
        scene.finish();
    }
}

fn a_failure_is_retried_until_it_succeeds() {
    let retry = r#"{ attempts = 5, initial = "100ms", factor = 2.0, max = "1s", jitter = 0.0 }"#;
    for kind in KINDS {
        let pool = Pool::new(&["--v2=1"]).set("retry", retry);
        let scene = RabbitScene::of(pool.text("queue_type", kind));
        let body = "mode:until-attempt:4:500";
        scene.send(&[body]);
        scene.all_done();
        let record = scene.record();
        assert_eq!(attempts(&scene), [Some(1), Some(2), Some(3), Some(4)]);
        assert_at_least(&gaps(&record.of(Event::Began, body)), &[100, 200, 400]);
        record.assert_done_once(&[body]);
        scene.finish();
    }
}

fn the_last_failed_attempt_is_the_end() {
    let scene = RabbitScene::of(Pool::new(&[]).attempts(3));
    let body = "mode:answer:500";
    scene
        .client
        .publish(&[Letter::new("work", body).correlation_id("c-1")]);
    let (letter, reason, error) = given_up(&scene);
    assert_eq!((letter.text(), letter.id()), (body, "c-1"));
    assert_eq!(reason, "failed");
    assert!(error.contains("the word on mode:answer:500"), "{error}");
    assert_eq!(scene.record().all(Event::Began).len(), 3);
    scene.finish();
}

fn a_retrys_delay_is_obeyed() {
    let scene = RabbitScene::of(Pool::new(&["--v2=1"]));
    scene.send(&["mode:answer:503:400"]);
    let (_, reason, _) = given_up(&scene);
    assert_eq!(reason, "failed");
    assert_at_least(&gaps(&scene.record().all(Event::Began)), &[400]);
    scene.finish();
}

/// A worker asks for a minute; the pool's longest is a fifth of a second.
fn a_retrys_delay_is_clamped() {
    let retry = r#"{ attempts = 2, initial = "10ms", max = "200ms", jitter = 0.0 }"#;
    let scene = RabbitScene::of(Pool::new(&["--v2=1"]).set("retry", retry));
    scene.send(&["mode:answer:429:60000"]);
    given_up(&scene);
    let gaps = gaps(&scene.record().all(Event::Began));
    assert_at_least(&gaps, &[200]);
    assert!(gaps[0] < 30_000, "{gaps:?}");
    scene.finish();
}

/// The broker releases from the head of a queue only, so that delays must not share one.
fn short_delays_do_not_wait_for_long_ones() {
    let retry = r#"{ attempts = 2, initial = "10ms", max = "1m", jitter = 0.0 }"#;
    let scene = RabbitScene::of(Pool::new(&["--v2=1"]).set("retry", retry));
    let long = ["mode:answer:503:60000 long"];
    scene.send(&long);
    scene.begun(&long);
    scene.send(&["mode:until-attempt:2:500 short"]);
    scene.done(1);
    scene
        .daemon
        .eventually("only the other to wait", || scene.left() == 1);
    assert_eq!(scene.record().all(Event::Began).len(), 3);
    scene.finish();
}

fn requeue_is_uncharged_and_does_not_spin() {
    let scene = RabbitScene::of(Pool::new(&["--v2=1"]).attempts(1));
    let body = "mode:unless:go:300";
    scene.send(&[body]);
    scene.daemon.eventually("four tries", || {
        scene.record().of(Event::Began, body).len() == 4
    });
    scene.site.touch("go");
    scene.all_done();
    let record = scene.record();
    // The fourth may have found the file already.
    assert_at_least(&gaps(&record.of(Event::Began, body)), &[100, 200, 400]);
    let first = |attempt: &Option<u32>| *attempt == Some(1);
    assert!(attempts(&scene).iter().all(first), "{record:?}");
    scene.finish();
}

fn reject_is_at_once() {
    let scene = RabbitScene::of(Pool::new(&[]).attempts(5));
    scene.send(&["mode:answer:400"]);
    let (_, reason, error) = given_up(&scene);
    assert_eq!(reason, "rejected");
    assert!(error.contains("the word on mode:answer:400"), "{error}");
    assert_eq!(scene.record().all(Event::Began).len(), 1);
    scene.finish();
}

fn a_message_that_crashes_its_worker_is_given_up() {
    let pool = Pool::new(&["--v2=1"]).attempts(9).set("crashes_max", "2");
    let scene = RabbitScene::of(pool);
    scene.send(&["mode:complain:last-words,die:exit:7", "harmless"]);
    let (letter, reason, _) = given_up(&scene);
    assert_eq!(reason, "crashed");
    assert_eq!(letter.word("x-ganger-stderr").trim(), "last-words");
    assert_eq!(letter.word("x-ganger-exit-code"), "7");
    let died = scene
        .record()
        .of(Event::Began, "mode:complain:last-words,die:exit:7")
        .len();
    assert_eq!(died, 2);
    scene.record().assert_done_once(&["harmless"]);
    scene.finish();
}

/// What a dead letter says of itself must fit a frame.
fn many_last_words_fit_beside_the_message() {
    let pool = Pool::new(&["--v2=1"]).attempts(1);
    let scene = RabbitScene::of(pool);
    let words = "words-without-end-".repeat(500);
    let complaints = format!("complain:{words},").repeat(60);
    scene.send(&[format!("mode:{complaints}die:exit:7")]);
    let (letter, reason, _) = given_up(&scene);
    assert_eq!(reason, "crashed");
    let told = letter.word("x-ganger-stderr");
    assert!(told.contains("words-without-end"), "{told}");
    assert!(told.len() < 16 << 10, "{} bytes", told.len());
    scene.finish();
}

fn a_reply_goes_to_the_reply_queue() {
    let scene = RabbitScene::of(Pool::new(&[]));
    for queue in ["answers", "elsewhere"] {
        scene.client.declare(queue, &[]);
    }
    let asks = |body| Letter::new("work", body).reply_to("answers");
    let own = asks("mode:reply").header("x-ganger-own", text("hidden"));
    let headers = own.header("colour", text("red")).correlation_id("c-1");
    scene
        .client
        .publish(&[headers, asks("mode:reply:elsewhere")]);
    scene.all_done();
    let reply = scene.client.take("answers").unwrap();
    assert_eq!((reply.text(), reply.id()), ("re: mode:reply", "c-1"));
    assert!(reply.says("answered-by", "modes-worker"), "{reply:?}");
    assert!(reply.says("colour", "red"), "{reply:?}");
    assert_eq!(reply.value("x-ganger-own"), None);
    assert_eq!(*reply.properties.delivery_mode(), Some(2), "persistent");
    assert_eq!(scene.client.ready("answers"), Some(0));
    let other = scene.client.take("elsewhere").unwrap();
    assert_eq!(other.text(), "re: mode:reply:elsewhere");
    scene.finish();
}

fn a_reply_to_a_queue_that_is_not_there_is_kept_with_its_message() {
    let scene = RabbitScene::of(Pool::new(&[]).attempts(5));
    scene
        .client
        .publish(&[Letter::new("work", "mode:reply").reply_to("nowhere")]);
    let (letter, reason, error) = given_up(&scene);
    assert_eq!(reason, "unroutable_reply");
    assert!(error.contains("nowhere"), "{error}");
    assert_eq!(letter.text(), "mode:reply");
    assert_eq!(kept_reply(&letter), "re: mode:reply");
    let begun = scene.record().all(Event::Began).len();
    assert_eq!(begun, 1, "the work is done and is not repeated");
    scene.finish();
}

fn a_reply_to_a_queue_that_is_not_there_may_be_dropped() {
    let pool = Pool::new(&[]).text("unroutable_reply", "drop");
    let scene = RabbitScene::of(pool);
    scene
        .client
        .publish(&[Letter::new("work", "mode:reply").reply_to("nowhere")]);
    scene.done(1);
    scene.all_done();
    assert_eq!(scene.record().all(Event::Began).len(), 1);
    scene.finish();
}

fn a_reply_without_a_place_is_kept_with_its_message() {
    let scene = RabbitScene::of(Pool::new(&[]).attempts(5));
    scene.send(&["mode:reply"]);
    let (letter, reason, _) = given_up(&scene);
    assert_eq!(reason, "unroutable_reply");
    assert_eq!(kept_reply(&letter), "re: mode:reply");
    assert_eq!(scene.record().all(Event::Began).len(), 1);
    scene.finish();
}

fn a_long_task_in_parts_answers_the_first_caller() {
    let scene = RabbitScene::of(Pool::new(&["--v2=1"]).attempts(1));
    scene.client.declare("answers", &[]);
    let asks = Letter::new("work", "mode:switch:4").reply_to("answers");
    scene.client.publish(&[asks.correlation_id("c-1")]);
    scene.daemon.eventually("the last part's answer", || {
        scene.client.ready("answers") == Some(1)
    });
    scene.all_done();
    let parts = [4, 3, 2, 1, 0].map(|left| format!("mode:switch:{left}"));
    assert_eq!(scene.record().texts(Event::Done), parts);
    let clean = [Some(1); 5];
    assert_eq!(attempts(&scene), clean, "each starts with a clean count");
    let reply = scene.client.take("answers").unwrap();
    assert_eq!((reply.text(), reply.id()), ("all parts done", "c-1"));
    scene.finish();
}

fn emits_are_published_with_ids_of_their_own() {
    let scene = RabbitScene::of(Pool::new(&["--v2=1"]));
    scene.client.declare("out", &[kind("quorum")]);
    let twice = "mode:emit:out:one,emit:out:two,until-attempt:2:500";
    let letter = Letter::new("work", twice).correlation_id("c-1");
    let letter = letter.with(|properties| properties.with_message_id("m-1".into()));
    scene.client.publish(&[letter]);
    scene.all_done();
    let emits = scene.client.take_all("out");
    let bodies: Vec<&str> = emits.iter().map(Letter::text).collect();
    assert_eq!(bodies, ["one", "two", "one", "two"]);
    let ids: Vec<AMQPValue> = emits
        .iter()
        .map(|emit| emit.value("ganger-emit-id").unwrap())
        .collect();
    assert_ne!(ids[0], ids[1]);
    assert_eq!(ids[..2], ids[2..], "they can be told by what they repeat");
    assert!(emits.iter().all(|emit| emit.id() == "c-1"), "{emits:#?}");
    scene.finish();
}

fn an_emit_to_a_queue_that_is_not_there_fails_the_task() {
    let scene = RabbitScene::of(Pool::new(&["--v2=1"]).attempts(1));
    scene.send(&["mode:emit:nowhere:lost,answer:200"]);
    let (_, reason, error) = given_up(&scene);
    assert_eq!(reason, "failed");
    assert!(error.contains("nowhere"), "{error}");
    scene.finish();
}

/// A queue that takes one message and refuses what is published beyond that.
fn narrow(scene: &RabbitScene, queue: &str) {
    let most = ("x-max-length", AMQPValue::LongInt(1));
    let refuse = ("x-overflow", text("reject-publish"));
    scene.client.declare(queue, &[most, refuse]);
    scene.client.publish(&[Letter::new(queue, "in the way")]);
}

/// The work is done and is not repeated; its answer is published once there is room.
fn a_full_reply_queue_is_waited_for() {
    let scene = RabbitScene::of(Pool::new(&[]));
    narrow(&scene, "answers");
    scene
        .client
        .publish(&[Letter::new("work", "mode:reply").reply_to("answers")]);
    scene.done(1);
    scene.has_problem("answers");
    assert_eq!(scene.left(), 1, "it is not settled");
    let first = scene.client.take("answers").unwrap();
    assert_eq!(first.text(), "in the way");
    scene.all_done();
    let reply = scene.client.take("answers").unwrap();
    assert_eq!(reply.text(), "re: mode:reply");
    assert_eq!(scene.record().all(Event::Began).len(), 1);
    scene.has_no_problem();
    scene.finish();
}

fn a_full_dead_letter_queue_loses_nothing() {
    let pool = Pool::new(&[]).text("dead_letter", "graveyard").attempts(1);
    let scene = RabbitScene::of(pool);
    // It is the user's own name, but the daemon has declared it.
    scene.client.delete("graveyard");
    narrow(&scene, "graveyard");
    let good: Vec<String> = (0..20).map(|n| format!("good {n}")).collect();
    scene.send(&["mode:answer:400"]);
    scene.begun(&["mode:answer:400"]);
    scene.send(&good);
    scene.daemon.eventually("a word about it", || {
        let about = |record: &serde_json::Value| record.to_string().contains("graveyard");
        !scene.daemon.records(about).is_empty()
    });
    assert!(scene.left() >= 1, "it is kept");
    assert_eq!(scene.client.take_all("graveyard").len(), 1);
    scene.settled();
    let buried = scene.client.take_all("graveyard");
    assert_eq!(buried.len(), 1);
    assert_eq!(buried[0].text(), "mode:answer:400");
    scene.record().assert_done_once(&good);
    assert_eq!(scene.record().of(Event::Began, "mode:answer:400").len(), 1);
    scene.finish();
}

/// Users whose broker dead-letters by its own policy: we reject, and it does the rest.
fn a_broker_that_buries_by_itself() {
    let vhost = Vhost::shared();
    let client = vhost.client();
    let exchange = ("x-dead-letter-exchange", text(""));
    let key = ("x-dead-letter-routing-key", text("cemetery"));
    client.declare("work", &[kind("classic"), exchange, key]);
    client.declare("cemetery", &[]);
    let pool = Pool::new(&[]).text("dead_letter", "broker").attempts(2);
    let scene = RabbitScene::at(vhost, "", &[pool]);
    scene.send(&["mode:answer:500"]);
    scene.daemon.eventually("the broker's burial", || {
        scene.client.ready("cemetery") == Some(1) && scene.left() == 0
    });
    let letter = scene.client.take("cemetery").unwrap();
    assert_eq!(letter.text(), "mode:answer:500");
    assert!(letter.value("x-death").is_some(), "{letter:#?}");
    assert_eq!(scene.record().all(Event::Began).len(), 2);
    assert_eq!(scene.client.ready(DEAD), None, "no queue of ours");
    scene.finish();
}
