//! Dead letters counted by what they died of: as letters come in, without keeping one of them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::model::DeadLetter;

/// How many different errors are counted.
const GROUPS_MAX: usize = 1000;

/// Letters that died of the same.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Group {
    /// The pool that gave them up.
    pub pool: String,
    /// The kind of failure.
    pub reason: String,
    /// What happened.
    pub error: String,
    /// How many there are.
    pub count: u64,
    /// One of them, the oldest.
    pub id: String,
    /// When the first attempt of any of them failed, RFC 3339; empty if none says so.
    pub first_failed_at: String,
    /// When the last one of any of them did, RFC 3339; empty if none says so.
    pub last_failed_at: String,
}

/// Groups in the making.
#[derive(Debug, Default)]
pub struct Groups {
    groups: BTreeMap<(String, String, String), Group>,
    left_out: u64,
}

impl Groups {
    /// Counts one more; they come the oldest first.
    pub fn add(&mut self, letter: DeadLetter) {
        let key = (letter.pool, letter.reason, letter.error);
        if self.groups.len() >= GROUPS_MAX && !self.groups.contains_key(&key) {
            self.left_out += 1;
            return;
        }
        let (pool, reason, error) = key.clone();
        let group = self.groups.entry(key).or_insert_with(|| Group {
            pool,
            reason,
            error,
            id: letter.id,
            ..Group::default()
        });
        group.count += 1;
        if replaces(
            &letter.first_failed_at,
            &group.first_failed_at,
            Timestamp::lt,
        ) {
            group.first_failed_at = letter.first_failed_at;
        }
        if replaces(&letter.last_failed_at, &group.last_failed_at, Timestamp::gt) {
            group.last_failed_at = letter.last_failed_at;
        }
    }

    /// How many letters are in no group, since too many died of something else.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// The groups, the largest first.
    pub fn largest_first(self) -> Vec<Group> {
        let mut groups: Vec<Group> = self.groups.into_values().collect();
        groups.sort_by_key(|group| std::cmp::Reverse(group.count));
        groups
    }
}

/// Whether a moment takes the place of the one that is known so far. What is no moment never does.
fn replaces(new: &str, known: &str, is_further: fn(&Timestamp, &Timestamp) -> bool) -> bool {
    match (new.parse(), known.parse()) {
        (Ok(new), Ok(known)) => is_further(&new, &known),
        (Ok(_), Err(_)) => true,
        (Err(_), _) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letter(id: &str, error: &str, first: &str, last: &str) -> DeadLetter {
        DeadLetter {
            id: id.to_owned(),
            pool: "email".to_owned(),
            reason: "failed".to_owned(),
            error: error.to_owned(),
            first_failed_at: first.to_owned(),
            last_failed_at: last.to_owned(),
            ..DeadLetter::default()
        }
    }

    #[test]
    fn letters_of_one_error_are_counted_together() {
        let mut groups = Groups::default();
        for letter in [
            letter("1", "odd", "", ""),
            letter("2", "even", "2026-01-02T00:00:00Z", "2026-01-02T09:00:00Z"),
            // Earlier than the one before it, though its text is not.
            letter(
                "3",
                "even",
                "2026-01-02T01:00:00+02:00",
                "2026-01-02T10:00:00.5Z",
            ),
            letter("4", "even", "none", "2026-01-02T10:00:00Z"),
        ] {
            groups.add(letter);
        }
        assert_eq!(groups.left_out(), 0);
        let groups = groups.largest_first();
        let [even, odd] = groups.as_slice() else {
            panic!("{groups:?}");
        };
        assert_eq!(
            (even.count, even.id.as_str(), even.error.as_str()),
            (3, "2", "even")
        );
        assert_eq!(even.first_failed_at, "2026-01-02T01:00:00+02:00");
        assert_eq!(even.last_failed_at, "2026-01-02T10:00:00.5Z");
        assert_eq!((odd.count, odd.first_failed_at.as_str()), (1, ""));
    }

    #[test]
    fn errors_without_end_take_no_memory_without_end() {
        let mut groups = Groups::default();
        for number in 0..GROUPS_MAX + 7 {
            let number = number.to_string();
            groups.add(letter(&number, &number, "", ""));
        }
        groups.add(letter("again", "3", "", ""));
        assert_eq!(groups.left_out(), 7);
        let groups = groups.largest_first();
        assert_eq!((groups.len(), groups[0].count), (GROUPS_MAX, 2));
    }
}
