//! Jobs of Milvaion, in the JSON of its API or of its table: what each sends, when, and what is not taken
//! over.

mod cronos;
mod json;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use serde_json::value::RawValue;

use crate::definition::{CalendarDefinition, Definition};
use crate::overlap::Overlap;
use crate::problem::{Problem, quoted};
use crate::zone::Zones;
use json::{LineStarts, Members};

pub use json::{FileNote, FilePlace};

/// Number of lists and answers in one another at most.
const DEPTH_MAX: usize = 4;
/// Longest time limit of a pool.
const TIMEOUT_MAX: Duration = Duration::from_secs(720 * 3600);
/// Longest time within which a run can be expected to start.
const WITHIN_MAX: Duration = Duration::from_secs(8760 * 3600);
/// Number of failures after which Milvaion disables a job that sets none.
const FAILURES: u64 = 5;
/// Largest number of failures after which a schedule is disabled.
const FAILURES_MAX: u64 = 1000;
/// Members that belong to the answer, beside its `data`.
const OF_THE_ANSWER: [&str; 8] = [
    "issuccess",
    "statuscode",
    "messages",
    "metadatas",
    "aggregationresults",
    "currentpagenumber",
    "totalpagecount",
    "totaldatacount",
];
/// Members that are the past of a job, or follow from others.
const OF_THE_PAST: [&str; 16] = [
    "auditinfo",
    "avarageduration",
    "averageduration",
    "creationdate",
    "creatorusername",
    "failedoccurrences",
    "jobversions",
    "lastmodificationdate",
    "lastmodifierusername",
    "latestrun",
    "lateststatus",
    "occurrences",
    "routingpattern",
    "successrate",
    "totalexecutions",
    "version",
];
/// Members of which a job has at least one.
const OF_A_JOB: [&str; 6] = [
    "displayname",
    "jobtype",
    "jobnameinworker",
    "selectedjobname",
    "cronexpression",
    "executeat",
];

/// Time of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobTime {
    /// An expression in UTC.
    Cron {
        /// The expression.
        cron: String,
        /// Days of the week to which its slots are limited besides; none are all.
        only_days: Vec<String>,
    },
    /// A single time.
    At(Timestamp),
}

/// A job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MilvaionJob {
    /// Its place in the file.
    pub place: FilePlace,
    /// Id, if the file has one.
    pub id: Option<String>,
    /// Display name, as it was written.
    pub display_name: Option<String>,
    /// Description.
    pub description: Option<String>,
    /// Tags.
    pub tags: Vec<String>,
    /// Name of the group of workers.
    pub worker: Option<String>,
    /// Name of the class that does the work.
    pub kind: String,
    /// Data, as it was written.
    pub data: String,
    /// True if the data is JSON.
    pub is_json: bool,
    /// Time.
    pub when: JobTime,
    /// Reason for which the job does not run, if it does not.
    pub inactive: Option<String>,
    /// Rule for overlapping runs.
    pub overlap: Overlap,
    /// Time limit of a run; none for that of the worker.
    pub timeout: Option<Duration>,
    /// Time within which a run is to start.
    pub within: Option<Duration>,
    /// Number of failures after which it is disabled.
    pub failures: Option<u64>,
    /// Settings that are not taken over, each with its remedy.
    pub remarks: Vec<Problem>,
}

/// Content of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Export {
    /// Jobs that are taken over.
    pub jobs: Vec<MilvaionJob>,
    /// Jobs that are not taken over.
    pub bad: Vec<FileNote>,
    /// Remarks about the file.
    pub remarks: Vec<FileNote>,
    /// Number of jobs that Milvaion has and the file does not.
    pub absent: u64,
}

/// Reads a file: one or more answers of the API, lists of jobs, or jobs.
///
/// # Errors
/// If the file is not JSON, or something else than jobs.
pub fn read(text: &str, now: Timestamp, zones: &Zones) -> Result<Export, FileNote> {
    let mut reader = ExportReader {
        lines: LineStarts::of(text),
        now,
        zones,
        export: Export::default(),
        ids: BTreeSet::new(),
        of_a_list: None,
        total: 0,
    };
    let documents = serde_json::Deserializer::from_str(text).into_iter::<&RawValue>();
    for document in documents {
        let document = document.map_err(|error| json::invalid(&error))?;
        reader.value(document, 0)?;
    }
    Ok(reader.finish())
}

struct ExportReader<'a> {
    lines: LineStarts<'a>,
    now: Timestamp,
    zones: &'a Zones,
    export: Export,
    ids: BTreeSet<String>,
    /// Place of the first job that has only what the list shows.
    of_a_list: Option<FilePlace>,
    /// Number of jobs that Milvaion has, as its answers tell.
    total: u64,
}

impl<'a> ExportReader<'a> {
    fn value(&mut self, value: &'a RawValue, depth: usize) -> Result<(), FileNote> {
        let place = self.lines.place(value);
        match value.get().as_bytes().first() {
            Some(b'[') if depth < DEPTH_MAX => {
                let all = json::values(value).map_err(|problem| FileNote { place, problem })?;
                all.into_iter()
                    .try_for_each(|one| self.value(one, depth + 1))
            }
            Some(b'{') if depth < DEPTH_MAX => {
                let fields = Members::of(value).map_err(|problem| FileNote { place, problem })?;
                self.object(place, fields, depth)
            }
            _ => Err(no_export(place)),
        }
    }

    fn object(
        &mut self,
        place: FilePlace,
        mut fields: Members<'a>,
        depth: usize,
    ) -> Result<(), FileNote> {
        if fields.has("data") || fields.has("issuccess") {
            return self.answer(place, fields, depth);
        }
        if !OF_A_JOB.iter().any(|name| fields.has(name)) {
            return Err(no_export(place));
        }
        let is_of_a_list = ["workerid", "executeat", "jobnameinworker"]
            .iter()
            .all(|name| !fields.has(name));
        if is_of_a_list {
            self.of_a_list.get_or_insert(place);
        }
        let title = title(&fields);
        let job = self.job(place, &mut fields);
        match job {
            Ok(job) => self.add(job, &title),
            Err(problem) => self.export.bad.push(FileNote {
                place,
                problem: of_job(&title, problem),
            }),
        }
        Ok(())
    }

    fn answer(
        &mut self,
        place: FilePlace,
        mut fields: Members<'a>,
        depth: usize,
    ) -> Result<(), FileNote> {
        let of_answer = |problem| FileNote { place, problem };
        let is_success = fields.boolean("isSuccess").map_err(of_answer)?;
        if is_success == Some(false) {
            let said = fields.take("messages").map_or("", |value| value.get());
            let wrong = format!("Milvaion has answered with an error: {}", quoted(said));
            let right = "ask it again, as a user who may see jobs";
            return Err(of_answer(Problem::new(wrong, right)));
        }
        let total = fields.number("totalDataCount").map_err(of_answer)?;
        self.total = self.total.max(total.unwrap_or(0));
        let data = fields.take("data");
        for name in fields.others(&OF_THE_ANSWER) {
            let problem = Problem::new("is unknown and is not taken over", "look at what it has");
            let problem = problem.under(name);
            self.export.remarks.push(FileNote { place, problem });
        }
        data.map_or(Ok(()), |data| self.value(data, depth + 1))
    }

    fn add(&mut self, job: MilvaionJob, title: &str) {
        if job.id.clone().is_none_or(|id| self.ids.insert(id)) {
            self.export.jobs.push(job);
            return;
        }
        let right = "the first is taken over";
        let problem = of_job(title, Problem::new("job is in the file again", right));
        let place = job.place;
        self.export.remarks.push(FileNote { place, problem });
    }

    fn finish(mut self) -> Export {
        if let Some(place) = self.of_a_list {
            let wrong = "jobs of Milvaion's list lack worker, time limit, description, auto-disable settings and \
                         the time of one-time jobs";
            let right = "save the answer to `GET /api/v1/jobs/job?JobId=ID` for each instead";
            let problem = Problem::new(wrong, right);
            self.export.remarks.push(FileNote { place, problem });
        }
        let found = self.export.jobs.len() + self.export.bad.len();
        let found = u64::try_from(found).unwrap_or(u64::MAX);
        self.export.absent = self.total.saturating_sub(found);
        self.export
    }

    fn job(&self, place: FilePlace, fields: &mut Members<'a>) -> Result<MilvaionJob, Problem> {
        let mut remarks = Vec::new();
        let kinds = ["jobType", "jobNameInWorker", "selectedJobName"];
        let kinds = kinds.map(|name| fields.text(name));
        let mut kind = None;
        for given in kinds {
            kind = kind.or(given?);
        }
        let kind = kind.filter(|kind| !kind.trim().is_empty());
        let right = "name the class that does the work";
        let kind = kind.ok_or_else(|| Problem::new("is missing", right).under("jobType"))?;
        let when = self.when(fields)?;
        let (data, is_json) = data(fields, &mut remarks)?;
        let (failures, disabled) = auto_disable(fields, &mut remarks)?;
        let inactive = match (&when, fields.boolean("isActive")?) {
            (_, Some(false)) => Some(disabled.unwrap_or_else(|| "it is not active".to_owned())),
            (JobTime::At(at), _) if *at <= self.now => Some(format!("its time, {at}, has passed")),
            _ => None,
        };
        let timeout = timeout(fields, &mut remarks)?;
        let within = within(fields, &mut remarks)?;
        let job = MilvaionJob {
            place,
            id: fields.text("id")?,
            display_name: fields.text("displayName")?,
            description: fields.text("description")?.filter(|text| !text.is_empty()),
            tags: fields.list("tags")?,
            worker: fields
                .text("workerId")?
                .filter(|worker| !worker.trim().is_empty()),
            kind,
            data,
            is_json,
            when,
            inactive,
            overlap: overlap(fields)?,
            timeout,
            within,
            failures,
            remarks: Vec::new(),
        };
        for name in fields.others(&OF_THE_PAST) {
            let right = "add what it means to the schedule or to its pool";
            remarks.push(Problem::new("is unknown and is not taken over", right).under(name));
        }
        Ok(MilvaionJob { remarks, ..job })
    }

    /// Reads the time: an expression, or else a single time, which is the next slot of an expression.
    fn when(&self, fields: &mut Members<'a>) -> Result<JobTime, Problem> {
        let cron = fields.text("cronExpression")?;
        let at = fields.text("executeAt")?;
        if let Some(cron) = cron.filter(|cron| !cron.trim().is_empty()) {
            let (cron, only_days) =
                cronos::translated(&cron).map_err(|problem| problem.under("cronExpression"))?;
            self.check(&cron, &only_days)?;
            return Ok(JobTime::Cron { cron, only_days });
        }
        let Some(at) = at else {
            let right = "save the answer to `GET /api/v1/jobs/job?JobId=ID`, which has the time of a one-time job";
            return Err(Problem::new("job has no time", right));
        };
        // Times of .NET have fractions of a second, and none of them are local; a slot is a whole second.
        let civil = || at.parse::<DateTime>().ok()?.to_zoned(TimeZone::UTC).ok();
        let time = at.parse::<Timestamp>().ok();
        let time = time.or_else(|| civil().map(|time| time.timestamp()));
        let time = time.and_then(|time| Timestamp::from_second(time.as_second()).ok());
        let at = time.ok_or_else(|| {
            let wrong = format!("invalid time {}", quoted(&at));
            Problem::new(wrong, "write it as `2027-01-31T08:00:00Z`").under("executeAt")
        })?;
        Ok(JobTime::At(at))
    }

    /// Checks an expression as the configuration will.
    fn check(&self, cron: &str, days: &[String]) -> Result<(), Problem> {
        let definition = Definition {
            name: "job".to_owned(),
            cron: vec![cron.to_owned()],
            only: (!days.is_empty()).then(|| CalendarDefinition {
                days: days.to_vec(),
                ..CalendarDefinition::default()
            }),
            ..Definition::default()
        };
        let spec = definition.spec(self.zones);
        let spec = spec.map_err(|problems| problems.into_iter().next());
        let problem = match spec {
            Ok(spec) => spec.never_runs(Timestamp::UNIX_EPOCH),
            Err(problem) => problem,
        };
        problem.map_or(Ok(()), |problem| Err(problem.under("cronExpression")))
    }
}

fn no_export(place: FilePlace) -> FileNote {
    let right = "save what Milvaion's API answers to `GET /api/v1/jobs/job?JobId=ID`, or several such answers \
                 one after the other";
    let problem = Problem::new("no job of Milvaion is here", right);
    FileNote { place, problem }
}

/// Returns the text by which people know a job.
fn title(fields: &Members<'_>) -> String {
    let names = [
        "displayName",
        "jobType",
        "jobNameInWorker",
        "selectedJobName",
        "id",
    ];
    let found = names.iter().find_map(|name| fields.peek(name));
    quoted(&found.unwrap_or_default())
}

/// Adds the job that a problem is about.
fn of_job(title: &str, problem: Problem) -> Problem {
    Problem {
        wrong: match problem.key.is_empty() {
            true => problem.wrong,
            false => format!("{}: {}", problem.key, problem.wrong),
        },
        key: format!("job {title}"),
        ..problem
    }
}

/// Reads the data. In an answer it is text, in the table a value.
fn data(fields: &mut Members<'_>, remarks: &mut Vec<Problem>) -> Result<(String, bool), Problem> {
    let Some(value) = fields.take("jobData") else {
        return Ok((String::new(), false));
    };
    if !value.get().starts_with('"') {
        return Ok((value.get().to_owned(), true));
    }
    let text = json::text(value).map_err(|problem| problem.under("jobData"))?;
    let is_json = serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok();
    if !is_json && !text.is_empty() {
        let right = "the body is this text, where Milvaion sends `{}`";
        remarks.push(Problem::new("is not JSON", right).under("jobData"));
    }
    Ok((text, is_json))
}

fn overlap(fields: &mut Members<'_>) -> Result<Overlap, Problem> {
    let key = "concurrentExecutionPolicy";
    let policy = fields.take(key);
    match policy
        .map(|policy| policy.get().to_ascii_lowercase())
        .as_deref()
    {
        None | Some("0" | "\"skip\"") => Ok(Overlap::Skip),
        Some("1" | "\"queue\"") => Ok(Overlap::Queue {
            max: Overlap::QUEUE_DEFAULT,
        }),
        Some(other) => {
            let wrong = format!("unknown policy {}", quoted(other));
            Err(Problem::new(wrong, "write 0 (skip) or 1 (queue)").under(key))
        }
    }
}

/// Reads the time limit of a run. One that is longer than a pool allows is cut.
fn timeout(
    members: &mut Members<'_>,
    remarks: &mut Vec<Problem>,
) -> Result<Option<Duration>, Problem> {
    let key = "executionTimeoutSeconds";
    let limit = time(members, key, 1)?;
    if limit.is_some_and(|limit| limit > TIMEOUT_MAX) {
        let right = "it is 720h; split the work into steps";
        remarks.push(Problem::new("is longer than a pool allows", right).under(key));
    }
    Ok(limit.map(|limit| limit.min(TIMEOUT_MAX)))
}

/// Reads within what time a run is to start. Milvaion's older versions have it under another name.
fn within(
    members: &mut Members<'_>,
    remarks: &mut Vec<Problem>,
) -> Result<Option<Duration>, Problem> {
    let key = "zombieTimeoutMinutes";
    let own = time(members, key, 60)?;
    let within = own.or(time(members, "timeoutMinutes", 60)?);
    if within.is_some_and(|within| within > WITHIN_MAX) {
        let problem = Problem::new("is longer than an expectation allows", "it is 8760h");
        remarks.push(problem.under(key));
    }
    Ok(within.map(|within| within.min(WITHIN_MAX)))
}

/// Reads a time in units of so many seconds.
fn time(members: &mut Members<'_>, key: &str, seconds: u64) -> Result<Option<Duration>, Problem> {
    match members.number(key)? {
        Some(0) => {
            Err(Problem::new("no run can be so quick", "write 1 or more, or null").under(key))
        }
        units => Ok(units.map(|units| Duration::from_secs(units.saturating_mul(seconds)))),
    }
}

/// Reads after how many failures a job is disabled, and the reason for which it was. What a job does not
/// set, Milvaion's own default sets.
fn auto_disable(
    fields: &mut Members<'_>,
    remarks: &mut Vec<Problem>,
) -> Result<(Option<u64>, Option<String>), Problem> {
    let key = "autoDisableSettings";
    let Some(value) = fields.take(key) else {
        return Ok((Some(FAILURES), None));
    };
    let within = |problem: Problem| problem.within(key);
    let mut settings = Members::of(value).map_err(|problem| problem.under(key))?;
    let is_enabled = settings.boolean("enabled").map_err(within)?;
    let threshold = settings.number("threshold").map_err(within)?;
    let since = settings.text("disabledAt").map_err(within)?;
    let reason = settings.text("disableReason").map_err(within)?;
    if threshold == Some(0) {
        let problem = Problem::new("no job can fail 0 times", "write 1 or more, or null");
        return Err(within(problem.under("threshold")));
    }
    let threshold = threshold.unwrap_or(FAILURES);
    if threshold > FAILURES_MAX {
        let wrong = format!("{threshold} is more than a schedule allows");
        let problem = Problem::new(wrong, format!("it is {FAILURES_MAX} here"));
        remarks.push(within(problem.under("threshold")));
    }
    for name in settings.others(&["consecutivefailurecount", "lastfailuretime"]) {
        let right = "add what it means to `auto_disable`";
        let problem = Problem::new("is unknown and is not taken over", right);
        remarks.push(within(problem.under(name)));
    }
    let disabled = since.map(|since| {
        let reason = reason.unwrap_or_default();
        format!("Milvaion has disabled it at {since}: {reason}")
    });
    let failures = (is_enabled != Some(false)).then(|| threshold.min(FAILURES_MAX));
    Ok((failures, disabled))
}
