//! The tests' worker: it speaks the public protocol over plain blocking sockets and does to each
//! message what its body says, step by step, however rude that is.
//!
//! A body `mode:STEP,STEP:ARGUMENT some text` names its steps; any other body has the steps of
//! `--mode`. A message that no step has answered is answered 200 in the end. `steps` lists them.
//! Every message is recorded before anything is done to it, and before it is answered as done.

mod ledger;
mod options;
mod record;
mod steps;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, ErrorKind, Read, Stdin, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process;
use std::sync::{Arc, Condvar, Mutex};

use bytes::BytesMut;
use ganger_core::names::{CANCEL, PIPE_DIR, PIPE_PREFIX};
use ganger_protocol::{Output, Status, Task};

pub(crate) use self::ledger::SCHEMA as LEDGER_SCHEMA;
use self::options::{Options, Start};
use self::record::Recorder;
use crate::harness::Event;

/// What makes the test binary this worker: its first argument.
pub(crate) const NAME: &str = "modes-worker";

/// Works until it is asked to leave, or for ever.
pub(crate) fn run(args: &[String]) -> ! {
    let options = Options::parse(args);
    match options.start {
        Start::Connect => {}
        Start::Exit(code) => {
            complain("this worker never starts");
            process::exit(code);
        }
        Start::Idle => idle(),
    }
    let mut control = BufReader::new(std::io::stdin());
    let pipe = connect(&mut control);
    let worker = Arc::new(Worker::new(options, pipe));
    if worker.options.stubborn {
        steps::ignore_sigterm();
    }
    worker.say_hello();
    if !worker.options.deaf_to_stdin {
        let listener = worker.clone();
        std::thread::spawn(move || listener.listen(control));
    }
    if worker.options.deaf_to_pipe {
        idle();
    }
    worker.work()
}

/// Does nothing for ever.
fn idle() -> ! {
    loop {
        std::thread::park();
    }
}

#[expect(clippy::print_stderr, reason = "a worker's stderr is what is tested")]
fn complain(text: &str) {
    eprintln!("{text}");
}

/// Reads the pipe's name and connects, as version 1 says.
fn connect(control: &mut BufReader<Stdin>) -> UnixStream {
    let mut name = String::new();
    control.read_line(&mut name).unwrap();
    let path = Path::new(PIPE_DIR).join(format!("{PIPE_PREFIX}{}", name.trim_end()));
    UnixStream::connect(path).unwrap()
}

struct Worker {
    options: Options,
    /// To read from: by the main thread only.
    input: UnixStream,
    /// To write to: one frame at a time.
    output: Mutex<UnixStream>,
    recorder: Recorder,
    /// The control lines so far.
    told: Mutex<BTreeSet<String>>,
    told_more: Condvar,
}

impl Worker {
    fn new(options: Options, pipe: UnixStream) -> Self {
        let output = Mutex::new(pipe.try_clone().unwrap());
        Self {
            options,
            input: pipe,
            output,
            recorder: Recorder::open(),
            told: Mutex::default(),
            told_more: Condvar::new(),
        }
    }

    fn say_hello(&self) {
        let Some(concurrency) = self.options.concurrency else {
            return;
        };
        let mut hello = Output::new(Status::HELLO, None, "");
        let header = |name: &str, value: String| (name.to_owned(), value);
        hello.headers = Some(vec![
            header("sdk", NAME.into()),
            header("version", "2".into()),
            header("concurrency", concurrency.to_string()),
        ]);
        self.write(&hello);
    }

    /// Reads messages to the end of the pipe, and works on each.
    fn work(self: Arc<Self>) -> ! {
        while let Some(frame) = self.read_frame() {
            let task = Task::decode(&frame).unwrap();
            self.recorder
                .write(Event::Began, &text(&task), task.attempt);
            if self
                .options
                .concurrency
                .is_some_and(|concurrency| concurrency > 1)
            {
                let worker = self.clone();
                std::thread::spawn(move || steps::take(&worker, &task));
            } else {
                steps::take(&self, &task);
            }
        }
        if self.options.stubborn {
            idle();
        }
        process::exit(0);
    }

    /// None at the end of the pipe.
    fn read_frame(&self) -> Option<Vec<u8>> {
        let mut input = &self.input;
        let mut length = [0; 4];
        match input.read_exact(&mut length) {
            Ok(()) => {}
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset
                ) =>
            {
                return None;
            }
            Err(error) => panic!("reading the pipe: {error}"),
        }
        let bytes = usize::try_from(u32::from_be_bytes(length)).unwrap();
        assert!(
            bytes <= self.options.frame_bytes_max,
            "a frame too long for me: {bytes}"
        );
        let mut frame = vec![0; bytes];
        input.read_exact(&mut frame).unwrap();
        Some(frame)
    }

    /// Reads control lines until stdin ends.
    fn listen(&self, control: BufReader<Stdin>) {
        for line in control.lines().map_while(Result::ok) {
            self.recorder.write(Event::Told, &line, None);
            self.told.lock().unwrap().insert(line);
            self.told_more.notify_all();
        }
    }

    fn wait_for_cancel(&self, id: u64) {
        self.wait_to_be_told(&format!("{CANCEL} {id}"));
    }

    fn wait_to_be_told(&self, line: &str) {
        let told = self.told.lock().unwrap();
        let missing = |told: &mut BTreeSet<String>| !told.contains(line);
        drop(self.told_more.wait_while(told, missing).unwrap());
    }

    fn write(&self, output: &Output) {
        let mut bytes = BytesMut::new();
        output.encode(&mut bytes);
        self.write_bytes(&bytes);
    }

    /// A daemon that is gone, or that has closed the pipe, is no reason to complain.
    fn write_bytes(&self, bytes: &[u8]) {
        drop(self.output.lock().unwrap().write_all(bytes));
    }

    /// Keeps the pipe to itself for ever.
    fn block(&self) -> ! {
        let _output = self.output.lock().unwrap();
        steps::hang()
    }

    fn close_pipe(&self) {
        self.input.shutdown(Shutdown::Both).unwrap();
    }
}

/// A message's body as text, whatever it is.
fn text(task: &Task) -> String {
    String::from_utf8_lossy(&task.message).into_owned()
}
