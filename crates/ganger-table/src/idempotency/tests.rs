//! Tests of the gate through its two links, with a simulated source and pool, on real database files.

use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;
use tokio::task::LocalSet;
use tokio::time::timeout;

use super::*;
use crate::sqlite::open_for_tests;
use ganger_config::model::{Database, MessageKey, TableSource};
use ganger_config::sample::policy;
use ganger_queue::delivery::{History, Message, Outgoing, Property};

/// Far longer than any step of these tests takes.
const SOON: Duration = Duration::from_secs(20);

/// The ends of the simulated source and pool.
struct Rig {
    dir: TempDir,
    source: SourceEnd,
    pool: PoolEnd,
    next: u64,
}

impl Rig {
    /// Starts a gate on this thread. Its store is the source's own database if `is_own_database` is set,
    /// otherwise another one.
    async fn new(is_own_database: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (end, pool) = link();
        let (source, ends) = ends(end);
        let rules = Idempotency {
            key: MessageKey::MessageId,
            window: Duration::from_secs(3600),
            store: "s".to_owned(),
            scope: "s".to_owned(),
            table: TableSource {
                database: Database::Sqlite(path(&dir)),
                mode: 0o600,
                poll_interval: SOON,
                lease: SOON,
            },
        };
        let store = database(&rules.table)
            .unwrap()
            .finished_store(&policy())
            .await;
        let store = store.unwrap();
        let gate = Gate::new("p".to_owned(), rules, is_own_database, store, ends);
        tokio::task::spawn_local(gate.run());
        pool.intake.send(Intake::Credit(10)).unwrap();
        let mut rig = Self {
            dir,
            source,
            pool,
            next: 0,
        };
        rig.intake_becomes(Intake::Credit(10)).await;
        rig
    }

    async fn intake_becomes(&mut self, intake: Intake) {
        let becomes = self.source.intake.wait_for(|now| *now == intake);
        timeout(SOON, becomes).await.unwrap().unwrap();
    }

    /// Delivers a message with that id from the source.
    fn arrives(&mut self, id: &str) -> u64 {
        self.arrives_with(id, "")
    }

    /// Delivers a message with that id and that body from the source.
    fn arrives_with(&mut self, id: &str, body: &'static str) -> u64 {
        self.next += 1;
        let message = Message {
            queue: "q".into(),
            body: body.into(),
            headers: Vec::new(),
            correlation_id: format!("c{}", self.next),
            reply_to: Some("caller".to_owned()),
            properties: vec![("message_id", Property::Text(id.to_owned()))],
            occurrence: None,
        };
        self.source.deliver(self.next, message, History::default());
        self.next
    }

    /// Returns the next message that the pool gets.
    async fn gets(&mut self) -> Delivery {
        let got = timeout(SOON, self.pool.deliveries.recv()).await;
        got.expect("the pool gets a message").unwrap()
    }

    /// Returns the next settlement that the source gets.
    async fn settlement(&mut self) -> (u64, Outcome, Option<Box<Finished>>) {
        let told = timeout(SOON, self.source.settlements.recv()).await;
        let told = told.expect("the source is told").unwrap();
        (told.token, told.outcome, told.finished)
    }

    fn entries(&self) -> i64 {
        let count = "SELECT count(*) FROM finished_messages";
        let count = open_for_tests(&path(&self.dir)).query_row(count, [], |row| row.get(0));
        count.unwrap()
    }
}

fn path(dir: &TempDir) -> PathBuf {
    dir.path().join("s.db")
}

fn reply(body: &'static str, correlation_id: &str) -> Outcome {
    Outcome::Reply(Box::new(Outgoing {
        queue: "caller".to_owned(),
        body: body.into(),
        correlation_id: correlation_id.to_owned(),
        reply_to: Some("caller".to_owned()),
        message_id: Some("a".to_owned()),
        ..Outgoing::default()
    }))
}

/// Runs a test on one thread with the gate.
fn test(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, test);
}

#[test]
fn a_repetition_is_acknowledged_with_the_reply_of_the_first() {
    test(async {
        let mut rig = Rig::new(false).await;
        let first = rig.arrives("a");
        rig.gets().await.settle(reply("done", "c1"));
        assert_eq!(rig.settlement().await.1, reply("done", "c1"));
        assert_eq!(rig.entries(), 1);
        let second = rig.arrives("a");
        assert_ne!(first, second);
        let (token, outcome, _) = rig.settlement().await;
        assert_eq!((token, outcome), (second, reply("done", "c2")));
        assert_eq!(rig.pool.facts.read().repetitions, Some(1));
    });
}

/// A sender that reuses the id of another's message neither gets its reply nor prevents the work on it.
#[test]
fn another_message_with_the_same_key_is_worked_on_and_remembered_too() {
    test(async {
        let mut rig = Rig::new(false).await;
        rig.arrives_with("a", "forged");
        rig.gets().await.settle(reply("private", "c1"));
        assert_eq!(rig.settlement().await.1, reply("private", "c1"));
        rig.arrives_with("a", "true");
        let delivery = rig.gets().await;
        assert_eq!(delivery.message.body, "true");
        let behind = rig.arrives_with("a", "true");
        delivery.settle(reply("done", "c2"));
        assert_eq!(rig.settlement().await.1, reply("done", "c2"));
        let (token, outcome, _) = rig.settlement().await;
        assert_eq!((token, outcome), (behind, reply("done", "c3")));
        assert_eq!(rig.entries(), 2);
        rig.arrives_with("a", "forged");
        assert_eq!(rig.settlement().await.1, reply("private", "c4"));
        assert_eq!(rig.pool.facts.read().repetitions, Some(2));
    });
}

#[test]
fn what_is_no_finish_is_not_entered() {
    test(async {
        let mut rig = Rig::new(false).await;
        let outcomes = [
            Outcome::Requeue { after: SOON },
            Outcome::Return { suspect: false },
            Outcome::ReturnAfter { delay: SOON },
            Outcome::RetryAfter {
                delay: SOON,
                failure: Box::default(),
            },
            Outcome::DeadLetter(Box::default()),
        ];
        for outcome in outcomes {
            rig.arrives("a");
            rig.gets().await.settle(outcome.clone());
            assert_eq!(rig.settlement().await.1, outcome);
        }
        assert_eq!(rig.entries(), 0);
    });
}

#[test]
fn one_like_it_waits_until_it_is_settled() {
    test(async {
        let mut rig = Rig::new(false).await;
        let (first, second, third) = (rig.arrives("a"), rig.arrives("a"), rig.arrives("a"));
        let other = rig.arrives("b");
        let in_hand = rig.gets().await;
        let another = rig.gets().await;
        assert_eq!(another.message.text("message_id"), Some("b"));
        another.settle(Outcome::Done);
        assert_eq!(rig.settlement().await.0, other);
        in_hand.settle(Outcome::DeadLetter(Box::default()));
        assert_eq!(rig.settlement().await.0, first);
        rig.gets().await.settle(Outcome::Done);
        assert_eq!(rig.settlement().await.0, second);
        assert_eq!(rig.settlement().await.0, third);
        assert_eq!(rig.pool.facts.read().repetitions, Some(1));
    });
}

#[test]
fn without_a_key_it_is_worked_on_and_counted() {
    test(async {
        let mut rig = Rig::new(false).await;
        for _ in 0..2 {
            rig.arrives("");
            rig.gets().await.settle(Outcome::Done);
            rig.settlement().await;
        }
        assert_eq!(rig.pool.facts.read().unkeyed, Some(2));
        assert_eq!(rig.entries(), 0);
    });
}

#[test]
fn the_source_enters_what_is_in_its_own_database() {
    test(async {
        let mut rig = Rig::new(true).await;
        rig.arrives("a");
        let second = rig.arrives("a");
        rig.gets().await.settle(Outcome::Done);
        let (_, outcome, finished) = rig.settlement().await;
        assert_eq!(outcome, Outcome::Done);
        let finished = finished.expect("it is to be entered by the source");
        assert_eq!((finished.identity.key.as_str(), rig.entries()), ("a", 0));
        // The source has written the entry, and drops it.
        let enter = "INSERT INTO finished_messages (source, queue, key, emit_id, step, finished_at,
            expires_at) VALUES ('s', 'q', 'a', '', 0, 1, 9223372036854775807)";
        open_for_tests(&path(&rig.dir)).execute(enter, []).unwrap();
        drop(finished);
        assert_eq!(rig.settlement().await.0, second);
    });
}

#[test]
fn while_the_store_is_away_nothing_is_acknowledged_and_nothing_taken() {
    test(async {
        let mut rig = Rig::new(false).await;
        rig.arrives("a");
        let in_hand = rig.gets().await;
        let hide = |from: &str, to: &str| {
            for suffix in ["", "-wal", "-shm"] {
                let name = |base: &str| rig.dir.path().join(format!("{base}{suffix}"));
                std::fs::rename(name(from), name(to)).unwrap();
            }
        };
        hide("s.db", "hidden.db");
        in_hand.settle(Outcome::Done);
        let is_down = |state: &ganger_queue::delivery::SourceState| {
            let problem = state.problem.as_deref().unwrap_or_default();
            !state.healthy && problem.starts_with("finished messages can't be looked up: ")
        };
        let told = rig.pool.state.wait_for(is_down);
        timeout(SOON, told).await.unwrap().unwrap();
        rig.source.settlements.try_recv().unwrap_err();
        hide("hidden.db", "s.db");
        rig.intake_becomes(Intake::Credit(0)).await;
        assert_eq!(rig.settlement().await.1, Outcome::Done);
        assert_eq!(rig.entries(), 1);
        rig.intake_becomes(Intake::Credit(10)).await;
    });
}

#[test]
fn what_is_not_to_be_begun_any_more_goes_back() {
    test(async {
        let mut rig = Rig::new(false).await;
        rig.arrives("a");
        let in_hand = rig.gets().await;
        let behind = rig.arrives("a");
        rig.pool.intake.send(Intake::Closed).unwrap();
        rig.intake_becomes(Intake::Closed).await;
        let (token, outcome, _) = rig.settlement().await;
        assert_eq!(
            (token, outcome),
            (behind, Outcome::Return { suspect: false })
        );
        in_hand.settle(Outcome::Done);
        assert_eq!(rig.settlement().await.1, Outcome::Done);
        assert_eq!(rig.entries(), 1);
    });
}

#[test]
fn two_gates_that_finish_the_same_send_the_same_reply() {
    test(async {
        let mut rig = Rig::new(false).await;
        rig.arrives("a");
        let in_hand = rig.gets().await;
        let enter = "INSERT INTO finished_messages (source, queue, key, emit_id, step, finished_at,
            expires_at, reply_body, reply_headers)
            VALUES ('s', 'q', 'a', '', 0, 1, 9223372036854775807, 'first', '{}')";
        open_for_tests(&path(&rig.dir)).execute(enter, []).unwrap();
        in_hand.settle(reply("second", "c1"));
        assert_eq!(rig.settlement().await.1, reply("first", "c1"));
        let counted = rig
            .pool
            .state
            .wait_for(|state| state.likely_duplicates == 1);
        timeout(SOON, counted).await.unwrap().unwrap();
    });
}
