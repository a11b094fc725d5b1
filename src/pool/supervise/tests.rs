//! Tests of `supervise`.

use std::time::Duration;

use proptest::prelude::*;

use super::*;

const RESTART: Backoff = Backoff {
    initial: Duration::from_millis(100),
    factor: 2.0,
    max: Duration::from_secs(30),
    jitter: 0.0,
};
const CRASHED: End = End {
    connected: true,
    answered: false,
    explained: false,
    orderly: false,
    pool_answered: false,
    others_proven: false,
};
const UNSTARTED: End = End {
    connected: false,
    ..CRASHED
};
const ASKED: End = End {
    orderly: true,
    answered: true,
    ..CRASHED
};

fn starts(actions: &[Action]) -> Vec<usize> {
    let start = |action: &Action| match action {
        Action::Start(slot, _) => Some(*slot),
        Action::Drain(_) | Action::Rolled(_) | Action::RollFailed(_) => None,
    };
    actions.iter().filter_map(start).collect()
}

fn up(target: usize, now: Instant) -> Supervisor {
    let mut supervisor = Supervisor::new(target, RESTART);
    for slot in starts(&supervisor.plan(now)) {
        supervisor.connected(slot, now);
    }
    supervisor
}

#[test]
fn all_workers_start_at_once() {
    let mut supervisor = Supervisor::new(3, RESTART);
    assert_eq!(starts(&supervisor.plan(Instant::now())), [0, 1, 2]);
    assert!(supervisor.plan(Instant::now()).is_empty());
}

#[test]
fn a_crashed_worker_comes_back_after_a_growing_wait() {
    let mut now = Instant::now();
    let mut supervisor = up(2, now);
    for wait in [100, 200, 400] {
        supervisor.ended(1, CRASHED, now, 0.5);
        assert!(supervisor.plan(now).is_empty());
        assert_eq!(
            supervisor.next_start(),
            Some(now + Duration::from_millis(wait))
        );
        now += Duration::from_millis(wait);
        assert_eq!(starts(&supervisor.plan(now)), [1]);
        supervisor.connected(1, now);
    }
    supervisor.ended(
        1,
        End {
            answered: true,
            ..CRASHED
        },
        now,
        0.5,
    );
    assert_eq!(
        supervisor.next_start(),
        Some(now + RESTART.initial),
        "an answer resets the wait"
    );
}

#[test]
fn an_orderly_end_is_followed_at_once() {
    let now = Instant::now();
    let mut supervisor = up(1, now);
    supervisor.ended(0, ASKED, now, 0.5);
    assert_eq!(starts(&supervisor.plan(now)), [0]);
}

#[test]
fn a_crash_loop_leaves_one_probe_and_ends_with_an_answer() {
    let mut now = Instant::now();
    let mut supervisor = up(4, now);
    for slot in [0, 1, 2, 3] {
        supervisor.ended(slot, CRASHED, now, 0.5);
    }
    now += RESTART.initial;
    for slot in starts(&supervisor.plan(now)) {
        supervisor.connected(slot, now);
    }
    assert!(!supervisor.degraded());
    for slot in [0, 1, 2, 3] {
        supervisor.ended(slot, CRASHED, now, 0.5);
    }
    assert!(supervisor.degraded());
    now += Duration::from_secs(60);
    let probe = starts(&supervisor.plan(now));
    assert_eq!(probe.len(), 1);
    supervisor.connected(probe[0], now);
    assert!(supervisor.plan(now).is_empty() && supervisor.next_start().is_none());
    supervisor.answered(now);
    assert!(!supervisor.degraded());
    assert_eq!(starts(&supervisor.plan(now)).len(), 3);
}

#[test]
fn failed_starts_are_forgiven_once_one_connects() {
    let mut now = Instant::now();
    let mut supervisor = Supervisor::new(1, RESTART);
    for _ in 0..CRASH_LOOP_ENDS {
        assert_eq!(starts(&supervisor.plan(now)), [0]);
        supervisor.ended(0, UNSTARTED, now, 0.5);
        now += RESTART.max;
    }
    assert!(supervisor.degraded());
    supervisor.plan(now);
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
        now += RESTART.max;
        supervisor.plan(now);
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
        supervisor.plan(now),
        [Action::Drain(3), Action::Drain(2), Action::Drain(1)]
    );
    for slot in 1..4 {
        supervisor.ended(slot, ASKED, now, 0.5);
    }
    assert!(supervisor.plan(now).is_empty());
    assert_eq!(supervisor.roster().staying(), 1);
}

#[test]
fn a_roll_goes_one_by_one_new_before_old() {
    let now = Instant::now();
    let mut supervisor = up(2, now);
    let new = supervisor.roll(now);
    for old in [0, 1] {
        let mut actions = supervisor.plan(now);
        actions.extend(supervisor.plan(now));
        let [surge] = starts(&actions)[..] else {
            panic!("{actions:?}")
        };
        assert!(
            supervisor.plan(now).is_empty(),
            "it waits for the new worker"
        );
        supervisor.connected(surge, now);
        assert_eq!(supervisor.plan(now), [Action::Drain(old)]);
        assert!(
            supervisor.plan(now).is_empty(),
            "it waits for the old worker's end"
        );
        supervisor.ended(old, ASKED, now, 0.5);
    }
    assert_eq!(supervisor.plan(now), [Action::Rolled(new)]);
    assert!(
        supervisor
            .roster()
            .iter()
            .all(|(_, slot)| slot.generation == new)
    );
    assert_eq!(supervisor.roster().staying(), 2);
}

#[test]
fn a_roll_stops_at_the_first_worker_that_does_not_come_up() {
    let now = Instant::now();
    let mut supervisor = up(2, now);
    let new = supervisor.roll(now);
    supervisor.plan(now);
    let [surge] = [2];
    supervisor.plan(now);
    supervisor.ended(surge, UNSTARTED, now, 0.5);
    assert_eq!(supervisor.plan(now), [Action::RollFailed(new)]);
    assert_eq!(supervisor.roster().staying(), 2);
    assert!(
        supervisor
            .roster()
            .iter()
            .all(|(_, slot)| slot.generation == 0)
    );
    supervisor.ended(0, ASKED, now, 0.5);
    assert_eq!(
        supervisor.plan(now),
        [Action::Start(0, 0)],
        "the old command is still the one"
    );
}

#[test]
fn a_roll_leaves_no_old_worker_that_was_just_starting() {
    let now = Instant::now();
    let mut supervisor = Supervisor::new(2, RESTART);
    supervisor.plan(now);
    let new = supervisor.roll(now);
    let actions = supervisor.plan(now);
    assert_eq!(
        actions[..3],
        [Action::Drain(0), Action::Drain(1), Action::Rolled(new)]
    );
    assert_eq!(actions[3..], [Action::Start(2, new), Action::Start(3, new)]);
}

#[test]
fn the_last_old_worker_to_start_is_replaced_as_well() {
    let now = Instant::now();
    let mut supervisor = up(2, now);
    supervisor.ended(1, ASKED, now, 0.5);
    assert_eq!(starts(&supervisor.plan(now)), [1]);
    let new = supervisor.roll(now);
    assert_eq!(supervisor.plan(now), [Action::Start(2, new)]);
    supervisor.connected(2, now);
    assert_eq!(supervisor.plan(now), [Action::Drain(0)]);
    supervisor.ended(0, ASKED, now, 0.5);
    assert_eq!(
        supervisor.plan(now),
        [Action::Drain(1), Action::Rolled(new)]
    );
    assert_eq!(supervisor.plan(now), [Action::Start(0, new)]);
}

#[derive(Debug, Clone)]
enum Step {
    Connect(usize),
    End(usize, bool),
    Answer,
    Resize(usize),
    Roll,
    Wait,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0usize..8).prop_map(Step::Connect),
        (0usize..8, any::<bool>()).prop_map(|(slot, ok)| Step::End(slot, ok)),
        Just(Step::Answer),
        (1usize..6).prop_map(Step::Resize),
        Just(Step::Roll),
        Just(Step::Wait),
    ];
    proptest::collection::vec(step, 0..80)
}

proptest! {
    /// Whatever happens, the pool never has more than one worker too many, and gets back to
    /// its size by itself.
    #[test]
    fn a_pool_always_returns_to_its_size(steps in steps()) {
        let mut now = Instant::now();
        let mut supervisor = Supervisor::new(3, RESTART);
        let mut target = 3;
        let mut live = std::collections::BTreeSet::new();
        for step in steps.into_iter().chain(std::iter::repeat_n(Step::Wait, 60)) {
            match step {
                Step::Connect(slot) => supervisor.connected(slot, now),
                Step::End(slot, ok) => {
                    if live.remove(&slot) {
                        supervisor.ended(slot, if ok { ASKED } else { CRASHED }, now, 0.5);
                    }
                }
                Step::Answer => supervisor.answered(now),
                Step::Resize(workers) => {
                    target = workers;
                    supervisor.resize(workers, RESTART);
                }
                Step::Roll => drop(supervisor.roll(now)),
                Step::Wait => {
                    // All that is under way comes to a good end.
                    for slot in live.clone() {
                        supervisor.connected(slot, now);
                    }
                    supervisor.answered(now);
                    now += RESTART.max;
                }
            }
            for action in supervisor.plan(now) {
                match action {
                    Action::Start(slot, _) => prop_assert!(live.insert(slot), "slot {slot} twice"),
                    Action::Drain(slot) => {
                        prop_assert!(live.remove(&slot));
                        supervisor.ended(slot, ASKED, now, 0.5);
                    }
                    Action::Rolled(_) | Action::RollFailed(_) => {}
                }
            }
            prop_assert!(supervisor.roster().staying() <= target + 1);
        }
        prop_assert_eq!(supervisor.roster().count(|stage| stage == Stage::Up), target);
        let generation = supervisor.generation;
        let outdated = supervisor.roster().iter().find(|(_, slot)| slot.generation != generation);
        prop_assert_eq!(outdated, None);
    }
}
