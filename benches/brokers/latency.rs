//! From an idle queue to a handler. One message at a time is sent from this process; whoever
//! receives it tells when, by the clock that all processes share. What sends and receives, this
//! file does not know.

use std::time::Duration;

use serde::Serialize;

use crate::common::figures::percentile;
use crate::common::machine::monotonic_nanos;
use crate::common::show::milliseconds;
use crate::watch::seconds;

/// The receiver is left alone for so long between two messages, at random, so that no timer of its
/// own keeps step with us.
const IDLE_MILLIS: std::ops::Range<u64> = 10..60;

/// The first few find caches cold.
const COLD: usize = 5;

/// A sender and a receiver.
pub(crate) struct Way {
    pub(crate) name: String,
    /// Whether it leads through the daemon.
    pub(crate) is_ours: bool,
    pub(crate) send: Box<dyn FnMut() -> miette::Result<()>>,
    /// Waits for the message. Returns when it came, in nanoseconds of CLOCK_MONOTONIC.
    pub(crate) receive: Box<dyn FnMut() -> miette::Result<i64>>,
}

/// How a way's messages have fared.
#[derive(Debug, Serialize)]
pub(crate) struct Latency {
    pub(crate) way: String,
    pub(crate) is_ours: bool,
    messages: usize,
    /// From before the message was sent to the handler.
    p50_ms: f64,
    pub(crate) p99_ms: f64,
    longest_ms: f64,
}

/// Sends so many messages by each way, in turns.
pub(crate) fn measure(ways: &mut [Way], messages: usize) -> miette::Result<Vec<Latency>> {
    let mut times = vec![Vec::new(); ways.len()];
    for _ in 0..COLD + messages {
        for (way, times) in ways.iter_mut().zip(&mut times) {
            times.push(way.pass()?);
        }
    }
    let latencies = ways.iter().zip(times);
    Ok(latencies
        .map(|(way, times)| Latency::of(way, &times[COLD..]))
        .collect())
}

impl Way {
    /// Lets the receiver come to rest, then sends one message. Returns its time in milliseconds.
    fn pass(&mut self) -> miette::Result<f64> {
        std::thread::park_timeout(Duration::from_millis(fastrand::u64(IDLE_MILLIS)));
        let sent = monotonic_nanos();
        (self.send)()?;
        let received = (self.receive)()?;
        Ok(seconds(received - sent) * 1e3)
    }
}

impl Latency {
    fn of(way: &Way, millis: &[f64]) -> Self {
        let share = |percent| percentile(millis.iter().copied(), percent);
        Self {
            way: way.name.clone(),
            is_ours: way.is_ours,
            messages: millis.len(),
            p50_ms: share(50),
            p99_ms: share(99),
            longest_ms: share(100),
        }
    }

    pub(crate) const HEADER: &[&str] =
        &["way", "messages", "sent to handler p50", "p99", "longest"];

    pub(crate) fn row(&self) -> Vec<String> {
        let times = [self.p50_ms, self.p99_ms, self.longest_ms];
        let names = [self.way.clone(), self.messages.to_string()];
        names.into_iter().chain(times.map(milliseconds)).collect()
    }
}
