//! Workers that die: what becomes of the message in their hands, and of its neighbours.

use crate::harness::{Event, Pool, Scene, field, said, trials};

trials![
    a_message_that_kills_its_worker_is_poisoned_while_others_flow,
    a_message_that_crashed_so_many_workers_is_dead_attempts_left_or_not,
    the_exit_code_is_recorded,
    an_abort_is_recorded_as_its_signal,
    half_a_frame_and_death_is_a_crash,
    an_answer_given_before_death_counts,
    what_a_leaving_worker_has_not_read_is_not_charged,
    what_a_leaving_worker_has_not_read_of_a_pipeline_is_not_charged,
    workers_that_leave_after_each_message_have_none_charged,
    a_message_that_makes_its_worker_leave_each_time_is_dead_in_the_end,
    a_message_that_kills_its_worker_before_it_is_read_whole_is_dead_in_the_end,
    a_reply_given_before_death_is_published,
    an_answer_given_before_death_counts_though_a_child_holds_the_pipe,
    the_rest_of_the_window_is_returned_unharmed,
    a_child_that_holds_the_pipe_hides_no_death,
    a_child_in_a_session_of_its_own_hides_no_death,
];

/// A signal's number.
const SIGKILL: i32 = 9;
const SIGABRT: i32 = 6;

fn a_message_that_kills_its_worker_is_poisoned_while_others_flow() {
    let scene = Scene::of(Pool::new(&[]).set("workers", "2"));
    let killer = "mode:complain:about-to-die,complain:last-words,die:kill";
    let before: Vec<String> = (0..20).map(|n| format!("before {n}")).collect();
    let after: Vec<String> = (0..20).map(|n| format!("after {n}")).collect();
    let all = before
        .iter()
        .map(String::as_str)
        .chain([killer])
        .chain(after.iter().map(String::as_str));
    scene.send(&all.collect::<Vec<_>>());
    let dead = scene.one_dead();
    assert_eq!(dead.reason, "crashed");
    assert_eq!((dead.signal, dead.exit_code), (Some(SIGKILL), None));
    assert_eq!((dead.attempts, dead.crashes), (2, 2));
    assert_eq!(dead.stderr, ["about-to-die", "last-words"]);
    assert_eq!((dead.pool.as_str(), dead.queue.as_str()), ("work", "work"));
    assert_eq!(dead.body, killer.to_owned().into());
    let record = scene.record();
    record.assert_done_once(&before);
    record.assert_done_once(&after);
    assert_eq!(record.of(Event::Began, killer).len(), 2);
    scene.daemon.stop();
    let lost = scene.daemon.records(|record| said(record, "worker lost"));
    assert_eq!(lost.len(), 2, "{lost:#?}");
    assert!(
        lost.iter()
            .all(|record| field(record, "stderr").contains("last-words")),
        "{lost:#?}"
    );
}

fn a_message_that_crashed_so_many_workers_is_dead_attempts_left_or_not() {
    let scene = Scene::of(Pool::new(&[]).attempts(10).set("crashes_max", "2"));
    scene.send(&["mode:die:kill"]);
    let dead = scene.one_dead();
    assert_eq!(
        (dead.reason.as_str(), dead.attempts, dead.crashes),
        ("crashed", 2, 2)
    );
    assert!(
        dead.error.starts_with("crashed the worker 2 times"),
        "{}",
        dead.error
    );
    assert_eq!(scene.record().all(Event::Began).len(), 2);
    scene.finish();
}

fn the_exit_code_is_recorded() {
    let scene = Scene::of(Pool::new(&[]).attempts(1));
    scene.send(&["mode:die:exit:7"]);
    let dead = scene.one_dead();
    assert_eq!((dead.exit_code, dead.signal), (Some(7), None));
    assert_eq!(
        (dead.reason.as_str(), dead.attempts, dead.crashes),
        ("crashed", 1, 1)
    );
    scene.finish();
}

fn an_abort_is_recorded_as_its_signal() {
    let scene = Scene::of(Pool::new(&[]).attempts(1));
    scene.send(&["mode:die:abort"]);
    let dead = scene.one_dead();
    assert_eq!((dead.exit_code, dead.signal), (None, Some(SIGABRT)));
    scene.finish();
}

fn half_a_frame_and_death_is_a_crash() {
    let scene = Scene::of(Pool::new(&[]).attempts(1));
    scene.send(&["mode:half-frame,die:exit:0", "another"]);
    let dead = scene.one_dead();
    assert_eq!((dead.reason.as_str(), dead.exit_code), ("crashed", Some(0)));
    scene.record().assert_done_once(&["another"]);
    scene.finish();
}

fn an_answer_given_before_death_counts() {
    let scene = Scene::of(Pool::new(&[]));
    let deaths = ["kill", "exit:3", "exit:0"];
    let bodies = deaths.map(|how| format!("mode:answer:200,die:{how}"));
    for (number, body) in bodies.iter().enumerate() {
        scene.send(&[body]);
        scene.daemon.eventually("the worker to be gone", || {
            scene.daemon.times_logged("worker lost") == number + 1
        });
    }
    scene.all_done();
    scene.record().assert_done_once(&bodies);
    assert_eq!(
        scene.record().all(Event::Began).len(),
        3,
        "none was begun again"
    );
    scene.finish();
}

/// A worker answers and leaves, as many do after so many messages. What it was given meanwhile lies
/// unread in its pipe: no worker has begun it.
fn what_a_leaving_worker_has_not_read_is_not_charged() {
    let scene = Scene::of(Pool::new(&[]).attempts(1));
    scene.send(&["mode:answer:200,wait:go,die:exit:0", "another"]);
    scene
        .daemon
        .eventually("the first to be done", || scene.table.count("work") == 1);
    scene.daemon.eventually("the other to be in its pipe", || {
        scene.table.messages("work")[0].claimed
    });
    scene.site.touch("go");
    scene.all_done();
    let record = scene.record();
    record.assert_done_once(&["another"]);
    assert_eq!(record.of(Event::Began, "another")[0].attempt, Some(1));
    scene.finish();
}

/// The same with several in the pipe: which of them were read is not known, so none may be charged
/// before it has run alone.
fn what_a_leaving_worker_has_not_read_of_a_pipeline_is_not_charged() {
    let scene = Scene::of(Pool::new(&[]).set("pipeline", "4").attempts(1));
    scene.send(&["warm up"]);
    scene.settled();
    scene.send(&[
        "mode:wait:begin,answer:200,wait:go,die:exit:0",
        "a",
        "b",
        "c",
    ]);
    scene.daemon.eventually("all to be in the pipe", || {
        let waiting = scene.table.messages("work");
        waiting.iter().all(|message| message.claimed)
    });
    scene.site.touch("begin");
    scene
        .daemon
        .eventually("the first to be done", || scene.table.count("work") == 3);
    scene.site.touch("go");
    scene.all_done();
    scene.record().assert_done_once(&["a", "b", "c"]);
    scene.finish();
}

/// The next one is often in the pipe before the worker is gone.
fn workers_that_leave_after_each_message_have_none_charged() {
    let pool = Pool::new(&["--mode=answer:200,die:exit:0"]).attempts(1);
    let scene = Scene::of(pool.set("workers", "2"));
    let bodies: Vec<String> = (0..60).map(|n| format!("message {n}")).collect();
    scene.send(&bodies);
    scene.all_done();
    let record = scene.record();
    record.assert_done_once(&bodies);
    assert_eq!(record.all(Event::Began).len(), 60);
    scene.finish();
}

/// It is read, and others behind it are not: only the number of times tells.
fn a_message_that_makes_its_worker_leave_each_time_is_dead_in_the_end() {
    let pool = Pool::new(&[]).set("pipeline", "4").attempts(2);
    let scene = Scene::of(pool);
    scene.send(&["warm up"]);
    scene.settled();
    let others: Vec<String> = (0..20).map(|n| format!("mode:sleep:5 {n}")).collect();
    let all = ["mode:die:exit:0"].into_iter();
    scene.send(
        &all.chain(others.iter().map(String::as_str))
            .collect::<Vec<_>>(),
    );
    let dead = scene.one_dead();
    assert_eq!((dead.reason.as_str(), dead.exit_code), ("crashed", Some(0)));
    scene.record().assert_done_once(&others);
    scene.finish();
}

/// A worker may die over a message's size before it has read the rest of it.
fn a_message_that_kills_its_worker_before_it_is_read_whole_is_dead_in_the_end() {
    let scene = Scene::of(
        Pool::new(&["--longest=4096"])
            .set("workers", "2")
            .attempts(3),
    );
    let long = "x".repeat(5000);
    let others: Vec<String> = (0..20).map(|n| format!("message {n}")).collect();
    let all = [long.as_str()]
        .into_iter()
        .chain(others.iter().map(String::as_str));
    scene.send(&all.collect::<Vec<_>>());
    let dead = scene.one_dead();
    assert_eq!((dead.reason.as_str(), dead.body), ("crashed", long.into()));
    scene.record().assert_done_once(&others);
    scene.finish();
}

fn a_reply_given_before_death_is_published() {
    let scene = Scene::of(Pool::new(&[]));
    scene.send(&["mode:reply:answers,die:kill"]);
    scene.all_done();
    assert_eq!(scene.table.count("answers"), 1);
    assert_eq!(scene.record().all(Event::Began).len(), 1);
    scene.finish();
}

fn an_answer_given_before_death_counts_though_a_child_holds_the_pipe() {
    let scene = Scene::of(Pool::new(&[]));
    scene.send(&["mode:fork:group,answer:200,die:exit:0", "another"]);
    scene.all_done();
    assert_eq!(
        scene.record().all(Event::Began).len(),
        2,
        "none was begun again"
    );
    scene.finish();
}

/// A version 1 worker with four messages in its pipe dies of the first: only that one is charged.
fn the_rest_of_the_window_is_returned_unharmed() {
    let scene = Scene::of(Pool::new(&[]).set("pipeline", "4").attempts(1));
    // The first answer tells the version, so that the window opens.
    scene.send(&["warm up"]);
    scene.settled();
    let others = [
        "mode:wait:second a",
        "mode:wait:second b",
        "mode:wait:second c",
    ];
    scene.send(&["mode:wait:first,die:kill", others[0], others[1], others[2]]);
    scene.begun(&["mode:wait:first,die:kill"]);
    scene.daemon.eventually("the window to be claimed", || {
        scene
            .table
            .messages("work")
            .iter()
            .all(|message| message.claimed)
    });
    scene.site.touch("first");
    // Usually the first; but one that was not yet in the pipe is still in the pool's hands.
    let next = scene.daemon.eventually_some("one to be begun", || {
        let record = scene.record();
        let began = others.iter().flat_map(|body| record.of(Event::Began, body));
        began.map(Clone::clone).next()
    });
    let waiting = scene.table.messages("work");
    assert!(
        waiting
            .iter()
            .all(|message| message.attempts <= 1 && message.crashes == 0),
        "{waiting:#?}"
    );
    // What a worker is told before its version is known includes the attempt.
    assert_eq!(next.attempt, Some(1));
    scene.site.touch("second");
    let dead = scene.one_dead();
    assert_eq!((dead.reason.as_str(), dead.attempts), ("crashed", 1));
    scene.record().assert_done_once(&others);
    scene.finish();
}

fn a_child_that_holds_the_pipe_hides_no_death() {
    let scene = Scene::of(Pool::new(&[]).attempts(1));
    scene.send(&["mode:fork:group,die:exit:4", "another"]);
    let dead = scene.one_dead();
    assert_eq!((dead.reason.as_str(), dead.exit_code), ("crashed", Some(4)));
    scene.record().assert_done_once(&["another"]);
    // It was of the worker's group, and goes with it.
    scene.finish();
}

fn a_child_in_a_session_of_its_own_hides_no_death() {
    let scene = Scene::of(Pool::new(&[]).attempts(1));
    scene.send(&["mode:fork:session,die:exit:4", "another"]);
    let dead = scene.one_dead();
    assert_eq!((dead.reason.as_str(), dead.exit_code), ("crashed", Some(4)));
    scene.record().assert_done_once(&["another"]);
    scene.daemon.signal(nix::sys::signal::Signal::SIGTERM);
    assert!(scene.daemon.exit().success());
    // Nothing but a cgroup reaches that child; everything else is gone.
    scene
        .daemon
        .eventually("all but that child to be gone", || {
            scene
                .daemon
                .processes()
                .iter()
                .all(|process| process.command.contains("sleep 1000"))
        });
}
