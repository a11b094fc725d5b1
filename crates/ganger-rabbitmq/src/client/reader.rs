//! Reading a queue of dead letters: the kind of each message, and the copy that keeps it there.
//! Pure.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use bytes::Bytes;
use lapin::BasicProperties;
use lapin::message::Delivery;
use lapin::types::ShortString;

use super::dead_letter_index::{Death, FoundDeadLetter, Item};
use crate::broker::publisher::OutboundMessage;
use crate::broker::republish::{
    HEAD_ROOM_BYTES, Original, Received, check_size, kept, moved, own_headers, unwrap,
};
use crate::broker::signature::CopyKey;
use ganger_queue::dead_letter;
use ganger_queue::dead_letter::{DeadLetter, header};
use ganger_queue::delivery::Headers;

/// One message of the queue, as it was read.
#[derive(Debug)]
pub(super) struct Read {
    /// Its kind and content.
    pub(super) item: Item,
    /// Copy that keeps it in the queue when it is removed.
    pub(super) copy: OutboundMessage,
    /// True if it is such a copy itself, made on this very pass.
    pub(super) is_ours: bool,
}

/// Properties of a queue of dead letters, for messages that do not contain them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct DeadLetterQueue {
    /// Name.
    pub(super) queue: String,
    /// The pools whose dead letters these are, each with the queue that it reads.
    pub(super) pools: Vec<(String, String)>,
}

impl DeadLetterQueue {
    /// Returns whether one of its pools reads that queue.
    fn reads(&self, queue: &str) -> bool {
        self.pools.iter().any(|(_, theirs)| theirs == queue)
    }

    /// Its pool and the queue that it reads; empty if there are several.
    fn only_pool(&self) -> (String, String) {
        match &self.pools[..] {
            [only] => only.clone(),
            _ => Default::default(),
        }
    }
}

/// Reads the queue's messages in order.
#[derive(Debug)]
pub(super) struct Reader {
    dead_queue: DeadLetterQueue,
    /// The queue's name on the wire.
    to: ShortString,
    /// Key by which copies are recognised.
    key: CopyKey,
    /// Mark by which copies of this pass are recognised.
    pass: String,
    /// Maximum size of a frame in bytes.
    frame_max: u32,
    /// Number of equal messages without an id so far.
    alike: HashMap<u64, u32>,
}

impl Reader {
    /// Begins at the head of the queue.
    pub(super) fn new(
        dead_queue: DeadLetterQueue,
        to: ShortString,
        key: CopyKey,
        frame_max: u32,
        pass: u64,
    ) -> Self {
        Self {
            dead_queue,
            to,
            key,
            pass: format!("{pass:016x}"),
            frame_max,
            alike: HashMap::new(),
        }
    }

    /// Interprets a message.
    pub(super) fn read(&mut self, delivery: Delivery) -> Read {
        let own = own_headers(&delivery.properties.headers().clone().unwrap_or_default());
        let is_ours = own.contains(&(kept::PASS.to_owned(), self.pass.clone()));
        let body = Bytes::from(delivery.data);
        let raw = moved(&delivery.properties, &self.pass);
        let is_copy = self.key.knows(&delivery.properties, &body);
        let received = Received {
            properties: delivery.properties,
            exchange: delivery.exchange,
            routing_key: delivery.routing_key,
            redelivered: delivery.redelivered,
        };
        let (original, _) = unwrap(received, is_copy);
        if let Some((id, reply)) = dead_letter::read_separate_reply(&own, &body) {
            return Read {
                item: Item::Reply(id, reply),
                copy: self.copy(raw, body),
                is_ours,
            };
        }
        let (found, copy) = match dead_letter::read(&own) {
            Some(mut letter) => {
                let original = match is_copy {
                    true => original,
                    false => {
                        let death = Death::of(&original);
                        letter.queue = death.queue.clone().unwrap_or(letter.queue);
                        published_to(original, &death, &letter.queue)
                    }
                };
                let has_reply_apart = dead_letter::has_separate_reply(&own);
                let found = FoundDeadLetter {
                    may_go_back: self.dead_queue.reads(&letter.queue),
                    letter,
                    has_reply_apart,
                    original,
                };
                (found, raw)
            }
            None => {
                let own = if is_copy { own } else { Headers::new() };
                let found = self.foreign(&own, original, &body);
                let copy = self.first_copy(&found, &body);
                (found, copy)
            }
        };
        Read {
            copy: self.copy(copy, body.clone()),
            item: Item::DeadLetter(Box::new(found.with_message(body))),
            is_ours,
        }
    }

    fn copy(&self, properties: BasicProperties, body: Bytes) -> OutboundMessage {
        OutboundMessage {
            exchange: ShortString::default(),
            to: self.to.clone(),
            mandatory: true,
            properties,
            body,
        }
    }

    /// Properties of the copy that keeps a message which is not ganger's own dead letter: all data that would
    /// take effect again is moved, if there is room for that, and for the data that the broker adds at the
    /// next delivery.
    fn first_copy(&self, found: &FoundDeadLetter, body: &Bytes) -> BasicProperties {
        let origin = vec![(header::QUEUE, found.letter.queue.clone())];
        let copy = found.original.with_own(&origin, body, &self.key);
        let copy = moved(&copy, &self.pass);
        match check_size(&copy, self.frame_max.saturating_sub(HEAD_ROOM_BYTES)) {
            Ok(()) => copy,
            Err(_) => found.original.bare(),
        }
    }

    /// Reads a message that is not ganger's own dead letter: one that the broker moved here, or that was too
    /// large for more. The broker's record of its origin takes precedence over ganger's, which may be older.
    fn foreign(&mut self, own: &Headers, original: Original, body: &Bytes) -> FoundDeadLetter {
        let death = Death::of(&original);
        let (pool, pools_queue) = self.dead_queue.only_pool();
        let first_of_ours = own
            .iter()
            .find(|(name, queue)| name == header::QUEUE && !queue.is_empty());
        let of_ours = first_of_ours.map(|(_, queue)| queue.clone());
        let queue = death.queue.clone().or(of_ours).unwrap_or(pools_queue);
        let id = self.name(&original, body);
        let original = match first_of_ours {
            Some(_) => original,
            None => published_to(original, &death, &queue),
        };
        let letter = DeadLetter {
            id,
            pool,
            error: match &death.reason {
                Some(reason) => format!("dead-lettered by the broker: {reason}"),
                None => "dead-lettered for an unknown reason".to_owned(),
            },
            reason: death.reason.unwrap_or_else(|| "unknown".to_owned()),
            first_failed_at: death.time.clone().unwrap_or_default(),
            last_failed_at: death.time.unwrap_or_default(),
            queue,
            ..DeadLetter::default()
        };
        FoundDeadLetter {
            may_go_back: self.dead_queue.reads(&letter.queue),
            letter,
            has_reply_apart: false,
            original,
        }
    }

    /// Names a message by its content, and by the number of equal ones before it.
    fn name(&mut self, original: &Original, body: &Bytes) -> String {
        let mut hasher = DefaultHasher::new();
        self.dead_queue.queue.hash(&mut hasher);
        format!("{:?}", original.bare()).hash(&mut hasher);
        original.text_headers().hash(&mut hasher);
        body.hash(&mut hasher);
        let sum = hasher.finish();
        let alike = self.alike.entry(sum).or_default();
        *alike += 1;
        format!("sum-{sum:016x}-{alike}")
    }
}

/// Restores the address of a message whose publication only the broker has recorded.
fn published_to(original: Original, death: &Death, queue: &str) -> Original {
    Original {
        exchange: death.exchange.clone().unwrap_or_default(),
        routing_key: death.routing_key.as_deref().unwrap_or(queue).to_owned(),
        ..original
    }
}

#[cfg(test)]
mod tests;
