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
pub(crate) struct OwnerSnapshot {
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
struct OwnerObservations {
    heartbeat: i64,
    /// Time for which the heartbeat has not changed.
    still: Duration,
    /// Time for which its lock has been free, if it is.
    free: Option<Duration>,
}

impl OwnerObservations {
    fn of(snapshot: &OwnerSnapshot) -> Self {
        Self {
            heartbeat: snapshot.heartbeat,
            still: Duration::ZERO,
            free: snapshot.free.then_some(Duration::ZERO),
        }
    }

    /// Adds an observation after that time.
    fn with(self, snapshot: &OwnerSnapshot, after: Duration) -> Self {
        let free = self.free.map_or(Duration::ZERO, |so_far| so_far + after);
        Self {
            still: self.still + after,
            free: snapshot.free.then_some(free),
            ..self
        }
    }

    /// Returns whether the owner is gone. If only the clock was changed, an owner with a stale heartbeat
    /// would have written the next one by now.
    fn is_gone(self, snapshot: &OwnerSnapshot) -> bool {
        let next_beat = snapshot.lease / BEATS_PER_LEASE + GRACE;
        self.free.is_some_and(|free| free >= GRACE)
            || self.still >= snapshot.lease
            || snapshot.stale && self.still >= next_beat
    }
}

/// Observations of each other owner so far.
#[derive(Debug, Default)]
pub(crate) struct OwnerWatch {
    watched: HashMap<i64, OwnerObservations>,
}

impl OwnerWatch {
    /// Counts the time `since` the last check, and returns the owners that are gone.
    pub(crate) fn observe(
        &mut self,
        seen: &[OwnerSnapshot],
        since: Duration,
    ) -> Vec<OwnerSnapshot> {
        let after = since.min(COUNTED_MAX);
        let observe = |snapshot: &OwnerSnapshot| {
            let before = self.watched.get(&snapshot.owner);
            let unchanged = before.filter(|before| before.heartbeat == snapshot.heartbeat);
            let now = unchanged.map_or_else(
                || OwnerObservations::of(snapshot),
                |one| one.with(snapshot, after),
            );
            (snapshot.owner, now)
        };
        let watched = seen.iter().map(observe).collect();
        self.watched = watched;
        let gone = |snapshot: &&OwnerSnapshot| {
            let watched = self.watched.get(&snapshot.owner);
            watched.is_some_and(|watched| watched.is_gone(snapshot))
        };
        seen.iter().filter(gone).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: Duration = Duration::from_millis(500);
    const LEASE: Duration = Duration::from_secs(30);

    fn snapshot(heartbeat: i64, free: bool, stale: bool) -> OwnerSnapshot {
        OwnerSnapshot {
            owner: 1,
            heartbeat,
            lease: LEASE,
            free,
            stale,
        }
    }

    /// Returns the time for which such an owner is observed until it counts as gone.
    fn watched(snapshot: OwnerSnapshot) -> Duration {
        let mut watch = OwnerWatch::default();
        let mut looks = 0;
        while watch.observe(&[snapshot], LOOK).is_empty() {
            looks += 1;
        }
        LOOK * looks
    }

    #[test]
    fn who_has_no_lock_is_gone_soon_and_whose_heart_stands_still_later() {
        assert_eq!(watched(snapshot(7, true, false)), GRACE);
        let next_beat = LEASE / BEATS_PER_LEASE + GRACE;
        assert_eq!(watched(snapshot(7, false, true)), next_beat);
        assert_eq!(watched(snapshot(7, false, false)), LEASE);
    }

    #[test]
    fn a_clock_that_is_set_makes_nobody_absent() {
        let mut watch = OwnerWatch::default();
        // The heartbeat continues, but is stale at each check.
        let looks_per_beat = LEASE.as_millis() / 4 / LOOK.as_millis();
        for look in 0..200 {
            let beats = look / i64::try_from(looks_per_beat).unwrap();
            assert_eq!(watch.observe(&[snapshot(beats, false, true)], LOOK), []);
        }
    }

    #[test]
    fn one_sign_of_life_begins_the_count_anew() {
        let mut watch = OwnerWatch::default();
        for round in 0..20 {
            // The lock is held at every fourth check, and a heartbeat comes with every eighth.
            let present = snapshot(round / 8, round % 4 != 0, false);
            assert_eq!(watch.observe(&[present], LOOK), [], "round {round}");
        }
    }

    #[test]
    fn the_observers_own_absence_is_held_against_nobody() {
        let mut watch = OwnerWatch::default();
        let hour = Duration::from_secs(3600);
        let absent = snapshot(7, true, true);
        watch.observe(&[absent], LOOK);
        assert_eq!(watch.observe(&[absent], hour), []);
        assert_eq!(watch.observe(&[], LOOK), []);
        assert!(
            watch.watched.is_empty(),
            "those that have left are forgotten"
        );
    }
}
