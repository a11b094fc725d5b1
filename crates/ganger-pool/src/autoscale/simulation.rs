//! Simulates a pool for an hour in milliseconds: messages arrive, workers start and work, and the autoscaler
//! takes a sample once a second. It must follow the load, and not oscillate.

use std::f64::consts::TAU;
use std::ops::Range;
use std::time::Duration;

use fastrand::Rng;
use tokio::time::Instant;

use super::decide::whole;
use super::*;

const STEP: f64 = 0.1;
const STEPS_A_LOOK: usize = 10;
/// Number of messages that the pool fetches for each worker.
const PREFETCH: u64 = 2;
const MAX: usize = 32;
const CLEAR_WITHIN: usize = 60;
const HOUR: usize = 3600;

fn rules() -> Autoscale {
    Autoscale {
        min: 1,
        max: MAX,
        clear_within: Duration::from_secs(60),
        cooldown: Duration::from_secs(10),
        shrink_after: Duration::from_secs(120),
        memory_free_min: None,
        cpu_max: None,
    }
}

/// Distribution of the durations of tasks, in seconds.
#[derive(Debug, Clone, Copy)]
enum Tasks {
    /// All equal.
    Alike(f64),
    /// Random, most of them short.
    Mixed(f64),
}

impl Tasks {
    fn draw(self, rng: &mut Rng) -> f64 {
        match self {
            Self::Alike(seconds) => seconds,
            Self::Mixed(mean) => mean * exponential(rng),
        }
    }

    fn mean(self) -> f64 {
        let (Self::Alike(mean) | Self::Mixed(mean)) = self;
        mean
    }
}

fn exponential(rng: &mut Rng) -> f64 {
    -f64::ln(1.0 - rng.f64())
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Worker {
    StartsUntil(f64),
    /// Idle since then.
    Idle(f64),
    WorksUntil(f64),
}

impl Worker {
    fn works(&self) -> bool {
        matches!(self, Self::WorksUntil(_))
    }

    fn starts(&self) -> bool {
        matches!(self, Self::StartsUntil(_))
    }
}

/// A pool and its load.
#[derive(Debug, Clone, Copy)]
struct Play {
    tasks: Tasks,
    /// Time that a worker takes to start.
    start_seconds: f64,
    /// Number of samples by which the source's report of its queue is late; `None` if it never reports.
    depth_late: Option<usize>,
    /// Number of keys, which is also the maximum number of messages that run at once.
    keys: usize,
    seed: u64,
}

/// Each kind of task twice, with slow and fast starts, and with the source's reports fresh, late or
/// missing.
fn plays() -> impl Iterator<Item = Play> {
    let tasks = [
        Tasks::Alike(0.2),
        Tasks::Mixed(0.2),
        Tasks::Alike(1.0),
        Tasks::Mixed(1.0),
        Tasks::Mixed(10.0),
        Tasks::Alike(60.0),
    ];
    let starts = [0.1, 5.0, 30.0];
    let depths = [Some(0), Some(1), Some(4), None];
    (0..2 * tasks.len()).map(move |turn| Play {
        tasks: tasks[turn % tasks.len()],
        start_seconds: starts[(turn + turn / tasks.len()) % starts.len()],
        depth_late: depths[(turn + 3 * (turn / tasks.len())) % depths.len()],
        keys: usize::MAX,
        seed: turn as u64,
    })
}

impl Play {
    /// Simulates that many seconds with a load given in workers' worth of work, at most `most`.
    fn run(self, seconds: usize, most: f64, load: impl Fn(f64) -> f64) -> Course {
        let mean = self.tasks.mean();
        let mut stage = Stage::new(self);
        let mut next = exponential(&mut stage.rng) * mean / most;
        for step in 0..seconds * STEPS_A_LOOK {
            let now = step as f64 * STEP;
            while next <= now {
                stage.undone += u64::from(stage.rng.f64() * most < load(next));
                next += exponential(&mut stage.rng) * mean / most;
            }
            stage.turn(now);
            if (step + 1) % STEPS_A_LOOK == 0 {
                stage.look(now);
            }
        }
        stage.course
    }

    /// Returns the time until a burst or a steady load should have been handled, in seconds from its start:
    /// workers are added in several steps, each after the workers of the previous one have connected.
    fn patience(self) -> usize {
        let steps = if self.depth_late.is_none() { 8 } else { 4 };
        let seconds = f64::from(steps) * (10.0 + self.start_seconds) + 2.0 * self.tasks.mean();
        let blind = if self.depth_late.is_none() {
            CLEAR_WITHIN
        } else {
            0
        };
        2 * CLEAR_WITHIN + blind + whole(seconds)
    }

    /// Number of messages that are no backlog: two seconds' worth of ten workers.
    fn few(self) -> f64 {
        (20.0 / self.tasks.mean()).max(20.0)
    }

    /// Returns whether tasks take a second or less, so that enough come for chance to even out.
    /// Longer tasks come in varying numbers, and a pool follows that.
    fn is_smooth(self) -> bool {
        self.tasks.mean() <= 1.0
    }
}

/// The pool at one moment.
struct Stage {
    play: Play,
    rng: Rng,
    scaler: Autoscaler,
    workers: Vec<Worker>,
    target: usize,
    worked: f64,
    available: f64,
    finished: u64,
    idle: usize,
    undone: u64,
    origin: Instant,
    waiting_since: Option<Instant>,
    depths: Vec<u64>,
    course: Course,
}

impl Stage {
    fn new(play: Play) -> Self {
        Self {
            play,
            rng: Rng::with_seed(play.seed),
            scaler: Autoscaler::new(1),
            workers: vec![Worker::Idle(0.0)],
            target: 1,
            worked: 0.0,
            available: 0.0,
            finished: 0,
            idle: usize::MAX,
            undone: 0,
            origin: Instant::now(),
            waiting_since: None,
            depths: Vec::new(),
            course: Course::default(),
        }
    }

    fn turn(&mut self, now: f64) {
        for worker in &mut self.workers {
            match *worker {
                Worker::StartsUntil(until) if until <= now => *worker = Worker::Idle(now),
                Worker::WorksUntil(until) if until <= now => {
                    (self.finished, self.undone) = (self.finished + 1, self.undone - 1);
                    *worker = Worker::Idle(until);
                }
                Worker::StartsUntil(_) | Worker::Idle(_) | Worker::WorksUntil(_) => {}
            }
        }
        // A surplus worker leaves when it is idle.
        while self.workers.len() > self.target
            && let Some(index) = self.workers.iter().rposition(|worker| !worker.works())
        {
            self.workers.remove(index);
        }
        let mut working = self.workers.iter().filter(|worker| worker.works()).count();
        for worker in &mut self.workers {
            let next = (working as u64) < self.undone && working < self.play.keys;
            if let Worker::Idle(since) = *worker
                && next
            {
                // A message that is already here begins when the one before it ends.
                let begins = since.max(now - STEP);
                *worker = Worker::WorksUntil(begins + self.play.tasks.draw(&mut self.rng));
                working += 1;
            }
        }
        let up = self.up();
        self.worked += working as f64 * STEP;
        self.available += up as f64 * STEP;
        self.idle = self.idle.min(up - working);
    }

    fn up(&self) -> usize {
        self.workers
            .iter()
            .filter(|worker| !worker.starts())
            .count()
    }

    fn look(&mut self, now: f64) {
        let instant = self.origin + Duration::from_secs_f64(now);
        let up = self.up();
        let working = self.workers.iter().filter(|worker| worker.works()).count() as u64;
        let credit = up as u64 * PREFETCH;
        let out = self.undone.min(credit).max(working);
        let waiting_since = self.waiting_since.unwrap_or(instant);
        self.waiting_since = (out > working).then_some(waiting_since);
        self.depths.push(self.undone - out);
        let late = |late: usize| self.depths[self.depths.len().saturating_sub(late + 1)];
        let look = Measurements {
            now: instant,
            up,
            coming: self.workers.len() - up,
            idle: std::mem::replace(&mut self.idle, usize::MAX),
            worked: self.worked,
            available: self.available,
            finished: self.finished,
            waiting: out - working,
            out,
            queued: self.play.depth_late.map(late),
            waiting_since: self.waiting_since,
            held: None,
            machine: Machine::default(),
        };
        if let Some(decision) = self.scaler.look(&rules(), &look)
            && decision.target != self.target
        {
            self.course
                .changes
                .push((now, self.target, decision.target));
            self.target = decision.target;
            let starts = Worker::StartsUntil(now + self.play.start_seconds);
            self.workers
                .resize(self.target.max(self.workers.len()), starts);
        }
        self.course.undone.push(self.undone);
        self.course.targets.push(self.target);
    }
}

/// Record of a simulation.
#[derive(Debug, Default)]
struct Course {
    /// Second of each change of the number, with the number before and after.
    changes: Vec<(f64, usize, usize)>,
    /// Number of messages not done, each second.
    undone: Vec<u64>,
    /// Target number of workers, each second.
    targets: Vec<usize>,
}

impl Course {
    /// Returns the number of changes from growing to shrinking or back.
    fn turns(&self) -> usize {
        let grows = self.changes.iter().map(|(_, from, to)| to > from);
        let grows: Vec<bool> = grows.collect();
        grows.windows(2).filter(|pair| pair[0] != pair[1]).count()
    }

    /// Returns the number of seconds after `from` until no more than `few` messages were undone.
    fn cleared(&self, from: usize, few: f64) -> usize {
        let all = self.undone[from..].iter();
        all.take_while(|undone| **undone as f64 > few).count()
    }

    fn most_within(&self, seconds: Range<usize>) -> usize {
        self.targets[seconds].iter().copied().max().unwrap_or(0)
    }

    fn least_within(&self, seconds: Range<usize>) -> usize {
        self.targets[seconds].iter().copied().min().unwrap_or(0)
    }

    fn mean_within(&self, seconds: Range<usize>) -> f64 {
        let all = &self.targets[seconds];
        all.iter().sum::<usize>() as f64 / all.len() as f64
    }
}

#[test]
fn a_step_up_and_down_is_followed_without_swinging() {
    let load = |second| match second {
        ..300.0 => 0.5,
        ..2400.0 => 10.0,
        _ => 2.0,
    };
    for play in plays() {
        let course = play.run(HOUR, 10.0, load);
        let turns = if play.is_smooth() { 8 } else { 14 };
        assert!(course.turns() <= turns, "{play:?} {:?}", course.changes);
        assert!(course.changes.len() <= 40, "{play:?} {:?}", course.changes);
        let late = course.cleared(300, play.few());
        assert!(
            late <= play.patience(),
            "{play:?} {late} {:?}",
            course.changes
        );
        let steady = 1200..2400;
        let spare = course.mean_within(steady.clone()) / 10.0;
        assert!((1.0..1.9).contains(&spare), "{play:?} {spare}");
        let swing = course.most_within(steady.clone()) - course.least_within(steady);
        let swing_max = if play.is_smooth() { 6 } else { 10 };
        assert!(swing <= swing_max, "{play:?} {:?}", course.changes);
        let last = course.most_within(HOUR - 400..HOUR);
        assert!((2..=7).contains(&last), "{play:?} {:?}", course.changes);
        if play.depth_late.is_some() {
            let most = course.most_within(0..HOUR);
            assert!(most <= 28, "{play:?} {:?}", course.changes);
        }
    }
}

#[test]
fn a_ramp_is_climbed_and_left_once() {
    let load = |second: f64| 0.5 + f64::min(second, 3600.0 - second) / 100.0;
    for play in plays() {
        let course = play.run(HOUR, 20.0, load);
        let turns = if play.is_smooth() { 7 } else { 13 };
        assert!(course.turns() <= turns, "{play:?} {:?}", course.changes);
        assert!(course.changes.len() <= 50, "{play:?} {:?}", course.changes);
        let spare = course.mean_within(0..HOUR) / 9.5;
        assert!((1.0..1.9).contains(&spare), "{play:?} {spare}");
        // At any time the backlog is cleared in a few times the time that it should take.
        let undone = course.undone.iter().copied().max().unwrap_or(0) as f64;
        let seconds = undone * play.tasks.mean() / 18.5;
        assert!(seconds <= 3.0 * CLEAR_WITHIN as f64, "{play:?} {seconds}");
    }
}

#[test]
fn a_burst_is_cleared_in_time_and_its_workers_go() {
    // Ten minutes' work of one worker comes within ten seconds, twice.
    let load = |second: f64| match second % 1800.0 {
        600.0..610.0 => 60.0,
        _ => 0.3,
    };
    for play in plays() {
        let course = play.run(HOUR, 60.0, load);
        let turns = if play.is_smooth() { 6 } else { 12 };
        assert!(course.turns() <= turns, "{play:?} {:?}", course.changes);
        assert!(course.changes.len() <= 40, "{play:?} {:?}", course.changes);
        let late = course.cleared(610, play.few());
        assert!(
            late <= play.patience(),
            "{play:?} {late} {:?}",
            course.changes
        );
        assert!(
            course.mean_within(0..HOUR) <= 6.0,
            "{play:?} {:?}",
            course.changes
        );
        assert!(
            course.most_within(1500..1800) <= 3,
            "{play:?} {:?}",
            course.changes
        );
    }
}

#[test]
fn slow_waves_are_followed_and_fast_ones_are_not() {
    for (period, turns_max) in [(60.0, 2), (1200.0, 12)] {
        let load = |second: f64| 8.0 + 6.0 * f64::sin(second / period * TAU);
        for play in plays() {
            let course = play.run(HOUR, 20.0, load);
            let turns_max = if play.is_smooth() { turns_max } else { 14 };
            assert!(
                course.turns() <= turns_max,
                "{play:?} {period} {:?}",
                course.changes
            );
            assert!(
                course.changes.len() <= 85,
                "{play:?} {period} {:?}",
                course.changes
            );
            let spare = course.mean_within(600..HOUR) / 8.0;
            assert!((1.0..3.0).contains(&spare), "{play:?} {period} {spare}");
        }
    }
}

#[test]
fn messages_of_one_key_do_not_make_workers_that_idle() {
    for play in plays() {
        let course = Play { keys: 1, ..play }.run(HOUR / 2, 10.0, |_| 10.0);
        assert!(
            course.most_within(0..HOUR / 2) <= 2,
            "{play:?} {:?}",
            course.changes
        );
    }
}
