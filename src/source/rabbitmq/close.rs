//! The end of a connection: our last words to the broker, the close in order, and what is left of a
//! connection that is lost.

use std::rc::Rc;
use std::time::Duration;

use lapin::options::QueueDeclareOptions;
use lapin::types::FieldTable;
use tokio::time::{Instant, sleep_until, timeout};

use super::Task;
use super::held::{Held, HeldState};
use super::outbox::JobSubject;
use super::session::Session;
use super::survived::Fingerprint;
use crate::broker::rabbitmq::connect::close;
use crate::broker::rabbitmq::error::RabbitMqError;
use crate::broker::rabbitmq::words::{TAKEN_IN, WORDS_MAX};

/// How long the broker may take to say that it has read our last words.
const SETTLE_WITHIN: Duration = Duration::from_secs(5);

/// What we have written to the queue that it may not have taken in.
#[derive(Debug, Default)]
pub(super) struct Words {
    count: usize,
    /// When it has taken in the last of them.
    taken_in: Option<Instant>,
    /// Until when nothing more is said, if it must be saved.
    pause: Option<Instant>,
}

impl Words {
    /// So many acknowledgements or returns are written.
    pub(super) fn say(&mut self, count: usize, now: Instant) {
        if count > 0 {
            self.count += count;
            self.taken_in = Some(now + TAKEN_IN);
        }
    }

    /// Something was asked behind them, and the answer comes after they are taken in.
    pub(super) fn begin_anew(&mut self) {
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
    pub(super) fn are_said(&mut self) {
        self.pause = None;
    }

    /// When what is saved may be said.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.pause
    }
}

impl Session {
    /// Whether acknowledgements wait at the end, so that one word does for all that is still out: a
    /// channel that has had too many keeps back the rest, and nothing tells when it has not.
    pub(super) fn must_save_words(&mut self, task: &Task, now: Instant) -> bool {
        let more_to_come = task.out > 0 || !self.outbox.is_empty();
        self.words.must_be_saved(self.closing && more_to_come, now)
    }

    /// Waits until the broker has read all that we have written, and its queue has had time for it:
    /// it may forget what was written just before a channel is closed. Nothing is taken from the
    /// queue for that: it would be counted when it goes back, and a queue with a single active
    /// consumer refuses it and ends the channel.
    pub(super) async fn last_words(&mut self) -> Result<(), RabbitMqError> {
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
        let queue = self.consumers.queue();
        let asked = self
            .channel
            .queue_declare(queue, options, FieldTable::default());
        match timeout(SETTLE_WITHIN, asked).await {
            Ok(Ok(_)) => {}
            // The queue may be gone, and the broker has read everything all the same.
            Ok(Err(error)) if error.is_amqp_soft_error() => {}
            Ok(Err(error)) => return Err(RabbitMqError::lost(&error)),
            Err(_) => tracing::warn!(
                pool = self.pool.name,
                "the broker did not confirm within {SETTLE_WITHIN:?} that it has read the last \
                 acknowledgements; some messages may run twice"
            ),
        }
        Ok(())
    }

    /// Ends the connection in order.
    pub(super) async fn close(self) {
        let Self {
            broker,
            channel,
            consumers,
            outbox,
            events,
            checking,
            ..
        } = self;
        drop((consumers, events, checking));
        close(&channel).await;
        drop(channel);
        outbox.publisher.close().await;
        if let Some(broker) = Rc::into_inner(broker) {
            broker.close().await;
        }
    }

    /// What the messages in hand look like.
    pub(super) fn fingerprints(&self) -> impl Iterator<Item = Fingerprint> {
        let held = self.ledger.iter();
        held.map(|(_, held)| Fingerprint::of(&held.original, &held.body))
    }

    /// The connection is lost. Returns how many messages were settled without the broker knowing.
    pub(super) fn abandon(self) -> u64 {
        let left = |held: &Held| matches!(held.place, HeldState::Leaving | HeldState::Aside);
        let leaving = self.ledger.iter().filter(|(_, held)| left(held)).count();
        for job in self.outbox.jobs.into_values().chain(self.outbox.waiting) {
            if let JobSubject::Emit { confirmed, queue } = job.subject {
                super::confirm(confirmed, &queue, Err("the connection is lost".into()));
            }
        }
        u64::try_from(leaving + self.ledger.settled()).unwrap_or(u64::MAX)
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
