//! Schedules whose messages go to RabbitMQ, from a ledger in a file of its own.

use std::time::Duration;

use lapin::ExchangeKind;
use lapin::options::QueueDeclareOptions;
use nix::sys::signal::Signal;
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::harness::rabbit::{DEAD, RabbitScene, Vhost, rabbit_site, rough, text};
use crate::harness::{Daemon, Event, Flow, Pool, Proxy, Workspace, field, trials};
use crate::ledger::{
    becomes, each_slot_was_one_occurrence, logs, occurrences, schedule, schedule_to, secondly,
    states, trigger,
};

trials![
    each_slot_is_one_occurrence_whatever_becomes_of_two_daemons,
    a_broker_that_is_away_costs_no_slot,
    nothing_but_a_source_a_pool_and_a_schedule_is_needed,
    a_run_that_fails_is_retried_and_sent_back,
    a_run_whose_daemon_is_lost_goes_on_elsewhere,
    a_ledger_that_is_away_is_told_later_and_holds_up_no_work,
    what_can_not_be_published_holds_up_nothing_else,
    what_closes_the_connection_holds_up_nothing_else,
    an_exchange_routes_the_messages,
    a_task_in_steps_is_one_run,
    a_run_that_a_worker_has_is_cancelled_and_sent_back,
    a_run_whose_message_the_broker_has_is_cancelled_when_it_is_delivered,
    a_run_whose_message_can_not_be_published_is_cancelled,
    a_run_has_the_limits_of_its_schedule,
    a_slot_replaces_the_run_before_it,
    what_a_run_writes_is_in_its_log,
    a_ledger_that_is_away_costs_lines_and_holds_up_no_worker,
];

/// The daemon's word on a source that does not take messages.
const UNSENT: &str = "messages of schedules can't be published; they stay in the ledger, retrying";
const BLOW_EVERY: Duration = Duration::from_millis(600);
const BLOWS: usize = 12;

/// A schedule that runs when it is triggered.
fn asked(name: &str, body: &str) -> String {
    let keys = format!("at = \"2100-01-01T00:00:00\"\nbody = \"{body}\"");
    schedule(name, &keys)
}

/// A daemon with these schedules and a ledger of its own, as commands find it.
fn scene(pool: Pool, schedules: &str) -> RabbitScene {
    let pools = [pool.after(schedules)];
    let scene = RabbitScene::at(Vhost::shared(), "", &pools);
    scene.site.configure_commands(&pools);
    scene.daemon.entered();
    scene
}

fn sql(site: &Workspace) -> Connection {
    Connection::open(site.path("ledger.db")).unwrap()
}

fn nothing_but_a_source_a_pool_and_a_schedule_is_needed() {
    let scene = scene(Pool::new(&[]), &asked("long", "mode:wait:go"));
    let id = trigger(&scene.site, "long");
    becomes(&scene.site, &scene.daemon, &id, "running");
    scene.site.touch("go");
    let ended = becomes(&scene.site, &scene.daemon, &id, "completed");
    assert_eq!(states(&ended), ["queued", "queued", "running", "completed"]);
    assert_eq!(ended["events"][1]["note"], "published to main");
    assert_eq!(ended["attempt"], 1);
    assert!(ended["duration_ms"].as_u64().unwrap() >= 200, "{ended}");
    scene.all_done();
    let body = "mode:wait:go";
    assert_eq!(scene.record().of(Event::Began, body).len(), 1);
    // Its slots run, too, and most are too short to be shown as running.
    let often = schedule("often", "every = \"1s\"\nbody = \"x\"\noverlap = \"allow\"");
    scene.reload(&[Pool::new(&[]).after(&often)]);
    scene.daemon.eventually("a slot to run", || {
        // It may not be entered yet.
        let all = ["occurrence", "list", "-o", "json"];
        let all = scene.site.ganger(&all).json();
        let all = all.as_array().unwrap().iter();
        let mut often = all.filter(|one| one["schedule"] == "often");
        often.any(|one| one["state"] == "completed")
    });
    scene.daemon.stop();
}

fn a_run_that_fails_is_retried_and_sent_back() {
    let fails = asked(
        "fails",
        "mode:unless:mended:500,note:header:ganger-schedule",
    );
    let scene = scene(Pool::new(&[]), &fails);
    let id = trigger(&scene.site, "fails");
    let failed = becomes(&scene.site, &scene.daemon, &id, "failed");
    assert_eq!(
        (&failed["attempt"], &failed["reason"]),
        (&json!(2), &json!("failed"))
    );
    assert!(failed["error"].is_string());
    scene
        .daemon
        .eventually("the letter", || scene.client.ready(DEAD) == Some(1));
    let config = scene.daemon.config().to_str().unwrap().to_owned();
    let dead = ["dead", "list", "-o", "json", "--config", &config];
    let letter = scene.site.ganger(&dead).json()[0].clone();
    assert_eq!(letter["message_id"], json!(id), "{letter}");
    assert_eq!(letter["correlation_id"], json!(id));
    assert!(
        letter["headers"]["x-ganger-occurrence"].is_null(),
        "{letter}"
    );
    scene.site.touch("mended");
    let retry = [
        "dead", "retry", "--all", "--source", "main", "--config", &config,
    ];
    scene.site.ganger(&retry).good();
    becomes(&scene.site, &scene.daemon, &id, "completed");
    scene.all_done();
    scene.finish();
}

fn a_run_whose_daemon_is_lost_goes_on_elsewhere() {
    let mut scene = scene(Pool::new(&[]), &asked("long", "mode:wait:go"));
    let id = trigger(&scene.site, "long");
    becomes(&scene.site, &scene.daemon, &id, "running");
    let other = scene
        .site
        .start(&[Pool::new(&[]).after(&asked("long", "mode:wait:go"))]);
    scene.daemon.crash();
    other.eventually("the other daemon to have it", || {
        scene.record().of(Event::Began, "mode:wait:go").len() == 2
    });
    scene.site.touch("go");
    becomes(&scene.site, &other, &id, "completed");
    // No overlap is left.
    let next = trigger(&scene.site, "long");
    becomes(&scene.site, &other, &next, "completed");
    scene.daemon = other;
    scene.finish();
}

fn each_slot_is_one_occurrence_whatever_becomes_of_two_daemons() {
    let vhost = Vhost::shared();
    let site = rabbit_site(&vhost.url(), "");
    let pools = [secondly()];
    site.configure_commands(&pools);
    let mut daemons = [(); 2].map(|()| site.start(&pools));
    for blow in 0..BLOWS {
        std::thread::park_timeout(BLOW_EVERY);
        let victim = &mut daemons[blow % 2];
        match blow % 5 {
            4 => {
                victim.signal(Signal::SIGSTOP);
                std::thread::park_timeout(BLOW_EVERY);
                victim.signal(Signal::SIGCONT);
            }
            _ => {
                victim.crash();
                *victim = site.start(&pools);
            }
        }
    }
    each_slot_was_one_occurrence(&site);
    let left = "SELECT count(*) FROM schedule_outbox";
    // A message may be done before its row is deleted.
    daemons[0].eventually("the outbox to be empty", || {
        let left: i64 = sql(&site).query_row(left, [], |row| row.get(0)).unwrap();
        left == 0
    });
    daemons.iter().for_each(Daemon::stop);
}

fn a_broker_that_is_away_costs_no_slot() {
    let node = rough();
    let vhost = node.vhost();
    let site = rabbit_site(&vhost.url(), "");
    let pools = [secondly()];
    site.configure_commands(&pools);
    let daemon = site.start(&pools);
    let done = || site.record().all(Event::Done).len();
    daemon.eventually("some slots to run", || done() > 10);
    node.kill();
    daemon.logged(UNSENT);
    let waiting = "SELECT count(*) FROM schedule_outbox";
    let waiting = || sql(&site).query_row(waiting, [], |row| row.get::<_, i64>(0));
    daemon.eventually("slots of the outage", || waiting().unwrap() > 15);
    let ran = done();
    node.start_again();
    daemon.logged("messages of schedules are published again");
    daemon.eventually("further slots to run", || done() > ran + 20);
    each_slot_was_one_occurrence(&site);
    assert_eq!(daemon.times_logged(UNSENT), 1);
    daemon.stop();
}

/// Somebody writes to its file for as long as the messages are worked on.
fn a_ledger_that_is_away_is_told_later_and_holds_up_no_work() {
    let bodies = ["mode:wait:go", "mode:wait:go,answer:400"];
    let schedules = asked("good", bodies[0]) + &asked("bad", bodies[1]);
    let scene = scene(Pool::new(&[]).set("workers", "2"), &schedules);
    let ids = ["good", "bad"].map(|name| trigger(&scene.site, name));
    for id in &ids {
        becomes(&scene.site, &scene.daemon, id, "running");
    }
    let mut other = sql(&scene.site);
    let writing = rusqlite::TransactionBehavior::Immediate;
    let writing = other.transaction_with_behavior(writing).unwrap();
    scene.site.touch("go");
    scene.settled();
    scene
        .daemon
        .logged("the ledger can't be written: it shows later what becomes of messages; retrying");
    let state = |id: &str| {
        let args = ["occurrence", "show", id, "-o", "json"];
        scene.site.ganger(&args).json()["state"].clone()
    };
    assert_eq!(
        ids.each_ref().map(|id| state(id)),
        [json!("running"), json!("running")]
    );
    writing.rollback().unwrap();
    becomes(&scene.site, &scene.daemon, &ids[0], "completed");
    becomes(&scene.site, &scene.daemon, &ids[1], "failed");
    scene
        .daemon
        .logged("the ledger shows again what becomes of messages");
    scene.daemon.stop();
}

fn what_can_not_be_published_holds_up_nothing_else() {
    let keys = "at = \"2100-01-01T00:00:00\"";
    let nowhere = schedule_to("queue = \"nowhere\"", "nowhere", keys);
    let away = schedule_to("queue = \"work\"\nsource = \"away\"", "away", keys);
    let vhost = Vhost::shared();
    // Connections that are accepted and never answered.
    let proxy = Proxy::to(vhost.port());
    proxy.flow(Flow {
        up_is_stalled: true,
        ..Flow::default()
    });
    let away_url = vhost.url_by(proxy.port());
    let sections = format!("[sources.away]\nkind = \"rabbitmq\"\nurl = \"{away_url}\"\n");
    let good = asked("good", "fine");
    let pools = [Pool::new(&[]).text("source", "main").after(
        &[&sections, &source(&good), &source(&nowhere), &away]
            .map(String::as_str)
            .concat(),
    )];
    let scene = RabbitScene::at(vhost, "", &pools);
    scene.site.configure_commands(&pools);
    scene.daemon.entered();
    let lost = ["nowhere", "away"].map(|name| trigger(&scene.site, name));
    scene.daemon.logged(UNSENT);
    let id = trigger(&scene.site, "good");
    becomes(&scene.site, &scene.daemon, &id, "completed");
    let config = scene.daemon.config().to_str().unwrap().to_owned();
    let problem = scene.daemon.eventually_some("the status to tell it", || {
        let status = scene
            .site
            .ganger(&["status", "-o", "json", "--config", &config]);
        let status = status.json();
        let outgoing = status["ledger"]["outgoing"].as_array().unwrap().clone();
        let main = outgoing.into_iter().find(|one| one["source"] == "main")?;
        main["problem"].as_str().map(str::to_owned)
    });
    assert!(problem.contains("there is no queue `nowhere`"), "{problem}");
    scene.client.declare("nowhere", &[]);
    scene
        .daemon
        .eventually("the message", || scene.client.ready("nowhere") == Some(1));
    let letter = scene.client.take("nowhere").unwrap();
    assert_eq!(letter.word("x-ganger-occurrence"), lost[0]);
    let shown = scene
        .site
        .ganger(&["occurrence", "show", &lost[1], "-o", "json"]);
    assert_eq!(shown.json()["state"], "queued");
    scene.daemon.stop();
}

/// The broker closes the channel of those who ask for another connection's queue, or for an exchange that there is
/// not.
fn what_closes_the_connection_holds_up_nothing_else() {
    let vhost = Vhost::shared();
    let owner = vhost.client();
    let exclusive = QueueDeclareOptions {
        exclusive: true,
        ..QueueDeclareOptions::default()
    };
    owner.declare_with("locked", exclusive, &[]);
    let keys = "at = \"2100-01-01T00:00:00\"";
    let schedules = schedule_to("queue = \"locked\"", "locked", keys)
        + &schedule_to("exchange = \"missing\"\nrouting_key = \"k\"", "lost", keys)
        + &asked("good", "fine");
    let pools = [Pool::new(&[]).after(&schedules)];
    let scene = RabbitScene::at(vhost, "", &pools);
    scene.site.configure_commands(&pools);
    scene.daemon.entered();
    let closing = ["locked", "lost"].map(|name| trigger(&scene.site, name));
    scene.daemon.logged(UNSENT);
    let id = trigger(&scene.site, "good");
    becomes(&scene.site, &scene.daemon, &id, "completed");
    drop(owner);
    scene.client.declare("locked", &[]);
    scene
        .daemon
        .eventually("the message", || scene.client.ready("locked") == Some(1));
    let message = scene.client.take("locked").unwrap();
    assert_eq!(message.word("x-ganger-occurrence"), closing[0]);
    let shown = ["occurrence", "show", &closing[1], "-o", "json"];
    assert_eq!(scene.site.ganger(&shown).json()["state"], "queued");
    scene.daemon.stop();
}

/// Names the source of a schedule, where there are several.
fn source(schedule: &str) -> String {
    format!("{schedule}source = \"main\"\n")
}

fn what_a_run_writes_is_in_its_log() {
    let body = "mode:print:one,progress:half,log:warn:two,unless:fine:500";
    let scene = scene(Pool::new(&["--v2=1"]), &asked("logs", body));
    let id = trigger(&scene.site, "logs");
    becomes(&scene.site, &scene.daemon, &id, "failed");
    let lines = logs::becomes(&scene.site, &scene.daemon, &id, 4);
    assert_eq!(logs::of(&lines, "stdout"), ["1 info one", "2 info one"]);
    let frames = ["1 warn two step=log", "2 warn two step=log"];
    assert_eq!(logs::of(&lines, "log"), frames);
    let show = ["occurrence", "show", &id, "-o", "json"];
    assert_eq!(scene.site.ganger(&show).json()["progress"], "half");
    scene.daemon.stop();
}

/// Somebody writes to its file. A line has 8 KB, of which memory holds about five hundred.
fn a_ledger_that_is_away_costs_lines_and_holds_up_no_worker() {
    const LINES: u64 = 900;
    let lines = ",print-bytes:8000".repeat(usize::try_from(LINES).unwrap());
    let logs = asked("logs", &format!("mode:wait:go{lines}"));
    let limits = "[ledger]\nlog = { lines = 10000, bytes = \"64MiB\" }\n";
    let scene = scene(Pool::new(&["--v2=1"]), &(logs + limits));
    let id = trigger(&scene.site, "logs");
    let id = id.as_str();
    becomes(&scene.site, &scene.daemon, id, "running");
    let mut other = sql(&scene.site);
    let writing = rusqlite::TransactionBehavior::Immediate;
    let writing = other.transaction_with_behavior(writing).unwrap();
    scene.site.touch("go");
    scene.settled();
    let away = "the ledger can't be written: lines of the logs of runs may be dropped; retrying";
    scene.daemon.logged(away);
    writing.rollback().unwrap();
    becomes(&scene.site, &scene.daemon, id, "completed");
    scene.daemon.eventually("every line to be counted", || {
        let shown = scene.site.ganger(&["occurrence", "show", id, "-o", "json"]);
        let shown = shown.json();
        let count = |key: &str| shown[key].as_u64().unwrap();
        let (lines, dropped) = (count("log_lines"), count("log_dropped"));
        lines > 0 && dropped > 0 && lines + dropped == LINES
    });
    scene
        .daemon
        .logged("the ledger can be written again: it shows the logs of runs");
    scene.daemon.stop();
}

fn an_exchange_routes_the_messages() {
    let vhost = Vhost::shared();
    let client = vhost.client();
    client.declare("work", &[("x-queue-type", text("quorum"))]);
    client.bind("events", ExchangeKind::Topic, "day.*", "work");
    let place = |key: &str| format!("exchange = \"events\"\nrouting_key = \"{key}\"");
    let keys = "at = \"2100-01-01T00:00:00\"\nbody = \"x\"";
    let schedules = schedule_to(&place("day.end"), "routed", keys)
        + &schedule_to(&place("night"), "unrouted", keys);
    let pools = [Pool::new(&[]).after(&schedules)];
    let scene = RabbitScene::at(vhost, "", &pools);
    scene.site.configure_commands(&pools);
    scene.daemon.entered();
    let id = trigger(&scene.site, "routed");
    becomes(&scene.site, &scene.daemon, &id, "completed");
    trigger(&scene.site, "unrouted");
    let told: Value = scene.daemon.logged(UNSENT);
    let problem = field(&told, "problem");
    let expected = "the exchange `events` routes a message with the key `night` to no queue";
    assert!(problem.contains(expected), "{problem}");
    scene.daemon.stop();
}

fn a_task_in_steps_is_one_run() {
    let scene = scene(Pool::new(&[]), &asked("steps", "mode:reply:work"));
    let id = trigger(&scene.site, "steps");
    let ended = becomes(&scene.site, &scene.daemon, &id, "completed");
    scene.all_done();
    let record = scene.record();
    assert_eq!(
        record.texts(Event::Done),
        ["mode:reply:work", "re: mode:reply:work"],
        "{ended}"
    );
    scene.finish();
}

fn last_note(occurrence: &Value) -> &Value {
    &occurrence["events"].as_array().unwrap().last().unwrap()["note"]
}

fn cancel(site: &Workspace, id: &str) -> bool {
    let cancel = [
        "occurrence",
        "cancel",
        id,
        "--reason",
        "a typo",
        "-o",
        "json",
    ];
    site.ganger(&cancel).json()["ended"].as_bool().unwrap()
}

fn a_run_that_a_worker_has_is_cancelled_and_sent_back() {
    let body = "mode:until-cancelled,answer:500";
    let scene = scene(Pool::new(&["--v2=1"]).attempts(20), &asked("long", body));
    let id = trigger(&scene.site, "long");
    becomes(&scene.site, &scene.daemon, &id, "running");
    assert!(!cancel(&scene.site, &id));
    let cancelled = becomes(&scene.site, &scene.daemon, &id, "cancelled");
    assert_eq!(last_note(&cancelled), "a typo");
    assert_eq!(cancelled["cancel_request"], Value::Null);
    scene
        .daemon
        .eventually("the letter", || scene.client.ready(DEAD) == Some(1));
    scene.site.put("fine", "fine", false);
    let back = ["occurrence", "retry", &id, "--body", "fine"];
    scene.site.ganger(&back).good();
    becomes(&scene.site, &scene.daemon, &id, "completed");
    assert_eq!(scene.record().of(Event::Began, body).len(), 1);
    let again = scene.site.ganger(&["occurrence", "retry", &id]).bad(1);
    assert!(again.contains("is completed"), "{again}");
    scene.all_done();
    scene.finish();
}

fn a_run_whose_message_the_broker_has_is_cancelled_when_it_is_delivered() {
    let schedules = asked("quick", "quick") + &asked("other", "other");
    let scene = scene(Pool::new(&[]), &schedules);
    let config = scene.daemon.config().to_str().unwrap().to_owned();
    let ganger = |args: &[&str]| scene.site.ganger(&[args, &["--config", &config]].concat());
    ganger(&["pause", "work"]).good();
    let id = trigger(&scene.site, "quick");
    scene.daemon.eventually("it to be published", || {
        let shown = scene.site.ganger(&["occurrence", "show", &id]);
        shown.good().contains("published to main")
    });
    assert!(!cancel(&scene.site, &id));
    let other = trigger(&scene.site, "other");
    scene
        .daemon
        .logged("a run is to be cancelled: cancelling messages as they arrive");
    ganger(&["resume", "work"]).good();
    let cancelled = becomes(&scene.site, &scene.daemon, &id, "cancelled");
    assert_eq!(last_note(&cancelled), "a typo");
    becomes(&scene.site, &scene.daemon, &other, "completed");
    assert!(scene.record().of(Event::Began, "quick").is_empty());
    scene
        .daemon
        .eventually("the letter", || scene.client.ready(DEAD) == Some(1));
    scene.daemon.stop();
}

fn a_run_whose_message_can_not_be_published_is_cancelled() {
    let keys = "at = \"2100-01-01T00:00:00\"";
    let nowhere = schedule_to("queue = \"nowhere\"", "nowhere", keys);
    let scene = scene(Pool::new(&[]), &nowhere);
    let id = trigger(&scene.site, "nowhere");
    scene.daemon.logged(UNSENT);
    // It is put off for a while when it was refused.
    cancel(&scene.site, &id);
    let cancelled = becomes(&scene.site, &scene.daemon, &id, "cancelled");
    assert_eq!(last_note(&cancelled), "a typo");
    let left = "SELECT count(*) FROM schedule_outbox";
    let left: i64 = sql(&scene.site)
        .query_row(left, [], |row| row.get(0))
        .unwrap();
    assert_eq!(left, 0);
    scene.daemon.stop();
}

fn a_run_has_the_limits_of_its_schedule() {
    let limits = "timeout = \"200ms\"\nretry = { attempts = 1 }\n";
    let schedules = asked("hangs", "mode:hang")
        + limits
        + &asked("fails", "mode:answer:500")
        + "retry = { attempts = 3 }\n";
    let scene = scene(Pool::new(&[]).text("timeout_grace", "100ms"), &schedules);
    let failed = trigger(&scene.site, "fails");
    let failed = becomes(&scene.site, &scene.daemon, &failed, "failed");
    assert_eq!(failed["attempt"], 3);
    let late = trigger(&scene.site, "hangs");
    let late = becomes(&scene.site, &scene.daemon, &late, "timed_out");
    assert_eq!(late["attempt"], 1);
    scene.daemon.stop();
}

fn a_slot_replaces_the_run_before_it() {
    let keys = "every = \"1s\"\noverlap = \"replace\"\nlimit = 3\nmisfire = { grace = \"1h\" }\n\
                body = \"mode:until-cancelled,answer:500\"";
    let scene = scene(Pool::new(&["--v2=4"]), &schedule("often", keys));
    let replaced = |one: &&Value| one["reason"] == "replaced";
    let all = scene.daemon.eventually_some("two runs to be replaced", || {
        let all = occurrences(&scene.site, "often");
        (all.iter().filter(replaced).count() == 2).then_some(all)
    });
    assert!(
        all.iter().any(|one| one["started_at"].is_string()),
        "{all:#?}"
    );
    let last = all[0]["id"].as_str().unwrap();
    becomes(&scene.site, &scene.daemon, last, "running");
    assert!(!cancel(&scene.site, last));
    becomes(&scene.site, &scene.daemon, last, "cancelled");
    scene.daemon.stop();
}
