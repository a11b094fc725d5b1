use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

const BODY: u8 = 3;

fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let size = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&[kind, 0, 1][..], &size, payload, &[0xce]].concat()
}

fn text(bytes: &[u8]) -> Vec<u8> {
    let length = u8::try_from(bytes.len()).unwrap();
    [&[length], bytes].concat()
}

fn long(bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).unwrap().to_be_bytes();
    [&length, bytes].concat()
}

/// A message with a header and two properties: what is handed out, its properties, its body.
fn message(key: &[u8], header: &[u8], id: &[u8], body: &[u8]) -> Vec<u8> {
    let deliver = [
        &[0, 60, 0, 60][..],
        &text(b"consumer"),
        &[0; 9],
        &text(b"exchange"),
        &text(key),
    ]
    .concat();
    let nested = long(&[&text(header)[..], b"I\0\0\0\x07"].concat());
    let array = long(&[&b"F"[..], &nested, b"V", b"S", &long(b"\xff")].concat());
    let headers = long(&[&text(b"list")[..], b"A", &array].concat());
    // Headers, a priority and a message id.
    let flags = 0b0010_1000_1000_0000_u16.to_be_bytes();
    let size = u64::try_from(body.len()).unwrap().to_be_bytes();
    let properties = [&[0, 60, 0, 0][..], &size, &flags, &headers, &[5], &text(id)].concat();
    [
        frame(METHOD, &deliver),
        frame(HEADER, &properties),
        frame(BODY, body),
    ]
    .concat()
}

/// Passes it on in pieces of these lengths, in turns, through a buffer of that size.
fn passed(bytes: &[u8], pieces: &[usize], room: usize) -> Vec<u8> {
    let mut mender = Mender::default();
    let mut buffer = vec![0; room];
    let mut out = Vec::new();
    let mut pieces = pieces.iter().cycle();
    let mut rest = bytes;
    while !rest.is_empty() {
        let count = rest.len().min(room).min(*pieces.next().unwrap());
        let (piece, later) = rest.split_at(count);
        buffer[..count].copy_from_slice(piece);
        rest = later;
        let mut passed = mender.pass(&mut buffer, count);
        while passed > 0 {
            out.extend_from_slice(&buffer[..passed]);
            passed = mender.rest(&mut buffer);
        }
    }
    out
}

#[test]
fn what_is_not_utf8_is_replaced_byte_for_byte() {
    let bad = message(b"k\xff", b"h\xc3", b"\xe4\xb8id", b"\xff\xfe");
    let mended = message(b"k\x1a", b"h\x1a", b"\x1a\x1aid", b"\xff\xfe");
    assert_eq!(passed(&bad, &[bad.len()], bad.len()), mended);
    assert_eq!(passed(&bad, &[1], 1), mended);
    let good = message("ключ".as_bytes(), b"name", "№".as_bytes(), b"body");
    assert_eq!(passed(&good, &[good.len()], good.len()), good);
}

#[test]
fn what_is_returned_and_what_is_got_is_mended_too() {
    let names = [text(b"\xff"), text(b"\xfe")].concat();
    let mended = [text(b"\x1a"), text(b"\x1a")].concat();
    let table = [
        ([&[0, 60, 0, 50, 1, 2][..], &text(b"\xff")].concat(), 1),
        ([&[0, 60, 0, 71][..], &[0; 9]].concat(), 0),
    ];
    for (mut before, texts) in table {
        let bad = frame(METHOD, &[&before[..], &names].concat());
        if texts == 1 {
            *before.last_mut().unwrap() = SUBSTITUTE as u8;
        }
        let good = frame(METHOD, &[&before[..], &mended].concat());
        assert_eq!(passed(&bad, &[3], 64), good);
    }
}

#[test]
fn what_is_no_frame_goes_on_as_it_is() {
    let other = b"AMQP\0\0\x09\x01\xff and more";
    assert_eq!(passed(other, &[3], 16), other);
    // A method that ends too early, and one without a meaning for us.
    let odd = [
        frame(METHOD, &[0, 60, 0, 60, 9, 0xff]),
        frame(METHOD, &[0, 10, 0, 10, 0xff]),
        frame(METHOD, &[]),
        frame(HEADER, &[0xff; 20]),
    ]
    .concat();
    assert_eq!(passed(&odd, &[5], 16).len(), odd.len());
    assert_eq!(passed(&odd, &[5], 16)[..14], odd[..14]);
}

#[test]
fn tables_without_end_are_not_followed() {
    let mut value = b"V".to_vec();
    for _ in 0..10_000 {
        value = [&b"A"[..], &long(&value)].concat();
    }
    let headers = long(&[&text(b"\xff")[..], &value].concat());
    let flags = 0x2000_u16.to_be_bytes();
    let frame = frame(HEADER, &[&[0; 12][..], &flags, &headers].concat());
    let passed = passed(&frame, &[1000], 4096);
    assert_eq!(passed.len(), frame.len());
    assert!(passed.contains(&(SUBSTITUTE as u8)));
}

proptest! {
    #[test]
    fn nothing_else_is_changed_however_it_comes(
        messages in vec((".{0,20}", ".{0,20}", ".{0,20}", vec(any::<u8>(), 0..300)), 1..5),
        pieces in vec(1_usize..200, 1..8), room in 1_usize..500,
    ) {
        let bytes: Vec<u8> = messages
            .iter()
            .flat_map(|(key, header, id, body)| {
                message(key.as_bytes(), header.as_bytes(), id.as_bytes(), body)
            })
            .collect();
        prop_assert_eq!(passed(&bytes, &pieces, room), bytes);
    }

    #[test]
    fn no_stream_is_lost_or_made_longer(
        frames in vec((0_u8..10, vec(any::<u8>(), 0..100)), 0..8), pieces in vec(1_usize..50, 1..4),
    ) {
        let bytes: Vec<u8> = frames.iter().flat_map(|(kind, payload)| frame(*kind, payload)).collect();
        prop_assert_eq!(passed(&bytes, &pieces, 64).len(), bytes.len());
    }
}
