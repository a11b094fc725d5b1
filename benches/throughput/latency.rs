//! Latency from an idle queue to the worker's handler. This process, which is not the daemon's, sends one
//! message at a time; the worker reports the time at which it has read it, by the clock that all processes
//! share.

use std::time::Duration;

use ganger_queue::client::Client;
use ganger_queue::delivery::Outgoing;
use miette::IntoDiagnostic;
use serde::Serialize;

use crate::common::figures::percentile;
use crate::common::machine::monotonic_nanos;
use crate::common::show::{milliseconds, note};
use crate::common::tally::Tally;
use crate::daemon::Daemon;
use crate::plan::Plan;
use crate::queue::QueueFile;
use crate::setup::{Setup, Window};

const WORKERS: usize = 4;
const BODY: &str = "one hundred bytes or so are a small message, and this is one that has just about that many of them.";

/// Pause before each message, in which the daemon is idle. It is random, so that no timer of the daemon runs
/// in step with the sender.
const IDLE_MILLIS: std::ops::Range<u64> = 10..60;

const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Latencies of one kind of sender's messages.
#[derive(Debug, Serialize)]
pub(crate) struct Latency {
    pub(crate) sender: &'static str,
    messages: usize,
    /// Time that the sender itself waits for its commit.
    commit_p50_ms: f64,
    commit_p99_ms: f64,
    /// Time from the return of the commit to the handler.
    pub(crate) committed_p50_ms: f64,
    pub(crate) committed_p99_ms: f64,
    /// Time from before the message was sent to the handler, including the commit.
    sent_p50_ms: f64,
    sent_p99_ms: f64,
}

/// Times of one message, in nanoseconds of the common clock.
#[derive(Debug, Clone, Copy)]
struct Moments {
    before_sending: i64,
    committed: i64,
    received: i64,
}

/// Measures both kinds of sender, in turn.
pub(crate) fn measure(plan: &Plan) -> miette::Result<Vec<Latency>> {
    note(format_args!("latency, {} messages", plan.latency_messages));
    let mut post = Post::open()?;
    let (mut by_client, mut by_sql) = (Vec::new(), Vec::new());
    // The first few messages find cold caches.
    for _ in 0..5 {
        post.pass(Post::send_by_client)?;
        post.pass(Post::send_by_sql)?;
    }
    for _ in 0..plan.latency_messages {
        by_client.push(post.pass(Post::send_by_client)?);
        by_sql.push(post.pass(Post::send_by_sql)?);
    }
    post.daemon.stop()?;
    Ok(vec![
        Latency::of("Client::send", &by_client),
        Latency::of("SQL INSERT", &by_sql),
    ])
}

/// The sender and the receiver.
struct Post {
    queue: QueueFile,
    client: Client,
    queue_name: String,
    tally: Tally,
    daemon: Daemon,
}

impl Post {
    fn open() -> miette::Result<Self> {
        let tally = Tally::open()?;
        let setup = Setup {
            tally: Some(tally.path()),
            ..Setup::one_pool(WORKERS, Window::Auto)
        };
        let queue = QueueFile::create()?;
        Ok(Self {
            daemon: Daemon::start(&queue, &setup)?,
            client: queue.client()?,
            queue,
            queue_name: setup.queues().concat(),
            tally,
        })
    }

    fn send_by_client(&mut self) -> miette::Result<()> {
        let message = Outgoing {
            queue: self.queue_name.clone(),
            body: BODY.into(),
            ..Outgoing::default()
        };
        self.client.send(&[message]).into_diagnostic()
    }

    fn send_by_sql(&mut self) -> miette::Result<()> {
        self.queue.insert(&self.queue_name, BODY)
    }

    /// Waits until the daemon is idle, then sends one message to the handler.
    fn pass(&mut self, send: fn(&mut Self) -> miette::Result<()>) -> miette::Result<Moments> {
        self.queue.wait_until_done(LOOK_EVERY)?;
        let idle = Duration::from_millis(fastrand::u64(IDLE_MILLIS));
        std::thread::park_timeout(idle);
        let before_sending = monotonic_nanos();
        send(self)?;
        let committed = monotonic_nanos();
        let received = self.tally.wait_for(1)?;
        Ok(Moments {
            before_sending,
            committed,
            received,
        })
    }
}

impl Latency {
    fn of(sender: &'static str, all: &[Moments]) -> Self {
        let commit = |percent| span(all, percent, |m| m.committed - m.before_sending);
        let committed = |percent| span(all, percent, |m| m.received - m.committed);
        let sent = |percent| span(all, percent, |m| m.received - m.before_sending);
        Self {
            sender,
            messages: all.len(),
            commit_p50_ms: commit(50),
            commit_p99_ms: commit(99),
            committed_p50_ms: committed(50),
            committed_p99_ms: committed(99),
            sent_p50_ms: sent(50),
            sent_p99_ms: sent(99),
        }
    }

    pub(crate) const HEADER: &[&str] = &[
        "sender",
        "messages",
        "its commit p50",
        "p99",
        "committed to handler p50",
        "p99",
        "sent to handler p50",
        "p99",
    ];

    pub(crate) fn row(&self) -> Vec<String> {
        let times = [
            self.commit_p50_ms,
            self.commit_p99_ms,
            self.committed_p50_ms,
            self.committed_p99_ms,
            self.sent_p50_ms,
            self.sent_p99_ms,
        ];
        let names = [self.sender.to_owned(), self.messages.to_string()];
        names.into_iter().chain(times.map(milliseconds)).collect()
    }
}

/// Returns a percentile in milliseconds.
fn span(all: &[Moments], percent: usize, between: impl Fn(&Moments) -> i64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "exact for the first 100 days")]
    let nanos = all.iter().map(|moments| between(moments) as f64);
    percentile(nanos, percent) / 1e6
}
