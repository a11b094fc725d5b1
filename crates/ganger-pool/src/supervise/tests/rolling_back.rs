//! Rolling restarts whose new workers are worse than the old ones.

use super::*;

/// Workers that have passed are removed as well: they are of the same build.
#[test]
fn new_workers_that_are_worse_than_the_old_ones_are_taken_back() {
    let now = Instant::now();
    let mut supervisor = up(3, now);
    let new = supervisor.roll(now);
    assert_eq!(supervisor.rolling(), Some((0, new)));
    assert_eq!(supervisor.plan(now, idle), [Action::Start(3, new)]);
    supervisor.connected(3, now);
    supervisor.observe(3, WORKS, now);
    assert_eq!(supervisor.plan(now, idle), [Action::Drain(2)]);
    supervisor.ended(2, ASKED, now, 0.5);
    assert_eq!(supervisor.plan(now, idle), [Action::Start(2, new)]);
    supervisor.roll_back();
    let actions = supervisor.plan(now, idle);
    let drained = [Action::Drain(2), Action::RollFailed(new), Action::Drain(3)];
    assert_eq!(actions[..3], drained);
    assert_eq!(actions[3..], [Action::Start(4, 0)]);
    assert!(!supervisor.is_rolling());
    for slot in [2, 3] {
        supervisor.ended(slot, ASKED, now, 0.5);
    }
    supervisor.connected(4, now);
    assert!(supervisor.plan(now, idle).is_empty());
    assert_eq!(generations(&supervisor), [0; 3]);
    supervisor.roll_back();
    assert!(supervisor.plan(now, idle).is_empty(), "nothing is rolled");
}
