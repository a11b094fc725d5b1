//! The workers of the pages for who comes from elsewhere: each takes what the other system's clients
//! send. Celery's client is there itself; what Sidekiq and RoadRunner write is written by hand.

pub(crate) mod asyncmonolith;
pub(crate) mod milvaion;

use std::path::{Path, PathBuf};
use std::process::Command;

use lapin::types::AMQPValue;
use serde_json::{Value, json};

use crate::harness::rabbit::{DEAD, Letter, RabbitScene, Vhost, rabbit_site, text};
use crate::harness::{NewMessage, Pool, Scene, Workspace, trials};

trials![tasks_of_celery, jobs_of_sidekiq, jobs_of_roadrunner,];

/// What `tests/run` has prepared for the samples.
pub(crate) fn prepared(what: &str) -> PathBuf {
    let prepared = std::env::var_os("GANGER_TEST_PRODUCERS").map(PathBuf::from);
    let in_target = || PathBuf::from(env!("CARGO_TARGET_TMPDIR")).with_file_name("producers");
    let path = prepared.unwrap_or_else(in_target).join(what);
    assert!(
        path.exists(),
        "no {}: run tests/run, which prepares it",
        path.display()
    );
    path
}

fn top(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// A pool of a sample's workers, which are told where the application's code is.
fn pool(program: &Path, sample: &str, code: &Path) -> Pool {
    let sample = top("samples/migrating").join(sample);
    let args = [&sample, code].map(|path| path.to_str().unwrap());
    Pool::of_program(program.to_str().unwrap(), &args)
}

// -- Celery --

/// The application: what its workers and its clients share.
const TASKS: &str = r#"
import os
from celery import Celery
from celery.exceptions import Ignore, Reject

app = Celery("tasks")

@app.task(name="tasks.add")
def add(x, y):
    return x + y

@app.task(name="tasks.flaky")
def flaky():
    if not os.path.exists("tried"):
        open("tried", "w").close()
        raise OSError("not the first time")
    return "at last"

@app.task(name="tasks.refuse")
def refuse():
    raise Reject("I do not want it", requeue=False)

@app.task(name="tasks.ignore")
def ignore():
    raise Ignore()

@app.task(name="tasks.fail", bind=True)
def fail(self):
    raise ValueError("no good")
"#;

/// Sends as any client of Celery does, and waits for what it expects.
const CLIENT: &str = r#"
import os
from celery import Celery, chain, signature

app = Celery("client", broker=os.environ["AMQP_URL"], backend="rpc://")
app.conf.update(task_default_queue="work", broker_transport_options={"confirm_publish": True})
send = app.send_task

sums = [send("tasks.add", (n,), {"y": n}) for n in range(20)]
later = send("tasks.add", ("soo", "n"), countdown=1)
flaky = send("tasks.flaky")
send("tasks.add", ("too", "late"), expires=-1)
send("tasks.ignore")
send("tasks.add", (1, 1), ignore_result=True)
for bad in ["tasks.refuse", "tasks.unknown", "tasks.fail"]:
    send(bad)
first, second = (signature("tasks.add", (1,), app=app) for _ in range(2))
chain(first.clone((1,)), second, app=app).apply_async()
print([one.get(timeout=60) for one in sums], later.get(timeout=60), flaky.get(timeout=60))
"#;

fn tasks_of_celery() {
    let vhost = Vhost::shared();
    let site = rabbit_site(&vhost.url(), "");
    site.put("tasks.py", TASKS, false);
    let python = prepared("venv/bin/python3");
    let pool = pool(&python, "celery/worker.py", &site.path("tasks.py"))
        .text("cwd", site.path("").to_str().unwrap())
        .env("PYTHONPATH", &python_path(&site))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        // As Celery declares a queue that is not there yet.
        .text("queue_type", "classic")
        .text("unroutable_reply", "drop");
    let scene = RabbitScene {
        daemon: site.start(&[pool]),
        client: vhost.client(),
        site,
        vhost,
    };
    scene.is_consumed();
    let got = run(Command::new(python)
        .args(["-c", CLIENT])
        .env("AMQP_URL", scene.vhost.url()));
    let sums: Vec<u32> = (0..20).map(|n| 2 * n).collect();
    assert_eq!(got, format!("{sums:?} soon at last\n"));
    scene.settled();
    let mut dead: Vec<String> = scene.client.take_all(DEAD).iter().map(why).collect();
    dead.sort();
    let expected = [
        "tasks.add: a chain, a chord or a callback: Celery's own workers do those",
        "tasks.fail: ValueError: no good",
        "tasks.refuse: I do not want it",
        "tasks.unknown: no such task: tasks.unknown",
    ];
    assert_eq!(dead.len(), expected.len(), "{dead:#?}");
    for (found, expected) in dead.iter().zip(expected) {
        let (task, error) = expected.split_once(": ").unwrap();
        assert!(found.starts_with(task) && found.contains(error), "{found}");
    }
    scene.finish();
}

/// The application's folder, and the library for workers.
fn python_path(site: &Workspace) -> String {
    let library = top("worker-sdk/python/src");
    format!("{}:{}", site.path("").display(), library.display())
}

/// Which task it was, and what it died of.
fn why(letter: &Letter) -> String {
    format!("{}: {}", letter.word("task"), letter.word("x-ganger-error"))
}

/// Runs a program to its good end; what it has printed.
fn run(command: &mut Command) -> String {
    let out = command.output().unwrap();
    assert!(out.status.success(), "{out:?}");
    String::from_utf8(out.stdout).unwrap()
}

// -- Sidekiq --

const JOBS: &str = r#"
class HardJob
  attr_accessor :jid
  def perform(name, count)
    raise ArgumentError, "no count" if count.zero?
    line = [jid, name, count].join(" ")
    File.write("done", line, mode: "a")
  end
end
"#;

/// A job as Sidekiq writes it to its queue.
fn job(class: &str, args: &Value) -> NewMessage {
    let job = json!({
        "class": class, "args": args, "queue": "default", "retry": true,
        "jid": "b4a577edbccf1d805744efa9",
        "created_at": 1_234_567_890_123_u64, "enqueued_at": 1_234_567_890_123_u64,
    });
    NewMessage::new(&job.to_string())
}

fn jobs_of_sidekiq() {
    let site = Workspace::new();
    site.put("jobs.rb", JOBS, false);
    let pool = pool(
        Path::new("ruby"),
        "sidekiq/worker.rb",
        &site.path("jobs.rb"),
    );
    let pool = pool.text("cwd", site.path("").to_str().unwrap());
    let scene = Scene::at(site, &[pool]);
    scene.table.insert(&[
        job("HardJob", &json!(["bob", 5])),
        job("HardJob", &json!(["eve", 0])),
        job("SoftJob", &json!([])),
        NewMessage::new("no job"),
    ]);
    scene.settled();
    let done = std::fs::read_to_string(scene.site.path("done")).unwrap();
    assert_eq!(done, "b4a577edbccf1d805744efa9 bob 5");
    let mut dead = scene.table.dead();
    dead.sort_by_key(|letter| letter.attempts);
    let (late, early) = (dead.pop().unwrap(), dead);
    assert!(
        late.attempts == 2 && late.error.contains("no count (ArgumentError)"),
        "{late:?}"
    );
    assert_eq!(early.len(), 2, "{early:#?}");
    assert!(
        early.iter().all(|letter| letter.reason == "rejected"),
        "{early:#?}"
    );
    scene.finish();
}

// -- RoadRunner --

const HANDLERS: &str = r#"<?php
function handle(string $name, string $payload, array $headers): void
{
    match ($name) {
        'App\Mail' => file_put_contents('done', "$payload {$headers['tenant'][0]}\n", FILE_APPEND),
        'App\Broken' => throw new RuntimeException('no good'),
        default => throw new DomainException("no handler: $name"),
    };
}
"#;

/// A job as RoadRunner's AMQP driver publishes it.
fn pushed(name: &str, payload: &str) -> Letter {
    let headers = json!({ "tenant": ["blue"] }).to_string();
    Letter::new("work", payload)
        .with(|properties| properties.with_content_type("application/octet-stream".into()))
        .header("rr_id", text("88ca6810-eab9-473d-a8fd-4b4ae457b7dc"))
        .header("rr_job", text(name))
        .header("rr_pipeline", text("emails"))
        .header(
            "rr_headers",
            AMQPValue::ByteArray(headers.into_bytes().into()),
        )
        .header("rr_delay", AMQPValue::LongLongInt(0))
        .header("rr_priority", AMQPValue::LongLongInt(10))
        .header("rr_auto_ack", AMQPValue::Boolean(false))
}

fn jobs_of_roadrunner() {
    let vhost = Vhost::shared();
    let site = rabbit_site(&vhost.url(), "");
    site.put("handlers.php", HANDLERS, false);
    let code = site.path("handlers.php");
    let pool = pool(Path::new("php"), "roadrunner/worker.php", &code);
    let pool = pool.text("cwd", site.path("").to_str().unwrap());
    let scene = RabbitScene {
        daemon: site.start(&[pool]),
        client: vhost.client(),
        site,
        vhost,
    };
    scene.is_consumed();
    scene.client.publish(&[
        pushed(r"App\Mail", r#"{"to":"ann"}"#),
        pushed(r"App\Broken", ""),
        pushed(r"App\Unknown", ""),
    ]);
    scene.settled();
    let done = std::fs::read_to_string(scene.site.path("done")).unwrap();
    assert_eq!(done, "{\"to\":\"ann\"} blue\n");
    let mut dead: Vec<(String, String)> = scene.client.take_all(DEAD).iter().map(reason).collect();
    dead.sort();
    let dead: Vec<(&str, &str)> = dead.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
    let expected = [(r"App\Broken", "failed"), (r"App\Unknown", "rejected")];
    assert_eq!(dead, expected);
    scene.finish();
}

fn reason(letter: &Letter) -> (String, String) {
    (letter.word("rr_job"), letter.word("x-ganger-reason"))
}
