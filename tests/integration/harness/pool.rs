//! A `[[pools]]` section in the making.

use std::collections::BTreeMap;

use crate::modes_worker;

/// The queue of a pool that names none.
pub(crate) const QUEUE: &str = "work";

/// A pool of test workers: one worker, two attempts, short waits, unless set otherwise.
#[derive(Clone)]
pub(crate) struct Pool {
    keys: BTreeMap<String, String>,
    env: BTreeMap<String, String>,
    /// Further sections of the configuration.
    after: String,
}

impl Pool {
    /// Of modes-workers with these arguments.
    pub(crate) fn new(args: &[&str]) -> Self {
        let worker = std::env::current_exe().unwrap();
        let args: Vec<&str> = [modes_worker::NAME]
            .into_iter()
            .chain(args.iter().copied())
            .collect();
        Self::of_program(worker.to_str().unwrap(), &args)
    }

    /// Of any program.
    pub(crate) fn of_program(program: &str, args: &[&str]) -> Self {
        let pool = Self {
            keys: BTreeMap::new(),
            env: BTreeMap::new(),
            after: String::new(),
        };
        pool.set("name", &quoted(QUEUE))
            .set("queue", &quoted(QUEUE))
            .set("command", &quoted(program))
            .set(
                "args",
                &format!(
                    "[{}]",
                    args.iter()
                        .map(|arg| quoted(arg))
                        .collect::<Vec<_>>()
                        .join(", ")
                ),
            )
            .set(
                "retry",
                r#"{ attempts = 2, initial = "10ms", max = "1s", jitter = 0.0 }"#,
            )
            .set("restart", r#"{ initial = "10ms", max = "100ms" }"#)
    }

    /// Sets a key to a TOML value.
    pub(crate) fn set(mut self, key: &str, value: &str) -> Self {
        self.keys.insert(key.into(), value.into());
        self
    }

    /// Sets a key to a text, such as a duration.
    pub(crate) fn text(self, key: &str, value: &str) -> Self {
        self.set(key, &quoted(value))
    }

    /// Sets a variable of the workers' environment.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }

    /// With further sections of the configuration behind it.
    pub(crate) fn after(mut self, sections: &str) -> Self {
        self.after = sections.into();
        self
    }

    /// How many attempts a message has.
    pub(crate) fn attempts(self, attempts: u32) -> Self {
        let retry =
            format!(r#"{{ attempts = {attempts}, initial = "10ms", max = "1s", jitter = 0.0 }}"#);
        self.set("retry", &retry)
    }

    /// The section as the configuration has it. Where a worker may be killed for its time, its first
    /// message has that of its start, which is kept short.
    pub(super) fn toml(&self) -> String {
        let mut keys = self.keys.clone();
        if keys.contains_key("timeout") || keys.contains_key("stall_timeout") {
            keys.entry("start_timeout".to_owned())
                .or_insert_with(|| quoted("2s"));
        }
        let keys = keys.iter().map(|(key, value)| format!("{key} = {value}\n"));
        let env = self
            .env
            .iter()
            .map(|(name, value)| format!("{name} = {}\n", quoted(value)));
        format!(
            "[[pools]]\n{}[pools.env]\n{}\n{}",
            keys.collect::<String>(),
            env.collect::<String>(),
            self.after
        )
    }
}

/// A TOML text; JSON's are a subset of them.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
