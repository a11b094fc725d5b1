//! Tests the breaker by a table, by a simulation of its purpose, and by properties.

use std::collections::VecDeque;
use std::time::Duration;

use proptest::prelude::*;
use tokio::time::Instant;

use super::*;
use ganger_queue::delivery::Failure;

const SECOND: Duration = Duration::from_secs(1);

const RULES: Rules = Rules {
    failures: 0.9,
    of: 20,
    probe: SECOND,
};

const HOUR_MS: u64 = 3_600_000;

const FEW: Rules = Rules { of: 4, ..RULES };

fn failed(reason: Reason) -> Box<Failure> {
    Box::new(Failure::new(reason, "why"))
}

#[test]
fn only_failures_that_may_be_the_downstreams_count() {
    let retry = |reason| Outcome::RetryAfter {
        delay: SECOND,
        failure: failed(reason),
    };
    let dead = |reason| Outcome::DeadLetter(failed(reason));
    let (up, down) = (Some(Evidence::Up), Some(Evidence::Down("why")));
    let table = [
        (Outcome::Done, up),
        (Outcome::Reply(Box::default()), up),
        (dead(Reason::Rejected), up),
        (dead(Reason::UnroutableReply), up),
        (retry(Reason::Failed), down),
        (dead(Reason::Failed), down),
        (retry(Reason::TimedOut), down),
        (retry(Reason::Stalled), down),
        (retry(Reason::Crashed), None),
        (dead(Reason::Crashed), None),
        (retry(Reason::ProtocolError), None),
        (dead(Reason::Undeliverable), None),
        (Outcome::Requeue { after: SECOND }, None),
        (Outcome::Return { suspect: true }, None),
    ];
    for (outcome, expected) in table {
        assert_eq!(evidence(&outcome), expected, "{outcome:?}");
    }
}

/// Returns the end of an attempt for a message of that name, taken in by the pool at that moment.
fn attempt(
    is_first: bool,
    message: impl ToString,
    taken_at: Instant,
) -> Attempt<impl FnOnce() -> String> {
    Attempt {
        is_first,
        taken_at: Some(taken_at),
        message: move || message.to_string(),
    }
}

/// Feeds attempts to a breaker, one letter each: `.` success, `x` failure, `:` and `X` the same for
/// an attempt that is not the first, `,` a success begun at the start, `=` another failure of the
/// last message, `+` a probe's time that passes, `o` a message that is taken. Returns a letter for
/// the state after each: `~` closed, `0` open, `!` open with a tried message due, `1` open with a
/// new one due.
fn story(rules: Rules, letters: &str) -> String {
    let start = Instant::now();
    let mut now = start + SECOND;
    let mut breaker = Breaker::new(Some(rules));
    let mut message = 0;
    let mut tell = |letter| {
        let evidence = match letter {
            '.' | ':' | ',' => Evidence::Up,
            _ => Evidence::Down("why"),
        };
        match letter {
            '+' => now += rules.probe,
            'o' => breaker.taken(now),
            _ => {
                message += u32::from(letter != '=');
                let taken_at = if letter == ',' { start } else { now };
                let is_first = !matches!(letter, ':' | 'X');
                breaker.record(evidence, attempt(is_first, message, taken_at), now);
            }
        }
        match (breaker.takes_tried(), breaker.admits(now)) {
            (None, true) => '~',
            (Some(_), false) => '0',
            (Some(true), true) => '!',
            (Some(false), true) => '1',
            (None, false) => '?',
        }
    };
    letters.chars().map(&mut tell).collect()
}

#[test]
fn it_opens_probes_and_closes() {
    let table = [
        ("three of four are enough for nothing", "xxx", "~~~"),
        ("all four open it", "xxxx", "~~~0"),
        ("one that succeeded keeps it closed", "x.xxxx", "~~~~~0"),
        ("a later success does, too", "x:xxxx", "~~~~~0"),
        ("later failures do not count", "xxxXXXX", "~~~~~~~"),
        ("one message counts once", "xxx===", "~~~~~~"),
        (
            "one is due each time, by turns",
            "xxxx+o+oX+o",
            "~~~0!0100!0",
        ),
        ("a success closes it", "xxxx+o.", "~~~0!0~"),
        ("a later success does, too", "xxxx+o:", "~~~0!0~"),
        ("one from before does not", "xxxx+o,,:", "~~~0!000~"),
        ("a failure changes nothing", "xxxx+oxxx+o", "~~~0!000010"),
        ("after closing it looks anew", "xxxx+o.xxxx", "~~~0!0~~~~0"),
    ];
    for (what, letters, expected) in table {
        assert_eq!(story(FEW, letters), expected, "{what}");
    }
}

#[test]
fn a_share_is_reached_not_passed() {
    let needed = |failures, of| {
        failures_needed(Rules {
            failures,
            of,
            ..RULES
        })
    };
    for (failures, of, expected) in [
        (0.9, 20, 18),
        (0.55, 20, 11),
        (0.7, 10, 7),
        (1.0, 20, 20),
        (0.05, 2, 1),
        (0.95, 10, 10),
    ] {
        assert_eq!(needed(failures, of), expected, "{failures} of {of}");
    }
}

#[test]
fn it_says_what_most_failed_of() {
    let mut breaker = Breaker::new(Some(FEW));
    for (n, error) in ["refused", "no route", "refused", "late"]
        .iter()
        .enumerate()
    {
        let now = Instant::now();
        breaker.record(Evidence::Down(error), attempt(true, n, now), now);
    }
    assert_eq!(breaker.error(), Some("refused"));
    let error = "refused".to_owned();
    assert_eq!(
        breaker.take_transition(),
        Some(Transition::Opened { failed: 4, error })
    );
    assert_eq!(breaker.take_transition(), None);
    breaker.set_rules(None);
    assert_eq!(breaker.error(), None);
    assert_eq!(breaker.take_transition(), Some(Transition::Closed));
}

#[test]
fn without_rules_it_never_opens() {
    let mut breaker = Breaker::new(None);
    for n in 0..100 {
        let now = Instant::now();
        breaker.record(Evidence::Down("why"), attempt(true, n, now), now);
    }
    assert!(!breaker.is_open() && breaker.admits(Instant::now()));
}

// -- a pool in miniature, with a clock of its own --

/// A message in the queue or at a worker.
#[derive(Debug, Clone, Copy)]
struct Work {
    number: u32,
    tries: u32,
    /// True if it fails whatever the downstream does.
    bad: bool,
}

/// Totals of a queue.
#[derive(Debug, Default)]
struct Tally {
    done: usize,
    dead: usize,
    tries: usize,
    /// Number of tries while the downstream was away.
    tries_away: usize,
    openings: u64,
    /// Time at which everything was done or dead.
    ended_ms: u64,
}

struct World {
    rules: Rules,
    workers: usize,
    takes_ms: u64,
    attempts: u32,
    /// Number of the first attempt at which a message may succeed.
    succeeds_from: u32,
    /// Returns whether the downstream answers at that moment, with that number of workers using it.
    up: fn(u64, usize) -> bool,
}

impl World {
    /// Processes the queue: its next message first, failed ones again after their back-off. Messages are
    /// handed out in the order of their numbers, as by a table.
    fn run(&self, mut queue: VecDeque<Work>, limit_ms: u64) -> Tally {
        let start = Instant::now();
        let mut breaker = Breaker::new(Some(self.rules));
        let (mut held, mut waiting) = (VecDeque::new(), Vec::new());
        let mut busy: Vec<(u64, (Instant, Work))> = Vec::new();
        let mut tally = Tally::default();
        let mut ms = 0;
        while ms < limit_ms {
            let now = start + Duration::from_millis(ms);
            let up = (self.up)(ms, busy.len());
            for (_, (taken_at, work)) in take_due(&mut busy, ms) {
                let evidence = match up && !work.bad && work.tries + 1 >= self.succeeds_from {
                    true => Evidence::Up,
                    false => Evidence::Down("why"),
                };
                tally.tries += 1;
                tally.tries_away += usize::from(!up);
                let attempt = attempt(work.tries == 0, work.number, taken_at);
                breaker.record(evidence, attempt, now);
                let tries = work.tries + 1;
                match evidence {
                    Evidence::Up => tally.done += 1,
                    Evidence::Down(_) if tries >= self.attempts => tally.dead += 1,
                    Evidence::Down(_) => {
                        waiting.push((
                            ms + (1000 << work.tries).min(HOUR_MS),
                            Work { tries, ..work },
                        ));
                    }
                }
            }
            for (_, work) in take_due(&mut waiting, ms) {
                let place = queue.partition_point(|other| other.number < work.number);
                queue.insert(place, work);
            }
            let transition = breaker.take_transition();
            if transition.is_some_and(|it| it != Transition::Closed) {
                held.drain(..).for_each(|(_, work)| queue.push_front(work));
                queue
                    .make_contiguous()
                    .sort_by_key(|work: &Work| work.number);
            }
            let credit = self.workers + breaker.at_hand().unwrap_or_default();
            let room = credit.saturating_sub(held.len() + busy.len());
            held.extend(queue.drain(..room.min(queue.len())).map(|work| (now, work)));
            while busy.len() < self.workers && breaker.admits(now) {
                let tried = breaker.takes_tried();
                let is_meant =
                    |(_, work): &(Instant, Work)| tried.is_none_or(|it| it == (work.tries > 0));
                let meant = held.iter().position(is_meant);
                let Some(taken) = held.remove(meant.unwrap_or(0)) else {
                    break;
                };
                breaker.taken(now);
                busy.push((ms + self.takes_ms, taken));
            }
            tally.ended_ms = ms;
            let probe = breaker.probe_at().filter(|_| !held.is_empty());
            let probe = probe
                .map(|at| whole_millis(at - start))
                .filter(|at| *at > ms);
            let ends = busy.iter().map(|(at, _)| *at);
            let due = waiting.iter().map(|(at, _)| *at);
            let Some(next) = ends.chain(due).chain(probe).min() else {
                break;
            };
            ms = next;
        }
        tally.openings = breaker.openings();
        tally
    }
}

fn whole_millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap()
}

fn take_due<T>(list: &mut Vec<(u64, T)>, ms: u64) -> Vec<(u64, T)> {
    let (due, rest) = list.drain(..).partition(|(at, _)| *at <= ms);
    *list = rest;
    due
}

fn queue(count: u32, bad: impl Fn(u32) -> bool) -> VecDeque<Work> {
    let work = |number| Work {
        number,
        tries: 0,
        bad: bad(number),
    };
    (0..count).map(work).collect()
}

const WORLD: World = World {
    rules: RULES,
    workers: 4,
    takes_ms: 5,
    attempts: 20,
    succeeds_from: 1,
    up: |_, _| true,
};

#[test]
fn an_outage_costs_few_tries_and_no_message() {
    // Down from the second second on, for a minute.
    let away = World {
        up: |ms, _| !(1_000..61_000).contains(&ms),
        ..WORLD
    };
    let tally = away.run(queue(5_000, |_| false), 600_000);
    assert_eq!(
        (tally.done, tally.dead, tally.openings),
        (5_000, 0, 1),
        "{tally:?}"
    );
    assert!(tally.tries_away < 200, "{tally:?}");
    assert!(tally.ended_ms < 71_000, "{tally:?}");
}

#[test]
fn a_night_away_buries_nothing() {
    const NIGHT_MS: u64 = 8 * HOUR_MS;
    let away = World {
        up: |ms, _| ms >= NIGHT_MS,
        ..WORLD
    };
    let tally = away.run(queue(500, |_| false), NIGHT_MS + 2 * HOUR_MS);
    assert_eq!((tally.done, tally.dead), (500, 0), "{tally:?}");
}

#[test]
fn a_fifth_of_bad_ones_never_opens_it() {
    let mut dice = fastrand::Rng::with_seed(7);
    let bad: Vec<bool> = (0..20_000).map(|_| dice.u8(..100) < 20).collect();
    let world = World {
        attempts: 1,
        ..WORLD
    };
    let tally = world.run(queue(20_000, |n| bad[n as usize]), 600_000);
    assert_eq!(
        (tally.openings, tally.done + tally.dead),
        (0, 20_000),
        "{tally:?}"
    );
}

#[test]
fn a_flood_of_bad_ones_drains_and_the_good_ones_follow() {
    let world = World {
        attempts: 2,
        rules: Rules {
            probe: SECOND / 100,
            ..RULES
        },
        ..WORLD
    };
    let tally = world.run(queue(1_500, |n| n < 1_000), 600_000);
    assert_eq!((tally.done, tally.dead), (500, 1_000), "{tally:?}");
    assert!((1..5).contains(&tally.openings), "{tally:?}");
}

/// Messages that wait for their own conditions, and not for a shared dependency.
#[test]
fn what_succeeds_at_its_third_try_is_not_starved() {
    let world = World {
        succeeds_from: 3,
        ..WORLD
    };
    let tally = world.run(queue(60, |_| false), 600_000);
    assert_eq!((tally.done, tally.dead, tally.tries), (60, 0, 180));
    assert!(tally.ended_ms < 30_000, "{tally:?}");
}

#[test]
fn a_downstream_that_recovers_slowly_is_not_run_over() {
    // For five seconds after its return it can serve only two workers at once, and then all.
    let slow = World {
        up: |ms, busy| ms >= 10_000 && (ms >= 15_000 || busy <= 2),
        workers: 16,
        ..WORLD
    };
    let tally = slow.run(queue(5_000, |_| false), 600_000);
    assert_eq!((tally.done, tally.dead), (5_000, 0), "{tally:?}");
    // About once a second all workers try it, until the breaker opens again.
    assert!(tally.openings <= 7, "{tally:?}");
    assert!(tally.tries_away < 500, "{tally:?}");
    assert!(tally.ended_ms < 25_000, "{tally:?}");
}

/// An input of the breaker.
#[derive(Debug, Clone, Copy)]
enum BreakerInput {
    Ended { up: bool, first: bool, message: u8 },
    Taken,
    Passed(u16),
}

fn breaker_input() -> impl Strategy<Value = BreakerInput> {
    prop_oneof![
        4 => (prop::bool::weighted(0.2), prop::bool::weighted(0.8), any::<u8>())
            .prop_map(|(up, first, message)| BreakerInput::Ended { up, first, message }),
        2 => Just(BreakerInput::Taken),
        1 => (0_u16..2_000).prop_map(BreakerInput::Passed),
    ]
}

proptest! {
    #[test]
    fn it_never_stops_for_good_and_never_opens_on_few(
        of in 2_usize..30,
        failures in 0.05_f64..=1.0,
        story in prop::collection::vec(breaker_input(), 0..400),
    ) {
        let rules = Rules { failures, of, probe: SECOND };
        let mut breaker = Breaker::new(Some(rules));
        let mut now = Instant::now();
        let mut since_closed = 0;
        for told in story {
            let was_open = breaker.is_open();
            match told {
                BreakerInput::Ended { up, first, message } => {
                    let evidence = if up { Evidence::Up } else { Evidence::Down("why") };
                    breaker.record(evidence, attempt(first, message, now), now);
                    since_closed += usize::from((first || up) && !was_open);
                    if up {
                        prop_assert!(was_open || !breaker.is_open(), "a success opens nothing");
                    } else {
                        prop_assert!(!was_open || breaker.is_open(), "a failure closes nothing");
                    }
                }
                BreakerInput::Taken => breaker.taken(now),
                BreakerInput::Passed(ms) => now += Duration::from_millis(ms.into()),
            }
            if breaker.is_open() {
                let later = now + rules.probe;
                prop_assert!(was_open || since_closed >= of);
                prop_assert!(breaker.probe_at().unwrap() <= later);
                prop_assert!(breaker.admits(later), "one a probe");
            } else {
                prop_assert!(breaker.admits(now));
            }
            if was_open != breaker.is_open() {
                since_closed = 0;
            }
        }
    }
}
