//! The number of messages to request from the broker, and the consumers to use.

use std::time::Duration;

use ganger_config::model::Prefetch;
use ganger_queue::delivery::CREDIT_MAX;

/// Maximum number of body bytes requested at once, by the recent sizes.
pub(crate) const BYTES_ASKED_MAX: usize = 64 << 20;

/// Time for which the broker may send ahead somewhat less than is wanted, or twice as much for the extra
/// consumer. If it were shorter, that consumer would change with every change of a worker's pace; if longer,
/// messages would wait here that others could process.
const CHANGED_AFTER: Duration = Duration::from_secs(1);
/// Time for which it may send ahead somewhat more, or twice as much for the steady consumer, since workers
/// may start slowly; or far too little if that can't be changed.
const SURPLUS_FOR: Duration = Duration::from_secs(10);

/// Current prefetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flow {
    /// Prefetch of the steady consumer.
    pub(crate) steady: u16,
    /// Prefetch of the extra consumer.
    pub(crate) extra: u16,
    /// True if only one consumer of the queue gets messages, and it must not change.
    pub(crate) single: bool,
    /// True if the queue is lost with its last consumer.
    pub(crate) stays: bool,
    /// True if the whole prefetch was used up since the last change.
    pub(crate) full: bool,
}

/// Number of messages that the broker should send ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Demand {
    /// Number that the pool can use now.
    pub(crate) now: u16,
    /// Number that it can use with all its workers, whatever their pace.
    pub(crate) usual: u16,
}

/// Next change of the consumers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PrefetchChange {
    /// No change.
    Stay,
    /// No change until this time has passed: the pool's demand may change.
    Wait(Duration),
    /// Add a consumer with this prefetch.
    Add(u16),
    /// Cancel the newest consumer. If another one is needed, the next step adds it.
    CancelNewest,
    /// Cancel all consumers.
    CancelAll,
    /// No change, but report that the pool could use at least twice as much. The consumer of a queue that
    /// feeds only one is not replaced for that: another daemon would get the queue while its messages are in
    /// flight, and that daemon need not have the workers.
    Outgrown,
}

/// Decides the next step from the current to the wanted prefetch. `settled` is true if the last
/// [`PrefetchChange::Wait`] is over.
pub(crate) fn step(flow: Flow, demand: Demand, settled: bool) -> PrefetchChange {
    match (wanted(flow, demand, settled), flow.extra) {
        (PrefetchChange::CancelAll | PrefetchChange::CancelNewest, 0) if flow.stays => {
            PrefetchChange::Stay
        }
        (PrefetchChange::CancelAll, _) if flow.stays => PrefetchChange::CancelNewest,
        (step, _) => step,
    }
}

/// Decides the next step where a queue needs no consumer.
fn wanted(flow: Flow, demand: Demand, settled: bool) -> PrefetchChange {
    let Flow {
        steady,
        extra,
        single,
        full,
        ..
    } = flow;
    let Demand { now, usual } = demand;
    let all = steady.saturating_add(extra);
    let after = |patience, step| {
        if settled {
            step
        } else {
            PrefetchChange::Wait(patience)
        }
    };
    match (now, all) {
        (0, 0) => PrefetchChange::Stay,
        (0, _) => PrefetchChange::CancelAll,
        (_, 0) => PrefetchChange::Add(now.max(usual)),
        _ if single && full && now / 2 >= all => after(SURPLUS_FOR, PrefetchChange::Outgrown),
        _ if single => PrefetchChange::Stay,
        // The current prefetch is enough as long as the broker has no more to send.
        _ if now > all && !full => PrefetchChange::Stay,
        _ if now > all => {
            let grow = match extra {
                // Its workers start one after the other.
                0 => PrefetchChange::Add(now.max(usual) - steady),
                _ => PrefetchChange::CancelNewest,
            };
            if now / 2 >= all {
                grow
            } else {
                after(CHANGED_AFTER, grow)
            }
        }
        _ if now <= all / 2 && extra > 0 => after(CHANGED_AFTER, PrefetchChange::CancelNewest),
        _ if now <= all / 2 || now.max(usual) < all => {
            after(SURPLUS_FOR, PrefetchChange::CancelNewest)
        }
        _ => PrefetchChange::Stay,
    }
}

/// Prefetch for this number of useful messages, for bodies of this size and a total of `bytes_max`, but at
/// least one. Zero is only for none at all: to the broker zero would mean no limit.
pub(crate) fn prefetch(messages: usize, body_bytes: usize, bytes_max: usize) -> u16 {
    let fitting = bytes_max / body_bytes.max(1);
    u16::try_from(messages.min(fitting.max(1))).unwrap_or(u16::MAX)
}

/// Number of messages that a pool can use with that number of workers of unknown pace.
pub(crate) fn usual(workers: usize, prefetch: Prefetch) -> usize {
    let each = match prefetch {
        // One to process, and the next.
        Prefetch::Auto => 2,
        Prefetch::PerWorker(messages) => messages,
    };
    workers.saturating_mul(each).min(CREDIT_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
        assert_eq!(usual(4, Prefetch::Auto), 8);
        assert_eq!(usual(4, Prefetch::PerWorker(5)), 20);
    }

    const fn flow(steady: u16, extra: u16) -> Flow {
        Flow {
            steady,
            extra,
            single: false,
            stays: false,
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
        let needed = |steady, extra| Flow {
            stays: true,
            ..flow(steady, extra)
        };
        let single_idle = |steady| Flow {
            full: false,
            ..single(steady)
        };
        let (soon, late) = (
            PrefetchChange::Wait(CHANGED_AFTER),
            PrefetchChange::Wait(SURPLUS_FOR),
        );
        // The current state, the demand with a usual demand of 8, and whether the wait is over.
        let table = [
            (flow(0, 0), 0, false, PrefetchChange::Stay),
            (flow(0, 0), 2, false, PrefetchChange::Add(8)),
            (flow(0, 0), 20, false, PrefetchChange::Add(20)),
            (flow(8, 0), 8, false, PrefetchChange::Stay),
            (flow(8, 0), 15, false, soon),
            (flow(8, 0), 15, true, PrefetchChange::Add(7)),
            (flow(8, 0), 16, false, PrefetchChange::Add(8)),
            (idle(8, 0), 100, true, PrefetchChange::Stay),
            (flow(8, 8), 31, false, soon),
            (flow(8, 8), 32, false, PrefetchChange::CancelNewest),
            (idle(8, 8), 32, true, PrefetchChange::Stay),
            (flow(8, 8), 9, false, late),
            (flow(8, 8), 9, true, PrefetchChange::CancelNewest),
            (idle(8, 8), 8, false, soon),
            (idle(8, 8), 8, true, PrefetchChange::CancelNewest),
            (idle(8, 0), 5, true, PrefetchChange::Stay),
            (idle(8, 0), 4, false, late),
            (idle(8, 0), 4, true, PrefetchChange::CancelNewest),
            (idle(10, 0), 7, false, late),
            (flow(8, 8), 0, false, PrefetchChange::CancelAll),
            (single(0), 2, false, PrefetchChange::Add(8)),
            (single(8), 15, true, PrefetchChange::Stay),
            (single(8), 16, false, late),
            (single(8), 16, true, PrefetchChange::Outgrown),
            (single_idle(8), 80, true, PrefetchChange::Stay),
            (single(8), 1, true, PrefetchChange::Stay),
            (single(8), 0, false, PrefetchChange::CancelAll),
            (needed(0, 0), 2, false, PrefetchChange::Add(8)),
            (needed(8, 8), 0, false, PrefetchChange::CancelNewest),
            (needed(8, 0), 0, false, PrefetchChange::Stay),
            (needed(8, 0), 4, true, PrefetchChange::Stay),
            (needed(8, 0), 16, false, PrefetchChange::Add(8)),
            (needed(8, 8), 32, false, PrefetchChange::CancelNewest),
        ];
        for (flow, now, settled, expected) in table {
            let demand = Demand { now, usual: 8 };
            assert_eq!(step(flow, demand, settled), expected, "{flow:?} {now}");
        }
    }

    /// Returns the prefetch after a step.
    fn taken(flow: Flow, step: PrefetchChange) -> Flow {
        let Flow { steady, extra, .. } = flow;
        let (steady, extra) = match step {
            PrefetchChange::Stay | PrefetchChange::Wait(_) | PrefetchChange::Outgrown => {
                (steady, extra)
            }
            PrefetchChange::Add(more) if steady == 0 => (more, 0),
            PrefetchChange::Add(more) => (steady, more),
            PrefetchChange::CancelNewest if extra > 0 => (steady, 0),
            PrefetchChange::CancelNewest | PrefetchChange::CancelAll => (0, 0),
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
            // A pool that is short of workers has no usual demand after that has cost a consumer.
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
        fn a_queue_that_is_lost_with_its_last_consumer_keeps_one(
            steady in 1u16..2000, extra in 0u16..2000, now: u16, usual: u16, flags: (bool, bool, bool),
        ) {
            let (single, full, settled) = flags;
            let extra = if single { 0 } else { extra };
            let flow = Flow { single, stays: true, full, ..flow(steady, extra) };
            let after = taken(flow, step(flow, Demand { now, usual }, settled));
            prop_assert_eq!(after.steady, steady);
        }

        #[test]
        fn where_one_consumer_is_fed_it_stays_as_long_as_anything_is_wanted(
            steady in 1u16..2000, now in 1u16.., usual: u16, settled: bool, full: bool,
        ) {
            let flow = Flow { single: true, full, ..flow(steady, 0) };
            let step = step(flow, Demand { now, usual }, settled);
            prop_assert_eq!(taken(flow, step), flow);
            let is_outgrown = full && now / 2 >= steady;
            prop_assert_eq!(step == PrefetchChange::Outgrown, settled && is_outgrown);
        }
    }
}
