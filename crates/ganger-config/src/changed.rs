//! The keys in which two configurations differ, by their dotted names. Values are not shown: they may
//! be secret.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::model::{AdminConfig, Config};
use super::print;

/// Keys that take effect only when the daemon is started again, and sections of such keys.
const AT_RESTART: [&str; 5] = [
    "daemon.log_format",
    "admin.listen",
    "admin.socket",
    "admin.token",
    "telemetry",
];

/// Keys of the effective configuration by dotted name, each with its value as printed.
pub type Effective = BTreeMap<String, String>;

/// The keys in which a reload has changed the configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default)]
pub struct ChangedKeys {
    /// Keys whose values have changed, such as `pools.email.workers`; a whole section where only a
    /// secret has.
    pub changed: Vec<String>,
    /// Sources, pools and schedules that are new.
    pub added: Vec<String>,
    /// Sources, pools and schedules that were removed.
    pub removed: Vec<String>,
    /// Keys whose new values take effect when the daemon is restarted.
    pub restart_needed: Vec<String>,
}

impl ChangedKeys {
    /// Returns the keys in which `new` differs from `old`.
    pub fn between(old: &Config, new: &Config) -> Self {
        let (before, after) = (named(old), named(new));
        let added: Vec<String> = after.difference(&before).cloned().collect();
        let removed: Vec<String> = before.difference(&after).cloned().collect();
        let whole: Vec<&String> = added.iter().chain(&removed).collect();
        let keys = old.effective.keys().chain(new.effective.keys());
        let mut changed: BTreeSet<&str> = keys
            .filter(|key| old.effective.get(*key) != new.effective.get(*key))
            .filter(|key| !whole.iter().any(|section| is_in(key, section)))
            .map(String::as_str)
            .collect();
        let secret = sections(old, new).into_iter().filter(|section| {
            let is_listed = changed.iter().any(|key| is_in(key, section));
            !is_listed && !whole.contains(&section)
        });
        let secret: Vec<String> = secret.collect();
        changed.extend(secret.iter().map(String::as_str));
        let changed = changed.into_iter().map(str::to_owned);
        let (restart_needed, changed) = changed.partition(|key| takes_restart(key));
        Self {
            changed,
            added,
            removed,
            restart_needed,
        }
    }

    /// Number of keys, sources and pools that have changed.
    pub fn count(&self) -> usize {
        self.changed.len() + self.added.len() + self.removed.len()
    }
}

/// Returns the configuration in effect after a reload from `old` to `new`: keys that need a restart keep
/// their old values.
pub fn taken_up(old: &Config, mut new: Config) -> Config {
    new.admin = AdminConfig {
        listen: old.admin.listen,
        socket: old.admin.socket.clone(),
        token: old.admin.token.clone(),
        ..new.admin
    };
    new.telemetry = old.telemetry.clone();
    new.daemon.log_format = old.daemon.log_format;
    new.effective.retain(|key, _| !takes_restart(key));
    let kept = old.effective.iter().filter(|(key, _)| takes_restart(key));
    let kept = kept.map(|(key, value)| (key.clone(), value.clone()));
    new.effective.extend(kept);
    new
}

fn takes_restart(key: &str) -> bool {
    AT_RESTART.iter().any(|section| is_in(key, section))
}

/// Returns whether the key is that section or one of its keys.
fn is_in(key: &str, section: &str) -> bool {
    let rest = key.strip_prefix(section);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// Returns the names of the sources, pools and schedules.
fn named(config: &Config) -> BTreeSet<String> {
    let sources = config.sources.keys().map(|name| section("sources", name));
    let pools = config.pools.iter();
    let pools = pools.map(|pool| section("pools", &pool.name));
    let schedules = config.schedules.iter();
    let schedules = schedules.map(|schedule| section("schedules", schedule.name()));
    sources.chain(pools).chain(schedules).collect()
}

fn section(kind: &str, name: &str) -> String {
    format!("{kind}.{}", print::key(name))
}

/// Returns the sections whose models differ.
fn sections(old: &Config, new: &Config) -> Vec<String> {
    let mut sections = Vec::new();
    let mut note = |differs: bool, section: String| {
        if differs {
            sections.push(section);
        }
    };
    note(old.daemon != new.daemon, "daemon".to_owned());
    let token = old.admin.token != new.admin.token;
    note(token, "admin.token".to_owned());
    note(old.admin.peers != new.admin.peers, "admin.peers".to_owned());
    note(old.telemetry != new.telemetry, "telemetry".to_owned());
    note(old.alerts != new.alerts, "alerts".to_owned());
    let subscriptions = old.subscriptions != new.subscriptions;
    note(subscriptions, "subscriptions".to_owned());
    note(old.ledger != new.ledger, "ledger".to_owned());
    for schedule in &new.schedules {
        let differs = !old.schedules.contains(schedule);
        note(differs, section("schedules", schedule.name()));
    }
    for (name, source) in &new.sources {
        let differs = old.sources.get(name) != Some(source);
        note(differs, section("sources", name));
    }
    for pool in &new.pools {
        let differs = !old.pools.contains(pool);
        note(differs, section("pools", &pool.name));
    }
    sections
}

#[cfg(test)]
mod tests {
    use super::super::{Environment, parse};
    use super::*;

    fn config(lines: &str) -> Config {
        let text = format!(
            "[sources.main]\nkind = \"table\"\nurl = \"sqlite:a.db\"\n{lines}\n\
             [[pools]]\nname = \"p\"\nqueue = \"q\"\ncommand = \"true\"\nsource = \"main\"\n"
        );
        parse(&text, "test.toml", &Environment::new()).unwrap()
    }

    #[test]
    fn each_difference_is_listed_by_its_key() {
        let token = |role: &str, hash: &str| {
            let hash = hash.repeat(32);
            format!("[[admin.tokens]]\nname = \"t\"\nrole = \"{role}\"\nsha256 = \"{hash}\"")
        };
        let server = |password| {
            format!("[sources.s]\nkind = \"rabbitmq\"\nurl = \"amqp://u:{password}@h/\"")
        };
        let pool = |queue: &str, more: &str| {
            format!(
                "[[pools]]\nname = \"new\"\nqueue = \"{queue}\"\ncommand = \"true\"\nsource = \"main\"\n{more}"
            )
        };
        let peer =
            |token| format!("[admin.peers.b]\nurl = \"http://localhost:1\"\ntoken = \"{token}\"");
        let table: [(String, String, &[&str]); 12] = [
            (String::new(), String::new(), &[]),
            (String::new(), pool("r", ""), &["added pools.new"]),
            (pool("r", ""), String::new(), &["removed pools.new"]),
            (
                pool("r", ""),
                pool("s", "workers = 2\nretry.attempts = 3"),
                &[
                    "changed pools.new.queue",
                    "changed pools.new.retry.attempts",
                    "changed pools.new.workers",
                ],
            ),
            (
                "[daemon]\nlog_level = \"info\"".into(),
                "[daemon]\nlog_level = \"warn\"\nlog_format = \"json\"".into(),
                &["changed daemon.log_level", "restart daemon.log_format"],
            ),
            (
                String::new(),
                "[admin]\nlisten = \"127.0.0.1:1\"\n[telemetry]\nprometheus = false".into(),
                &["restart admin.listen", "restart telemetry.prometheus"],
            ),
            (
                "[admin]\ntoken = \"a\"".into(),
                "[admin]\ntoken = \"b\"".into(),
                &["restart admin.token"],
            ),
            (
                token("viewer", "ab"),
                token("admin", "ab"),
                &["changed admin.tokens.t.role"],
            ),
            (
                token("viewer", "ab"),
                token("viewer", "cd"),
                &["changed admin.tokens.t.sha256"],
            ),
            (server("one"), server("two"), &["changed sources.s"]),
            (peer("one"), peer("two"), &["changed admin.peers"]),
            (String::new(), server("one"), &["added sources.s"]),
        ];
        for (old, new, expected) in table {
            let keys = ChangedKeys::between(&config(&old), &config(&new));
            let lists = [
                ("changed", &keys.changed),
                ("added", &keys.added),
                ("removed", &keys.removed),
                ("restart", &keys.restart_needed),
            ];
            let told = lists.into_iter().flat_map(|(word, keys)| {
                let keys = keys.iter();
                keys.map(move |key| format!("{word} {key}"))
            });
            assert_eq!(told.collect::<Vec<_>>(), expected, "{old} to {new}");
        }
    }

    #[test]
    fn what_takes_a_restart_is_listed_until_there_is_one() {
        let old = config("[admin]\nlisten = \"127.0.0.1:1\"");
        let proxy = "proxy_auth = { header = \"x-user\", from = \"10.0.0.0/8\" }";
        let public = "public_url = \"https://ganger.example\"";
        let new = config(&format!(
            "[admin]\nlisten = \"127.0.0.1:2\"\n{public}\n{proxy}"
        ));
        let runs = taken_up(&old, new.clone());
        assert_eq!(
            ChangedKeys::between(&runs, &new).restart_needed,
            ["admin.listen"]
        );
        assert_eq!(runs.admin.listen, old.admin.listen);
        assert_eq!(runs.admin.proxy_auth, new.admin.proxy_auth);
    }
}
