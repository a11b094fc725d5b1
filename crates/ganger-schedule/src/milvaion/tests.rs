use proptest::prelude::*;

use super::*;

/// The answer of Milvaion's API to a request for one job, as its own documentation shows it.
const ANSWER: &str = r#"{
  "isSuccess": true,
  "statusCode": 200,
  "messages": [{ "key": "", "message": "Operation successful!", "type": 1 }],
  "data": {
    "id": "019b66dd-9a70-7c0b-957b-f93d2ab083c9",
    "displayName": "Daily Sales Report",
    "description": "for the board",
    "tags": "test, first-job,",
    "workerId": "sample-worker-01",
    "jobType": "GenerateReportJob",
    "jobData": "{\"reportType\": \"sales\", \"total\": 12345678901234567890.10}",
    "executeAt": "2025-12-28T21:30:00Z",
    "cronExpression": "0 */5 * * * *",
    "isActive": true,
    "concurrentExecutionPolicy": 1,
    "auditInfo": { "creatorUserName": "rootuser" },
    "avarageDuration": 6156.8,
    "successRate": 99,
    "totalExecutions": 4829,
    "zombieTimeoutMinutes": 10,
    "executionTimeoutSeconds": 90,
    "version": 1,
    "jobVersions": [],
    "autoDisableSettings": { "consecutiveFailureCount": 2, "enabled": true, "threshold": 10 }
  },
  "metadatas": []
}"#;

fn read_at(text: &str, now: &str) -> Result<Export, FileNote> {
    read(text, now.parse().unwrap(), &Zones::bundled())
}

fn export(text: &str) -> Export {
    read_at(text, "2026-06-01T00:00:00Z").unwrap_or_else(|note| panic!("{text}: {note:?}"))
}

/// Returns the only job of a file, which has nothing else to be said of it.
fn one(text: &str) -> MilvaionJob {
    let Export {
        mut jobs,
        bad,
        remarks,
        absent,
    } = export(text);
    assert_eq!((&*bad, &*remarks, absent), (&[][..], &[][..], 0), "{text}");
    assert_eq!(jobs.len(), 1, "{text}");
    jobs.remove(0)
}

/// Returns a job with these members, in addition to those that it needs.
fn with(members: &str) -> String {
    format!(r#"{{"jobType": "J", "workerId": "w", "cronExpression": "0 0 3 * * *"{members}}}"#)
}

fn remarks(job: &MilvaionJob) -> Vec<String> {
    job.remarks.iter().map(Problem::to_string).collect()
}

fn cron(text: &str) -> JobTime {
    JobTime::Cron {
        cron: text.to_owned(),
        only_days: Vec::new(),
    }
}

#[test]
fn an_answer_of_the_api() {
    let expected = MilvaionJob {
        place: FilePlace {
            line: 5,
            column: 11,
        },
        id: Some("019b66dd-9a70-7c0b-957b-f93d2ab083c9".to_owned()),
        display_name: Some("Daily Sales Report".to_owned()),
        description: Some("for the board".to_owned()),
        tags: vec!["test".to_owned(), "first-job".to_owned()],
        worker: Some("sample-worker-01".to_owned()),
        kind: "GenerateReportJob".to_owned(),
        data: r#"{"reportType": "sales", "total": 12345678901234567890.10}"#.to_owned(),
        is_json: true,
        when: cron("0 */5 * * * *"),
        inactive: None,
        overlap: Overlap::Queue { max: 100 },
        timeout: Some(Duration::from_secs(90)),
        within: Some(Duration::from_secs(600)),
        failures: Some(10),
        remarks: Vec::new(),
    };
    assert_eq!(one(ANSWER), expected);
    // Several answers, one after the other; and the same within a list.
    let other = ANSWER.replace("019b66dd", "119b66dd");
    assert_eq!(export(&format!("{ANSWER}{other}\n")).jobs.len(), 2);
    assert_eq!(export(&format!("[{ANSWER},{other}]")).jobs.len(), 2);
}

/// As `SELECT json_agg(j) FROM "ScheduledJobs" j` prints it.
#[test]
fn rows_of_the_table() {
    let job = one(
        r#"[{"Id": "1", "DisplayName": null, "JobNameInWorker": "CleanJob",
        "JobData": {"b": 1.0, "a": [ 1e400 ]}, "ExecuteAt": "2026-12-01T08:00:00.123+00:00",
        "CronExpression": null, "IsActive": true, "ConcurrentExecutionPolicy": 0, "WorkerId": null,
        "RoutingPattern": "w.clean.*", "CreationDate": "2026-01-01", "Version": 3}]"#,
    );
    assert_eq!(job.data, r#"{"b": 1.0, "a": [ 1e400 ]}"#);
    assert_eq!((job.kind.as_str(), job.worker), ("CleanJob", None));
    let at = "2026-12-01T08:00:00Z".parse().unwrap();
    assert_eq!((job.when, job.inactive), (JobTime::At(at), None));
    assert_eq!((job.overlap, job.failures), (Overlap::Skip, Some(5)));
}

#[test]
fn the_list_lacks_what_the_details_have() {
    let listed = r#"{"data": [
        {"displayName": "a", "jobType": "A", "cronExpression": "0 0 * * * *", "isActive": true},
        {"displayName": "b", "jobType": "B", "cronExpression": null, "isActive": true}
    ], "totalDataCount": 12, "currentPageNumber": 1, "totalPageCount": 6, "isSuccess": true}"#;
    let export = export(listed);
    assert_eq!((export.jobs.len(), export.absent), (1, 10));
    let [bad] = &export.bad[..] else {
        panic!("{export:?}")
    };
    assert_eq!((bad.place.line, bad.place.column), (3, 9));
    let told = bad.problem.to_string();
    assert!(told.starts_with("job `b`: job has no time: save"), "{told}");
    let [remark] = &export.remarks[..] else {
        panic!("{export:?}")
    };
    assert_eq!((remark.place.line, remark.place.column), (2, 9));
    let told = remark.problem.to_string();
    assert!(told.contains("lack worker, time limit"), "{told}");
}

#[test]
fn a_job_that_does_not_run() {
    let job = one(&with(r#", "isActive": false"#));
    assert_eq!(job.inactive.as_deref(), Some("it is not active"));
    let job = one(&with(
        r#", "isActive": false, "autoDisableSettings": {"enabled": null, "disabledAt": "2026-05-01T00:00:00Z",
           "disableReason": "5 failures"}"#,
    ));
    let reason = "Milvaion has disabled it at 2026-05-01T00:00:00Z: 5 failures";
    assert_eq!(job.inactive.as_deref(), Some(reason));
    let job = one(r#"{"jobType": "J", "workerId": "w", "executeAt": "2026-06-01T00:00:00"}"#);
    let reason = "its time, 2026-06-01T00:00:00Z, has passed";
    assert_eq!(job.inactive.as_deref(), Some(reason));
}

#[test]
fn auto_disable_is_milvaions_default_unless_it_is_off() {
    for (settings, failures) in [
        ("", Some(5)),
        (r#", "autoDisableSettings": null"#, Some(5)),
        (r#", "autoDisableSettings": {}"#, Some(5)),
        (r#", "autoDisableSettings": {"threshold": 3}"#, Some(3)),
        (
            r#", "autoDisableSettings": {"enabled": false, "threshold": 3}"#,
            None,
        ),
    ] {
        assert_eq!(one(&with(settings)).failures, failures, "{settings}");
    }
}

#[test]
fn settings_that_are_not_taken_over_are_told() {
    for (members, expected) in [
        (
            r#", "timeoutMinutes": 99999999"#,
            "zombieTimeoutMinutes: is longer than an expectation allows",
        ),
        (
            r#", "color\n": "red""#,
            r"`color\n`: is unknown and is not taken over",
        ),
        (
            r#", "jobData": "{half""#,
            "jobData: is not JSON: the body is this text",
        ),
        (
            r#", "executionTimeoutSeconds": 99999999"#,
            "executionTimeoutSeconds: is longer than a pool allows",
        ),
        (
            r#", "autoDisableSettings": {"threshold": 9999}"#,
            "autoDisableSettings.threshold: 9999 is more",
        ),
        (
            r#", "autoDisableSettings": {"cooldown": 1}"#,
            "autoDisableSettings.`cooldown`: is unknown",
        ),
    ] {
        let told = remarks(&one(&with(members)));
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].starts_with(expected), "{told:?}");
    }
    // Null says nothing.
    assert_eq!(remarks(&one(&with(r#", "color": null"#))), [""; 0]);
}

#[test]
fn a_job_that_can_not_be_taken_over() {
    for (text, expected) in [
        (
            with(r#", "concurrentExecutionPolicy": 7"#),
            "job `J`: concurrentExecutionPolicy: unknown policy `7`: write 0",
        ),
        (
            with(r#", "isActive": "yes""#),
            r#"job `J`: isActive: `\"yes\"` is not true or false"#,
        ),
        (
            with(r#", "executionTimeoutSeconds": -1"#),
            "job `J`: executionTimeoutSeconds: `-1` is not a",
        ),
        (
            with(r#", "executionTimeoutSeconds": 0"#),
            "job `J`: executionTimeoutSeconds: no run can be so quick",
        ),
        (with(r#", "tags": [1]"#), "job `J`: tags: `1` is not text"),
        (
            r#"{"displayName": "a\u001b[2J", "cronExpression": "* * * * * *"}"#.to_owned(),
            r"job `a\u{1b}[2J`: jobType: is missing",
        ),
        (
            r#"{"jobType": "J", "cronExpression": "0 0 25 * * *"}"#.to_owned(),
            "job `J`: cronExpression: hour `25` is out of range (byte 4): write 0 to 23",
        ),
        (
            r#"{"jobType": "J", "cronExpression": "0 0 0 30 2 *"}"#.to_owned(),
            "job `J`: cronExpression: there is no such day",
        ),
        (
            with(r#", "jobData": "\u0000""#),
            "job `J`: jobData: has a NUL character: remove it",
        ),
        (
            r#"{"jobType": "J", "executeAt": "soon"}"#.to_owned(),
            "job `J`: executeAt: invalid time `soon`",
        ),
    ] {
        let Export { jobs, bad, .. } = export(&text);
        assert_eq!((jobs.len(), bad.len()), (0, 1), "{text}");
        let told = bad[0].problem.to_string();
        assert!(told.starts_with(expected), "{text}: {told}");
    }
}

#[test]
fn a_job_that_is_there_again_is_told() {
    let text = format!("{ANSWER}\n{ANSWER}");
    let export = export(&text);
    assert_eq!((export.jobs.len(), export.bad.len()), (1, 0));
    let told = export.remarks[0].problem.to_string();
    let expected = "job `Daily Sales Report`: job is in the file again: the first is taken over";
    assert_eq!(told, expected);
}

#[test]
fn a_file_that_is_no_export() {
    let deep = "[".repeat(100_000);
    for (text, line, column, expected) in [
        (
            "{\n \"data\": [}",
            2,
            11,
            "the file is not JSON: expected value",
        ),
        ("{}\n]", 1, 1, "no job of Milvaion is here"),
        (
            "{\"isSuccess\": true,\n\"data\": {\"name\": 1}}",
            2,
            9,
            "no job of Milvaion",
        ),
        ("[1]", 1, 2, "no job of Milvaion is here"),
        ("[[[[[]]]]]", 1, 5, "no job of Milvaion is here"),
        (
            "{\"data\": {}, \"Data\": []}",
            1,
            1,
            "`data` is there twice",
        ),
        (
            "{\"isSuccess\": false, \"messages\": [{\"message\": \"no\"}]}",
            1,
            1,
            r#"Milvaion has answered with an error: `[{\"message\": \"no\"}]`"#,
        ),
        (&deep, 1, 100_000, "the file is not JSON: EOF while parsing"),
    ] {
        let shown = text.get(..40).unwrap_or(text);
        let note = read_at(text, "2026-06-01T00:00:00Z").unwrap_err();
        assert_eq!(
            (note.place.line, note.place.column),
            (line, column),
            "{shown}: {note:?}"
        );
        let told = note.problem.to_string();
        assert!(told.starts_with(expected), "{shown}: {told}");
    }
}

/// An answer with a list beside its data would hide jobs.
#[test]
fn an_unknown_field_of_an_answer_is_told() {
    let job = with("");
    let export = export(&format!(
        r#"{{"data": {job}, "more": [{job}], "metadatas": []}}"#
    ));
    assert_eq!(export.jobs.len(), 1);
    let told = export.remarks[0].problem.to_string();
    assert!(told.starts_with("`more`: is unknown"), "{told}");
    assert_eq!(
        self::export(r#"{"isSuccess": true, "data": null}"#),
        Export::default()
    );
}

proptest! {
    /// Whatever becomes of an answer, it is read or refused, with a place that is in it.
    #[test]
    fn damaged_answers(
        edits in prop::collection::vec((0..ANSWER.len(), any::<prop::sample::Index>()), 1..6),
    ) {
        let parts = ["\"", "{", "}", "[", ",", ":", "null", "-1", "1e999", "\\", "\\u0000", "é", ""];
        let mut text = ANSWER.to_owned();
        for (at, part) in edits {
            let boundaries = text.char_indices().map(|(at, _)| at).chain([text.len()]);
            let boundaries: Vec<usize> = boundaries.filter(|other| *other >= at).take(2).collect();
            if let [start, end] = boundaries[..] {
                text.replace_range(start..end, parts[part.index(parts.len())]);
            }
        }
        match read_at(&text, "2026-06-01T00:00:00Z") {
            Ok(export) => prop_assert!(export.jobs.len() + export.bad.len() <= 3),
            Err(note) => {
                let lines: Vec<&str> = text.split('\n').collect();
                prop_assert!(note.place.line <= lines.len(), "{note:?}");
                prop_assert!(note.place.column <= lines[note.place.line - 1].len() + 1, "{note:?}");
            }
        }
    }
}

#[test]
fn expressions_of_cronos() {
    for (text, expected, days) in [
        ("0 0 9 * * MON", "0 0 9 * * MON", &[][..]),
        ("  */15  * * * * ? ", "*/15 * * * * *", &[]),
        ("0 0 9 ? * 2L", "0 0 9 * * 2L", &[]),
        ("0 0 9 LW * ?", "0 0 9 LW * *", &[]),
        ("0 5/15 23-01 * DEC-FEB *", "0 5/15 23-01 * DEC-FEB *", &[]),
        ("@every_second", "* * * * * *", &[]),
        ("@EVERY_MINUTE", "* * * * *", &[]),
        ("@daily", "@daily", &[]),
        ("0 9 * * *", "0 9 * * *", &[]),
        // Friday the thirteenth; the first Monday of a month.
        ("0 0 0 13 * FRI", "0 0 0 13 * *", &["FRI"]),
        ("0 0 0 1-7 * mon", "0 0 0 1-7 * *", &["MON"]),
        (
            "0 0 0 13 * 5-1,3",
            "0 0 0 13 * *",
            &["SUN", "MON", "WED", "FRI", "SAT"],
        ),
        ("0 0 0 13 * 1/3", "0 0 0 13 * *", &["SUN", "MON", "THU"]),
        ("0 0 0 */2 * FRI", "0 0 0 */2 * FRI", &[]),
    ] {
        let job = one(&format!(
            r#"{{"jobType": "J", "workerId": "w", "cronExpression": "{text}"}}"#
        ));
        let only_days = days.iter().map(|day| (*day).to_owned()).collect();
        let cron = expected.to_owned();
        assert_eq!(job.when, JobTime::Cron { cron, only_days }, "{text}");
    }
    for text in [
        "0 0 0 13 * FRI#2",
        "0 0 0 13 * 8",
        "0 0 0 13 * MON/0",
        "0 0 0 13 * -",
    ] {
        let problem = cronos::translated(text).unwrap_err().to_string();
        assert!(
            problem.starts_with("both days must match"),
            "{text}: {problem}"
        );
    }
}
