//! Traffic through a worker's pipe: messages out, answers and notes in, until each message is
//! settled.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::blame::{Cause, Read, Version};
use super::emits::{Emits, Emitted};
use super::in_flight::{Due, InFlight, Settled, Unanswered};
use super::pool_side::PoolSide;
use super::question::Search;
use super::tempo::Tempo;
use super::time_limit::soft_timeout;
use crate::verdict::Event;
use crate::window::BYTES_MAX;
use crate::worker::connection::{Connection, Ready, Received};
use crate::worker::notes;
use crate::worker::notes::Notes;
use crate::worker::run_queue::RunQueue;
use crate::worker::subject::Subject;
use ganger_config::model::PoolConfig;
use ganger_protocol::input::{EncodeError, Extras, Input};
use ganger_protocol::output::Output;
use ganger_protocol::status::{Meaning, Note};
use ganger_queue::delivery::{Delivery, Failure, PublishError, Reason};
use ganger_queue::ledger::shown::RunWorkerJson;
use ganger_telemetry as telemetry;

/// Maximum number of a worker's frames taken in before others have their turn.
const FRAMES_PER_TURN: u32 = 32;

/// Exchange between a lane and its worker.
#[derive(Debug)]
pub(super) struct Exchange {
    pool: PoolSide,
    connection: Connection,
    /// The worker, as a ledger shows it.
    worker: Arc<str>,
    connected_at: Instant,
    version: Version,
    in_flight: InFlight,
    emits: Emits,
    tempo: Tempo,
    /// Run queue of the worker's process, if the process is known.
    run_queue: Option<RunQueue>,
    /// Number of messages that the worker may have, as last shown to the pool.
    window: usize,
    notes: Notes,
    /// True if frames may be left in the buffer because the worker's turn has ended.
    has_more: bool,
}

/// Available work.
#[derive(Debug)]
pub(super) enum Turn {
    /// The emits have made progress.
    Emits(Emitted),
    /// There are frames left.
    More,
    /// The pipe can be read or written.
    Ready(io::Result<Ready>),
}

/// Failure of the worker's pipe.
#[derive(Debug)]
pub(super) enum ExchangeError {
    /// The worker has closed its end; the text describes the evidence.
    Closed(String),
    /// The worker has broken the protocol.
    Broken(String),
}

impl Exchange {
    /// Creates the exchange over a new connection.
    pub(super) fn new(
        pool: PoolSide,
        connection: Connection,
        worker: &RunWorkerJson,
        notes: Notes,
        started_at: Instant,
    ) -> Self {
        let now = Instant::now();
        Self {
            in_flight: InFlight::new(now, pool.losses()).of_a_fresh_worker(started_at),
            pool,
            run_queue: connection.peer().map(RunQueue::of),
            connection,
            worker: worker.text().into(),
            connected_at: now,
            version: Version::Unknown,
            emits: Emits::default(),
            tempo: Tempo::new(now),
            window: 1,
            notes,
            has_more: false,
        }
    }

    /// Returns whether the worker has no message in flight.
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// Returns whether the worker's turn ended before all frames were taken in.
    pub(super) fn has_more(&self) -> bool {
        self.has_more
    }

    /// Returns the message that the worker processes, if there is only one, with its number.
    pub(super) fn works_on(&self) -> Option<(u64, Subject<'_>)> {
        let one = self.in_flight.len() == 1 || !self.is_version2();
        self.in_flight.head().filter(|_| one)
    }

    /// Returns whether the worker speaks version 2, so that commands can name single messages.
    pub(super) fn is_version2(&self) -> bool {
        matches!(self.version, Version::Two { .. })
    }

    /// Returns whether the worker may be given another message.
    pub(super) fn has_room(&self) -> bool {
        self.in_flight.is_empty()
            || (self.in_flight.len() < self.window && self.in_flight.bytes() < BYTES_MAX)
    }

    /// Returns whether the worker may be given this message. Only a version 2 worker may have a body that is
    /// not text, and its first frame shows its version.
    pub(super) fn may_have(&mut self, delivery: &Delivery, now: Instant) -> bool {
        let text = || std::str::from_utf8(&delivery.message.body).is_ok();
        if self.version != Version::Unknown || text() {
            return true;
        }
        if now < self.hello_deadline() {
            return false;
        }
        self.version = Version::One;
        true
    }

    /// Returns the time until which an idle worker may declare its version, if it has not declared it yet.
    pub(super) fn silent_until(&self) -> Option<Instant> {
        let silent = self.version == Version::Unknown && self.is_idle();
        silent.then(|| self.hello_deadline())
    }

    /// Returns the time from which a silent worker counts as version 1.
    fn hello_deadline(&self) -> Instant {
        self.connected_at + self.pool.rules().start_timeout
    }

    /// Encodes the message, to be sent by [`Exchange::flush`].
    pub(super) fn send(&mut self, mut delivery: Delivery, now: Instant) {
        let policy = self.pool.policy();
        let soft = soft_timeout(policy.timeout, &delivery.message.headers);
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let hard = soft.map(|soft| soft + policy.timeout_grace);
        let input = Input {
            message: &delivery.message,
            timeout_ms: soft.map(millis),
            span: delivery.recording.as_ref().map(|noted| noted.worker),
            id: self.in_flight.next_id(),
            extras: (self.version != Version::One).then(|| Extras {
                attempt: delivery.history.attempt,
                milliseconds_left: hard.map(millis),
            }),
        };
        let starts_at = self.written();
        if let Err(error) = input.encode(self.connection.outgoing(), policy.frame_bytes_max) {
            return self.refuse(delivery, &error);
        }
        if self.in_flight.is_empty() {
            self.tempo.begins(now);
        }
        if let Some(recording) = &mut delivery.recording {
            recording.was_given = true;
        }
        delivery.begin(&self.worker);
        let frame = (starts_at, self.written());
        let at_once = self.is_version2();
        self.in_flight.push(delivery, frame, soft, at_once, now);
    }

    /// Returns the number of bytes encoded since the start.
    fn written(&self) -> u64 {
        self.connection.sent_total() + self.connection.unsent() as u64
    }

    /// Fails a message that can't be encoded for this worker. The worker is not charged.
    fn refuse(&mut self, delivery: Delivery, error: &EncodeError) {
        let failure = Failure::new(Reason::Undeliverable, error.to_string());
        self.pool.settle(delivery, Event::Failed(failure));
        self.pool.has_room();
    }

    /// Records that messages were sent: the time of the first of them may have to start.
    pub(super) fn has_sent(&mut self, now: Instant) {
        self.in_flight.begin_head(now);
        self.show();
    }

    /// Writes the encoded bytes, as far as the pipe takes them.
    pub(super) fn flush(&mut self) -> Result<(), ExchangeError> {
        if self.connection.unsent() == 0 {
            return Ok(());
        }
        self.connection.flush().map_err(closed)
    }

    /// Waits until there is work to do. While a worker's emits wait for the broker, it is not read from, so
    /// that it waits as well. Cancel-safe.
    pub(super) async fn turn(&mut self) -> Turn {
        let listening = self.listens();
        tokio::select! {
            biased;
            Some(emitted) = self.emits.step(self.pool.publishes()), if !self.emits.is_empty() => Turn::Emits(emitted),
            () = std::future::ready(()), if listening && self.has_more => Turn::More,
            ready = self.connection.ready(), if listening => Turn::Ready(ready),
            // An emit waits, and its progress is awaited by a branch of its own.
            else => std::future::pending().await,
        }
    }

    /// Does the work of a turn. The worker's output counts only while `is_heard`.
    pub(super) fn take(
        &mut self,
        turn: Turn,
        is_heard: bool,
        now: Instant,
    ) -> Result<(), ExchangeError> {
        match turn {
            Turn::Emits(Emitted::Sent) => Ok(()),
            Turn::Emits(Emitted::Confirmed(id, result)) => {
                self.confirmed(id, result);
                Ok(())
            }
            Turn::More => self.take_frames(is_heard, now),
            Turn::Ready(ready) => match self.pass_bytes(ready).map_err(closed)? {
                Received::Some(_) => self.take_frames(is_heard, now),
                Received::Eof => Err(ExchangeError::Closed("end of file".into())),
                Received::WouldBlock => Ok(()),
            },
        }
    }

    fn pass_bytes(&mut self, ready: io::Result<Ready>) -> io::Result<Received> {
        let ready = ready?;
        if ready.writable {
            self.connection.flush()?;
        }
        match ready.readable {
            true => self.connection.receive(),
            false => Ok(Received::WouldBlock),
        }
    }

    /// Takes in the contents of the pipe, by at most `reads_max` reads. One takes as much as a pipe
    /// holds.
    pub(super) fn read(&mut self, reads_max: usize) -> Result<(), ExchangeError> {
        self.take_all_frames()?;
        for _ in 0..reads_max {
            match self.connection.receive().map_err(closed)? {
                Received::Some(_) => self.take_all_frames()?,
                Received::Eof => return Err(ExchangeError::Closed("end of file".into())),
                Received::WouldBlock => break,
            }
        }
        Ok(())
    }

    fn take_all_frames(&mut self) -> Result<(), ExchangeError> {
        self.take_frames(true, Instant::now())?;
        while self.has_more {
            self.take_frames(true, Instant::now())?;
        }
        Ok(())
    }

    /// Takes in the available frames, at most one turn's worth.
    fn take_frames(&mut self, is_heard: bool, now: Instant) -> Result<(), ExchangeError> {
        let taken = match is_heard {
            true => self.take_turn(now),
            false => Ok(false),
        };
        self.has_more = taken.as_ref().is_ok_and(|more| *more);
        if !self.has_more {
            let waited = || PoolSide::waited(self.run_queue.as_ref()?);
            let available_since = self.pool.available_since(now);
            if let Some(taken) = self.tempo.caught_up(now, available_since, waited) {
                self.pool.record_duration(taken, now);
            }
        }
        self.show();
        self.pool.has_room();
        taken.map(drop).map_err(ExchangeError::Broken)
    }

    /// Takes in one turn's frames. Returns whether there may be more, or the breach of the
    /// protocol.
    fn take_turn(&mut self, now: Instant) -> Result<bool, String> {
        for _ in 0..FRAMES_PER_TURN {
            let frame = self.connection.next_frame();
            let Some(frame) = frame.map_err(|error| error.to_string())? else {
                return Ok(false);
            };
            let output = match self.is_version2() {
                true => Output::decode(&frame),
                false => Output::decode_version1(&frame),
            };
            self.take_frame(output.map_err(|error| error.to_string())?, now)?;
        }
        Ok(true)
    }

    fn take_frame(&mut self, output: Output, now: Instant) -> Result<(), String> {
        self.in_flight.heard(now);
        if self.version == Version::Unknown {
            self.version = Version::of_first_frame(&output);
            if self.is_version2() {
                self.in_flight.begin_all(now);
                return Ok(());
            }
        }
        match output.status.meaning() {
            Meaning::Note(Note::Feedback) => Ok(()),
            Meaning::Note(Note::Log) => self.log(&output, now),
            Meaning::Note(Note::Progress) => self.progress(&output),
            Meaning::Note(Note::Emit) => self.emit(output),
            Meaning::Note(Note::Hello | Note::Unknown) => {
                self.pool.ignored(output.status);
                Ok(())
            }
            Meaning::Answer(_) => self.answer(output, now),
        }
    }

    fn answer(&mut self, answer: Output, now: Instant) -> Result<(), String> {
        let sent = self.connection.sent_total();
        let (took, settled) = self.in_flight.answer(answer, self.version, sent, now)?;
        self.tempo.answered();
        self.pool.answered(took);
        self.settle(settled);
        Ok(())
    }

    fn settle(&self, settled: Option<Settled>) {
        if let Some((delivery, event)) = settled {
            self.pool.settle(delivery, event);
        }
    }

    fn emit(&mut self, output: Output) -> Result<(), String> {
        let sent = self.connection.sent_total();
        let policy = self.pool.rules();
        let emitted = self.in_flight.emit(output, self.version, sent, &policy)?;
        if let Some((id, outgoing)) = emitted {
            self.emits.push(id, outgoing);
        }
        Ok(())
    }

    /// Handles the broker's reply to an emit.
    fn confirmed(&mut self, id: u64, result: Result<(), PublishError>) {
        if result.is_ok() {
            self.pool.emitted();
        }
        let settled = self.in_flight.confirmed(id, result);
        self.settle(settled);
        self.show();
        self.pool.has_room();
    }

    /// Logs a note. A note for a settled message is too late: it is dropped and counted.
    fn log(&mut self, output: &Output, now: Instant) -> Result<(), String> {
        match self.in_flight.subject(output.id) {
            Some(subject) => {
                let _about = telemetry::about(subject.span);
                self.notes.log(output, subject, now);
            }
            None => self.pool.ignored(output.status),
        }
        Ok(())
    }

    fn progress(&self, output: &Output) -> Result<(), String> {
        match self.in_flight.subject(output.id) {
            Some(subject) => {
                let progress = notes::progress(output);
                if let Some(run) = subject.run {
                    run.progress(&progress);
                }
                self.pool.progress(progress);
            }
            None => self.pool.ignored(output.status),
        }
        Ok(())
    }

    /// Shows the pool the current state.
    pub(super) fn show(&mut self) {
        if self.in_flight.is_empty() {
            self.pool.is_idle();
        }
        let wants = self
            .tempo
            .wants(self.version, &self.pool.rules(), self.pool.turn());
        let oldest = self.in_flight.oldest();
        let busy_since = oldest.map(|(begun, ..)| begun);
        self.pool.show(wants, busy_since);
        let message = oldest.map(|(_, number, message)| (number, message));
        self.pool.works_on(message);
        self.window = wants.window;
    }

    /// Moves all deadlines by a time in which the worker could not be observed.
    pub(super) fn postpone(&mut self, by: Duration) {
        self.connected_at += by;
        self.in_flight.postpone(by);
        self.emits.postpone(by);
    }

    /// Returns whether the worker is read from, which is the case if no emits are waiting.
    pub(super) fn listens(&self) -> bool {
        !self.emits.are_waiting()
    }

    /// Returns the actions that are due on the messages. A worker that is not read from can't be
    /// late.
    pub(super) fn due(&mut self, now: Instant) -> Due {
        if self.notes.calm_at().is_some_and(|calm| calm <= now) {
            self.notes.tell_suppressed();
        }
        if let Some(by) = self.emits.stood_still(now) {
            self.in_flight.postpone(by);
        }
        if self.emits.are_blocked() {
            return Due::default();
        }
        let sent = self.connection.sent_total();
        let mut due = self.in_flight.due(&self.pool.rules(), sent, now);
        if !self.is_version2() {
            due.cancel.clear();
        }
        due
    }

    /// Returns the next time at which [`Exchange::due`] has something to report.
    pub(super) fn next_deadline(&self, policy: &PoolConfig) -> Option<Instant> {
        let listened = (!self.emits.are_blocked()).then(|| self.in_flight.next_deadline(policy));
        let deadlines = [listened.flatten(), self.notes.calm_at()];
        deadlines.into_iter().flatten().min()
    }

    /// Marks all messages as asked to be given up. Returns their numbers.
    pub(super) fn yield_all(&mut self) -> Vec<u64> {
        self.in_flight.yield_all()
    }

    /// Cancels the messages that an operator's search matches. Returns their number.
    pub(super) fn cancel(&mut self, search: &Search, now: Instant) -> usize {
        // While the worker is not read from, its clock is stopped.
        let now = self.emits.blocked_since().unwrap_or(now);
        self.in_flight.cancel(|message| search.means(message), now)
    }

    /// Returns the numbers of the messages to give up, since the source has lost them to another daemon. A
    /// version 1 worker can't be asked: the line names no message, and could reach it during the next one.
    pub(super) fn yield_void(&mut self) -> Vec<u64> {
        match self.version {
            Version::Two { .. } => self.in_flight.yield_void(self.pool.losses()),
            Version::Unknown | Version::One => Vec::new(),
        }
    }

    /// Closes the daemon's side: the worker reads an end of file from now on.
    pub(super) fn finish_sending(&mut self) {
        self.connection.finish_sending();
    }

    /// Judges each unanswered message of a worker that has ended for `cause`.
    pub(super) fn judge(&mut self, cause: &Cause, exited_well: bool) -> Vec<Unanswered> {
        self.notes.tell_suppressed();
        let left_unread = self.connection.left_unread();
        let read = Read {
            sent: self.connection.sent_total(),
            left_unread,
            left_well: exited_well && (!left_unread || self.is_tolerated()),
        };
        self.in_flight.judge(cause, self.version, read)
    }

    /// Returns whether a worker that exited of its own accord may have left the first of its messages unread.
    fn is_tolerated(&self) -> bool {
        let name = self.in_flight.head_name();
        name.is_none_or(|name| self.pool.tolerates(name))
    }

    /// Settles answers that came in time once their emits are confirmed, even after the worker has exited.
    pub(super) async fn settle_after_emits(&mut self) {
        while !self.in_flight.is_empty() {
            match self.emits.step(self.pool.publishes()).await {
                Some(Emitted::Confirmed(id, result)) => self.confirmed(id, result),
                Some(Emitted::Sent) => {}
                None => return,
            }
        }
    }
}

fn closed(error: impl ToString) -> ExchangeError {
    ExchangeError::Closed(error.to_string())
}
