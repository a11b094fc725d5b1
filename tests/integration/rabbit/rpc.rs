//! Questions and answers, by workers of another language that know the published protocol only.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::rabbit::{Letter, RabbitScene, text};
use crate::harness::{Event, Pool, trials};
use crate::python::python;

trials![
    fibonacci_numbers,
    fibonacci_numbers_by_the_direct_reply_to,
    long_sums_in_many_turns,
    a_long_sum_by_the_direct_reply_to,
    a_caller_that_is_gone_costs_nothing,
];

const DIRECT: &str = "amq.rabbitmq.reply-to";
/// How long anything may take: they have many turns on a busy machine.
const LONG: Duration = Duration::from_mins(2);

fn pool(worker: &str) -> Pool {
    let worker = format!("{}/tests/workers/{worker}", env!("CARGO_MANIFEST_DIR"));
    let pool = Pool::of_program(python().to_str().unwrap(), &[&worker]);
    pool.set("workers", "4").attempts(1)
}

fn fibonacci(n: i32) -> i64 {
    let (number, _) = (0..n.abs()).fold((0, 1), |(a, b), _| (b, a + b));
    if n < 0 && n % 2 == 0 { -number } else { number }
}

/// Asks for each number from -20 to 20; what is expected, by correlation id.
fn ask_for_numbers(scene: &RabbitScene, reply_to: &str) -> BTreeMap<String, String> {
    let expected: BTreeMap<String, String> = (-20..=20)
        .map(|n| (n.to_string(), fibonacci(n).to_string()))
        .collect();
    let ask = |n: &String| Letter::new("work", n).correlation_id(n).reply_to(reply_to);
    let questions: Vec<Letter> = expected.keys().map(ask).collect();
    scene.client.publish(&questions);
    expected
}

fn by_id(replies: &[Letter]) -> BTreeMap<String, String> {
    let pair = |reply: &Letter| (reply.id().to_owned(), reply.text().to_owned());
    let pairs: BTreeMap<_, _> = replies.iter().map(pair).collect();
    assert_eq!(pairs.len(), replies.len(), "one answer each: {replies:#?}");
    pairs
}

fn fibonacci_numbers() {
    let scene = RabbitScene::of(pool("fibonacci.py"));
    scene.client.declare("answers", &[]);
    let expected = ask_for_numbers(&scene, "answers");
    scene.all_done();
    assert_eq!(by_id(&scene.client.take_all("answers")), expected);
    scene.finish();
}

fn fibonacci_numbers_by_the_direct_reply_to() {
    let scene = RabbitScene::of(pool("fibonacci.py"));
    let answers = scene.client.listen(DIRECT);
    let expected = ask_for_numbers(&scene, DIRECT);
    let replies: Vec<Letter> = (0..expected.len())
        .map(|_| *answers.recv_timeout(LONG).unwrap())
        .collect();
    assert_eq!(by_id(&replies), expected);
    scene.all_done();
    scene.finish();
}

/// A task that sums the numbers below `total`.
fn sum(total: u64, batch: u64, reply_to: &str) -> Letter {
    let body = json!({ "total": total, "batch": batch, "next": 0, "sum": 0 }).to_string();
    Letter::new("work", body)
        .correlation_id(&format!("{total} in {batch}"))
        .reply_to(reply_to)
        .header("TimeoutMilliseconds", text("100"))
}

fn expected_sum(total: u64) -> String {
    (total * total.saturating_sub(1) / 2).to_string()
}

/// How many turns each task has had that could not be done in one.
fn turns(scene: &RabbitScene) -> BTreeMap<String, usize> {
    let mut turns = BTreeMap::new();
    for body in scene.record().texts(Event::Done) {
        let task: Value = serde_json::from_str(body).unwrap();
        let id = format!("{} in {}", task["total"], task["batch"]);
        *turns.entry(id).or_default() += 1;
    }
    turns
}

fn long_sums_in_many_turns() {
    let totals = [0, 1, 3, 10, 100, 103, 1_000, 10_000];
    let batches = [1, 2, 7, 10, 100, 333, 1_000, 1_234];
    let scene = RabbitScene::of(pool("batch_sum.py"));
    scene.client.declare("answers", &[]);
    let mut expected = BTreeMap::new();
    for total in totals {
        for batch in batches {
            scene.client.publish(&[sum(total, batch, "answers")]);
            expected.insert(format!("{total} in {batch}"), expected_sum(total));
        }
    }
    let count = u32::try_from(expected.len()).unwrap();
    scene.daemon.within(LONG, "all answers", || {
        scene.client.ready("answers") == Some(count)
    });
    scene.all_done();
    let replies = scene.client.take_all("answers");
    assert_eq!(by_id(&replies), expected);
    let turns = turns(&scene);
    assert!(turns["10000 in 1"] > 3, "{turns:?}");
    assert_eq!(turns["10 in 10"], 1, "{turns:?}");
    scene.finish();
}

fn a_long_sum_by_the_direct_reply_to() {
    let scene = RabbitScene::of(pool("batch_sum.py"));
    let answers = scene.client.listen(DIRECT);
    scene.client.publish(&[sum(1_000, 1, DIRECT)]);
    let answer = answers.recv_timeout(LONG).unwrap();
    assert_eq!((answer.text(), answer.id()), ("499500", "1000 in 1"));
    assert!(turns(&scene)["1000 in 1"] > 1);
    scene.all_done();
    scene.finish();
}

/// Nobody keeps the answers to a direct reply-to: the work is done, and that is all.
fn a_caller_that_is_gone_costs_nothing() {
    let scene = RabbitScene::of(Pool::new(&[]));
    let caller = scene.vhost.client();
    let _answers = caller.listen(DIRECT);
    let question = "mode:wait:go,reply";
    caller.publish(&[Letter::new("work", question).reply_to(DIRECT)]);
    scene.begun(&[question]);
    drop(caller);
    scene.site.touch("go");
    scene.all_done();
    scene.record().assert_done_once(&[question]);
    scene.finish();
}
