//! Fingerprints of errors: errors that differ only in numbers, ids and quoted parts have the same. Pure.

use sha2::{Digest, Sha256};

/// Number of bytes of a hash that make a fingerprint.
const FINGERPRINT_BYTES: usize = 8;
/// Stands for a part of an error that is taken out.
const TAKEN_OUT: char = '*';
/// Signs between the parts of one time, address or version.
const JOINERS: &[char] = &['-', '_', '.', ':', ',', '/', '+'];
/// Signs around quoted parts; the last one is an apostrophe, too.
const QUOTES: [char; 3] = ['"', '`', APOSTROPHE];
const APOSTROPHE: char = '\'';
/// Lengths of the groups of digits in a UUID.
const UUID_GROUPS: [usize; 5] = [8, 4, 4, 4, 12];
/// Length from which a word of hexadecimal digits is an id, even without a decimal one.
const HEX_MIN: usize = 8;

/// Returns the fingerprint of an error, 16 hexadecimal digits; an empty text for an empty error.
pub(super) fn fingerprint(error: &str) -> String {
    if error.is_empty() {
        return String::new();
    }
    let hash = Sha256::digest(normalised(error));
    let bytes = hash.iter().take(FINGERPRINT_BYTES);
    bytes.map(|byte| format!("{byte:02x}")).collect()
}

/// Takes words with digits, UUIDs, other hexadecimal ids and quoted parts out of an error, and reduces each run of
/// white space to a blank. The result is not longer, and remains as it is if that is done again.
fn normalised(error: &str) -> String {
    let mut out = String::with_capacity(error.len());
    // Those that are not known to have no closing one in the rest.
    let mut quotes = QUOTES.to_vec();
    let mut rest = error.trim();
    while let Some(first) = rest.chars().next() {
        let word = word(rest);
        let length = match variable(rest, word) {
            None if quotes.contains(&first) && opens(first, &out) => {
                let length = quoted(rest, first);
                if length.is_none() {
                    quotes.retain(|quote| *quote != first);
                }
                length
            }
            length => length,
        };
        rest = if let Some(length) = length {
            take_out(&mut out);
            &rest[length..]
        } else if first.is_whitespace() {
            out.push(' ');
            rest.trim_start()
        } else {
            let length = word.len().max(first.len_utf8());
            out.push_str(&rest[..length]);
            &rest[length..]
        };
    }
    out
}

/// Returns the word with which a text begins; it may be empty.
fn word(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric());
    &text[..end.unwrap_or(text.len())]
}

/// Returns the length of the number or id with which a text begins, if it begins with one; `word` is its first word.
fn variable(text: &str, word: &str) -> Option<usize> {
    let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_id = word.len() >= HEX_MIN && is_hex(word);
    if text.starts_with(TAKEN_OUT) {
        return Some(TAKEN_OUT.len_utf8());
    }
    let length = UUID_GROUPS.iter().sum::<usize>() + UUID_GROUPS.len() - 1;
    if let Some(uuid) = text.get(..length).filter(|_| is_id) {
        let groups = uuid.split('-');
        let lengths = groups.map(|group| is_hex(group).then_some(group.len()));
        if lengths.eq(UUID_GROUPS.map(Some)) {
            return Some(length);
        }
    }
    (is_id || word.contains(char::is_numeric)).then_some(word.len())
}

/// Returns whether a quote after that text begins a quoted part: an apostrophe in a word does not.
fn opens(quote: char, before: &str) -> bool {
    quote != APOSTROPHE || !before.ends_with(is_of_word)
}

/// Returns the length of the quoted part with which a text begins, if it ends. It does not end at an apostrophe in a
/// word.
fn quoted(text: &str, quote: char) -> Option<usize> {
    let ends = text.match_indices(quote).skip(1).map(|(at, _)| at + 1);
    let mut ends = ends.filter(|end| quote != APOSTROPHE || !text[*end..].starts_with(is_of_word));
    ends.next()
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == TAKEN_OUT
}

/// Notes that a part is taken out; parts that are joined count as one.
fn take_out(out: &mut String) {
    let before = out.strip_suffix(JOINERS).unwrap_or(out);
    match before.ends_with(TAKEN_OUT) {
        true => out.truncate(before.len()),
        false => out.push(TAKEN_OUT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_differs_each_time_is_taken_out() {
        for (error, expected) in [
            ("", ""),
            ("exited with code 3", "exited with code *"),
            ("took 1.5s, at most 900ms", "took *, at most *"),
            (
                "at 2026-12-01T08:00:00.123+01:00:\n  no answer",
                "at *: no answer",
            ),
            ("10.0.0.7:5432 refused [::1]:5432", "* refused [::*]:*"),
            ("order 0193d5a2-7c1e-7abc-8def-0123456789ab", "order *"),
            (
                "order abcdefab-abcd-abcd-abcd-abcdefabcdef is gone",
                "order * is gone",
            ),
            (
                "object deadbeef at 0x7ffe12, a facade",
                "object * at *, a facade",
            ),
            (
                "no file '/var/a b.txt' in \"c\" or `d`",
                "no file * in * or *",
            ),
            (
                "can't open 'the dog's bowl', it isn't there",
                "can't open *, it isn't there",
            ),
            ("an \"open quote of 7", "an \"open quote of *"),
            (
                "GET /orders/17/items/4?page=2",
                "GET /orders/*/items/*?page=*",
            ),
            ("user_17: ١٢ und ½", "user_*: * und *"),
            ("  two\t words ", "two words"),
        ] {
            assert_eq!(normalised(error), expected, "{error}");
        }
    }

    /// `printf 'exited with code *' | sha256sum`
    #[test]
    fn a_fingerprint_is_the_beginning_of_a_hash() {
        assert_eq!(fingerprint(""), "");
        let of_three = fingerprint("exited with code 3");
        assert_eq!(of_three, "236b92f386436e35");
        assert_eq!(fingerprint("exited with code 17"), of_three);
        assert_ne!(fingerprint("killed by signal 9 (SIGKILL)"), of_three);
    }

    /// Each quote is looked for once more at most, or it would take minutes.
    #[test]
    fn quotes_without_end_take_no_time_without_end() {
        let error = " 'a".repeat(1 << 20);
        assert_eq!(normalised(&error).len(), error.len() - 1);
    }

    proptest! {
        #[test]
        fn an_error_is_normalised_once(
            error in "([a-f]{8}|[0-9a-f]{8}-[0-9a-f]{4}|[a-zé'\"`*5._:/\\- \n٣]|\\PC){0,40}",
        ) {
            let once = normalised(&error);
            prop_assert!(once.len() <= error.len());
            prop_assert_eq!(&normalised(&once), &once);
            let digits = fingerprint(&error);
            prop_assert_eq!(digits.len(), if error.is_empty() { 0 } else { 16 });
        }
    }
}
