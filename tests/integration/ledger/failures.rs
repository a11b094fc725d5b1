//! Failures as the ledger shows them: the errors, their fingerprints, the exits of workers, the dead letters.

use serde_json::{Value, json};

use super::{becomes, schedule, trigger};
use crate::harness::{Daemon, Pool, Workspace, trials_on};

trials_on![
    a_failure_shows_the_exit_of_its_worker_and_its_dead_letter,
    the_record_of_a_message_is_found_by_its_correlation_id,
];

/// A pool whose schedules end their workers, each in its own way.
fn pool() -> Pool {
    let of = |name: &str, body: &str| {
        let keys = format!("at = \"2100-01-01T00:00:00\"\nbody = \"{body}\"");
        schedule(name, &keys)
    };
    let schedules = [
        of("exits", "mode:die:exit:3"),
        of("dies", "mode:die:kill"),
        of("fails", "mode:answer:500"),
    ];
    let ledger = "[ledger]\nsource = \"main\"\nrecord = \"failed\"\n";
    Pool::new(&[])
        .attempts(1)
        .after(&format!("{ledger}{}", schedules.concat()))
}

fn site() -> (Workspace, Daemon) {
    let site = Workspace::new();
    let pools = [pool()];
    site.configure_commands(&pools);
    let daemon = site.start(&pools);
    daemon.entered();
    (site, daemon)
}

fn list(site: &Workspace, args: &[&str]) -> Vec<Value> {
    let args = [&["occurrence", "list", "-o", "json"], args].concat();
    site.ganger(&args).json().as_array().unwrap().clone()
}

fn a_failure_shows_the_exit_of_its_worker_and_its_dead_letter() {
    let (site, daemon) = site();
    let fails = |name: &str| {
        let id = trigger(&site, name);
        becomes(&site, &daemon, &id, "failed")
    };
    let exit = |run: &Value| (run["exit_code"].clone(), run["signal"].clone());
    let exited = fails("exits");
    assert_eq!(exit(&exited), (json!(3), Value::Null), "{exited}");
    assert_eq!(exited["reason"], "crashed");
    let killed = fails("dies");
    assert_eq!(exit(&killed), (Value::Null, json!(9)), "{killed}");
    let failed = fails("fails");
    assert_eq!(exit(&failed), (Value::Null, Value::Null), "{failed}");
    let again = fails("exits");
    let fingerprint = exited["fingerprint"].as_str().unwrap();
    assert_eq!(again["fingerprint"], fingerprint);
    assert_ne!(killed["fingerprint"], fingerprint);
    let same = list(&site, &["--fingerprint", fingerprint]);
    let ids: Vec<_> = same.iter().map(|run| &run["id"]).collect();
    assert_eq!(ids, [&again["id"], &exited["id"]]);
    let id = killed["id"].as_str().unwrap();
    let letter = json!({ "source": "main", "message_id": id });
    assert_eq!(killed["dead_letter"], letter);
    let text = site.ganger(&["occurrence", "show", id]).good();
    let command = format!("dead list --source main --message-id {id}");
    for part in [
        "signal        9",
        "fingerprint   ",
        &format!("dead letter   ganger {command}"),
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let mut command: Vec<&str> = command.split(' ').collect();
    command.extend(["-o", "json"]);
    let letters = site.ganger(&command).json();
    assert_eq!(letters.as_array().map(Vec::len), Some(1), "{letters}");
    assert_eq!(
        (&letters[0]["message_id"], &letters[0]["signal"]),
        (&json!(id), &json!(9))
    );
    daemon.stop();
}

fn the_record_of_a_message_is_found_by_its_correlation_id() {
    let (site, daemon) = site();
    let line = |ids: Value| {
        let mut line = json!({ "body": "mode:answer:500" });
        line.as_object_mut()
            .unwrap()
            .extend(ids.as_object().unwrap().clone());
        format!("{line}\n")
    };
    let lines = [
        json!({ "message_id": "a", "correlation_id": "order 17" }),
        json!({ "message_id": "b" }),
    ];
    let lines = lines.map(line).concat();
    let args = ["send", "work", "--file", "-"];
    site.ganger_reading(&args, lines.as_bytes()).good();
    // One that has no message id.
    let insert = "INSERT INTO consumer_messages (queue, body, correlation_id)
                  VALUES ('work', 'mode:answer:500', 'order 17')";
    site.table().run(insert).unwrap();
    let records = || list(&site, &["--state", "failed"]);
    daemon.eventually("all to be recorded", || records().len() == 3);
    let found = list(&site, &["--correlation-id", "order 17"]);
    let mut ids: Vec<_> = found
        .iter()
        .map(|run| run["message_id"].as_str().unwrap())
        .collect();
    ids.sort_unstable();
    assert_eq!(ids, ["a", "order 17"]);
    for run in &found {
        assert_eq!(run["correlation_id"], "order 17");
        let id = run["message_id"].as_str().unwrap();
        let args = ["dead", "list", "--message-id", id, "-o", "json"];
        let letters = site.ganger(&args).json();
        assert_eq!(letters.as_array().map(Vec::len), Some(1), "{letters}");
    }
    let text = site.ganger(&["occurrence", "show", "order 17"]).good();
    assert!(text.contains("--message-id 'order 17'\n"), "{text}");
    let run = trigger(&site, "fails");
    let failed = becomes(&site, &daemon, &run, "failed");
    assert_eq!(failed["correlation_id"], json!(run));
    let found = list(&site, &["--correlation-id", &run]);
    assert_eq!((found.len(), &found[0]["id"]), (1, &failed["id"]));
    assert!(list(&site, &["--correlation-id", "a"]).is_empty());
    daemon.stop();
}
