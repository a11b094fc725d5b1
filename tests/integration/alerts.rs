//! Alerts by webhook: the real daemon, and a server of the tests' own that it tells.

use std::fs;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::harness::tls::{Authority, quoted};
use crate::harness::{
    Api, Daemon, Heard, Hook, Pool, Scene, Table, Word, Workspace, field, look, said, trials,
};
use crate::servers::process::{Server, free_port};

trials![
    a_degraded_pool_in_a_crash_loop_is_told_and_so_is_its_recovery,
    workers_that_crash_beside_others_that_work_are_a_crash_loop,
    many_dead_letters_are_told_and_few_are_not,
    a_source_that_is_away_is_told_once_for_all_its_pools,
    a_rolling_restart_that_has_stopped_is_told_until_one_is_done,
    what_comes_and_goes_is_not_told,
    a_webhook_that_fails_is_asked_again,
    a_webhook_that_never_answers_is_in_nobodys_way,
    a_webhook_that_comes_later_is_told_what_is_still_so,
    what_a_webhook_refuses_is_not_sent_again,
    slack_is_told_in_its_form,
    a_reload_changes_the_webhook_and_takes_it_away,
    a_pool_that_is_gone_is_no_alert,
    a_daemon_that_stops_says_that_it_looks_no_more,
    the_webhook_may_speak_tls,
    what_has_become_of_alerts_can_be_seen,
    the_webhook_can_be_tried,
    an_open_breaker_is_told_with_the_error,
    a_pool_that_stays_paused_is_told,
    a_refused_reload_is_told_until_one_is_carried_out,
    a_webhook_that_fails_is_told_to_the_others,
    workers_that_hang_in_their_start_are_told,
    each_webhook_is_sent_its_form_with_headers_and_a_signature,
    alertmanager_takes_alerts_and_their_ends,
];

const DEGRADED: &str = "firing pool_degraded";
const IS_DEGRADED: &str =
    "the pool is degraded: its workers fail one after the other; one at a time is tried";
const WORKS: &str = "resolved pool_degraded";
const AWAY: &str = "the webhook takes no alerts: they are sent again until it does";
const TABLE: &str = "[sources.main]\nkind = \"table\"\nurl = \"sqlite:queue.db\"\n";

/// The section for that webhook; it is told at once.
fn section(hook: &Hook, more: &str) -> String {
    let url = Value::from(hook.url());
    format!("[alerts]\nwebhook = {url}\nhold = \"0s\"\nwindow = \"2s\"\n{more}\n")
}

fn site(alerts: &str) -> Workspace {
    Workspace::with_sections(&format!("{TABLE}{alerts}"))
}

fn scene(hook: &Hook, more: &str, pools: &[Pool]) -> Scene {
    Scene::at(site(&section(hook, more)), pools)
}

/// Workers that exit at once until the file `up` is in the directory.
fn broken() -> Pool {
    gated("--start=exit:3")
}

/// Workers that have that option until the file `up` is in the directory.
fn gated(option: &str) -> Pool {
    let script = "if [ -e \"$(dirname \"$RECORD\")/up\" ]; then exec \"$@\"; fi; \
                  exec \"$@\" \"$OPTION\"";
    let worker = std::env::current_exe().unwrap();
    let worker = worker.to_str().unwrap();
    let args = ["-c", script, "sh", worker, crate::modes_worker::NAME];
    Pool::of_program("/bin/sh", &args).env("OPTION", option)
}

/// Starts a daemon whose only pool is degraded; it may have come to that already.
fn degraded(hook: &Hook, more: &str) -> Scene {
    scene(hook, &format!("crashes = \"off\"\n{more}"), &[broken()])
}

/// Messages that it was told, but for those about workers that can't start.
fn told(hook: &Hook) -> Vec<String> {
    let told = hook.told().into_iter();
    told.filter(|it| !it.ends_with(" workers_not_starting"))
        .collect()
}

/// Nothing in the log tells the secret parts of the webhook's URL.
fn keeps_the_secret(daemon: &Daemon) {
    let tells = daemon.records(|record| record.to_string().contains("s3cret"));
    assert!(tells.is_empty(), "{tells:#?}");
}

fn reload(scene: &Scene) {
    let times = scene.daemon.times_logged("configuration reloaded");
    scene.daemon.signal(Signal::SIGHUP);
    scene.daemon.eventually("the reload", || {
        scene.daemon.times_logged("configuration reloaded") > times
    });
}

/// Writes another text into its configuration in place of one, and has it read.
fn change(scene: &Scene, old: &str, new: &str) {
    let config = scene.daemon.config();
    let text = fs::read_to_string(config).unwrap();
    assert!(text.contains(old), "no {old:?} in {text}");
    fs::write(config, text.replace(old, new)).unwrap();
    reload(scene);
}

fn a_degraded_pool_in_a_crash_loop_is_told_and_so_is_its_recovery() {
    let hook = Hook::new();
    let scene = scene(&hook, "", &[broken()]);
    let told = hook.is_told(DEGRADED);
    let host = rustix::system::uname();
    let host = host.nodename().to_str().unwrap();
    assert_eq!(told["version"], 1);
    assert_eq!(told["id"], format!("{host}/pool_degraded/work"));
    assert_eq!(told["pool"], "work");
    assert_eq!(told["source"], "main");
    assert_eq!(told["queue"], "work");
    assert_eq!(told["ended"], Value::Null);
    let cause = told["details"]["last_worker_lost"].as_str().unwrap();
    assert!(cause.contains("code 3"), "{told}");
    assert!(told["summary"].as_str().unwrap().contains(cause), "{told}");
    let expected = json!({
        "host": host,
        "version": env!("CARGO_PKG_VERSION"),
        "pid": scene.daemon.pid().as_raw(),
    });
    assert_eq!(told["daemon"], expected);
    let crashes = hook.is_told("firing crash_loop");
    assert!(crashes["details"]["count"].as_u64() >= Some(5), "{crashes}");
    // Many looks later it is as it was.
    scene.daemon.eventually("many crashes", || {
        scene.daemon.times_logged("worker lost") >= 40
    });
    assert_eq!(hook.taken().len(), 3, "{:#?}", hook.heard());
    scene.site.touch("up");
    let over = hook.is_told(WORKS);
    assert_eq!((&over["id"], &over["ended"]), (&told["id"], &"over".into()));
    assert_eq!(over["since"], told["since"]);
    assert!(over["at"].as_f64() > over["since"].as_f64(), "{over}");
    hook.is_told("resolved crash_loop");
    hook.is_told("resolved workers_not_starting");
    assert_eq!(hook.taken().len(), 6, "{:#?}", hook.heard());
    keeps_the_secret(&scene.daemon);
    scene.finish();
}

/// One message kills its workers, again and again, while others are answered.
fn workers_that_crash_beside_others_that_work_are_a_crash_loop() {
    let hook = Hook::new();
    let pool = Pool::new(&[]).set("workers", "2").attempts(1000);
    let pool = pool.set("crashes_max", "1000");
    let alerts = section(&hook, "").replace("window = \"2s\"", "window = \"5s\"");
    let scene = Scene::at(site(&alerts), &[pool]);
    scene.send(&["mode:die-unless:up", "good"]);
    let told = hook.is_told("firing crash_loop");
    let ends = &told["details"]["worker_ends_since_start"];
    assert!(ends["killed"].as_u64() >= Some(5), "{told}");
    assert_eq!(hook.told(), ["firing crash_loop"]);
    scene.site.touch("up");
    hook.is_told("resolved crash_loop");
    scene.all_done();
    // Those that an operator, a recycling or a roll ends are none.
    scene.site.reconfigure(
        &scene.daemon,
        &[Pool::new(&[]).set("recycle", "{ tasks = 1, jitter = 0.0 }")],
    );
    reload(&scene);
    // However soon the workers hear of the new rules.
    scene.daemon.eventually("many to be recycled", || {
        scene.send(&["another"]);
        scene.all_done();
        scene.daemon.times_logged("worker gone") >= 20
    });
    scene.daemon.stop();
    assert_eq!(hook.taken().len(), 2, "{:#?}", hook.heard());
}

fn many_dead_letters_are_told_and_few_are_not() {
    let hook = Hook::new();
    let pool = Pool::new(&[]).attempts(1).text("breaker", "off");
    let scene = scene(&hook, "dead_letters = 3", &[pool]);
    let rejected = |count| vec!["mode:answer:500"; count];
    scene.send(&rejected(3));
    scene.settled();
    assert_eq!(scene.table.dead().len(), 3);
    scene.send(&rejected(30));
    let told = hook.is_told("firing dead_letters");
    let details = &told["details"];
    assert_eq!(
        (&details["limit"], &details["window_seconds"]),
        (&3.into(), &2.0.into())
    );
    assert!(details["count"].as_u64() > Some(3), "{told}");
    assert!(
        details["reasons_since_start"]["failed"].as_u64() > Some(3),
        "{told}"
    );
    hook.is_told("resolved dead_letters");
    assert_eq!(hook.taken().len(), 2, "{:#?}", hook.heard());
    scene.finish();
}

fn a_source_that_is_away_is_told_once_for_all_its_pools() {
    let hook = Hook::new();
    let named = |name: &str| {
        let pool = Pool::new(&["--mode=wait:go"]).text("name", name);
        pool.text("queue", name)
    };
    let scene = scene(&hook, "", &[named("work"), named("other")]);
    scene.send(&["one"]);
    scene.begun(&["one"]);
    let table = Table::open(&scene.site.path("queue.db"));
    table.0.execute_batch("BEGIN IMMEDIATE").unwrap();
    scene.site.touch("go");
    let told = hook.is_told("firing source_down");
    assert_eq!(
        (&told["pool"], &told["source"]),
        (&Value::Null, &"main".into())
    );
    let problem = told["details"]["pools"]["work"].as_str().unwrap();
    assert!(
        told["summary"].as_str().unwrap().contains(problem),
        "{told}"
    );
    table.0.execute_batch("COMMIT").unwrap();
    let over = hook.is_told("resolved source_down");
    assert_eq!(over["id"], told["id"]);
    scene.all_done();
    scene.finish();
}

fn a_rolling_restart_that_has_stopped_is_told_until_one_is_done() {
    let hook = Hook::new();
    // It is told however long others are held.
    let held = section(&hook, "").replace("hold = \"0s\"", "hold = \"1h\"");
    let scene = Scene::at(site(&held), &[Pool::new(&[])]);
    scene.daemon.has_workers(1);
    let roll = |pool: Pool| {
        scene.site.reconfigure(&scene.daemon, &[pool]);
        reload(&scene);
    };
    roll(Pool::new(&["--start=exit:7"]));
    let told = hook.is_told("firing roll_stopped");
    let cause = told["details"]["cause"].as_str().unwrap();
    assert!(cause.contains("code 7"), "{told}");
    let config = scene.daemon.config().to_str().unwrap();
    let status = || scene.site.ganger(&["status", "--config", config]).good();
    assert!(
        status().contains("its rolling restart has stopped"),
        "{}",
        status()
    );
    let pools = || {
        let args = ["status", "--config", config, "--output", "json"];
        scene.site.ganger(&args).json()["pools"][0].clone()
    };
    assert_eq!(pools()["roll_stopped"], cause);
    roll(Pool::new(&["--mode=sleep:1"]));
    let over = hook.is_told("resolved roll_stopped");
    assert_eq!(over["id"], told["id"]);
    assert_eq!(pools()["roll_stopped"], Value::Null);
    assert_eq!(hook.taken().len(), 2, "{:#?}", hook.heard());
    scene.finish();
}

fn what_comes_and_goes_is_not_told() {
    let hook = Hook::new();
    let held = section(&hook, "").replace("hold = \"0s\"", "hold = \"1h\"");
    let scene = Scene::at(site(&held), &[broken()]);
    scene.daemon.logged(IS_DEGRADED);
    scene.site.touch("up");
    let up = scene.daemon.has_workers(1);
    fs::remove_file(scene.site.path("up")).unwrap();
    kill(Pid::from_raw(up[0]), Signal::SIGKILL).unwrap();
    scene.daemon.eventually("it to be degraded again", || {
        scene.daemon.times_logged(IS_DEGRADED) > 1
    });
    scene.daemon.stop();
    assert!(hook.heard().is_empty(), "{:#?}", hook.heard());
}

fn a_webhook_that_fails_is_asked_again() {
    let hook = Hook::new();
    hook.says(&[Word::Status(500), Word::Status(503), Word::Wait(429, 2)]);
    let scene = degraded(&hook, "");
    hook.is_told(DEGRADED);
    let mut heard = hook.has_heard(4);
    heard.truncate(4);
    let ids: Vec<&Value> = heard.iter().map(|it| &it.body["id"]).collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "{heard:#?}");
    for one in &heard {
        let has = |name: &str, value: &str| {
            let mut headers = one.headers.iter();
            headers.any(|(n, v)| n == name && v.starts_with(value))
        };
        assert!(one.path.ends_with("/s3cret?key=t0ps3cret"), "{one:?}");
        assert!(
            has("content-type", "application/json") && has("user-agent", "ganger/"),
            "{one:?}"
        );
    }
    scene.daemon.logged("the webhook takes alerts again");
    let away = scene.daemon.logged(AWAY);
    assert!(field(&away, "error").contains("500"), "{away}");
    assert_eq!(field(&away, "webhook"), hook.address().to_string());
    assert_eq!(scene.daemon.times_logged(AWAY), 1);
    scene.site.touch("up");
    hook.is_told(WORKS);
    assert_eq!(told(&hook), [DEGRADED, WORKS]);
    keeps_the_secret(&scene.daemon);
    scene.finish();
}

fn a_webhook_that_never_answers_is_in_nobodys_way() {
    const COUNT: usize = 2_000;
    let hook = Hook::new();
    hook.always_says(Word::Nothing);
    let other = Pool::new(&[]).text("name", "other").text("queue", "other");
    let pools = [
        broken().text("queue", "broken"),
        other.text("queue", "work"),
    ];
    let scene = scene(&hook, "timeout = \"1h\"", &pools);
    hook.has_heard(1);
    let bodies: Vec<String> = (0..COUNT).map(|n| format!("message {n}")).collect();
    scene.send(&bodies);
    scene.all_done();
    scene.record().assert_done_once(&bodies);
    assert_eq!(hook.heard().len(), 1, "one at a time");
    // Within what a test waits for an end, with all else that there is to do.
    scene.daemon.stop();
    let late = "the webhook has not taken the last alerts within 3s";
    scene.daemon.logged(late);
}

fn a_webhook_that_comes_later_is_told_what_is_still_so() {
    let gone = Hook::new();
    let (address, alerts) = (gone.address(), section(&gone, ""));
    drop(gone);
    let stays = broken().text("name", "stays").text("queue", "stays");
    let pools = [Pool::new(&["--mode=wait:go"]), stays];
    let scene = Scene::at(site(&alerts), &pools);
    let alert = |what: &str, of: &str| {
        let (what, of) = (what.to_owned(), of.to_owned());
        scene.daemon.logs(&what, |record| field(record, "of") == of)
    };
    alert("alert", "stays");
    scene.daemon.logged(AWAY);
    // Something comes and goes while nobody is there to be told.
    scene.send(&["one"]);
    scene.begun(&["one"]);
    let table = Table::open(&scene.site.path("queue.db"));
    table.0.execute_batch("BEGIN IMMEDIATE").unwrap();
    scene.site.touch("go");
    alert("alert", "main");
    table.0.execute_batch("COMMIT").unwrap();
    alert("the alert is over", "main");
    let hook = Hook::at(address);
    hook.is_told(DEGRADED);
    hook.is_told("firing crash_loop");
    scene.daemon.logged("the webhook takes alerts again");
    assert_eq!(scene.daemon.times_logged(AWAY), 1);
    scene.daemon.stop();
    let told = hook.told();
    let never = |it: &String| it.ends_with("source_down");
    assert!(!told.iter().any(never), "{told:?}");
    keeps_the_secret(&scene.daemon);
}

fn what_a_webhook_refuses_is_not_sent_again() {
    for word in [Word::Status(404), Word::Elsewhere] {
        let hook = Hook::new();
        hook.says(&[word]);
        let scene = degraded(&hook, "");
        let refused = "the webhook refuses an alert, which is not sent again";
        let refused = scene.daemon.logged(refused);
        hook.has_heard(2);
        let why = if word == Word::Elsewhere {
            "redirects are not followed"
        } else {
            "404"
        };
        assert!(field(&refused, "error").contains(why), "{refused}");
        scene.site.touch("up");
        hook.is_told(WORKS);
        let heard = hook.heard();
        assert_eq!(heard[0].word, word);
        let again = heard[1..].iter().filter(|it| {
            let same = |name: &str| it.body[name] == heard[0].body[name];
            same("id") && same("state")
        });
        assert_eq!(again.count(), 0, "{heard:#?}");
        keeps_the_secret(&scene.daemon);
        scene.finish();
    }
}

fn slack_is_told_in_its_form() {
    let hook = Hook::new();
    let scene = degraded(&hook, "form = \"slack\"");
    let texts = || {
        let heard = hook.heard().into_iter();
        let texts = heard.map(|it| {
            assert_eq!(it.body.as_object().unwrap().len(), 1, "{it:?}");
            it.body["text"].as_str().unwrap().to_owned()
        });
        texts.collect::<Vec<_>>()
    };
    hook.has_heard(2);
    scene.site.touch("up");
    hook.has_heard(4);
    let texts = texts();
    for start in [
        "[firing] pool `work` is degraded: ",
        "[resolved] pool `work` was degraded: ",
        "[firing] workers of pool `work` can't start: ",
        "[resolved] workers of pool `work` could not start: ",
    ] {
        let told = texts.iter().filter(|text| text.starts_with(start));
        assert_eq!(told.count(), 1, "{start}: {texts:?}");
    }
    let firing = texts.iter().find(|text| text.starts_with("[firing]"));
    let firing = firing.unwrap();
    assert!(
        firing.contains("\nstderr: this worker never starts\n"),
        "{firing}"
    );
    assert!(firing.contains("\nrun: ganger output work 0\n"), "{firing}");
    scene.finish();
}

fn a_reload_changes_the_webhook_and_takes_it_away() {
    let (first, second) = (Hook::new(), Hook::new());
    let scene = degraded(&first, "");
    first.is_told(DEGRADED);
    change(&scene, &first.url(), &second.url());
    second.is_told(DEGRADED);
    assert_eq!(first.is_told(WORKS)["ended"], "unwatched");
    // In another form it is another webhook.
    change(&scene, "hold = \"0s\"", "hold = \"0s\"\nform = \"slack\"");
    assert_eq!(second.is_told(WORKS)["ended"], "unwatched");
    let slack = |start: &str| {
        let texts = second.heard().into_iter();
        let mut texts = texts.filter_map(|it| Some(it.body["text"].as_str()?.to_owned()));
        texts.find(|text| text.starts_with(start))
    };
    look(|| slack("[firing] pool `work` is degraded")).expect("it to be told");
    let text = fs::read_to_string(scene.daemon.config()).unwrap();
    let (before, rest) = text.split_once("[alerts]").unwrap();
    let after = &rest[rest.find("[daemon]").unwrap()..];
    fs::write(scene.daemon.config(), format!("{before}{after}")).unwrap();
    reload(&scene);
    scene.daemon.logged("no alerts are sent any more");
    let last = look(|| slack("[resolved] pool `work` was degraded")).expect("its end");
    let process = format!("process {}", scene.daemon.pid());
    assert!(last.ends_with(&process), "{last}");
    assert!(last.contains("not sent here any more"), "{last}");
    // Both alerts, in each form, begin and end.
    second.has_heard(8);
    assert_eq!(told(&first), [DEGRADED, WORKS]);
    scene.site.touch("up");
    scene.daemon.has_workers(1);
    scene.daemon.stop();
    assert_eq!((first.heard().len(), second.heard().len()), (4, 8));
    keeps_the_secret(&scene.daemon);
}

fn a_pool_that_is_gone_is_no_alert() {
    let hook = Hook::new();
    let bad = broken().text("name", "bad").text("queue", "bad");
    let scene = scene(&hook, "crashes = \"off\"", &[Pool::new(&[]), bad]);
    hook.is_told(DEGRADED);
    // However long the end of an alert must last otherwise.
    scene.site.reconfigure(&scene.daemon, &[Pool::new(&[])]);
    let text = fs::read_to_string(scene.daemon.config()).unwrap();
    fs::write(
        scene.daemon.config(),
        text.replace("hold = \"0s\"", "hold = \"1h\""),
    )
    .unwrap();
    reload(&scene);
    let over = hook.is_told(WORKS);
    assert_eq!(
        (&over["pool"], &over["ended"]),
        (&"bad".into(), &"pool_gone".into())
    );
    scene.finish();
}

fn a_daemon_that_stops_says_that_it_looks_no_more() {
    let hook = Hook::new();
    let pools = [
        broken(),
        Pool::new(&[]).text("name", "fine").text("queue", "fine"),
    ];
    let scene = scene(&hook, "crashes = \"off\"", &pools);
    hook.is_told(DEGRADED);
    scene.daemon.stop();
    assert_eq!(told(&hook), [DEGRADED, WORKS]);
    assert_eq!(hook.is_told(WORKS)["ended"], "daemon_stops");
    assert_eq!(
        scene
            .daemon
            .times_logged("the webhook has not taken the last alerts within 3s"),
        0
    );
}

fn the_webhook_may_speak_tls() {
    let authority = Authority::shared();
    let hook = Hook::new();
    let alerts = |ca: &Authority| {
        let url = Value::from(hook.tls_url(authority));
        let ca = quoted(&ca.path("ca.pem"));
        format!("[alerts]\nwebhook = {url}\nhold = \"0s\"\nca_file = {ca}\n")
    };
    let scene = Scene::at(site(&alerts(authority)), &[broken()]);
    hook.is_told(DEGRADED);
    scene.finish();
    let heard = hook.heard().len();
    let stranger = Authority::called("stranger");
    let scene = Scene::at(site(&alerts(&stranger)), &[broken()]);
    let away = scene.daemon.logged(AWAY);
    assert!(
        field(&away, "error").to_lowercase().contains("certificate"),
        "{away}"
    );
    assert_eq!(hook.heard().len(), heard, "nothing is sent to a stranger");
    // The right one is taken up in place.
    change(
        &scene,
        &quoted(&stranger.path("ca.pem")),
        &quoted(&authority.path("ca.pem")),
    );
    look(|| (hook.heard().len() > heard).then_some(())).expect("it to be told");
    scene.finish();
    fs::remove_file(stranger.path("ca.pem")).unwrap();
    let scene = Scene::at(site(&alerts(&stranger)), &[broken()]);
    let away = scene.daemon.logged(AWAY);
    assert!(
        field(&away, "error").contains("ca.pem` can't be read"),
        "{away}"
    );
    scene.finish();
}

fn what_has_become_of_alerts_can_be_seen() {
    let hook = Hook::new();
    hook.says(&[Word::Status(500)]);
    let admin = "[admin]\nlisten = \"127.0.0.1:0\"\n";
    let site = site(&format!("{}{admin}", section(&hook, "crashes = \"off\"")));
    let scene = Scene::at(site, &[broken()]);
    hook.is_told(DEGRADED);
    let config = scene.daemon.config().to_str().unwrap();
    let status = || {
        let args = ["status", "--config", config, "--output", "json"];
        scene.site.ganger(&args).json()["alerts"].clone()
    };
    scene.daemon.eventually("both to be counted", || {
        let status = status();
        status["sent"] == 2 && status["active"].as_array().unwrap().len() == 2
    });
    let active = |kind: &str| {
        json!({
            "kind": kind, "severity": "critical", "of": "work", "pool": "work",
            "command": "ganger output work 0",
        })
    };
    let without_what_varies = |mut status: Value| {
        for alert in status["active"].as_array_mut().unwrap() {
            let alert = alert.as_object_mut().unwrap();
            assert!(alert.remove("since").unwrap().as_f64() > Some(1e9));
            let summary = alert.remove("summary").unwrap();
            assert!(summary.as_str().unwrap().contains("pool `work`"));
        }
        status
    };
    let expected = json!({
        "webhook": hook.address().to_string(),
        "problem": null,
        "firing": {
            "breaker_open": 0, "crash_loop": 0, "dead_letters": 0, "pool_degraded": 1, "pool_paused": 0,
            "reload_refused": 0, "roll_stopped": 0, "source_down": 0, "waiting": 0, "webhook_failing": 0,
            "workers_not_starting": 1,
        },
        "active": [
            active("pool_degraded"),
            active("workers_not_starting"),
        ],
        "sent": 2,
        "failed": 1,
        "webhooks": [{
            "name": hook.address().to_string(),
            "place": hook.address().to_string(),
            "form": "json",
            "problem": null,
            "sent": 2,
            "failed": 1,
        }],
    });
    assert_eq!(without_what_varies(status()), expected);
    let text = scene.site.ganger(&["status", "--config", config]).good();
    for kind in ["pool_degraded", "workers_not_starting"] {
        assert!(text.contains(&format!("alert {kind} for ")), "{text}");
    }
    assert!(text.contains("run: ganger output work 0"), "{text}");
    scene.site.touch("up");
    hook.is_told(WORKS);
    let records = scene.daemon.records(|record| said(record, "alert"));
    let of_pool = records
        .iter()
        .filter(|record| field(record, "of") == "work");
    assert_eq!(of_pool.count(), 2, "{records:?}");
    scene.finish();
}

fn the_webhook_can_be_tried() {
    let hook = Hook::new();
    let site = site(&section(&hook, ""));
    let pool = Pool::of_program("true", &[]);
    site.configure_commands(std::slice::from_ref(&pool));
    site.ganger(&["check"]).good();
    assert!(hook.heard().is_empty());
    site.ganger(&["check", "--send-alert"]).good();
    assert_eq!(hook.told(), ["firing test", "resolved test"]);
    hook.says(&[Word::Status(403)]);
    let refused = site.ganger(&["check", "--send-alert"]).bad(1);
    assert!(refused.contains("403"), "{refused}");
    assert!(refused.contains(&hook.address().to_string()), "{refused}");
    assert!(!refused.contains("s3cret"), "{refused}");
    let silent = Workspace::new();
    silent.configure_commands(&[pool]);
    let missing = silent.ganger(&["check", "--send-alert"]).bad(1);
    assert!(missing.contains("alerts.webhook is missing"), "{missing}");
}

fn an_open_breaker_is_told_with_the_error() {
    let hook = Hook::new();
    let pool = Pool::new(&["--mode=answer:500"]).attempts(1000);
    let pool = pool.set("breaker", r#"{ failures = 1.0, of = 2, probe = "10ms" }"#);
    let scene = scene(&hook, "dead_letters = \"off\"", &[pool]);
    scene.send(&["one", "two", "three"]);
    let told = hook.is_told("firing breaker_open");
    assert_eq!(told["pool"], "work");
    let error = told["error"].as_str().unwrap();
    assert!(told["summary"].as_str().unwrap().contains(error), "{told}");
    assert!(error.contains("500"), "{told}");
    assert_eq!(told["command"], "ganger status --workers --pool work");
    scene
        .site
        .reconfigure(&scene.daemon, &[Pool::new(&[]).attempts(1000)]);
    reload(&scene);
    hook.is_told("resolved breaker_open");
    scene.all_done();
    scene.finish();
}

fn a_pool_that_stays_paused_is_told() {
    let hook = Hook::new();
    // However long others are held.
    let held = section(&hook, "paused = \"1s\"").replace("hold = \"0s\"", "hold = \"1h\"");
    let scene = Scene::at(site(&held), &[Pool::new(&[])]);
    let config = scene.daemon.config().to_str().unwrap();
    let ganger = |verb: &str| {
        let args = [verb, "work", "--config", config];
        scene.site.ganger(&args).good()
    };
    for verb in ["pause", "drain"] {
        ganger(verb);
        let told = look(|| {
            let told = hook.taken().into_iter();
            let mut told = told.filter(|it| it["kind"] == "pool_paused");
            told.next_back().filter(|last| last["state"] == "firing")
        });
        let told = told.expect("it to be told");
        assert_eq!(told["command"], "ganger resume work");
        ganger("resume");
        look(|| {
            let last = hook.taken().pop()?;
            (last["state"] == "resolved").then_some(())
        })
        .expect("its end");
    }
    assert_eq!(hook.taken().len(), 4, "{:#?}", hook.heard());
    scene.finish();
}

fn a_refused_reload_is_told_until_one_is_carried_out() {
    let hook = Hook::new();
    let scene = scene(&hook, "", &[Pool::new(&[])]);
    let config = scene.daemon.config();
    let valid = fs::read_to_string(config).unwrap();
    fs::write(config, valid.replace("[daemon]", "[daemon]\nlog_lvel = 1")).unwrap();
    scene.daemon.signal(Signal::SIGHUP);
    let told = hook.is_told("firing reload_refused");
    assert!(
        told["error"].as_str().unwrap().contains("log_lvel"),
        "{told}"
    );
    assert_eq!(
        (&told["pool"], &told["source"], &told["command"]),
        (&Value::Null, &Value::Null, &"ganger check --online".into())
    );
    fs::write(config, valid).unwrap();
    reload(&scene);
    hook.is_told("resolved reload_refused");
    scene.finish();
}

fn a_webhook_that_fails_is_told_to_the_others() {
    let (good, bad) = (Hook::new(), Hook::new());
    bad.always_says(Word::Status(500));
    let url = Value::from(bad.url());
    let more = format!("[[alerts.webhooks]]\nname = \"pager\"\nwebhook = {url}\n");
    let scene = degraded(&good, &more);
    let told = good.is_told("firing webhook_failing");
    assert!(told["error"].as_str().unwrap().contains("500"), "{told}");
    assert!(
        told["summary"].as_str().unwrap().contains("`pager`"),
        "{told}"
    );
    let config = scene.daemon.config().to_str().unwrap();
    let status = scene.site.ganger(&["status", "--config", config]).good();
    assert!(
        status.contains("webhook pager took no message: "),
        "{status}"
    );
    bad.always_says(Word::Status(200));
    good.is_told("resolved webhook_failing");
    bad.is_told(DEGRADED);
    let own = bad.told();
    assert!(
        !own.iter().any(|it| it.ends_with("webhook_failing")),
        "{own:?}"
    );
    scene.finish();
}

fn workers_that_hang_in_their_start_are_told() {
    let hook = Hook::new();
    let pool = gated("--start=idle").text("start_timeout", "100ms");
    let scene = scene(&hook, "crashes = \"off\"", &[pool]);
    let told = hook.is_told("firing workers_not_starting");
    let error = told["error"].as_str().unwrap();
    assert!(
        error.contains("did not connect to its pipe within 100ms"),
        "{told}"
    );
    assert_eq!(told["details"]["workers_wanted"], 1);
    scene.site.touch("up");
    hook.is_told("resolved workers_not_starting");
    scene.finish();
}

fn each_webhook_is_sent_its_form_with_headers_and_a_signature() {
    const KEY: &str = "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let hooks: Vec<Hook> = (0..4).map(|_| Hook::new()).collect();
    let forms = ["slack", "teams", "pagerduty", "alertmanager"];
    let more: String = hooks.iter().zip(forms).map(|(hook, form)| {
        let key = match form {
            "pagerduty" => "integration_key = \"k3y\"\n",
            _ => "",
        };
        let url = Value::from(hook.url());
        format!(
            "[[alerts.webhooks]]\nform = \"{form}\"\nwebhook = {url}\nsigning_secret = \"whsec_{KEY}\"\n\
             headers = {{ X-Team = \"s3cret-{form}\" }}\n{key}"
        )
    }).collect();
    let plain = Hook::new();
    let scene = degraded(&plain, &more);
    let told = plain.is_told(DEGRADED);
    let signed = |heard: &Heard| {
        let header = |name: &str| {
            let mut headers = heard.headers.iter();
            headers
                .find(|(n, _)| n == name)
                .map(|(_, value)| value.clone())
        };
        let (id, at) = (
            header("webhook-id").unwrap(),
            header("webhook-timestamp").unwrap(),
        );
        let key = STANDARD.decode(KEY).unwrap();
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &key);
        let text = [format!("{id}.{at}.").as_bytes(), &heard.raw].concat();
        let mac = STANDARD.encode(ring::hmac::sign(&key, &text));
        assert_eq!(header("webhook-signature"), Some(format!("v1,{mac}")));
        header("x-team").unwrap()
    };
    for (hook, form) in hooks.iter().zip(forms) {
        for heard in hook.has_heard(2) {
            assert_eq!(signed(&heard), format!("s3cret-{form}"));
        }
        let text = hook
            .heard()
            .iter()
            .map(|it| it.body.to_string())
            .collect::<String>();
        for part in [
            "is degraded",
            "this worker never starts",
            "ganger output work 0",
        ] {
            assert!(text.contains(part), "{form} without {part}: {text}");
        }
    }
    let header = plain.heard()[0]
        .headers
        .iter()
        .any(|(name, _)| name.starts_with("webhook-"));
    assert!(!header, "it has no secret to sign with");
    assert_eq!(hooks[2].heard()[0].body["routing_key"], "k3y");
    assert_eq!(told["stderr"], json!(["this worker never starts"]));
    keeps_the_secret(&scene.daemon);
    scene.finish();
}

/// The real one: it refuses what is not as its API has it.
fn alertmanager_takes_alerts_and_their_ends() {
    let site = Workspace::new();
    let config = "route: {receiver: nobody}\nreceivers: [{name: nobody}]\n";
    site.put("alertmanager.yml", config, false);
    let port = free_port();
    let _server = Server::start("prometheus-alertmanager", |command| {
        let file = site.path("alertmanager.yml");
        let storage = site.path("alertmanager");
        command.args([
            &format!("--config.file={}", file.display()),
            &format!("--storage.path={}", storage.display()),
            &format!("--web.listen-address=127.0.0.1:{port}"),
            "--cluster.listen-address=",
        ]);
    });
    let url = format!("http://127.0.0.1:{port}/api/v2/alerts");
    let section = format!(
        "[alerts]\nwebhook = \"{url}\"\nform = \"alertmanager\"\nhold = \"0s\"\ncrashes = \"off\"\n"
    );
    let scene = Scene::at(self::site(&section), &[broken()]);
    let api = Api::Port(port);
    let firing = || {
        let alerts = api.get("/api/v2/alerts").json();
        let alerts = alerts.as_array().unwrap().iter();
        let alerts = alerts.map(|it| (it["labels"]["alertname"].to_string(), it.clone()));
        alerts.collect::<std::collections::BTreeMap<String, Value>>()
    };
    // By then it answers: what it did not take before is sent again.
    scene.daemon.eventually("both to be taken", || {
        let taken = scene.daemon.config().to_str().unwrap();
        let args = ["status", "--config", taken, "--output", "json"];
        scene.site.ganger(&args).json()["alerts"]["sent"].as_u64() >= Some(2)
    });
    let degraded = firing()["\"pool_degraded\""].clone();
    assert_eq!(degraded["status"]["state"], "active");
    assert_eq!(degraded["labels"]["pool"], "work");
    assert_eq!(degraded["annotations"]["command"], "ganger output work 0");
    let stderr = &degraded["annotations"]["stderr"];
    assert!(
        stderr
            .as_str()
            .unwrap()
            .contains("this worker never starts")
    );
    scene.site.touch("up");
    scene
        .daemon
        .eventually("both to be over", || firing().is_empty());
    let refused = "the webhook refuses an alert, which is not sent again";
    assert_eq!(scene.daemon.times_logged(refused), 0);
    scene.finish();
}
