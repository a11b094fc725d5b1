//! The Kafka topics that a pool reads: by name and by pattern.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use regex_lite::Regex;

use ganger_core::names::REPLY_TOPICS;

/// First character of a pattern, as in librdkafka. No topic name begins with it.
pub(crate) const PATTERN: char = '^';

/// Returns whether a topic name may contain that byte.
pub fn is_legal_in_topics(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')
}

/// Returns the group as part of topic names, which allow fewer characters: each byte that they do not
/// allow is written as `_` and two hexadecimal digits.
pub fn group_in_topics(group: &str) -> Cow<'_, str> {
    if group.bytes().all(is_legal_in_topics) {
        return Cow::Borrowed(group);
    }
    let written = |byte| match is_legal_in_topics(byte) {
        true => char::from(byte).to_string(),
        false => format!("_{byte:02x}"),
    };
    group.bytes().map(written).collect()
}

/// The topics of a pool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Topics {
    names: Vec<String>,
    patterns: Vec<Pattern>,
}

impl Topics {
    /// Reads topic names and patterns of names.
    ///
    /// # Errors
    /// The fault of a pattern, and its index.
    pub fn read(wanted: &[String]) -> Result<Self, (usize, String)> {
        let mut topics = Self::default();
        for (index, text) in wanted.iter().enumerate() {
            if text.starts_with(PATTERN) {
                let pattern = Pattern::read(text).map_err(|why| (index, why))?;
                topics.patterns.push(pattern);
            } else {
                topics.names.push(text.clone());
            }
        }
        Ok(topics)
    }

    /// Returns the topics given by name.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns whether there are patterns, so that other topics may be read.
    pub fn has_patterns(&self) -> bool {
        !self.patterns.is_empty()
    }

    /// Returns whether the topic is read.
    pub fn include(&self, topic: &str) -> bool {
        self.names.iter().any(|name| name == topic) || self.match_by_pattern(topic)
    }

    /// Returns whether the topic is read because a pattern matches its name.
    pub fn match_by_pattern(&self, topic: &str) -> bool {
        let mut patterns = self.patterns.iter();
        !is_left_out(topic) && patterns.any(|pattern| pattern.matches(topic))
    }

    /// Returns the topics given by name, and those of `there` that a pattern matches.
    pub fn among<'a>(&'a self, there: impl Iterator<Item = &'a String>) -> BTreeSet<String> {
        let matching = there.filter(|topic| self.match_by_pattern(topic));
        matching.chain(self.names.iter()).cloned().collect()
    }

    /// Returns a topic that both may read, or a pattern of `other`. Patterns count as overlapping unless
    /// they begin with different text.
    pub fn common<'a>(&'a self, other: &'a Self) -> Option<&'a str> {
        let name = |name: &&String| other.include(name);
        let ours = self.names.iter().find(name).map(String::as_str);
        let theirs = || other.names.iter().find(|name| self.include(name));
        let pattern = || {
            let mut pairs = self.patterns.iter().flat_map(|pattern| {
                let others = other.patterns.iter();
                others.map(move |other| (pattern.beginning(), other.beginning(), other))
            });
            pairs.find(|(a, b, _)| a.starts_with(b.as_str()) || b.starts_with(a.as_str()))
        };
        ours.or_else(|| theirs().map(String::as_str))
            .or_else(|| pattern().map(|(_, _, other)| &*other.text))
    }
}

/// A pattern of topic names.
#[derive(Clone)]
struct Pattern {
    text: Arc<str>,
    regex: Regex,
}

impl Pattern {
    fn read(text: &str) -> Result<Self, String> {
        Ok(Self {
            text: text.into(),
            regex: Regex::new(text).map_err(|error| error.to_string())?,
        })
    }

    fn matches(&self, topic: &str) -> bool {
        self.regex.is_match(topic)
    }

    /// Returns the literal text that all matches begin with, as far as that is plain to see.
    fn beginning(&self) -> String {
        let text = self.text.trim_start_matches(PATTERN);
        let mut beginning = String::new();
        let mut rest = text.chars().peekable();
        // Another branch may begin otherwise.
        while !text.contains('|')
            && let Some(next) = rest.next()
        {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
            let plain = match next {
                '\\' => rest.next().filter(|next| matches!(next, '.' | '-' | '_')),
                next => Some(next).filter(|next| is_plain(*next)),
            };
            let is_repeated = matches!(rest.peek(), Some('?' | '*' | '+' | '{'));
            match plain {
                Some(plain) if !is_repeated => beginning.push(plain),
                Some(_) | None => break,
            }
        }
        beginning
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Pattern {}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

/// Returns whether no pattern takes the topic: one that daemons make, by the end of its name, or Kafka's
/// own.
fn is_left_out(topic: &str) -> bool {
    let is_tier = |tier: &str| tier.starts_with(|c: char| c.is_ascii_digit());
    topic.starts_with("__")
        || topic.starts_with(REPLY_TOPICS)
        || topic.ends_with(".dead")
        || topic
            .rsplit_once(".retry.")
            .is_some_and(|(_, tier)| is_tier(tier))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topics(wanted: &[&str]) -> Topics {
        let wanted: Vec<String> = wanted.iter().map(ToString::to_string).collect();
        Topics::read(&wanted).unwrap()
    }

    #[test]
    fn names_and_patterns() {
        let both = topics(&["payments", r"^orders\..*", "^x$"]);
        for (topic, is_read) in [
            ("payments", true),
            ("payments.eu", false),
            ("orders.eu", true),
            ("orders.", true),
            ("orders", false),
            ("ordersxeu", false),
            ("my.orders.eu", false),
            ("x", true),
            ("xy", false),
        ] {
            assert_eq!(both.include(topic), is_read, "{topic}");
        }
        let there = ["orders.eu", "other"].map(str::to_owned);
        let found = both.among(there.iter());
        assert_eq!(found, ["orders.eu", "payments"].map(str::to_owned).into());
        assert!(both.has_patterns() && !topics(&["a"]).has_patterns());
    }

    #[test]
    fn no_pattern_takes_what_daemons_make_but_a_name_does() {
        let all = topics(&["^.*", "orders.billing.dead"]);
        for left_out in [
            "a.g.dead",
            "a.dead",
            "a.g.retry.4s",
            "a.g.retry.250ms",
            "__consumer_offsets",
            "ganger.reply.7",
        ] {
            assert!(!all.include(left_out), "{left_out}");
        }
        for taken in [
            "orders.billing.dead",
            "a",
            "dead",
            "a.retry.soon",
            "_schemas",
        ] {
            assert!(all.include(taken), "{taken}");
        }
    }

    #[test]
    fn what_two_may_have_in_common() {
        for (one, other, common) in [
            (&["a", "b"][..], &["c", "b"][..], Some("b")),
            (&["a"], &["b"], None),
            (&["a.x"], &[r"^a\."], Some("a.x")),
            (&[r"^a\."], &["b", "a.x"], Some("a.x")),
            (&["a.g.dead"], &["^a"], None),
            (&[r"^a\."], &[r"^b\."], None),
            (&[r"^a\.b"], &[r"^a\."], Some(r"^a\.")),
            (&["^ab?"], &["^ac"], Some("^ac")),
            (&["^a|b"], &["^c"], Some("^c")),
            (&["^(a|b)"], &["^c"], Some("^c")),
            (&["^a[xy]"], &["^b"], None),
            (&[r"^a\d"], &["^ab"], Some("^ab")),
        ] {
            assert_eq!(
                topics(one).common(&topics(other)),
                common,
                "{one:?} {other:?}"
            );
        }
    }

    #[test]
    fn what_is_wrong_with_a_pattern() {
        let (index, why) = Topics::read(&["a".into(), "^a(b".into()]).unwrap_err();
        assert_eq!(
            (index, why.as_str()),
            (1, "found open group without closing ')'")
        );
    }
}
