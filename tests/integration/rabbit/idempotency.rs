//! What is finished is remembered beside RabbitMQ: a redelivery is acknowledged without being worked on.
//! Where that is remembered on a server is tested with what is the same on any.

use std::collections::BTreeSet;

use crate::harness::rabbit::{DEAD, Letter, RabbitScene, Vhost, text};
use crate::harness::{Event, Flow, Pool, Proxy, Table, trials};

trials![
    killed_between_the_entry_and_the_acknowledgement,
    the_steps_of_a_long_task_are_no_repetitions,
    every_copy_of_a_message_keeps_its_step,
    a_reply_that_was_unroutable_is_sent_again_by_its_dead_letter,
    nothing_that_is_entered_is_worked_on_again_under_kills,
    a_connection_that_is_lost_makes_nothing_run_twice_that_is_done,
];

/// The daemon's word on a repetition.
const REPETITION: &str = "repetition acknowledged without being processed";
const SQLITE: &str = "[sources.memory]\nkind = \"table\"\nurl = \"sqlite:memory.db\"";

pub(crate) fn pool(args: &[&str]) -> Pool {
    let pool = Pool::new(args).text("source", "main");
    pool.set("idempotency", "{ store = \"memory\" }")
}

pub(crate) fn letter(body: &str, id: &str) -> Letter {
    let letter = Letter::new("work", body).reply_to("answers");
    letter.with(|properties| properties.with_message_id(id.into()))
}

fn scene(pool: Pool) -> RabbitScene {
    let scene = RabbitScene::with(SQLITE, pool);
    scene.client.declare("answers", &[]);
    scene
}

fn behind_a_proxy(pool: &Pool) -> (Proxy, RabbitScene) {
    let vhost = Vhost::shared();
    let proxy = Proxy::to(vhost.port());
    let url = vhost.url_by(proxy.port());
    let scene = RabbitScene::by(&url, vhost, SQLITE, std::slice::from_ref(pool));
    scene.client.declare("answers", &[]);
    (proxy, scene)
}

/// Waits for so many answers, and takes them out.
pub(crate) fn answers(scene: &RabbitScene, count: u32) -> Vec<Letter> {
    scene.daemon.eventually("the answers", || {
        scene.client.ready("answers").unwrap_or_default() >= count
    });
    let answers = scene.client.take_all("answers");
    assert_eq!(answers.len(), count as usize, "{answers:#?}");
    answers
}

fn memory(scene: &RabbitScene) -> Table {
    Table::open(&scene.site.path("memory.db"))
}

/// Nothing that the daemon says reaches the broker from the moment when the work is done: neither the
/// reply nor the acknowledgement. Then it dies.
fn killed_between_the_entry_and_the_acknowledgement() {
    let pool = pool(&["--v2=1"]);
    let (proxy, mut scene) = behind_a_proxy(&pool);
    let body = "mode:wait:go,reply the work";
    scene
        .client
        .publish(&[letter(body, "m").correlation_id("c")]);
    scene.begun(&[body]);
    proxy.flow(Flow {
        up_is_stalled: true,
        ..Flow::default()
    });
    scene.site.touch("go");
    let memory = memory(&scene);
    scene
        .daemon
        .eventually("the entry", || memory.finished() == 1);
    assert_eq!(scene.client.ready("answers"), Some(0));
    scene.daemon.crash();
    proxy.flow(Flow::default());
    proxy.cut();
    scene.daemon = scene.site.start(&[pool]);
    scene.daemon.logged(REPETITION);
    let answer = answers(&scene, 1).remove(0);
    assert_eq!(
        (answer.text(), answer.id()),
        ("re: mode:wait:go,reply the work", "c")
    );
    scene.all_done();
    assert_eq!(scene.record().of(Event::Began, body).len(), 1);
    scene.finish();
}

fn the_steps_of_a_long_task_are_no_repetitions() {
    let scene = scene(pool(&["--v2=1"]));
    for _ in 0..2 {
        scene.client.publish(&[letter("mode:switch:3", "m")]);
        assert_eq!(answers(&scene, 1)[0].text(), "all parts done");
        scene.all_done();
        assert_eq!(scene.record().all(Event::Done).len(), 4);
    }
    scene.daemon.eventually("every repetition to be told", || {
        scene.daemon.times_logged(REPETITION) == 4
    });
    scene.finish();
}

/// One that waits for a retry, and one that comes back from the dead letters.
fn every_copy_of_a_message_keeps_its_step() {
    let scene = scene(pool(&["--v2=1"]));
    let fifth = |body, id| letter(body, id).header("x-ganger-step", text("5"));
    scene.client.publish(&[fifth(
        "mode:until-attempt:2:500,note:header:x-ganger-step,reply",
        "m",
    )]);
    assert_eq!(answers(&scene, 1)[0].word("x-ganger-step"), "6");
    let hidden = "header:x-ganger-step=";
    let record = scene.record();
    let noted = record.texts(Event::Noted);
    assert!(
        noted.iter().all(|note| !note.contains('5')),
        "{hidden} {noted:?}"
    );
    scene
        .client
        .publish(&[fifth("mode:unless:mended:400,reply", "n")]);
    scene
        .daemon
        .eventually("the letter", || scene.client.ready(DEAD) == Some(1));
    scene.site.touch("mended");
    let config = scene.daemon.config().to_str().unwrap().to_owned();
    let retry = [
        "dead", "retry", "--all", "--source", "main", "--config", &config,
    ];
    scene.site.ganger(&retry).good();
    assert_eq!(answers(&scene, 1)[0].word("x-ganger-step"), "6");
    scene.all_done();
    assert_eq!(scene.daemon.times_logged(REPETITION), 0);
    scene.finish();
}

/// The work is done, whatever became of its reply.
fn a_reply_that_was_unroutable_is_sent_again_by_its_dead_letter() {
    let scene = RabbitScene::with(SQLITE, pool(&["--v2=1"]));
    scene.client.publish(&[letter("mode:reply", "m")]);
    scene
        .daemon
        .eventually("the letter", || scene.client.ready(DEAD) == Some(1));
    scene.client.declare("answers", &[]);
    let config = scene.daemon.config().to_str().unwrap().to_owned();
    let retry = [
        "dead", "retry", "--all", "--source", "main", "--config", &config,
    ];
    scene.site.ganger(&retry).good();
    assert_eq!(answers(&scene, 1)[0].text(), "re: mode:reply");
    scene.all_done();
    assert_eq!(scene.record().all(Event::Done).len(), 1);
    scene.finish();
}

/// The effects of the workers, which guard against nothing, are the lines that they write when they
/// have done a message. What had an effect and was not entered when the daemon died has another:
/// that is the gap which nobody closes from outside.
fn nothing_that_is_entered_is_worked_on_again_under_kills() {
    let pool = pool(&["--mode=reply"])
        .set("workers", "2")
        .set("prefetch", "50");
    let mut scene = scene(pool.clone());
    let bodies: Vec<String> = (0..1_000).map(|n| format!("message {n}")).collect();
    let letters: Vec<Letter> = bodies.iter().map(|body| letter(body, body)).collect();
    scene.client.publish(&letters);
    let memory = memory(&scene);
    let effects = |scene: &RabbitScene, body: &str| scene.record().of(Event::Done, body).len();
    let mut entered: Vec<(String, usize)> = Vec::new();
    for part in 1..=4 {
        scene
            .daemon
            .eventually("a part to be done", || memory.finished() >= 200 * part);
        scene.daemon.crash();
        entered = memory
            .finished_keys()
            .into_iter()
            .map(|key| {
                let times = effects(&scene, &key);
                (key, times)
            })
            .collect();
        scene.daemon = scene.site.start(std::slice::from_ref(&pool));
    }
    scene.all_done();
    let record = scene.record();
    for (key, times) in entered {
        assert_eq!(
            record.of(Event::Done, &key).len(),
            times,
            "{key} was done again"
        );
    }
    record.assert_none_lost(&bodies);
    assert_eq!(memory.finished(), 1_000);
    scene.assert_answered("answers", &bodies);
    scene.finish();
}

/// The daemon lives: what comes again while its entry is on its way waits for it.
fn a_connection_that_is_lost_makes_nothing_run_twice_that_is_done() {
    let pool = pool(&["--v2=1"]).set("workers", "2");
    let (proxy, scene) = behind_a_proxy(&pool);
    let held = ["mode:wait:go,reply a", "mode:wait:go,reply b"];
    let letters = held.map(|body| letter(body, body));
    scene.client.publish(&letters);
    scene.begun(&held);
    let times = proxy.accepted();
    proxy.cut();
    scene
        .daemon
        .eventually("another connection", || proxy.accepted() > times);
    scene.has_no_problem();
    scene.site.touch("go");
    scene.all_done();
    scene.record().assert_done_once(&held);
    let bodies: BTreeSet<String> = answers(&scene, 2)
        .iter()
        .map(|one| one.text().to_owned())
        .collect();
    let expected = held.map(|body| format!("re: {body}"));
    assert_eq!(bodies, BTreeSet::from(expected));
    scene.finish();
}
