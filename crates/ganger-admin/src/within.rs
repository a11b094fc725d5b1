//! Time for which a request has rows looked through. What is not looked at by then is left out, and the answer says so.

use std::time::Duration;

use super::answer::Problem;
use ganger_queue::client::json::duration;

/// Maximum time.
const WITHIN_MAX: Duration = Duration::from_secs(60);

/// Reads the field `within` of a query.
pub(super) fn within(given: Option<&str>) -> Result<Option<Duration>, Problem> {
    let Some(text) = given else {
        return Ok(None);
    };
    let time = duration(text);
    let time = time.map_err(|why| Problem::bad(format!("within: {why}: `{text}`")))?;
    match time <= WITHIN_MAX {
        true => Ok(Some(time)),
        false => Err(Problem::bad(format!(
            "within must be at most {WITHIN_MAX:?}: `{text}`"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_unit_and_a_maximum() {
        assert_eq!(within(None).unwrap(), None);
        assert_eq!(
            within(Some("150ms")).unwrap(),
            Some(Duration::from_millis(150))
        );
        assert!(within(Some("2")).is_err());
        assert!(within(Some("2m")).is_err());
    }
}
