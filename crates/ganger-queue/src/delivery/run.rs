//! Notes on the runs of occurrences besides their states: the lines of their logs, their progress, and that they are
//! alive. Pools put them here, and one thread writes them to the ledger. Memory is bounded: while the ledger is away or
//! slow, lines are dropped and counted, and nothing waits.

use std::collections::{BTreeMap, HashMap};
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use ganger_config::model::LogLimits;
use ganger_schedule::occurrence::OccurrenceState;

/// Maximum size of the lines that wait, or are being written.
const BYTES_MAX: usize = 4 << 20;
/// Size that a line takes besides its text.
const LINE_BYTES: usize = 64;
/// Maximum number of runs of which something waits. A ledger that is away dispatches nothing either, so there are not
/// more of them, unless somebody else writes the header.
const RUNS_MAX: usize = 100_000;

/// Notes on all runs that are not written yet. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct RunNotes(Arc<SharedNotes>);

#[derive(Debug, Default)]
struct SharedNotes {
    kept: Mutex<Kept>,
    added: Notify,
}

#[derive(Debug, Default)]
struct Kept {
    /// Limits of each log; none if nobody writes notes.
    limits: Option<LogLimits>,
    notes: HashMap<Arc<str>, RunNote>,
    /// Size of the lines, with those that are being written.
    bytes: usize,
    /// Runs that a worker has, by their numbers, which are in the order of their beginnings.
    running: BTreeMap<u64, (Instant, Arc<Run>)>,
    next: u64,
    counts: RunCounts,
}

/// States in which runs end at pools.
const ENDS: [OccurrenceState; 4] = [
    OccurrenceState::Completed,
    OccurrenceState::Failed,
    OccurrenceState::TimedOut,
    OccurrenceState::Cancelled,
];

/// Counts of what became of runs since the daemon started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunCounts {
    /// Runs that have ended, by each state in which they do.
    pub ended: BTreeMap<OccurrenceState, u64>,
    /// Lines of logs that were dropped: too many waited for the ledger, or a worker wrote too many.
    pub lines_dropped: u64,
}

impl Default for RunCounts {
    fn default() -> Self {
        Self {
            ended: ENDS.map(|state| (state, 0)).into(),
            lines_dropped: 0,
        }
    }
}

/// Notes on an occurrence that are written together.
#[derive(Debug)]
pub struct RunNote {
    /// Id of the occurrence.
    pub occurrence: Arc<str>,
    /// Lines of its log, the oldest first.
    pub lines: Vec<LogLine>,
    /// Number of lines that were dropped.
    pub dropped: u64,
    /// Its last progress, if that is new.
    pub progress: Option<String>,
    /// Time of the last sign of life.
    pub heard: Instant,
}

/// A line of the log of an occurrence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// Time at which it was read.
    pub at: Instant,
    /// Number of the attempt.
    pub attempt: u32,
    /// Its origin.
    pub stream: LogStream,
    /// Its level, in a word.
    pub level: &'static str,
    /// Its text.
    pub text: String,
}

/// Origins of lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogStream {
    /// LOG frames.
    Log,
    /// Stdout of the worker.
    Stdout,
    /// Stderr of the worker.
    Stderr,
}

impl LogStream {
    /// Returns its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

impl RunNote {
    fn new(occurrence: Arc<str>, heard: Instant) -> Self {
        Self {
            occurrence,
            lines: Vec::new(),
            dropped: 0,
            progress: None,
            heard,
        }
    }

    fn bytes(&self) -> usize {
        self.lines.iter().map(LogLine::bytes).sum()
    }

    /// Adds what has been noted later.
    fn extend(&mut self, later: RunNote) {
        self.lines.extend(later.lines);
        self.dropped += later.dropped;
        self.progress = later.progress.or(self.progress.take());
        self.heard = self.heard.max(later.heard);
    }
}

impl LogLine {
    fn bytes(&self) -> usize {
        self.text.len() + LINE_BYTES
    }
}

impl Kept {
    /// Changes the note of a run, if notes are written and there is room for one.
    fn note(&mut self, occurrence: &Arc<str>, change: impl FnOnce(&mut RunNote)) -> bool {
        if self.limits.is_none() {
            return false;
        }
        let now = Instant::now();
        let is_full = self.notes.len() >= RUNS_MAX;
        if is_full && !self.notes.contains_key(occurrence) {
            return false;
        }
        let note = self.notes.entry(Arc::clone(occurrence));
        let note = note.or_insert_with_key(|id| RunNote::new(Arc::clone(id), now));
        note.heard = now;
        change(note);
        true
    }
}

impl RunNotes {
    /// Begins to take notes, with these limits of each log; with none it ends.
    pub fn keep(&self, limits: Option<LogLimits>) {
        self.lock().limits = limits;
    }

    /// Returns the limits of each log; none if no notes are taken.
    pub fn limits(&self) -> Option<LogLimits> {
        self.lock().limits
    }

    /// Returns the counts of runs.
    pub fn counts(&self) -> RunCounts {
        self.lock().counts.clone()
    }

    /// Waits until something is noted. Cancel-safe.
    pub async fn added(&self) {
        self.0.added.notified().await;
    }

    /// Takes all notes. They count until they are [`done`](Self::done).
    pub fn take(&self) -> Vec<RunNote> {
        let notes = mem::take(&mut self.lock().notes);
        notes.into_values().collect()
    }

    /// Forgets notes that were taken, of that size, but those that are `left`: they are taken again.
    pub fn done(&self, bytes: usize, left: Vec<RunNote>) {
        let mut kept = self.lock();
        kept.bytes = kept.bytes.saturating_sub(bytes);
        if kept.limits.is_none() {
            return;
        }
        for mut note in left {
            kept.bytes += note.bytes();
            if let Some(later) = kept.notes.remove(&note.occurrence) {
                note.extend(later);
            }
            kept.notes.insert(Arc::clone(&note.occurrence), note);
        }
        if !kept.notes.is_empty() {
            drop(kept);
            self.0.added.notify_one();
        }
    }

    /// Notes that the runs are alive that a worker has had for that time at least.
    pub fn prove_life(&self, at_least: Duration) {
        let mut kept = self.lock();
        let running = kept.running.values();
        let old = running.take_while(|(begun, _)| begun.elapsed() >= at_least);
        let old = old.filter(|(_, run)| !run.is_void());
        let old: Vec<Arc<str>> = old.map(|(_, run)| Arc::clone(&run.occurrence)).collect();
        let is_any = old
            .iter()
            .fold(false, |any, id| kept.note(id, |_| ()) | any);
        drop(kept);
        if is_any {
            self.0.added.notify_one();
        }
    }

    /// Makes a run, if notes are taken.
    pub(super) fn run(
        &self,
        occurrence: &Arc<str>,
        attempt: u32,
        claim: Option<Weak<()>>,
    ) -> Option<Arc<Run>> {
        self.limits()?;
        Some(Arc::new(Run {
            occurrence: Arc::clone(occurrence),
            attempt,
            claim,
            number: OnceLock::new(),
            notes: self.clone(),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        // The guarded value is never left half changed.
        self.0.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the size of notes that were taken.
pub fn size(notes: &[RunNote]) -> usize {
    notes.iter().map(RunNote::bytes).sum()
}

/// An attempt at the message of an occurrence, as those see it who know what its worker tells.
#[derive(Debug)]
pub struct Run {
    occurrence: Arc<str>,
    attempt: u32,
    claim: Option<Weak<()>>,
    /// Its number, once a worker has it.
    number: OnceLock<u64>,
    notes: RunNotes,
}

impl Run {
    /// Adds a line to the log of the occurrence. The text is made only if it is wanted.
    pub fn line(&self, stream: LogStream, level: &'static str, text: impl FnOnce() -> String) {
        let limits = self.notes.limits();
        if limits.is_none_or(|limits| limits.lines == 0) || self.is_void() {
            return;
        }
        let line = LogLine {
            at: Instant::now(),
            attempt: self.attempt,
            stream,
            level,
            text: text(),
        };
        let bytes = line.bytes();
        let mut kept = self.notes.lock();
        let has_room = kept.bytes + bytes <= BYTES_MAX;
        let is_noted = kept.note(&self.occurrence, |note| match has_room {
            true => note.lines.push(line),
            false => note.dropped += 1,
        });
        if is_noted && has_room {
            kept.bytes += bytes;
        } else {
            kept.counts.lines_dropped += 1;
        }
        drop(kept);
        self.notes.0.added.notify_one();
    }

    /// Counts a line that was dropped before.
    pub fn dropped(&self) {
        let mut kept = self.notes.lock();
        if kept.limits.is_some_and(|limits| limits.lines > 0) && !self.is_void() {
            kept.note(&self.occurrence, |note| note.dropped += 1);
            kept.counts.lines_dropped += 1;
            drop(kept);
            self.notes.0.added.notify_one();
        }
    }

    /// Notes the progress of the occurrence.
    pub fn progress(&self, progress: &str) {
        if !self.is_void() {
            let mut kept = self.notes.lock();
            kept.note(&self.occurrence, |note| {
                note.progress = Some(progress.to_owned())
            });
            drop(kept);
            self.notes.0.added.notify_one();
        }
    }

    /// Notes that a worker has it.
    pub(super) fn begin(self: &Arc<Self>) {
        let mut kept = self.notes.lock();
        let number = kept.next;
        if self.number.set(number).is_ok() {
            kept.next += 1;
            let begun = (Instant::now(), Arc::clone(self));
            kept.running.insert(number, begun);
        }
    }

    /// Notes that no worker has it any more, and the state in which the run has ended, if it has.
    pub(super) fn end(&self, end: Option<OccurrenceState>) {
        let mut kept = self.notes.lock();
        if let Some(number) = self.number.get() {
            kept.running.remove(number);
        }
        if let Some(state) = end.filter(|_| !self.is_void()) {
            *kept.counts.ended.entry(state).or_default() += 1;
        }
    }

    fn is_void(&self) -> bool {
        let is_gone = |claim: &Weak<()>| claim.strong_count() == 0;
        self.claim.as_ref().is_some_and(is_gone)
    }
}

#[cfg(test)]
mod tests;
