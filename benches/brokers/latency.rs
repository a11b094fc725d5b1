//! Latency from an idle queue to a handler. This process sends one message at a time; the receiver reports
//! the time of arrival, by the clock that all processes share. This file does not know the sender and the
//! receiver.

use std::time::Duration;

use serde::Serialize;

use crate::common::figures::percentile;
use crate::common::machine::monotonic_nanos;
use crate::common::show::milliseconds;
use crate::watch::seconds;

/// Pause before each message, in which the receiver is idle. It is random, so that no timer of the receiver
/// runs in step with the sender.
const IDLE_MILLIS: std::ops::Range<u64> = 10..60;

/// Number of first messages that are left out, since they find cold caches.
const COLD: usize = 5;

/// A sender and a receiver.
pub(crate) struct Way {
    pub(crate) name: String,
    /// True if the path leads through the daemon.
    pub(crate) is_ours: bool,
    pub(crate) send: Box<dyn FnMut() -> miette::Result<()>>,
    /// Waits for the message. Returns the time of its arrival, in nanoseconds of CLOCK_MONOTONIC.
    pub(crate) receive: Box<dyn FnMut() -> miette::Result<i64>>,
}

/// Latencies of a path's messages.
#[derive(Debug, Serialize)]
pub(crate) struct Latency {
    pub(crate) way: String,
    pub(crate) is_ours: bool,
    messages: usize,
    /// Time from before the message was sent until the handler has it.
    p50_ms: f64,
    pub(crate) p99_ms: f64,
    longest_ms: f64,
}

/// Sends `messages` messages on each path, in turn.
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
    /// Waits until the receiver is idle, then sends one message. Returns its latency in milliseconds.
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
