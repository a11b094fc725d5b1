//! Tests of the entries of finished messages: they are found until they expire, and no longer.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use super::*;
use ganger_queue::delivery::{Finished, Outcome, Outgoing, StoredReply};

struct Bench {
    dir: tempfile::TempDir,
    now_ms: Arc<AtomicI64>,
}

impl Bench {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            now_ms: Arc::new(AtomicI64::new(1_000)),
        }
    }

    fn store(&self) -> SqliteFinishedStore {
        let scope = Scope {
            source: "main".to_owned(),
            queue: "q".into(),
        };
        let clock = WallClock::of(&self.now_ms);
        SqliteFinishedStore::open(self.dir.path().join("q.db"), 0o600, scope, clock).unwrap()
    }
}

fn identity(key: &str, step: u32) -> Identity {
    Identity {
        queue: "q".into(),
        key: key.to_owned(),
        emit: String::new(),
        step,
    }
}

fn finished(key: &str, step: u32) -> Finished {
    Finished {
        identity: identity(key, step),
        body: "hash".to_owned(),
        window: Duration::from_secs(1),
        continued: Outgoing {
            reply_to: Some("caller".to_owned()),
            ..Outgoing::default()
        },
        entry_notice: None,
    }
}

fn reply(queue: &str, body: &'static [u8]) -> Outcome {
    Outcome::Reply(Box::new(Outgoing {
        queue: queue.to_owned(),
        body: body.into(),
        headers: vec![("a".to_owned(), "1".to_owned())],
        ..Outgoing::default()
    }))
}

fn stored(queue: Option<&str>, body: &'static [u8]) -> Option<StoredEntry> {
    let reply = StoredReply {
        queue: queue.map(ToOwned::to_owned),
        body: body.into(),
        headers: vec![("a".to_owned(), "1".to_owned())],
    };
    Some(StoredEntry {
        body: Some("hash".to_owned()),
        reply: Some(reply),
    })
}

fn done() -> Option<StoredEntry> {
    Some(StoredEntry {
        body: Some("hash".to_owned()),
        reply: None,
    })
}

fn enter(
    store: &mut SqliteFinishedStore,
    finished: &Finished,
    outcome: &Outcome,
) -> Option<StoredEntry> {
    let entry = Entry { finished, outcome };
    store.enter(&[entry]).unwrap().remove(0)
}

fn find(store: &mut SqliteFinishedStore, key: &str, step: u32) -> Option<StoredEntry> {
    store.find(&[&identity(key, step)]).unwrap().remove(0)
}

#[test]
fn what_is_entered_first_stands() {
    let bench = Bench::new();
    let (mut one, mut other) = (bench.store(), bench.store());
    assert_eq!(find(&mut one, "k", 0), None);
    assert_eq!(
        enter(&mut one, &finished("k", 0), &reply("caller", b"\xff")),
        None
    );
    assert_eq!(find(&mut other, "k", 0), stored(None, b"\xff"));
    assert_eq!(
        enter(&mut other, &finished("k", 0), &Outcome::Done),
        stored(None, b"\xff")
    );
    assert_eq!(enter(&mut other, &finished("d", 0), &Outcome::Done), None);
    assert_eq!(
        enter(&mut one, &finished("d", 0), &reply("caller", b"late")),
        done()
    );
    assert_eq!(
        enter(&mut one, &finished("w", 0), &reply("worker's", b"")),
        None
    );
    assert_eq!(find(&mut one, "w", 0), stored(Some("worker's"), b""));
}

/// An entry of another message with the same key is not handed out.
#[test]
fn what_has_another_body_is_no_repetition() {
    let bench = Bench::new();
    let mut store = bench.store();
    let outcome = reply("caller", b"private");
    assert_eq!(enter(&mut store, &finished("k", 0), &outcome), None);
    let other = Finished {
        body: "another".to_owned(),
        ..finished("k", 0)
    };
    assert_eq!(enter(&mut store, &other, &Outcome::Done), None);
    assert_eq!(find(&mut store, "k", 0), stored(None, b"private"));
    let entered_before = "UPDATE finished_messages SET reply_headers = '{}'";
    store.conn.execute(entered_before, []).unwrap();
    let first = enter(&mut store, &other, &Outcome::Done).unwrap();
    assert_eq!(first.body, None, "an earlier version has entered it");
}

#[test]
fn steps_and_queues_are_told_apart() {
    let bench = Bench::new();
    let mut store = bench.store();
    enter(&mut store, &finished("k", 0), &Outcome::Done);
    assert_eq!(find(&mut store, "k", 1), None);
    let elsewhere = Identity {
        queue: "r".into(),
        ..identity("k", 0)
    };
    assert_eq!(store.find(&[&elsewhere]).unwrap(), [None]);
    assert_eq!(find(&mut store, "k", 0), done());
}

#[test]
fn a_window_ends_and_what_is_out_of_date_goes_in_small_batches() {
    let bench = Bench::new();
    let mut store = bench.store();
    for key in ["a", "b", "c"] {
        enter(&mut store, &finished(key, 0), &Outcome::Done);
    }
    bench.now_ms.store(1_999, Ordering::SeqCst);
    assert_eq!(find(&mut store, "a", 0), done());
    assert_eq!(store.expire(2).unwrap(), 0);
    bench.now_ms.store(2_000, Ordering::SeqCst);
    assert_eq!(find(&mut store, "a", 0), None);
    let again = enter(&mut store, &finished("a", 0), &reply("caller", b"again"));
    assert_eq!(again, None);
    assert_eq!(find(&mut store, "a", 0), stored(None, b"again"));
    assert_eq!(store.expire(1).unwrap(), 1);
    assert_eq!(store.expire(9).unwrap(), 1);
    assert_eq!(store.expire(9).unwrap(), 0);
    assert_eq!(find(&mut store, "a", 0), stored(None, b"again"));
}

#[test]
fn a_file_that_was_taken_away_is_waited_for_and_another_is_taken_up() {
    let bench = Bench::new();
    let mut store = bench.store();
    enter(&mut store, &finished("a", 0), &Outcome::Done);
    for suffix in ["", "-wal", "-shm"] {
        let path = bench.dir.path().join(format!("q.db{suffix}"));
        std::fs::rename(&path, path.with_extension(format!("old{suffix}"))).unwrap();
    }
    let fault = store.find(&[&identity("a", 0)]).unwrap_err();
    assert!(!fault.is_permanent, "{}", fault.problem);
    bench.store().close();
    store.find(&[&identity("a", 0)]).unwrap_err();
    assert_eq!(find(&mut store, "a", 0), None);
    assert_eq!(enter(&mut store, &finished("a", 0), &Outcome::Done), None);
}
