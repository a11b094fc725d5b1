//! Which published messages came back, out of what the library tells. Pure.
//!
//! The broker returns a message that no queue takes and then acknowledges it. The library keeps
//! returned messages in a line and hands the first with whichever acknowledgement comes next, and
//! it takes one that covers several messages apart in no order. So what comes with an
//! acknowledgement may be another message's return, and one's own may come later. Two things hold:
//! an acknowledgement that came with nothing found the line empty, and when nothing is in flight
//! any more the line is empty.
//!
//! A message that came back is known by its content alone. Of several that are alike the first to
//! be acknowledged is taken for it: which one it is makes no difference, how many there are does.

/// What the broker said of one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Report {
    /// Which message.
    pub(super) id: u64,
    /// It took the message; else it can't just now.
    pub(super) taken: bool,
    /// A message came back with this word, not necessarily this one.
    pub(super) brings: bool,
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
#[derive(Debug)]
pub(super) struct Returns<R> {
    /// Came back, and nothing that they may be is acknowledged yet.
    returned: Vec<R>,
    /// Acknowledged with another's return: their own may still be in the line.
    unclear: Vec<u64>,
}

impl<R> Default for Returns<R> {
    fn default() -> Self {
        Self {
            returned: Vec::new(),
            unclear: Vec::new(),
        }
    }
}

impl<R> Returns<R> {
    /// A message came back, with whichever report.
    pub(super) fn came_back(&mut self, message: R) {
        self.returned.push(message);
    }

    /// Takes in reports, and says of whom it is clear now. Whatever was said before any of the
    /// `reports` must be among them, or have been taken in before; what came back with them must
    /// have been told. `in_flight` is how many messages are left of which nothing has been heard.
    /// `is` tells whether a message may be the one that came back.
    pub(super) fn digest(
        &mut self,
        reports: &[Report],
        in_flight: usize,
        is: impl Fn(u64, &R) -> bool,
    ) -> Vec<(u64, Said)> {
        let empty = in_flight == 0 || reports.iter().any(|report| !report.brings);
        let before = std::mem::take(&mut self.unclear);
        let mut clear = Vec::with_capacity(reports.len());
        for id in before {
            self.judge(id, empty, &is, &mut clear);
        }
        for report in reports {
            if report.taken {
                let found_empty = !report.brings || in_flight == 0;
                self.judge(report.id, found_empty, &is, &mut clear);
            } else {
                clear.push((report.id, Said::NotNow));
            }
        }
        clear
    }

    fn judge(
        &mut self,
        id: u64,
        line_was_empty: bool,
        is: impl Fn(u64, &R) -> bool,
        clear: &mut Vec<(u64, Said)>,
    ) {
        if let Some(at) = self.returned.iter().position(|message| is(id, message)) {
            self.returned.swap_remove(at);
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

    fn taken(id: u64, brings: bool) -> Report {
        Report {
            id,
            taken: true,
            brings,
        }
    }

    #[test]
    fn a_return_is_its_owners_whoever_brings_it() {
        let mut returns = Returns::default();
        let is = |id: u64, message: &u64| id == *message;
        returns.came_back(2);
        let clear = returns.digest(&[taken(1, true)], 2, is);
        assert_eq!(clear, [], "1 is not clear");
        let clear = returns.digest(&[taken(2, false)], 1, is);
        assert_eq!(clear, [(1, Said::Taken), (2, Said::Returned)]);
        let clear = returns.digest(&[taken(3, false)], 0, is);
        assert_eq!(clear, [(3, Said::Taken)]);
    }

    #[test]
    fn two_that_bring_each_others() {
        let mut returns = Returns::default();
        let is = |id: u64, message: &u64| id == *message;
        returns.came_back(5);
        assert_eq!(returns.digest(&[taken(6, true)], 1, is), []);
        returns.came_back(6);
        let clear = returns.digest(&[taken(5, true)], 0, is);
        assert_eq!(clear, [(6, Said::Returned), (5, Said::Returned)]);
    }

    #[test]
    fn two_that_are_alike_both_come_back() {
        let mut returns = Returns::default();
        returns.came_back(());
        returns.came_back(());
        let clear = returns.digest(&[taken(1, true), taken(2, true)], 0, |_, ()| true);
        assert_eq!(clear, [(1, Said::Returned), (2, Said::Returned)]);
    }

    /// Messages with their fate and their content, and the dice for the order in which the broker
    /// speaks and we listen.
    fn scripts() -> impl Strategy<Value = (Vec<(u8, u8)>, Vec<u8>)> {
        let messages = proptest::collection::vec((0u8..3, 0u8..4), 1..40);
        (messages, proptest::collection::vec(any::<u8>(), 0..200))
    }

    fn fate(number: u8) -> Said {
        [Said::Taken, Said::NotNow, Said::Returned][usize::from(number)]
    }

    proptest! {
        #[test]
        fn as_many_of_each_content_come_back_as_did((messages, dice) in scripts()) {
            let mut dice = dice.into_iter().chain(std::iter::repeat(7));
            let mut roll = move |below: usize| usize::from(dice.next().unwrap_or_default()) % below.max(1);
            let (fate_of, content_of) = (|id: usize| fate(messages[id].0), |id: usize| messages[id].1);
            // All are published; returns come in order, each before its own word.
            let mut to_return: VecDeque<usize> =
                (0..messages.len()).filter(|id| fate_of(*id) == Said::Returned).collect();
            let mut unsaid: Vec<usize> = (0..messages.len()).collect();
            let (mut line, mut heard) = (VecDeque::new(), Vec::new());
            let (mut returns, mut verdicts) = (Returns::default(), BTreeMap::new());
            while !unsaid.is_empty() {
                if roll(2) == 0 && let Some(id) = to_return.pop_front() {
                    line.push_back(content_of(id));
                }
                let ready: Vec<usize> =
                    unsaid.iter().copied().filter(|id| !to_return.contains(id)).collect();
                if !ready.is_empty() {
                    let id = ready[roll(ready.len())];
                    unsaid.retain(|other| *other != id);
                    heard.push((id, line.pop_front()));
                } else if let Some(id) = to_return.pop_front() {
                    line.push_back(content_of(id));
                }
                if roll(3) == 0 || unsaid.is_empty() {
                    // In one go they may be seen in any order.
                    if roll(2) == 0 {
                        heard.reverse();
                    }
                    let mut reports = Vec::new();
                    for (id, brought) in heard.drain(..) {
                        let (taken, brings) = (fate_of(id) != Said::NotNow, brought.is_some());
                        reports.push(Report { id: id as u64, taken, brings });
                        brought.into_iter().for_each(|content| returns.came_back(content));
                    }
                    let is = |id: u64, content: &u8| content_of(usize::try_from(id).unwrap()) == *content;
                    for (id, said) in returns.digest(&reports, unsaid.len(), is) {
                        prop_assert_eq!(verdicts.insert(id, said), None);
                    }
                }
            }
            prop_assert_eq!(verdicts.len(), messages.len());
            for content in 0..4 {
                let alike = || (0..messages.len()).filter(|id| content_of(*id) == content);
                for fate in [Said::Taken, Said::NotNow, Said::Returned] {
                    let are = alike().filter(|id| fate_of(*id) == fate).count();
                    let judged = alike().filter(|id| verdicts[&(*id as u64)] == fate).count();
                    prop_assert_eq!(judged, are, "content {}: {:?}", content, fate);
                }
            }
        }
    }
}
