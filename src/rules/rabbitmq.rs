//! The decisions of a RabbitMQ source as pure functions: what becomes of a message that arrives,
//! which tier a delay belongs to, how many messages to ask for. No broker, no clock, no channel.

use std::time::Duration;

use super::Limits;
use crate::config::model::Prefetch;
use crate::dead_letter::Counters;
use crate::delivery::{CREDIT_MAX, Failure, History, Intake, Reason};

/// So often a message came back, and nobody knows why, before it is a suspect. One time is forgiven:
/// a daemon that was killed would otherwise make one of every message that was out.
const RETURNS_SUSPECT: u32 = 2;

/// RabbitMQ 4 drops a message of a quorum queue after 20 returns unless the queue says otherwise.
/// One that has so many goes on as a copy, whose count begins anew.
pub(crate) const RETURNS_MAX: u64 = 15;

/// The shortest delay that has a tier of its own.
const TIER_MIN: Duration = Duration::from_millis(250);

/// The first tier that is followed by one of four times its length.
const COARSE_FROM: Duration = Duration::from_secs(64);

/// The longest wait after REQUEUE, whatever the policy's longest delay.
const REQUEUE_MAX: Duration = Duration::from_secs(30);

/// The most bytes of bodies that are asked for at once, by the size that they have had lately.
pub(crate) const BYTES_ASKED_MAX: usize = 64 << 20;

/// How long the broker may send ahead somewhat less than is wanted, or twice as much for the extra
/// consumer. Shorter, and that one would change with every change of a worker's pace; longer, and
/// messages would wait here that others could work on.
const CHANGED_AFTER: Duration = Duration::from_secs(1);
/// How long it may send ahead somewhat more, or twice as much for the steady consumer: workers may
/// take long to come up.
const SURPLUS_FOR: Duration = Duration::from_secs(10);

/// What the broker sends ahead at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flow {
    /// The most messages of the steady consumer that are unacknowledged.
    pub(crate) steady: u16,
    /// Likewise of the extra one.
    pub(crate) extra: u16,
    /// Only one consumer of the queue gets messages, and which one must not change.
    pub(crate) single: bool,
    /// All that they may have unacknowledged was so, since the last change.
    pub(crate) full: bool,
}

/// How many messages the broker is to send ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Demand {
    /// What the pool can use now.
    pub(crate) now: u16,
    /// What it can use with all its workers, whatever their pace.
    pub(crate) usual: u16,
}

/// What to do about the consumers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing.
    Stay,
    /// Nothing until so much later: the pool may change its mind.
    Wait(Duration),
    /// One more, for so many messages.
    Add(u16),
    /// Cancel the newest. If there is to be another, the next step adds it.
    CancelNewest,
    /// Cancel all.
    CancelAll,
}

/// How to come from what the broker sends ahead to what is wanted. `settled` is whether the last
/// [`Step::Wait`] is over.
pub(crate) fn step(flow: Flow, demand: Demand, settled: bool) -> Step {
    let Flow {
        steady,
        extra,
        single,
        full,
    } = flow;
    let Demand { now, usual } = demand;
    let all = steady.saturating_add(extra);
    let after = |patience, step| if settled { step } else { Step::Wait(patience) };
    match (now, all) {
        (0, 0) => Step::Stay,
        (0, _) => Step::CancelAll,
        (_, 0) => Step::Add(now.max(usual)),
        _ if single => Step::Stay,
        // What there is does as long as the broker has no more to send.
        _ if now > all && !full => Step::Stay,
        _ if now > all => {
            let grow = match extra {
                // Its workers come up one after the other.
                0 => Step::Add(now.max(usual) - steady),
                _ => Step::CancelNewest,
            };
            if now / 2 >= all {
                grow
            } else {
                after(CHANGED_AFTER, grow)
            }
        }
        _ if now <= all / 2 && extra > 0 => after(CHANGED_AFTER, Step::CancelNewest),
        _ if now <= all / 2 || now.max(usual) < all => after(SURPLUS_FOR, Step::CancelNewest),
        _ => Step::Stay,
    }
}

const UNREADABLE: &str = "a property, the name of a header or the routing key is not UTF-8: a byte \
                          that could not be read is a question mark here";

/// What a message says of itself when it arrives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// What we have counted of it so far.
    pub(crate) counters: Counters,
    /// We have marked it: it was in the hands of a worker that died with several.
    pub(crate) suspect: bool,
    /// It is a suspect: over so many daemons that vanished in a row, by what we have counted.
    pub(crate) lapses: u32,
    /// It is a copy made when its turn began: the number of that.
    pub(crate) turn: Option<u64>,
    /// Our own number for it, which its copies carry on.
    pub(crate) number: Option<u64>,
    /// The broker has handed it out before.
    pub(crate) redelivered: bool,
    /// How often it came back, where the queue counts that.
    pub(crate) returns: u64,
    /// How many of those a lost connection explains that this process has survived.
    pub(crate) excused: u64,
    /// Some of its texts are not UTF-8, so that we could not hand them on.
    pub(crate) is_unreadable: bool,
}

/// What becomes of a message that arrives.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Fate {
    /// It's handed out.
    HandOut,
    /// So many daemons have vanished over it: it waits for its turn.
    Suspect(u32),
    /// It is in its turn, the one with this number.
    InTurn(u64),
    /// It goes on as a copy with so many lapses: the broker would count it once too often.
    Renew(u32),
    /// It goes to the dead letters, with these counters.
    Bury(Counters, Failure),
}

/// Decides it. Whatever takes a daemon down brings back everything that the daemon had fetched, and
/// the broker counts that for all alike. So a return charges only a copy that was made when its turn
/// began: then nothing else that could have been the cause was out.
pub(crate) fn fate(arrival: Arrival, limits: Limits) -> Fate {
    let Arrival {
        counters, returns, ..
    } = arrival;
    if arrival.is_unreadable {
        return Fate::Bury(counters, Failure::new(Reason::Undeliverable, UNREADABLE));
    }
    if counters.crashes >= limits.crashes_max.max(1) {
        let error = format!("crashed the worker {} times", counters.crashes);
        return Fate::Bury(counters, crashed(error));
    }
    let lapses = lapses(arrival);
    if lapses >= limits.lapses_max {
        let error = format!("took the daemon down {lapses} times in a row");
        return Fate::Bury(counters, crashed(error));
    }
    if returns >= RETURNS_MAX {
        return Fate::Renew(lapses);
    }
    match arrival.turn {
        Some(turn) if lapses == arrival.lapses => Fate::InTurn(turn),
        _ if lapses > 0 => Fate::Suspect(lapses),
        _ => Fate::HandOut,
    }
}

/// Over how many daemons in a row that vanished it is a suspect; zero if it is none.
fn lapses(arrival: Arrival) -> u32 {
    let unexplained = arrival.returns.saturating_sub(arrival.excused);
    if arrival.turn.is_some() {
        return arrival.lapses.saturating_add(u32::from(unexplained > 0));
    }
    // While it waited for its turn others may have been the cause.
    if arrival.lapses == 0 && unexplained >= u64::from(RETURNS_SUSPECT) {
        return RETURNS_SUSPECT;
    }
    arrival.lapses
}

fn crashed(error: String) -> Failure {
    Failure::new(Reason::Crashed, error)
}

/// What the pool is told of the message's past.
pub(crate) fn history(arrival: Arrival) -> History {
    let Arrival {
        counters,
        suspect,
        redelivered,
        returns,
        excused,
        ..
    } = arrival;
    let came_back = redelivered && (excused == 0 || returns > excused);
    History {
        attempt: counters.attempts.saturating_add(1),
        crashes: counters.crashes,
        requeues: counters.requeues,
        // One that came back may have killed a daemon: it must not share a worker.
        alone: suspect || came_back || arrival.lapses > 0 || counters.crashes > 0,
    }
}

/// Whether a message that goes back in order must go as a copy: the broker would count it, and that
/// proves nothing against the message. The first time is no matter.
pub(crate) fn returns_as_copy(arrival: Arrival) -> bool {
    arrival.lapses > 0 || arrival.returns + 1 >= u64::from(RETURNS_SUSPECT)
}

/// The counters after an attempt that failed.
pub(crate) fn charged(counters: Counters, crash: bool, now_ms: i64) -> Counters {
    Counters {
        attempts: counters.attempts.saturating_add(1),
        crashes: counters.crashes.saturating_add(u32::from(crash)),
        requeues: 0,
        first_failed_ms: counters.first_failed_ms.or(Some(now_ms)),
    }
}

/// The counters after a worker asked to see the message again.
pub(crate) fn requeued(counters: Counters) -> Counters {
    Counters {
        requeues: counters.requeues.saturating_add(1),
        ..counters
    }
}

/// The tier that follows one: twice as long, from a minute on four times. A day of back-off then
/// takes few queues, and who waits for an hour bears to wait behind another.
fn next_tier(tier: Duration) -> Duration {
    if tier < COARSE_FROM {
        tier * 2
    } else {
        tier * 4
    }
}

/// All tiers that a policy with this longest delay needs, up to the first that is no shorter than
/// any delay.
pub(crate) fn tiers(longest: Duration) -> Vec<Duration> {
    let longest = longest.max(REQUEUE_MAX);
    let mut tiers = vec![TIER_MIN];
    while let Some(last) = tiers.last().filter(|last| **last < longest) {
        tiers.push(next_tier(*last));
    }
    tiers
}

/// The tiers that a daemon of an earlier version may have left messages in: all powers of two. They
/// come back to the queue by themselves.
pub(crate) fn former_tiers(longest: Duration) -> impl Iterator<Item = Duration> {
    let longest = tier(longest.max(REQUEUE_MAX));
    std::iter::successors(Some(COARSE_FROM * 2), |tier| Some(*tier * 4))
        .take_while(move |tier| *tier < longest)
}

/// The tier that a delay belongs to: the shortest that is no shorter. What one may have to wait
/// behind another is less than the tier.
pub(crate) fn tier(delay: Duration) -> Duration {
    let mut tier = TIER_MIN;
    while tier < delay {
        tier = next_tier(tier);
    }
    tier
}

/// The name of a tier's queue.
pub(crate) fn tier_queue(queue: &str, tier: Duration) -> String {
    match tier.as_secs() {
        0 => format!("{queue}.retry.{}ms", tier.as_millis()),
        seconds => format!("{queue}.retry.{seconds}s"),
    }
}

/// How many more messages may be handed out.
pub(crate) fn room(intake: Intake, out: usize) -> usize {
    match intake {
        Intake::Closed => 0,
        Intake::Credit(credit) => credit.min(CREDIT_MAX).saturating_sub(out),
    }
}

/// How many messages to have the broker send ahead where so many are of use, for bodies of this size
/// and so many bytes in all, but one in any case. Zero is for none at all: to the broker that would
/// mean no limit.
pub(crate) fn prefetch(messages: usize, body_bytes: usize, bytes_max: usize) -> u16 {
    let fitting = bytes_max / body_bytes.max(1);
    u16::try_from(messages.min(fitting.max(1))).unwrap_or(u16::MAX)
}

/// How many messages a pool can use with all its workers, of whose pace nothing is known.
pub(crate) fn usual(workers: usize, prefetch: Prefetch) -> usize {
    let each = match prefetch {
        // One to work on, and the next.
        Prefetch::Auto => 2,
        Prefetch::PerWorker(messages) => messages,
    };
    workers.saturating_mul(each).min(CREDIT_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMITS: Limits = Limits {
        crashes_max: 3,
        attempts_max: 5,
        lapses_max: 10,
    };

    #[test]
    fn what_could_not_be_read_is_dead_at_once() {
        let arrival = Arrival {
            is_unreadable: true,
            ..Arrival::default()
        };
        let Fate::Bury(counters, failure) = fate(arrival, LIMITS) else {
            panic!("it is handed out");
        };
        assert_eq!(
            (counters, failure.reason),
            (Counters::default(), Reason::Undeliverable)
        );
    }

    /// Crashes, lapses that are written down, returns, those that are excused.
    fn arrival(turn: Option<u64>, counts: (u32, u32, u64, u64)) -> Arrival {
        let (crashes, lapses, returns, excused) = counts;
        Arrival {
            counters: Counters {
                crashes,
                ..Counters::default()
            },
            lapses,
            returns,
            excused,
            turn,
            redelivered: returns > 0,
            ..Arrival::default()
        }
    }

    #[test]
    fn fate_by_crashes_and_lapses() {
        let (unmarked, in_turn) = (None, Some(7));
        let table = [
            (unmarked, (0, 0, 0, 0), "out"),
            (unmarked, (2, 0, 1, 0), "out"),
            (unmarked, (3, 0, 0, 0), "crashed the worker 3 times"),
            (unmarked, (0, 0, 2, 0), "suspect 2"),
            (unmarked, (0, 0, 9, 0), "suspect 2"),
            (unmarked, (0, 0, 6, 5), "out"),
            (unmarked, (0, 0, 6, 6), "out"),
            (unmarked, (0, 0, 7, 5), "suspect 2"),
            (unmarked, (0, 0, 15, 0), "renew 2"),
            (unmarked, (0, 0, 15, 15), "renew 0"),
            (unmarked, (0, 4, 0, 0), "suspect 4"),
            (unmarked, (0, 4, 9, 0), "suspect 4"),
            (unmarked, (0, 4, 15, 0), "renew 4"),
            (in_turn, (0, 2, 0, 0), "turn 7"),
            (in_turn, (0, 2, 3, 3), "turn 7"),
            (in_turn, (0, 2, 1, 0), "suspect 3"),
            (in_turn, (0, 2, 5, 1), "suspect 3"),
            (in_turn, (0, 8, 1, 0), "suspect 9"),
            (in_turn, (0, 9, 0, 0), "turn 7"),
            (
                in_turn,
                (0, 9, 1, 0),
                "took the daemon down 10 times in a row",
            ),
            (
                in_turn,
                (0, 9, 15, 0),
                "took the daemon down 10 times in a row",
            ),
        ];
        for (turn, counts, expected) in table {
            let got = match fate(arrival(turn, counts), LIMITS) {
                Fate::HandOut => "out".to_owned(),
                Fate::Suspect(lapses) => format!("suspect {lapses}"),
                Fate::InTurn(turn) => format!("turn {turn}"),
                Fate::Renew(lapses) => format!("renew {lapses}"),
                Fate::Bury(_, failure) => failure.error,
            };
            assert_eq!(got, expected, "{turn:?} {counts:?}");
        }
    }

    #[test]
    fn what_goes_back_in_order_is_never_suspected_for_it() {
        let back = |counts| returns_as_copy(arrival(None, counts));
        assert!(!back((0, 0, 0, 0)) && back((0, 0, 1, 0)) && back((0, 2, 0, 0)));
    }

    #[test]
    fn whoever_came_back_runs_alone() {
        let fresh = Arrival::default();
        assert!(!history(fresh).alone);
        let redelivered = Arrival {
            redelivered: true,
            ..fresh
        };
        let suspect = Arrival {
            suspect: true,
            ..fresh
        };
        let crashed = Arrival {
            counters: charged(Counters::default(), true, 7),
            ..fresh
        };
        for one in [redelivered, suspect, crashed] {
            assert!(history(one).alone, "{one:?}");
        }
        assert_eq!((history(crashed).attempt, history(crashed).crashes), (2, 1));
        assert!(history(arrival(Some(7), (0, 2, 0, 0))).alone);
        assert!(
            !history(arrival(None, (0, 0, 3, 3))).alone,
            "it is explained"
        );
    }

    #[test]
    fn tiers_are_powers_of_two_and_from_a_minute_on_of_four() {
        let seconds = |s: f64| Duration::from_secs_f64(s);
        let of = |longest| {
            tiers(longest)
                .iter()
                .map(Duration::as_secs_f64)
                .collect::<Vec<_>>()
        };
        let least = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0];
        assert_eq!(of(Duration::ZERO), least);
        assert_eq!(of(seconds(32.0)), least);
        let of_an_hour = [&least[..], &[64.0, 256.0, 1024.0, 4096.0]].concat();
        assert_eq!(of(seconds(3600.0)), of_an_hour);
        let former = |longest| {
            former_tiers(seconds(longest))
                .map(|tier| tier.as_secs())
                .collect::<Vec<_>>()
        };
        assert_eq!(former(60.0), [0; 0]);
        assert_eq!(former(65.0), [128]);
        assert_eq!(former(3600.0), [128, 512, 2048]);
        let table = [
            (0.0, 0.25),
            (0.25, 0.25),
            (0.251, 0.5),
            (1.0, 1.0),
            (64.0, 64.0),
            (64.1, 256.0),
            (600.0, 1024.0),
            (3600.0, 4096.0),
        ];
        for (delay, expected) in table {
            assert_eq!(tier(seconds(delay)), seconds(expected), "{delay}");
        }
        assert_eq!(tier_queue("q", TIER_MIN), "q.retry.250ms");
        assert_eq!(tier_queue("q", seconds(64.0)), "q.retry.64s");
    }

    #[test]
    fn prefetch_is_what_is_of_use_unless_bodies_are_large() {
        let table = [
            (0, 0, 64 << 20, 0),
            (100, 200, 64 << 20, 100),
            (usize::MAX, 1, 64 << 20, u16::MAX),
            (1000, 1 << 20, 64 << 20, 64),
            (1000, 1 << 20, 10 << 20, 10),
            (1000, 1 << 30, 64 << 20, 1),
            (1000, 200, 0, 1),
        ];
        for (messages, bytes, most, expected) in table {
            let prefetch = prefetch(messages, bytes, most);
            assert_eq!(prefetch, expected, "{messages} {bytes} {most}");
        }
        assert_eq!(room(Intake::Closed, 0), 0);
        assert_eq!(room(Intake::Credit(10), 4), 6);
        assert_eq!(room(Intake::Credit(4), 10), 0);
        assert_eq!(usual(4, Prefetch::Auto), 8);
        assert_eq!(usual(4, Prefetch::PerWorker(5)), 20);
    }

    const fn flow(steady: u16, extra: u16) -> Flow {
        Flow {
            steady,
            extra,
            single: false,
            full: true,
        }
    }

    #[test]
    fn the_steady_consumer_stays_and_the_extra_one_follows_the_pace() {
        let idle = |steady, extra| Flow {
            full: false,
            ..flow(steady, extra)
        };
        let single = |steady| Flow {
            single: true,
            ..flow(steady, 0)
        };
        let (soon, late) = (Step::Wait(CHANGED_AFTER), Step::Wait(SURPLUS_FOR));
        // What there is, what is wanted of usually 8, whether it was waited for.
        let table = [
            (flow(0, 0), 0, false, Step::Stay),
            (flow(0, 0), 2, false, Step::Add(8)),
            (flow(0, 0), 20, false, Step::Add(20)),
            (flow(8, 0), 8, false, Step::Stay),
            (flow(8, 0), 15, false, soon),
            (flow(8, 0), 15, true, Step::Add(7)),
            (flow(8, 0), 16, false, Step::Add(8)),
            (idle(8, 0), 100, true, Step::Stay),
            (flow(8, 8), 31, false, soon),
            (flow(8, 8), 32, false, Step::CancelNewest),
            (idle(8, 8), 32, true, Step::Stay),
            (flow(8, 8), 9, false, late),
            (flow(8, 8), 9, true, Step::CancelNewest),
            (idle(8, 8), 8, false, soon),
            (idle(8, 8), 8, true, Step::CancelNewest),
            (idle(8, 0), 5, true, Step::Stay),
            (idle(8, 0), 4, false, late),
            (idle(8, 0), 4, true, Step::CancelNewest),
            (idle(10, 0), 7, false, late),
            (flow(8, 8), 0, false, Step::CancelAll),
            (single(0), 2, false, Step::Add(8)),
            (single(8), 80, true, Step::Stay),
            (single(8), 1, true, Step::Stay),
            (single(8), 0, false, Step::CancelAll),
        ];
        for (flow, now, settled, expected) in table {
            let demand = Demand { now, usual: 8 };
            assert_eq!(step(flow, demand, settled), expected, "{flow:?} {now}");
        }
    }

    /// What becomes of what there is once the step is taken.
    fn taken(flow: Flow, step: Step) -> Flow {
        let Flow { steady, extra, .. } = flow;
        let (steady, extra) = match step {
            Step::Stay | Step::Wait(_) => (steady, extra),
            Step::Add(more) if steady == 0 => (more, 0),
            Step::Add(more) => (steady, more),
            Step::CancelNewest if extra > 0 => (steady, 0),
            Step::CancelNewest | Step::CancelAll => (0, 0),
        };
        Flow {
            steady,
            extra,
            ..flow
        }
    }

    proptest! {
        #[test]
        fn under_load_it_comes_to_what_is_wanted(
            steady in 0u16..2000, extra in 0u16..2000, now: u16, usual in 1u16..2000,
        ) {
            let extra = if steady == 0 { 0 } else { extra };
            // A pool that is short of workers has no usual demand once that has cost a consumer.
            let usual = usual.min(now);
            let mut flow = flow(steady, extra);
            for _ in 0..5 {
                flow = taken(flow, step(flow, Demand { now, usual }, true));
            }
            prop_assert_eq!(flow.steady.saturating_add(flow.extra), now);
        }

        #[test]
        fn a_pace_that_rises_never_costs_the_steady_consumer(
            steady in 1u16..2000, extra in 0u16..2000, now in 1u16.., settled: bool, full: bool,
        ) {
            let flow = Flow { full, ..flow(steady, extra) };
            let now = now.max(steady);
            let after = taken(flow, step(flow, Demand { now, usual: steady }, settled));
            prop_assert_eq!(after.steady, steady);
        }

        #[test]
        fn every_delay_has_a_tier_that_is_never_early(millis in 1u64..3_000_000_000) {
            let delay = Duration::from_millis(millis);
            let tier = tier(delay);
            let factor = if delay <= COARSE_FROM { 2 } else { 4 };
            prop_assert!(tier >= delay && (tier < delay * factor || tier == TIER_MIN));
            prop_assert!(tiers(delay).contains(&tier));
        }
    }
}
