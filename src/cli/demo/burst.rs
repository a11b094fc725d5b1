//! The end of the demo: messages that take no work, to measure the speed of ganger itself.

use std::path::Path;
use std::time::Duration;

use miette::miette;
use serde::Serialize;
use tokio::time::Instant;

use super::stage::{self, Plan, STUCK_AFTER, Stage, TableLocation};

/// Default number of messages.
pub(super) const MESSAGES: u32 = 100_000;
/// Number of messages that the built-in worker takes at once: it answers those that came together
/// with one write.
const CONCURRENCY: u32 = 64;
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Result of the burst.
#[derive(Debug, Serialize)]
pub(super) struct Burst {
    messages: u64,
    seconds: f64,
    pub(super) messages_per_second: f64,
}

/// Fills the queue first, then measures the time from the start of the daemon until all is done.
pub(super) fn run(
    workers: u32,
    command: &[String],
    messages: u32,
    (ground, queue): (&TableLocation, &str),
) -> miette::Result<Burst> {
    let plan = Plan {
        ground,
        queue,
        workers,
        command,
        record: Path::new("/dev/null"),
        concurrency: CONCURRENCY,
        schedules: None,
    };
    let config = plan.config()?;
    let mut client = stage::open_client(&config)?;
    stage::send(&mut client, queue, messages, |_| "0".to_owned(), |_| ())?;
    let messages = u64::from(messages);
    let started = Instant::now();
    let mut stage = Stage::start(config)?;
    let worked = work_through(&stage, messages);
    let seconds = started.elapsed().as_secs_f64();
    let tidied = worked.and_then(|()| stage.tidy_up());
    stage.stop()?;
    tidied?;
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let messages_per_second = messages as f64 / seconds;
    Ok(Burst {
        messages,
        seconds,
        messages_per_second,
    })
}

/// Waits until all messages are done, or dead-lettered by a worker that fails.
fn work_through(stage: &Stage, messages: u64) -> miette::Result<()> {
    let mut progress = (0, Instant::now());
    loop {
        std::thread::park_timeout(LOOK_EVERY);
        if stage.has_failed() {
            return Ok(());
        }
        // Until the pool is up there is none.
        let counts = stage.status().map(|status| status.counts);
        let ended = counts.map_or(0, |counts| counts.done + counts.dead);
        if ended >= messages {
            return Ok(());
        }
        if ended > progress.0 {
            progress = (ended, Instant::now());
        }
        if progress.1.elapsed() > STUCK_AFTER {
            return Err(miette!(
                "{ended} of {messages} messages of the burst are done, and there was no progress \
                 for a minute"
            ));
        }
    }
}

impl Burst {
    /// Formats the result for people.
    pub(super) fn as_text(&self) -> String {
        format!("{:.0} messages/s", self.messages_per_second)
    }
}
