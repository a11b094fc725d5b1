//! How much is measured: everything, little, or just enough to see that it works.

use std::time::Duration;

use crate::flow::Cell;
use crate::server::Load;

const KIB: usize = 1024;

/// Every size of a run of the benchmark.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) name: &'static str,
    pub(crate) rounds: usize,
    pub(crate) cells: Vec<Cell>,
    /// By each way.
    pub(crate) latency_messages: usize,
    /// Queues, and workers of each: the first is what the others are compared with.
    pub(crate) queues: Vec<(usize, usize)>,
    pub(crate) queues_load: Load,
    /// Of the producer, and how much those beside it are given at a time.
    pub(crate) inserts: usize,
    pub(crate) inserts_beside: usize,
    pub(crate) load_messages: usize,
    /// Sources on one server.
    pub(crate) crowd: usize,
    pub(crate) crowd_messages: usize,
    /// How long they are watched that have nothing to do.
    pub(crate) idle: Duration,
    pub(crate) idempotency_load: Load,
    /// For the slowest peer.
    pub(crate) peer_messages: usize,
    /// Whether the figures are worth a comparison with the goals.
    pub(crate) judged: bool,
}

impl Plan {
    /// Everything, in an hour or more.
    pub(crate) fn full() -> Self {
        Self {
            name: "full",
            rounds: 5,
            cells: cells(1),
            latency_messages: 300,
            queues: vec![(1, 16), (4, 4), (16, 1)],
            queues_load: load(192_000, 100),
            inserts: 1_000,
            inserts_beside: 100_000,
            load_messages: 200_000,
            crowd: 64,
            crowd_messages: 64_000,
            idle: Duration::from_secs(20),
            idempotency_load: load(40_000, 100),
            peer_messages: 4_000,
            judged: true,
        }
    }

    /// The same with less of each, in some minutes.
    pub(crate) fn quick() -> Self {
        Self {
            name: "quick",
            rounds: 3,
            cells: cells(2),
            latency_messages: 100,
            queues: vec![(1, 16), (16, 1)],
            queues_load: load(96_000, 100),
            inserts: 500,
            inserts_beside: 100_000,
            load_messages: 100_000,
            crowd: 64,
            crowd_messages: 32_000,
            idle: Duration::from_secs(10),
            idempotency_load: load(20_000, 100),
            peer_messages: 2_000,
            judged: true,
        }
    }

    /// Tiny: for CI, and worth nothing as a measurement.
    pub(crate) fn smoke() -> Self {
        Self {
            name: "smoke",
            rounds: 1,
            cells: vec![Cell {
                workers: 2,
                body_bytes: 100,
                prefetch: Some(50),
                messages: 200,
            }],
            latency_messages: 5,
            queues: vec![(1, 2), (2, 1)],
            queues_load: load(200, 100),
            inserts: 20,
            inserts_beside: 400,
            load_messages: 10_000,
            crowd: 4,
            crowd_messages: 400,
            idle: Duration::from_millis(200),
            idempotency_load: load(200, 100),
            peer_messages: 100,
            judged: false,
        }
    }
}

fn load(messages: usize, body_bytes: usize) -> Load {
    Load {
        messages,
        body_bytes,
    }
}

/// A `part` of what keeps a run busy for a second or more.
fn cells(part: usize) -> Vec<Cell> {
    let cell = |workers, body_bytes, prefetch, messages: usize| Cell {
        workers,
        body_bytes,
        prefetch,
        messages: messages / part,
    };
    vec![
        cell(2, 100, Some(50), 20_000),
        cell(1, 100, None, 60_000),
        cell(2, 100, None, 60_000),
        cell(4, 100, None, 60_000),
        cell(2, KIB, None, 40_000),
        cell(2, 64 * KIB, None, 2_000),
    ]
}
