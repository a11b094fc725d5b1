//! What a message has beside its body: all that AMQP knows goes to the worker and outlives whatever
//! becomes of the message.

use lapin::BasicProperties;
use lapin::types::{AMQPValue, DecimalValue, FieldArray, FieldTable};
use serde_json::json;

use crate::exec::shell;
use crate::harness::rabbit::{Client, DEAD, Letter, RabbitScene, text};
use crate::harness::{Event, Flow, Pool, Proxy, trials};

trials![
    everything_outlives_a_retry_and_the_dead_letters,
    everything_outlives_a_requeue,
    everything_outlives_the_way_back_from_the_dead_letters,
    a_copy_is_not_sent_to_all_that_the_original_was_sent_to,
    a_worker_sees_the_same_each_time,
    a_worker_sees_every_kind_of_header_as_text,
    numbers_and_times_below_zero_keep_their_sign,
    a_replys_type_and_encoding_are_its_own,
    an_expiration_does_not_run_on_after_a_retry,
    a_binary_body_is_kept_byte_for_byte,
    a_large_body_is_kept_byte_for_byte,
    headers_that_fill_a_frame_are_kept,
    headers_that_fill_a_frame_outlive_a_retry,
    more_headers_than_a_worker_takes_make_a_dead_letter,
    texts_that_are_not_utf8_make_a_dead_letter,
    what_a_stream_would_write_is_a_header_like_others,
];

/// Every kind of header that RabbitMQ knows.
fn all_headers() -> FieldTable {
    let mut inner = FieldTable::default();
    inner.insert("deep".into(), AMQPValue::LongInt(-5));
    let list = FieldArray::from(vec![AMQPValue::Boolean(true), text("two")]);
    let decimal = DecimalValue {
        scale: 2,
        value: 314,
    };
    let mut headers = FieldTable::default();
    for (name, value) in [
        ("boolean", AMQPValue::Boolean(true)),
        ("byte", AMQPValue::ShortShortInt(-8)),
        ("unsigned-byte", AMQPValue::ShortShortUInt(200)),
        ("short", AMQPValue::ShortInt(-3000)),
        ("unsigned-short", AMQPValue::ShortUInt(60_000)),
        ("int", AMQPValue::LongInt(-70_000)),
        ("unsigned-int", AMQPValue::LongUInt(4_000_000_000)),
        ("long", AMQPValue::LongLongInt(-5_000_000_000)),
        ("float", AMQPValue::Float(1.5)),
        ("double", AMQPValue::Double(-2.25)),
        ("decimal", AMQPValue::DecimalValue(decimal)),
        ("text", text("grüße")),
        ("empty", text("")),
        ("list", AMQPValue::FieldArray(list)),
        ("time", AMQPValue::Timestamp(1_700_000_000)),
        ("table", AMQPValue::FieldTable(inner)),
        ("bytes", AMQPValue::ByteArray(vec![0, 255, 1].into())),
        ("nothing", AMQPValue::Void),
    ] {
        headers.insert(name.into(), value);
    }
    headers
}

/// Everything that does not act by itself.
fn lasting(properties: BasicProperties) -> BasicProperties {
    properties
        .with_headers(all_headers())
        .with_content_type("text/plain".into())
        .with_content_encoding("identity".into())
        .with_priority(4)
        .with_correlation_id("c-1".into())
        .with_reply_to("answers".into())
        .with_message_id("m-1".into())
        .with_timestamp(1_600_000_000)
        .with_type("order".into())
        .with_app_id("shop".into())
        .with_cluster_id("cluster".into())
}

/// Everything.
fn full(body: &str) -> Letter {
    let with_all = |properties| {
        lasting(properties)
            .with_expiration("600000".into())
            .with_user_id("guest".into())
    };
    Letter::new("work", body).with(with_all)
}

/// The properties without those that act by themselves, and without headers.
fn bare(letter: &Letter) -> BasicProperties {
    let kept = &letter.properties;
    let none = BasicProperties::default();
    let short = |value: &Option<lapin::types::ShortString>| value.clone().unwrap_or_default();
    none.with_delivery_mode(kept.delivery_mode().unwrap_or_default())
        .with_content_type(short(kept.content_type()))
        .with_content_encoding(short(kept.content_encoding()))
        .with_priority(kept.priority().unwrap_or_default())
        .with_correlation_id(short(kept.correlation_id()))
        .with_reply_to(short(kept.reply_to()))
        .with_message_id(short(kept.message_id()))
        .with_timestamp(kept.timestamp().unwrap_or_default())
        .with_type(short(kept.kind()))
        .with_app_id(short(kept.app_id()))
        .with_cluster_id(short(kept.cluster_id()))
}

/// The headers of others: not ours, not the broker's own of where a message has been.
fn of_others(letter: &Letter) -> FieldTable {
    let mut headers = FieldTable::default();
    let all = letter.headers();
    let is_kept = |name: &str| {
        let ours = name.starts_with("x-ganger-");
        let brokers = ["x-death", "x-delivery-count"].contains(&name)
            || name.starts_with("x-first-death-")
            || name.starts_with("x-last-death-");
        !ours && !brokers
    };
    for (name, value) in all.inner() {
        if is_kept(name.as_str()) {
            headers.insert(name.clone(), value.clone());
        }
    }
    headers
}

/// All that should have been kept is as it was.
fn is_as_it_was(letter: &Letter, original: &Letter) {
    assert_eq!(letter.body, original.body);
    assert_eq!(bare(letter), bare(original));
    assert_eq!(of_others(letter), original.headers());
}

fn everything_outlives_a_retry_and_the_dead_letters() {
    for kind in ["quorum", "classic"] {
        let scene = RabbitScene::of(Pool::new(&[]).attempts(3).text("queue_type", kind));
        let original = full("mode:answer:500");
        scene.client.publish(std::slice::from_ref(&original));
        let dead = scene.one_dead();
        assert_eq!(scene.record().all(Event::Began).len(), 3);
        is_as_it_was(&dead, &original);
        assert_eq!(dead.value("x-death"), None, "it would act again: {dead:#?}");
        assert_eq!(*dead.properties.expiration(), None);
        scene.finish();
    }
}

fn everything_outlives_a_requeue() {
    let scene = RabbitScene::of(Pool::new(&["--v2=1"]).attempts(1));
    let original = full("mode:unless:go:300,answer:400");
    scene.client.publish(std::slice::from_ref(&original));
    scene
        .daemon
        .eventually("two tries", || scene.record().all(Event::Began).len() == 2);
    scene.site.touch("go");
    is_as_it_was(&scene.one_dead(), &original);
    scene.finish();
}

fn everything_outlives_the_way_back_from_the_dead_letters() {
    let pool = Pool::new(&[]).attempts(2);
    let scene = RabbitScene::of(pool.clone());
    let original = full("mode:answer:500");
    scene.client.publish(std::slice::from_ref(&original));
    scene.settled();
    assert_eq!(scene.client.ready(DEAD), Some(1));
    scene.daemon.stop();
    scene.site.configure_commands(&[pool]);
    let told = scene.site.ganger(&["dead", "retry", "--all", "-o", "json"]);
    assert_eq!(told.json(), json!({ "retried": 1 }));
    let back = scene.client.take("work").unwrap();
    is_as_it_was(&back, &original);
    let history = ["attempts", "crashes", "requeues", "reason", "letter-id"];
    let header = |name: &str| back.value(&format!("x-ganger-{name}"));
    let counted: Vec<_> = history.into_iter().filter_map(header).collect();
    assert_eq!(counted, [], "a clean count: {back:#?}");
    assert_eq!(scene.client.ready(DEAD), Some(0));
}

fn a_copy_is_not_sent_to_all_that_the_original_was_sent_to() {
    let scene = RabbitScene::of(Pool::new(&[]).attempts(2));
    scene.client.declare("carbon", &[]);
    let to = FieldArray::from(vec![text("carbon")]);
    let letter = Letter::new("work", "mode:answer:500");
    let letter = letter.header("CC", AMQPValue::FieldArray(to));
    scene.client.publish(&[letter]);
    scene.one_dead();
    assert_eq!(scene.client.take_all("carbon").len(), 1);
    scene.finish();
}

/// What it is told of header and property at the first attempt and at those after.
fn a_worker_sees_the_same_each_time() {
    let headers = all_headers();
    let headers = headers.inner().keys();
    let headers = headers.map(|name| format!("note:header:{name},"));
    let properties = [
        "message_id",
        "content_type",
        "timestamp",
        "exchange",
        "routing_key",
        "expiration",
        "user_id",
        "type",
        "app_id",
        "priority",
    ];
    let properties = properties.map(|name| format!("note:property:{name},"));
    let notes: String = headers.chain(properties).collect();
    let scene = RabbitScene::of(Pool::new(&["--v2=1"]).attempts(3));
    let ways = lapin::ExchangeKind::Topic;
    scene.client.bind("orders", ways, "order.*", "work");
    let letter = full(&format!("mode:{notes}until-attempt:3:500"));
    scene
        .client
        .publish(&[letter.through("orders", "order.new")]);
    scene.all_done();
    let record = scene.record();
    let noted = |attempt| -> Vec<&str> {
        let noted = record.all(Event::Noted).into_iter();
        let noted = noted.filter(|entry| entry.attempt == Some(attempt));
        noted.map(|entry| entry.text.as_str()).collect()
    };
    let first = noted(1);
    assert_eq!(first.len(), 28);
    assert_eq!(first, noted(2));
    assert_eq!(first, noted(3));
    for expected in [
        "property:exchange=orders",
        "property:routing_key=order.new",
        "property:message_id=m-1",
        "property:type=order",
    ] {
        assert!(first.contains(&expected), "{expected}: {first:#?}");
    }
    scene.finish();
}

fn a_worker_sees_every_kind_of_header_as_text() {
    let headers = all_headers();
    let notes = headers.inner().keys();
    let notes: String = notes.map(|name| format!("note:header:{name},")).collect();
    let scene = RabbitScene::of(Pool::new(&[]));
    scene.client.publish(&[full(&format!("mode:{notes}"))]);
    scene.all_done();
    let record = scene.record();
    let noted = record.texts(Event::Noted);
    for (name, value) in [
        ("boolean", "true"),
        ("byte", "-8"),
        ("unsigned-byte", "200"),
        ("short", "-3000"),
        ("unsigned-short", "60000"),
        ("int", "-70000"),
        ("unsigned-int", "4000000000"),
        ("long", "-5000000000"),
        ("float", "1.5"),
        ("double", "-2.25"),
        ("decimal", "3.14"),
        ("text", "grüße"),
        ("empty", ""),
        ("list", r#"[true,"two"]"#),
        ("time", "2023-11-14T22:13:20Z"),
        ("bytes", "AP8B"),
        ("table", r#"{"deep":-5}"#),
        ("nothing", ""),
    ] {
        let expected = format!("header:{name}={value}");
        assert!(noted.contains(&&*expected), "{expected}: {noted:#?}");
    }
    scene.finish();
}

/// It is counted from the publication, so that it would strike while the message waits.
fn numbers_and_times_below_zero_keep_their_sign() {
    let scene = RabbitScene::of(Pool::new(&["--v2=1"]));
    let decimal = DecimalValue {
        scale: 2,
        value: (-12_345_i32).cast_unsigned(),
    };
    let before_1970 = (-86_400_i64).cast_unsigned();
    let body = "mode:note:header:decimal,note:header:time,note:property:timestamp";
    let letter = Letter::new("work", body)
        .header("decimal", AMQPValue::DecimalValue(decimal))
        .header("time", AMQPValue::Timestamp(before_1970))
        .with(|properties| properties.with_timestamp(before_1970));
    scene.client.publish(&[letter]);
    scene.all_done();
    let record = scene.record();
    let expected = [
        "header:decimal=-123.45",
        "header:time=1969-12-31T00:00:00Z",
        "property:timestamp=Integer(-86400000)",
    ];
    assert_eq!(record.texts(Event::Noted), expected);
    scene.finish();
}

fn a_replys_type_and_encoding_are_its_own() {
    let scene = RabbitScene::of(shell());
    scene.client.declare("answers", &[]);
    let ask = |script: &str| {
        let letter = Letter::new("work", script).reply_to("answers");
        letter.with(|properties| {
            let properties = properties.with_content_encoding("gzip".into());
            properties.with_content_type("application/x-shell".into())
        })
    };
    let said = "(echo header.content-type=text/json; echo header.Content-Encoding=br) > \
                $GANGER_RESULT; echo said";
    scene.client.publish(&[ask(said)]);
    scene.all_done();
    scene.client.publish(&[ask("echo unsaid")]);
    scene.all_done();
    let answers = scene.client.take_all("answers");
    let labels = answers.iter().map(|answer| {
        let (kind, encoding) = (
            answer.properties.content_type().clone(),
            answer.properties.content_encoding().clone(),
        );
        (answer.text(), kind.unwrap(), encoding.unwrap_or_default())
    });
    let labels: Vec<_> = labels.collect();
    let expected = [
        ("said\n", "text/json".into(), "br".into()),
        ("unsaid\n", "application/x-shell".into(), "".into()),
    ];
    assert_eq!(labels, expected);
    assert_eq!(answers[0].value("content-type"), None);
    assert_eq!(answers[0].value("Content-Encoding"), None);
    scene.finish();
}

fn an_expiration_does_not_run_on_after_a_retry() {
    let retry = r#"{ attempts = 2, initial = "1s", max = "1s", jitter = 0.0 }"#;
    let scene = RabbitScene::of(Pool::new(&["--v2=1"]).set("retry", retry));
    let letter = Letter::new("work", "mode:until-attempt:2:500");
    let letter = letter.with(|properties| properties.with_expiration("500".into()));
    scene.client.publish(&[letter]);
    scene.done(1);
    scene.all_done();
    scene.finish();
}

fn a_binary_body_is_kept_byte_for_byte() {
    let scene = RabbitScene::of(Pool::new(&["--v2=1", "--mode=note:form,answer:500"]));
    let body: Vec<u8> = (0..=255).collect();
    scene.client.publish(&[Letter::new("work", &body)]);
    assert_eq!(scene.one_dead().body, body);
    assert_eq!(
        scene.record().texts(Event::Noted),
        ["form=bin", "form=bin"],
        "at each of two attempts"
    );
    scene.finish();
}

/// Larger than a frame of AMQP.
fn a_large_body_is_kept_byte_for_byte() {
    let scene = RabbitScene::of(Pool::new(&[]));
    scene.client.declare("answers", &[]);
    let body = "0123456789abcdef".repeat(200_000);
    let question = format!("mode:reply:answers {body}");
    let failure = format!("mode:answer:500 {body}");
    scene.send(&[&question, &failure]);
    assert_eq!(scene.one_dead().text(), failure);
    let answer = scene.client.take("answers").unwrap();
    assert_eq!(answer.text(), format!("re: {question}"));
    scene.finish();
}

/// A message's headers and properties must fit one frame: there is no room for more.
fn with_full_headers(body: &str) -> Letter {
    let filler = "x".repeat(131_072 - 300);
    Letter::new("work", body).header("filler", text(&filler))
}

fn headers_that_fill_a_frame_are_kept() {
    let scene = RabbitScene::of(Pool::new(&[]).attempts(1));
    let original = with_full_headers("mode:answer:500");
    scene.client.publish(std::slice::from_ref(&original));
    scene.send(&["another"]);
    is_as_it_was(&scene.one_dead(), &original);
    scene.record().assert_done_once(&["another"]);
    assert_eq!(scene.record().all(Event::Began).len(), 2);
    scene.finish();
}

fn headers_that_fill_a_frame_outlive_a_retry() {
    let scene = RabbitScene::of(Pool::new(&[]).attempts(2));
    let original = with_full_headers("mode:answer:500");
    scene.client.publish(std::slice::from_ref(&original));
    scene.send(&["another"]);
    is_as_it_was(&scene.one_dead(), &original);
    scene.record().assert_done_once(&["another"]);
    scene.finish();
}

/// The worker would end over them, and so would the next.
fn more_headers_than_a_worker_takes_make_a_dead_letter() {
    let scene = RabbitScene::of(Pool::new(&[]));
    let mut headers = FieldTable::default();
    for n in 0..10_001 {
        headers.insert(format!("{n:x}").into(), AMQPValue::Void);
    }
    let many = Letter::new("work", "many").with(|of| of.with_headers(headers.clone()));
    scene.client.publish(&[many]);
    scene.send(&["another"]);
    scene.settled();
    let record = scene.record();
    assert_eq!(record.texts(Event::Began), ["another"]);
    let dead = scene.client.take_all(DEAD);
    assert_eq!(dead.len(), 1, "{dead:?}");
    assert!(dead[0].says("x-ganger-reason", "undeliverable"), "{dead:?}");
    let kept = dead[0].headers();
    assert!(
        headers
            .inner()
            .keys()
            .all(|name| kept.contains_key(name.as_str()))
    );
    scene.finish();
}

fn nested(depth: usize) -> AMQPValue {
    (0..depth).fold(AMQPValue::Void, |value, _| {
        AMQPValue::FieldArray(FieldArray::from(vec![value]))
    })
}

/// The library can't read them; their producer's could write them. Headers without end would be that
/// of its stack.
fn texts_that_are_not_utf8_make_a_dead_letter() {
    let scene = RabbitScene::of(Pool::new(&[]));
    scene.is_consumed();
    let before = scene.vhost.connections();
    let proxy = Proxy::to(scene.vhost.port());
    proxy.flow(Flow {
        up_becomes: Some((b"UNREADABLE", b"\xff\xfeREADABLE")),
        ..Flow::default()
    });
    let producer = Client::connect(&scene.vhost.url_by(proxy.port()));
    let letter = |body: &str| Letter::new("work", body);
    producer.publish(&[
        letter("id").with(|of| of.with_message_id("an UNREADABLE id".into())),
        letter("correlation").correlation_id("UNREADABLE"),
        letter("header").header("UNREADABLE", text("value")),
        letter("deep").header("deep", nested(200)),
    ]);
    scene.send(&["a sound one"]);
    scene.settled();
    scene.record().assert_done_once(&["a sound one"]);
    let dead = scene.client.take_all(DEAD);
    let bodies: Vec<&str> = dead.iter().map(Letter::text).collect();
    assert_eq!(bodies, ["id", "correlation", "header", "deep"]);
    for letter in &dead {
        assert!(
            letter.says("x-ganger-reason", "undeliverable"),
            "{letter:?}"
        );
    }
    let id = dead[0].properties.message_id().clone();
    assert_eq!(id, Some("an ??READABLE id".into()));
    assert_eq!(dead[1].id(), "??READABLE");
    assert!(dead[2].says("??READABLE", "value"), "{dead:#?}");
    let headers = dead[3].properties.headers().clone().unwrap_or_default();
    let deep = headers.inner().get("?eep");
    assert!(matches!(deep, Some(AMQPValue::ByteArray(_))), "{headers:?}");
    let now = scene.vhost.connections();
    assert!(now.starts_with(&before), "never lost: {now:?}");
    scene.finish();
}

/// A producer may write it as well.
fn what_a_stream_would_write_is_a_header_like_others() {
    let scene = RabbitScene::of(Pool::new(&[]));
    let offset = AMQPValue::LongLongInt(7);
    let original = Letter::new("work", "mode:answer:400").header("x-stream-offset", offset);
    scene.client.publish(std::slice::from_ref(&original));
    scene.send(&["another"]);
    is_as_it_was(&scene.one_dead(), &original);
    scene.record().assert_done_once(&["another"]);
    scene.finish();
}
