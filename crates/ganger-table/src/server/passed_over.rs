//! Rows that the database refuses to have claimed or buried, as a trigger of someone's may: they are
//! found once a claim is refused, passed over, so that one of them does not stand in the way of its whole
//! queue, and tried again after a while.

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

/// A row that a claim would take or move, and whether it would be buried.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate {
    pub(crate) row: i64,
    pub(crate) is_dead: bool,
}

/// Finds those that are refused by halves, so that one among a thousand takes twenty tries. `refusal` tries
/// some of them together, undoes it, and returns what the database has against it.
pub(crate) async fn refused<E>(
    candidates: &[Candidate],
    mut refusal: impl AsyncFnMut(&[Candidate]) -> Result<Option<String>, E>,
) -> Result<Vec<i64>, E> {
    let mut refused = Vec::new();
    let mut parts = vec![candidates];
    while let Some(part) = parts.pop().filter(|_| refused.len() <= ROWS_MAX) {
        if part.is_empty() {
            continue;
        }
        match (refusal(part).await?, part) {
            (None, _) => {}
            (Some(problem), [one]) => {
                tell(one.row, &problem);
                refused.push(one.row);
            }
            (Some(_), several) => parts.extend(<[_; 2]>::from(several.split_at(several.len() / 2))),
        }
    }
    Ok(refused)
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

    fn candidates(rows: std::ops::Range<i64>) -> Vec<Candidate> {
        rows.map(|row| Candidate {
            row,
            is_dead: false,
        })
        .collect()
    }

    /// Which are found among a thousand, and in how many tries.
    async fn found(is_refused: impl Fn(i64) -> bool) -> (Vec<i64>, u32) {
        let mut tries = 0;
        let refusal = async |rows: &[Candidate]| {
            tries += 1;
            let is_one = rows.iter().any(|one| is_refused(one.row));
            Ok::<_, ()>(is_one.then(|| "not this one".to_owned()))
        };
        let mut refused = refused(&candidates(0..1000), refusal).await.unwrap();
        refused.sort_unstable();
        (refused, tries)
    }

    #[tokio::test]
    async fn those_that_are_refused_are_found_in_few_tries() {
        assert_eq!(found(|_| false).await, (vec![], 1));
        let (refused, tries) = found(|row| row == 613).await;
        assert!(refused == [613] && tries <= 21, "{refused:?} {tries}");
        assert_eq!(found(|row| row % 100 == 7).await.0.len(), 10);
        let (refused, tries) = found(|_| true).await;
        assert!(refused.len() == ROWS_MAX + 1 && tries < 600, "{tries}");
    }

    #[tokio::test]
    async fn when_everything_is_refused_it_does_not_help() {
        let mut rows = PassedOver::default();
        assert!(rows.add((0..200).collect()) && !rows.add((200..300).collect()));
    }
}
