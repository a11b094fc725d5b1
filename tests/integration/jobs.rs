//! Jobs: all dead letters that match are sent back or dropped in the background, at a rate, and a restart does not end
//! that.

use std::{fs, thread};

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::admin::socket;
use crate::harness::rabbit::{DEAD, RabbitScene};
use crate::harness::{Api, Base, Daemon, EVIL, Pool, Scene, Workspace, assert_tame, trials};

trials![
    a_job_goes_on_after_a_crash_and_a_restart,
    of_two_daemons_the_later_one_does_the_job,
    a_cancelled_job_leaves_the_rest,
    a_rate_is_kept,
    a_source_that_fails_is_tried_again,
    the_same_job_is_refused_and_another_waits_for_it,
    what_dies_again_is_not_taken_again,
    criteria_choose_and_bad_ones_are_refused,
    commands_begin_list_and_cancel_jobs,
    ; sqlite:
    a_job_that_can_not_be_kept_says_so,
    a_lock_of_another_program_holds_up_nothing,
    jobs_go_through_a_queue_of_rabbitmq,
    a_cancelled_job_leaves_the_rest_at_rabbitmq,
];

/// Puts so many dead letters into the table, of a queue that no pool reads.
pub(crate) fn bury(scene: &Scene, count: usize) {
    let rows: Vec<String> = (1..=count)
        .map(|n| {
            let error = if n % 2 == 0 { "even" } else { "odd" };
            format!(
                "('parked', 'work', 'failed', '{error}', 1, 0, 0, 0, '[]', '{{}}', 0, 1, 'b{n}', {n}, {n})"
            )
        })
        .collect();
    let insert = "INSERT INTO poisoned_messages (queue, pool, reason, error, attempts, crashes, lapses, oom, stderr,
        headers, priority, created_at, body, first_failed_at, last_failed_at) VALUES";
    scene
        .table
        .run(&format!("{insert} {}", rows.join(",")))
        .unwrap();
}

fn scene_with(letters: usize) -> Scene {
    let scene = Scene::of(Pool::new(&[]).attempts(1));
    bury(&scene, letters);
    scene
}

fn api(daemon: &Daemon) -> Api {
    Api::Socket(socket(daemon))
}

/// Starts a job of the source `main`, with these fields besides.
pub(crate) fn start(api: &Api, change: &str, more: Value) -> String {
    let mut wanted = json!({ "change": change, "source": "main" });
    let more = more.as_object().unwrap().clone();
    wanted.as_object_mut().unwrap().extend(more);
    let answer = api.post("/v1/jobs", &wanted.to_string());
    assert_eq!(answer.status, 202, "{answer:?}");
    let id = answer.json()["id"].as_str().unwrap().to_owned();
    let location = format!("location: /v1/jobs/{id}");
    assert!(answer.head.to_lowercase().contains(&location), "{answer:?}");
    id
}

fn job(api: &Api, id: &str) -> Value {
    api.get(&format!("/v1/jobs/{id}")).json()
}

pub(crate) fn becomes(daemon: &Daemon, id: &str, state: &str) -> Value {
    let api = api(daemon);
    daemon.eventually_some(&format!("the job to be {state}"), || {
        Some(job(&api, id)).filter(|job| job["state"] == state)
    })
}

fn changes(daemon: &Daemon, id: &str, least: u64) -> Value {
    let api = api(daemon);
    daemon.eventually_some(&format!("the job to have changed {least}"), || {
        Some(job(&api, id)).filter(|job| job["changed"].as_u64().unwrap() >= least)
    })
}

fn again(site: &Workspace, daemon: &Daemon) -> Daemon {
    let config = daemon.config().file_name().unwrap().to_str().unwrap();
    site.start_as_it_is(config, &[])
}

fn dead(scene: &Scene) -> usize {
    scene
        .table
        .ask("SELECT count(*) FROM poisoned_messages")
        .trim()
        .parse()
        .unwrap()
}

fn a_job_goes_on_after_a_crash_and_a_restart() {
    let scene = scene_with(3000);
    let more = json!({ "rate": 2000, "expected": 3000 });
    let id = start(&api(&scene.daemon), "retry", more);
    changes(&scene.daemon, &id, 500);
    scene.daemon.crash();
    let daemon = again(&scene.site, &scene.daemon);
    changes(&daemon, &id, 1000);
    daemon.stop();
    let stopped = dead(&scene);
    let daemon = again(&scene.site, &daemon);
    let ended = becomes(&daemon, &id, "completed");
    let of = |name: &str| ended[name].clone();
    let changed = ended["changed"].as_u64().unwrap();
    // The crash may have come before a step was written down, an orderly end never.
    assert!(changed == 3000 || changed == 2500, "{ended}");
    assert_eq!(of("left"), 0);
    assert!(stopped > 0, "it had not ended before: {ended}");
    assert_eq!(
        of("by"),
        format!("uid {} on the socket", nix::unistd::Uid::effective())
    );
    assert_eq!(dead(&scene), 0);
    let sent =
        "SELECT count(*), count(DISTINCT body) FROM consumer_messages WHERE queue = 'parked'";
    assert_eq!(scene.table.ask(sent).trim(), "3000|3000");
    daemon.logs("job completed", |record| record["job"] == id.as_str());
    daemon.stop();
}

fn of_two_daemons_the_later_one_does_the_job() {
    let scene = scene_with(300);
    let id = start(&api(&scene.daemon), "retry", json!({ "rate": 100 }));
    changes(&scene.daemon, &id, 25);
    let later = again(&scene.site, &scene.daemon);
    let told = "jobs are continued by another daemon with this configuration";
    scene.daemon.logged(told);
    let ended = becomes(&later, &id, "completed");
    let changed = ended["changed"].as_u64().unwrap();
    assert!(changed == 300 || changed == 275, "{ended}");
    let sent =
        "SELECT count(*), count(DISTINCT body) FROM consumer_messages WHERE queue = 'parked'";
    assert_eq!(scene.table.ask(sent).trim(), "300|300");
    scene.daemon.stop();
    later.stop();
}

fn a_cancelled_job_leaves_the_rest() {
    let scene = scene_with(100);
    let api = api(&scene.daemon);
    let id = start(&api, "drop", json!({ "rate": 4 }));
    changes(&scene.daemon, &id, 2);
    let told = api.post(&format!("/v1/jobs/{id}/cancel"), "").json();
    assert_eq!(told["job"]["state"], "cancelled");
    assert!(
        told["job"]["cancelled_by"]
            .as_str()
            .unwrap()
            .contains("uid")
    );
    scene.daemon.eventually("the last step", || {
        let changed = job(&api, &id)["changed"].as_u64().unwrap();
        dead(&scene) as u64 + changed == 100
    });
    assert!(dead(&scene) > 50);
    let told = api.post(&format!("/v1/jobs/{id}/cancel"), "").problem(409);
    assert!(told.contains("cancelled"), "{told}");
    let id = start(&api, "drop", json!({}));
    becomes(&scene.daemon, &id, "completed");
    assert_eq!(dead(&scene), 0);
    scene.finish();
}

fn a_rate_is_kept() {
    let scene = scene_with(100);
    let api = api(&scene.daemon);
    let began = Instant::now();
    let id = start(&api, "retry", json!({ "rate": 20 }));
    scene.daemon.eventually("two seconds' worth", || {
        let changed = job(&api, &id)["changed"].as_f64().unwrap();
        let most = 5.0 + 20.0 * began.elapsed().as_secs_f64();
        assert!(changed <= most, "{changed} of {most}");
        changed >= 40.0
    });
    scene.finish();
}

/// Refuses to have dead letters deleted that are beyond the first hundred.
fn refuse_deletions(scene: &Scene) {
    let trigger = "CREATE TRIGGER picky BEFORE DELETE ON poisoned_messages";
    match Base::of_this_test() {
        Base::Sqlite => scene
            .table
            .run(&format!(
                "{trigger} WHEN OLD.last_failed_at > 100 BEGIN SELECT RAISE(ABORT, 'not this one'); END"
            ))
            .unwrap(),
        Base::Postgres => drop(scene.site.database().ask(&format!(
            "CREATE FUNCTION picky() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN RAISE EXCEPTION 'not this one'; END $$;
             {trigger} FOR EACH ROW WHEN (OLD.last_failed_at > 100) EXECUTE FUNCTION picky()"
        ))),
        Base::Mariadb => drop(scene.site.database().ask(&format!(
            "DELIMITER //\n{trigger} FOR EACH ROW IF OLD.last_failed_at > 100 THEN
             SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not this one'; END IF //"
        ))),
    }
}

fn accept_deletions(scene: &Scene) {
    match Base::of_this_test() {
        Base::Sqlite => scene.table.run("DROP TRIGGER picky").unwrap(),
        Base::Postgres | Base::Mariadb => scene.site.database().accept_changes(),
    }
}

fn a_source_that_fails_is_tried_again() {
    let scene = scene_with(200);
    refuse_deletions(&scene);
    let api = api(&scene.daemon);
    let id = start(&api, "retry", json!({ "rate": 400 }));
    let waiting = becomes(&scene.daemon, &id, "waiting");
    assert_eq!(waiting["changed"], 100);
    let error = waiting["last_error"].as_str().unwrap();
    assert!(error.contains("not this one"), "{error}");
    let told = "job waits for its source and tries again";
    scene
        .daemon
        .logs(told, |record| record["job"] == id.as_str());
    accept_deletions(&scene);
    let ended = becomes(&scene.daemon, &id, "completed");
    assert_eq!(ended["changed"], 200);
    assert_eq!(scene.table.count("parked"), 200);
    assert_eq!(scene.daemon.times_logged(told), 1);
    scene.finish();
}

fn the_same_job_is_refused_and_another_waits_for_it() {
    let scene = scene_with(100);
    let api = api(&scene.daemon);
    let wanted = json!({ "rate": 4, "before": "2026-01-01T00:00:00Z" });
    let first = start(&api, "retry", wanted);
    let same = json!({ "change": "retry", "source": "main", "before": "2026-01-01T00:00:00Z" });
    let told = api.post("/v1/jobs", &same.to_string()).problem(409);
    assert!(told.contains(&first), "{told}");
    let second = start(&api, "drop", json!({ "error": "even" }));
    assert_eq!(job(&api, &second)["state"], "queued");
    let all = api.get("/v1/jobs").json();
    let ids = all.as_array().unwrap().iter().map(|job| job["id"].clone());
    assert_eq!(ids.collect::<Vec<_>>(), [second.clone(), first.clone()]);
    api.post(&format!("/v1/jobs/{first}/cancel"), "").json();
    let changed = becomes(&scene.daemon, &second, "completed")["changed"].as_u64();
    let first = job(&api, &first)["changed"].as_u64();
    assert_eq!(dead(&scene) as u64 + changed.unwrap() + first.unwrap(), 100);
    scene.finish();
}

fn what_dies_again_is_not_taken_again() {
    let scene = Scene::of(Pool::new(&[]).attempts(1));
    scene.send(&["mode:answer:400 a", "mode:answer:400 b"]);
    scene
        .daemon
        .eventually("both are dead", || scene.table.dead().len() == 2);
    let id = start(&api(&scene.daemon), "retry", json!({ "rate": 4 }));
    let ended = becomes(&scene.daemon, &id, "completed");
    assert_eq!(ended["changed"], 2);
    scene
        .daemon
        .eventually("both are dead again", || scene.table.dead().len() == 2);
    assert_eq!(job(&api(&scene.daemon), &id)["changed"], 2);
    scene.finish();
}

fn criteria_choose_and_bad_ones_are_refused() {
    let scene = scene_with(20);
    let api = api(&scene.daemon);
    let long = "x".repeat(3000);
    for (field, value, status, part) in [
        ("rate", json!(0), 400, "rate must be within"),
        ("since", json!("yesterday"), 400, "since"),
        ("error", json!(long), 400, "at most 2048 bytes"),
        ("source", json!(EVIL), 404, "there is main"),
    ] {
        let mut wanted = json!({ "change": "retry", "source": "main" });
        wanted[field] = value;
        let told = api.post("/v1/jobs", &wanted.to_string()).problem(status);
        assert!(told.contains(part), "{told}");
    }
    for wanted in [
        json!({ "change": "burn", "source": "main" }),
        json!({ "source": "main" }),
    ] {
        assert_eq!(api.post("/v1/jobs", &wanted.to_string()).status, 422);
    }
    api.get("/v1/jobs/..%2F..%2Fstatus").problem(404);
    let hostile = json!({ "error": format!("' OR 1=1 %_ {EVIL}"), "pool": EVIL, "reason": "x'" });
    let id = start(&api, "drop", hostile);
    assert_eq!(becomes(&scene.daemon, &id, "completed")["changed"], 0);
    let page = api.get(&format!("/ui/jobs/{id}"));
    assert_eq!(page.status, 200);
    assert_tame(&page.body);
    let later = json!({ "error": "even", "pool": "work", "before": "2999-01-01T00:00:00Z" });
    let id = start(&api, "drop", later);
    let ended = becomes(&scene.daemon, &id, "completed");
    assert_eq!(ended["changed"], 10);
    assert!(ended["before"].as_str().unwrap() < "2999", "{ended}");
    assert_eq!(dead(&scene), 10);
    scene.finish();
}

fn commands_begin_list_and_cancel_jobs() {
    let scene = scene_with(10);
    let config = scene.daemon.config().to_str().unwrap().to_owned();
    let ganger = |args: &[&str]| scene.site.ganger(&[args, &["--config", &config]].concat());
    assert_eq!(ganger(&["dead", "jobs"]).good(), "no jobs\n");
    let background = ["dead", "retry", "--all", "--background", "--rate", "1"];
    let begun = ganger(&background).good();
    let id = begun.split_whitespace().nth(2).unwrap().to_owned();
    let listed = ganger(&["dead", "jobs"]).good();
    assert!(listed.contains(&id), "{listed}");
    let cancelled = ganger(&["dead", "cancel", &id]).good();
    assert!(cancelled.starts_with("job cancelled after "), "{cancelled}");
    ganger(&["dead", "cancel", &id]).bad(1);
    ganger(&["dead", "cancel", "nothing"]).bad(2);
    ganger(&["dead", "retry", "--all", "--rate", "1"]).bad(2);
    ganger(&["dead", "retry", "1", "--background"]).bad(2);
    let even = [
        "dead",
        "drop",
        "--error",
        "even",
        "--background",
        "-o",
        "json",
    ];
    let begun = ganger(&even).json();
    let id = begun[0]["id"].as_str().unwrap().to_owned();
    becomes(&scene.daemon, &id, "completed");
    scene.finish();
}

/// As a script of a deploy may lock the directory of the configuration.
fn a_lock_of_another_program_holds_up_nothing() {
    let scene = scene_with(10);
    let directory = fs::File::open(scene.site.path("")).unwrap();
    directory.lock().unwrap();
    let api = api(&scene.daemon);
    let id = thread::scope(|scope| {
        let starting = scope.spawn(|| start(&api, "drop", json!({})));
        assert_eq!(api.get("/livez").status, 200);
        starting.join().unwrap()
    });
    becomes(&scene.daemon, &id, "completed");
    assert_eq!(dead(&scene), 0);
    drop(directory);
    scene.finish();
}

/// A directory in the place of the file is no place for it.
fn a_job_that_can_not_be_kept_says_so() {
    let scene = scene_with(10);
    let file = scene.daemon.config().with_extension("jobs.json");
    fs::create_dir(&file).unwrap();
    let api = api(&scene.daemon);
    let id = start(&api, "retry", json!({ "rate": 1 }));
    assert_eq!(job(&api, &id)["outlasts_restart"], false);
    let told = "writing the file of jobs failed: jobs do not outlast a restart";
    scene.daemon.logged(told);
    fs::remove_dir(&file).unwrap();
    changes(&scene.daemon, &id, 2);
    assert_eq!(job(&api, &id)["outlasts_restart"], true);
    scene.daemon.stop();
    fs::write(&file, "[{").unwrap();
    let daemon = again(&scene.site, &scene.daemon);
    daemon.logged("reading the file of jobs failed: no job is continued");
    assert_eq!(self::api(&daemon).get("/v1/jobs").json(), json!([]));
    daemon.stop();
}

/// Dead letters of a broker, whose queue the pool no longer reads.
fn at_rabbitmq(count: usize) -> (RabbitScene, Vec<String>) {
    let scene = RabbitScene::of(Pool::new(&[]).attempts(1));
    let bodies: Vec<String> = (0..count).map(|n| format!("mode:answer:400 {n}")).collect();
    scene.send(&bodies);
    let client = scene.vhost.client();
    scene.daemon.eventually("all to be dead", || {
        client.ready(DEAD).unwrap_or(0) as usize == count
    });
    api(&scene.daemon).post("/v1/pools/work/pause", "").json();
    (scene, bodies)
}

fn jobs_go_through_a_queue_of_rabbitmq() {
    let (scene, mut bodies) = at_rabbitmq(150);
    let id = start(
        &api(&scene.daemon),
        "retry",
        json!({ "rate": 80, "expected": 150 }),
    );
    changes(&scene.daemon, &id, 20);
    scene.daemon.crash();
    let daemon = again(&scene.site, &scene.daemon);
    changes(&daemon, &id, 60);
    daemon.stop();
    let daemon = again(&scene.site, &daemon);
    let ended = becomes(&daemon, &id, "completed");
    assert_eq!((&ended["failed"], &ended["left"]), (&json!(0), &json!(0)));
    let client = scene.vhost.client();
    assert_eq!(client.ready(DEAD), Some(0));
    let letters = client.take_all("work");
    // The step in progress when it was killed may have been sent twice.
    assert!(letters.len() <= 150 + 20, "{}", letters.len());
    let mut sent: Vec<String> = letters.iter().map(|it| it.text().to_owned()).collect();
    sent.sort();
    sent.dedup();
    bodies.sort();
    assert_eq!(sent, bodies);
    daemon.stop();
}

fn a_cancelled_job_leaves_the_rest_at_rabbitmq() {
    let (scene, _) = at_rabbitmq(60);
    let api = api(&scene.daemon);
    let id = start(&api, "drop", json!({ "rate": 8 }));
    changes(&scene.daemon, &id, 4);
    api.post(&format!("/v1/jobs/{id}/cancel"), "").json();
    let client = scene.vhost.client();
    scene.daemon.eventually("all others to be back", || {
        let changed = job(&api, &id)["changed"].as_u64().unwrap();
        u64::from(client.ready(DEAD).unwrap()) + changed == 60
    });
    let id = start(&api, "drop", json!({}));
    becomes(&scene.daemon, &id, "completed");
    assert_eq!(client.ready(DEAD), Some(0));
    scene.daemon.stop();
}
