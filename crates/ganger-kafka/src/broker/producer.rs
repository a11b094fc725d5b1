//! The producer: a publication is kept until the broker has confirmed it, however long that takes. It never
//! waits: records for which librdkafka has no room stay here. The purpose of each publication is returned
//! with its confirmation, for the task to handle.
//!
//! librdkafka gathers records into batches, and a broker that rejects one record of a batch, or finds the
//! batch too large, rejects all. So a record rejected for its content is sent once more in a batch of its
//! own, by a separate producer, before the rejection counts. And internal copies are compressed, which
//! records for external consumers are not unless the user wants it: that takes separate producers, too.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rdkafka::error::RDKafkaErrorCode as Code;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::error::{KafkaError, is_its_fault};
use super::load::Load;
use super::producer_client::ProducerClient;
use super::record::Outbound;
use super::settings;
use super::settings::ProducerProfile;
use ganger_config::model::KafkaSource;
use ganger_core::backoff::AWAY;

/// Time without a confirmation after which a problem is reported, even without an error. Longer than a newly
/// created topic may be unknown.
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
pub(crate) enum FailureAction {
    /// Sends it again: the error may soon pass.
    Retry,
    /// Sends it again although the broker rejects it, until the broker's configuration changes.
    RetryRejected,
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
    fn profile(&self) -> ProducerProfile {
        ProducerProfile {
            compressed: self.record.compressed,
            alone: self.alone,
        }
    }
}

/// A producer with its unconfirmed publications.
pub(crate) struct Producer<P> {
    source: KafkaSource,
    pool: String,
    wakeup: Arc<Notify>,
    /// Clients, each created on first use.
    clients: BTreeMap<ProducerProfile, ProducerClient>,
    /// Unconfirmed publications, the oldest first.
    jobs: BTreeMap<usize, Job<P>>,
    /// Publications that are not rejected.
    open: BTreeSet<usize>,
    /// Failed publications and the times of their retries.
    paused: BTreeSet<(Instant, usize)>,
    last_id: usize,
    /// Latest confirmed publication.
    last_confirmed: usize,
    /// Size of all publications in bytes.
    bytes: usize,
    /// Load of those that are not rejected, and of those among them for external topics.
    load: Load,
    external_load: Load,
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
    /// Creates a producer. `wakeup` fires when there are reports.
    pub(crate) fn new(
        source: &KafkaSource,
        pool: &str,
        wakeup: Arc<Notify>,
    ) -> Result<Self, KafkaError> {
        let usual = ProducerProfile::default();
        // Opened at once, so that its errors are reported at the start.
        let client = open(source, pool, usual, &wakeup)?;
        Ok(Self {
            source: source.clone(),
            pool: pool.to_owned(),
            wakeup,
            clients: BTreeMap::from([(usual, client)]),
            jobs: BTreeMap::new(),
            open: BTreeSet::new(),
            paused: BTreeSet::new(),
            // Zero would be a null pointer to librdkafka.
            last_id: 0,
            last_confirmed: 0,
            bytes: 0,
            load: Load::default(),
            external_load: Load::default(),
        })
    }

    /// Returns whether no publication is unconfirmed.
    pub(crate) fn is_idle(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Returns the number of unconfirmed publications.
    pub(crate) fn pending(&self) -> usize {
        self.jobs.len()
    }

    /// Returns their size in bytes.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the number of publications that were rejected and are retried regardless.
    pub(crate) fn refused(&self) -> usize {
        self.jobs.len() - self.open.len()
    }

    /// Returns whether the limit of unconfirmed publications is reached, so that no more work should be
    /// begun; rejected publications that are retried regardless do not count.
    pub(crate) fn is_full(&self) -> bool {
        self.load.is_full()
    }

    /// Gives up one publication if those for external topics fill the producer: the oldest one that `may` be
    /// given up and was rejected, or has long been unconfirmed although later ones were confirmed.
    pub(crate) fn make_room(&mut self, now: Instant, may: impl Fn(&P) -> bool) -> Option<P> {
        if !self.external_load.is_full() {
            return None;
        }
        let is_stuck = |(id, job): &(usize, &Job<P>)| {
            let is_overtaken = *id < self.last_confirmed && now >= job.since + SILENCE_MAX;
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

    /// Returns the publications that were rejected, or are undeliverable at this age.
    pub(crate) fn undeliverable(
        &self,
        now: Instant,
        is_undeliverable: impl Fn(&P, Duration) -> bool,
    ) -> impl Iterator<Item = &P> {
        let age = move |job: &Job<P>| now.saturating_duration_since(job.since);
        let jobs = self.jobs.values();
        jobs.filter(move |job| job.is_refused || is_undeliverable(&job.purpose, age(job)))
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

    /// Returns the time at which a publication is to be sent again.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let paused = self.paused.first().map(|(due, _)| *due);
        let renewal = self
            .clients
            .keys()
            .filter_map(|profile| self.renew_at(*profile))
            .min();
        // Once that time has passed, nothing more falls due.
        let silence = self.oldest().map(|job| job.since + SILENCE_MAX);
        let silence = silence.filter(|silence| *silence > Instant::now());
        [paused, renewal, silence].into_iter().flatten().min()
    }

    /// Returns the time at which a client is to be recreated. While nothing is sent by it, it may be
    /// unusable.
    fn renew_at(&self, profile: ProducerProfile) -> Option<Instant> {
        let client = self
            .clients
            .get(&profile)
            .filter(|client| client.needs_renewal())?;
        let oldest = self.jobs.values().find(|job| job.profile() == profile)?;
        client.renew_at(oldest.since)
    }

    /// Returns the oldest publication that is not rejected.
    fn oldest(&self) -> Option<&Job<P>> {
        self.jobs.get(self.open.first()?)
    }

    /// Returns the topic that has not confirmed a record for suspiciously long.
    pub(crate) fn silent_topic(&self, now: Instant) -> Option<&str> {
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
            self.external_load.add(bytes);
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
        let Some(profile) = self.jobs.get(&id).map(Job::profile) else {
            return;
        };
        if !self.clients.contains_key(&profile) {
            match self.client(profile) {
                Ok(client) => drop(self.clients.insert(profile, client)),
                Err(error) => {
                    tracing::error!(pool = self.pool, %error, "no producer could be created");
                    return self.pause(id, Instant::now());
                }
            }
        }
        if let Some(client) = self.clients.get_mut(&profile) {
            client.queue(id);
        }
    }

    fn client(&self, profile: ProducerProfile) -> Result<ProducerClient, KafkaError> {
        open(&self.source, &self.pool, profile, &self.wakeup)
    }

    /// Passes as many records to librdkafka as it has room for.
    fn push(&mut self) {
        let jobs = &self.jobs;
        for client in self.clients.values_mut() {
            client.push(|id| jobs.get(&id).map(|job| &job.record));
        }
    }

    /// Returns the events since the last call; `then` decides about a failed publication, by its age.
    pub(crate) fn reports(
        &mut self,
        now: Instant,
        then: impl Fn(&P, Code, Duration) -> FailureAction,
    ) -> Reports<P> {
        let mut reports = Reports {
            ended: Vec::new(),
            refused: Vec::new(),
            errors: Vec::new(),
        };
        let profiles: Vec<ProducerProfile> = self.clients.keys().copied().collect();
        for profile in profiles {
            self.read(profile, now, &then, &mut reports);
        }
        self.wake(now);
        self.push();
        reports
    }

    /// Handles the events of one client.
    fn read(
        &mut self,
        profile: ProducerProfile,
        now: Instant,
        then: &impl Fn(&P, Code, Duration) -> FailureAction,
        all: &mut Reports<P>,
    ) {
        let Some(notes) = self.clients.get(&profile).map(ProducerClient::notes) else {
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
        let Some(client) = self.clients.get_mut(&profile) else {
            return;
        };
        if reports.ended.iter().any(|report| report.result.is_ok()) {
            client.record_success();
        }
        if is_away {
            client.record_unreachable(now);
        }
        // The code of a fatal error need not show that the error is fatal.
        let asked = (!reports.errors.is_empty()).then(|| client.fatal());
        if let Some(fatal) = asked.flatten() {
            // All other errors are consequences of it.
            reports.refused.clear();
            reports.errors = vec![fatal];
            client.plan_renewal(now);
        }
        if self.renew_at(profile).is_some_and(|when| when <= now) {
            self.renew(profile, now);
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
        then: &impl Fn(&P, Code, Duration) -> FailureAction,
        reports: &mut Reports<P>,
    ) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let Err(code) = result else {
            return reports.ended.extend(self.end(id, result));
        };
        // The rest of its batch may be the cause.
        if is_its_fault(code) && !job.alone {
            job.alone = true;
            return self.queue(id);
        }
        match then(&job.purpose, code, now.duration_since(job.since)) {
            FailureAction::GiveUp => reports.ended.extend(self.end(id, result)),
            FailureAction::Retry => {
                reports.errors.push((code, job.record.topic.clone()));
                self.pause(id, now);
            }
            FailureAction::RetryRejected => {
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
            self.last_confirmed = self.last_confirmed.max(id);
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
                self.external_load.take(record.bytes());
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

    /// Recreates a client. An idempotent producer that has lost its sequence is unusable, as is one that
    /// reaches no broker. All unconfirmed publications are passed to the new one, and so may be published
    /// twice.
    fn renew(&mut self, profile: ProducerProfile, now: Instant) {
        let its = self.jobs.iter().filter(|(_, job)| job.profile() == profile);
        let ids: Vec<usize> = its.map(|(id, _)| *id).collect();
        tracing::warn!(
            pool = self.pool,
            unconfirmed = ids.len(),
            "producer is unusable and is recreated: unconfirmed records may be sent twice"
        );
        let new = match self.client(profile) {
            Ok(mut new) => {
                self.paused.retain(|(_, id)| ids.binary_search(id).is_err());
                ids.iter().for_each(|id| new.queue(*id));
                Some(new)
            }
            Err(error) => {
                tracing::error!(pool = self.pool, %error, "no new producer could be created");
                ids.iter().for_each(|id| self.pause(*id, now));
                None
            }
        };
        if let Some(client) = self.clients.get_mut(&profile) {
            client.renewed(new);
        }
    }
}

/// Opens a client.
fn open(
    source: &KafkaSource,
    pool: &str,
    profile: ProducerProfile,
    wakeup: &Arc<Notify>,
) -> Result<ProducerClient, KafkaError> {
    let properties = settings::producer(source, pool, profile);
    ProducerClient::open(
        &properties,
        pool,
        settings::out_of_reach_max(source),
        wakeup,
    )
}

#[cfg(test)]
mod tests;
