//! Commands on dead letters. A topic of dead letters is read twice: once to find the live ones, and
//! then the selected ones, a few at a time unless they are to be listed.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use rdkafka::error::RDKafkaErrorCode as Code;

use super::KafkaClient;
use super::dead_letter_index::{
    Index, IndexEntry, RecordPosition, back, chunks, dead_letter_of, is_dead_letter, keeps_its_time,
};
use super::fetched_records::FetchedRecords;
use super::reader::{Reader, Span, Stored};
use super::send::refused;
use crate::broker::command_error::CommandError;
use crate::broker::error::{KafkaError, is_too_large};
use crate::broker::parts::Torn;
use crate::broker::record::Outbound;
use crate::broker::setup::Setup;
use crate::broker::{topic_requirements, topics};
use ganger_config::model::{Options, PoolConfig};
use ganger_queue::client::{
    DeadChange, DeadFilter, Each, Listed, Pace, Page, Partial, RetryTarget, Step,
};
use ganger_queue::dead_letter;
use ganger_queue::dead_letter::DeadLetter;

/// Maximum number of dead letters read, sent back or deleted at once.
const CHUNK: usize = 500;
/// Maximum size of them in bytes.
const CHUNK_BYTES: usize = 16 << 20;

/// Number of dead letters changed in all topics, and the first error with one of them. An error does not
/// prevent changes of the others.
#[derive(Debug, Default)]
struct Tally {
    done: usize,
    first_error: Option<KafkaError>,
}

impl Tally {
    fn note(&mut self, error: impl Into<KafkaError>) {
        self.first_error.get_or_insert_with(|| error.into());
    }

    fn result(self) -> Result<usize, Partial> {
        match self.first_error {
            None => Ok(self.done),
            Some(error) => Err(Partial {
                done: self.done,
                fault: error.into(),
            }),
        }
    }
}

/// An existing topic of dead letters and the live ones in it.
struct DeadLetterTopic {
    topic: String,
    /// Pools whose dead letters these are.
    pools: Vec<Arc<PoolConfig>>,
    reader: Reader,
    index: Index,
    /// Current or former place of the dead letter that was searched for.
    sought: Option<RecordPosition>,
}

impl DeadLetterTopic {
    /// Returns whether one of its pools reads a topic.
    fn is_read(&self, topic: &str) -> bool {
        self.pools.iter().any(|pool| match &pool.options {
            Options::Kafka(options) => options.topics.include(topic),
            Options::Table | Options::RabbitMq(_) => false,
        })
    }

    /// Reads the records of these dead letters.
    fn fetch(&self, entries: &[IndexEntry]) -> Result<FetchedRecords, KafkaError> {
        let wanted: BTreeSet<RecordPosition> =
            entries.iter().flat_map(IndexEntry::places).collect();
        let mut spans: BTreeMap<i32, Span> = BTreeMap::new();
        for at in &wanted {
            let (from, end) = (at.offset, at.offset + 1);
            let span = spans.entry(at.partition).or_insert(Span { from, end });
            span.from = span.from.min(from);
            span.end = span.end.max(end);
        }
        let mut fetched = FetchedRecords::default();
        self.reader.read(&self.topic, &spans, |stored| {
            if wanted.contains(&RecordPosition::of(&stored)) {
                fetched.put(stored);
            }
            ControlFlow::Continue(())
        })?;
        Ok(fetched)
    }

    /// Reads these dead letters, with their replies.
    fn dead_letters(&self, entries: &[IndexEntry]) -> Result<Vec<DeadLetter>, KafkaError> {
        let mut fetched = self.fetch(entries)?;
        let mut letters = Vec::with_capacity(entries.len());
        for entry in entries {
            let Some((stored, torn)) = fetched.take(&entry.at) else {
                continue;
            };
            let mut letter = dead_letter_of(&stored);
            if let Some(torn) = torn {
                letter.error = format!("{}; {torn}", letter.error);
            }
            let reply = entry.reply.and_then(|at| fetched.take(&at));
            match reply {
                Some((_, Some(torn))) => {
                    letter.error = format!("{}; of its reply: {torn}", letter.error);
                }
                Some((reply, None)) => {
                    let headers = super::headers::all_as_text(&reply.headers);
                    let body = reply.value.unwrap_or_default();
                    let read = dead_letter::read_separate_reply(&headers, &body);
                    letter.reply = read.map(|(_, reply)| reply);
                }
                None => {}
            }
            letters.push(letter);
        }
        Ok(letters)
    }
}

fn tombstone(topic: &str, key: Bytes) -> Outbound {
    Outbound {
        topic: topic.to_owned(),
        key: Some(key),
        ..Outbound::default()
    }
}

impl KafkaClient {
    /// Returns the existing topics of dead letters of all pools, each once with its pools.
    fn dead_topics(&mut self) -> Result<BTreeMap<String, Vec<Arc<PoolConfig>>>, KafkaError> {
        self.topics = topics::list(self.probe.native())?;
        let mut all: BTreeMap<String, Vec<Arc<PoolConfig>>> = BTreeMap::new();
        for pool in &self.pools {
            let wanted = Setup::new(&self.config, pool)?.plan.wanted;
            for topic in topic_requirements::dead(&self.config, &wanted, self.topics.keys()) {
                all.entry(topic).or_default().push(Arc::clone(pool));
            }
        }
        Ok(all)
    }

    /// Finds the live dead letters in a topic.
    fn look_into(
        &self,
        (topic, pools): (String, Vec<Arc<PoolConfig>>),
        filter: &DeadFilter,
        seek: Option<&str>,
    ) -> Result<DeadLetterTopic, KafkaError> {
        let reader = Reader::open(&self.config)?;
        let partitions = self.topics.get(&topic).copied().unwrap_or_default();
        let spans = reader.spans(&topic, partitions)?;
        let mut index = Index::default();
        let mut sought = None;
        reader.read(&topic, &spans, |stored| {
            if seek.is_some_and(|id| is_dead_letter(&stored, id)) {
                sought = Some(RecordPosition::of(&stored));
            }
            index.take(&stored, filter);
            ControlFlow::Continue(())
        })?;
        Ok(DeadLetterTopic {
            topic,
            pools,
            reader,
            index,
            sought,
        })
    }

    /// Reads the selected dead letters.
    pub(super) fn list(&mut self, page: &Page, each: &mut Each<'_>) -> Result<Listed, KafkaError> {
        let mut seek = page.after.as_deref();
        let mut left = page.limit;
        for topic in self.dead_topics()? {
            let place = self.look_into(topic, &page.filter, seek)?;
            let mut entries = place.index.entries();
            match (seek, place.sought) {
                (None, _) => {}
                (Some(_), None) => continue,
                (Some(_), Some(sought)) => {
                    entries.retain(|entry| entry.at > sought);
                    seek = None;
                }
            }
            let here = entries.len().min(left);
            for chunk in chunks(&entries[..here], CHUNK, CHUNK_BYTES) {
                for letter in place.dead_letters(chunk)? {
                    if each(letter).is_break() {
                        return Ok(Listed::More);
                    }
                }
            }
            if here < entries.len() {
                return Ok(Listed::More);
            }
            left -= here;
        }
        Ok(seek.map_or(Listed::All, |_| Listed::Lost))
    }

    /// Deletes the selected dead letters. Replies and parts whose dead letter was never stored stay.
    pub(super) fn drop_selected(&mut self, filter: &DeadFilter) -> Result<usize, Partial> {
        let mut tally = Tally::default();
        for topic in self.dead_topics()? {
            let place = match self.look_into(topic, filter, None) {
                Ok(place) => place,
                Err(error) => {
                    tally.note(error);
                    continue;
                }
            };
            for chunk in place.index.entries().chunks(CHUNK) {
                self.end(&place, chunk, &mut tally);
            }
        }
        tally.result()
    }

    /// Sends the selected dead letters back to their topics, or to the given one.
    pub(super) fn retry(
        &mut self,
        filter: &DeadFilter,
        target: &RetryTarget,
    ) -> Result<usize, Partial> {
        let mut tally = Tally::default();
        for topic in self.dead_topics()? {
            let retried = self.look_into(topic, filter, None).and_then(|place| {
                for chunk in chunks(&place.index.entries(), CHUNK, CHUNK_BYTES) {
                    self.send_back(&place, chunk, target, &mut tally)?;
                }
                Ok(())
            });
            if let Err(error) = retried {
                tally.note(error);
            }
        }
        tally.result()
    }

    /// Changes the selected dead letters that meet the criteria, some at a time.
    pub(super) fn change_in_steps(
        &mut self,
        filter: &DeadFilter,
        change: DeadChange,
        pace: &mut Pace<'_>,
    ) -> Result<(), Partial> {
        let mut last = Step::default();
        for topic in self.dead_topics()? {
            let place = self.look_into(topic, filter, None)?;
            let entries = place.index.entries();
            let mut rest = &entries[..];
            while !rest.is_empty() {
                let Some(most) = pace(std::mem::take(&mut last)) else {
                    return Ok(());
                };
                let next = &rest[..rest.len().min(most.max(1))];
                let next = chunks(next, CHUNK, CHUNK_BYTES)
                    .first()
                    .map_or(0, |next| next.len());
                let (some, later) = rest.split_at(next);
                last = self.step(&place, some, filter, change)?;
                rest = later;
            }
        }
        // Nothing follows.
        pace(last);
        Ok(())
    }

    /// Changes those of some dead letters that meet the criteria.
    fn step(
        &mut self,
        place: &DeadLetterTopic,
        entries: &[IndexEntry],
        filter: &DeadFilter,
        change: DeadChange,
    ) -> Result<Step, Partial> {
        let mut fetched = place.fetch(entries)?;
        let mut fitting = entries.to_vec();
        fitting.retain(|entry| {
            let stored = fetched.take(&entry.at);
            stored.is_some_and(|(stored, _)| filter.matches(&dead_letter_of(&stored)))
        });
        let mut tally = Tally::default();
        match change {
            DeadChange::Drop => self.end(place, &fitting, &mut tally),
            DeadChange::Retry => {
                let target = RetryTarget::default();
                let sent = self.send_back(place, &fitting, &target, &mut tally);
                if let Err(error) = sent {
                    tally.note(error);
                }
            }
        }
        match tally.first_error {
            Some(error) if !error.is_of_one_message() => Err(Partial {
                done: tally.done,
                fault: error.into(),
            }),
            error => Ok(Step {
                changed: tally.done,
                failed: error.as_ref().map_or(0, |_| fitting.len() - tally.done),
                error: error.map(|error| error.to_string()),
                ..Step::default()
            }),
        }
    }

    /// Sends some dead letters back, and deletes those whose messages have arrived.
    fn send_back(
        &mut self,
        place: &DeadLetterTopic,
        entries: &[IndexEntry],
        target: &RetryTarget,
        tally: &mut Tally,
    ) -> Result<(), KafkaError> {
        let mut fetched = place.fetch(entries)?;
        let (mut going, mut records) = (Vec::new(), Vec::new());
        for entry in entries {
            // A missing one was deleted by another client.
            let Some((stored, torn)) = fetched.take(&entry.at) else {
                continue;
            };
            let back = sound(entry, &stored, torn)
                .and_then(|()| back(&stored, target, |topic| place.is_read(topic)));
            match back {
                Ok(record) => {
                    records.push(self.timed(record));
                    going.push(entry.clone());
                }
                Err(error) => tally.note(error),
            }
        }
        let arrived = self.send_all(records, tally);
        let going: Vec<IndexEntry> = going
            .into_iter()
            .zip(arrived)
            .filter_map(|(entry, arrived)| arrived.then_some(entry))
            .collect();
        self.end(place, &going, tally);
        Ok(())
    }

    /// Deletes dead letters and counts them. The records that belong to one are deleted after it, so
    /// that no dead letter is left without them.
    fn end(&mut self, place: &DeadLetterTopic, entries: &[IndexEntry], tally: &mut Tally) {
        let (mut ends, mut ending) = (Vec::new(), Vec::new());
        for entry in entries {
            let Some(key) = &entry.key else {
                let (partition, offset) = (entry.at.partition, entry.at.offset);
                let id = format!("at-{partition}-{offset}");
                tally.note(CommandError::Keyless { id });
                continue;
            };
            ends.push(tombstone(&place.topic, key.clone()));
            ending.push(entry);
        }
        let ended = self.send_all(ends, tally).into_iter().zip(ending);
        let ended: Vec<&IndexEntry> = ended
            .filter_map(|(ended, entry)| ended.then_some(entry))
            .collect();
        tally.done += ended.len();
        let belongings = ended.into_iter().flat_map(IndexEntry::belongings);
        let ends = belongings.map(|key| tombstone(&place.topic, key)).collect();
        self.send_all(ends, tally);
    }

    /// Sends all records and returns for each whether it is confirmed.
    fn send_all(&mut self, records: Vec<Outbound>, tally: &mut Tally) -> Vec<bool> {
        let mut untimed: Vec<Outbound> = records
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
            let sent = match self.send_records(records) {
                Ok(sent) => sent,
                Err(error) => {
                    tally.note(error);
                    return safe;
                }
            };
            for (index, result) in indices.into_iter().zip(sent.results) {
                match result {
                    Some(Ok(())) => safe[index] = true,
                    // Rejected by its topic as too old: a new timestamp is better than no delivery.
                    Some(Err(Code::InvalidTimestamp)) => {
                        open.push((index, untimed[index].clone()));
                    }
                    // The message may have been compressed when it was received.
                    Some(Err(code)) if is_too_large(code) && !untimed[index].compressed => {
                        untimed[index].compressed = true;
                        open.push((index, untimed[index].clone()));
                    }
                    Some(Err(code)) => tally.note(refused(untimed[index].topic.clone(), code)),
                    None => {}
                }
            }
            if let Some(error) = sent.stalled {
                tally.note(error);
                return safe;
            }
        }
        safe
    }

    /// Removes the timestamp of a message that would soon exceed its topic's retention.
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

/// Checks that a dead letter is complete and that it can be deleted; otherwise it would be sent again and
/// again.
fn sound(entry: &IndexEntry, stored: &Stored, torn: Option<Torn>) -> Result<(), CommandError> {
    match (&entry.key, torn) {
        (Some(_), None) => Ok(()),
        (Some(_), Some(torn)) => Err(CommandError::Torn {
            id: dead_letter_of(stored).id,
            torn,
        }),
        (None, _) => Err(CommandError::Keyless {
            id: dead_letter_of(stored).id,
        }),
    }
}
