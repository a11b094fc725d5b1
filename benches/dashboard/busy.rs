//! A queue that is emptied, alone and beside a reader who opens one page after another.

use std::path::PathBuf;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use miette::{ensure, miette};
use serde::Serialize;
use tokio::time::Instant;

use crate::common::figures::{Run, Series};
use crate::common::show::{number, percent};
use crate::fill::Filled;
use crate::http;
use crate::pages::paths;
use crate::site::{BUSY, Site};

/// Interval at which the reader opens a page: four people who click all the time.
const READ_EVERY: Duration = Duration::from_millis(500);

/// Interval at which the queue is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Time after which the queue is not waited for any longer.
const STUCK_AFTER: Duration = Duration::from_secs(300);

/// Throughput of the queue.
#[derive(Debug, Serialize)]
pub(crate) struct Busy {
    alone: Series,
    beside: Series,
    pages: u64,
}

impl Busy {
    pub(crate) const HEADER: &'static [&'static str] = &[
        "",
        "alone, messages/s",
        "beside a reader",
        "ratio",
        "CPU",
        "pages",
    ];

    /// Returns the throughput beside a reader as a share of that alone.
    pub(crate) fn ratio(&self) -> f64 {
        self.beside.ratio_to(&self.alone)
    }

    pub(crate) fn row(&self) -> Vec<String> {
        vec![
            "median".to_owned(),
            number(self.alone.per_second()),
            number(self.beside.per_second()),
            percent(self.ratio()),
            percent(self.beside.cpu_micros() / self.alone.cpu_micros()),
            self.pages.to_string(),
        ]
    }
}

pub(crate) fn measure(
    site: &Site<'_>,
    filled: &Filled,
    rounds: usize,
    messages: u64,
) -> miette::Result<Busy> {
    let mut busy = Busy {
        alone: Series::default(),
        beside: Series::default(),
        pages: 0,
    };
    // The first time is not counted: automatic windows find their depth.
    empty(site, messages)?;
    for round in 0..rounds {
        busy.alone.push(empty(site, messages)?);
        let reader = Reader::start(site.socket.clone(), *filled, round as u64);
        busy.beside.push(empty(site, messages)?);
        busy.pages += reader.stop()?;
    }
    Ok(busy)
}

/// Fills the queue while the daemon is stopped, and measures how it is emptied.
fn empty(site: &Site<'_>, messages: u64) -> miette::Result<Run> {
    let fill = match site.place.is_file() {
        true => {
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $COUNT)
                 INSERT INTO consumer_messages (queue, body) SELECT '$QUEUE', 'number ' || i FROM n"
        }
        false => {
            "INSERT INTO consumer_messages (queue, body)
                  SELECT '$QUEUE', 'number ' || i FROM generate_series(1, $COUNT) AS n (i)"
        }
    };
    let fill = fill
        .replace("$QUEUE", BUSY)
        .replace("$COUNT", &messages.to_string());
    let left = "SELECT CASE WHEN EXISTS (SELECT 1 FROM consumer_messages
        WHERE queue = '$QUEUE' AND owner IS NULL AND available_after = 0)
      OR EXISTS (SELECT 1 FROM consumer_messages WHERE owner IS NOT NULL) THEN 1 ELSE 0 END";
    let left = left.replace("$QUEUE", BUSY);
    // Filled in one transaction: the daemon sees all at once.
    site.place.run(&fill)?;
    let (cpu, begun) = (site.daemon.cpu_seconds()?, Instant::now());
    while site.place.number(&left)? > 0 {
        ensure!(
            begun.elapsed() < STUCK_AFTER,
            "messages are left after {STUCK_AFTER:?}"
        );
        thread::park_timeout(LOOK_EVERY);
    }
    Ok(Run {
        messages: usize::try_from(messages).unwrap_or(usize::MAX),
        seconds: begun.elapsed().as_secs_f64(),
        cpu_seconds: site.daemon.cpu_seconds()? - cpu,
    })
}

/// Reader of pages, one after the other.
struct Reader {
    stop: mpsc::SyncSender<()>,
    thread: JoinHandle<miette::Result<u64>>,
}

impl Reader {
    fn start(socket: PathBuf, filled: Filled, first: u64) -> Self {
        let (stop, stopped) = mpsc::sync_channel::<()>(1);
        let read = move || {
            let all = (first..).flat_map(|time| paths(&filled, time));
            let mut pages = 0;
            for (_, path) in all {
                http::get(&socket, &path)?;
                pages += 1;
                if stopped.recv_timeout(READ_EVERY) != Err(mpsc::RecvTimeoutError::Timeout) {
                    break;
                }
            }
            Ok(pages)
        };
        Self {
            stop,
            thread: thread::spawn(read),
        }
    }

    /// Returns the number of pages that were opened.
    fn stop(self) -> miette::Result<u64> {
        drop(self.stop);
        self.thread
            .join()
            .map_err(|_| miette!("the reader has panicked"))?
    }
}
