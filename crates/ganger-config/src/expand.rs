//! `${VAR}` and `${VAR:-default}` in text. The environment is given; nothing here reads it.

use super::environment::Environment;

/// Reason that a text can't be expanded.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ExpandError {
    /// A variable without a default is not set.
    #[error("needs the environment variable {name}, which is not set")]
    Unset {
        /// The variable's name.
        name: String,
    },
    /// `${` without its `}`.
    #[error("contains a `${{` without a closing `}}`")]
    Open,
    /// The text between the braces is not a variable's name.
    #[error("contains `${{{name}}}`, which is not the name of an environment variable")]
    Name {
        /// The text between the braces.
        name: String,
    },
    /// A default that contains a variable itself.
    #[error("contains a `${{` inside another")]
    Nested,
}

/// Returns the text with its variables replaced, or none if it has nothing to replace. `$$` stands for a
/// dollar sign; so does one that neither `{` nor `$` follows.
pub(super) fn expand(text: &str, environment: &Environment) -> Result<Option<String>, ExpandError> {
    let mut expanded = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        expanded.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        rest = if let Some(inner) = after.strip_prefix('{') {
            let (name, after) = inner.split_once('}').ok_or(ExpandError::Open)?;
            expanded.push_str(&value(name, environment)?);
            after
        } else {
            expanded.push('$');
            after.strip_prefix('$').unwrap_or(after)
        };
    }
    expanded.push_str(rest);
    Ok((expanded != text).then_some(expanded))
}

/// Returns the text escaped so that [`expand`] gives it back.
pub(super) fn escape(text: &str) -> String {
    text.replace('$', "$$")
}

fn value(inner: &str, environment: &Environment) -> Result<String, ExpandError> {
    if inner.contains("${") {
        return Err(ExpandError::Nested);
    }
    let (name, default) = match inner.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inner, None),
    };
    if !is_name(name) {
        return Err(ExpandError::Name { name: name.into() });
    }
    // As in a shell, `:-` also replaces a variable that is set to nothing.
    let set = environment
        .get(name)
        .map(String::as_str)
        .filter(|value| default.is_none() || !value.is_empty());
    set.or(default)
        .map(String::from)
        .ok_or_else(|| ExpandError::Unset { name: name.into() })
}

fn is_name(name: &str) -> bool {
    let mut chars = name.chars();
    chars
        .next()
        .is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn environment() -> Environment {
        let pairs = [("HOST", "db"), ("EMPTY", ""), ("ODD", "${HOST}")];
        pairs.map(|(k, v)| (k.into(), v.into())).into()
    }

    #[test]
    fn variables_are_replaced() {
        for (text, expected) in [
            ("plain", None),
            ("${HOST}", Some("db")),
            ("a-${HOST}-${HOST}", Some("a-db-db")),
            ("${PORT:-5432}", Some("5432")),
            ("${HOST:-x}", Some("db")),
            ("${EMPTY}", Some("")),
            ("${EMPTY:-x}", Some("x")),
            ("${PORT:-}", Some("")),
            ("${ODD}", Some("${HOST}")),
            ("$HOST", None),
            ("cost: 5$", None),
            ("$$", Some("$")),
            ("$${HOST}", Some("${HOST}")),
            ("$$$HOST", Some("$$HOST")),
        ] {
            let expanded = expand(text, &environment());
            assert_eq!(expanded, Ok(expected.map(String::from)), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, error) in [
            (
                "${PORT}",
                "needs the environment variable PORT, which is not set",
            ),
            ("${PORT", "contains a `${` without a closing `}`"),
            (
                "${a b}",
                "contains `${a b}`, which is not the name of an environment variable",
            ),
            ("${A:-${B}}", "contains a `${` inside another"),
            (
                "${}",
                "contains `${}`, which is not the name of an environment variable",
            ),
        ] {
            let expanded = expand(text, &environment());
            assert_eq!(expanded.unwrap_err().to_string(), error);
        }
    }

    proptest! {
        #[test]
        fn an_escaped_text_comes_back(text in "[$\\{\\}a-z]{0,12}") {
            let escaped = escape(&text);
            let back = expand(&escaped, &Environment::new()).unwrap().unwrap_or(escaped);
            prop_assert_eq!(back, text);
        }
    }
}
