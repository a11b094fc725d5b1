//! Lock files: a process that is alive holds one, and the kernel lets go of it the moment the
//! process ends, however it ends. The table of owners is other files' business.

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::rights;

/// A lock file that is held as long as this lives. The file itself stays when it is dropped, for
/// then its owner has not ended cleanly and others must find it free.
#[derive(Debug)]
pub(crate) struct LockFile {
    path: PathBuf,
    /// Open for writing, so that closing it is told from the closing of those who only look.
    /// Closed on exec, as every file of the standard library: no worker can keep it.
    _file: File,
}

impl LockFile {
    /// Makes a file of a new name and locks it. Only then may others be told its name.
    pub(crate) fn create(dir: &Path) -> io::Result<Self> {
        loop {
            let path = dir.join(format!("{:032x}.lock", fastrand::u128(..)));
            let file = rights::make_file_in(dir, &path)?;
            file.lock()?;
            // Someone who was sweeping up may have taken it for an abandoned one just before.
            if path.try_exists()? {
                return Ok(Self { path, _file: file });
            }
        }
    }

    /// Its name within its directory.
    pub(crate) fn name(&self) -> String {
        self.path
            .file_name()
            .map_or_else(String::new, |name| name.to_string_lossy().into_owned())
    }

    /// Removes the file and lets go of the lock.
    pub(crate) fn remove(self) {
        discard(&self.path);
    }
}

/// What a lock file says of its owner.
#[derive(Debug)]
pub(crate) enum Lock {
    /// It lives.
    Held,
    /// It's gone. The file is locked for others that look as long as this value lives, but not
    /// against them.
    Free(File),
    /// Nothing: the file is missing, as in a copy of the database, or can't be read.
    Unknown,
}

/// Looks at a lock file without disturbing its owner or others that look.
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

/// Removes a file that nobody needs any more.
pub(crate) fn discard(path: &Path) {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            tracing::warn!(path = %path.display(), %error, "a lock file could not be removed");
        }
        Ok(()) | Err(_) => {}
    }
}

/// Removes the files that are free and that `known` does not list: their makers died before they
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
