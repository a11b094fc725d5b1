//! Copies remain intact when they are copied, and none of their data takes effect again.

use lapin::types::{DecimalValue, FieldArray};
use proptest::prelude::*;

use super::*;
use crate::broker::signature;

const BODY: &[u8] = b"body";

const MARKS: Marks<'_> = Marks {
    queue: "work",
    counters: Counters {
        attempts: 2,
        crashes: 1,
        requeues: 3,
        first_failed_ms: Some(7),
        span: None,
    },
    suspect: true,
    lapses: 3,
    turn: Some(7),
    number: Some(42),
};

fn table(pairs: &[(&str, AMQPValue)]) -> FieldTable {
    let mut table = FieldTable::default();
    for (name, value) in pairs {
        table.insert((*name).into(), value.clone());
    }
    table
}

fn key() -> CopyKey {
    CopyKey::from_secret("s")
}

/// Unwraps a message as a source does that reads the queue `work`.
fn arrive(properties: BasicProperties, routing_key: &str) -> (Original, Arrival) {
    let is_copy = claims_to_be_of(&properties, "work") && key().knows(&properties, BODY);
    let received = Received {
        properties,
        exchange: "".into(),
        routing_key: routing_key.into(),
        redelivered: false,
    };
    unwrap(received, is_copy)
}

/// Changes a message as a tier's queue does when its delay is over.
fn through_a_tier(copy: &BasicProperties) -> BasicProperties {
    let mut headers = copy.headers().clone().unwrap_or_default();
    headers.insert(
        "x-death".into(),
        AMQPValue::FieldArray(FieldArray::default()),
    );
    headers.insert("x-first-death-queue".into(), long("work.retry.1s"));
    headers.insert("x-delivery-count".into(), AMQPValue::LongLongInt(1));
    plain_properties(copy).with_headers(headers)
}

fn busy() -> BasicProperties {
    let cc = AMQPValue::FieldArray(vec![long("elsewhere")].into());
    BasicProperties::default()
        .with_expiration("60000".into())
        .with_user_id("producer".into())
        .with_correlation_id("c".into())
        .with_reply_to("answers".into())
        .with_headers(table(&[
            ("CC", cc.clone()),
            ("BCC", cc.clone()),
            ("x-death", cc),
            ("x-first-death-reason", long("rejected")),
            ("tenant", long("blue")),
        ]))
}

fn original(properties: BasicProperties) -> Original {
    Original {
        properties,
        exchange: "events".into(),
        routing_key: "user.made".into(),
    }
}

#[test]
fn nothing_on_a_copy_acts_again() {
    let copy = original(busy()).copied(&MARKS, BODY, &key());
    assert_eq!((copy.expiration(), copy.user_id()), (&None, &None));
    let headers = copy.headers().clone().unwrap();
    for name in ["CC", "BCC", "x-death", "x-first-death-reason"] {
        assert!(!headers.contains_key(name), "{name}");
    }
    assert_eq!(headers.inner().get("tenant"), Some(&long("blue")));
    assert_eq!(copy.delivery_mode(), &Some(PERSISTENT));
    let bare = original(busy()).bare();
    assert_eq!(bare.headers(), &Some(table(&[("tenant", long("blue"))])));
    assert_eq!(bare.expiration(), &None);
}

#[test]
fn a_copy_that_comes_back_is_the_message_again() {
    let sent = original(busy());
    let (back, arrival) = arrive(through_a_tier(&sent.copied(&MARKS, BODY, &key())), "work");
    assert_eq!(back, sent);
    assert_eq!(arrival.counters, MARKS.counters);
    assert_eq!((arrival.suspect, arrival.returns), (true, 1));
    assert_eq!((arrival.lapses, arrival.turn), (3, Some(7)));
    assert_eq!(arrival.number, Some(42));
}

#[test]
fn the_occurrence_of_a_message_stays_with_it_and_is_not_shown() {
    let headers = [(OCCURRENCE_HEADER, long("o")), ("tenant", long("blue"))];
    let sent = original(BasicProperties::default().with_headers(table(&headers)));
    let copy = sent.copied(&MARKS, BODY, &key());
    let (back, _) = arrive(through_a_tier(&copy), "work");
    assert_eq!(back.occurrence().as_deref(), Some("o"));
    let shown = ("tenant".to_owned(), "blue".to_owned());
    assert_eq!(back.text_headers(), [shown]);
    assert_eq!(original(busy()).occurrence(), None);
}

/// A producer can write every header of a copy except its signature.
#[test]
fn what_says_that_it_is_a_copy_and_is_not_signed_is_like_any_message() {
    let signed = original(busy()).copied(&MARKS, BODY, &key());
    let headers = signed.headers().clone().unwrap();
    let headers = table_of(
        headers
            .into_iter()
            .filter(|(name, _)| name.as_str() != signature::HEADER),
    );
    let others = original(busy()).copied(&MARKS, BODY, &CopyKey::from_secret("another"));
    let of_another_queue = Marks {
        queue: "play",
        ..MARKS
    };
    for forged in [
        signed.clone().with_headers(headers),
        others,
        original(busy()).copied(&of_another_queue, BODY, &key()),
    ] {
        let (message, arrival) = arrive(forged, "work");
        assert_eq!(arrival, Arrival::default());
        assert_eq!((&*message.exchange, &*message.routing_key), ("", "work"));
        assert_eq!(message.properties.user_id(), &None);
        let names = message.text_headers().into_iter().map(|(name, _)| name);
        assert_eq!(names.collect::<Vec<_>>(), ["tenant"]);
    }
}

#[test]
fn workers_see_the_headers_of_the_message_and_none_of_ours() {
    let shown = |properties| arrive(properties, "work").0.text_headers();
    let plain = BasicProperties::default().with_headers(table(&[
        ("a", AMQPValue::LongInt(1)),
        ("X-Ganger-Attempts", long("9")),
        ("x-delivery-count", AMQPValue::LongLongInt(4)),
    ]));
    assert_eq!(shown(plain.clone()), [("a".to_owned(), "1".to_owned())]);
    let (_, arrival) = arrive(plain, "work");
    assert_eq!((arrival.returns, arrival.counters.attempts), (4, 0));
    let copied = original(busy()).copied(&MARKS, BODY, &key());
    let names: Vec<String> = shown(copied).into_iter().map(|(name, _)| name).collect();
    assert_eq!(
        names,
        ["BCC", "CC", "tenant", "x-death", "x-first-death-reason"]
    );
    assert_eq!(shown(BasicProperties::default()), []);
}

#[test]
fn a_reply_carries_on_what_its_worker_left_alone() {
    let headers = table(&[
        ("n", AMQPValue::LongLongInt(5)),
        ("changed", AMQPValue::LongLongInt(5)),
        ("CC", AMQPValue::FieldArray(FieldArray::default())),
    ]);
    let continued = original(
        BasicProperties::default()
            .with_headers(headers)
            .with_app_id("app".into())
            .with_timestamp(9)
            .with_expiration("1".into())
            .with_user_id("producer".into()),
    );
    let text = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let reply = Outgoing {
        headers: vec![
            text("n", "5"),
            text("changed", "6"),
            text("CC", "[]"),
            text("x-death", "[]"),
            text("x-ganger-attempts", "3"),
            text("x-delivery-count", "3"),
        ],
        correlation_id: "c".into(),
        priority: 300,
        ..Outgoing::default()
    };
    let expected = BasicProperties::default()
        .with_app_id("app".into())
        .with_timestamp(9)
        .with_correlation_id("c".into())
        .with_priority(255)
        .with_delivery_mode(PERSISTENT)
        .with_headers(table(&[
            ("n", AMQPValue::LongLongInt(5)),
            ("changed", long("6")),
        ]));
    assert_eq!(published(&reply, Some(&continued)), Ok(expected));
}

#[test]
fn an_answers_headers_set_its_properties_and_the_messages_encoding_is_not_lent() {
    let continued = original(
        BasicProperties::default()
            .with_content_type("application/octet-stream".into())
            .with_content_encoding("gzip".into()),
    );
    let answer = |headers: &[(&str, &str)]| Outgoing {
        headers: headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        content_type: Some("application/octet-stream".into()),
        ..Outgoing::default()
    };
    let persistent = BasicProperties::default().with_delivery_mode(PERSISTENT);
    let lent = persistent
        .clone()
        .with_content_type("application/octet-stream".into());
    assert_eq!(published(&answer(&[]), Some(&continued)), Ok(lent));
    let own = answer(&[("Content-Type", "text/json"), ("content-encoding", "br")]);
    let expected = persistent
        .with_content_type("text/json".into())
        .with_content_encoding("br".into());
    assert_eq!(published(&own, Some(&continued)), Ok(expected));
    let copy = continued.copied(&MARKS, BODY, &key());
    assert_eq!(
        copy.content_encoding(),
        continued.properties.content_encoding()
    );
}

#[test]
fn what_amqp_has_no_room_for_is_told() {
    let long = "x".repeat(256);
    let refused = |outgoing| published(&outgoing, None).unwrap_err();
    let id = Outgoing {
        correlation_id: long.clone(),
        ..Outgoing::default()
    };
    let told = "its correlation id must be at most 255 bytes: 256 bytes";
    assert_eq!(refused(id), told);
    let header = Outgoing {
        headers: vec![(long, String::new())],
        ..Outgoing::default()
    };
    assert_eq!(
        refused(header),
        "its header's name must be at most 255 bytes: 256 bytes"
    );
    let large = BasicProperties::default().with_correlation_id("x".repeat(255).into());
    assert_eq!(check_size(&large, 1000), Ok(()));
    assert!(
        check_size(&large, 256)
            .unwrap_err()
            .contains("256 bytes: 3")
    );
}

fn values() -> impl Strategy<Value = AMQPValue> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(AMQPValue::Boolean),
        any::<i8>().prop_map(AMQPValue::ShortShortInt),
        any::<u8>().prop_map(AMQPValue::ShortShortUInt),
        any::<i16>().prop_map(AMQPValue::ShortInt),
        any::<u16>().prop_map(AMQPValue::ShortUInt),
        any::<i32>().prop_map(AMQPValue::LongInt),
        any::<u32>().prop_map(AMQPValue::LongUInt),
        any::<i64>().prop_map(AMQPValue::LongLongInt),
        any::<i32>().prop_map(|number| AMQPValue::Double(f64::from(number))),
        (any::<u8>(), any::<u32>())
            .prop_map(|(scale, value)| AMQPValue::DecimalValue(DecimalValue { scale, value })),
        proptest::collection::vec(any::<u8>(), 0..20)
            .prop_map(|bytes| AMQPValue::LongString(bytes.into())),
        proptest::collection::vec(any::<u8>(), 0..20)
            .prop_map(|bytes| AMQPValue::ByteArray(bytes.into())),
        any::<u64>().prop_map(AMQPValue::Timestamp),
        Just(AMQPValue::Void),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4)
                .prop_map(|values| AMQPValue::FieldArray(values.into())),
            tables(inner).prop_map(AMQPValue::FieldTable),
        ]
    })
}

fn tables(values: impl Strategy<Value = AMQPValue>) -> impl Strategy<Value = FieldTable> {
    let name = prop_oneof![
        Just("CC".to_owned()),
        Just("BCC".to_owned()),
        Just("x-death".to_owned()),
        Just("x-last-death-queue".to_owned()),
        "[a-z]{1,8}",
    ];
    let name = name.prop_map(ShortString::from);
    proptest::collection::btree_map(name, values, 0..6).prop_map(FieldTable::from)
}

fn properties() -> impl Strategy<Value = BasicProperties> {
    let texts = proptest::collection::vec(proptest::option::of("[ -~]{0,12}"), 10);
    let numbers = any::<(Option<u8>, Option<u8>, Option<u64>)>();
    (texts, tables(values()), numbers).prop_map(|(texts, headers, (mode, priority, timestamp))| {
        let mut properties = BasicProperties::default();
        if let Some(mode) = mode {
            properties = properties.with_delivery_mode(mode);
        }
        let mut with = |index: usize, set: fn(BasicProperties, ShortString) -> BasicProperties| {
            if let Some(text) = texts[index].clone() {
                properties = set(std::mem::take(&mut properties), text.into());
            }
        };
        with(0, BasicProperties::with_content_type);
        with(1, BasicProperties::with_content_encoding);
        with(2, BasicProperties::with_correlation_id);
        with(3, BasicProperties::with_reply_to);
        with(4, BasicProperties::with_expiration);
        with(5, BasicProperties::with_message_id);
        with(6, BasicProperties::with_type);
        with(7, BasicProperties::with_user_id);
        with(8, BasicProperties::with_app_id);
        with(9, BasicProperties::with_cluster_id);
        if let Some(priority) = priority {
            properties = properties.with_priority(priority);
        }
        if let Some(timestamp) = timestamp {
            properties = properties.with_timestamp(timestamp);
        }
        if !headers.inner().is_empty() {
            properties = properties.with_headers(headers);
        }
        properties
    })
}

proptest! {
    #[test]
    fn any_message_survives_any_number_of_copies(
        properties in properties(), exchange in "[a-z]{0,8}", routing_key in "[ -~]{0,40}", copies in 1u32..4,
    ) {
        let sent = Original { properties, exchange, routing_key };
        let mut now = sent.clone();
        for attempts in 1..=copies {
            let counters = Counters { attempts, ..Counters::default() };
            let copy = now.copied(&Marks { counters, ..MARKS }, BODY, &key());
            let (back, arrival) = arrive(through_a_tier(&copy), "work");
            prop_assert_eq!(&back, &sent);
            prop_assert_eq!(arrival.counters.attempts, attempts);
            now = back;
        }
    }
}
