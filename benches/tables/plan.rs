//! The amount of measurement: everything, a little, or just enough to check that the benchmark works.

use std::time::Duration;

use crate::flow::Cell;
use crate::server::Load;

const KIB: usize = 1024;

/// All sizes of a run of the benchmark.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) name: &'static str,
    pub(crate) rounds: usize,
    pub(crate) cells: Vec<Cell>,
    /// Number on each path.
    pub(crate) latency_messages: usize,
    /// Numbers of queues, and of workers of each. The others are compared with the first.
    pub(crate) queues: Vec<(usize, usize)>,
    pub(crate) queues_load: Load,
    /// Number of the producer's inserts, and number of messages given at a time to the programs beside it.
    pub(crate) inserts: usize,
    pub(crate) inserts_beside: usize,
    pub(crate) load_messages: usize,
    /// Number of sources on one server.
    pub(crate) crowd: usize,
    pub(crate) crowd_messages: usize,
    /// Time for which idle sources are observed.
    pub(crate) idle: Duration,
    pub(crate) idempotency_load: Load,
    /// Number for the slowest peer.
    pub(crate) peer_messages: usize,
    /// True if the figures are worth comparing with the goals.
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

/// Returns cells with a `part` of the load that keeps a run busy for a second or more.
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
