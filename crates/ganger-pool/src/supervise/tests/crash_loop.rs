//! Tests of the conditions of a crash loop.

use super::*;

/// Returns whether these ends of workers degrade a pool of two.
fn degrades(ends: impl IntoIterator<Item = End>) -> bool {
    let mut now = Instant::now();
    let mut supervisor = up(2, now);
    for end in ends {
        supervisor.ended(1, end, now, 0.5);
        now += WAIT.max;
        for slot in starts(&supervisor.plan(now, idle)) {
            supervisor.connected(slot, now);
        }
    }
    supervisor.degraded()
}

fn over(message: u64) -> End {
    End {
        over: Some(message),
        ..CRASHED
    }
}

#[test]
fn a_crash_loop_takes_several_messages_or_none() {
    let table = [
        ("none", degrades([CRASHED; 5]), true),
        ("fewer", degrades([CRASHED; 4]), false),
        ("several", degrades((0..5).map(over)), true),
        ("one", degrades((0..50).map(|_| over(7))), false),
        (
            "four in turn",
            degrades((0..50).map(|n| over(n % 4))),
            false,
        ),
        ("five in turn", degrades((0..50).map(|n| over(n % 5))), true),
    ];
    for (messages, degraded, expected) in table {
        assert_eq!(degraded, expected, "{messages}");
    }
}

#[test]
fn what_is_killed_for_a_messages_time_is_no_crash() {
    let late = |message| End {
        late: true,
        ..over(message)
    };
    assert!(!degrades((0..50).map(late)));
}

#[test]
fn a_messages_failures_are_forgotten_with_the_others() {
    let proof = End {
        pool_worked: true,
        ..over(0)
    };
    let ends = (0..4).map(over).chain([proof]).chain((0..4).map(over));
    assert!(!degrades(ends.clone()));
    assert!(degrades(ends.chain([over(4)])));
}

#[test]
fn a_crash_loop_leaves_one_probe_and_ends_with_an_answer() {
    let mut now = Instant::now();
    let mut supervisor = up(4, now);
    for slot in [0, 1, 2, 3] {
        supervisor.ended(slot, CRASHED, now, 0.5);
    }
    now += WAIT.initial;
    for slot in starts(&supervisor.plan(now, idle)) {
        supervisor.connected(slot, now);
    }
    assert!(!supervisor.degraded());
    for slot in [0, 1, 2, 3] {
        supervisor.ended(slot, CRASHED, now, 0.5);
    }
    assert!(supervisor.degraded());
    now += Duration::from_secs(60);
    let probe = starts(&supervisor.plan(now, idle));
    assert_eq!(probe.len(), 1);
    supervisor.connected(probe[0], now);
    assert!(supervisor.plan(now, idle).is_empty() && supervisor.next_start().is_none());
    supervisor.worked(now);
    assert!(!supervisor.degraded());
    assert_eq!(starts(&supervisor.plan(now, idle)).len(), 3);
}
