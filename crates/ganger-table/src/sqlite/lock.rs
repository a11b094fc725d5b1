//! Lock files. A live process holds the lock on its file, and the kernel releases it as soon as the
//! process exits, in whatever way. This module does not know the table of owners.

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::permissions;

/// A lock file whose lock is held for the lifetime of this value. Dropping it leaves the file: its owner
/// has not exited cleanly, and others must find the lock free.
#[derive(Debug)]
pub(crate) struct LockFile {
    path: PathBuf,
    /// Open for writing, so that the kernel tells its closing from that of observers. Closed on exec, as
    /// every file of the standard library: no worker inherits it.
    _file: File,
}

impl LockFile {
    /// Creates a file with a new name and locks it. Only after that may others learn the name.
    pub(crate) fn create(dir: &Path) -> io::Result<Self> {
        loop {
            let path = dir.join(format!("{:032x}.lock", fastrand::u128(..)));
            let file = permissions::make_file_in(dir, &path)?;
            file.lock()?;
            // Another process may just have removed it as abandoned.
            if path.try_exists()? {
                return Ok(Self { path, _file: file });
            }
        }
    }

    /// Returns its name within its directory.
    pub(crate) fn name(&self) -> String {
        self.path
            .file_name()
            .map_or_else(String::new, |name| name.to_string_lossy().into_owned())
    }

    /// Removes the file and releases the lock.
    pub(crate) fn remove(self) {
        discard(&self.path);
    }
}

/// State of an owner by its lock file.
#[derive(Debug)]
pub(crate) enum Lock {
    /// The owner lives.
    Held,
    /// The owner is gone. This value holds a shared lock on the file, so that other observers find it
    /// free, too.
    Free(File),
    /// Unknown: the file is missing, as beside a copy of the database, or can't be read.
    Unknown,
}

/// Checks a lock file without disturbing its owner or other observers.
pub(crate) fn look(path: &Path) -> Lock {
    let Ok(file) = File::open(path) else {
        return Lock::Unknown;
    };
    match file.try_lock_shared() {
        Ok(()) => Lock::Free(file),
        Err(TryLockError::WouldBlock) => Lock::Held,
        Err(TryLockError::Error(_)) => Lock::Unknown,
    }
}

/// Removes a file that is no longer needed.
pub(crate) fn discard(path: &Path) {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            tracing::warn!(path = %path.display(), %error, "a lock file could not be removed");
        }
        Ok(()) | Err(_) => {}
    }
}

/// Removes the files whose lock is free and that are not in `known`: their processes died before they
/// were entered in the table.
pub(crate) fn sweep(dir: &Path, known: &[String]) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if !name.ends_with(".lock") || known.iter().any(|known| *known == name) {
            continue;
        }
        if let Lock::Free(_while_removed) = look(&path) {
            discard(&path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_while_it_lives_and_free_after() {
        let dir = tempfile::tempdir().unwrap();
        let lock = LockFile::create(dir.path()).unwrap();
        let path = dir.path().join(lock.name());
        assert!(matches!(look(&path), Lock::Held));
        drop(lock);
        let first = look(&path);
        assert!(matches!(first, Lock::Free(_)));
        assert!(matches!(look(&path), Lock::Free(_)), "two may find it free");
    }

    #[test]
    fn removed_when_its_owner_ends_cleanly() {
        let dir = tempfile::tempdir().unwrap();
        let lock = LockFile::create(dir.path()).unwrap();
        let path = dir.path().join(lock.name());
        lock.remove();
        assert!(matches!(look(&path), Lock::Unknown));
    }

    #[test]
    fn only_the_abandoned_are_swept() {
        let dir = tempfile::tempdir().unwrap();
        let held = LockFile::create(dir.path()).unwrap();
        let listed = LockFile::create(dir.path()).unwrap().name();
        let abandoned = LockFile::create(dir.path()).unwrap().name();
        fs::write(dir.path().join("README"), "").unwrap();
        sweep(dir.path(), std::slice::from_ref(&listed)).unwrap();
        let there = |name: &str| dir.path().join(name).exists();
        assert!(there(&held.name()) && there(&listed) && there("README"));
        assert!(!there(&abandoned));
    }
}
