//! State of the screen: the daemon's last status, the recent activity of each pool, and the selection. Pure
//! state: inputs change it, and it opens nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::history::History;
use super::pool_action::{ActionKind, PoolAction};
use ganger_pool::overview::Status;
use ganger_pool::status::{PoolStatus, WorkerStatus};
use ganger_queue::dead_letter::Group;

/// Time for which the answer to a request is shown.
const NOTICE_SHOWN: Duration = Duration::from_secs(15);
/// Maximum number of digits of a number of workers: more than the daemon allows, which then reports it.
const DIGITS_MAX: usize = 6;

/// Everything that the screen shows.
#[derive(Debug, Clone)]
pub(super) struct Model {
    /// Name of the daemon: its address, or its configuration.
    pub(super) daemon: String,
    /// Interval of the polls.
    pub(super) interval: Duration,
    /// Last status of the daemon, and its time of arrival.
    seen: Option<(Status, Instant)>,
    /// Why the last poll failed.
    problem: Option<String>,
    histories: BTreeMap<String, History>,
    pub(super) focus: Focus,
    pub(super) order: Order,
    pool: Choice<String>,
    worker: Choice<usize>,
    pub(super) prompt: Option<Prompt>,
    /// True while the help is shown in place of the pools.
    pub(super) shows_help: bool,
    /// Errors of a pool's dead letters, shown in place of its workers.
    pub(super) errors: Option<Errors>,
    /// Share of one processor that each worker's process used between the last two polls.
    loads: BTreeMap<u32, f64>,
    notice: Option<(Notice, Instant)>,
}

/// List in which the arrows move.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Focus {
    #[default]
    Pools,
    Workers,
}

/// Order of the workers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Order {
    #[default]
    Slot,
    /// Oldest current message first.
    Age,
}

/// Input that is required before an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Prompt {
    /// A confirmation. `why` is the reason for the question, if it is not the action itself.
    Confirm {
        pool_action: PoolAction,
        why: Option<String>,
    },
    /// A number of workers for a pool. A suggested number is replaced by the first digit that is typed.
    Number {
        pool: String,
        digits: String,
        is_suggested: bool,
    },
}

/// Result of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Notice {
    pub(super) text: String,
    pub(super) is_error: bool,
}

/// Dead letters of a pool, grouped by error.
#[derive(Debug, Clone)]
pub(super) struct Errors {
    pub(super) pool: String,
    /// The groups, the largest first, or why they can't be read; none while they are read.
    pub(super) groups: Option<Result<Vec<Group>, String>>,
}

/// State of the link to the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Link {
    /// It has never answered, and was asked just now.
    Asked,
    /// The status shown is current.
    Fresh,
    /// It has not answered for this time.
    Slow(Duration),
    /// It can't be reached, with the reason and the age of the status shown, if any.
    Away(String, Option<Duration>),
}

/// Movement of a selection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Up(usize),
    Down(usize),
    First,
    Last,
}

/// Edit of a prompt for a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Edit {
    Digit(char),
    Erase,
    More,
    Fewer,
}

/// Selection from a list whose entries come and go: by name, or by place once the entry is gone.
#[derive(Debug, Clone, Default)]
struct Choice<T> {
    name: Option<T>,
    place: usize,
}

impl<T: PartialEq + Clone> Choice<T> {
    /// Finds the selected entry in this list, or selects the one now in its place.
    fn settle(&mut self, names: &[T]) {
        let found = names
            .iter()
            .position(|name| Some(name) == self.name.as_ref());
        self.take(names, found.unwrap_or(self.place));
    }

    fn take(&mut self, names: &[T], place: usize) {
        self.place = place.min(names.len().saturating_sub(1));
        self.name = names.get(self.place).cloned();
    }

    fn step(&mut self, names: &[T], step: Step) {
        let place = match step {
            Step::Up(by) => self.place.saturating_sub(by),
            Step::Down(by) => self.place.saturating_add(by),
            Step::First => 0,
            Step::Last => usize::MAX,
        };
        self.take(names, place);
    }
}

impl Model {
    pub(super) fn new(daemon: String, interval: Duration) -> Self {
        Self {
            daemon,
            interval,
            seen: None,
            problem: None,
            histories: BTreeMap::new(),
            focus: Focus::default(),
            order: Order::default(),
            pool: Choice::default(),
            worker: Choice::default(),
            prompt: None,
            shows_help: false,
            errors: None,
            loads: BTreeMap::new(),
            notice: None,
        }
    }

    // -- what comes in --

    /// Takes the daemon's new status.
    pub(super) fn saw(&mut self, status: Status, now: Instant) {
        let is_same = self
            .status()
            .is_some_and(|old| (old.pid, old.started_at) == (status.pid, status.started_at));
        if !is_same {
            self.histories.clear();
        }
        let names = |name: &String| status.pools.iter().any(|pool| pool.name == *name);
        self.histories.retain(|name, _| names(name));
        for pool in &status.pools {
            let history = self.histories.entry(pool.name.clone()).or_default();
            history.add(pool, status.uptime_seconds - pool.age_seconds);
        }
        self.loads = match self.status() {
            Some(before) if is_same => loads(before, &status),
            _ => BTreeMap::new(),
        };
        self.seen = Some((status, now));
        self.problem = None;
        self.settle_choices();
    }

    /// Records that the daemon's status could not be read.
    pub(super) fn missed(&mut self, why: String) {
        self.problem = Some(why);
    }

    /// Takes the errors of that pool's dead letters, if they are still wanted.
    pub(super) fn saw_errors(&mut self, pool: &str, groups: Result<Vec<Group>, String>) {
        if let Some(errors) = self.errors.as_mut().filter(|errors| errors.pool == pool) {
            errors.groups = Some(groups);
        }
    }

    /// Records the result of a request.
    pub(super) fn note(&mut self, text: String, is_error: bool, now: Instant) {
        self.notice = Some((Notice { text, is_error }, now));
    }

    // -- what is seen --

    pub(super) fn status(&self) -> Option<&Status> {
        self.seen.as_ref().map(|(status, _)| status)
    }

    pub(super) fn link(&self, now: Instant) -> Link {
        let age = self.seen.as_ref().map(|(_, at)| now.duration_since(*at));
        match (&self.problem, age) {
            (Some(why), age) => Link::Away(why.clone(), age),
            (None, None) => Link::Asked,
            (None, Some(age)) if age > self.slow_after() => Link::Slow(age),
            (None, Some(_)) => Link::Fresh,
        }
    }

    /// Returns the age from which the status counts as slow: an answer takes almost no time, so one poll may
    /// be missed silently.
    fn slow_after(&self) -> Duration {
        (self.interval * 2).max(self.interval + Duration::from_secs(2))
    }

    pub(super) fn notice(&self, now: Instant) -> Option<&Notice> {
        let (notice, at) = self.notice.as_ref()?;
        (now.duration_since(*at) < NOTICE_SHOWN).then_some(notice)
    }

    pub(super) fn pools(&self) -> &[PoolStatus] {
        self.status().map_or(&[], |status| &status.pools)
    }

    /// Returns the place of the selected pool among all.
    pub(super) fn pool_place(&self) -> usize {
        self.pool.place
    }

    /// Returns the selected pool.
    pub(super) fn pool(&self) -> Option<&PoolStatus> {
        self.pools().get(self.pool.place)
    }

    /// Returns the recent activity of that pool.
    pub(super) fn history(&self, pool: &str) -> Option<&History> {
        self.histories.get(pool)
    }

    /// Returns the share of one processor that a worker has used lately.
    pub(super) fn load(&self, worker: &WorkerStatus) -> Option<f64> {
        self.loads.get(&worker.pid?).copied()
    }

    /// Returns the workers of the selected pool, in the selected order.
    pub(super) fn workers(&self) -> Vec<&WorkerStatus> {
        let mut workers: Vec<_> = self
            .pool()
            .into_iter()
            .flat_map(|pool| &pool.workers)
            .collect();
        let age = |worker: &WorkerStatus| worker.message_age.unwrap_or(-1.0);
        match self.order {
            Order::Slot => workers.sort_by_key(|worker| worker.slot),
            Order::Age => {
                workers.sort_by(|a, b| age(b).total_cmp(&age(a)).then(a.slot.cmp(&b.slot)))
            }
        }
        workers
    }

    /// Returns the place of the selected worker among them.
    pub(super) fn worker_place(&self) -> usize {
        self.worker.place
    }

    /// Returns the selected worker.
    pub(super) fn worker(&self) -> Option<&WorkerStatus> {
        self.workers().get(self.worker.place).copied()
    }

    // -- what is chosen --

    pub(super) fn step(&mut self, step: Step) {
        match self.focus {
            Focus::Pools => {
                let names = self.pool_names();
                let before = self.pool.name.clone();
                self.pool.step(&names, step);
                if self.pool.name != before {
                    self.worker = Choice::default();
                }
                self.settle_choices();
            }
            Focus::Workers => {
                let slots = self.slots();
                self.worker.step(&slots, step);
            }
        }
    }

    pub(super) fn switch_focus(&mut self) {
        self.focus = match self.focus {
            Focus::Pools => Focus::Workers,
            Focus::Workers => Focus::Pools,
        };
    }

    pub(super) fn switch_order(&mut self) {
        self.order = match self.order {
            Order::Slot => Order::Age,
            Order::Age => Order::Slot,
        };
        let slots = self.slots();
        self.worker.take(&slots, 0);
    }

    fn settle_choices(&mut self) {
        let names = self.pool_names();
        let before = self.pool.name.clone();
        self.pool.settle(&names);
        if self.pool.name != before {
            self.worker = Choice::default();
        }
        let slots = self.slots();
        match self.order {
            Order::Slot => self.worker.settle(&slots),
            // Who is first today is last tomorrow: the place is what is looked at.
            Order::Age => self.worker.take(&slots, self.worker.place),
        }
    }

    fn pool_names(&self) -> Vec<String> {
        let names = self.pools().iter().map(|pool| pool.name.clone());
        names.collect()
    }

    fn slots(&self) -> Vec<usize> {
        let workers = self.workers().into_iter();
        workers.map(|worker| worker.slot).collect()
    }

    // -- what is asked --

    pub(super) fn edit(&mut self, edit: Edit) {
        let Some(Prompt::Number {
            digits,
            is_suggested,
            ..
        }) = &mut self.prompt
        else {
            return;
        };
        let number = digits.parse::<usize>().unwrap_or_default();
        match edit {
            Edit::Digit(digit) if *is_suggested => *digits = digit.to_string(),
            Edit::Digit(digit) if digits.len() < DIGITS_MAX => digits.push(digit),
            Edit::Digit(_) => {}
            Edit::Erase => drop(digits.pop()),
            Edit::More => *digits = number.saturating_add(1).to_string(),
            Edit::Fewer => *digits = number.saturating_sub(1).to_string(),
        }
        *is_suggested = matches!(edit, Edit::More | Edit::Fewer);
    }

    /// Returns why the action is obsolete, as when the selected worker has gone meanwhile.
    pub(super) fn too_late_for(&self, pool_action: &PoolAction) -> Option<String> {
        let ActionKind::Kill { slot, pid, .. } = pool_action.what else {
            // Whether a message is still there, the daemon knows best.
            return None;
        };
        let pool = self
            .pools()
            .iter()
            .find(|pool| pool.name == pool_action.pool);
        let workers = pool.into_iter().flat_map(|pool| &pool.workers);
        let mut there = workers.filter(|worker| worker.slot == slot);
        let is_same = there.any(|worker| worker.pid == pid);
        (!is_same).then(|| {
            format!(
                "worker {slot} of `{}` was replaced meanwhile; nothing was done",
                pool_action.pool
            )
        })
    }
}

/// Returns the share of one processor that each process used between two polls, by its id.
fn loads(before: &Status, now: &Status) -> BTreeMap<u32, f64> {
    let passed = now.uptime_seconds - before.uptime_seconds;
    if passed <= 0.0 {
        return BTreeMap::new();
    }
    let used = |status: &Status| -> BTreeMap<u32, f64> {
        let workers = status.pools.iter().flat_map(|pool| &pool.workers);
        workers
            .filter_map(|worker| worker.pid.zip(worker.cpu_seconds))
            .collect()
    };
    let before = used(before);
    let load = |(pid, cpu): (u32, f64)| Some((pid, (cpu - before.get(&pid)?).max(0.0) / passed));
    used(now).into_iter().filter_map(load).collect()
}
