//! Words of a shell's command line.

/// Returns a text as one word of a shell.
pub fn word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_./:@%+=,-".contains(c);
    // zsh reads the rest of a word after this sign as the name of a program.
    let is_word = !text.is_empty() && !text.starts_with('=');
    match is_word && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_one_word() {
        for (text, expected) in [
            ("nightly-1", "nightly-1"),
            ("a@b:c/d=e", "a@b:c/d=e"),
            ("a b", "'a b'"),
            ("it's; rm", r"'it'\''s; rm'"),
            ("=ls", "'=ls'"),
            ("~", "'~'"),
            ("", "''"),
        ] {
            assert_eq!(word(text), expected);
        }
    }
}
