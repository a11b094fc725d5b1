//! Runs a handler on messages, without a daemon: what is tested is the handler in the real worker, on a
//! real socket pair, in this process.
//!
//! ```
//! use ganger_worker::testing::{Message, work};
//! use ganger_worker::{Outcome, Task, Worker};
//!
//! let shout = |task: &Task| task.text().map(|text| Outcome::reply(text.to_uppercase()));
//! let answers = work(&Worker::new(), shout, ["ten"])?;
//! assert_eq!((answers[0].status, answers[0].text()), (201, "TEN"));
//! # Ok::<(), ganger_worker::Error>(())
//! ```

use std::collections::HashMap;
use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use rmp::encode;

use crate::frames::Frames;
use crate::link::locked;
use crate::value::{length, unwritten};
use crate::wire::{DEPTH_MAX, FRAME_BYTES_MAX, Reader, status};
use crate::{Error, IntoOutcome, Task, Value, Worker};

/// How long the worker may say nothing.
const SILENCE: Duration = Duration::from_secs(60);

/// What the handler is given.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// Text or bytes; what is not UTF-8 is sent as bytes.
    pub body: Vec<u8>,
    /// None: empty.
    pub correlation_id: String,
    /// `test` unless said.
    pub queue: String,
    /// In their text form.
    pub headers: HashMap<String, String>,
    /// 1 unless said.
    pub attempt: u64,
    /// None for never.
    pub milliseconds_left: Option<u64>,
    /// What a source knows.
    pub properties: HashMap<String, Value>,
    /// Asks the handler to abandon it, so long after it was handed out.
    pub cancel_after: Option<Duration>,
}

impl Message {
    /// A message with that body.
    pub fn new(body: impl Into<Vec<u8>>) -> Self {
        Self {
            body: body.into(),
            correlation_id: String::new(),
            queue: "test".to_owned(),
            headers: HashMap::new(),
            attempt: 1,
            milliseconds_left: None,
            properties: HashMap::new(),
            cancel_after: None,
        }
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.insert(name.to_owned(), value.to_owned());
        self
    }

    fn frame(&self, id: u64) -> Result<Vec<u8>, Error> {
        let mut to = vec![0; 4];
        encode::write_map_len(&mut to, 8)?;
        encode::write_str(&mut to, "0")?;
        match std::str::from_utf8(&self.body) {
            Ok(text) => encode::write_str(&mut to, text)?,
            Err(_) => encode::write_bin(&mut to, &self.body)?,
        }
        for (key, text) in [("1", &self.correlation_id), ("2", &self.queue)] {
            encode::write_str(&mut to, key)?;
            encode::write_str(&mut to, text)?;
        }
        encode::write_str(&mut to, "3")?;
        encode::write_map_len(&mut to, length(self.headers.len())?)?;
        for (name, value) in &self.headers {
            encode::write_str(&mut to, name)?;
            encode::write_str(&mut to, value)?;
        }
        for (key, number) in [
            ("4", Some(id)),
            ("5", Some(self.attempt)),
            ("6", self.milliseconds_left),
        ] {
            encode::write_str(&mut to, key)?;
            match number {
                Some(number) => drop(encode::write_uint(&mut to, number)?),
                None => encode::write_nil(&mut to).map_err(unwritten)?,
            }
        }
        encode::write_str(&mut to, "7")?;
        encode::write_map_len(&mut to, length(self.properties.len())?)?;
        for (name, value) in &self.properties {
            encode::write_str(&mut to, name)?;
            value.write(&mut to)?;
        }
        let size = length(to.len() - 4)?.to_be_bytes();
        to[..4].copy_from_slice(&size);
        Ok(to)
    }
}

impl<T: Into<Vec<u8>>> From<T> for Message {
    fn from(body: T) -> Self {
        Self::new(body)
    }
}

/// An emit or a log record.
#[derive(Debug, Clone, PartialEq)]
pub struct Note {
    /// What it says.
    pub message: Vec<u8>,
    /// In the order in which they were sent.
    pub headers: Vec<(String, Value)>,
    /// Where an emit goes.
    pub queue: Option<String>,
}

/// What became of one message, and what its handler sent meanwhile.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Answer {
    /// The status, such as 200.
    pub status: i64,
    /// The reply, or the reason of a failure.
    pub message: Vec<u8>,
    /// Those of a reply, in the order in which they were sent.
    pub headers: Vec<(String, Value)>,
    /// Where a reply goes, if the handler says so.
    pub queue: Option<String>,
    /// How long a retry is to wait, if the handler says so.
    pub retry_after: Option<Duration>,
    /// Published meanwhile.
    pub emits: Vec<Note>,
    /// Logged meanwhile.
    pub logs: Vec<Note>,
    /// Shown meanwhile.
    pub progress: Vec<String>,
}

impl Answer {
    /// The message, if it is text; `""` if it is not.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.message).unwrap_or_default()
    }
}

/// The answers, in the order of the messages.
///
/// # Errors
/// What the worker itself fails with; [`Error::Io`] with [`ErrorKind::TimedOut`] if nothing is heard of
/// it for a minute.
pub fn work<H, R>(
    worker: &Worker,
    handler: H,
    messages: impl IntoIterator<Item = impl Into<Message>>,
) -> Result<Vec<Answer>, Error>
where
    H: Fn(&Task) -> R + Sync,
    R: IntoOutcome,
{
    work_in_version(2, worker, handler, messages)
}

/// As [`work`], in that version of the protocol.
///
/// # Errors
/// As [`work`].
pub fn work_in_version<H, R>(
    version: u32,
    worker: &Worker,
    handler: H,
    messages: impl IntoIterator<Item = impl Into<Message>>,
) -> Result<Vec<Answer>, Error>
where
    H: Fn(&Task) -> R + Sync,
    R: IntoOutcome,
{
    let (peer, theirs) = Peer::new(version, worker, messages)?;
    thread::scope(|scope| {
        let daemon = scope.spawn(|| peer.exchange());
        let served = worker.serve(
            &handler,
            theirs.pipe,
            BufReader::new(theirs.control),
            version,
        );
        // What the worker says of itself is why the daemon has heard no more.
        served.and(joined(daemon.join()))
    })
}

/// As [`work`], for a handler that is `async`, on the current runtime of tokio.
///
/// # Errors
/// As [`work`].
#[cfg(feature = "tokio")]
pub async fn work_async<H, F, R>(
    worker: &Worker,
    handler: H,
    messages: impl IntoIterator<Item = impl Into<Message>>,
) -> Result<Vec<Answer>, Error>
where
    H: Fn(crate::AsyncTask) -> F + Send + Sync + 'static,
    F: Future<Output = R> + Send + 'static,
    R: IntoOutcome + 'static,
{
    let (peer, theirs) = Peer::new(2, worker, messages)?;
    let daemon = tokio::task::spawn_blocking(move || peer.exchange());
    let control = BufReader::new(theirs.control);
    let served = worker.serve_async(handler, theirs.pipe, control, 2).await;
    served.and(joined(daemon.await))
}

fn joined<T, E>(ended: Result<Result<T, Error>, E>) -> Result<T, Error> {
    ended.unwrap_or_else(|_| Err(io::Error::other("the daemon's side has panicked").into()))
}

/// The worker's ends.
struct Theirs {
    pipe: UnixStream,
    control: UnixStream,
}

/// The daemon's side.
struct Peer {
    pipe: UnixStream,
    control: std::sync::Mutex<UnixStream>,
    messages: Vec<Message>,
    answers: Vec<Answer>,
    in_flight: Vec<usize>,
    sent: usize,
    room: usize,
}

impl Peer {
    fn new(
        version: u32,
        worker: &Worker,
        messages: impl IntoIterator<Item = impl Into<Message>>,
    ) -> Result<(Self, Theirs), Error> {
        worker.check()?;
        if !(1..=2).contains(&version) {
            let what = format!("the protocol's version must be 1 or 2: {version}");
            return Err(Error::Start(what));
        }
        let (pipe, theirs) = UnixStream::pair()?;
        let (control, controlled) = UnixStream::pair()?;
        pipe.set_read_timeout(Some(SILENCE))?;
        let messages: Vec<Message> = messages.into_iter().map(Into::into).collect();
        let peer = Self {
            pipe,
            control: control.into(),
            answers: vec![Answer::default(); messages.len()],
            messages,
            in_flight: Vec::new(),
            sent: 0,
            room: worker.concurrency_in(version),
        };
        let theirs = Theirs {
            pipe: theirs,
            control: controlled,
        };
        Ok((peer, theirs))
    }

    /// Ends the pipe when it returns, and the worker with it.
    fn exchange(mut self) -> Result<Vec<Answer>, Error> {
        let mut frames = Frames::new(FRAME_BYTES_MAX);
        while self.sent < self.messages.len() || !self.in_flight.is_empty() {
            while self.sent < self.messages.len() && self.in_flight.len() < self.room {
                self.send()?;
            }
            match frames.next()? {
                Some(frame) => self.take(frame)?,
                None => {
                    let count = self.pipe.read(frames.space()?).map_err(silent)?;
                    if count == 0 {
                        let left = self.in_flight.len();
                        let what = format!("the worker has left with {left} messages in hand");
                        return Err(io::Error::new(ErrorKind::UnexpectedEof, what).into());
                    }
                    frames.filled(count);
                }
            }
        }
        Ok(self.answers)
    }

    fn send(&mut self) -> Result<(), Error> {
        let message = &self.messages[self.sent];
        self.pipe.write_all(&message.frame(self.sent as u64)?)?;
        if let Some(after) = message.cancel_after {
            let mut control = locked(&self.control).try_clone()?;
            let line = format!("__cancel__ {}\n", self.sent);
            thread::spawn(move || {
                thread::sleep(after);
                // A worker that has left hears nothing.
                control.write_all(line.as_bytes()).unwrap_or_default();
            });
        }
        self.in_flight.push(self.sent);
        self.sent += 1;
        Ok(())
    }

    fn take(&mut self, frame: &[u8]) -> Result<(), Error> {
        let output = Heard::decode(frame)?;
        if output.status == status::HELLO {
            return Ok(());
        }
        let about = |at: &usize| output.id.is_none_or(|id| id == *at as u64);
        let Some(place) = self.in_flight.iter().position(about) else {
            let what = format!("the worker speaks of a message that is not in flight: {output:?}");
            return Err(Error::Protocol(what));
        };
        let answer = &mut self.answers[self.in_flight[place]];
        match output.status {
            status::PROGRESS | status::IGNORE_MESSAGE => {
                let text = String::from_utf8_lossy(&output.note.message);
                answer.progress.push(text.into_owned());
            }
            status::LOG => answer.logs.push(output.note),
            status::EMIT => answer.emits.push(output.note),
            ended => {
                answer.status = ended;
                answer.message = output.note.message;
                answer.headers = output.note.headers;
                answer.queue = output.note.queue;
                answer.retry_after = output.after_ms.map(Duration::from_millis);
                self.in_flight.remove(place);
            }
        }
        Ok(())
    }
}

fn silent(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::WouldBlock => {
            let what = format!("nothing from the worker for {SILENCE:?}");
            io::Error::new(ErrorKind::TimedOut, what)
        }
        _ => error,
    }
}

/// A frame from the worker.
#[derive(Debug)]
struct Heard {
    status: i64,
    id: Option<u64>,
    after_ms: Option<u64>,
    note: Note,
}

impl Heard {
    fn decode(frame: &[u8]) -> Result<Self, Error> {
        let mut heard = Self {
            status: 0,
            id: None,
            after_ms: None,
            note: Note {
                message: Vec::new(),
                headers: Vec::new(),
                queue: None,
            },
        };
        let Value::Map(pairs) = (Reader { rest: frame }).value(DEPTH_MAX)? else {
            return Err(Error::Protocol("an output must be a map".to_owned()));
        };
        for (key, value) in pairs {
            let number = value.as_integer();
            match (key.as_text(), value) {
                (Some("0"), Value::Text(text)) => heard.note.message = text.into_bytes(),
                (Some("0"), Value::Bytes(bytes)) => heard.note.message = bytes,
                (Some("1"), _) => {
                    heard.status = number.and_then(|n| n.try_into().ok()).unwrap_or(0)
                }
                (Some("2"), Value::Map(headers)) => {
                    let named = |(name, value): (Value, Value)| (name.to_string(), value);
                    heard.note.headers = headers.into_iter().map(named).collect();
                }
                (Some("3"), Value::Text(queue)) => heard.note.queue = Some(queue),
                (Some("4"), _) => heard.id = number.and_then(|n| n.try_into().ok()),
                (Some("5"), _) => heard.after_ms = number.and_then(|n| n.try_into().ok()),
                _ => {}
            }
        }
        Ok(heard)
    }
}
