//! Properties of a supervisor in any sequence of events.

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Step {
    Connect(usize),
    End(usize, bool),
    Answer,
    Resize(usize, usize),
    Work(usize),
    Roll,
    RollBack,
    Wait,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0usize..8).prop_map(Step::Connect),
        (0usize..8, any::<bool>()).prop_map(|(slot, ok)| Step::End(slot, ok)),
        Just(Step::Answer),
        (1usize..6, 1usize..4).prop_map(|(workers, surge)| Step::Resize(workers, surge)),
        (0usize..8).prop_map(Step::Work),
        Just(Step::Roll),
        Just(Step::RollBack),
        Just(Step::Wait),
    ];
    proptest::collection::vec(step, 0..80)
}

proptest! {
    /// In any sequence of events the pool never has more surplus workers than may be on trial, and
    /// returns to its size by itself.
    #[test]
    fn a_pool_always_returns_to_its_size(steps in steps()) {
        let mut now = Instant::now();
        let mut supervisor = Supervisor::new(3, RESTART);
        let (mut target, mut most, mut failed) = (3, 1, false);
        let mut live = std::collections::BTreeSet::new();
        for step in steps.into_iter().chain(std::iter::repeat_n(Step::Wait, 60)) {
            match step {
                Step::Connect(slot) => supervisor.connected(slot, now),
                Step::End(slot, ok) => {
                    if live.remove(&slot) {
                        supervisor.ended(slot, if ok { ASKED } else { CRASHED }, now, 0.5);
                    }
                }
                Step::Answer => supervisor.worked(now),
                Step::Resize(workers, surge) => {
                    target = workers;
                    most = surge.max(most);
                    supervisor.resize(workers, Restart { surge, ..RESTART });
                }
                Step::Work(slot) => {
                    supervisor.observe(slot, WORKS, now);
                }
                Step::Roll => drop(supervisor.roll(now)),
                Step::RollBack => supervisor.roll_back(),
                Step::Wait => {
                    // Everything under way succeeds.
                    for slot in live.clone() {
                        supervisor.connected(slot, now);
                        supervisor.observe(slot, WORKS, now);
                    }
                    supervisor.worked(now);
                    now += WAIT.max;
                }
            }
            for action in supervisor.plan(now, idle) {
                match action {
                    Action::Start(slot, _) => prop_assert!(live.insert(slot), "slot {slot} twice"),
                    Action::Drain(slot) => {
                        prop_assert!(live.remove(&slot));
                        supervisor.ended(slot, ASKED, now, 0.5);
                    }
                    Action::Rolled(_) => failed = false,
                    Action::RollFailed(_) => failed = true,
                }
            }
            prop_assert!(supervisor.roster().staying() <= target + most);
        }
        prop_assert_eq!(supervisor.roster().count(|stage| stage == Stage::Up), target);
        let generation = supervisor.generation;
        let outdated = supervisor.roster().iter().find(|(_, slot)| slot.generation != generation);
        // New workers that had passed before another failed stay as well.
        prop_assert!(failed || outdated.is_none(), "{:?}", outdated);
    }
}
