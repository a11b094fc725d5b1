//! Rows that the database refuses to have claimed or buried, as a trigger of someone's may: they are
//! found one by one once a claim is refused, passed over, so that one of them does not stand in the way
//! of its whole queue, and tried again after a while.

use std::time::Duration;

use tokio::time::Instant;

/// More than so many, and it is not the rows: then the source is in trouble as a whole.
const ROWS_MAX: usize = 256;

/// Whoever wrote the trigger may have thought better of it by then.
const TRIED_AGAIN_AFTER: Duration = Duration::from_secs(300);

/// The rows that are passed over.
#[derive(Debug, Default)]
pub(crate) struct PassedOver {
    rows: Vec<i64>,
    since: Option<Instant>,
}

impl PassedOver {
    /// Those that are.
    pub(crate) fn rows(&self) -> &[i64] {
        &self.rows
    }

    /// Passes over those, too. Returns whether that helps: it does not if there are none, or too many.
    pub(crate) fn add(&mut self, rows: Vec<i64>) -> bool {
        self.since.get_or_insert_with(Instant::now);
        let helps = !rows.is_empty() && self.rows.len() + rows.len() <= ROWS_MAX;
        if helps {
            self.rows.extend(rows);
        }
        helps
    }

    /// Lets all of them be tried again once their time has come.
    pub(crate) fn expire(&mut self) {
        let due = |since: Instant| since.elapsed() >= TRIED_AGAIN_AFTER;
        if self.since.is_some_and(due) {
            *self = Self::default();
        }
    }
}

/// Tells of one of them.
pub(crate) fn tell(row: i64, problem: &str) {
    tracing::error!(
        row,
        problem,
        "the database refuses to have this message claimed or buried; it is passed over for a while"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn rows_are_passed_over_for_a_while() {
        let mut rows = PassedOver::default();
        assert!(rows.add(vec![7]) && !rows.add(Vec::new()));
        rows.expire();
        assert_eq!(rows.rows(), [7]);
        tokio::time::advance(TRIED_AGAIN_AFTER).await;
        rows.expire();
        assert!(rows.rows().is_empty());
    }

    #[tokio::test]
    async fn when_everything_is_refused_it_does_not_help() {
        let mut rows = PassedOver::default();
        assert!(rows.add((0..200).collect()) && !rows.add((200..300).collect()));
    }
}
