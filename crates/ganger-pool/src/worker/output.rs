//! Stdout and stderr of a worker on their way to the log. They are read without pause, so that the worker
//! never has to wait, whatever the log does with the lines, and in turns, so that no other work has to wait.
//! The last lines are kept for questions about its death or its activity.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::{Deserialize, Serialize};
use tokio::net::unix::pipe::Receiver;
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::{Instant, timeout, timeout_at};
use tracing::Level;

use super::flood::{Admission, Flood};
use super::lines::{Line, Record, Splitter};
use super::subject::Subject;
use super::{Identity, lines, subject};
use ganger_core::trace_context::SpanContext;
use ganger_queue::delivery::{LogName, LogStream, Run};
use ganger_telemetry as telemetry;
use ganger_telemetry::Fields;

/// Number of lines of stderr that are kept.
const TAIL_LINES_MAX: usize = 64;
/// Maximum length of each, in bytes.
const TAIL_LINE_BYTES_MAX: usize = 1024;
/// Number of lines of stdout that are kept; stdout explains no death.
const STDOUT_TAIL_LINES_MAX: usize = 32;
const STDOUT_TAIL_LINE_BYTES_MAX: usize = 256;

/// Number of bytes read at once.
const READ_BYTES: usize = 8 * 1024;
/// Number of reads before others have their turn, which is as much as a pipe holds.
const READS_PER_TURN: usize = 8;

/// Last lines that a worker has printed, the oldest first; long lines are cut.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct LastLines {
    /// On stdout.
    pub stdout: Vec<String>,
    /// On stderr.
    pub stderr: Vec<String>,
    /// Cause of its end; none while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
}

/// Both streams of one worker. On drop it stops reading: a grandchild that holds a stream open keeps nothing
/// alive here.
#[derive(Debug)]
pub(super) struct Output {
    source: Rc<Source>,
    readers: [Rc<Reader>; 2],
    stdout: JoinHandle<()>,
    stderr: JoinHandle<()>,
}

/// Source of the lines.
#[derive(Debug)]
struct Source {
    identity: Identity,
    pid: u32,
    /// Name of the message in progress; the empty name for none.
    name: RefCell<LogName>,
    /// Its span, if its attempt is recorded.
    span: Cell<Option<SpanContext>>,
    /// Way to its occurrence, if a ledger has that.
    run: RefCell<Option<Arc<Run>>>,
}

impl Source {
    fn is_idle(&self) -> bool {
        let is_unnamed = *self.name.borrow() == LogName::default();
        is_unnamed && self.span.get().is_none() && self.run.borrow().is_none()
    }
}

impl Output {
    /// Starts reading both streams. Must be called inside a `LocalSet`.
    ///
    /// # Errors
    /// If a stream is no pipe, or the runtime can't watch it.
    pub(super) fn read(
        identity: Identity,
        pid: u32,
        stdout: OwnedFd,
        stderr: OwnedFd,
    ) -> io::Result<Self> {
        let source = Rc::new(Source {
            identity,
            pid,
            name: RefCell::default(),
            span: Cell::default(),
            run: RefCell::default(),
        });
        let stdout = Rc::new(Reader::new(Stream::Stdout, stdout, &source)?);
        let stderr = Rc::new(Reader::new(Stream::Stderr, stderr, &source)?);
        Ok(Self {
            source,
            readers: [stdout.clone(), stderr.clone()],
            stdout: spawn_local(stdout.run()),
            stderr: spawn_local(stderr.run()),
        })
    }

    /// Ties the lines that follow to a message. The current contents of the pipes were printed earlier, and
    /// belong to the previous message.
    pub(super) fn working_on(&self, subject: Option<Subject<'_>>) {
        if subject.is_none() && self.source.is_idle() {
            return;
        }
        // Read directly: the runtime may not have noticed the data yet.
        if self.may_be_read() {
            for reader in &self.readers {
                reader.take_in(|buffer| Ok(nix::unistd::read(&reader.pipe, buffer)?));
            }
        }
        let mut name = self.source.name.borrow_mut();
        match subject {
            Some(subject) => name.set(subject.message),
            None => name.clear(),
        }
        self.source
            .span
            .set(subject.and_then(|subject| subject.span));
        let run = subject.and_then(|subject| subject.run);
        self.source.run.replace(run.cloned());
    }

    /// Returns whether one of the pipes has data. Called for each message: one system call is enough.
    fn may_be_read(&self) -> bool {
        let mut pipes = self
            .readers
            .each_ref()
            .map(|reader| PollFd::new(reader.pipe.as_fd(), PollFlags::POLLIN));
        poll(&mut pipes, PollTimeout::ZERO) != Ok(0)
    }

    /// Waits for the end of stderr, but no longer than `at_most`; then returns its last lines.
    pub(super) async fn last_words(&mut self, at_most: Duration) -> Vec<String> {
        if !self.stderr.is_finished()
            && let Ok(Err(error)) = timeout(at_most, &mut self.stderr).await
        {
            tracing::error!(%error, "the task that reads a worker's stderr failed");
        }
        self.last_lines().stderr
    }

    /// Waits for the end of both, each no longer than `at_most`; then returns their last lines.
    pub(super) async fn all_printed(&mut self, at_most: Duration) -> LastLines {
        if !self.stdout.is_finished()
            && let Ok(Err(error)) = timeout(at_most, &mut self.stdout).await
        {
            tracing::error!(%error, "the task that reads a worker's stdout failed");
        }
        self.last_words(at_most).await;
        self.last_lines()
    }

    /// Returns the last lines printed, as far as they have been read.
    pub(super) fn last_lines(&self) -> LastLines {
        let [stdout, stderr] = &self.readers;
        let lines = |reader: &Reader| reader.tail.borrow().lines.iter().cloned().collect();
        LastLines {
            stdout: lines(stdout),
            stderr: lines(stderr),
            ended: None,
        }
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        self.stdout.abort();
        self.stderr.abort();
    }
}

/// Last lines of a stream.
#[derive(Debug, Default)]
struct Tail {
    lines: VecDeque<String>,
}

impl Tail {
    fn push(&mut self, line: &str, stream: Stream) {
        let (lines_max, bytes_max) = match stream {
            Stream::Stdout => (STDOUT_TAIL_LINES_MAX, STDOUT_TAIL_LINE_BYTES_MAX),
            Stream::Stderr => (TAIL_LINES_MAX, TAIL_LINE_BYTES_MAX),
        };
        if self.lines.len() == lines_max {
            self.lines.pop_front();
        }
        let kept = lines::cut(line, bytes_max);
        self.lines.push_back(kept.to_owned());
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stream {
    Stdout,
    Stderr,
}

/// Reads one stream to its end.
#[derive(Debug)]
struct Reader {
    stream: Stream,
    pipe: Receiver,
    source: Rc<Source>,
    tail: RefCell<Tail>,
    splitter: RefCell<Splitter>,
    flood: RefCell<Flood>,
    /// Level of the last line.
    level: Cell<Level>,
}

impl Reader {
    fn new(stream: Stream, fd: OwnedFd, source: &Rc<Source>) -> io::Result<Self> {
        Ok(Self {
            stream,
            pipe: Receiver::from_owned_fd(fd)?,
            source: Rc::clone(source),
            tail: RefCell::default(),
            splitter: RefCell::default(),
            flood: RefCell::new(Flood::new(Instant::now())),
            level: Cell::new(Level::INFO),
        })
    }

    async fn run(self: Rc<Self>) {
        while self.is_readable().await && self.take_in(|buffer| self.pipe.try_read(buffer)) {
            tokio::task::yield_now().await;
        }
        if let Some(line) = self.splitter.borrow_mut().finish() {
            self.take(line);
        }
        self.tell_suppressed();
    }

    /// Waits for more data; while lines are suppressed, reports their number when the stream falls silent.
    async fn is_readable(&self) -> bool {
        let suppressing = self.flood.borrow().is_suppressing();
        if suppressing {
            let calm = self.flood.borrow().calm_at();
            if let Ok(readable) = timeout_at(calm, self.pipe.readable()).await {
                return self.is_well(readable);
            }
            self.tell_suppressed();
        }
        self.is_well(self.pipe.readable().await)
    }

    /// Reads the available bytes, at most one turn's worth. Returns whether more may come.
    fn take_in(&self, read: impl Fn(&mut [u8]) -> io::Result<usize>) -> bool {
        let mut buffer = [0; READ_BYTES];
        for _ in 0..READS_PER_TURN {
            match read(&mut buffer) {
                Ok(0) => return false,
                Ok(bytes) => {
                    let mut splitter = self.splitter.borrow_mut();
                    splitter.feed(&buffer[..bytes], |line| self.take(line));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return self.is_well(Err(error)),
            }
        }
        true
    }

    fn is_well(&self, result: io::Result<()>) -> bool {
        if let Err(error) = &result {
            tracing::warn!(
                pool = %self.source.identity.pool, worker = self.source.identity.slot,
                pid = self.source.pid, %error, "reading a worker's output failed"
            );
        }
        result.is_ok()
    }

    fn take(&self, line: Line) {
        self.tail.borrow_mut().push(&line.text, self.stream);
        let admission = self.flood.borrow_mut().admit(Instant::now());
        match admission {
            Admission::Log { suppressed } => {
                self.log_suppressed(suppressed);
                let record = lines::understand(line, self.level.get());
                self.level.set(record.level);
                self.log(&record);
                self.keep(&record);
            }
            Admission::Suppress => {
                if let Some(run) = &*self.source.run.borrow() {
                    run.dropped();
                }
            }
        }
    }

    /// Adds a record to the log of the occurrence, if the message is of one.
    fn keep(&self, record: &Record) {
        if let Some(run) = &*self.source.run.borrow() {
            let stream = match self.stream {
                Stream::Stdout => LogStream::Stdout,
                Stream::Stderr => LogStream::Stderr,
            };
            subject::log(run, stream, record.level, &record.message, &record.fields);
        }
    }

    fn tell_suppressed(&self) {
        let suppressed = self.flood.borrow_mut().take_suppressed();
        self.log_suppressed(suppressed);
    }

    fn log_suppressed(&self, lines: u64) {
        if lines > 0 {
            self.log(&Record {
                level: Level::WARN,
                message: format!("{lines} lines suppressed: the worker prints too fast"),
                fields: Fields::new(),
            });
        }
    }

    fn log(&self, record: &Record) {
        match self.stream {
            Stream::Stdout => log_stdout(&self.source, record),
            Stream::Stderr => log_stderr(&self.source, record),
        }
    }
}

/// Logs a record at its level: tracing needs the level and the target at compile time.
macro_rules! log_at_level {
    ($target:literal, $source:expr, $record:expr, [$($level:ident),*]) => {{
        let Source { identity, pid, name, span, .. } = $source;
        let _about = telemetry::about(span.get());
        let name = name.borrow();
        let (correlation_id, message_name) = (name.correlation_id(), name.message());
        let Record { level, message, fields } = $record;
        let _with = telemetry::with_fields(fields);
        match *level {
            $(Level::$level => tracing::event!(
                target: $target, Level::$level,
                pool = %identity.pool, worker = identity.slot, pid, correlation_id, message_name,
                "{message}"
            ),)*
        }
    }};
}

fn log_stdout(source: &Source, record: &Record) {
    log_at_level!(
        "worker::stdout",
        source,
        record,
        [TRACE, DEBUG, INFO, WARN, ERROR]
    );
}

fn log_stderr(source: &Source, record: &Record) {
    log_at_level!(
        "worker::stderr",
        source,
        record,
        [TRACE, DEBUG, INFO, WARN, ERROR]
    );
}

#[cfg(test)]
mod tests;
