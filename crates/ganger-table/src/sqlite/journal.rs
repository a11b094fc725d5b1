//! The size of the journal (`-wal`). Once it has a thousand pages, SQLite moves its content into the
//! database, and then overwrites it from the beginning, but leaves the file at its largest size: after a
//! long reader or a large transaction it stays large until the last connection ends. And if a disk has no
//! room for a thousand pages, the journal fills it, and nothing is ever moved.

use std::path::Path;

use rusqlite::{Connection, Error, ErrorCode, ffi};
use rustix::fs::statvfs;

/// Page size, unless the file was created with another one.
const PAGE_BYTES: u32 = 4096;

/// Number of pages in the journal at which they are moved into the database, if the disk is large enough.
const PAGES_MAX: u32 = 1000;
const PAGES_MIN: u32 = 16;

/// Divisor of the disk's size: those pages take no larger share of it.
const PART_OF_DISK: u64 = 32;

/// Size to which the file is cut, as a multiple of those pages: more are written while they are moved.
const PAGES_KEPT: u32 = 2;

/// Sets, for this connection, the size at which the journal is moved into the database, and the size to
/// which it is cut when it is overwritten.
pub(super) fn limit(conn: &Connection, database: &Path) -> rusqlite::Result<()> {
    let disk = statvfs(database);
    let disk = disk.map_or(u64::MAX, |disk| disk.f_blocks.saturating_mul(disk.f_frsize));
    let pages = pages(disk);
    let kept = pages * PAGES_KEPT * PAGE_BYTES;
    // Both pragmas return the new value.
    let set = |name: &str, value: u32| conn.pragma_update_and_check(None, name, value, |_| Ok(()));
    set("wal_autocheckpoint", pages)?;
    set("journal_size_limit", kept)
}

/// Returns the number of pages at which the journal is moved, on a disk of that many bytes.
fn pages(disk: u64) -> u32 {
    let pages = disk / PART_OF_DISK / u64::from(PAGE_BYTES);
    u32::try_from(pages).map_or(PAGES_MAX, |pages| pages.clamp(PAGES_MIN, PAGES_MAX))
}

/// Returns whether a write failed for lack of space: on the disk, or by a quota or a limit of the
/// process.
pub(crate) fn is_out_of_space(error: &Error) -> bool {
    let code = error.sqlite_error_code();
    let extended = error.sqlite_error().map(|error| error.extended_code);
    code == Some(ErrorCode::DiskFull) || extended == Some(ffi::SQLITE_IOERR_WRITE)
}

/// Moves the whole journal into the database, which needs space only for pages that are new there, and
/// truncates it. Returns whether that was possible now.
pub(crate) fn empty(conn: &Connection) -> bool {
    let emptied = conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| {
        row.get::<_, i64>(0)
    });
    match emptied {
        Ok(is_busy) => is_busy == 0,
        Err(error) => {
            tracing::debug!(%error, "the journal can't be moved into the database");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::open_for_tests;

    #[test]
    fn the_journal_takes_a_small_part_of_a_small_disk() {
        for (disk, expected) in [
            (0, PAGES_MIN),
            (2 << 20, PAGES_MIN),
            (64 << 20, 512),
            (1 << 40, PAGES_MAX),
            (u64::MAX, PAGES_MAX),
        ] {
            assert_eq!(pages(disk), expected, "{disk}");
        }
    }

    #[test]
    fn after_a_long_reader_the_journal_is_cut() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("q.db");
        let (writer, reader) = (open_for_tests(&path), open_for_tests(&path));
        let bytes = || {
            std::fs::metadata(dir.path().join("q.db-wal"))
                .unwrap()
                .len()
        };
        writer.execute_batch("CREATE TABLE large (body)").unwrap();
        let read = "BEGIN; SELECT count(*) FROM large";
        reader.execute_batch(read).unwrap();
        let large = "INSERT INTO large VALUES (zeroblob(1000000))";
        for _ in 0..20 {
            writer.execute(large, []).unwrap();
        }
        assert!(bytes() > 20_000_000);
        reader.execute_batch("COMMIT").unwrap();
        // The first moves the journal's content, the second overwrites the journal.
        let beat = "DELETE FROM large WHERE rowid = ";
        for row in 1..=2 {
            writer.execute(&format!("{beat}{row}"), []).unwrap();
        }
        let kept = PAGES_MAX * PAGES_KEPT * PAGE_BYTES;
        assert!(bytes() <= u64::from(kept), "{}", bytes());
    }
}
