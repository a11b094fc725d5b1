//! File permissions. A database that ganger creates has the configured mode, by default for its owner
//! only. Files beside one get permissions for those who may use the database.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use super::identity::{SHM, WAL, beside};

/// Modes until the final ones are set.
const OWNER_FILE: u32 = 0o600;
const OWNER_DIRECTORY: u32 = 0o700;

/// Creates the database as an empty file, unless it exists; files that SQLite creates beside it get its
/// mode. None is created beside a journal: SQLite deletes one that it finds beside an empty file, and with it what
/// was committed in a database that somebody is moving.
pub(crate) fn make_database(path: &Path, mode: u32) -> io::Result<()> {
    // A journal of a database that another is making is younger than that.
    let journal = [WAL, SHM].map(|suffix| beside(path, suffix));
    let left = journal.iter().find(|journal| journal.exists());
    if let Some(journal) = left.filter(|_| !path.exists()) {
        return Err(io::Error::other(format!(
            "the file is missing, but its journal `{}` is there: put the file back, or move the journal away as well",
            journal.display()
        )));
    }
    match make_file(path, mode) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        made => made.map(drop),
    }
}

/// Creates a new file and opens it for writing.
fn make_file(path: &Path, mode: u32) -> io::Result<File> {
    let mut new = OpenOptions::new();
    let file = new
        .write(true)
        .create_new(true)
        .mode(OWNER_FILE)
        .open(path)?;
    if mode != OWNER_FILE {
        // The umask would clear some of the requested bits.
        file.set_permissions(Permissions::from_mode(mode))?;
    }
    Ok(file)
}

/// Creates a directory for those who may use the database, unless it exists.
pub(crate) fn make_directory(directory: &Path, database: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(OWNER_DIRECTORY).create(directory) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(()),
        made => made?,
    }
    let files = mode_of(database)?;
    let mode = files | (files & 0o444) >> 2;
    fs::set_permissions(directory, Permissions::from_mode(mode))
}

/// Creates a new file in the directory, for those who may use that.
pub(crate) fn make_file_in(directory: &Path, path: &Path) -> io::Result<File> {
    make_file(path, mode_of(directory)?)
}

fn mode_of(path: &Path) -> io::Result<u32> {
    Ok(fs::metadata(path)?.mode() & 0o666)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beside_a_database_is_for_those_who_may_use_it() {
        for (mode, directory_mode) in [(0o600, 0o700), (0o660, 0o770), (0o644, 0o755)] {
            let dir = tempfile::tempdir().unwrap();
            let path = |name: &str| dir.path().join(name);
            fs::write(path("q.db-wal"), "").unwrap();
            let refused = make_database(&path("q.db"), mode).unwrap_err();
            assert!(refused.to_string().contains("q.db-wal"), "{refused}");
            assert!(!path("q.db").exists());
            fs::remove_file(path("q.db-wal")).unwrap();
            make_database(&path("q.db"), mode).unwrap();
            make_database(&path("q.db"), 0o666).unwrap();
            make_directory(&path("locks"), &path("q.db")).unwrap();
            make_directory(&path("locks"), &path("q.db")).unwrap();
            make_file_in(&path("locks"), &path("locks/a")).unwrap();
            let modes = ["q.db", "locks", "locks/a"]
                .map(|name| fs::metadata(path(name)).unwrap().mode() & 0o777);
            assert_eq!(modes, [mode, directory_mode, mode]);
        }
    }
}
