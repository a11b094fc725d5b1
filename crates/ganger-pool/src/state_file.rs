//! File in which a daemon keeps state across restarts: JSON, written atomically.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use serde::de::DeserializeOwned;

use ganger_core::foreign;

/// Maximum size of the file, in bytes.
const BYTES_MAX: u64 = 8 << 20;

/// Maximum number of attempts to take a lock: two seconds of them. A daemon holds it while it writes a small file.
const LOCK_ATTEMPTS: usize = 400;
/// Pause after an attempt to take a lock.
const LOCK_AGAIN_AFTER: Duration = Duration::from_millis(5);

/// File of a daemon's state. The default has no path: it is empty, and can't be written.
#[derive(Debug, Clone, Default)]
pub struct StateFile {
    /// Possible paths of the file, the best one first.
    places: Vec<PathBuf>,
}

impl StateFile {
    /// Returns the file at the first of these paths that has one, or can be written.
    pub fn at(places: Vec<PathBuf>) -> Self {
        Self { places }
    }

    /// Reads the file; the default if there is none.
    ///
    /// # Errors
    /// If it can't be read, or is damaged.
    pub fn read<T: DeserializeOwned + Default>(&self) -> io::Result<T> {
        match self.present() {
            Some(path) => read(path).map_err(|error| of(path, &error)),
            None => Ok(T::default()),
        }
    }

    /// Writes the file to its current path, or else to the first possible one; removes it if there is nothing to keep.
    ///
    /// # Errors
    /// If it can't be written anywhere.
    pub fn write<T: Serialize>(&self, state: Option<&T>) -> io::Result<()> {
        match (self.present(), state) {
            (Some(path), Some(state)) => write(path, state).map_err(|error| of(path, &error)),
            (Some(path), None) => fs::remove_file(path).map_err(|error| of(path, &error)),
            (None, None) => Ok(()),
            (None, Some(state)) => {
                let mut last = io::Error::other("no directory for a file is configured");
                for path in &self.places {
                    match write(path, state) {
                        Ok(()) => return Ok(()),
                        Err(error) => last = of(path, &error),
                    }
                }
                Err(last)
            }
        }
    }

    /// Takes the lock of the file's directory, so that other daemons change nothing until it is dropped. None if there
    /// is no such directory, or if another program has kept the lock for two seconds: nothing waits for ever for
    /// a program that is not ours.
    #[expect(
        clippy::disallowed_methods,
        reason = "the system tells nobody within a limit of time that a lock is free"
    )]
    pub fn lock(&self) -> Option<fs::File> {
        let best = self.places.iter().map(PathBuf::as_path);
        let mut paths = self.present().into_iter().chain(best);
        let directory = paths.find_map(|path| fs::File::open(path.parent()?).ok())?;
        for _ in 0..LOCK_ATTEMPTS {
            match directory.try_lock() {
                Ok(()) => return Some(directory),
                Err(fs::TryLockError::WouldBlock) => thread::sleep(LOCK_AGAIN_AFTER),
                Err(fs::TryLockError::Error(_)) => return None,
            }
        }
        None
    }

    /// Returns the inode and the time of the file; none if there is no file. Another writer changes them.
    pub fn stamp(&self) -> Option<(u64, SystemTime)> {
        let file = fs::metadata(self.present()?).ok()?;
        let stamp = (file.ino(), file.modified().ok()?);
        file.is_file().then_some(stamp)
    }

    fn present(&self) -> Option<&Path> {
        let mut places = self.places.iter();
        places.find(|path| path.exists()).map(PathBuf::as_path)
    }
}

/// Returns the error with its file.
fn of(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn read<T: DeserializeOwned>(path: &Path) -> io::Result<T> {
    let text = foreign::text(fs::File::open(path)?, BYTES_MAX)?;
    Ok(serde_json::from_str(&text)?)
}

/// Writes the file atomically, so that it survives a crash of the machine at any time.
fn write(path: &Path, state: &impl Serialize) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    let new = path.with_extension(format!("{}.new", std::process::id()));
    drop(fs::remove_file(&new));
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(&new);
    let written = file.and_then(|mut file| {
        file.write_all(serde_json::to_string(state)?.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)
    });
    written.inspect_err(|_| drop(fs::remove_file(&new)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_another_program_keeps_is_waited_for_a_while() {
        let dir = tempfile::tempdir().unwrap();
        let file = StateFile::at(vec![dir.path().join("state.json")]);
        let held = file.lock();
        assert!(held.is_some());
        assert!(file.lock().is_none());
        drop(held);
        assert!(file.lock().is_some());
        assert!(StateFile::default().lock().is_none());
    }
}
