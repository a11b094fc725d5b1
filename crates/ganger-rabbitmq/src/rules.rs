//! The decisions of a RabbitMQ source as pure functions: the treatment of a message that arrives, the number
//! of messages to request, and the tier of a delay. No broker, no clock, no channel.

pub(crate) mod demand;
pub(crate) mod tiers;

use ganger_queue::attempts;
use ganger_queue::attempts::{LAPSES_SUSPECT, Limits};
use ganger_queue::dead_letter::Counters;
use ganger_queue::delivery::{Failure, History, Reason, write_numbers};

/// Number of returns at which a message continues as a copy, whose count starts again: RabbitMQ 4 drops a
/// message of a quorum queue after 20 unless the queue is configured otherwise.
pub(crate) const RETURNS_MAX: u64 = 15;

const UNREADABLE: &str = "a property, the name of a header or the routing key is not UTF-8: a byte \
                          that could not be read is a question mark here";

/// Data of a message that arrives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// Counters of its attempts so far.
    pub(crate) counters: Counters,
    /// True if it is marked by ganger: it was held by a worker that died with several messages.
    pub(crate) suspect: bool,
    /// Number of consecutive daemons that vanished, by ganger's count; not zero for a suspect.
    pub(crate) lapses: u32,
    /// Number of its turn, for a copy made when that began.
    pub(crate) turn: Option<u64>,
    /// Ganger's own number for it, which its copies keep.
    pub(crate) number: Option<u64>,
    /// True if the broker has delivered it before.
    pub(crate) redelivered: bool,
    /// Number of its returns, if the queue counts them.
    pub(crate) returns: u64,
    /// Number of those explained by a lost connection that this process has survived.
    pub(crate) excused: u64,
    /// True if some of its texts are not UTF-8, so that they can't be passed on.
    pub(crate) is_unreadable: bool,
}

/// Treatment of a message that arrives.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Fate {
    /// Hand the message out.
    HandOut,
    /// Wait for its turn, since that number of daemons have vanished over it.
    Suspect(u32),
    /// Run in its turn, the one with this number.
    InTurn(u64),
    /// Continue as a copy with that number of lapses: the broker would count it once too often.
    Renew(u32),
    /// Become a dead letter, with these counters.
    Bury(Counters, Failure),
}

/// Decides on the treatment of a message. A daemon that is taken down returns everything that it had fetched,
/// and the broker counts that for all alike. So a return charges only a copy that was made when its turn
/// began: no other possible cause was handed out then.
pub(crate) fn fate(arrival: Arrival, limits: Limits) -> Fate {
    let Arrival {
        counters, returns, ..
    } = arrival;
    if arrival.is_unreadable {
        return Fate::Bury(counters, Failure::new(Reason::Undeliverable, UNREADABLE));
    }
    let lapses = lapses(arrival);
    if let Some(failure) = attempts::dead(counters.crashes, lapses, limits) {
        return Fate::Bury(counters, failure);
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

/// Number of consecutive daemons that vanished, which makes it a suspect; zero if it is none.
fn lapses(arrival: Arrival) -> u32 {
    let unexplained = arrival.returns.saturating_sub(arrival.excused);
    if arrival.turn.is_some() {
        return arrival.lapses.saturating_add(u32::from(unexplained > 0));
    }
    // While it waited for its turn, others may have been the cause.
    if arrival.lapses == 0 && unexplained >= u64::from(LAPSES_SUSPECT) {
        return LAPSES_SUSPECT;
    }
    arrival.lapses
}

/// The message's history, for the pool.
pub(crate) fn history(arrival: Arrival) -> History {
    let is_explained = arrival.excused > 0 && arrival.returns <= arrival.excused;
    // A message that was returned may have killed a daemon.
    let came_back = arrival.redelivered && !is_explained;
    let is_suspected = arrival.suspect || came_back || arrival.lapses > 0;
    attempts::history(arrival.counters, is_suspected)
}

/// Returns whether a message that is returned in an orderly way must be returned as a copy: the broker would
/// count the return, which proves nothing against the message. The first return does not matter.
pub(crate) fn returns_as_copy(arrival: Arrival) -> bool {
    arrival.lapses > 0 || arrival.returns + 1 >= u64::from(LAPSES_SUSPECT)
}

/// Name of a message with a number of ganger's own, for log records.
pub(crate) fn message_name(queue: &str, number: Option<u64>) -> Option<String> {
    let number = signed(number?);
    let mut name = String::new();
    write_numbers(&mut name, queue, |property| {
        (property == "number").then_some(number)
    });
    Some(name)
}

/// A number of ganger's own as workers see it: one bit shorter, as a signed one.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number >> 1).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        crashes_max: 3,
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

    /// An arrival with these numbers of crashes, recorded lapses, returns, and excused returns.
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
            counters: attempts::charged(Counters::default(), Reason::Crashed, 7),
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
}
