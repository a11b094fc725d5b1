//! The worker under test: a process as the daemon starts it, its pipe read and written by the daemon's own
//! codec, frame by frame, so that each case determines which frames are sent and when. The worker's frames
//! are checked as the lane does.

use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::time::{Instant, timeout, timeout_at};

use super::finding::{Breach, Rule, SubjectError};
use super::frames;
use super::observations::Observations;
use super::transcript::{Direction, Transcript};
use ganger_config::model::PoolConfig;
use ganger_core::names;
use ganger_pool::worker::connection::{Connection, Received};
use ganger_pool::worker::output::LastLines;
use ganger_pool::worker::process::{self, Process, Signal};
use ganger_pool::worker::spawner::Spawner;
use ganger_pool::worker::{Identity, Introduction};
use ganger_protocol::Output;
use ganger_protocol::input::{Extras, Input};
use ganger_protocol::status::{Meaning, Note};
use ganger_queue::delivery::{Exit, Message};

/// Time for a worker that has closed its pipe to end.
const END_WITHIN: Duration = Duration::from_secs(1);
/// Time for which children of a dead worker may hold its stderr open.
const LAST_WORDS_WITHIN: Duration = Duration::from_millis(500);
/// Maximum number of bytes shown of an unfinished frame.
const UNREAD_BYTES_MAX: usize = 256;

/// Environment in which workers are started, and their rules.
#[derive(Debug)]
pub(super) struct Rig {
    pub(super) policy: Arc<PoolConfig>,
    /// Time for which a worker may be silent over a message.
    pub(super) answer_within: Duration,
    spawner: Spawner,
}

impl Rig {
    pub(super) fn new(policy: Arc<PoolConfig>, answer_within: Duration) -> Self {
        let spawner = Spawner::new(&policy.name);
        Self {
            policy,
            answer_within,
            spawner,
        }
    }
}

/// Protocol that a worker speaks, by its first frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spoken {
    /// Version 1.
    One,
    /// Version 2, and this number of messages at once.
    Two(usize),
}

/// Options of sending a message.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SendOptions {
    /// Number instead of the next one.
    pub(super) id: Option<u64>,
    /// Attempt instead of the first.
    pub(super) attempt: Option<u32>,
    /// Timeout of the message.
    pub(super) timeout: Option<Duration>,
}

/// One worker process, connected.
#[derive(Debug)]
pub(super) struct Subject {
    rig: Rc<Rig>,
    process: Process,
    connection: Connection,
    pub(super) transcript: Transcript,
    /// Frames that it has written so far.
    pub(super) seen: Observations,
    spoken: Option<Spoken>,
    in_flight: VecDeque<u64>,
    answered: BTreeSet<u64>,
    next_id: u64,
    /// True once we have asked it to exit.
    dismissed: bool,
    /// True once it has closed its pipe.
    has_closed: bool,
    /// True once its process has ended; its earlier output is still in the pipe.
    has_ended: bool,
}

impl Subject {
    /// Starts a worker and waits until it has connected. A worker that does not connect is ended.
    ///
    /// # Errors
    /// Why it did not connect, and its last output.
    pub(super) async fn start(
        rig: &Rc<Rig>,
        introduction: Introduction,
    ) -> Result<Self, (SubjectError, Vec<String>)> {
        let policy = &rig.policy;
        let command = Arc::new(policy.command.clone());
        let identity = Identity {
            pool: policy.name.as_str().into(),
            slot: 0,
        };
        let bytes_max = policy.frame_bytes_max;
        let spawned =
            process::spawn(&rig.spawner, &command, &identity, introduction, bytes_max).await;
        let mut starting =
            spawned.map_err(|error| (SubjectError::Unstarted(error.to_string()), Vec::new()))?;
        let why = tokio::select! {
            biased;
            accepted = starting.listener.accept() => match accepted {
                Ok(connection) => return Ok(Self::new(rig, starting.process, connection)),
                Err(error) => error.to_string(),
            },
            exit = starting.process.wait() => format!("it {exit} before it connected to its pipe"),
            () = tokio::time::sleep(policy.start_timeout) => {
                format!("it did not connect to its pipe within {:?}", policy.start_timeout)
            }
        };
        let mut process = starting.process;
        process.signal_group(Signal::Kill);
        process.wait().await;
        let words = process.last_words(LAST_WORDS_WITHIN).await;
        Err((SubjectError::Unstarted(why), words))
    }

    fn new(rig: &Rc<Rig>, process: Process, connection: Connection) -> Self {
        Self {
            rig: Rc::clone(rig),
            process,
            connection,
            transcript: Transcript::default(),
            seen: Observations::default(),
            spoken: None,
            in_flight: VecDeque::new(),
            answered: BTreeSet::new(),
            next_id: 1,
            dismissed: false,
            has_closed: false,
            has_ended: false,
        }
    }

    pub(super) fn rig(&self) -> &Rig {
        &self.rig
    }

    /// Returns its protocol; none before its first frame.
    pub(super) fn spoken(&self) -> Option<Spoken> {
        self.spoken
    }

    /// Returns its process id.
    pub(super) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Returns the messages that it has not answered.
    pub(super) fn in_flight(&self) -> impl Iterator<Item = u64> {
        self.in_flight.iter().copied()
    }

    /// Returns whether it was asked to exit.
    pub(super) fn is_dismissed(&self) -> bool {
        self.dismissed
    }

    /// Returns whether it closed its pipe with unread input.
    pub(super) fn left_unread(&self) -> bool {
        self.connection.left_unread()
    }

    // -- to the worker --

    /// Sends a message as the daemon does. If the pipe does not take all at once, the rest is sent while the
    /// worker's frames are read.
    pub(super) fn send(&mut self, message: &Message, way: SendOptions) -> u64 {
        let (id, frame) = self.frame(message, way);
        self.write_recorded(&format!("message {id}"), &frame);
        id
    }

    /// Writes the frames of several messages to the pipe in one piece.
    pub(super) fn send_together(&mut self, messages: &[Message]) -> Vec<u64> {
        let mut all = BytesMut::new();
        let mut ids = Vec::new();
        for message in messages {
            let (id, frame) = self.frame(message, SendOptions::default());
            self.note(&format!("message {id}"), &frame);
            all.extend_from_slice(&frame);
            ids.push(id);
        }
        self.put(&all);
        ids
    }

    /// Returns the frame of a message, which counts as sent from now on; the caller writes it to the pipe.
    pub(super) fn frame(&mut self, message: &Message, way: SendOptions) -> (u64, Bytes) {
        let id = way.id.unwrap_or(self.next_id);
        self.next_id += 1;
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let timeout_grace = self.rig.policy.timeout_grace;
        let input = Input {
            message,
            timeout_ms: way.timeout.map(millis),
            span: None,
            id,
            extras: (self.spoken != Some(Spoken::One)).then(|| Extras {
                attempt: way.attempt.unwrap_or(1),
                milliseconds_left: way.timeout.map(|soft| millis(soft + timeout_grace)),
            }),
        };
        let mut frame = BytesMut::new();
        input
            .encode(&mut frame, usize::MAX)
            .expect("a message that is text, or for version 2, can be sent");
        self.in_flight.push_back(id);
        (id, frame.freeze())
    }

    /// Writes arbitrary bytes to the pipe.
    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.connection.outgoing().extend_from_slice(bytes);
        // If the worker has closed its side, that is seen when it is listened to.
        drop(self.connection.flush());
    }

    /// Writes arbitrary bytes to the pipe and the transcript.
    pub(super) fn write_recorded(&mut self, what: &str, bytes: &[u8]) {
        self.note(what, bytes);
        self.put(bytes);
    }

    /// Adds sent bytes to the transcript.
    pub(super) fn note(&mut self, what: &str, bytes: &[u8]) {
        let direction = Direction::ToWorker;
        self.transcript.push(direction, what.to_owned(), &[bytes]);
    }

    /// Waits until everything sent is in the pipe.
    pub(super) async fn all_sent(&mut self) -> Result<(), SubjectError> {
        let until = Instant::now() + self.rig.answer_within;
        while self.connection.unsent() > 0 && self.pass_bytes(until).await? {}
        Ok(())
    }

    /// Writes a control line.
    pub(super) fn tell(&mut self, line: &str) {
        let what = "a control line".to_owned();
        self.transcript
            .push(Direction::ToStdin, what, &[line.as_bytes(), b"\n"]);
        self.process.tell(line);
    }

    // -- from the worker --

    /// Returns the next frame; none once it has closed its pipe.
    pub(super) async fn next(&mut self, until: Instant) -> Result<Option<Output>, SubjectError> {
        loop {
            match self.connection.next_frame() {
                Ok(Some(frame)) => return self.understand(&frame).map(Some),
                Ok(None) => {}
                Err(error) => {
                    let unread = self.connection.unread();
                    let shown = &unread[..unread.len().min(UNREAD_BYTES_MAX)];
                    let what = "no frame".to_owned();
                    self.transcript.push(Direction::FromWorker, what, &[shown]);
                    return Err(broken(Rule::Length, error.to_string()));
                }
            }
            if self.has_closed {
                return Ok(None);
            }
            if !self.pass_bytes(until).await? {
                self.has_closed = true;
                self.note_unfinished();
            }
        }
    }

    /// Waits for its first frame, and returns whether that is a HELLO: only then it may be sent non-text
    /// bodies.
    pub(super) async fn says_hello(&mut self) -> Result<bool, SubjectError> {
        let until = Instant::now() + self.rig.policy.start_timeout;
        while self.spoken.is_none() {
            match self.next(until).await {
                Ok(Some(_)) => {}
                Ok(None) => return Err(SubjectError::Gone),
                Err(SubjectError::Silent) => return Ok(false),
                Err(trouble) => return Err(trouble),
            }
        }
        Ok(matches!(self.spoken, Some(Spoken::Two(_))))
    }

    /// Waits for the answers to all messages in flight: one each. Any frame shows that it is alive.
    pub(super) async fn answers(&mut self) -> Result<Vec<Output>, SubjectError> {
        let mut answers = Vec::new();
        while !self.in_flight.is_empty() {
            let until = Instant::now() + self.rig.answer_within;
            match self.next(until).await? {
                Some(output) if output.status.is_note() => {}
                Some(output) => answers.push(output),
                None => return Err(SubjectError::Gone),
            }
        }
        Ok(answers)
    }

    /// Sends one message and waits for its answer.
    pub(super) async fn ask(&mut self, message: &Message) -> Result<Output, SubjectError> {
        self.send(message, SendOptions::default());
        // There is one message in flight, so there is one answer.
        Ok(self.answers().await?.remove(0))
    }

    /// Reads and writes pending bytes. Returns whether more may come.
    async fn pass_bytes(&mut self, until: Instant) -> Result<bool, SubjectError> {
        if self.has_ended {
            // With a budget that is used up the pipe would seem empty.
            tokio::task::yield_now().await;
            return Ok(matches!(self.connection.receive(), Ok(Received::Some(_))));
        }
        let ready = tokio::select! {
            biased;
            ready = timeout_at(until, self.connection.ready()) => ready,
            // Its children may hold the pipe open.
            _ = self.process.wait() => {
                self.has_ended = true;
                return Ok(true);
            }
        };
        let ready = match ready {
            Err(_) => {
                self.note_unfinished();
                return Err(SubjectError::Silent);
            }
            Ok(Err(_)) => return Ok(false),
            Ok(Ok(ready)) => ready,
        };
        if ready.writable {
            // If the worker has closed its side, its last words come first.
            drop(self.connection.flush());
        }
        if !ready.readable {
            return Ok(true);
        }
        Ok(!matches!(
            self.connection.receive(),
            Ok(Received::Eof) | Err(_)
        ))
    }

    fn note_unfinished(&mut self) {
        let unread = self.connection.unread();
        if !unread.is_empty() {
            let what = format!("{} bytes that are not a whole frame", unread.len());
            let shown = &unread[..unread.len().min(UNREAD_BYTES_MAX)];
            self.transcript.push(Direction::FromWorker, what, &[shown]);
        }
    }

    fn understand(&mut self, frame: &[u8]) -> Result<Output, SubjectError> {
        let length = u32::try_from(frame.len()).unwrap_or(u32::MAX).to_be_bytes();
        let mut decoded = Output::decode(frame);
        if decoded.is_err() && !matches!(self.spoken, Some(Spoken::Two(_))) {
            decoded = Output::decode_version1(frame);
            decoded.iter().for_each(|bare| self.seen.take_bare(bare));
        }
        let what = decoded.as_ref().map_or_else(
            |_| "not a map of the protocol".to_owned(),
            frames::described,
        );
        self.transcript
            .push(Direction::FromWorker, what, &[&length, frame]);
        let output = decoded.map_err(|error| broken(Rule::Map, error.to_string()))?;
        self.judge(&output)?;
        Ok(output)
    }

    /// Checks a frame as the lane does.
    fn judge(&mut self, output: &Output) -> Result<(), SubjectError> {
        let is_first = self.spoken.is_none();
        if is_first {
            self.spoken = Some(
                output
                    .concurrency()
                    .map_or(Spoken::One, |concurrency| Spoken::Two(concurrency.max(1))),
            );
        }
        self.seen.take(output, is_first);
        match output.status.meaning() {
            Meaning::Note(Note::Emit) => self.meant(output).map(drop),
            Meaning::Note(_) => Ok(()),
            Meaning::Answer(_) => {
                let at = self.meant(output)?;
                self.answered.extend(self.in_flight.remove(at));
                Ok(())
            }
        }
    }

    /// Returns the index of the message in flight that an answer or an emit is about.
    fn meant(&self, output: &Output) -> Result<usize, SubjectError> {
        if let Some(id) = output.id {
            let found = self.in_flight.iter().position(|other| *other == id);
            let again = self.answered.contains(&id);
            return found.ok_or_else(|| match again {
                true => broken(Rule::OneAnswer, format!("a second answer for id {id}")),
                false => {
                    let said = format!("an answer for id {id}, which is not in flight");
                    broken(Rule::KnownId, said)
                }
            });
        }
        match (self.in_flight.len(), self.spoken) {
            (0, _) => Err(broken(
                Rule::OneAnswer,
                "an answer with nothing in flight".into(),
            )),
            (2.., Some(Spoken::Two(_))) => Err(broken(
                Rule::NeedsId,
                "an answer without an id (key \"4\") with several messages in flight".into(),
            )),
            _ => Ok(0),
        }
    }

    // -- its end --

    /// Asks it to exit as the daemon does: the line, then the end of the pipe and of stdin.
    pub(super) fn dismiss(&mut self) {
        self.tell(names::QUIT);
        self.disconnect();
    }

    /// Closes the connection as if the daemon had died.
    pub(super) fn disconnect(&mut self) {
        self.transcript
            .push(Direction::ToWorker, "end of file".into(), &[]);
        self.dismissed = true;
        self.process.close_stdin();
        self.connection.finish_sending();
    }

    /// Reads until it has closed its pipe, and returns whether it has in time. Its frames are checked.
    pub(super) async fn read_to_close(&mut self, within: Duration) -> Result<bool, SubjectError> {
        let until = Instant::now() + within;
        loop {
            match self.next(until).await {
                Ok(Some(_)) => {}
                Ok(None) => return Ok(true),
                Err(SubjectError::Silent) => return Ok(false),
                Err(trouble) => return Err(trouble),
            }
        }
    }

    /// Returns its exit status, if it ends in time.
    pub(super) async fn exit(&mut self, within: Duration) -> Option<Exit> {
        timeout(within, self.process.wait()).await.ok()
    }

    /// Describes the end of a worker that has closed its pipe.
    pub(super) async fn describe_end(&mut self) -> String {
        match self.exit(END_WITHIN).await {
            Some(exit) => format!("the worker {exit}"),
            None => "the worker closed its pipe and is still running".to_owned(),
        }
    }

    /// Ends it, if necessary by force, and returns its last printed lines.
    pub(super) async fn printed(&mut self) -> LastLines {
        self.process.signal_group(Signal::Kill);
        self.process.wait().await;
        self.process.all_printed(LAST_WORDS_WITHIN).await
    }

    /// Ends it, if necessary by force, and returns the last lines of its stderr.
    pub(super) async fn terminate(&mut self) -> Vec<String> {
        self.process.signal_group(Signal::Kill);
        self.process.wait().await;
        self.process.last_words(LAST_WORDS_WITHIN).await
    }
}

fn broken(rule: Rule, said: String) -> SubjectError {
    SubjectError::Broken(Breach { rule, said })
}
