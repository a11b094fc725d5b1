//! How many fast messages one worker is given before the next is woken. Waking a worker costs more
//! than the work on a small message, so messages are packed as long as that makes nobody wait. Pure.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// The most messages that are given to one worker in a run, as a logarithm: 8. What is in a pipe
/// can't be called back, should the first of them be slow after all; and most of what a wake-up
/// costs is saved by then.
const PACKED_MAX_LOG2: usize = 3;
/// So many runs are watched at once, the last ones.
const WATCHED_MAX: usize = 1024;
/// An answer that takes as long as this is a slow one: nobody should wait behind it.
const SLOW: Duration = Duration::from_millis(50);
/// After a slow answer so many fast ones must come, one after the other, before any are packed.
const CALM_AFTER: u32 = 10_000;
/// So many runs of a length tell how long one takes.
const RUNS_TOLD: u32 = 32;
/// Of so many runs one is shorter and one is longer than the others, to compare.
const RUNS_COMPARED: u32 = 8;
/// A run of twice the length may take so much longer, as a logarithm: 1.25 times.
const LONGER_MAX: f64 = 0.22;
/// One of half the length is better if this one takes so much longer: 1.5 times.
const SHORTER_FROM: f64 = 0.41;

/// How long runs of one length take: the mean of the logarithms, since a few that were held up by
/// something else must not count for more than all others.
#[derive(Debug, Clone, Copy, Default)]
struct Told {
    runs: u32,
    log_micros: f64,
}

impl Told {
    fn take_in(&mut self, elapsed: Duration) {
        self.runs = self.runs.saturating_add(1);
        let weight = 1.0 / f64::from(self.runs.min(RUNS_TOLD));
        let micros = elapsed.as_secs_f64() * 1e6;
        self.log_micros += (micros.max(1.0).ln() - self.log_micros) * weight;
    }

    fn is_enough(self) -> bool {
        self.runs >= RUNS_TOLD
    }
}

/// How the messages of a pool are packed.
///
/// A run is what a worker is given from when it has nothing in hand until it has nothing again. If
/// two messages take hardly longer than one, what took the time was not the work but the way there
/// and back, and two may share it; and so on, by twos.
#[derive(Debug, Default)]
pub struct Packing {
    /// Of the length of a run, its logarithm.
    log2: usize,
    told: [Told; PACKED_MAX_LOG2 + 1],
    fast_in_a_row: u32,
    runs: u32,
    /// The runs that may be slow, by the slot of their lane, and when they began.
    watched: VecDeque<(usize, Instant)>,
}

impl Packing {
    /// How many messages the run may have that begins now, in the lane in that slot.
    pub fn begin_run(&mut self, slot: usize, now: Instant) -> usize {
        if self.fast_in_a_row < CALM_AFTER {
            return 1;
        }
        if self.watched.len() == WATCHED_MAX {
            self.watched.pop_front();
        }
        self.watched.push_back((slot, now));
        self.runs = self.runs.wrapping_add(1);
        let log2 = match self.runs % RUNS_COMPARED {
            0 => (self.log2 + 1).min(PACKED_MAX_LOG2),
            1 => self.log2.saturating_sub(1),
            _ => self.log2,
        };
        1 << log2
    }

    /// The most messages that a run may have.
    pub fn most(&self) -> usize {
        if self.fast_in_a_row < CALM_AFTER {
            return 1;
        }
        1 << (self.log2 + 1).min(PACKED_MAX_LOG2)
    }

    /// A message was answered after that time.
    pub fn answered(&mut self, took: Duration) {
        if took >= SLOW {
            *self = Self::default();
        } else {
            self.fast_in_a_row = self.fast_in_a_row.saturating_add(1);
        }
    }

    /// A slow message is known before it is answered: looks at the lanes of runs that began so long
    /// ago. `busy_since` tells since when a lane has been busy with one message.
    pub fn watch(&mut self, now: Instant, busy_since: impl Fn(usize) -> Option<Instant>) {
        let is_old = |(_, begun): &mut (usize, Instant)| *begun + SLOW <= now;
        while let Some((slot, _)) = self.watched.pop_front_if(is_old) {
            if busy_since(slot).is_some_and(|since| since + SLOW <= now) {
                *self = Self::default();
            }
        }
    }

    /// A run of so many messages has taken so long.
    pub fn ran(&mut self, messages: usize, elapsed: Duration) {
        if !messages.is_power_of_two() {
            return;
        }
        let log2 = messages.ilog2() as usize;
        let Some(told) = self.told.get_mut(log2) else {
            return;
        };
        told.take_in(elapsed);
        let longer = |more: Told, fewer: Told| {
            let known = more.is_enough() && fewer.is_enough();
            known.then_some(more.log_micros - fewer.log_micros)
        };
        let at = |log2: usize| self.told.get(log2).copied().unwrap_or_default();
        let now = at(self.log2);
        if longer(at(self.log2 + 1), now).is_some_and(|by| by <= LONGER_MAX) {
            self.log2 += 1;
            self.forget_longer();
        } else if self.log2 > 0
            && longer(now, at(self.log2 - 1)).is_some_and(|by| by >= SHORTER_FROM)
        {
            self.log2 -= 1;
            self.forget_longer();
        }
    }

    /// What longer runs took was under other circumstances.
    fn forget_longer(&mut self) {
        for told in self.told.iter_mut().skip(self.log2 + 1) {
            *told = Told::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MICRO: Duration = Duration::from_micros(1);

    /// A pool whose workers take that for a message, and that for the way there and back.
    fn settle(packing: &mut Packing, messages: u32, each: Duration, way: Duration) -> usize {
        let (now, mut left) = (Instant::now(), messages);
        while left > 0 {
            let run = packing.begin_run(0, now);
            let count = u32::try_from(run).unwrap().min(left);
            left -= count;
            (0..count).for_each(|_| packing.answered(each + way));
            packing.ran(count as usize, way + each * count);
        }
        1 << packing.log2
    }

    #[test]
    fn messages_are_packed_as_long_as_a_run_hardly_takes_longer() {
        let table = [
            (1, 40, 8),
            (1, 2_000, 8),
            (5, 40, 4),
            (10, 40, 2),
            (20, 40, 1),
            (100, 40, 1),
            (100, 4_000, 8),
            (500, 4_000, 4),
            (5_000, 40, 1),
            (60_000, 40, 1),
        ];
        for (each, way, packed) in table {
            let mut packing = Packing::default();
            let got = settle(&mut packing, 100_000, each * MICRO, way * MICRO);
            assert_eq!(got, packed, "{each} µs each, {way} µs there and back");
        }
    }

    #[test]
    fn nothing_is_packed_before_all_have_been_fast_for_long() {
        let (mut packing, now) = (Packing::default(), Instant::now());
        for _ in 0..CALM_AFTER {
            assert_eq!((packing.begin_run(0, now), packing.most()), (1, 1));
            packing.answered(MICRO);
            packing.ran(1, 40 * MICRO);
        }
        assert!(settle(&mut packing, 50_000, MICRO, 40 * MICRO) > 1);
        packing.answered(SLOW);
        assert_eq!((packing.begin_run(0, now), packing.most()), (1, 1));
    }

    #[test]
    fn a_slow_message_is_known_before_it_is_answered() {
        let now = Instant::now();
        let packed = || {
            let mut packing = Packing::default();
            assert_eq!(settle(&mut packing, 60_000, MICRO, 40 * MICRO), 8);
            packing.watched.clear();
            packing.begin_run(3, now);
            packing
        };
        let still = |packing: &mut Packing, at, busy_since| {
            packing.watch(at, |slot| if slot == 3 { busy_since } else { None });
            packing.most() > 1
        };
        assert!(still(&mut packed(), now + SLOW - MICRO, Some(now)));
        assert!(still(&mut packed(), now + SLOW, None));
        assert!(still(&mut packed(), now + SLOW, Some(now + MICRO)));
        assert!(!still(&mut packed(), now + SLOW, Some(now)));
    }

    #[test]
    fn what_is_watched_is_bounded() {
        let mut packing = Packing::default();
        settle(&mut packing, 60_000, MICRO, 40 * MICRO);
        assert!(packing.watched.len() <= WATCHED_MAX);
    }

    #[test]
    fn what_has_become_slower_is_packed_no_more() {
        let mut packing = Packing::default();
        assert_eq!(settle(&mut packing, 100_000, MICRO, 40 * MICRO), 8);
        assert_eq!(settle(&mut packing, 100_000, 1_000 * MICRO, 40 * MICRO), 1);
    }

    proptest! {
        /// A run never takes more than so many times as long as a single message.
        #[test]
        fn nobody_waits_for_long(each in 1u32..40_000, way in 10u32..9_000) {
            let mut packing = Packing::default();
            let packed = settle(&mut packing, 60_000, each * MICRO, way * MICRO);
            let run = way as usize + packed * each as usize;
            prop_assert!(run <= 2 * (way + each) as usize, "{} packed", packed);
        }
    }
}
