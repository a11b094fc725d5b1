//! `ganger schedule`: when schedules are due, as people and scripts are told.

use serde_json::{Value, json};

use crate::harness::{Workspace, trials};

trials![
    the_next_slots_for_programs,
    the_next_slots_for_people,
    slots_begin_now,
    a_schedule_in_words,
    a_period_and_a_single_time,
    a_schedule_that_is_wrong_is_explained,
];

/// The night in which New York's clocks go forward.
const NIGHT: [&str; 4] = ["--zone", "America/New_York", "--from", "2026-03-07T12:00"];

fn the_next_slots_for_programs() {
    let site = Workspace::new();
    let args = [
        &[
            "schedule",
            "next",
            "--cron",
            "30 2 * * *",
            "-n",
            "2",
            "-o",
            "json",
        ][..],
        &NIGHT,
    ];
    assert_eq!(
        site.ganger(&args.concat()).json(),
        json!([
            {
                "slot": "2026-03-08T07:00:00Z",
                "local": "2026-03-08T03:00:00-04:00",
                "note": "02:30 does not exist on 2026-03-08: runs once, when the clock has gone forward",
            },
            { "slot": "2026-03-09T06:30:00Z", "local": "2026-03-09T02:30:00-04:00", "note": "" },
        ])
    );
}

fn the_next_slots_for_people() {
    let site = Workspace::new();
    let args = [
        &["schedule", "next", "--cron", "*/30 1-3 * * *", "-n", "3"][..],
        &NIGHT,
    ];
    let told = site.ganger(&args.concat()).good();
    let lines: Vec<String> = told
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(
        lines,
        [
            "SLOT DAY LOCAL NOTE",
            "2026-03-08T06:00:00Z Sun 2026-03-08T01:00:00-05:00",
            "2026-03-08T06:30:00Z Sun 2026-03-08T01:30:00-05:00",
            "2026-03-08T07:00:00Z Sun 2026-03-08T03:00:00-04:00 before it, 02:00 and 1 more do not exist on \
             2026-03-08: left out",
        ]
    );
}

fn slots_begin_now() {
    let before = jiff::Timestamp::now();
    let args = ["schedule", "next", "--every", "1s", "-n", "3", "-o", "json"];
    let told = Workspace::new().ganger(&args).json();
    let slots: Vec<jiff::Timestamp> = told
        .as_array()
        .unwrap()
        .iter()
        .map(|slot| slot["slot"].as_str().unwrap().parse().unwrap())
        .collect();
    assert!(slots[0] > before, "{told}");
    for pair in slots.windows(2) {
        assert_eq!(pair[1].duration_since(pair[0]).as_secs(), 1, "{told}");
    }
}

fn a_schedule_in_words() {
    let args = [
        "schedule",
        "explain",
        "--cron",
        "0,30 9-17 * * MON-FRI",
        "--zone",
        "Europe/Berlin",
        "--from",
        "2026-06-05T17:15",
        "-n",
        "2",
    ];
    let told = Workspace::new().ganger(&args).good();
    let (words, slots) = told.split_once("\n\n").unwrap();
    let words: Vec<(&str, &str)> = words
        .lines()
        .map(|line| line.split_once("  ").unwrap())
        .map(|(label, text)| (label, text.trim()))
        .collect();
    assert_eq!(words[0], ("cron", "0,30 9-17 * * MON-FRI"));
    assert_eq!(words[1], ("hours", "9 to 17"));
    assert_eq!(words[2], ("minutes", "0 and 30"));
    assert_eq!(words[3], ("days", "Monday to Friday"));
    assert_eq!(words[4], ("months", "all"));
    assert_eq!(words[5].0, "summer time");
    assert!(words[5].1.starts_with("goes by the clock"), "{told}");
    assert!(
        words[6].1.starts_with("Europe/Berlin (time zones: "),
        "{told}"
    );
    // Friday half past five, then Monday at nine.
    assert!(slots.contains("2026-06-05T15:30:00Z"), "{told}");
    assert!(slots.contains("2026-06-08T07:00:00Z"), "{told}");
}

fn a_period_and_a_single_time() {
    let site = Workspace::new();
    let told = site
        .ganger(&["schedule", "explain", "--every", "90m", "-n", "1"])
        .good();
    assert!(told.contains("1h 30m"), "{told}");
    assert!(told.contains("whatever the clocks show"), "{told}");
    let args = [
        "schedule",
        "next",
        "--at",
        "2099-01-31T08:00:00[Europe/Istanbul]",
        "-o",
        "json",
    ];
    let told = site.ganger(&args).json();
    let slots: Vec<&Value> = told
        .as_array()
        .unwrap()
        .iter()
        .map(|slot| &slot["slot"])
        .collect();
    assert_eq!(slots, ["2099-01-31T05:00:00Z"]);
}

fn a_schedule_that_is_wrong_is_explained() {
    let site = Workspace::new();
    for (args, expected) in [
        (
            &["--cron", "0 24 * * *"][..],
            &["hour `24` is out of range", "byte 2", "write 0 to 23"][..],
        ),
        (&["--cron", "0 0 30 2 *"], &["no such day in any year"]),
        (&["--cron", "@reboot"], &["`@reboot`", "service manager"]),
        (&["--cron", "0 0 0 * * * 2001"], &["has no slot after"]),
        (
            &["--cron", "* * * * *", "--zone", "berlin"],
            &["did you mean `Europe/Berlin`?"],
        ),
        (
            &[
                "--cron",
                "61 * * * *",
                "--cron",
                "0 25 * * *",
                "--zone",
                "Mars/Base",
            ],
            &[
                "cron[0]: minute `61`",
                "cron[1]: hour `25`",
                "zone: time zone `Mars/Base` is unknown",
            ],
        ),
        (&["--at", "2001-01-01T00:00"], &["has no slot after"]),
        (&["--at", "tomorrow"], &["invalid time `tomorrow`"]),
        (&["--every", "0s"], &["write whole seconds, from `1s`"]),
        (&["--every", "5"], &["write a number with its unit"]),
        (
            &["--every", "5m", "--cron", "* * * * *"],
            &["write one of `cron`, `every` and `at`"],
        ),
        (
            &["--every", "5m", "--from", "noon"],
            &["from: invalid time `noon`"],
        ),
        (&["--offset", "5m"], &["--every"]),
        (&["--every", "5m", "-n", "0"], &["0 is not in 1..=10000"]),
        (&[], &["--cron"]),
    ] {
        let why = site.ganger(&[&["schedule", "next"], args].concat()).bad(2);
        for part in expected {
            assert!(why.contains(part), "{args:?}: {why}");
        }
    }
}
