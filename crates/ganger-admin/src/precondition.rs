//! `If-Match` and `If-None-Match`: a change is made only if the definition is the one that its author has read.

use axum::extract::FromRequestParts;
use axum::http::header::{IF_MATCH, IF_NONE_MATCH};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName};

use super::answer::Problem;
use ganger_queue::ledger::Expected;

/// Headers with the condition of a change.
#[derive(Debug, Clone, Default, PartialEq, Eq, utoipa::IntoParams)]
#[into_params(parameter_in = Header)]
pub(super) struct Precondition {
    /// Only if the definition has this tag, the `ETag` of the schedule, or one of several; `*` for any.
    #[param(rename = "If-Match")]
    if_match: Option<String>,
    /// `*`: only if there is no such schedule.
    #[param(rename = "If-None-Match")]
    if_none_match: Option<String>,
}

impl<S: Sync> FromRequestParts<S> for Precondition {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Ok(Self {
            if_match: joined(&parts.headers, &IF_MATCH)?,
            if_none_match: joined(&parts.headers, &IF_NONE_MATCH)?,
        })
    }
}

/// Returns the values of a header as one list.
fn joined(headers: &HeaderMap, name: &HeaderName) -> Result<Option<String>, Problem> {
    let values = headers.get_all(name).iter();
    let values: Result<Vec<&str>, _> = values.map(|value| value.to_str()).collect();
    let values = values.map_err(|_| Problem::bad(format!("{name} is not text")))?;
    Ok((!values.is_empty()).then(|| values.join(",")))
}

impl Precondition {
    /// Returns the definition that is expected, if one is.
    pub(super) fn expected(self) -> Result<Option<Expected>, Problem> {
        match (self.if_match, self.if_none_match) {
            (None, None) => Ok(None),
            (Some(_), Some(_)) => Err(Problem::bad("send If-Match or If-None-Match, not both")),
            (None, Some(none)) if none.trim() == "*" => Ok(Some(Expected::Absent)),
            (None, Some(_)) => Err(Problem::bad(
                "If-None-Match must be `*`: it creates a schedule, and replaces none",
            )),
            (Some(tags), None) if tags.trim() == "*" => Ok(Some(Expected::Present)),
            (Some(tags), None) => {
                let tags = tags.split(',').map(tag).collect::<Result<_, _>>()?;
                Ok(Some(Expected::OneOf(tags)))
            }
        }
    }
}

/// Reads a tag. One that is weak, as a proxy may make it, matches no definition.
fn tag(text: &str) -> Result<String, Problem> {
    let text = text.trim();
    if text.starts_with("W/") {
        return Ok(text.to_owned());
    }
    let inner = text
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'));
    inner.map(str::to_owned).ok_or_else(|| {
        let why = format!("If-Match must be the ETag of the schedule, in quotes, or `*`: `{text}`");
        Problem::bad(why)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_read() {
        let expected = |if_match: Option<&str>, if_none_match: Option<&str>| {
            let headers = Precondition {
                if_match: if_match.map(str::to_owned),
                if_none_match: if_none_match.map(str::to_owned),
            };
            headers.expected().map_err(drop)
        };
        let one_of = |tags: &[&str]| {
            let tags = tags.iter().map(|tag| (*tag).to_owned());
            Ok(Some(Expected::OneOf(tags.collect())))
        };
        assert_eq!(expected(None, None), Ok(None));
        assert_eq!(expected(None, Some("*")), Ok(Some(Expected::Absent)));
        assert_eq!(expected(Some(" * "), None), Ok(Some(Expected::Present)));
        assert_eq!(expected(Some("\"a\""), None), one_of(&["a"]));
        assert_eq!(
            expected(Some("\"a\", W/\"b\""), None),
            one_of(&["a", "W/\"b\""])
        );
        for (if_match, if_none_match) in [
            (Some("a"), None),
            (Some("\"a"), None),
            (None, Some("\"a\"")),
            (Some("*"), Some("*")),
        ] {
            assert_eq!(expected(if_match, if_none_match), Err(()), "{if_match:?}");
        }
    }
}
