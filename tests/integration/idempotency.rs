//! What is finished is remembered: a repetition is acknowledged without being worked on, and its reply
//! sent again.

use std::path::Path;

use nix::sys::signal::Signal;

use crate::harness::{
    Event, NewMessage, Pool, Scene, Table, Waiting, Workspace, field, said, trials,
};

trials![
    what_a_producer_sends_twice_is_worked_on_once_and_answered_twice,
    one_that_comes_while_the_first_is_worked_on_waits_for_it,
    the_steps_of_a_long_task_are_no_repetitions,
    the_emits_of_a_task_are_told_apart,
    what_fails_is_tried_again_and_what_is_rejected_can_be_sent_back,
    after_the_window_it_is_worked_on_again,
    one_without_a_key_is_worked_on_and_counted,
    of_two_daemons_that_finish_the_same_the_first_has_answered,
    a_thousand_under_kills_are_each_answered_once,
    a_store_that_is_away_is_waited_for,
    a_store_that_is_not_there_refuses_the_start,
];

/// The daemon's word on a repetition.
const REPETITION: &str = "repetition acknowledged without being processed";
/// Its word on one whose key another has.
const ANOTHER: &str = "another message with this key was done, and its body differs: this one is no \
                       repetition and is worked on";
/// Its word on one that was worked on twice all the same.
const TWICE: &str =
    "message processed twice: another message with its key, or another daemon, finished first";

/// A pool whose store is its own database.
fn pool(args: &[&str]) -> Pool {
    Pool::new(args).set("idempotency", "{}")
}

fn message(body: &str, id: &str) -> NewMessage {
    NewMessage::new(body).message_id(id).reply_to("answers")
}

/// What is in the queue of answers, once it is so many.
fn answers(scene: &Scene, count: usize) -> Vec<Waiting> {
    let what = format!("{count} answers");
    scene
        .daemon
        .eventually(&what, || scene.table.count("answers") as usize >= count);
    let answers = scene.table.messages("answers");
    assert_eq!(answers.len(), count, "{answers:#?}");
    answers
}

fn what_a_producer_sends_twice_is_worked_on_once_and_answered_twice() {
    let scene = Scene::of(pool(&["--v2=1", "--mode=reply"]));
    scene
        .table
        .insert(&[message("first", "m").correlation_id("c-1")]);
    scene.all_done();
    assert_eq!(scene.table.finished(), 1);
    // Its caller has lost the first answer, and asks for another elsewhere.
    let second = message("first", "m").correlation_id("c-2");
    scene
        .table
        .insert(&[second.clone(), second.reply_to("elsewhere")]);
    scene.all_done();
    let mut again = scene.table.messages("elsewhere");
    again.extend(answers(&scene, 2));
    for answer in &again {
        assert_eq!(answer.body, "re: first");
        assert_eq!(answer.headers["answered-by"], "modes-worker");
        assert_eq!(answer.headers["x-ganger-step"], "1");
    }
    let ids: Vec<_> = again
        .iter()
        .map(|answer| answer.correlation_id.as_deref())
        .collect();
    assert_eq!(ids, [Some("c-2"), Some("c-1"), Some("c-2")]);
    scene.record().assert_done_once(&["first"]);
    let told = scene.daemon.logged(REPETITION);
    assert_eq!(
        (field(&told, "key"), field(&told, "pool")),
        ("m".into(), "work".into())
    );
    assert_eq!(scene.table.finished(), 1);
    // Another's id is another message.
    scene.table.insert(&[message("third", "n")]);
    scene.all_done();
    scene.record().assert_done_once(&["third"]);
    // So is another body under the same id, and one is a repetition of that.
    scene
        .table
        .insert(&[message("forged", "m"), message("forged", "m")]);
    scene.all_done();
    scene.record().assert_done_once(&["forged"]);
    scene.daemon.logged(ANOTHER);
    let bodies = scene
        .table
        .messages("answers")
        .into_iter()
        .map(|answer| answer.body);
    assert_eq!(bodies.filter(|body| body == "re: forged").count(), 2);
    assert_eq!(scene.table.finished(), 3);
    scene.finish();
}

fn one_that_comes_while_the_first_is_worked_on_waits_for_it() {
    let scene = Scene::of(pool(&["--v2=1"]).set("workers", "2"));
    scene.daemon.has_workers(2);
    let first = "mode:wait:go,reply first";
    scene.table.insert(&[
        message(first, "m"),
        message(first, "m"),
        message("other", "n"),
    ]);
    scene.begun(&[first]);
    scene.daemon.eventually("the other to be done", || {
        scene.record().of(Event::Done, "other").len() == 1
    });
    scene.site.touch("go");
    scene.all_done();
    let bodies: Vec<String> = answers(&scene, 2)
        .into_iter()
        .map(|answer| answer.body)
        .collect();
    assert_eq!(bodies, vec![format!("re: {first}"); 2]);
    assert_eq!(scene.record().of(Event::Began, first).len(), 1);
    scene.finish();
}

/// They share a message id and a queue. A repetition of the first goes through all of them again, as
/// far as that takes no work.
fn the_steps_of_a_long_task_are_no_repetitions() {
    let scene = Scene::of(pool(&["--v2=1"]));
    for times in 1..=2 {
        scene.table.insert(&[message("mode:switch:3", "m")]);
        let answers = answers(&scene, times);
        assert!(answers.iter().all(|answer| answer.body == "all parts done"));
        scene.all_done();
        assert_eq!(scene.record().all(Event::Done).len(), 4);
    }
    scene.daemon.eventually("every repetition to be told", || {
        scene.daemon.times_logged(REPETITION) == 4
    });
    assert_eq!(scene.table.finished(), 4);
    let first = &scene.table.messages("answers")[0];
    assert_eq!(first.headers["x-ganger-step"], "4");
    scene.finish();
}

/// All that they share is the correlation id by which the second pool knows its messages.
fn the_emits_of_a_task_are_told_apart() {
    let parts = Pool::new(&["--v2=1"])
        .text("name", "parts")
        .text("queue", "parts")
        .set("idempotency", "{ key = \"correlation_id\" }");
    let scene = Scene::with(&[Pool::new(&["--v2=1"]), parts]);
    let task = "mode:emit:parts:one,emit:parts:two,until-attempt:2:500";
    scene
        .table
        .insert(&[NewMessage::new(task).correlation_id("c")]);
    scene.all_done();
    scene
        .daemon
        .eventually("the parts to be done", || scene.table.count("parts") == 0);
    // The second attempt has emitted them again.
    scene.record().assert_done_once(&["one", "two"]);
    scene.daemon.eventually("every repetition to be told", || {
        scene.daemon.times_logged(REPETITION) == 2
    });
    scene.finish();
}

fn what_fails_is_tried_again_and_what_is_rejected_can_be_sent_back() {
    let scene = Scene::of(pool(&["--v2=1"]).attempts(5));
    let tried = "mode:until-attempt:2:500,until-attempt:3:429,reply tried";
    let asked = "mode:unless:there:300,reply asked";
    scene
        .table
        .insert(&[message(tried, "t"), message(asked, "a")]);
    let answer = answers(&scene, 1).remove(0);
    assert_eq!(answer.body, format!("re: {tried}"));
    scene.site.touch("there");
    answers(&scene, 2);
    scene.all_done();
    assert_eq!(scene.daemon.times_logged(REPETITION), 0);
    let rejected = "mode:unless:mended:400,reply rejected";
    scene.table.insert(&[message(rejected, "r")]);
    scene.one_dead();
    assert_eq!(scene.table.finished(), 2);
    scene.site.touch("mended");
    let config = scene.daemon.config().to_str().unwrap().to_owned();
    let retry = ["dead", "retry", "--all", "--config", &config];
    scene.site.ganger(&retry).good();
    answers(&scene, 3);
    scene.all_done();
    assert_eq!(scene.record().of(Event::Began, rejected).len(), 2);
    assert_eq!(scene.table.finished(), 3);
    scene.finish();
}

fn after_the_window_it_is_worked_on_again() {
    let scene = Scene::of(pool(&["--v2=1"]).set("idempotency", "{ window = \"1s\" }"));
    for times in 1..=2 {
        scene.table.insert(&[message("again", "m")]);
        scene.all_done();
        assert_eq!(scene.record().of(Event::Done, "again").len(), times);
        scene
            .daemon
            .eventually("the entry to be removed", || scene.table.finished() == 0);
    }
    scene.finish();
}

fn one_without_a_key_is_worked_on_and_counted() {
    let scene = Scene::of(pool(&["--v2=1"]).set("idempotency", "{ key = \"header:order\" }"));
    let order = |body: &str, order: &str| NewMessage::new(body).header("order", order);
    scene.table.insert(&[
        NewMessage::new("none"),
        NewMessage::new("none"),
        order("seven", "7"),
        order("seven", "7"),
        order("eight", "8"),
    ]);
    scene.all_done();
    let record = scene.record();
    assert_eq!(record.of(Event::Done, "none").len(), 2);
    record.assert_done_once(&["seven", "eight"]);
    scene.daemon.eventually("every repetition to be told", || {
        scene.daemon.times_logged(REPETITION) == 1
    });
    assert_eq!(scene.table.finished(), 2);
    scene.daemon.signal(Signal::SIGUSR1);
    let status = scene.daemon.logged("status of the pool");
    assert_eq!(
        (&status["repetitions"], &status["unkeyed"]),
        (&1.into(), &2.into())
    );
    scene.finish();
}

/// Each begins before the other has finished: that nobody can know. The caller of the second gets
/// what the caller of the first got.
fn of_two_daemons_that_finish_the_same_the_first_has_answered() {
    let one = pool(&["--v2=1"]).set("prefetch", "1");
    let scene = Scene::of(one.clone());
    let slow = "mode:wait:slow,reply slow";
    scene
        .table
        .insert(&[message(slow, "m").correlation_id("slow")]);
    scene.begun(&[slow]);
    let other = scene.site.start(&[one]);
    other.has_workers(1);
    scene.daemon.signal(Signal::SIGSTOP);
    scene
        .table
        .insert(&[message(slow, "m").correlation_id("quick")]);
    other.eventually("the other to have begun it, too", || {
        scene.record().of(Event::Began, slow).len() == 2
    });
    scene.site.touch("slow");
    answers(&scene, 1);
    scene.daemon.signal(Signal::SIGCONT);
    let answers = answers(&scene, 2);
    let ids: Vec<_> = answers
        .iter()
        .map(|answer| answer.correlation_id.as_deref())
        .collect();
    assert_eq!(ids, [Some("quick"), Some("slow")]);
    scene.daemon.logged(TWICE);
    other.stop();
    scene.finish();
}

/// The entry, the reply and the end of the message are one: whatever dies, none is without the
/// others. What a worker has done and not answered is done again: that is nobody's to know.
fn a_thousand_under_kills_are_each_answered_once() {
    let workers = 2;
    let pool = pool(&["--mode=sleep:1,reply"]).set("workers", &workers.to_string());
    let mut scene = Scene::of(pool.clone());
    let bodies: Vec<String> = (0..1_000).map(|n| format!("message {n}")).collect();
    let twice = |body: &String| {
        let one = message(body, body);
        [one.clone(), one]
    };
    let all: Vec<NewMessage> = bodies.iter().flat_map(twice).collect();
    scene.table.insert(&all);
    for part in 1..=4 {
        scene.daemon.eventually("a part of it to be done", || {
            scene.table.finished() >= 200 * part
        });
        scene.daemon.crash();
        scene.daemon = scene.site.start(std::slice::from_ref(&pool));
    }
    scene.all_done();
    assert_eq!(scene.table.finished(), 1_000);
    let mut answered: Vec<String> = answers(&scene, 2_000)
        .into_iter()
        .map(|one| one.body)
        .collect();
    answered.sort_unstable();
    let mut expected: Vec<String> = bodies
        .iter()
        .flat_map(|body| vec![format!("re: {body}"); 2])
        .collect();
    expected.sort_unstable();
    assert_eq!(answered, expected);
    scene.record().assert_none_lost(&bodies);
    scene.finish();
}

/// With the store in a file that is moved away and back.
fn a_store_that_is_away_is_waited_for() {
    let site =
        Workspace::with_source("[sources.memory]\nkind = \"table\"\nurl = \"sqlite:memory.db\"");
    let pool = Pool::new(&["--v2=1"])
        .text("source", "main")
        .set("idempotency", "{ store = \"memory\" }");
    let scene = Scene::at(site, std::slice::from_ref(&pool));
    let first = "mode:wait:go,reply first";
    scene.table.insert(&[message(first, "m")]);
    scene.begun(&[first]);
    hide(&scene.site, "memory.db", "hidden.db");
    scene.table.insert(&[message("mode:reply second", "n")]);
    scene.site.touch("go");
    let down = "finished messages can't be looked up; nothing is acknowledged, intake pauses";
    scene.daemon.logged(down);
    // The pool hears of it a little later than the log.
    scene.daemon.eventually("the status to say so", || {
        scene.daemon.signal(Signal::SIGUSR1);
        let all = scene
            .daemon
            .records(|record| said(record, "status of the pool"));
        let says = "finished messages can't be looked up: ";
        all.last()
            .is_some_and(|last| field(last, "source_problem").starts_with(says))
    });
    assert_eq!(
        (scene.table.count("answers"), scene.table.count("work")),
        (0, 2)
    );
    hide(&scene.site, "hidden.db", "memory.db");
    answers(&scene, 2);
    scene.all_done();
    scene
        .daemon
        .logged("resolved: finished messages can't be looked up");
    assert_eq!(Table::open(&scene.site.path("memory.db")).finished(), 2);
    scene.table.insert(&[message(first, "m")]);
    assert_eq!(answers(&scene, 3)[2].body, format!("re: {first}"));
    assert_eq!(scene.record().of(Event::Began, first).len(), 1);
    scene.finish();
}

fn hide(site: &Workspace, from: &str, to: &str) {
    for suffix in ["-wal", "-shm", ""] {
        let name = |base: &str| site.path(&format!("{base}{suffix}"));
        if Path::exists(&name(from)) {
            std::fs::rename(name(from), name(to)).unwrap();
        }
    }
}

fn a_store_that_is_not_there_refuses_the_start() {
    let site =
        Workspace::with_source("[sources.memory]\nkind = \"table\"\nurl = \"sqlite:no/where.db\"");
    let pool = Pool::new(&[])
        .text("source", "main")
        .set("idempotency", "{ store = \"memory\" }");
    site.configure_commands(&[pool]);
    let refusal = site.complaint(&["run"], "where.db");
    assert!(refusal.contains("source `memory`"), "{refusal}");
}
