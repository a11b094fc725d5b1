//! The thread that starts workers. Looking a user up, fork and exec can take their time, and nobody
//! else is to wait for them. And the kernel kills a worker when the *thread* that started it ends
//! (`PR_SET_PDEATHSIG`): so there is one, which ends with the daemon.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;

use tokio::sync::{mpsc, oneshot};

/// How many jobs wait before those who ask wait as well.
const JOBS_MAX: usize = 64;

type Job = Box<dyn FnOnce() + Send>;

static JOBS: LazyLock<mpsc::Sender<Job>> = LazyLock::new(|| {
    let (jobs, todo) = mpsc::channel(JOBS_MAX);
    let thread = std::thread::Builder::new().name("spawner".into());
    if let Err(error) = thread.spawn(move || work(todo)) {
        // Whoever asks is told that nobody is there.
        tracing::error!(%error, "the thread that starts workers can't be started");
    }
    jobs
});

/// Does something on that thread. If it is no longer wanted when it is done, its result is dropped
/// there.
pub(super) async fn run<T: Send + 'static>(
    job: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let gone = || io::Error::other("the thread that starts workers did not do it");
    let (tell, told) = oneshot::channel();
    let job = Box::new(move || drop(tell.send(job())));
    JOBS.send(job).await.map_err(|_| gone())?;
    told.await.map_err(|_| gone())
}

fn work(mut jobs: mpsc::Receiver<Job>) {
    while let Some(job) = jobs.blocking_recv() {
        // A panic must not end the thread, for all workers would end with it.
        if catch_unwind(AssertUnwindSafe(job)).is_err() {
            tracing::error!("starting a worker panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn all_is_done_on_one_thread_whatever_becomes_of_a_job() {
        let name = || std::thread::current().id();
        let first = run(name).await.unwrap();
        let failed: io::Result<()> = run(|| panic!("a job that fails")).await;
        assert!(failed.is_err());
        assert_eq!(run(name).await.unwrap(), first);
        assert_ne!(first, std::thread::current().id());
    }
}
