//! What is finished is remembered beside RabbitMQ, in SQLite or PostgreSQL: a redelivery is
//! acknowledged without being worked on.

use std::collections::BTreeSet;

use crate::harness::postgres::PgDatabase;
use crate::harness::rabbit::{DEAD, Letter, RabbitScene, Vhost, text};
use crate::harness::{Event, Flow, Pool, Proxy, Table, field, trials};

trials![
    killed_between_the_entry_and_the_acknowledgement,
    what_a_producer_sends_twice_is_worked_on_once_and_answered_twice,
    the_steps_of_a_long_task_are_no_repetitions,
    every_copy_of_a_message_keeps_its_step,
    a_reply_that_was_unroutable_is_sent_again_by_its_dead_letter,
    nothing_that_is_entered_is_worked_on_again_under_kills,
    a_connection_that_is_lost_makes_nothing_run_twice_that_is_done,
    a_store_on_a_server_that_dies_is_waited_for,
];

/// The daemon's word on a repetition.
const REPETITION: &str = "a repetition: acknowledged without being worked on";
const SQLITE: &str = "[sources.memory]\nkind = \"table\"\nurl = \"sqlite:memory.db\"";

fn pool(args: &[&str]) -> Pool {
    let pool = Pool::new(args).text("source", "main");
    pool.set("idempotency", "{ store = \"memory\" }")
}

fn letter(body: &str, id: &str) -> Letter {
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
fn answers(scene: &RabbitScene, count: u32) -> Vec<Letter> {
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

fn what_a_producer_sends_twice_is_worked_on_once_and_answered_twice() {
    let database = PgDatabase::shared();
    let postgres = format!(
        "[sources.memory]\nkind = \"table\"\nurl = \"{}\"",
        database.url()
    );
    let scene = RabbitScene::with(&postgres, pool(&["--v2=1", "--mode=reply"]));
    scene.client.declare("answers", &[]);
    let binary = letter("", "b").with(|properties| properties.with_correlation_id("b".into()));
    let binary = Letter {
        body: vec![0xff, 0],
        ..binary
    };
    let first = letter("first", "m").correlation_id("1");
    scene.client.publish(&[first, binary.clone()]);
    let mut bodies: Vec<Vec<u8>> = answers(&scene, 2).into_iter().map(|one| one.body).collect();
    let second = letter("second", "m").correlation_id("2");
    scene.client.publish(&[second, binary]);
    let again = answers(&scene, 2);
    let callers: BTreeSet<&str> = again.iter().map(Letter::id).collect();
    assert_eq!(callers, BTreeSet::from(["2", "b"]));
    let mut bodies_again: Vec<Vec<u8>> = again.into_iter().map(|one| one.body).collect();
    bodies.sort_unstable();
    bodies_again.sort_unstable();
    assert_eq!(bodies, bodies_again);
    scene.all_done();
    assert_eq!(scene.record().all(Event::Done).len(), 2);
    assert_eq!(database.table().finished(), 2);
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

/// As for a broker that is away: nothing is acknowledged, nothing is lost, and it goes on by itself.
fn a_store_on_a_server_that_dies_is_waited_for() {
    let database = PgDatabase::alone();
    let postgres = format!(
        "[sources.memory]\nkind = \"table\"\nurl = \"{}\"",
        database.url()
    );
    let pool = pool(&["--mode=sleep:1"]).set("workers", "2");
    let scene = RabbitScene::with(&postgres, pool);
    let bodies: Vec<String> = (0..500).map(|n| format!("message {n}")).collect();
    let letters: Vec<Letter> = bodies.iter().map(|body| letter(body, body)).collect();
    scene.client.publish(&letters);
    scene.done(100);
    database.kill();
    let down = "what is finished can't be looked up; nothing is acknowledged, intake pauses";
    scene.daemon.logged(down);
    scene.daemon.eventually("it to be said", || {
        let problem = field(&scene.status(), "source_problem");
        problem.starts_with("what is finished can't be looked up: ")
    });
    database.start_again();
    scene
        .daemon
        .logged("over: what is finished can't be looked up");
    scene.all_done();
    scene.record().assert_done_once(&bodies);
    assert_eq!(database.table().finished(), 500);
    scene.finish();
}
