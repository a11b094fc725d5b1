//! Tests of properties of every message, every answer and any bytes.

use bytes::{Bytes, BytesMut};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::frame::{LENGTH_BYTES, next_frame};
use super::{EncodeError, Extras, Input, Output, Status, Task, invariants};
use ganger_core::message::{Headers, Message, Property};

const NO_LIMIT: usize = usize::MAX;

fn body() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        ".{0,300}".prop_map(Bytes::from),
        vec(any::<u8>(), 0..300).prop_map(Bytes::from),
        // Beyond each of the widths that a length may have.
        (65_530usize..65_550).prop_map(|length| "y".repeat(length).into()),
    ]
}

fn headers() -> impl Strategy<Value = Headers> {
    vec(("[a-zA-Z][ -~]{0,20}", ".{0,40}"), 0..20).prop_filter(
        "names of our own are not sent",
        |headers| {
            !headers
                .iter()
                .any(|(name, _)| name.to_lowercase().starts_with("x-ganger-"))
        },
    )
}

fn output() -> impl Strategy<Value = Output> {
    (
        body(),
        any::<i64>(),
        option::of(headers()),
        option::of(".{1,40}"),
        option::of(any::<u64>()),
        option::of(any::<u64>()),
    )
        .prop_map(
            |(message, status, headers, reply_queue, id, retry_after_ms)| Output {
                message,
                status: Status(status),
                headers,
                reply_queue,
                id,
                retry_after_ms,
            },
        )
}

fn property() -> impl Strategy<Value = Property> {
    prop_oneof![
        ".{0,40}".prop_map(Property::Text),
        any::<i64>().prop_map(Property::Integer),
        any::<bool>().prop_map(Property::Boolean),
        vec(any::<u8>(), 0..40).prop_map(|bytes| Property::Bytes(bytes.into())),
    ]
}

fn message() -> impl Strategy<Value = Message> {
    let name = prop_oneof![Just("message_id"), Just("row_id"), Just("key")];
    (
        body(),
        ".{0,20}",
        ".{0,40}",
        headers(),
        vec((name, property()), 0..5),
    )
        .prop_map(
            |(body, queue, correlation_id, headers, properties)| Message {
                queue: queue.into(),
                body,
                headers,
                correlation_id,
                reply_to: None,
                properties,
                occurrence: None,
            },
        )
}

fn extras() -> impl Strategy<Value = Extras> {
    (any::<u32>(), option::of(any::<u64>())).prop_map(|(attempt, milliseconds_left)| Extras {
        attempt,
        milliseconds_left,
    })
}

/// Returns the task that a worker should read from a message.
fn expected(message: &Message, id: u64, extras: Option<Extras>) -> Task {
    let owned = |(name, property): &(&str, Property)| ((*name).to_owned(), property.clone());
    Task {
        message: message.body.clone(),
        binary: std::str::from_utf8(&message.body).is_err(),
        correlation_id: message.correlation_id.clone(),
        queue: message.queue.to_string(),
        headers: message.headers.clone(),
        id: Some(id),
        attempt: extras.map(|extras| extras.attempt),
        milliseconds_left: extras.and_then(|extras| extras.milliseconds_left),
        properties: extras
            .map(|_| message.properties.iter().map(owned).collect())
            .unwrap_or_default(),
    }
}

proptest! {
    #[test]
    fn an_output_is_read_as_it_was_written(output in output()) {
        let mut stream = BytesMut::new();
        output.encode(&mut stream);
        let frame = next_frame(&mut stream, NO_LIMIT).unwrap().unwrap();
        prop_assert!(stream.is_empty());
        prop_assert_eq!(Output::decode(&frame), Ok(output));
    }

    #[test]
    fn a_message_is_read_as_it_was_sent(
        message in message(),
        id in any::<u64>(),
        extras in option::of(extras()),
    ) {
        let mut stream = BytesMut::from(&b"before"[..]);
        let written = Input { message: &message, timeout_ms: None, span: None, id, extras }
            .encode(&mut stream, NO_LIMIT);
        let mut stream = stream.split_off(b"before".len());
        let expected = expected(&message, id, extras);
        if expected.binary && extras.is_none() {
            let refused = matches!(written, Err(EncodeError::BinaryForVersion1 { .. }));
            prop_assert!(refused && stream.is_empty());
        } else {
            let frame = next_frame(&mut stream, NO_LIMIT).unwrap().unwrap();
            prop_assert!(stream.is_empty());
            prop_assert_eq!(Task::decode(&frame), Ok(expected));
        }
    }

    #[test]
    fn no_frame_is_longer_than_its_limit(message in message(), max in 0usize..1000) {
        let extras = Some(Extras { attempt: 1, milliseconds_left: None });
        let input = Input { message: &message, timeout_ms: Some(5), span: None, id: 1, extras };
        let mut whole = BytesMut::new();
        input.encode(&mut whole, NO_LIMIT).unwrap();
        let bytes = whole.len() - LENGTH_BYTES;
        let mut out = BytesMut::new();
        let written = input.encode(&mut out, max);
        if bytes <= max {
            prop_assert_eq!(written, Ok(()));
            prop_assert_eq!(out, whole);
        } else {
            prop_assert_eq!(written, Err(EncodeError::TooLarge { bytes, max }));
            prop_assert!(out.is_empty());
        }
    }

    #[test]
    fn any_bytes_are_refused_or_understood(bytes in vec(any::<u8>(), 0..200)) {
        invariants::output_is_refused_or_understood(&bytes);
        invariants::task_is_refused_or_understood(&bytes);
    }

    #[test]
    fn a_damaged_output_is_refused_or_understood(
        output in output(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut frame = BytesMut::new();
        output.encode(&mut frame);
        let mut frame = frame.split_off(LENGTH_BYTES);
        for (at, byte) in damage {
            let at = at.index(frame.len());
            frame[at] = byte;
        }
        invariants::output_is_refused_or_understood(&frame);
        invariants::task_is_refused_or_understood(&frame);
    }

    #[test]
    fn part_of_an_output_is_refused(output in output(), cut in any::<prop::sample::Index>()) {
        let mut frame = BytesMut::new();
        output.encode(&mut frame);
        let frame = frame.split_off(LENGTH_BYTES);
        let part = &frame[..cut.index(frame.len())];
        prop_assert_eq!(Output::decode(part).unwrap_err().kind(), "truncated");
    }

    #[test]
    fn frames_do_not_depend_on_the_reads(
        outputs in vec(output(), 0..4),
        tail in vec(any::<u8>(), 0..20),
        step in 1usize..5000,
    ) {
        let mut stream = BytesMut::new();
        outputs.iter().for_each(|output| output.encode(&mut stream));
        stream.extend_from_slice(&tail);
        invariants::frames_split_alike(&stream, step);
    }

    #[test]
    fn any_stream_splits_alike(stream in vec(0u8..4, 0..300), step in 1usize..10) {
        invariants::frames_split_alike(&stream, step);
    }
}
