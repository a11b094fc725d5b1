//! Tests of `in_flight`.

use super::*;
use crate::delivery::Claim;
use crate::protocol::status::Status;

const TWO: Version = Version::Two { concurrency: 8 };
const DIED: Cause = Cause::Died;

fn place(head: bool, begun: bool, begun_in_all: usize) -> HeldState {
    HeldState {
        head,
        begun,
        left_unread: false,
        left_well: false,
        alone: false,
        begun_in_all,
    }
}

fn unsure(head: bool, begun_in_all: usize) -> HeldState {
    HeldState {
        left_unread: true,
        ..place(head, true, begun_in_all)
    }
}

#[test]
fn a_worker_that_leaves_well_took_nothing_that_it_had_not_read() {
    let well = |place| HeldState {
        left_well: true,
        ..place
    };
    let alone = |place| HeldState {
        alone: true,
        ..place
    };
    let table = [
        // Not read whole, so not begun, whatever it is suspected of.
        (Version::One, well(unsure(true, 1)), Blame::Returned),
        (Version::One, well(unsure(true, 3)), Blame::Returned),
        (Version::One, alone(well(unsure(true, 1))), Blame::Returned),
        (TWO, well(unsure(true, 1)), Blame::Returned),
        // Read, and alone in its hands: it left in the middle of it.
        (Version::One, well(place(true, true, 1)), Blame::Charged),
        (TWO, well(place(true, true, 1)), Blame::Charged),
        // Read, or only read ahead.
        (Version::One, well(place(true, true, 3)), Blame::Suspect),
        (Version::One, well(place(false, true, 3)), Blame::Returned),
        (TWO, well(unsure(true, 3)), Blame::Suspect),
        // Any other end.
        (Version::One, unsure(true, 1), Blame::Suspect),
        (Version::One, alone(unsure(true, 1)), Blame::Charged),
    ];
    for (version, place, blamed) in table {
        assert_eq!(
            blame(&DIED, version, 7, place),
            blamed,
            "{version:?} {place:?}"
        );
    }
}

#[test]
fn only_what_a_worker_had_begun_is_blamed_for_its_end() {
    let table = [
        (DIED, Version::One, place(true, true, 3), Blame::Charged),
        (DIED, Version::One, place(false, true, 3), Blame::Returned),
        (DIED, Version::One, place(true, false, 0), Blame::Returned),
        (DIED, Version::Unknown, place(true, true, 1), Blame::Charged),
        (DIED, TWO, place(true, true, 1), Blame::Charged),
        (DIED, TWO, place(true, true, 2), Blame::Suspect),
        (DIED, TWO, place(false, true, 2), Blame::Suspect),
        (DIED, TWO, place(false, false, 2), Blame::Returned),
        (Cause::Stalled, TWO, place(true, true, 1), Blame::Charged),
        (
            Cause::ProtocolError(String::new()),
            Version::One,
            place(true, true, 1),
            Blame::Charged,
        ),
        (
            Cause::TimedOut(7),
            TWO,
            place(false, true, 3),
            Blame::Charged,
        ),
        (
            Cause::TimedOut(8),
            TWO,
            place(true, true, 3),
            Blame::Returned,
        ),
        (
            Cause::Stopped,
            Version::One,
            place(true, true, 1),
            Blame::Returned,
        ),
        (Cause::Stopped, TWO, place(true, true, 1), Blame::Returned),
    ];
    for (cause, version, place, blamed) in table {
        assert_eq!(
            blame(&cause, version, 7, place),
            blamed,
            "{cause:?} {version:?} {place:?}"
        );
    }
}

#[test]
fn a_new_build_that_dies_on_trial_has_itself_to_blame() {
    let table = [
        (Blame::Charged, true, DIED, 0, Blame::Returned),
        (Blame::Suspect, true, DIED, 0, Blame::Returned),
        (Blame::Charged, true, DIED, 1, Blame::Charged),
        (Blame::Charged, true, Cause::TimedOut(7), 0, Blame::Charged),
        (Blame::Charged, false, DIED, 0, Blame::Charged),
        (Blame::Suspect, false, DIED, 0, Blame::Suspect),
    ];
    for (blame, on_trial, cause, crashes, expected) in table {
        let judged = blame.on_trial(on_trial, &cause, crashes);
        assert_eq!(judged, expected, "{blame:?} {on_trial} {cause:?} {crashes}");
    }
}

#[test]
fn a_message_may_only_shorten_its_time() {
    let header = |value: &str| vec![(TIMEOUT_HEADER.to_owned(), value.to_owned())];
    let seconds = |n| Some(Duration::from_secs(n));
    let table = [
        (None, None, None),
        (seconds(30), None, seconds(30)),
        (seconds(30), Some("10000"), seconds(10)),
        (seconds(30), Some("90000"), seconds(30)),
        (None, Some("100"), Some(Duration::from_millis(100))),
        (None, Some("-1"), None),
        (seconds(30), Some("-1"), seconds(30)),
        (seconds(30), Some("soon"), seconds(30)),
        (None, Some("NaN"), None),
        (None, Some("inf"), Some(LONGEST_SOFT_TIMEOUT)),
        (None, Some("1e22"), Some(LONGEST_SOFT_TIMEOUT)),
        (seconds(30), Some("1e22"), seconds(30)),
        (None, Some(" 1500 "), Some(Duration::from_millis(1500))),
    ];
    for (pool, asked, expected) in table {
        let headers = asked.map(header).unwrap_or_default();
        assert_eq!(soft_timeout(pool, &headers), expected, "{pool:?} {asked:?}");
    }
}

fn entry(id: u64, ends_at: u64) -> Entry {
    entry_under(None, id, ends_at)
}

fn entry_under(claim: Option<&Claim>, id: u64, ends_at: u64) -> Entry {
    let (source, mut pool) = crate::delivery::link();
    let message = crate::delivery::Message {
        queue: "q".into(),
        body: bytes::Bytes::from_static(b"1234"),
        headers: Vec::new(),
        correlation_id: String::new(),
        reply_to: None,
        properties: Vec::new(),
    };
    let history = crate::delivery::History::default();
    match claim {
        Some(claim) => source.deliver_under(claim, id, message, history),
        None => source.deliver(id, message, history),
    };
    Entry {
        id,
        delivery: pool.deliveries.try_recv().unwrap(),
        starts_at: ends_at - 10,
        ends_at,
        begun: None,
        soft: None,
        cancelled: false,
        yielding: false,
        emitted: 0,
        unconfirmed: 0,
        emit_failure: None,
        answer: None,
    }
}

fn three() -> InFlight {
    let mut in_flight = InFlight::default();
    for (id, ends_at) in [(1, 10), (2, 20), (3, 30)] {
        in_flight.push(entry(id, ends_at));
    }
    in_flight
}

#[test]
fn an_answer_without_an_id_is_for_the_head_of_a_version_1_worker_only() {
    let in_flight = three();
    assert_eq!(in_flight.answered(None, Version::One, 30), Ok(1));
    assert_eq!(in_flight.answered(Some(3), TWO, 30), Ok(3));
    let wrong = [
        (None, TWO, 30),
        (Some(4), TWO, 30),
        (Some(4), Version::One, 30),
        (None, Version::One, 9),
    ];
    for (id, version, sent) in wrong {
        assert!(
            in_flight.answered(id, version, sent).is_err(),
            "{id:?} {version:?} {sent}"
        );
    }
    assert!(InFlight::default().answered(None, Version::One, 0).is_err());
}

#[test]
fn a_message_that_was_not_sent_is_not_judged() {
    let mut in_flight = three();
    let judged = in_flight.judge(
        &DIED,
        TWO,
        Read {
            sent: 15,
            left_unread: false,
            left_well: false,
        },
    );
    let blames: Vec<Blame> = judged.iter().map(|(_, blame)| *blame).collect();
    assert_eq!(blames, [Blame::Suspect, Blame::Suspect, Blame::Returned]);
    assert_eq!((in_flight.len(), in_flight.bytes()), (0, 0));
}

#[test]
fn a_message_that_may_have_been_left_unread_runs_alone_first() {
    let table = [
        (Version::One, unsure(true, 1), Blame::Suspect),
        (Version::One, unsure(true, 3), Blame::Suspect),
        (Version::One, unsure(false, 3), Blame::Returned),
        (TWO, unsure(true, 1), Blame::Suspect),
    ];
    for (version, place, blamed) in table {
        assert_eq!(
            blame(&DIED, version, 7, place),
            blamed,
            "{version:?} {place:?}"
        );
    }
    let mut alone = three();
    alone
        .iter_mut()
        .for_each(|entry| entry.delivery.history.alone = true);
    let read = Read {
        sent: 30,
        left_unread: true,
        left_well: false,
    };
    assert_eq!(alone.judge(&DIED, Version::One, read)[0].1, Blame::Charged);
    let closed = three().judge(&Cause::PipeClosed, Version::One, read);
    assert_eq!(closed[0].1, Blame::Suspect);
    let stalled = three().judge(&Cause::Stalled, Version::One, read);
    assert_eq!(stalled[0].1, Blame::Charged, "it was read, if not answered");
}

#[test]
fn what_is_void_yields_once_and_the_rest_goes_on() {
    let (lost, kept) = (Claim::default(), Claim::default());
    let mut in_flight = InFlight::default();
    in_flight.push(entry(1, 10));
    in_flight.push(entry_under(Some(&kept), 2, 20));
    for id in 3..=5 {
        in_flight.push(entry_under(Some(&lost), id, id * 10));
    }
    in_flight.get_mut(4).unwrap().cancelled = true;
    in_flight.get_mut(5).unwrap().answer = Some(Output::new(Status::DONE, Some(5), ""));
    assert!(in_flight.yield_void().is_empty());
    drop(lost);
    assert_eq!(in_flight.yield_void(), [3]);
    let yielding: Vec<bool> = in_flight.iter_mut().map(|entry| entry.yielding).collect();
    assert_eq!(yielding, [false, false, true, false, false]);
    assert!(in_flight.yield_void().is_empty(), "it was asked");
}

#[test]
fn what_was_cancelled_for_its_time_does_not_yield_to_us() {
    let mut in_flight = three();
    in_flight.get_mut(2).unwrap().cancelled = true;
    assert_eq!(in_flight.yield_all(), [1, 2, 3]);
    let yielding: Vec<bool> = in_flight.iter_mut().map(|entry| entry.yielding).collect();
    assert_eq!(yielding, [true, false, true]);
}

#[test]
fn time_runs_from_a_messages_turn() {
    let pool = crate::pool::verdict::tests::policy();
    let now = Instant::now();
    let mut in_flight = three();
    in_flight
        .iter_mut()
        .for_each(|entry| entry.soft = Some(Duration::from_secs(1)));
    assert_eq!(in_flight.next_deadline(&pool), None);
    in_flight.begin_head(now);
    assert_eq!(
        in_flight.next_deadline(&pool),
        Some(now + Duration::from_secs(1))
    );
    assert_eq!(
        in_flight.due(&pool, now + Duration::from_secs(1)),
        (vec![1], None)
    );
    let hard = now + Duration::from_secs(1) + pool.timeout_grace;
    assert_eq!(in_flight.next_deadline(&pool), Some(hard));
    assert_eq!(in_flight.due(&pool, hard), (vec![], Some(1)));
    drop(in_flight.take(1));
    in_flight.begin_head(hard);
    assert_eq!(in_flight.oldest_begun(), Some(hard));
    assert_eq!(in_flight.bytes(), 8);
}
