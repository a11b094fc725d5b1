//! The words of a search: `state:failed schedule:nightly`, and what they lead to.

use std::collections::BTreeMap;

use ganger_schedule::occurrence::ScheduleState;

use super::paths::{RUNS, SCHEDULES};
use super::query::Fields;

/// Words that narrow a search: `pool:email`.
pub(super) const WORDS: [&str; 5] = ["state", "schedule", "tag", "queue", "pool"];

/// A search: words with a value, and the rest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Search {
    pub(super) words: BTreeMap<&'static str, String>,
    pub(super) rest: String,
}

impl Search {
    pub(super) fn of(query: &str) -> Self {
        let mut search = Self::default();
        let mut rest = Vec::new();
        for part in query.split_whitespace() {
            let word = part.split_once(':').and_then(|(name, value)| {
                let name = WORDS.iter().find(|word| **word == name)?;
                (!value.is_empty()).then_some((*name, value))
            });
            match word {
                Some((name, value)) => drop(search.words.insert(name, value.to_owned())),
                None => rest.push(part),
            }
        }
        search.rest = rest.join(" ");
        search
    }

    pub(super) fn word(&self, name: &str) -> Option<&str> {
        self.words.get(name).map(String::as_str)
    }

    /// Returns the list that shows this, if there is one.
    pub(super) fn list(&self) -> Option<String> {
        if !self.rest.is_empty()
            || self.words.contains_key("queue")
            || self.words.contains_key("pool")
        {
            return None;
        }
        let (state, tag) = (self.word("state"), self.word("tag"));
        let schedule = self.word("schedule");
        let of_schedules = match state {
            Some(state) => ScheduleState::WORDS.contains(&state),
            None => tag.is_some(),
        };
        if of_schedules {
            let fields = Fields::default().with("state", state.unwrap_or_default());
            let fields = fields.with("tag", tag.unwrap_or_default());
            let fields = fields.with("text", schedule.unwrap_or_default());
            return Some(fields.at(SCHEDULES));
        }
        // A run has no tag.
        let state = state.filter(|_| tag.is_none())?;
        let fields = Fields::default().with("schedule", schedule.unwrap_or_default());
        let fields = match state {
            "unresolved" => fields.with("unresolved", "true"),
            state => fields.with("state", state),
        };
        Some(fields.at(RUNS))
    }

    /// Returns whether something can be looked for by all of its parts together, where no list shows it.
    pub(super) fn can_be_found(&self) -> bool {
        let words: Vec<&str> = self.words.keys().copied().collect();
        match (&*words, self.rest.is_empty()) {
            ([] | ["pool"], _) | (["queue" | "schedule"], true) => true,
            (_, _) => false,
        }
    }

    /// Returns whether a name is what a word, or the rest, asks for.
    pub(super) fn names(&self, word: &str, name: &str) -> bool {
        match self.word(word) {
            Some(value) => starts_with(name, value),
            None => self.words.is_empty() && !self.rest.is_empty() && starts_with(name, &self.rest),
        }
    }
}

/// Returns whether a name begins with a text, in whatever case.
fn starts_with(name: &str, begin: &str) -> bool {
    name.to_lowercase().starts_with(&begin.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_lead_to_lists() {
        let list = |query: &str| Search::of(query).list();
        for (query, path) in [
            ("state:failed", "/ui/occurrences?state=failed"),
            ("state:unresolved", "/ui/occurrences?unresolved=true"),
            (
                "schedule:x state:failed",
                "/ui/occurrences?schedule=x&state=failed",
            ),
            ("tag:a&b", "/ui/schedules?tag=a%26b"),
            ("state:paused tag:x", "/ui/schedules?state=paused&tag=x"),
            (
                "state:unresolved schedule:x",
                "/ui/occurrences?schedule=x&unresolved=true",
            ),
            (
                "state:paused schedule:x",
                "/ui/schedules?state=paused&text=x",
            ),
            ("tag:a schedule:x", "/ui/schedules?tag=a&text=x"),
        ] {
            assert_eq!(list(query).as_deref(), Some(path), "{query}");
        }
        for query in ["", "pool:x", "schedule:x", "error state:failed", "http://a"] {
            assert_eq!(list(query), None, "{query}");
        }
    }

    #[test]
    fn parts_that_cannot_be_combined_are_known() {
        for query in [
            "state:failed tag:x",
            "state:unresolved tag:x",
            "queue:work x",
            "schedule:x y",
            "state:failed y",
            "pool:a queue:b",
            "state:failed pool:a",
        ] {
            let search = Search::of(query);
            assert_eq!(search.list(), None, "{query}");
            assert!(!search.can_be_found(), "{query}");
        }
        for query in [
            "",
            "x y",
            "pool:a",
            "pool:a refused",
            "queue:a",
            "schedule:a",
        ] {
            assert!(Search::of(query).can_be_found(), "{query}");
        }
    }

    #[test]
    fn what_is_no_word_is_looked_for_as_it_is() {
        let search = Search::of("pool:mail  connection refused: 10.0.0.1:80");
        assert_eq!(search.word("pool"), Some("mail"));
        assert_eq!(search.rest, "connection refused: 10.0.0.1:80");
        assert!(!search.names("queue", "connection"));
        assert!(Search::of("Ma").names("queue", "mail"));
        assert!(Search::of("queue:ma").names("queue", "mail"));
        assert!(!Search::of("queue:ma").names("pool", "mail"));
    }
}
