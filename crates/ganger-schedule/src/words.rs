//! Words of closed sets: a choice as it is written in a configuration or a request, and stored in a
//! column or a label.

use crate::problem::{Problem, quoted};

/// Gives a type its words: a constant with all, `as_str`, and `FromStr` with a [`Problem`] that names
/// them.
macro_rules! words {
    ($type:ident, $noun:literal: $($word:literal => $choice:ident $({ $field:ident: $value:expr })?),+ $(,)?) => {
        impl $type {
            /// Words of all choices.
            pub const WORDS: &'static [&'static str] = &[$($word),+];

            /// Returns the word.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$choice { .. } => $word),+
                }
            }
        }

        impl std::str::FromStr for $type {
            type Err = $crate::problem::Problem;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $($word => Ok(Self::$choice $({ $field: $value })?),)+
                    _ => Err($crate::words::unknown($noun, text, Self::WORDS)),
                }
            }
        }
    };
}

pub(crate) use words;

/// Returns the problem of a word that is none of a set.
pub(crate) fn unknown(noun: &str, text: &str, words: &[&str]) -> Problem {
    let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    let right = match words.split_last() {
        Some((last, others)) if !others.is_empty() => {
            format!("write {} or {last}", others.join(", "))
        }
        _ => format!("write {}", words.concat()),
    };
    Problem::new(format!("invalid {noun} {}", quoted(text)), right)
}

#[cfg(test)]
mod tests {
    use std::str::FromStr;

    use crate::calendar::Outside;
    use crate::cron::Dialect;
    use crate::due::Reason;
    use crate::overlap::Overlap;
    use crate::spec::Policy;
    use crate::wall::{Fold, Gap};

    fn roundtrip<T: FromStr>(words: &[&str], as_str: impl Fn(T) -> &'static str) {
        for word in words {
            assert_eq!(T::from_str(word).ok().map(&as_str), Some(*word));
        }
    }

    #[test]
    fn each_choice_is_read_as_it_is_written() {
        roundtrip(Policy::WORDS, Policy::as_str);
        roundtrip(Overlap::WORDS, Overlap::as_str);
        roundtrip(Outside::WORDS, Outside::as_str);
        roundtrip(Gap::WORDS, Gap::as_str);
        roundtrip(Fold::WORDS, Fold::as_str);
        roundtrip(Dialect::WORDS, Dialect::as_str);
        roundtrip(Reason::WORDS, Reason::as_str);
    }

    #[test]
    fn an_unknown_word_is_refused_with_all_that_are_known() {
        assert_eq!(
            Policy::from_str("Once").unwrap_err().to_string(),
            "invalid policy `Once`: write `once`, `all` or `skip`"
        );
        assert_eq!(
            Gap::from_str("").unwrap_err().to_string(),
            "invalid gap ``: write `after` or `skip`"
        );
    }
}
