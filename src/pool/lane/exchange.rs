//! What goes through a worker's pipe: messages out, answers and notes in.

use std::io;

use tokio::time::Instant;

use super::in_flight::{Cause, Entry, Version, soft_timeout};
use super::{Lane, PublishError};
use crate::delivery::{Delivery, Failure, Reason};
use crate::names::EMIT_ID_HEADER;
use crate::pool::verdict;
use crate::pool::verdict::Event;
use crate::pool::window::BYTES_MAX;
use crate::protocol::input::{EncodeError, Extras, Input};
use crate::protocol::output::Output;
use crate::protocol::status::Status;
use crate::shutdown::Phase;
use crate::worker::connection::{Ready, Received};
use crate::worker::notes;

/// How many of a worker's frames are taken in before others have their turn.
const FRAMES_PER_TURN: u32 = 32;

const NOWHERE: &str =
    "an emit has nowhere to go: it names no queue and the message has no reply-to";

/// The most messages that a worker may take at once, whatever its HELLO says.
const CONCURRENCY_MAX: usize = 1024;

impl Lane {
    /// Puts pending messages into the pipe, as many as the worker may have, in one write.
    pub(super) fn fill(&mut self, now: Instant) {
        let mut sent = false;
        while let Some(delivery) = self.next_to_send(now) {
            self.send(delivery, now);
            sent = true;
        }
        if sent {
            self.in_flight.begin_head(now);
            self.show();
        }
        if self.connection.unsent() > 0
            && self.closed_at.is_none()
            && let Err(error) = self.connection.flush()
        {
            self.pipe_closed(&error.to_string(), now);
        }
    }

    fn next_to_send(&mut self, now: Instant) -> Option<Delivery> {
        let takes_work = self.phase == Phase::Running
            && !self.recycled
            && self.cause.is_none()
            && self.closed_at.is_none();
        let has_room = self.in_flight.is_empty()
            || (self.in_flight.len() < self.gauge.window.get()
                && self.in_flight.bytes() < BYTES_MAX);
        if !takes_work || !has_room {
            return None;
        }
        // Whoever has it now begins it.
        while let Some(void) = self.pending.pop_front_if(|next| next.is_void()) {
            self.settle(void, Event::Stopped { suspect: false });
            self.shared.room.notify_one();
        }
        let next = self.pending.front()?;
        let text =
            self.version != Version::Unknown || std::str::from_utf8(&next.message.body).is_ok();
        if !text {
            // Only a version 2 worker may have it, and it says what it is in its first frame.
            if now < self.hello_deadline() {
                return None;
            }
            self.version = Version::One;
        }
        self.pending.pop_front()
    }

    /// A worker that has said nothing by now speaks version 1.
    pub(super) fn hello_deadline(&self) -> Instant {
        self.connected_at + self.shared.policy.borrow().start_timeout
    }

    fn send(&mut self, delivery: Delivery, now: Instant) {
        let policy = self.shared.policy();
        let soft = soft_timeout(policy.timeout, &delivery.message.headers);
        let millis =
            |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let hard = soft.map(|soft| soft + policy.timeout_grace);
        let input = Input {
            message: &delivery.message,
            timeout_ms: soft.map(millis),
            id: self.next_id,
            extras: (self.version != Version::One).then(|| Extras {
                attempt: delivery.history.attempt,
                milliseconds_left: hard.map(millis),
            }),
        };
        let starts_at = self.connection.sent_total() + self.connection.unsent() as u64;
        if let Err(error) = input.encode(self.connection.outgoing(), policy.frame_bytes_max) {
            return self.refuse(delivery, &error);
        }
        let ends_at = self.connection.sent_total() + self.connection.unsent() as u64;
        if self.in_flight.is_empty() {
            self.busy_since = now;
            self.last_frame = now;
            self.process.begin(now);
        }
        let at_once = matches!(self.version, Version::Two { .. });
        self.in_flight.push(Entry {
            id: self.next_id,
            delivery,
            starts_at,
            ends_at,
            begun: at_once.then_some(now),
            soft,
            cancelled: false,
            yielding: false,
            emitted: 0,
            unconfirmed: 0,
            emit_failure: None,
            answer: None,
        });
        self.next_id += 1;
    }

    /// The message can't be put into a frame for this worker. It is no fault of the worker's.
    fn refuse(&mut self, delivery: Delivery, error: &EncodeError) {
        let failure = Failure::new(Reason::Undeliverable, error.to_string());
        self.settle(delivery, Event::Failed(failure));
        self.shared.room.notify_one();
    }

    /// The pipe can be read or written.
    pub(super) fn exchange(&mut self, ready: io::Result<Ready>) {
        let now = Instant::now();
        let done = ready.and_then(|ready| {
            if ready.writable {
                self.connection.flush()?;
            }
            if ready.readable {
                self.connection.receive().map(Some)
            } else {
                Ok(None)
            }
        });
        match done {
            Ok(Some(Received::Some(_))) => self.take_frames(now),
            Ok(Some(Received::Eof)) => self.pipe_closed("end of file", now),
            Ok(Some(Received::WouldBlock) | None) => {}
            Err(error) => self.pipe_closed(&error.to_string(), now),
        }
    }

    /// After the worker's end: what it had written before is still in the pipe.
    pub(super) fn read_the_rest(&mut self) {
        while self.is_heard() {
            let received =
                !self.has_more && matches!(self.connection.receive(), Ok(Received::Some(_)));
            if !received && !self.has_more {
                return;
            }
            self.take_frames(Instant::now());
        }
    }

    fn pipe_closed(&mut self, how: &str, now: Instant) {
        if self.closed_at.is_none() {
            tracing::debug!(
                worker = self.slot,
                pid = self.process.pid(),
                how,
                "pipe closed"
            );
            self.closed_at = Some(now);
            self.close();
        }
    }

    /// Takes in the frames that are there, as many as is one turn's.
    pub(super) fn take_frames(&mut self, now: Instant) {
        self.has_more = false;
        for turn in 0.. {
            if !self.is_heard() {
                break;
            }
            if turn == FRAMES_PER_TURN {
                self.has_more = true;
                break;
            }
            match self.connection.next_frame() {
                Ok(Some(frame)) => match Output::decode(&frame) {
                    Ok(output) => self.unpaced += u32::from(self.take_frame(output, now)),
                    Err(error) => self.protocol_error(error.to_string()),
                },
                Ok(None) => break,
                Err(error) => self.protocol_error(error.to_string()),
            }
        }
        if self.unpaced > 0 && !self.has_more {
            self.pace.record(self.unpaced, now - self.busy_since);
            self.unpaced = 0;
            self.busy_since = now;
        }
        self.show();
        self.shared.room.notify_one();
    }

    /// Takes one frame in; returns whether it is an answer.
    fn take_frame(&mut self, output: Output, now: Instant) -> bool {
        self.last_frame = now;
        if self.version == Version::Unknown {
            self.version = first_word(&output);
            if let Version::Two { .. } = self.version {
                self.in_flight
                    .iter_mut()
                    .for_each(|entry| entry.begun = Some(now));
                return false;
            }
        }
        match output.status {
            Status::IGNORE => {}
            Status::LOG => self.log(&output, now),
            Status::PROGRESS => self.progress(&output),
            Status::EMIT => self.emit(output),
            Status(100..=199) => self.shared.counters.note(output.status.0),
            _ => return self.answer(output, now),
        }
        false
    }

    fn answer(&mut self, output: Output, now: Instant) -> bool {
        let sent = self.connection.sent_total();
        let id = match self.in_flight.answered(output.id, self.version, sent) {
            Ok(id) => id,
            Err(error) => {
                self.protocol_error(error);
                return false;
            }
        };
        self.gauge.answered.set(self.gauge.answered.get() + 1);
        if let Some(entry) = self.in_flight.get_mut(id) {
            let begun = entry.begun.unwrap_or(now);
            entry.answer = Some(output);
            self.shared.counters.answered(now - begun);
        }
        self.in_flight.begin_head(now);
        self.finish(id);
        true
    }

    /// Settles a message that is answered and whose emits are confirmed.
    fn finish(&mut self, id: u64) {
        let ready = |entry: &mut Entry| entry.answer.is_some() && entry.unconfirmed == 0;
        if !self.in_flight.get_mut(id).is_some_and(ready) {
            return;
        }
        let Some(Entry {
            delivery,
            yielding,
            emit_failure,
            answer: Some(answer),
            ..
        }) = self.in_flight.take(id)
        else {
            return;
        };
        let event = match emit_failure {
            None if yielding => Event::Yielded(answer),
            None => Event::Answered(answer),
            Some(_) if yielding => Event::Stopped { suspect: false },
            Some(error) => Event::Failed(Failure {
                error,
                ..Failure::default()
            }),
        };
        self.settle(delivery, event);
    }

    /// The broker has taken an emit, or has not.
    pub(super) fn confirmed(&mut self, id: u64, result: Result<(), PublishError>) {
        if let Some(entry) = self.in_flight.get_mut(id) {
            entry.unconfirmed -= 1;
            if let Err(error) = result {
                entry.emit_failure.get_or_insert(error.to_string());
            }
        }
        self.finish(id);
        self.show();
        self.shared.room.notify_one();
    }

    fn emit(&mut self, output: Output) {
        let policy = self.shared.policy();
        let sent = self.connection.sent_total();
        let found = self.in_flight.answered(output.id, self.version, sent);
        let Some(entry) = found
            .as_ref()
            .ok()
            .and_then(|id| self.in_flight.get_mut(*id))
        else {
            let error = found.err().unwrap_or_default();
            return self.protocol_error(format!("an emit that belongs to no message: {error}"));
        };
        entry.emitted += 1;
        let message = &entry.delivery.message;
        let queue = verdict::destination(&output, message);
        let queue = match queue {
            None => Err(NOWHERE.to_owned()),
            Some(queue) => match verdict::refusal(&queue, &policy) {
                None => Ok(queue),
                Some(refusal) => Err(format!("an emit is refused: {refusal}")),
            },
        };
        let queue = match queue {
            Ok(queue) => queue,
            Err(error) => {
                entry.emit_failure.get_or_insert(error);
                return;
            }
        };
        let mut outgoing = verdict::outgoing(queue, output, message);
        outgoing.message_id = None;
        let of = verdict::lasting_name(message);
        outgoing.headers.retain(|(name, _)| name != EMIT_ID_HEADER);
        outgoing
            .headers
            .push((EMIT_ID_HEADER.into(), format!("{of}:{}", entry.emitted)));
        entry.unconfirmed += 1;
        self.to_publish.push_back((entry.id, outgoing));
    }

    /// The message that a note is about. One for a message that is settled comes too late: it is
    /// dropped and counted.
    fn subject(&self, note: &Output) -> Option<&Entry> {
        let entry = match note.id {
            Some(id) => self.in_flight.get(id),
            None => self.in_flight.head(),
        };
        if entry.is_none() {
            self.shared.counters.note(note.status.0);
        }
        entry
    }

    fn log(&mut self, output: &Output, now: Instant) {
        if let Some(entry) = self.subject(output) {
            let correlation_id = entry.delivery.message.correlation_id.clone();
            self.notes.log(output, &correlation_id, now);
        }
    }

    fn progress(&self, output: &Output) {
        if self.subject(output).is_some() {
            *self.gauge.progress.borrow_mut() = Some(notes::progress(output));
        }
    }

    /// What it writes still counts: it keeps to the protocol, and was not killed for more than one
    /// message's time, which an answer at the last moment redeems.
    pub(super) fn is_heard(&self) -> bool {
        !self.broke_protocol && matches!(self.cause, None | Some(Cause::TimedOut(_)))
    }

    pub(super) fn protocol_error(&mut self, error: String) {
        self.broke_protocol = true;
        self.kill(Cause::ProtocolError(error));
    }
}

/// What a worker's first frame says of its version.
fn first_word(output: &Output) -> Version {
    if output.status != Status::HELLO {
        return Version::One;
    }
    let mut headers = output.headers.iter().flatten();
    let concurrency = headers
        .find(|(name, _)| name == "concurrency")
        .and_then(|(_, value)| value.trim().parse::<usize>().ok())
        .unwrap_or(1);
    Version::Two {
        concurrency: concurrency.clamp(1, CONCURRENCY_MAX),
    }
}
