use super::*;
use ganger_telemetry::capture::logged;

#[test]
fn the_report_has_every_count() {
    let status = PoolStatus {
        name: "p".to_owned(),
        state: PoolState::SourceDown,
        workers_wanted: 3,
        source_problem: Some("gone".to_owned()),
        out: 7,
        counts: Counts {
            done: 11,
            notes: 12,
            ..Counts::default()
        },
        done_per_second: 1.25,
        likely_duplicates: 13,
        lag: BTreeMap::from([("orders/0".to_owned(), 4), ("orders/1".to_owned(), 5)]),
        ..PoolStatus::default()
    };
    let text = logged("info", || status.log());
    let report = text.lines().next().unwrap();
    let counts = serde_json::to_value(&status.counts).unwrap();
    for (name, count) in counts.as_object().unwrap() {
        let shown = format!(" {name}={count}");
        let whole = shown.strip_suffix(".0").unwrap_or(&shown);
        assert!(report.contains(whole), "{shown} in {report}");
    }
    assert!(report.contains(" state=\"source down\""), "{report}");
    assert!(report.contains(" lag=9"), "{report}");
    assert_eq!(text.lines().count(), 3, "{text}");
}

#[test]
fn a_worker_is_told_with_the_message_that_it_is_on() {
    let worker = WorkerStatus {
        slot: 3,
        message: Some("order 7".to_owned()),
        ..WorkerStatus::default()
    };
    let status = PoolStatus {
        workers: vec![worker],
        ..PoolStatus::default()
    };
    let text = logged("info", || status.log());
    let told = text.lines().nth(1).unwrap();
    assert!(told.contains("status of the worker"), "{told}");
    assert!(told.contains("works_on=\"order 7\""), "{told}");
}

#[test]
fn a_moment_is_read_as_it_was_written() {
    #[derive(Serialize, Deserialize)]
    struct Moment(#[serde(with = "unix_seconds")] SystemTime);
    for ms in (0..1000).chain(1_795_391_480_000..1_795_391_481_000) {
        let at = SystemTime::UNIX_EPOCH + Duration::from_millis(ms);
        let text = serde_json::to_string(&Moment(at)).unwrap();
        let Moment(read) = serde_json::from_str(&text).unwrap();
        assert_eq!(read, at, "{text}");
    }
    for wrong in ["-1.0", "1e300", "1e19"] {
        assert!(serde_json::from_str::<Moment>(wrong).is_err(), "{wrong}");
    }
}
