use super::*;
use lapin::types::AMQPValue;
use lapin::types::parsing::parse_field_table;
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

#[test]
fn the_brokers_limit_for_frames_is_recorded() {
    let limit = FrameLimit::default();
    let mut repair = Utf8Repair::new(Returns::default(), limit.clone());
    // `connection.tune`: 2047 channels, frames of 1 MiB, a heartbeat.
    let tune = [0, 10, 0, 30, 7, 255, 0, 16, 0, 0, 0, 60];
    let mut passed = Vec::new();
    for byte in frame(METHOD, &tune) {
        let mut buffer = [byte; 64];
        let count = repair.pass(&mut buffer, 1);
        passed.extend_from_slice(&buffer[..count]);
    }
    assert_eq!(passed, frame(METHOD, &tune));
    assert_eq!(limit.beyond_usual(), Some(1 << 20));
}

/// A message with a header and two properties: the method, its properties, its body.
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

/// Passes the bytes through in pieces of these lengths, in turn, with a buffer of that size.
fn passed(bytes: &[u8], pieces: &[usize], room: usize) -> Vec<u8> {
    let mut repair = Utf8Repair::default();
    let mut buffer = vec![0; room];
    let mut out = Vec::new();
    let mut pieces = pieces.iter().cycle();
    let mut rest = bytes;
    while !rest.is_empty() {
        let count = rest.len().min(room).min(*pieces.next().unwrap());
        let (piece, later) = rest.split_at(count);
        buffer[..count].copy_from_slice(piece);
        rest = later;
        let mut passed = repair.pass(&mut buffer, count);
        while passed > 0 {
            out.extend_from_slice(&buffer[..passed]);
            passed = repair.rest(&mut buffer);
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
    // A method that ends too early, and one without a meaning here.
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

/// A value within `depth` arrays and tables, alternately.
fn nested(depth: usize) -> Vec<u8> {
    (0..depth).fold(b"V".to_vec(), |value, level| match level % 2 {
        0 => [&b"A"[..], &long(&value)].concat(),
        _ => [&b"F"[..], &long(&[&text(b"in"), &value[..]].concat())].concat(),
    })
}

/// Headers of these names and values, and a correlation id.
fn properties(headers: &[(&[u8], Vec<u8>)], id: &[u8]) -> Vec<u8> {
    let headers = headers.iter();
    let headers = headers.flat_map(|(name, value)| [text(name), value.clone()].concat());
    let flags = 0x2400_u16.to_be_bytes();
    let headers = long(&headers.collect::<Vec<u8>>());
    frame(
        HEADER,
        &[&[0; 12][..], &flags, &headers, &text(id)].concat(),
    )
}

/// A header as the library reads it, and the id behind it.
fn read(name: &[u8], depth: usize) -> (Vec<(String, AMQPValue)>, Vec<u8>) {
    let headers = [(name, nested(depth)), (b"last", b"V".to_vec())];
    let bytes = properties(&headers, b"\xffd");
    let passed = passed(&bytes, &[1000], 4096);
    assert_eq!(passed.len(), bytes.len());
    let (rest, headers) = parse_field_table(&passed[HEAD_BYTES + 12 + 2..]).unwrap();
    let headers = headers.into_iter();
    let headers = headers.map(|(name, value)| (name.to_string(), value.clone()));
    (headers.collect(), rest.to_vec())
}

#[test]
fn headers_without_end_are_plain_bytes_for_the_library() {
    let table: [(&[u8], usize, &str); 7] = [
        (b"name", DEPTH_MAX - 1, "name"),
        (b"name", DEPTH_MAX, "\x1aame"),
        (b"name", DEPTH_MAX + 1, "\x1aame"),
        ("№1".as_bytes(), DEPTH_MAX, "\x1a\x1a\x1a1"),
        (b"", DEPTH_MAX - 1, ""),
        (b"", DEPTH_MAX, "\x1a"),
        (b"name", 3_000, "\x1aame"),
    ];
    for (name, depth, becomes) in table {
        let (headers, rest) = read(name, depth);
        let value = headers.iter().find(|(name, _)| name == becomes);
        let (_, value) = value.unwrap_or_else(|| panic!("{depth}: {headers:?}"));
        let is_flat = matches!(value, AMQPValue::ByteArray(_));
        assert_eq!(is_flat, depth >= DEPTH_MAX, "{depth}: {value:?}");
        assert!(headers.contains(&("last".into(), AMQPValue::Void)));
        assert_eq!(rest, b"\x02\x1ad\xce", "what is behind it is mended");
    }
}

/// A header of an unknown type must not affect its neighbours, the id behind it, or the connection.
#[test]
fn what_is_behind_a_header_of_an_unknown_type_is_mended() {
    let unknown = b"?what this is nobody knows".to_vec();
    let within = [&b"F"[..], &long(&[&text(b"in"), &unknown[..]].concat())].concat();
    let torn = [&b"F"[..], &long(&[9, b'x'])].concat();
    let table = [
        // The content is as long as declared.
        (within, true),
        (torn, true),
        // The length of this one is unknown.
        (unknown, false),
        (b"?".to_vec(), false),
        (b"?some".to_vec(), false),
    ];
    for (value, is_bounded) in table {
        let headers = [
            (&b"first\xff"[..], b"V".to_vec()),
            (b"name", value.clone()),
            (b"last\xff", b"V".to_vec()),
        ];
        let bytes = properties(&headers, b"\xffd");
        let passed = passed(&bytes, &[1000], 4096);
        assert_eq!(passed.len(), bytes.len());
        let (rest, headers) = parse_field_table(&passed[HEAD_BYTES + 12 + 2..]).unwrap();
        let names: Vec<&str> = headers.inner().keys().map(|name| name.as_str()).collect();
        assert!(names.contains(&"first\x1a"), "{names:?}");
        assert_eq!(names.contains(&"last\x1a"), is_bounded, "{names:?}");
        let is_repaired = |name: &&str| name.contains(SUBSTITUTE);
        assert_eq!(
            names.iter().filter(|name| is_repaired(name)).count(),
            if is_bounded { 3 } else { 2 }
        );
        assert_eq!(rest, b"\x02\x1ad\xce", "what is behind it is mended");
    }
}

#[test]
fn whatever_is_left_of_a_table_can_be_read() {
    for bytes in 3..300_usize {
        let mut rest = vec![b'?'; bytes];
        flatten_all(&mut rest).unwrap();
        let whole = long(&rest);
        let (rest, table) = parse_field_table(&whole[..]).unwrap();
        let names: Vec<&str> = table.inner().keys().map(|name| name.as_str()).collect();
        assert!(names.len() == 1 && names[0].contains(SUBSTITUTE), "{bytes}");
        assert!(rest.is_empty());
    }
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
    #[test]
    fn no_headers_are_lost_or_made_longer(
        name in vec(any::<u8>(), 0..5), depth in 0_usize..80, cut in 0_usize..20,
        noise in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let mut bytes = properties(&[(&name, nested(depth))], b"id");
        let payload = bytes.len() - HEAD_BYTES;
        for (at, byte) in noise {
            bytes[HEAD_BYTES + at.index(payload)] = byte;
        }
        bytes.truncate(bytes.len() - cut);
        let size = u32::try_from(bytes.len() - HEAD_BYTES - END_BYTES).unwrap();
        bytes[3..HEAD_BYTES].copy_from_slice(&size.to_be_bytes());
        prop_assert_eq!(passed(&bytes, &[50], 64).len(), bytes.len());
    }
}
