//! The steps of a reload: the difference of two configurations, as a pure function.

use std::sync::Arc;

use super::model::{Config, DaemonConfig, PoolConfig};

/// One step from the old configuration to the new.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// The daemon's own settings have changed; they take effect in place.
    Daemon(DaemonConfig),
    /// The log level has changed.
    LogLevel(String),
    /// The alerts have changed: their webhooks, their rules or their form.
    Alerts,
    /// The subscriptions of queues to topics have changed, or the table that holds them.
    Subscriptions,
    /// The schedules have changed, or the database that holds them.
    Schedules,
    /// A pool was removed.
    Stop {
        /// Its name.
        name: String,
    },
    /// A pool reads from another source or queue: stop the old one, then start this one.
    Replace(Arc<PoolConfig>),
    /// A pool's settings have changed; they take effect in place.
    Update {
        /// The pool's new configuration.
        pool: Arc<PoolConfig>,
        /// The worker's command has changed: replace the workers one by one.
        roll: bool,
    },
    /// A pool was added.
    Start(Arc<PoolConfig>),
}

impl Change {
    /// Returns the pool for which a source must be opened, if any.
    pub fn begins(&self) -> Option<&Arc<PoolConfig>> {
        match self {
            Self::Start(pool) | Self::Replace(pool) => Some(pool),
            Self::Daemon(_)
            | Self::LogLevel(_)
            | Self::Alerts
            | Self::Subscriptions
            | Self::Schedules
            | Self::Stop { .. }
            | Self::Update { .. } => None,
        }
    }
}

/// Returns the steps from `old` to `new` in a valid order: a step that releases a queue comes before one
/// that takes it up.
pub fn difference(old: &Config, new: &Config) -> Vec<Change> {
    let mut changes = daemon(old, new);
    changes.extend(old.pools.iter().filter_map(|pool| stop(pool, new)));
    changes.extend(new.pools.iter().filter_map(|pool| step(pool, old, new)));
    changes.sort_by_key(rank);
    changes
}

fn daemon(before: &Config, after: &Config) -> Vec<Change> {
    let (old, new) = (&before.daemon, &after.daemon);
    let in_place = old.drain_timeout != new.drain_timeout
        || old.buffered_bytes_max != new.buffered_bytes_max
        || old.stall_timeout != new.stall_timeout;
    let log_level = || Change::LogLevel(new.log_level.clone());
    let log_level = (old.log_level != new.log_level).then(log_level);
    // Their messages may go to any source.
    let sources = after.ledger.is_some() && before.sources != after.sources;
    let schedules = before.schedules != after.schedules || before.ledger != after.ledger || sources;
    let alerts = (before.alerts != after.alerts).then_some(Change::Alerts);
    in_place
        .then(|| Change::Daemon(new.clone()))
        .into_iter()
        .chain(log_level)
        .chain(alerts)
        .chain(subscriptions(before, after).then_some(Change::Subscriptions))
        .chain(schedules.then_some(Change::Schedules))
        .collect()
}

fn subscriptions(old: &Config, new: &Config) -> bool {
    let mut wanted = new.subscriptions.iter();
    old.subscriptions != new.subscriptions
        || wanted.any(|one| old.sources.get(&one.source) != new.sources.get(&one.source))
}

fn stop(pool: &PoolConfig, new: &Config) -> Option<Change> {
    let name = pool.name.clone();
    find(new, &name).is_none().then_some(Change::Stop { name })
}

fn step(pool: &Arc<PoolConfig>, old: &Config, new: &Config) -> Option<Change> {
    let Some(before) = find(old, &pool.name) else {
        return Some(Change::Start(Arc::clone(pool)));
    };
    let source = |config: &Config, pool: &PoolConfig| config.sources.get(&pool.source).cloned();
    let moved = before.source != pool.source
        || before.queue != pool.queue
        || before.options != pool.options
        || before.idempotency != pool.idempotency
        || source(old, before) != source(new, pool);
    if moved {
        return Some(Change::Replace(Arc::clone(pool)));
    }
    (before != &**pool).then(|| Change::Update {
        pool: Arc::clone(pool),
        roll: before.command != pool.command,
    })
}

fn find<'a>(config: &'a Config, name: &str) -> Option<&'a PoolConfig> {
    config.pools.iter().find(|p| p.name == name).map(|p| &**p)
}

/// Returns the rank by which steps are ordered. Steps of one rank keep the order of the files.
fn rank(change: &Change) -> u8 {
    match change {
        Change::Daemon(_)
        | Change::LogLevel(_)
        | Change::Alerts
        | Change::Subscriptions
        | Change::Schedules => 0,
        Change::Stop { .. } => 1,
        Change::Replace(_) => 2,
        Change::Update { .. } => 3,
        Change::Start(_) => 4,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::super::{Environment, parse};
    use super::*;

    const DATABASE: &str = "kind = \"table\"\nurl = \"sqlite:a.db\"";

    fn config(daemon: &str, source: &str, pools: &[(&str, &str)]) -> Config {
        let other = format!("[sources.other]\n{DATABASE}\n");
        let mut text = format!("[daemon]\n{daemon}\n[sources.main]\n{DATABASE}\n{source}\n{other}");
        for (name, lines) in pools {
            let default = |key: &str, value: &str| match lines.contains(key) {
                true => String::new(),
                false => format!("{key} = \"{value}\"\n"),
            };
            text += &format!("[[pools]]\nname = \"{name}\"\n{lines}\n");
            text += &default("queue", name);
            text += &default("command", "worker");
            text += &default("source", "main");
        }
        parse(&text, "test.toml", &Environment::new()).unwrap()
    }

    /// Returns the changes in a word each.
    fn steps(old: &Config, new: &Config) -> Vec<String> {
        let word = |change| match change {
            Change::Daemon(daemon) => format!("daemon {:?}", daemon.drain_timeout),
            Change::LogLevel(level) => format!("log level {level}"),
            Change::Alerts => "alerts".to_owned(),
            Change::Subscriptions => "subscriptions".to_owned(),
            Change::Schedules => "schedules".to_owned(),
            Change::Stop { name } => format!("stop {name}"),
            Change::Replace(pool) => format!("replace {}", pool.name),
            Change::Update { pool, roll: true } => format!("roll {}", pool.name),
            Change::Update { pool, roll: false } => format!("update {}", pool.name),
            Change::Start(pool) => format!("start {}", pool.name),
        };
        difference(old, new).into_iter().map(word).collect()
    }

    #[test]
    fn each_setting_is_changed_as_gently_as_can_be() {
        for (before, after, expected) in [
            ("", "", None),
            ("", "workers = 1", None),
            ("", "workers = 2", Some("update a")),
            ("", "workers = { max = 2 }", Some("update a")),
            ("workers = { max = 2 }", "workers = 2", Some("update a")),
            ("timeout = \"1s\"", "", Some("update a")),
            ("", "on_timeout = \"true\"", Some("update a")),
            ("", "retry.attempts = 9", Some("update a")),
            ("", "breaker = \"off\"", Some("update a")),
            ("", "frame_bytes_max = \"1MiB\"", Some("update a")),
            ("", "statuses = { 404 = \"reject\" }", Some("update a")),
            ("", "command = \"other\"", Some("roll a")),
            ("", "args = [\"x\"]", Some("roll a")),
            ("", "env = { X = \"1\" }", Some("roll a")),
            ("", "cwd = \"/\"", Some("roll a")),
            ("", "user = \"worker\"", Some("roll a")),
            ("", "limits.open_files = 99", Some("roll a")),
            ("", "workers = 2\nargs = [\"x\"]", Some("roll a")),
            ("", "queue = \"other\"", Some("replace a")),
            ("", "source = \"other\"", Some("replace a")),
            ("", "idempotency = {}", Some("replace a")),
            (
                "idempotency = {}",
                "idempotency.window = \"1h\"",
                Some("replace a"),
            ),
            ("", "queue = \"other\"\nargs = [\"x\"]", Some("replace a")),
        ] {
            let (old, new) = (
                config("", "", &[("a", before)]),
                config("", "", &[("a", after)]),
            );
            let expected: Vec<String> = expected.map(String::from).into_iter().collect();
            assert_eq!(steps(&old, &new), expected, "from `{before}` to `{after}`");
        }
    }

    #[test]
    fn steps_come_in_an_order_that_works() {
        let old = config(
            "",
            "",
            &[
                ("a", ""),
                ("gone", "queue = \"q\""),
                ("moved", ""),
                ("same", ""),
            ],
        );
        let new = config(
            "drain_timeout = \"9s\"\nlog_level = \"debug\"\nlog_format = \"json\"",
            "",
            &[
                ("new", "queue = \"q\""),
                ("a", "workers = 2"),
                ("moved", "queue = \"r\""),
                ("same", ""),
            ],
        );
        let expected = [
            "daemon 9s",
            "log level debug",
            "stop gone",
            "replace moved",
            "update a",
            "start new",
        ];
        assert_eq!(steps(&old, &new), expected);
    }

    #[test]
    fn a_source_that_changes_replaces_the_pools_that_read_it() {
        let pools = [("a", ""), ("b", "source = \"other\"")];
        let (old, new) = (config("", "", &pools), config("", "lease = \"9s\"", &pools));
        assert_eq!(steps(&old, &new), ["replace a"]);
    }

    type Pools = Vec<(&'static str, &'static str)>;

    fn pools() -> impl Strategy<Value = Pools> {
        let lines = ["", "workers = 2", "args = [\"x\"]", "source = \"other\""];
        let names = proptest::sample::subsequence(vec!["a", "b", "c", "d"], 1..=4);
        let lines = proptest::collection::vec(proptest::sample::select(lines.to_vec()), 4);
        (names.prop_shuffle(), lines)
            .prop_map(|(names, lines)| names.into_iter().zip(lines).collect())
    }

    fn name(change: &Change) -> Option<String> {
        match change {
            Change::Daemon(_)
            | Change::LogLevel(_)
            | Change::Alerts
            | Change::Subscriptions
            | Change::Schedules => None,
            Change::Stop { name } => Some(name.clone()),
            Change::Replace(pool) | Change::Update { pool, .. } | Change::Start(pool) => {
                Some(pool.name.clone())
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn nothing_differs_from_itself(pools in pools()) {
            let config = config("", "", &pools);
            prop_assert_eq!(difference(&config, &config), []);
        }

        #[test]
        fn exactly_the_pools_that_differ_are_named(before in pools(), after in pools()) {
            let changes = difference(&config("", "", &before), &config("", "", &after));
            let named: Vec<String> = changes.iter().filter_map(name).collect();
            let (before, after): (BTreeSet<_>, BTreeSet<_>) =
                (before.into_iter().collect(), after.into_iter().collect());
            let differing: BTreeSet<String> = before
                .symmetric_difference(&after)
                .map(|(name, _)| (*name).to_owned())
                .collect();
            prop_assert_eq!(named.len(), differing.len());
            prop_assert_eq!(named.into_iter().collect::<BTreeSet<_>>(), differing);
        }
    }
}
