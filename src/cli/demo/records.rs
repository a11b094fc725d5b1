//! Records of the demo's workers, read as they grow.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use miette::IntoDiagnostic;

/// Messages that were done, and how often.
pub(super) struct Records {
    file: BufReader<File>,
    partial: String,
    lines: u64,
    /// Highest attempt of each message that was done.
    seen: HashMap<String, u32>,
}

impl Records {
    pub(super) fn open(path: &Path) -> miette::Result<Self> {
        Ok(Self {
            file: BufReader::new(File::open(path).into_diagnostic()?),
            partial: String::new(),
            lines: 0,
            seen: HashMap::new(),
        })
    }

    /// Reads the new records.
    pub(super) fn read(&mut self) -> io::Result<()> {
        while self.file.read_line(&mut self.partial)? > 0 {
            if !self.partial.ends_with('\n') {
                return Ok(());
            }
            let line = std::mem::take(&mut self.partial);
            if let Some((message, attempt)) = line.trim_end().split_once(' ')
                && let Ok(attempt) = attempt.parse::<u32>()
            {
                let highest = self.seen.entry(message.to_owned()).or_default();
                *highest = attempt.max(*highest);
                self.lines += 1;
            }
        }
        Ok(())
    }

    /// Returns the number of messages that were done, each counted once.
    pub(super) fn done(&self) -> u64 {
        self.seen.len() as u64
    }

    /// Returns the number of times that a message was done again.
    pub(super) fn duplicates(&self) -> u64 {
        self.lines - self.done()
    }

    /// Returns the number of messages that took more than one attempt.
    pub(super) fn retried(&self) -> u64 {
        self.seen.values().filter(|attempt| **attempt > 1).count() as u64
    }
}
