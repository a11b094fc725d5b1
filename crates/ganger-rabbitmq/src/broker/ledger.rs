//! The delivery tags of one channel: which are in our hands, which are to be acknowledged, and with
//! how few methods. Pure: nothing here talks to a broker.
//!
//! Tags count up from 1. An acknowledgement with `multiple` covers *everything* up to its tag, so
//! it is only used for the run of settled tags that begins at the lowest one outstanding.

use std::collections::{BTreeMap, VecDeque};

/// The tags of one channel, each with its value.
#[derive(Debug)]
pub(crate) struct Ledger<T> {
    /// Tag of the first of `entries`.
    first: u64,
    entries: VecDeque<Entry<T>>,
    /// Open tags before `first`: kept apart, so that one delivery which takes an hour does not make
    /// us keep all that came after it.
    stragglers: BTreeMap<u64, Entry<T>>,
    /// Tags settled since the last call of [`Ledger::acks`], and not acknowledged yet.
    settled: Vec<u64>,
    /// Number of held entries.
    held: usize,
    /// Maximum number of closed entries kept behind an open one.
    closed_max: usize,
}

/// Default of [`Ledger::closed_max`].
const CLOSED_MAX: usize = 4096;

#[derive(Debug)]
enum Entry<T> {
    /// Not received yet; a later tag came first: two consumers of a channel are read one after the other.
    Unseen,
    Held(T),
    /// To be acknowledged.
    Settled,
    /// Acknowledged on its own, or given back.
    Gone,
}

impl<T> Entry<T> {
    fn held(&self) -> Option<&T> {
        match self {
            Self::Held(value) => Some(value),
            Self::Unseen | Self::Settled | Self::Gone => None,
        }
    }
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
            first: 1,
            entries: VecDeque::new(),
            stragglers: BTreeMap::new(),
            settled: Vec::new(),
            held: 0,
            closed_max: CLOSED_MAX,
        }
    }

    /// Number of held deliveries, without the settled ones.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// Records a delivery. Returns it if its tag is invalid.
    pub(crate) fn receive(&mut self, tag: u64, value: T) -> Option<T> {
        if let Some(index) = self.index(tag) {
            while self.entries.len() <= index {
                self.entries.push_back(Entry::Unseen);
            }
        }
        match self.entry(tag) {
            Some(entry @ Entry::Unseen) => *entry = Entry::Held(value),
            _ => return Some(value),
        }
        self.held += 1;
        self.set_stragglers_apart();
        None
    }

    /// Value of a held tag.
    pub(crate) fn get(&self, tag: u64) -> Option<&T> {
        let entry = match self.index(tag) {
            Some(index) => self.entries.get(index),
            None => self.stragglers.get(&tag),
        };
        entry?.held()
    }

    /// Mutable value of a held tag.
    pub(crate) fn get_mut(&mut self, tag: u64) -> Option<&mut T> {
        match self.entry(tag)? {
            Entry::Held(value) => Some(value),
            Entry::Unseen | Entry::Settled | Entry::Gone => None,
        }
    }

    /// Every held delivery with its tag, the lowest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        let stragglers = self.stragglers.iter().map(|(tag, entry)| (*tag, entry));
        let all = stragglers.chain((self.first..).zip(&self.entries));
        all.filter_map(|(tag, entry)| Some((tag, entry.held()?)))
    }

    /// Settles a delivery: it is to be acknowledged.
    pub(crate) fn settle(&mut self, tag: u64) -> Option<T> {
        let value = self.replace(tag, Entry::Settled)?;
        self.settled.push(tag);
        Some(value)
    }

    /// Removes a delivery that was given back.
    pub(crate) fn give_back(&mut self, tag: u64) -> Option<T> {
        self.replace(tag, Entry::Gone)
    }

    fn replace(&mut self, tag: u64, new: Entry<T>) -> Option<T> {
        let entry = self.entry(tag)?;
        entry.held()?;
        let Entry::Held(value) = std::mem::replace(entry, new) else {
            return None;
        };
        self.held -= 1;
        Some(value)
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
        self.held + self.settled.len()
    }

    /// A tag above all that were seen.
    pub(crate) fn next_tag(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    /// Acknowledges the run at the beginning, and the others as `others` says.
    pub(crate) fn acks(&mut self, others: Others, write: &mut Vec<Ack>) {
        if let Some(ack) = self.ack_run() {
            write.push(ack);
        }
        let mut settled = std::mem::take(&mut self.settled);
        settled.retain(|tag| matches!(self.entry(*tag), Some(Entry::Settled)));
        if others == Others::Single {
            for tag in settled.drain(..) {
                write.push(Ack {
                    tag,
                    multiple: false,
                });
                if let Some(entry) = self.entry(tag) {
                    *entry = Entry::Gone;
                }
            }
        }
        self.settled = settled;
    }

    /// Removes everything at the beginning that is no longer open.
    fn ack_run(&mut self) -> Option<Ack> {
        let mut ack = None;
        while let Some(straggler) = self.stragglers.first_entry() {
            if !extends(&mut ack, *straggler.key(), straggler.get()) {
                return ack;
            }
            straggler.remove();
        }
        while let Some(entry) = self.entries.front() {
            if !extends(&mut ack, self.first, entry) {
                return ack;
            }
            self.entries.pop_front();
            self.first += 1;
        }
        ack
    }

    /// Moves the open tags to the stragglers if too many closed ones are behind them.
    fn set_stragglers_apart(&mut self) {
        if self.entries.len() <= self.closed_max + 2 * self.unacknowledged() {
            return;
        }
        while self.entries.len() > self.closed_max / 2 {
            match self.entries.pop_front() {
                Some(Entry::Gone) | None => {}
                Some(open) => {
                    self.stragglers.insert(self.first, open);
                }
            }
            self.first += 1;
        }
    }

    fn entry(&mut self, tag: u64) -> Option<&mut Entry<T>> {
        match self.index(tag) {
            Some(index) => self.entries.get_mut(index),
            None => self.stragglers.get_mut(&tag),
        }
    }

    fn index(&self, tag: u64) -> Option<usize> {
        usize::try_from(tag.checked_sub(self.first)?).ok()
    }
}

/// Returns whether a run continues with this entry.
fn extends<T>(ack: &mut Option<Ack>, tag: u64, entry: &Entry<T>) -> bool {
    match entry {
        Entry::Held(_) | Entry::Unseen => return false,
        Entry::Gone => {}
        Entry::Settled => {
            *ack = Some(Ack {
                tag,
                multiple: ack.is_some(),
            });
        }
    }
    true
}

/// Treatment of settled tags behind one that is still held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Others {
    /// They wait: the tag before may be settled soon, and one acknowledgement cover all.
    Wait,
    /// Each is acknowledged on its own.
    Single,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

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

    #[test]
    fn one_that_takes_long_does_not_make_the_others_be_remembered() {
        let mut ledger = holding(1..=1);
        for tag in 2..=100_000 {
            ledger.receive(tag, ());
            ledger.settle(tag);
            assert_eq!(acks(&mut ledger, Others::Single), [(tag, false)]);
            assert!(ledger.entries.len() <= CLOSED_MAX + 5);
        }
        assert_eq!(ledger.stragglers.len(), 1);
        ledger.settle(1);
        assert_eq!(acks(&mut ledger, Others::Wait), [(1, false)]);
        assert!(ledger.stragglers.is_empty() && ledger.entries.is_empty());
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
        fn exactly_what_is_settled_is_acknowledged(steps in steps(), closed_max in 1usize..40) {
            let (mut ledger, mut broker) = (Ledger::new(), Broker::default());
            ledger.closed_max = closed_max;
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
