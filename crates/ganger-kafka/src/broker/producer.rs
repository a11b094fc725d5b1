//! The producer: a publication is kept until the broker has confirmed it, whatever that takes. It never
//! waits: records for which librdkafka has no room stay here. The purpose of each publication is
//! returned with its confirmation, for the task to handle.
//!
//! librdkafka gathers records into batches, and a broker that rejects one of a batch, or finds the
//! batch too large, rejects all. So a record rejected for its content is sent once more by itself, by a
//! producer of its own, before the rejection counts. And internal copies are compressed, which records
//! for external consumers are not unless the user wants it: that takes producers of their own, too.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rdkafka::error::RDKafkaErrorCode as Code;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::error::{KafkaError, is_its_fault};
use super::line::Line;
use super::load::Load;
use super::record::Outbound;
use super::settings;
use super::settings::Way;
use ganger_config::model::KafkaSource;
use ganger_core::backoff::AWAY;

/// Time without a confirmation after which something is wrong, even without an error. Longer than a
/// newly created topic may be unknown.
const SILENCE_MAX: Duration = Duration::from_secs(15);

/// Outcome of a publication.
#[derive(Debug)]
pub(crate) struct Report<P> {
    /// Purpose of the publication.
    pub(crate) purpose: P,
    /// Error with which it was given up.
    pub(crate) result: Result<(), Code>,
}

/// Action after a failed publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    /// Sends it again: the error may soon pass.
    Again,
    /// Sends it again although the broker rejects it, until the broker's configuration changes.
    Insist,
    /// Gives it up.
    GiveUp,
}

/// Events of the publications.
#[derive(Debug)]
pub(crate) struct Reports<P> {
    /// Publications confirmed or given up.
    pub(crate) ended: Vec<Report<P>>,
    /// Rejections of publications that are retried regardless, with their topics.
    pub(crate) refused: Vec<(Code, String)>,
    /// Other errors.
    pub(crate) errors: Vec<(Code, String)>,
}

/// An unconfirmed publication.
#[derive(Debug)]
struct Job<P> {
    record: Outbound,
    purpose: P,
    since: Instant,
    failures: u32,
    /// True if it was rejected and is retried regardless.
    is_refused: bool,
    /// True if it goes in a batch of its own.
    alone: bool,
}

impl<P> Job<P> {
    fn way(&self) -> Way {
        Way {
            compressed: self.record.compressed,
            alone: self.alone,
        }
    }
}

/// A producer with its unconfirmed publications.
pub(crate) struct Producer<P> {
    source: KafkaSource,
    pool: String,
    bell: Arc<Notify>,
    /// Clients, each created on first use.
    lines: BTreeMap<Way, Line>,
    /// Unconfirmed publications, the oldest first.
    jobs: BTreeMap<usize, Job<P>>,
    /// Publications that are not rejected.
    open: BTreeSet<usize>,
    /// Failed publications and the times of their retries.
    paused: BTreeSet<(Instant, usize)>,
    last_id: usize,
    /// Latest confirmed publication.
    last_taken: usize,
    /// Size of all publications in bytes.
    bytes: usize,
    /// Load of those that are not rejected, and of those among them for external topics.
    load: Load,
    strangers: Load,
}

impl<P> fmt::Debug for Producer<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let jobs = self.jobs.len();
        f.debug_struct("Producer")
            .field("jobs", &jobs)
            .finish_non_exhaustive()
    }
}

impl<P> Producer<P> {
    /// Creates a producer. `bell` fires when there are reports.
    pub(crate) fn new(
        source: &KafkaSource,
        pool: &str,
        bell: Arc<Notify>,
    ) -> Result<Self, KafkaError> {
        let usual = Way::default();
        // Opened at once, so that its errors are reported at the start.
        let line = open(source, pool, usual, &bell)?;
        Ok(Self {
            source: source.clone(),
            pool: pool.to_owned(),
            bell,
            lines: BTreeMap::from([(usual, line)]),
            jobs: BTreeMap::new(),
            open: BTreeSet::new(),
            paused: BTreeSet::new(),
            // Zero would be a null pointer to librdkafka.
            last_id: 0,
            last_taken: 0,
            bytes: 0,
            load: Load::default(),
            strangers: Load::default(),
        })
    }

    /// Returns whether no publication is unconfirmed.
    pub(crate) fn is_idle(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Number of unconfirmed publications.
    pub(crate) fn pending(&self) -> usize {
        self.jobs.len()
    }

    /// Their size in bytes.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.bytes
    }

    /// Number of publications that were rejected and are retried regardless.
    pub(crate) fn refused(&self) -> usize {
        self.jobs.len() - self.open.len()
    }

    /// Returns whether so much is unconfirmed that nothing more should be begun; rejected publications
    /// that are retried regardless do not count.
    pub(crate) fn is_full(&self) -> bool {
        self.load.is_full()
    }

    /// If publications for external topics fill it, gives up the oldest one that `may` be given up and
    /// was rejected, or has long been unconfirmed although later ones were confirmed.
    pub(crate) fn make_room(&mut self, now: Instant, may: impl Fn(&P) -> bool) -> Option<P> {
        if !self.strangers.is_full() {
            return None;
        }
        let is_stuck = |(id, job): &(usize, &Job<P>)| {
            let is_overtaken = *id < self.last_taken && now >= job.since + SILENCE_MAX;
            !job.record.compressed && (job.failures > 0 || is_overtaken) && may(&job.purpose)
        };
        let open = self
            .open
            .iter()
            .filter_map(|id| Some((*id, self.jobs.get(id)?)));
        let (id, _) = open.into_iter().find(is_stuck)?;
        self.end(id, Err(Code::MessageTimedOut))
            .map(|report| report.purpose)
    }

    /// Returns the publications that were rejected, or are undeliverable after so long.
    pub(crate) fn in_vain(
        &self,
        now: Instant,
        is_in_vain: impl Fn(&P, Duration) -> bool,
    ) -> impl Iterator<Item = &P> {
        let age = move |job: &Job<P>| now.saturating_duration_since(job.since);
        let jobs = self.jobs.values();
        jobs.filter(move |job| job.is_refused || is_in_vain(&job.purpose, age(job)))
            .map(|job| &job.purpose)
    }

    /// Returns the time at which the next publication reaches this age.
    pub(crate) fn next_of_age(&self, now: Instant, age: Duration) -> Option<Instant> {
        let mut times = self.jobs.values().map(|job| job.since + age);
        times.find(|time| *time > now)
    }

    /// Returns the purpose of each unconfirmed publication.
    pub(crate) fn purposes(&self) -> impl Iterator<Item = &P> {
        self.jobs.values().map(|job| &job.purpose)
    }

    /// Returns the time at which something is to be sent again.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let paused = self.paused.first().map(|(due, _)| *due);
        let renewal = self
            .lines
            .keys()
            .filter_map(|way| self.renew_at(*way))
            .min();
        // Once that time has passed, nothing more falls due.
        let silence = self.oldest().map(|job| job.since + SILENCE_MAX);
        let silence = silence.filter(|silence| *silence > Instant::now());
        [paused, renewal, silence].into_iter().flatten().min()
    }

    /// Returns the time at which a client is to be recreated. While nothing is sent by it, it need not
    /// be sound.
    fn renew_at(&self, way: Way) -> Option<Instant> {
        let line = self.lines.get(&way).filter(|line| line.is_unsound())?;
        let oldest = self.jobs.values().find(|job| job.way() == way)?;
        line.renew_at(oldest.since)
    }

    /// Returns the oldest publication that is not rejected.
    fn oldest(&self) -> Option<&Job<P>> {
        self.jobs.get(self.open.first()?)
    }

    /// Returns the topic that has not confirmed something for suspiciously long.
    pub(crate) fn unheard(&self, now: Instant) -> Option<&str> {
        let oldest = self.oldest()?;
        (now >= oldest.since + SILENCE_MAX).then_some(oldest.record.topic.as_str())
    }

    /// Publishes a record.
    pub(crate) fn send(&mut self, record: Outbound, purpose: P) {
        self.last_id = self.last_id.wrapping_add(1).max(1);
        let id = self.last_id;
        let bytes = record.bytes();
        self.bytes += bytes;
        self.load.add(bytes);
        if !record.compressed {
            self.strangers.add(bytes);
        }
        let job = Job {
            record,
            purpose,
            since: Instant::now(),
            failures: 0,
            is_refused: false,
            alone: false,
        };
        self.jobs.insert(id, job);
        self.open.insert(id);
        self.queue(id);
        self.push();
    }

    /// Queues a publication with its client.
    fn queue(&mut self, id: usize) {
        let Some(way) = self.jobs.get(&id).map(Job::way) else {
            return;
        };
        if !self.lines.contains_key(&way) {
            match self.line(way) {
                Ok(line) => drop(self.lines.insert(way, line)),
                Err(error) => {
                    tracing::error!(pool = self.pool, %error, "no producer could be made");
                    return self.pause(id, Instant::now());
                }
            }
        }
        if let Some(line) = self.lines.get_mut(&way) {
            line.queue(id);
        }
    }

    fn line(&self, way: Way) -> Result<Line, KafkaError> {
        open(&self.source, &self.pool, way, &self.bell)
    }

    /// Hands over to librdkafka as much as it has room for.
    fn push(&mut self) {
        let jobs = &self.jobs;
        for line in self.lines.values_mut() {
            line.push(|id| jobs.get(&id).map(|job| &job.record));
        }
    }

    /// Returns the events since the last call; `then` decides about a failed publication, by its age.
    pub(crate) fn reports(
        &mut self,
        now: Instant,
        then: impl Fn(&P, Code, Duration) -> Then,
    ) -> Reports<P> {
        let mut reports = Reports {
            ended: Vec::new(),
            refused: Vec::new(),
            errors: Vec::new(),
        };
        let ways: Vec<Way> = self.lines.keys().copied().collect();
        for way in ways {
            self.read(way, now, &then, &mut reports);
        }
        self.wake(now);
        self.push();
        reports
    }

    /// Handles the events of one client.
    fn read(
        &mut self,
        way: Way,
        now: Instant,
        then: &impl Fn(&P, Code, Duration) -> Then,
        all: &mut Reports<P>,
    ) {
        let Some(notes) = self.lines.get(&way).map(Line::notes) else {
            return;
        };
        let is_away = notes
            .errors
            .iter()
            .any(|error| error.0 == Code::AllBrokersDown);
        let mut reports = Reports {
            ended: Vec::with_capacity(notes.reports.len()),
            refused: Vec::new(),
            errors: notes.errors,
        };
        for (id, result) in notes.reports {
            self.judge(id, result, now, then, &mut reports);
        }
        let Some(line) = self.lines.get_mut(&way) else {
            return;
        };
        if reports.ended.iter().any(|report| report.result.is_ok()) {
            line.is_well();
        }
        if is_away {
            line.is_away(now);
        }
        // The code of a fatal error need not show that it is one.
        let asked = (!reports.errors.is_empty()).then(|| line.fatal());
        if let Some(fatal) = asked.flatten() {
            // All other errors follow from it.
            reports.refused.clear();
            reports.errors = vec![fatal];
            line.plan_renewal(now);
        }
        if self.renew_at(way).is_some_and(|when| when <= now) {
            self.renew(way, now);
        }
        all.ended.extend(reports.ended);
        all.refused.extend(reports.refused);
        all.errors.extend(reports.errors);
    }

    fn judge(
        &mut self,
        id: usize,
        result: Result<(), Code>,
        now: Instant,
        then: &impl Fn(&P, Code, Duration) -> Then,
        reports: &mut Reports<P>,
    ) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let Err(code) = result else {
            return reports.ended.extend(self.end(id, result));
        };
        // The rest of its batch may be to blame.
        if is_its_fault(code) && !job.alone {
            job.alone = true;
            return self.queue(id);
        }
        match then(&job.purpose, code, now.duration_since(job.since)) {
            Then::GiveUp => reports.ended.extend(self.end(id, result)),
            Then::Again => {
                reports.errors.push((code, job.record.topic.clone()));
                self.pause(id, now);
            }
            Then::Insist => {
                job.is_refused = true;
                reports.refused.push((code, job.record.topic.clone()));
                self.close(id);
                self.pause(id, now);
            }
        }
    }

    fn end(&mut self, id: usize, result: Result<(), Code>) -> Option<Report<P>> {
        self.close(id);
        let job = self.jobs.remove(&id)?;
        self.bytes -= job.record.bytes();
        if result.is_ok() {
            self.last_taken = self.last_taken.max(id);
        }
        Some(Report {
            purpose: job.purpose,
            result,
        })
    }

    /// Removes a publication from the open ones: it is rejected, or ends.
    fn close(&mut self, id: usize) {
        let record = self.jobs.get(&id).map(|job| &job.record);
        if let Some(record) = record.filter(|_| self.open.remove(&id)) {
            self.load.take(record.bytes());
            if !record.compressed {
                self.strangers.take(record.bytes());
            }
        }
    }

    fn pause(&mut self, id: usize, now: Instant) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.failures = job.failures.saturating_add(1);
            let wait = AWAY.wait(job.failures, fastrand::f64());
            self.paused.insert((now + wait, id));
        }
    }

    fn wake(&mut self, now: Instant) {
        while let Some(&(due, id)) = self.paused.first().filter(|(due, _)| *due <= now) {
            self.paused.remove(&(due, id));
            self.queue(id);
        }
    }

    /// Recreates a client. An idempotent producer that has lost track of its sequence is unusable, as
    /// is one that finds no broker. Everything unconfirmed goes through a new one, and so may be
    /// published twice.
    fn renew(&mut self, way: Way, now: Instant) {
        let its = self.jobs.iter().filter(|(_, job)| job.way() == way);
        let ids: Vec<usize> = its.map(|(id, _)| *id).collect();
        tracing::warn!(
            pool = self.pool,
            unconfirmed = ids.len(),
            "the producer is of no use any more and is made anew: what is not confirmed may come twice"
        );
        let new = match self.line(way) {
            Ok(mut new) => {
                self.paused.retain(|(_, id)| ids.binary_search(id).is_err());
                ids.iter().for_each(|id| new.queue(*id));
                Some(new)
            }
            Err(error) => {
                tracing::error!(pool = self.pool, %error, "no new producer could be made");
                ids.iter().for_each(|id| self.pause(*id, now));
                None
            }
        };
        if let Some(line) = self.lines.get_mut(&way) {
            line.renewed(new);
        }
    }
}

/// Opens a client.
fn open(
    source: &KafkaSource,
    pool: &str,
    way: Way,
    bell: &Arc<Notify>,
) -> Result<Line, KafkaError> {
    let properties = settings::producer(source, pool, way);
    Line::open(&properties, pool, settings::out_of_reach_max(source), bell)
}

#[cfg(test)]
mod tests;
