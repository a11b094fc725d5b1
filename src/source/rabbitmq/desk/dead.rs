//! What a command does with dead letters: each of its queues is passed through once. What a letter
//! holds is in `found.rs`, how a queue is passed through in `pass.rs`.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;

use super::super::error::RabbitMqError;
use super::super::publisher::Parcel;
use super::super::topology::{self, Topology, Wanted};
use super::clerk::{Clerk, refusal};
use super::error::DeskError;
use super::found::{Found, Home, Item, Read, Reader};
use super::pass::Pass;
use crate::config::model::Pool;
use crate::source::client::{DeadFilter, DeadLetter, DeadReply, Partial};
use crate::source::letter;

/// So many letters are on their way back at once.
const IN_FLIGHT_MAX: usize = 256;

/// A queue of dead letters.
#[derive(Debug)]
struct Place {
    wanted: Wanted,
    home: Home,
}

/// The queues of dead letters of all pools, each once.
fn places(pools: &[Arc<Pool>]) -> Vec<Place> {
    let mut places: BTreeMap<String, Place> = BTreeMap::new();
    for pool in pools {
        let Some(wanted) = Topology::of(pool).dead else {
            continue;
        };
        let theirs = (pool.name.clone(), pool.queue.to_string());
        let place = places.entry(wanted.name.clone()).or_insert_with(|| Place {
            home: Home {
                queue: wanted.name.clone(),
                pool: Some(theirs.clone()),
            },
            wanted,
        });
        if place.home.pool.as_ref() != Some(&theirs) {
            place.home.pool = None;
        }
    }
    places.into_values().collect()
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
        for place in places(&self.pools) {
            let judge = &mut |item: Item| list.take(item);
            self.pass(place, &mut tally, judge, false).await?;
        }
        letter::join(&mut list.letters, list.replies);
        Ok(list.letters)
    }

    /// Drops the letters that are meant. With all of them goes what is left of others: replies
    /// whose letter was never stored.
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
        for place in places(&self.pools) {
            if result.is_ok() {
                result = self.pass(place, &mut tally, judge, orphans_go).await;
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
        place: Place,
        tally: &mut Tally,
        judge: &mut impl FnMut(Item) -> Fate,
        orphans_go: bool,
    ) -> Result<(), RabbitMqError> {
        let broker = Rc::clone(&self.broker);
        let Some(pass) = Pass::begin(&broker, &place.wanted.name).await? else {
            return Ok(());
        };
        let mut round = Round {
            clerk: self,
            pass,
            wanted: place.wanted,
            limited: None,
            replies: HashMap::new(),
            gone: HashSet::new(),
            flights: HashMap::new(),
            tally,
        };
        let went = round.go(place.home, judge, orphans_go).await;
        // What is not acknowledged goes back, whatever went wrong.
        went.and(round.pass.end().await)
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

/// A reply that belongs to a letter yet to come.
struct Companion {
    tag: u64,
    fresh: Option<Parcel>,
}

/// Something is published before messages are taken out.
struct Flight {
    parcel: Rc<Parcel>,
    tags: Vec<u64>,
    /// It's a letter that goes back, and not one that only moves.
    counts: bool,
}

/// A pass, and what is done on it.
struct Round<'a> {
    clerk: &'a mut Clerk,
    pass: Pass<'a>,
    wanted: Wanted,
    /// Whether the broker may drop a letter that was handed out too often; none if nobody has
    /// asked yet.
    limited: Option<bool>,
    /// By the ids of their letters.
    replies: HashMap<String, Companion>,
    /// Letters that went before their replies have come.
    gone: HashSet<String>,
    flights: HashMap<u64, Flight>,
    tally: &'a mut Tally,
}

impl Round<'_> {
    async fn go(
        &mut self,
        home: Home,
        judge: &mut impl FnMut(Item) -> Fate,
        orphans_go: bool,
    ) -> Result<(), RabbitMqError> {
        let mut reader = Reader::new(home);
        while let Some(delivery) = self.pass.next().await? {
            let tag = delivery.delivery_tag;
            let Read { item, fresh } = reader.read(delivery);
            let fresh = self.if_needed(fresh).await?;
            match &item {
                Item::Reply(id, _) => {
                    let id = id.clone();
                    judge(item);
                    self.meet_reply(id, Companion { tag, fresh }).await?;
                }
                Item::Letter(found) => {
                    let id = found.letter.id.clone();
                    let awaited = found.has_reply_apart && !self.replies.contains_key(&id);
                    let fate = judge(item);
                    if awaited && matches!(fate, Fate::Goes | Fate::GoesBack(_)) {
                        self.gone.insert(id.clone());
                    }
                    self.seal(tag, &id, fate, fresh).await?;
                }
            }
            if self.flights.len() >= IN_FLIGHT_MAX {
                self.land().await?;
            }
        }
        for (_, Companion { tag, fresh }) in std::mem::take(&mut self.replies) {
            if orphans_go {
                self.pass.ack(tag).await?;
            } else if let Some(fresh) = fresh {
                self.launch(fresh, vec![tag], false).await?;
            }
        }
        self.land().await
    }

    /// The copy that takes a message's place, if the broker might drop it else.
    async fn if_needed(&mut self, fresh: Option<Parcel>) -> Result<Option<Parcel>, RabbitMqError> {
        if fresh.is_none() {
            return Ok(None);
        }
        let limited = match self.limited {
            Some(limited) => limited,
            None => !topology::is_as_wanted(&self.clerk.broker, &self.wanted).await?,
        };
        self.limited = Some(limited);
        Ok(fresh.filter(|_| limited))
    }

    async fn meet_reply(&mut self, id: String, reply: Companion) -> Result<(), RabbitMqError> {
        if self.gone.remove(&id) {
            return self.pass.ack(reply.tag).await;
        }
        self.replies.insert(id, reply);
        Ok(())
    }

    /// Carries out what becomes of a letter, and of the reply that belongs to it.
    async fn seal(
        &mut self,
        tag: u64,
        id: &str,
        fate: Fate,
        fresh: Option<Parcel>,
    ) -> Result<(), RabbitMqError> {
        let reply = self.replies.remove(id);
        let tags: Vec<u64> = reply.iter().map(|reply| reply.tag).chain([tag]).collect();
        match fate {
            Fate::Goes => {
                for tag in tags {
                    self.pass.ack(tag).await?;
                }
                self.tally.done += 1;
            }
            Fate::GoesBack(parcel) => self.launch(*parcel, tags, true).await?,
            Fate::Stays | Fate::IsStuck(_) => {
                if let Fate::IsStuck(error) = fate {
                    self.tally.trouble.get_or_insert(error);
                }
                if let Some((reply, fresh)) =
                    reply.and_then(|reply| Some((reply.tag, reply.fresh?)))
                {
                    self.launch(fresh, vec![reply], false).await?;
                }
                if let Some(fresh) = fresh {
                    self.launch(fresh, vec![tag], false).await?;
                }
            }
        }
        Ok(())
    }

    async fn launch(
        &mut self,
        parcel: Parcel,
        tags: Vec<u64>,
        counts: bool,
    ) -> Result<(), RabbitMqError> {
        let parcel = Rc::new(parcel);
        let id = self.clerk.publisher().await?.send(Rc::clone(&parcel));
        let flight = Flight {
            parcel,
            tags,
            counts,
        };
        self.flights.insert(id, flight);
        Ok(())
    }

    /// Waits for all that is in flight. A message leaves this queue only once its copy is safe.
    async fn land(&mut self) -> Result<(), RabbitMqError> {
        while !self.flights.is_empty() {
            for (id, verdict) in self.clerk.verdicts().await? {
                let Some(flight) = self.flights.remove(&id) else {
                    continue;
                };
                if let Some(error) = refusal(&flight.parcel, verdict) {
                    self.tally.trouble.get_or_insert(error);
                    continue;
                }
                for tag in flight.tags {
                    self.pass.ack(tag).await?;
                }
                self.tally.done += usize::from(flight.counts);
            }
        }
        Ok(())
    }
}
