//! The ledger as commands and the admin API use it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use tokio::time::Instant;

use super::entering::{self, NewDefinition, tag};
use super::row::{AuditRow, LoggedLine, Occurrence, OccurrenceEvent, ScheduleRow, Version};
use super::store::{Expired, LedgerStore, LedgerTransaction};
use super::{Ledger, LedgerError, by_hand, report, upcoming};
use crate::table::Fault;
use ganger_config::model::ScheduleConfig;
use ganger_queue::client::{Criteria, DeadFilter, Page, Retried, RetryTarget};
use ganger_queue::delivery::{CANCELLED, Reason};
use ganger_queue::fault::SourceFault;
use ganger_queue::ledger::shown::{
    AuditJson, BackfillJson, DeadLetterNameJson, LogLineJson, OccurrenceDetailsJson,
    OccurrenceEventJson, OccurrenceJson, OccurrenceLogJson, ReportJson, RunWorkerJson,
    ScheduleDetailsJson, ScheduleJson, SkippedJson, UpcomingJson, VersionJson,
};
use ganger_queue::ledger::{
    AuditFilter, BackfillRequest, Cancelled, Entered, Expected, LedgerClient, NOTE_MAX,
    OccurrenceFilter, OpenSource, REASON_MAX, ReportRange, ScheduleFilter, SkipRequest, Triggered,
    UpcomingRange, given_text,
};
use ganger_schedule::occurrence::OccurrenceState;

/// Time within which daemons look for runs that are to be cancelled: twice their interval.
const LOOKED_WITHIN: Duration = Duration::from_secs(2);
/// Number of schedules that are read at once.
const READ_MAX: u32 = 1000;
/// Number of occurrences that are shown of a schedule.
const LAST: u32 = 10;
/// Number of slots of the past that one transaction runs.
const BACKFILLED_AT_ONCE: usize = 100;

/// Adds the states of the newest occurrences to schedules, so many of each.
fn add_results(
    store: &mut dyn LedgerStore,
    schedules: &mut [ScheduleJson],
    most: u32,
) -> Result<(), Fault> {
    let names: Vec<String> = schedules.iter().map(|one| one.name.clone()).collect();
    let mut states = BTreeMap::new();
    store.read(&mut |tx| {
        states = tx.last_states(&names, most)?;
        Ok(())
    })?;
    for one in schedules {
        let states = states.remove(&one.name).unwrap_or_default();
        one.results = states
            .iter()
            .map(|state| state.as_str().to_owned())
            .collect();
    }
    Ok(())
}

impl LedgerClient for Ledger {
    fn set_actor(&mut self, actor: &str) {
        self.actor = Some(actor.to_owned());
    }

    fn hold(&mut self) -> Result<Option<String>, LedgerError> {
        Ok(Ledger::hold(self)?)
    }

    fn set_hold(&mut self, reason: Option<&str>) -> Result<(), LedgerError> {
        Ok(Ledger::set_hold(self, checked(reason)?)?)
    }

    fn schedules(&mut self, filter: &ScheduleFilter) -> Result<Vec<ScheduleJson>, LedgerError> {
        let mut after = filter.after.clone().unwrap_or_default();
        let mut found = Vec::new();
        let most = usize::try_from(filter.limit).unwrap_or(usize::MAX);
        loop {
            let mut rows = Vec::new();
            let read = self.store.read(&mut |tx| {
                rows = tx.schedules_after(&after, READ_MAX)?;
                Ok(())
            });
            read.map_err(|fault| self.fault(fault))?;
            let is_last = rows.len() < READ_MAX as usize;
            if let Some(last) = rows.last() {
                after.clone_from(&last.name);
            }
            let is_in = |row: &ScheduleRow| filter.state.is_none_or(|state| state == row.state);
            let shown = rows.iter().filter(|row| is_in(row)).map(schedule);
            found.extend(shown.filter(|shown| filter.fits(shown)));
            if found.len() >= most || is_last {
                found.truncate(most);
                break;
            }
        }
        if filter.results > 0 {
            let added = add_results(&mut *self.store, &mut found, filter.results);
            added.map_err(|fault| self.fault(fault))?;
        }
        Ok(found)
    }

    fn schedule(&mut self, name: &str) -> Result<ScheduleDetailsJson, LedgerError> {
        let row = Ledger::schedule(self, name)?;
        let last = OccurrenceFilter {
            schedule: Some(name.to_owned()),
            limit: LAST,
            ..OccurrenceFilter::default()
        };
        let last = Ledger::occurrences(self, &last)?;
        Ok(ScheduleDetailsJson {
            schedule: schedule(&row),
            runs: row.cursor.map_or(0, |cursor| cursor.runs),
            etag: tag(&row.definition),
            skips: row.skips.iter().map(ToString::to_string).collect(),
            definition: keys(row.definition),
            occurrences: last
                .iter()
                .map(|one| occurrence(one, &self.source))
                .collect(),
        })
    }

    fn upcoming(&mut self, range: &UpcomingRange) -> Result<Vec<UpcomingJson>, LedgerError> {
        let found = upcoming::upcoming(&mut *self.store, &mut self.definitions, range);
        Ok(found.map_err(|fault| self.fault(fault))?)
    }

    fn report(&mut self, range: &ReportRange) -> Result<ReportJson, LedgerError> {
        let tagged = match &range.tag {
            Some(tag) => {
                let of_tag = ScheduleFilter {
                    tag: Some(tag.clone()),
                    limit: u32::MAX,
                    ..ScheduleFilter::default()
                };
                let tagged = LedgerClient::schedules(self, &of_tag)?.into_iter();
                Some(tagged.map(|schedule| schedule.name).collect())
            }
            None => None,
        };
        let report = report::report(&mut *self.store, range, tagged.as_ref());
        Ok(report.map_err(|fault| self.fault(fault))?)
    }

    fn enter(
        &mut self,
        schedule: &ScheduleConfig,
        expected: Option<&Expected>,
    ) -> Result<Entered, LedgerError> {
        let Self { store, actor, .. } = self;
        let new = NewDefinition {
            schedule,
            expected,
            rolled_back_to: None,
            actor: actor.as_deref(),
        };
        let mut entered = Ok(Entered::Unchanged);
        let done = store.write(&mut |tx| {
            entered = entering::enter(tx, &new)?;
            Ok(())
        });
        done.map_err(|fault| self.fault(fault))?;
        entered
    }

    fn remove(
        &mut self,
        name: &str,
        is_forced: bool,
        expected: Option<&Expected>,
    ) -> Result<(), LedgerError> {
        let Self { store, actor, .. } = self;
        let mut removed = Ok(());
        let done = store.write(&mut |tx| {
            removed = entering::remove(tx, name, is_forced, expected, actor.as_deref())?;
            Ok(())
        });
        done.map_err(|fault| self.fault(fault))?;
        removed
    }

    fn versions(&mut self, name: &str) -> Result<Vec<VersionJson>, LedgerError> {
        let mut found = None;
        let read = self.store.read(&mut |tx| {
            let versions = tx.versions(name)?;
            let is_known = !versions.is_empty() || tx.schedule(name)?.is_some();
            found = is_known.then_some(versions);
            Ok(())
        });
        read.map_err(|fault| self.fault(fault))?;
        let found = found.ok_or_else(|| LedgerError::NoSchedule(name.to_owned()))?;
        Ok(found.into_iter().map(version).collect())
    }

    fn roll_back(&mut self, name: &str, version: i64) -> Result<Entered, LedgerError> {
        let Self {
            store,
            actor,
            definitions,
            ..
        } = self;
        let mut entered = Ok(Entered::Unchanged);
        let done = store.write(&mut |tx| {
            let (row, versions) = (tx.schedule(name)?, tx.versions(name)?);
            let earlier = entering::earlier(name, row.as_ref(), versions, version);
            let schedule = earlier.and_then(|earlier| {
                let read = definitions.of(name, &earlier.definition);
                read.map_err(|why| LedgerError::Unsuited(name.to_owned(), why))
            });
            entered = match schedule {
                Ok(schedule) => entering::enter(
                    tx,
                    &NewDefinition {
                        schedule: &schedule,
                        expected: Some(&Expected::Present),
                        rolled_back_to: Some(version),
                        actor: actor.as_deref(),
                    },
                )?,
                Err(refused) => Err(refused),
            };
            Ok(())
        });
        done.map_err(|fault| self.fault(fault))?;
        entered
    }

    fn skip(&mut self, name: &str, request: &SkipRequest) -> Result<SkippedJson, LedgerError> {
        let (zones, actor) = (self.definitions.zones().clone(), self.actor.clone());
        let reason = checked(request.reason.as_deref())?;
        let mut skipped = Err(LedgerError::NoSchedule(name.to_owned()));
        self.change(name, &mut |tx, row, versions, clock| {
            let spec = &versions.config.spec;
            let slot = request.slot.as_deref();
            let slot = slot.map(|slot| by_hand::read("slot", slot, spec, &zones));
            let slot = slot.transpose();
            let is_undone = request.is_undone;
            let slot = slot.and_then(|slot| by_hand::skip(row, spec, clock, (slot, is_undone)));
            if let Ok(slot) = &slot {
                let action = if is_undone { "unskip" } else { "skip" };
                let detail = json!({ "slot": slot.to_string(), "reason": reason });
                tx.audit(actor.as_deref(), action, name, &detail)?;
            }
            skipped = slot.map(|slot| SkippedJson {
                slot: slot.to_string(),
                skips: row.skips.iter().map(ToString::to_string).collect(),
            });
            Ok(Vec::new())
        })?;
        skipped
    }

    fn backfill(
        &mut self,
        name: &str,
        request: &BackfillRequest,
    ) -> Result<BackfillJson, LedgerError> {
        let reason = checked(request.reason.as_deref())?;
        let (slots, range, all) = self.not_run(name, request)?;
        let mut filled = BackfillJson {
            done: u64::try_from(all - slots.len()).unwrap_or(0),
            slots: slots.iter().map(|(slot, _)| slot.to_string()).collect(),
            occurrences: Vec::new(),
        };
        if request.is_dry_run {
            return Ok(filled);
        }
        let actor = self.actor.clone();
        let mut is_recorded = false;
        for some in slots.chunks(BACKFILLED_AT_ONCE) {
            let mut sent = Ok(Vec::new());
            self.change(name, &mut |tx, row, versions, clock| {
                let last = (range.1, clock.wall);
                sent = by_hand::run(tx, (row, versions.config), some, last)?;
                if !is_recorded && sent.is_ok() {
                    let detail = json!({
                        "from": range.0.to_string(), "to": range.1.to_string(), "slots": slots.len(),
                        "reason": reason,
                    });
                    tx.audit(actor.as_deref(), "backfill", name, &detail)?;
                }
                Ok(Vec::new())
            })?;
            is_recorded = true;
            filled.occurrences.extend(sent?);
        }
        Ok(filled)
    }

    fn audit(&mut self, filter: &AuditFilter) -> Result<Vec<AuditJson>, LedgerError> {
        let mut found = Vec::new();
        let read = self.store.read(&mut |tx| {
            found = tx.audited(filter)?;
            Ok(())
        });
        read.map_err(|fault| self.fault(fault))?;
        Ok(found.into_iter().map(change).collect())
    }

    fn note(&mut self, action: &str, subject: &str, detail: &Json) -> Result<(), LedgerError> {
        let actor = self.actor.clone();
        let noted = self
            .store
            .write(&mut |tx| tx.audit(actor.as_deref(), action, subject, detail));
        noted.map_err(|fault| self.fault(fault).into())
    }

    fn pause(&mut self, name: &str, reason: Option<&str>) -> Result<(), LedgerError> {
        Ledger::pause(self, name, checked(reason)?)
    }

    fn resume(&mut self, name: &str, make_up: bool) -> Result<(), LedgerError> {
        Ledger::resume(self, name, make_up)
    }

    fn trigger(
        &mut self,
        name: &str,
        body: Option<&str>,
        reason: Option<&str>,
        is_forced: bool,
    ) -> Result<Triggered, LedgerError> {
        Ledger::trigger(self, name, body, checked(reason)?, is_forced)
    }

    fn occurrences(
        &mut self,
        filter: &OccurrenceFilter,
    ) -> Result<Vec<OccurrenceJson>, LedgerError> {
        let found = Ledger::occurrences(self, filter)?;
        Ok(found
            .iter()
            .map(|one| occurrence(one, &self.source))
            .collect())
    }

    fn log(
        &mut self,
        id: &str,
        after: Option<i64>,
        most: u32,
    ) -> Result<Option<OccurrenceLogJson>, LedgerError> {
        let mut found = None;
        let mut lines = Vec::new();
        let read = self.store.read(&mut |tx| {
            // Before its lines: they are complete if it had ended for a while by then.
            found = tx.occurrence(id)?;
            lines = tx.log(id, after.unwrap_or(-1), most)?;
            Ok(())
        });
        read.map_err(|fault| self.fault(fault))?;
        Ok(found.map(|(found, _)| OccurrenceLogJson {
            state: word(found.state),
            ended_at: text(found.ended_at),
            dropped: found.log_dropped,
            lines: lines.into_iter().map(log_line).collect(),
        }))
    }

    fn occurrence(&mut self, id: &str) -> Result<Option<OccurrenceDetailsJson>, LedgerError> {
        let found = Ledger::occurrence(self, id)?;
        Ok(found.map(|(found, events)| OccurrenceDetailsJson {
            occurrence: occurrence(&found, &self.source),
            events: events.into_iter().map(event).collect(),
        }))
    }

    fn cancel(&mut self, id: &str, reason: Option<&str>) -> Result<Cancelled, LedgerError> {
        let reason = checked(reason)?.unwrap_or("cancelled by an operator");
        let mut cancelled = None;
        let actor = self.actor.clone();
        let done = self.store.write(&mut |tx| {
            let id = &own_id(tx, id)?;
            cancelled = tx.cancel(id, reason)?;
            match cancelled {
                Some(Ok(_)) => {
                    tx.audit(actor.as_deref(), "cancel", id, &json!({ "reason": reason }))
                }
                Some(Err(_)) | None => Ok(()),
            }
        });
        done.map_err(|fault| self.fault(fault))?;
        let cancelled = cancelled.ok_or_else(|| LedgerError::NoOccurrence(id.to_owned()))?;
        cancelled.map_err(|state| {
            let why = format!("has ended already: it is {}", state.as_str());
            LedgerError::Unsuitable(id.to_owned(), why)
        })
    }

    fn retry(
        &mut self,
        id: &str,
        body: Option<&str>,
        sources: &mut OpenSource<'_>,
    ) -> Result<(), LedgerError> {
        let unsuitable = |why: String| LedgerError::Unsuitable(id.to_owned(), why);
        let found = Ledger::occurrence(self, id)?;
        let (run, _) = found.ok_or_else(|| LedgerError::NoOccurrence(id.to_owned()))?;
        if run.schedule.is_empty() {
            let why =
                "is the record of a message of no schedule: `ganger dead retry` sends that back";
            return Err(unsuitable(why.to_owned()));
        }
        let anew = format!(
            "`ganger schedule trigger {}` starts a new run",
            run.schedule
        );
        if !has_dead_letter(run.state) {
            let why = "only a run that failed, timed out or was cancelled can be sent back";
            let state = run.state.as_str();
            return Err(unsuitable(format!("is {state}: {why}; {anew}")));
        }
        wait_for_looks(self, &run)?;
        let source = run.source.as_ref().unwrap_or(&self.source);
        let letter = DeadFilter {
            criteria: Criteria {
                message_id: Some(run.id.clone()),
                ..Criteria::default()
            },
            ..DeadFilter::default()
        };
        let target = RetryTarget {
            body: body.map(|body| body.to_owned().into()),
            to: None,
        };
        let mut client = sources(source)?;
        // One is enough, also if an exchange has routed the message to several queues.
        let mut ids = BTreeSet::new();
        client.dead_list(&Page::all(letter), |letter| {
            // Another message without an id may have that correlation id.
            if letter.message_id.as_deref() != Some(id) {
                return ControlFlow::Continue(());
            }
            ids.insert(letter.id);
            ControlFlow::Break(())
        })?;
        let found = DeadFilter {
            ids: Some(ids),
            ..DeadFilter::default()
        };
        let retried = client.dead_retry(&found, &target);
        match retried.map_err(|halted| *halted.error)? {
            Retried {
                retried: 0,
                held: 0,
            } => Err(unsuitable(format!("has no dead letter (any more): {anew}"))),
            Retried { retried: 0, .. } => {
                let why = "is not sent back: another message has its unique key";
                Err(unsuitable(why.to_owned()))
            }
            Retried { .. } => {
                let actor = self.actor.clone();
                let done = self.store.write(&mut |tx| {
                    let body = body.map(|_| "another");
                    tx.audit(actor.as_deref(), "retry", id, &json!({ "body": body }))?;
                    tx.sent_back(&run)
                });
                Ok(done.map_err(|fault| self.fault(fault))?)
            }
        }
    }

    fn resolve(&mut self, id: &str, note: &str) -> Result<(), LedgerError> {
        let note = given_text("the note", note, NOTE_MAX)?;
        let mut state = None;
        let actor = self.actor.clone();
        let done = self.store.write(&mut |tx| {
            let id = &own_id(tx, id)?;
            state = tx.resolve(id, note)?;
            match state {
                Some(OccurrenceState::Failed | OccurrenceState::TimedOut) => {
                    tx.audit(actor.as_deref(), "resolve", id, &json!({ "note": note }))
                }
                Some(_) | None => Ok(()),
            }
        });
        done.map_err(|fault| self.fault(fault))?;
        match state {
            None => Err(LedgerError::NoOccurrence(id.to_owned())),
            Some(OccurrenceState::Failed | OccurrenceState::TimedOut) => Ok(()),
            Some(state) => {
                let why = "only a run that failed or timed out can be resolved";
                let why = format!("is {}: {why}", state.as_str());
                Err(LedgerError::Unsuitable(id.to_owned(), why))
            }
        }
    }

    fn delete(&mut self, id: &str) -> Result<(), LedgerError> {
        let (mut left, mut is_deleted) = (None, false);
        let actor = self.actor.clone();
        let done = self.store.write(&mut |tx| {
            (left, is_deleted) = (tx.occurrence(id)?, false);
            let Some((found, _)) = left.take_if(|(found, _)| found.state.is_end()) else {
                return Ok(());
            };
            tx.expire(&Expired {
                occurrences: vec![found.id.clone()],
                of: BTreeSet::from([found.schedule.clone()]),
                ..Expired::default()
            })?;
            // Its message may have been sent back just now.
            left = tx.occurrence(&found.id)?;
            if left.is_none() {
                let detail = json!({ "schedule": found.schedule, "state": found.state.as_str() });
                tx.audit(actor.as_deref(), "delete", &found.id, &detail)?;
                is_deleted = true;
            }
            Ok(())
        });
        done.map_err(|fault| self.fault(fault))?;
        match left {
            _ if is_deleted => Ok(()),
            Some((left, _)) => {
                let why = format!("is {}: cancel it first", left.state.as_str());
                Err(LedgerError::Unsuitable(left.id, why))
            }
            None => Err(LedgerError::NoOccurrence(id.to_owned())),
        }
    }
}

/// Returns the id of the occurrence that has that id, or whose message has it.
fn own_id(tx: &mut dyn LedgerTransaction, id: &str) -> Result<String, Fault> {
    let found = tx.occurrence(id)?;
    Ok(found.map_or_else(|| id.to_owned(), |(found, _)| found.id))
}

/// Checks the reason that an operator gives.
fn checked(reason: Option<&str>) -> Result<Option<&str>, LedgerError> {
    let reason = reason.map(|reason| given_text("the reason", reason, REASON_MAX));
    reason.transpose()
}

/// Returns whether the end of an occurrence made its message a dead letter. One that was cancelled may have ended
/// without a message, or may have been replaced: its error tells.
fn is_dead(one: &Occurrence) -> bool {
    let (reason, error) = (one.reason.as_deref(), one.error.as_deref());
    match one.state {
        OccurrenceState::Cancelled => error.is_some_and(|error| error.starts_with(CANCELLED)),
        state => {
            let mut reasons = Reason::ALL.iter();
            state.is_end() && reasons.any(|of| Some(of.as_str()) == reason)
        }
    }
}

/// Returns whether a run that has ended so may have left a dead letter.
fn has_dead_letter(state: OccurrenceState) -> bool {
    use OccurrenceState::{Cancelled, Failed, TimedOut};
    matches!(state, Failed | TimedOut | Cancelled)
}

/// Waits until daemons have seen that a run which was cancelled has ended: before, they would cancel its message
/// again when it is delivered.
fn wait_for_looks(ledger: &mut Ledger, run: &Occurrence) -> Result<(), SourceFault> {
    let ended_at = run
        .ended_at
        .filter(|_| run.state == OccurrenceState::Cancelled);
    let Some(ended_at) = ended_at else {
        return Ok(());
    };
    let mut seen_at = ended_at;
    let read = ledger.store.read(&mut |tx| {
        seen_at = tx.clock()?.wall;
        Ok(())
    });
    read.map_err(|fault| ledger.fault(fault))?;
    let passed = Duration::try_from(seen_at.duration_since(ended_at)).unwrap_or_default();
    let until = Instant::now() + LOOKED_WITHIN.saturating_sub(passed);
    while let Some(rest) = until
        .checked_duration_since(Instant::now())
        .filter(|rest| !rest.is_zero())
    {
        std::thread::park_timeout(rest);
    }
    Ok(())
}

/// Returns a definition as JSON. What SQL has inserted may be none: then it is a text.
fn keys(definition: String) -> Json {
    serde_json::from_str(&definition).unwrap_or_else(|_| Json::from(definition))
}

fn version(version: Version) -> VersionJson {
    VersionJson {
        version: version.version,
        at: version.at.to_string(),
        origin: version.origin,
        actor: version.actor,
        definition: keys(version.definition),
    }
}

fn change(change: AuditRow) -> AuditJson {
    AuditJson {
        id: change.id,
        at: change.at.to_string(),
        actor: change.actor,
        action: change.action,
        subject: change.subject,
        detail: change.detail.map_or(Json::Null, keys),
    }
}

/// Part of a definition. The rest need not be understood to show it.
#[derive(Debug, Default, Deserialize)]
struct Tagged {
    #[serde(default)]
    tags: Vec<String>,
}

fn schedule(row: &ScheduleRow) -> ScheduleJson {
    let tagged: Tagged = serde_json::from_str(&row.definition).unwrap_or_default();
    ScheduleJson {
        results: Vec::new(),
        name: row.name.clone(),
        state: row.state.as_str().to_owned(),
        state_reason: row.state_reason.clone(),
        overdue: row.expected.overdue.clone(),
        next_slot: text(row.next_slot),
        last_state: row.last_state.map(word),
        tags: tagged.tags,
        origin: row.origin.clone(),
        version: row.version,
    }
}

/// Shows an occurrence of a ledger in the source of that name.
fn occurrence(one: &Occurrence, own: &str) -> OccurrenceJson {
    let has_schedule = !one.schedule.is_empty();
    let of_message = |id: &Option<String>| match has_schedule {
        true => Some(one.id.clone()),
        false => id.clone(),
    };
    let message_id = of_message(&one.message_id);
    let dead_letter = message_id.clone().filter(|_| is_dead(one));
    OccurrenceJson {
        id: one.id.clone(),
        schedule: has_schedule.then(|| one.schedule.clone()),
        version: one.version,
        slot: text(one.slot),
        last_slot: text(one.last_slot),
        source: one.source.clone(),
        queue: one.queue.clone(),
        state: word(one.state),
        state_code: one.state.code(),
        reason: one.reason.clone(),
        attempt: one.attempt,
        queued_at: one.queued_at.to_string(),
        started_at: text(one.started_at),
        ended_at: text(one.ended_at),
        duration_ms: duration_ms(one),
        error: one.error.clone(),
        fingerprint: one.fingerprint.clone(),
        exit_code: one.exit_code,
        signal: one.signal,
        dead_letter: dead_letter.map(|message_id| DeadLetterNameJson {
            source: one.source.clone().unwrap_or_else(|| own.to_owned()),
            message_id,
        }),
        result: one.result.clone(),
        message_id,
        correlation_id: of_message(&one.correlation_id),
        missed: one.missed,
        cancel_request: one.cancel_request.clone(),
        resolved: one.resolved.clone(),
        progress: one.progress.clone(),
        heard_at: text(one.heard_at),
        log_lines: one.log_lines,
        log_dropped: one.log_dropped,
        worker: one.worker.as_deref().and_then(RunWorkerJson::read),
        trace_id: one.trace_id.clone(),
    }
}

fn log_line(line: LoggedLine) -> LogLineJson {
    LogLineJson {
        line: line.line,
        at: line.at.to_string(),
        attempt: line.attempt,
        stream: line.stream,
        level: line.level,
        text: line.text,
    }
}

fn event(event: OccurrenceEvent) -> OccurrenceEventJson {
    OccurrenceEventJson {
        at: event.at.to_string(),
        from: event.from.map(word),
        to: word(event.to),
        attempt: event.attempt,
        note: event.note,
    }
}

fn duration_ms(one: &Occurrence) -> Option<u64> {
    let took = one.ended_at?.duration_since(one.started_at?);
    u64::try_from(took.as_millis()).ok()
}

fn text(time: Option<Timestamp>) -> Option<String> {
    time.map(|time| time.to_string())
}

fn word(state: OccurrenceState) -> String {
    state.as_str().to_owned()
}
