//! The effective configuration as TOML that loads again to the same model. Nothing here reads it.

use std::fmt::Display;
use std::time::Duration;

use toml::Value;

use super::expand::escape;
use super::model::{
    Command, Config, Daemon, Database, LogFormat, Pipeline, Pool, Prefetch, Source, StatusMeaning,
};
use super::redact::{is_secret, redact};
use super::units::{show_duration, show_size};

const HEAD: &str = "\
# The effective configuration. Secrets are not shown: each is written as the environment variable
# of its name.
";

/// The configuration with every default filled in, as TOML. In the same environment it loads to
/// the same model, save for secrets that do not come from variables of their own names.
pub fn print(config: &Config) -> String {
    let mut page = Page(HEAD.into());
    page.daemon(&config.daemon);
    for (name, source) in &config.sources {
        page.source(name, source);
    }
    for pool in &config.pools {
        page.pool(pool);
    }
    page.0
}

struct Page(String);

impl Page {
    fn header(&mut self, header: &str) {
        self.0.push_str(&format!("\n{header}\n"));
    }

    fn pair(&mut self, key: &str, value: impl Display) {
        self.0.push_str(&format!("{key} = {value}\n"));
    }

    fn maybe(&mut self, key: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.pair(key, value);
        }
    }

    fn daemon(&mut self, daemon: &Daemon) {
        self.header("[daemon]");
        self.pair("drain_timeout", duration(daemon.drain_timeout));
        self.pair("log_level", text(&daemon.log_level));
        self.pair("log_format", text(log_format(daemon.log_format)));
    }

    fn source(&mut self, name: &str, source: &Source) {
        let Source::Table(table) = source;
        let Database::Sqlite(path) = &table.database;
        self.header(&format!("[sources.{}]", key(name)));
        self.pair("kind", text("table"));
        self.pair("url", text(&format!("sqlite://{}", path.display())));
        self.pair("poll_interval", duration(table.poll_interval));
        self.pair("lease", duration(table.lease));
    }

    fn pool(&mut self, pool: &Pool) {
        self.header("[[pools]]");
        self.pair("name", text(&pool.name));
        self.pair("source", text(&pool.source));
        self.pair("queue", text(&pool.queue));
        self.pair("workers", pool.workers);
        self.command(&pool.command);
        self.pair("prefetch", prefetch(pool.prefetch));
        self.pair("pipeline", pipeline(pool.pipeline));
        self.pair("frame_bytes_max", size(pool.frame_bytes_max as u64));
        self.maybe("timeout", pool.timeout.map(duration));
        self.pair("timeout_grace", duration(pool.timeout_grace));
        self.maybe("stall_timeout", pool.stall_timeout.map(duration));
        self.pair("start_timeout", duration(pool.start_timeout));
        self.pair("stop_timeout", duration(pool.stop_timeout));
        self.pair("crashes_max", pool.crashes_max);
        self.policies(pool);
    }

    fn command(&mut self, command: &Command) {
        self.pair("command", text(&command.program));
        let args = command.args.iter().map(|arg| text(&redact(arg)));
        self.pair("args", list(args));
        let env = command.env.iter();
        let env = env.map(|(name, value)| (key(name), variable(name, value)));
        self.pair("env", table(env));
        let cwd = command.cwd.as_ref();
        self.maybe("cwd", cwd.map(|cwd| text(&cwd.to_string_lossy())));
        self.maybe("user", command.user.as_deref().map(text));
        let limits = &command.limits;
        let limits = [
            ("memory", limits.memory_bytes.map(size)),
            ("open_files", limits.open_files.map(|n| n.to_string())),
            ("cpu_nice", limits.cpu_nice.map(|n| n.to_string())),
        ];
        self.pair("limits", table(given(limits)));
    }

    fn policies(&mut self, pool: &Pool) {
        let (retry, recycle, restart) = (&pool.retry, &pool.recycle, &pool.restart);
        let retry = [
            ("attempts", retry.attempts.to_string()),
            ("initial", duration(retry.backoff.initial)),
            ("factor", float(retry.backoff.factor)),
            ("max", duration(retry.backoff.max)),
            ("jitter", float(retry.backoff.jitter)),
        ];
        self.pair("retry", table(retry));
        let recycle = [
            ("tasks", recycle.tasks.map(|n| n.to_string())),
            ("age", recycle.age.map(duration)),
            ("memory", recycle.memory_bytes.map(size)),
            ("jitter", Some(float(recycle.jitter))),
        ];
        self.pair("recycle", table(given(recycle)));
        let restart = [
            ("initial", duration(restart.initial)),
            ("max", duration(restart.max)),
        ];
        self.pair("restart", table(restart));
        let statuses = pool.statuses.iter();
        let statuses = statuses.map(|(code, meaning)| (code, text(status_meaning(*meaning))));
        self.pair("statuses", table(statuses));
    }
}

/// A key is never expanded. Between quotes, TOML writes it as JSON does.
fn key(name: &str) -> String {
    let bare = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    if !name.is_empty() && name.bytes().all(bare) {
        name.into()
    } else {
        serde_json::Value::from(name).to_string()
    }
}

fn text(text: &str) -> String {
    Value::String(escape(text)).to_string()
}

/// A variable of the worker, unless it is a secret.
fn variable(name: &str, value: &str) -> String {
    if is_secret(name) || redact(value) != value {
        format!("\"${{{name}}}\"")
    } else {
        text(value)
    }
}

fn duration(duration: Duration) -> String {
    text(&show_duration(duration))
}

fn size(bytes: u64) -> String {
    text(&show_size(bytes))
}

fn float(number: f64) -> String {
    Value::Float(number).to_string()
}

fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(", "))
}

fn table<K: Display>(pairs: impl IntoIterator<Item = (K, String)>) -> String {
    let pairs = pairs
        .into_iter()
        .map(|(key, value)| format!("{key} = {value}"));
    let pairs = pairs.collect::<Vec<_>>().join(", ");
    if pairs.is_empty() {
        "{}".into()
    } else {
        format!("{{ {pairs} }}")
    }
}

fn given<const N: usize>(
    pairs: [(&'static str, Option<String>); N],
) -> impl Iterator<Item = (&'static str, String)> {
    pairs
        .into_iter()
        .filter_map(|(key, value)| Some((key, value?)))
}

fn prefetch(prefetch: Prefetch) -> String {
    match prefetch {
        Prefetch::Auto => text("auto"),
        Prefetch::PerWorker(number) => number.to_string(),
    }
}

fn pipeline(pipeline: Pipeline) -> String {
    match pipeline {
        Pipeline::Auto => text("auto"),
        Pipeline::Fixed(number) => number.to_string(),
    }
}

fn log_format(format: LogFormat) -> &'static str {
    match format {
        LogFormat::Auto => "auto",
        LogFormat::Text => "text",
        LogFormat::Json => "json",
    }
}

fn status_meaning(meaning: StatusMeaning) -> &'static str {
    match meaning {
        StatusMeaning::Done => "done",
        StatusMeaning::Reply => "reply",
        StatusMeaning::Requeue => "requeue",
        StatusMeaning::Retry => "retry",
        StatusMeaning::Reject => "reject",
    }
}
