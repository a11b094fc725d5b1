//! Rows that the database refuses to have changed, for example because of a user's trigger. They are skipped,
//! so that one of them does not block its whole queue, and retried after a while.

use std::time::Duration;

use tokio::time::Instant;

/// Maximum number of skipped rows. If more are refused, the cause is not the rows: the whole source has a
/// problem. The limit is lower than the number of rows searched in one transaction, so that a search always
/// finds others, too.
pub(crate) const ROWS_MAX: usize = 256;

/// Time until all of them are retried: the trigger may have been removed by then.
const TRIED_AGAIN_AFTER: Duration = Duration::from_secs(300);

/// The rows that are skipped.
#[derive(Debug, Default)]
pub(crate) struct RejectedRows {
    rows: Vec<i64>,
    since: Option<Instant>,
}

impl RejectedRows {
    #[cfg(any(feature = "mysql", feature = "postgres"))]
    pub(crate) fn rows(&self) -> &[i64] {
        &self.rows
    }

    pub(crate) fn has(&self, row: i64) -> bool {
        self.rows.contains(&row)
    }

    /// Skips these rows, too. Returns whether that helps: it does not if all are known, or there are too
    /// many.
    pub(crate) fn add(&mut self, mut rows: Vec<i64>) -> bool {
        self.since.get_or_insert_with(Instant::now);
        rows.retain(|row| !self.has(*row));
        let helps = !rows.is_empty() && self.rows.len() + rows.len() <= ROWS_MAX;
        if helps {
            self.rows.extend(rows);
        }
        helps
    }

    /// Stops skipping all of them once their time has passed.
    pub(crate) fn expire(&mut self) {
        let due = |since: Instant| since.elapsed() >= TRIED_AGAIN_AFTER;
        if self.since.is_some_and(due) {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_row_is_passed_over_once_and_for_a_while() {
        let mut rows = RejectedRows::default();
        assert!(rows.add(vec![7]) && !rows.add(vec![7]) && !rows.add(Vec::new()));
        rows.expire();
        assert!(rows.has(7) && !rows.has(8));
        tokio::time::advance(TRIED_AGAIN_AFTER).await;
        rows.expire();
        assert!(!rows.has(7) && rows.add(vec![7]));
    }

    #[test]
    fn when_everything_is_refused_it_does_not_help() {
        let mut rows = RejectedRows::default();
        let added = (0..1000).filter(|row| rows.add(vec![*row])).count();
        assert_eq!(added, ROWS_MAX);
        let mut rows = RejectedRows::default();
        assert!(rows.add((0..200).collect()) && !rows.add((200..300).collect()));
    }
}
