//! Who of the other owners is gone: a pure count, over looks on one unbroken connection only. When the
//! server was away, or we were, every lock is free and every heartbeat old: so each owner has time to
//! be back before that is held against it.

use std::collections::HashMap;
use std::time::Duration;

/// How long an owner may be absent while it is watched.
pub(crate) const GRACE: Duration = Duration::from_secs(2);

/// One interval between two looks counts no more, however long the observer itself was stopped.
const COUNTED_MAX: Duration = Duration::from_secs(1);

/// What is seen of another owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sight {
    pub(crate) owner: i64,
    /// How often its heart has beaten.
    pub(crate) heartbeat: i64,
    /// Nobody holds its lock.
    pub(crate) free: bool,
    /// By the server's clock its last heartbeat is older than its lease.
    pub(crate) stale: bool,
}

impl Sight {
    fn is_absent(&self) -> bool {
        self.free || self.stale
    }
}

/// For how long each other owner has been absent so far.
#[derive(Debug, Default)]
pub(crate) struct Vigil {
    absent: HashMap<i64, (i64, Duration)>,
}

impl Vigil {
    /// Counts the time `since` the last look, and returns the owners that are gone.
    pub(crate) fn observe(&mut self, seen: &[Sight], since: Duration) -> Vec<Sight> {
        let absent = seen.iter().filter(|sight| sight.is_absent());
        let absent = absent.map(|sight| {
            let so_far = match self.absent.get(&sight.owner) {
                Some((heartbeat, so_far)) if *heartbeat == sight.heartbeat => {
                    *so_far + since.min(COUNTED_MAX)
                }
                _ => Duration::ZERO,
            };
            (sight.owner, (sight.heartbeat, so_far))
        });
        self.absent = absent.collect();
        let gone = |sight: &&Sight| {
            let so_far = self.absent.get(&sight.owner);
            so_far.is_some_and(|(_, so_far)| *so_far >= GRACE)
        };
        seen.iter().filter(gone).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: Duration = Duration::from_millis(500);

    fn sight(heartbeat: i64, free: bool, stale: bool) -> Sight {
        Sight {
            owner: 1,
            heartbeat,
            free,
            stale,
        }
    }

    #[test]
    fn who_is_absent_for_the_grace_is_gone() {
        for absent in [sight(7, true, false), sight(7, false, true)] {
            let mut vigil = Vigil::default();
            for _ in 0..4 {
                assert_eq!(vigil.observe(&[absent], LOOK), []);
            }
            assert_eq!(vigil.observe(&[absent], LOOK), [absent]);
        }
    }

    #[test]
    fn one_sign_of_life_begins_the_count_anew() {
        let mut vigil = Vigil::default();
        for round in 0..20 {
            // Present now and then, or with one more heartbeat.
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
        assert_eq!(vigil.observe(&[sight(8, false, false)], LOOK), []);
        assert!(vigil.absent.is_empty(), "those that are back are forgotten");
    }
}
