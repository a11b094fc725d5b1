//! What goes through a worker's pipe: messages out, answers and notes in, until each message is
//! settled.

use std::io;
use std::time::Duration;

use tokio::time::Instant;

use super::blame::{Cause, Read, Version};
use super::emits::{Emits, Emitted};
use super::in_flight::{Due, InFlight, Judged, Settled};
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
use ganger_config::model::PoolConfig;
use ganger_core::trace_context::SpanContext;
use ganger_protocol::input::{EncodeError, Extras, Input};
use ganger_protocol::output::Output;
use ganger_protocol::status::{Meaning, Note};
use ganger_queue::delivery::{Delivery, Failure, Message, PublishError, Reason};
use ganger_telemetry as telemetry;

/// How many of a worker's frames are taken in before others have their turn.
const FRAMES_PER_TURN: u32 = 32;

/// What goes on between a lane and its worker.
#[derive(Debug)]
pub(super) struct Exchange {
    pool: PoolSide,
    connection: Connection,
    connected_at: Instant,
    version: Version,
    in_flight: InFlight,
    emits: Emits,
    tempo: Tempo,
    /// Where it waits for a core, if it is known which process it is.
    run_queue: Option<RunQueue>,
    /// How many messages the worker may have, as the pool was shown last.
    window: usize,
    notes: Notes,
    /// Frames may be left in the buffer: the worker's turn was over.
    has_more: bool,
}

/// What there is to be done.
#[derive(Debug)]
pub(super) enum Turn {
    /// The emits have gone on.
    Emits(Emitted),
    /// There are frames left.
    More,
    /// The pipe can be read or written.
    Ready(io::Result<Ready>),
}

/// What the worker has done to its pipe.
#[derive(Debug)]
pub(super) enum Trouble {
    /// It has closed its end; how that was seen.
    Closed(String),
    /// It has broken the protocol.
    Broken(String),
}

impl Exchange {
    /// Nothing was said yet.
    pub(super) fn new(
        pool: PoolSide,
        connection: Connection,
        notes: Notes,
        started_at: Instant,
    ) -> Self {
        let now = Instant::now();
        Self {
            in_flight: InFlight::new(now, pool.losses()).of_a_fresh_worker(started_at),
            pool,
            run_queue: connection.peer().map(RunQueue::of),
            connection,
            connected_at: now,
            version: Version::Unknown,
            emits: Emits::default(),
            tempo: Tempo::new(now),
            window: 1,
            notes,
            has_more: false,
        }
    }

    /// The worker has nothing in hand.
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// Its turn was over before all was taken in.
    pub(super) fn has_more(&self) -> bool {
        self.has_more
    }

    /// The number of the message that it works on, if that is only one, and what records need to name
    /// it: the message and its span.
    pub(super) fn works_on(&self) -> Option<(u64, &Message, Option<SpanContext>)> {
        let one = self.in_flight.len() == 1 || !self.is_version2();
        self.in_flight.head().filter(|_| one)
    }

    /// It can be told of single messages.
    pub(super) fn is_version2(&self) -> bool {
        matches!(self.version, Version::Two { .. })
    }

    /// Whether the worker may be given one more.
    pub(super) fn has_room(&self) -> bool {
        self.in_flight.is_empty()
            || (self.in_flight.len() < self.window && self.in_flight.bytes() < BYTES_MAX)
    }

    /// Whether it may be given this one. Bytes that are no text only a version 2 worker may have,
    /// and it says what it is in its first frame.
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

    /// Until when a worker with nothing in hand may say what it speaks, if it has not.
    pub(super) fn silent_until(&self) -> Option<Instant> {
        let silent = self.version == Version::Unknown && self.is_idle();
        silent.then(|| self.hello_deadline())
    }

    /// A worker that has said nothing by now speaks version 1.
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
        let frame = (starts_at, self.written());
        let at_once = self.is_version2();
        self.in_flight.push(delivery, frame, soft, at_once, now);
    }

    /// The bytes that were encoded since the start.
    fn written(&self) -> u64 {
        self.connection.sent_total() + self.connection.unsent() as u64
    }

    /// The message can't be put into a frame for this worker. It is no fault of the worker's.
    fn refuse(&mut self, delivery: Delivery, error: &EncodeError) {
        let failure = Failure::new(Reason::Undeliverable, error.to_string());
        self.pool.settle(delivery, Event::Failed(failure));
        self.pool.has_room();
    }

    /// Messages were sent: the first of them may have to begin.
    pub(super) fn has_sent(&mut self, now: Instant) {
        self.in_flight.begin_head(now);
        self.show();
    }

    /// Writes what is encoded, as far as the pipe takes it.
    pub(super) fn flush(&mut self) -> Result<(), Trouble> {
        if self.connection.unsent() == 0 {
            return Ok(());
        }
        self.connection.flush().map_err(closed)
    }

    /// Waits until there is something to be done. A worker whose emits wait for the broker is not
    /// read from: it waits as well. Cancel-safe.
    pub(super) async fn turn(&mut self) -> Turn {
        let listening = self.listens();
        tokio::select! {
            biased;
            Some(emitted) = self.emits.step(self.pool.publishes()), if !self.emits.is_empty() => Turn::Emits(emitted),
            () = std::future::ready(()), if listening && self.has_more => Turn::More,
            ready = self.connection.ready(), if listening => Turn::Ready(ready),
            // An emit waits, so there is a step of its own to wait for.
            else => std::future::pending().await,
        }
    }

    /// Does it. What the worker writes counts only while it is heard.
    pub(super) fn take(&mut self, turn: Turn, is_heard: bool, now: Instant) -> Result<(), Trouble> {
        match turn {
            Turn::Emits(Emitted::Sent) => Ok(()),
            Turn::Emits(Emitted::Confirmed(id, result)) => {
                self.confirmed(id, result);
                Ok(())
            }
            Turn::More => self.take_frames(is_heard, now),
            Turn::Ready(ready) => match self.pass_bytes(ready).map_err(closed)? {
                Received::Some(_) => self.take_frames(is_heard, now),
                Received::Eof => Err(Trouble::Closed("end of file".into())),
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

    /// Takes in what is in the pipe, by so many reads at most. One takes as much as a pipe holds.
    pub(super) fn read(&mut self, reads_max: usize) -> Result<(), Trouble> {
        self.take_all_frames()?;
        for _ in 0..reads_max {
            match self.connection.receive().map_err(closed)? {
                Received::Some(_) => self.take_all_frames()?,
                Received::Eof => return Err(Trouble::Closed("end of file".into())),
                Received::WouldBlock => break,
            }
        }
        Ok(())
    }

    fn take_all_frames(&mut self) -> Result<(), Trouble> {
        self.take_frames(true, Instant::now())?;
        while self.has_more {
            self.take_frames(true, Instant::now())?;
        }
        Ok(())
    }

    /// Takes in the frames that are there, as many as is one turn's.
    fn take_frames(&mut self, is_heard: bool, now: Instant) -> Result<(), Trouble> {
        let taken = match is_heard {
            true => self.take_turn(now),
            false => Ok(false),
        };
        self.has_more = taken.as_ref().is_ok_and(|more| *more);
        if !self.has_more {
            let waited = || PoolSide::waited(self.run_queue.as_ref()?);
            let there_since = self.pool.there_since(now);
            if let Some(taken) = self.tempo.caught_up(now, there_since, waited) {
                self.pool.has_taken(taken, now);
            }
        }
        self.show();
        self.pool.has_room();
        taken.map(drop).map_err(Trouble::Broken)
    }

    /// Returns whether there may be more, or how the worker has broken the protocol.
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
            self.version = Version::said_by(&output);
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

    /// The broker has taken an emit, or has not.
    fn confirmed(&mut self, id: u64, result: Result<(), PublishError>) {
        if result.is_ok() {
            self.pool.emitted();
        }
        let settled = self.in_flight.confirmed(id, result);
        self.settle(settled);
        self.show();
        self.pool.has_room();
    }

    /// A note for a message that is settled comes too late: it is dropped and counted.
    fn log(&mut self, output: &Output, now: Instant) -> Result<(), String> {
        match self.in_flight.subject(output.id) {
            Some((message, span)) => {
                let _about = telemetry::about(span);
                self.notes.log(output, message, now);
            }
            None => self.pool.ignored(output.status),
        }
        Ok(())
    }

    fn progress(&self, output: &Output) -> Result<(), String> {
        match self.in_flight.subject(output.id) {
            Some(_) => self.pool.progress(notes::progress(output)),
            None => self.pool.ignored(output.status),
        }
        Ok(())
    }

    /// Shows the pool how things stand.
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

    /// Moves all deadlines: for so long nobody could see what the worker did.
    pub(super) fn postpone(&mut self, by: Duration) {
        self.connected_at += by;
        self.in_flight.postpone(by);
        self.emits.postpone(by);
    }

    /// Whether its emits let the worker be heard.
    pub(super) fn listens(&self) -> bool {
        !self.emits.are_waiting()
    }

    /// What the clock says of the messages. A worker that is not listened to can't be late.
    pub(super) fn due(&mut self, now: Instant) -> Due {
        if self.notes.calm_at().is_some_and(|calm| calm <= now) {
            self.notes.tell_suppressed();
        }
        if let Some(by) = self.emits.stood_still(now) {
            self.in_flight.postpone(by);
        }
        if self.emits.are_deaf() {
            return Due::default();
        }
        let sent = self.connection.sent_total();
        let mut due = self.in_flight.due(&self.pool.rules(), sent, now);
        if !self.is_version2() {
            due.cancel.clear();
        }
        due
    }

    /// The next moment at which [`Exchange::due`] has something to say.
    pub(super) fn next_deadline(&self, policy: &PoolConfig) -> Option<Instant> {
        let listened = (!self.emits.are_deaf()).then(|| self.in_flight.next_deadline(policy));
        let deadlines = [listened.flatten(), self.notes.calm_at()];
        deadlines.into_iter().flatten().min()
    }

    /// The worker is asked to give up what it has: the numbers.
    pub(super) fn yield_all(&mut self) -> Vec<u64> {
        self.in_flight.yield_all()
    }

    /// An operator cancels what is meant. Returns how many messages that are.
    pub(super) fn cancel(&mut self, search: &Search, now: Instant) -> usize {
        // While nobody listens to the worker its clock stands still.
        let now = self.emits.deaf_since().unwrap_or(now);
        self.in_flight.cancel(|message| search.means(message), now)
    }

    /// What the source has lost is another's to do: what the worker is to give up. A version 1
    /// worker can't be told: the line names no message, and could reach it when it is on the next.
    pub(super) fn yield_void(&mut self) -> Vec<u64> {
        match self.version {
            Version::Two { .. } => self.in_flight.yield_void(self.pool.losses()),
            Version::Unknown | Version::One => Vec::new(),
        }
    }

    /// The worker reads an end of file from now on.
    pub(super) fn finish_sending(&mut self) {
        self.connection.finish_sending();
    }

    /// The worker has ended for that cause: what that means for each message that it has not
    /// answered.
    pub(super) fn judge(&mut self, cause: &Cause, exited_well: bool) -> Vec<Judged> {
        self.notes.tell_suppressed();
        let left_unread = self.connection.left_unread();
        let read = Read {
            sent: self.connection.sent_total(),
            left_unread,
            left_well: exited_well && (!left_unread || self.is_forgiven()),
        };
        self.in_flight.judge(cause, self.version, read)
    }

    /// The worker left of its own accord and had not read the first of its messages.
    fn is_forgiven(&self) -> bool {
        let name = self.in_flight.head_name();
        name.is_none_or(|name| self.pool.forgives(name))
    }

    /// Answers that came in time wait for their emits even when their worker is gone.
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

fn closed(error: impl ToString) -> Trouble {
    Trouble::Closed(error.to_string())
}
