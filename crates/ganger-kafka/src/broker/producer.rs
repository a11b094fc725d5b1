//! The producer: what is published is kept until the broker has confirmed it, whatever that takes.
//! It never waits: what librdkafka has no room for stays here. What a confirmation is for is the
//! task's business; it comes back with it.
//!
//! librdkafka gathers records into batches, and a broker that does not like one of a batch, or finds
//! the batch too large, refuses all. So what is refused for what it is goes once more by itself, by a
//! producer of its own, before anyone takes that for the last word. And our own copies are compressed,
//! which what strangers read is not unless the user wants it: that takes producers of their own, too.

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

/// With something not confirmed for so long, something is wrong, though nobody says what.
/// Longer than a topic that is just being made may be unknown.
const SILENCE_MAX: Duration = Duration::from_secs(15);

/// How a publication ended.
#[derive(Debug)]
pub(crate) struct Report<P> {
    /// What it was for.
    pub(crate) purpose: P,
    /// Why it was given up.
    pub(crate) result: Result<(), Code>,
}

/// What becomes of a publication that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    /// It is sent again: that may soon pass.
    Again,
    /// It is sent again although the broker refuses it, until someone changes the broker.
    Insist,
    /// It ends.
    GiveUp,
}

/// What has happened to what was published.
#[derive(Debug)]
pub(crate) struct Reports<P> {
    /// What has been confirmed or given up.
    pub(crate) ended: Vec<Report<P>>,
    /// Why what is insisted on was refused, and by which topic.
    pub(crate) refused: Vec<(Code, String)>,
    /// What else is wrong.
    pub(crate) errors: Vec<(Code, String)>,
}

/// What is published and not confirmed.
#[derive(Debug)]
struct Job<P> {
    record: Outbound,
    purpose: P,
    since: Instant,
    failures: u32,
    /// It was refused, and is insisted on.
    is_refused: bool,
    /// It goes in a batch of its own.
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

/// A producer, with what it has not had confirmed yet.
pub(crate) struct Producer<P> {
    source: KafkaSource,
    pool: String,
    bell: Arc<Notify>,
    /// Each made when it is needed first.
    lines: BTreeMap<Way, Line>,
    /// The oldest first.
    jobs: BTreeMap<usize, Job<P>>,
    /// Those that are not refused.
    open: BTreeSet<usize>,
    /// Those that failed, and when they are sent again.
    paused: BTreeSet<(Instant, usize)>,
    last_id: usize,
    /// The latest that was confirmed.
    last_taken: usize,
    /// What all jobs take.
    bytes: usize,
    /// What those take that are not refused, and of those what is for strangers.
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
    /// Makes one. `bell` rings when there are reports.
    pub(crate) fn new(
        source: &KafkaSource,
        pool: &str,
        bell: Arc<Notify>,
    ) -> Result<Self, KafkaError> {
        let usual = Way::default();
        // At once, for its faults to be told at the start.
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

    /// Nothing is waiting for its confirmation.
    pub(crate) fn is_idle(&self) -> bool {
        self.jobs.is_empty()
    }

    /// How many publications are not confirmed.
    pub(crate) fn pending(&self) -> usize {
        self.jobs.len()
    }

    /// How many bytes those take.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.bytes
    }

    /// How many of those were refused, and are insisted on.
    pub(crate) fn refused(&self) -> usize {
        self.jobs.len() - self.open.len()
    }

    /// Whether so much is not confirmed that nothing more should be begun; what was refused, and is
    /// insisted on, does not count.
    pub(crate) fn is_full(&self) -> bool {
        self.load.is_full()
    }

    /// Where what strangers do not take fills it: ends the oldest of it that `may` be given up, if it
    /// was refused, or if for long nothing was heard of it though what came later is confirmed.
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

    /// What was refused, or is in vain after so long.
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

    /// When the next will have been under way for so long.
    pub(crate) fn next_of_age(&self, now: Instant, age: Duration) -> Option<Instant> {
        let mut times = self.jobs.values().map(|job| job.since + age);
        times.find(|time| *time > now)
    }

    /// What each publication is for that is not confirmed.
    pub(crate) fn purposes(&self) -> impl Iterator<Item = &P> {
        self.jobs.values().map(|job| &job.purpose)
    }

    /// When something is to be sent again.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let paused = self.paused.first().map(|(due, _)| *due);
        let renewal = self
            .lines
            .keys()
            .filter_map(|way| self.renew_at(*way))
            .min();
        // Once it is over, nothing more falls due.
        let silence = self.oldest().map(|job| job.since + SILENCE_MAX);
        let silence = silence.filter(|silence| *silence > Instant::now());
        [paused, renewal, silence].into_iter().flatten().min()
    }

    /// When a line is to be made anew. While nothing goes that way it need not be sound.
    fn renew_at(&self, way: Way) -> Option<Instant> {
        let line = self.lines.get(&way).filter(|line| line.is_unsound())?;
        let oldest = self.jobs.values().find(|job| job.way() == way)?;
        line.renew_at(oldest.since)
    }

    /// The oldest that is not refused.
    fn oldest(&self) -> Option<&Job<P>> {
        self.jobs.get(self.open.first()?)
    }

    /// The topic that has not confirmed something for suspiciously long.
    pub(crate) fn unheard(&self, now: Instant) -> Option<&str> {
        let oldest = self.oldest()?;
        (now >= oldest.since + SILENCE_MAX).then_some(oldest.record.topic.as_str())
    }

    /// Publishes.
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

    /// Puts one in line.
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

    /// Hands on to librdkafka what it has room for.
    fn push(&mut self) {
        let jobs = &self.jobs;
        for line in self.lines.values_mut() {
            line.push(|id| jobs.get(&id).map(|job| &job.record));
        }
    }

    /// What has happened since the last call; `then` says what becomes of what failed, and has been
    /// under way for so long.
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

    /// Takes in what one line has to say.
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
        // The code of the error need not say that it is one of those.
        let asked = (!reports.errors.is_empty()).then(|| line.fatal());
        if let Some(fatal) = asked.flatten() {
            // All else fails because of it.
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
        // It may be for the company it was in.
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

    /// One that was open is refused, or ends.
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

    /// An idempotent producer that has lost track of its sequence is of no use any more, nor one that
    /// finds no broker. All that is not confirmed goes through a new one, and so may come twice.
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

/// Makes a line.
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
