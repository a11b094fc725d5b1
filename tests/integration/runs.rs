//! Quick tasks may be given out in runs; none that could be slow waits for another while a worker is idle.

use crate::harness::{Pool, Scene, trials};

trials![
    few_messages_are_spread_however_quick_all_were,
    many_are_spread_after_a_slow_one,
];

const WORKERS: usize = 20;

fn few_messages_are_spread_however_quick_all_were() {
    let scene = after_a_streak();
    all_run_at_once(&scene, 15);
    scene.finish();
}

fn many_are_spread_after_a_slow_one() {
    let scene = after_a_streak();
    scene.send(&["mode:sleep:50"]);
    scene.all_done();
    all_run_at_once(&scene, WORKERS);
    scene.finish();
}

/// All workers have answered for so long and so fast that what comes next would be taken to be quick.
fn after_a_streak() -> Scene {
    let pool = Pool::new(&[]).set("workers", &WORKERS.to_string());
    let scene = Scene::of(pool.set("pipeline", "16"));
    let quick: Vec<String> = (0..15_000).map(|n| format!("quick {n}")).collect();
    scene.send(&quick.iter().map(String::as_str).collect::<Vec<_>>());
    scene.all_done();
    scene
}

/// As many slow messages have all begun before one ends.
fn all_run_at_once(scene: &Scene, messages: usize) {
    let slow: Vec<String> = (0..messages).map(|n| format!("mode:wait:go {n}")).collect();
    let slow: Vec<&str> = slow.iter().map(String::as_str).collect();
    scene.send(&slow);
    scene.begun(&slow);
    scene.site.touch("go");
    scene.all_done();
}
