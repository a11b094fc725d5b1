//! Messages left unread by workers that exited of their own accord. That does no harm, and no message is
//! suspected. But a message may be the very reason why its worker exits each time, and only the count shows
//! that.

use std::collections::VecDeque;

/// Number of times a message may be left unread before it is judged like any other that its worker ended
/// with: it runs alone next, and is charged if that happens again.
const FORGIVEN_MAX: u32 = 10;
/// Number of messages remembered, the last ones.
const REMEMBERED_MAX: usize = 256;

/// Messages left unread lately, with the number of times.
#[derive(Debug, Default)]
pub struct Unread(VecDeque<(String, u32)>);

impl Unread {
    /// Records a message left unread by a worker that exited with code 0. Returns whether that may
    /// be chance.
    pub fn tolerates(&mut self, name: String) -> bool {
        let found = self.0.iter().position(|(other, _)| *other == name);
        let known = found.and_then(|position| self.0.remove(position));
        let times = known.map_or(0, |(_, times)| times) + 1;
        if self.0.len() == REMEMBERED_MAX {
            self.0.pop_front();
        }
        self.0.push_back((name, times));
        times <= FORGIVEN_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_forgiven_ten_times_and_others_with_it() {
        let mut unread = Unread::default();
        assert!((0..10).all(|n| unread.tolerates("a".into()) && unread.tolerates(n.to_string())));
        assert!(!unread.tolerates("a".into()));
        assert!(unread.tolerates("b".into()));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut unread = Unread::default();
        assert!((0..10_000).all(|n| unread.tolerates(n.to_string())));
        assert_eq!(unread.0.len(), REMEMBERED_MAX);
    }
}
