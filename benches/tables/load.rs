//! A long load with a producer beside it. It compares the throughput of the last tenth of the messages with
//! that of the first, and shows the growth of the table and its indexes with the server's own clean-up as
//! configured. The producer inserts a thousand rows at a time as long as few wait, so there is always enough
//! work and never a backlog.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;
use std::time::Duration;

use miette::{IntoDiagnostic, ensure, miette};
use serde::Serialize;
use tokio::time::Instant;

use crate::common::show::{megabytes, note, number, percent};
use crate::daemon::Daemon;
use crate::plan::Plan;
use crate::server::{Database, Server, Sql};
use crate::setup::{Setup, Window};

const WORKERS: usize = 2;

/// Number of rows in a transaction of the producer.
const INSERTED_AT_ONCE: usize = 1000;

const BODY_BYTES: usize = 100;

/// Number of waiting rows at which the producer pauses.
const WAITING_MAX: i64 = 20_000;

const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Time without progress after which the load counts as stuck.
const STUCK_AFTER: Duration = Duration::from_secs(60);

/// Number of parts that are compared.
const PARTS: i64 = 10;

/// A tenth of the load.
#[derive(Debug, Serialize)]
pub(crate) struct Part {
    per_second: f64,
    /// Size of the table and its indexes.
    size_kib: i64,
    /// Number of old row versions or dead rows that are not cleaned up yet.
    left_behind: i64,
    /// Number of vacuums; none if the clean-up is continuous.
    vacuums: Option<i64>,
}

/// Results of the load.
#[derive(Debug, Serialize)]
pub(crate) struct Loaded {
    messages: usize,
    parts: Vec<Part>,
    pub(crate) last_to_first: f64,
}

/// Measures the load once.
pub(crate) fn measure(server: &Server, plan: &Plan) -> miette::Result<Loaded> {
    note(format_args!("load, {} messages", plan.load_messages));
    let database = server.database()?;
    let daemon = Daemon::start_silent(&database, &Setup::one_pool(WORKERS, Window::Auto))?;
    let before = database.number(server.words().last_id)?;
    let progress = Arc::new(Progress::default());
    let producer = produce(database.connect()?, plan.load_messages, &progress);
    let parts = watch(&database, before, plan.load_messages, &progress);
    progress.is_over.store(true, Ordering::Relaxed);
    let produced = producer
        .join()
        .map_err(|_| miette!("the producer panicked"))?;
    produced?;
    let parts = parts?;
    database.wait_until_done(LOOK_EVERY)?;
    daemon.stop()?;
    let speed = |part: Option<&Part>| part.map_or(0.0, |part| part.per_second);
    let last_to_first = speed(parts.last()) / speed(parts.first());
    Ok(Loaded {
        messages: plan.load_messages,
        parts,
        last_to_first,
    })
}

/// Progress of both sides.
#[derive(Debug, Default)]
struct Progress {
    inserted: AtomicI64,
    claimed: AtomicI64,
    is_over: AtomicBool,
}

fn produce(
    producer: Sql,
    messages: usize,
    progress: &Arc<Progress>,
) -> thread::JoinHandle<miette::Result<()>> {
    let progress = Arc::clone(progress);
    // Inserted one after the other, so that their ids have no gaps on any server.
    let row = format!("('bench-0', '{}')", "x".repeat(BODY_BYTES));
    let rows = vec![row; INSERTED_AT_ONCE].join(", ");
    let insert = format!("INSERT INTO consumer_messages (queue, body) VALUES {rows}");
    thread::spawn(move || {
        let mut left = messages;
        while left > 0 && !progress.is_over.load(Ordering::Relaxed) {
            let claimed = progress.claimed.load(Ordering::Relaxed);
            if progress.inserted.load(Ordering::Relaxed) - claimed >= WAITING_MAX {
                thread::park_timeout(LOOK_EVERY / 5);
                continue;
            }
            producer.run(&insert)?;
            left = left.saturating_sub(INSERTED_AT_ONCE);
            let count = i64::try_from(INSERTED_AT_ONCE).into_diagnostic()?;
            progress.inserted.fetch_add(count, Ordering::Relaxed);
        }
        Ok(())
    })
}

/// Polls the progress until all messages are claimed.
fn watch(
    database: &Database<'_>,
    before: i64,
    messages: usize,
    progress: &Progress,
) -> miette::Result<Vec<Part>> {
    let messages = i64::try_from(messages).into_diagnostic()?;
    let (mut parts, mut begun, mut last_news) = (Vec::new(), Instant::now(), Instant::now());
    for part in 1..=PARTS {
        while progress.claimed.load(Ordering::Relaxed) < messages * part / PARTS {
            thread::park_timeout(LOOK_EVERY);
            let claimed = claimed(database, before, progress)?;
            if claimed > progress.claimed.swap(claimed, Ordering::Relaxed) {
                last_news = Instant::now();
            }
            ensure!(last_news.elapsed() < STUCK_AFTER, "stuck after {claimed}");
        }
        #[expect(clippy::cast_precision_loss, reason = "there are far fewer messages")]
        let per_second = (messages / PARTS) as f64 / begun.elapsed().as_secs_f64();
        parts.push(Part::now(database, per_second)?);
        begun = Instant::now();
    }
    Ok(parts)
}

fn claimed(database: &Database<'_>, before: i64, progress: &Progress) -> miette::Result<i64> {
    // Read first: rows that are inserted later wait, or are claimed and not counted yet.
    let inserted = progress.inserted.load(Ordering::Relaxed);
    let next = database.server.words().next;
    let first = database.row(&format!("SELECT (SELECT id FROM {next} LIMIT 1)"))?;
    let first = first.first().copied().flatten();
    // None if all existing rows are claimed.
    Ok(first.map_or(inserted, |first| first - before - 1))
}

impl Part {
    fn now(database: &Database<'_>, per_second: f64) -> miette::Result<Self> {
        let row = database.row(database.server.words().size)?;
        let number = |column: usize| row.get(column).copied().flatten();
        Ok(Self {
            per_second,
            size_kib: number(0).unwrap_or(0),
            left_behind: number(1).unwrap_or(0),
            vacuums: number(2),
        })
    }

    pub(crate) const HEADER: &[&str] = &[
        "tenth",
        "messages/s",
        "table, indexes",
        "left behind",
        "vacuums",
    ];
}

impl Loaded {
    pub(crate) fn rows(&self) -> impl Iterator<Item = Vec<String>> {
        let rows = self.parts.iter().enumerate();
        rows.map(move |(place, part)| {
            vec![
                (place + 1).to_string(),
                number(part.per_second),
                megabytes(part.size_kib.unsigned_abs()),
                part.left_behind.to_string(),
                part.vacuums
                    .map_or("–".to_owned(), |count| count.to_string()),
            ]
        })
    }

    /// Returns the largest size of the table and its indexes as a share of their size after a third.
    pub(crate) fn growth(&self) -> f64 {
        let sizes = self.parts.iter().map(|part| part.size_kib);
        let sizes: Vec<i64> = sizes.collect();
        let early = sizes.iter().take(sizes.len() / 3).max();
        let late = sizes.iter().skip(sizes.len() / 3).max();
        #[expect(clippy::cast_precision_loss, reason = "they are smaller")]
        let share = |late: i64, early: i64| late as f64 / early.max(1) as f64;
        early
            .zip(late)
            .map_or(0.0, |(early, late)| share(*late, *early))
    }

    pub(crate) fn describe(&self) -> String {
        format!(
            "load of {} messages, last tenth to first {}",
            self.messages,
            percent(self.last_to_first)
        )
    }
}
