//! The page for who comes from Milvaion: its jobs are imported, and their classes run.

use std::process::Command;

use super::{run, top};
use crate::harness::{Pool, Workspace, trials};
use crate::sdk::dotnet;

trials![classes_of_jobs_run];

fn compile(site: &Workspace) {
    let mut compile = Command::new("mcs");
    compile.args(["-langversion:7.2", "-warnaserror"]);
    compile.arg(format!("-r:{}", dotnet::compiled().display()));
    compile.arg(format!("-out:{}", site.path("Jobs.exe").display()));
    compile.arg(top("samples/migrating/milvaion/JobWorker.cs"));
    run(compile.arg(top("tests/integration/migrating/Milvaion.cs")));
}

/// Returns the jobs as Milvaion's API shows them: one of each class, and one whose class is missing.
fn jobs() -> String {
    let kinds = [
        "SendEmailJob",
        "GenerateReportJob",
        "BrokenJob",
        "InvalidJob",
        "GoneJob",
    ];
    let job = |kind: &str| {
        format!(
            r#"{{"data": {{"id": "{kind}", "displayName": "{kind}", "workerId": "w", "jobType": "{kind}",
                 "jobData": "{{\"to\": \"ann\"}}", "cronExpression": "0 0 3 1 1 *", "isActive": true}}}}"#
        )
    };
    kinds.map(job).join("\n")
}

fn classes_of_jobs_run() {
    let site = Workspace::new();
    compile(&site);
    site.put("jobs.json", &jobs(), false);
    let worker = site.path("Jobs.exe");
    let import = [
        "schedule",
        "import",
        "jobs.json",
        "--",
        "mono",
        worker.to_str().unwrap(),
    ];
    let imported = site.ganger(&import).good();
    let libraries = dotnet::compiled();
    let libraries = libraries.parent().unwrap().to_str().unwrap();
    let settings = format!("workers = 1\ncwd = \".\"\nenv = {{ MONO_PATH = {libraries:?} }}\n");
    let imported = imported.replace("workers = 2\n", &settings).replace(
        "attempts = 4, initial = \"5s\"",
        "attempts = 2, initial = \"10ms\"",
    );
    let pools = [Pool::new(&[]).after(&imported)];
    site.configure_commands(&pools);
    let daemon = site.start(&pools);
    daemon.entered();
    let trigger = |kind: &str| {
        let told = site.ganger(&["schedule", "trigger", kind, "-o", "json"]);
        told.json()["occurrence"].as_str().unwrap().to_owned()
    };
    let ends = |id: &str| {
        daemon.eventually_some("the run to end", || {
            let shown = site
                .ganger(&["occurrence", "show", id, "-o", "json"])
                .json();
            (!shown["ended_at"].is_null()).then_some(shown)
        })
    };
    let sent = trigger("SendEmailJob");
    assert_eq!(ends(&sent)["state"], "completed");
    let seen = std::fs::read_to_string(site.path("sent")).unwrap();
    assert_eq!(seen, format!("{sent}|SendEmailJob|{{\"to\": \"ann\"}}"));
    let reported = ends(&trigger("GenerateReportJob"));
    assert_eq!(
        (&reported["state"], &reported["result"]),
        (&"completed".into(), &"report of {\"to\": \"ann\"}".into())
    );
    for (kind, part) in [
        ("BrokenJob", "InvalidOperationException: no good"),
        ("InvalidJob", "PermanentJobException: never"),
        ("GoneJob", "no such job: GoneJob"),
    ] {
        let failed = ends(&trigger(kind));
        let error = failed["error"].as_str().unwrap_or_default();
        assert!(
            failed["state"] == "failed" && error.contains(part),
            "{kind}: {failed}"
        );
    }
    daemon.stop();
}
