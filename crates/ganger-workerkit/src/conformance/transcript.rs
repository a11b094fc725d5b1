//! Transcript of the pipe and stdin, both ways, for whoever has to fix a worker: the last pieces,
//! the beginning of each.

use std::collections::VecDeque;
use std::fmt::Write;

use serde::Serialize;

/// Maximum number of pieces that are kept.
const PIECES_MAX: usize = 12;
/// Maximum number of bytes shown of each.
const SHOWN_BYTES_MAX: usize = 64;
/// Number of bytes in a line of a dump.
const LINE_BYTES: usize = 16;

/// Writer of a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// The daemon, to the worker's pipe.
    ToWorker,
    /// The daemon, to the worker's stdin.
    ToStdin,
    /// The worker, to its pipe.
    FromWorker,
}

/// One frame, one line, or some bytes that are neither.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Piece {
    /// Writer of the piece.
    pub direction: Direction,
    /// Description in words.
    pub what: String,
    /// Its length in bytes.
    pub length: usize,
    /// First bytes, in hexadecimal.
    pub bytes: String,
}

impl Piece {
    fn new(direction: Direction, what: String, parts: &[&[u8]]) -> Self {
        let all = || parts.iter().flat_map(|part| part.iter());
        let bytes = all()
            .take(SHOWN_BYTES_MAX)
            .fold(String::new(), |mut hex, byte| {
                write!(hex, "{byte:02x}").expect("writing to a String does not fail");
                hex
            });
        Self {
            direction,
            what,
            length: parts.iter().map(|part| part.len()).sum(),
            bytes,
        }
    }

    /// Returns the bytes as a hexadecimal dump, with the readable ones beside.
    pub fn dump(&self) -> Vec<String> {
        let digits = self.bytes.as_bytes();
        let byte = |pair: &[u8]| {
            let pair = std::str::from_utf8(pair).unwrap_or_default();
            u8::from_str_radix(pair, 16).unwrap_or_default()
        };
        let bytes: Vec<u8> = digits.chunks(2).map(byte).collect();
        let mut lines: Vec<String> = bytes.chunks(LINE_BYTES).map(dump_line).collect();
        let hidden = self.length.saturating_sub(bytes.len());
        if hidden > 0 {
            lines.push(format!("… and {hidden} more bytes"));
        }
        lines
    }
}

fn dump_line(bytes: &[u8]) -> String {
    let mut line = String::new();
    for byte in bytes {
        write!(line, "{byte:02x} ").expect("writing to a String does not fail");
    }
    let text: String = bytes
        .iter()
        .map(|byte| match byte {
            b' '..=b'~' => char::from(*byte),
            _ => '.',
        })
        .collect();
    format!("{line:<48} {text}")
}

/// The last pieces.
#[derive(Debug, Default)]
pub(super) struct Transcript(VecDeque<Piece>);

impl Transcript {
    /// Adds a piece that consists of these parts.
    pub(super) fn push(&mut self, direction: Direction, what: String, parts: &[&[u8]]) {
        if self.0.len() == PIECES_MAX {
            self.0.pop_front();
        }
        self.0.push_back(Piece::new(direction, what, parts));
    }

    pub(super) fn into_pieces(self) -> Vec<Piece> {
        self.0.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_of_each_of_the_last_is_kept() {
        let mut transcript = Transcript::default();
        for number in 0..20 {
            let what = format!("piece {number}");
            transcript.push(Direction::FromWorker, what, &[b"\0\0\0\x63", &[7; 99]]);
        }
        let pieces = transcript.into_pieces();
        assert_eq!(pieces.len(), PIECES_MAX);
        assert_eq!(pieces[0].what, "piece 8");
        assert_eq!((pieces[0].length, pieces[0].bytes.len()), (103, 128));
    }

    #[test]
    fn a_dump_shows_bytes_and_letters() {
        let piece = Piece::new(
            Direction::ToStdin,
            "a line".into(),
            &[b"__quit__\n\x1b[2Jxyz|"],
        );
        assert_eq!(
            piece.dump(),
            [
                "5f 5f 71 75 69 74 5f 5f 0a 1b 5b 32 4a 78 79 7a  __quit__..[2Jxyz",
                "7c                                               |",
            ]
        );
        let long = Piece::new(Direction::ToWorker, "a frame".into(), &[&[0; 100]]);
        assert_eq!(long.dump().len(), 5);
        assert_eq!(long.dump()[4], "… and 36 more bytes");
    }
}
