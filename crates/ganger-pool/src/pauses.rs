//! File of the pools that operators have paused or drained, so that no restart or crash ends a
//! pause.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::LastingPause;
use ganger_core::foreign;

/// Maximum size of the file, in bytes.
const BYTES_MAX: u64 = 1 << 20;

/// The pauses of one daemon. Clones share them; the default loses them with the process.
#[derive(Debug, Clone, Default)]
pub struct Pauses(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    /// Possible paths of the file, the best one first.
    places: Vec<PathBuf>,
    held: BTreeMap<String, LastingPause>,
}

impl Pauses {
    /// Reads the pauses from the file, which is at the first of these places that has one.
    pub fn read(places: Vec<PathBuf>) -> Self {
        let file = places.iter().find(|path| path.exists());
        let held = file.map(|path| (path, read(path)));
        let held = match held {
            None => BTreeMap::new(),
            Some((_, Ok(held))) => held,
            Some((path, Err(error))) => {
                tracing::error!(
                    path = %path.display(),
                    %error,
                    "reading the file of paused pools failed: no pool starts paused; pause them \
                     again"
                );
                BTreeMap::new()
            }
        };
        Self(Arc::new(Mutex::new(Inner { places, held })))
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
    /// Writes the file to its current path, or else to the first possible one.
    fn write(&self) -> io::Result<()> {
        let there = self.places.iter().find(|path| path.exists());
        if let Some(path) = there {
            return match self.held.is_empty() {
                true => fs::remove_file(path),
                false => write(path, &self.held),
            };
        }
        if self.held.is_empty() {
            return Ok(());
        }
        let mut last = io::Error::other("no directory for a file is configured");
        for path in &self.places {
            match write(path, &self.held) {
                Ok(()) => return Ok(()),
                Err(error) => {
                    last = io::Error::new(error.kind(), format!("{}: {error}", path.display()));
                }
            }
        }
        Err(last)
    }
}

fn read(path: &Path) -> io::Result<BTreeMap<String, LastingPause>> {
    let text = foreign::text(fs::File::open(path)?, BYTES_MAX)?;
    Ok(serde_json::from_str(&text)?)
}

/// Writes the file atomically, so that it survives a crash of the machine at any time.
fn write(path: &Path, held: &BTreeMap<String, LastingPause>) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    let new = path.with_extension(format!("{}.new", std::process::id()));
    drop(fs::remove_file(&new));
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(&new);
    let written = file.and_then(|mut file| {
        file.write_all(serde_json::to_string(held)?.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)
    });
    written.inspect_err(|_| drop(fs::remove_file(&new)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let places = vec![
            PathBuf::from("/proc/nowhere/paused.json"),
            dir.path().join("state/paused.json"),
        ];
        let pauses = Pauses::read(places.clone());
        pauses.set("a", Some(LastingPause::Paused)).unwrap();
        pauses.set("b", Some(LastingPause::Drained)).unwrap();
        let again = Pauses::read(places.clone());
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
        assert_eq!(Pauses::read(places).of("b"), None);
    }

    #[test]
    fn what_can_not_be_kept_is_told_and_holds_meanwhile() {
        let pauses = Pauses::read(vec![PathBuf::from("/proc/nowhere/paused.json")]);
        let error = pauses.set("a", Some(LastingPause::Paused)).unwrap_err();
        assert!(error.to_string().contains("/proc/nowhere"), "{error}");
        assert_eq!(pauses.of("a"), Some(LastingPause::Paused));
    }

    #[test]
    fn a_damaged_file_pauses_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("paused.json");
        fs::write(&path, "{").unwrap();
        assert_eq!(Pauses::read(vec![path]).of("a"), None);
    }
}
