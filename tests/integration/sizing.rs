//! The formulas of docs/sizing.md, and what `ganger check` allows for, against running daemons.

use std::fs;

use crate::harness::{Daemon, Pool, Workspace};

crate::harness::trials![files_and_threads_are_as_the_book_says];

/// Of the book's tables, for pools on one table.
const FILES_OF_A_WORKER: usize = 5;
const FILES_OF_A_POOL: usize = 11;
const THREADS_OF_A_POOL: usize = 3;
/// What `ganger check` allows for: the daemon, each pool, each worker.
const ALLOWED: [usize; 3] = [32, 24, 6];

fn files(daemon: &Daemon) -> usize {
    let open = fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap();
    open.count()
}

/// So many pools of so many workers each, on one file.
fn daemon(pools: usize, workers: usize) -> (Workspace, Daemon) {
    let site = Workspace::new();
    let pool = |n: usize| {
        let name = format!("pool-{n}");
        let pool = Pool::new(&[]).text("name", &name).text("queue", &name);
        pool.set("workers", &workers.to_string())
    };
    let pools: Vec<Pool> = (0..pools).map(pool).collect();
    let daemon = site.start(&pools);
    daemon.has_workers(pools.len() * workers);
    (site, daemon)
}

fn files_and_threads_are_as_the_book_says() {
    let (_site, small) = daemon(1, 1);
    let (_site_of_workers, with_workers) = daemon(1, 11);
    let (_site_of_pools, with_pools) = daemon(4, 1);
    let more = |than: &Daemon| files(than).saturating_sub(files(&small));
    with_workers.eventually("as many files as ten more workers have", || {
        more(&with_workers) == 10 * FILES_OF_A_WORKER
    });
    with_pools.eventually("as many files as three more pools have", || {
        more(&with_pools) == 3 * (FILES_OF_A_POOL + FILES_OF_A_WORKER)
    });
    let threads = with_pools.threads().len() - small.threads().len();
    assert_eq!(threads, 3 * THREADS_OF_A_POOL);
    let [of_the_daemon, of_a_pool, of_a_worker] = ALLOWED;
    assert!(files(&with_pools) <= of_the_daemon + 4 * (of_a_pool + of_a_worker));
    for daemon in [small, with_workers, with_pools] {
        daemon.stop();
    }
}
