//! Schedules whose messages go to Kafka, from a ledger in a file of its own.

use std::time::Duration;

use rusqlite::Connection;
use serde_json::json;

use crate::harness::kafka::{Kafka, KafkaSite, Plan};
use crate::harness::{Daemon, Event, Pool, trials};
use crate::ledger::{
    becomes, each_slot_was_one_occurrence, schedule_to, secondly_to, states, trigger,
};

trials![
    each_slot_is_one_occurrence_whatever_becomes_of_two_daemons,
    a_broker_that_is_away_costs_no_slot,
    a_run_is_told_to_its_end,
    a_run_that_fails_is_retried_and_sent_back,
    a_run_is_cancelled_while_it_runs_and_when_it_is_delivered,
];

/// The daemon's word on a source that does not take messages.
const UNSENT: &str = "messages of schedules can't be published; they stay in the ledger, retrying";
const BLOW_EVERY: Duration = Duration::from_millis(1500);
const BLOWS: usize = 6;

/// A pool, and a schedule that runs when it is triggered.
fn asked(site: &KafkaSite, body: &str) -> Pool {
    let keys = format!("at = \"2100-01-01T00:00:00\"\nbody = \"{body}\"");
    let place = format!("queue = \"{}\"", site.topic);
    site.pool(&[]).after(&schedule_to(&place, "asked", &keys))
}

fn start(site: &KafkaSite, pool: &Pool) -> Daemon {
    site.site.configure_commands(std::slice::from_ref(pool));
    let daemon = site.start(pool);
    daemon.entered();
    daemon
}

fn a_run_is_told_to_its_end() {
    let site = KafkaSite::new(2);
    let daemon = start(&site, &asked(&site, "mode:wait:go"));
    let id = trigger(&site.site, "asked");
    becomes(&site.site, &daemon, &id, "running");
    site.site.touch("go");
    let ended = becomes(&site.site, &daemon, &id, "completed");
    assert_eq!(states(&ended), ["queued", "queued", "running", "completed"]);
    assert_eq!(ended["events"][1]["note"], "published to main");
    site.all_done(&daemon);
    assert_eq!(site.record().of(Event::Began, "mode:wait:go").len(), 1);
    let topic = site.topic.clone();
    assert_eq!(site.kafka.texts(&topic), ["mode:wait:go"]);
    daemon.stop();
}

fn a_run_that_fails_is_retried_and_sent_back() {
    let site = KafkaSite::new(1);
    let daemon = start(&site, &asked(&site, "mode:unless:mended:500"));
    let id = trigger(&site.site, "asked");
    let failed = becomes(&site.site, &daemon, &id, "failed");
    assert_eq!(
        (&failed["attempt"], &failed["reason"]),
        (&json!(2), &json!("failed"))
    );
    let config = daemon.config().to_str().unwrap();
    let dead = ["dead", "list", "-o", "json", "--config", config];
    daemon.eventually("the letter", || {
        let letters = site.site.ganger(&dead).json();
        letters[0]["message_id"] == json!(id)
    });
    site.site.touch("mended");
    let retry = [
        "dead", "retry", "--all", "--source", "main", "--config", config,
    ];
    site.site.ganger(&retry).good();
    becomes(&site.site, &daemon, &id, "completed");
    daemon.stop();
}

fn each_slot_is_one_occurrence_whatever_becomes_of_two_daemons() {
    let site = KafkaSite::new(2);
    let place = format!("queue = \"{}\"", site.topic);
    let pools = [secondly_to(&place, &site.pool(&[]))];
    site.site.configure_commands(&pools);
    let mut daemons = [(); 2].map(|()| site.site.start(&pools));
    for blow in 0..BLOWS {
        std::thread::park_timeout(BLOW_EVERY);
        let victim = &mut daemons[blow % 2];
        victim.crash();
        *victim = site.site.start(&pools);
    }
    each_slot_was_one_occurrence(&site.site);
    daemons.iter().for_each(Daemon::stop);
}

fn a_broker_that_is_away_costs_no_slot() {
    let site = Plan::on(Kafka::own(), 1)
        .tables(
            r#"
            [sources.main.client]
            "socket.timeout.ms" = "3000"
            "#,
        )
        .make();
    let place = format!("queue = \"{}\"", site.topic);
    let pool = secondly_to(&place, &site.pool(&[]));
    let daemon = start(&site, &pool);
    site.done(&daemon, 10);
    site.kafka.kill();
    let waiting = "SELECT count(*) FROM schedule_outbox";
    let waiting = || {
        let conn = Connection::open(site.site.path("ledger.db")).unwrap();
        conn.query_row(waiting, [], |row| row.get::<_, i64>(0))
            .unwrap()
    };
    daemon.eventually("slots of the outage", || waiting() > 15);
    let ran = site.record().all(Event::Done).len();
    site.kafka.start_again();
    site.done(&daemon, ran + 20);
    each_slot_was_one_occurrence(&site.site);
    assert!(daemon.times_logged(UNSENT) <= 1);
    daemon.stop();
}

/// One has the worker; the other is behind it in its partition.
fn a_run_is_cancelled_while_it_runs_and_when_it_is_delivered() {
    let site = KafkaSite::new(1);
    let keys = "at = \"2100-01-01T00:00:00\"\noverlap = \"allow\"\nretry = { attempts = 1 }\n\
                body = \"mode:until-cancelled,answer:500\"";
    let place = format!("queue = \"{}\"", site.topic);
    let pool = site.pool(&["--v2=1"]).set("prefetch", "1");
    let daemon = start(&site, &pool.after(&schedule_to(&place, "asked", keys)));
    let running = trigger(&site.site, "asked");
    becomes(&site.site, &daemon, &running, "running");
    let behind = trigger(&site.site, "asked");
    daemon.eventually("it to be published", || {
        let shown = site.site.ganger(&["occurrence", "show", &behind]);
        shown.good().contains("published to main")
    });
    for id in [&behind, &running] {
        site.site.ganger(&["occurrence", "cancel", id]).good();
    }
    for id in [&running, &behind] {
        let cancelled = becomes(&site.site, &daemon, id, "cancelled");
        let last = cancelled["events"].as_array().unwrap().last().unwrap();
        assert_eq!(last["note"], "cancelled by an operator");
    }
    let body = "mode:until-cancelled,answer:500";
    assert_eq!(site.record().of(Event::Began, body).len(), 1);
    site.site.put("fine", "fine", false);
    let back = ["occurrence", "retry", &behind, "--body", "fine"];
    site.site.ganger(&back).good();
    becomes(&site.site, &daemon, &behind, "completed");
    daemon.stop();
}
