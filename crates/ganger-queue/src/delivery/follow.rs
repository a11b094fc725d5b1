//! Reports on the messages of occurrences, for a ledger in another database than theirs. A settlement waits a
//! moment for its report to be written: if the daemon is killed, either the ledger knows the end of the
//! message, or the broker still has it.

use std::collections::{HashSet, VecDeque};
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;

use super::outcome::{Exit, Failure, Outcome, Reason};
use super::run::{Run, RunNotes};
use super::settlement::Settlement;
use ganger_config::model::{Database, LedgerConfig, PoolConfig, Record};
use ganger_core::message::Message;

/// Maximum size of the ends that wait to be recorded while the ledger is away.
const ENDS_BYTES_MAX: usize = 32 << 20;

/// Size that an end takes besides its texts.
const END_BYTES: usize = 256;

/// Bytes of a result that suffice for what a ledger keeps of it: 64 KiB, and a character that is cut.
const RESULT_BYTES_MAX: usize = (64 << 10) + 4;

/// Maximum bytes of a message id or correlation id that the ledger keeps.
const ID_BYTES_MAX: usize = 255;

/// Reports on their way from all pools to the one who writes them. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Follower(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    inbox: Mutex<Inbox>,
    added: Notify,
    notes: RunNotes,
    /// Time at which the oldest report that is not written yet was to be written.
    waiting_since: Mutex<Option<Instant>>,
}

#[derive(Debug, Default)]
struct Inbox {
    /// The ledger; none if nobody takes reports.
    ledger: Option<FollowingLedger>,
    reports: Reports,
    /// Occurrences whose messages are cancelled as they are delivered.
    cancelled: HashSet<Arc<str>>,
}

/// A ledger that reports are for.
#[derive(Debug)]
struct FollowingLedger {
    database: Database,
    record: Record,
}

/// Reports that are taken together.
#[derive(Debug, Default)]
pub struct Reports {
    /// Reports on messages of occurrences: at most two for each message in flight.
    pub of_occurrences: Vec<Report>,
    /// Ends of other messages that the ledger records.
    pub ends: RecordedEnds,
}

impl Follower {
    /// Sets the ledger that the reports are for; none if there is none: then no message is followed any more.
    pub fn follow_for(&self, ledger: Option<&LedgerConfig>) {
        if ledger.is_none() {
            // Nobody is behind for a ledger that is left.
            self.set_waiting_since(None);
        }
        self.lock().ledger = ledger.map(|ledger| FollowingLedger {
            database: ledger.table.database.clone(),
            record: ledger.record,
        });
    }

    /// Returns what else is told of runs, on all sources.
    pub fn notes(&self) -> &RunNotes {
        &self.0.notes
    }

    /// Sets the time at which the oldest report that is not written yet was to be written; none if none waits.
    pub fn set_waiting_since(&self, since: Option<Instant>) {
        let waiting = self.0.waiting_since.lock();
        *waiting.unwrap_or_else(PoisonError::into_inner) = since;
    }

    /// Returns the time by which the ledger is behind what has become of messages.
    pub fn behind(&self) -> Duration {
        let waiting = self.0.waiting_since.lock();
        let since = *waiting.unwrap_or_else(PoisonError::into_inner);
        since.map(|since| since.elapsed()).unwrap_or_default()
    }

    /// Waits for reports, and takes all of them. Cancel-safe.
    pub async fn next(&self) -> Reports {
        self.0.added.notified().await;
        self.take()
    }

    /// Takes the reports that there are.
    pub fn take(&self) -> Reports {
        mem::take(&mut self.lock().reports)
    }

    /// Sets the occurrences whose messages are cancelled as they are delivered.
    pub fn cancel_arriving(&self, occurrences: HashSet<Arc<str>>) {
        self.lock().cancelled = occurrences;
    }

    fn add(&self, report: Report) {
        let mut inbox = self.lock();
        // Without a ledger it is dropped, and its message settled.
        if inbox.ledger.is_some() {
            inbox.reports.of_occurrences.push(report);
            drop(inbox);
            self.0.added.notify_one();
        }
    }

    fn add_end(&self, end: RecordedEnd) {
        let mut inbox = self.lock();
        if inbox.ledger.is_some() {
            inbox.reports.ends.push(end);
            drop(inbox);
            self.0.added.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inbox> {
        // The guarded value is never left half changed.
        self.0.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Way on which a source's messages are reported.
#[derive(Debug, Clone)]
pub struct Following {
    follower: Follower,
    /// Database of the source, if it has one. A ledger in it follows its messages by itself.
    own: Option<Database>,
    policy: watch::Receiver<Arc<PoolConfig>>,
}

impl Following {
    /// Makes the way for the source of a pool, which has that database if it has one.
    pub fn new(
        follower: &Follower,
        own: Option<Database>,
        policy: watch::Receiver<Arc<PoolConfig>>,
    ) -> Self {
        let follower = follower.clone();
        Self {
            follower,
            own,
            policy,
        }
    }

    /// Returns what is recorded of a message of no schedule, if something is, by a ledger in the source's own
    /// database.
    pub fn record_here(&self, message: &Message, attempt: u32) -> Option<MessageRecord> {
        self.record(message, attempt, true)
    }

    /// Returns what is recorded of a message by a ledger that is in the source's own database, or elsewhere.
    fn record(&self, message: &Message, attempt: u32, is_here: bool) -> Option<MessageRecord> {
        let record = {
            let inbox = self.follower.lock();
            let ledger = inbox.ledger.as_ref()?;
            let is_own = self.own.as_ref() == Some(&ledger.database);
            (is_own == is_here).then_some(ledger.record)?
        };
        let policy = self.policy.borrow();
        let record = policy.record.unwrap_or(record);
        (record != Record::Scheduled && message.occurrence.is_none()).then(|| {
            let correlation_id = message.correlation_id.as_str();
            MessageRecord {
                message_id: kept_id(message.text("message_id").unwrap_or(correlation_id)),
                correlation_id: kept_id(correlation_id),
                source: (!is_here).then(|| policy.source.clone()),
                queue: Arc::clone(&message.queue),
                attempt,
                arrived: Instant::now(),
                begun: None,
                record,
            }
        })
    }

    /// Returns whether a ledger, wherever it is, records messages of no schedule that are done.
    pub(super) fn records_all(&self) -> bool {
        let inbox = self.follower.lock();
        let of_ledger = inbox.ledger.as_ref().map(|ledger| ledger.record);
        let of_pool = self.policy.borrow().record;
        of_ledger.is_some_and(|record| of_pool.unwrap_or(record) == Record::All)
    }

    /// Reports that a message has become a dead letter without an attempt.
    pub fn buried(&self, occurrence: Arc<str>, failure: Failure) {
        if self.is_needed() {
            let now = Instant::now();
            self.follower.add(Report {
                occurrence,
                attempt: None,
                arrived: now,
                begun: None,
                made: now,
                what: Reported::Buried(failure),
            });
        }
    }

    /// Returns whether the message of that occurrence is cancelled as it is delivered; that is done once.
    pub(super) fn cancels(&self, occurrence: &str) -> bool {
        self.follower.lock().cancelled.remove(occurrence)
    }

    /// Begins to note what is told of a run, if there is a ledger.
    pub(super) fn run(
        &self,
        occurrence: &Arc<str>,
        attempt: u32,
        claim: Option<Weak<()>>,
    ) -> Option<Arc<Run>> {
        self.follower.notes().run(occurrence, attempt, claim)
    }

    fn is_needed(&self) -> bool {
        let inbox = self.follower.lock();
        let ledger = inbox.ledger.as_ref();
        ledger.is_some_and(|ledger| Some(&ledger.database) != self.own.as_ref())
    }

    /// Begins to follow a delivery, if there is a ledger for it.
    pub(super) fn delivered(
        &self,
        message: &Message,
        attempt: u32,
        claim: Option<Weak<()>>,
    ) -> Option<Arc<Followed>> {
        let subject = match &message.occurrence {
            Some(id) => self
                .is_needed()
                .then(|| Subject::Occurrence(Arc::clone(id))),
            None => self.record(message, attempt, false).map(Subject::Message),
        };
        Some(Arc::new(Followed {
            subject: subject?,
            attempt,
            arrived: Instant::now(),
            begun: OnceLock::new(),
            claim,
            follower: self.follower.clone(),
        }))
    }
}

/// Beginning of the work on a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Begun {
    /// Time at which a worker got it.
    pub at: Instant,
    /// The worker: an object of JSON.
    pub worker: Arc<str>,
    /// Trace of the attempt in hexadecimal digits, if it is recorded.
    pub trace: Option<Arc<str>>,
}

/// Subject of what the ledger shows of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Subject {
    /// The occurrence of this id.
    Occurrence(Arc<str>),
    /// The message itself, which is of no schedule.
    Message(MessageRecord),
}

/// A message of no schedule whose end may be recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageRecord {
    /// Its id, or else its correlation id; none if it has neither, or one that is too long.
    pub message_id: Option<String>,
    /// Its correlation id; none if it has none, or one that is too long.
    pub correlation_id: Option<String>,
    /// Its source; none if it is the ledger's own database.
    pub source: Option<String>,
    /// Its queue.
    pub queue: Arc<str>,
    /// Number of the attempt.
    pub attempt: u32,
    /// Time at which the source handed it over.
    pub arrived: Instant,
    /// Its beginning; none if no worker has got it.
    pub begun: Option<Begun>,
    /// The ends that are recorded.
    pub record: Record,
}

impl MessageRecord {
    /// Returns the end of the message, if the outcome is one, and one that is recorded.
    pub fn end(self, outcome: &Outcome, result: &Bytes) -> Option<RecordedEnd> {
        // A message that no worker has had was done before.
        let is_done = self.record == Record::All && self.begun.is_some();
        let end = match outcome {
            Outcome::DeadLetter(failure) => MessageEnd::of(failure),
            Outcome::Done if is_done => MessageEnd::Done(head(result)),
            // A reply to its own queue goes on with its task.
            Outcome::Reply(reply) if is_done && reply.queue != *self.queue => {
                MessageEnd::Done(head(&reply.body))
            }
            Outcome::Done
            | Outcome::Reply(_)
            | Outcome::Requeue { .. }
            | Outcome::Return { .. }
            | Outcome::ReturnAfter { .. }
            | Outcome::RetryAfter { .. } => return None,
        };
        Some(RecordedEnd {
            message: self,
            made: Instant::now(),
            end,
            id: OnceLock::new(),
        })
    }
}

/// End of a message, as far as a ledger keeps it: it may wait longer than the message itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MessageEnd {
    /// It is done, with the beginning of its result.
    Done(Bytes),
    /// It is a dead letter.
    Failed {
        /// Kind of failure.
        reason: Reason,
        /// Description of the failure.
        error: String,
        /// Exit of the worker, if it ended.
        exit: Option<Exit>,
    },
}

impl MessageEnd {
    /// Makes the end of a message that is a dead letter.
    pub fn of(failure: &Failure) -> Self {
        Self::Failed {
            reason: failure.reason,
            error: failure.error.clone(),
            exit: failure.exit,
        }
    }

    /// Returns the size of what it holds.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Done(result) => result.len(),
            Self::Failed { error, .. } => error.len(),
        }
    }
}

/// Returns an id as far as a ledger keeps it.
fn kept_id(id: &str) -> Option<String> {
    let is_kept = !id.is_empty() && id.len() <= ID_BYTES_MAX && !id.contains('\0');
    is_kept.then(|| id.to_owned())
}

/// Copies the beginning of a result: a part of a frame would keep all of it in memory.
fn head(result: &Bytes) -> Bytes {
    Bytes::copy_from_slice(&result[..result.len().min(RESULT_BYTES_MAX)])
}

/// The end of a message of no schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedEnd {
    /// The message.
    pub message: MessageRecord,
    /// Time of the end.
    pub made: Instant,
    /// The end.
    pub end: MessageEnd,
    /// Id of its record, from the first try to write that on: so a try whose result is unknown is repeated safely.
    pub id: OnceLock<String>,
}

impl RecordedEnd {
    fn bytes(&self) -> usize {
        let ids = [&self.message.message_id, &self.message.correlation_id];
        let ids = ids.map(|id| id.as_ref().map_or(0, String::len));
        self.end.bytes() + ids.iter().sum::<usize>() + END_BYTES
    }
}

/// Ends that wait to be recorded. Their number and size are bounded: of more the last ones are dropped and counted.
#[derive(Debug, Default)]
pub struct RecordedEnds {
    ends: VecDeque<RecordedEnd>,
    bytes: usize,
    dropped: u64,
}

impl RecordedEnds {
    /// Adds an end, unless there is no room.
    pub fn push(&mut self, end: RecordedEnd) {
        let bytes = self.bytes + end.bytes();
        match bytes <= ENDS_BYTES_MAX {
            true => {
                self.bytes = bytes;
                self.ends.push_back(end);
            }
            false => self.dropped += 1,
        }
    }

    /// Adds later ends, as far as there is room.
    pub fn append(&mut self, later: Self) {
        self.dropped += later.dropped;
        later.ends.into_iter().for_each(|end| self.push(end));
    }

    /// Takes the ends.
    pub fn take(&mut self) -> Vec<RecordedEnd> {
        self.bytes = 0;
        mem::take(&mut self.ends).into()
    }

    /// Adds ends that were taken, before the others.
    pub fn take_back(&mut self, earlier: Vec<RecordedEnd>) {
        let later = mem::take(self);
        earlier.into_iter().for_each(|end| self.push(end));
        self.append(later);
    }

    /// Returns the number of ends that were dropped since the last call.
    pub fn take_dropped(&mut self) -> u64 {
        mem::take(&mut self.dropped)
    }

    /// Returns the first.
    pub fn first(&self) -> Option<&RecordedEnd> {
        self.ends.front()
    }

    /// Returns their number.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}

/// A delivery that is followed.
#[derive(Debug)]
pub(super) struct Followed {
    subject: Subject,
    attempt: u32,
    arrived: Instant,
    begun: OnceLock<Begun>,
    claim: Option<Weak<()>>,
    follower: Follower,
}

impl Followed {
    /// Reports that a worker has it.
    pub(super) fn begin(&self, begun: Begun) {
        let begun = self.begun.get_or_init(|| begun).at;
        if let Subject::Occurrence(occurrence) = &self.subject
            && !self.is_void()
        {
            let report = self.report(occurrence, begun, Reported::Begun);
            self.follower.add(report);
        }
    }

    /// Reports the outcome, and settles. A message whose claim is lost is with another, who reports.
    pub(super) fn settle(&self, settlement: PendingSettlement) {
        if self.is_void() {
            return;
        }
        match &self.subject {
            Subject::Message(message) => {
                let message = MessageRecord {
                    begun: self.begun.get().cloned(),
                    ..message.clone()
                };
                let result = settlement.result();
                let end = settlement.outcome();
                if let Some(end) = end.and_then(|outcome| message.end(outcome, &result)) {
                    self.follower.add_end(end);
                }
            }
            Subject::Occurrence(occurrence) => {
                let report = self.report(occurrence, Instant::now(), Reported::Settled(settlement));
                self.follower.add(report);
            }
        }
    }

    fn is_void(&self) -> bool {
        let is_gone = |claim: &Weak<()>| claim.strong_count() == 0;
        self.claim.as_ref().is_some_and(is_gone)
    }

    fn report(&self, occurrence: &Arc<str>, made: Instant, what: Reported) -> Report {
        Report {
            occurrence: Arc::clone(occurrence),
            attempt: Some(self.attempt),
            arrived: self.arrived,
            begun: self.begun.get().cloned(),
            made,
            what,
        }
    }
}

/// A change of the message of an occurrence.
#[derive(Debug)]
pub struct Report {
    /// Id of the occurrence.
    pub occurrence: Arc<str>,
    /// Number of the attempt; none if there was none.
    pub attempt: Option<u32>,
    /// Time at which the source handed the message over.
    pub arrived: Instant,
    /// Its beginning; none if no worker has got it.
    pub begun: Option<Begun>,
    /// Time of the change.
    pub made: Instant,
    /// The change.
    pub what: Reported,
}

/// Changes that are reported.
#[derive(Debug)]
pub enum Reported {
    /// A worker has the message.
    Begun,
    /// The message is settled.
    Settled(PendingSettlement),
    /// The message has become a dead letter without an attempt.
    Buried(Failure),
}

/// A settlement on its way to the source, which gets it when this is dropped.
#[derive(Debug)]
pub struct PendingSettlement(Option<(mpsc::OwnedPermit<Settlement>, Settlement)>);

impl PendingSettlement {
    pub(super) fn new(permit: mpsc::OwnedPermit<Settlement>, settlement: Settlement) -> Self {
        Self(Some((permit, settlement)))
    }

    /// Returns the outcome.
    pub fn outcome(&self) -> Option<&Outcome> {
        self.0.as_ref().map(|(_, settlement)| &settlement.outcome)
    }

    /// Returns the result.
    pub fn result(&self) -> Bytes {
        let pending = self.0.as_ref();
        pending.map_or_else(Bytes::new, |(_, settlement)| settlement.result.clone())
    }
}

impl Drop for PendingSettlement {
    fn drop(&mut self) {
        if let Some((permit, settlement)) = self.0.take() {
            drop(permit.send(settlement));
        }
    }
}
