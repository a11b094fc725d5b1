//! How much that is published is in flight, and for how long. Pure.

use std::collections::HashMap;

use tokio::time::Instant;

/// The most messages in flight at once.
const COUNT_MAX: usize = 1024;
/// The most bytes of bodies in flight at once, but for a single message. What is more than the
/// library's buffer, 4 MiB, would still go out when the broker has closed the channel, and then it
/// ends the whole connection.
const BYTES_MAX: usize = 2 << 20;

/// What is in flight, by its number.
#[derive(Debug, Default)]
pub(crate) struct Aloft {
    flights: HashMap<u64, Flight>,
    /// Of those that are not silent. The broker has read the others long ago, and nobody is to wait
    /// for a queue that does not answer.
    count: usize,
    bytes: usize,
}

#[derive(Debug, Clone, Copy)]
struct Flight {
    bytes: usize,
    since: Instant,
    is_silent: bool,
}

impl Aloft {
    /// Whether one of so many bytes may join.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.count == 0 || (self.count < COUNT_MAX && self.bytes + bytes <= BYTES_MAX)
    }

    pub(crate) fn take_off(&mut self, id: u64, bytes: usize, now: Instant) {
        self.land(id);
        self.count += 1;
        self.bytes += bytes;
        let flight = Flight {
            bytes,
            since: now,
            is_silent: false,
        };
        self.flights.insert(id, flight);
    }

    /// It has come down, or nobody waits for it.
    pub(crate) fn land(&mut self, id: u64) {
        self.be_silent(id);
        self.flights.remove(&id);
    }

    /// The broker has said nothing of it for long.
    pub(crate) fn be_silent(&mut self, id: u64) {
        if let Some(flight) = self.flights.get_mut(&id)
            && !flight.is_silent
        {
            flight.is_silent = true;
            self.count -= 1;
            self.bytes -= flight.bytes;
        }
    }

    pub(crate) fn is_silent(&self, id: u64) -> bool {
        self.flights.get(&id).is_some_and(|flight| flight.is_silent)
    }

    /// When it took off; none if it is not in flight.
    pub(crate) fn since(&self, id: u64) -> Option<Instant> {
        self.flights.get(&id).map(|flight| flight.since)
    }

    /// The broker has not listened up to now.
    pub(crate) fn begin_anew(&mut self, now: Instant) {
        for flight in self.flights.values_mut() {
            flight.since = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_silent_or_forgotten_leaves_its_room_to_others() {
        let (mut aloft, now) = (Aloft::default(), Instant::now());
        let count = u64::try_from(COUNT_MAX).unwrap();
        for id in 0..count {
            assert!(aloft.has_room(1));
            aloft.take_off(id, 1, now);
        }
        assert!(!aloft.has_room(1));
        aloft.be_silent(0);
        aloft.be_silent(0);
        assert!(aloft.is_silent(0) && aloft.has_room(1));
        aloft.take_off(count, 1, now);
        assert!(!aloft.has_room(1));
        // Silent or not, and told twice.
        for id in [0, 0, 1, 1] {
            aloft.land(id);
        }
        assert_eq!((aloft.count, aloft.bytes), (COUNT_MAX - 1, COUNT_MAX - 1));
        assert!(!aloft.has_room(BYTES_MAX));
        for id in 0..=count {
            aloft.land(id);
        }
        assert_eq!((aloft.count, aloft.bytes), (0, 0));
        assert!(aloft.has_room(BYTES_MAX + 1), "one of any size, alone");
    }

    #[test]
    fn only_what_is_in_flight_is_waited_for() {
        let (mut aloft, now) = (Aloft::default(), Instant::now());
        aloft.take_off(1, 0, now);
        let later = now + std::time::Duration::from_mins(1);
        aloft.begin_anew(later);
        assert_eq!((aloft.since(1), aloft.since(2)), (Some(later), None));
        // Sent again, it is as any other.
        aloft.be_silent(1);
        aloft.take_off(1, 0, later);
        assert!(!aloft.is_silent(1));
    }
}
