//! One message: starts its program, writes its input, reads its output, stops it if required, and waits for
//! its end.

use std::io;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use nix::errno::Errno;
use rustix::process::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep_until, timeout};

use super::answer::{End, answer};
use super::files::Files;
use super::guard::Guard;
use super::relay::{LastLines, Own, Relay, prefix_of};
use super::settings::{Settings, Terms};
use super::variables::{METADATA, RESULT, awaits_reply, variables};
use ganger_config::model::WorkerCommand;
use ganger_core::names;
use ganger_pool::worker::error::SpawnError;
use ganger_pool::worker::leader::Leader;
use ganger_pool::worker::{exit, launch};
use ganger_protocol::{Output, Status, Task};
use ganger_queue::delivery::Exit;

/// Placeholder for the file with the body, in the program's arguments.
const BODY_FILE: &str = "{}";
/// Time for which remaining children of a program may hold its stdout or stderr open.
const DRAIN_WITHIN: Duration = Duration::from_millis(500);
/// Size of a read.
const CHUNK_BYTES: usize = 16 << 10;
/// Minimum interval between lines of stderr that are sent as the message's progress.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);
/// Maximum length of such a line, in characters.
const PROGRESS_CHARS_MAX: usize = 200;

/// State that all messages share.
#[derive(Debug)]
pub(super) struct Setup<'a> {
    pub(super) settings: &'a Settings,
    pub(super) terms: Terms,
    pub(super) command: &'a WorkerCommand,
    pub(super) guard: &'a Guard,
    /// Channel for notes while the work continues.
    pub(super) notes: mpsc::Sender<Output>,
}

/// Result of a message.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) output: Output,
    /// Why no other message's program will start either.
    pub(super) hopeless: Option<String>,
}

/// Processes one message. `number` is this worker's own for it; a notification of `stop` abandons it.
pub(super) async fn work(setup: &Setup<'_>, task: Task, number: u64, stop: &Notify) -> Done {
    let id = task.id;
    let mut done = match Script::start(setup, task, number) {
        Ok(script) => Done {
            output: answer(script.follow(stop).await),
            hopeless: None,
        },
        Err(trouble) => trouble.into_done(),
    };
    done.output.id = id.filter(|_| setup.terms.version2);
    done
}

/// Reason why a program was not started.
#[derive(Debug, thiserror::Error)]
enum NotStarted {
    #[error("writing the message's files failed: {0}")]
    Files(io::Error),
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    #[error("watching it failed: {0}")]
    Watch(io::Error),
}

impl NotStarted {
    /// Converts the reason to an answer. The message is not at fault and not charged, except for arguments
    /// that are too long.
    fn into_done(self) -> Done {
        let cause = match &self {
            Self::Spawn(SpawnError::Program { cause, .. }) => cause.raw_os_error(),
            _ => None,
        };
        let why = self.to_string();
        if cause == Some(Errno::E2BIG as i32) {
            return Done {
                output: Output::new(Status::UNKNOWN_ERROR, None, why),
                hopeless: None,
            };
        }
        let is_passing = !matches!(self, Self::Spawn(_))
            || [Errno::EAGAIN, Errno::ENOMEM, Errno::EMFILE, Errno::ENFILE]
                .iter()
                .any(|passing| cause == Some(*passing as i32));
        let mut relay = Relay::to(Own::Stderr, String::new());
        relay.take(
            format!("{why}; the message is returned\n").as_bytes(),
            |_| (),
        );
        Done {
            output: Output::new(Status::REQUEUE, None, ""),
            hopeless: (!is_passing).then_some(why),
        }
    }
}

/// A running program.
#[derive(Debug)]
struct Script<'a> {
    setup: &'a Setup<'a>,
    leader: Leader,
    files: Files,
    stdin: Option<(OwnedFd, Bytes)>,
    stdout: Stream,
    stderr: Stream,
    printed: Printed,
    words: Words<'a>,
    awaits_reply: bool,
    /// Time and kind of the next signal to it.
    next: Option<(Instant, Signal)>,
    /// Time at which the daemon will have killed us.
    deadline: Option<Instant>,
    is_abandoned: bool,
}

impl<'a> Script<'a> {
    fn start(setup: &'a Setup<'a>, task: Task, number: u64) -> Result<Self, NotStarted> {
        let now = Instant::now();
        let in_file = setup.command.args.iter().any(|arg| is_body_file(arg));
        let files = Files::write(setup.guard.directory(), number, &task, in_file);
        let files = files.map_err(NotStarted::Files)?;
        let command = command_for(setup.command, &task, &files);
        let mut child = launch::start_guarded(&command, setup.guard.stdin())?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let leader = Leader::watch(child).map_err(NotStarted::Watch)?;
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err(NotStarted::Watch(io::Error::other(
                "a stream is not a pipe",
            )));
        };
        let version2 = setup.terms.version2;
        let awaits_reply = awaits_reply(&task, version2);
        let prefix = match setup.settings.concurrency {
            1 => String::new(),
            _ => prefix_of(&task),
        };
        let stdout_relay = (!awaits_reply).then(|| Relay::to(Own::Stdout, prefix.clone()));
        Ok(Self {
            stdout: Stream::of(stdout.into()).map_err(NotStarted::Watch)?,
            stderr: Stream::of(stderr.into()).map_err(NotStarted::Watch)?,
            printed: Printed {
                kept: Vec::new(),
                max: setup.terms.frame_bytes_max,
                is_too_large: false,
                relay: stdout_relay,
            },
            words: Words {
                relay: Relay::to(Own::Stderr, prefix),
                last: LastLines::default(),
                progress: version2.then_some((&setup.notes, task.id)),
                told_at: now,
            },
            next: give_up_at(&task, version2, now).map(|at| (at, Signal::TERM)),
            deadline: task
                .milliseconds_left
                .and_then(|left| now.checked_add(Duration::from_millis(left))),
            stdin: Some((stdin.into(), task.message)).filter(|_| !in_file),
            setup,
            leader,
            files,
            awaits_reply,
            is_abandoned: false,
        })
    }

    /// Waits until the program has ended, and nothing of it is left.
    async fn follow(mut self, stop: &Notify) -> End {
        let mut feed = pin!(feed(self.stdin.take()));
        let mut is_fed = false;
        loop {
            tokio::select! {
                () = &mut feed, if !is_fed => is_fed = true,
                bytes = self.stdout.next() => self.printed.take(bytes),
                bytes = self.stderr.next() => self.words.take(bytes),
                // That it can't be waited for is told by what comes next.
                _ = self.leader.exited() => break,
                () = stop.notified(), if !self.is_abandoned => self.abandon(),
                signal = due(self.next) => match signal {
                    Signal::TERM => self.abandon(),
                    signal => self.signal(signal),
                },
            }
            if self.printed.is_too_large && self.awaits_reply {
                self.signal(Signal::KILL);
            }
        }
        // It may have left someone behind who still passes its words on.
        let (stdout, stderr) = (&mut self.stdout, &mut self.stderr);
        let (printed, words) = (&mut self.printed, &mut self.words);
        let rest = async {
            while stdout.is_open() || stderr.is_open() {
                tokio::select! {
                    bytes = stdout.next() => printed.take(bytes),
                    bytes = stderr.next() => words.take(bytes),
                }
            }
        };
        // Whoever holds them for longer is not waited for.
        drop(timeout(DRAIN_WITHIN, rest).await);
        self.end().await
    }

    async fn end(mut self) -> End {
        let exit = match self.leader.ended().await {
            Ok(status) => exit::from_status(&status, || false),
            Err(_) => Exit::default(),
        };
        // An error means that there is no guard, which the session notices.
        drop(self.setup.guard.forget(self.leader.pid()));
        self.words.finish();
        End {
            exit,
            is_abandoned: self.is_abandoned,
            printed: self.printed.finish(),
            last_lines: self.words.last.text(),
            said: self.files.said(),
            awaits_reply: self.awaits_reply,
            version2: self.setup.terms.version2,
        }
    }

    /// Asks it to end, and ensures that it does, before the daemon ends us.
    fn abandon(&mut self) {
        let now = Instant::now();
        self.is_abandoned = true;
        self.signal(Signal::TERM);
        let left = self
            .deadline
            .map(|at| at.saturating_duration_since(now) / 2);
        let grace = self.setup.settings.grace;
        let grace = left.map_or(grace, |left| left.min(grace));
        self.next = Some((now + grace, Signal::KILL));
    }

    fn signal(&mut self, signal: Signal) {
        self.next = None;
        self.leader.signal_group(signal);
    }
}

/// Waits for that time.
async fn due(next: Option<(Instant, Signal)>) -> Signal {
    match next {
        Some((at, signal)) => {
            sleep_until(at).await;
            signal
        }
        None => std::future::pending().await,
    }
}

/// Returns the time to give up. A version 1 worker is not told to stop: it is given a timeout.
fn give_up_at(task: &Task, version2: bool, now: Instant) -> Option<Instant> {
    let mut headers = task.headers.iter().filter(|_| !version2);
    let (_, millis) = headers.find(|(name, _)| name == names::TIMEOUT_HEADER)?;
    now.checked_add(Duration::from_millis(millis.parse().ok()?))
}

/// Returns whether an argument is the placeholder, by itself or as the value of an option.
fn is_body_file(arg: &str) -> bool {
    arg == BODY_FILE || arg.ends_with("={}") || arg.ends_with("@{}")
}

fn command_for(command: &WorkerCommand, task: &Task, files: &Files) -> WorkerCommand {
    let mut command = command.clone();
    for arg in &mut command.args {
        if is_body_file(arg) {
            arg.truncate(arg.len() - BODY_FILE.len());
            arg.push_str(&files.body.to_string_lossy());
        }
    }
    command.env.extend(variables(task, Timestamp::now()));
    for (name, path) in [(METADATA, &files.metadata), (RESULT, &files.result)] {
        let path = path.to_string_lossy().into_owned();
        command.env.insert(name.into(), path);
    }
    command
}

/// Writes the body. A program need not read it.
async fn feed(stdin: Option<(OwnedFd, Bytes)>) {
    let Some((stdin, body)) = stdin else {
        return;
    };
    if let Ok(mut stdin) = Sender::from_owned_fd(stdin) {
        drop(stdin.write_all(&body).await);
    }
}

/// A stream of a program.
#[derive(Debug)]
struct Stream {
    pipe: Option<Receiver>,
    chunk: Box<[u8]>,
}

impl Stream {
    fn of(pipe: OwnedFd) -> io::Result<Self> {
        Ok(Self {
            pipe: Some(Receiver::from_owned_fd(pipe)?),
            chunk: vec![0; CHUNK_BYTES].into(),
        })
    }

    fn is_open(&self) -> bool {
        self.pipe.is_some()
    }

    /// Returns the next bytes, none at the end; after that it waits for ever. Cancel-safe.
    async fn next(&mut self) -> &[u8] {
        let Some(pipe) = &mut self.pipe else {
            return std::future::pending().await;
        };
        let read = pipe.read(&mut self.chunk).await.unwrap_or_default();
        if read == 0 {
            self.pipe = None;
        }
        &self.chunk[..read]
    }
}

/// Stdout of a program.
#[derive(Debug)]
struct Printed {
    kept: Vec<u8>,
    max: usize,
    is_too_large: bool,
    /// Relay to the log, if nobody waits for a reply.
    relay: Option<Relay>,
}

impl Printed {
    fn take(&mut self, bytes: &[u8]) {
        if let Some(relay) = &mut self.relay {
            relay.take(bytes, |_| ());
        }
        if self.is_too_large || self.kept.len() + bytes.len() > self.max {
            self.is_too_large = true;
            self.kept = Vec::new();
        } else {
            self.kept.extend_from_slice(bytes);
        }
    }

    fn finish(mut self) -> Result<Bytes, usize> {
        if let Some(relay) = &mut self.relay {
            relay.finish(|_| ());
        }
        match self.is_too_large {
            true => Err(self.max),
            false => Ok(self.kept.into()),
        }
    }
}

/// Stderr of a program.
#[derive(Debug)]
struct Words<'a> {
    relay: Relay,
    last: LastLines,
    /// Channel for lines as progress, and the message's id.
    progress: Option<(&'a mpsc::Sender<Output>, Option<u64>)>,
    told_at: Instant,
}

impl Words<'_> {
    fn take(&mut self, bytes: &[u8]) {
        let last = &mut self.last;
        self.relay.take(bytes, |line| last.push(line));
        self.tell_progress();
    }

    fn finish(&mut self) {
        let last = &mut self.last;
        self.relay.finish(|line| last.push(line));
    }

    /// Sends a line as progress, which shows that the program is alive.
    fn tell_progress(&mut self) {
        let now = Instant::now();
        let Some((notes, id)) = self
            .progress
            .filter(|_| self.told_at + PROGRESS_EVERY <= now)
        else {
            return;
        };
        let Some(line) = self.last.last() else {
            return;
        };
        let line: String = line.chars().take(PROGRESS_CHARS_MAX).collect();
        self.told_at = now;
        // Where too many wait to be told, another line will do.
        drop(notes.try_send(Output::new(Status::PROGRESS, id, line)));
    }
}
