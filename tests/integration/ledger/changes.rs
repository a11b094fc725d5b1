//! What operators change: definitions and their versions, single slots, and the record of it.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{listed, occurrences, schedule};
use crate::harness::{Daemon, Pool, Workspace, look, trials_on};

trials_on![
    a_schedule_is_added_edited_and_rolled_back,
    versions_of_files_and_of_sql_are_kept,
    slots_are_skipped_and_those_of_the_past_run,
    a_schedule_is_explained,
    ; sqlite:
    a_definition_that_is_mistyped_is_told,
    a_version_or_slot_that_is_mistyped_is_told,
    an_edit_between_refuses_the_later_one,
    a_definition_is_edited_on_a_terminal,
];

/// A schedule far away.
const YEARLY: &str = "cron = \"0 0 1 1 *\"";

fn site_with(schedules: &str) -> (Workspace, Daemon) {
    let site = Workspace::new();
    let pools = [Pool::new(&[]).after(schedules)];
    site.configure_commands(&pools);
    let daemon = site.start(&pools);
    daemon.entered();
    (site, daemon)
}

fn json_of(site: &Workspace, args: &[&str]) -> Value {
    let args = [&["schedule"], args, &["-o", "json"]].concat();
    site.ganger(&args).json()
}

fn said(site: &Workspace, args: &[&str]) -> String {
    site.ganger(&[&["schedule"], args].concat()).good()
}

/// Waits until a daemon has seen that version of a schedule.
fn seen(site: &Workspace, daemon: &Daemon, name: &str, version: u64) {
    daemon.eventually(&format!("version {version} of {name} to be seen"), || {
        listed(site)
            .get(name)
            .is_some_and(|one| one["version"] == version)
    });
}

fn user() -> String {
    let user = nix::unistd::User::from_uid(nix::unistd::Uid::current());
    user.unwrap().unwrap().name
}

fn a_schedule_is_added_edited_and_rolled_back() {
    let (site, daemon) = site_with(&schedule("file", YEARLY));
    let add = [
        "add",
        "mine",
        "--cron",
        "0 1 1 1 *",
        "--queue",
        "work",
        "--body",
        "7",
        "--tag",
        "t",
        "--set",
        "misfire.grace=5m",
    ];
    assert_eq!(said(&site, &add), "created mine\n");
    seen(&site, &daemon, "mine", 1);
    let keys = json!({
        "cron": "0 1 1 1 *", "queue": "work", "body": "7", "tags": ["t"], "misfire": { "grace": "5m" },
    });
    let shown = json_of(&site, &["show", "mine"]);
    assert_eq!(
        (&shown["definition"], &shown["origin"]),
        (&keys, &json!("api"))
    );
    let edit = ["edit", "mine", "--every", "2h", "--unset", "tags"];
    assert_eq!(said(&site, &edit), "replaced mine: cron, every, tags\n");
    seen(&site, &daemon, "mine", 2);
    let from_stdin = ["schedule", "edit", "mine", "--file", "-", "-o", "json"];
    let edited = site
        .ganger_reading(&from_stdin, b"zone = \"Europe/Berlin\"\n")
        .json();
    assert_eq!(edited, json!({ "schedule": "mine", "change": "replaced" }));
    let history = json_of(&site, &["history", "mine"]);
    let history = history.as_array().unwrap().clone();
    let told: Vec<_> = history
        .iter()
        .map(|one| {
            (
                one["version"].as_i64().unwrap(),
                &one["origin"],
                &one["actor"],
            )
        })
        .collect();
    let (api, user) = (json!("api"), json!(user()));
    assert_eq!(told, [(3, &api, &user), (2, &api, &user), (1, &api, &user)]);
    assert_eq!(history[2]["definition"], keys);
    let lines = said(&site, &["history", "mine"]);
    assert!(lines.contains("cron, every, tags"), "{lines}");
    let diff = json_of(&site, &["diff", "mine"]);
    let zone = json!({ "key": "zone", "old": null, "new": "Europe/Berlin" });
    assert_eq!(diff, json!({ "from": 2, "to": 3, "changes": [zone] }));
    let lines = said(&site, &["diff", "mine", "1", "2"]);
    for part in ["VERSION 1", "VERSION 2", "0 1 1 1 *", "2h"] {
        assert!(lines.contains(part), "{part}: {lines}");
    }
    assert_eq!(
        said(&site, &["rollback", "mine", "1"]),
        "rolled back mine to version 1\n"
    );
    seen(&site, &daemon, "mine", 4);
    assert_eq!(json_of(&site, &["show", "mine"])["definition"], keys);
    changes_were_recorded(&site, &user);
    said(&site, &["remove", "mine"]);
    let removed = json_of(&site, &["audit"]);
    assert_eq!(removed[0]["action"], "remove");
    assert_eq!(removed[0]["detail"]["definition"], keys);
    daemon.stop();
}

/// Checks that the record has each change, with who has made it.
fn changes_were_recorded(site: &Workspace, user: &Value) {
    let audit = json_of(site, &["audit", "mine"]);
    let actions = audit.as_array().unwrap().iter();
    let actions: Vec<_> = actions
        .map(|one| (one["action"].as_str().unwrap(), &one["actor"]))
        .collect();
    let expected = ["roll_back", "replace", "replace", "create"].map(|action| (action, user));
    assert_eq!(actions, expected);
    assert_eq!(audit[0]["detail"]["to"], 1);
    let lines = said(site, &["audit", "mine", "--limit", "1"]);
    assert!(
        lines.contains("roll_back") && !lines.contains("create"),
        "{lines}"
    );
}

fn versions_of_files_and_of_sql_are_kept() {
    let (site, daemon) = site_with(&schedule("file", YEARLY));
    let run = |sql: &str| site.table().run(sql).unwrap();
    run(
        "INSERT INTO schedules (name, definition) VALUES ('sql', '{\"every\": \"1h\", \"queue\": \"work\"}')",
    );
    seen(&site, &daemon, "file", 1);
    seen(&site, &daemon, "sql", 1);
    run(
        "UPDATE schedules SET definition = '{\"every\": \"2h\", \"queue\": \"work\"}', wake_at = 0 WHERE name = 'sql'",
    );
    seen(&site, &daemon, "sql", 2);
    let pools = [Pool::new(&[]).after(&schedule("file", "cron = \"0 1 1 1 *\""))];
    site.reconfigure(&daemon, &pools);
    daemon.signal(nix::sys::signal::Signal::SIGHUP);
    seen(&site, &daemon, "file", 2);
    for (name, key, old, new) in [
        ("file", "cron", "0 0 1 1 *", "0 1 1 1 *"),
        ("sql", "every", "1h", "2h"),
    ] {
        let diff = json_of(&site, &["diff", name]);
        let change = json!({ "key": key, "old": old, "new": new });
        assert_eq!(diff["changes"], json!([change]), "{name}");
        let history = json_of(&site, &["history", name]);
        assert_eq!(
            (&history[0]["origin"], &history[0]["actor"]),
            (&json!(name), &Value::Null)
        );
    }
    // Nobody has changed them with a command.
    assert_eq!(said(&site, &["audit"]), "no changes\n");
    let refused = site.ganger(&["schedule", "rollback", "file", "1"]).bad(1);
    assert!(
        refused.contains("write the earlier definition there"),
        "{refused}"
    );
    let refused = site
        .ganger(&["schedule", "edit", "file", "--every", "1h"])
        .bad(1);
    assert!(
        refused.contains("is in a configuration: change it there"),
        "{refused}"
    );
    let refused = site
        .ganger(&["schedule", "edit", "sql", "--every", "3h"])
        .bad(1);
    assert!(refused.contains("is of SQL: change it there"), "{refused}");
    daemon.stop();
}

/// Returns the occurrence of a slot.
fn of_slot(site: &Workspace, slot: Timestamp) -> Option<Value> {
    let slot = json!(slot.to_string());
    let mut all = occurrences(site, "often").into_iter();
    all.find(|one| one["slot"] == slot)
}

/// Waits until the run of a slot has completed.
fn completed(site: &Workspace, daemon: &Daemon, slot: Timestamp) -> Value {
    daemon.eventually_some("the slot to run", || {
        of_slot(site, slot).filter(|one| one["state"] == "completed")
    })
}

fn slots_are_skipped_and_those_of_the_past_run() {
    let keys = "every = \"1s\"\nbody = \"{{ slot }}\"\noverlap = \"allow\"\n\
                misfire = { grace = \"10m\" }";
    let (site, daemon) = site_with(&schedule("often", keys));
    seen(&site, &daemon, "often", 1);
    // No slot is decided meanwhile, however busy the machine is.
    said(&site, &["pause", "--all"]);
    let ahead = |seconds| {
        let now = Timestamp::now() + Duration::from_secs(seconds);
        Timestamp::from_second(now.as_second()).unwrap()
    };
    let (slot, other) = (ahead(3), ahead(3600).to_string());
    let taken_out = slot.to_string();
    let skipped = json_of(&site, &["skip", "often", &taken_out, "--reason", "a try"]);
    assert_eq!(skipped, json!({ "slot": taken_out, "skips": [taken_out] }));
    assert_eq!(
        json_of(&site, &["show", "often"])["skips"],
        json!([taken_out])
    );
    said(&site, &["skip", "often", &other]);
    let undone = said(&site, &["skip", "often", &other, "--undo"]);
    assert_eq!(undone, format!("often will run at {other}\n"));
    said(&site, &["resume", "--all"]);
    completed(&site, &daemon, slot + SignedDuration::from_secs(1));
    let before = slot - SignedDuration::from_secs(1);
    completed(&site, &daemon, before);
    let skipped = of_slot(&site, slot).unwrap();
    assert_eq!(
        (&skipped["state"], &skipped["reason"]),
        (&json!("skipped"), &json!("operator"))
    );
    let again = format!("skip often {taken_out}");
    refused(&site, &[(&again, 2, "is decided already")]);
    // It runs on purpose, once.
    said(&site, &["pause", "often"]);
    let from = before.to_string();
    let range = ["backfill", "often", "--from", &from, "--to", &taken_out];
    let dry = said(&site, &[&range[..], &["--dry-run"]].concat());
    assert_eq!(
        dry,
        format!("{taken_out}\n1 slot(s) would run; 1 have run before\n")
    );
    let filled = json_of(&site, &[&range[..], &["--yes"]].concat());
    let expected = json!({ "slots": [taken_out], "done": 1, "occurrences": [skipped["id"]] });
    assert_eq!(filled, expected);
    assert_eq!(completed(&site, &daemon, slot)["id"], skipped["id"]);
    site.record().assert_done_once(&[&taken_out]);
    assert_eq!(said(&site, &range), "no slot to run; 2 have run before\n");
    let audit = json_of(&site, &["audit", "often"]);
    let actions = audit.as_array().unwrap().iter();
    let actions: Vec<_> = actions.map(|one| one["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["backfill", "pause", "unskip", "skip", "skip"]);
    daemon.stop();
}

fn a_schedule_is_explained() {
    let keys = "cron = \"30 2 * * *\"\nzone = \"Europe/Berlin\"\nonly = { days = [\"MON-FRI\"] }\n\
                expect = { every = \"26h\" }";
    let site = Workspace::new();
    let pools = [Pool::new(&[]).after(&schedule("nightly", keys))];
    site.configure_commands(&pools);
    let told = said(&site, &["explain", "nightly"]);
    let state = "state         new: a daemon enters it when it starts or reloads";
    assert!(told.contains(state), "{told}");
    let daemon = site.start(&pools);
    daemon.entered();
    seen(&site, &daemon, "nightly", 1);
    said(&site, &["skip", "nightly"]);
    said(&site, &["pause", "nightly", "--reason", "maintenance"]);
    let told = said(&site, &["explain", "nightly", "-n", "2"]);
    for part in [
        "state         paused (maintenance): no slot is dispatched until `ganger schedule resume nightly`",
        "sends to      queue `work`",
        "cron          30 2 * * *",
        "zone          Europe/Berlin",
        "overlap       a slot is skipped while an earlier run is open",
        "expect        a run completes within 26h; else it is overdue",
        "only          MON-FRI; a slot outside is skipped",
        "does not run: an operator has skipped it",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    daemon.stop();
}

/// Runs commands that are refused with those exit codes, for those reasons.
fn refused(site: &Workspace, commands: &[(&str, i32, &str)]) {
    for (command, code, expected) in commands {
        let args: Vec<&str> = command.split(' ').collect();
        let refused = site.ganger(&[&["schedule"], &args[..]].concat()).bad(*code);
        assert!(refused.contains(expected), "{command}: {refused}");
    }
}

fn a_definition_that_is_mistyped_is_told() {
    let (site, daemon) = site_with(&schedule("file", YEARLY));
    said(&site, &["add", "mine", "--every", "1h", "--queue", "work"]);
    let new = "queue = \"work\"\nevery = \"1h\"\nzone = \"berlin\"\n";
    site.put("new.toml", new, false);
    let commands = [
        ("add a --cron @never --queue work", 2, "--cron:1:1: cron:"),
        ("add a --every 1h", 2, "queue is missing"),
        (
            "add a --every 1h --queue q --source mian",
            2,
            "did you mean `main`?",
        ),
        (
            "add a --every 1h --queue q --set misfire",
            2,
            "--set must be KEY=VALUE: `misfire`",
        ),
        (
            "add a --every 1h --queue q --set misfire.polcy=all",
            2,
            "did you mean `policy`?",
        ),
        (
            "add a --at 2001-01-01T00:00 --queue q",
            2,
            "has no slot after",
        ),
        ("add a --file absent.toml", 1, "absent.toml"),
        (
            "add a --file new.toml",
            2,
            "new.toml:3:8: zone: time zone `berlin` is unknown",
        ),
        ("add mine --every 1h --queue work", 1, "exists already"),
        (
            "add file --every 1h --queue work",
            1,
            "is in the configuration: change it there",
        ),
        ("edit mine", 2, "there is nothing to change"),
        ("edit mine --unset zone", 2, "has no key `zone` to take out"),
        ("edit mine --unset queue", 2, "queue is missing"),
        ("edit typo --every 1h", 2, "there is no schedule `typo`"),
    ];
    refused(&site, &commands);
    assert_eq!(listed(&site).len(), 2);
    daemon.stop();
}

fn a_version_or_slot_that_is_mistyped_is_told() {
    let (site, daemon) = site_with(&schedule("file", YEARLY));
    said(&site, &["add", "mine", "--every", "1h", "--queue", "work"]);
    let unknown = "there is no schedule `typo`";
    let commands = [
        ("history typo", 2, unknown),
        ("diff mine", 2, "has no two versions to compare"),
        (
            "diff mine 1 7",
            2,
            "has no version 7 (any more); these are kept: 1",
        ),
        (
            "rollback mine 7",
            2,
            "there is no version 7 (any more); these are kept: 1",
        ),
        ("rollback typo 1", 2, unknown),
        ("skip mine 2001-01-01T00:00", 2, "is decided already"),
        (
            "skip mine 2100-01-01T00:30",
            2,
            "it has no slot 2100-01-01T00:30:00Z; these are: 2100-01-01T01:00:00Z",
        ),
        ("skip mine noon", 2, "slot: invalid time `noon`"),
        ("skip mine --undo", 2, "no slot is skipped"),
        ("skip typo", 2, unknown),
        (
            "backfill mine --from 2026-01-01T00:00 --to 2100-01-01T00:00",
            2,
            "to must be in the past",
        ),
        (
            "backfill mine --from 2001-01-01T00:00 --to 2002-01-01T00:00",
            2,
            "there are more than 1000 slots",
        ),
        (
            "backfill typo --from 2001-01-01T00:00 --to 2002-01-01T00:00",
            2,
            unknown,
        ),
        ("explain typo", 2, unknown),
    ];
    refused(&site, &commands);
    daemon.stop();
}

/// The editor reads its input only after it has read the schedule.
fn an_edit_between_refuses_the_later_one() {
    let (site, daemon) = site_with(&schedule("file", YEARLY));
    said(&site, &["add", "mine", "--every", "1h", "--queue", "work"]);
    let pipe = site.path("late.toml");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    std::thread::scope(|scope| {
        let late =
            scope.spawn(|| site.ganger(&["schedule", "edit", "mine", "--file", "late.toml"]));
        // It opens the pipe once the definition is read.
        let writer = std::fs::File::options().write(true).open(&pipe).unwrap();
        said(&site, &["edit", "mine", "--zone", "Europe/Berlin"]);
        std::io::Write::write_all(&mut &writer, b"every = \"2h\"\n").unwrap();
        drop(writer);
        let refused = late.join().unwrap().bad(1);
        assert!(refused.contains("was changed meanwhile"), "{refused}");
    });
    let shown = json_of(&site, &["show", "mine"]);
    assert_eq!(shown["definition"]["every"], "1h");
    assert_eq!(shown["definition"]["zone"], "Europe/Berlin");
    daemon.stop();
}

/// Returns the texts of the files that the editor has left.
fn kept(site: &Workspace) -> Vec<String> {
    let files = std::fs::read_dir(site.path(".")).unwrap();
    let files = files.map(|file| file.unwrap().path());
    let mut kept: Vec<_> = files
        .filter(|file| {
            let name = file.file_name().unwrap().to_string_lossy();
            name.starts_with("ganger-mine-")
        })
        .collect();
    kept.sort();
    let texts = kept.iter().map(|file| {
        let text = std::fs::read_to_string(file).unwrap();
        std::fs::remove_file(file).unwrap();
        text
    });
    texts.collect()
}

/// One editor goes on, as most do; another one ends, and leaves what it has written.
fn keys_that_interrupt_are_for_the_editor(site: &Workspace) {
    let goes_on = "trap 'touch interrupted' INT; touch typed\n\
                   until test -e interrupted; do sleep 0.01; done; sed -i s/2h/5h/ \"$1\"";
    let ends = "sed -i s/5h/6h/ \"$1\"; touch typed; until test -e never; do sleep 0.01; done";
    for (editor, code, shown) in [
        (goes_on, 0, "replaced mine: every"),
        (
            ends,
            1,
            "nothing was changed: the editor `sh ./editor` ended with exit status: 130",
        ),
    ] {
        site.put("editor", editor, false);
        let variables = [("VISUAL", ""), ("EDITOR", "sh ./editor"), ("TMPDIR", ".")];
        let mut seat = site.seat_with((200, 50), &["schedule", "edit", "mine"], &variables);
        let typed = look(|| std::fs::remove_file(site.path("typed")).ok());
        assert!(typed.is_some(), "{editor}:\n{}", seat.text());
        seat.press("\x03");
        seat.shows(shown);
        assert_eq!(seat.left().code(), Some(code), "{editor}");
    }
    let kept = kept(site);
    assert!(kept.len() == 1 && kept[0].contains("6h"), "{kept:?}");
}

fn a_definition_is_edited_on_a_terminal() {
    let (site, daemon) = site_with(&schedule("file", YEARLY));
    said(&site, &["add", "mine", "--every", "1h", "--queue", "work"]);
    let run = |editor: &str, code: i32, parts: &[&str]| {
        site.put("editor", editor, false);
        let variables = [("VISUAL", ""), ("EDITOR", "sh ./editor"), ("TMPDIR", ".")];
        let args = ["schedule", "edit", "mine"];
        let seat = site.seat_with((200, 50), &args, &variables);
        parts.iter().for_each(|part| seat.shows(part));
        assert_eq!(seat.left().code(), Some(code), "{editor}");
    };
    let every = || json_of(&site, &["show", "mine"])["definition"]["every"].clone();
    run("sed -i s/1h/2h/ \"$1\"", 0, &["replaced mine: every"]);
    assert_eq!(every(), "2h");
    run("exit 0", 0, &["unchanged mine"]);
    run(
        "exit 3",
        1,
        &["nothing was changed: the editor `sh ./editor`"],
    );
    assert!(kept(&site).is_empty());
    let left = "the text is kept in /";
    run(
        "sed -i s/2h/3h/ \"$1\"; exit 1",
        1,
        &[left, "nothing was changed"],
    );
    run(
        "echo 'zone = \"berlin\"' >> \"$1\"",
        2,
        &[
            left,
            "the definition has a problem",
            "zone: time zone `berlin` is unknown",
        ],
    );
    let texts = kept(&site);
    let has = |part: &str| texts.iter().filter(|text| text.contains(part)).count();
    assert_eq!((has("3h"), has("berlin")), (1, 1), "{texts:?}");
    // Another change comes while the editor is open.
    let late = "touch open; until test -e go; do sleep 0.01; done; sed -i s/2h/4h/ \"$1\"";
    std::thread::scope(|scope| {
        let edited = scope.spawn(|| run(late, 1, &[left, "was changed meanwhile"]));
        daemon.eventually("the editor to be open", || site.path("open").exists());
        said(&site, &["edit", "mine", "--zone", "Europe/Berlin"]);
        site.touch("go");
        edited.join().unwrap();
    });
    assert_eq!((every(), kept(&site).len()), (json!("2h"), 1));
    keys_that_interrupt_are_for_the_editor(&site);
    assert_eq!((every(), kept(&site)), (json!("5h"), vec![]));
    let args = ["schedule", "edit", "mine"];
    let seat = site.seat_with((200, 50), &args, &[("VISUAL", ""), ("EDITOR", "")]);
    seat.shows("there is no editor: set VISUAL or EDITOR");
    assert_eq!(seat.left().code(), Some(2));
    daemon.stop();
}
