//! An assigned partition: its messages, its obstacles to reading, and its progress.

use std::time::Duration;

use rdkafka::error::RDKafkaErrorCode as Code;
use tokio::time::Instant;

use super::incoming::{Fresh, fresh};
use super::known_topics::Origin;
use super::progress::Progress;
use super::watermark::Delivered;
use crate::broker::commit_metadata::{PartitionSeed, Tried};
use crate::broker::consumer::{Commit, Inbox, Start, TopicPartition};
use crate::broker::statistics::Lag;
use ganger_queue::delivery::Claim;

/// Maximum number of failed commits for a leaving partition whose topic does not exist. A topic that was
/// missing only for a moment is back by then.
const MISSING_MAX: u32 = 3;

/// An assigned partition.
#[derive(Debug)]
pub(super) struct Partition {
    name: TopicPartition,
    /// Claim that makes its handed-out messages valid: without it they are void.
    claim: Claim,
    /// Identity that its commits carry.
    place: PartitionSeed,
    /// Role of its topic for the pool.
    origin: Origin,
    inbox: Inbox,
    progress: Progress,
    /// Heads of a tier that are not due; no message behind them is read before. There is more than one only
    /// if some bypassed the inbox.
    parked: Vec<Parked>,
    /// True while it is being revoked: nothing is read or handed out any more.
    leaving: bool,
    /// True if its commit had no room for more, and that was logged.
    is_full: bool,
    /// True if it was not being fetched, by the last statistics.
    is_idle: bool,
    /// True if the next record is damaged. Records behind it are not taken until it has been fetched again.
    is_damaged: bool,
    /// Number of queries of its state since a message was read of it.
    state_queries: u32,
    /// Number of successive commits for which its topic did not exist.
    times_missing: u32,
    /// Reason why the source has paused it.
    pause: Option<Pause>,
    /// Send time of the last message read of it.
    read_up_to_ms: Option<i64>,
}

/// Reason why a partition is paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pause {
    /// Other partitions have their turn.
    Turn,
    /// Its head is not due for a long time.
    HeadNotDue,
}

/// A message that is not due.
#[derive(Debug)]
struct Parked {
    look_at: Instant,
    fresh: Fresh,
}

/// Result of a read.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "it is taken apart where it is made; a box would be an allocation for each message"
)]
pub(super) enum Read {
    Nothing,
    /// A message that is already done or was read before.
    Passed,
    New(Fresh),
    /// A message that may have been emptied in transit.
    Emptied,
    /// The error of the partition.
    Fault(Code),
}

/// Properties by which it is indexed, in addition to its name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Traits {
    /// True if some of its progress is not committed.
    pub(super) is_uncommitted: bool,
    /// Time of the next check of its head.
    pub(super) look_at: Option<Instant>,
    /// Reason why it is paused.
    pub(super) pause: Option<Pause>,
    pub(super) is_leaving: bool,
    /// True if it is not read.
    pub(super) is_shut: bool,
}

impl Partition {
    /// Creates a partition to be read from the position of its progress.
    pub(super) fn new(
        name: TopicPartition,
        place: PartitionSeed,
        origin: Origin,
        inbox: Inbox,
        progress: Progress,
    ) -> Self {
        Self {
            name,
            claim: Claim::default(),
            place,
            origin,
            inbox,
            progress,
            parked: Vec::new(),
            leaving: false,
            is_full: false,
            is_idle: false,
            is_damaged: false,
            state_queries: 0,
            times_missing: 0,
            pause: None,
            read_up_to_ms: None,
        }
    }

    /// Returns its current index properties.
    pub(super) fn traits(&self) -> Traits {
        Traits {
            is_uncommitted: !self.progress.is_committed(),
            look_at: self.parked.iter().map(|parked| parked.look_at).min(),
            pause: self.pause,
            is_leaving: self.leaving,
            is_shut: self.leaving || self.is_damaged || !self.parked.is_empty(),
        }
    }

    /// Returns its topic and number.
    pub(super) fn name(&self) -> &TopicPartition {
        &self.name
    }

    /// Returns its name in readable form.
    pub(super) fn label(&self) -> String {
        format!("{}/{}", self.name.0, self.name.1)
    }

    pub(super) fn claim(&self) -> &Claim {
        &self.claim
    }

    pub(super) fn is_tier(&self) -> bool {
        self.origin.is_tier
    }

    pub(super) fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Returns its start position at an offset.
    pub(super) fn at(&self, offset: i64) -> Start {
        Start {
            topic: self.name.0.clone(),
            partition: self.name.1,
            offset,
        }
    }

    // -- reading --

    /// Reads the next message.
    pub(super) fn read(&mut self) -> Read {
        match self.inbox.next() {
            None => Read::Nothing,
            Some(Err(code)) => Read::Fault(code),
            Some(Ok(message)) => match fresh(&self.origin, &message) {
                None => Read::Emptied,
                Some(fresh) => match self.progress.delivered(fresh.offset) {
                    Delivered::New => Read::New(fresh),
                    Delivered::DoneBefore | Delivered::Again => Read::Passed,
                },
            },
        }
    }

    /// Takes a message that bypassed its inbox: it precedes those in the inbox, so it is the next message, or
    /// was read before. Behind a damaged record it will be fetched again.
    pub(super) fn take_stray(&mut self, fresh: Fresh) -> Option<Fresh> {
        if self.is_damaged {
            return None;
        }
        let delivered = self.progress.delivered(fresh.offset);
        (delivered == Delivered::New).then_some(fresh)
    }

    /// Takes in a message, with its former attempts. Returns it, unless it is not due yet.
    pub(super) fn admit(&mut self, mut fresh: Fresh, now: Instant, now_ms: i64) -> Option<Fresh> {
        self.state_queries = 0;
        self.read_up_to_ms = fresh.record.timestamp_ms.or(self.read_up_to_ms);
        if let Some(tried) = self.progress.tried(fresh.offset) {
            let counters = &mut fresh.record.counters;
            (counters.attempts, counters.crashes) = (tried.attempts, tried.crashes);
        }
        match fresh.due_ms {
            Some(due_ms) if due_ms > now_ms => {
                let look_at = look_at(due_ms, now, now_ms);
                self.parked.push(Parked { look_at, fresh });
                None
            }
            _ => Some(fresh),
        }
    }

    /// Takes its head, if that is due. It may not be due by the wall clock, if that was changed meanwhile.
    pub(super) fn unpark(&mut self, now: Instant, now_ms: i64) -> Vec<Fresh> {
        let due = |parked: &mut Parked| {
            parked.look_at <= now && {
                let due_ms = parked.fresh.due_ms.unwrap_or(now_ms);
                parked.look_at = look_at(due_ms, now, now_ms);
                due_ms <= now_ms
            }
        };
        let due = self.parked.extract_if(.., due);
        due.map(|parked| parked.fresh).collect()
    }

    // -- progress --

    /// Marks a message as done.
    pub(super) fn done(&mut self, offset: i64) {
        self.progress.done(offset);
    }

    /// Records that a message is kept for another attempt.
    pub(super) fn retried(&mut self, offset: i64, tried: Tried) {
        self.progress.retried(offset, tried);
    }

    /// Returns its next commit.
    pub(super) fn commit(&mut self, metadata_bytes_max: usize, force: bool) -> Option<Commit> {
        let (offset, metadata) = self
            .progress
            .commit(self.place, metadata_bytes_max, force)?;
        Some(Commit {
            topic: self.name.0.clone(),
            partition: self.name.1,
            offset,
            metadata,
        })
    }

    /// Handles the outcome of the commit in flight.
    pub(super) fn committed(&mut self, is_taken: bool) {
        self.times_missing = 0;
        self.progress.committed(is_taken);
    }

    /// Handles a commit whose topic does not exist. If the partition is leaving, no work need wait for it for
    /// ever.
    pub(super) fn is_missing(&mut self) {
        self.times_missing = self.times_missing.saturating_add(1);
        self.progress.committed(false);
        if self.leaving && self.times_missing >= MISSING_MAX {
            self.progress.give_up();
        }
    }

    /// Declares that unread offsets below this one will never be read.
    pub(super) fn skip_to(&mut self, offset: i64) {
        self.progress.skip_to(offset);
    }

    /// Switches to another log, which starts at `fork` and is read from `to` on. Messages of the old log that
    /// are handed out are void: they run again as far as they still exist.
    pub(super) fn switch_log(&mut self, to: i64, fork: i64) {
        let mut carried = self.progress.carried();
        carried.cut(fork);
        self.progress = Progress::new(to, None, carried);
        self.parked.clear();
        self.claim = Claim::default();
    }

    // -- obstacles to reading and handing out --

    /// Begins to leave: it is being revoked.
    pub(super) fn leave(&mut self) {
        self.leaving = true;
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.leaving
    }

    /// Marks the next record as damaged.
    pub(super) fn damage(&mut self) {
        self.is_damaged = true;
    }

    pub(super) fn is_damaged(&self) -> bool {
        self.is_damaged
    }

    /// Records that it is fetched again.
    pub(super) fn restarted(&mut self) {
        self.is_damaged = false;
    }

    /// Counts a query of its state; returns the number since a message was read of it.
    pub(super) fn ask_again(&mut self) -> u32 {
        self.state_queries = self.state_queries.saturating_add(1);
        self.state_queries
    }

    /// Sets the reason why it is paused. False if that is unchanged.
    pub(super) fn pause(&mut self, pause: Option<Pause>) -> bool {
        std::mem::replace(&mut self.pause, pause) != pause
    }

    /// Returns whether its commit has no room for the growth by another message, and that was logged.
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Logs whether its commit has no room for more.
    pub(super) fn log_metadata_limit(&mut self, pool: &str, is_full: bool) {
        self.is_full = is_full;
        let ((topic, partition), undone) = (&self.name, self.progress.undone());
        if is_full {
            tracing::warn!(
                pool,
                topic,
                partition,
                undone,
                "commit metadata is full: intake paused until older messages are done"
            );
        } else {
            tracing::info!(pool, topic, partition, "commit metadata has room again");
        }
    }

    // -- its statistics --

    /// Handles whether it is being fetched: true if it is not, the second time in a row. The first time it
    /// may just be between two fetches.
    pub(super) fn is_not_fetched(&mut self, statistics: &Lag) -> bool {
        std::mem::replace(&mut self.is_idle, statistics.is_idle) && statistics.is_idle
    }

    /// Returns a time after which the unread messages were sent, in milliseconds since 1970.
    pub(super) fn read_up_to_ms(&self) -> Option<i64> {
        self.read_up_to_ms
    }

    /// Returns its lag, if known.
    pub(super) fn lag(&self, statistics: &Lag) -> Option<u64> {
        let unread = statistics.end?.saturating_sub(self.progress.position());
        let unread = unread.max(0).unsigned_abs();
        let unread = unread.saturating_sub(self.progress.done_ahead());
        let unread = if statistics.is_read { 0 } else { unread };
        Some(unread + self.progress.undone() as u64)
    }
}

fn look_at(due_ms: i64, now: Instant, now_ms: i64) -> Instant {
    let wait = due_ms.saturating_sub(now_ms).max(0).unsigned_abs();
    now + Duration::from_millis(wait)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::Notify;

    use super::*;
    use crate::broker::commit_metadata::Carried;
    use crate::broker::consumer::Consumer;
    use crate::broker::record::Record;
    use crate::broker::settings;
    use ganger_queue::delivery;
    use ganger_queue::delivery::{Delivery, History, Intake, Message};

    fn tier() -> Partition {
        let properties = settings::consumer(&settings::tests::source(&[]), "p", 1 << 20);
        let consumer = Consumer::new(&properties, "p", Arc::new(Notify::new())).unwrap();
        let inbox = consumer.inbox("tier", 0).unwrap();
        let place = PartitionSeed::new("cluster", "tier", 0);
        let progress = Progress::new(0, Some(String::new()), Carried::default());
        let origin = Origin {
            topic: "orders".into(),
            is_tier: true,
        };
        Partition::new(("tier".to_owned(), 0), place, origin, inbox, progress)
    }

    fn fresh(offset: i64, due_ms: i64) -> Fresh {
        Fresh {
            offset,
            record: Record::read(&"tier".into(), (0, offset), None, (None, None), Vec::new()),
            due_ms: Some(due_ms),
        }
    }

    /// Otherwise the first message would be lost, and never done.
    #[test]
    fn what_comes_past_the_inbox_waits_beside_the_head_that_is_not_due() {
        let mut tier = tier();
        let now = Instant::now();
        for (offset, due_ms) in [(0, 1000), (1, 1500), (2, 1000), (3, 400)] {
            let fresh = tier.take_stray(fresh(offset, due_ms)).unwrap();
            let is_due = tier.admit(fresh, now, 500).is_some();
            assert_eq!(is_due, due_ms <= 500, "{offset}");
        }
        let at = |ms| now + Duration::from_millis(ms);
        assert_eq!(tier.traits().look_at, Some(at(500)));
        let offsets =
            |due: Vec<Fresh>| -> Vec<i64> { due.iter().map(|each| each.offset).collect() };
        assert!(tier.unpark(at(499), 999).is_empty());
        // The wall clock was set back.
        assert!(tier.unpark(at(500), 900).is_empty());
        assert_eq!(tier.traits().look_at, Some(at(600)));
        assert_eq!(offsets(tier.unpark(at(600), 1000)), [0, 2]);
        assert!(tier.traits().is_shut, "one is left");
        assert_eq!(offsets(tier.unpark(at(1100), 1500)), [1]);
        assert!(!tier.traits().is_shut && tier.traits().look_at.is_none());
        (0..4).for_each(|offset| tier.done(offset));
        assert_eq!(tier.progress().committable(), 4);
    }

    /// The topic may be back in a moment, and progress of partitions that stay assigned is committed then.
    #[test]
    fn what_leaves_is_not_committed_for_ever_to_a_topic_that_is_not_there() {
        for leaves in [false, true] {
            let mut partition = tier();
            if leaves {
                partition.leave();
            }
            partition.skip_to(5);
            for times in 1..=MISSING_MAX {
                assert!(partition.traits().is_uncommitted, "{leaves} {times}");
                assert!(partition.commit(1000, false).is_some());
                partition.is_missing();
            }
            assert_eq!(partition.traits().is_uncommitted, !leaves);
        }
    }

    /// Messages of the old log that are handed out run again, as far as they still exist: the worker is
    /// notified, and none is begun.
    #[test]
    fn what_is_out_of_a_log_that_departs_is_void() {
        let mut partition = tier();
        let (source, mut pool) = delivery::link();
        pool.intake.send_replace(Intake::Credit(1));
        source.deliver_under(partition.claim(), 1, message(), History::default());
        let delivery: Delivery = pool.deliveries.try_recv().unwrap();
        partition.skip_to(5);
        assert!(!delivery.is_void());
        partition.switch_log(3, 3);
        assert!(delivery.is_void());
        assert_eq!(partition.progress().position(), 3);
    }

    fn message() -> Message {
        Message {
            queue: "tier".into(),
            body: bytes::Bytes::new(),
            headers: Vec::new(),
            correlation_id: String::new(),
            reply_to: None,
            properties: Vec::new(),
            occurrence: None,
        }
    }
}
