//! Dead letters counted by error as they are read, without keeping one of them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::model::DeadLetter;

/// Maximum number of distinct errors counted.
const GROUPS_MAX: usize = 1000;

/// Dead letters with the same error.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Group {
    /// Pool that gave up the messages.
    pub pool: String,
    /// Kind of failure.
    pub reason: String,
    /// Description of the failure.
    pub error: String,
    /// Number of dead letters.
    pub count: u64,
    /// Identifier of the oldest of them.
    pub id: String,
    /// Time of the earliest first failed attempt, RFC 3339; empty if unknown.
    pub first_failed_at: String,
    /// Time of the latest failed attempt, RFC 3339; empty if unknown.
    pub last_failed_at: String,
}

/// Dead letters counted by error.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct DeadGroups {
    /// The groups, the largest first: at most 1000.
    pub groups: Vec<Group>,
    /// Time of the last failure of the last dead letter that was counted, if there was no time for the rest; none if
    /// all were counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
}

/// Groups being counted.
#[derive(Debug, Default)]
pub struct Groups {
    groups: BTreeMap<(String, String, String), Group>,
    left_out: u64,
}

impl Groups {
    /// Counts one more; they must come the oldest first.
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

    /// Returns the number of dead letters in no group, since there were too many distinct errors.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Returns the groups, the largest first.
    pub fn largest_first(self) -> Vec<Group> {
        let mut groups: Vec<Group> = self.groups.into_values().collect();
        groups.sort_by_key(|group| std::cmp::Reverse(group.count));
        groups
    }
}

/// Returns whether a time replaces the one known so far. A text that is no time never does.
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
