//! Records that were read from a topic of dead letters, and the letters and replies that they make:
//! most are one, those too large for the topic are several. Pure.

use std::collections::HashMap;

use bytes::Bytes;

use super::super::parts::{self, Torn, Whole};
use super::letters::At;
use super::reader::Stored;

/// Records, as they were read.
#[derive(Debug, Default)]
pub(super) struct Pile {
    records: HashMap<At, Stored>,
    /// By the key that they belong to and their number.
    parts: HashMap<(Bytes, u32), Bytes>,
}

impl Pile {
    /// Puts one more on it.
    pub(super) fn put(&mut self, stored: Stored) {
        match parts::place(&stored.headers) {
            Some(place) => drop(self.parts.insert(place, stored.value.unwrap_or_default())),
            None => drop(self.records.insert(At::of(&stored), stored)),
        }
    }

    /// Takes what lies at a place, whole, or what there is of it and why it is not; none if nothing
    /// is there any more.
    pub(super) fn take(&mut self, at: &At) -> Option<(Stored, Option<Torn>)> {
        let mut stored = self.records.remove(at)?;
        let Some(whole) = Whole::of(&stored.headers) else {
            return Some((stored, None));
        };
        let of = stored.key.clone().unwrap_or_default();
        let numbers = 1..=whole.count;
        let parts = numbers.map(|number| self.parts.remove(&(of.clone(), number)));
        match parts::join(whole, &stored.headers, parts.collect()) {
            Ok((headers, value)) => {
                stored.headers = headers;
                stored.value = Some(value);
                Some((stored, None))
            }
            Err(torn) => Some((stored, Some(torn))),
        }
    }
}
