//! Tests the codec against every file of `proto-spec/vectors/`, in both directions, and the seed
//! corpus of the fuzz targets, which is made from the same vectors.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use bytes::{Bytes, BytesMut};
use serde::Deserialize;

use super::frame::{FrameError, LENGTH_BYTES};
use super::{DecodeError, Extras, Input, Output, Status, Task, invariants};
use ganger_core::message::{Headers, Message, Property};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File<V> {
    format: u32,
    #[serde(rename = "of")]
    _of: String,
    #[serde(rename = "about")]
    _about: String,
    vectors: Vec<V>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Vector<M> {
    name: String,
    #[serde(rename = "why")]
    _why: String,
    version: Option<u32>,
    form: Form,
    bytes: String,
    meaning: Option<M>,
    error: Option<String>,
}

#[derive(Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Form {
    Canonical,
    Accepted,
    Refused,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OutputMeaning {
    message: PropertyMeaning,
    status: i64,
    headers: Option<Headers>,
    reply_queue: Option<String>,
    id: Option<String>,
    retry_after_ms: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InputMeaning {
    message: PropertyMeaning,
    correlation_id: String,
    queue: String,
    headers: Headers,
    id: Option<String>,
    attempt: Option<u32>,
    milliseconds_left: Option<u64>,
    properties: Vec<(String, PropertyMeaning)>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum PropertyMeaning {
    Text(String),
    Hex(String),
    Integer(String),
    Boolean(bool),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FramingVector {
    name: String,
    #[serde(rename = "why")]
    _why: String,
    frame_bytes_max: usize,
    stream: String,
    frames: Vec<String>,
    rest: Option<String>,
    error: Option<String>,
}

impl PropertyMeaning {
    fn property(&self) -> Property {
        match self {
            Self::Text(text) => Property::Text(text.clone()),
            Self::Hex(digits) => Property::Bytes(hex(digits)),
            Self::Integer(number) => Property::Integer(number.parse().unwrap()),
            Self::Boolean(yes) => Property::Boolean(*yes),
        }
    }

    fn bytes(&self) -> Bytes {
        match self.property() {
            Property::Text(text) => text.into(),
            Property::Bytes(bytes) => bytes,
            other => panic!("not a body: {other:?}"),
        }
    }
}

impl OutputMeaning {
    fn output(&self) -> Output {
        Output {
            message: self.message.bytes(),
            status: Status(self.status),
            headers: self.headers.clone(),
            reply_queue: self.reply_queue.clone(),
            id: number(&self.id),
            retry_after_ms: self.retry_after_ms,
        }
    }
}

impl InputMeaning {
    fn task(&self) -> Task {
        let property =
            |(name, meaning): &(String, PropertyMeaning)| (name.clone(), meaning.property());
        Task {
            message: self.message.bytes(),
            binary: matches!(self.message, PropertyMeaning::Hex(_)),
            correlation_id: self.correlation_id.clone(),
            queue: self.queue.clone(),
            headers: self.headers.clone(),
            id: number(&self.id),
            attempt: self.attempt,
            milliseconds_left: self.milliseconds_left,
            properties: self.properties.iter().map(property).collect(),
        }
    }

    fn message(&self) -> Message {
        // Property names are literals of the message's source; a test may leak its own.
        let property = |(name, meaning): &(String, PropertyMeaning)| {
            let name: &'static str = name.clone().leak();
            (name, meaning.property())
        };
        Message {
            queue: self.queue.as_str().into(),
            body: self.message.bytes(),
            headers: self.headers.clone(),
            correlation_id: self.correlation_id.clone(),
            reply_to: None,
            properties: self.properties.iter().map(property).collect(),
            occurrence: None,
        }
    }

    fn encoded(&self) -> BytesMut {
        let milliseconds_left = self.milliseconds_left;
        let input = Input {
            message: &self.message(),
            timeout_ms: None,
            span: None,
            id: number(&self.id).expect("an input in canonical form has an id"),
            extras: self.attempt.map(|attempt| Extras {
                attempt,
                milliseconds_left,
            }),
        };
        let mut out = BytesMut::new();
        input.encode(&mut out, usize::MAX).unwrap();
        out
    }
}

fn number(text: &Option<String>) -> Option<u64> {
    text.as_ref().map(|text| text.parse().unwrap())
}

fn hex(digits: &str) -> Bytes {
    assert!(digits.len().is_multiple_of(2), "half a byte in {digits}");
    (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap())
        .collect()
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read<V: for<'a> Deserialize<'a>>(file: &str) -> Vec<V> {
    let path = root().join("proto-spec/vectors").join(file);
    let text = fs::read_to_string(&path).unwrap();
    let file: File<V> = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{file}: {e}"));
    assert_eq!(file.format, 1);
    assert!(!file.vectors.is_empty());
    file.vectors
}

/// Checks every vector of a file: the meaning it decodes to, and the bytes that its meaning encodes
/// to.
fn check<M, T>(
    vectors: &[Vector<M>],
    decode: impl Fn(&[u8]) -> Result<T, DecodeError>,
    meaning: impl Fn(&M) -> T,
    encode: impl Fn(&M) -> BytesMut,
) where
    T: std::fmt::Debug + PartialEq,
{
    for vector in vectors {
        let (name, bytes) = (&vector.name, hex(&vector.bytes));
        let decoded = decode(&bytes);
        match (&vector.meaning, &vector.error) {
            (Some(expected), None) => assert_eq!(decoded, Ok(meaning(expected)), "{name}"),
            (None, Some(kind)) => assert_eq!(decoded.unwrap_err().kind(), kind, "{name}"),
            _ => panic!("{name} must have either a meaning or an error"),
        }
        assert_eq!(
            vector.form == Form::Refused,
            vector.error.is_some(),
            "{name}"
        );
        if vector.form == Form::Canonical {
            let encoded = encode(vector.meaning.as_ref().unwrap());
            assert_eq!(encoded[LENGTH_BYTES..], bytes, "{name}");
            let (length, map_bytes) = (&encoded[..LENGTH_BYTES], bytes.len() as u64);
            assert_eq!(length, &map_bytes.to_be_bytes()[4..], "{name}");
        }
    }
}

fn outputs() -> Vec<Vector<OutputMeaning>> {
    ["output-v1.json", "output-v2.json", "output-hostile.json"]
        .into_iter()
        .flat_map(read)
        .collect()
}

fn bare_values() -> Vec<Vector<OutputMeaning>> {
    read("output-v1-bare.json")
}

#[test]
fn outputs_are_as_the_vectors_say() {
    check(
        &outputs(),
        Output::decode,
        OutputMeaning::output,
        |meaning| {
            let mut out = BytesMut::new();
            meaning.output().encode(&mut out);
            out
        },
    );
}

#[test]
fn values_that_are_no_map_are_as_the_vectors_say() {
    let decode = |frame: &[u8]| {
        Output::decode(frame).expect_err("no worker of version 2 may send it");
        Output::decode_version1(frame)
    };
    check(&bare_values(), decode, OutputMeaning::output, |_| {
        panic!("nobody need write it")
    });
}

#[test]
fn inputs_are_as_the_vectors_say() {
    for file in ["input-v1.json", "input-v2.json", "input-hostile.json"] {
        let vectors: Vec<Vector<InputMeaning>> = read(file);
        check(
            &vectors,
            Task::decode,
            InputMeaning::task,
            InputMeaning::encoded,
        );
        for vector in vectors
            .iter()
            .filter(|vector| vector.form == Form::Canonical)
        {
            let attempt = vector.meaning.as_ref().unwrap().attempt;
            assert_eq!(
                attempt.is_some(),
                vector.version == Some(2),
                "{}",
                vector.name
            );
        }
    }
}

#[test]
fn streams_fall_into_frames_as_the_vectors_say() {
    for vector in read::<FramingVector>("framing.json") {
        let stream = hex(&vector.stream);
        for step in 1..=stream.len().max(1) {
            let split = invariants::split_within(stream.chunks(step), vector.frame_bytes_max);
            let frames: Vec<Bytes> = vector.frames.iter().map(|frame| hex(frame)).collect();
            let rest = vector.rest.as_deref().map_or_else(Bytes::new, hex);
            assert_eq!(split.frames, frames, "{}", vector.name);
            assert_eq!(split.rest, rest, "{}", vector.name);
            let error = split.error.as_ref().map(error_kind);
            assert_eq!(error, vector.error.as_deref(), "{}", vector.name);
        }
    }
}

fn error_kind(error: &FrameError) -> &'static str {
    match error {
        FrameError::Empty => "empty",
        FrameError::TopBit { .. } => "top_bit",
        FrameError::TooLarge { .. } => "too_large",
    }
}

/// Returns the seed corpus of each fuzz target, made from the vectors.
fn seeds() -> BTreeMap<PathBuf, Bytes> {
    let outputs = outputs()
        .into_iter()
        .chain(bare_values())
        .map(|vector| (format!("decode_output/{}", vector.name), hex(&vector.bytes)));
    let streams = read::<FramingVector>("framing.json")
        .into_iter()
        .map(|vector| (format!("split_frames/{}", vector.name), hex(&vector.stream)));
    outputs
        .chain(streams)
        .map(|(name, bytes)| (root().join("fuzz/corpus").join(name), bytes))
        .collect()
}

/// Run with `GANGER_WRITE_CORPUS=1` to write the corpus anew after a change of the vectors.
#[test]
fn the_corpus_holds_every_vector() {
    let write = std::env::var_os("GANGER_WRITE_CORPUS").is_some();
    for (path, bytes) in seeds() {
        if write {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, &bytes).unwrap();
        }
        let held = fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        assert_eq!(held, bytes, "{}", path.display());
    }
}

/// A fuzzer's finds that were added to the corpus are run as well.
#[test]
fn the_corpus_breaks_no_invariant() {
    for (target, invariant) in [
        (
            "decode_output",
            invariants::output_is_refused_or_understood as fn(&[u8]),
        ),
        ("split_frames", |stream| {
            invariants::frames_split_alike(stream, 1)
        }),
    ] {
        let mut run = 0;
        for entry in fs::read_dir(root().join("fuzz/corpus").join(target)).unwrap() {
            invariant(&fs::read(entry.unwrap().path()).unwrap());
            run += 1;
        }
        assert!(run > 10, "{target} has no corpus");
    }
}
