//! Frames in words, and frames that no daemon of today would send.

use bytes::{BufMut, Bytes, BytesMut};

use ganger_protocol::Output;
use ganger_protocol::frame::LENGTH_BYTES;

/// Describes a worker's frame in words.
pub(super) fn described(output: &Output) -> String {
    let mut said = output.status.to_string();
    if let Some(id) = output.id {
        said += &format!(", id {id}");
    }
    if let Some(queue) = &output.reply_queue {
        said += &format!(", to `{queue}`");
    }
    let headers = output.headers.as_ref().map_or(0, Vec::len);
    if headers > 0 {
        said += &format!(", {headers} headers");
    }
    said + &format!(", a message of {} bytes", output.message.len())
}

/// Returns the frame with additional keys, of all kinds, that only a later version could know.
pub(super) fn with_unknown_keys(frame: &[u8]) -> Bytes {
    let (_, map) = frame.split_at(LENGTH_BYTES);
    let [head, rest @ ..] = map else {
        return Bytes::new();
    };
    // A map of so few keys has its count in its first byte.
    let added: [&[u8]; 4] = [
        b"\xa18\x93\x01\xa3two\x81\xa1a\xc0",
        b"\xa299\xc4\x03\xff\x00\xfe",
        b"\xa6future\xd6\xff\x00\x00\x00\x01",
        b"\xa0\xcb\x3f\xf8\x00\x00\x00\x00\x00\x00",
    ];
    let mut map = BytesMut::from(&[head + 4][..]);
    map.extend_from_slice(rest);
    for entry in added {
        map.extend_from_slice(entry);
    }
    let mut whole = BytesMut::new();
    whole.put_u32(u32::try_from(map.len()).unwrap_or(u32::MAX));
    whole.extend_from_slice(&map);
    whole.freeze()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use ganger_protocol::frame::next_frame;
    use ganger_protocol::input::{Extras, Input};
    use ganger_protocol::{Status, Task};
    use ganger_queue::delivery::Message;

    #[test]
    fn unknown_keys_change_nothing_of_what_is_known() {
        let message = Message {
            queue: Arc::from("q"),
            body: "x".into(),
            headers: vec![("a".into(), "b".into())],
            correlation_id: String::new(),
            reply_to: None,
            properties: Vec::new(),
            occurrence: None,
        };
        for extras in [
            None,
            Some(Extras {
                attempt: 1,
                milliseconds_left: None,
            }),
        ] {
            let input = Input {
                message: &message,
                timeout_ms: None,
                span: None,
                id: 7,
                extras,
            };
            let mut plain = BytesMut::new();
            input.encode(&mut plain, usize::MAX).unwrap();
            let mut strange = BytesMut::from(&*with_unknown_keys(&plain));
            let read = |frame: &mut BytesMut| {
                let frame = next_frame(frame, usize::MAX).unwrap().unwrap();
                Task::decode(&frame).unwrap()
            };
            assert_eq!(read(&mut strange), read(&mut plain));
            assert!(strange.is_empty());
        }
    }

    #[test]
    fn a_frame_is_told_in_words() {
        let mut output = Output::new(Status::EMIT, Some(3), "four");
        output.reply_queue = Some("parts".into());
        output.headers = Some(vec![("a".into(), "b".into())]);
        assert_eq!(
            described(&output),
            "103 EMIT, id 3, to `parts`, 1 headers, a message of 4 bytes"
        );
    }
}
