//! Acknowledgements, returns and rejections of deliveries, as written to the broker. This module decides when
//! an acknowledgement waits, so that one covers many deliveries.

use std::time::Duration;

use lapin::Channel;
use lapin::options::{BasicAckOptions, BasicNackOptions, BasicRejectOptions, QueueDeclareOptions};
use lapin::types::{FieldTable, ShortString};
use tokio::time::{Instant, sleep_until, timeout};

use super::book::DeliveryBook;
use crate::broker::ack_writes::{ACKS_AT_ONCE_MAX, PROCESSED_WITHIN, written};
use crate::broker::connect::close;
use crate::broker::error::RabbitMqError;
use crate::broker::ledger::{Ack, Others};

/// Time that settled deliveries wait for the one before them, so that one acknowledgement covers all.
const ACK_WITHIN: Duration = Duration::from_millis(2);

/// Timeout for the broker to confirm that it has read the last acknowledgements.
const SETTLE_WITHIN: Duration = Duration::from_secs(5);

/// The consuming channel, and the acknowledgements over it.
#[derive(Debug)]
pub(super) struct Acks {
    channel: Channel,
    /// Time at which settled deliveries are acknowledged at the latest.
    at: Option<Instant>,
    /// Acknowledgements written since the consumers were cancelled, which may not be processed yet.
    pacing: AckPacing,
    due: Vec<Ack>,
}

/// Progress towards the end of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AcksEnd {
    /// No end is planned.
    Later,
    /// More will be settled before the end.
    More,
    /// Everything that will be settled is settled.
    Last,
}

impl Acks {
    pub(super) fn new(channel: Channel) -> Self {
        Self {
            channel,
            at: None,
            pacing: AckPacing::default(),
            due: Vec::new(),
        }
    }

    /// Writes the acknowledgements that are due.
    pub(super) fn acknowledge(
        &mut self,
        book: &mut DeliveryBook,
        prefetch: u16,
        end: AcksEnd,
        now: Instant,
    ) -> Result<(), RabbitMqError> {
        if !book.has_settled() {
            // A deadline that stays in the past would make the loop spin.
            self.at = None;
            self.pacing.release();
            return Ok(());
        }
        // At the end one acknowledgement should cover everything that is outstanding: a channel with too many
        // holds back the rest, and no answer shows when it has not.
        if self.pacing.must_hold_back(end == AcksEnd::More, now) {
            // They have a deadline of their own.
            self.at = None;
            return Ok(());
        }
        // The other half keeps the workers busy meanwhile.
        let many = book.settled() * 2 >= usize::from(prefetch);
        let due = self.at.is_some_and(|at| at <= now);
        let others = if many || due || end != AcksEnd::Later {
            Others::Single
        } else {
            Others::Wait
        };
        self.write(book, others)?;
        self.at = match self.at {
            _ if !book.has_settled() => None,
            Some(at) if at > now => Some(at),
            _ => Some(now + ACK_WITHIN),
        };
        Ok(())
    }

    /// Writes the acknowledgements that can be written.
    pub(super) fn write(
        &mut self,
        book: &mut DeliveryBook,
        others: Others,
    ) -> Result<(), RabbitMqError> {
        book.acks(others, &mut self.due);
        self.pacing.record(self.due.len(), Instant::now());
        for Ack { tag, multiple } in self.due.drain(..) {
            written(self.channel.basic_ack(tag, BasicAckOptions { multiple }))?;
        }
        Ok(())
    }

    /// Returns one message to its queue.
    pub(super) fn give_back(&mut self, tag: u64) -> Result<(), RabbitMqError> {
        self.pacing.record(1, Instant::now());
        let options = BasicNackOptions {
            multiple: false,
            requeue: true,
        };
        written(self.channel.basic_nack(tag, options))
    }

    /// Rejects one message, which the broker handles from here on.
    pub(super) fn reject(&mut self, tag: u64) -> Result<(), RabbitMqError> {
        let options = BasicRejectOptions { requeue: false };
        written(self.channel.basic_reject(tag, options))
    }

    /// Restarts the count: the answer to the cancel comes after the acknowledgements before it are processed.
    pub(super) fn restart_count(&mut self) {
        self.pacing.restart_count();
    }

    /// Time of the next write.
    pub(super) fn deadline(&self) -> Option<Instant> {
        [self.at, self.pacing.deadline()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Waits until the broker has read everything that was written, and its queue has had time to process it:
    /// it may lose acknowledgements written just before a channel is closed. No message is taken from the
    /// queue for that: it would be counted when it is returned, and a queue with a single active consumer
    /// refuses it and ends the channel.
    pub(super) async fn confirm_read(
        &self,
        queue: ShortString,
        pool: &str,
    ) -> Result<(), RabbitMqError> {
        if !self.channel.status().connected() {
            // The queue no longer exists, so there is nothing left to acknowledge.
            return Ok(());
        }
        if let Some(at) = self
            .pacing
            .processed_at
            .filter(|_| self.pacing.count > ACKS_AT_ONCE_MAX)
        {
            // No answer shows when the queue has processed it.
            sleep_until(at).await;
        }
        let options = QueueDeclareOptions {
            passive: true,
            ..QueueDeclareOptions::default()
        };
        let asked = self
            .channel
            .queue_declare(queue, options, FieldTable::default());
        match timeout(SETTLE_WITHIN, asked).await {
            Ok(Ok(_)) => {}
            // The queue may have been deleted, but the broker has read everything in any case.
            Ok(Err(error)) if error.is_amqp_soft_error() => {}
            Ok(Err(error)) => return Err(RabbitMqError::lost(&error)),
            Err(_) => tracing::warn!(
                pool,
                "the broker did not confirm within {SETTLE_WITHIN:?} that it has read the last \
                 acknowledgements; some messages may run twice"
            ),
        }
        Ok(())
    }

    /// Closes the channel in an orderly way.
    pub(super) async fn close(self) {
        close(&self.channel).await;
    }
}

/// Acknowledgements and returns that the queue may not have processed yet.
#[derive(Debug, Default)]
struct AckPacing {
    count: usize,
    /// Time at which it has processed the last of them.
    processed_at: Option<Instant>,
    /// Time until which no more are written, if they must be held back.
    pause: Option<Instant>,
}

impl AckPacing {
    /// Records that `count` acknowledgements or returns are written.
    fn record(&mut self, count: usize, now: Instant) {
        if count > 0 {
            self.count += count;
            self.processed_at = Some(now + PROCESSED_WITHIN);
        }
    }

    /// Restarts the count, since an answer will come after they are processed.
    fn restart_count(&mut self) {
        *self = Self::default();
    }

    /// Returns whether it is better to hold back now, if there is `more_to_come`.
    fn must_hold_back(&mut self, more_to_come: bool, now: Instant) -> bool {
        if self.processed_at.is_some_and(|at| at <= now) {
            self.restart_count();
        }
        let is_too_much = self.count >= ACKS_AT_ONCE_MAX && more_to_come;
        self.pause = self.processed_at.filter(|_| is_too_much);
        is_too_much
    }

    /// Records that nothing is held back.
    fn release(&mut self) {
        self.pause = None;
    }

    /// Time at which those held back may be written.
    fn deadline(&self) -> Option<Instant> {
        self.pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOMENT: Duration = Duration::from_millis(2);

    /// Writes `count` acknowledgements, one after the other.
    fn record(pacing: &mut AckPacing, count: usize, now: &mut Instant) {
        for _ in 0..count {
            *now += MOMENT;
            pacing.record(1, *now);
        }
    }

    #[test]
    fn words_are_saved_until_the_queue_has_taken_in_the_last_of_them() {
        let (mut pacing, mut now) = (AckPacing::default(), Instant::now());
        record(&mut pacing, ACKS_AT_ONCE_MAX - 1, &mut now);
        assert!(!pacing.must_hold_back(true, now));
        record(&mut pacing, 1, &mut now);
        assert!(!pacing.must_hold_back(false, now), "one word does for all");
        assert!(pacing.must_hold_back(true, now));
        assert_eq!(pacing.deadline(), Some(now + PROCESSED_WITHIN));
        // A message returned meanwhile counts, too.
        let later = now + PROCESSED_WITHIN / 2;
        pacing.record(1, later);
        assert!(pacing.must_hold_back(true, now + PROCESSED_WITHIN));
        assert_eq!(pacing.deadline(), Some(later + PROCESSED_WITHIN));
        assert!(!pacing.must_hold_back(true, later + PROCESSED_WITHIN));
        assert_eq!((pacing.count, pacing.deadline()), (0, None));
    }

    #[test]
    fn nothing_wakes_anyone_for_words_that_are_said() {
        let (mut pacing, mut now) = (AckPacing::default(), Instant::now());
        record(&mut pacing, ACKS_AT_ONCE_MAX, &mut now);
        assert!(pacing.must_hold_back(true, now));
        pacing.release();
        assert_eq!((pacing.count, pacing.deadline()), (ACKS_AT_ONCE_MAX, None));
    }
}
