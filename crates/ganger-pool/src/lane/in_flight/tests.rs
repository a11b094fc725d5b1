//! Tests of `in_flight`.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::verdict::Event;
use ganger_config::sample::policy;
use ganger_protocol::status::Status;
use ganger_queue::delivery::Claim;

const TWO: Version = Version::Two { concurrency: 8 };
const SECOND: Duration = Duration::from_secs(1);
const DIED: Cause = Cause::Died;

fn delivery(claim: Option<&Claim>, alone: bool) -> Delivery {
    let (source, mut pool) = ganger_queue::delivery::link();
    let message = ganger_queue::delivery::Message {
        queue: "q".into(),
        body: bytes::Bytes::from_static(b"1234"),
        headers: Vec::new(),
        correlation_id: String::new(),
        reply_to: Some("replies".into()),
        properties: Vec::new(),
        occurrence: None,
    };
    let history = ganger_queue::delivery::History {
        alone,
        ..Default::default()
    };
    match claim {
        Some(claim) => source.deliver_under(claim, 0, message, history),
        None => source.deliver(0, message, history),
    };
    pool.deliveries.try_recv().unwrap()
}

/// Messages in frames of ten bytes, one after the other, for a worker that begins one at a time.
fn of(deliveries: impl IntoIterator<Item = Delivery>) -> (Instant, InFlight) {
    let now = Instant::now();
    let mut in_flight = InFlight::new(now, 0);
    for (delivery, at) in deliveries.into_iter().zip(0..) {
        let frame = (at * 10, at * 10 + 10);
        in_flight.push(delivery, frame, Some(SECOND), false, now);
    }
    (now, in_flight)
}

fn three() -> (Instant, InFlight) {
    of((0..3).map(|_| delivery(None, false)))
}

fn done(id: Option<u64>) -> Output {
    Output::new(Status::DONE, id, "")
}

fn asked(in_flight: &InFlight) -> Vec<Asked> {
    in_flight.entries.iter().map(|entry| entry.asked).collect()
}

#[test]
fn an_answer_without_an_id_is_for_the_head_of_a_version_1_worker_only() {
    let (now, mut in_flight) = three();
    let wrong = [
        (None, TWO, 30),
        (Some(4), TWO, 30),
        (Some(4), Version::One, 30),
        (None, Version::One, 9),
    ];
    for (id, version, sent) in wrong {
        assert!(
            in_flight.answer(done(id), version, sent, now).is_err(),
            "{id:?} {version:?} {sent}"
        );
    }
    assert!(in_flight.answer(done(None), Version::One, 30, now).is_ok());
    assert_eq!(in_flight.head().map(|(id, _)| id), Some(2));
    assert!(in_flight.answer(done(Some(3)), TWO, 30, now).is_ok());
    assert_eq!((in_flight.len(), in_flight.bytes()), (1, 4));
    let mut none = InFlight::new(now, 0);
    assert!(none.answer(done(None), Version::One, 0, now).is_err());
}

#[test]
fn a_message_that_was_not_sent_is_not_judged() {
    let (_, mut in_flight) = three();
    let read = Read {
        sent: 15,
        left_unread: false,
        left_well: false,
    };
    let unanswered = in_flight.judge(&DIED, TWO, read);
    let blames: Vec<Blame> = unanswered
        .iter()
        .map(|unanswered| unanswered.blame)
        .collect();
    assert_eq!(blames, [Blame::Suspect, Blame::Suspect, Blame::Returned]);
    assert_eq!((in_flight.len(), in_flight.bytes()), (0, 0));
}

#[test]
fn a_message_that_may_have_been_left_unread_runs_alone_first() {
    let read = Read {
        sent: 30,
        left_unread: true,
        left_well: false,
    };
    let first = |in_flight: &mut InFlight, cause| {
        let unanswered = in_flight.judge(&cause, Version::One, read);
        unanswered
            .into_iter()
            .map(|unanswered| unanswered.blame)
            .next()
    };
    let (_, mut alone) = of((0..3).map(|_| delivery(None, true)));
    assert_eq!(first(&mut alone, DIED), Some(Blame::Charged));
    assert_eq!(
        first(&mut three().1, Cause::PipeClosed),
        Some(Blame::Suspect)
    );
    let stalled = first(&mut three().1, Cause::Stalled(Late::Only(1)));
    assert_eq!(
        stalled,
        Some(Blame::Charged),
        "it was read, if not answered"
    );
}

#[test]
fn what_is_void_yields_once_and_the_rest_goes_on() {
    let (lost, kept) = (Claim::default(), Claim::default());
    let claims = [None, Some(&kept), Some(&lost), Some(&lost), Some(&lost)];
    let (now, mut in_flight) = of(claims.map(|claim| delivery(claim, false)));
    in_flight.entries[3].asked = Asked::Stop;
    in_flight.entries[4].unconfirmed = 1;
    let answered = in_flight.answer(done(Some(5)), TWO, 50, now);
    assert!(matches!(answered, Ok((_, None))), "its emit is missing");
    assert!(in_flight.yield_void(0).is_empty());
    drop(lost);
    assert!(in_flight.yield_void(0).is_empty(), "nobody has said so");
    assert_eq!(in_flight.yield_void(1), [3]);
    let (nothing, stop) = (Asked::Nothing, Asked::Stop);
    let expected = [nothing, nothing, Asked::Yield, stop, nothing];
    assert_eq!(asked(&in_flight), expected);
    assert!(in_flight.yield_void(2).is_empty(), "it was asked");
}

#[test]
fn what_was_cancelled_for_its_time_does_not_yield_to_us() {
    let (_, mut in_flight) = three();
    in_flight.entries[1].asked = Asked::Stop;
    assert_eq!(in_flight.yield_all(), [1, 2, 3]);
    assert_eq!(asked(&in_flight), [Asked::Yield, Asked::Stop, Asked::Yield]);
}

#[test]
fn time_runs_from_a_messages_turn() {
    let pool = policy();
    let (now, mut in_flight) = three();
    assert_eq!(in_flight.next_deadline(&pool), None);
    in_flight.begin_head(now);
    assert_eq!(in_flight.next_deadline(&pool), Some(now + SECOND));
    let due = in_flight.due(&pool, 30, now + SECOND);
    assert_eq!((due.cancel, due.kill), (vec![1], None));
    let hard = now + SECOND + pool.timeout_grace;
    assert_eq!(in_flight.next_deadline(&pool), Some(hard));
    let due = in_flight.due(&pool, 30, hard);
    assert_eq!(
        (due.cancel, due.kill),
        (vec![], Some(Cause::TimedOut(Late::Only(1))))
    );
    drop(in_flight.answer(done(None), Version::One, 30, hard));
    assert_eq!(in_flight.oldest().map(|(begun, ..)| begun), Some(hard));
    in_flight.postpone(SECOND);
    assert_eq!(in_flight.next_deadline(&pool), Some(hard + 2 * SECOND));
}

#[test]
fn a_fresh_worker_is_killed_for_no_time_before_it_had_that_of_a_start() {
    let pool = PoolConfig {
        stall_timeout: Some(SECOND),
        ..policy()
    };
    let (now, in_flight) = three();
    let mut in_flight = in_flight.of_a_fresh_worker(now - SECOND);
    in_flight.begin_head(now);
    let due = in_flight.due(&pool, 30, now + SECOND);
    assert_eq!(
        (due.cancel, due.kill),
        (vec![1], None),
        "it is asked all the same"
    );
    let fresh_until = now - SECOND + pool.start_timeout;
    assert_eq!(in_flight.next_deadline(&pool), Some(fresh_until));
    let kill = in_flight.due(&pool, 30, fresh_until).kill;
    assert_eq!(kill, Some(Cause::TimedOut(Late::Only(1))));
    // After its first answer it is like any other worker.
    let answered = in_flight.answer(done(None), Version::One, 30, now + SECOND);
    let (_, event) = answered.unwrap().1.unwrap();
    assert!(matches!(event, Event::TimedOut { limit: SECOND, .. }));
    in_flight.due(&pool, 30, now + 2 * SECOND);
    let hard = now + 2 * SECOND + pool.timeout_grace;
    in_flight.heard(hard);
    assert_eq!(
        in_flight.due(&pool, 30, hard).kill,
        Some(Cause::TimedOut(Late::Only(2)))
    );
}

#[test]
fn an_operator_need_not_wait_for_a_fresh_worker() {
    let pool = policy();
    let (now, in_flight) = three();
    let mut in_flight = in_flight.of_a_fresh_worker(now);
    in_flight.begin_head(now);
    in_flight.cancel(|_| true, now);
    let kill = in_flight.due(&pool, 30, now + pool.timeout_grace).kill;
    assert_eq!(kill, Some(Cause::Cancelled(1)));
}

#[test]
fn a_message_is_cancelled_now_or_when_its_turn_comes() {
    let pool = PoolConfig {
        timeout: None,
        ..policy()
    };
    let (now, mut in_flight) = three();
    in_flight.begin_head(now);
    let later = now + SECOND / 2;
    assert_eq!(in_flight.cancel(|_| false, later), 0);
    assert_eq!(in_flight.due(&pool, 30, later), Due::default());
    assert_eq!(in_flight.cancel(|_| true, later), 3);
    let due = in_flight.due(&pool, 30, later);
    assert_eq!(
        (due.cancel, due.kill),
        (vec![1], None),
        "the head alone runs"
    );
    assert_eq!(in_flight.cancel(|_| true, later + SECOND), 3);
    let kill_at = later + pool.timeout_grace;
    assert_eq!(in_flight.next_deadline(&pool), Some(kill_at), "asked again");
    assert_eq!(
        in_flight.due(&pool, 30, kill_at).kill,
        Some(Cause::Cancelled(1))
    );
    let (_, settled) = in_flight
        .answer(done(None), Version::One, 30, kill_at)
        .unwrap();
    assert!(matches!(settled.unwrap().1, Event::Cancelled(_)));
    let due = in_flight.due(&pool, 30, kill_at);
    assert_eq!((due.cancel, due.kill), (vec![2], None));
    let unanswered = in_flight.judge(
        &DIED,
        Version::One,
        Read {
            sent: 30,
            left_unread: false,
            left_well: false,
        },
    );
    assert!(
        unanswered.iter().all(|one| one.cancelled),
        "whoever is to blame"
    );
}

#[test]
fn silence_counts_only_while_there_is_something_to_say() {
    let pool = PoolConfig {
        stall_timeout: Some(5 * SECOND),
        ..policy()
    };
    let (now, mut in_flight) = of([delivery(None, false)]);
    assert_eq!(in_flight.next_deadline(&pool), Some(now + 5 * SECOND));
    in_flight.heard(now + SECOND);
    assert_eq!(in_flight.due(&pool, 30, now + 5 * SECOND), Due::default());
    let kill = in_flight.due(&pool, 30, now + 6 * SECOND).kill;
    assert!(matches!(kill, Some(Cause::Stalled(_))));
    drop(in_flight.answer(done(None), Version::One, 10, now + 6 * SECOND));
    assert_eq!(in_flight.next_deadline(&pool), None);
}

/// Messages begun by a worker with an event loop, any of which may be the cause when the first is late. The
/// worker was last heard from before or after that one had to stop.
#[test]
fn a_message_is_charged_for_its_time_only_if_it_had_the_worker_to_itself() {
    let pool = policy();
    let kill_at = SECOND + pool.timeout_grace;
    let table = [
        (1, SECOND / 2, Late::Only(1)),
        (1, SECOND + SECOND / 2, Late::Only(1)),
        (2, SECOND / 2, Late::Any),
        (3, SECOND / 2, Late::Any),
        (3, SECOND + SECOND / 2, Late::Among(1)),
    ];
    for (begun, heard, late) in table {
        let (now, mut in_flight) = of([]);
        for at in 0..begun {
            let frame = (at * 10, at * 10 + 10);
            in_flight.push(delivery(None, false), frame, Some(SECOND), true, now);
        }
        in_flight.heard(now + heard);
        let due = in_flight.due(&pool, begun * 10, now + kill_at);
        assert_eq!(due.kill, Some(Cause::TimedOut(late)), "{begun} {heard:?}");
    }
}

/// The neighbour has ended before this one's time runs out, but made it wait until then.
#[test]
fn who_had_company_is_not_charged_though_it_is_the_last() {
    let pool = policy();
    let (now, mut in_flight) = of([]);
    for at in 0..2 {
        let frame = (at * 10, at * 10 + 10);
        in_flight.push(delivery(None, false), frame, Some(SECOND), true, now);
    }
    let kill_at = now + SECOND + pool.timeout_grace;
    in_flight.heard(kill_at);
    in_flight.answer(done(Some(2)), TWO, 20, kill_at).unwrap();
    let kill = in_flight.due(&pool, 20, kill_at).kill.unwrap();
    assert_eq!(kill, Cause::TimedOut(Late::Among(1)));
    let read = Read {
        sent: 20,
        left_unread: false,
        left_well: false,
    };
    let unanswered = in_flight.judge(&kill, TWO, read);
    assert_eq!(unanswered[0].blame, Blame::Suspect);
}

/// During an autopsy the worker may answer, and begin another message.
#[test]
fn a_stall_is_charged_to_the_message_that_stalled_or_to_none() {
    let pool = PoolConfig {
        stall_timeout: Some(SECOND),
        timeout: None,
        ..policy()
    };
    // Whether the worker begins all at once, bytes sent, the message with an answer, the verdict on the
    // others.
    let table = [
        (
            Version::One,
            30,
            None,
            vec![Blame::Charged, Blame::Returned, Blame::Returned],
        ),
        (
            Version::One,
            30,
            Some(1),
            vec![Blame::Returned, Blame::Returned],
        ),
        (
            TWO,
            10,
            None,
            vec![Blame::Charged, Blame::Returned, Blame::Returned],
        ),
        (TWO, 10, Some(1), vec![Blame::Returned, Blame::Returned]),
        (
            TWO,
            20,
            None,
            vec![Blame::Suspect, Blame::Suspect, Blame::Returned],
        ),
        (TWO, 20, Some(1), vec![Blame::Suspect, Blame::Returned]),
    ];
    for (version, sent, answered, expected) in table {
        let (now, mut in_flight) = three();
        match version {
            TWO => in_flight.begin_all(now),
            _ => in_flight.begin_head(now),
        }
        let due = in_flight.due(&pool, sent, now + SECOND);
        if let Some(id) = answered {
            in_flight
                .answer(done(Some(id)), version, sent, now + SECOND)
                .unwrap();
        }
        let read = Read {
            sent,
            left_unread: false,
            left_well: false,
        };
        let unanswered = in_flight.judge(&due.kill.unwrap(), version, read);
        let blames: Vec<Blame> = unanswered
            .iter()
            .map(|unanswered| unanswered.blame)
            .collect();
        assert_eq!(blames, expected, "{version:?} {sent} {answered:?}");
    }
}

#[derive(Debug, Clone, Copy)]
enum Stimulus {
    Given,
    Answered(u64),
    Emitted(u64),
    Confirmed(u64, bool),
    YieldsAll,
}

fn stimuli() -> impl Strategy<Value = Stimulus> {
    let id = || 1u64..8;
    prop_oneof![
        3 => Just(Stimulus::Given),
        3 => id().prop_map(Stimulus::Answered),
        2 => id().prop_map(Stimulus::Emitted),
        3 => (id(), any::<bool>()).prop_map(|(id, taken)| Stimulus::Confirmed(id, taken)),
        1 => Just(Stimulus::YieldsAll),
    ]
}

/// State of a message in the model.
#[derive(Debug, Default, Clone, Copy)]
struct Known {
    answered: bool,
    yields: bool,
    unconfirmed: u32,
    failed: bool,
}

impl Known {
    fn is_settled_as(self, event: &Event) -> bool {
        match event {
            Event::Answered(_) => !self.yields && !self.failed,
            Event::Yielded(_) => self.yields && !self.failed,
            Event::Failed(_) => !self.yields && self.failed,
            // There are no cancellations here, and no time runs out.
            Event::Cancelled(_) | Event::TimedOut { .. } => false,
            Event::Stopped { suspect } => self.yields && self.failed && !suspect,
        }
    }
}

proptest! {
    /// Each message is settled once: with the later of its answer and the last of its confirmations, and with
    /// the outcome that both determine.
    #[test]
    fn a_message_is_settled_by_its_answer_and_its_emits(all in proptest::collection::vec(stimuli(), 0..80)) {
        let (now, mut in_flight) = of([]);
        let mut model: BTreeMap<u64, Known> = BTreeMap::new();
        for one in all {
            let (about, settled) = match one {
                Stimulus::Given => {
                    model.insert(in_flight.next_id(), Known::default());
                    in_flight.push(delivery(None, false), (0, 10), None, true, now);
                    (0, None)
                }
                Stimulus::Answered(id) => {
                    let taken = in_flight.answer(done(Some(id)), TWO, 10, now);
                    let open = model.get_mut(&id).filter(|known| !known.answered);
                    prop_assert_eq!(taken.is_ok(), open.is_some());
                    if let Some(open) = open {
                        open.answered = true;
                    }
                    (id, taken.ok().and_then(|(_, settled)| settled))
                }
                Stimulus::Emitted(id) => {
                    let emit = Output::new(Status::EMIT, Some(id), "x");
                    let taken = in_flight.emit(emit, TWO, 10, &policy());
                    let open = model.get_mut(&id).filter(|known| !known.answered);
                    prop_assert_eq!(taken.is_ok(), open.is_some());
                    if let (Some(open), Ok(Some(_))) = (open, taken) {
                        open.unconfirmed += 1;
                    }
                    (id, None)
                }
                Stimulus::Confirmed(id, taken) => {
                    let Some(known) = model.get_mut(&id).filter(|known| known.unconfirmed > 0) else {
                        continue;
                    };
                    known.unconfirmed -= 1;
                    known.failed |= !taken;
                    let error = || PublishError { queue: "q".into(), why: "no".into() };
                    (id, in_flight.confirmed(id, if taken { Ok(()) } else { Err(error()) }))
                }
                Stimulus::YieldsAll => {
                    let open = model.iter_mut().filter(|(_, known)| !known.answered);
                    let ids: Vec<u64> = open.map(|(id, known)| { known.yields = true; *id }).collect();
                    prop_assert_eq!(in_flight.yield_all(), ids);
                    (0, None)
                }
            };
            let over = model.get(&about).copied().filter(|known| known.answered && known.unconfirmed == 0);
            prop_assert_eq!(settled.is_some(), over.is_some());
            if let (Some((_, event)), Some(known)) = (&settled, over) {
                prop_assert!(known.is_settled_as(event), "{:?} as {:?}", known, event);
                model.remove(&about);
            }
            prop_assert_eq!((in_flight.len(), in_flight.bytes()), (model.len(), 4 * model.len()));
            let head = model.iter().find(|(_, known)| !known.answered).map(|(id, _)| *id);
            prop_assert_eq!(in_flight.head().map(|(id, _)| id), head);
        }
    }
}
