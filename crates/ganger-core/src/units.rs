//! Durations and sizes as people write them, and back. Nothing here knows a key or a file.

use std::time::Duration;

use jiff::SpanRelativeTo;
use jiff::fmt::friendly::{SpanParser, SpanPrinter};

/// Units of a size, the largest first, so that the first that divides a size prints it. Powers of ten are
/// read, never printed.
const BINARY: [(&str, u64); 5] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("B", 1),
];
const DECIMAL: [(&str, u64); 4] = [
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
];

/// Reads `30s`, `250ms`, `1h 30m`, `7d`: a number with its unit, never a bare number and never
/// negative. A day is 24 hours; months and years have no fixed length and are refused.
pub fn duration(text: &str) -> Option<Duration> {
    let span = SpanParser::new().parse_span(text.trim()).ok()?;
    let signed = span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?;
    Duration::try_from(signed).ok()
}

/// Writes a duration so that [`duration`] reads it again.
pub fn show_duration(duration: Duration) -> String {
    SpanPrinter::new().unsigned_duration_to_string(&duration)
}

/// Reads `512MiB`, `10MB`, `1024B`: a whole number with its unit, never a bare number.
pub fn size(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let (_, bytes) = BINARY
        .iter()
        .chain(&DECIMAL)
        .find(|(name, _)| name.eq_ignore_ascii_case(unit.trim_start()))?;
    number.parse::<u64>().ok()?.checked_mul(*bytes)
}

/// Writes a size in bytes so that [`size`] reads it again.
pub fn show_size(bytes: u64) -> String {
    let (name, unit) = BINARY
        .iter()
        .find(|(_, unit)| bytes >= *unit && bytes.is_multiple_of(*unit))
        .unwrap_or(&("B", 1));
    format!("{}{name}", bytes / unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_carry_their_unit() {
        for (text, millis) in [
            ("30s", Some(30_000)),
            ("250ms", Some(250)),
            ("5m", Some(300_000)),
            ("6h", Some(21_600_000)),
            ("1h 30m", Some(5_400_000)),
            ("1h30m", Some(5_400_000)),
            ("1.5s", Some(1_500)),
            ("7d", Some(604_800_000)),
            (" 30 s ", Some(30_000)),
            ("0s", Some(0)),
            ("30", None),
            ("-30s", None),
            ("30s ago", None),
            ("1mo", None),
            ("1y", None),
            ("", None),
            ("s", None),
            ("soon", None),
            ("99999999999999999999s", None),
        ] {
            let expected = millis.map(Duration::from_millis);
            assert_eq!(duration(text), expected, "{text:?}");
        }
    }

    #[test]
    fn sizes_carry_their_unit() {
        for (text, bytes) in [
            ("512MiB", Some(512 << 20)),
            ("1GiB", Some(1 << 30)),
            ("64KiB", Some(64 << 10)),
            ("10MB", Some(10_000_000)),
            ("1024B", Some(1024)),
            ("1 gib", Some(1 << 30)),
            ("0B", Some(0)),
            ("1024", None),
            ("-1B", None),
            ("1.5GiB", None),
            ("GiB", None),
            ("", None),
            ("1M", None),
            ("99999999999TiB", None),
        ] {
            assert_eq!(size(text), bytes, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn a_duration_written_is_read_again(millis in 0..100_000_000_000u64) {
            let written = Duration::from_millis(millis);
            prop_assert_eq!(duration(&show_duration(written)), Some(written));
        }

        #[test]
        fn a_size_written_is_read_again(bytes in any::<u64>()) {
            prop_assert_eq!(size(&show_size(bytes)), Some(bytes));
        }
    }
}
