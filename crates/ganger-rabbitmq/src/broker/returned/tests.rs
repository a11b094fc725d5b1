use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::broker::frame_limit::FrameLimit;
use crate::broker::utf8::Utf8Repair;

const METHOD: u8 = 1;
const PROPERTIES: u8 = 2;
const BODY: u8 = 3;

/// The channel that publishes, and another one.
const OURS: u8 = 1;
const ANOTHER: u8 = 2;

const RETURN: [u8; 4] = [0, 60, 0, 50];
const DELIVER: [u8; 4] = [0, 60, 0, 60];
const ACK: [u8; 4] = [0, 60, 0, 80];

fn frame(kind: u8, channel: u8, payload: &[u8]) -> Vec<u8> {
    let size = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&[kind, 0, channel][..], &size, payload, &[0xce]].concat()
}

fn properties(channel: u8, headers: &[u8]) -> Vec<u8> {
    let flags = 0x2000_u16.to_be_bytes();
    let size = u32::try_from(headers.len()).unwrap().to_be_bytes();
    let start = [0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    frame(
        PROPERTIES,
        channel,
        &[&start[..], &flags, &size, headers].concat(),
    )
}

fn header(name: &str, value: &[u8]) -> Vec<u8> {
    let length = u8::try_from(name.len()).unwrap();
    [&[length], name.as_bytes(), value].concat()
}

fn number(number: u64) -> Vec<u8> {
    header(HEADER, &[&b"l"[..], &number.to_be_bytes()].concat())
}

/// Content with a header that it shares with other messages, and a header with its number.
fn content(channel: u8, shared: u8, sent_as: u64) -> Vec<u8> {
    let headers = [header("content", &[b'b', shared]), number(sent_as)].concat();
    let body = frame(BODY, channel, &[shared]);
    [properties(channel, &headers), body].concat()
}

fn returned(shared: u8, sent_as: u64) -> Vec<u8> {
    let names = [1, 56, 0, 0, 0];
    let method = frame(METHOD, OURS, &[&RETURN[..], &names].concat());
    [method, content(OURS, shared, sent_as)].concat()
}

/// Another program's reply that is read, with the number that it was sent with.
fn delivered(shared: u8, sent_as: u64) -> Vec<u8> {
    let names = [[0; 12].as_slice()].concat();
    let method = frame(METHOD, ANOTHER, &[&DELIVER[..], &names].concat());
    [method, content(ANOTHER, shared, sent_as)].concat()
}

fn acknowledged() -> Vec<u8> {
    frame(METHOD, OURS, &[&ACK[..], &[0; 9]].concat())
}

/// Bytes that the broker writes, and the messages that each piece acknowledges.
type Script = Vec<(Vec<u8>, Vec<usize>)>;

/// Script for messages with their outcome (accepted, not now, returned) and their content, all published;
/// returns come in order, each before its own acknowledgement, which may cover several messages. The dice
/// decide the rest.
fn script(messages: &[(u8, u8)], dice: &[u8]) -> Script {
    let mut dice = dice.iter().copied().chain(std::iter::repeat(7));
    let mut roll = |below: usize| usize::from(dice.next().unwrap_or_default()) % below.max(1);
    let comes_back = |id: &usize| messages[*id].0 == 2;
    let mut to_return: VecDeque<usize> = (0..messages.len()).filter(comes_back).collect();
    let mut unsaid: Vec<usize> = (0..messages.len()).collect();
    let mut script = Script::new();
    while !unsaid.is_empty() {
        let ready: Vec<usize> = unsaid
            .iter()
            .copied()
            .filter(|id| !to_return.contains(id))
            .collect();
        if (roll(2) == 0 || ready.is_empty())
            && let Some(id) = to_return.pop_front()
        {
            script.push((returned(messages[id].1, sent_as(id)), Vec::new()));
        } else {
            let from = roll(ready.len());
            let some = &ready[from..ready.len().min(from + 1 + roll(3))];
            unsaid.retain(|id| !some.contains(id));
            script.push((acknowledged(), some.to_vec()));
        }
        if roll(3) == 0 {
            // Of any message, such as one that is acknowledged later.
            let id = roll(messages.len());
            script.push((delivered(messages[id].1, sent_as(id)), Vec::new()));
        }
    }
    script
}

fn sent_as(id: usize) -> u64 {
    u64::try_from(id).unwrap() + 1
}

/// Reads the script in pieces of this length, and looks up after each acknowledgement. Returns the
/// returned messages.
fn heard(script: &Script, piece: usize) -> Vec<usize> {
    let returns = Returns::default();
    let mut mender = Utf8Repair::new(returns.clone(), FrameLimit::default());
    let mut unread: VecDeque<u8> = script.iter().flat_map(|(bytes, _)| bytes.clone()).collect();
    let (mut passed, mut end) = (0, 0);
    let mut buffer = vec![0; piece];
    let mut came_back = Vec::new();
    for (bytes, acknowledged) in script {
        end += bytes.len();
        while passed < end {
            passed += mender.rest(&mut buffer);
            if passed >= end {
                break;
            }
            let count = piece.min(unread.len());
            for byte in &mut buffer[..count] {
                *byte = unread.pop_front().unwrap();
            }
            passed += mender.pass(&mut buffer, count);
        }
        came_back.extend(acknowledged.iter().filter(|id| returns.take(sent_as(**id))));
    }
    assert!(returns.unnumbered().is_empty());
    came_back.sort_unstable();
    came_back
}

fn did(messages: &[(u8, u8)]) -> Vec<usize> {
    let all = 0..messages.len();
    all.filter(|id| messages[*id].0 == 2).collect()
}

/// A former comparison of contents took a returned message for another.
#[test]
fn messages_that_are_alike_are_told_apart() {
    let messages = [(2, 0), (2, 1), (2, 0), (0, 0), (0, 1)];
    let dice = [56, 80, 4, 109, 0, 106, 253, 0, 16, 19, 112, 14, 73, 144, 14];
    let script = script(&messages, &dice);
    for piece in [1, 7, 64, 100_000] {
        assert_eq!(heard(&script, piece), [0, 1, 2], "in pieces of {piece}");
    }
}

/// Each costs one lookup, however many are equal: comparing them took cubic time.
#[test]
fn a_hundred_thousand_that_are_alike_are_as_many_looks() {
    let returns = Returns::default();
    let count = 100_000;
    let numbers: Vec<u64> = (0..count).map(|_| returns.number()).collect();
    for number in &numbers {
        returns.came_back(1, Some(*number));
    }
    assert!(numbers.iter().rev().all(|number| returns.take(*number)));
    assert!(returns.lock().came_back.is_empty(), "each is told once");
}

#[test]
fn one_without_a_number_is_noticed() {
    let other = [
        properties(OURS, &[]),
        properties(OURS, &header("x", b"V")),
        properties(OURS, &header(HEADER, b"S\0\0\0\x017")),
        properties(OURS, &header(HEADER, b"l\0\0")),
        frame(PROPERTIES, OURS, &[0; 3]),
    ];
    for properties in other {
        let returns = Returns::default();
        let mut mender = Utf8Repair::new(returns.clone(), FrameLimit::default());
        let method = frame(METHOD, OURS, &[&RETURN[..], &[1, 56, 0, 0, 0]].concat());
        for mut bytes in [method, properties] {
            assert!(returns.unnumbered().is_empty());
            let count = bytes.len();
            mender.pass(&mut bytes, count);
        }
        assert_eq!(returns.unnumbered(), [u16::from(OURS)]);
        assert!(!returns.take_unnumbered(u16::from(ANOTHER)));
        assert!(returns.take_unnumbered(u16::from(OURS)));
    }
}

#[test]
fn a_number_is_found_behind_whatever_is_nested() {
    let long = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap().to_be_bytes();
    for letter in [b"A", b"F"] {
        let value = (0..1000).fold(b"V".to_vec(), |value, _| {
            let name: &[u8] = if letter == b"F" { b"\x01n" } else { b"" };
            let within = [name, &value].concat();
            [&letter[..], &long(&within), &within].concat()
        });
        let returns = Returns::default();
        let mut mender = Utf8Repair::new(returns.clone(), FrameLimit::default());
        let method = frame(METHOD, OURS, &[&RETURN[..], &[1, 56, 0, 0, 0]].concat());
        let headers = [header("deep", &value), number(7)].concat();
        for mut bytes in [method, properties(OURS, &headers)] {
            let count = bytes.len();
            mender.pass(&mut bytes, count);
        }
        assert!(returns.unnumbered().is_empty() && returns.take(7));
    }
}

#[test]
fn a_number_replaces_another_and_has_the_room_that_is_kept_for_it() {
    let bytes = crate::broker::field_table::header_frame_bytes;
    let none = BasicProperties::default();
    let first = numbered(none.clone(), 1);
    let second = numbered(first.clone(), u64::MAX);
    assert_eq!(bytes(&first) - bytes(&none), NUMBER_BYTES);
    assert_eq!(bytes(&second), bytes(&first));
    let headers = second.headers().clone().unwrap();
    let value = headers.inner().get(HEADER);
    assert_eq!(value, Some(&AMQPValue::LongLongInt(-1)));
}

proptest! {
    #[test]
    fn whatever_came_back_is_known_before_its_acknowledgement(
        messages in proptest::collection::vec((0_u8..3, 0_u8..4), 1..40),
        dice in proptest::collection::vec(any::<u8>(), 0..200),
        piece in 1_usize..400,
    ) {
        prop_assert_eq!(heard(&script(&messages, &dice), piece), did(&messages));
    }
}
