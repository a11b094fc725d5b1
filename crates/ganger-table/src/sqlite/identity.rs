//! Check that the open database file is still the one at its path. An operator may move, replace or
//! remove it at any time: SQLite then keeps using the open file, where no other program sees it, without
//! an error.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::table::Fault;

/// Identity of a file, independent of its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// Returns the file at the path; none if there is none.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        Some(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
        })
    }
}

/// The files that a connection has open.
#[derive(Debug)]
pub(crate) struct FileIdentity {
    path: PathBuf,
    database: Option<FileId>,
    journal: Option<FileId>,
    /// Another file at the path, as it was at the last check.
    other: Option<(FileId, u64, Option<SystemTime>)>,
}

/// State of the database's path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileState {
    /// Leads to the open file.
    InPlace,
    /// Leads nowhere.
    Gone,
    /// Leads to another file.
    Replaced,
    /// Leads to another file or nowhere, but the open file's journal is still beside it. Any write to
    /// that journal would destroy the other file.
    Torn,
}

impl FileState {
    /// Returns the reason that nothing can be claimed.
    pub(crate) fn fault(self) -> Fault {
        let problem = match self {
            Self::InPlace => "the database file is in its place",
            Self::Gone => "the database file was moved or removed; waiting for it to return",
            Self::Replaced => {
                "the database file was replaced; the new one is used once the messages in flight are settled in the old one"
            }
            Self::Torn => {
                "the database file was moved, replaced or removed without its journal (-wal), so nothing can be written until it is back"
            }
        };
        Fault::transient(problem)
    }
}

/// Ends of the names of the files that SQLite keeps beside a database: the journal, and its index.
pub(super) const WAL: &str = "-wal";
pub(super) const SHM: &str = "-shm";

/// Returns the file beside a database whose name has this end.
pub(super) fn beside(database: &Path, end: &str) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push(end);
    path.into()
}

fn journal(database: &Path) -> PathBuf {
    beside(database, WAL)
}

impl FileIdentity {
    /// Returns the files of a connection that was just opened, and has its journal.
    pub(crate) fn of(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            database: FileId::of(path),
            journal: FileId::of(&journal(path)),
            other: None,
        }
    }

    /// Returns the database file.
    pub(crate) fn database(&self) -> Option<FileId> {
        self.database
    }

    pub(crate) fn state(&self) -> FileState {
        let there = FileId::of(&self.path);
        if there == self.database {
            return FileState::InPlace;
        }
        let torn = self.journal.is_some() && FileId::of(&journal(&self.path)) == self.journal;
        match there {
            _ if torn => FileState::Torn,
            Some(_) => FileState::Replaced,
            None => FileState::Gone,
        }
    }

    /// Returns whether another file is at the path, and may be opened.
    ///
    /// # Errors
    /// While neither file may be used.
    pub(crate) fn is_replaced(&mut self) -> Result<bool, Fault> {
        match self.state() {
            FileState::InPlace => Ok(false),
            FileState::Replaced if self.other_is_in_use() || self.other_is_complete() => Ok(true),
            FileState::Replaced => Err(Fault::transient(
                "the database file was replaced; the new one is used once it no longer changes",
            )),
            state => Err(state.fault()),
        }
    }

    /// Returns whether the other file at the path has a journal: it is a database that others work on, and changes always.
    fn other_is_in_use(&self) -> bool {
        let journal = FileId::of(&journal(&self.path));
        journal.is_some() && journal != self.journal
    }

    /// Returns whether the other file at the path is unchanged since the last call: one that is still
    /// being copied there is left alone.
    pub(crate) fn other_is_complete(&mut self) -> bool {
        let metadata = fs::metadata(&self.path).ok();
        let other = metadata.and_then(|metadata| {
            let id = FileId::of(&self.path)?;
            Some((id, metadata.len(), metadata.modified().ok()))
        });
        let complete = other.is_some() && other == self.other;
        self.other = other;
        complete
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_the_name_leads() {
        let dir = tempfile::tempdir().unwrap();
        let [path, aside] = ["q.db", "aside.db"].map(|name| dir.path().join(name));
        fs::write(&path, "ours").unwrap();
        fs::write(journal(&path), "").unwrap();
        let mut identity = FileIdentity::of(&path);
        assert_eq!(identity.state(), FileState::InPlace);
        fs::rename(&path, &aside).unwrap();
        assert_eq!(identity.state(), FileState::Torn);
        fs::rename(journal(&path), journal(&aside)).unwrap();
        assert_eq!(identity.state(), FileState::Gone);
        assert!(!identity.other_is_complete());
        fs::write(&path, "another").unwrap();
        fs::write(journal(&path), "").unwrap();
        assert_eq!(identity.state(), FileState::Replaced);
        assert!(!identity.other_is_complete());
        assert!(identity.other_is_complete());
        fs::write(&path, "another that grows").unwrap();
        assert!(!identity.other_is_complete());
        let busy = || {
            fs::write(&path, "another that grows and grows").unwrap();
            fs::write(journal(&path), "").unwrap();
        };
        busy();
        assert!(identity.is_replaced().unwrap(), "others work on it");
        fs::remove_file(journal(&path)).unwrap();
        fs::write(&path, "a copy in the making").unwrap();
        assert!(identity.is_replaced().is_err());
        assert!(identity.is_replaced().unwrap());
        fs::rename(&aside, &path).unwrap();
        assert_eq!(identity.state(), FileState::InPlace);
    }
}
