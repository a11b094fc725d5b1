//! The amount of measurement: the whole matrix, a small one, or just enough to check that the benchmark
//! works.

use crate::queue::Load;
use crate::setup::Window;

const KIB: usize = 1024;

/// All sizes of a run of the benchmark.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) name: &'static str,
    pub(crate) rounds: usize,
    pub(crate) cells: Vec<Cell>,
    /// Number for each sender.
    pub(crate) latency_messages: usize,
    /// The pool sizes whose memory is measured.
    pub(crate) memory_workers: Vec<usize>,
    pub(crate) starts: usize,
    /// Number for each worker with each way of working.
    pub(crate) language_messages: usize,
    /// Time for which an idle daemon is observed.
    pub(crate) idle_seconds: u64,
    /// Numbers of pools, and of workers in each. In each list the others are compared with the first. More
    /// pools have the same number of workers in total.
    pub(crate) more_workers: Vec<(usize, usize)>,
    pub(crate) more_pools: Vec<(usize, usize)>,
    pub(crate) scaling_load: Load,
    /// True if the figures are worth comparing with the goals.
    pub(crate) judged: bool,
}

/// One combination of the throughput matrix.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cell {
    pub(crate) workers: usize,
    pub(crate) window: Window,
    /// Load through the table.
    pub(crate) load: Load,
    /// Load through the pipe alone, which is faster.
    pub(crate) pipe_load: Load,
}

impl Plan {
    /// Everything, in less than ten minutes.
    pub(crate) fn full() -> Self {
        let windows = [
            Window::Fixed(1),
            Window::Fixed(8),
            Window::Fixed(32),
            Window::Auto,
        ];
        let cell = |body_bytes, workers, window| Cell::new(workers, window, body_bytes, 1);
        let cells = [100, KIB, 64 * KIB].into_iter().flat_map(|body| {
            [1, 2, 4]
                .into_iter()
                .flat_map(move |workers| windows.map(|window| cell(body, workers, window)))
        });
        Self {
            name: "full",
            rounds: 5,
            cells: cells.collect(),
            latency_messages: 300,
            memory_workers: vec![4, 100],
            starts: 20,
            language_messages: 20_000,
            idle_seconds: 30,
            more_workers: vec![(1, 4), (1, 16), (1, 64), (1, 256)],
            more_pools: vec![(1, 16), (4, 4), (16, 1)],
            scaling_load: small(25_600),
            judged: true,
        }
    }

    /// The cells that matter most, in less than a minute.
    pub(crate) fn quick() -> Self {
        let cell = |workers, window, body| Cell::new(workers, window, body, 3);
        Self {
            name: "quick",
            rounds: 5,
            cells: vec![
                cell(2, Window::Auto, 100),
                cell(2, Window::Fixed(1), KIB),
                cell(2, Window::Fixed(8), KIB),
                cell(2, Window::Fixed(32), KIB),
                cell(2, Window::Auto, KIB),
                cell(2, Window::Auto, 64 * KIB),
            ],
            latency_messages: 100,
            memory_workers: vec![4, 100],
            starts: 5,
            language_messages: 5_000,
            idle_seconds: 10,
            more_workers: vec![(1, 4), (1, 64)],
            more_pools: vec![(1, 16), (16, 1)],
            scaling_load: small(6_400),
            judged: true,
        }
    }

    /// Tiny, in about ten seconds: for CI, and worth nothing as a measurement.
    pub(crate) fn smoke() -> Self {
        Self {
            name: "smoke",
            rounds: 1,
            cells: vec![
                Cell::new(2, Window::Fixed(1), 100, 50),
                Cell::new(2, Window::Auto, 64 * KIB, 50),
            ],
            latency_messages: 10,
            memory_workers: vec![4],
            starts: 1,
            language_messages: 200,
            idle_seconds: 1,
            more_workers: vec![(1, 1), (1, 8)],
            more_pools: vec![(1, 4), (4, 1)],
            scaling_load: small(400),
            judged: false,
        }
    }
}

impl Cell {
    /// Makes a cell with a `part` of the load that keeps a run busy for about a second.
    fn new(workers: usize, window: Window, body_bytes: usize, part: usize) -> Self {
        let (table, pipe) = match (window, body_bytes) {
            (Window::Fixed(1), ..=KIB) => (10_000, 20_000),
            (Window::Fixed(1), _) => (2_000, 10_000),
            (_, ..=KIB) => (30_000, 150_000),
            (_, _) => (2_000, 20_000),
        };
        let load = |messages: usize| Load {
            messages: messages / part,
            body_bytes,
        };
        Self {
            workers,
            window,
            load: load(table),
            pipe_load: load(pipe),
        }
    }
}

fn small(messages: usize) -> Load {
    Load {
        messages,
        body_bytes: KIB,
    }
}
