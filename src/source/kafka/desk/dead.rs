//! What a command does with dead letters. A topic of them is read twice: once to learn which are
//! alive, and then those that are meant, a few at a time where they are not to be listed.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bytes::Bytes;
use jiff::Timestamp;
use rdkafka::error::RDKafkaErrorCode as Code;

use super::super::error::KafkaError;
use super::super::record::Outbound;
use super::super::setup::Setup;
use super::super::topics;
use super::letters::{At, Entry, Index, back, keeps_its_time, letter_of};
use super::post::refused;
use super::reader::{Reader, Span, Stored};
use super::{Desk, DeskError};
use crate::source::client::{DeadFilter, DeadLetter, Partial};
use crate::source::letter;

/// So many letters are sent back, or ended, at once.
const CHUNK: usize = 500;

/// How many were changed in all topics, and the first thing that went wrong with one of them. That
/// does not keep the others from being changed.
#[derive(Debug, Default)]
struct Tally {
    done: usize,
    trouble: Option<KafkaError>,
}

impl Tally {
    fn note(&mut self, error: impl Into<KafkaError>) {
        self.trouble.get_or_insert_with(|| error.into());
    }

    fn result(self) -> Result<usize, Partial> {
        match self.trouble {
            None => Ok(self.done),
            Some(error) => Err(Partial {
                done: self.done,
                fault: error.into(),
            }),
        }
    }
}

/// A topic of dead letters that is there, and what is alive in it.
struct Place {
    topic: String,
    reader: Reader,
    index: Index,
}

impl Place {
    /// The records at these places.
    fn fetch(&self, places: &[At]) -> Result<HashMap<At, Stored>, KafkaError> {
        let wanted: BTreeSet<&At> = places.iter().collect();
        let mut spans: BTreeMap<i32, Span> = BTreeMap::new();
        for at in places {
            let (from, end) = (at.offset, at.offset + 1);
            let span = spans.entry(at.partition).or_insert(Span { from, end });
            span.from = span.from.min(from);
            span.end = span.end.max(end);
        }
        let mut found = HashMap::with_capacity(places.len());
        self.reader.read(&self.topic, &spans, |stored| {
            let at = At::of(&stored);
            if wanted.contains(&at) {
                found.insert(at, stored);
            }
        })?;
        Ok(found)
    }

    /// The letters at these places, with the replies that belong to them.
    fn letters(&self, entries: &[Entry]) -> Result<Vec<DeadLetter>, KafkaError> {
        let places = entries
            .iter()
            .flat_map(|entry| [Some(entry.at), entry.reply]);
        let places: Vec<At> = places.flatten().collect();
        let mut found = self.fetch(&places)?;
        let mut letters = Vec::with_capacity(entries.len());
        let mut replies = HashMap::new();
        for entry in entries {
            if let Some(reply) = entry.reply.and_then(|at| found.remove(&at)) {
                let headers = super::headers::all_as_text(&reply.headers);
                replies.extend(letter::read_apart(
                    &headers,
                    &reply.value.unwrap_or_default(),
                ));
            }
            letters.extend(found.remove(&entry.at).map(|stored| letter_of(&stored)));
        }
        letter::join(&mut letters, replies);
        Ok(letters)
    }

    /// What ends a letter, and the reply that belongs to it.
    fn tombstones(&self, entry: &Entry) -> Vec<Outbound> {
        let Some(key) = &entry.key else {
            return Vec::new();
        };
        let id = std::str::from_utf8(key).unwrap_or_default();
        let reply = entry.reply.map(|_| Bytes::from(letter::reply_key(id)));
        let keys = reply.into_iter().chain([key.clone()]);
        keys.map(|key| tombstone(&self.topic, key)).collect()
    }
}

fn tombstone(topic: &str, key: Bytes) -> Outbound {
    Outbound {
        topic: topic.to_owned(),
        key: Some(key),
        ..Outbound::default()
    }
}

impl Desk {
    /// The topics of dead letters of all pools, each once, as far as they are there.
    fn dead_topics(&mut self) -> Result<BTreeSet<String>, KafkaError> {
        self.topics = topics::list(self.probe.native())?;
        let mut dead = BTreeSet::new();
        for pool in &self.pools {
            dead.insert(Setup::new(&self.config, pool)?.plan.dead);
        }
        dead.retain(|topic| self.topics.contains_key(topic));
        Ok(dead)
    }

    /// Learns which letters are alive in a topic.
    fn look_into(&self, topic: String, filter: &DeadFilter) -> Result<Place, KafkaError> {
        let reader = Reader::open(&self.config)?;
        let partitions = self.topics.get(&topic).copied().unwrap_or_default();
        let spans = reader.spans(&topic, partitions)?;
        let mut index = Index::default();
        reader.read(&topic, &spans, |stored| index.take(&stored, filter))?;
        Ok(Place {
            topic,
            reader,
            index,
        })
    }

    /// Reads the letters that are meant.
    pub(super) fn list(
        &mut self,
        filter: &DeadFilter,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, KafkaError> {
        let mut letters = Vec::new();
        for topic in self.dead_topics()? {
            let place = self.look_into(topic, filter)?;
            let mut entries = place.index.entries();
            entries.truncate(limit - letters.len());
            letters.extend(place.letters(&entries)?);
        }
        Ok(letters)
    }

    /// Drops the letters that are meant. With all of them goes what is left of others: replies
    /// whose letter was never stored.
    pub(super) fn bury(&mut self, filter: &DeadFilter) -> Result<usize, Partial> {
        let mut tally = Tally::default();
        for topic in self.dead_topics()? {
            let place = match self.look_into(topic, filter) {
                Ok(place) => place,
                Err(error) => {
                    tally.note(error);
                    continue;
                }
            };
            for chunk in place.index.entries().chunks(CHUNK) {
                self.end(&place, chunk, &mut tally);
            }
            if *filter == DeadFilter::default() {
                let keys = place.index.reply_ids().map(|id| letter::reply_key(id));
                let ends: Vec<_> = keys
                    .map(|key| tombstone(&place.topic, key.into()))
                    .collect();
                self.send_all(ends, &mut tally);
            }
        }
        tally.result()
    }

    /// Sends the letters that are meant back to their topics.
    pub(super) fn retry(
        &mut self,
        filter: &DeadFilter,
        edit: Option<&Bytes>,
    ) -> Result<usize, Partial> {
        let mut tally = Tally::default();
        for topic in self.dead_topics()? {
            let retried = self.look_into(topic, filter).and_then(|place| {
                for chunk in place.index.entries().chunks(CHUNK) {
                    self.send_back(&place, chunk, edit, &mut tally)?;
                }
                Ok(())
            });
            if let Err(error) = retried {
                tally.note(error);
            }
        }
        tally.result()
    }

    /// Sends a few back, and ends the letters of those that have arrived.
    fn send_back(
        &mut self,
        place: &Place,
        entries: &[Entry],
        edit: Option<&Bytes>,
        tally: &mut Tally,
    ) -> Result<(), KafkaError> {
        let places: Vec<At> = entries.iter().map(|entry| entry.at).collect();
        let found = place.fetch(&places)?;
        let (mut going, mut records) = (Vec::new(), Vec::new());
        for entry in entries {
            // One that is not there any more was dropped by someone else.
            let Some(stored) = found.get(&entry.at) else {
                continue;
            };
            match endable(entry, stored).and_then(|()| back(stored, edit)) {
                Ok(record) => {
                    records.push(self.timed(record));
                    going.push(entry.clone());
                }
                Err(error) => tally.note(error),
            }
        }
        let arrived = self.send_all(records, tally);
        let going: Vec<Entry> = going
            .into_iter()
            .zip(arrived)
            .filter_map(|(entry, arrived)| arrived.then_some(entry))
            .collect();
        self.end(place, &going, tally);
        Ok(())
    }

    /// Ends letters, and counts those that are ended.
    fn end(&mut self, place: &Place, entries: &[Entry], tally: &mut Tally) {
        let (mut ends, mut last) = (Vec::new(), Vec::new());
        for entry in entries {
            if entry.key.is_none() {
                let (partition, offset) = (entry.at.partition, entry.at.offset);
                let id = format!("at-{partition}-{offset}");
                tally.note(DeskError::Keyless { id });
                continue;
            }
            ends.extend(place.tombstones(entry));
            last.push(ends.len() - 1);
        }
        let ended = self.send_all(ends, tally);
        tally.done += last.iter().filter(|index| ended[**index]).count();
    }

    /// Sends all, and tells of each whether it is safe.
    fn send_all(&mut self, records: Vec<Outbound>, tally: &mut Tally) -> Vec<bool> {
        let untimed: Vec<Outbound> = records
            .iter()
            .map(|record| Outbound {
                timestamp_ms: None,
                ..record.clone()
            })
            .collect();
        let mut safe = vec![false; untimed.len()];
        let mut open: Vec<(usize, Outbound)> = records.into_iter().enumerate().collect();
        while !open.is_empty() {
            let (indices, records): (Vec<usize>, Vec<Outbound>) = open.drain(..).unzip();
            let posted = match self.post(records) {
                Ok(posted) => posted,
                Err(error) => {
                    tally.note(error);
                    return safe;
                }
            };
            for (index, result) in indices.into_iter().zip(posted.results) {
                match result {
                    Some(Ok(())) => safe[index] = true,
                    // Too old for its topic's taste: better with a new time than not at all.
                    Some(Err(Code::InvalidTimestamp)) => {
                        open.push((index, untimed[index].clone()));
                    }
                    Some(Err(code)) => tally.note(refused(untimed[index].topic.clone(), code)),
                    None => {}
                }
            }
            if let Some(error) = posted.stalled {
                tally.note(error);
                return safe;
            }
        }
        safe
    }

    /// Takes its own time from a message that would not live long with it.
    fn timed(&mut self, record: Outbound) -> Outbound {
        let Some(timestamp_ms) = record.timestamp_ms else {
            return record;
        };
        let retention_ms = match self.retentions.get(&record.topic) {
            Some(known) => *known,
            None => {
                let asked = topics::retention_ms(&self.config, &record.topic);
                self.runtime.block_on(asked)
            }
        };
        self.retentions.insert(record.topic.clone(), retention_ms);
        let age_ms = Timestamp::now().as_millisecond() - timestamp_ms;
        let timestamp_ms = keeps_its_time(age_ms, retention_ms).then_some(timestamp_ms);
        Outbound {
            timestamp_ms,
            ..record
        }
    }
}

/// A letter that can't be ended is not sent back: it would be sent again and again.
fn endable(entry: &Entry, stored: &Stored) -> Result<(), DeskError> {
    match entry.key {
        Some(_) => Ok(()),
        None => Err(DeskError::Keyless {
            id: letter_of(stored).id,
        }),
    }
}
