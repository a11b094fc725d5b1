//! The delivery tags of one channel: those that are held, those that are to be acknowledged, and the minimum
//! number of methods for that. Pure: nothing here communicates with a broker.
//!
//! Tags count up from 1. An acknowledgement with `multiple` covers *everything* up to its tag, so it is only
//! used for the run of settled tags that begins at the lowest outstanding one.

use std::collections::{BTreeMap, BTreeSet};

/// The tags of one channel that are outstanding at the broker: tags that were acknowledged or given back are
/// removed.
#[derive(Debug)]
pub(crate) struct Ledger<T> {
    /// Held deliveries, each with its value.
    held: BTreeMap<u64, T>,
    /// Deliveries to be acknowledged.
    settled: BTreeSet<u64>,
    /// Tags that were not received yet although a later one was: two consumers of a channel are read one
    /// after the other.
    missing: BTreeSet<u64>,
    /// Tag above all received ones.
    next: u64,
}

/// An acknowledgement to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ack {
    pub(crate) tag: u64,
    /// Covers every outstanding tag up to this one.
    pub(crate) multiple: bool,
}

impl<T> Ledger<T> {
    /// Creates the ledger of a channel that has delivered nothing.
    pub(crate) fn new() -> Self {
        Self {
            held: BTreeMap::new(),
            settled: BTreeSet::new(),
            missing: BTreeSet::new(),
            next: 1,
        }
    }

    /// Number of held deliveries, without the settled ones.
    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }

    /// Records a delivery. Returns it if its tag is invalid.
    pub(crate) fn receive(&mut self, tag: u64, value: T) -> Option<T> {
        if tag >= self.next {
            self.missing.extend(self.next..tag);
            self.next = tag + 1;
        } else if !self.missing.remove(&tag) {
            return Some(value);
        }
        self.held.insert(tag, value);
        None
    }

    /// Value of a held tag.
    pub(crate) fn get(&self, tag: u64) -> Option<&T> {
        self.held.get(&tag)
    }

    /// Mutable value of a held tag.
    pub(crate) fn get_mut(&mut self, tag: u64) -> Option<&mut T> {
        self.held.get_mut(&tag)
    }

    /// Every held delivery with its tag, the lowest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.held.iter().map(|(tag, value)| (*tag, value))
    }

    /// Settles a delivery: it is to be acknowledged.
    pub(crate) fn settle(&mut self, tag: u64) -> Option<T> {
        let value = self.held.remove(&tag)?;
        self.settled.insert(tag);
        Some(value)
    }

    /// Removes a delivery that was given back.
    pub(crate) fn give_back(&mut self, tag: u64) -> Option<T> {
        self.held.remove(&tag)
    }

    /// Returns whether any delivery waits to be acknowledged.
    pub(crate) fn has_settled(&self) -> bool {
        !self.settled.is_empty()
    }

    /// Number of deliveries that wait to be acknowledged.
    pub(crate) fn settled(&self) -> usize {
        self.settled.len()
    }

    /// Number of unacknowledged deliveries, as the broker counts them.
    pub(crate) fn unacknowledged(&self) -> usize {
        self.held.len() + self.settled.len()
    }

    /// Returns a tag above all received ones.
    pub(crate) fn next_tag(&self) -> u64 {
        self.next
    }

    /// Acknowledges the run at the beginning, and the others according to `others`.
    pub(crate) fn acks(&mut self, others: Others, write: &mut Vec<Ack>) {
        let held = self.held.keys().next();
        let first_open = held.into_iter().chain(self.missing.first()).min();
        let later = first_open.map_or_else(BTreeSet::new, |open| self.settled.split_off(open));
        let run = std::mem::replace(&mut self.settled, later);
        write.extend(run.last().map(|tag| Ack {
            tag: *tag,
            multiple: run.len() > 1,
        }));
        if others == Others::Single {
            let single = std::mem::take(&mut self.settled).into_iter();
            write.extend(single.map(|tag| Ack {
                tag,
                multiple: false,
            }));
        }
    }
}

/// Treatment of settled tags behind one that is still held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Others {
    /// They wait: the tag before may be settled soon, and then one acknowledgement covers all.
    Wait,
    /// Each is acknowledged on its own.
    Single,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn acks<T>(ledger: &mut Ledger<T>, others: Others) -> Vec<(u64, bool)> {
        let mut acks = Vec::new();
        ledger.acks(others, &mut acks);
        acks.iter().map(|ack| (ack.tag, ack.multiple)).collect()
    }

    fn holding(tags: std::ops::RangeInclusive<u64>) -> Ledger<()> {
        let mut ledger = Ledger::new();
        for tag in tags {
            assert_eq!(ledger.receive(tag, ()), None);
        }
        ledger
    }

    #[test]
    fn a_run_is_one_word_and_never_goes_beyond_what_is_held() {
        let mut ledger = holding(1..=6);
        for tag in [1, 2, 4, 6] {
            ledger.settle(tag);
        }
        assert_eq!(acks(&mut ledger, Others::Wait), [(2, true)]);
        assert_eq!(acks(&mut ledger, Others::Wait), []);
        ledger.settle(3);
        assert_eq!(acks(&mut ledger, Others::Single), [(4, true), (6, false)]);
        ledger.settle(5);
        assert_eq!(acks(&mut ledger, Others::Wait), [(5, false)]);
        assert!(ledger.held() == 0 && !ledger.has_settled());
    }

    #[test]
    fn what_was_given_back_is_not_in_the_way() {
        let mut ledger = holding(1..=3);
        ledger.give_back(1);
        ledger.settle(2);
        ledger.give_back(3);
        assert_eq!(acks(&mut ledger, Others::Wait), [(2, false)]);
        assert_eq!(ledger.settle(3), None, "it is none of ours");
    }

    #[test]
    fn a_tag_that_was_not_seen_yet_is_held_by_the_broker() {
        let mut ledger = Ledger::new();
        ledger.receive(2, ());
        ledger.settle(2);
        assert_eq!(acks(&mut ledger, Others::Wait), []);
        ledger.receive(1, ());
        ledger.settle(1);
        assert_eq!(acks(&mut ledger, Others::Wait), [(2, true)]);
        assert_eq!(ledger.receive(2, ()), Some(()), "twice the same tag");
    }

    /// A model of a broker that follows the specification.
    #[derive(Default)]
    struct Broker {
        last: u64,
        outstanding: BTreeSet<u64>,
    }

    impl Broker {
        fn apply(&mut self, ack: Ack) -> Result<Vec<u64>, TestCaseError> {
            prop_assert!(self.outstanding.contains(&ack.tag), "unknown tag {ack:?}");
            let covered: Vec<u64> = self
                .outstanding
                .iter()
                .copied()
                .filter(|tag| *tag == ack.tag || (ack.multiple && *tag < ack.tag))
                .collect();
            self.outstanding.retain(|tag| !covered.contains(tag));
            Ok(covered)
        }
    }

    #[derive(Debug, Clone)]
    enum Step {
        Deliver(u8, bool),
        Settle(usize),
        GiveBack(usize),
        Write(bool),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (1u8..8, any::<bool>()).prop_map(|(count, swapped)| Step::Deliver(count, swapped)),
            (0usize..64).prop_map(Step::Settle),
            (0usize..64).prop_map(Step::Settle),
            (0usize..64).prop_map(Step::GiveBack),
            any::<bool>().prop_map(Step::Write),
        ];
        proptest::collection::vec(step, 0..200)
    }

    proptest! {
        #[test]
        fn exactly_what_is_settled_is_acknowledged(steps in steps()) {
            let (mut ledger, mut broker) = (Ledger::new(), Broker::default());
            let (mut held, mut settled) = (Vec::new(), BTreeSet::new());
            for step in steps.into_iter().chain([Step::Write(true)]) {
                match step {
                    Step::Deliver(count, swapped) => {
                        let mut tags: Vec<u64> = (broker.last + 1..=broker.last + u64::from(count)).collect();
                        broker.last += u64::from(count);
                        broker.outstanding.extend(&tags);
                        if swapped {
                            tags.reverse();
                        }
                        for tag in tags {
                            prop_assert_eq!(ledger.receive(tag, tag), None);
                            held.push(tag);
                        }
                    }
                    Step::Settle(at) if at < held.len() => {
                        let tag = held.swap_remove(at);
                        prop_assert_eq!(ledger.settle(tag), Some(tag));
                        settled.insert(tag);
                    }
                    Step::GiveBack(at) if at < held.len() => {
                        let tag = held.swap_remove(at);
                        prop_assert_eq!(ledger.give_back(tag), Some(tag));
                        broker.outstanding.remove(&tag);
                    }
                    Step::Settle(_) | Step::GiveBack(_) => {}
                    Step::Write(all) => {
                        let mut acks = Vec::new();
                        ledger.acks(if all { Others::Single } else { Others::Wait }, &mut acks);
                        for ack in acks {
                            for tag in broker.apply(ack)? {
                                prop_assert!(settled.remove(&tag), "{} is not settled", tag);
                            }
                        }
                        prop_assert!(!all || settled.is_empty());
                    }
                }
                prop_assert_eq!(ledger.held(), held.len());
                prop_assert_eq!(ledger.iter().count(), held.len());
            }
            let left: BTreeSet<u64> = held.into_iter().collect();
            prop_assert_eq!(left, broker.outstanding);
        }
    }
}
