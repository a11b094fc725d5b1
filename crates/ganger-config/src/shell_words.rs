//! Splits a line of arguments as a shell does: spaces separate, quotes and backslashes protect them. It
//! does nothing else of a shell: no variables, no patterns.

/// Reason that a line can't be split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum SplitError {
    /// A quote is not closed.
    #[error("must not hold an unterminated quote")]
    Quote,
    /// A backslash is the last character.
    #[error("must not end with a backslash")]
    Backslash,
}

/// Returns the words of a line.
pub(super) fn split(line: &str) -> Result<Vec<String>, SplitError> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            c if c.is_whitespace() => words.extend(word.take()),
            '\'' | '"' => quoted(word.get_or_insert_default(), c, &mut chars)?,
            '\\' => {
                let escaped = chars.next().ok_or(SplitError::Backslash)?;
                word.get_or_insert_default().push(escaped);
            }
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Ok(words)
}

/// Reads quoted text. Between single quotes everything is literal; between double quotes a backslash
/// protects a quote or a backslash.
fn quoted(
    word: &mut String,
    quote: char,
    chars: &mut std::str::Chars<'_>,
) -> Result<(), SplitError> {
    loop {
        match chars.next().ok_or(SplitError::Quote)? {
            c if c == quote => return Ok(()),
            '\\' if quote == '"' => match chars.next().ok_or(SplitError::Quote)? {
                c @ ('"' | '\\') => word.push(c),
                c => word.extend(['\\', c]),
            },
            c => word.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_split_as_a_shell_does() {
        let words = |words: &[&str]| Ok(words.iter().map(|w| (*w).to_owned()).collect());
        for (line, expected) in [
            ("", words(&[])),
            ("  ", words(&[])),
            ("worker.py", words(&["worker.py"])),
            (" a  b\tc ", words(&["a", "b", "c"])),
            ("'a b' \"c d\"", words(&["a b", "c d"])),
            ("a'b c'd", words(&["ab cd"])),
            ("''", words(&[""])),
            (r#""a \"b\" \\ \n""#, words(&[r#"a "b" \ \n"#])),
            (r"'a\b'", words(&[r"a\b"])),
            (r"a\ b", words(&["a b"])),
            ("$HOME *", words(&["$HOME", "*"])),
            ("'a", Err(SplitError::Quote)),
            ("\"a\\", Err(SplitError::Quote)),
            ("a\\", Err(SplitError::Backslash)),
        ] {
            assert_eq!(split(line), expected, "{line}");
        }
    }
}
