//! Tests of `output`.

use super::*;
use std::io::{PipeWriter, Write};
use std::sync::Mutex;

use ganger_queue::delivery::{Message, Property};
use tokio::task::LocalSet;
use tracing_subscriber::fmt::MakeWriter;

/// Log output, as JSON.
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

fn message(correlation_id: &str) -> Message {
    Message {
        queue: "q".into(),
        body: "x".into(),
        headers: Vec::new(),
        correlation_id: correlation_id.into(),
        reply_to: None,
        properties: vec![("row_id", Property::Integer(7))],
        occurrence: None,
    }
}

fn subject(message: &Message) -> Subject<'_> {
    Subject {
        message,
        span: None,
        run: None,
    }
}

#[test]
fn lines_are_logged_with_whose_they_are() {
    let records = logged(async |mut output, mut stdout, mut stderr| {
        output.working_on(Some(subject(&message("c-1"))));
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
            "pool": "p", "worker": 2, "pid": 42,
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
        output.working_on(Some(subject(&message("c-1"))));
        stdout.write_all(b"of the first\n").unwrap();
        stderr.write_all(b"of the first, too\n").unwrap();
        // Nothing has been awaited: only the pipes themselves show the data.
        output.working_on(Some(subject(&message("c-2"))));
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
        // The stream stays open and silent: only the clock can trigger the report.
        tokio::time::pause();
        drop(output.last_words(Duration::from_secs(10)).await);
        drop(stderr);
    });
    let last = records.last().unwrap()["message"].as_str().unwrap();
    assert!(last.contains(" lines suppressed"), "{last}");
}
