use proptest::prelude::*;

use super::job::ERROR_CHARS_MAX;
use super::pacer::STEP_MAX;
use super::*;
use crate::context::tests::daemon;

fn job(id: &str, error: Option<&str>) -> Job {
    Job {
        id: id.to_owned(),
        change: JobChange::Retry,
        source: "main".to_owned(),
        pool: None,
        error: error.map(str::to_owned),
        reason: None,
        message_id: None,
        since: None,
        before: "2027-01-01T00:00:00Z".to_owned(),
        rate: None,
        state: JobState::Queued,
        by: "token".to_owned(),
        started_at: "2027-01-01T00:00:00Z".to_owned(),
        ended_at: None,
        cancelled_by: None,
        expected: Some(10),
        changed: 0,
        held: 0,
        failed: 0,
        left: Some(10),
        last_error: None,
        outlasts_restart: true,
    }
}

/// Jobs of a daemon none of whose sources can be used.
fn jobs(file: StateFile) -> Jobs {
    let daemon = daemon();
    Jobs::read(daemon.overview, daemon.connect, file)
}

fn becomes(jobs: &Jobs, id: &str, state: JobState) -> Job {
    loop {
        match jobs.get(id).unwrap() {
            job if job.state == state => return job,
            _ => thread::yield_now(),
        }
    }
}

#[test]
fn a_job_that_panics_has_failed_and_the_next_one_is_done() {
    let jobs = Jobs::read(
        daemon().overview,
        |_, _, _| panic!("as a test wants"),
        StateFile::default(),
    );
    jobs.add(job("a", None)).unwrap();
    jobs.add(job("b", Some("x"))).unwrap();
    for id in ["a", "b"] {
        let failed = becomes(&jobs, id, JobState::Failed);
        assert!(failed.last_error.unwrap().contains("panicked"));
    }
    jobs.close();
    assert!(locked(&jobs.0.table).threads.is_empty());
}

#[test]
fn a_job_waits_for_its_source_and_the_next_daemon_goes_on_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = StateFile::at(vec![dir.path().join("jobs.json")]);
    let first = jobs(file.clone());
    first.add(job("a", None)).unwrap();
    let waiting = becomes(&first, "a", JobState::Waiting);
    let error = waiting.last_error.unwrap();
    assert!(error.contains("nothing is connected"), "{error}");
    first.add(job("b", Some("x"))).unwrap();
    assert_eq!(first.get("b").unwrap().state, JobState::Queued);
    first.close();
    assert!(locked(&first.0.table).threads.is_empty());
    let next = jobs(file);
    assert_eq!(next.get("a").unwrap().state, JobState::Waiting);
    next.continue_unfinished();
    let (cancelled, was_live) = next.cancel("a", "token ops").unwrap();
    assert!(was_live && cancelled.ended_at.is_some());
    assert_eq!(cancelled.cancelled_by.as_deref(), Some("token ops"));
    assert!(!next.cancel("a", "token ops").unwrap().1);
    assert_eq!(next.cancel("c", "token ops"), None);
    becomes(&next, "b", JobState::Waiting);
    next.close();
}

#[test]
fn of_two_daemons_the_one_that_took_over_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let file = StateFile::at(vec![dir.path().join("jobs.json")]);
    let (first, second) = (jobs(file.clone()), jobs(file.clone()));
    first.add(job("a", None)).unwrap();
    becomes(&first, "a", JobState::Waiting);
    second.add(job("b", Some("x"))).unwrap();
    let ids = |jobs: &Jobs| {
        jobs.list()
            .into_iter()
            .map(|job| job.id)
            .collect::<Vec<_>>()
    };
    assert_eq!(ids(&second), ["b", "a"]);
    // The first one learns of it, and its thread ends.
    while !locked(&first.0.table).threads.is_empty() {
        first.update("a", |job| job.changed += 1);
        thread::yield_now();
    }
    assert_eq!(ids(&first), ["b", "a"], "it shows what the other one does");
    assert!(second.cancel("b", "token").unwrap().1);
    // The second one is gone: a request to the first makes that do the jobs again.
    second.close();
    assert!(first.cancel("a", "token").unwrap().1);
    assert!(
        jobs(file)
            .list()
            .iter()
            .all(|job| job.state == JobState::Cancelled)
    );
    first.close();
}

#[test]
fn jobs_that_do_the_same_or_are_too_many_are_refused() {
    let jobs = jobs(StateFile::default());
    jobs.close();
    jobs.add(job("0", Some("0"))).unwrap();
    let same = Job {
        rate: Some(3),
        ..job("again", Some("0"))
    };
    assert_eq!(jobs.add(same), Err(JobRefusal::Same("0".to_owned())));
    for n in 1..UNFINISHED_MAX {
        let n = n.to_string();
        jobs.add(job(&n, Some(&n))).unwrap();
    }
    assert_eq!(jobs.add(job("x", Some("x"))), Err(JobRefusal::TooMany));
    for n in UNFINISHED_MAX..REMEMBERED_MAX + 5 {
        jobs.cancel(&(n - UNFINISHED_MAX).to_string(), "token");
        let n = n.to_string();
        jobs.add(job(&n, Some(&n))).unwrap();
    }
    let listed = jobs.list();
    assert_eq!(listed.len(), REMEMBERED_MAX);
    assert_eq!(listed[0].id, (REMEMBERED_MAX + 4).to_string());
    assert!(!listed[0].outlasts_restart, "there is no file");
}

#[test]
fn figures_add_up_and_the_last_error_is_cut() {
    let mut job = job("a", None);
    job.add(&Step {
        changed: 4,
        held: 1,
        failed: 2,
        error: Some("é".repeat(5000)),
    });
    assert_eq!((job.changed, job.left), (4, Some(3)));
    assert_eq!(
        job.last_error.as_ref().unwrap().chars().count(),
        ERROR_CHARS_MAX
    );
    job.add(&Step::of(100));
    assert_eq!(job.left, Some(0));
}

#[test]
fn steps_are_as_large_as_the_rate_allows() {
    let now = Instant::now();
    let most = |rate| Pacer::new(rate, now).step_max();
    let rates = [None, Some(1), Some(3), Some(100), Some(1_000_000)];
    assert_eq!(rates.map(most), [STEP_MAX, 1, 1, 25, STEP_MAX]);
    assert_eq!(Pacer::new(None, now).pause(1000, now), Duration::ZERO);
}

proptest! {
    /// Whatever the steps hold and however long they take, no more are done than the rate allows, beside the last step.
    #[test]
    fn a_rate_is_never_exceeded(
        rate in 1..5000_u32,
        steps in prop::collection::vec((0..=100_usize, 0..2000_u64), 1..100),
    ) {
        let start = Instant::now();
        let mut pacer = Pacer::new(Some(rate), start);
        let (mut now, mut done) = (start, 0);
        for (percent, millis) in steps {
            let before = done as f64;
            let allowed = (now - start).as_secs_f64() * f64::from(rate) + 0.01;
            prop_assert!(before <= allowed, "{before} of {allowed}");
            let step = pacer.step_max() * percent / 100;
            done += step;
            now += Duration::from_millis(millis);
            now += pacer.pause(step, now);
        }
    }
}
