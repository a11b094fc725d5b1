//! Reading a queue of dead letters: what each message of it is, and the copy that keeps it there.
//! Pure.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use bytes::Bytes;
use lapin::BasicProperties;
use lapin::message::Delivery;
use lapin::types::ShortString;

use super::letter_index::{Death, Found, Item};
use crate::broker::rabbitmq::publisher::OutboundMessage;
use crate::broker::rabbitmq::republish::{
    HEAD_ROOM_BYTES, Original, Received, check_size, kept, moved, own_headers, unwrap,
};
use crate::dead_letter;
use crate::dead_letter::{DeadLetter, header};
use crate::delivery::Headers;

/// One message of the queue, as it was read.
#[derive(Debug)]
pub(super) struct Read {
    /// What it is.
    pub(super) item: Item,
    /// What keeps it in the queue when it is taken out.
    pub(super) copy: OutboundMessage,
    /// It is such a copy itself, made on this very pass.
    pub(super) is_ours: bool,
}

/// What is known of a queue of dead letters, for those that say nothing themselves.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Home {
    /// Its name.
    pub(super) queue: String,
    /// The pool whose dead letters these are, and the queue that it reads; none if there are
    /// several.
    pub(super) pool: Option<(String, String)>,
}

/// Reads the queue's messages one after the other.
#[derive(Debug)]
pub(super) struct Reader {
    home: Home,
    /// The queue's name on the wire.
    to: ShortString,
    /// By which copies of this pass are known.
    pass: String,
    /// The most bytes of a frame.
    frame_max: u32,
    /// How many messages without an id have been alike so far.
    alike: HashMap<u64, u32>,
}

impl Reader {
    /// Begins at the head of the queue.
    pub(super) fn new(home: Home, to: ShortString, frame_max: u32, pass: u64) -> Self {
        Self {
            home,
            to,
            pass: format!("{pass:016x}"),
            frame_max,
            alike: HashMap::new(),
        }
    }

    /// Makes sense of a message.
    pub(super) fn read(&mut self, delivery: Delivery) -> Read {
        let own = own_headers(&delivery.properties.headers().clone().unwrap_or_default());
        let is_ours = own.contains(&(kept::PASS.to_owned(), self.pass.clone()));
        let body = Bytes::from(delivery.data);
        let raw = moved(&delivery.properties, &self.pass);
        let (original, _) = unwrap(Received {
            properties: delivery.properties,
            exchange: delivery.exchange,
            routing_key: delivery.routing_key,
            redelivered: delivery.redelivered,
        });
        if let Some((id, reply)) = dead_letter::read_apart(&own, &body) {
            return Read {
                item: Item::Reply(id, reply),
                copy: self.copy(raw, body),
                is_ours,
            };
        }
        let (found, copy) = match dead_letter::read(&own) {
            Some(letter) => {
                let has_reply_apart = dead_letter::has_reply_apart(&own);
                let found = Found {
                    letter,
                    has_reply_apart,
                    original,
                };
                (found, raw)
            }
            None => {
                let found = self.foreign(&own, original, &body);
                let copy = self.first_copy(&found);
                (found, copy)
            }
        };
        Read {
            copy: self.copy(copy, body.clone()),
            item: Item::Letter(Box::new(found.with_message(body))),
            is_ours,
        }
    }

    fn copy(&self, properties: BasicProperties, body: Bytes) -> OutboundMessage {
        OutboundMessage {
            to: self.to.clone(),
            mandatory: true,
            properties,
            body,
        }
    }

    /// What keeps a message that is no letter of ours: all that would act again is put aside, if
    /// there is room for that, and for what the broker adds when it is handed out again.
    fn first_copy(&self, found: &Found) -> BasicProperties {
        let origin = vec![(header::QUEUE, found.letter.queue.clone())];
        let copy = moved(&found.original.with_own(&origin), &self.pass);
        match check_size(&copy, self.frame_max.saturating_sub(HEAD_ROOM_BYTES)) {
            Ok(()) => copy,
            Err(_) => found.original.bare(),
        }
    }

    /// A message without a letter: one that the broker moved here, or that was too large for more.
    fn foreign(&mut self, own: &Headers, original: Original, body: &Bytes) -> Found {
        let death = Death::of(&original);
        let (pool, pools_queue) = self.home.pool.clone().unwrap_or_default();
        let first_of_ours = own
            .iter()
            .find(|(name, queue)| name == header::QUEUE && !queue.is_empty());
        let queue = first_of_ours.map(|(_, queue)| queue.clone());
        let queue = queue.or_else(|| death.queue.clone()).unwrap_or(pools_queue);
        let letter = DeadLetter {
            id: self.name(&original, body),
            pool,
            error: match &death.reason {
                Some(reason) => format!("the broker moved it here: {reason}"),
                None => "it does not say how it came here".to_owned(),
            },
            reason: death.reason.unwrap_or_else(|| "unknown".to_owned()),
            first_failed_at: death.time.clone().unwrap_or_default(),
            last_failed_at: death.time.unwrap_or_default(),
            queue: queue.clone(),
            ..DeadLetter::default()
        };
        let original = match first_of_ours {
            Some(_) => original,
            // Where it was published to before it died.
            None => Original {
                exchange: death.exchange.unwrap_or_default(),
                routing_key: death.routing_key.unwrap_or(queue),
                ..original
            },
        };
        Found {
            letter,
            has_reply_apart: false,
            original,
        }
    }

    /// By what it is, and by how many of its like are before it.
    fn name(&mut self, original: &Original, body: &Bytes) -> String {
        let mut hasher = DefaultHasher::new();
        self.home.queue.hash(&mut hasher);
        format!("{:?}", original.bare()).hash(&mut hasher);
        original.text_headers().hash(&mut hasher);
        body.hash(&mut hasher);
        let sum = hasher.finish();
        let alike = self.alike.entry(sum).or_default();
        *alike += 1;
        format!("sum-{sum:016x}-{alike}")
    }
}

#[cfg(test)]
mod tests {
    use lapin::types::{AMQPValue, FieldTable};

    use super::*;
    use crate::dead_letter::{Counters, Letter, Own};
    use crate::delivery::{Failure, Outgoing};

    /// The persistent delivery mode.
    const PERSISTENT: u8 = 2;
    const FRAME_MAX: u32 = 4096 + HEAD_ROOM_BYTES;

    fn home() -> Home {
        Home {
            queue: "work.dead".to_owned(),
            pool: Some(("email".to_owned(), "work".to_owned())),
        }
    }

    fn reader() -> Reader {
        Reader::new(home(), "work.dead".into(), FRAME_MAX, 7)
    }

    /// As the broker hands it out.
    fn delivery(properties: BasicProperties, body: &str) -> Delivery {
        let mut delivery = Delivery::mock(
            1,
            "".into(),
            "work.dead".into(),
            true,
            body.as_bytes().to_vec(),
        );
        delivery.properties = properties;
        delivery
    }

    fn letter_in(read: Read) -> Found {
        match read.item {
            Item::Letter(found) => *found,
            Item::Reply(..) => panic!("a letter"),
        }
    }

    fn headers(pairs: &[(&str, AMQPValue)]) -> FieldTable {
        let mut table = FieldTable::default();
        for (name, value) in pairs {
            table.insert((*name).into(), value.clone());
        }
        table
    }

    fn long(text: &str) -> AMQPValue {
        AMQPValue::LongString(text.into())
    }

    /// As a source writes it.
    fn written(original: &Original, failure: &Failure) -> (BasicProperties, Option<Own>) {
        let written = Letter {
            id: "id-1",
            pool: "email",
            queue: "work",
            message_name: None,
            counters: Counters {
                attempts: 5,
                crashes: 2,
                ..Counters::default()
            },
            now_ms: 1,
            failure,
        }
        .write();
        let reply = written.reply.map(|apart| apart.headers);
        (original.with_own(&written.headers), reply)
    }

    fn sent(properties: BasicProperties) -> Original {
        Original {
            properties,
            exchange: String::new(),
            routing_key: "work".to_owned(),
        }
    }

    #[test]
    fn a_letter_is_read_and_goes_back_as_it_was_sent() {
        let properties = BasicProperties::default()
            .with_headers(headers(&[("n", AMQPValue::LongInt(7))]))
            .with_correlation_id("c-1".into())
            .with_reply_to("answers".into())
            .with_message_id("m-1".into())
            .with_content_type("text/plain".into())
            .with_priority(3)
            .with_delivery_mode(PERSISTENT);
        let (copy, _) = written(&sent(properties.clone()), &Failure::default());
        let found = letter_in(reader().read(delivery(copy, "body")));
        let letter = &found.letter;
        assert_eq!(
            (letter.id.as_str(), letter.attempts, letter.crashes),
            ("id-1", 5, 2)
        );
        assert_eq!(letter.headers, [("n".to_owned(), "7".to_owned())]);
        assert_eq!(
            (letter.correlation_id.as_str(), letter.priority),
            ("c-1", 3)
        );
        let parcel = found.back(None, 4096).unwrap();
        assert_eq!(
            (parcel.to.as_str(), &parcel.body[..]),
            ("work", &b"body"[..])
        );
        assert_eq!(parcel.properties, properties);
        let edited = found.back(Some(&"edited".into()), 4096).unwrap();
        assert_eq!(edited.body, "edited");
        found.back(None, 32).unwrap_err();
    }

    #[test]
    fn what_would_act_again_is_kept_and_does_not() {
        let properties = BasicProperties::default()
            .with_headers(headers(&[(
                "CC",
                AMQPValue::FieldArray(vec![long("other")].into()),
            )]))
            .with_user_id("someone".into())
            .with_expiration("1000".into())
            .with_delivery_mode(PERSISTENT);
        let (copy, _) = written(&sent(properties.clone()), &Failure::default());
        let found = letter_in(reader().read(delivery(copy, "body")));
        let back = found.back(None, 4096).unwrap().properties;
        assert_eq!((back.expiration(), back.user_id()), (&None, &None));
        let table = back.headers().clone().unwrap();
        assert!(!table.contains_key("CC") && !table.contains_key(header::LETTER_ID));
        let (again, arrival) = unwrap(Received {
            properties: back,
            exchange: "".into(),
            routing_key: "work".into(),
            redelivered: false,
        });
        assert_eq!(again.properties, properties);
        assert_eq!(arrival.counters, Counters::default());
    }

    #[test]
    fn a_reply_apart_names_its_letter() {
        let reply = Outgoing {
            queue: "gone".into(),
            body: vec![7; 10_000].into(),
            ..Outgoing::default()
        };
        let failure = Failure {
            reply: Some(Box::new(reply)),
            ..Failure::default()
        };
        let (_, apart) = written(&sent(BasicProperties::default()), &failure);
        let pairs: Vec<_> = apart
            .unwrap()
            .into_iter()
            .map(|(n, v)| (n, long(&v)))
            .collect();
        let properties = BasicProperties::default().with_headers(headers(&pairs));
        match reader().read(delivery(properties, "result")).item {
            Item::Reply(id, reply) => {
                assert_eq!((id.as_str(), reply.queue.as_str()), ("id-1", "gone"));
                assert_eq!(reply.body, "result");
            }
            Item::Letter(found) => panic!("{found:?}"),
        }
    }

    #[test]
    fn what_the_broker_moved_here_has_a_name_and_a_way_back() {
        let death = headers(&[
            ("queue", long("work")),
            ("reason", long("rejected")),
            ("time", AMQPValue::Timestamp(1_700_000_000)),
            ("exchange", long("orders")),
            (
                "routing-keys",
                AMQPValue::FieldArray(vec![long("new")].into()),
            ),
        ]);
        let deaths = AMQPValue::FieldArray(vec![AMQPValue::FieldTable(death)].into());
        let with_count = |count| {
            let count = ("x-delivery-count", AMQPValue::LongLongInt(count));
            BasicProperties::default().with_headers(headers(&[("x-death", deaths.clone()), count]))
        };
        let mut reader = reader();
        let [first, second] = [1, 2].map(|n| letter_in(reader.read(delivery(with_count(n), "a"))));
        let third = letter_in(reader.read(delivery(with_count(1), "b")));
        assert_eq!(first.letter.reason, "rejected");
        assert_eq!(first.letter.queue, "work");
        assert_eq!(first.letter.last_failed_at, "2023-11-14T22:13:20Z");
        assert!(first.letter.id.ends_with("-1") && second.letter.id.ends_with("-2"));
        assert_eq!(first.letter.id[..21], second.letter.id[..21]);
        assert_ne!(first.letter.id[..21], third.letter.id[..21]);
        first.letter.id.parse::<f64>().unwrap_err();
        let (again, _) = unwrap(Received {
            properties: first.back(None, 4096).unwrap().properties,
            exchange: "".into(),
            routing_key: "work".into(),
            redelivered: false,
        });
        assert_eq!(
            (again.exchange.as_str(), again.routing_key.as_str()),
            ("orders", "new")
        );
    }

    #[test]
    fn what_stays_is_the_same_in_its_copy_and_counts_anew() {
        let (letter, _) = written(
            &sent(BasicProperties::default().with_priority(7)),
            &Failure::default(),
        );
        let death = headers(&[("queue", long("work")), ("reason", long("rejected"))]);
        let deaths = AMQPValue::FieldArray(vec![AMQPValue::FieldTable(death)].into());
        let foreign = BasicProperties::default()
            .with_headers(headers(&[
                ("x-death", deaths),
                ("CC", AMQPValue::FieldArray(vec![long("other")].into())),
            ]))
            .with_priority(7)
            .with_expiration("1000".into())
            .with_user_id("someone".into());
        for properties in [letter, foreign] {
            let mut counted = properties.headers().clone().unwrap_or_default();
            counted.insert("x-delivery-count".into(), AMQPValue::LongLongInt(3));
            let read = reader().read(delivery(properties.with_headers(counted), "body"));
            let copy = read.copy;
            assert_eq!(
                (copy.to.as_str(), &copy.body[..]),
                ("work.dead", &b"body"[..])
            );
            let table = copy.properties.headers().clone().unwrap();
            for name in ["x-delivery-count", "x-death", "CC"] {
                assert!(!table.contains_key(name), "{name}");
            }
            assert_eq!(copy.properties.priority(), &None, "it would pass others");
            assert_eq!(copy.properties.expiration(), &None);
            assert_eq!(copy.properties.user_id(), &None);
            let again = reader().read(delivery(copy.properties, "body"));
            assert!(again.is_ours && !read.is_ours);
            let [before, after] = [read.item, again.item].map(|item| match item {
                Item::Letter(found) => found,
                Item::Reply(..) => panic!("a letter"),
            });
            assert_eq!(after.letter, before.letter);
            assert_eq!(after.letter.priority, 7);
            let back = |found: &Found| found.back(None, 4096).unwrap().properties;
            assert_eq!(back(&after), back(&before));
        }
    }

    #[test]
    fn a_copy_that_has_no_room_for_more_says_less() {
        let full = headers(&[("n", long(&"x".repeat(4000)))]);
        let read = reader().read(delivery(BasicProperties::default().with_headers(full), "a"));
        // The broker must be able to add where it has been.
        check_size(&read.copy.properties, FRAME_MAX - HEAD_ROOM_BYTES).unwrap();
    }

    #[test]
    fn a_copy_of_another_pass_is_none_of_ours() {
        let (letter, _) = written(&sent(BasicProperties::default()), &Failure::default());
        let copy = reader().read(delivery(letter, "a")).copy.properties;
        let mut another = Reader::new(home(), "work.dead".into(), FRAME_MAX, 8);
        assert!(!another.read(delivery(copy, "a")).is_ours);
    }

    #[test]
    fn a_message_that_says_nothing_goes_to_the_pools_queue_if_there_is_one() {
        let plain = || delivery(BasicProperties::default(), "a");
        let found = letter_in(reader().read(plain()));
        assert_eq!(
            (found.letter.pool.as_str(), found.letter.reason.as_str()),
            ("email", "unknown")
        );
        let parcel = found.back(None, 4096).unwrap();
        assert_eq!(parcel.to.as_str(), "work");
        let anyones = Home {
            pool: None,
            ..home()
        };
        let found = letter_in(Reader::new(anyones, "work.dead".into(), FRAME_MAX, 7).read(plain()));
        assert!(found.back(None, 4096).unwrap_err().contains("which queue"));
    }
}
