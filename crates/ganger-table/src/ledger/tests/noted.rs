//! Notes on runs: their logs, their progress, and signs of life.

use std::time::Duration;

use tokio::time::Instant;

use super::*;
use ganger_config::model::LogLimits;
use ganger_queue::delivery::{LogLine, LogStream, RunNote};

fn line(text: &str) -> LogLine {
    LogLine {
        at: Instant::now(),
        attempt: 2,
        stream: LogStream::Stderr,
        level: "warn",
        text: text.to_owned(),
    }
}

fn note(occurrence: &str, texts: impl IntoIterator<Item = String>) -> RunNote {
    RunNote {
        occurrence: occurrence.into(),
        lines: texts.into_iter().map(|text| line(&text)).collect(),
        dropped: 0,
        progress: None,
        heard: Instant::now(),
    }
}

/// Enters a run, and returns its id.
fn triggered(ledger: &mut Ledger) -> String {
    let keys = r#"{"every": "1h", "queue": "q", "overlap": "allow"}"#;
    ledger.sync(&[config("m", keys)]).unwrap();
    match ledger.trigger("m", None, None, true).unwrap() {
        Triggered::Sent(id) => id,
        Triggered::Overlaps => panic!(),
    }
}

fn texts(ledger: &mut Ledger, id: &str, after: Option<i64>, most: u32) -> Vec<(i64, String)> {
    let log = ledger.log(id, after, most).unwrap().unwrap();
    let lines = log.lines.into_iter();
    lines.map(|line| (line.line, line.text)).collect()
}

fn write(ledger: &mut Ledger, note: RunNote, limits: LogLimits) {
    let (left, written) = ledger.note(vec![note], limits);
    assert!(left.is_empty());
    written.unwrap();
}

#[test]
fn lines_are_read_in_order_and_progress_and_life_are_shown() {
    let rig = Rig::new();
    let mut ledger = rig.daemon();
    let id = triggered(&mut ledger);
    let limits = LogLimits::default();
    let first = RunNote {
        progress: Some("1 of 2".to_owned()),
        ..note(&id, ["a\0b", ""].map(str::to_owned))
    };
    write(&mut ledger, first, limits);
    write(&mut ledger, note(&id, ["c".to_owned()]), limits);
    let log = ledger.log(&id, None, 10).unwrap().unwrap();
    let [line, ..] = &log.lines[..] else {
        panic!("{log:?}");
    };
    assert_eq!((line.attempt, &*line.stream), (2, "stderr"));
    assert_eq!(line.level.as_deref(), Some("warn"));
    assert!(line.at.starts_with("2026-12-01T00:00:"), "{}", line.at);
    let expected = [(0, "a\u{fffd}b"), (1, ""), (2, "c")];
    let expected = expected.map(|(line, text)| (line, text.to_owned()));
    assert_eq!(texts(&mut ledger, &id, None, 10), expected);
    assert_eq!(texts(&mut ledger, &id, Some(0), 1), expected[1..2]);
    let (shown, _) = ledger.occurrence(&id).unwrap().unwrap();
    assert_eq!((shown.log_lines, shown.log_dropped), (3, 0));
    assert_eq!(shown.progress.as_deref(), Some("1 of 2"));
    assert!(shown.heard_at.is_some());
    assert!(ledger.log("none", None, 10).unwrap().is_none());
}

/// What came before the limits were reached, too, and across several writes.
#[test]
fn the_first_fifth_and_the_newest_lines_of_a_log_are_kept_and_the_others_counted() {
    let rig = Rig::new();
    let mut ledger = rig.daemon();
    let id = triggered(&mut ledger);
    let limits = LogLimits {
        lines: 10,
        bytes: 1000,
    };
    let lines = |numbers: std::ops::Range<u32>| numbers.map(|number| format!("line {number}"));
    for numbers in [0..8, 8..14, 14..15, 15..100, 100..101] {
        write(&mut ledger, note(&id, lines(numbers)), limits);
    }
    let kept = lines(0..2).chain(lines(93..101));
    let numbers = (0..2).chain(93..101);
    let expected: Vec<_> = numbers.zip(kept).collect();
    assert_eq!(texts(&mut ledger, &id, None, 100), expected);
    // Lines that were dropped before count, and leave a gap.
    let late = RunNote {
        dropped: 5,
        ..note(&id, [])
    };
    write(&mut ledger, late, limits);
    write(&mut ledger, note(&id, ["x".repeat(900)]), limits);
    let left = texts(&mut ledger, &id, None, 100);
    let numbers: Vec<i64> = left.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [0, 1, 94, 95, 96, 97, 98, 99, 100, 106]);
    let counts: (i64, i64, i64) = rig
        .sql()
        .query_row(
            "SELECT log_lines, log_bytes, log_dropped FROM occurrences WHERE id = ?1",
            [&id],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )
        .unwrap();
    let bytes: usize = left.iter().map(|(_, text)| text.len()).sum();
    assert_eq!(counts, (10, i64::try_from(bytes).unwrap(), 97));
    assert!(bytes <= 1000);
}

#[test]
fn the_log_of_an_occurrence_expires_with_it_and_one_that_is_gone_gets_none() {
    let rig = Rig::new();
    let mut ledger = rig.daemon();
    let (old, newest) = (triggered(&mut ledger), triggered(&mut ledger));
    let limits = LogLimits::default();
    let both = [&old, &newest].map(|id| note(id, ["x".to_owned()]));
    let (left, written) = ledger.note(both.into(), limits);
    assert!(left.is_empty() && written.is_ok());
    let logs = |rig: &Rig| -> Vec<String> {
        let sql = rig.sql();
        let mut logs = sql
            .prepare("SELECT occurrence FROM occurrence_logs")
            .unwrap();
        let logs = logs.query_map([], |row| row.get(0)).unwrap();
        logs.collect::<Result<_, _>>().unwrap()
    };
    assert_eq!(logs(&rig).len(), 2);
    let ended = "UPDATE occurrences SET state = 2, ended_at = queued_at";
    rig.sql().execute(ended, []).unwrap();
    rig.pass(3600);
    ledger.expire(&Keep::all(Duration::from_secs(60))).unwrap();
    assert_eq!(logs(&rig), [newest]);
    write(&mut ledger, note(&old, ["late".to_owned()]), limits);
    assert_eq!(logs(&rig).len(), 1);
}

/// A trigger of someone's, say.
#[test]
fn lines_that_the_database_rejects_keep_no_others_out() {
    let rig = Rig::new();
    let mut ledger = rig.daemon();
    let (bad, good) = (triggered(&mut ledger), triggered(&mut ledger));
    let refuse = "CREATE TRIGGER refused BEFORE INSERT ON occurrence_logs WHEN NEW.text = 'bad'
                  BEGIN SELECT RAISE(ABORT, 'refused'); END";
    rig.sql().execute_batch(refuse).unwrap();
    let both = [(&bad, "bad"), (&good, "good")];
    let both = both.map(|(id, text)| note(id, [text.to_owned()]));
    let (left, written) = ledger.note(both.into(), LogLimits::default());
    assert!(left.is_empty() && written.is_ok());
    assert_eq!(texts(&mut ledger, &bad, None, 10), []);
    assert_eq!(
        texts(&mut ledger, &good, None, 10),
        [(0, "good".to_owned())]
    );
}
