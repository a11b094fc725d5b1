//! A stable hash that spreads schedules: `H` in expressions, and jitter. Every daemon, release and
//! platform has the same, so that a slot has one due time wherever it is worked out.

use sha2::{Digest, Sha256};

/// Returns a number below `bound`, or 0 if that is 0: the first eight bytes, big-endian, of the
/// SHA-256 of `name`, a zero byte and `salt` in decimal, modulo `bound`.
pub fn spread(name: &str, salt: i64, bound: u64) -> u64 {
    let hash = Sha256::new()
        .chain_update(name)
        .chain_update([0])
        .chain_update(salt.to_string())
        .finalize();
    let first = hash.iter().take(8);
    let number = first.fold(0, |number, byte| (number << 8) | u64::from(*byte));
    number.checked_rem(bound).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `printf 'invoices\0%d' 7 | sha256sum`
    #[test]
    fn it_is_as_documented() {
        assert_eq!(spread("invoices", 7, u64::MAX), 15_701_937_077_933_657_737);
        assert_eq!(spread("invoices", 7, 0), 0);
    }

    #[test]
    fn neighbours_are_spread_evenly() {
        let mut counts = [0; 10];
        for n in 0..10_000 {
            counts[usize::try_from(spread(&format!("job-{n}"), n, 10)).unwrap()] += 1;
        }
        assert!(counts.iter().all(|n| (900..1100).contains(n)), "{counts:?}");
    }
}
