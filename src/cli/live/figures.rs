//! Figures formatted for people, short enough for a column.

use ganger_pool::status::BacklogStatus;
pub(super) use ganger_pool::status::age;

/// Formats a short time, in seconds, in a suitable unit.
pub(super) fn latency(seconds: f64) -> String {
    match seconds {
        short if short < 0.000_000_5 => "0".to_owned(),
        short if short < 0.001 => format!("{:.0}µs", short * 1e6),
        short if short < 0.01 => format!("{:.1}ms", short * 1e3),
        short if short < 1.0 => format!("{:.0}ms", short * 1e3),
        short if short < 10.0 => format!("{short:.1}s"),
        long => age(long),
    }
}

/// Formats a number in at most five characters up to a thousand billions.
pub(super) fn count(number: u64) -> String {
    const UNITS: [(u64, &str); 4] = [
        (1_000_000_000_000, "T"),
        (1_000_000_000, "G"),
        (1_000_000, "M"),
        (1_000, "k"),
    ];
    if number < 100_000 {
        return number.to_string();
    }
    let unit = UNITS.into_iter().find(|(unit, _)| number >= *unit);
    let (unit, name) = unit.unwrap_or((1, ""));
    match number / unit {
        whole @ ..10 => format!("{whole}.{:02}{name}", number % unit * 100 / unit),
        whole @ ..100 => format!("{whole}.{}{name}", number % unit * 10 / unit),
        whole => format!("{whole}{name}"),
    }
}

/// Formats the number of messages in a backlog, with a `+` where there may be more; `-` if unknown.
pub(super) fn depth(backlog: Option<BacklogStatus>) -> String {
    match backlog {
        None => "-".to_owned(),
        Some(BacklogStatus {
            depth, at_least, ..
        }) => {
            let more = if at_least { "+" } else { "" };
            format!("{}{more}", count(depth))
        }
    }
}

/// Formats the longest time that a message in a backlog has waited; `-` if none waits or it is
/// unknown.
pub(super) fn oldest(backlog: Option<BacklogStatus>) -> String {
    let waiting = backlog.filter(|backlog| backlog.depth > 0);
    let oldest = waiting.and_then(|backlog| backlog.oldest_age_seconds);
    oldest.map_or_else(|| "-".to_owned(), age)
}

/// Formats a rate per second.
pub(super) fn rate(per_second: f64) -> String {
    match per_second {
        slow if slow < 1000.0 => format!("{:.1}", slow.max(0.0)),
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is at least 1000, and what is beyond a u64 becomes the largest"
        )]
        fast => count(fast as u64),
    }
}

/// Formats a part of a whole, which may be more than one, in percent.
pub(super) fn percent(part: f64) -> String {
    format!("{:.0}%", part * 100.0)
}

/// Formats a size in a suitable unit.
pub(super) fn bytes(bytes: u64) -> String {
    const UNITS: [(u64, &str); 4] = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let unit = UNITS.into_iter().find(|(bits, _)| bytes >> bits > 0);
    match unit {
        None => format!("{bytes} B"),
        Some((bits, name)) => {
            let tenths = (u128::from(bytes) * 10) >> bits;
            format!("{}.{} {name}", tenths / 10, tenths % 10)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_told_in_two_units() {
        let table = [
            (0.04, "0.0s"),
            (9.94, "9.9s"),
            (59.9, "59s"),
            (61.0, "1m 1s"),
            (3_661.0, "1h 1m"),
            (90_061.0, "1d 1h"),
            (f64::NAN, "0.0s"),
        ];
        for (seconds, text) in table {
            assert_eq!(age(seconds), text);
        }
    }

    #[test]
    fn latencies_have_the_unit_that_fits() {
        let table = [
            (0.0, "0"),
            (0.000_12, "120µs"),
            (0.001_24, "1.2ms"),
            (0.043, "43ms"),
            (1.26, "1.3s"),
            (75.0, "1m 15s"),
            (f64::NAN, "0.0s"),
        ];
        for (seconds, text) in table {
            assert_eq!(latency(seconds), text);
        }
    }

    #[test]
    fn large_counts_are_rounded_down() {
        let table = [
            (0, "0"),
            (99_999, "99999"),
            (123_456, "123k"),
            (1_239_999, "1.23M"),
            (12_390_000, "12.3M"),
            (5_000_000_000, "5.00G"),
            (u64::MAX, "18446744T"),
        ];
        for (number, text) in table {
            assert_eq!(count(number), text);
        }
    }

    #[test]
    fn a_backlog_is_a_count_and_an_age_where_they_are_known() {
        let backlog = |depth, at_least, oldest_age_seconds| {
            Some(BacklogStatus {
                depth,
                at_least,
                oldest_age_seconds,
            })
        };
        let table = [
            (None, "-", "-"),
            (backlog(0, false, Some(0.0)), "0", "-"),
            (backlog(5000, false, Some(61.0)), "5000", "1m 1s"),
            (backlog(100_000, true, None), "100k+", "-"),
        ];
        for (backlog, number, age) in table {
            assert_eq!(
                (depth(backlog), oldest(backlog)),
                (number.into(), age.into())
            );
        }
    }

    #[test]
    fn rates_keep_a_digit_while_they_are_slow() {
        let table = [
            (-0.1, "0.0"),
            (0.26, "0.3"),
            (999.0, "999.0"),
            (1234.5, "1234"),
            (2.5e6, "2.50M"),
            (f64::INFINITY, "18446744T"),
            (f64::NAN, "0"),
        ];
        for (per_second, text) in table {
            assert_eq!(rate(per_second), text);
        }
    }

    #[test]
    fn sizes_have_the_unit_that_fits() {
        let table = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1536, "1.5 KiB"),
            (64 << 20, "64.0 MiB"),
            (u64::MAX, "16777215.9 TiB"),
        ];
        for (size, text) in table {
            assert_eq!(bytes(size), text);
        }
    }
}
