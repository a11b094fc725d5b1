//! Which published messages came back, out of what the library tells. Pure.
//!
//! The broker returns a message that no queue takes and then acknowledges it. The library keeps
//! returned messages in a line and hands the first with whichever acknowledgement comes next, and
//! it takes one that covers several messages apart in no order. So what comes with an
//! acknowledgement may be another message's return, and one's own may come later. Two things hold:
//! an acknowledgement that came with nothing found the line empty, and when nothing is in flight
//! any more the line is empty.

use std::collections::HashSet;

/// What the broker said of one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Report {
    /// Which message.
    pub(super) id: u64,
    /// It took the message; else it can't just now.
    pub(super) taken: bool,
    /// Which message came back with this word.
    pub(super) returned: Option<u64>,
}

/// What has become of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    /// A queue has it.
    Taken,
    /// The queue can't take it just now.
    NotNow,
    /// No queue takes it.
    Returned,
}

/// What is not clear yet.
#[derive(Debug, Default)]
pub(super) struct Returns {
    /// Came back, but their own word is still to come.
    returned: HashSet<u64>,
    /// Acknowledged with another's return: their own may still be in the line.
    unclear: Vec<u64>,
}

impl Returns {
    /// Takes in reports, and says of whom it is clear now. Whatever was said before any of the
    /// `reports` must be among them, or have been taken in before. `in_flight` is how many messages
    /// are left of which nothing has been heard.
    pub(super) fn digest(&mut self, reports: &[Report], in_flight: usize) -> Vec<(u64, Said)> {
        self.returned
            .extend(reports.iter().filter_map(|report| report.returned));
        let empty = in_flight == 0 || reports.iter().any(|report| report.returned.is_none());
        let before = std::mem::take(&mut self.unclear);
        let mut clear = Vec::with_capacity(reports.len());
        for id in before {
            self.judge(id, empty, &mut clear);
        }
        for report in reports {
            if report.taken {
                let found_empty = report.returned.is_none() || in_flight == 0;
                self.judge(report.id, found_empty, &mut clear);
            } else {
                self.returned.remove(&report.id);
                clear.push((report.id, Said::NotNow));
            }
        }
        clear
    }

    fn judge(&mut self, id: u64, line_was_empty: bool, clear: &mut Vec<(u64, Said)>) {
        if self.returned.remove(&id) {
            clear.push((id, Said::Returned));
        } else if line_was_empty {
            clear.push((id, Said::Taken));
        } else {
            self.unclear.push(id);
        }
    }

    /// Forgets everything: the channel is gone. Returns of whom it was not clear.
    pub(super) fn reset(&mut self) -> Vec<u64> {
        self.returned.clear();
        std::mem::take(&mut self.unclear)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, VecDeque};

    use proptest::prelude::*;

    use super::*;

    fn report(id: u64, returned: Option<u64>) -> Report {
        Report {
            id,
            taken: true,
            returned,
        }
    }

    #[test]
    fn a_return_is_its_owners_whoever_brings_it() {
        let mut returns = Returns::default();
        assert_eq!(
            returns.digest(&[report(1, Some(2))], 2),
            [],
            "1 is not clear"
        );
        let clear = returns.digest(&[report(2, None)], 1);
        assert_eq!(clear, [(1, Said::Taken), (2, Said::Returned)]);
        assert_eq!(returns.digest(&[report(3, None)], 0), [(3, Said::Taken)]);
    }

    #[test]
    fn two_that_bring_each_others() {
        let mut returns = Returns::default();
        assert_eq!(returns.digest(&[report(6, Some(5))], 1), []);
        let clear = returns.digest(&[report(5, Some(6))], 0);
        assert_eq!(clear, [(6, Said::Returned), (5, Said::Returned)]);
    }

    /// Publishes with their fate, and the order in which the broker speaks and we listen.
    fn scripts() -> impl Strategy<Value = (Vec<(u8, u8)>, Vec<u8>)> {
        let messages = proptest::collection::vec((0u8..3, any::<u8>()), 1..40);
        (messages, proptest::collection::vec(any::<u8>(), 0..200))
    }

    proptest! {
        #[test]
        fn every_message_gets_its_own_fate((messages, dice) in scripts()) {
            let mut dice = dice.into_iter().chain(std::iter::repeat(7));
            let mut roll = move |below: usize| usize::from(dice.next().unwrap_or_default()) % below.max(1);
            let said = |id: usize| [Said::Taken, Said::NotNow, Said::Returned][usize::from(messages[id].0)];
            // All are published; returns come in order, each before its own word.
            let mut to_return: VecDeque<usize> = (0..messages.len()).filter(|id| said(*id) == Said::Returned).collect();
            let mut unsaid: Vec<usize> = (0..messages.len()).collect();
            let (mut line, mut heard) = (VecDeque::new(), Vec::new());
            let (mut returns, mut verdicts) = (Returns::default(), BTreeMap::new());
            while !unsaid.is_empty() {
                if roll(2) == 0 && let Some(id) = to_return.pop_front() {
                    line.push_back(id);
                }
                let ready: Vec<usize> = unsaid.iter().copied().filter(|id| said(*id) != Said::Returned || !to_return.contains(id)).collect();
                if !ready.is_empty() {
                    let id = ready[roll(ready.len())];
                    unsaid.retain(|other| *other != id);
                    heard.push(Report {
                        id: id as u64,
                        taken: said(id) != Said::NotNow,
                        returned: line.pop_front().map(|id| id as u64),
                    });
                } else if let Some(id) = to_return.pop_front() {
                    line.push_back(id);
                }
                if roll(3) == 0 || unsaid.is_empty() {
                    // In one go they may be seen in any order.
                    if roll(2) == 0 {
                        heard.reverse();
                    }
                    for (id, said) in returns.digest(&heard, unsaid.len()) {
                        prop_assert_eq!(verdicts.insert(id, said), None);
                    }
                    heard.clear();
                }
            }
            for id in 0..messages.len() {
                prop_assert_eq!(verdicts.get(&(id as u64)), Some(&said(id)), "message {}", id);
            }
        }
    }
}
