//! Evaluates a look at the threads: which of them have stalled or recovered, and whether the service manager
//! may be told that the daemon is alive. No clock, no thread here.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use ganger_core::heartbeat::Stalled;

/// Delay of a look from which everything was held up, by a machine that slept or a process that was stopped.
/// Such a look is not evaluated.
const HELD_UP: Duration = Duration::from_secs(3);

/// Observations so far.
#[derive(Debug)]
pub(super) struct Watchdog {
    /// Interval of notifications to the manager; none if it does not ask for them.
    every: Option<Duration>,
    told: Option<Instant>,
    looked: Instant,
    stalled: BTreeMap<String, Duration>,
}

/// Result of a look.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ThreadReport {
    /// Threads that have stalled.
    pub(super) stalled: Vec<Stalled>,
    /// Threads that have recovered or exited.
    pub(super) turn_again: Vec<String>,
    /// True if the manager is to be told that the daemon is alive.
    pub(super) lives: bool,
}

impl Watchdog {
    /// `killed_after` is the silence after which the manager kills the daemon, if it does.
    pub(super) fn new(now: Instant, killed_after: Option<Duration>) -> Self {
        Self {
            every: killed_after.map(|after| after / 2),
            told: None,
            looked: now,
            stalled: BTreeMap::new(),
        }
    }

    /// Returns the interval at which the manager expects notifications.
    pub(super) fn every(&self) -> Option<Duration> {
        self.every
    }

    /// Returns the stalled threads.
    pub(super) fn stalled(&self) -> impl Iterator<Item = &str> {
        self.stalled.keys().map(String::as_str)
    }

    /// Evaluates a look at the threads, of which these are stalled.
    pub(super) fn look(&mut self, now: Instant, stalled: Vec<Stalled>) -> ThreadReport {
        let was_held_up = now.duration_since(self.looked) > HELD_UP;
        self.looked = now;
        if was_held_up {
            return ThreadReport::default();
        }
        let before = std::mem::take(&mut self.stalled);
        let named = stalled.iter().map(|it| (it.thread.clone(), it.silent));
        self.stalled = named.collect();
        let is_new = |it: &Stalled| !before.contains_key(&it.thread);
        ThreadReport {
            stalled: stalled.into_iter().filter(is_new).collect(),
            turn_again: not_in(before, &self.stalled),
            lives: self.is_notify_due(now),
        }
    }

    fn is_notify_due(&mut self, now: Instant) -> bool {
        let since = |told| now.duration_since(told);
        let due = self
            .every
            .is_some_and(|every| self.told.map(since).is_none_or(|since| since >= every));
        let lives = due && self.stalled.is_empty();
        if lives {
            self.told = Some(now);
        }
        lives
    }
}

fn not_in(before: BTreeMap<String, Duration>, now: &BTreeMap<String, Duration>) -> Vec<String> {
    let gone = before.into_keys().filter(|name| !now.contains_key(name));
    gone.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stalled(thread: &str) -> Stalled {
        Stalled {
            thread: thread.to_owned(),
            silent: Duration::from_secs(60),
        }
    }

    /// Looks at these seconds with these threads stalled; returns the times at which the manager was
    /// notified.
    fn told(looks: impl Iterator<Item = (u64, &'static [&'static str])>) -> Vec<u64> {
        let start = Instant::now();
        let mut watchdog = Watchdog::new(start, Some(Duration::from_secs(10)));
        let mut told = Vec::new();
        for (second, names) in looks {
            let names = names.iter().map(|name| stalled(name)).collect();
            let seen = watchdog.look(start + Duration::from_secs(second), names);
            told.extend(seen.lives.then_some(second));
        }
        told
    }

    #[test]
    fn the_manager_is_told_at_once_and_then_in_half_of_its_time() {
        assert_eq!(told((1..=17).map(|s| (s, &[][..]))), [1, 6, 11, 16]);
    }

    #[test]
    fn it_is_told_nothing_while_a_thread_stands_still_and_at_once_when_it_goes_on() {
        let looks = (1..=20).map(|s| match s {
            4..=12 => (s, &["pool-p"][..]),
            _ => (s, &[][..]),
        });
        assert_eq!(told(looks), [1, 13, 18]);
    }

    #[test]
    fn who_does_not_ask_is_told_nothing() {
        let start = Instant::now();
        let mut watchdog = Watchdog::new(start, None);
        let seen = watchdog.look(start + Duration::from_secs(1), Vec::new());
        assert_eq!(seen, ThreadReport::default());
    }

    #[test]
    fn a_standstill_is_news_once_and_so_is_its_end() {
        let start = Instant::now();
        let mut watchdog = Watchdog::new(start, None);
        let mut look = |second, names: &[&str]| {
            let names = names.iter().map(|name| stalled(name)).collect();
            watchdog.look(start + Duration::from_secs(second), names)
        };
        let first = look(1, &["a", "b"]);
        assert_eq!(first.stalled, [stalled("a"), stalled("b")]);
        assert_eq!(look(2, &["a", "b"]), ThreadReport::default());
        assert_eq!(look(3, &["b"]).turn_again, ["a"]);
        assert_eq!(look(4, &["a", "b"]).stalled, [stalled("a")]);
        assert_eq!(watchdog.stalled().collect::<Vec<_>>(), ["a", "b"]);
    }

    /// As after a SIGSTOP, when every thread's last beat is as old as the stall of all.
    #[test]
    fn what_was_held_up_itself_does_not_judge() {
        let looks = [
            (1, &[][..]),
            (2, &[][..]),
            (600, &["pool-p"][..]),
            (601, &[][..]),
        ];
        assert_eq!(told(looks.into_iter()), [1, 601]);
    }
}
