//! Publishes the messages of schedules that go to other sources than the ledger. One thread takes them from
//! the ledger; each source has a thread of its own that publishes them, so that one that is away or slow
//! holds up no other.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};
use std::{io, slice, thread};

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::kinds;
use ganger_config::model::{Config, LedgerConfig, SourceConfig};
use ganger_core::backoff::{AWAY, Backoff};
use ganger_core::heartbeat::Heartbeat;
use ganger_pool::overview::{OutgoingStatus, Overview};
use ganger_queue::client::Client;
use ganger_queue::delivery::Outgoing;
use ganger_queue::fault::{FaultKind, SourceFault};
use ganger_table::ledger::{Ledger, OutboxCount, OutboxRow};

/// Interval at which the ledger is asked for messages.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Interval at which the messages are counted.
const COUNT_EVERY: Duration = Duration::from_secs(10);
/// Number of messages that are taken together for a source.
const TAKEN_MAX: u32 = 50;
/// Time for which messages are published until others are taken.
const PUBLISH_FOR: Duration = Duration::from_secs(30);
/// Time for which no other daemon takes the same messages, and interval at which it is extended while they are
/// in hand.
const HOLD: Duration = Duration::from_secs(15);
const EXTEND_EVERY: Duration = Duration::from_secs(5);
/// Time for which a message is put off that could not be published, while others can.
const PUT_OFF: Backoff = Backoff {
    initial: Duration::from_secs(1),
    factor: 2.0,
    max: Duration::from_secs(10),
    jitter: 0.5,
};
/// Idle time after which a connection is closed.
const IDLE: Duration = Duration::from_secs(300);
/// Age from which on messages for an unknown source are a problem: other daemons may know it.
const UNKNOWN_MAX: Duration = Duration::from_secs(60);

/// The messages that are published. Dropping it ends that, once what is in hand has been noted.
#[derive(Debug)]
pub(super) struct Relay {
    /// Wakes the thread.
    events: SyncSender<RelayEvent>,
    /// The thread ends without it.
    held: Option<Arc<()>>,
    ended: Option<oneshot::Receiver<()>>,
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.held = None;
        // One that does not wait looks anyway.
        self.events.try_send(RelayEvent::Look).ok();
    }
}

/// Wakes the thread that takes messages from the ledger.
#[derive(Debug, Clone)]
pub(super) struct RelayWaker(SyncSender<RelayEvent>);

impl RelayWaker {
    /// Tells that there are messages.
    pub(super) fn wake(&self) {
        // One that has much to do looks anyway.
        self.0.try_send(RelayEvent::Look).ok();
    }
}

#[derive(Debug)]
enum RelayEvent {
    Look,
    Published(Published),
}

/// Result of publishing messages to a source.
#[derive(Debug, Default)]
struct Published {
    source: String,
    /// Messages that the source has taken.
    sent: Vec<String>,
    /// Messages that it has not, each with the time for which it is put off.
    back: Vec<(String, Duration)>,
    problem: Option<String>,
    /// The source can't be used at all.
    is_down: bool,
}

impl Relay {
    /// Begins to publish the messages in the ledger.
    pub(super) fn begin(
        config: &Config,
        ledger: &LedgerConfig,
        overview: &Overview,
    ) -> io::Result<Self> {
        // Room for a result of each source, and to be woken.
        let (events, incoming) = sync_channel(config.sources.len() + 1);
        overview.set_outgoing(Vec::new());
        let (tell, ended) = oneshot::channel();
        let held = Arc::new(());
        let sources = config.sources.iter();
        let sources = sources.filter(|(name, _)| **name != ledger.source);
        let outlets = sources.map(|(name, source)| (name.clone(), Outlet::new(source)));
        let mut work = RelayWork {
            ledger_config: ledger.clone(),
            ledger: None,
            outlets: outlets.collect(),
            results: events.clone(),
            held: Arc::downgrade(&held),
            overview: overview.clone(),
            unnoted: Vec::new(),
            over_since: None,
            next_count: Instant::now(),
            failures: 0,
            not_before: Instant::now(),
        };
        let thread = thread::Builder::new().name("outbox".to_owned());
        thread.spawn(move || {
            while catch_unwind(AssertUnwindSafe(|| work.run(&incoming))).is_err() {
                tracing::error!("publishing messages of schedules panicked; it begins anew");
                work.begin_anew();
            }
            drop(tell);
        })?;
        Ok(Self {
            events,
            held: Some(held),
            ended: Some(ended),
        })
    }

    /// Ends it. Returns what tells when that is done.
    pub(super) fn end(mut self) -> Option<oneshot::Receiver<()>> {
        self.ended.take()
    }

    pub(super) fn waker(&self) -> RelayWaker {
        RelayWaker(self.events.clone())
    }
}

/// A source that messages go to.
#[derive(Debug)]
struct Outlet {
    source: SourceConfig,
    /// Channel of its thread, once it has one.
    jobs: Option<SyncSender<Vec<OutboxRow>>>,
    /// Messages that its thread is publishing, which are held by that time.
    in_hand: Vec<String>,
    extend_at: Instant,
    failures: u32,
    not_before: Instant,
    problem: Option<OutletProblem>,
}

/// A problem of a source, which is logged.
#[derive(Debug)]
struct OutletProblem {
    text: String,
    is_down: bool,
    seen: Instant,
}

impl Outlet {
    fn new(source: &SourceConfig) -> Self {
        Self {
            source: source.clone(),
            jobs: None,
            in_hand: Vec::new(),
            extend_at: Instant::now(),
            failures: 0,
            not_before: Instant::now(),
            problem: None,
        }
    }

    fn is_busy(&self) -> bool {
        !self.in_hand.is_empty()
    }

    /// Takes a result into account: its problem is logged once, and so is its end.
    fn published(&mut self, published: &Published) {
        let now = Instant::now();
        let source = &published.source;
        match published.is_down {
            true => {
                self.failures += 1;
                self.not_before = now + AWAY.wait(self.failures, fastrand::f64());
            }
            false => self.failures = 0,
        }
        // What is refused comes again after a time, and others that are taken meanwhile don't end that.
        let is_over =
            |before: &OutletProblem| before.is_down || now >= before.seen + 2 * PUT_OFF.max;
        match (&published.problem, &self.problem) {
            (Some(problem), before) => {
                if before.is_none() {
                    tracing::error!(
                        source,
                        problem,
                        "messages of schedules can't be published; they stay in the ledger, retrying"
                    );
                }
                self.problem = Some(OutletProblem {
                    text: problem.clone(),
                    is_down: published.is_down,
                    seen: now,
                });
            }
            (None, Some(before)) if is_over(before) => {
                tracing::info!(source, "messages of schedules are published again");
                self.problem = None;
            }
            (None, _) => {}
        }
    }
}

/// State of the thread that takes messages from the ledger.
#[derive(Debug)]
struct RelayWork {
    ledger_config: LedgerConfig,
    ledger: Option<Ledger>,
    outlets: BTreeMap<String, Outlet>,
    results: SyncSender<RelayEvent>,
    /// Gone once the work is to end.
    held: Weak<()>,
    overview: Overview,
    /// Results that the ledger does not have yet.
    unnoted: Vec<Published>,
    /// Time at which it was to end and nothing was in hand any more.
    over_since: Option<Instant>,
    next_count: Instant,
    /// Failures of the ledger, in a row.
    failures: u32,
    not_before: Instant,
}

impl RelayWork {
    /// Works until it is to end, nothing is in hand, and all results are noted. Messages whose hold has passed are
    /// published by others anyway.
    fn run(&mut self, incoming: &Receiver<RelayEvent>) {
        let heart = Heartbeat::of_this_thread();
        loop {
            let is_over = self.held.strong_count() == 0;
            let is_busy = self.outlets.values().any(Outlet::is_busy);
            if is_over && !is_busy {
                let since = *self.over_since.get_or_insert_with(Instant::now);
                if self.unnoted.is_empty() || since.elapsed() >= HOLD {
                    return;
                }
            }
            heart.beat();
            if self.not_before <= Instant::now() {
                let turn = heart.away(|| self.turn(is_over));
                self.took_turn(turn);
            }
            match incoming.recv_timeout(LOOK_EVERY) {
                Ok(event) => self.received(event),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
            while let Ok(event) = incoming.try_recv() {
                self.received(event);
            }
        }
    }

    /// After a panic: later, and with another connection.
    fn begin_anew(&mut self) {
        self.ledger = None;
        self.failures += 1;
        self.not_before = Instant::now() + AWAY.max;
    }

    fn received(&mut self, event: RelayEvent) {
        if let RelayEvent::Published(published) = event {
            if let Some(outlet) = self.outlets.get_mut(&published.source) {
                outlet.in_hand.clear();
                outlet.published(&published);
            }
            self.unnoted.push(published);
            self.next_count = Instant::now();
        }
    }

    fn took_turn(&mut self, turn: Result<(), SourceFault>) {
        match turn {
            Ok(()) => self.failures = 0,
            // Who dispatches logs it.
            Err(error) => {
                tracing::debug!(%error, "no messages are taken from the ledger");
                self.failures += 1;
                self.not_before = Instant::now() + AWAY.wait(self.failures, fastrand::f64());
            }
        }
    }

    /// Notes what was published, and takes more unless it is to end.
    fn turn(&mut self, is_over: bool) -> Result<(), SourceFault> {
        let ledger = match &mut self.ledger {
            Some(ledger) => ledger,
            None => self
                .ledger
                .insert(Ledger::open(&self.ledger_config, false)?),
        };
        while let Some(published) = self.unnoted.last() {
            ledger.sent_out(&published.source, &published.sent, &published.back)?;
            self.unnoted.pop();
        }
        let now = Instant::now();
        for (name, outlet) in &mut self.outlets {
            if outlet.is_busy() && outlet.extend_at <= now {
                let held = outlet.in_hand.iter().map(|id| (id.clone(), HOLD));
                ledger.sent_out(name, &[], &held.collect::<Vec<_>>())?;
                outlet.extend_at = now + EXTEND_EVERY;
            }
        }
        if is_over {
            return Ok(());
        }
        let free = self.outlets.iter_mut();
        let free = free.filter(|(_, outlet)| !outlet.is_busy() && outlet.not_before <= now);
        for (name, outlet) in free {
            let rows = ledger.take_out(name, TAKEN_MAX, HOLD)?;
            if rows.is_empty() {
                continue;
            }
            let jobs = match outlet.jobs.take() {
                Some(jobs) => Ok(jobs),
                None => {
                    let publisher = Publisher {
                        name: name.clone(),
                        source: outlet.source.clone(),
                        overview: self.overview.clone(),
                        client: None,
                        failures: BTreeMap::new(),
                        held: self.held.clone(),
                    };
                    publisher.begin(&self.results)
                }
            };
            match jobs {
                Ok(jobs) => {
                    let taken = rows.iter().map(|row| row.occurrence.clone()).collect();
                    // Its thread has taken the one before.
                    if jobs.try_send(rows).is_ok() {
                        outlet.in_hand = taken;
                        outlet.extend_at = now + EXTEND_EVERY;
                    }
                    outlet.jobs = Some(jobs);
                }
                Err(error) => outlet.published(&Published {
                    source: name.clone(),
                    problem: Some(format!("no thread for it: {error}")),
                    is_down: true,
                    ..Published::default()
                }),
            }
        }
        if self.next_count <= now {
            self.next_count = now + COUNT_EVERY;
            let counts = ledger.outgoing()?;
            // Another shows them by now if it has ended meanwhile.
            if self.held.strong_count() > 0 {
                self.show(counts);
            }
        }
        Ok(())
    }

    /// Shows the number of messages and the problems.
    fn show(&self, counts: Vec<OutboxCount>) {
        let outgoing = counts.into_iter().map(|count| {
            let problem = match self.outlets.get(&count.source) {
                Some(outlet) => outlet.problem.as_ref().map(|problem| problem.text.clone()),
                None => count
                    .oldest
                    .and_then(|oldest| SystemTime::now().duration_since(oldest).ok())
                    .filter(|age| *age > UNKNOWN_MAX)
                    .map(|_| "no daemon that has a source of that name publishes them".to_owned()),
            };
            OutgoingStatus {
                source: count.source,
                messages: count.messages,
                problem,
            }
        });
        self.overview.set_outgoing(outgoing.collect());
    }
}

/// Exchange, if any, and queue that a message is published to; none for one that can't be read.
type Destination = Option<(Option<String>, String)>;

/// Failure to publish a message.
#[derive(Debug)]
enum Unpublished {
    /// The source does not take this message, for that reason.
    Refused(String),
    /// The source can't be reached.
    Down(String),
}

/// The thread that publishes to one source.
#[derive(Debug)]
struct Publisher {
    name: String,
    source: SourceConfig,
    overview: Overview,
    client: Option<Client>,
    /// Number of failures in a row, of destinations that could not be published to.
    failures: BTreeMap<Destination, u32>,
    held: Weak<()>,
}

impl Publisher {
    fn begin(mut self, results: &SyncSender<RelayEvent>) -> io::Result<SyncSender<Vec<OutboxRow>>> {
        let (jobs, incoming) = sync_channel::<Vec<OutboxRow>>(1);
        let results = results.clone();
        let thread = thread::Builder::new().name(format!("outbox-{}", self.name));
        thread.spawn(move || {
            loop {
                let rows = match incoming.recv_timeout(IDLE) {
                    Ok(rows) => rows,
                    Err(RecvTimeoutError::Timeout) => {
                        self.client = None;
                        continue;
                    }
                    Err(RecvTimeoutError::Disconnected) => return,
                };
                let all: Vec<String> = rows.iter().map(|row| row.occurrence.clone()).collect();
                let work = || self.publish(rows);
                let published = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
                    let back = all.into_iter().map(|id| (id, PUT_OFF.max));
                    Published {
                        back: back.collect(),
                        problem: Some("publishing panicked".to_owned()),
                        is_down: true,
                        ..Published::default()
                    }
                });
                let published = RelayEvent::Published(Published {
                    source: self.name.clone(),
                    ..published
                });
                if results.send(published).is_err() {
                    return;
                }
            }
        })?;
        Ok(jobs)
    }

    /// Publishes messages one by one, each with the source's confirmation.
    fn publish(&mut self, rows: Vec<OutboxRow>) -> Published {
        let mut published = Published::default();
        let mut refusing = BTreeSet::new();
        let until = Instant::now() + PUBLISH_FOR;
        for OutboxRow {
            occurrence,
            message,
        } in rows
        {
            let is_over = self.held.strong_count() == 0 || Instant::now() >= until;
            if published.is_down || is_over {
                published.back.push((occurrence, Duration::ZERO));
                continue;
            }
            let destination: Destination = message
                .as_ref()
                .ok()
                .map(|message| (message.exchange.clone(), message.queue.clone()));
            if destination.is_some() && refusing.contains(&destination) {
                published.back.push((occurrence, PUT_OFF.max));
                continue;
            }
            match message
                .map_err(Unpublished::Refused)
                .and_then(|message| self.publish_one(message))
            {
                Ok(()) => {
                    self.failures.remove(&destination);
                    published.sent.push(occurrence);
                }
                Err(Unpublished::Refused(why)) => {
                    let failures = self.failures.entry(destination.clone()).or_default();
                    *failures += 1;
                    let put_off = PUT_OFF.wait(*failures, fastrand::f64());
                    published.back.push((occurrence, put_off));
                    published.problem.get_or_insert(why);
                    refusing.insert(destination);
                }
                Err(Unpublished::Down(why)) => {
                    published.back.push((occurrence, Duration::ZERO));
                    published.problem.get_or_insert(why);
                    published.is_down = true;
                }
            }
        }
        if published.problem.is_some() {
            // A new one knows queues that were made meanwhile.
            self.client = None;
        }
        published
    }

    /// Publishes a message, on a new connection if it fails on one that may have been lost meanwhile.
    fn publish_one(&mut self, message: Outgoing) -> Result<(), Unpublished> {
        let kind = self.source.kind();
        if message.exchange.is_some() && kind != "rabbitmq" {
            let why = format!("a source of kind `{kind}` has no exchanges: name a queue");
            return Err(Unpublished::Refused(why));
        }
        loop {
            let is_new = self.client.is_none();
            let sent = self.connected()?.send(slice::from_ref(&message));
            let Err(halted) = sent else {
                return Ok(());
            };
            if !matches!(halted.error.kind(), FaultKind::NoQueue | FaultKind::Refused) {
                self.client = None;
                // Either the connection was lost, or the source closes it for this message, as it does with a new one.
                if !is_new {
                    continue;
                }
                // One that can be reached takes the others.
                self.connected()?;
            }
            return Err(Unpublished::Refused(halted.error.to_string()));
        }
    }

    /// Returns the connection, or opens one.
    fn connected(&mut self) -> Result<&mut Client, Unpublished> {
        let client = match self.client.take() {
            Some(client) => client,
            None => {
                let pools = &self.overview.config().pools;
                let opened = kinds::client(&self.name, &self.source, pools);
                opened.map_err(|error| Unpublished::Down(error.to_string()))?
            }
        };
        Ok(self.client.insert(client))
    }
}
