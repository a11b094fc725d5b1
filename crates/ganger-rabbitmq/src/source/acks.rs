//! What we tell the broker of what it has handed out: acknowledged, given back, rejected. It decides
//! when an acknowledgement waits, so that one word does for many.

use std::time::Duration;

use lapin::Channel;
use lapin::options::{BasicAckOptions, BasicNackOptions, BasicRejectOptions, QueueDeclareOptions};
use lapin::types::{FieldTable, ShortString};
use tokio::time::{Instant, sleep_until, timeout};

use super::deliveries::Deliveries;
use crate::broker::connect::close;
use crate::broker::error::RabbitMqError;
use crate::broker::ledger::{Ack, Others};
use crate::broker::words::{TAKEN_IN, WORDS_MAX, written};

/// How long settled deliveries wait for the one before them, so that one word does for all.
const ACK_WITHIN: Duration = Duration::from_millis(2);

/// How long the broker may take to say that it has read our last words.
const SETTLE_WITHIN: Duration = Duration::from_secs(5);

/// The channel that consumes, and what is said over it.
#[derive(Debug)]
pub(super) struct Acks {
    channel: Channel,
    /// When what is settled is written at last.
    at: Option<Instant>,
    /// What was written since the consumers were cancelled, which waits for what was before.
    words: Words,
    due: Vec<Ack>,
}

/// How it is with the connection's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AcksEnd {
    /// It is not in sight.
    Later,
    /// Something will be settled before it,
    More,
    /// or all that will be is.
    Last,
}

impl Acks {
    pub(super) fn new(channel: Channel) -> Self {
        Self {
            channel,
            at: None,
            words: Words::default(),
            due: Vec::new(),
        }
    }

    /// Writes the acknowledgements that are due.
    pub(super) fn acknowledge(
        &mut self,
        deliveries: &mut Deliveries,
        prefetch: u16,
        end: AcksEnd,
        now: Instant,
    ) -> Result<(), RabbitMqError> {
        if !deliveries.has_settled() {
            // A moment that is past and stays would have us turn and turn.
            self.at = None;
            self.words.are_said();
            return Ok(());
        }
        // At the end one word is to do for all that is still out: a channel that has had too many
        // keeps back the rest, and nothing tells when it has not.
        if self.words.must_be_saved(end == AcksEnd::More, now) {
            // They have a moment of their own.
            self.at = None;
            return Ok(());
        }
        // The other half keeps the workers busy meanwhile.
        let many = deliveries.settled() * 2 >= usize::from(prefetch);
        let due = self.at.is_some_and(|at| at <= now);
        let others = if many || due || end != AcksEnd::Later {
            Others::Single
        } else {
            Others::Wait
        };
        self.write(deliveries, others)?;
        self.at = match self.at {
            _ if !deliveries.has_settled() => None,
            Some(at) if at > now => Some(at),
            _ => Some(now + ACK_WITHIN),
        };
        Ok(())
    }

    /// Writes the acknowledgements that can be written.
    pub(super) fn write(
        &mut self,
        deliveries: &mut Deliveries,
        others: Others,
    ) -> Result<(), RabbitMqError> {
        deliveries.acks(others, &mut self.due);
        self.words.say(self.due.len(), Instant::now());
        for Ack { tag, multiple } in self.due.drain(..) {
            written(self.channel.basic_ack(tag, BasicAckOptions { multiple }))?;
        }
        Ok(())
    }

    /// One message goes back to its queue.
    pub(super) fn give_back(&mut self, tag: u64) -> Result<(), RabbitMqError> {
        self.words.say(1, Instant::now());
        let options = BasicNackOptions {
            multiple: false,
            requeue: true,
        };
        written(self.channel.basic_nack(tag, options))
    }

    /// One message is the broker's own business from here on.
    pub(super) fn reject(&mut self, tag: u64) -> Result<(), RabbitMqError> {
        let options = BasicRejectOptions { requeue: false };
        written(self.channel.basic_reject(tag, options))
    }

    /// Consumers are cancelled: the answer comes after what was said before is taken in.
    pub(super) fn begin_anew(&mut self) {
        self.words.begin_anew();
    }

    /// When something is to be written.
    pub(super) fn deadline(&self) -> Option<Instant> {
        [self.at, self.words.deadline()].into_iter().flatten().min()
    }

    /// Waits until the broker has read all that we have written, and its queue has had time for it:
    /// it may forget what was written just before a channel is closed. Nothing is taken from the
    /// queue for that: it would be counted when it goes back, and a queue with a single active
    /// consumer refuses it and ends the channel.
    pub(super) async fn last_words(
        &self,
        queue: ShortString,
        pool: &str,
    ) -> Result<(), RabbitMqError> {
        if !self.channel.status().connected() {
            // The queue is gone, and with it what there was to acknowledge.
            return Ok(());
        }
        if let Some(at) = self.words.taken_in.filter(|_| self.words.count > WORDS_MAX) {
            // Nothing tells when the queue has taken it in.
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
            // The queue may be gone, and the broker has read everything all the same.
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

    /// Ends the channel in order.
    pub(super) async fn close(self) {
        close(&self.channel).await;
    }
}

/// What we have written to the queue that it may not have taken in.
#[derive(Debug, Default)]
struct Words {
    count: usize,
    /// When it has taken in the last of them.
    taken_in: Option<Instant>,
    /// Until when nothing more is said, if it must be saved.
    pause: Option<Instant>,
}

impl Words {
    /// So many acknowledgements or returns are written.
    fn say(&mut self, count: usize, now: Instant) {
        if count > 0 {
            self.count += count;
            self.taken_in = Some(now + TAKEN_IN);
        }
    }

    /// Something was asked behind them, and the answer comes after they are taken in.
    fn begin_anew(&mut self) {
        *self = Self::default();
    }

    /// Whether it is better to say nothing now, if there is `more_to_come`.
    fn must_be_saved(&mut self, more_to_come: bool, now: Instant) -> bool {
        if self.taken_in.is_some_and(|at| at <= now) {
            self.begin_anew();
        }
        let is_too_much = self.count >= WORDS_MAX && more_to_come;
        self.pause = self.taken_in.filter(|_| is_too_much);
        is_too_much
    }

    /// Nothing is left to be said.
    fn are_said(&mut self) {
        self.pause = None;
    }

    /// When what is saved may be said.
    fn deadline(&self) -> Option<Instant> {
        self.pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOMENT: Duration = Duration::from_millis(2);

    /// Says so many, one after the other.
    fn say(words: &mut Words, count: usize, now: &mut Instant) {
        for _ in 0..count {
            *now += MOMENT;
            words.say(1, *now);
        }
    }

    #[test]
    fn words_are_saved_until_the_queue_has_taken_in_the_last_of_them() {
        let (mut words, mut now) = (Words::default(), Instant::now());
        say(&mut words, WORDS_MAX - 1, &mut now);
        assert!(!words.must_be_saved(true, now));
        say(&mut words, 1, &mut now);
        assert!(!words.must_be_saved(false, now), "one word does for all");
        assert!(words.must_be_saved(true, now));
        assert_eq!(words.deadline(), Some(now + TAKEN_IN));
        // What goes back meanwhile is a word, too.
        let later = now + TAKEN_IN / 2;
        words.say(1, later);
        assert!(words.must_be_saved(true, now + TAKEN_IN));
        assert_eq!(words.deadline(), Some(later + TAKEN_IN));
        assert!(!words.must_be_saved(true, later + TAKEN_IN));
        assert_eq!((words.count, words.deadline()), (0, None));
    }

    #[test]
    fn nothing_wakes_anyone_for_words_that_are_said() {
        let (mut words, mut now) = (Words::default(), Instant::now());
        say(&mut words, WORDS_MAX, &mut now);
        assert!(words.must_be_saved(true, now));
        words.are_said();
        assert_eq!((words.count, words.deadline()), (WORDS_MAX, None));
    }
}
