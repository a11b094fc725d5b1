//! A pass through a queue of dead letters, and the action on each message: it stays, goes, or goes
//! back to the queue that it came from. The decision is made elsewhere.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

use super::browse::Pass;
use super::connection::{Clerk, refusal};
use super::letter_index::Item;
use super::reader::{Home, Read, Reader};
use crate::broker::command_error::CommandError;
use crate::broker::error::RabbitMqError;
use crate::broker::publisher::{OutboundMessage, Verdict};
use ganger_queue::dead_letter;

/// Maximum number of copies that wait for room in their queue, and maximum number of bytes of those
/// and of replies that wait for their dead letters.
const FULL_MAX: usize = 4096;
pub(super) const KEPT_BYTES_MAX: usize = 64 << 20;

/// Time that a dead letter may come after its reply: the queue may have had no room meanwhile.
const ORPHAN_AFTER_MS: i64 = 60 * 60 * 1000;

/// A command's action on the messages of a pass.
pub(super) trait Errand {
    /// Decides the fate of a message.
    fn judge(&mut self, item: Item) -> DeadLetterFate;

    /// All messages so far, except for replies whose dead letters are still to come, are in their place.
    async fn landed(&mut self) {}
}

/// Returns whether a reply stays without its dead letter, whose id names it.
fn is_orphan(id: &str, now_ms: i64) -> bool {
    let age = dead_letter::written_ms(id).map(|written| now_ms.saturating_sub(written));
    age.is_none_or(|age| age >= ORPHAN_AFTER_MS)
}

/// Fate of a dead letter.
#[derive(Debug)]
pub(super) enum DeadLetterFate {
    Stays,
    Goes,
    GoesBack(Box<OutboundMessage>),
    /// It should go back and can't.
    IsStuck(CommandError),
}

/// Number of dead letters changed in all queues, and the first error with one of them. That does
/// not keep the others from being changed.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) done: usize,
    pub(super) trouble: Option<CommandError>,
}

/// Messages in hand that are the same one, and the copy that replaces them.
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
    instead: Vec<Kept>,
}

/// A pass, and its actions.
pub(super) struct Round<'a> {
    clerk: &'a mut Clerk,
    pass: Pass<'a>,
    /// Tags of all dead letters and replies seen, by their names.
    met: HashMap<String, u64>,
    /// Replies whose dead letters are still to come, by the ids of those.
    replies: HashMap<String, Kept>,
    /// Dead letters that went before their replies came.
    gone: HashSet<String>,
    flights: BTreeMap<u64, AwaitedCopy>,
    /// Copies that the queue had no room for.
    full: Vec<AwaitedCopy>,
    /// Tags of messages to remove, and how many dead letters of these were meant to go.
    done: (Vec<u64>, usize),
    tally: &'a mut Tally,
}

impl<'a> Round<'a> {
    /// Begins.
    pub(super) fn new(clerk: &'a mut Clerk, pass: Pass<'a>, tally: &'a mut Tally) -> Self {
        Self {
            clerk,
            pass,
            met: HashMap::new(),
            replies: HashMap::new(),
            gone: HashSet::new(),
            flights: BTreeMap::new(),
            full: Vec::new(),
            done: (Vec::new(), 0),
            tally,
        }
    }

    /// Passes through the whole queue.
    pub(super) async fn go(
        &mut self,
        home: Home,
        errand: &mut impl Errand,
        orphans_go: bool,
    ) -> Result<(), RabbitMqError> {
        let (to, key) = (self.pass.queue(), self.clerk.key.clone());
        let mut reader = Reader::new(home, to, key, self.clerk.frame_max(), fastrand::u64(..));
        loop {
            let batch = self.pass.take().await?;
            let is_last = batch.is_empty();
            self.try_again().await?;
            for delivery in batch {
                let tag = delivery.delivery_tag;
                self.meet(tag, reader.read(delivery), errand).await?;
            }
            if is_last || self.bytes_kept() > KEPT_BYTES_MAX {
                self.leave_orphans(is_last && orphans_go).await?;
            }
            self.land().await?;
            errand.landed().await;
            if is_last || self.full.len() > FULL_MAX || self.bytes_kept() > KEPT_BYTES_MAX {
                return self.is_there_room();
            }
        }
    }

    /// Ends the pass. Unacknowledged messages come back, whatever went wrong.
    pub(super) async fn end(self) -> Result<(), RabbitMqError> {
        self.pass.end().await
    }

    async fn meet(
        &mut self,
        tag: u64,
        read: Read,
        errand: &mut impl Errand,
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
            // Others have taken what was there: we have gone all the way round.
            self.pass.stop();
            return self.stay(kept).await;
        }
        match &item {
            Item::Reply(id, _) => {
                let id = id.clone();
                if !self.is_twin(dead_letter::reply_key(&id), tag).await? {
                    errand.judge(item);
                    self.meet_reply(id, kept);
                }
                Ok(())
            }
            Item::Letter(found) => {
                let (id, awaits) = (found.letter.id.clone(), found.has_reply_apart);
                if self.is_twin(id.clone(), tag).await? {
                    return Ok(());
                }
                let fate = errand.judge(item);
                let goes = matches!(fate, DeadLetterFate::Goes | DeadLetterFate::GoesBack(_));
                if goes && awaits && !self.replies.contains_key(&id) {
                    self.gone.insert(id.clone());
                }
                self.seal(&id, kept, fate).await
            }
        }
    }

    /// Returns whether this message was seen before: a command was killed between the copy and the
    /// acknowledgement. The second goes if the first is safe, or gone.
    async fn is_twin(&mut self, name: String, tag: u64) -> Result<bool, RabbitMqError> {
        let Some(first) = self.met.get(&name).copied() else {
            self.met.insert(name, tag);
            return Ok(false);
        };
        let is_first = |kept: &&mut Kept| kept.tags.contains(&first);
        if let Some(waiting) = self.replies.values_mut().find(is_first) {
            waiting.tags.push(tag);
            return Ok(true);
        }
        self.land().await?;
        if !self.pass.holds(first) {
            self.done.0.push(tag);
        }
        Ok(true)
    }

    fn meet_reply(&mut self, id: String, reply: Kept) {
        if self.gone.remove(&id) {
            self.done.0.extend(reply.tags);
        } else {
            self.replies.insert(id, reply);
        }
    }

    /// Applies the fate of a dead letter, and of the reply that belongs to it.
    async fn seal(
        &mut self,
        id: &str,
        letter: Kept,
        fate: DeadLetterFate,
    ) -> Result<(), RabbitMqError> {
        let reply = self.replies.remove(id);
        let all: Vec<Kept> = reply.into_iter().chain([letter]).collect();
        let tags = all.iter().flat_map(|kept| kept.tags.iter().copied());
        match fate {
            DeadLetterFate::Goes => {
                self.done.0.extend(tags);
                self.done.1 += 1;
                return Ok(());
            }
            DeadLetterFate::GoesBack(parcel) => {
                let tags = tags.collect();
                return self.launch(Rc::new(*parcel), tags, all).await;
            }
            DeadLetterFate::IsStuck(error) => drop(self.tally.trouble.get_or_insert(error)),
            DeadLetterFate::Stays => {}
        }
        for kept in all {
            self.stay(kept).await?;
        }
        Ok(())
    }

    /// Handles replies whose dead letters do not come.
    async fn leave_orphans(&mut self, they_go: bool) -> Result<(), RabbitMqError> {
        let now_ms = jiff::Timestamp::now().as_millisecond();
        for (id, orphan) in std::mem::take(&mut self.replies) {
            if they_go && is_orphan(&id, now_ms) {
                self.done.0.extend(orphan.tags);
            } else {
                self.stay(orphan).await?;
            }
        }
        Ok(())
    }

    async fn stay(&mut self, kept: Kept) -> Result<(), RabbitMqError> {
        self.launch(Rc::new(kept.copy), kept.tags, Vec::new()).await
    }

    async fn launch(
        &mut self,
        parcel: Rc<OutboundMessage>,
        tags: Vec<u64>,
        instead: Vec<Kept>,
    ) -> Result<(), RabbitMqError> {
        let id = self.clerk.publisher().await?.send(Rc::clone(&parcel));
        let flight = AwaitedCopy {
            parcel,
            tags,
            instead,
        };
        self.flights.insert(id, flight);
        Ok(())
    }

    /// Publishes again the copies that the queue had no room for; they may fit now that more is in hand.
    async fn try_again(&mut self) -> Result<(), RabbitMqError> {
        for AwaitedCopy { parcel, tags, .. } in std::mem::take(&mut self.full) {
            self.launch(parcel, tags, Vec::new()).await?;
        }
        Ok(())
    }

    /// Waits for all publications in flight. A message leaves this queue only once its copy is safe.
    async fn land(&mut self) -> Result<(), RabbitMqError> {
        let landed = self.land_all().await;
        let (tags, meant) = std::mem::take(&mut self.done);
        self.pass.ack(&tags)?;
        self.tally.done += meant;
        landed
    }

    async fn land_all(&mut self) -> Result<(), RabbitMqError> {
        while !self.flights.is_empty() {
            for (id, verdict) in self.clerk.verdicts().await? {
                if let Some(flight) = self.flights.remove(&id) {
                    self.landed(flight, verdict).await?;
                }
            }
        }
        Ok(())
    }

    async fn landed(&mut self, flight: AwaitedCopy, verdict: Verdict) -> Result<(), RabbitMqError> {
        let goes_back = !flight.instead.is_empty();
        let is_full = verdict == Verdict::NotNow;
        match refusal(&flight.parcel, verdict) {
            None => {
                self.done.0.extend(flight.tags);
                self.done.1 += usize::from(goes_back);
            }
            Some(_) if is_full && !goes_back => self.full.push(flight),
            // A copy that is refused for good stays in hand, and comes back.
            Some(error) => {
                self.tally.trouble.get_or_insert(error);
                for kept in flight.instead {
                    self.stay(kept).await?;
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

    /// Returns an error if there was no room for copies. Their messages come back by themselves,
    /// and that is counted: not even looking would be safe for ever.
    fn is_there_room(&self) -> Result<(), RabbitMqError> {
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
        // A clock elsewhere may be ahead of ours.
        for age_ms in [-5000, 0, ORPHAN_AFTER_MS - 1] {
            assert!(!told(age_ms), "{age_ms}");
        }
        assert!(told(ORPHAN_AFTER_MS));
        for id in ["", "7", "a name of others", "sum-0123456789abcdef-1"] {
            assert!(is_orphan(id, now_ms), "{id} is no id of ours");
        }
    }
}
