//! A daemon's log: its records as they come, and waiting for one.

use std::io::{BufRead, BufReader, Read};
use std::sync::{Arc, Condvar, Mutex};

use serde_json::Value;
use tokio::time::Instant;

use super::DEADLINE;

/// How many records a failure shows.
const TAIL: usize = 60;

/// Whether a record has that message.
pub(crate) fn said(record: &Value, message: &str) -> bool {
    record["message"].as_str() == Some(message)
}

/// A record's field as text; empty where it has none.
pub(crate) fn field(record: &Value, name: &str) -> String {
    match &record[name] {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The records so far. Clones show the same log.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Shared>);

#[derive(Default)]
struct Shared {
    so_far: Mutex<SoFar>,
    more: Condvar,
}

#[derive(Default)]
struct SoFar {
    records: Vec<Value>,
    ended: bool,
}

impl Log {
    /// Reads the log on a thread until it ends.
    pub(super) fn read(stream: impl Read + Send + 'static) -> Self {
        let log = Self::default();
        let reader = log.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).into_owned();
                // A panic's message is no JSON; it must be seen all the same.
                let record = serde_json::from_str(&line).unwrap_or(Value::String(line));
                reader.change(|so_far| so_far.records.push(record));
            }
            reader.change(|so_far| so_far.ended = true);
        });
        log
    }

    fn change(&self, change: impl FnOnce(&mut SoFar)) {
        change(&mut self.0.so_far.lock().unwrap());
        self.0.more.notify_all();
    }

    /// Waits for the end of the log, which comes with the end of its daemon; returns whether it
    /// came.
    pub(super) fn ends(&self) -> bool {
        let so_far = self.0.so_far.lock().unwrap();
        let wait = self
            .0
            .more
            .wait_timeout_while(so_far, DEADLINE, |so_far| !so_far.ended);
        wait.unwrap().0.ended
    }

    /// Waits for the first record, from the start of the log, that is as wanted; none if it does not
    /// come in time, or can't come any more.
    pub(super) fn find(&self, mut wanted: impl FnMut(&Value) -> bool) -> Option<Value> {
        let deadline = Instant::now() + DEADLINE;
        let mut so_far = self.0.so_far.lock().unwrap();
        let mut seen = 0;
        loop {
            if let Some(found) = so_far.records[seen..].iter().find(|record| wanted(record)) {
                return Some(found.clone());
            }
            seen = so_far.records.len();
            let left = deadline.saturating_duration_since(Instant::now());
            if so_far.ended || left.is_zero() {
                return None;
            }
            so_far = self.0.more.wait_timeout(so_far, left).unwrap().0;
        }
    }

    /// The records so far that are as wanted.
    pub(super) fn all(&self, mut wanted: impl FnMut(&Value) -> bool) -> Vec<Value> {
        let records = &self.0.so_far.lock().unwrap().records;
        records
            .iter()
            .filter(|record| wanted(record))
            .cloned()
            .collect()
    }

    /// The last records, for a failure.
    pub(super) fn tail(&self) -> String {
        let records = &self.0.so_far.lock().unwrap().records;
        let first = records.len().saturating_sub(TAIL);
        let lines: Vec<String> = records[first..].iter().map(Value::to_string).collect();
        format!(
            "the last {} of {} log records:\n{}",
            lines.len(),
            records.len(),
            lines.join("\n")
        )
    }
}
