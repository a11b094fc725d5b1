//! A pass through a queue of dead letters, and the action on each message: it stays, is removed, or is sent
//! back to its original queue. The decision is made elsewhere.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::ControlFlow;
use std::rc::Rc;

use super::browse::Pass;
use super::connection::{CommandConnection, refusal};
use super::dead_letter_index::Item;
use super::reader::{DeadLetterQueue, Read, Reader};
use crate::broker::command_error::CommandError;
use crate::broker::error::RabbitMqError;
use crate::broker::publisher::{OutboundMessage, Verdict};
use ganger_queue::dead_letter;

/// Maximum number of copies that wait for room in their queue, and maximum number of bytes of those
/// and of replies that wait for their dead letters.
const FULL_MAX: usize = 4096;
pub(super) const KEPT_BYTES_MAX: usize = 64 << 20;

/// Maximum time by which a dead letter may follow its reply: the queue may have had no room meanwhile.
const ORPHAN_AFTER_MS: i64 = 60 * 60 * 1000;

/// A command's action on the messages of a pass.
pub(super) trait DeadLetterAction {
    /// Decides on a message.
    fn judge(&mut self, item: Item) -> DeadLetterFate;

    /// Returns the maximum number of messages to take at once.
    fn take_max(&self) -> u64 {
        u64::MAX
    }

    /// All messages so far, except for replies whose dead letters are still expected, are in their place. Returns
    /// whether the pass goes on; the queue stays rotated if it does not.
    async fn batch_done(&mut self, _tally: &Tally) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// Returns whether a reply counts as an orphan: it is so old that its dead letter, whose id it has, will not
/// follow.
fn is_orphan(id: &str, now_ms: i64) -> bool {
    let age = dead_letter::written_ms(id).map(|written| now_ms.saturating_sub(written));
    age.is_none_or(|age| age >= ORPHAN_AFTER_MS)
}

/// Action on a dead letter.
#[derive(Debug)]
pub(super) enum DeadLetterFate {
    Keep,
    Remove,
    SendBack(Box<OutboundMessage>),
    /// It should be sent back, but can't be.
    Undeliverable(CommandError),
}

/// Number of dead letters changed in all queues, and the first error with one of them. An error does not
/// prevent changes of the others.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) done: usize,
    /// Number of those that should have been changed and could not.
    pub(super) failed: usize,
    pub(super) first_error: Option<CommandError>,
}

/// Held messages that are the same one, and the copy that replaces them.
#[derive(Debug)]
struct Kept {
    tags: Vec<u64>,
    copy: OutboundMessage,
}

/// A publication that is awaited before messages are removed.
struct AwaitedCopy {
    parcel: Rc<OutboundMessage>,
    tags: Vec<u64>,
    /// For a dead letter that goes back to its queue: the copies that stay if it can't.
    fallback: Vec<Kept>,
}

/// A pass, and its actions.
pub(super) struct Rotation<'a> {
    connection: &'a mut CommandConnection,
    pass: Pass<'a>,
    /// Tags of all dead letters and replies seen, by their names.
    first_tags: HashMap<String, u64>,
    /// Replies whose dead letters are still expected, by the ids of those.
    replies: HashMap<String, Kept>,
    /// Dead letters that were removed before their replies arrived.
    gone: HashSet<String>,
    flights: BTreeMap<u64, AwaitedCopy>,
    /// Copies for which the queue had no room.
    full: Vec<AwaitedCopy>,
    /// Tags of messages to remove, and the number of dead letters among them that the command selected.
    done: (Vec<u64>, usize),
    tally: &'a mut Tally,
}

impl<'a> Rotation<'a> {
    /// Begins a rotation.
    pub(super) fn new(
        connection: &'a mut CommandConnection,
        pass: Pass<'a>,
        tally: &'a mut Tally,
    ) -> Self {
        Self {
            connection,
            pass,
            first_tags: HashMap::new(),
            replies: HashMap::new(),
            gone: HashSet::new(),
            flights: BTreeMap::new(),
            full: Vec::new(),
            done: (Vec::new(), 0),
            tally,
        }
    }

    /// Passes through the whole queue.
    pub(super) async fn run(
        &mut self,
        dead_queue: DeadLetterQueue,
        action: &mut impl DeadLetterAction,
        remove_orphans: bool,
    ) -> Result<(), RabbitMqError> {
        let (to, key) = (self.pass.queue(), self.connection.key.clone());
        let mut reader = Reader::new(
            dead_queue,
            to,
            key,
            self.connection.frame_max(),
            fastrand::u64(..),
        );
        loop {
            let batch = self.pass.take(action.take_max()).await?;
            let is_last = batch.is_empty();
            self.try_again().await?;
            for delivery in batch {
                let tag = delivery.delivery_tag;
                self.handle_message(tag, reader.read(delivery), action)
                    .await?;
            }
            if is_last || self.bytes_kept() > KEPT_BYTES_MAX {
                self.handle_orphans(is_last && remove_orphans).await?;
            }
            self.await_confirms().await?;
            let flow = action.batch_done(self.tally).await;
            if flow.is_break() {
                self.handle_orphans(false).await?;
                self.await_confirms().await?;
            }
            let is_last = is_last || flow.is_break();
            if is_last || self.full.len() > FULL_MAX || self.bytes_kept() > KEPT_BYTES_MAX {
                return self.check_room();
            }
        }
    }

    /// Ends the pass. Unacknowledged messages are redelivered, whatever failed.
    pub(super) async fn end(self) -> Result<(), RabbitMqError> {
        self.pass.end().await
    }

    async fn handle_message(
        &mut self,
        tag: u64,
        read: Read,
        action: &mut impl DeadLetterAction,
    ) -> Result<(), RabbitMqError> {
        let Read {
            item,
            copy,
            is_ours,
        } = read;
        let kept = Kept {
            tags: vec![tag],
            copy,
        };
        if is_ours {
            // Others have taken the remaining messages: the pass is complete.
            self.pass.stop();
            return self.keep(kept).await;
        }
        match &item {
            Item::Reply(id, _) => {
                let id = id.clone();
                if !self.is_duplicate(dead_letter::reply_key(&id), tag).await? {
                    action.judge(item);
                    self.handle_reply(id, kept);
                }
                Ok(())
            }
            Item::DeadLetter(found) => {
                let (id, awaits) = (found.letter.id.clone(), found.has_reply_apart);
                if self.is_duplicate(id.clone(), tag).await? {
                    return Ok(());
                }
                let fate = action.judge(item);
                let goes = matches!(fate, DeadLetterFate::Remove | DeadLetterFate::SendBack(_));
                if goes && awaits && !self.replies.contains_key(&id) {
                    self.gone.insert(id.clone());
                }
                self.apply_fate(&id, kept, fate).await
            }
        }
    }

    /// Returns whether this message was seen before: a command was killed between the copy and the
    /// acknowledgement. The second one is removed if the first is stored, or removed.
    async fn is_duplicate(&mut self, name: String, tag: u64) -> Result<bool, RabbitMqError> {
        let Some(first) = self.first_tags.get(&name).copied() else {
            self.first_tags.insert(name, tag);
            return Ok(false);
        };
        let is_first = |kept: &&mut Kept| kept.tags.contains(&first);
        if let Some(waiting) = self.replies.values_mut().find(is_first) {
            waiting.tags.push(tag);
            return Ok(true);
        }
        self.await_confirms().await?;
        if !self.pass.holds(first) {
            self.done.0.push(tag);
        }
        Ok(true)
    }

    fn handle_reply(&mut self, id: String, reply: Kept) {
        if self.gone.remove(&id) {
            self.done.0.extend(reply.tags);
        } else {
            self.replies.insert(id, reply);
        }
    }

    /// Applies the action to a dead letter, and to the reply that belongs to it.
    async fn apply_fate(
        &mut self,
        id: &str,
        letter: Kept,
        fate: DeadLetterFate,
    ) -> Result<(), RabbitMqError> {
        let reply = self.replies.remove(id);
        let all: Vec<Kept> = reply.into_iter().chain([letter]).collect();
        let tags = all.iter().flat_map(|kept| kept.tags.iter().copied());
        match fate {
            DeadLetterFate::Remove => {
                self.done.0.extend(tags);
                self.done.1 += 1;
                return Ok(());
            }
            DeadLetterFate::SendBack(parcel) => {
                let tags = tags.collect();
                return self.publish(Rc::new(*parcel), tags, all).await;
            }
            DeadLetterFate::Undeliverable(error) => {
                self.tally.failed += 1;
                self.tally.first_error.get_or_insert(error);
            }
            DeadLetterFate::Keep => {}
        }
        for kept in all {
            self.keep(kept).await?;
        }
        Ok(())
    }

    /// Handles replies whose dead letters do not arrive.
    async fn handle_orphans(&mut self, remove: bool) -> Result<(), RabbitMqError> {
        let now_ms = jiff::Timestamp::now().as_millisecond();
        for (id, orphan) in std::mem::take(&mut self.replies) {
            if remove && is_orphan(&id, now_ms) {
                self.done.0.extend(orphan.tags);
            } else {
                self.keep(orphan).await?;
            }
        }
        Ok(())
    }

    async fn keep(&mut self, kept: Kept) -> Result<(), RabbitMqError> {
        self.publish(Rc::new(kept.copy), kept.tags, Vec::new())
            .await
    }

    async fn publish(
        &mut self,
        parcel: Rc<OutboundMessage>,
        tags: Vec<u64>,
        fallback: Vec<Kept>,
    ) -> Result<(), RabbitMqError> {
        let id = self.connection.publisher().await?.send(Rc::clone(&parcel));
        let flight = AwaitedCopy {
            parcel,
            tags,
            fallback,
        };
        self.flights.insert(id, flight);
        Ok(())
    }

    /// Publishes again the copies for which the queue had no room; they may fit now that more messages are
    /// held.
    async fn try_again(&mut self) -> Result<(), RabbitMqError> {
        for AwaitedCopy { parcel, tags, .. } in std::mem::take(&mut self.full) {
            self.publish(parcel, tags, Vec::new()).await?;
        }
        Ok(())
    }

    /// Waits for all publications in flight. A message is removed from this queue only once its copy is
    /// stored.
    async fn await_confirms(&mut self) -> Result<(), RabbitMqError> {
        let confirmed = self.await_all_confirms().await;
        let (tags, meant) = std::mem::take(&mut self.done);
        self.pass.ack(&tags)?;
        self.tally.done += meant;
        confirmed
    }

    async fn await_all_confirms(&mut self) -> Result<(), RabbitMqError> {
        while !self.flights.is_empty() {
            for (id, verdict) in self.connection.verdicts().await? {
                if let Some(flight) = self.flights.remove(&id) {
                    self.handle_verdict(flight, verdict).await?;
                }
            }
        }
        Ok(())
    }

    async fn handle_verdict(
        &mut self,
        flight: AwaitedCopy,
        verdict: Verdict,
    ) -> Result<(), RabbitMqError> {
        let goes_back = !flight.fallback.is_empty();
        let is_full = verdict == Verdict::NotNow;
        match refusal(&flight.parcel, verdict) {
            None => {
                self.done.0.extend(flight.tags);
                self.done.1 += usize::from(goes_back);
            }
            Some(_) if is_full && !goes_back => self.full.push(flight),
            // A copy that is permanently rejected stays held, and is redelivered.
            Some(error) => {
                self.tally.failed += usize::from(goes_back);
                self.tally.first_error.get_or_insert(error);
                for kept in flight.fallback {
                    self.keep(kept).await?;
                }
            }
        }
        Ok(())
    }

    fn bytes_kept(&self) -> usize {
        let full = self.full.iter().map(|flight| flight.parcel.body.len());
        let replies = self.replies.values().map(|kept| kept.copy.body.len());
        full.chain(replies).sum()
    }

    /// Returns an error if there was no room for copies. Their messages are redelivered, and that is counted:
    /// even listing would not be safe for ever.
    fn check_room(&self) -> Result<(), RabbitMqError> {
        match self.full.first() {
            None => Ok(()),
            Some(flight) => Err(CommandError::NoRoom {
                queue: flight.parcel.to.to_string(),
                count: self.full.len(),
            }
            .into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_an_orphan_when_its_letter_can_not_be_on_its_way() {
        let now_ms = 1_790_000_000_000;
        let told = |age_ms| is_orphan(&dead_letter::id(now_ms - age_ms, u128::MAX), now_ms);
        // The clock of another machine may be ahead.
        for age_ms in [-5000, 0, ORPHAN_AFTER_MS - 1] {
            assert!(!told(age_ms), "{age_ms}");
        }
        assert!(told(ORPHAN_AFTER_MS));
        for id in ["", "7", "a name of others", "sum-0123456789abcdef-1"] {
            assert!(is_orphan(id, now_ms), "{id} is no id of ours");
        }
    }
}
