//! The steps that a message may ask for. Those that take an argument have it after a colon.
//!
//! | step | what it does |
//! |---|---|
//! | `wait:FILE` | waits until the file is there, beside the record |
//! | `sleep:MS` | waits so long |
//! | `until-cancelled` | waits for `__cancel__` with the message's id |
//! | `until-told:LINE` | waits for that control line |
//! | `hang` | never goes on, whatever signal asks |
//! | `block` | the same, and no other message is answered any more, as where an event loop is blocked |
//! | `answer:STATUS`, `answer:STATUS:MS` | answers; with a retry's delay |
//! | `unless:FILE:STATUS` | answers so and stops here while the file is not there |
//! | `until-attempt:N:STATUS`, `…:STATUS:MS` | answers so and stops here before that attempt (version 2) |
//! | `reply`, `reply:QUEUE` | answers 201 with a header and `re: ` before the body |
//! | `reply-bytes:N` | answers 201 with so many bytes |
//! | `switch:N` | replies to its own queue N times, then to the reply-to: a long task in parts |
//! | `emit:QUEUE:TEXT`, `log:LEVEL:TEXT`, `progress:TEXT` | the note of that name; `|` is a line break in a log |
//! | `flood:FILE` | LOG frames until the file is there; records how many they were |
//! | `print:TEXT`, `complain:TEXT` | a line to stdout, to stderr |
//! | `print-bytes:N`, `print-lines:N`, `print-json:LEVEL:TEXT` | such lines to stdout |
//! | `note:env:NAME`, `note:header:NAME`, `note:property:NAME` | records it |
//! | `note:cwd`, `note:queue`, `note:form`, `note:open-files`, `note:nice` | records it |
//! | `memory:MIB` | takes so much memory and keeps it |
//! | `bare:TEXT` | answers with a frame that is that text, and no map |
//! | `twice`, `wrong-id`, `garbage`, `half-frame`, `length:HEX` | breaks the protocol |
//! | `close-pipe` | closes the pipe and goes on |
//! | `book` | books the body in the ledger beside the record; records it if it can't |
//! | `fibonacci` | answers 201 with the number that the body asks for |
//! | `fork:group`, `fork:session` | leaves a child that holds the pipe, stdout and stderr |
//! | `die:kill`, `die:abort`, `die:exit:CODE` | ends the process |
//! | `die-unless:FILE` | the same with SIGKILL while the file is not there |

use std::process::{self, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use ganger_protocol::{Output, Status, Task};
use ganger_queue::delivery::Property;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::signal::{Signal, raise};
use nix::unistd::{Pid, getsid};
use tokio::time::Instant;

use super::{Worker, complain, idle, text};
use crate::harness::{Event, look};

/// What goes before a body's steps.
const PREFIX: &str = "mode:";
/// How often a file is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Goes through a message's steps.
pub(super) fn take(worker: &Worker, task: &Task) {
    let body = text(task);
    let steps = match body.strip_prefix(PREFIX) {
        Some(rest) => rest.split(' ').next().unwrap_or_default(),
        None => &worker.options.mode,
    };
    let mut job = Job {
        worker,
        task,
        body: &body,
        is_answered: false,
    };
    for step in steps.split(',').filter(|step| !step.is_empty()) {
        let (name, argument) = step.split_once(':').unwrap_or((step, ""));
        job.step(name, argument);
        if job.is_answered && matches!(name, "unless" | "until-attempt") {
            return;
        }
    }
    if !job.is_answered {
        job.answer(Status::DONE, "");
    }
}

struct Job<'a> {
    worker: &'a Worker,
    task: &'a Task,
    body: &'a str,
    is_answered: bool,
}

impl Job<'_> {
    fn step(&mut self, name: &str, argument: &str) {
        match name {
            "wait" => self.wait(argument),
            "sleep" => sleep(Duration::from_millis(number(argument))),
            "until-cancelled" => self.worker.wait_for_cancel(self.task.id.unwrap()),
            "until-told" => self.worker.wait_to_be_told(argument),
            "hang" => hang(),
            "block" => self.worker.block(),
            "print" => print(argument),
            "complain" => complain(argument),
            "print-lines" => {
                (0..number(argument)).for_each(|line: u32| print(&format!("line {line}")))
            }
            "print-json" => print_json(argument),
            "print-bytes" => print(&"x".repeat(number(argument))),
            "note" => self.note(argument),
            "flood" => self.flood(argument),
            "memory" => take_memory(number(argument)),
            "close-pipe" => self.worker.close_pipe(),
            "fork" => self.fork(argument),
            "book" => self.book(),
            "die" => die(argument),
            "die-unless" if !self.is_there(argument) => die("kill"),
            "die-unless" => {}
            _ => self.say(name, argument),
        }
    }

    /// The steps that write to the pipe.
    fn say(&mut self, name: &str, argument: &str) {
        let (first, rest) = argument.split_once(':').unwrap_or((argument, ""));
        match name {
            "answer" => self.answer_with(first, rest),
            "unless" if !self.is_there(first) => self.answer_with(rest, ""),
            "until-attempt" if self.task.attempt < Some(number(first)) => {
                let (status, retry_after_ms) = rest.split_once(':').unwrap_or((rest, ""));
                self.answer_with(status, retry_after_ms);
            }
            "unless" | "until-attempt" => {}
            "reply" => self.reply(argument, format!("re: {}", self.body)),
            "reply-bytes" => self.reply("", "y".repeat(number(argument))),
            "switch" => self.switch(number(argument)),
            "fibonacci" => self.reply("", fibonacci(number(self.body)).to_string()),
            "emit" => self.write(Output {
                reply_queue: Some(first.into()),
                ..self.output(Status::EMIT, rest)
            }),
            "log" => self.write(Output {
                headers: Some(vec![
                    ("level".into(), first.into()),
                    ("step".into(), "log".into()),
                ]),
                ..self.output(Status::LOG, rest.replace('|', "\n"))
            }),
            "progress" => self.write(self.output(Status::PROGRESS, argument)),
            "bare" => self.answer_barely(argument),
            "twice" => self.twice(),
            "wrong-id" => self.write(Output {
                id: Some(u64::MAX),
                ..self.output(Status::DONE, "")
            }),
            // A frame of five bytes that are no MessagePack map.
            "garbage" => self
                .worker
                .write_bytes(&[0, 0, 0, 5, 0xc1, 0xff, 0x00, 0x93, 0x01]),
            "half-frame" => self.worker.write_bytes(&[0, 0, 0, 100, 0x82, 0xa1]),
            "length" => self
                .worker
                .write_bytes(&u32::from_str_radix(argument, 16).unwrap().to_be_bytes()),
            _ => panic!("a step of the modes-worker: `{name}`"),
        }
    }

    fn flood(&self, file: &str) {
        let mut frames = 0;
        while !self.is_there(file) {
            for _ in 0..256 {
                self.write(self.output(Status::LOG, format!("flood {frames} {}", "x".repeat(100))));
                frames += 1;
            }
            self.write(self.output(Status::PROGRESS, format!("{frames} frames")));
        }
        let note = format!("flooded {frames}");
        self.worker
            .recorder
            .write(Event::Noted, &note, self.task.attempt);
    }

    fn output(&self, status: Status, message: impl Into<String>) -> Output {
        let id = self
            .task
            .id
            .filter(|_| self.worker.options.concurrency.is_some());
        Output::new(status, id, Bytes::from(message.into()))
    }

    fn write(&self, output: Output) {
        self.worker.write(&output);
    }

    fn answer_with(&mut self, status: &str, retry_after_ms: &str) {
        let status = Status(status.parse().unwrap());
        let delay = (!retry_after_ms.is_empty()).then(|| number(retry_after_ms));
        let output = Output {
            retry_after_ms: delay,
            ..self.output(status, format!("the word on {}", self.body))
        };
        self.finish(output);
    }

    fn answer(&mut self, status: Status, message: &str) {
        self.finish(self.output(status, message));
    }

    /// Writes what may be an answer; what says that the work is done is recorded before.
    fn finish(&mut self, output: Output) {
        self.is_answered |= !output.status.is_note();
        if matches!(output.status, Status::DONE | Status::DONE_WITH_REPLY) {
            self.worker
                .recorder
                .write(Event::Done, self.body, self.task.attempt);
        }
        self.write(output);
    }

    fn reply(&mut self, queue: &str, message: String) {
        let output = Output {
            headers: Some(vec![("answered-by".into(), super::NAME.into())]),
            reply_queue: (!queue.is_empty()).then(|| queue.into()),
            ..self.output(Status::DONE_WITH_REPLY, message)
        };
        self.finish(output);
    }

    fn book(&self) {
        let database = self.worker.recorder.beside("ledger.db");
        if !super::ledger::book(&database, self.body) {
            let note = format!("refused {}", self.body);
            self.worker
                .recorder
                .write(Event::Noted, &note, self.task.attempt);
        }
    }

    fn switch(&mut self, left: u64) {
        match left.checked_sub(1) {
            Some(left) => self.reply(&self.task.queue.clone(), format!("{PREFIX}switch:{left}")),
            None => self.reply("", "all parts done".into()),
        }
    }

    fn answer_barely(&mut self, reason: &str) {
        self.is_answered = true;
        let length = u8::try_from(reason.len()).unwrap();
        let head = [0, 0, 0, 2 + length, 0xd9, length];
        self.worker
            .write_bytes(&[&head, reason.as_bytes()].concat());
    }

    /// Both in one write, so that the daemon has sent nothing between them.
    fn twice(&mut self) {
        self.is_answered = true;
        self.worker
            .recorder
            .write(Event::Done, self.body, self.task.attempt);
        let mut bytes = BytesMut::new();
        self.output(Status::DONE, "").encode(&mut bytes);
        self.output(Status::DONE, "").encode(&mut bytes);
        self.worker.write_bytes(&bytes);
    }

    fn is_there(&self, file: &str) -> bool {
        self.worker.recorder.beside(file).exists()
    }

    fn wait(&self, file: &str) {
        while !self.is_there(file) {
            std::thread::park_timeout(LOOK_EVERY);
        }
    }

    fn note(&self, what: &str) {
        let (kind, name) = what.split_once(':').unwrap_or((what, ""));
        let value = match kind {
            "env" => std::env::var(name).ok(),
            "cwd" => Some(std::env::current_dir().unwrap().display().to_string()),
            "queue" => Some(self.task.queue.clone()),
            "form" => Some(if self.task.binary { "bin" } else { "str" }.into()),
            "header" => {
                let found = self.task.headers.iter().find(|(header, _)| header == name);
                found.map(|(_, value)| value.clone())
            }
            "property" => {
                let found = self
                    .task
                    .properties
                    .iter()
                    .find(|(property, _)| property == name);
                found.map(|(_, value)| match value {
                    Property::Text(text) => text.clone(),
                    other => format!("{other:?}"),
                })
            }
            "open-files" => Some(getrlimit(Resource::RLIMIT_NOFILE).unwrap().0.to_string()),
            "nice" => Some(
                rustix::process::getpriority_process(None)
                    .unwrap()
                    .to_string(),
            ),
            _ => panic!("something to note: `{what}`"),
        };
        let value = value.as_deref().unwrap_or("(none)");
        self.worker
            .recorder
            .write(Event::Noted, &format!("{what}={value}"), self.task.attempt);
    }

    /// The child outlives this process.
    fn fork(&self, kind: &str) {
        // Sockets are closed on exec unless one asks otherwise.
        fcntl(&self.worker.input, FcntlArg::F_SETFD(FdFlag::empty())).unwrap();
        let mut child = match kind {
            "session" => Command::new("setsid"),
            _ => Command::new("env"),
        };
        child.args(["sh", "-c", "sleep 1000"]).stdin(Stdio::null());
        let child = Pid::from_raw(child.spawn().unwrap().id().cast_signed());
        if kind == "session" {
            // Until it has left the group, it dies with that.
            let left = look(|| (getsid(Some(child)) == Ok(child)).then_some(()));
            left.expect("a session of its own");
        }
    }
}

fn number<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
    text.parse()
        .unwrap_or_else(|error| panic!("a number: `{text}`: {error:?}"))
}

fn fibonacci(n: u32) -> u64 {
    (0..n).fold((0, 1), |(a, b), _| (b, a + b)).0
}

fn sleep(time: Duration) {
    let until = Instant::now() + time;
    while Instant::now() < until {
        std::thread::park_timeout(until.saturating_duration_since(Instant::now()));
    }
}

/// From now on SIGTERM does nothing.
pub(super) fn ignore_sigterm() {
    signal_hook::flag::register(
        signal_hook::consts::SIGTERM,
        Arc::new(AtomicBool::new(false)),
    )
    .unwrap();
}

pub(super) fn hang() -> ! {
    ignore_sigterm();
    idle()
}

#[expect(clippy::print_stdout, reason = "a worker's stdout is what is tested")]
fn print(text: &str) {
    println!("{text}");
}

fn print_json(argument: &str) {
    let (level, message) = argument.split_once(':').unwrap();
    print(&serde_json::json!({ "level": level, "message": message, "n": 7 }).to_string());
}

fn take_memory(mebibytes: usize) {
    // Written to, for memory that is only promised does not count.
    Box::leak(vec![1_u8; mebibytes << 20].into_boxed_slice());
}

fn die(how: &str) -> ! {
    match how.split_once(':').unwrap_or((how, "")) {
        ("exit", code) => process::exit(number(code)),
        ("abort", _) => process::abort(),
        ("kill", _) => {
            raise(Signal::SIGKILL).unwrap();
            idle()
        }
        _ => panic!("a way to die: `{how}`"),
    }
}
