//! Retention by state and by number.

use super::*;

const FREE: &str = r#"{"cron": "* * * * *", "queue": "q", "overlap": "allow"}"#;
const DAY: Duration = Duration::from_secs(86_400);

/// Returns a ledger of which `m` has a run in each of these states, the oldest first, and a rule that keeps all for a
/// century.
fn with_runs(rig: &Rig, states: &[OccurrenceState]) -> (Ledger, Keep) {
    let mut ledger = rig.daemon();
    ledger.sync(&[config("m", FREE)]).unwrap();
    run(&mut ledger);
    rig.pass(30);
    for state in states {
        run(&mut ledger);
        if state.is_end() {
            rig.end_all(*state);
        }
        rig.pass(60);
    }
    (ledger, Keep::all(36_500 * DAY))
}

fn states(ledger: &mut Ledger) -> Vec<OccurrenceState> {
    let all = OccurrenceFilter {
        limit: 10_000,
        ..OccurrenceFilter::default()
    };
    let all = ledger.occurrences(&all).unwrap();
    all.iter().rev().map(|one| one.state).collect()
}

/// Runs a pass. Returns the number of its steps.
fn expire(ledger: &mut Ledger, keep: &Keep) -> usize {
    (1..).find(|_| !ledger.expire(keep).unwrap()).unwrap()
}

#[test]
fn each_state_has_a_time_of_its_own() {
    use OccurrenceState::{Cancelled, Completed, Failed, Skipped, TimedOut};
    let rig = Rig::new();
    let all = [Completed, Failed, TimedOut, Cancelled, Skipped, Failed];
    let (mut ledger, mut keep) = with_runs(&rig, &all);
    let success = ledger.occurrences(&OccurrenceFilter {
        limit: 10,
        ..OccurrenceFilter::default()
    });
    let success = success.unwrap().last().unwrap().slot;
    rig.pass(86_400);
    for (days, state) in (0..).zip(OccurrenceState::ENDS) {
        keep.times = OccurrenceState::ENDS.map(|one| (one, (10 - days) * DAY));
        let times = keep.times.iter_mut();
        times
            .filter(|(one, _)| *one == state)
            .for_each(|one| one.1 = DAY / 2);
        expire(&mut ledger, &keep);
        let left = states(&mut ledger);
        // The last one that completed stays, and the newest.
        let stay = all.iter().enumerate().filter(|(at, one)| {
            **one == Completed || *at == 5 || !OccurrenceState::ENDS[..=days as usize].contains(one)
        });
        assert_eq!(
            left,
            stay.map(|(_, one)| *one).collect::<Vec<_>>(),
            "{state:?}"
        );
    }
    let mut last = None;
    ledger
        .store
        .read(&mut |tx| {
            last = tx.last_success("m")?;
            Ok(())
        })
        .unwrap();
    assert_eq!((last, last.is_some()), (success, true));
    rig.pass(60);
    run(&mut ledger);
    rig.end_all(Completed);
    rig.pass(86_400);
    expire(&mut ledger, &Keep::all(DAY / 2));
    assert_eq!(states(&mut ledger), [Completed]);
}

#[test]
fn a_schedule_keeps_its_newest_runs() {
    use OccurrenceState::{Completed, Failed, Queued};
    let rig = Rig::new();
    let runs = [Queued, Completed, Completed, Failed, Failed, Failed];
    let (mut ledger, mut keep) = with_runs(&rig, &runs);
    // The first was ended with the next.
    let open = "UPDATE occurrences SET state = 0, ended_at = NULL WHERE id = (SELECT min(id) FROM occurrences)";
    rig.sql().execute(open, []).unwrap();
    let record = "INSERT INTO occurrences (id, schedule, version, queue, state, queued_at, ended_at)
                  SELECT substr(id, 1, 35) || ?1, '', 0, queue, 2, queued_at, queued_at FROM occurrences";
    for end in ["x", "y"] {
        let other = format!("{record} WHERE schedule = 'm'");
        rig.sql().execute(&other, [end]).unwrap();
    }
    keep.per_schedule = Some(2);
    expire(&mut ledger, &keep);
    let left = |ledger: &mut Ledger| {
        let all = OccurrenceFilter {
            schedule: Some("m".to_owned()),
            limit: 100,
            ..OccurrenceFilter::default()
        };
        let all = ledger.occurrences(&all).unwrap();
        all.iter().rev().map(|one| one.state).collect::<Vec<_>>()
    };
    assert_eq!(left(&mut ledger), [Queued, Completed, Failed, Failed]);
    assert_eq!(
        states(&mut ledger).len(),
        4 + 12,
        "records are of no schedule"
    );
    // Each further one takes the place of another that has ended.
    for open in 1..=3 {
        run(&mut ledger);
        rig.pass(60);
        expire(&mut ledger, &keep);
        let ended = [Completed, Failed].into_iter().take(3 - open.min(2));
        let expected = [Queued]
            .into_iter()
            .chain(ended)
            .chain([Queued; 3].into_iter().take(open));
        assert_eq!(left(&mut ledger), expected.collect::<Vec<_>>());
    }
    keep.per_schedule = None;
    run(&mut ledger);
    rig.pass(60);
    expire(&mut ledger, &keep);
    assert_eq!(left(&mut ledger).len(), 6);
}

/// Adds runs that failed, later in the same millisecond as the only one of `m`.
fn add_many(rig: &Rig) {
    let many =
        "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 1200)
         INSERT INTO occurrences (id, schedule, version, queue, state, queued_at, ended_at)
         SELECT substr(id, 1, 14) || printf('8%06d', n), 'm', 1, 'q', 3, queued_at, ended_at
         FROM numbers, (SELECT * FROM occurrences LIMIT 1)";
    assert_eq!(rig.sql().execute(many, []), Ok(1200));
}

/// Whatever there is to be removed.
#[test]
fn a_pass_takes_small_steps() {
    let rig = Rig::new();
    let (mut ledger, mut keep) = with_runs(&rig, &[OccurrenceState::Completed]);
    add_many(&rig);
    keep.per_schedule = Some(1000);
    assert_eq!(expire(&mut ledger, &keep), 1);
    assert_eq!(states(&mut ledger).len(), 1001);
    rig.pass(86_400);
    assert_eq!(expire(&mut ledger, &Keep::all(DAY / 2)), 3);
    // The newest, and the last that completed.
    assert_eq!(states(&mut ledger).len(), 2);
}

/// A server that is asked for too much at once would be asked for the same again and again.
#[test]
fn a_pass_that_fails_is_tried_again_in_smaller_steps() {
    let rig = Rig::new();
    let (mut ledger, _) = with_runs(&rig, &[OccurrenceState::Completed]);
    add_many(&rig);
    rig.pass(86_400);
    let keep = Keep::all(DAY / 2);
    // A trigger that refuses the transaction from its 300th row on.
    let refuse = "CREATE TABLE removed (n);
        CREATE TRIGGER refuse BEFORE DELETE ON occurrences BEGIN
          INSERT INTO removed VALUES (1);
          SELECT raise(ABORT, 'too many') WHERE (SELECT count(*) FROM removed) % 300 = 0;
        END";
    rig.sql().execute_batch(refuse).unwrap();
    ledger.expire(&keep).unwrap_err();
    rig.sql().execute_batch("DELETE FROM removed").unwrap();
    assert!(ledger.expire(&keep).unwrap());
    // One of the 250 that it looks at stays.
    assert_eq!(states(&mut ledger).len(), 1201 - 249);
}
