//! The crate as a whole: a good configuration, a bad one, the environment, printing, documents.

mod alerts;
mod bindings;
mod documents;
mod environment;
mod files;
mod printed;
mod problems;
mod schedules;
mod sources;
mod topics;
mod written_schedules;

use std::path::Path;

use super::load::from_texts;
use super::model::Config;
use super::{Environment, Problems, parse};

/// The smallest valid configuration.
const LEAST: &str = r#"
[sources.main]
kind = "table"
url = "sqlite:ganger.db"

[[pools]]
name = "email"
queue = "mails"
command = "worker"
"#;

fn environment(pairs: &[(&str, &str)]) -> Environment {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    pairs.iter().map(owned).collect()
}

fn read(text: &str, pairs: &[(&str, &str)]) -> Result<Config, Problems> {
    parse(text, "/etc/ganger/ganger.toml", &environment(pairs))
}

/// Returns the printed configuration.
fn printed(text: &str, pairs: &[(&str, &str)]) -> String {
    let texts = [("ganger.toml".to_owned(), text.to_owned())];
    let (_, page) = from_texts(&texts, Path::new("/etc/ganger"), &environment(pairs)).unwrap();
    page.whole()
}

/// Loads the configuration of [`LEAST`] with more lines for its pool.
fn pool_with(lines: &str, pairs: &[(&str, &str)]) -> Result<Config, Problems> {
    read(&format!("{LEAST}{lines}\n"), pairs)
}

fn messages(result: Result<Config, Problems>) -> Vec<String> {
    let problems = result.expect_err("a problem is found");
    let messages = problems.messages().iter();
    messages.map(|problem| problem.message.clone()).collect()
}
