//! Time since which the oldest message of a queue has waited, as far as a source can know: not every
//! broker reports when a message was sent, and one that comes again was sent long before it began to
//! wait. Pure, except for the times passed in.

use std::time::{Duration, SystemTime};

/// Knowledge of the age of the messages in a queue.
#[derive(Debug, Default)]
pub struct Oldest {
    /// Everything in the queue arrived after this time.
    none_before: Option<SystemTime>,
    /// Time at which the oldest message was sent, and time since which it has been the oldest. It was in
    /// the queue since then, even if claims that could not take it implied otherwise.
    head: Option<(SystemTime, SystemTime)>,
    /// Time at which messages were first seen there.
    first_seen: Option<SystemTime>,
    /// A time, and the number of messages present then that are not yet handed out.
    mark: Option<(SystemTime, u64)>,
    /// Priority of the messages that have to wait longest.
    lowest_priority: Option<u8>,
}

impl Oldest {
    /// Records that the queue was empty at that time.
    pub fn is_empty(&mut self, at: SystemTime) {
        self.none_before = self.none_before.max(Some(at));
        self.mark = None;
    }

    /// Records that a message was handed out by a queue that delivers in order within each priority. If
    /// it had never been handed out before, the messages behind it were sent later.
    pub fn handed_out(&mut self, priority: u8, sent: Option<SystemTime>, now: SystemTime) {
        let lowest = self.lowest_priority.unwrap_or(priority).min(priority);
        self.lowest_priority = Some(lowest);
        if priority > lowest {
            return;
        }
        self.none_before = self.none_before.max(sent.min(Some(now)));
        if let Some((at, left)) = &mut self.mark {
            *left -= 1;
            if *left == 0 {
                self.none_before = self.none_before.max(Some(*at));
                self.mark = None;
            }
        }
    }

    /// Records the number of messages `now`, and the time at which the oldest was sent, if known. Returns
    /// the earliest time since which it can have waited; if nothing is known, the time at which it was
    /// seen.
    pub fn since(
        &mut self,
        depth: u64,
        sent: Option<SystemTime>,
        now: SystemTime,
    ) -> Option<SystemTime> {
        if depth == 0 {
            self.is_empty(now);
            self.head = None;
            return None;
        }
        self.mark.get_or_insert((now, depth));
        let first_seen = *self.first_seen.get_or_insert(now);
        self.head = sent.map(|sent| match self.head {
            Some((before, since)) if is_near(sent, before) => (sent, since),
            _ => (sent, now),
        });
        let was_seen = self.head.map_or(now, |(_, since)| since);
        let none_before = self.none_before.map(|none| none.min(was_seen));
        let known = sent.max(none_before);
        Some(known.unwrap_or(first_seen).min(now))
    }
}

/// Returns whether the two are one moment, reported twice by a foreign clock.
fn is_near(a: SystemTime, b: SystemTime) -> bool {
    let apart = a.duration_since(b).or_else(|_| b.duration_since(a));
    apart.is_ok_and(|apart| apart < Duration::from_secs(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn it_was_sent_at_its_time_or_came_after_the_queue_was_empty() {
        let mut oldest = Oldest::default();
        assert_eq!(oldest.since(3, Some(at(50)), at(100)), Some(at(50)));
        oldest.is_empty(at(110));
        // It comes again, and has not waited since it was sent.
        assert_eq!(oldest.since(1, Some(at(40)), at(120)), Some(at(110)));
        assert_eq!(oldest.since(0, None, at(130)), None);
        assert_eq!(oldest.since(1, Some(at(125)), at(140)), Some(at(130)));
        assert_eq!(oldest.since(1, Some(at(135)), at(140)), Some(at(135)));
        // The sender's clock is ahead.
        assert_eq!(oldest.since(1, Some(at(999)), at(140)), Some(at(140)));
    }

    #[test]
    fn what_no_claim_gets_has_waited_since_it_was_seen() {
        let mut oldest = Oldest::default();
        oldest.is_empty(at(100));
        for now in [110, 120, 130] {
            let since = oldest.since(1, Some(at(50)), at(now));
            assert_eq!(since, Some(at(if now == 110 { 100 } else { 110 })));
            oldest.is_empty(at(now + 5));
        }
    }

    #[test]
    fn without_any_sign_it_has_waited_since_it_was_seen() {
        let mut oldest = Oldest::default();
        assert_eq!(oldest.since(3, None, at(100)), Some(at(100)));
        assert_eq!(oldest.since(5, None, at(200)), Some(at(100)));
    }

    #[test]
    fn what_was_there_is_gone_once_as_many_were_handed_out() {
        let mut oldest = Oldest::default();
        oldest.since(2, None, at(100));
        oldest.handed_out(0, None, at(999));
        assert_eq!(oldest.since(3, None, at(110)), Some(at(100)));
        oldest.handed_out(0, None, at(999));
        oldest.handed_out(0, Some(at(90)), at(999));
        assert_eq!(oldest.since(3, None, at(120)), Some(at(100)));
        oldest.handed_out(0, Some(at(115)), at(999));
        assert_eq!(oldest.since(2, None, at(130)), Some(at(115)));
    }

    #[test]
    fn no_sender_makes_it_young_for_ever() {
        let mut oldest = Oldest::default();
        oldest.handed_out(0, Some(at(9999)), at(100));
        assert_eq!(oldest.since(2, None, at(200)), Some(at(100)));
    }

    #[test]
    fn what_is_urgent_says_nothing_of_what_is_not() {
        let mut oldest = Oldest::default();
        oldest.since(1, None, at(100));
        oldest.handed_out(0, None, at(999));
        oldest.since(1, None, at(200));
        for _ in 0..9 {
            oldest.handed_out(5, Some(at(290)), at(999));
        }
        assert_eq!(oldest.since(1, None, at(300)), Some(at(100)));
        oldest.handed_out(0, None, at(999));
        assert_eq!(oldest.since(1, None, at(310)), Some(at(200)));
    }
}
