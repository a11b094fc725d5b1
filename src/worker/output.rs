//! A worker's stdout and stderr on their way to the log: read without pause, so that the worker is
//! never made to wait, whatever the log does with the lines, and in turns, so that nobody else is.
//! The last lines are kept for whoever asks why it died or what it does.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::net::unix::pipe::Receiver;
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::{Instant, timeout, timeout_at};
use tracing::Level;

use super::flood::{Admission, Flood};
use super::lines::{Line, Record, Splitter};
use super::{Identity, lines};
use crate::telemetry;
use crate::trace_context::SpanContext;

/// How many lines of stderr are kept.
const TAIL_LINES_MAX: usize = 64;
/// How much of each, in bytes.
const TAIL_LINE_BYTES_MAX: usize = 1024;
/// Likewise of stdout, which explains no death.
const STDOUT_TAIL_LINES_MAX: usize = 32;
const STDOUT_TAIL_LINE_BYTES_MAX: usize = 256;

/// How much is read at once.
const READ_BYTES: usize = 8 * 1024;
/// How often, before others have their turn: what a pipe holds.
const READS_PER_TURN: usize = 8;

/// What a worker has printed last, the oldest line first; long lines are cut.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "admin", derive(utoipa::ToSchema))]
pub struct LastLines {
    /// On stdout.
    pub stdout: Vec<String>,
    /// On stderr.
    pub stderr: Vec<String>,
}

/// Both streams of one worker. Dropped, it stops reading: a grandchild that holds a stream open
/// keeps nothing alive here.
#[derive(Debug)]
pub(super) struct Output {
    source: Rc<Source>,
    readers: [Rc<Reader>; 2],
    stdout: JoinHandle<()>,
    stderr: JoinHandle<()>,
}

/// Whose lines they are.
#[derive(Debug)]
struct Source {
    identity: Identity,
    pid: u32,
    /// The message being worked on; empty for none.
    correlation_id: RefCell<String>,
    /// Its span, if its attempt is recorded.
    span: Cell<Option<SpanContext>>,
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
            correlation_id: RefCell::default(),
            span: Cell::default(),
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

    /// Ties the lines that follow to a message. What is in the pipes by now was printed before, and
    /// belongs to the one before.
    pub(super) fn working_on(&self, message: Option<(&str, Option<SpanContext>)>) {
        let (next, span) = message.unwrap_or_default();
        if *self.source.correlation_id.borrow() == next && self.source.span.get() == span {
            return;
        }
        for reader in &self.readers {
            // Past the runtime, which may not have noticed yet that there is something.
            reader.take_in(|buffer| Ok(nix::unistd::read(&reader.pipe, buffer)?));
        }
        next.clone_into(&mut self.source.correlation_id.borrow_mut());
        self.source.span.set(span);
    }

    /// Waits for the end of stderr, but no longer than `at_most`; then tells its last lines.
    pub(super) async fn last_words(&mut self, at_most: Duration) -> Vec<String> {
        if !self.stderr.is_finished()
            && let Ok(Err(error)) = timeout(at_most, &mut self.stderr).await
        {
            tracing::error!(%error, "the task that reads a worker's stderr ended badly");
        }
        self.last_lines().stderr
    }

    /// Waits for the end of both, each no longer than `at_most`; then tells their last lines.
    pub(super) async fn all_printed(&mut self, at_most: Duration) -> LastLines {
        if !self.stdout.is_finished()
            && let Ok(Err(error)) = timeout(at_most, &mut self.stdout).await
        {
            tracing::error!(%error, "the task that reads a worker's stdout ended badly");
        }
        self.last_words(at_most).await;
        self.last_lines()
    }

    /// What was printed last, as far as it has been read.
    pub(super) fn last_lines(&self) -> LastLines {
        let [stdout, stderr] = &self.readers;
        let lines = |reader: &Reader| reader.tail.borrow().lines.iter().cloned().collect();
        LastLines {
            stdout: lines(stdout),
            stderr: lines(stderr),
        }
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        self.stdout.abort();
        self.stderr.abort();
    }
}

/// The last lines of a stream.
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

    /// Waits for more; while lines are held back it tells their number when the stream falls
    /// silent.
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

    /// Reads what is there, as much as is one turn's. Returns whether more may come.
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
        if let Admission::Log { suppressed } = admission {
            self.log_suppressed(suppressed);
            self.log(&lines::understand(line));
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
                fields: None,
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

/// tracing wants the level and the target of a record at compile time.
macro_rules! log_at_level {
    ($target:literal, $source:expr, $record:expr, [$($level:ident),*]) => {{
        let Source { identity, pid, correlation_id, span } = $source;
        let _about = telemetry::about(span.get());
        let correlation_id = correlation_id.borrow();
        let correlation_id = (!correlation_id.is_empty()).then_some(correlation_id.as_str());
        let Record { level, message, fields } = $record;
        match *level {
            $(Level::$level => tracing::event!(
                target: $target, Level::$level,
                pool = %identity.pool, worker = identity.slot, pid, correlation_id,
                fields = fields.as_deref(), "{message}"
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
mod tests {
    use super::*;
    use std::io::{PipeWriter, Write};
    use std::sync::{Arc, Mutex};
    use tokio::task::LocalSet;
    use tracing_subscriber::fmt::MakeWriter;

    /// What reached the log, as JSON.
    #[derive(Debug, Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for Log {
        type Writer = Self;
        fn make_writer(&'a self) -> Self {
            self.clone()
        }
    }

    impl Log {
        fn records(&self) -> Vec<serde_json::Value> {
            let text = self.0.lock().unwrap();
            text.split(|b| *b == b'\n')
                .filter(|line| !line.is_empty())
                .map(|line| serde_json::from_slice(line).unwrap())
                .collect()
        }
    }

    fn logged(test: impl AsyncFnOnce(Output, PipeWriter, PipeWriter)) -> Vec<serde_json::Value> {
        let log = Log::default();
        let subscriber = tracing_subscriber::fmt()
            .json()
            .flatten_event(true)
            .without_time()
            .with_max_level(Level::TRACE)
            .with_writer(log.clone())
            .finish();
        let _guard = tracing::subscriber::set_default(subscriber);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        LocalSet::new().block_on(&runtime, async {
            let (stdout, stdout_writer) = io::pipe().unwrap();
            let (stderr, stderr_writer) = io::pipe().unwrap();
            let identity = Identity {
                pool: "p".into(),
                slot: 2,
            };
            let output = Output::read(identity, 42, stdout.into(), stderr.into()).unwrap();
            test(output, stdout_writer, stderr_writer).await;
        });
        log.records()
    }

    #[test]
    fn lines_are_logged_with_whose_they_are() {
        let records = logged(async |mut output, mut stdout, mut stderr| {
            output.working_on(Some(("c-1", None)));
            stdout.write_all(b"plain\n").unwrap();
            drop(stdout);
            (&mut output.stdout).await.unwrap();
            output.working_on(None);
            let line = b"{\"level\":\"error\",\"msg\":\"boom\",\"n\":1}\nunended";
            stderr.write_all(line).unwrap();
            drop(stderr);
            let words = output.last_words(Duration::MAX).await;
            assert_eq!(words[1], "unended");
        });
        let expected = [
            serde_json::json!({
                "level": "INFO", "message": "plain", "target": "worker::stdout",
                "pool": "p", "worker": 2, "pid": 42, "correlation_id": "c-1",
            }),
            serde_json::json!({
                "level": "ERROR", "message": "boom", "target": "worker::stderr",
                "pool": "p", "worker": 2, "pid": 42, "fields": "{\"n\":1}",
            }),
            serde_json::json!({
                "level": "INFO", "message": "unended", "target": "worker::stderr",
                "pool": "p", "worker": 2, "pid": 42,
            }),
        ];
        assert_eq!(records, expected);
    }

    #[test]
    fn what_is_in_the_pipe_belongs_to_the_message_before() {
        let records = logged(async |output, mut stdout, mut stderr| {
            output.working_on(Some(("c-1", None)));
            stdout.write_all(b"of the first\n").unwrap();
            stderr.write_all(b"of the first, too\n").unwrap();
            // Nothing has been waited for: only a look at the pipes themselves can tell.
            output.working_on(Some(("c-2", None)));
            stdout.write_all(b"of the second\n").unwrap();
            output.working_on(None);
        });
        let ids: Vec<_> = records
            .iter()
            .map(|record| &record["correlation_id"])
            .collect();
        assert_eq!(ids, ["c-1", "c-1", "c-2"]);
    }

    #[test]
    fn a_flood_is_read_to_its_end_and_told_by_its_number() {
        const LINES: u64 = 100_000;
        let records = logged(async |mut output, stdout, mut stderr| {
            drop(stdout);
            let flood = "flood\n".repeat(1000);
            let worker = std::thread::spawn(move || {
                for _ in 0..LINES / 1000 {
                    stderr.write_all(flood.as_bytes()).unwrap();
                }
                stderr.write_all(b"the end\n").unwrap();
            });
            let words = output.last_words(Duration::MAX).await;
            worker.join().unwrap();
            assert_eq!(words.last().unwrap(), "the end");
            assert_eq!(words.len(), TAIL_LINES_MAX);
        });
        let text = |record: &serde_json::Value| record["message"].as_str().unwrap().to_owned();
        let suppressed: u64 = records
            .iter()
            .filter_map(|record| {
                text(record)
                    .split_once(" lines suppressed")
                    .map(|s| s.0.to_owned())
            })
            .map(|count| count.parse::<u64>().unwrap())
            .sum();
        let printed = records.iter().filter(|record| {
            let text = text(record);
            text == "flood" || text == "the end"
        });
        let printed = printed.count() as u64;
        assert!(suppressed > LINES / 2, "{suppressed}");
        assert_eq!(printed + suppressed, LINES + 1);
    }

    #[test]
    fn what_was_held_back_is_told_when_the_stream_falls_silent() {
        let records = logged(async |mut output, stdout, mut stderr| {
            drop(stdout);
            stderr.write_all("x\n".repeat(3000).as_bytes()).unwrap();
            // The stream stays open and silent: nothing but the clock can bring the word.
            tokio::time::pause();
            drop(output.last_words(Duration::from_secs(10)).await);
            drop(stderr);
        });
        let last = records.last().unwrap()["message"].as_str().unwrap();
        assert!(last.contains(" lines suppressed"), "{last}");
    }
}
