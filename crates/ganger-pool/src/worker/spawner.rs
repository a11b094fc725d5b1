//! Thread that starts a pool's workers. Looking up a user, fork and exec can take some time, or hang with a
//! file system or a directory service, and no other work may wait for them: neither the pool's messages nor
//! another pool. And the kernel kills a worker when the *thread* that started it ends (`PR_SET_PDEATHSIG`):
//! so all workers of a pool are started by one thread, which outlives them.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};
use std::thread;

use tokio::runtime::Builder;
use tokio::sync::{mpsc, oneshot};

use ganger_core::heartbeat::Heartbeat;

/// Number of jobs that may wait before their callers wait as well.
const JOBS_MAX: usize = 64;

type Job = Box<dyn FnOnce() + Send>;

/// Thread of one pool, which starts with its first job. Once this is dropped, the thread ends after its
/// pending jobs, and the workers that it has started end with it.
#[derive(Debug)]
pub struct Spawner {
    pool: String,
    jobs: Mutex<Option<mpsc::Sender<Job>>>,
}

impl Spawner {
    /// Creates the spawner of a pool.
    pub fn new(pool: &str) -> Self {
        Self {
            pool: pool.to_owned(),
            jobs: Mutex::new(None),
        }
    }

    /// Runs a job on that thread. If the caller no longer waits when it is done, its result is dropped there.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let gone = || io::Error::other("the thread that starts workers has ended");
        let (tell, told) = oneshot::channel();
        let job = Box::new(move || drop(tell.send(job())));
        let thread = thread::Builder::new().name(format!("spawner-{}", self.pool));
        self.jobs(thread)?.send(job).await.map_err(|_| gone())?;
        told.await.map_err(|_| gone())
    }

    /// Returns the channel of the thread's jobs, and starts the thread if there is none: before the first
    /// job, or after the system refused it or its resources. In that case no worker has been started by it
    /// yet.
    fn jobs(&self, thread: thread::Builder) -> io::Result<mpsc::Sender<Job>> {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(jobs) = jobs.as_ref().filter(|jobs| !jobs.is_closed()) {
            return Ok(jobs.clone());
        }
        let (begun, todo) = mpsc::channel(JOBS_MAX);
        let refused = |error| {
            io::Error::other(format!(
                "spawning the thread that starts workers failed: {error}"
            ))
        };
        thread.spawn(move || work(todo)).map_err(refused)?;
        Ok(jobs.insert(begun).clone())
    }
}

fn work(mut jobs: mpsc::Receiver<Job>) {
    let event_loop = match Builder::new_current_thread().enable_time().build() {
        Ok(event_loop) => event_loop,
        Err(error) => {
            tracing::error!(%error, "creating the event loop of the thread that starts workers failed");
            return;
        }
    };
    let heart = Heartbeat::of_this_thread().on(event_loop.handle());
    while let Some(job) = event_loop.block_on(jobs.recv()) {
        // A panic must not end the thread, since all workers would end with it. A job that hangs shows in its
        // worker's `start_timeout`, and would hang after a restart as well.
        if heart.away(|| catch_unwind(AssertUnwindSafe(job))).is_err() {
            tracing::error!("starting a worker panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn all_is_done_on_one_thread_whatever_becomes_of_a_job() {
        let spawner = Spawner::new("p");
        let name = || std::thread::current().id();
        let first = spawner.run(name).await.unwrap();
        let failed: io::Result<()> = spawner.run(|| panic!("a job that fails")).await;
        assert!(failed.is_err());
        assert_eq!(spawner.run(name).await.unwrap(), first);
        assert_ne!(first, std::thread::current().id());
    }

    /// No machine has enough memory for such a stack: the thread is refused, as it would be beyond the limit
    /// of threads.
    #[tokio::test]
    async fn a_thread_that_is_refused_is_begun_at_the_next_job() {
        let spawner = Spawner::new("p");
        let refused = spawner.jobs(thread::Builder::new().stack_size(1 << 60));
        let error = refused.unwrap_err().to_string();
        assert!(error.contains("spawning the thread"), "{error}");
        let name = || thread::current().name().map(str::to_owned);
        let done_by = spawner.run(name).await.unwrap();
        assert_eq!(done_by.as_deref(), Some("spawner-p"));
    }

    /// The job hangs like a look-up in a directory service that does not answer.
    #[tokio::test]
    async fn what_hangs_for_one_pool_holds_up_no_other() {
        let (slow, other) = (Spawner::new("slow"), Spawner::new("other"));
        let (answer, answered) = std::sync::mpsc::sync_channel::<()>(1);
        let hung = slow.run(move || answered.recv().is_ok());
        let mut hung = std::pin::pin!(hung);
        tokio::select! {
            biased;
            _ = &mut hung => panic!("nobody has answered"),
            done = other.run(|| true) => assert!(done.unwrap()),
        }
        answer.send(()).unwrap();
        assert!(hung.await.unwrap());
    }

    #[tokio::test]
    async fn the_thread_ends_with_its_pool() {
        let spawner = Spawner::new("p");
        let (held, until_gone) = oneshot::channel::<()>();
        thread_local! {
            static LAST: std::cell::RefCell<Option<oneshot::Sender<()>>> =
                const { std::cell::RefCell::new(None) };
        }
        // Dropped with the thread.
        let keep = move || LAST.with(|last| last.replace(Some(held)));
        spawner.run(keep).await.unwrap();
        drop(spawner);
        until_gone.await.unwrap_err();
    }
}
