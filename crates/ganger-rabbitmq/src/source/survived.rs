//! Messages that were redelivered because of a lost connection which this process has survived: that proves
//! nothing against them. They are recognised by their fingerprints, since no other data of them outlives a
//! connection. Pure.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use bytes::Bytes;

use crate::broker::republish::Original;

/// Maximum number of remembered messages; beyond it only those of the last loss are remembered.
const REMEMBERED_MAX: usize = 1 << 17;

/// Number of times that each held message was redelivered for that reason.
#[derive(Debug, Default)]
pub(super) struct Survived(HashMap<u64, u64>);

/// Fingerprint of a message, the same for its copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Fingerprint(u64);

impl Fingerprint {
    pub(super) fn of(original: &Original, body: &Bytes) -> Self {
        let mut hasher = DefaultHasher::new();
        format!("{:?}", original.bare()).hash(&mut hasher);
        (&original.exchange, &original.routing_key).hash(&mut hasher);
        body.hash(&mut hasher);
        Self(hasher.finish())
    }
}

impl Survived {
    /// Records the loss of a connection with these messages held.
    pub(super) fn lost(&mut self, held: impl Iterator<Item = Fingerprint>) {
        if self.0.len() >= REMEMBERED_MAX {
            self.0.clear();
        }
        // Equal messages are redelivered once each.
        for Fingerprint(print) in held.collect::<HashSet<_>>() {
            *self.0.entry(print).or_default() += 1;
        }
    }

    /// Number of these returns that are explained. A message that was returned less often than equal ones
    /// here is another one, or a copy, for which the broker counts from zero.
    pub(super) fn excused(&mut self, Fingerprint(print): Fingerprint, returns: u64) -> u64 {
        match self.0.get(&print) {
            // A classic queue counts nothing.
            Some(times) if *times <= returns || returns == 0 => *times,
            Some(_) => {
                self.0.remove(&print);
                0
            }
            None => 0,
        }
    }

    /// Returns whether there is nothing to excuse.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_loss_explains_one_return_of_what_was_in_hand() {
        let mut survived = Survived::default();
        let [a, b] = [1, 2].map(Fingerprint);
        survived.lost([a, b, a].into_iter());
        survived.lost([a].into_iter());
        assert_eq!((survived.excused(a, 3), survived.excused(b, 3)), (2, 1));
        assert_eq!(survived.excused(a, 1), 0, "its copy");
        assert_eq!(survived.excused(a, 3), 0, "the copy came back by itself");
        assert_eq!(survived.excused(Fingerprint(3), 3), 0);
    }

    #[test]
    fn what_is_remembered_has_a_bound() {
        let mut survived = Survived::default();
        for n in 0..3 {
            let max = u64::try_from(REMEMBERED_MAX).unwrap();
            survived.lost((n * max..(n + 1) * max).map(Fingerprint));
        }
        assert_eq!(survived.0.len(), REMEMBERED_MAX);
    }

    #[test]
    fn a_copy_looks_like_its_original() {
        let original = Original {
            routing_key: "work".to_owned(),
            ..Original::default()
        };
        let print = |body: &'static str| Fingerprint::of(&original, &body.into());
        assert_eq!(print("a"), print("a"));
        assert_ne!(print("a"), print("b"));
    }
}
