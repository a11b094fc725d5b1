//! File of the pools that operators have paused or drained, so that no restart or crash ends a
//! pause.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::LastingPause;
use crate::state_file::StateFile;

/// The pauses of one daemon. Clones share them; the default loses them with the process.
#[derive(Debug, Clone, Default)]
pub struct Pauses(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    file: StateFile,
    held: BTreeMap<String, LastingPause>,
}

impl Pauses {
    /// Reads the pauses from the file.
    pub fn read(file: StateFile) -> Self {
        let held = file.read().unwrap_or_else(|error| {
            tracing::error!(
                %error,
                "reading the file of paused pools failed: no pool starts paused; pause them again"
            );
            BTreeMap::new()
        });
        Self(Arc::new(Mutex::new(Inner { file, held })))
    }

    /// Returns the pause of that pool.
    pub fn of(&self, pool: &str) -> Option<LastingPause> {
        self.inner().held.get(pool).copied()
    }

    /// Sets or removes the pause of that pool.
    ///
    /// # Errors
    /// If it can't be written: it does not outlast the process then.
    pub fn set(&self, pool: &str, held: Option<LastingPause>) -> io::Result<()> {
        let mut inner = self.inner();
        match held {
            Some(held) => drop(inner.held.insert(pool.to_owned(), held)),
            None => drop(inner.held.remove(pool)),
        }
        inner.write()
    }

    /// Removes the pauses of all other pools: a pool that is added again begins without one.
    pub fn keep_only(&self, pools: &BTreeSet<&str>) {
        let mut inner = self.inner();
        let before = inner.held.len();
        inner.held.retain(|pool, _| pools.contains(pool.as_str()));
        if inner.held.len() < before
            && let Err(error) = inner.write()
        {
            tracing::warn!(%error, "writing the file of paused pools failed");
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // The guarded value is never left half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn write(&self) -> io::Result<()> {
        self.file
            .write((!self.held.is_empty()).then_some(&self.held))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn what_is_held_is_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let places = vec![
            PathBuf::from("/proc/nowhere/paused.json"),
            dir.path().join("state/paused.json"),
        ];
        let pauses = Pauses::read(StateFile::at(places.clone()));
        pauses.set("a", Some(LastingPause::Paused)).unwrap();
        pauses.set("b", Some(LastingPause::Drained)).unwrap();
        let again = Pauses::read(StateFile::at(places.clone()));
        let of = |name| (pauses.of(name), again.of(name));
        assert_eq!(
            of("a"),
            (Some(LastingPause::Paused), Some(LastingPause::Paused))
        );
        assert_eq!(
            of("b"),
            (Some(LastingPause::Drained), Some(LastingPause::Drained))
        );
        assert_eq!(of("c"), (None, None));
        again.set("a", None).unwrap();
        again.keep_only(&BTreeSet::from(["a", "c"]));
        assert!(!places[1].exists(), "nothing is held");
        assert_eq!(Pauses::read(StateFile::at(places)).of("b"), None);
    }

    #[test]
    fn what_can_not_be_kept_is_told_and_holds_meanwhile() {
        let pauses = Pauses::read(StateFile::at(vec!["/proc/nowhere/paused.json".into()]));
        let error = pauses.set("a", Some(LastingPause::Paused)).unwrap_err();
        assert!(error.to_string().contains("/proc/nowhere"), "{error}");
        assert_eq!(pauses.of("a"), Some(LastingPause::Paused));
    }

    #[test]
    fn a_damaged_file_pauses_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("paused.json");
        fs::write(&path, "{").unwrap();
        assert_eq!(Pauses::read(StateFile::at(vec![path])).of("a"), None);
    }
}
