//! Detection of owners that are gone: a pure count over checks on one unbroken connection. After the
//! server or the observer was away, every lock is free and every heartbeat old, so each owner first gets
//! time to return. The server's clock alone decides nothing, since it may be changed.

use std::collections::HashMap;
use std::time::Duration;

/// Time for which an owner's lock may be free while it is watched.
pub(crate) const GRACE: Duration = Duration::from_secs(2);

/// Number of heartbeats in a lease.
pub(super) const BEATS_PER_LEASE: u32 = 4;

/// Maximum time counted between two checks, however long the observer itself was stopped.
const COUNTED_MAX: Duration = Duration::from_secs(1);

/// Another owner as read from the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sight {
    pub(crate) owner: i64,
    /// Number of heartbeats so far.
    pub(crate) heartbeat: i64,
    /// Maximum time without a heartbeat.
    pub(crate) lease: Duration,
    /// True if no session holds its lock.
    pub(crate) free: bool,
    /// True if by the server's clock its last heartbeat is older than its lease.
    pub(crate) stale: bool,
}

/// Observations of an owner since its last heartbeat.
#[derive(Debug, Clone, Copy, Default)]
struct Watched {
    heartbeat: i64,
    /// Time for which the heartbeat has stood still.
    still: Duration,
    /// Time for which its lock has been free, if it is.
    free: Option<Duration>,
}

impl Watched {
    fn of(sight: &Sight) -> Self {
        Self {
            heartbeat: sight.heartbeat,
            still: Duration::ZERO,
            free: sight.free.then_some(Duration::ZERO),
        }
    }

    /// Adds an observation after that time.
    fn again(self, sight: &Sight, after: Duration) -> Self {
        let free = self.free.map_or(Duration::ZERO, |so_far| so_far + after);
        Self {
            still: self.still + after,
            free: sight.free.then_some(free),
            ..self
        }
    }

    /// Returns whether the owner is gone. If only the clock was changed, an owner with a stale heartbeat
    /// would have written the next one by now.
    fn is_gone(self, sight: &Sight) -> bool {
        let next_beat = sight.lease / BEATS_PER_LEASE + GRACE;
        self.free.is_some_and(|free| free >= GRACE)
            || self.still >= sight.lease
            || sight.stale && self.still >= next_beat
    }
}

/// Observations of each other owner so far.
#[derive(Debug, Default)]
pub(crate) struct Vigil {
    watched: HashMap<i64, Watched>,
}

impl Vigil {
    /// Counts the time `since` the last check, and returns the owners that are gone.
    pub(crate) fn observe(&mut self, seen: &[Sight], since: Duration) -> Vec<Sight> {
        let after = since.min(COUNTED_MAX);
        let watch = |sight: &Sight| {
            let before = self.watched.get(&sight.owner);
            let unchanged = before.filter(|before| before.heartbeat == sight.heartbeat);
            let now = unchanged.map_or_else(|| Watched::of(sight), |one| one.again(sight, after));
            (sight.owner, now)
        };
        let watched = seen.iter().map(watch).collect();
        self.watched = watched;
        let gone = |sight: &&Sight| {
            let watched = self.watched.get(&sight.owner);
            watched.is_some_and(|watched| watched.is_gone(sight))
        };
        seen.iter().filter(gone).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: Duration = Duration::from_millis(500);
    const LEASE: Duration = Duration::from_secs(30);

    fn sight(heartbeat: i64, free: bool, stale: bool) -> Sight {
        Sight {
            owner: 1,
            heartbeat,
            lease: LEASE,
            free,
            stale,
        }
    }

    /// Returns the time for which it is watched until it is gone.
    fn watched(sight: Sight) -> Duration {
        let mut vigil = Vigil::default();
        let mut looks = 0;
        while vigil.observe(&[sight], LOOK).is_empty() {
            looks += 1;
        }
        LOOK * looks
    }

    #[test]
    fn who_has_no_lock_is_gone_soon_and_whose_heart_stands_still_later() {
        assert_eq!(watched(sight(7, true, false)), GRACE);
        let next_beat = LEASE / BEATS_PER_LEASE + GRACE;
        assert_eq!(watched(sight(7, false, true)), next_beat);
        assert_eq!(watched(sight(7, false, false)), LEASE);
    }

    #[test]
    fn a_clock_that_is_set_makes_nobody_absent() {
        let mut vigil = Vigil::default();
        // The heartbeat continues, but is stale at each check.
        let looks_per_beat = LEASE.as_millis() / 4 / LOOK.as_millis();
        for look in 0..200 {
            let beats = look / i64::try_from(looks_per_beat).unwrap();
            assert_eq!(vigil.observe(&[sight(beats, false, true)], LOOK), []);
        }
    }

    #[test]
    fn one_sign_of_life_begins_the_count_anew() {
        let mut vigil = Vigil::default();
        for round in 0..20 {
            // The lock is held at every fourth check, and a heartbeat comes with every eighth.
            let present = sight(round / 8, round % 4 != 0, false);
            assert_eq!(vigil.observe(&[present], LOOK), [], "round {round}");
        }
    }

    #[test]
    fn the_observers_own_absence_is_held_against_nobody() {
        let mut vigil = Vigil::default();
        let hour = Duration::from_secs(3600);
        let absent = sight(7, true, true);
        vigil.observe(&[absent], LOOK);
        assert_eq!(vigil.observe(&[absent], hour), []);
        assert_eq!(vigil.observe(&[], LOOK), []);
        assert!(
            vigil.watched.is_empty(),
            "those that have left are forgotten"
        );
    }
}
