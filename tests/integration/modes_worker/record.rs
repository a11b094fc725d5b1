//! Where the worker records what it does, so that it is known even when the worker is killed the
//! moment after: each line is one write to a file that is opened for appending.

use std::env;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::harness::Event;

/// How much of a body is recorded.
const TEXT_CHARS_MAX: usize = 200;

pub(super) struct Recorder {
    file: File,
    path: PathBuf,
}

impl Recorder {
    /// The file that the environment names.
    pub(super) fn open() -> Self {
        let path = PathBuf::from(env::var_os("RECORD").unwrap());
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .open(&path)
            .unwrap();
        Self { file, path }
    }

    /// Another file in the same directory.
    pub(super) fn beside(&self, name: &str) -> PathBuf {
        self.path.with_file_name(name)
    }

    pub(super) fn write(&self, event: Event, text: &str, attempt: Option<u32>) {
        let text = text.chars().take(TEXT_CHARS_MAX);
        let text: String = text.map(|c| if c.is_control() { ' ' } else { c }).collect();
        let attempt = attempt.map_or_else(|| "-".to_owned(), |attempt| attempt.to_string());
        let micros = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_micros();
        let line = format!(
            "{}\t{text}\t{}\t{attempt}\t{micros}\n",
            event.as_str(),
            std::process::id()
        );
        (&self.file).write_all(line.as_bytes()).unwrap();
    }
}
