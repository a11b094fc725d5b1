//! The daemon's side, by hand.

use std::env;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rmpv::Value;

pub(crate) const DEADLINE: Duration = Duration::from_secs(60);
pub(crate) const KINDS: [&str; 3] = ["sync", "tokio", "tokio-threads"];
pub(crate) const FRAME_BYTES_MAX: usize = 64 << 20;

/// A daemon with one worker.
pub(crate) struct Peer {
    pub(crate) process: Child,
    pub(crate) pipe: UnixStream,
    pub(crate) kind: &'static str,
}

impl Peer {
    pub(crate) fn start(
        kind: &'static str,
        concurrency: usize,
        version: u32,
        frame_bytes_max: usize,
    ) -> Self {
        Self::told(kind, concurrency, version, frame_bytes_max, &[])
    }

    /// With this in its environment.
    pub(crate) fn told(
        kind: &'static str,
        concurrency: usize,
        version: u32,
        frame_bytes_max: usize,
        environment: &[(&str, &str)],
    ) -> Self {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let name = format!("sdk-rust-{}-{number}", std::process::id());
        let path = PathBuf::from(format!("/tmp/CoreFxPipe_{name}"));
        let listener = UnixListener::bind(&path).expect("a socket");
        let mut command = modes();
        let (concurrency_text, most) = (concurrency.to_string(), frame_bytes_max.to_string());
        command.args([kind, &concurrency_text, &most]).env_clear();
        command.envs(environment.iter().copied());
        if version == 2 {
            command
                .env("GANGER_PROTOCOL", "2")
                .env("GANGER_PIPE", &path);
        }
        command.stdin(Stdio::piped()).stderr(Stdio::piped());
        let process = command
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let mut peer = Self {
            process,
            pipe: UnixStream::pair().expect("a pair").0,
            kind,
        };
        // What is next on stdin is not part of the first line, though it comes with it.
        peer.tell(&format!("{name}\n__of_a_newer_daemon__ 1"));
        peer.pipe = listener.accept().expect("a connection").0;
        peer.pipe
            .set_read_timeout(Some(DEADLINE))
            .expect("a timeout");
        peer.pipe
            .set_write_timeout(Some(DEADLINE))
            .expect("a timeout");
        fs::remove_file(&path).expect("the socket's file");
        if version == 2 {
            let hello = peer.receive();
            assert_eq!(
                (hello.status, hello.text(), hello.id),
                (100, "", None),
                "{hello:?}"
            );
            assert_eq!(hello.header("sdk"), "ganger-rust");
            assert_eq!(hello.header("concurrency"), concurrency_text);
        }
        peer
    }

    pub(crate) fn tell(&mut self, lines: &str) {
        let stdin = self.process.stdin.as_mut().expect("an open stdin");
        writeln!(stdin, "{lines}").expect("a reader");
    }

    pub(crate) fn write(&mut self, data: &[u8]) {
        self.pipe.write_all(data).expect("a reader");
    }

    pub(crate) fn send(&mut self, body: impl Into<Value>, id: u64) {
        self.write(&frame(&task(body, id, &[])));
    }

    pub(crate) fn receive(&mut self) -> Output {
        let mut length = [0; 4];
        self.pipe.read_exact(&mut length).expect("a length");
        let mut data = vec![0; usize::try_from(u32::from_be_bytes(length)).expect("a size")];
        self.pipe.read_exact(&mut data).expect("a frame");
        Output::of(&data)
    }

    pub(crate) fn ask(&mut self, body: impl Into<Value>, id: u64) -> Output {
        self.send(body, id);
        self.receive()
    }

    /// Sends one that says when it is in hand.
    pub(crate) fn begin(&mut self, body: &str, id: u64) {
        let begun = self.ask(body, id);
        assert_eq!(begun.text(), "begun", "{}: {begun:?}", self.kind);
    }

    pub(crate) fn expect(&mut self, status: i64, text: &str, id: Option<u64>) -> Output {
        let found = self.receive();
        assert_eq!(
            (found.status, found.text(), found.id),
            (status, text, id),
            "{}: {found:?}",
            self.kind
        );
        found
    }

    /// Sees that nothing more was said, and how the process has ended; what was on stderr.
    pub(crate) fn ended(mut self, code: i32) -> String {
        let mut rest = Vec::new();
        self.pipe.read_to_end(&mut rest).expect("an end");
        assert_eq!(rest, b"", "{}", self.kind);
        self.said(code)
    }

    /// How the process has ended, and what was on stderr.
    pub(crate) fn said(&mut self, code: i32) -> String {
        let mut said = String::new();
        let stderr = self.process.stderr.as_mut().expect("its stderr");
        stderr.read_to_string(&mut said).expect("text");
        let status = self.process.wait().expect("an end");
        assert_eq!(status.code(), Some(code), "{}: {said}", self.kind);
        said
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

pub(crate) fn task(body: impl Into<Value>, id: u64, more: &[(&str, Value)]) -> Value {
    let map = Value::Map(Vec::new());
    let plain = [
        ("0", body.into()),
        ("1", "".into()),
        ("2", "q".into()),
        ("3", map.clone()),
        ("4", id.into()),
        ("5", 1.into()),
        ("6", Value::Nil),
        ("7", map),
    ];
    let said = |key: &str| {
        more.iter()
            .find(|(name, _)| *name == key)
            .map(|(_, value)| value.clone())
    };
    let mut pairs: Vec<(Value, Value)> = plain
        .into_iter()
        .map(|(key, value)| (key.into(), said(key).unwrap_or(value)))
        .collect();
    let new = more.iter().filter(|(key, _)| !("0"..="7").contains(key));
    pairs.extend(new.map(|(key, value)| ((*key).into(), value.clone())));
    Value::Map(pairs)
}

pub(crate) fn texts(pairs: &[(&str, &str)]) -> Value {
    Value::Map(
        pairs
            .iter()
            .map(|(name, value)| ((*name).into(), (*value).into()))
            .collect(),
    )
}

pub(crate) fn frame(task: &Value) -> Vec<u8> {
    let mut data = vec![0; 4];
    rmpv::encode::write_value(&mut data, task).expect("memory takes it");
    let size = u32::try_from(data.len() - 4).expect("a size").to_be_bytes();
    data[..4].copy_from_slice(&size);
    data
}

#[derive(Debug, PartialEq)]
pub(crate) struct Output {
    pub(crate) message: Value,
    pub(crate) status: i64,
    pub(crate) headers: Vec<(String, Value)>,
    pub(crate) queue: Option<String>,
    pub(crate) id: Option<u64>,
    pub(crate) after: Option<u64>,
}

impl Output {
    pub(crate) fn of(mut data: &[u8]) -> Self {
        let value = rmpv::decode::read_value(&mut data).expect("MessagePack");
        let at = |key: &str| {
            value
                .as_map()
                .expect("a map")
                .iter()
                .find(|(name, _)| name.as_str() == Some(key))
        };
        let at = |key: &str| at(key).map(|(_, value)| value.clone());
        let headers = at("2").map_or(Vec::new(), |headers| {
            headers.as_map().expect("headers").clone()
        });
        let named =
            |(name, value): (Value, Value)| (name.as_str().expect("a name").to_owned(), value);
        Self {
            message: at("0").expect("a message"),
            status: at("1")
                .and_then(|status| status.as_i64())
                .expect("a status"),
            headers: headers.into_iter().map(named).collect(),
            queue: at("3").map(|queue| queue.as_str().expect("a queue").to_owned()),
            id: at("4").map(|id| id.as_u64().expect("an id")),
            after: at("5").map(|after| after.as_u64().expect("a time")),
        }
    }

    pub(crate) fn text(&self) -> &str {
        self.message.as_str().unwrap_or("no text")
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(each, _)| each == name);
        found
            .and_then(|(_, value)| value.as_str())
            .unwrap_or("no such header")
    }
}

/// The test worker.
pub(crate) fn modes() -> Command {
    // Examples are built beside tests.
    let tests = env::current_exe().expect("a path");
    let built = tests.parent().and_then(|deps| deps.parent());
    Command::new(built.expect("a folder").join("examples/modes"))
}
