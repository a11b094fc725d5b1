//! Messages in flight by their identity, each with the repetitions that wait behind it: those are looked
//! up again once it is settled. Pure.

use std::collections::HashMap;

use ganger_queue::delivery::Identity;

/// Messages in flight, each with those that wait behind it.
#[derive(Debug)]
pub(super) struct InHand<T> {
    behind: HashMap<Identity, Vec<T>>,
    /// Number of messages that wait.
    waiting: usize,
}

impl<T> Default for InHand<T> {
    fn default() -> Self {
        Self {
            behind: HashMap::new(),
            waiting: 0,
        }
    }
}

impl<T> InHand<T> {
    /// Takes a message in hand and returns it. If one with the same identity is in flight, it waits
    /// behind that one and is not returned.
    pub(super) fn take(&mut self, identity: &Identity, message: T) -> Option<T> {
        match self.behind.get_mut(identity) {
            Some(behind) => {
                behind.push(message);
                self.waiting += 1;
                None
            }
            None => {
                self.behind.insert(identity.clone(), Vec::new());
                Some(message)
            }
        }
    }

    /// Removes a message that is no longer in flight. Returns those that waited behind it.
    pub(super) fn release(&mut self, identity: &Identity) -> Vec<T> {
        let behind = self.behind.remove(identity).unwrap_or_default();
        self.waiting -= behind.len();
        behind
    }

    /// Drops the waiting messages for which `keep` returns false.
    pub(super) fn retain_waiting(&mut self, mut keep: impl FnMut(&T) -> bool) {
        if !self.any_waits() {
            return;
        }
        for behind in self.behind.values_mut() {
            behind.retain(&mut keep);
        }
        self.waiting = self.behind.values().map(Vec::len).sum();
    }

    /// Returns whether any message waits.
    pub(super) fn any_waits(&self) -> bool {
        self.waiting > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(key: &str) -> Identity {
        Identity {
            queue: "q".into(),
            key: key.to_owned(),
            emit: String::new(),
            step: 0,
        }
    }

    #[test]
    fn the_second_waits_until_the_first_is_released() {
        let mut in_hand = InHand::default();
        assert_eq!(in_hand.take(&identity("a"), 1), Some(1));
        assert_eq!(in_hand.take(&identity("b"), 2), Some(2));
        assert!(!in_hand.any_waits());
        for second in [3, 4] {
            assert_eq!(in_hand.take(&identity("a"), second), None);
        }
        assert!(in_hand.any_waits());
        assert_eq!(in_hand.release(&identity("a")), [3, 4]);
        assert!(!in_hand.any_waits());
        assert_eq!(in_hand.take(&identity("a"), 3), Some(3));
        assert_eq!(in_hand.release(&identity("z")), [0; 0]);
    }

    #[test]
    fn what_is_not_to_wait_is_let_go() {
        let mut in_hand = InHand::default();
        for message in [1, 2, 3] {
            in_hand.take(&identity("a"), message);
        }
        in_hand.retain_waiting(|message| *message == 3);
        assert!(in_hand.any_waits());
        assert_eq!(in_hand.release(&identity("a")), [3]);
        assert!(!in_hand.any_waits());
    }
}
