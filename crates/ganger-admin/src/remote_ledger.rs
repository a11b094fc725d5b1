//! The ledger of a remote daemon: commands act on it through the daemon's API.

use hyper::Method;
use hyper::header::{HeaderName, IF_MATCH, IF_NONE_MATCH};
use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value as Json, json};
use tokio::runtime::{Builder, Runtime};
use url::form_urlencoded::Serializer;

use super::client::{ClientError, Remote, segment};
use super::control::CancelledJson;
use super::ledger::LedgerJson;
use super::occurrences::{OCCURRENCES_MAX, Occurrences};
use super::schedules::TriggeredJson;
use ganger_config::model::ScheduleConfig;
use ganger_queue::fault::SourceFault;
use ganger_queue::ledger::shown::{
    AuditJson, BackfillJson, OccurrenceDetailsJson, OccurrenceJson, OccurrenceLogJson, ReportJson,
    ScheduleDetailsJson, ScheduleJson, SkippedJson, UpcomingJson, VersionJson,
};
use ganger_queue::ledger::{
    AuditFilter, BackfillRequest, Cancelled, Entered, Expected, LedgerClient, LedgerError,
    OccurrenceFilter, OpenSource, ReportRange, ScheduleFilter, SkipRequest, Triggered,
    UpcomingRange,
};
use ganger_schedule::zone::Zone;

/// The ledger of a remote daemon.
#[derive(Debug)]
pub struct RemoteLedger {
    remote: Remote,
    runtime: Runtime,
}

impl RemoteLedger {
    /// Returns the ledger of that daemon. Nothing is requested yet.
    ///
    /// # Errors
    /// If the system has no event loop for it.
    pub fn of(remote: Remote) -> Result<Self, SourceFault> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| SourceFault::remote(error.to_string()))?;
        Ok(Self { remote, runtime })
    }

    fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&Json>,
    ) -> Result<T, ClientError> {
        self.ask_if(method, path, body, None)
    }

    fn ask_if<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&Json>,
        expected: Option<&Expected>,
    ) -> Result<T, ClientError> {
        let ask = self
            .remote
            .ask_if(method, path, body, expected.map(condition));
        let answer = self.runtime.block_on(ask)?;
        let read = serde_json::from_slice(&answer);
        read.map_err(|error| ClientError::Broken(error.to_string()))
    }

    fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.ask(Method::GET, path, None)
    }

    /// Changes a run.
    fn control<T: DeserializeOwned>(
        &self,
        id: &str,
        operation: &str,
        body: &Json,
    ) -> Result<T, LedgerError> {
        let path = format!("/v1/occurrences/{}/{operation}", segment(id));
        let done = self.ask(Method::POST, &path, Some(body));
        done.map_err(|error| undone_run(id, error))
    }

    /// Changes a schedule.
    fn change(
        &self,
        name: &str,
        operation: &str,
        body: &impl Serialize,
    ) -> Result<Json, LedgerError> {
        let path = format!("{}/{operation}", of(name));
        let body = serde_json::to_value(body).unwrap_or_default();
        self.ask(Method::POST, &path, Some(&body))
            .map_err(|error| undone(name, error))
    }
}

/// Returns the header with which the daemon is told what is expected.
fn condition(expected: &Expected) -> (HeaderName, String) {
    match expected {
        Expected::Absent => (IF_NONE_MATCH, "*".to_owned()),
        Expected::Present => (IF_MATCH, "*".to_owned()),
        Expected::OneOf(tags) => {
            let tags = tags.iter().map(|tag| format!("\"{tag}\""));
            (IF_MATCH, tags.collect::<Vec<_>>().join(", "))
        }
    }
}

fn entered(answer: &Json) -> Entered {
    match answer["change"].as_str() {
        Some("created") => Entered::Created,
        Some("unchanged") => Entered::Unchanged,
        _ => Entered::Replaced,
    }
}

fn read<T: DeserializeOwned>(answer: Json) -> Result<T, LedgerError> {
    serde_json::from_value(answer).map_err(|error| said(ClientError::Broken(error.to_string())))
}

/// Returns the path of a schedule.
fn of(name: &str) -> String {
    format!("/v1/schedules/{}", segment(name))
}

fn query(pairs: &[(&str, Option<&str>)]) -> String {
    let mut query = Serializer::new(String::new());
    for (name, value) in pairs {
        if let Some(value) = value {
            query.append_pair(name, value);
        }
    }
    query.finish()
}

/// Converts an error of the daemon, or of the connection to it, about a schedule.
fn undone(name: &str, error: ClientError) -> LedgerError {
    match status(&error) {
        Some(404) => LedgerError::NoSchedule(name.to_owned()),
        Some(412) => {
            let said = error.to_string();
            let why = said.strip_prefix(&format!("schedule `{name}` "));
            LedgerError::Changed(name.to_owned(), why.unwrap_or(&said).to_owned())
        }
        _ => said(error),
    }
}

/// Converts an error about a run.
fn undone_run(id: &str, error: ClientError) -> LedgerError {
    match status(&error) {
        Some(404) => LedgerError::NoOccurrence(id.to_owned()),
        _ => said(error),
    }
}

/// Converts an error of the daemon, or of the connection to it. A request that is invalid is one of the command line.
fn said(error: ClientError) -> LedgerError {
    match status(&error) {
        Some(400 | 422) => LedgerError::Refused(error.to_string()),
        _ => SourceFault::remote(error).into(),
    }
}

fn status(error: &ClientError) -> Option<u16> {
    match error {
        ClientError::Refused { status, .. } => Some(*status),
        _ => None,
    }
}

impl LedgerClient for RemoteLedger {
    /// The daemon knows its callers.
    fn set_actor(&mut self, _actor: &str) {}

    fn hold(&mut self) -> Result<Option<String>, LedgerError> {
        let ledger: LedgerJson = self.get("/v1/ledger").map_err(said)?;
        Ok(ledger.hold)
    }

    fn set_hold(&mut self, reason: Option<&str>) -> Result<(), LedgerError> {
        let (path, body) = match reason {
            Some(reason) => ("/v1/schedules/pause", Some(json!({ "reason": reason }))),
            None => ("/v1/schedules/resume", None),
        };
        let done: Result<Json, _> = self.ask(Method::POST, path, body.as_ref());
        done.map(drop).map_err(said)
    }

    fn schedules(&mut self, filter: &ScheduleFilter) -> Result<Vec<ScheduleJson>, LedgerError> {
        let results = (filter.results > 0).then(|| filter.results.to_string());
        let query = query(&[
            ("tag", filter.tag.as_deref()),
            ("state", filter.state.map(|state| state.as_str())),
            ("text", filter.text.as_deref()),
            ("after", filter.after.as_deref()),
            ("limit", Some(&filter.limit.to_string())),
            ("results", results.as_deref()),
        ]);
        let listed = self.get(&format!("/v1/schedules?{query}"));
        listed.map_err(said)
    }

    fn schedule(&mut self, name: &str) -> Result<ScheduleDetailsJson, LedgerError> {
        self.get(&of(name)).map_err(|error| undone(name, error))
    }

    fn upcoming(&mut self, range: &UpcomingRange) -> Result<Vec<UpcomingJson>, LedgerError> {
        let time = |time: Option<Timestamp>| time.map(|time| time.to_string());
        let query = query(&[
            ("from", time(range.from).as_deref()),
            ("to", time(range.to).as_deref()),
            ("zone", range.zone.as_ref().map(Zone::name)),
            ("each", range.each.map(|each| each.to_string()).as_deref()),
            ("limit", Some(&range.limit.to_string())),
        ]);
        self.get(&format!("/v1/upcoming?{query}")).map_err(said)
    }

    fn report(&mut self, range: &ReportRange) -> Result<ReportJson, LedgerError> {
        let time = |time: Option<Timestamp>| time.map(|time| time.to_string());
        let query = query(&[
            ("from", time(range.from).as_deref()),
            ("to", time(range.to).as_deref()),
            ("schedule", range.schedule.as_deref()),
            ("queue", range.queue.as_deref()),
            ("tag", range.tag.as_deref()),
            ("by", range.by_day.as_ref().map(|_| "day")),
            ("zone", range.by_day.as_ref().map(Zone::name)),
            ("runs", range.runs.map(|runs| runs.to_string()).as_deref()),
            ("limit", Some(&range.limit.to_string())),
            (
                "within",
                range
                    .within
                    .map(|time| format!("{}ms", time.as_millis()))
                    .as_deref(),
            ),
        ]);
        let order = range.order.as_str();
        self.get(&format!("/v1/reports/{order}?{query}"))
            .map_err(said)
    }

    fn enter(
        &mut self,
        schedule: &ScheduleConfig,
        expected: Option<&Expected>,
    ) -> Result<Entered, LedgerError> {
        let name = schedule.name();
        let keys: Json = serde_json::from_str(&schedule.definition).unwrap_or_default();
        let answer: Result<Json, _> = self.ask_if(Method::PUT, &of(name), Some(&keys), expected);
        let answer = answer.map_err(|error| undone(name, error))?;
        Ok(entered(&answer))
    }

    /// The daemon knows the schedules of its configuration.
    fn remove(
        &mut self,
        name: &str,
        _is_forced: bool,
        expected: Option<&Expected>,
    ) -> Result<(), LedgerError> {
        let removed: Result<Json, _> = self.ask_if(Method::DELETE, &of(name), None, expected);
        removed.map(drop).map_err(|error| undone(name, error))
    }

    fn versions(&mut self, name: &str) -> Result<Vec<VersionJson>, LedgerError> {
        let versions = self.get(&format!("{}/versions", of(name)));
        versions.map_err(|error| undone(name, error))
    }

    fn roll_back(&mut self, name: &str, version: i64) -> Result<Entered, LedgerError> {
        let answer = self.change(name, "rollback", &json!({ "version": version }))?;
        Ok(entered(&answer))
    }

    fn skip(&mut self, name: &str, request: &SkipRequest) -> Result<SkippedJson, LedgerError> {
        let SkipRequest {
            slot,
            is_undone,
            reason,
        } = request;
        let wanted = json!({ "slot": slot, "undo": is_undone, "reason": reason });
        read(self.change(name, "skip", &wanted)?)
    }

    fn backfill(
        &mut self,
        name: &str,
        request: &BackfillRequest,
    ) -> Result<BackfillJson, LedgerError> {
        let BackfillRequest {
            from,
            to,
            is_dry_run,
            reason,
        } = request;
        let wanted = json!({ "from": from, "to": to, "dry_run": is_dry_run, "reason": reason });
        read(self.change(name, "backfill", &wanted)?)
    }

    /// Does nothing: the daemon records what it is asked for.
    fn note(&mut self, _: &str, _: &str, _: &serde_json::Value) -> Result<(), LedgerError> {
        Ok(())
    }

    fn audit(&mut self, filter: &AuditFilter) -> Result<Vec<AuditJson>, LedgerError> {
        let query = query(&[
            ("subject", filter.subject.as_deref()),
            ("before", filter.before.map(|id| id.to_string()).as_deref()),
            ("limit", Some(&filter.limit.to_string())),
        ]);
        self.get(&format!("/v1/audit?{query}")).map_err(said)
    }

    fn pause(&mut self, name: &str, reason: Option<&str>) -> Result<(), LedgerError> {
        let done = self.change(name, "pause", &json!({ "reason": reason }));
        done.map(drop)
    }

    fn resume(&mut self, name: &str, make_up: bool) -> Result<(), LedgerError> {
        let done = self.change(name, "resume", &json!({ "make_up": make_up }));
        done.map(drop)
    }

    fn trigger(
        &mut self,
        name: &str,
        body: Option<&str>,
        reason: Option<&str>,
        is_forced: bool,
    ) -> Result<Triggered, LedgerError> {
        let wanted = json!({ "body": body, "reason": reason, "force": is_forced });
        let triggered = self.change(name, "trigger", &wanted)?;
        let triggered: TriggeredJson = read(triggered)?;
        Ok(Triggered::Sent(triggered.occurrence))
    }

    fn occurrences(
        &mut self,
        filter: &OccurrenceFilter,
    ) -> Result<Vec<OccurrenceJson>, LedgerError> {
        let most = usize::try_from(filter.limit).unwrap_or(usize::MAX);
        let mut all: Vec<OccurrenceJson> = Vec::new();
        let mut cursor = filter.before.clone();
        loop {
            let left = most.saturating_sub(all.len());
            let limit = left.min(OCCURRENCES_MAX as usize).to_string();
            let query = query(&[
                ("schedule", filter.schedule.as_deref()),
                ("state", filter.state.map(|state| state.as_str())),
                ("unresolved", filter.is_unresolved.then_some("true")),
                ("fingerprint", filter.fingerprint.as_deref()),
                ("correlation_id", filter.correlation_id.as_deref()),
                ("cursor", cursor.as_deref()),
                ("limit", Some(&limit)),
            ]);
            let listed = self.get(&format!("/v1/occurrences?{query}"));
            let name = filter.schedule.as_deref().unwrap_or_default();
            let listed: Occurrences = listed.map_err(|error| undone(name, error))?;
            all.extend(listed.occurrences);
            cursor = listed.cursor;
            if cursor.is_none() || all.len() >= most {
                return Ok(all);
            }
        }
    }

    fn log(
        &mut self,
        id: &str,
        after: Option<i64>,
        most: u32,
    ) -> Result<Option<OccurrenceLogJson>, LedgerError> {
        let query = query(&[
            ("after", after.map(|after| after.to_string()).as_deref()),
            ("limit", Some(&most.to_string())),
        ]);
        match self.get(&format!("/v1/occurrences/{}/log?{query}", segment(id))) {
            Ok(found) => Ok(Some(found)),
            Err(error) if status(&error) == Some(404) => Ok(None),
            Err(error) => Err(said(error)),
        }
    }

    fn occurrence(&mut self, id: &str) -> Result<Option<OccurrenceDetailsJson>, LedgerError> {
        match self.get(&format!("/v1/occurrences/{}", segment(id))) {
            Ok(found) => Ok(Some(found)),
            Err(error) if status(&error) == Some(404) => Ok(None),
            Err(error) => Err(said(error)),
        }
    }

    fn cancel(&mut self, id: &str, reason: Option<&str>) -> Result<Cancelled, LedgerError> {
        let cancelled: CancelledJson = self.control(id, "cancel", &json!({ "reason": reason }))?;
        Ok(cancelled.result())
    }

    /// The daemon connects to the source itself.
    fn retry(
        &mut self,
        id: &str,
        body: Option<&str>,
        _sources: &mut OpenSource<'_>,
    ) -> Result<(), LedgerError> {
        let done: Json = self.control(id, "retry", &json!({ "body": body }))?;
        drop(done);
        Ok(())
    }

    fn resolve(&mut self, id: &str, note: &str) -> Result<(), LedgerError> {
        let done: Json = self.control(id, "resolve", &json!({ "note": note }))?;
        drop(done);
        Ok(())
    }

    fn delete(&mut self, id: &str) -> Result<(), LedgerError> {
        let path = format!("/v1/occurrences/{}", segment(id));
        let deleted: Result<Json, _> = self.ask(Method::DELETE, &path, None);
        deleted.map(drop).map_err(|error| undone_run(id, error))
    }
}
