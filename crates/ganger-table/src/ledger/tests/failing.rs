//! Failures of occurrences: their errors, their fingerprints, the exits of workers, and the dead letters. Lists of those
//! that have one in common.

use tokio::time::Instant;

use super::elsewhere::{ELSEWHERE, dispatched, newest, report};
use super::*;
use ganger_config::model::Record;
use ganger_queue::delivery::{
    CANCELLED, Exit, Failure, MessageRecord, Outcome, Reason, RecordedEnd, Reported, Reports,
};
use ganger_queue::ledger::shown::{DeadLetterNameJson, OccurrenceJson};

fn failure(reason: Reason, error: &str, code: Option<i32>, signal: Option<i32>) -> Failure {
    let exit = (code.is_some() || signal.is_some()).then_some(Exit {
        code,
        signal,
        oom: false,
    });
    Failure {
        exit,
        ..Failure::new(reason, error)
    }
}

/// Reports a change of the message of a run, which was delivered so many seconds ago.
fn tell(ledger: &mut Ledger, id: &str, arrived: u64, what: Reported) {
    let mut pending = PendingReports::default();
    pending.add(report(id, (arrived, arrived - 1), what));
    ledger.report(&mut pending.take(None)).unwrap();
}

/// Records the end of a message, which has these ids.
fn record(ledger: &mut Ledger, ids: [Option<&str>; 2], outcome: &Outcome) {
    let [message_id, correlation_id] = ids.map(|id| id.map(str::to_owned));
    let message = MessageRecord {
        message_id,
        correlation_id,
        source: Some("rabbit".to_owned()),
        queue: "q".into(),
        attempt: 1,
        arrived: Instant::now(),
        begun: None,
        record: Record::Failed,
    };
    let end: RecordedEnd = message.end(outcome, &"".into()).unwrap();
    let mut reports = Reports::default();
    reports.ends.push(end);
    let mut pending = PendingReports::default();
    pending.add(reports);
    ledger.report(&mut pending.take(None)).unwrap();
}

fn shown(ledger: &mut Ledger, id: &str) -> OccurrenceJson {
    let found = LedgerClient::occurrence(ledger, id).unwrap();
    found.unwrap().occurrence
}

#[test]
fn the_parts_of_a_failure_are_written_together() {
    let rig = Rig::new();
    let (mut ledger, id) = dispatched(&rig, ELSEWHERE);
    rig.pass(1000);
    let mut fail = |arrived: u64, failure: Failure| {
        tell(&mut ledger, &id, arrived, Reported::Begun);
        tell(&mut ledger, &id, arrived, Reported::Buried(failure));
        let run = shown(&mut ledger, &id);
        (run.error, run.fingerprint, run.exit_code, run.signal)
    };
    let exited = |code: i32| {
        let error = format!("exited with code {code}");
        failure(Reason::Crashed, &error, Some(code), None)
    };
    let (error, of_exits, code, signal) = fail(90, exited(3));
    assert_eq!(error.as_deref(), Some("exited with code 3"));
    assert_eq!(of_exits.as_ref().map(String::len), Some(16));
    assert_eq!((code, signal), (Some(3), None));
    let (_, of_kills, code, signal) = fail(80, failure(Reason::Crashed, "killed", None, Some(9)));
    assert_ne!(of_kills, of_exits);
    assert_eq!((code, signal), (None, Some(9)));
    let (_, again, code, _) = fail(70, exited(17));
    assert_eq!((again, code), (of_exits.clone(), Some(17)));
    let told = fail(60, failure(Reason::Failed, "no", None, None));
    assert_eq!((told.2, told.3), (None, None));
    assert_ne!(told.1, of_exits);
    // A change that is no failure leaves all of it, and an empty error has no fingerprint.
    tell(&mut ledger, &id, 50, Reported::Begun);
    let run = shown(&mut ledger, &id);
    assert_eq!(
        (run.state.as_str(), run.error.as_deref()),
        ("running", Some("no"))
    );
    assert_eq!(run.fingerprint, told.1);
    let mut fail = |failure| {
        tell(&mut ledger, &id, 40, Reported::Buried(failure));
        shown(&mut ledger, &id)
    };
    let run = fail(failure(Reason::Failed, "", Some(1), None));
    assert_eq!(
        (run.error, run.fingerprint, run.exit_code),
        (None, None, Some(1))
    );
}

#[test]
fn an_end_names_the_dead_letter_that_it_left() {
    let rig = Rig::new();
    let (mut ledger, id) = dispatched(&rig, ELSEWHERE);
    rig.pass(1000);
    assert_eq!(shown(&mut ledger, &id).dead_letter, None);
    let of = |source: &str, message_id: &str| {
        Some(DeadLetterNameJson {
            source: source.to_owned(),
            message_id: message_id.to_owned(),
        })
    };
    let cancelled = failure(Reason::Cancelled, CANCELLED, None, None);
    for (arrived, what) in [
        (90, failure(Reason::TimedOut, "late", None, None)),
        (80, failure(Reason::Rejected, "no", None, None)),
        (70, cancelled),
    ] {
        tell(&mut ledger, &id, arrived, Reported::Begun);
        assert_eq!(shown(&mut ledger, &id).dead_letter, None);
        tell(&mut ledger, &id, arrived, Reported::Buried(what));
        assert_eq!(shown(&mut ledger, &id).dead_letter, of("rabbit", &id));
    }
    // One without a source is in that of the ledger; one that had no message leaves none.
    rig.sql()
        .execute("UPDATE occurrences SET source = NULL", [])
        .unwrap();
    assert_eq!(shown(&mut ledger, &id).dead_letter, of("main", &id));
    rig.sql()
        .execute("UPDATE occurrences SET error = 'of an attempt before'", [])
        .unwrap();
    assert_eq!(shown(&mut ledger, &id).dead_letter, None);
}

#[test]
fn occurrences_are_found_by_what_they_have_in_common() {
    let rig = Rig::new();
    let (mut ledger, id) = dispatched(&rig, ELSEWHERE);
    rig.pass(1000);
    let killed = || failure(Reason::Crashed, "killed after 3 s", None, Some(9));
    tell(&mut ledger, &id, 90, Reported::Buried(killed()));
    let dead = |failure| Outcome::DeadLetter(Box::new(failure));
    rig.pass(1);
    record(&mut ledger, [Some("a"), Some("order-17")], &dead(killed()));
    rig.pass(1);
    let other = failure(Reason::TimedOut, "late", None, None);
    record(
        &mut ledger,
        [Some("order-17"), Some("order-17")],
        &dead(other),
    );
    let all = newest(&mut ledger);
    assert_eq!(all.correlation_id.as_deref(), Some("order-17"));
    let fingerprint = shown(&mut ledger, &id).fingerprint;
    let mut found = |filter: OccurrenceFilter| {
        let filter = OccurrenceFilter { limit: 2, ..filter };
        let found = LedgerClient::occurrences(&mut ledger, &filter).unwrap();
        let ids = found.into_iter().map(|one| {
            let ids = [one.message_id, one.correlation_id];
            ids.map(Option::unwrap).join(" ")
        });
        ids.collect::<Vec<_>>()
    };
    let of_error = || OccurrenceFilter {
        fingerprint: fingerprint.clone(),
        ..OccurrenceFilter::default()
    };
    let of_run = format!("{id} {id}");
    assert_eq!(found(of_error()), ["a order-17", &of_run]);
    let unresolved = OccurrenceFilter {
        is_unresolved: true,
        ..of_error()
    };
    assert_eq!(found(unresolved), ["a order-17", &of_run]);
    let of_schedule = OccurrenceFilter {
        schedule: Some("m".to_owned()),
        before: Some("ffffffff-0000-7000-8000-000000000000".to_owned()),
        ..of_error()
    };
    assert_eq!(found(of_schedule), [of_run.as_str()]);
    let correlated = |id: &str| OccurrenceFilter {
        correlation_id: Some(id.to_owned()),
        ..OccurrenceFilter::default()
    };
    assert_eq!(
        found(correlated("order-17")),
        ["order-17 order-17", "a order-17"]
    );
    assert_eq!(found(correlated(&id)), [of_run.as_str()]);
    assert_eq!(found(correlated("a")), [""; 0]);
    let failed = OccurrenceFilter {
        state: Some(OccurrenceState::Failed),
        ..correlated("order-17")
    };
    assert_eq!(found(failed), ["a order-17"]);
}
