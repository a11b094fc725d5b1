//! Reading a queue of dead letters, and sending messages back.

use std::collections::BTreeMap;

use lapin::types::{AMQPValue, FieldTable};

use super::*;
use crate::broker::republish::PERSISTENT;
use crate::rules::Arrival;
use ganger_queue::client::RetryTarget;
use ganger_queue::dead_letter::{Counters, DeadLetterRecord, OwnHeaders};
use ganger_queue::delivery::{Failure, Outgoing};

const FRAME_MAX: u32 = 4096 + HEAD_ROOM_BYTES;

fn dead_queue() -> DeadLetterQueue {
    DeadLetterQueue {
        queue: "work.dead".to_owned(),
        pools: vec![("email".to_owned(), "work".to_owned())],
    }
}

fn reader() -> Reader {
    at(dead_queue(), 7)
}

fn at(dead_queue: DeadLetterQueue, pass: u64) -> Reader {
    Reader::new(dead_queue, "work.dead".into(), key(), FRAME_MAX, pass)
}

fn key() -> CopyKey {
    CopyKey::from_secret("s")
}

fn back(found: &FoundDeadLetter, frame_max: u32) -> Result<OutboundMessage, String> {
    found.back(&RetryTarget::default(), frame_max, &key())
}

/// A message as the broker delivers it.
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

/// Takes in a copy of ganger's as a source does.
fn received(properties: BasicProperties) -> (Original, Arrival) {
    let received = Received {
        properties,
        exchange: "".into(),
        routing_key: "work".into(),
        redelivered: false,
    };
    unwrap(received, true)
}

fn letter_in(read: Read) -> FoundDeadLetter {
    match read.item {
        Item::DeadLetter(found) => *found,
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

/// Writes a dead letter as a source does.
fn written(original: &Original, failure: &Failure) -> (BasicProperties, Option<OwnHeaders>) {
    let written = DeadLetterRecord {
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
    (original.with_own(&written.headers, b"body", &key()), reply)
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
    let parcel = back(&found, 4096).unwrap();
    assert_eq!(
        (parcel.to.as_str(), &parcel.body[..]),
        ("work", &b"body"[..])
    );
    assert_eq!(parcel.properties, properties);
    let target = RetryTarget {
        body: Some("edited".into()),
        to: Some("elsewhere".to_owned()),
    };
    let edited = found.back(&target, 4096, &key()).unwrap();
    assert_eq!(edited.to.as_str(), "elsewhere");
    assert_eq!(edited.body, "edited");
    back(&found, 32).unwrap_err();
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
    let back = back(&found, 4096).unwrap().properties;
    assert_eq!((back.expiration(), back.user_id()), (&None, &None));
    let table = back.headers().clone().unwrap();
    assert!(!table.contains_key("CC") && !table.contains_key(header::DEAD_LETTER_ID));
    assert!(key().knows(&back, b"body"));
    let (again, arrival) = received(back);
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
        Item::DeadLetter(found) => panic!("{found:?}"),
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
    let (again, _) = received(back(&first, 4096).unwrap().properties);
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
            Item::DeadLetter(found) => found,
            Item::Reply(..) => panic!("a letter"),
        });
        assert_eq!(after.letter, before.letter);
        assert_eq!(after.letter.priority, 7);
        let back = |found: &FoundDeadLetter| back(found, 4096).unwrap().properties;
        assert_eq!(back(&after), back(&before));
    }
}

#[test]
fn a_copy_that_has_no_room_for_more_says_less() {
    let full = headers(&[("n", long(&"x".repeat(4000)))]);
    let read = reader().read(delivery(BasicProperties::default().with_headers(full), "a"));
    // The broker must be able to add its own records.
    check_size(&read.copy.properties, FRAME_MAX - HEAD_ROOM_BYTES).unwrap();
}

/// Any program with access to the queue of dead letters may write anything there.
#[test]
fn a_letter_that_nobody_signed_goes_only_where_its_pool_reads() {
    let (forged, _) = written(
        &sent(BasicProperties::default().with_user_id("alice".into())),
        &Failure::default(),
    );
    let read = |properties| letter_in(reader().read(delivery(properties, "another body")));
    let found = read(forged.clone());
    assert_eq!(found.letter.id, "id-1", "it is shown all the same");
    let sent_back = back(&found, 4096).unwrap();
    assert_eq!(sent_back.to.as_str(), "work");
    assert_eq!(sent_back.properties.user_id(), &None);

    let with = |name: &str, value| {
        let mut headers = forged.headers().clone().unwrap();
        headers.insert(name.into(), value);
        forged.clone().with_headers(headers)
    };
    let elsewhere = read(with(header::QUEUE, long("payments")));
    let refused = back(&elsewhere, 4096).unwrap_err();
    assert!(
        refused.contains("`payments`, which no pool with this dead-letter queue reads"),
        "{refused}"
    );
    assert!(refused.contains("--to"), "{refused}");
    let target = RetryTarget {
        to: Some("payments".to_owned()),
        ..RetryTarget::default()
    };
    assert_eq!(
        elsewhere.back(&target, 4096, &key()).unwrap().to.as_str(),
        "payments"
    );

    let death = headers(&[("queue", long("work")), ("reason", long("expired"))]);
    let deaths = AMQPValue::FieldArray(vec![AMQPValue::FieldTable(death)].into());
    let mut both = with(header::QUEUE, long("payments"))
        .headers()
        .clone()
        .unwrap();
    both.insert("x-death".into(), deaths);
    let moved = BasicProperties::default().with_headers(both.clone());
    assert_eq!(
        read(moved).letter.queue,
        "work",
        "the broker's word counts more"
    );
    let both: BTreeMap<_, _> = both
        .into_iter()
        .map(|(n, v)| (n.clone(), v.clone()))
        .collect();
    let both = both
        .into_iter()
        .filter(|(name, _)| name.as_str() != header::DEAD_LETTER_ID);
    let moved = BasicProperties::default().with_headers(both.collect::<BTreeMap<_, _>>().into());
    assert_eq!(read(moved).letter.queue, "work");
}

#[test]
fn a_copy_of_another_pass_is_none_of_ours() {
    let (letter, _) = written(&sent(BasicProperties::default()), &Failure::default());
    let copy = reader().read(delivery(letter, "a")).copy.properties;
    let mut another = at(dead_queue(), 8);
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
    let parcel = back(&found, 4096).unwrap();
    assert_eq!(parcel.to.as_str(), "work");
    let anyones = DeadLetterQueue {
        pools: vec![
            ("a".to_owned(), "a".to_owned()),
            ("b".to_owned(), "b".to_owned()),
        ],
        ..dead_queue()
    };
    let found = letter_in(at(anyones, 7).read(plain()));
    assert!(
        back(&found, 4096)
            .unwrap_err()
            .contains("does not name the queue")
    );
}
