//! Blocks of code that are tried one by one.

use std::fs;

use rusqlite::Connection;

use super::page::{self, Block};
use crate::harness::{NewMessage, Pool, Scene, Workspace};
use crate::python::python;

crate::harness::trials![
    every_block_is_tried_or_says_why_not,
    configurations_are_valid,
    json_can_be_read,
    tables_can_be_made,
    workers_answer,
    the_readme_shows_what_is_made,
    files_are_shown_as_they_are,
];

/// What is tried, and `text`, which is no code.
const TRIED: [&str; 7] = ["console", "json", "python", "sql", "sqlite", "text", "toml"];
/// What a line in a `text` would begin with if it were a command.
const COMMANDS: [&str; 4] = ["$ ", "ganger ", "cargo ", "docker "];
/// What stands beside a sample to name the libraries that it takes.
const MANIFESTS: [&str; 9] = [
    "/composer.json",
    "/Gemfile",
    "/go.mod",
    "/go.sum",
    "/package.json",
    "/package-lock.json",
    "/pom.xml",
    "/producers.csproj",
    "/requirements.txt",
];
/// What a fragment of a configuration is completed with.
const SOURCE: &str = "[sources.main]\nkind = \"table\"\nurl = \"sqlite:queue.db\"\n";
const POOL: &str = "[[pools]]\nname = \"any\"\nqueue = \"any\"\ncommand = \"./worker\"\n";

/// The blocks of a language that are to be tried.
fn blocks(language: &str) -> Vec<Block> {
    let pages = page::all();
    let tried =
        page::blocks(&pages).filter(|block| block.not_run.is_none() && block.language == language);
    tried.cloned().collect()
}

fn every_block_is_tried_or_says_why_not() {
    let pages = page::all();
    let untried = page::blocks(&pages);
    let untried = untried.filter(|block| block.not_run.is_none() && block.file.is_none());
    let mut wrong = Vec::new();
    for block in untried {
        if !TRIED.contains(&block.language.as_str()) {
            wrong.push(format!(
                "{}: {:?} is not tried",
                block.place, block.language
            ));
        }
        let command = |line: &str| COMMANDS.iter().any(|start| line.starts_with(start));
        if block.language == "text" && block.text.lines().any(command) {
            wrong.push(format!("{}: a command in a text", block.place));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

fn configurations_are_valid() {
    let blocks = blocks("toml");
    assert!(!blocks.is_empty());
    for block in blocks {
        let site = Workspace::new();
        let mut config = block.text.replace("${", "$${");
        if !config.contains("[sources.") {
            config = format!("{SOURCE}{config}");
        }
        if !config.contains("[[pools]]") {
            config.push_str(POOL);
        }
        let config: Vec<String> = config.lines().map(|line| completed(&site, line)).collect();
        site.put("ganger.toml", &config.join("\n"), false);
        let ran = site.ganger(&["check"]);
        assert_eq!(ran.code, Some(0), "{}: {}", block.place, ran.err);
    }
}

/// The setting, with the program or the secret in place that it names and that is no part of the
/// example.
fn completed(site: &Workspace, line: &str) -> String {
    let key = line.split('=').next().unwrap_or_default().trim();
    let path = line.split('"').nth(1).unwrap_or_default();
    let is_program = ["command", "command_line"].contains(&key);
    if !is_program && !key.ends_with("_file") {
        return line.to_owned();
    }
    // Programs that are looked up in the PATH may be missing here.
    let here = format!("./{path}");
    fs::create_dir_all(site.path(&here).parent().unwrap()).unwrap();
    site.put(&here, "", is_program);
    line.replacen(path, &here, 1)
}

fn json_can_be_read() {
    for block in blocks("json") {
        let lines = serde_json::Deserializer::from_str(&block.text).into_iter();
        for value in lines {
            let value: Result<serde_json::Value, _> = value;
            assert!(value.is_ok(), "{}: {value:?}", block.place);
        }
    }
}

/// The blocks of a page follow one another.
fn tables_can_be_made() {
    for page in page::all() {
        let database = Connection::open_in_memory().unwrap();
        let steps = page.blocks().filter(|block| block.language == "sqlite");
        for block in steps {
            let made = database.execute_batch(&block.text);
            assert!(made.is_ok(), "{}: {made:?}", block.place);
        }
    }
}

fn workers_answer() {
    let workers = blocks("python").into_iter();
    let workers: Vec<_> = workers
        .filter_map(|block| block.worker.clone().map(|task| (block, task)))
        .collect();
    assert!(!workers.is_empty());
    for (block, (body, reply)) in workers {
        let site = Workspace::new();
        site.put("worker.py", &block.text, false);
        let script = site.path("worker.py");
        let pool = Pool::of_program(python().to_str().unwrap(), &[script.to_str().unwrap()]);
        let scene = Scene::at(site, &[pool]);
        let task = NewMessage::new(&body)
            .correlation_id("c-1")
            .reply_to("answers");
        scene.table.insert(&[task]);
        scene.all_done();
        let replies = scene.table.messages("answers");
        let replies: Vec<_> = replies.iter().map(|answer| &answer.body).collect();
        assert_eq!(replies, [&reply], "{}", block.place);
        scene.finish();
    }
}

fn the_readme_shows_what_is_made() {
    let pages = page::all();
    let readme = pages.iter().find(|page| page.path == "README.md").unwrap();
    let site = Workspace::new();
    site.ganger(&["init", "python", "."]).good();
    for (language, file) in [("python", "worker.py"), ("toml", "ganger.toml")] {
        let shown = readme.blocks().find(|block| block.language == language);
        let made = std::fs::read_to_string(site.path(file)).unwrap();
        assert_eq!(shown.unwrap().text, made, "{file}");
    }
}

/// And every sample of a producer, or of a worker for who migrates, is shown.
fn files_are_shown_as_they_are() {
    let pages = page::all();
    let mut shown = Vec::new();
    for block in page::blocks(&pages) {
        let Some(file) = &block.file else { continue };
        assert_eq!(block.text, page::text(file), "{}: {file}", block.place);
        shown.push(file.as_str());
    }
    let samples = ["samples/migrating", "samples/producers"].map(page::files);
    let hidden: Vec<&String> = samples
        .iter()
        .flatten()
        .filter(|file| !MANIFESTS.iter().any(|name| file.ends_with(name)))
        .filter(|file| !shown.contains(&file.as_str()))
        .collect();
    assert!(hidden.is_empty(), "no page shows {hidden:#?}");
}
