//! Names of the tables in statements, with the operator's prefix. Pure.

use std::borrow::Cow;

/// Names of ganger's objects in a schema, or in a MySQL database. A name that begins with one of these
/// and a `_`, such as that of an index, is ganger's, too.
pub(crate) const NAMES: &[&str] = &[
    "consumer_messages",
    "finished_messages",
    "ganger_fan_out",
    "ganger_version",
    "ganger_wake",
    "ledger",
    "ledger_audit",
    "occurrence_events",
    "occurrence_logs",
    "occurrences",
    "owners",
    "poisoned_messages",
    "published_messages",
    "schedule_outbox",
    "schedule_versions",
    "schedules",
    "subscriptions",
];

/// The prefix of all names.
#[derive(Debug, Clone, Default)]
pub(crate) struct Names {
    prefix: String,
}

impl Names {
    pub(crate) fn with_prefix(prefix: &str) -> Self {
        let prefix = prefix.to_owned();
        Self { prefix }
    }

    /// Returns the statement with the prefix added to the names.
    pub(crate) fn apply_to<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if self.prefix.is_empty() {
            return Cow::Borrowed(text);
        }
        let mut named = String::with_capacity(text.len() + 16 * self.prefix.len());
        let mut rest = text;
        while let Some(start) = rest.find(is_of_a_word) {
            let (before, word) = rest.split_at(start);
            let end = word.find(|c| !is_of_a_word(c)).unwrap_or(word.len());
            let (word, after) = word.split_at(end);
            named.push_str(before);
            if is_ours(word) {
                named.push_str(&self.prefix);
            }
            named.push_str(word);
            rest = after;
        }
        named.push_str(rest);
        Cow::Owned(named)
    }
}

fn is_of_a_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn is_ours(word: &str) -> bool {
    let begins_it = |name: &&str| {
        let rest = word.strip_prefix(*name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
    };
    NAMES.iter().any(begins_it)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_names_get_the_prefix_and_nothing_else_does() {
        let text = "SELECT owner, m.owners_id FROM consumer_messages m WHERE id IN \
                    (SELECT id FROM owners) -- consumer_messages_ready, consumer_messagesx";
        let expected = "SELECT owner, m.q_owners_id FROM q_consumer_messages m WHERE id IN \
                        (SELECT id FROM q_owners) -- q_consumer_messages_ready, consumer_messagesx";
        assert_eq!(Names::with_prefix("q_").apply_to(text), expected);
        assert_eq!(Names::with_prefix("").apply_to(text), text);
    }
}
