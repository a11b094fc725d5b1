//! What a command does with dead letters: each of its queues is passed through once. What a letter
//! holds is in `found.rs`, how a queue is passed through in `pass.rs`.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;

use super::super::error::RabbitMqError;
use super::super::publisher::{Parcel, Verdict};
use super::super::topology::{self, Topology};
use super::clerk::{Clerk, refusal};
use super::error::DeskError;
use super::found::{Found, Home, Item, Read, Reader};
use super::pass::{Pass, lock_name};
use crate::config::model::Pool;
use crate::source::client::{DeadFilter, DeadLetter, DeadReply, Partial};
use crate::source::letter;

/// The most copies that wait for room in their queue, and the most bytes of those and of replies that
/// wait for their letters.
const FULL_MAX: usize = 4096;
const KEPT_BYTES_MAX: usize = 64 << 20;

/// How long a letter may be on its way after its reply: the queue may have had no room meanwhile.
const ORPHAN_AFTER_MS: i64 = 60 * 60 * 1000;

/// The queues of dead letters of all pools, each once.
fn homes(pools: &[Arc<Pool>]) -> Vec<Home> {
    let mut homes: BTreeMap<String, Home> = BTreeMap::new();
    for pool in pools {
        let Some(wanted) = Topology::of(pool).dead else {
            continue;
        };
        let theirs = (pool.name.clone(), pool.queue.to_string());
        let home = homes.entry(wanted.name.clone()).or_insert_with(|| Home {
            queue: wanted.name,
            pool: Some(theirs.clone()),
        });
        if home.pool.as_ref() != Some(&theirs) {
            home.pool = None;
        }
    }
    homes.into_values().collect()
}

impl Clerk {
    /// Reads the letters that are meant.
    pub(super) async fn dead_list(
        &mut self,
        filter: &DeadFilter,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, RabbitMqError> {
        let mut list = List {
            filter,
            limit,
            letters: Vec::new(),
            replies: HashMap::new(),
        };
        let mut tally = Tally::default();
        for home in homes(&self.pools) {
            let judge = &mut |item: Item| list.take(item);
            self.pass(home, &mut tally, judge, false).await?;
        }
        if let Some(error) = tally.trouble {
            // One that could not be put back comes back by itself, and is counted: who looks on and on
            // would lose it.
            return Err(error.into());
        }
        letter::join(&mut list.letters, list.replies);
        Ok(list.letters)
    }

    /// Drops the letters that are meant. With all of them goes what is left of others: replies
    /// whose letter was never stored, once they are so old that it can't be on its way.
    pub(super) async fn dead_drop(&mut self, filter: &DeadFilter) -> Result<usize, Partial> {
        let everything = *filter == DeadFilter::default();
        let judge = &mut |item: Item| match item {
            Item::Letter(found) if filter.fits(&found.letter) => Fate::Goes,
            Item::Letter(_) | Item::Reply(..) => Fate::Stays,
        };
        self.change(judge, everything).await
    }

    /// Sends the letters that are meant back to their queues.
    pub(super) async fn dead_retry(
        &mut self,
        filter: &DeadFilter,
        edit: Option<&Bytes>,
    ) -> Result<usize, Partial> {
        let frame_max = self.frame_max();
        let judge = &mut |item: Item| match item {
            Item::Letter(found) if filter.fits(&found.letter) => way_back(&found, edit, frame_max),
            Item::Letter(_) | Item::Reply(..) => Fate::Stays,
        };
        self.change(judge, false).await
    }

    async fn change(
        &mut self,
        judge: &mut impl FnMut(Item) -> Fate,
        orphans_go: bool,
    ) -> Result<usize, Partial> {
        let mut tally = Tally::default();
        let mut result = Ok(());
        for home in homes(&self.pools) {
            if result.is_ok() {
                result = self.pass(home, &mut tally, judge, orphans_go).await;
            }
        }
        let trouble = tally.trouble.map_or(Ok(()), |error| Err(error.into()));
        match result.and(trouble) {
            Ok(()) => Ok(tally.done),
            Err(error) => Err(Partial {
                done: tally.done,
                fault: error.into(),
            }),
        }
    }

    /// Passes through one queue.
    async fn pass(
        &mut self,
        home: Home,
        tally: &mut Tally,
        judge: &mut impl FnMut(Item) -> Fate,
        orphans_go: bool,
    ) -> Result<(), RabbitMqError> {
        let broker = Rc::clone(&self.broker);
        if topology::count(&broker, &home.queue).await?.is_none() {
            return Ok(());
        }
        // Nothing is taken that could not be put back: it would come back, and be counted. Nor is the
        // lock, which would stay for as long as the broker does not listen.
        if let Err(error) = self.can_publish(lock_name(&home.queue)).await {
            self.leave_publisher();
            let (queue, why) = (home.queue, error.to_string());
            return Err(DeskError::NoWayIn { queue, why }.into());
        }
        let Some(pass) = Pass::begin(&broker, &home.queue).await? else {
            return Ok(());
        };
        let mut round = Round {
            clerk: self,
            pass,
            met: HashMap::new(),
            replies: HashMap::new(),
            gone: HashSet::new(),
            flights: BTreeMap::new(),
            full: Vec::new(),
            done: (Vec::new(), 0),
            tally,
        };
        let went = round.go(home, judge, orphans_go).await;
        // What is not acknowledged comes back, whatever went wrong.
        let ended = match &went {
            Err(error) if is_silence(error) => Ok(()),
            Ok(()) | Err(_) => round.pass.end().await,
        };
        if went.is_err() {
            // A later command must not publish what this one has left.
            self.leave_publisher();
        }
        went.and(ended)
    }
}

fn way_back(found: &Found, edit: Option<&Bytes>, frame_max: u32) -> Fate {
    match found.back(edit, frame_max) {
        Ok(parcel) => Fate::GoesBack(Box::new(parcel)),
        Err(why) => Fate::IsStuck(DeskError::NoWayBack {
            id: found.letter.id.clone(),
            why,
        }),
    }
}

/// Whether the broker is deaf to us: then there is no end in order. The connection is cut, and what is
/// in hand comes back.
fn is_silence(error: &RabbitMqError) -> bool {
    let unconfirmed = |error: &DeskError| matches!(error, DeskError::Unconfirmed { .. });
    match error {
        RabbitMqError::Desk(error) => unconfirmed(error),
        RabbitMqError::Silent { .. } => true,
        _ => false,
    }
}

/// Whether a reply without its letter, by whose id it is named, stays without it.
fn is_orphan(id: &str, now_ms: i64) -> bool {
    let age = letter::written_ms(id).map(|written| now_ms.saturating_sub(written));
    age.is_none_or(|age| age >= ORPHAN_AFTER_MS)
}

/// What becomes of a letter.
#[derive(Debug)]
enum Fate {
    Stays,
    Goes,
    GoesBack(Box<Parcel>),
    /// It should go back and can't.
    IsStuck(DeskError),
}

/// How many were changed in all queues, and the first thing that went wrong with one of them. That
/// does not keep the others from being changed.
#[derive(Debug, Default)]
struct Tally {
    done: usize,
    trouble: Option<DeskError>,
}

/// The letters that are meant, as they come.
struct List<'a> {
    filter: &'a DeadFilter,
    limit: usize,
    letters: Vec<DeadLetter>,
    replies: HashMap<String, DeadReply>,
}

impl List<'_> {
    fn take(&mut self, item: Item) -> Fate {
        let room = self.letters.len() < self.limit;
        match item {
            Item::Letter(found) if room && self.filter.fits(&found.letter) => {
                self.letters.push(found.letter);
            }
            Item::Letter(found) => drop(self.replies.remove(&found.letter.id)),
            Item::Reply(id, reply) => {
                let listed = self.letters.iter().any(|letter| letter.id == id);
                if listed || room && self.filter.names(&id) {
                    self.replies.insert(id, reply);
                }
            }
        }
        Fate::Stays
    }
}

/// Messages in hand that are one and the same, and the copy that takes their place.
#[derive(Debug)]
struct Kept {
    tags: Vec<u64>,
    copy: Parcel,
}

/// Something is published before messages are taken out.
struct Flight {
    parcel: Rc<Parcel>,
    tags: Vec<u64>,
    /// Of a letter that goes back to its queue: what stays if it can't.
    instead: Vec<Kept>,
}

/// A pass, and what is done on it.
struct Round<'a> {
    clerk: &'a mut Clerk,
    pass: Pass<'a>,
    /// Each letter and each reply that was met, by its name, with its tag.
    met: HashMap<String, u64>,
    /// Replies whose letters are yet to come, by the ids of those.
    replies: HashMap<String, Kept>,
    /// Letters that went before their replies have come.
    gone: HashSet<String>,
    flights: BTreeMap<u64, Flight>,
    /// Copies that the queue had no room for.
    full: Vec<Flight>,
    /// What is to be taken out, and how many letters of that were meant to go.
    done: (Vec<u64>, usize),
    tally: &'a mut Tally,
}

impl Round<'_> {
    async fn go(
        &mut self,
        home: Home,
        judge: &mut impl FnMut(Item) -> Fate,
        orphans_go: bool,
    ) -> Result<(), RabbitMqError> {
        let (to, frame_max) = (self.pass.queue(), self.clerk.frame_max());
        let mut reader = Reader::new(home, to, frame_max, fastrand::u64(..));
        loop {
            let batch = self.pass.take().await?;
            let is_last = batch.is_empty();
            self.try_again().await?;
            for delivery in batch {
                let tag = delivery.delivery_tag;
                self.meet(tag, reader.read(delivery), judge).await?;
            }
            if is_last || self.bytes_kept() > KEPT_BYTES_MAX {
                self.leave_orphans(is_last && orphans_go).await?;
            }
            self.land().await?;
            if is_last || self.full.len() > FULL_MAX || self.bytes_kept() > KEPT_BYTES_MAX {
                return self.is_there_room();
            }
        }
    }

    async fn meet(
        &mut self,
        tag: u64,
        read: Read,
        judge: &mut impl FnMut(Item) -> Fate,
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
                if !self.is_twin(letter::reply_key(&id), tag).await? {
                    judge(item);
                    self.meet_reply(id, kept);
                }
                Ok(())
            }
            Item::Letter(found) => {
                let (id, awaits) = (found.letter.id.clone(), found.has_reply_apart);
                if self.is_twin(id.clone(), tag).await? {
                    return Ok(());
                }
                let fate = judge(item);
                let goes = matches!(fate, Fate::Goes | Fate::GoesBack(_));
                if goes && awaits && !self.replies.contains_key(&id) {
                    self.gone.insert(id.clone());
                }
                self.seal(&id, kept, fate).await
            }
        }
    }

    /// Whether this is a message that was met before: a command was killed between the copy and the
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

    /// Carries out what becomes of a letter, and of the reply that belongs to it.
    async fn seal(&mut self, id: &str, letter: Kept, fate: Fate) -> Result<(), RabbitMqError> {
        let reply = self.replies.remove(id);
        let all: Vec<Kept> = reply.into_iter().chain([letter]).collect();
        let tags = all.iter().flat_map(|kept| kept.tags.iter().copied());
        match fate {
            Fate::Goes => {
                self.done.0.extend(tags);
                self.done.1 += 1;
                return Ok(());
            }
            Fate::GoesBack(parcel) => {
                let tags = tags.collect();
                return self.launch(Rc::new(*parcel), tags, all).await;
            }
            Fate::IsStuck(error) => drop(self.tally.trouble.get_or_insert(error)),
            Fate::Stays => {}
        }
        for kept in all {
            self.stay(kept).await?;
        }
        Ok(())
    }

    /// Replies whose letters do not come.
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
        parcel: Rc<Parcel>,
        tags: Vec<u64>,
        instead: Vec<Kept>,
    ) -> Result<(), RabbitMqError> {
        let id = self.clerk.publisher().await?.send(Rc::clone(&parcel));
        let flight = Flight {
            parcel,
            tags,
            instead,
        };
        self.flights.insert(id, flight);
        Ok(())
    }

    /// What the queue had no room for may fit now that more is in hand.
    async fn try_again(&mut self) -> Result<(), RabbitMqError> {
        for Flight { parcel, tags, .. } in std::mem::take(&mut self.full) {
            self.launch(parcel, tags, Vec::new()).await?;
        }
        Ok(())
    }

    /// Waits for all that is in flight. A message leaves this queue only once its copy is safe.
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

    async fn landed(&mut self, flight: Flight, verdict: Verdict) -> Result<(), RabbitMqError> {
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

    /// What there was no room for comes back by itself, and is counted: not even to look would be
    /// safe for ever.
    fn is_there_room(&self) -> Result<(), RabbitMqError> {
        match self.full.first() {
            None => Ok(()),
            Some(flight) => Err(DeskError::NoRoom {
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
        let told = |age_ms| is_orphan(&letter::id(now_ms - age_ms, u128::MAX), now_ms);
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
