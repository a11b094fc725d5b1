//! Writing of log records to stderr: a bounded buffer, and a thread that empties it. Logging never waits,
//! whatever becomes of stderr: records that it does not take are dropped, counted, and reported once it
//! takes some again.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::time::Instant;

use super::repeats::REPEATS;
use ganger_core::heartbeat::{EVERY, Heartbeat};

/// Maximum bytes of records that wait while others are being written; half of the log's memory bound.
const BYTES_WAITING_MAX: usize = 4 << 20;

/// Maximum number of records that wait.
const RECORDS_WAITING_MAX: usize = 32 << 10;

/// Capacity that an empty buffer keeps.
const BYTES_KEPT_MAX: usize = 64 << 10;

/// Takes records and never waits. Clones fill the same buffer.
#[derive(Debug, Clone, Default)]
pub(super) struct Writer(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Signals that the thread has work.
    work: Condvar,
    /// Signals that all records have been written or dropped.
    idle: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: Records,
    /// The thread has taken some records and is not done with them.
    writing: bool,
    /// The last write was complete.
    works: bool,
    /// Number of records dropped since the start.
    dropped: u64,
    /// Number of dropped records already reported in the log.
    told: u64,
    closing: bool,
}

/// Some records, one after the other.
#[derive(Debug, Default)]
struct Records {
    bytes: Vec<u8>,
    /// End of each record.
    ends: Vec<usize>,
}

impl Records {
    fn take_in(&mut self, record: &[u8]) -> bool {
        let fits = self.ends.len() < RECORDS_WAITING_MAX
            && self.bytes.len() + record.len() <= BYTES_WAITING_MAX;
        if fits {
            self.bytes.extend_from_slice(record);
            self.ends.push(self.bytes.len());
        }
        fits
    }

    /// Returns the number of records that are not completely among the first `written` bytes.
    fn missing(&self, written: usize) -> usize {
        self.ends.len() - self.ends.partition_point(|end| *end <= written)
    }

    /// Returns whether the first `written` bytes end within a record.
    fn torn(&self, written: usize) -> bool {
        written > 0 && self.ends.binary_search(&written).is_err()
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(BYTES_KEPT_MAX);
        self.ends.clear();
        self.ends.shrink_to(BYTES_KEPT_MAX / size_of::<usize>());
    }
}

impl Writer {
    /// Empties the buffer into `out` until [`Self::finish`] and the last record.
    pub(super) fn run(&self, out: impl AsFd) {
        let mut records = Records::default();
        let mut torn = false;
        let heart = Heartbeat::named("log");
        while let Some(news) = self.next(&mut records, &heart) {
            if let Some(dropped) = news {
                tracing::warn!(
                    dropped,
                    "log records dropped because stderr was blocked; count since the start"
                );
            }
            // The reader of stderr may be slow, and nothing waits for this thread.
            let write = |bytes| heart.away(|| write_all(&out, bytes));
            if torn && write(b"\n") == 0 {
                self.written(&records, 0);
                continue;
            }
            let written = write(&records.bytes);
            torn = records.torn(written);
            self.written(&records, written);
            REPEATS.tell(Instant::now());
        }
    }

    /// Waits for work and takes all records that wait. Returns the number of those that were dropped, if
    /// it is new and can be reported; none at the end.
    ///
    /// It can be reported right after the buffer was emptied, so that there is room for it.
    fn next(&self, records: &mut Records, heart: &Heartbeat) -> Option<Option<u64>> {
        let mut state = self.state();
        records.clear();
        state.writing = false;
        if state.waiting.ends.is_empty() {
            self.0.idle.notify_all();
        }
        let nothing_to_do = |state: &mut State| {
            state.waiting.ends.is_empty() && !state.has_changes() && !state.closing
        };
        let mut waits = true;
        while waits {
            let waited = self.0.work.wait_timeout_while(state, EVERY, nothing_to_do);
            let (locked, result) = unpoisoned(waited);
            (state, waits) = (locked, result.timed_out());
            heart.beat();
            if waits && REPEATS.are_pending() {
                // The report of their number passes through this thread.
                break;
            }
        }
        if state.closing && state.waiting.ends.is_empty() && !state.has_changes() {
            return None;
        }
        state.writing = true;
        std::mem::swap(&mut state.waiting, records);
        let news = state.has_changes().then_some(state.dropped);
        if news.is_some() {
            state.told = state.dropped;
        }
        Some(news)
    }

    fn written(&self, records: &Records, written: usize) {
        let mut state = self.state();
        let missing = records.missing(written);
        state.dropped += missing as u64;
        // Writing nothing at all is no proof.
        state.works = missing == 0 && (state.works || written > 0);
    }

    /// Waits until all records so far are written or dropped, or the timeout.
    pub(super) fn finish(&self, at_most: Duration) {
        let mut state = self.state();
        state.closing = true;
        self.0.work.notify_one();
        let busy = |state: &mut State| state.writing || !state.waiting.ends.is_empty();
        // Records that are not written by then are lost.
        drop(self.0.idle.wait_timeout_while(state, at_most, busy));
    }

    /// Returns the number of records dropped since the start.
    pub(super) fn dropped(&self) -> u64 {
        self.state().dropped
    }

    fn state(&self) -> MutexGuard<'_, State> {
        unpoisoned(self.0.state.lock())
    }
}

impl State {
    fn has_changes(&self) -> bool {
        self.works && self.told < self.dropped
    }
}

/// Unwraps the result of a lock: the guarded value is never left half changed.
fn unpoisoned<T>(result: Result<T, PoisonError<T>>) -> T {
    result.unwrap_or_else(PoisonError::into_inner)
}

/// Each call brings one record, whole.
impl Write for &Writer {
    fn write(&mut self, record: &[u8]) -> io::Result<usize> {
        let mut state = self.state();
        if !state.waiting.take_in(record) {
            state.dropped += 1;
        }
        self.0.work.notify_one();
        Ok(record.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes as much as is taken, waiting for as long as it needs; returns the number of bytes.
///
/// It does not use the standard library's handle: a thread that is stuck here would hold its lock, and
/// with it everything that prints.
fn write_all(out: &impl AsFd, bytes: &[u8]) -> usize {
    let mut written = 0;
    while written < bytes.len() {
        match nix::unistd::write(out, &bytes[written..]) {
            Ok(0) => break,
            Ok(more) => written += more,
            Err(Errno::EINTR) => {}
            // Another process that shares it may have made it non-blocking.
            Err(Errno::EAGAIN) => {
                let mut writable = [PollFd::new(out.as_fd(), PollFlags::POLLOUT)];
                if !matches!(
                    poll(&mut writable, PollTimeout::NONE),
                    Ok(_) | Err(Errno::EINTR)
                ) {
                    break;
                }
            }
            Err(_) => break,
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use std::io::{PipeReader, Read, pipe};
    use std::thread::{self, JoinHandle};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn run(writer: &Writer, out: impl AsFd + Send + 'static) -> JoinHandle<()> {
        let writer = writer.clone();
        thread::spawn(move || writer.run(out))
    }

    fn log(writer: &Writer, record: &str) {
        (&*writer).write_all(record.as_bytes()).unwrap();
    }

    fn read(mut reader: PipeReader) -> String {
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn what_is_logged_before_the_end_is_written() {
        let (reader, out) = pipe().unwrap();
        let writer = Writer::default();
        log(&writer, "one\n");
        let thread = run(&writer, out);
        log(&writer, "two\n");
        writer.finish(LONG);
        thread.join().unwrap();
        assert_eq!(read(reader), "one\ntwo\n");
        assert_eq!(writer.dropped(), 0);
    }

    #[test]
    fn a_reader_that_sleeps_costs_records_and_no_time() {
        let (_reader, out) = pipe().unwrap();
        let writer = Writer::default();
        drop(run(&writer, out));
        let record = "x".repeat(64 << 10);
        for _ in 0..1000 {
            log(&writer, &record);
        }
        // Waiting records, records being written, and no more.
        let most = 2 * (BYTES_WAITING_MAX >> 16) as u64;
        assert!(writer.dropped() >= 1000 - most, "{}", writer.dropped());
        assert!(writer.state().waiting.bytes.len() <= BYTES_WAITING_MAX);
        writer.finish(Duration::from_millis(1));
    }

    #[test]
    fn a_reader_that_is_gone_costs_every_record() {
        let (reader, out) = pipe().unwrap();
        drop(reader);
        let writer = Writer::default();
        let thread = run(&writer, out);
        for _ in 0..10 {
            log(&writer, "record\n");
        }
        writer.finish(LONG);
        thread.join().unwrap();
        assert_eq!(writer.dropped(), 10);
    }

    #[test]
    fn more_small_records_than_may_wait_are_dropped() {
        let mut records = Records::default();
        let taken = (0..2 * RECORDS_WAITING_MAX).filter(|_| records.take_in(b"x"));
        assert_eq!(taken.count(), RECORDS_WAITING_MAX);
    }

    #[test]
    fn what_was_cut_off_is_known_by_where_it_ended() {
        let mut records = Records::default();
        for record in ["one\n", "two\n", "three\n"] {
            assert!(records.take_in(record.as_bytes()));
        }
        let cases = [
            (0, 3, false),
            (3, 3, true),
            (4, 2, false),
            (8, 1, false),
            (13, 1, true),
            (14, 0, false),
        ];
        for (written, missing, torn) in cases {
            let found = (records.missing(written), records.torn(written));
            assert_eq!(found, (missing, torn), "{written}");
        }
    }

    #[test]
    fn losses_are_told_once_and_only_when_something_is_taken() {
        let writer = Writer::default();
        let heart = Heartbeat::named("log");
        let mut records = Records::default();
        writer.state().dropped = 7;
        let mut told = |taken: bool| {
            log(&writer, "record\n");
            let news = writer.next(&mut records, &heart).unwrap();
            let written = if taken { records.bytes.len() } else { 0 };
            writer.written(&records, written);
            news
        };
        assert_eq!(told(false), None, "it is not known that stderr works");
        assert_eq!(told(true), None);
        assert_eq!(told(true), Some(8));
        assert_eq!(told(true), None, "that is known already");
    }
}
