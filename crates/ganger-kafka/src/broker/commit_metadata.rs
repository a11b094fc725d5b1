//! Metadata of a commit beside the offset: the offsets beyond it that are done, and the attempts of the
//! messages held for a retry. Kafka stores at most 4 KiB of it, as text. Pure.
//!
//! The form: `ganger2:`, then in base64 without padding a check sum of four bytes, which covers the
//! cluster, the topic, the partition and the offset too, and numbers in the variable-length form of
//! protocol buffers: the number of messages that were tried; for each the distance from the one before
//! it (the first: from the offset), its attempts and its crashes; then, from the offset on, pieces of
//! `length * 4 + kind`: kind 0 is a run of undone offsets, kind 1 a run of done ones, and kind 2 is
//! followed by that many bytes, one bit for each of eight offsets, the lowest first, set if it is done.
//! `ganger1:`, whose check sum covers the offset alone, is still read.

use std::ops::Range;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;

/// Prefix of the text.
const MARK: &str = "ganger2:";
/// Prefix used before the check sum covered cluster, topic and partition.
const OLD_MARK: &str = "ganger1:";
/// Maximum length of the text that is written; Kafka's limit is 4096 unless a broker sets another.
pub(crate) const TEXT_BYTES_MAX: usize = 4000;
/// Divisor of the available bytes that gives the maximum for tried messages.
const TRIED_SHARE: usize = 3;
/// Maximum number of offsets that a text may cover: damaged text must not cause allocation.
const OFFSETS_MAX: u64 = 1 << 40;

/// Attempts of a message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tried {
    /// Number of charged attempts.
    pub(crate) attempts: u32,
    /// Number of workers that died with it.
    pub(crate) crashes: u32,
}

/// Content of a commit's metadata.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Carried {
    /// Offsets done beyond the committed one, in order.
    pub(crate) ahead: Vec<Range<i64>>,
    /// Messages that were tried and are not done, in order.
    pub(crate) tried: Vec<(i64, Tried)>,
}

impl Carried {
    /// Returns one past the highest offset known to be done, counting all below `offset`.
    pub(crate) fn end(&self, offset: i64) -> i64 {
        self.ahead
            .last()
            .map_or(offset, |last| last.end.max(offset))
    }

    /// Drops everything from an offset on.
    pub(crate) fn cut(&mut self, from: i64) {
        self.tried.retain(|(at, _)| *at < from);
        self.ahead.retain_mut(|range| {
            range.end = range.end.min(from);
            !range.is_empty()
        });
    }
}

/// Identity of a partition in check sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PartitionSeed(u32);

impl PartitionSeed {
    /// Returns the seed of a partition of a topic of a cluster.
    pub(crate) fn new(cluster: &str, topic: &str, partition: i32) -> Self {
        // Neither name can contain such a byte.
        let names = [cluster.as_bytes(), &[0], topic.as_bytes(), &[0]].concat();
        Self(sum(sum(EMPTY_SUM, &names), &partition.to_be_bytes()))
    }
}

/// Reason why a text cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unusable {
    /// Written by another program.
    #[error("it is not ours")]
    Foreign,
    /// Cut off, changed, or moved to another place.
    #[error("it is damaged, or belongs to another offset, partition or cluster")]
    Damaged,
}

/// Encodes the content into a text of at most `bytes_max` bytes. If it does not fit, the highest offsets are
/// left out first, and so would run again after a crash.
pub(crate) fn encode(
    place: PartitionSeed,
    offset: i64,
    carried: &Carried,
    text_bytes_max: usize,
) -> String {
    if carried.ahead.is_empty() && carried.tried.is_empty() {
        return String::new();
    }
    let room = text_bytes_max.saturating_sub(MARK.len()) / 4 * 3;
    let Some(room) = room.checked_sub(size_of::<u32>() + 1) else {
        return String::new();
    };
    let tried = fitting_tried(offset, &carried.tried, room / TRIED_SHARE);
    let mut body = tried;
    write_ahead(&mut body, offset, &carried.ahead, room);
    let mut bytes = check_sum(place.0, offset, &body).to_be_bytes().to_vec();
    bytes.extend(body);
    format!("{MARK}{}", BASE64.encode(bytes))
}

/// Returns the approximate maximum text size of completion beyond the commit, with `runs` runs of
/// undone offsets within `span` offsets.
pub(crate) fn text_bytes(span: u64, runs: usize) -> usize {
    /// A run of done groups, and one of undone ones with bits before and after it.
    const BYTES_PER_RUN: usize = 8;
    /// In the worst case every other group is a run, at three bytes for sixteen offsets.
    const OFFSETS_PER_BYTE: u64 = 5;
    let as_bits = usize::try_from(span / OFFSETS_PER_BYTE).unwrap_or(usize::MAX);
    let bytes = as_bits.min(runs.saturating_mul(BYTES_PER_RUN));
    bytes.saturating_add(16).saturating_mul(4) / 3
}

/// Decodes a text.
pub(crate) fn decode(place: PartitionSeed, offset: i64, text: &str) -> Result<Carried, Unusable> {
    if text.is_empty() {
        return Ok(Carried::default());
    }
    let old = || Some((text.strip_prefix(OLD_MARK)?, EMPTY_SUM));
    let new = text.strip_prefix(MARK).map(|text| (text, place.0));
    let (text, seed) = new.or_else(old).ok_or(Unusable::Foreign)?;
    let bytes = BASE64.decode(text).map_err(|_| Unusable::Damaged)?;
    let (sum, body) = bytes.split_first_chunk().ok_or(Unusable::Damaged)?;
    if u32::from_be_bytes(*sum) != check_sum(seed, offset, body) {
        return Err(Unusable::Damaged);
    }
    read(offset, body).ok_or(Unusable::Damaged)
}

fn fitting_tried(offset: i64, tried: &[(i64, Tried)], bytes_max: usize) -> Vec<u8> {
    let mut entries = Vec::new();
    let mut count = 0u64;
    let mut last = offset;
    for (at, tried) in tried {
        let before = entries.len();
        write_number(&mut entries, at.abs_diff(last));
        write_number(&mut entries, tried.attempts.into());
        write_number(&mut entries, tried.crashes.into());
        if entries.len() > bytes_max {
            entries.truncate(before);
            break;
        }
        last = *at;
        count += 1;
    }
    let mut bytes = Vec::with_capacity(entries.len() + 2);
    write_number(&mut bytes, count);
    bytes.extend(entries);
    bytes
}

/// One piece of the completion beyond the commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Piece {
    Undone(u64),
    Done(u64),
    Bits(u8),
}

fn write_ahead(body: &mut Vec<u8>, offset: i64, ahead: &[Range<i64>], bytes_max: usize) {
    let mut bits = Vec::new();
    for piece in pieces(offset, ahead) {
        let before = body.len();
        match piece {
            Piece::Bits(byte) => {
                // With its header, if this is the end.
                if before + bits.len() + 4 > bytes_max {
                    break;
                }
                bits.push(byte);
                continue;
            }
            Piece::Undone(_) | Piece::Done(_) => write_bits(body, &mut bits),
        }
        match piece {
            Piece::Undone(length) => write_number(body, length << 2),
            Piece::Done(length) => write_number(body, length << 2 | 1),
            Piece::Bits(_) => {}
        }
        if body.len() > bytes_max {
            body.truncate(before);
            break;
        }
    }
    write_bits(body, &mut bits);
}

fn write_bits(body: &mut Vec<u8>, bits: &mut Vec<u8>) {
    if !bits.is_empty() {
        write_number(body, (bits.len() as u64) << 2 | 2);
        body.append(bits);
    }
}

/// Returns the completion beyond the commit in groups of eight offsets: long runs of equal groups, and
/// bits for the others.
fn pieces(offset: i64, ahead: &[Range<i64>]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut at = 0u64;
    let mut bits = 0u8;
    for range in ahead {
        let (start, end) = (range.start.abs_diff(offset), range.end.abs_diff(offset));
        if !at.is_multiple_of(8) && start / 8 > at / 8 {
            pieces.push(Piece::Bits(std::mem::take(&mut bits)));
            at = at.next_multiple_of(8);
        }
        if at.is_multiple_of(8) {
            let groups = (start - at) / 8;
            push_run(&mut pieces, Piece::Undone(groups * 8));
        }
        at = start;
        while at < end {
            if at.is_multiple_of(8) && end - at >= 8 {
                let groups = (end - at) / 8;
                push_run(&mut pieces, Piece::Done(groups * 8));
                at += groups * 8;
                continue;
            }
            bits |= 1 << (at % 8);
            at += 1;
            if at.is_multiple_of(8) {
                pieces.push(Piece::Bits(std::mem::take(&mut bits)));
            }
        }
    }
    if bits != 0 {
        pieces.push(Piece::Bits(bits));
    }
    pieces
}

fn push_run(pieces: &mut Vec<Piece>, run: Piece) {
    if run != Piece::Undone(0) && run != Piece::Done(0) {
        pieces.push(run);
    }
}

fn read(offset: i64, body: &[u8]) -> Option<Carried> {
    let mut rest = body;
    let count = read_number(&mut rest)?;
    let mut tried = Vec::new();
    let mut at = offset;
    for _ in 0..count {
        at = at.checked_add_unsigned(read_number(&mut rest)?)?;
        let attempts = u32::try_from(read_number(&mut rest)?).ok()?;
        let crashes = u32::try_from(read_number(&mut rest)?).ok()?;
        tried.push((at, Tried { attempts, crashes }));
    }
    let ahead = read_ahead(offset, &mut rest)?;
    Some(Carried { ahead, tried })
}

fn read_ahead(offset: i64, rest: &mut &[u8]) -> Option<Vec<Range<i64>>> {
    let mut ranges = Vec::new();
    let mut at = offset;
    while !rest.is_empty() {
        let number = read_number(rest)?;
        let (length, kind) = (number >> 2, number & 3);
        if length > OFFSETS_MAX {
            return None;
        }
        match kind {
            0 => at = at.checked_add_unsigned(length)?,
            1 => {
                let end = at.checked_add_unsigned(length)?;
                extend(&mut ranges, at..end);
                at = end;
            }
            2 => {
                let (bits, left) = rest.split_at_checked(usize::try_from(length).ok()?)?;
                *rest = left;
                for byte in bits {
                    let end = at.checked_add(8)?;
                    read_byte(&mut ranges, at, *byte);
                    at = end;
                }
            }
            _ => return None,
        }
    }
    Some(ranges)
}

fn read_byte(ranges: &mut Vec<Range<i64>>, at: i64, byte: u8) {
    for bit in (0..8).filter(|bit| byte & (1 << bit) != 0) {
        extend(ranges, at + bit..at + bit + 1);
    }
}

fn extend(ranges: &mut Vec<Range<i64>>, range: Range<i64>) {
    match ranges.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ => ranges.push(range),
    }
}

fn write_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    bytes.push(number.to_le_bytes()[0]);
}

fn read_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// FNV-1a: it need not withstand attacks, only detect damage and another partition's text.
fn check_sum(seed: u32, offset: i64, body: &[u8]) -> u32 {
    sum(sum(seed, &offset.to_be_bytes()), body)
}

const EMPTY_SUM: u32 = 0x811c_9dc5;

fn sum(seed: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(seed, |sum, byte| {
        (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    })
}

#[cfg(test)]
mod tests;
