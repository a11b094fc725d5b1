//! Detection of owners whose heartbeat has stopped: a pure count, by the observer's own clock and over
//! its own successful heartbeats only, so that time in which no process could write is not counted.

use std::collections::HashMap;
use std::time::Duration;

/// An owner's row, as another owner reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HeartbeatRow {
    pub(crate) owner: i64,
    /// Number of heartbeats so far.
    pub(crate) heartbeat: i64,
    /// Maximum time without a heartbeat.
    pub(crate) lease: Duration,
}

/// Time for which each other owner's heartbeat has stood still.
#[derive(Debug, Default)]
pub(crate) struct HeartbeatWatch {
    last: HashMap<i64, (i64, Duration)>,
}

impl HeartbeatWatch {
    /// Adds the time `since` the observer's last successful heartbeat, and returns the owners whose
    /// heartbeat has stood still for their lease.
    ///
    /// One observation counts at most half a lease, however long ago the last one was: if the whole
    /// machine, or only the observer, was stopped, the others get time for a heartbeat.
    pub(crate) fn observe(&mut self, beats: &[HeartbeatRow], since: Duration) -> Vec<HeartbeatRow> {
        let last = beats.iter().map(|beat| {
            let still = match self.last.get(&beat.owner) {
                Some((heartbeat, still)) if *heartbeat == beat.heartbeat => {
                    *still + since.min(beat.lease / 2)
                }
                _ => Duration::ZERO,
            };
            (beat.owner, (beat.heartbeat, still))
        });
        self.last = last.collect();
        let lost = |beat: &&HeartbeatRow| self.last[&beat.owner].1 >= beat.lease;
        beats.iter().filter(lost).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(8);
    const EVERY: Duration = Duration::from_secs(2);

    fn beat(owner: i64, heartbeat: i64) -> HeartbeatRow {
        HeartbeatRow {
            owner,
            heartbeat,
            lease: LEASE,
        }
    }

    #[test]
    fn a_heart_that_stands_still_for_the_lease_is_lost() {
        let mut heartbeats = HeartbeatWatch::default();
        for _ in 0..4 {
            assert_eq!(heartbeats.observe(&[beat(1, 7)], EVERY), []);
        }
        assert_eq!(heartbeats.observe(&[beat(1, 7)], EVERY), [beat(1, 7)]);
    }

    #[test]
    fn one_beat_begins_the_count_anew() {
        let mut heartbeats = HeartbeatWatch::default();
        for round in 0..20 {
            let beats = [beat(1, round / 4), beat(2, round)];
            assert_eq!(heartbeats.observe(&beats, EVERY), [], "round {round}");
        }
    }

    #[test]
    fn a_long_stop_of_the_observer_is_held_against_nobody() {
        let mut heartbeats = HeartbeatWatch::default();
        let hour = Duration::from_secs(3600);
        heartbeats.observe(&[beat(1, 7)], EVERY);
        assert_eq!(heartbeats.observe(&[beat(1, 7)], hour), []);
        assert_eq!(heartbeats.observe(&[beat(1, 8)], EVERY), []);
    }

    #[test]
    fn each_by_its_own_lease() {
        let mut heartbeats = HeartbeatWatch::default();
        let short = HeartbeatRow {
            lease: EVERY * 2,
            ..beat(2, 7)
        };
        let beats = [beat(1, 7), short];
        heartbeats.observe(&beats, EVERY);
        heartbeats.observe(&beats, EVERY);
        assert_eq!(heartbeats.observe(&beats, EVERY), [short]);
    }

    #[test]
    fn those_that_left_are_forgotten() {
        let mut heartbeats = HeartbeatWatch::default();
        heartbeats.observe(&[beat(1, 7)], EVERY);
        heartbeats.observe(&[], EVERY);
        assert!(heartbeats.last.is_empty());
    }
}
