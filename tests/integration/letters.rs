//! `ganger dead`: lists, shows, sends back and drops what was given up.

use serde_json::{Value, json};

use crate::harness::{EVIL, Event, NewMessage, Pool, Scene, Workspace, assert_tame, trials};

trials![
    the_list_has_all_that_scripts_rely_on,
    the_list_for_people_is_grouped_by_reason,
    the_list_may_be_narrowed,
    letters_are_counted_by_their_error,
    one_is_shown_with_all_that_is_known,
    one_is_sent_back_with_a_clean_count,
    one_is_sent_back_edited,
    a_headers_numbers_keep_their_digits,
    all_are_sent_back_and_done,
    some_are_dropped,
    a_pool_that_is_not_there_is_no_empty_answer,
    some_are_chosen_by_what_they_died_of_and_when,
    a_dry_run_changes_nothing,
    a_person_is_asked_before_all_are_dropped,
    a_reply_that_had_nowhere_to_go_is_shown,
    what_is_not_there_is_an_error,
    a_source_that_can_not_be_used_is_told,
    more_than_the_limit_is_told,
    a_list_is_read_page_by_page,
    letters_are_shown_cut_or_whole,
    a_reader_that_has_seen_enough_is_no_failure,
    a_command_line_that_makes_no_sense,
    a_terminal_is_told_nothing_by_letters,
    ; sqlite:
    those_of_several_sources_are_told_apart,
    a_list_may_be_larger_than_memory,
];

const REJECTED: &str = "mode:answer:400 rejected";
const CRASHED: &str = "mode:complain:last-words,die:exit:7";
const BINARY: &[u8] = &[0xff, 0x00, 0xfe];

fn pool(name: &str) -> Pool {
    let pool = Pool::new(&["--v2=1", "--mode=answer:400"]).attempts(1);
    pool.text("name", name).text("queue", name)
}

/// A directory with dead letters of two pools: a rejected, a crashed and a binary one, and a
/// rejected one of the other pool. Their ids are 1 to 4.
fn with_letters() -> Workspace {
    let pools = [pool("work"), pool("other")];
    let scene = Scene::with(&pools);
    let rejected = NewMessage::new(REJECTED)
        .correlation_id("c-1")
        .message_id("m-1")
        .reply_to("answers")
        .header("tenant", "blue");
    let all = [
        rejected,
        NewMessage::new(CRASHED),
        NewMessage::binary(BINARY),
        NewMessage::new("of the other").to("other"),
    ];
    for message in all {
        scene.table.insert(&[message]);
        scene.settled();
        scene
            .daemon
            .eventually("the other queue", || scene.table.count("other") == 0);
    }
    assert_eq!(scene.table.dead().len(), 4);
    scene.daemon.stop();
    scene.site.configure_commands(&pools);
    scene.site
}

fn list(site: &Workspace, more: &[&str]) -> Vec<Value> {
    let args = [&["dead", "list", "--output", "json"], more].concat();
    let letters = site.ganger(&args).json();
    letters.as_array().unwrap().clone()
}

fn ids(letters: &[Value]) -> Vec<i64> {
    let id = |letter: &Value| letter["id"].as_str().unwrap().parse().unwrap();
    letters.iter().map(id).collect()
}

fn the_list_has_all_that_scripts_rely_on() {
    let site = with_letters();
    let letters = list(&site, &[]);
    assert_eq!(ids(&letters), [1, 2, 3, 4]);
    let first = &letters[0];
    let wanted = json!({
        "id": "1", "pool": "work", "queue": "work", "reason": "rejected", "attempts": 1,
        "crashes": 0, "exit_code": null, "signal": null, "stderr": [], "correlation_id": "c-1",
        "headers": {"tenant": "blue"}, "body": REJECTED, "message_id": "m-1", "reply_to": "answers",
        "message_name": "work:1",
    });
    for (name, value) in wanted.as_object().unwrap() {
        assert_eq!(&first[name], value, "{name} of {first}");
    }
    assert!(
        first["error"].as_str().unwrap().contains("the word on"),
        "{first}"
    );
    for name in ["first_failed_at", "last_failed_at"] {
        let time: jiff::Timestamp = first[name].as_str().unwrap().parse().unwrap();
        let age = jiff::Timestamp::now().duration_since(time).as_secs();
        assert!((0..60).contains(&age), "{name} of {first}");
    }
    let crashed = &letters[1];
    let told = ["reason", "exit_code", "crashes", "stderr"].map(|name| crashed[name].clone());
    assert_eq!(json!(told), json!(["crashed", 7, 1, ["last-words"]]));
    assert_eq!(letters[2]["body_base64"], "/wD+");
    assert!(letters[2].get("body").is_none());
    assert_eq!(letters[3]["pool"], "other");
}

fn the_list_for_people_is_grouped_by_reason() {
    let site = with_letters();
    let out = site.ganger(&["dead", "list"]).good();
    let groups: Vec<&str> = out.lines().filter(|line| line.ends_with(')')).collect();
    assert_eq!(
        groups,
        [
            "other: rejected (1)",
            "work: crashed (1)",
            "work: rejected (2)"
        ]
    );
    assert!(out.contains("  NAME  ") && out.contains("c-1"), "{out}");
    site.ganger(&["dead", "drop", "--all"]).good();
    assert_eq!(site.ganger(&["dead", "list"]).good(), "no dead letters\n");
    assert_eq!(list(&site, &[]), Vec::<Value>::new());
}

fn letters_are_counted_by_their_error() {
    let pools = [pool("work"), pool("other")];
    let scene = Scene::with(&pools);
    let of_other = NewMessage::new("any").to("other");
    let same = ["mode:answer:400 a", "mode:answer:400 a", CRASHED].map(NewMessage::new);
    for message in same.into_iter().chain([of_other]) {
        scene.table.insert(&[message]);
        scene.settled();
    }
    scene
        .daemon
        .eventually("all to be dead", || scene.table.dead().len() == 4);
    scene.daemon.stop();
    let site = scene.site;
    site.configure_commands(&pools);
    let letters = list(&site, &[]);
    let counted = |more: &[&str]| {
        let args = [&["dead", "list", "--by-error", "--output", "json"], more].concat();
        site.ganger(&args).json().as_array().unwrap().clone()
    };
    let groups = counted(&[]);
    let counts: Vec<&Value> = groups.iter().map(|group| &group["count"]).collect();
    assert_eq!(counts, [2, 1, 1], "the most first: {groups:?}");
    for group in &groups {
        let is_of = |letter: &&Value| {
            ["pool", "reason", "error"]
                .iter()
                .all(|name| letter[name] == group[name])
        };
        let all: Vec<&Value> = letters.iter().filter(is_of).collect();
        let (first, last) = (all[0], all[all.len() - 1]);
        let wanted = json!({
            "source": "main", "count": all.len(), "id": first["id"],
            "pool": first["pool"], "reason": first["reason"], "error": first["error"],
            "first_failed_at": first["first_failed_at"], "last_failed_at": last["last_failed_at"],
        });
        assert_eq!(*group, wanted);
    }
    assert_eq!(counted(&["--pool", "other"]).len(), 1);
    let text = site.ganger(&["dead", "list", "--by-error"]).good();
    let rows: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(rows[1][..3], ["2", "work", "rejected"], "{text}");
    assert!(
        text.contains("OLDEST") && text.contains("crashed"),
        "{text}"
    );
    for more in [["--limit", "3"], ["--after", "1"]] {
        let args = [&["dead", "list", "--by-error"], more.as_slice()].concat();
        let refused = site.ganger(&args).bad(2);
        assert!(refused.contains("cannot be used with"), "{refused}");
    }
    site.ganger(&["dead", "drop", "--all"]).good();
    let none = site.ganger(&["dead", "list", "--by-error"]).good();
    assert_eq!(none, "no dead letters\n");
}

fn the_list_may_be_narrowed() {
    let site = with_letters();
    assert_eq!(ids(&list(&site, &["--pool", "other"])), [4]);
    assert_eq!(ids(&list(&site, &["--limit", "2"])), [1, 2]);
    assert_eq!(ids(&list(&site, &["--source", "main"])).len(), 4);
}

/// As `ganger dead list | head -1` may be.
fn a_reader_that_has_seen_enough_is_no_failure() {
    let site = with_letters();
    for args in ["list", "list -o json", "list --full", "show 2", "drop 2"] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let args: Vec<&str> = ["dead"].into_iter().chain(args.split(' ')).collect();
        site.ganger_into(writer, &args);
    }
    assert_eq!(ids(&list(&site, &[])), [1, 3, 4]);
}

fn one_is_shown_with_all_that_is_known() {
    let site = with_letters();
    let shown = site.ganger(&["dead", "show", "2", "-o", "json"]).json();
    assert_eq!(shown, list(&site, &[])[1]);
    let out = site.ganger(&["dead", "show", "2"]).good();
    let lines: Vec<&str> = out.lines().collect();
    for line in [
        "id: 2",
        "reason: crashed",
        "exit_code: 7",
        "stderr:",
        "  last-words",
    ] {
        assert!(lines.contains(&line), "{line}: {out}");
    }
    assert!(lines.contains(&&*format!("body: {CRASHED}")), "{out}");
}

fn one_is_sent_back_with_a_clean_count() {
    let site = with_letters();
    assert_eq!(site.ganger(&["dead", "retry", "1"]).good(), "retried 1\n");
    assert_eq!(ids(&list(&site, &[])), [2, 3, 4]);
    let back = site.table().messages("work").remove(0);
    assert_eq!(
        (back.attempts, back.crashes, back.requeues, back.claimed),
        (0, 0, 0, false)
    );
    assert_eq!(
        (
            back.body.as_str(),
            back.headers,
            back.correlation_id,
            back.reply_to
        ),
        (
            REJECTED,
            json!({"tenant": "blue"}),
            Some("c-1".to_owned()),
            Some("answers".to_owned())
        )
    );
}

fn one_is_sent_back_edited() {
    let site = with_letters();
    site.put("edited", "mended", false);
    let args = ["dead", "retry", "1", "--body", "edited", "-o", "json"];
    assert_eq!(site.ganger(&args).json(), json!({ "retried": 1 }));
    let args = ["dead", "retry", "3", "--body", "-"];
    assert_eq!(
        site.ganger_reading(&args, b"mended too").good(),
        "retried 1\n"
    );
    let back = site.table().messages("work");
    let bodies: Vec<&str> = back.iter().map(|row| row.body.as_str()).collect();
    assert_eq!(bodies, ["mended", "mended too"]);
    assert_eq!(back[0].correlation_id.as_deref(), Some("c-1"));
    let why = site
        .ganger(&["dead", "retry", "2", "4", "--body", "edited"])
        .bad(2);
    assert!(why.contains("--body is for one"), "{why}");
    assert_eq!(ids(&list(&site, &[])), [2, 4]);
}

/// By a running daemon whose workers are mended, the binary one too.
/// However the message comes, and when it comes again.
fn a_headers_numbers_keep_their_digits() {
    let subscribed = "[[subscriptions]]\ntopic = \"placed\"\nqueue = \"work\"\n";
    let pool = Pool::new(&["--v2=1", "--mode=note:header:n,answer:400"]);
    let pool = pool.set("workers", "1").attempts(1).after(subscribed);
    let scene = Scene::of(pool.clone());
    scene.site.configure_commands(&[pool]);
    scene.daemon.logged("subscribed the queue to the topic");
    let numbers = ["10.10", "18446744073709551616", "-0.0", "1E+5"];
    let mut lines = String::new();
    for number in numbers {
        let headers = format!(r#"{{ "n": {number} }}"#);
        let insert = |table: &str, queue: &str| {
            format!("INSERT INTO {table} ({queue}, body, headers) VALUES")
        };
        let row = insert("consumer_messages", "queue");
        let published = insert("published_messages", "topic");
        let statements =
            format!("{row} ('work', 'b', '{headers}'); {published} ('placed', 'b', '{headers}')");
        scene.table.run(&statements).unwrap();
        lines += &format!("{{\"body\": \"b\", \"headers\": {headers}}}\n");
    }
    scene.site.put("lines", &lines, false);
    let sent = ["send", "work", "--file", "lines"];
    scene.site.ganger(&sent).good();
    let noted = |times: usize| {
        let mut all: Vec<String> = Vec::new();
        for number in numbers {
            all.extend(vec![format!("header:n={number}"); times]);
        }
        all.sort();
        scene.daemon.eventually("all to be noted", || {
            let record = scene.record();
            let mut noted = record.texts(Event::Noted);
            noted.sort_unstable();
            noted == all
        });
    };
    noted(3);
    scene.settled();
    scene.site.ganger(&["dead", "retry", "--all"]).good();
    noted(6);
    scene.finish();
}

fn all_are_sent_back_and_done() {
    let site = with_letters();
    let mended = |name: &str| {
        let pool = Pool::new(&["--v2=1"]).text("name", name);
        pool.text("queue", name)
    };
    let scene = Scene::at(site, &[mended("work"), mended("other")]);
    let args = ["dead", "retry", "--all", "--pool", "other", "-o", "json"];
    assert_eq!(scene.site.ganger(&args).json(), json!({ "retried": 1 }));
    assert_eq!(ids(&list(&scene.site, &[])), [1, 2, 3]);
    scene.site.ganger(&["dead", "drop", "1", "2"]).good();
    assert_eq!(
        scene.site.ganger(&["dead", "retry", "--all"]).good(),
        "retried 1\n"
    );
    scene.all_done();
    scene
        .daemon
        .eventually("the other queue", || scene.table.count("other") == 0);
    scene
        .record()
        .assert_done_once(&["of the other", "\u{fffd} \u{fffd}"]);
    assert_eq!(list(&scene.site, &[]), Vec::<Value>::new());
    scene.finish();
}

fn some_are_dropped() {
    let site = with_letters();
    let args = ["dead", "drop", "1", "3", "-o", "json"];
    assert_eq!(site.ganger(&args).json(), json!({ "dropped": 2 }));
    assert_eq!(ids(&list(&site, &[])), [2, 4]);
    let args = ["dead", "drop", "--all", "--pool", "work"];
    assert_eq!(site.ganger(&args).good(), "dropped 1\n");
    assert_eq!(ids(&list(&site, &[])), [4]);
    assert_eq!(site.table().count("work"), 0);
}

fn a_reply_that_had_nowhere_to_go_is_shown() {
    let pool = Pool::new(&[]);
    let scene = Scene::of(pool.clone());
    // The message has no reply-to and the worker names no queue.
    scene.send(&["mode:reply"]);
    assert_eq!(scene.one_dead().reason, "unroutable_reply");
    scene.daemon.stop();
    scene.site.configure_commands(&[pool]);
    let letter = scene
        .site
        .ganger(&["dead", "show", "1", "-o", "json"])
        .json();
    assert_eq!(letter["reply"]["body"], "re: mode:reply", "{letter}");
}

fn some_are_chosen_by_what_they_died_of_and_when() {
    let site = with_letters();
    let only = |more: &[&str]| ids(&list(&site, more));
    assert_eq!(only(&["--reason", "crashed"]), [2]);
    assert_eq!(only(&["--reason", "crash"]), Vec::<i64>::new());
    assert_eq!(only(&["--error", "the word on"]), [1, 3, 4]);
    assert_eq!(
        only(&["--error", "the word on", "--reason", "crashed"]),
        Vec::<i64>::new()
    );
    assert_eq!(only(&["--since", "1h"]), [1, 2, 3, 4]);
    assert_eq!(only(&["--before", "1h"]), Vec::<i64>::new());
    assert_eq!(only(&["--reason", "rejected", "--limit", "2"]), [1, 3]);
    let died = |id: usize| {
        let letter = &list(&site, &[])[id - 1];
        letter["last_failed_at"].as_str().unwrap().to_owned()
    };
    assert_eq!(only(&["--since", &died(4)]), [4]);
    assert_eq!(only(&["--before", &died(2)]), [1]);
    let count = [
        "dead",
        "list",
        "--by-error",
        "--reason",
        "crashed",
        "-o",
        "json",
    ];
    assert_eq!(site.ganger(&count).json().as_array().unwrap().len(), 1);
    let args = ["dead", "retry", "--since", &died(2), "--before", &died(3)];
    assert_eq!(site.ganger(&args).good(), "retried 1\n");
    assert_eq!(only(&[]), [1, 3, 4]);
    let args = ["dead", "drop", "--reason", "rejected", "--pool", "work"];
    assert_eq!(site.ganger(&args).good(), "dropped 2\n");
    assert_eq!(only(&[]), [4]);
    let args = ["dead", "drop", "--error", "never seen", "-o", "json"];
    assert_eq!(site.ganger(&args).json(), json!({ "dropped": 0 }));
}

fn a_dry_run_changes_nothing() {
    let site = with_letters();
    for (args, told) in [
        (&["retry", "--all"][..], "4 would be retried\n"),
        (&["drop", "--reason", "rejected"], "3 would be dropped\n"),
        (&["drop", "1", "9"], "1 would be dropped\n"),
    ] {
        let args = [&["dead"], args, &["--dry-run"]].concat();
        assert_eq!(site.ganger(&args).good(), told);
    }
    let args = ["dead", "drop", "--all", "--dry-run", "-o", "json"];
    let told = json!({ "dropped": 0, "dry_run": true, "matched": 4 });
    assert_eq!(site.ganger(&args).json(), told);
    assert_eq!(ids(&list(&site, &[])), [1, 2, 3, 4]);
}

fn a_person_is_asked_before_all_are_dropped() {
    let site = with_letters();
    let mut seat = site.seat((80, 24), &["dead", "drop", "--all"]);
    seat.shows("Permanently delete 4 dead letter(s)? [y/N]");
    seat.press("\n");
    seat.shows("nothing was dropped");
    assert_eq!(seat.left().code(), Some(1));
    assert_eq!(ids(&list(&site, &[])), [1, 2, 3, 4]);
    let mut seat = site.seat((80, 24), &["dead", "drop", "--reason", "crashed"]);
    seat.shows("Permanently delete 1 dead letter(s)?");
    seat.press("y\n");
    seat.shows("dropped 1");
    assert!(seat.left().success());
    let seat = site.seat((80, 24), &["dead", "drop", "1"]);
    seat.shows("dropped 1");
    assert!(seat.left().success());
    let seat = site.seat((80, 24), &["dead", "drop", "--all", "--yes"]);
    seat.shows("dropped 2");
    assert!(seat.left().success());
}

/// A typing error is not answered with "no dead letters", nor "retried 0".
fn a_pool_that_is_not_there_is_no_empty_answer() {
    let site = with_letters();
    for args in [
        &["list"][..],
        &["list", "--by-error"],
        &["list", "--output", "json"],
        &["show", "1"],
        &["retry", "--all"],
        &["drop", "--all"],
    ] {
        let args = [&["dead"], args, &["--pool", "wrok"]].concat();
        let ran = site.ganger(&args);
        assert_eq!(ran.out, "", "{args:?}");
        let why = ran.bad(2);
        let known = "there is no pool `wrok`; the pools are: work, other";
        assert!(why.contains(known), "{args:?}: {why}");
    }
    // A pool that was removed may have left some.
    site.configure_commands(&[pool("other")]);
    assert_eq!(ids(&list(&site, &["--pool", "work"])), [1, 2, 3]);
    let args = ["dead", "drop", "--all", "--pool", "work"];
    assert_eq!(site.ganger(&args).good(), "dropped 3\n");
    assert!(site.ganger(&args).bad(2).contains("the pools are: other"));
    assert_eq!(ids(&list(&site, &[])), [4]);
}

fn what_is_not_there_is_an_error() {
    let site = with_letters();
    for id in ["9", "one"] {
        let why = site.ganger(&["dead", "show", id]).bad(1);
        assert!(
            why.contains(&format!("there is no dead letter {id}")),
            "{why}"
        );
    }
    let why = site.ganger(&["dead", "drop", "1", "9"]).bad(1);
    assert!(why.contains("1 of 2"), "{why}");
    let why = site.ganger(&["dead", "retry", "8", "9"]).bad(1);
    assert!(why.contains("0 of 2"), "{why}");
    let why = site
        .ganger(&["dead", "retry", "2", "--body", "absent"])
        .bad(1);
    assert!(why.contains("absent"), "{why}");
    let why = site.ganger(&["dead", "list", "--source", "third"]).bad(2);
    assert!(why.contains("there is no source `third`"), "{why}");
    assert_eq!(ids(&list(&site, &[])), [2, 3, 4]);
}

/// Adds a connection to the configuration.
fn add_source(site: &Workspace, name: &str, url: &str) {
    let config = site.path("ganger.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    let source = format!("[sources.{name}]\nkind = \"table\"\nurl = \"sqlite:{url}\"\n");
    std::fs::write(config, format!("{text}\n{source}")).unwrap();
}

/// One letter in two tables of the same form: the numbers are the same.
fn those_of_several_sources_are_told_apart() {
    let site = with_letters();
    site.ganger(&["dead", "drop", "1", "2", "3"]).good();
    std::fs::copy(site.path("queue.db"), site.path("second.db")).unwrap();
    let config = site.path("ganger.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    let text = text.replace("[[pools]]", "[[pools]]\nsource = \"main\"");
    std::fs::write(config, text).unwrap();
    add_source(&site, "second", "second.db");
    let letters = list(&site, &[]);
    assert_eq!(ids(&letters), [4, 4]);
    let sources = [&letters[0]["source"], &letters[1]["source"]];
    assert_eq!(sources, ["main", "second"]);
    let out = site.ganger(&["dead", "list"]).good();
    assert!(out.contains("other of second: rejected (1)"), "{out}");
    for command in ["show", "retry", "drop"] {
        let why = site.ganger(&["dead", command, "4"]).bad(2);
        assert!(why.contains("name one with --source"), "{why}");
    }
    let args = ["dead", "drop", "4", "--source", "second"];
    assert_eq!(site.ganger(&args).good(), "dropped 1\n");
    let args = ["dead", "drop", "4", "4"];
    assert_eq!(site.ganger(&args).good(), "dropped 1\n");
    assert_eq!(list(&site, &[]), Vec::<Value>::new());
}

fn a_source_that_can_not_be_used_is_told() {
    let site = with_letters();
    let config = site.path("ganger.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    let text = text.replace("[[pools]]", "[[pools]]\nsource = \"main\"");
    std::fs::write(config, text).unwrap();
    add_source(&site, "broken", "absent/queue.db");
    let ran = site.ganger(&["dead", "list", "-o", "json"]);
    let letters: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(ids(letters.as_array().unwrap()), [1, 2, 3, 4]);
    assert!(ran.bad(1).contains("source `broken`"));
    let why = site.ganger(&["dead", "drop", "--all"]).bad(1);
    for part in ["dropped 4 before that", "source `broken`"] {
        assert!(why.contains(part), "{part}: {why}");
    }
    let ran = site.ganger(&["dead", "list"]);
    assert_eq!(ran.out, "");
    assert!(ran.bad(1).contains("source `broken`"));
    let why = site.ganger(&["check", "--online"]).bad(1);
    assert!(why.contains("sources.broken: "), "{why}");
}

fn more_than_the_limit_is_told() {
    let site = with_letters();
    let ran = site.ganger(&["dead", "list", "--limit", "3"]);
    assert!(ran.err.contains("more than 3"), "{}", ran.err);
    let ran = site.ganger(&["dead", "list", "--limit", "4"]);
    assert!(!ran.err.contains("more than"), "{}", ran.err);
}

fn a_list_is_read_page_by_page() {
    let site = with_letters();
    let mut args = vec!["dead", "list", "-o", "json", "--limit", "3"];
    assert_eq!(ids(&list(&site, &args[4..])), [1, 2, 3]);
    let told = site.ganger(&args).err;
    assert!(told.contains("the next with --after 3"), "{told}");
    args.extend(["--after", "3"]);
    let ran = site.ganger(&args);
    assert_eq!(ran.err, "");
    assert_eq!(ids(ran.json().as_array().unwrap()), [4]);
    // One that is gone tells where it was.
    site.ganger(&["dead", "drop", "2"]).good();
    assert_eq!(ids(&list(&site, &["--after", "2"])), [3, 4]);
    assert_eq!(list(&site, &["--after", "4"]), Vec::<Value>::new());
    let of_a_pool = ["--after", "1", "--pool", "other"];
    assert_eq!(ids(&list(&site, &of_a_pool)), [4]);
    let why = site.ganger(&["dead", "list", "--after", "one"]).bad(1);
    assert!(why.contains("no dead letter one (any more)"), "{why}");
    let config = site.path("ganger.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    let text = text.replace("[[pools]]", "[[pools]]\nsource = \"main\"");
    std::fs::write(config, text).unwrap();
    add_source(&site, "second", "second.db");
    let why = site.ganger(&["dead", "list", "--after", "1"]).bad(2);
    assert!(why.contains("name it with --source"), "{why}");
    let args = ["dead", "list", "--limit", "1"];
    let told = site.ganger(&args).err;
    let way = "in `main`: the next with --source main --after 1";
    assert!(told.contains(way), "{told}");
}

fn letters_are_shown_cut_or_whole() {
    let pools = [pool("work")];
    let scene = Scene::with(&pools);
    let body = format!("{}{}", "a".repeat(60), "b".repeat(1000));
    scene.send(&[&body]);
    scene.settled();
    scene.daemon.stop();
    scene.site.configure_commands(&pools);
    let cut = scene.site.ganger(&["dead", "list"]).good();
    assert!(cut.contains(&format!("  {}…\n", &body[..60])), "{cut}");
    let whole = scene.site.ganger(&["dead", "list", "--full"]).good();
    assert!(whole.contains(&format!("body: {body}\n")), "{whole}");
    let shown = scene.site.ganger(&["dead", "show", "1"]).good();
    assert_eq!(whole, format!("{shown}\n"));
}

/// A hundred thousand letters of a KiB, with less than half of that for the command.
fn a_list_may_be_larger_than_memory() {
    const COUNT: usize = 100_000;
    let site = Workspace::new();
    site.configure_commands(&[pool("work")]);
    site.ganger(&["dead", "list"]).good();
    site.table()
        .0
        .execute(
            "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?1)
             INSERT INTO poisoned_messages (queue, pool, reason, error, attempts, crashes, lapses, oom,
               stderr, headers, priority, created_at, body,
               first_failed_at, last_failed_at)
             SELECT 'work', 'work', 'failed', 'why', 1, 0, 0, 0, 
               '[]', '{}', 0, 0, hex(zeroblob(512)), 0, 0 FROM n",
            [u32::try_from(COUNT).unwrap()],
        )
        .unwrap();
    let all = ["dead", "list", "--limit", "1000000", "-o", "json"];
    let printed = site.ganger_within(48 << 10, &all);
    let text = std::fs::read_to_string(&printed).unwrap();
    let letters: Vec<serde::de::IgnoredAny> = serde_json::from_str(&text).unwrap();
    assert_eq!(letters.len(), COUNT);
    let all = ["dead", "list", "--limit", "1000000"];
    let printed = site.ganger_within(48 << 10, &all);
    let text = std::fs::read_to_string(&printed).unwrap();
    let groups = text.lines().filter(|line| *line == "work: failed (1000)");
    assert_eq!(groups.count(), COUNT / 1000);
    site.ganger_within(48 << 10, &["dead", "retry", "--all"]);
    assert_eq!(site.table().count("work") as usize, COUNT);
}

fn a_command_line_that_makes_no_sense() {
    let site = Workspace::new();
    site.configure_commands(&[Pool::new(&[])]);
    for args in [
        &["dead"][..],
        &["dead", "show"],
        &["dead", "retry"],
        &["dead", "drop", "1", "--all"],
        &["dead", "drop", "1", "--reason", "failed"],
        &["dead", "retry", "--reason", "failed", "--body", "-"],
        &["dead", "list", "--since", "yesterday"],
        &["dead", "retry", "--all", "--body", "-"],
        &["dead", "list", "--limit", "-1"],
    ] {
        site.ganger(args).bad(2);
    }
}

/// Whatever was in the message, in either form; and what is complained of.
fn a_terminal_is_told_nothing_by_letters() {
    let pools = [pool("work")];
    let scene = Scene::with(&pools);
    let message = NewMessage::new(EVIL)
        .correlation_id(EVIL)
        .header(EVIL, EVIL);
    scene.table.insert(&[message]);
    scene.settled();
    scene.daemon.stop();
    scene.site.configure_commands(&pools);
    for command in ["list", "list -o json", "show 1", "show 1 -o json"] {
        let args: Vec<&str> = ["dead"].into_iter().chain(command.split(' ')).collect();
        assert_tame(&scene.site.shown(&args));
    }
    let unknown = scene.site.shown(&["dead", "show", EVIL]);
    assert!(unknown.contains("no dead letter"), "{unknown:?}");
    assert_tame(&unknown);
}
