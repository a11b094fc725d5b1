//! A partition that is ours: what is read of it, what keeps it from being read, and how far it is.

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

/// What leaves, and whose topic is not there, is committed so many times in vain at most. One that was
/// only away for a moment is back by then.
const MISSING_MAX: u32 = 3;

/// A partition that is ours.
#[derive(Debug)]
pub(super) struct Partition {
    name: TopicPartition,
    /// What is out of it is void without.
    claim: Claim,
    /// What tells its commits from others'.
    place: PartitionSeed,
    /// What its topic is to the pool.
    origin: Origin,
    inbox: Inbox,
    progress: Progress,
    /// The head of a tier, which is not due; nothing behind it is read before. There are more only where
    /// some came past the inbox.
    parked: Vec<Parked>,
    /// It goes to someone else: nothing is read or handed out any more.
    leaving: bool,
    /// Its commit could not hold more, and that was said.
    is_full: bool,
    /// By the last statistics nothing is fetched of it.
    is_idle: bool,
    /// What comes next is damaged. What lies behind it is not taken until it has been fetched anew.
    is_damaged: bool,
    /// How often it was asked how it stands since something was read of it.
    times_astray: u32,
    /// How often in a row its topic was not there when it was to be committed.
    times_missing: u32,
    /// It is not fetched because we say so.
    pause: Option<Pause>,
    /// When the last message that was read of it was sent.
    read_up_to_ms: Option<i64>,
}

/// Why a partition is paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pause {
    /// Others have their turn.
    Turn,
    /// Its head is not due for long.
    Nap,
}

/// A message that is not due.
#[derive(Debug)]
struct Parked {
    look_at: Instant,
    fresh: Fresh,
}

/// What was at hand.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "it is taken apart where it is made; a box would be an allocation for each message"
)]
pub(super) enum Read {
    Nothing,
    /// A message that need not be done.
    Passed,
    New(Fresh),
    /// A message that may have been emptied on its way.
    Emptied,
    /// What is wrong with it.
    Fault(Code),
}

/// Under what it is found, as far as it is not found by its name alone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Traits {
    /// Not all that we know of it is committed.
    pub(super) is_uncommitted: bool,
    /// When its head is to be looked at.
    pub(super) look_at: Option<Instant>,
    /// Why it is paused.
    pub(super) pause: Option<Pause>,
    pub(super) is_leaving: bool,
    /// Nothing is read of it.
    pub(super) is_shut: bool,
}

impl Partition {
    /// One that is to be read from where its progress says.
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
            times_astray: 0,
            times_missing: 0,
            pause: None,
            read_up_to_ms: None,
        }
    }

    /// Under what it is to be found now.
    pub(super) fn traits(&self) -> Traits {
        Traits {
            is_uncommitted: !self.progress.is_committed(),
            look_at: self.parked.iter().map(|parked| parked.look_at).min(),
            pause: self.pause,
            is_leaving: self.leaving,
            is_shut: self.leaving || self.is_damaged || !self.parked.is_empty(),
        }
    }

    /// Its topic and number.
    pub(super) fn name(&self) -> &TopicPartition {
        &self.name
    }

    /// Its name as people write it.
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

    /// Its place, to go to an offset.
    pub(super) fn at(&self, offset: i64) -> Start {
        Start {
            topic: self.name.0.clone(),
            partition: self.name.1,
            offset,
        }
    }

    // -- what is read --

    /// What is next at hand.
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

    /// A message that came past its inbox: in front of what that has, so it is the next, or one that
    /// was there before. Behind one that is damaged it comes again.
    pub(super) fn take_stray(&mut self, fresh: Fresh) -> Option<Fresh> {
        if self.is_damaged {
            return None;
        }
        let delivered = self.progress.delivered(fresh.offset);
        (delivered == Delivered::New).then_some(fresh)
    }

    /// Takes in what was read, as it was when it was here last. Gives it back, unless it is not due yet.
    pub(super) fn admit(&mut self, mut fresh: Fresh, now: Instant, now_ms: i64) -> Option<Fresh> {
        self.times_astray = 0;
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

    /// Its head, if that is due. By the clock on the wall it may not be, if that was set meanwhile.
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

    // -- how far it is --

    /// A message is done.
    pub(super) fn done(&mut self, offset: i64) {
        self.progress.done(offset);
    }

    /// A message stays with us for another try.
    pub(super) fn retried(&mut self, offset: i64, tried: Tried) {
        self.progress.retried(offset, tried);
    }

    /// Its next commit.
    pub(super) fn commit(&mut self, metadata_bytes_max: usize, anyhow: bool) -> Option<Commit> {
        let (offset, metadata) = self
            .progress
            .commit(self.place, metadata_bytes_max, anyhow)?;
        Some(Commit {
            topic: self.name.0.clone(),
            partition: self.name.1,
            offset,
            metadata,
        })
    }

    /// The commit that was sent has ended.
    pub(super) fn committed(&mut self, is_taken: bool) {
        self.times_missing = 0;
        self.progress.committed(is_taken);
    }

    /// Likewise: its topic is not there. Where it leaves nobody need wait for it for ever.
    pub(super) fn is_missing(&mut self) {
        self.times_missing = self.times_missing.saturating_add(1);
        self.progress.committed(false);
        if self.leaving && self.times_missing >= MISSING_MAX {
            self.progress.give_up();
        }
    }

    /// What lies below an offset and was not read never will be.
    pub(super) fn skip_to(&mut self, offset: i64) {
        self.progress.skip_to(offset);
    }

    /// From an offset on it is another log, read from `to` on. What is out of the old one is void: it
    /// runs again as far as it is there yet.
    pub(super) fn begin_anew(&mut self, to: i64, fork: i64) {
        let mut carried = self.progress.carried();
        carried.cut(fork);
        self.progress = Progress::new(to, None, carried);
        self.parked.clear();
        self.claim = Claim::default();
    }

    // -- what keeps it from being read or handed out --

    /// It goes to someone else.
    pub(super) fn leave(&mut self) {
        self.leaving = true;
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.leaving
    }

    /// What comes next is damaged.
    pub(super) fn damage(&mut self) {
        self.is_damaged = true;
    }

    pub(super) fn is_damaged(&self) -> bool {
        self.is_damaged
    }

    /// It is fetched anew.
    pub(super) fn restarted(&mut self) {
        self.is_damaged = false;
    }

    /// It is asked once more how it stands: how often that makes since something was read of it.
    pub(super) fn ask_again(&mut self) -> u32 {
        self.times_astray = self.times_astray.saturating_add(1);
        self.times_astray
    }

    /// It is paused, or not any more. False if it was so before.
    pub(super) fn pause(&mut self, pause: Option<Pause>) -> bool {
        std::mem::replace(&mut self.pause, pause) != pause
    }

    /// Whether a commit could not hold what a message may add, and that was said.
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Says whether a commit could not hold more.
    pub(super) fn tell_of_metadata(&mut self, pool: &str, is_full: bool) {
        self.is_full = is_full;
        let ((topic, partition), undone) = (&self.name, self.progress.undone());
        if is_full {
            tracing::warn!(
                pool,
                topic,
                partition,
                undone,
                "no commit could hold more: nothing is taken in until older messages are done"
            );
        } else {
            tracing::info!(pool, topic, partition, "commits can hold more again");
        }
    }

    // -- its statistics --

    /// Takes in whether it is fetched: true if it is not, the second time in a row. Once it may just be
    /// between two fetches.
    pub(super) fn is_not_fetched(&mut self, statistics: &Lag) -> bool {
        std::mem::replace(&mut self.is_idle, statistics.is_idle) && statistics.is_idle
    }

    /// Time that the messages which were not read are sent after, in milliseconds since 1970.
    pub(super) fn read_up_to_ms(&self) -> Option<i64> {
        self.read_up_to_ms
    }

    /// How far behind it is, if that is known.
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

    /// Or the first would be forgotten, and never done.
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
        // The clock on the wall was set back.
        assert!(tier.unpark(at(500), 900).is_empty());
        assert_eq!(tier.traits().look_at, Some(at(600)));
        assert_eq!(offsets(tier.unpark(at(600), 1000)), [0, 2]);
        assert!(tier.traits().is_shut, "one is left");
        assert_eq!(offsets(tier.unpark(at(1100), 1500)), [1]);
        assert!(!tier.traits().is_shut && tier.traits().look_at.is_none());
        (0..4).for_each(|offset| tier.done(offset));
        assert_eq!(tier.progress().committable(), 4);
    }

    /// It may be back in a moment, and what stays with us is committed then.
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

    /// What is out of the old log runs again, as far as it is there yet: its worker is told, and nobody
    /// begins it.
    #[test]
    fn what_is_out_of_a_log_that_departs_is_void() {
        let mut partition = tier();
        let (source, mut pool) = delivery::link();
        pool.intake.send_replace(Intake::Credit(1));
        source.deliver_under(partition.claim(), 1, message(), History::default());
        let delivery: Delivery = pool.deliveries.try_recv().unwrap();
        partition.skip_to(5);
        assert!(!delivery.is_void());
        partition.begin_anew(3, 3);
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
        }
    }
}
