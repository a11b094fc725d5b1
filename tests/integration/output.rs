//! What a worker is given beside its messages, and what becomes of what it prints.

use crate::harness::{Event, NewMessage, Pool, SECRET, Scene, Workspace, field, trials};

trials![
    what_a_worker_prints_is_logged_with_its_message,
    a_message_without_a_correlation_id_is_named_too,
    a_line_of_json_keeps_its_level,
    a_line_of_text_keeps_its_level,
    a_long_line_is_cut,
    a_worker_that_prints_without_end_is_held_back_in_the_log_only,
    a_last_line_is_logged_with_its_message,
    a_worker_that_logs_without_end_holds_up_neither_log_nor_neighbour,
    a_worker_that_logs_without_end_is_stopped_like_any_other,
    the_environment_is_what_the_configuration_says,
    a_variable_may_be_inherited_by_name,
    a_worker_starts_in_its_directory,
    limits_hold,
];

fn what_a_worker_prints_is_logged_with_its_message() {
    let scene = Scene::of(Pool::new(&[]));
    let message = NewMessage::new("mode:print:to-stdout,complain:to-stderr,wait:go");
    scene.table.insert(&[message.correlation_id("c-1")]);
    for (text, target) in [
        ("to-stdout", "worker::stdout"),
        ("to-stderr", "worker::stderr"),
    ] {
        let record = scene.daemon.logged(text);
        assert_eq!(
            (
                field(&record, "target").as_str(),
                field(&record, "correlation_id").as_str()
            ),
            (target, "c-1")
        );
        assert_eq!(
            (
                field(&record, "pool").as_str(),
                field(&record, "worker").as_str()
            ),
            ("work", "0")
        );
        let pid = scene.record().all(Event::Began)[0].pid;
        assert_eq!(field(&record, "pid"), pid.to_string());
    }
    scene.site.touch("go");
    scene.all_done();
    scene.finish();
}

fn a_message_without_a_correlation_id_is_named_too() {
    let scene = Scene::of(Pool::new(&["--v2=1"]).attempts(1));
    scene.send(&["mode:print:printed,log:info:two|lines,answer:500"]);
    let names = ["printed", "two\nlines", "message dead-lettered"];
    for record in names.map(|message| scene.daemon.logged(message)) {
        assert_eq!(record["message_name"], "work:1", "{record}");
        assert!(record["correlation_id"].is_null(), "{record}");
    }
    scene.settled();
    scene.finish();
}

/// As .NET's console logger writes it.
fn a_line_of_text_keeps_its_level() {
    let scene = Scene::of(Pool::new(&[]));
    scene.send(&["mode:print:fail:Worker[0],print:next"]);
    let levels = ["fail:Worker[0]", "next"];
    let levels = levels.map(|message| field(&scene.daemon.logged(message), "level"));
    assert_eq!(levels, ["ERROR", "INFO"]);
    scene.all_done();
    scene.finish();
}

fn a_line_of_json_keeps_its_level() {
    let scene = Scene::of(Pool::new(&[]));
    scene.send(&["mode:print-json:error:it-burns"]);
    let record = scene.daemon.logged("it-burns");
    assert_eq!(record["level"], "ERROR");
    assert_eq!(record["fields"], serde_json::json!({ "n": 7 }), "{record}");
    scene.all_done();
    scene.finish();
}

fn a_long_line_is_cut() {
    let scene = Scene::of(Pool::new(&[]));
    scene.send(&["mode:print-bytes:20000,print:next"]);
    scene.daemon.logged("next");
    let long = scene
        .daemon
        .records(|record| field(record, "message").contains("xxxx"));
    assert_eq!(long.len(), 1);
    let text = field(&long[0], "message");
    assert!(
        text.len() < 10_000 && text.ends_with("bytes cut)"),
        "{} bytes: …{}",
        text.len(),
        &text[8000..]
    );
    scene.all_done();
    scene.finish();
}

/// Nobody waits for the log: fifty thousand lines, a fraction of which is logged, and their number.
fn a_worker_that_prints_without_end_is_held_back_in_the_log_only() {
    let scene = Scene::of(Pool::new(&[]));
    scene.send(&["mode:print-lines:50000", "another"]);
    scene.all_done();
    scene
        .record()
        .assert_done_once(&["mode:print-lines:50000", "another"]);
    let told = |record: &serde_json::Value| field(record, "message").contains("lines suppressed");
    scene
        .daemon
        .eventually("a word about what was held back", || {
            !scene.daemon.records(told).is_empty()
        });
    let printed = scene
        .daemon
        .records(|record| field(record, "target") == "worker::stdout");
    assert!(printed.len() < 10_000, "{} lines logged", printed.len());
    scene.finish();
}

/// However soon the answer follows.
fn a_last_line_is_logged_with_its_message() {
    let scene = Scene::of(Pool::new(&[]).set("pipeline", "1"));
    let name = |n: usize| format!("line-{n:03}");
    let message = |n: usize| {
        let body = format!("mode:print:{0},complain:{0}", name(n));
        NewMessage::new(&body).correlation_id(&name(n))
    };
    let messages: Vec<NewMessage> = (0..300).map(message).collect();
    scene.table.insert(&messages);
    scene.all_done();
    let lines = || {
        let line = |record: &serde_json::Value| field(record, "message").starts_with("line-");
        scene.daemon.records(line)
    };
    scene
        .daemon
        .eventually("all lines", || lines().len() == 600);
    for line in lines() {
        assert_eq!(line["correlation_id"], line["message"], "{line}");
    }
    scene.finish();
}

/// One floods as fast as it can while the other does what there is, a message at a time.
fn a_worker_that_logs_without_end_holds_up_neither_log_nor_neighbour() {
    const FAST: usize = 500;
    let scene = Scene::of(Pool::new(&["--v2=1"]).set("workers", "2"));
    let asked = tokio::time::Instant::now();
    scene.send(&["mode:flood:enough"]);
    scene.begun(&["mode:flood:enough"]);
    let fast: Vec<String> = (0..FAST).map(|n| format!("fast {n}")).collect();
    scene.send(&fast);
    scene
        .daemon
        .eventually("its neighbour's work", || scene.table.count("work") == 1);
    scene.site.touch("enough");
    scene.all_done();
    let seconds = usize::try_from(asked.elapsed().as_secs()).unwrap() + 2;
    let noted = scene.record().texts(Event::Noted)[0].to_owned();
    let frames: usize = noted.strip_prefix("flooded ").unwrap().parse().unwrap();
    // A turn is a few dozen frames, and a message of the neighbour's takes a few turns.
    assert!(
        frames < 2_000 * FAST,
        "{frames} frames beside {FAST} messages"
    );
    let logged = scene
        .daemon
        .records(|record| field(record, "target") == "worker::log");
    let most = 1_000 + 200 * seconds + seconds;
    assert!(
        logged.len() < most,
        "{} of {frames} frames logged",
        logged.len()
    );
    let told = |record: &serde_json::Value| field(record, "message").contains("records suppressed");
    let is_told = || !scene.daemon.records(told).is_empty();
    scene
        .daemon
        .eventually("a word about what was held back", is_told);
    scene.finish();
}

fn a_worker_that_logs_without_end_is_stopped_like_any_other() {
    let site = Workspace::with_daemon(r#"drain_timeout = "100ms""#);
    let pool = Pool::new(&["--v2=2"]).text("stop_timeout", "200ms");
    let scene = Scene::at(site, &[pool]);
    scene.send(&["mode:flood:never"]);
    scene.begun(&["mode:flood:never"]);
    // It is given more while it floods.
    scene.send(&["another"]);
    scene
        .daemon
        .eventually("the other to be done", || scene.table.count("work") == 1);
    scene.finish();
}

fn noted(pool: Pool, what: &[&str]) -> (Scene, Vec<String>) {
    let scene = Scene::of(pool);
    let notes: Vec<String> = what.iter().map(|what| format!("note:{what}")).collect();
    scene.send(&[&format!("mode:{}", notes.join(","))]);
    scene.all_done();
    let noted = scene
        .record()
        .texts(Event::Noted)
        .into_iter()
        .map(str::to_owned)
        .collect();
    (scene, noted)
}

fn the_environment_is_what_the_configuration_says() {
    let pool = Pool::new(&[]).env("COLOUR", "red").set("workers", "1");
    let secret = format!("env:{}", SECRET.0);
    let asked = [
        "env:GANGER_PROTOCOL",
        "env:GANGER_POOL",
        "env:GANGER_WORKER",
        "env:COLOUR",
        &secret,
        "env:GANGER_PIPE",
    ];
    let (scene, noted) = noted(pool, &asked);
    let none = format!("{secret}=(none)");
    let expected = [
        "env:GANGER_PROTOCOL=2",
        "env:GANGER_POOL=work",
        "env:GANGER_WORKER=0",
        "env:COLOUR=red",
        none.as_str(),
    ];
    assert_eq!(noted[..5], expected);
    assert!(
        noted[5].starts_with("env:GANGER_PIPE=/tmp/CoreFxPipe_"),
        "{noted:?}"
    );
    scene.finish();
}

fn a_variable_may_be_inherited_by_name() {
    let pool = Pool::new(&[]).set("env_inherit", &format!("[\"{}\"]", SECRET.0));
    let (scene, noted) = noted(pool, &[&format!("env:{}", SECRET.0)]);
    assert_eq!(noted, [format!("env:{}={}", SECRET.0, SECRET.1)]);
    scene.finish();
}

fn a_worker_starts_in_its_directory() {
    let (scene, noted) = noted(Pool::new(&[]).text("cwd", "/usr"), &["cwd"]);
    assert_eq!(noted, ["cwd=/usr"]);
    scene.finish();
}

fn limits_hold() {
    let pool = Pool::new(&[]).set("limits", "{ open_files = 77, cpu_nice = 3 }");
    let (scene, noted) = noted(pool, &["open-files", "nice"]);
    assert_eq!(noted, ["open-files=77", "nice=3"]);
    scene.finish();
}
