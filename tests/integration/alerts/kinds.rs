//! The kinds of alerts: what is one, what it says, and when it is over.

use std::fs;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::{
    DEGRADED, IS_DEGRADED, WORKS, broken, degraded, gated, keeps_the_secret, reload, scene,
    section, site,
};
use crate::harness::{Hook, Pool, Scene, Table, Word, field, look, said, trials};
use crate::ledger;

trials![
    a_degraded_pool_in_a_crash_loop_is_told_and_so_is_its_recovery,
    workers_that_crash_beside_others_that_work_are_a_crash_loop,
    many_dead_letters_are_told_and_few_are_not,
    a_source_that_is_away_is_told_once_for_all_its_pools,
    a_rolling_restart_that_has_stopped_is_told_until_one_is_done,
    what_comes_and_goes_is_not_told,
    a_pool_that_is_gone_is_no_alert,
    what_has_become_of_alerts_can_be_seen,
    an_open_breaker_is_told_with_the_error,
    a_pool_that_stays_paused_is_told,
    a_refused_reload_is_told_until_one_is_carried_out,
    a_webhook_that_fails_is_told_to_the_others,
    workers_that_hang_in_their_start_are_told,
    a_stopped_schedule_is_told_until_it_goes_on,
    an_overdue_schedule_is_told_until_it_runs,
    messages_that_can_not_be_published_are_told,
];

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
            "breaker_open": 0, "crash_loop": 0, "dead_letters": 0, "ledger_behind": 0, "ledger_down": 0,
            "pool_degraded": 1, "pool_paused": 0, "reload_refused": 0, "roll_stopped": 0, "schedule_overdue": 0,
            "schedule_stopped": 0, "schedule_unsent": 0, "source_down": 0, "waiting": 0,
            "webhook_failing": 0,
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
        status.contains("webhook pager did not accept the last message: "),
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

/// The only worker has the first run in hand when the second is due.
fn an_overdue_schedule_is_told_until_it_runs() {
    let hook = Hook::new();
    let keys = "every = \"1s\"\nlimit = 2\noverlap = \"allow\"\nbody = \"mode:wait:go\"\n\
                expect = { within = \"1s\" }";
    let pool = Pool::new(&[]).after(&ledger::schedule("often", keys));
    let pool = pool.set("workers", "1").set("prefetch", "1");
    let scene = scene(&hook, "", &[pool]);
    let told = hook.is_told("firing schedule_overdue");
    let summary = told["summary"].as_str().unwrap();
    assert!(
        summary.starts_with("schedule `often` is overdue: the run of ")
            && summary.ends_with(" has not started within 1s"),
        "{told}"
    );
    assert_eq!(told["command"], "ganger schedule show often");
    scene.site.touch("go");
    hook.is_told("resolved schedule_overdue");
    scene.finish();
}

fn a_stopped_schedule_is_told_until_it_goes_on() {
    let hook = Hook::new();
    let yearly = "[[schedules]]\nname = \"yearly\"\nqueue = \"work\"\ncron = \"@yearly\"\n";
    let scene = scene(&hook, "", &[Pool::new(&[]).after(yearly)]);
    scene.daemon.entered();
    let insert = "INSERT INTO schedules (name, definition) VALUES ('nonsense', '{}')";
    scene.table.run(insert).unwrap();
    let told = hook.is_told("firing schedule_stopped");
    let summary = told["summary"].as_str().unwrap();
    assert!(
        summary.starts_with("schedule `nonsense` is broken, and dispatches nothing: "),
        "{told}"
    );
    assert_eq!(told["command"], "ganger schedule show nonsense");
    assert_eq!(told["details"]["state"], "broken");
    let correct =
        r#"UPDATE schedules SET definition = '{"cron": "@yearly", "queue": "work"}', wake_at = 0"#;
    scene.table.run(correct).unwrap();
    hook.is_told("resolved schedule_stopped");
    scene.finish();
}

fn messages_that_can_not_be_published_are_told() {
    let hook = Hook::new();
    // Nobody listens there.
    let away = "[sources.away]\nkind = \"rabbitmq\"\nurl = \"amqp://127.0.0.1:1\"\n\
                [[schedules]]\nname = \"soon\"\nqueue = \"work\"\nsource = \"away\"\nevery = \"1s\"\nlimit = 1\n";
    let pool = Pool::new(&[]).text("source", "main").after(away);
    let scene = scene(&hook, "", &[pool]);
    let told = hook.is_told("firing schedule_unsent");
    let summary = told["summary"].as_str().unwrap();
    let begin = "1 message(s) of schedules can't be published to source `away`: ";
    assert!(summary.starts_with(begin), "{told}");
    assert_eq!(
        (&told["source"], &told["details"]["messages"]),
        (&json!("away"), &json!(1))
    );
    scene.table.run("DELETE FROM schedule_outbox").unwrap();
    hook.is_told("resolved schedule_unsent");
    scene.finish();
}
