use std::time::Duration;

use proptest::prelude::*;
use tokio::time::Instant;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn rules() -> Autoscale {
    Autoscale {
        min: 2,
        max: 10,
        clear_within: 60 * SECOND,
        cooldown: 10 * SECOND,
        shrink_after: 120 * SECOND,
        memory_free_min: Some(1 << 30),
        cpu_max: Some(0.8),
    }
}

/// Four workers that are overloaded.
fn facts() -> Facts {
    Facts {
        target: 4,
        pinned: None,
        held: None,
        coming: 0,
        idle: 0,
        busy: 1.0,
        since_change: None,
        need: need(6.1),
        enough: None,
        nothing_for: None,
        machine: Machine::default(),
    }
}

fn need(workers: f64) -> Need {
    Need::Workers {
        workers,
        waiting: 100,
        seconds_each: 0.5,
    }
}

fn machine(memory_free: u64, worker_bytes: Option<u64>) -> Machine {
    Machine {
        memory_free: Some(memory_free),
        worker_bytes,
        cpu: Some(0.8),
    }
}

fn decided(change: impl FnOnce(&mut Facts)) -> (usize, &'static str) {
    let mut facts = facts();
    change(&mut facts);
    let Decision { target, reason } = decide(&rules(), &facts);
    (target, reason.as_str())
}

#[test]
fn more_come_for_what_waits() {
    let need_of = |workers| decided(|facts| facts.need = need(workers));
    assert_eq!(need_of(6.1), (6, "backlog"));
    assert_eq!(need_of(6.3), (7, "backlog"));
    assert_eq!(need_of(4.1), (4, "enough"));
    assert_eq!(need_of(99.0), (8, "backlog"), "as many again at most");
    let at_max = decided(|facts| (facts.need, facts.target) = (need(99.0), 10));
    assert_eq!(at_max, (10, "at_max"));
    let waited = |seconds| {
        let waited = seconds * SECOND;
        decided(|facts| facts.need = Need::Unknown { waited })
    };
    assert_eq!(waited(59), (4, "enough"));
    assert_eq!(waited(60), (6, "waited"));
}

#[test]
fn none_come_where_they_would_not_help() {
    assert_eq!(decided(|facts| facts.coming = 1), (4, "coming"));
    assert_eq!(decided(|facts| facts.idle = 1), (4, "idle_workers"));
    assert_eq!(decided(|facts| facts.busy = 0.5), (4, "enough"));
    let since = |seconds| decided(|facts| facts.since_change = Some(seconds * SECOND));
    assert_eq!(since(9), (4, "cooling_down"));
    assert_eq!(since(10), (6, "backlog"));
    let held = |held| decided(|facts| facts.held = Some(held));
    assert_eq!(held(Held::BreakerOpen), (4, "held"));
    assert_eq!(held(Held::Paused), (4, "held"));
}

#[test]
fn fewer_stay_where_they_were_enough() {
    let spare = |target, enough| {
        decided(|facts| {
            (facts.need, facts.busy) = (need(1.0), 0.3);
            (facts.target, facts.enough) = (target, Some(enough));
        })
    };
    assert_eq!(spare(4, 3), (3, "spare"));
    assert_eq!(spare(4, 1), (2, "spare"), "not below min");
    assert_eq!(spare(4, 5), (4, "enough"));
    assert_eq!(spare(10, 9), (9, "spare"));
    let hot_key = decided(|facts| (facts.idle, facts.enough) = (3, Some(2)));
    assert_eq!(hot_key, (2, "spare"), "although messages wait");
    let held = decided(|facts| (facts.held, facts.enough) = (Some(Held::Degraded), Some(2)));
    assert_eq!(held, (4, "held"));
}

#[test]
fn a_hand_and_the_bounds_come_first() {
    assert_eq!(decided(|facts| facts.pinned = Some(40)), (40, "pinned"));
    let beyond = decided(|facts| (facts.target, facts.held) = (40, Some(Held::Paused)));
    assert_eq!(beyond, (10, "bounds"));
    assert_eq!(decided(|facts| facts.target = 0), (2, "bounds"));
}

#[test]
fn the_machine_holds_them_back() {
    let memory = |free, worker_bytes| decided(|facts| facts.machine = machine(free, worker_bytes));
    assert_eq!(memory(1 << 30, Some(1)), (4, "memory"));
    assert_eq!(
        memory(3 << 29, Some(1 << 29)),
        (5, "backlog"),
        "for one more"
    );
    assert_eq!(memory(3 << 30, None), (5, "backlog"), "one, to see");
    assert_eq!(memory(3 << 30, Some(1 << 20)), (6, "backlog"));
    let cpu = |share| decided(|facts| facts.machine.cpu = Some(share));
    assert_eq!((cpu(0.8), cpu(0.81)), ((6, "backlog"), (4, "cpu")));
}

#[test]
fn a_spare_worker_of_many_is_kept() {
    let rules = Autoscale {
        max: 100,
        ..rules()
    };
    let facts = |target, enough| Facts {
        target,
        need: need(1.0),
        busy: 0.3,
        enough: Some(enough),
        ..facts()
    };
    assert_eq!(decide(&rules, &facts(50, 46)).target, 50);
    assert_eq!(decide(&rules, &facts(50, 45)).target, 45);
}

#[test]
fn none_stay_where_there_has_been_nothing_to_do() {
    let none = Autoscale { min: 0, ..rules() };
    let facts = |target, nothing_for: u32| Facts {
        target,
        need: need(0.0),
        busy: 0.0,
        enough: Some(0),
        nothing_for: Some(nothing_for * SECOND),
        ..facts()
    };
    let decided = |rules: &Autoscale, facts| {
        let Decision { target, reason } = decide(rules, &facts);
        (target, reason.as_str())
    };
    assert_eq!(decided(&none, facts(3, 119)), (1, "spare"), "one stays");
    assert_eq!(decided(&none, facts(1, 119)), (1, "enough"));
    assert_eq!(decided(&none, facts(3, 120)), (0, "nothing"));
    assert_eq!(decided(&none, facts(0, 120)), (0, "nothing"));
    let two = rules();
    assert_eq!(decided(&two, facts(3, 120)), (2, "spare"));
    let held = Facts {
        held: Some(Held::Paused),
        ..facts(1, 120)
    };
    assert_eq!(decided(&none, held), (1, "held"));
    let messages = Facts {
        nothing_for: None,
        ..facts(1, 0)
    };
    assert_eq!(decided(&none, messages), (1, "enough"));
}

#[test]
fn there_is_nothing_to_do_if_no_sample_has_shown_anything() {
    let rules = Autoscale { min: 0, ..rules() };
    let begun = Instant::now();
    let idle = |seconds| Measurements {
        idle: 1,
        available: f64::from(seconds),
        finished: 7,
        ..look(begun + seconds * SECOND)
    };
    let after = |seen: &[Measurements]| {
        let mut scaler = Autoscaler::new(1);
        for look in seen {
            scaler.look(&rules, look);
        }
        scaler.target()
    };
    // The first sample finds messages done that it has not seen.
    assert_eq!(after(&[idle(0), idle(1), idle(120)]), 1);
    assert_eq!(after(&[idle(0), idle(1), idle(121)]), 0);
    let busy = [
        Measurements { out: 1, ..idle(60) },
        Measurements {
            queued: Some(1),
            ..idle(60)
        },
        Measurements {
            finished: 8,
            ..idle(60)
        },
        Measurements {
            held: Some(Held::SourceDown),
            ..idle(60)
        },
    ];
    for busy in busy {
        let last = Measurements {
            finished: busy.finished,
            ..idle(121)
        };
        assert_eq!(after(&[idle(0), idle(1), busy, last]), 1, "{busy:?}");
    }
}

#[test]
fn a_message_starts_one_again() {
    let now = Instant::now();
    let mut scaler = Autoscaler::new(0);
    let Decision { target, reason } = scaler.wake(now);
    assert_eq!((target, reason.as_str(), scaler.target()), (1, "woken", 1));
}

#[test]
fn reasons_are_said_in_words() {
    let table = [
        (
            Reason::Backlog {
                waiting: 420,
                seconds_each: 0.25,
            },
            "420 messages wait, each with 250.000ms of work",
        ),
        (Reason::Held(Held::Degraded), "its workers keep failing"),
        (
            Reason::IdleWorkers(3),
            "messages wait, but 3 worker(s) are idle",
        ),
        (
            Reason::Waited(61 * SECOND),
            "messages have waited for a worker for 61s",
        ),
    ];
    for (reason, words) in table {
        assert_eq!(reason.to_string(), words);
    }
}

#[test]
fn what_was_set_by_hand_stays_until_it_is_let_go() {
    let (now, mut scaler) = (Instant::now(), Autoscaler::new(4));
    let busy = |second: u32| Measurements {
        now: now + second * SECOND,
        worked: f64::from(second),
        available: f64::from(second),
        finished: u64::from(second),
        waiting: 1000,
        out: 1001,
        queued: Some(1000),
        ..look(now)
    };
    scaler.pin(Some(3), now);
    for second in 0..300 {
        scaler.look(&rules(), &busy(second));
        let report = scaler.report(&rules());
        assert_eq!((report.target, report.reason), (3, Reason::Pinned));
    }
    scaler.pin(None, now + 300 * SECOND);
    let decision = scaler.look(&rules(), &busy(301));
    let decision = decision.expect("much waits");
    assert_eq!((decision.target, decision.reason.as_str()), (6, "backlog"));
}

fn look(now: Instant) -> Measurements {
    Measurements {
        now,
        up: 1,
        coming: 0,
        idle: 0,
        worked: 0.0,
        available: 0.0,
        finished: 0,
        waiting: 0,
        out: 0,
        queued: Some(0),
        waiting_since: None,
        held: None,
        machine: Machine::default(),
    }
}

fn held() -> impl Strategy<Value = Option<Held>> {
    let all = [
        Held::Degraded,
        Held::BreakerOpen,
        Held::Paused,
        Held::SourceDown,
        Held::Rolling,
    ];
    proptest::option::weighted(0.2, proptest::sample::select(all.to_vec()))
}

fn any_facts() -> impl Strategy<Value = Facts> {
    let need = prop_oneof![
        (0.0..50.0, 0u64..100).prop_map(|(workers, waiting)| Need::Workers {
            workers,
            waiting,
            seconds_each: 1.0,
        }),
        (0u32..200).prop_map(|seconds| Need::Unknown {
            waited: seconds * SECOND
        }),
    ];
    let machine = (
        proptest::option::of(0u64..4 << 30),
        proptest::option::of(0u64..1 << 30),
        proptest::option::of(0.0..1.0),
    );
    let machine = machine.prop_map(|(memory_free, worker_bytes, cpu)| Machine {
        memory_free,
        worker_bytes,
        cpu,
    });
    let workers = (
        0usize..40,
        proptest::option::weighted(0.1, 0usize..40),
        0usize..3,
        0usize..3,
    );
    let time = (
        0.0..=1.0,
        proptest::option::of(0u32..30),
        proptest::option::of(0usize..40),
        proptest::option::of(0u32..300),
    );
    (workers, held(), time, need, machine).prop_map(|(workers, held, time, need, machine)| Facts {
        target: workers.0,
        pinned: workers.1,
        held,
        coming: workers.2,
        idle: workers.3,
        busy: time.0,
        since_change: time.1.map(|seconds| seconds * SECOND),
        need,
        enough: time.2,
        nothing_for: time.3.map(|seconds| seconds * SECOND),
        machine,
    })
}

/// A step from one sample to the next: seconds, and the load then.
type Step = (
    u32,
    (usize, usize, usize),
    (u64, u64, Option<u64>),
    Option<Held>,
    f64,
);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let counts = (0usize..12, 0usize..3, 0usize..3);
    let messages = (0u64..40, 0u64..40, proptest::option::of(0u64..10_000));
    proptest::collection::vec((1u32..20, counts, messages, held(), 0.0..=1.0), 1..200)
}

proptest! {
    #[test]
    fn a_decision_keeps_the_rules(facts in any_facts()) {
        let rules = rules();
        let Decision { target, reason } = decide(&rules, &facts);
        if let Some(pinned) = facts.pinned {
            prop_assert_eq!((target, reason), (pinned, Reason::Pinned));
            return Ok(());
        }
        prop_assert!((rules.min..=rules.max).contains(&target));
        let within = facts.target.clamp(rules.min, rules.max);
        if within != facts.target {
            prop_assert_eq!(target, within);
            return Ok(());
        }
        let cooling = facts.since_change.is_some_and(|since| since < rules.cooldown);
        if cooling || facts.held.is_some() {
            prop_assert_eq!(target, facts.target);
        }
        let Machine { memory_free, cpu, .. } = facts.machine;
        let is_short = memory_free.is_some_and(|free| free <= 1 << 30);
        let is_busy = cpu.is_some_and(|cpu| cpu > 0.8);
        if facts.idle > 0 || facts.coming > 0 || is_short || is_busy {
            prop_assert!(target <= facts.target);
        }
        if facts.enough.is_none() {
            prop_assert!(target >= facts.target);
        }
    }

    /// Whatever the load: the target stays within its bounds, with time between two changes.
    #[test]
    fn any_course_keeps_the_rules(steps in steps()) {
        let rules = rules();
        let mut scaler = Autoscaler::new(rules.min);
        let mut shown = look(Instant::now());
        let mut changed: Option<Instant> = None;
        for (seconds, (up, coming, idle), (ended, out, queued), held, busy) in steps {
            let before = scaler.target();
            shown = Measurements {
                now: shown.now + seconds * SECOND,
                up,
                coming,
                idle,
                worked: shown.worked + busy * up as f64 * f64::from(seconds),
                available: shown.available + up as f64 * f64::from(seconds),
                finished: shown.finished + ended,
                waiting: out.saturating_sub(up as u64),
                out,
                queued,
                waiting_since: (out > 20).then(|| shown.waiting_since.unwrap_or(shown.now)),
                held,
                ..shown
            };
            scaler.look(&rules, &shown);
            let target = scaler.target();
            prop_assert!((rules.min..=rules.max).contains(&target));
            if target != before {
                prop_assert!(changed.is_none_or(|at| shown.now - at >= rules.cooldown));
                prop_assert!(held.is_none());
                prop_assert!(target < before || idle == 0 && coming == 0);
                changed = Some(shown.now);
            }
            prop_assert_eq!(scaler.report(&rules).changed.map(|(at, _)| at), changed);
        }
    }
}
