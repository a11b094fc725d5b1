//! The search for rows that the database refuses to have claimed or dead-lettered, once a claim has
//! failed.

use crate::rejected_rows::ROWS_MAX;

/// A row that a claim would take, or move to the dead letters if `is_dead` is set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate {
    pub(crate) row: i64,
    pub(crate) is_dead: bool,
}

/// Finds the refused rows by bisection: one among a thousand takes about twenty attempts. `refusal`
/// tries some rows together, rolls that back, and returns the database's error, if there was one.
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

/// Logs a refused row.
pub(crate) fn tell(row: i64, problem: &str) {
    tracing::error!(
        row,
        problem,
        "this message can't be claimed or dead-lettered: rejected by the database; skipped for 5 minutes"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(rows: std::ops::Range<i64>) -> Vec<Candidate> {
        rows.map(|row| Candidate {
            row,
            is_dead: false,
        })
        .collect()
    }

    /// Returns the refused rows found among a thousand, and the number of attempts.
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
}
