//! Dispatches the schedules of the ledger, on a thread of its own: a database that is away blocks nothing
//! else. Messages for other sources are published by `relay`, `following` writes what becomes of them, and
//! `noting` what else is told of runs.

mod cancelling;
mod following;
mod noting;
mod relay;
mod writer_thread;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use cancelling::Cancelling;
use ganger_config::model::{Config, LedgerConfig, ScheduleConfig};
use ganger_core::backoff::{self, Backoff};
use ganger_core::heartbeat::{self, Heartbeat};
use ganger_pool::overview::{LedgerStatus, OverdueScheduleStatus, Overview, StoppedScheduleStatus};
use ganger_queue::delivery::Follower;
use ganger_queue::fault::SourceFault;
use ganger_schedule::auto_disable::Change;
use ganger_schedule::clock::Jump;
use ganger_schedule::occurrence::ScheduleState;
use ganger_table::ledger::{Dispatched, Figures, Ledger};
use relay::{Relay, RelayWaker};
use writer_thread::WriterThread;

/// Interval at which the ledger is looked at, for what others have changed.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Back-off until the ledger is tried again: once it can be used, slots are late by little more than the outage.
const AWAY: Backoff = Backoff {
    max: Duration::from_millis(500),
    ..backoff::AWAY
};
/// Interval at which old occurrences are removed.
const EXPIRE_EVERY: Duration = Duration::from_secs(60);
/// Interval at which the schedules are counted.
const FIGURES_EVERY: Duration = Duration::from_secs(10);
/// Number of schedules that are shown because they are broken or disabled, and because they are overdue.
const SHOWN_MAX: u32 = 20;
/// Time that a dispatch in progress has at the end.
const DISPATCHED_WITHIN: Duration = Duration::from_secs(1);
/// Time that messages have at the end that are being published.
const PUBLISHED_WITHIN: Duration = Duration::from_secs(2);
/// Time after a panic until it begins anew.
const AFTER_PANIC: Duration = Duration::from_secs(5);
/// Pause between two transactions that remove some: others write, too.
const EXPIRE_PAUSE: Duration = Duration::from_millis(100);

/// The schedules that are dispatched, and the messages of theirs that are published to other sources and
/// followed there.
#[derive(Debug, Default)]
pub(super) struct Scheduling {
    dispatching: Option<ScheduleThread>,
    relay: Option<Relay>,
    following: Option<WriterThread>,
    noting: Option<WriterThread>,
    /// The relay of a daemon that is stopping, until it has ended.
    ending: Option<oneshot::Receiver<()>>,
}

/// The thread that dispatches until it is told to drain, and ends when the channel is closed.
#[derive(Debug)]
struct ScheduleThread {
    held: SyncSender<()>,
    thread: JoinHandle<()>,
    ended: oneshot::Receiver<()>,
}

impl Scheduling {
    /// Begins to dispatch the schedules of the ledger, once those of the configuration are entered and the
    /// thread of the configuration before has ended. From the ledger of `before`, if this configuration has
    /// another or none, its schedules are removed.
    pub(super) fn begin(
        self,
        config: &Config,
        before: Option<&LedgerConfig>,
        overview: &Overview,
    ) -> Self {
        let follower = overview.follower();
        let ledger = config.ledger.as_ref();
        let relay = ledger.and_then(|ledger| {
            let relay = Relay::begin(config, ledger, overview);
            or_log(
                relay,
                "no message of a schedule is published to another source",
            )
        });
        let waker = relay.as_ref().map(Relay::waker);
        Self {
            dispatching: dispatch(self.dispatching, config, before, (overview, waker)),
            relay,
            following: follow(self.following, ledger, follower),
            noting: note(self.noting, ledger, follower),
            ending: None,
        }
    }

    /// Ends the dispatch. Messages in the hands of pools are still followed, and can be cancelled.
    pub(super) fn stop(&mut self) {
        if let Some(thread) = &self.dispatching {
            // There is room: this is sent once, and nothing else is.
            thread.held.try_send(()).ok();
        }
        self.ending = self.relay.take().and_then(Relay::end);
    }

    /// Waits until nothing is dispatched or cancelled any more, what was published is noted, and the last reports are
    /// written, as far as there is time.
    pub(super) async fn end(self) {
        let dispatching = self.dispatching.map(|thread| {
            drop(thread.held);
            thread.ended
        });
        let following = self.following.map(|following| following.ended);
        let noting = self.noting.map(|noting| noting.ended);
        let last = following::LAST_WITHIN + Duration::from_secs(1);
        for (end, within) in [
            (dispatching, DISPATCHED_WITHIN),
            (self.ending, PUBLISHED_WITHIN),
            (following, last),
            (noting, last),
        ] {
            if let Some(end) = end {
                timeout(within, end).await.ok();
            }
        }
    }
}

/// Begins to dispatch the schedules of the ledger, once the thread before has ended.
fn dispatch(
    before: Option<ScheduleThread>,
    config: &Config,
    ledger_before: Option<&LedgerConfig>,
    (overview, waker): (&Overview, Option<RelayWaker>),
) -> Option<ScheduleThread> {
    let ledger = config.ledger.clone();
    let is_left = |before: &&LedgerConfig| match &ledger {
        Some(ledger) => ledger.table != before.table || ledger.group != before.group,
        None => true,
    };
    let left = ledger_before.filter(is_left).cloned();
    let schedules = config.schedules.clone();
    let earlier = before.map(|before| {
        drop(before.held);
        before.thread
    });
    if ledger.is_none() && left.is_none() {
        return None;
    }
    let (held, given_up) = sync_channel(1);
    let (tell, ended) = oneshot::channel::<()>();
    let shown = overview.clone();
    let work = move || {
        if let Some(earlier) = earlier {
            drop(earlier.join());
        }
        // What it has counted of the same ledger goes on.
        let status = shown.ledger();
        shown.set_ledger(status.filter(|status| {
            let ledger = ledger.as_ref();
            ledger.is_some_and(|ledger| ledger.source == status.source)
        }));
        let heart = Heartbeat::of_this_thread();
        let pause = Pause {
            given_up,
            heart,
            is_draining: Cell::new(false),
        };
        if let Some(left) = left {
            pause.away(|| leave(&left));
        }
        if let Some(ledger) = ledger {
            keep_on(&ledger, &schedules, (&shown, waker), &pause);
        }
        drop(tell);
    };
    let thread = std::thread::Builder::new().name("schedules".to_owned());
    match thread.spawn(work) {
        Ok(thread) => Some(ScheduleThread {
            held,
            thread,
            ended,
        }),
        Err(error) => {
            tracing::error!(%error, "no schedule is dispatched until a restart: no thread for it");
            if let Some(ledger) = &config.ledger {
                let problem = format!("no thread for it: {error}");
                LedgerView::new(&ledger.source, overview.clone(), None).failed(problem);
            }
            None
        }
    }
}

/// Follows messages for the ledger that the configuration has now.
fn follow(
    before: Option<WriterThread>,
    ledger: Option<&LedgerConfig>,
    follower: &Follower,
) -> Option<WriterThread> {
    if ledger.is_none() {
        // Before the thread ends, which takes all reports, with the settlements that wait for them.
        follower.follow_for(None);
    }
    let lost = "the ledger does not show what becomes of messages on other sources";
    let thread = write_to(before, ledger, lost, |ledger| {
        following::begin(ledger, follower)
    });
    // Without a thread a report, and the settlement that waits for it, would stay for ever.
    follower.follow_for(ledger.filter(|_| thread.is_some()));
    thread
}

/// Writes what else is told of runs to the ledger that the configuration has now.
fn note(
    before: Option<WriterThread>,
    ledger: Option<&LedgerConfig>,
    follower: &Follower,
) -> Option<WriterThread> {
    let notes = follower.notes();
    notes.keep(ledger.map(|ledger| ledger.log));
    let lost = "the ledger does not show the logs of runs";
    write_to(before, ledger, lost, |ledger| noting::begin(ledger, notes))
}

/// Has the thread write to this ledger, which may be another than before: so nothing is lost that waits. Begins or
/// ends it if there is a ledger for the first time, or none any more.
fn write_to(
    before: Option<WriterThread>,
    ledger: Option<&LedgerConfig>,
    lost: &str,
    begin: impl FnOnce(&LedgerConfig) -> std::io::Result<WriterThread>,
) -> Option<WriterThread> {
    let ledger = ledger?;
    match before {
        Some(thread) => {
            thread.write_to(ledger);
            Some(thread)
        }
        None => or_log(begin(ledger), lost),
    }
}

/// Logs that a thread could not be started.
fn or_log<T>(begun: std::io::Result<T>, what: &str) -> Option<T> {
    let failed = |error| tracing::error!(%error, "no thread until a restart: {what}");
    begun.map_err(failed).ok()
}

/// Removes the schedules of the configuration from a ledger that it no longer has. Tried once, and not
/// instead of the ledger that it has: the database may be gone for good.
fn leave(ledger: &LedgerConfig) {
    match Ledger::open(ledger, false).and_then(|mut opened| opened.sync(&[])) {
        Ok(synced) => {
            let removed = synced.removed.join(", ");
            tracing::info!(
                removed,
                "the ledger is left: its schedules of the configuration are removed"
            );
        }
        Err(error) => tracing::error!(
            %error,
            "schedules of the configuration stay in the ledger that is left: a daemon that has it \
             dispatches them; remove them with `ganger schedule remove`"
        ),
    }
}

/// Dispatches until it is given up. After a panic it begins anew.
fn keep_on(
    ledger: &LedgerConfig,
    schedules: &[ScheduleConfig],
    (overview, waker): (&Overview, Option<RelayWaker>),
    pause: &Pause,
) {
    loop {
        let mut view = LedgerView::new(&ledger.source, overview.clone(), waker.clone());
        let cancelling = Cancelling::new(overview.registry().clone(), overview.follower().clone());
        let work = || keep(ledger, schedules, (&mut view, cancelling), pause);
        if catch_unwind(AssertUnwindSafe(work)).is_ok() {
            return;
        }
        tracing::error!(
            source = ledger.source,
            "dispatching schedules panicked; it begins anew"
        );
        view.failed("dispatching schedules panicked".to_owned());
        if pause.wait(AFTER_PANIC).is_none() {
            return;
        }
    }
}

/// Waits of the thread, until it is given up.
#[derive(Debug)]
struct Pause {
    given_up: Receiver<()>,
    heart: Heartbeat,
    /// It was told to dispatch nothing more.
    is_draining: Cell<bool>,
}

impl Pause {
    /// Does work in the database, which may let it wait for longer than any limit of this daemon.
    fn away<T>(&self, work: impl FnOnce() -> T) -> T {
        self.heart.away(work)
    }

    /// Waits, until it is told to drain; none if it was given up.
    fn wait(&self, time: Duration) -> Option<()> {
        let end = Instant::now() + time;
        loop {
            self.heart.beat();
            let rest = end.saturating_duration_since(Instant::now());
            match self.given_up.recv_timeout(rest.min(heartbeat::EVERY)) {
                Err(RecvTimeoutError::Timeout) if rest <= heartbeat::EVERY => return Some(()),
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) => {
                    self.is_draining.set(true);
                    return Some(());
                }
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }
}

/// State of the ledger as others see it.
#[derive(Debug)]
struct LedgerView {
    status: LedgerStatus,
    overview: Overview,
    next_look: Instant,
    /// Reason, already logged, for which ends of runs can't be counted.
    unreviewed: Option<String>,
    /// Wakes who publishes to other sources.
    waker: Option<RelayWaker>,
}

impl LedgerView {
    fn new(source: &str, overview: Overview, waker: Option<RelayWaker>) -> Self {
        Self {
            status: overview.ledger().unwrap_or_else(|| LedgerStatus {
                source: source.to_owned(),
                ..LedgerStatus::default()
            }),
            overview,
            next_look: Instant::now(),
            unreviewed: None,
            waker,
        }
    }

    fn failed(&mut self, problem: String) {
        self.status.problem = Some(problem);
        self.show();
    }

    fn dispatched(&mut self, dispatched: &Dispatched, ledger: &mut Ledger) {
        self.status.dispatched += dispatched.sent;
        self.status.missed += dispatched.missed;
        for late in &dispatched.late {
            self.status.lateness.add(*late);
        }
        if let Some(waker) = self.waker.as_ref().filter(|_| dispatched.has_outgoing) {
            waker.wake();
        }
        for (reason, slots) in &dispatched.skipped {
            *self.status.skipped.entry((*reason).to_owned()).or_default() += slots;
        }
        if dispatched.unreviewed != self.unreviewed {
            self.unreviewed.clone_from(&dispatched.unreviewed);
            if let Some(problem) = &self.unreviewed {
                tracing::error!(
                    problem,
                    "the database rejects that ends of runs are counted: `auto_disable`, `expect` and \
                     `overlap = \"queue\"` do not work"
                );
            }
        }
        let Dispatched {
            broken,
            changed,
            overdue,
            ..
        } = dispatched;
        let is_changed = !(broken.is_empty() && changed.is_empty() && overdue.is_empty());
        if is_changed || self.next_look <= Instant::now() || self.status.problem.is_some() {
            self.next_look = Instant::now() + FIGURES_EVERY;
            // If it fails, the next dispatch does, and tells it.
            if let Ok(figures) = ledger.figures(SHOWN_MAX) {
                self.look(figures);
            }
        }
        self.status.problem = None;
        self.show();
    }

    fn look(&mut self, figures: Figures) {
        let states = figures.states.into_iter();
        let states = states.map(|(state, count)| (state.as_str().to_owned(), count));
        // Those that there are not are none.
        let none = ScheduleState::WORDS
            .iter()
            .map(|word| ((*word).to_owned(), 0));
        self.status.schedules = none.chain(states).collect();
        let stopped = figures.stopped.into_iter();
        let stopped = stopped.map(|(name, state, reason)| StoppedScheduleStatus {
            name,
            state: state.as_str().to_owned(),
            reason,
        });
        self.status.stopped = stopped.collect();
        self.status.overdue_count = figures.overdue_count;
        let overdue = figures.overdue.into_iter();
        let overdue = overdue.map(|(name, overdue)| OverdueScheduleStatus { name, overdue });
        self.status.overdue = overdue.collect();
        self.status.hold = figures.hold;
    }

    fn show(&self) {
        self.overview.set_ledger(Some(self.status.clone()));
    }
}

/// Dispatches until it is told to drain, and cancels until it is given up.
fn keep(
    config: &LedgerConfig,
    schedules: &[ScheduleConfig],
    (shown, mut cancelling): (&mut LedgerView, Cancelling),
    pause: &Pause,
) -> Option<()> {
    let mut ledger = opened(config, schedules, shown, pause)?;
    // Before the pools get much to do.
    pause.away(|| cancelling.look(&mut ledger));
    let mut failures = 0;
    let mut next_expiry = Instant::now();
    let mut is_entered = true;
    loop {
        if pause.is_draining.get() {
            pause.away(|| cancelling.look(&mut ledger));
            pause.wait(LOOK_EVERY)?;
            continue;
        }
        is_entered &= !ledger.take_another();
        let dispatch = || {
            if !is_entered {
                enter(&mut ledger, schedules)?;
                is_entered = true;
            }
            ledger.dispatch()
        };
        let wait = match pause.away(dispatch) {
            Ok(dispatched) => {
                if failures > 0 {
                    tracing::info!(source = config.source, "schedules are dispatched again");
                }
                failures = 0;
                report(&dispatched);
                pause.away(|| shown.dispatched(&dispatched, &mut ledger));
                pause.away(|| cancelling.look(&mut ledger));
                dispatched.wait.unwrap_or(LOOK_EVERY).min(LOOK_EVERY)
            }
            Err(error) => {
                failures += 1;
                shown.failed(error.to_string());
                fail(&error, failures)
            }
        };
        if wait > Duration::ZERO && failures == 0 && next_expiry <= Instant::now() {
            if !pause.away(|| expire(&mut ledger, config)) {
                next_expiry = Instant::now() + EXPIRE_EVERY;
            }
            pause.wait(wait.min(EXPIRE_PAUSE))?;
            continue;
        }
        pause.wait(wait)?;
    }
}

/// Opens the ledger and enters the schedules of the configuration, until that succeeds.
fn opened(
    config: &LedgerConfig,
    schedules: &[ScheduleConfig],
    shown: &mut LedgerView,
    pause: &Pause,
) -> Option<Ledger> {
    for failures in 1.. {
        let open = || -> Result<_, SourceFault> {
            let mut ledger = Ledger::open(config, false)?;
            enter(&mut ledger, schedules)?;
            Ok(ledger)
        };
        match pause.away(open) {
            Ok(ledger) => return Some(ledger),
            Err(error) => {
                shown.failed(error.to_string());
                pause.wait(fail(&error, failures))?;
            }
        }
    }
    None
}

/// Enters the schedules of the configuration.
fn enter(ledger: &mut Ledger, schedules: &[ScheduleConfig]) -> Result<(), SourceFault> {
    let synced = ledger.sync(schedules)?;
    for name in &synced.taken {
        tracing::error!(
            schedule = name,
            "another configuration, the API or SQL has a schedule of that name in the ledger: this one is not entered"
        );
    }
    let list = |names: &[String]| (!names.is_empty()).then(|| names.join(", "));
    tracing::info!(
        schedules = schedules.len(),
        added = list(&synced.added),
        changed = list(&synced.changed),
        removed = list(&synced.removed),
        "schedules of the configuration are in the ledger"
    );
    Ok(())
}

/// Removes old occurrences. Returns whether there may be more.
fn expire(ledger: &mut Ledger, config: &LedgerConfig) -> bool {
    ledger.expire(&config.keep).unwrap_or_else(|error| {
        tracing::warn!(%error, "removing old occurrences failed; retried in a minute");
        false
    })
}

/// Reports a failure of the database, and returns the time to the next try.
fn fail(error: &SourceFault, failures: u32) -> Duration {
    if failures == 1 {
        tracing::error!(%error, "the ledger can't be used: no schedule is dispatched; retrying");
    }
    AWAY.wait(failures, fastrand::f64())
}

fn report(dispatched: &Dispatched) {
    for (schedule, problem) in &dispatched.broken {
        tracing::error!(
            schedule,
            problem,
            "schedule is broken, and dispatches nothing until it is corrected"
        );
    }
    for (schedule, change) in &dispatched.changed {
        match change {
            Change::Disabled { failures } => tracing::error!(
                schedule,
                failures,
                "schedule is disabled: its last runs have failed"
            ),
            Change::Enabled => {
                tracing::info!(
                    schedule,
                    "schedule is enabled again: its trial run has completed"
                );
            }
        }
    }
    for (schedule, overdue) in &dispatched.overdue {
        match overdue {
            Some(overdue) => tracing::error!(schedule, overdue, "schedule is overdue"),
            None => tracing::info!(schedule, "schedule is no longer overdue"),
        }
    }
    match dispatched.jump {
        Some(Jump::Forward(by)) => {
            tracing::warn!(%by, "the clock has jumped forward: slots between are missed");
        }
        Some(Jump::Back(by)) => {
            tracing::warn!(%by, "the clock was set back: no slot is repeated");
        }
        Some(Jump::Correction(by)) => {
            tracing::error!(%by, "the clock was wrong and is corrected: schedules start anew");
        }
        None => {}
    }
    let (sent, skipped) = (dispatched.sent, dispatched.skipped.values().sum::<u64>());
    if sent + skipped > 0 {
        tracing::debug!(sent, skipped, "slots decided");
    }
}
