//! A worker with one fault, named on its command line: written without ganger's codec, as someone
//! who has misread one line of the protocol would. Without a fault it does all that it must.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// What makes the test binary this worker: its first argument.
pub(crate) const NAME: &str = "faulty-worker";

/// How long a message takes whose body says `slow`.
const SLOW: Duration = Duration::from_millis(400);
/// Longer frames kill one that has that fault.
const SHORT_BYTES_MAX: usize = 1 << 20;

/// Works until it is asked to leave. The arguments are the fault and the version.
pub(crate) fn run(args: &[String]) -> ! {
    let (fault, version) = match args {
        [fault, version] => (fault.clone(), version.clone()),
        _ => panic!("the fault and the version: {args:?}"),
    };
    let mut control = Control::default();
    let name = control.wait_for_line().unwrap_or_default();
    let wrong = if fault == "wrong-pipe" { "Core" } else { "" };
    let path = format!("/tmp/CoreFxPipe_{wrong}{name}");
    let Ok(pipe) = UnixStream::connect(&path) else {
        complain(&format!("there is no {path}"));
        process::exit(3);
    };
    let mut worker = Worker {
        fault,
        pipe,
        control,
        answered: 0,
        read: Vec::new(),
    };
    if version == "2" && !worker.has("no-hello") {
        worker.say_hello();
    }
    worker.work(version == "2")
}

#[expect(clippy::print_stderr, reason = "a worker's stderr is what is tested")]
fn complain(text: &str) {
    eprintln!("{text}");
}

struct Worker {
    fault: String,
    pipe: UnixStream,
    control: Control,
    answered: u32,
    /// What was read beyond the frame at hand.
    read: Vec<u8>,
}

impl Worker {
    fn has(&self, fault: &str) -> bool {
        self.fault == fault
    }

    fn say_hello(&mut self) {
        let concurrency = if self.has("bad-hello") { "many" } else { "2" };
        let headers = map(&[
            ("sdk", text("none")),
            ("version", text("0")),
            ("concurrency", text(concurrency)),
        ]);
        let hello = map(&[("0", text("")), ("1", vec![100]), ("2", headers)]);
        self.write_frame(&hello);
    }

    fn work(&mut self, ids: bool) -> ! {
        while let Some(frame) = self.next_frame() {
            if self.has("strict-lines") {
                self.look_at_stdin();
            }
            let task = match self.understood(&frame) {
                Some(task) => task,
                None if self.has("credulous") => continue,
                None => process::exit(2),
            };
            self.take(&task, ids);
        }
        if self.has("stays") {
            loop {
                std::thread::park();
            }
        }
        if self.has("needs-quit") {
            while self
                .control
                .wait_for_line()
                .is_some_and(|line| line != "__quit__")
            {}
            if !self.control.has_quit {
                loop {
                    std::thread::park();
                }
            }
        }
        process::exit(if self.has("ends-badly") { 7 } else { 0 })
    }

    /// What the frame says, as far as it matters here.
    fn understood(&self, frame: &[u8]) -> Option<BTreeMap<String, Value>> {
        let mut at = frame;
        let value = Value::read(&mut at)?;
        let Value::Map(pairs) = value else {
            return None;
        };
        at.is_empty().then_some(pairs)
    }

    fn take(&mut self, task: &BTreeMap<String, Value>, ids: bool) {
        let id = match task.get("4") {
            Some(Value::Integer(id)) => *id,
            _ => 0,
        };
        let body = match task.get("0") {
            Some(Value::Text(body)) => body.clone(),
            _ => String::new(),
        };
        self.refuse(task, &body);
        if body == "slow" {
            self.be_slow(id);
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "that is the fault"
        )]
        let id = match self.fault.as_str() {
            "wrong-id" => id + 1,
            "ids-as-floats" => id as f64 as u64,
            _ => id,
        };
        let id = (ids && !self.has("no-ids")).then_some(id);
        self.answer(&body, id);
    }

    /// Ends over what this worker can't stand.
    fn refuse(&self, task: &BTreeMap<String, Value>, body: &str) {
        let headers = match task.get("3") {
            Some(Value::Map(headers)) => headers.clone(),
            _ => BTreeMap::new(),
        };
        let correlation = matches!(task.get("1"), Some(Value::Text(id)) if id.contains('\n'));
        let dies = match self.fault.as_str() {
            "fixed-keys" => task
                .keys()
                .any(|key| !matches!(key.as_str(), "0" | "1" | "2" | "3" | "4" | "5" | "6" | "7")),
            "needs-a-body" => body.is_empty() && matches!(task.get("0"), Some(Value::Text(_))),
            "text-only" => matches!(task.get("0"), Some(Value::Bytes)),
            "named-headers" => headers.contains_key(""),
            "parses-timeout" => {
                matches!(headers.get("TimeoutMilliseconds"), Some(Value::Text(ms)) if ms.parse::<u32>().is_err())
            }
            "one-line-ids" => correlation,
            "one-shot" => self.answered > 0,
            _ => false,
        };
        if dies {
            complain("this is more than I can take");
            process::exit(1);
        }
    }

    fn be_slow(&mut self, id: u64) {
        let cancel = format!("__cancel__ {id}");
        let until = tokio::time::Instant::now() + SLOW;
        loop {
            let left = until.saturating_duration_since(tokio::time::Instant::now());
            if left.is_zero() {
                return;
            }
            let Some(line) = self.control.line_within(left) else {
                continue;
            };
            match self.fault.as_str() {
                "drops-work" if line == "__quit__" => process::exit(0),
                // And again when it is done.
                "answers-cancel-twice" if line == cancel => self.answer("", Some(id)),
                "answers-yield-twice" if line == "__context_switch__" => self.answer("", None),
                _ => {}
            }
        }
    }

    fn answer(&mut self, body: &str, id: Option<u64>) {
        self.answered += 1;
        let mut pairs = vec![("0", text(body)), ("1", vec![0xcc, 200])];
        pairs.extend(id.map(|id| ("4", [vec![0xcf], id.to_be_bytes().to_vec()].concat())));
        match self.fault.as_str() {
            "no-answer" => {}
            "two-answers" => {
                self.write_frame(&map(&pairs));
                self.write_frame(&map(&pairs));
            }
            "garbage" => self.write(b"{\"status\": 200}\n"),
            "no-status" => self.write_frame(&map(&pairs[..1])),
            "bad-map" => self.write_frame(b"\xc1\xff\x00"),
            "bare-text" => self.write_frame(&text("it has failed")),
            "little-endian" => {
                let answer = map(&pairs);
                let length = u32::try_from(answer.len()).unwrap().to_le_bytes();
                self.write(&[&length, &*answer].concat());
            }
            "counts-characters" => {
                let answer = map(&pairs);
                let short = body.len() - body.chars().count();
                let length = u32::try_from(answer.len() - short).unwrap().to_be_bytes();
                self.write(&[&length, &*answer].concat());
            }
            _ => self.write_frame(&map(&pairs)),
        }
    }

    fn write_frame(&mut self, frame: &[u8]) {
        let length = u32::try_from(frame.len()).unwrap().to_be_bytes();
        self.write(&[&length, frame].concat());
    }

    /// Whoever does not read any more is told nothing.
    fn write(&mut self, bytes: &[u8]) {
        drop(self.pipe.write_all(bytes));
    }

    /// None at the end of the pipe.
    fn next_frame(&mut self) -> Option<Vec<u8>> {
        if self.has("reads-once") {
            return self.read_once();
        }
        let length = self.take_bytes(4)?;
        let length = u32::from_be_bytes(length.try_into().unwrap());
        let length = usize::try_from(length).unwrap();
        let too_long = length > 1 << 30 || self.has("short-frames") && length > SHORT_BYTES_MAX;
        if too_long && !self.has("credulous") {
            process::exit(2);
        }
        self.take_bytes(length)
    }

    /// As if each read were a frame.
    fn read_once(&mut self) -> Option<Vec<u8>> {
        let mut chunk = vec![0; 1 << 16];
        let count = self.pipe.read(&mut chunk).unwrap_or_default();
        let (length, frame) = chunk[..count].split_first_chunk::<4>()?;
        assert_eq!(
            usize::try_from(u32::from_be_bytes(*length)).unwrap(),
            frame.len()
        );
        Some(frame.to_vec())
    }

    fn take_bytes(&mut self, count: usize) -> Option<Vec<u8>> {
        let mut chunk = vec![0; 1 << 16];
        while self.read.len() < count {
            match self.pipe.read(&mut chunk) {
                Ok(0) => return None,
                Ok(read) => self.read.extend_from_slice(&chunk[..read]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
        Some(self.read.drain(..count).collect())
    }

    /// What the daemon has said so far.
    fn look_at_stdin(&mut self) {
        while let Some(line) = self.control.line_within(Duration::ZERO) {
            let known = ["__quit__", "__context_switch__"].contains(&line.as_str())
                || line.starts_with("__cancel__ ");
            if !known {
                complain(&format!("what is {line:?}?"));
                process::exit(4);
            }
        }
    }
}

/// The lines on stdin.
#[derive(Default)]
struct Control {
    read: Vec<u8>,
    ended: bool,
    has_quit: bool,
}

impl Control {
    fn wait_for_line(&mut self) -> Option<String> {
        while !self.ended {
            if let Some(line) = self.line_within(Duration::from_secs(3600)) {
                return Some(line);
            }
        }
        None
    }

    fn line_within(&mut self, time: Duration) -> Option<String> {
        if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.read.drain(..=end).collect();
            let line = String::from_utf8(line[..end].to_vec()).unwrap();
            self.has_quit |= line == "__quit__";
            return Some(line);
        }
        if self.ended {
            std::thread::park_timeout(time);
            return None;
        }
        let stdin = std::io::stdin();
        let mut ready = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
        let millis = PollTimeout::try_from(time).unwrap_or(PollTimeout::NONE);
        if poll(&mut ready, millis).unwrap() == 0 {
            return None;
        }
        let mut chunk = [0; 4096];
        let count = nix::unistd::read(stdin.as_fd(), &mut chunk).unwrap();
        self.ended = count == 0;
        self.read.extend_from_slice(&chunk[..count]);
        self.read
            .contains(&b'\n')
            .then(|| self.line_within(Duration::ZERO))?
    }
}

/// A map of few keys.
fn map(pairs: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut out = vec![0x80 | u8::try_from(pairs.len()).unwrap()];
    for (key, value) in pairs {
        out.extend(text(key));
        out.extend(value);
    }
    out
}

fn text(text: &str) -> Vec<u8> {
    let length = u32::try_from(text.len()).unwrap().to_be_bytes();
    [&[0xdb][..], &length, text.as_bytes()].concat()
}

/// A value of MessagePack, as far as it matters here.
#[derive(Clone)]
enum Value {
    Text(String),
    Bytes,
    Integer(u64),
    Map(BTreeMap<String, Value>),
    Other,
}

impl Value {
    fn read(at: &mut &[u8]) -> Option<Self> {
        let [kind] = take(at)?;
        match kind {
            0x00..=0x7f => Some(Self::Integer(kind.into())),
            0x80..=0x8f => Self::map(at, usize::from(kind & 0x0f)),
            0x90..=0x9f => Self::list(at, usize::from(kind & 0x0f)),
            0xa0..=0xbf => Self::text(at, usize::from(kind & 0x1f)),
            0xc0 | 0xc2 | 0xc3 | 0xe0..=0xff => Some(Self::Other),
            0xc4..=0xc6 => {
                let length = length(at, kind - 0xc4)?;
                skip(at, length).map(|()| Self::Bytes)
            }
            0xcb | 0xd3 => skip(at, 8).map(|()| Self::Other),
            0xcc..=0xcf => {
                let bytes = 1 << (kind - 0xcc);
                let number = at.get(..bytes)?;
                *at = &at[bytes..];
                Some(Self::Integer(
                    number.iter().fold(0, |n, byte| n << 8 | u64::from(*byte)),
                ))
            }
            0xd6 => skip(at, 5).map(|()| Self::Other),
            0xd9..=0xdb => {
                let length = length(at, kind - 0xd9)?;
                Self::text(at, length)
            }
            0xde => {
                let length = length(at, 1)?;
                Self::map(at, length)
            }
            _ => None,
        }
    }

    fn text(at: &mut &[u8], length: usize) -> Option<Self> {
        let bytes = at.get(..length)?;
        *at = &at[length..];
        String::from_utf8(bytes.to_vec()).ok().map(Self::Text)
    }

    fn list(at: &mut &[u8], length: usize) -> Option<Self> {
        for _ in 0..length {
            Self::read(at)?;
        }
        Some(Self::Other)
    }

    fn map(at: &mut &[u8], length: usize) -> Option<Self> {
        let mut pairs = BTreeMap::new();
        for _ in 0..length {
            let Self::Text(key) = Self::read(at)? else {
                return None;
            };
            pairs.insert(key, Self::read(at)?);
        }
        Some(Self::Map(pairs))
    }
}

fn take<const N: usize>(at: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = at.split_first_chunk::<N>()?;
    *at = rest;
    Some(*head)
}

fn skip(at: &mut &[u8], bytes: usize) -> Option<()> {
    *at = at.get(bytes..)?;
    Some(())
}

/// A length of one, two or four bytes.
fn length(at: &mut &[u8], width: u8) -> Option<usize> {
    let length = match width {
        0 => u32::from(take::<1>(at)?[0]),
        1 => u32::from(u16::from_be_bytes(take(at)?)),
        _ => u32::from_be_bytes(take(at)?),
    };
    usize::try_from(length).ok()
}
