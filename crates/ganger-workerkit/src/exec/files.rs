//! A message's files, in a directory that only we may enter: its body, if the program wants a file, its
//! metadata, and the program's result.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::result::{RESULT_BYTES_MAX, ResultFile};
use super::variables::metadata;
use ganger_core::foreign;
use ganger_protocol::Task;

/// Files of one message, removed on drop.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) body: PathBuf,
    pub(super) metadata: PathBuf,
    /// Result file, absent until the program writes to it.
    pub(super) result: PathBuf,
}

impl Files {
    /// Writes the files. No two messages of a directory have the same number.
    pub(super) fn write(
        directory: &Path,
        number: u64,
        task: &Task,
        with_body: bool,
    ) -> io::Result<Self> {
        let path = |what: &str| directory.join(format!("{number}.{what}"));
        let files = Self {
            body: path("body"),
            metadata: path("json"),
            result: path("result"),
        };
        if with_body {
            write(&files.body, &task.message)?;
        }
        write(&files.metadata, metadata(task).to_string().as_bytes())?;
        Ok(files)
    }

    /// Returns the program's result.
    ///
    /// # Errors
    /// The part that can't be read or understood, in a sentence.
    pub(super) fn said(&self) -> Result<ResultFile, String> {
        let text = match read(&self.result) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(ResultFile::default());
            }
            read => read.map_err(|error| format!("reading $GANGER_RESULT failed: {error}"))?,
        };
        ResultFile::read(&text)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        for path in [&self.body, &self.metadata, &self.result] {
            // Not all of them were there, and the directory is removed in the end.
            drop(fs::remove_file(path));
        }
    }
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(bytes)
}

/// Reads a file without blocking, whatever the program has put there.
fn read(path: &Path) -> io::Result<String> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    foreign::text(fs::File::open(path)?, RESULT_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use bytes::Bytes;

    use super::*;

    fn task() -> Task {
        Task {
            message: Bytes::from_static(b"\xff\x00"),
            binary: true,
            correlation_id: String::new(),
            queue: "work".into(),
            headers: Vec::new(),
            id: None,
            attempt: None,
            milliseconds_left: None,
            properties: Vec::new(),
        }
    }

    #[test]
    fn they_are_private_and_go_with_the_message() {
        let directory = tempfile::tempdir().unwrap();
        let files = Files::write(directory.path(), 7, &task(), true).unwrap();
        assert_eq!(fs::read(&files.body).unwrap(), b"\xff\x00");
        for path in [&files.body, &files.metadata] {
            let mode = fs::metadata(path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        fs::write(&files.result, "").unwrap();
        drop(files);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn whatever_is_in_the_place_of_the_result_is_read_or_told() {
        let directory = tempfile::tempdir().unwrap();
        let files = Files::write(directory.path(), 1, &task(), false).unwrap();
        assert_eq!(files.said(), Ok(ResultFile::default()));
        nix::unistd::mkfifo(&files.result, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let error = files.said().unwrap_err();
        assert_eq!(error, "reading $GANGER_RESULT failed: it is not a file");
        fs::remove_file(&files.result).unwrap();
        fs::write(&files.result, "#".repeat(65_537)).unwrap();
        assert!(files.said().unwrap_err().ends_with("more than 65536 bytes"));
        fs::write(&files.result, b"\xff").unwrap();
        assert!(files.said().unwrap_err().contains("UTF-8"));
        fs::write(&files.result, "reason=x").unwrap();
        assert_eq!(files.said().unwrap().reason.as_deref(), Some("x"));
        fs::write(&files.result, "\u{feff}reason=y\r\n").unwrap();
        assert_eq!(files.said().unwrap().reason.as_deref(), Some("y"));
    }
}
