//! Time limit for the work on a message, by its pool and by the message itself.

use std::time::Duration;

use ganger_core::names::TIMEOUT_HEADER;
use ganger_queue::delivery::Headers;

/// Longest time that a message can ask for: a clock can't represent every number.
const LONGEST_SOFT_TIMEOUT: Duration = Duration::from_hours(24 * 365);

/// Returns the time limit for the work on a message: the pool's limit, which the message may only
/// shorten.
pub fn soft_timeout(pool: Option<Duration>, headers: &Headers) -> Option<Duration> {
    let asked = headers
        .iter()
        .find(|(name, _)| name == TIMEOUT_HEADER)
        .and_then(|(_, value)| value.trim().parse::<f64>().ok())
        .filter(|millis| *millis >= 0.0)
        .map(|millis| (millis / 1e3).min(LONGEST_SOFT_TIMEOUT.as_secs_f64()))
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    match (pool, asked) {
        (Some(pool), Some(asked)) => Some(pool.min(asked)),
        (pool, asked) => pool.or(asked),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_may_only_shorten_its_time() {
        let header = |value: &str| vec![(TIMEOUT_HEADER.to_owned(), value.to_owned())];
        let seconds = |n| Some(Duration::from_secs(n));
        let table = [
            (None, None, None),
            (seconds(30), None, seconds(30)),
            (seconds(30), Some("10000"), seconds(10)),
            (seconds(30), Some("90000"), seconds(30)),
            (None, Some("100"), Some(Duration::from_millis(100))),
            (None, Some("-1"), None),
            (seconds(30), Some("-1"), seconds(30)),
            (seconds(30), Some("soon"), seconds(30)),
            (None, Some("NaN"), None),
            (None, Some("inf"), Some(LONGEST_SOFT_TIMEOUT)),
            (None, Some("1e22"), Some(LONGEST_SOFT_TIMEOUT)),
            (seconds(30), Some("1e22"), seconds(30)),
            (None, Some(" 1500 "), Some(Duration::from_millis(1500))),
        ];
        for (pool, asked, expected) in table {
            let headers = asked.map(header).unwrap_or_default();
            assert_eq!(soft_timeout(pool, &headers), expected, "{pool:?} {asked:?}");
        }
    }
}
