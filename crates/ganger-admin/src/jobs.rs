//! Jobs: changes of many dead letters in the background, in steps and at a rate. A job is its definition: criteria with
//! an upper bound in time. What it has changed no longer matches, so that a daemon can begin one again that another has
//! left unfinished. The jobs of a source are done one after the other, on one thread.

mod job;
mod pacer;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use std::{fmt, io, thread};

use tokio::time::Instant;

use ganger_core::backoff::AWAY;
use ganger_pool::overview::{DaemonState, Overview};
use ganger_pool::state_file::StateFile;
use ganger_queue::client::{Connect, Halted, Step};
use ganger_queue::fault::{FaultKind, SourceFault};
pub(crate) use job::{Job, JobChange, JobState};
use pacer::Pacer;

/// Maximum number of jobs that have not ended, and of those that are remembered.
const UNFINISHED_MAX: usize = 20;
const REMEMBERED_MAX: usize = 50;
/// Interval at which a waiting job looks whether the daemon stops.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Maximum time for which the end of the program waits for the steps in progress.
const LAST_STEPS_WITHIN: Duration = Duration::from_secs(3);

/// Reason for which a job is not begun.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum JobRefusal {
    /// This job does the same.
    Same(String),
    /// Too many have not ended.
    TooMany,
}

/// The jobs of the daemon. Clones share them.
#[derive(Clone)]
pub(super) struct Jobs(Arc<JobsShared>);

struct JobsShared {
    overview: Overview,
    connect: Connect,
    table: Mutex<Table>,
    /// Notified when a job is cancelled, a thread ends, or all are to stop.
    news: Condvar,
    /// Held while the file is written, so that a later state is never replaced by an earlier one.
    file: Mutex<JobsFile>,
}

/// The file of the jobs. Of several daemons with one configuration the one that has written it last does the jobs.
struct JobsFile {
    file: StateFile,
    /// Stamp of the file as this daemon has read or written it last.
    stamp: Option<(u64, SystemTime)>,
}

impl JobsFile {
    fn is_foreign(&self) -> bool {
        let stamp = self.file.stamp();
        stamp.is_some() && stamp != self.stamp
    }
}

#[derive(Debug, Default)]
struct Table {
    /// The jobs, the oldest first.
    jobs: Vec<Job>,
    /// Sources that have a thread.
    threads: BTreeSet<String>,
    is_closed: bool,
    /// True if another daemon does the jobs.
    is_foreign: bool,
    /// True if the file could not be written the last time.
    is_unwritten: bool,
}

impl Table {
    fn may_go_on(&self) -> bool {
        !self.is_closed && !self.is_foreign
    }
}

impl fmt::Debug for Jobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jobs").finish_non_exhaustive()
    }
}

/// Locks a mutex; a panic elsewhere has left no value half changed.
fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Jobs {
    /// Reads the jobs from the file. None is begun.
    pub(super) fn read(overview: Overview, connect: Connect, file: StateFile) -> Self {
        let stamp = file.stamp();
        let jobs = file.read().unwrap_or_else(|error| {
            tracing::error!(%error, "reading the file of jobs failed: no job is continued");
            Vec::new()
        });
        let table = Table {
            jobs,
            ..Table::default()
        };
        Self(Arc::new(JobsShared {
            overview,
            connect,
            table: Mutex::new(table),
            news: Condvar::new(),
            file: Mutex::new(JobsFile { file, stamp }),
        }))
    }

    /// Continues the jobs that another daemon has left unfinished. One that still does them ends with that.
    pub(super) fn continue_unfinished(&self) {
        self.read_again();
        let unfinished: Vec<Job> = {
            let mut table = locked(&self.0.table);
            table.is_foreign = false;
            let jobs = table.jobs.iter();
            jobs.filter(|job| !job.state.is_over()).cloned().collect()
        };
        if !unfinished.is_empty() {
            self.save(true);
        }
        for job in unfinished {
            job.log("continued");
            self.begin(&job.source);
        }
    }

    /// Leaves the jobs to another daemon if that has written the file.
    fn refresh(&self) {
        if self.read_again() {
            self.give_up();
        }
    }

    /// Reads the file again if another daemon has written it. Returns whether it has.
    fn read_again(&self) -> bool {
        let mut file = locked(&self.0.file);
        if !file.is_foreign() {
            return false;
        }
        let stamp = file.file.stamp();
        match file.file.read() {
            Ok(jobs) => {
                file.stamp = stamp;
                locked(&self.0.table).jobs = jobs;
                true
            }
            Err(error) => {
                tracing::error!(%error, "reading the file of jobs failed");
                false
            }
        }
    }

    /// Leaves the jobs to the other daemon.
    fn give_up(&self) {
        if !std::mem::replace(&mut locked(&self.0.table).is_foreign, true) {
            tracing::info!("jobs are continued by another daemon with this configuration");
        }
    }

    /// Does the jobs that another daemon has done until now.
    fn take_over(&self) {
        let is_foreign = locked(&self.0.table).is_foreign;
        if is_foreign {
            self.continue_unfinished();
        }
    }

    /// Returns the jobs, the newest first.
    pub(super) fn list(&self) -> Vec<Job> {
        self.refresh();
        locked(&self.0.table).jobs.iter().rev().cloned().collect()
    }

    /// Returns the job with that id.
    pub(super) fn get(&self, id: &str) -> Option<Job> {
        self.refresh();
        let table = locked(&self.0.table);
        table.jobs.iter().find(|job| job.id == id).cloned()
    }

    /// Adds a job, and begins it.
    ///
    /// # Errors
    /// If one like it has not ended, or too many have not.
    pub(super) fn add(&self, job: Job) -> Result<Job, JobRefusal> {
        self.refresh();
        let (id, source) = (job.id.clone(), job.source.clone());
        {
            let mut table = locked(&self.0.table);
            let mut unfinished = table.jobs.iter().filter(|job| !job.state.is_over());
            if let Some(same) = unfinished.clone().find(|other| other.is_same_as(&job)) {
                return Err(JobRefusal::Same(same.id.clone()));
            }
            if unfinished.nth(UNFINISHED_MAX - 1).is_some() {
                return Err(JobRefusal::TooMany);
            }
            job.log("started");
            table.jobs.push(job.clone());
            while table.jobs.len() > REMEMBERED_MAX
                && let Some(oldest) = table.jobs.iter().position(|job| job.state.is_over())
            {
                table.jobs.remove(oldest);
            }
        }
        self.save(true);
        self.take_over();
        self.begin(&source);
        Ok(self.get(&id).unwrap_or(job))
    }

    /// Cancels a job: no further step begins. Returns the job, and whether it had not ended.
    pub(super) fn cancel(&self, id: &str, by: &str) -> Option<(Job, bool)> {
        self.refresh();
        let cancelled = {
            let mut table = locked(&self.0.table);
            let job = table.jobs.iter_mut().find(|job| job.id == id)?;
            let is_live = !job.state.is_over();
            if is_live {
                job.cancelled_by = Some(by.to_owned());
                job.end(JobState::Cancelled);
                job.log("cancelled");
            }
            (job.clone(), is_live)
        };
        self.0.news.notify_all();
        self.save(true);
        self.take_over();
        Some(cancelled)
    }

    /// Begins no further step, and waits a moment for those in progress. The jobs stay unfinished.
    pub(super) fn close(&self) {
        let mut table = locked(&self.0.table);
        table.is_closed = true;
        self.0.news.notify_all();
        let ended = |table: &mut Table| !table.threads.is_empty();
        drop(
            self.0
                .news
                .wait_timeout_while(table, LAST_STEPS_WITHIN, ended),
        );
    }

    /// Starts the thread of a source, if it has none.
    fn begin(&self, source: &str) {
        if !locked(&self.0.table).threads.insert(source.to_owned()) {
            return;
        }
        let (jobs, name) = (self.clone(), source.to_owned());
        let thread = thread::Builder::new().name("jobs".to_owned());
        if let Err(error) = thread.spawn(move || jobs.work(&name)) {
            tracing::error!(source, %error, "jobs are not begun: no thread; a later job or a restart begins them");
            locked(&self.0.table).threads.remove(source);
        }
    }

    /// Does the jobs of a source until none is left.
    fn work(&self, source: &str) {
        while let Some(job) = self.next(source) {
            // One that panics must not hold up those after it, nor look as if it went on.
            if catch_unwind(AssertUnwindSafe(|| self.carry_out(&job))).is_err() {
                self.fail(&job.id, "it has panicked: see the log");
            }
        }
        self.0.news.notify_all();
    }

    fn fail(&self, id: &str, error: &str) {
        self.update(id, |job| {
            job.fail_with(error);
            if !job.state.is_over() {
                job.end(JobState::Failed);
                job.log("failed");
            }
        });
    }

    /// Returns the next job of a source; if there is none, its thread ends.
    fn next(&self, source: &str) -> Option<Job> {
        let stops = self.stops();
        let mut table = locked(&self.0.table);
        let mut jobs = table.jobs.iter();
        let next = jobs.find(|job| job.source == source && !job.state.is_over());
        let next = next.filter(|_| !stops && table.may_go_on()).cloned();
        if next.is_none() {
            table.threads.remove(source);
        }
        next
    }

    /// Does a job until it has ended, or the daemon stops.
    fn carry_out(&self, job: &Job) {
        let mut failures = 0;
        while self.goes_on(&job.id) {
            // Dead letters that stay are met again.
            self.update(&job.id, |job| {
                (job.held, job.failed) = (0, 0);
                if job.state == JobState::Queued {
                    job.state = JobState::Running;
                }
            });
            let (fault, done) = match self.pass(job, &mut failures) {
                Ok(()) => return self.complete(&job.id),
                Err(Halted { done, error }) => (error, done),
            };
            failures += 1;
            self.note_fault(&job.id, &fault, done, failures);
            self.wait(&job.id, AWAY.wait(failures, fastrand::f64()));
        }
    }

    /// Passes through the dead letters of a job's source.
    fn pass(&self, job: &Job, failures: &mut u32) -> Result<(), Halted> {
        let config = self.0.overview.config();
        let source = &job.source;
        let opened = match config.sources.get(source) {
            Some(settings) => (self.0.connect)(source, settings, &config.pools),
            None => Err(SourceFault::unusable("the daemon has no such source").of(source)),
        };
        let mut client = opened.map_err(|error| Halted {
            done: 0,
            error: Box::new(error),
        })?;
        let mut pacer = Pacer::new(job.rate, Instant::now());
        let mut is_first = true;
        client.dead_change(&job.filter(), job.change.of_source(), |step| {
            if !std::mem::replace(&mut is_first, false) {
                *failures = 0;
                self.update(&job.id, |job| {
                    job.add(&step);
                    if job.state == JobState::Waiting {
                        job.state = JobState::Running;
                    }
                });
            }
            let wait = pacer.pause(step.changed + step.failed, Instant::now());
            self.wait(&job.id, wait).then(|| pacer.step_max())
        })
    }

    fn note_fault(&self, id: &str, fault: &SourceFault, done: usize, failures: u32) {
        let is_hopeless = matches!(
            fault.kind(),
            FaultKind::Unsupported | FaultKind::MissingFeature
        );
        if failures == 1 && !is_hopeless {
            tracing::warn!(job = id, error = %fault, "job waits for its source and tries again");
        }
        self.update(id, |job| {
            job.add(&Step::of(done));
            job.fail_with(&fault.to_string());
            if !job.state.is_over() {
                job.state = JobState::Waiting;
            }
        });
        if is_hopeless {
            self.fail(id, &fault.to_string());
        }
    }

    /// Ends a job whose source has been passed through, unless it was broken off.
    fn complete(&self, id: &str) {
        if self.goes_on(id) {
            self.update(id, |job| {
                if !job.state.is_over() {
                    job.end(JobState::Completed);
                    job.log("completed");
                }
            });
        }
    }

    /// Changes a job, and writes the file if that changes anything.
    fn update(&self, id: &str, change: impl FnOnce(&mut Job)) {
        let is_changed = {
            let mut table = locked(&self.0.table);
            let Some(job) = table.jobs.iter_mut().find(|job| job.id == id) else {
                return;
            };
            let before = job.clone();
            change(job);
            *job != before
        };
        if is_changed {
            self.save(false);
        }
    }

    /// Writes the file, unless another daemon has and this one does not take the jobs over. If that fails, the jobs do
    /// not outlast the daemon.
    fn save(&self, takes_over: bool) {
        let mut file = locked(&self.0.file);
        // Another daemon writes before this one looks, or after it has written.
        let _lock = file.file.lock();
        if !takes_over && (file.is_foreign() || locked(&self.0.table).is_foreign) {
            return self.give_up();
        }
        let jobs = locked(&self.0.table).jobs.clone();
        let written: io::Result<()> = file.file.write((!jobs.is_empty()).then_some(&jobs));
        file.stamp = file.file.stamp();
        let mut table = locked(&self.0.table);
        let was_unwritten = std::mem::replace(&mut table.is_unwritten, written.is_err());
        if let (Err(error), false) = (&written, was_unwritten) {
            tracing::warn!(%error, "writing the file of jobs failed: jobs do not outlast a restart");
        }
        for job in table.jobs.iter_mut().filter(|job| !job.state.is_over()) {
            job.outlasts_restart = written.is_ok();
        }
    }

    /// Waits, unless the job ends or the daemon stops before. Returns whether it goes on.
    fn wait(&self, id: &str, pause: Duration) -> bool {
        let until = Instant::now() + pause;
        while self.goes_on(id) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            let table = locked(&self.0.table);
            if table.may_go_on() {
                drop(self.0.news.wait_timeout(table, left.min(LOOK_EVERY)));
            }
        }
        false
    }

    fn goes_on(&self, id: &str) -> bool {
        let stops = self.stops();
        let table = locked(&self.0.table);
        let mut jobs = table.jobs.iter();
        let is_live = jobs.any(|job| job.id == id && !job.state.is_over());
        is_live && !stops && table.may_go_on()
    }

    fn stops(&self) -> bool {
        self.0.overview.state() == DaemonState::Stopping
    }
}

#[cfg(test)]
mod tests;
