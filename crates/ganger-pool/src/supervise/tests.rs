//! Tests of `supervise`.

mod crash_loop;
mod properties;
mod rolling_back;

use std::time::Duration;

use super::*;
use crate::trial::BUSY;
use ganger_core::backoff::Backoff;

const WAIT: Backoff = Backoff {
    initial: Duration::from_millis(100),
    factor: 2.0,
    max: Duration::from_secs(30),
    jitter: 0.0,
};
const RESTART: Restart = Restart {
    backoff: WAIT,
    surge: 1,
    success: 1,
};
const WORKS: TrialSample = TrialSample {
    answers: 1,
    successes: 1,
    busy: false,
    busy_max: BUSY,
    old_ones_fail: false,
};
const CRASHED: End = End {
    connected: true,
    worked: false,
    explained: false,
    late: false,
    over: None,
    orderly: false,
    recycled: false,
    pool_worked: false,
    others_proven: false,
};
const UNSTARTED: End = End {
    connected: false,
    ..CRASHED
};
const ASKED: End = End {
    orderly: true,
    worked: true,
    ..CRASHED
};

/// Reports every worker as idle.
fn idle(_: usize) -> bool {
    false
}

fn starts(actions: &[Action]) -> Vec<usize> {
    let start = |action: &Action| match action {
        Action::Start(slot, _) => Some(*slot),
        Action::Drain(_) | Action::Rolled(_) | Action::RollFailed(_) => None,
    };
    actions.iter().filter_map(start).collect()
}

fn up(target: usize, now: Instant) -> Supervisor {
    let mut supervisor = Supervisor::new(target, RESTART);
    for slot in starts(&supervisor.plan(now, idle)) {
        supervisor.connected(slot, now);
    }
    supervisor
}

#[test]
fn all_workers_start_at_once() {
    let mut supervisor = Supervisor::new(3, RESTART);
    assert_eq!(starts(&supervisor.plan(Instant::now(), idle)), [0, 1, 2]);
    assert!(supervisor.plan(Instant::now(), idle).is_empty());
}

#[test]
fn a_crashed_worker_comes_back_after_a_growing_wait() {
    let mut now = Instant::now();
    let mut supervisor = up(2, now);
    for wait in [100, 200, 400] {
        supervisor.ended(1, CRASHED, now, 0.5);
        assert!(supervisor.plan(now, idle).is_empty());
        assert_eq!(
            supervisor.next_start(),
            Some(now + Duration::from_millis(wait))
        );
        now += Duration::from_millis(wait);
        assert_eq!(starts(&supervisor.plan(now, idle)), [1]);
        supervisor.connected(1, now);
    }
    supervisor.ended(
        1,
        End {
            worked: true,
            ..CRASHED
        },
        now,
        0.5,
    );
    assert_eq!(
        supervisor.next_start(),
        Some(now + WAIT.initial),
        "an answer resets the wait"
    );
}

#[test]
fn an_orderly_end_is_followed_at_once() {
    let now = Instant::now();
    let mut supervisor = up(1, now);
    supervisor.ended(0, ASKED, now, 0.5);
    assert_eq!(starts(&supervisor.plan(now, idle)), [0]);
}

#[test]
fn failed_starts_are_forgiven_once_one_connects() {
    let mut now = Instant::now();
    let mut supervisor = Supervisor::new(1, RESTART);
    for _ in 0..CRASH_LOOP_ENDS {
        assert_eq!(starts(&supervisor.plan(now, idle)), [0]);
        supervisor.ended(0, UNSTARTED, now, 0.5);
        now += WAIT.max;
    }
    assert!(supervisor.degraded());
    supervisor.plan(now, idle);
    supervisor.connected(0, now);
    assert!(!supervisor.degraded());
}

#[test]
fn one_bad_place_does_not_degrade_a_pool_that_works() {
    let mut now = Instant::now();
    let mut supervisor = up(2, now);
    for _ in 0..20 {
        supervisor.ended(
            1,
            End {
                others_proven: true,
                ..CRASHED
            },
            now,
            0.5,
        );
        now += WAIT.max;
        supervisor.plan(now, idle);
        supervisor.connected(1, now);
    }
    assert!(!supervisor.degraded());
}

#[test]
fn shrinking_drains_the_highest_numbers_and_their_places_are_gone() {
    let now = Instant::now();
    let mut supervisor = up(4, now);
    supervisor.resize(1, RESTART);
    assert_eq!(
        supervisor.plan(now, idle),
        [Action::Drain(3), Action::Drain(2), Action::Drain(1)]
    );
    for slot in 1..4 {
        supervisor.ended(slot, ASKED, now, 0.5);
    }
    assert!(supervisor.plan(now, idle).is_empty());
    assert_eq!(supervisor.roster().staying(), 1);
}

#[test]
fn those_with_nothing_to_do_leave_first() {
    let now = Instant::now();
    let mut supervisor = up(4, now);
    supervisor.resize(2, RESTART);
    let busy = |slot| slot == 3 || slot == 1;
    let actions = supervisor.plan(now, busy);
    assert_eq!(actions, [Action::Drain(2), Action::Drain(0)]);
    supervisor.resize(1, RESTART);
    assert_eq!(supervisor.plan(now, busy), [Action::Drain(3)]);
}

/// Returns all actions of a rolling restart that are due now.
fn step(supervisor: &mut Supervisor, now: Instant) -> Vec<Action> {
    let actions = supervisor.plan(now, idle);
    assert!(
        supervisor.plan(now, idle).is_empty(),
        "it waits after {actions:?}"
    );
    actions
}

fn generations(supervisor: &Supervisor) -> Vec<Generation> {
    let slots = supervisor.roster().iter();
    slots.map(|(_, slot)| slot.generation).collect()
}

#[test]
fn a_roll_goes_one_by_one_new_before_old() {
    let now = Instant::now();
    let mut supervisor = up(2, now);
    let new = supervisor.roll(now);
    for old in [1, 0] {
        let actions = step(&mut supervisor, now);
        let [surge] = starts(&actions)[..] else {
            panic!("{actions:?}")
        };
        assert_eq!(actions, [Action::Start(surge, new)]);
        supervisor.connected(surge, now);
        assert!(
            step(&mut supervisor, now).is_empty(),
            "to connect is no proof"
        );
        assert_eq!(supervisor.observe(surge, WORKS, now), Progress::Passed);
        assert_eq!(step(&mut supervisor, now), [Action::Drain(old)]);
        supervisor.ended(old, ASKED, now, 0.5);
    }
    assert_eq!(supervisor.plan(now, idle), [Action::Rolled(new)]);
    assert_eq!(generations(&supervisor), [new; 2]);
}

#[test]
fn one_that_an_operator_ends_on_trial_has_shown_nothing() {
    for (recycled, progress) in [(false, Progress::Pending), (true, Progress::Passed)] {
        let now = Instant::now();
        let mut supervisor = up(1, now);
        supervisor.roll(now);
        let surge = starts(&supervisor.plan(now, idle))[0];
        supervisor.connected(surge, now);
        supervisor.ended(surge, End { recycled, ..ASKED }, now, 0.5);
        assert_eq!(starts(&step(&mut supervisor, now)), [surge]);
        supervisor.connected(surge, now);
        let nothing = TrialSample {
            answers: 0,
            successes: 0,
            ..WORKS
        };
        assert_eq!(supervisor.observe(surge, nothing, now), progress);
    }
}

#[test]
fn a_trial_that_nothing_disturbs_is_over_in_time() {
    let now = Instant::now();
    let mut supervisor = up(1, now);
    supervisor.roll(now);
    let surge = starts(&supervisor.plan(now, idle))[0];
    assert_eq!(supervisor.next_start(), None, "it waits for the worker");
    let later = now + Duration::from_secs(3);
    supervisor.connected(surge, later);
    assert_eq!(supervisor.on_trial(), [surge]);
    let over = supervisor.next_start().unwrap();
    assert_eq!(over, later + Duration::from_secs(5));
    let idle = TrialSample {
        answers: 0,
        successes: 0,
        busy: false,
        busy_max: BUSY,
        old_ones_fail: false,
    };
    assert_eq!(supervisor.observe(surge, idle, later), Progress::Pending);
    assert_eq!(supervisor.observe(surge, idle, over), Progress::Passed);
    assert_eq!(supervisor.plan(over, |_| false), [Action::Drain(0)]);
}

#[test]
fn as_many_are_on_trial_as_may_be_and_leaving_ones_take_their_places() {
    let now = Instant::now();
    let mut supervisor = up(7, now);
    supervisor.resize(
        7,
        Restart {
            surge: 3,
            ..RESTART
        },
    );
    let new = supervisor.roll(now);
    assert_eq!(starts(&step(&mut supervisor, now)), [7, 8, 9]);
    for slot in [7, 8, 9] {
        supervisor.connected(slot, now);
    }
    supervisor.observe(7, WORKS, now);
    supervisor.observe(8, WORKS, now);
    assert_eq!(
        step(&mut supervisor, now),
        [Action::Drain(6), Action::Drain(5)]
    );
    supervisor.ended(6, ASKED, now, 0.5);
    assert_eq!(step(&mut supervisor, now), [Action::Start(6, new)]);
    supervisor.ended(5, ASKED, now, 0.5);
    assert_eq!(step(&mut supervisor, now), [Action::Start(5, new)]);
}

#[test]
fn a_roll_stops_at_the_first_worker_that_fails_its_trial() {
    for end in [UNSTARTED, CRASHED] {
        let now = Instant::now();
        let mut supervisor = up(4, now);
        supervisor.resize(
            4,
            Restart {
                surge: 2,
                ..RESTART
            },
        );
        let new = supervisor.roll(now);
        assert_eq!(starts(&supervisor.plan(now, idle)), [4, 5]);
        supervisor.connected(4, now);
        supervisor.connected(5, now);
        supervisor.ended(4, end, now, 0.5);
        assert_eq!(
            step(&mut supervisor, now),
            [Action::Drain(5), Action::RollFailed(new)],
            "the other one is no better"
        );
        assert!(supervisor.is_on_trial(5), "and what it does is judged so");
        supervisor.ended(5, CRASHED, now, 0.5);
        assert_eq!(generations(&supervisor), [0; 4]);
        supervisor.ended(0, ASKED, now, 0.5);
        assert_eq!(
            supervisor.plan(now, idle),
            [Action::Start(0, 0)],
            "the old command is still the one"
        );
    }
}

#[test]
fn a_message_that_has_killed_others_says_nothing_against_a_new_build() {
    let now = Instant::now();
    let mut supervisor = up(2, now);
    let new = supervisor.roll(now);
    supervisor.plan(now, idle);
    supervisor.connected(2, now);
    let explained = End {
        explained: true,
        ..CRASHED
    };
    supervisor.ended(2, explained, now, 0.5);
    assert!(step(&mut supervisor, now).is_empty());
    let later = now + WAIT.initial;
    assert_eq!(step(&mut supervisor, later), [Action::Start(2, new)]);
    assert!(supervisor.is_on_trial(2), "it begins again");
}

/// With a limit of four messages, or of an age or a size that is soon reached, no worker is ever
/// observed for longer.
#[test]
fn a_worker_that_reaches_its_limits_on_trial_has_passed_once_its_successor_is_up() {
    let now = Instant::now();
    let mut supervisor = up(2, now);
    let new = supervisor.roll(now);
    assert_eq!(supervisor.plan(now, idle), [Action::Start(2, new)]);
    supervisor.connected(2, now);
    let fails = TrialSample {
        answers: 4,
        successes: 0,
        busy: true,
        busy_max: BUSY,
        old_ones_fail: false,
    };
    assert_eq!(supervisor.observe(2, fails, now), Progress::Pending);
    let recycled = End {
        recycled: true,
        ..ASKED
    };
    supervisor.ended(2, recycled, now, 0.5);
    let successor = [Action::Start(2, new)];
    assert_eq!(step(&mut supervisor, now), successor, "no old one goes yet");
    supervisor.connected(2, now);
    let nothing_yet = TrialSample {
        answers: 0,
        ..fails
    };
    assert_eq!(supervisor.observe(2, nothing_yet, now), Progress::Passed);
    assert_eq!(step(&mut supervisor, now), [Action::Drain(1)]);
}

/// The worker worked, but its successor can't be started.
#[test]
fn a_roll_stops_if_the_successor_of_one_that_has_passed_fails() {
    let now = Instant::now();
    let mut supervisor = up(2, now);
    let new = supervisor.roll(now);
    supervisor.plan(now, idle);
    supervisor.connected(2, now);
    supervisor.ended(2, ASKED, now, 0.5);
    assert_eq!(step(&mut supervisor, now), [Action::Start(2, new)]);
    supervisor.ended(2, UNSTARTED, now, 0.5);
    assert_eq!(step(&mut supervisor, now), [Action::RollFailed(new)]);
}

#[test]
fn what_ends_during_a_roll_is_replaced_by_its_like() {
    let now = Instant::now();
    let mut supervisor = up(3, now);
    let new = supervisor.roll(now);
    assert_eq!(supervisor.plan(now, idle), [Action::Start(3, new)]);
    supervisor.ended(1, ASKED, now, 0.5);
    assert_eq!(
        step(&mut supervisor, now),
        [Action::Start(1, 0)],
        "an old one"
    );
    supervisor.connected(1, now);
    supervisor.connected(3, now);
    supervisor.observe(3, WORKS, now);
    assert_eq!(step(&mut supervisor, now), [Action::Drain(2)]);
    supervisor.ended(3, ASKED, now, 0.5);
    assert_eq!(
        step(&mut supervisor, now),
        [Action::Start(3, new)],
        "a new one"
    );
}

#[test]
fn what_is_missing_comes_on_trial_during_a_roll() {
    let now = Instant::now();
    let mut supervisor = up(2, now);
    supervisor.resize(4, RESTART);
    let new = supervisor.roll(now);
    for slot in [2, 3] {
        assert_eq!(step(&mut supervisor, now), [Action::Start(slot, new)]);
        supervisor.connected(slot, now);
        supervisor.observe(slot, WORKS, now);
    }
    assert_eq!(step(&mut supervisor, now), [Action::Start(4, new)]);
}

#[test]
fn a_roll_leaves_no_old_worker_that_was_just_starting() {
    let now = Instant::now();
    let mut supervisor = Supervisor::new(2, RESTART);
    supervisor.plan(now, idle);
    let new = supervisor.roll(now);
    let actions = supervisor.plan(now, idle);
    assert_eq!(
        actions[..3],
        [Action::Drain(0), Action::Drain(1), Action::Rolled(new)]
    );
    assert_eq!(actions[3..], [Action::Start(2, new), Action::Start(3, new)]);
}

#[test]
fn nobody_is_on_trial_where_nobody_works() {
    let mut now = Instant::now();
    let mut supervisor = up(1, now);
    for _ in 0..CRASH_LOOP_ENDS {
        supervisor.ended(0, CRASHED, now, 0.5);
        now += WAIT.max;
        supervisor.plan(now, idle);
        supervisor.connected(0, now);
    }
    assert!(supervisor.degraded());
    let new = supervisor.roll(now);
    assert_eq!(
        supervisor.plan(now, idle),
        [Action::Drain(0), Action::Rolled(new), Action::Start(1, new)]
    );
    assert!(!supervisor.is_on_trial(1));
    assert!(
        !supervisor.degraded(),
        "the failures were the old command's"
    );
}

#[test]
fn the_last_old_worker_to_start_is_replaced_as_well() {
    let now = Instant::now();
    let mut supervisor = up(2, now);
    supervisor.ended(1, ASKED, now, 0.5);
    assert_eq!(starts(&supervisor.plan(now, idle)), [1]);
    let new = supervisor.roll(now);
    assert_eq!(supervisor.plan(now, idle), [Action::Start(2, new)]);
    supervisor.connected(2, now);
    supervisor.observe(2, WORKS, now);
    assert_eq!(
        supervisor.plan(now, idle),
        [Action::Drain(1)],
        "it only starts"
    );
    supervisor.ended(1, ASKED, now, 0.5);
    assert_eq!(supervisor.plan(now, idle), [Action::Start(1, new)]);
    supervisor.connected(1, now);
    supervisor.observe(1, WORKS, now);
    assert_eq!(supervisor.plan(now, idle), [Action::Drain(0)]);
    supervisor.ended(0, ASKED, now, 0.5);
    assert_eq!(supervisor.plan(now, idle), [Action::Rolled(new)]);
}
