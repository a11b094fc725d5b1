//! `samples/cron`: the lines of its crontab are its schedules, and their scripts run.

use std::fs;
use std::path::Path;

use super::Sample;
use crate::harness::{Daemon, PROGRAM, trials};

trials![
    its_configuration_is_its_crontab,
    its_jobs_run_and_fail_and_run_again
];

/// Whatever has been added, all that the import writes is there.
fn its_configuration_is_its_crontab() {
    let sample = Sample::of("cron");
    let import = ["schedule", "import", "crontab", "--zone", "Europe/Berlin"];
    let imported = sample.site.ganger(&import).good();
    let own = fs::read_to_string(sample.site.path("ganger.toml")).unwrap();
    let mut lines = own.lines();
    for line in imported.lines() {
        assert!(lines.any(|own| own == line), "{line:?} is missing");
    }
}

/// Waits until an occurrence has ended, and returns its state and its error.
fn ended(sample: &Sample, daemon: &Daemon, id: &str) -> (String, String) {
    daemon.eventually_some("the run to end", || {
        let show = ["occurrence", "show", id, "-o", "json"];
        let shown = sample.site.ganger(&show).json();
        let text = |key: &str| shown[key].as_str().unwrap_or_default().to_owned();
        (!shown["ended_at"].is_null()).then(|| (text("state"), text("error")))
    })
}

fn its_jobs_run_and_fail_and_run_again() {
    let sample = Sample::of("cron");
    let programs = Path::new(PROGRAM).parent().unwrap().to_str().unwrap();
    let path = format!("{programs}:{}", std::env::var("PATH").unwrap());
    let config = fs::read_to_string(sample.site.path("ganger.toml")).unwrap();
    // The scripts' own PATH has what they need, but not the program under test.
    assert!(config.contains("export PATH='/usr/local/bin:/usr/bin:/bin'"));
    let daemon = sample.start(&[("PATH", &path)]);
    daemon.entered();
    let trigger = |name: &str| {
        let told = sample
            .site
            .ganger(&["schedule", "trigger", name, "-o", "json"]);
        told.json()["occurrence"].as_str().unwrap().to_owned()
    };
    let run = |name: &str| ended(&sample, &daemon, &trigger(name));
    let completed = ("completed".to_owned(), String::new());
    assert_eq!(run("collect.sh"), completed);
    assert_eq!(run("report.sh"), completed);
    let report = fs::read_to_string(sample.site.path("report")).unwrap();
    assert!(report.trim().ends_with("readings"), "{report}");
    assert_eq!(run("backup.sh"), completed);
    let archives = fs::read_dir(sample.site.path("backups")).unwrap();
    let archives: Vec<String> = archives
        .map(|archive| archive.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(
        archives.len() == 1 && archives[0].ends_with(".tar.gz"),
        "{archives:?}"
    );

    fs::rename(sample.site.path("data"), sample.site.path("elsewhere")).unwrap();
    let failed = trigger("backup.sh");
    let (state, error) = ended(&sample, &daemon, &failed);
    assert_eq!(state, "failed");
    assert!(error.contains("tar: data: Cannot stat"), "{error}");
    fs::rename(sample.site.path("elsewhere"), sample.site.path("data")).unwrap();
    sample
        .site
        .ganger(&["dead", "retry", "--pool", "cron", "--all"])
        .good();
    daemon.eventually("the run that failed to complete", || {
        ended(&sample, &daemon, &failed).0 == "completed"
    });
    daemon.stop();
}
