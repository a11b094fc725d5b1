//! Queues to which a pool's workers may send: names compared with the patterns of `publish_to`. Pure.

/// Returns whether a reply or an emit may be sent to that queue. Without patterns any queue of its source is
/// allowed.
pub fn allows(patterns: Option<&[String]>, queue: &str) -> bool {
    patterns.is_none_or(|patterns| patterns.iter().any(|pattern| fits(pattern, queue)))
}

/// Matches a name against a pattern; a `*` stands for any text, including none. Names are untrusted input, so
/// the matching never backtracks.
fn fits(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(rest) = name.strip_prefix(first) else {
        return false;
    };
    let Some(last) = parts.next_back() else {
        return rest.is_empty();
    };
    let Some(mut rest) = rest.strip_suffix(last) else {
        return false;
    };
    parts.all(|part| match rest.split_once(part) {
        Some((_, after)) => {
            rest = after;
            true
        }
        None => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        let table = [
            ("answers", "answers", true),
            ("answers", "answers2", false),
            ("answers", "", false),
            ("*", "", true),
            ("*", "anything", true),
            ("answers.*", "answers.eu", true),
            ("answers.*", "answers", false),
            ("*.dead", "orders.dead", true),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("a*b*c", "a-b-c", true),
            ("a*b*c", "acb", false),
            ("a*bb*b", "abb", false),
            ("é*", "été", true),
            ("", "", true),
        ];
        for (pattern, name, fitting) in table {
            assert_eq!(fits(pattern, name), fitting, "{pattern} {name}");
        }
    }

    #[test]
    fn no_pattern_allows_nothing_and_no_list_allows_all() {
        assert!(allows(None, "anywhere"));
        assert!(!allows(Some(&[]), "anywhere"));
        let two = ["a".to_owned(), "b.*".to_owned()];
        assert!(allows(Some(&two), "b.c") && !allows(Some(&two), "c"));
    }
}
