//! Limit of the daemon's open files: raised to the system's maximum. Its workers get the original limit,
//! since some programs iterate over all possible numbers.

use std::sync::OnceLock;

use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};

/// Files per worker: its pipe, a pidfd, stdin, stdout and stderr, and one for its replacement.
const FILES_PER_WORKER: u64 = 6;
/// Files per pool: two event loops, a connection to its broker and its wake-up descriptor.
const FILES_PER_POOL: u64 = 24;
/// Files that the daemon itself has open.
const FILES_OF_THE_DAEMON: u64 = 32;

/// Soft and hard limit that the daemon was started with.
static ORIGINAL: OnceLock<(rlim_t, rlim_t)> = OnceLock::new();

/// Raises the soft limit to the hard one. Called once, before any worker is started.
pub fn raise_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(soft, hard)| {
        ORIGINAL.get_or_init(|| (soft, hard));
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
    });
    if let Err(error) = raised {
        tracing::warn!(%error, "raising the limit of open files failed");
    }
}

/// Returns the limits that a worker gets back, where the limit was raised.
pub(super) fn original() -> Option<(rlim_t, rlim_t)> {
    ORIGINAL.get().copied()
}

/// Returns the number of workers that fit into the hard limit with that number of pools. `None` if the limit
/// can't be read.
pub fn workers_that_fit(pools: usize) -> Option<u64> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    Some(fit(hard, pools))
}

fn fit(files: u64, pools: usize) -> u64 {
    let others = FILES_OF_THE_DAEMON + FILES_PER_POOL * pools as u64;
    files.saturating_sub(others) / FILES_PER_WORKER
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_fit_into_what_the_rest_leaves() {
        for (files, pools, workers) in [(1024, 1, 161), (20_000, 70, 3048), (50, 1, 0)] {
            assert_eq!(fit(files, pools), workers, "{files} files, {pools} pools");
        }
    }
}
