//! The amount of measurement: the whole matrix, a small one, or just enough to check that the benchmark
//! works.

use crate::pool::Workers;
use crate::rabbit::Kind;
use crate::{kafka, rabbit};

/// The prefetch of most cells, and the other one.
const PREFETCH: u16 = 100;
const DEEP_PREFETCH: u16 = 300;

/// All sizes of a run of the benchmark.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) name: &'static str,
    pub(crate) rounds: usize,
    pub(crate) rabbit_cells: Vec<rabbit::Cell>,
    pub(crate) kafka_cells: Vec<kafka::Cell>,
    /// Number on each path.
    pub(crate) latency_messages: usize,
    /// The pool sizes whose memory is measured.
    pub(crate) memory_workers: Vec<usize>,
    pub(crate) starts: usize,
    /// Number for each peer, which is slower.
    pub(crate) peer_messages: usize,
    /// True if the figures are worth comparing with the goals.
    pub(crate) judged: bool,
}

impl Plan {
    /// Everything, in about half an hour.
    pub(crate) fn full() -> Self {
        let rust = [1, 2, 4].map(Workers::rust);
        let all = rust.into_iter().chain([1, 2].map(Workers::python));
        let usual = all.map(|workers| (workers, PREFETCH));
        let deep = rust.map(|workers| (workers, DEEP_PREFETCH));
        Self {
            name: "full",
            rounds: 5,
            rabbit_cells: rabbit_cells(usual.chain(deep), 1),
            kafka_cells: kafka_cells(rust.into_iter().chain([Workers::python(1)]), 1),
            latency_messages: 300,
            memory_workers: vec![4, 100],
            starts: 20,
            peer_messages: 10_000,
            judged: true,
        }
    }

    /// The cells that matter most, in some minutes.
    pub(crate) fn quick() -> Self {
        let workers = [Workers::rust(2), Workers::python(2)];
        let usual = workers.map(|workers| (workers, PREFETCH));
        Self {
            name: "quick",
            rounds: 5,
            rabbit_cells: rabbit_cells(usual, 4),
            kafka_cells: kafka_cells([Workers::rust(2)], 4),
            latency_messages: 100,
            memory_workers: vec![4, 100],
            starts: 5,
            peer_messages: 4_000,
            judged: true,
        }
    }

    /// Tiny: for CI, and worth nothing as a measurement.
    pub(crate) fn smoke() -> Self {
        let workers = [Workers::rust(2), Workers::python(1)];
        let usual = workers.map(|workers| (workers, PREFETCH));
        Self {
            name: "smoke",
            rounds: 1,
            rabbit_cells: rabbit_cells(usual, 200),
            kafka_cells: kafka_cells([Workers::rust(2), Workers::python(1)], 400),
            latency_messages: 10,
            memory_workers: vec![4],
            starts: 1,
            peer_messages: 100,
            judged: false,
        }
    }
}

/// Returns the cells on both kinds of queue, with a `part` of the load that keeps a run busy for a second or
/// more.
fn rabbit_cells(all: impl IntoIterator<Item = (Workers, u16)>, part: usize) -> Vec<rabbit::Cell> {
    let cells = all.into_iter().flat_map(|(workers, prefetch)| {
        let cell = move |kind, messages: usize| rabbit::Cell {
            kind,
            workers,
            prefetch,
            messages: messages / part,
        };
        [cell(Kind::Classic, 40_000), cell(Kind::Quorum, 80_000)]
    });
    let mut cells: Vec<rabbit::Cell> = cells.collect();
    cells.sort_by_key(|cell| (cell.kind, cell.prefetch));
    cells
}

/// Returns the cells in every order, with a `part` of the load that keeps a run busy for a second or more. In
/// the order of partitions at most one message of each partition is in flight.
fn kafka_cells(all: impl IntoIterator<Item = Workers> + Clone, part: usize) -> Vec<kafka::Cell> {
    use kafka::Order;
    let orders = [Order::None, Order::Key, Order::Partition];
    // The cost of a message with more workers shows where all of them can work.
    let more = |order| (order == Order::Key).then(|| Workers::rust(8));
    let cells = orders.into_iter().flat_map(|order| {
        let messages = match order {
            Order::None | Order::Key => 400_000,
            Order::Partition => 100_000,
        };
        let cell = move |workers: Workers| kafka::Cell {
            order,
            workers,
            messages: messages / part,
        };
        all.clone().into_iter().chain(more(order)).map(cell)
    });
    cells.collect()
}
