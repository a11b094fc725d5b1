//! Messages in flight at one worker and the progress of each: which is processed, its start and deadline, and
//! its outcome once answered. Plain data and decisions; no pipe, no process.

mod entry;

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::blame::{Blame, Cause, HeldState, Late, Read, Version, blame};
use crate::verdict;
use crate::verdict::Case;
use crate::worker::subject::Subject;
use entry::{Asked, Entry, MessageState};
pub(super) use entry::{Settled, cancelled};
use ganger_config::model::PoolConfig;
use ganger_core::names::EMIT_ID_HEADER;
use ganger_protocol::output::Output;
use ganger_queue::delivery::{Delivery, Message, Outgoing, PublishError};
use ganger_telemetry::metrics::Durations;

const NOWHERE: &str =
    "the emit has no destination: it names no queue, and the message has no reply-to";

/// Message left unanswered by the worker's end.
#[derive(Debug)]
pub(super) struct Unanswered {
    pub(super) delivery: Delivery,
    /// Time that the worker was allowed to take.
    pub(super) soft: Option<Duration>,
    /// True if an operator has cancelled it.
    pub(super) cancelled: bool,
    pub(super) blame: Blame,
}

/// Actions due by the clock.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Due {
    /// Messages that the worker is to be asked to stop.
    pub(super) cancel: Vec<u64>,
    /// Cause for which it is to be killed.
    pub(super) kill: Option<Cause>,
}

/// Messages in flight at one worker, in the order in which they were given to it.
#[derive(Debug)]
pub(super) struct InFlight {
    entries: VecDeque<Entry>,
    bytes: usize,
    next_id: u64,
    /// Time of the worker's last frame, or of its last new work if it was idle.
    last_frame: Instant,
    /// Number of the source's claim losses at the last check for void messages.
    losses: u64,
    /// Time at which its worker was started, if it has not answered yet.
    fresh_since: Option<Instant>,
}

impl InFlight {
    /// Creates an empty set. `losses` is the number of the source's claim losses so far.
    pub(super) fn new(now: Instant, losses: u64) -> Self {
        Self {
            entries: VecDeque::new(),
            bytes: 0,
            next_id: 1,
            last_frame: now,
            losses,
            fresh_since: None,
        }
    }

    /// Marks the worker as fresh, started at that time: its first work may take it longer.
    pub(super) fn of_a_fresh_worker(self, started_at: Instant) -> Self {
        let fresh_since = Some(started_at);
        Self {
            fresh_since,
            ..self
        }
    }

    /// Returns the number of messages.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether no message is in flight.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the total size of the bodies, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the message that has been processed for longest, with its start and its number.
    pub(super) fn oldest(&self) -> Option<(Instant, u64, &Message)> {
        let begun = self
            .entries
            .iter()
            .filter_map(|entry| Some((entry.begun()?, entry)));
        let (begun, oldest) = begun.min_by_key(|(begun, _)| *begun)?;
        Some((begun, oldest.id, &oldest.delivery.message))
    }

    /// Returns the message that the worker processes, the first without an answer, with its number.
    pub(super) fn head(&self) -> Option<(u64, Subject<'_>)> {
        let head = self.entries.iter().find(|entry| entry.is_open())?;
        Some((head.id, head.subject()))
    }

    /// Returns the lasting name of the head.
    pub(super) fn head_name(&self) -> Option<String> {
        let head = self.entries.iter().find(|entry| entry.is_open())?;
        Some(verdict::lasting_name(&head.delivery.message))
    }

    /// Returns the message that a note is about. `None` if it is settled.
    pub(super) fn subject(&self, id: Option<u64>) -> Option<Subject<'_>> {
        let mut entries = self.entries.iter();
        let meant = |entry: &&Entry| id.map_or(entry.is_open(), |id| entry.id == id);
        entries.find(meant).map(Entry::subject)
    }

    /// Returns the number of the next message.
    pub(super) fn next_id(&self) -> u64 {
        self.next_id
    }

    /// Adds a message whose frame has just been put into the pipe, between these two offsets. `at_once` is
    /// true if the worker begins all its messages at once.
    pub(super) fn push(
        &mut self,
        delivery: Delivery,
        (starts_at, ends_at): (u64, u64),
        soft: Option<Duration>,
        at_once: bool,
        now: Instant,
    ) {
        if self.entries.is_empty() {
            self.last_frame = now;
        }
        let neighbour = self.entries.iter_mut().find(|entry| entry.is_open());
        let neighbour = neighbour.filter(|_| at_once);
        let had_company = neighbour.is_some();
        if let Some(neighbour) = neighbour {
            // If more than one is open, all are known to have had company.
            neighbour.had_company = true;
        }
        self.bytes += delivery.message.body.len();
        self.entries.push_back(Entry {
            id: self.next_id,
            delivery,
            starts_at,
            ends_at,
            piped_at: now,
            way: if at_once {
                MessageState::Begun(now)
            } else {
                MessageState::Piped
            },
            asked: Asked::Nothing,
            soft,
            had_company,
            cancelled: false,
            emitted: 0,
            unconfirmed: 0,
            emit_failure: None,
        });
        self.next_id += 1;
    }

    /// Records a sign of life from the worker.
    pub(super) fn heard(&mut self, now: Instant) {
        self.last_frame = now;
    }

    /// Starts the time of the first message without an answer, unless it is running.
    pub(super) fn begin_head(&mut self, now: Instant) {
        if let Some(head) = self.entries.iter_mut().find(|entry| entry.is_open())
            && matches!(head.way, MessageState::Piped)
        {
            head.way = MessageState::Begun(now);
        }
    }

    /// Begins all messages without an answer: the worker has declared that it processes all at once.
    pub(super) fn begin_all(&mut self, now: Instant) {
        for entry in self.entries.iter_mut().filter(|entry| entry.is_open()) {
            entry.way = MessageState::Begun(now);
        }
    }

    /// Takes in an answer. Returns the time the worker took, and the message settled by it, unless
    /// confirmations of its emits are missing.
    pub(super) fn answer(
        &mut self,
        answer: Output,
        version: Version,
        sent: u64,
        now: Instant,
    ) -> Result<(Durations, Option<Settled>), String> {
        let at = self.meant(answer.id, version, sent)?;
        self.fresh_since = None;
        let entry = &mut self.entries[at];
        let begun = entry.begun().unwrap_or(now);
        let took = Durations::between(entry.delivery.taken_at, entry.piped_at, begun, now);
        entry.note(Some(begun), Some(now));
        entry.way = MessageState::Answered { begun, answer };
        self.begin_head(now);
        Ok((took, self.finish(at)))
    }

    /// Takes in an emit. Returns the message to publish, with the number of the message that it belongs to.
    /// An emit that may not be published fails its message instead.
    pub(super) fn emit(
        &mut self,
        output: Output,
        version: Version,
        sent: u64,
        policy: &PoolConfig,
    ) -> Result<Option<(u64, Outgoing)>, String> {
        let found = self.meant(output.id, version, sent);
        let at = found.map_err(|error| format!("an emit without a message: {error}"))?;
        let entry = &mut self.entries[at];
        entry.emitted += 1;
        let message = &entry.delivery.message;
        let case = Case {
            message,
            history: entry.delivery.history,
            policy,
            chance: 0.0,
        };
        let queue = match verdict::destination(&output, message) {
            None => Err(NOWHERE.to_owned()),
            Some(queue) => match verdict::refusal(&queue, &output, case) {
                None => Ok(queue),
                Some(refusal) => Err(format!("an emit is refused: {refusal}")),
            },
        };
        let queue = match queue {
            Ok(queue) => queue,
            Err(error) => {
                entry.emit_failure.get_or_insert(error);
                return Ok(None);
            }
        };
        let mut outgoing = verdict::outgoing(queue, output, case);
        if let Some(recording) = &entry.delivery.recording {
            recording.carry_on(&message.headers, &mut outgoing.headers);
        }
        outgoing.message_id = None;
        let name = format!("{}:{}", verdict::lasting_name(message), entry.emitted);
        outgoing.headers.retain(|(name, _)| name != EMIT_ID_HEADER);
        outgoing.headers.push((EMIT_ID_HEADER.into(), name));
        entry.unconfirmed += 1;
        Ok(Some((entry.id, outgoing)))
    }

    /// Handles the broker's reply to an emit of that message. Returns the message if this settles
    /// it.
    pub(super) fn confirmed(
        &mut self,
        id: u64,
        result: Result<(), PublishError>,
    ) -> Option<Settled> {
        let at = self.entries.iter().position(|entry| entry.id == id)?;
        let entry = &mut self.entries[at];
        entry.unconfirmed -= 1;
        if let Err(error) = result {
            entry.emit_failure.get_or_insert(error.to_string());
        }
        self.finish(at)
    }

    /// Takes a message out if it is answered and its emits are confirmed.
    fn finish(&mut self, at: usize) -> Option<Settled> {
        if !self.entries.get(at)?.is_settled() {
            return None;
        }
        let entry = self.entries.remove(at)?;
        self.bytes -= entry.delivery.message.body.len();
        entry.settled()
    }

    /// Finds the message that an answer or an emit is for: the one it names, the head (version 1),
    /// or the only one.
    fn meant(&self, id: Option<u64>, version: Version, sent: u64) -> Result<usize, String> {
        let mut open = self.entries.iter().enumerate();
        let mut open = std::iter::from_fn(|| open.find(|(_, entry)| entry.is_open()));
        let (at, found) = match id {
            Some(id) => open
                .find(|(_, entry)| entry.id == id)
                .ok_or_else(|| format!("an answer for id {id}, which is not in flight"))?,
            None => {
                let first = open.next().ok_or("an answer with nothing in flight")?;
                if matches!(version, Version::Two { .. }) && open.next().is_some() {
                    return Err(
                        "an answer without an id (key \"4\") with several messages in flight"
                            .into(),
                    );
                }
                first
            }
        };
        if found.ends_at > sent {
            return Err("an answer before the message was sent in full".into());
        }
        Ok(at)
    }

    /// Takes out all messages without an answer and judges each by the worker's end.
    pub(super) fn judge(&mut self, cause: &Cause, version: Version, read: Read) -> Vec<Unanswered> {
        let (open, answered): (VecDeque<_>, VecDeque<_>) =
            self.entries.drain(..).partition(Entry::is_open);
        let size = |entry: &Entry| entry.delivery.message.body.len();
        self.bytes = answered.iter().map(size).sum();
        self.entries = answered;
        let begun = |entry: &Entry| read.has_begun(entry.starts_at);
        let begun_in_all = open.iter().filter(|entry| begun(entry)).count();
        let left_unread = read.left_unread && matches!(cause, Cause::Died | Cause::PipeClosed);
        let head = open.front().map(|entry| entry.id);
        let unanswered = |mut entry: Entry| {
            entry.note(entry.begun(), None);
            let place = HeldState {
                head: Some(entry.id) == head,
                begun: begun(&entry),
                left_unread,
                left_well: read.left_well && *cause == Cause::Died,
                alone: entry.delivery.history.alone,
                begun_in_all,
            };
            Unanswered {
                blame: blame(cause, version, entry.id, place),
                delivery: entry.delivery,
                soft: entry.soft,
                cancelled: entry.cancelled,
            }
        };
        open.into_iter().map(unanswered).collect()
    }

    /// Moves all deadlines by a time in which the worker was not read from.
    pub(super) fn postpone(&mut self, by: Duration) {
        self.last_frame += by;
        self.fresh_since = self.fresh_since.map(|since| since + by);
        for entry in &mut self.entries {
            match &mut entry.way {
                MessageState::Piped => {}
                MessageState::Begun(begun) | MessageState::Answered { begun, .. } => *begun += by,
            }
        }
    }

    /// Marks all messages without an answer as asked to be given up. Returns their numbers. A message whose
    /// time had run out before fails for that reason.
    pub(super) fn yield_all(&mut self) -> Vec<u64> {
        let open = self.entries.iter_mut().filter(|entry| entry.is_open());
        let ask = |entry: &mut Entry| {
            entry.asked = match entry.was_told_to_stop() {
                true => Asked::Stop,
                false => Asked::Yield,
            };
            entry.id
        };
        open.map(ask).collect()
    }

    /// Cancels the selected messages for an operator: their time runs out now, or when they are begun. A
    /// message that is answered is settled by its answer. Returns their number.
    pub(super) fn cancel(&mut self, is_meant: impl Fn(&Message) -> bool, now: Instant) -> usize {
        let entries = self.entries.iter_mut();
        let meant = entries.filter(|entry| is_meant(&entry.delivery.message));
        let cancel = |entry: &mut Entry| {
            let spent = entry
                .begun()
                .map_or(Duration::ZERO, |begun| now.saturating_duration_since(begun));
            entry.soft = Some(entry.soft.map_or(spent, |soft| soft.min(spent)));
            entry.cancelled = true;
        };
        meant.map(cancel).count()
    }

    /// If `losses`, the number of the source's claim losses, has changed: marks the void messages
    /// without an answer as asked to be given up. Returns the numbers of those not asked for
    /// before.
    pub(super) fn yield_void(&mut self, losses: u64) -> Vec<u64> {
        if self.losses == losses {
            return Vec::new();
        }
        self.losses = losses;
        let open = self.entries.iter_mut().filter(|entry| entry.is_open());
        let unasked = |entry: &&mut Entry| entry.asked == Asked::Nothing;
        let void = open
            .filter(unasked)
            .filter(|entry| entry.delivery.is_given_up(entry.begun().is_some()));
        let ask = |entry: &mut Entry| {
            entry.asked = Asked::Yield;
            entry.id
        };
        void.map(ask).collect()
    }

    /// Returns the earliest time at which [`InFlight::due`] has something to report.
    pub(super) fn next_deadline(&self, policy: &PoolConfig) -> Option<Instant> {
        let open = self.entries.iter().filter(|entry| entry.is_open());
        let fresh_until = self.fresh_until(policy);
        let of_entry = |entry: &Entry| {
            let hard = entry.hard_deadline(policy, fresh_until);
            [entry.soft_deadline(), hard]
        };
        let deadlines = open.flat_map(of_entry).flatten();
        deadlines.chain(self.silent_at(policy)).min()
    }

    /// Marks and returns the messages to be cancelled now, with the cause to kill the worker for.
    /// `sent` is the number of bytes sent to it.
    pub(super) fn due(&mut self, policy: &PoolConfig, sent: u64, now: Instant) -> Due {
        let is_over = |deadline: Option<Instant>| deadline.is_some_and(|at| at <= now);
        let fresh_until = self.fresh_until(policy);
        let (mut due, last_frame) = (Due::default(), self.last_frame);
        for entry in self.entries.iter_mut().filter(|entry| entry.is_open()) {
            if is_over(entry.soft_deadline()) {
                entry.asked = match entry.asked {
                    Asked::Nothing | Asked::Stop => Asked::Stop,
                    Asked::Yield | Asked::YieldThenStop => Asked::YieldThenStop,
                };
                due.cancel.push(entry.id);
            }
            if is_over(entry.hard_deadline(policy, fresh_until)) {
                due.kill.get_or_insert(match entry.cancelled {
                    true => Cause::Cancelled(entry.id),
                    false => Cause::TimedOut(entry.late(last_frame)),
                });
            }
        }
        if is_over(self.silent_at(policy)) {
            due.kill
                .get_or_insert(Cause::Stalled(self.silent_over(sent)));
        }
        due
    }

    /// Returns the message over which a worker is silent: the one that it has begun, if it is only one.
    fn silent_over(&self, sent: u64) -> Late {
        let is_begun =
            |entry: &&Entry| matches!(entry.way, MessageState::Begun(_)) && entry.starts_at < sent;
        let mut begun = self.entries.iter().filter(is_begun);
        match (begun.next(), begun.next()) {
            (Some(only), None) => Late::Only(only.id),
            _ => Late::Any,
        }
    }

    /// Returns the time at which a worker with a message has been silent for too long.
    fn silent_at(&self, policy: &PoolConfig) -> Option<Instant> {
        let timeout = policy.stall_timeout?;
        let waits = self.entries.iter().any(Entry::is_open);
        let silent_at = self.last_frame + timeout;
        waits.then(|| silent_at.max(self.fresh_until(policy).unwrap_or(silent_at)))
    }

    /// Returns the time until which the worker is not killed for taking too long. A successor would take as
    /// long to load and to compile the code for the first message.
    fn fresh_until(&self, policy: &PoolConfig) -> Option<Instant> {
        Some(self.fresh_since? + policy.start_timeout)
    }
}

#[cfg(test)]
mod tests;
