//! Publications over which the broker, or what is between, ends the whole connection: they are found
//! out and cost nothing but themselves.

use std::collections::BTreeMap;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::harness::rabbit::{Client, DEAD, Letter, RabbitScene, Vhost};
use crate::harness::{Event, Flow, Pool, Proxy, trials};

trials![
    damaged_addresses_cost_no_other_reply,
    a_stop_in_the_middle_ends_well_and_a_start_begins_nothing_anew,
    a_reply_to_a_damaged_address_may_be_dropped,
    an_emit_to_a_damaged_address_fails_its_task,
    what_can_be_stored_in_no_form_is_kept_and_holds_up_nobody,
    commands_tell_what_has_ended_their_connection,
];

const DIRECT: &str = "amq.rabbitmq.reply-to";
/// The broker looks into it for a process of its own.
const DAMAGED: &str = "amq.rabbitmq.reply-to.aGVsbG8=.abc";
const ISOLATES: &str = "connection lost twice with the same messages unconfirmed; sending them one \
                        at a time over a separate connection";
/// How long an answer may take.
const LONG: Duration = Duration::from_secs(60);
/// How often one is sent at most: until the connection was lost twice, and once alone.
const TIMES_MAX: usize = 3;

/// A real address for answers, as a program writes it that takes names to be in lower case.
fn in_lower_case(client: &Client) -> String {
    client.declare("addresses", &[]);
    client.publish(&[Letter::new("addresses", "").reply_to(DIRECT)]);
    let letter = client.take("addresses").unwrap();
    let address = letter.properties.reply_to().as_ref().unwrap();
    address.as_str().to_lowercase()
}

/// Messages of which all but two have a caller; those two have damaged addresses.
fn questions(client: &Client, answers: &Receiver<Box<Letter>>) -> (Vec<String>, Vec<Letter>) {
    let good: Vec<String> = (0..60).map(|n| format!("question {n}")).collect();
    let ask = |body: &String| Letter::new("work", body).reply_to(DIRECT);
    let mut letters: Vec<Letter> = good.iter().map(ask).collect();
    let lower = in_lower_case(client);
    letters.insert(40, Letter::new("work", "lower").reply_to(&lower));
    letters.insert(20, Letter::new("work", "damaged").reply_to(DAMAGED));
    assert!(answers.try_recv().is_err(), "nobody has answered yet");
    (good, letters)
}

/// Waits for an answer to each; how often each has come.
fn answered(good: &[String], answers: &Receiver<Box<Letter>>) -> BTreeMap<String, usize> {
    let mut times = BTreeMap::new();
    while times.len() < good.len() {
        let answer = answers.recv_timeout(LONG);
        let answer = answer.unwrap_or_else(|_| panic!("only {times:#?}"));
        *times.entry(answer.text().to_owned()).or_default() += 1;
    }
    times
}

fn are_unroutable(dead: &[Letter]) {
    let mut bodies: Vec<&str> = dead.iter().map(Letter::text).collect();
    bodies.sort_unstable();
    assert_eq!(bodies, ["damaged", "lower"]);
    for letter in dead {
        assert!(letter.says("x-ganger-reason", "unroutable_reply"));
        let error = letter.word("x-ganger-error");
        assert!(error.contains("the connection ended each time"), "{error}");
    }
}

fn damaged_addresses_cost_no_other_reply() {
    let scene = RabbitScene::of(Pool::new(&["--v2=8", "--mode=reply"]).set("workers", "4"));
    let answers = scene.client.listen(DIRECT);
    let (good, letters) = questions(&scene.client, &answers);
    scene.client.publish(&letters);
    let mut times = answered(&good, &answers);
    scene.settled();
    for answer in answers.try_iter() {
        *times.entry(answer.text().to_owned()).or_default() += 1;
    }
    let most = times.values().max().copied();
    assert!(most <= Some(TIMES_MAX), "{times:#?}");
    are_unroutable(&scene.client.take_all(DEAD));
    let bodies: Vec<&str> = letters.iter().map(Letter::text).collect();
    scene.record().assert_done_once(&bodies);
    scene.has_no_problem();
    scene.finish();
}

fn a_stop_in_the_middle_ends_well_and_a_start_begins_nothing_anew() {
    let pool = Pool::new(&["--v2=8", "--mode=reply"]);
    let scene = RabbitScene::of(pool.clone());
    let answers = scene.client.listen(DIRECT);
    let (good, letters) = questions(&scene.client, &answers);
    scene.client.publish(&letters);
    scene.daemon.logged(ISOLATES);
    scene.daemon.stop();
    let again = scene.site.start(&[pool]);
    answered(&good, &answers);
    scene.settled();
    are_unroutable(&scene.client.take_all(DEAD));
    again.stop();
    let last = scene.site.start(&[Pool::new(&["--mode=reply"])]);
    scene.send(&["mode:answer:200"]);
    scene.settled();
    assert_eq!(last.times_logged("no connection for publishing"), 0);
    last.stop();
}

fn a_reply_to_a_damaged_address_may_be_dropped() {
    let pool = Pool::new(&["--mode=reply"]).text("unroutable_reply", "drop");
    let scene = RabbitScene::of(pool);
    let letter = Letter::new("work", "damaged").reply_to(DAMAGED);
    scene.client.publish(&[letter]);
    scene.done(1);
    scene.all_done();
    assert_eq!(scene.record().all(Event::Began).len(), 1);
    scene.finish();
}

fn an_emit_to_a_damaged_address_fails_its_task() {
    let scene = RabbitScene::of(Pool::new(&["--v2=1"]).attempts(1));
    scene.send(&[format!("mode:emit:{DAMAGED}:lost,answer:200")]);
    let dead = scene.one_dead();
    let error = dead.word("x-ganger-error");
    assert!(error.contains(DAMAGED), "{error}");
    assert!(error.contains("the connection ended each time"), "{error}");
    scene.finish();
}

/// What is between does not let through one message's body, whatever for.
fn what_can_be_stored_in_no_form_is_kept_and_holds_up_nobody() {
    const POISON: &str = "mode:answer:500 poison";
    let vhost = Vhost::shared();
    let proxy = Proxy::to(vhost.port());
    let url = vhost.url_by(proxy.port());
    let pool = Pool::new(&["--mode=reply:answers"]).attempts(1);
    let scene = RabbitScene::by(&url, vhost, "", std::slice::from_ref(&pool));
    scene.client.declare("answers", &[]);
    proxy.flow(Flow {
        up_ends: Some(b"poison"),
        ..Flow::default()
    });
    let all: Vec<String> = (0..20).map(|n| format!("message {n}")).collect();
    scene.send(&[POISON]);
    scene.send(&all);
    scene.has_problem("permanently rejects the publications for 1 messages");
    scene
        .daemon
        .eventually("the others to be settled", || scene.left() == 1);
    scene.assert_answered("answers", &all);
    scene.daemon.stop();
    assert_eq!(scene.client.ready("work"), Some(1), "it is kept");
    proxy.flow(Flow::default());
    let again = scene.site.start(&[pool]);
    assert_eq!(scene.one_dead().text(), POISON);
    again.stop();
}

fn commands_tell_what_has_ended_their_connection() {
    let scene = RabbitScene::of(Pool::new(&[]));
    scene.site.configure_commands(&[Pool::new(&[])]);
    let told = scene.site.ganger(&["send", DAMAGED, "hello"]).bad(1);
    assert!(told.contains("the connection is lost"), "{told}");
    scene.daemon.signal(Signal::SIGTERM);
    assert!(scene.daemon.exit().success());
    let proxy = Proxy::to(scene.vhost.port());
    let url = scene.vhost.url_by(proxy.port());
    let site = crate::harness::rabbit::rabbit_site(&url, "");
    site.configure_commands(&[Pool::new(&[])]);
    scene.client.publish(&[Letter::new(DEAD, "poison")]);
    proxy.flow(Flow {
        up_ends: Some(b"poison"),
        ..Flow::default()
    });
    let told = site.ganger(&["dead", "list"]).bad(1);
    assert!(told.contains("the connection is lost"), "{told}");
    scene
        .daemon
        .eventually("it is there", || scene.client.ready(DEAD) == Some(1));
}
