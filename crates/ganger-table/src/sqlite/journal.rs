//! How large the journal (`-wal`) gets. SQLite moves what is in it into the database once it has a thousand pages,
//! then writes it anew from its beginning, and leaves the file as large as it ever was: after one long reader, or
//! one large transaction, that is its size until the last connection ends. And where a disk has no room for a
//! thousand pages the journal fills it, and nothing is moved ever.

use std::path::Path;

use rusqlite::{Connection, Error, ErrorCode, ffi};
use rustix::fs::statvfs;

/// How large a page is, unless somebody has made the file otherwise.
const PAGE_BYTES: u32 = 4096;

/// So many pages are written before they are moved into the database, where the disk is large enough.
const PAGES_MAX: u32 = 1000;
const PAGES_MIN: u32 = 16;

/// They take no more than such a part of a disk.
const PART_OF_DISK: u64 = 32;

/// So many times as many stay in the file: those that come while they are moved.
const PAGES_KEPT: u32 = 2;

/// Sets for this connection when the journal is moved into the database, and to which size it is cut when it is
/// begun anew.
pub(super) fn limit(conn: &Connection, database: &Path) -> rusqlite::Result<()> {
    let disk = statvfs(database);
    let disk = disk.map_or(u64::MAX, |disk| disk.f_blocks.saturating_mul(disk.f_frsize));
    let pages = pages(disk);
    let kept = pages * PAGES_KEPT * PAGE_BYTES;
    // Both answer with what they were set to.
    let set = |name: &str, value: u32| conn.pragma_update_and_check(None, name, value, |_| Ok(()));
    set("wal_autocheckpoint", pages)?;
    set("journal_size_limit", kept)
}

/// How many pages are written before they are moved, on a disk of so many bytes.
fn pages(disk: u64) -> u32 {
    let pages = disk / PART_OF_DISK / u64::from(PAGE_BYTES);
    u32::try_from(pages).map_or(PAGES_MAX, |pages| pages.clamp(PAGES_MIN, PAGES_MAX))
}

/// Whether it is for want of room that something was not written: on the disk, or as a quota or a limit of the
/// process has it.
pub(crate) fn is_of_room(error: &Error) -> bool {
    let code = error.sqlite_error_code();
    let extended = error.sqlite_error().map(|error| error.extended_code);
    code == Some(ErrorCode::DiskFull) || extended == Some(ffi::SQLITE_IOERR_WRITE)
}

/// Moves all that is in it into the database, which takes no room but for rows that are new there, and cuts it to
/// nothing. Returns whether that could be done now.
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
        // The first moves what is in it, the second begins it anew.
        let beat = "DELETE FROM large WHERE rowid = ";
        for row in 1..=2 {
            writer.execute(&format!("{beat}{row}"), []).unwrap();
        }
        let kept = PAGES_MAX * PAGES_KEPT * PAGE_BYTES;
        assert!(bytes() <= u64::from(kept), "{}", bytes());
    }
}
