//! The shared test vectors, and what else must be refused.

use std::path::PathBuf;

use serde_json::Value as Json;

use crate::frames::Frames;
use crate::wire::{DEPTH_MAX, FRAME_BYTES_MAX, Input, Output};
use crate::{Error, Value};

fn vectors(names: &[&str]) -> Vec<Json> {
    let folder = PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../proto-spec/vectors"
    ));
    let read = |name: &&str| {
        let text = std::fs::read_to_string(folder.join(format!("{name}.json"))).unwrap();
        let file: Json = serde_json::from_str(&text).unwrap();
        assert_eq!(file["format"], 1, "{name}");
        file["vectors"].as_array().unwrap().clone()
    };
    names.iter().flat_map(read).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(byte).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn text(json: &Json) -> &str {
    json.as_str().unwrap_or_else(|| panic!("no text: {json}"))
}

fn body(message: &Json) -> Vec<u8> {
    match &message["text"] {
        Json::String(text) => text.clone().into_bytes(),
        _ => unhex(text(&message["hex"])),
    }
}

fn id(meaning: &Json) -> Option<u64> {
    meaning["id"].as_str().map(|id| id.parse().unwrap())
}

fn property(json: &Json) -> Value {
    let (kind, value) = json.as_object().unwrap().iter().next().unwrap();
    match kind.as_str() {
        "text" => Value::from(text(value)),
        "hex" => Value::from(unhex(text(value))),
        "integer" => Value::Integer(text(value).parse().unwrap()),
        "boolean" => Value::from(value.as_bool().unwrap()),
        other => panic!("a property of another kind: {other}"),
    }
}

#[test]
fn inputs_mean_what_they_should() {
    let vectors = vectors(&["input-v1", "input-v2"]);
    assert!(vectors.len() > 15, "only {}", vectors.len());
    for vector in vectors {
        let meaning = &vector["meaning"];
        let pairs = |of: &Json| of.as_array().unwrap().clone();
        let wanted = Input {
            message: body(&meaning["message"]),
            correlation_id: text(&meaning["correlation_id"]).to_owned(),
            queue: text(&meaning["queue"]).to_owned(),
            headers: pairs(&meaning["headers"])
                .iter()
                .map(|pair| (text(&pair[0]).to_owned(), text(&pair[1]).to_owned()))
                .collect(),
            id: id(meaning),
            attempt: meaning["attempt"].as_u64(),
            milliseconds_left: meaning["milliseconds_left"].as_u64(),
            properties: pairs(&meaning["properties"])
                .iter()
                .map(|pair| (text(&pair[0]).to_owned(), property(&pair[1])))
                .collect(),
        };
        let found = Input::decode(&unhex(text(&vector["bytes"])));
        assert_eq!(found.unwrap(), wanted, "{}", vector["name"]);
    }
}

#[test]
fn hostile_inputs_are_refused() {
    let start = "85a130a16da131a0a132a171a13380";
    let deep = |levels| "91".repeat(levels);
    let mut hostile = vec![
        ("empty", String::new()),
        (
            "bin for a key",
            "85c40130a16da131a0a132a171a13380a13401".to_owned(),
        ),
        (
            "a key that is not UTF-8",
            "85a130a16da131a0a132a171a13380a1ffc0".to_owned(),
        ),
        (
            "a header of a number",
            "85a130a16da131a0a132a171a13381a16101a13401".to_owned(),
        ),
        (
            "headers in a list",
            "85a130a16da131a0a132a171a13390a13401".to_owned(),
        ),
        ("true for an id", format!("{start}a134c3")),
        (
            "a fraction for an id",
            format!("{start}a134cb3ff8000000000000"),
        ),
        ("a negative id", format!("{start}a134ff")),
        ("attempt 0", format!("{start}a13500")),
        ("0xc1", format!("{start}a178c1")),
        ("0xc1 in properties", format!("{start}a13781a161c1")),
        (
            "nested too deep",
            format!("{start}a178{}c0", deep(DEPTH_MAX)),
        ),
        (
            "nested much too deep",
            format!("{start}a137{}c0", deep(1 << 20)),
        ),
        (
            "properties nested too deep",
            format!("{start}a13781a161{}c0", deep(DEPTH_MAX - 1)),
        ),
        ("claims 4 GiB", format!("{start}a178c6ffffffff")),
        ("a list that claims 2 G", format!("{start}a178dd7fffffff")),
        ("claims 4 G entries", "dfffffffff".to_owned()),
        ("properties claim 4 G", format!("{start}a137dfffffffff")),
        (
            "a list of 4 G in properties",
            format!("{start}a13781a161ddffffffff"),
        ),
        ("a length that is cut", format!("{start}a178da00")),
    ];
    let vectors = vectors(&["input-hostile"]);
    hostile.extend(
        vectors
            .iter()
            .map(|vector| (text(&vector["name"]), text(&vector["bytes"]).to_owned())),
    );
    for (name, bytes) in hostile {
        let found = Input::decode(&unhex(&bytes));
        assert!(
            matches!(found, Err(Error::Protocol(_))),
            "{name}: {found:?}"
        );
    }
}

#[test]
fn unknown_keys_may_hold_anything() {
    let start = "86a130a16da131a0a132a171a13380a13401a178";
    for rest in [
        "820102c0c3".to_owned(),
        "818001".to_owned(),
        "c70305616263".to_owned(),
        "91".repeat(DEPTH_MAX - 1) + "c0",
        "d80100000000000000000000000000000000".to_owned(),
        "db00000001ff".to_owned(),
        "ca00000000".to_owned(),
    ] {
        let found = Input::decode(&unhex(&format!("{start}{rest}")));
        assert_eq!(found.unwrap().id, Some(1), "{rest}");
    }
}

#[test]
fn properties_may_hold_anything() {
    let start = "86a130a16da131a0a132a171a13380a13401a13781a161";
    let list = |values: &[Value]| Value::List(values.to_vec());
    for (bytes, wanted) in [
        ("c0", Value::Nil),
        ("ca3fc00000", Value::Float(1.5)),
        ("cb3ff8000000000000", Value::Float(1.5)),
        ("cfffffffffffffffff", Value::Integer(u64::MAX.into())),
        ("d38000000000000000", Value::Integer(i64::MIN.into())),
        (
            "92a1ffc2",
            list(&[Value::Bytes(vec![0xff]), Value::Boolean(false)]),
        ),
        (
            "8101c40100",
            Value::Map(vec![(1.into(), Value::Bytes(vec![0]))]),
        ),
        ("c702050102", Value::Extension(5, vec![1, 2])),
        ("d4fe07", Value::Extension(-2, vec![7])),
        ("d6ff00000001", Value::Extension(-1, vec![0, 0, 0, 1])),
    ] {
        let found = Input::decode(&unhex(&format!("{start}{bytes}"))).unwrap();
        assert_eq!(found.properties["a"], wanted, "{bytes}");
        // Written and read again, it is the same.
        let mut written = Vec::new();
        wanted.write(&mut written).unwrap();
        let again = Input::decode(&unhex(&format!("{start}{}", hex(&written)))).unwrap();
        assert_eq!(again.properties["a"], wanted, "{bytes}");
    }
}

#[test]
fn outputs_are_written_byte_for_byte() {
    let vectors = vectors(&["output-v1", "output-v2"]);
    let canonical = vectors
        .iter()
        .filter(|vector| vector["form"] == "canonical");
    let mut written = 0;
    for vector in canonical {
        let meaning = &vector["meaning"];
        let message = body(&meaning["message"]);
        let headers: Option<Vec<(String, Value)>> = meaning["headers"].as_array().map(|headers| {
            let pair = |pair: &Json| (text(&pair[0]).to_owned(), text(&pair[1]).into());
            headers.iter().map(pair).collect()
        });
        let output = Output {
            message: &message,
            status: meaning["status"].as_i64().unwrap(),
            headers: headers.as_deref(),
            queue: meaning["reply_queue"].as_str().unwrap_or(""),
            id: id(meaning),
            after_ms: meaning["retry_after_ms"].as_u64(),
        };
        let mut data = b"before".to_vec();
        output.append(&mut data, FRAME_BYTES_MAX).unwrap();
        let frame = &data["before".len()..];
        assert_eq!(
            frame[..4],
            u32::try_from(frame.len() - 4).unwrap().to_be_bytes()
        );
        assert_eq!(
            hex(&frame[4..]),
            text(&vector["bytes"]),
            "{}",
            vector["name"]
        );
        written += 1;
    }
    assert!(written > 20, "only {written}");
}

#[test]
fn what_can_not_be_sent_leaves_nothing_behind() {
    let deep = (0..DEPTH_MAX).fold(Value::Nil, |inner, _| Value::List(vec![inner]));
    let odd_name = Value::Map(vec![(Value::List(Vec::new()), Value::Nil)]);
    let many = vec![("n".to_owned(), Value::Nil); 10_001];
    let large = vec![("n".to_owned(), Value::Integer(1 << 64))];
    let single = |value| vec![("n".to_owned(), value)];
    for headers in [single(deep), single(odd_name), many, large] {
        refused(Output {
            headers: Some(&headers),
            ..Output::default()
        });
    }
    refused(Output {
        message: &[b'x'; 200],
        ..Output::default()
    });
}

fn refused(output: Output<'_>) {
    let mut data = b"before".to_vec();
    let result = output.append(&mut data, 100);
    assert!(matches!(result, Err(Error::Output(_))), "{output:?}");
    assert_eq!(data, b"before", "{output:?}");
}

#[test]
fn frames_come_out_however_the_stream_is_cut() {
    for vector in vectors(&["framing"]) {
        let stream = unhex(text(&vector["stream"]));
        let most = usize::try_from(vector["frame_bytes_max"].as_u64().unwrap()).unwrap();
        for piece in [1, 2, 3, 7, usize::MAX] {
            let (frames, broken) = fall(&stream, piece, most);
            let wanted = vector["frames"].as_array().unwrap();
            assert_eq!(&frames, wanted, "{} by {piece}", vector["name"]);
            assert_eq!(
                broken,
                !vector["error"].is_null(),
                "{} by {piece}",
                vector["name"]
            );
        }
    }
}

/// What comes out of a stream that arrives in such pieces, and whether it ends in an error.
fn fall(stream: &[u8], piece: usize, most: usize) -> (Vec<String>, bool) {
    let mut frames = Frames::new(most);
    let mut found = Vec::new();
    let mut left = stream;
    loop {
        loop {
            match frames.next() {
                Ok(Some(frame)) => found.push(hex(frame)),
                Ok(None) => break,
                Err(_) => return (found, true),
            }
        }
        if left.is_empty() {
            return (found, false);
        }
        let space = frames.space().unwrap();
        let count = piece.min(left.len()).min(space.len());
        space[..count].copy_from_slice(&left[..count]);
        frames.filled(count);
        left = &left[count..];
    }
}

#[test]
fn a_large_frame_leaves_no_large_buffer() {
    let large = vec![0; 1 << 20];
    let mut stream = 0x0010_0000_u32.to_be_bytes().to_vec();
    stream.extend(&large);
    stream.extend(b"\0\0\0\x01x");
    let mut frames = Frames::new(1 << 20);
    let mut left = &stream[..];
    let mut sizes = Vec::new();
    while !left.is_empty() {
        let space = frames.space().unwrap();
        let count = space.len().min(left.len());
        space[..count].copy_from_slice(&left[..count]);
        frames.filled(count);
        left = &left[count..];
        while let Some(frame) = frames.next().unwrap() {
            sizes.push(frame.len());
        }
    }
    assert_eq!(sizes, [1 << 20, 1]);
    assert_eq!(frames.space().unwrap().len(), 1 << 16);
}
