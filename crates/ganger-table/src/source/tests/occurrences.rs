//! Tests of the occurrences of a ledger in the same file: their states follow their messages.

use super::*;
use crate::ledger::{Ledger, OccurrenceFilter, Triggered};
use crate::sqlite::tests_support::OtherOwner;
use ganger_config::model::{Keep, LedgerConfig, LogLimits, Record, ScheduleConfig};
use ganger_config::stored_schedule;
use ganger_queue::delivery::{Failure, Reason};
use ganger_schedule::zone::Zones;

/// Opens the ledger of a rig's file, by the system's clock.
pub(super) fn ledger(rig: &Rig) -> Ledger {
    let config = LedgerConfig {
        record: Record::default(),
        source: "main".to_owned(),
        table: rig.config(),
        group: "main".to_owned(),
        is_embedded: false,
        keep: Keep::all(NEVER),
        log: LogLimits::default(),
    };
    Ledger::open(&config, true).unwrap()
}

/// Makes a schedule of each second, with further keys.
pub(super) fn schedule(name: &str, more: &str) -> ScheduleConfig {
    let keys = r#""every": "1s", "queue": "q", "overlap": "allow""#;
    stored_schedule(name, &format!("{{{keys}, {more}}}"), &Zones::bundled()).unwrap()
}

/// Dispatches until `sent` messages were sent, then stops all schedules.
pub(super) fn dispatch(ledger: &mut Ledger, sent: u64) {
    let mut all = 0;
    while all < sent {
        let dispatched = ledger.dispatch().unwrap();
        all += dispatched.sent;
        std::thread::park_timeout(dispatched.wait.unwrap_or_default());
    }
    let all = ledger.schedules().unwrap().into_iter();
    for row in all.filter(|row| row.origin == "file") {
        ledger.pause(&row.name, None).unwrap();
    }
}

/// Triggers a run, and returns its id.
pub(super) fn trigger(ledger: &mut Ledger, name: &str) -> String {
    match ledger.trigger(name, None, None, true).unwrap() {
        Triggered::Sent(id) => id,
        Triggered::Overlaps => panic!("it was forced"),
    }
}

/// Returns the changes of an occurrence, in words.
fn story(ledger: &mut Ledger, id: &str) -> Vec<String> {
    let (_, events) = ledger.occurrence(id).unwrap().unwrap();
    let shown = |event: crate::ledger::OccurrenceEvent| {
        let from = event.from.map_or("", |state| state.as_str());
        let note = event.note.unwrap_or_default();
        let (to, attempt) = (event.to.as_str(), event.attempt);
        format!("{from}>{to} {attempt} {note}")
            .trim_end()
            .to_owned()
    };
    events.into_iter().map(shown).collect()
}

#[tokio::test]
async fn an_occurrence_follows_its_message() {
    let rig = Rig::new();
    let mut ledger = ledger(&rig);
    ledger.sync(&[schedule("s", "\"limit\": 1")]).unwrap();
    let mut source = rig.source(&Shared::default(), 20);
    let failure = |reason| Box::new(Failure::new(reason, "no luck"));
    let after = Duration::ZERO;
    let again = || Outcome::RetryAfter {
        delay: after,
        failure: failure(Reason::Failed),
    };
    let retried = ["queued>waiting 1 no luck", "waiting>completed 2"];
    let reply = |queue| Outcome::Reply(Box::new(plans::outgoing(queue)));
    let table: [(Vec<Outcome>, &[&str]); 9] = [
        (vec![Outcome::Done], &["queued>completed 1"]),
        (vec![again(), Outcome::Done], &retried),
        (
            vec![Outcome::DeadLetter(failure(Reason::Failed))],
            &["queued>failed 1 no luck"],
        ),
        (
            vec![Outcome::DeadLetter(failure(Reason::TimedOut))],
            &["queued>timed_out 1 no luck"],
        ),
        (
            vec![Outcome::DeadLetter(failure(Reason::Cancelled))],
            &["queued>cancelled 1 no luck"],
        ),
        (
            vec![Outcome::Requeue { after }, Outcome::Done],
            &["queued>waiting 1 requeue", "waiting>completed 1"],
        ),
        (
            vec![Outcome::Return { suspect: false }, Outcome::Done],
            &["queued>queued 1", "queued>completed 1"],
        ),
        // A long task continues in its own queue, with the header that its reply has then.
        (
            vec![reply("q"), reply("q"), Outcome::Done],
            &["queued>queued 1 step", "queued>completed 1"],
        ),
        (vec![reply("answers")], &["queued>completed 1"]),
    ];
    for (outcomes, expected) in table {
        let id = trigger(&mut ledger, "s");
        for mut outcome in outcomes {
            if let Outcome::Reply(step) = &mut outcome
                && step.queue == "q"
            {
                step.headers
                    .push(("x-ganger-occurrence".to_owned(), id.clone()));
            }
            source.next().await.settle(outcome);
        }
        rig.until("SELECT count(*) = 0 FROM occurrences WHERE ended_at IS NULL")
            .await;
        let story = story(&mut ledger, &id);
        assert_eq!(story[0], ">queued 0 triggered");
        assert_eq!(story[1..], *expected);
    }
    // An occurrence that the ledger no longer has is ignored.
    trigger(&mut ledger, "s");
    rig.execute("DELETE FROM occurrences");
    source.finish_next().await;
    source.end().await;
}

#[tokio::test]
async fn a_message_that_is_returned_for_ever_leaves_a_bounded_story() {
    let rig = Rig::new();
    let mut ledger = ledger(&rig);
    ledger.sync(&[schedule("s", "\"limit\": 1")]).unwrap();
    let id = trigger(&mut ledger, "s");
    rig.execute(&format!(
        "WITH RECURSIVE numbers (n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM numbers WHERE n < 1000)
         INSERT INTO occurrence_events (occurrence, at, to_state, attempt) SELECT '{id}', n, 8, 1 FROM numbers"
    ));
    let mut source = rig.source(&Shared::default(), 20);
    let after = Duration::ZERO;
    source.next().await.settle(Outcome::Requeue { after });
    source.next().await.settle(Outcome::Done);
    source.end().await;
    let story = story(&mut ledger, &id);
    assert_eq!(story.len(), 1001);
    assert_eq!(story[1000], "waiting>completed 1");
}

#[tokio::test]
async fn a_run_that_takes_a_while_shows_that_it_runs() {
    let rig = Rig::new();
    let mut ledger = ledger(&rig);
    ledger.sync(&[schedule("s", "\"limit\": 1")]).unwrap();
    let mut source = rig.source(&Shared::default(), 20);
    let id = trigger(&mut ledger, "s");
    let mut delivery = source.next().await;
    delivery.begin(&Arc::from("{}"));
    rig.until("SELECT state = 1 FROM occurrences").await;
    let (occurrence, _) = ledger.occurrence(&id).unwrap().unwrap();
    assert!(occurrence.started_at.is_some() && occurrence.attempt == 1);
    delivery.settle(Outcome::Done);
    source.end().await;
    let story = story(&mut ledger, &id);
    assert_eq!(story[1..], ["queued>running 1", "running>completed 1"]);
    let (occurrence, _) = ledger.occurrence(&id).unwrap().unwrap();
    assert!(occurrence.ended_at > occurrence.started_at);
}

#[tokio::test]
async fn a_run_whose_daemon_is_lost_is_unknown_until_another_has_it() {
    let rig = Rig::new();
    let mut ledger = ledger(&rig);
    ledger.sync(&[schedule("s", "\"limit\": 1")]).unwrap();
    let other = OtherOwner::new(&rig.path(), NEVER);
    let id = trigger(&mut ledger, "s");
    let waiting = trigger(&mut ledger, "s");
    other.claims_all(&rig.sql(), false);
    rig.execute(&format!(
        "UPDATE occurrences SET state = 1, attempt = 1 WHERE id = '{id}'"
    ));
    other.dies();
    let mut source = rig.source(&Shared::default(), 20);
    rig.until("SELECT count(*) = 1 FROM occurrences WHERE state = 6")
        .await;
    for _ in 0..2 {
        source.next().await.settle(Outcome::Done);
    }
    source.end().await;
    let story_of = |ledger: &mut Ledger, id: &str| story(ledger, id)[1..].to_vec();
    let lost = ["running>unknown 1 daemon_lost", "unknown>completed 1"];
    assert_eq!(story_of(&mut ledger, &id), lost);
    assert_eq!(story_of(&mut ledger, &waiting), ["queued>completed 1"]);
}

#[tokio::test]
async fn a_ledger_that_refuses_an_end_holds_up_no_message() {
    let rig = Rig::new();
    let mut ledger = ledger(&rig);
    ledger.sync(&[schedule("s", "\"limit\": 1")]).unwrap();
    rig.execute(
        "CREATE TRIGGER guard BEFORE UPDATE ON occurrences
         BEGIN SELECT RAISE(ABORT, 'no changes'); END",
    );
    trigger(&mut ledger, "s");
    rig.insert("another");
    let mut source = rig.source(&Shared::default(), 20);
    source.finish_next().await;
    let mut second = source.next().await;
    second.begin(&"{}".into());
    second.settle(Outcome::Done);
    source.end().await;
    assert_eq!(rig.get::<i64>("SELECT count(*) FROM consumer_messages"), 0);
}

#[test]
fn occurrences_are_listed_newest_first_and_expire() {
    let rig = Rig::new();
    let mut ledger = ledger(&rig);
    ledger.sync(&[schedule("s", "\"limit\": 1")]).unwrap();
    let ids: Vec<String> = (0..5).map(|_| trigger(&mut ledger, "s")).collect();
    let list = |ledger: &mut Ledger, before: Option<&String>| {
        let filter = OccurrenceFilter {
            before: before.cloned(),
            limit: 2,
            ..OccurrenceFilter::default()
        };
        let found = ledger.occurrences(&filter).unwrap().into_iter();
        found.map(|one| one.id).collect::<Vec<_>>()
    };
    assert_eq!(list(&mut ledger, None), [&*ids[4], &*ids[3]]);
    assert_eq!(list(&mut ledger, Some(&ids[3])), [&*ids[2], &*ids[1]]);
    // All are long past, and all but the first have ended.
    rig.execute(
        "UPDATE occurrences SET ended_at = 1, state = 2
         WHERE id <> (SELECT min(id) FROM occurrences);
         UPDATE occurrences SET id = '00' || substr(id, 3);
         UPDATE occurrence_events SET occurrence = '00' || substr(occurrence, 3)",
    );
    let ids: Vec<String> = ids.iter().map(|id| format!("00{}", &id[2..])).collect();
    assert!(!ledger.expire(&Keep::all(Duration::ZERO)).unwrap());
    // One is open, one the newest.
    assert_eq!(list(&mut ledger, None), [&*ids[4], &*ids[0]]);
    assert_eq!(rig.get::<i64>("SELECT count(*) FROM occurrence_events"), 2);
}
