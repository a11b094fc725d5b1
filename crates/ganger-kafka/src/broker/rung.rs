//! Set of partitions that have received something: librdkafka's threads add to it and the reader takes
//! from it, so that partitions which have nothing are not even checked.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A topic and a partition number.
type Name = Arc<(String, i32)>;

/// Partitions that have received something since the last `take`, each once.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rung(Arc<Mutex<HashSet<Name>>>);

impl Rung {
    /// Takes all of them and leaves the set empty.
    pub(crate) fn take(&self) -> HashSet<Name> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Flag that a partition may have something.
#[derive(Debug, Clone)]
pub(super) struct News {
    may_be: Arc<AtomicBool>,
    name: Name,
    rung: Rung,
}

impl News {
    /// Creates the flag, set from the start.
    pub(super) fn new(topic: &str, partition: i32, rung: &Rung) -> Self {
        Self {
            may_be: Arc::new(AtomicBool::new(true)),
            name: Arc::new((topic.to_owned(), partition)),
            rung: rung.clone(),
        }
    }

    /// Records an arrival. A reader that has not found the partition empty since will check it anyway.
    pub(super) fn ring(&self) {
        if !self.may_be.swap(true, Ordering::AcqRel) {
            let mut rung = self.rung.0.lock().unwrap_or_else(PoisonError::into_inner);
            rung.insert(Arc::clone(&self.name));
        }
    }

    /// Clears the flag before a check: later arrivals ring.
    pub(super) fn look(&self) {
        self.may_be.store(false, Ordering::Release);
    }

    /// Sets the flag after something was found: there may be more.
    pub(super) fn found(&self) {
        self.may_be.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_empty_rings_once() {
        let rung = Rung::default();
        let news = News::new("orders", 3, &rung);
        news.ring();
        assert!(rung.take().is_empty(), "it was not looked at yet");
        news.look();
        news.clone().ring();
        news.ring();
        let names: Vec<(String, i32)> = rung.take().iter().map(|name| (**name).clone()).collect();
        assert_eq!(names, [("orders".to_owned(), 3)]);
        news.look();
        news.found();
        news.ring();
        assert!(rung.take().is_empty(), "it will be looked at again");
    }
}
