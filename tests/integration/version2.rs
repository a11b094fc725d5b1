//! Workers that take several messages at once: answers in any order, and who is to blame when one
//! of them dies.

use crate::harness::{Entry, Event, NewMessage, Pool, Scene, trials};

trials![
    answers_come_in_any_order,
    a_message_behind_a_slow_one_does_not_wait_for_it,
    of_several_suspects_only_the_culprit_is_charged,
    a_lone_message_that_crashes_its_worker_is_no_suspect,
    a_suspect_waits_for_one_worker_while_the_others_go_on,
    an_answer_behind_many_emits_counts_though_the_worker_is_gone,
    a_timeout_of_one_returns_the_others,
    a_log_frame_becomes_a_log_record,
    the_properties_of_a_row_reach_the_worker_unharmed,
];

fn answers_come_in_any_order() {
    let scene = Scene::of(Pool::new(&["--v2=4"]));
    let bodies = [
        "mode:wait:a,reply a",
        "mode:wait:b,reply b",
        "mode:wait:c,reply c",
        "mode:wait:d,reply d",
    ];
    let messages: Vec<NewMessage> = bodies
        .iter()
        .map(|body| NewMessage::new(body).reply_to("answers"))
        .collect();
    scene.table.insert(&messages);
    // All four are in the one worker's hands.
    scene.begun(&bodies);
    for (file, body) in ["d", "b", "c", "a"]
        .iter()
        .zip([bodies[3], bodies[1], bodies[2], bodies[0]])
    {
        scene.site.touch(file);
        let answer = format!("re: {body}");
        scene.daemon.eventually("its answer, before any other", || {
            scene
                .table
                .messages("answers")
                .last()
                .is_some_and(|reply| reply.body == answer)
        });
    }
    scene.all_done();
    scene.record().assert_done_once(&bodies);
    scene.finish();
}

fn a_message_behind_a_slow_one_does_not_wait_for_it() {
    let scene = Scene::of(Pool::new(&["--v2=2"]));
    let fast: Vec<String> = (0..50).map(|n| format!("fast {n}")).collect();
    let all = ["mode:wait:go"]
        .into_iter()
        .chain(fast.iter().map(String::as_str));
    scene.send(&all.collect::<Vec<_>>());
    scene
        .daemon
        .eventually("all the fast ones", || scene.table.count("work") == 1);
    scene.record().assert_done_once(&fast);
    scene.site.touch("go");
    scene.all_done();
    scene.finish();
}

fn of_several_suspects_only_the_culprit_is_charged() {
    let scene = Scene::of(Pool::new(&["--v2=4"]).attempts(1));
    let culprit = "mode:wait:first,die:kill";
    let others = [
        "mode:wait:second a",
        "mode:wait:second b",
        "mode:wait:second c",
    ];
    scene.send(&[others[0], culprit, others[1], others[2]]);
    scene.begun(&[culprit, others[0], others[1], others[2]]);
    scene.site.touch("first");
    scene.daemon.logged("worker lost");
    scene.site.touch("second");
    let dead = scene.one_dead();
    assert_eq!(dead.body, culprit.to_owned().into());
    assert_eq!(
        (dead.reason.as_str(), dead.attempts, dead.crashes),
        ("crashed", 1, 1)
    );
    let record = scene.record();
    record.assert_done_once(&others);
    for body in others.iter().chain([&culprit]) {
        let began = record.of(Event::Began, body);
        assert_eq!(began.len(), 2, "{body}: {:#?}", record.0);
        assert_eq!(began[1].attempt, Some(1), "the first time is not charged");
    }
    assert_alone(&record.0[4..]);
    scene.finish();
}

/// Each message that is begun is finished, or has killed its worker, before the next is begun.
fn assert_alone(entries: &[Entry]) {
    let mut open: Option<&Entry> = None;
    for entry in entries {
        match entry.event {
            Event::Began => {
                let before = open.replace(entry);
                let over = before.is_none_or(|before| before.pid != entry.pid);
                assert!(over, "{before:?} and {entry:?} at once: {entries:#?}");
            }
            Event::Done => open = None,
            Event::Told | Event::Noted => {}
        }
    }
}

/// Two workers with several slow messages each: neither is ever idle until one is kept for it.
fn a_suspect_waits_for_one_worker_while_the_others_go_on() {
    let retry = r#"{ attempts = 3, initial = "2s", max = "2s", jitter = 0.0 }"#;
    let pool = Pool::new(&["--v2=2"])
        .set("workers", "2")
        .set("prefetch", "8");
    let scene = Scene::of(pool.set("retry", retry));
    let suspect = "mode:die-unless:mended";
    scene.send(&[suspect]);
    scene.daemon.logged("worker lost");
    scene.site.touch("mended");
    scene.daemon.has_workers(2);
    let held = ["mode:wait:first a", "mode:wait:second b"];
    scene.send(&held);
    scene.begun(&held);
    scene
        .daemon
        .eventually("the suspect to be there again", || {
            scene
                .table
                .messages("work")
                .iter()
                .all(|message| message.claimed)
        });
    let fast: Vec<String> = (0..20).map(|n| format!("fast {n}")).collect();
    scene.send(&fast);
    scene
        .daemon
        .eventually("the others to go on", || scene.table.count("work") == 3);
    assert_eq!(
        scene.record().of(Event::Began, suspect).len(),
        1,
        "it runs alone"
    );
    scene.site.touch("first");
    scene.site.touch("second");
    scene.all_done();
    assert_eq!(scene.record().of(Event::Began, suspect).len(), 2);
    scene
        .record()
        .assert_done_once(&[held[0], held[1], suspect]);
    scene.finish();
}

fn a_lone_message_that_crashes_its_worker_is_no_suspect() {
    let scene = Scene::of(Pool::new(&["--v2=4"]).attempts(1));
    scene.send(&["mode:die:exit:9"]);
    let dead = scene.one_dead();
    assert_eq!(
        (dead.attempts, dead.crashes, dead.exit_code),
        (1, 1, Some(9))
    );
    assert_eq!(scene.record().all(Event::Began).len(), 1);
    scene.finish();
}

/// The emits wait to be stored, so the answer behind them is read only after the worker's death.
fn an_answer_behind_many_emits_counts_though_the_worker_is_gone() {
    let scene = Scene::of(Pool::new(&["--v2=1"]));
    let emits = "emit:out:e,".repeat(300);
    scene.send(&[&format!("mode:{emits}answer:200,die:exit:0")]);
    scene.all_done();
    assert_eq!(scene.record().all(Event::Began).len(), 1);
    assert_eq!(scene.table.count("out"), 300);
    scene.finish();
}

fn a_timeout_of_one_returns_the_others() {
    let pool = Pool::new(&["--v2=3"]).attempts(1);
    let scene = Scene::of(pool.text("timeout", "10m").text("timeout_grace", "50ms"));
    let slow = NewMessage::new("mode:hang").header("TimeoutMilliseconds", 400);
    let others = ["mode:wait:go a", "mode:wait:go b"];
    scene
        .table
        .insert(&[NewMessage::new(others[0]), slow, NewMessage::new(others[1])]);
    scene.begun(&["mode:hang", others[0], others[1]]);
    scene.daemon.logged("worker lost");
    scene.site.touch("go");
    let dead = scene.one_dead();
    assert_eq!(
        (dead.reason.as_str(), dead.body),
        ("timed_out", "mode:hang".to_owned().into())
    );
    let record = scene.record();
    record.assert_done_once(&others);
    let last = |body| record.of(Event::Began, body).last().unwrap().attempt;
    assert_eq!(
        (last(others[0]), last(others[1])),
        (Some(1), Some(1)),
        "the others are not charged"
    );
    scene.finish();
}

fn a_log_frame_becomes_a_log_record() {
    let scene = Scene::of(Pool::new(&["--v2=1"]));
    scene
        .table
        .insert(&[NewMessage::new("mode:log:warn:it-is-hot").correlation_id("c-1")]);
    let record = scene.daemon.logged("it-is-hot");
    assert_eq!(
        (record["level"].as_str(), record["pool"].as_str()),
        (Some("WARN"), Some("work")),
        "{record}"
    );
    assert_eq!(
        record["correlation_id"], "c-1",
        "a log record of this message: {record}"
    );
    assert_eq!(record["fields"]["step"], "log", "{record}");
    scene.finish();
}

fn the_properties_of_a_row_reach_the_worker_unharmed() {
    let scene = Scene::of(Pool::new(&["--v2=1"]));
    let message = NewMessage::new("mode:note:property:message_id,note:header:n,note:header:list");
    let headers = message
        .header("n", 7)
        .header("list", serde_json::json!([1, "a"]));
    scene.table.insert(&[headers.message_id("m-1")]);
    scene.all_done();
    let expected = [
        "property:message_id=m-1",
        "header:n=7",
        "header:list=[1,\"a\"]",
    ];
    assert_eq!(scene.record().texts(Event::Noted), expected);
    scene.finish();
}
