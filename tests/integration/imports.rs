//! `ganger schedule import`: jobs of Milvaion become a configuration that is valid and runs.

use std::fs;

use crate::harness::{PROGRAM, Pool, Workspace, trials};

trials![
    jobs_of_milvaion_are_moved,
    what_is_not_taken_over_is_told,
    files_that_are_not_jobs_are_refused,
];

/// Answers of Milvaion's API to requests for single jobs, one after the other, as a loop of `curl` saves
/// them.
fn export() -> String {
    let jobs = [
        r#"{"id": "019b66dd-9a70-7c0b-957b-f93d2ab083c9", "displayName": "Daily Sales Report",
            "description": "", "tags": "test,first-job", "workerId": "sample-worker-01",
            "jobType": "GenerateReportJob", "jobData": "{\"reportType\": \"sales\", \"price\": \"$5 {{x}}\"}",
            "executeAt": "2027-12-28T21:30:00Z", "cronExpression": "0 30 2 * * *", "isActive": true,
            "concurrentExecutionPolicy": 0, "auditInfo": {"creatorUserName": "rootuser"},
            "avarageDuration": 6156.828328846552, "successRate": 99, "totalExecutions": 4829,
            "zombieTimeoutMinutes": null, "executionTimeoutSeconds": null, "version": 1, "jobVersions": [],
            "autoDisableSettings": {"consecutiveFailureCount": 0, "enabled": true, "threshold": 3}}"#,
        r#"{"id": "019b66dd-9a70-7c0b-957b-f93d2ab083ca", "displayName": "friday-13", "workerId":
            "sample-worker-01", "jobType": "GenerateReportJob", "jobData": null, "cronExpression":
            "0 0 0 13 * FRI", "isActive": true, "concurrentExecutionPolicy": 1, "version": 1,
            "executionTimeoutSeconds": 90, "autoDisableSettings": {"enabled": false}}"#,
        r#"{"id": "019b66dd-9a70-7c0b-957b-f93d2ab083cb", "displayName": "once", "workerId": "mail",
            "jobType": "SendEmailJob", "jobData": "{}", "executeAt": "2099-01-31T08:00:00Z",
            "cronExpression": null, "isActive": true, "concurrentExecutionPolicy": 0, "version": 1}"#,
        r#"{"id": "019b66dd-9a70-7c0b-957b-f93d2ab083cc", "displayName": "old", "workerId": "mail",
            "jobType": "SendEmailJob", "jobData": "{}", "cronExpression": "0 * * * * *", "isActive": false,
            "zombieTimeoutMinutes": 30, "concurrentExecutionPolicy": 0, "version": 1, "priority": 7}"#,
    ];
    let answer = |job: &str| {
        format!(
            r#"{{"isSuccess": true, "statusCode": 200, "messages": [], "data": {job}, "metadatas": []}}"#
        )
    };
    jobs.map(answer).join("\n")
}

fn jobs_of_milvaion_are_moved() {
    let site = Workspace::new();
    site.put("jobs.json", &export(), false);
    let schedules = site.ganger(&["schedule", "import", "jobs.json"]).good();
    let job =
        "#!/bin/sh\nprintf '%s ' \"$GANGER_HEADER_JOBTYPE\" > done\ncat >> done\nmv done report\n";
    site.put("GenerateReportJob", job, true);
    site.put("SendEmailJob", "#!/bin/sh\n", true);
    // The program under test is not in the PATH.
    let command = format!("command = {PROGRAM:?}\ncwd = \".\"");
    let schedules = schedules.replace("command = \"ganger\"", &command);
    let pools = [Pool::new(&[]).after(&schedules)];
    site.configure_commands(&pools);
    let checked = site.ganger(&["check"]).good();
    let expected = "the configuration is valid: 3 pool(s)";
    assert!(checked.starts_with(expected), "{checked}");
    let daemon = site.start(&pools);
    daemon.entered();
    let listed = site.ganger(&["schedule", "list", "-o", "json"]).json();
    let listed = listed.as_array().unwrap().iter();
    let names: Vec<&str> = listed.map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["Daily-Sales-Report", "friday-13", "once"]);
    let next = [
        "schedule",
        "next",
        "friday-13",
        "--from",
        "2027-01-01",
        "-n",
        "1",
        "-o",
        "json",
    ];
    assert_eq!(site.ganger(&next).json()[0]["slot"], "2027-08-13T00:00:00Z");
    site.ganger(&["schedule", "trigger", "Daily-Sales-Report"])
        .good();
    let report = daemon.eventually_some("the job to be done", || {
        fs::read_to_string(site.path("report")).ok()
    });
    let expected = r#"GenerateReportJob {"reportType": "sales", "price": "$5 {{x}}"}"#;
    assert_eq!(report, expected);
    daemon.stop();
    // With a worker all pools have it.
    let import = [
        "schedule",
        "import",
        "jobs.json",
        "--",
        "dotnet",
        "Worker.dll",
    ];
    let whole = site.ganger(&import).good();
    assert!(
        whole.contains("\n[[pools]]\nname = \"mail.SendEmailJob\"\n"),
        "{whole}"
    );
    assert!(whole.contains("args = [\"Worker.dll\"]"), "{whole}");
}

fn what_is_not_taken_over_is_told() {
    let site = Workspace::new();
    let bad = r#"{"displayName": "never", "jobType": "J", "cronExpression": "0 0 0 30 2 *"}"#;
    let export = export() + "\n" + bad;
    let told = site.ganger_reading(&["schedule", "import", "-"], export.as_bytes());
    assert_eq!(told.code, Some(1), "{told:?}");
    let lines: Vec<&str> = told.err.lines().collect();
    let expected = [
        "-:1:64: Daily-Sales-Report: `Daily Sales Report` is not a valid name: the schedule is",
        "-:16:64: old: it is not active: the schedule is commented out; uncomment",
        "-:16:64: old: `priority`: is unknown and is not taken over: add",
        "-:19:1: job `never`: cronExpression: there is no such day in any year, so it never fires",
        "-:19:1: jobs of Milvaion's list lack worker",
        "error: 1 of 5 jobs are not taken over",
    ];
    assert_eq!(lines.len(), expected.len(), "{}", told.err);
    for (line, expected) in lines.iter().zip(expected) {
        assert!(line.starts_with(expected), "{line}");
    }
    // What is told stands at the schedule too.
    assert!(
        told.out
            .contains("\n# `priority`: is unknown and is not taken over: add"),
        "{}",
        told.out
    );
    assert!(
        told.out.contains("\n# [[schedules]]\n# name = \"old\"\n"),
        "{}",
        told.out
    );
}

fn files_that_are_not_jobs_are_refused() {
    let site = Workspace::new();
    let long = "# a comment\n".repeat(100_000);
    for (text, args, code, expected) in [
        (
            long.as_str(),
            &[][..],
            1,
            "-: a crontab has at most 1048576 bytes, and Milvaion's JSON begins with `{` or `[`",
        ),
        (
            "{\"data\": [\n{\"jobType\": }",
            &[][..],
            1,
            "-:2:13: the file is not JSON: expected value",
        ),
        (
            "{\"name\": \"a\"}",
            &[],
            1,
            "-:1:1: no job of Milvaion is here: save what",
        ),
        ("[]", &[], 2, "- has no jobs"),
        (
            "{\"isSuccess\": false, \"messages\": \"401\"}",
            &[],
            1,
            "Milvaion has answered with an error",
        ),
        (
            "[]",
            &["--system"],
            2,
            "--system and --zone are for crontabs",
        ),
        ("[]", &["--zone", "UTC"], 2, "set `zone` in the output"),
        (
            "@daily x",
            &["--", "x"],
            2,
            "a worker is for Milvaion's jobs",
        ),
    ] {
        let args = [&["schedule", "import", "-"][..], args].concat();
        let ran = site.ganger_reading(&args, text.as_bytes());
        assert_eq!(ran.out, "", "{expected}");
        let told = ran.bad(code);
        assert!(told.contains(expected), "{expected}: {told}");
    }
}
