//! Pages of the dashboard, read as they are sent.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::json;

use super::schedules::{trigger, yearly};
use super::{api, scene};
use crate::harness::{Api, PROGRAM, Pool, Scene, trials};

trials![the_command_line_accepts_each_command_of_a_page];

/// Pages with filters and names that a shell would divide or run, besides those that pages lead to.
const QUOTED: [&str; 7] = [
    "/ui/queues/it%27s%20a%20queue?source=main",
    "/ui/dead/main?error=it%27s%20%24HOME&since=2h",
    "/ui/dead/main/retry?error=it%27s",
    "/ui/occurrences?schedule=fails&state=failed",
    "/ui/occurrences?unresolved=true&correlation_id=%60id%60",
    "/ui/reports?range=7d&tag=it%27s&queue=a%20b",
    "/ui/new-schedule?name=a&cron=0+8+*+*+*&body=it%27s&tags=x,y",
];

fn the_command_line_accepts_each_command_of_a_page() {
    let schedules =
        yearly("fails", "body = \"mode:answer:400\"") + &yearly("waits", "body = \"mode:wait:go\"");
    let alerts = "[alerts]\nwebhook = \"http://127.0.0.1:9/\"\n";
    let pool = Pool::new(&[]).set("workers", "2");
    let scene = scene(pool.after(&(schedules + alerts)));
    scene.daemon.entered();
    let api = api(&scene.daemon);
    trigger(&api, "fails", &json!({}));
    trigger(&api, "waits", &json!({}));
    let is_running = || {
        let running = api.get("/v1/occurrences?state=running").json();
        let failed = api.get("/v1/occurrences?state=failed").json();
        [running, failed]
            .iter()
            .all(|list| list["occurrences"][0].is_object())
    };
    scene
        .daemon
        .eventually("one to fail and one to run", is_running);
    let commands = commands(&api);
    let pages: BTreeSet<&String> = commands.values().collect();
    assert!(pages.len() >= 15, "{pages:#?}");
    let refused = commands.iter().filter_map(|(command, page)| {
        let refused = run(&scene, command).err()?;
        Some(format!("{page}: {command}: {refused}"))
    });
    let refused: Vec<String> = refused.collect();
    assert!(refused.is_empty(), "{refused:#?}");
    for wrong in [
        "ganger alerts test",
        "ganger output work",
        "ganger scale work=2",
    ] {
        assert!(run(&scene, wrong).is_err(), "{wrong}");
    }
    scene.site.touch("go");
    scene.finish();
}

/// Runs a command where there is no configuration: it goes no further than to its arguments.
fn run(scene: &Scene, command: &str) -> Result<(), String> {
    let arguments = command.strip_prefix("ganger ");
    let arguments = arguments.ok_or("it is no command of ganger")?;
    let line = format!("exec '{PROGRAM}' {arguments} --config none.toml");
    let ran = scene.site.ganger_of("sh", &["-c", &line], b"");
    let is_usage = ran.err.contains("see --help");
    match ran.code {
        Some(1 | 2) if ran.err.starts_with("error: ") && !is_usage => Ok(()),
        code => Err(format!("exit code {code:?}: {}", ran.err)),
    }
}

/// Returns the commands of all pages that pages lead to, each with one of its pages.
fn commands(api: &Api) -> BTreeMap<String, String> {
    let mut queue: VecDeque<String> = QUOTED.map(str::to_owned).into();
    queue.push_front("/ui".to_owned());
    queue.push_back("/ui/alerts".to_owned());
    let (mut seen, mut commands) = (BTreeSet::new(), BTreeMap::new());
    while let Some(path) = queue.pop_front() {
        let answer = api.get(&path);
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        for part in between(&answer.body, "<details class=\"commands\">", "</details>") {
            let lines = between(part, "<pre>", "</pre>");
            let lines = lines.flat_map(str::lines).map(text);
            commands.extend(lines.map(|line| (line, path.clone())));
        }
        let remedies = between(&answer.body, "<p class=\"remedy\"><code>", "</code>").map(text);
        let remedies = remedies.filter(|remedy| remedy.starts_with("ganger "));
        commands.extend(remedies.map(|line| (line, path.clone())));
        for link in between(&answer.body, "href=\"", "\"").map(text) {
            let page = link.split(['?', '#']).next().unwrap_or_default();
            let is_page = page == "/ui" || page.starts_with("/ui/");
            let is_file = page.starts_with("/ui/assets/") || page.ends_with(".csv");
            if is_page && !is_file && seen.insert(page.to_owned()) {
                queue.push_back(link);
            }
        }
    }
    commands
}

/// Returns the parts of a text between two others.
fn between<'a>(text: &'a str, begin: &'a str, end: &'a str) -> impl Iterator<Item = &'a str> {
    let parts = text.split(begin).skip(1);
    parts.filter_map(move |part| part.split(end).next())
}

/// Returns the text of a piece of HTML.
fn text(html: &str) -> String {
    let text = [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&amp;", "&"),
    ];
    let replace = |html: String, (from, to): (&str, &str)| html.replace(from, to);
    text.into_iter().fold(html.to_owned(), replace)
}
