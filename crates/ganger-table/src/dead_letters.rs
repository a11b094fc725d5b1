//! Dead letters as commands page through them, in any database.

use ganger_queue::client::{Each, Listed, Page};
use ganger_queue::dead_letter::DeadLetter;
use ganger_queue::fault::SourceFault;

/// Number of messages that are moved, or dead letters that are read, at once.
pub(crate) const BATCH_MAX: usize = 500;

/// Lists the dead letters of a page. `read` returns those behind a row, up to a number.
pub(crate) fn list(
    page: &Page,
    each: &mut Each<'_>,
    mut read: impl FnMut(i64, usize) -> Result<Vec<(i64, DeadLetter)>, SourceFault>,
) -> Result<Listed, SourceFault> {
    let mut after = match page.after.as_deref().map(str::parse) {
        None => i64::MIN,
        Some(Ok(row)) => row,
        Some(Err(_)) => return Ok(Listed::Lost),
    };
    let mut left = page.limit;
    loop {
        let some = read(after, left.saturating_add(1).min(BATCH_MAX))?;
        if some.is_empty() {
            return Ok(Listed::All);
        }
        for (row, dead_letter) in some {
            if left == 0 || each(dead_letter).is_break() {
                return Ok(Listed::More);
            }
            (left, after) = (left - 1, row);
        }
    }
}
