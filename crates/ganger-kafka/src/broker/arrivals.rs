//! Set of partitions that have received messages: librdkafka's threads add to it and the reader takes from
//! it, so that partitions without messages are not even checked.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A topic and a partition number.
type Name = Arc<(String, i32)>;

/// Partitions that have received messages since the last `take`, each once.
#[derive(Debug, Clone, Default)]
pub(crate) struct ArrivalSet(Arc<Mutex<HashSet<Name>>>);

impl ArrivalSet {
    /// Takes all of them and leaves the set empty.
    pub(crate) fn take(&self) -> HashSet<Name> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Flag that a partition may have messages.
#[derive(Debug, Clone)]
pub(super) struct ArrivalFlag {
    may_be: Arc<AtomicBool>,
    name: Name,
    arrivals: ArrivalSet,
}

impl ArrivalFlag {
    /// Creates the flag, set from the start.
    pub(super) fn new(topic: &str, partition: i32, arrivals: &ArrivalSet) -> Self {
        Self {
            may_be: Arc::new(AtomicBool::new(true)),
            name: Arc::new((topic.to_owned(), partition)),
            arrivals: arrivals.clone(),
        }
    }

    /// Records an arrival. A reader that has not found the partition empty since will check it anyway.
    pub(super) fn mark(&self) {
        if !self.may_be.swap(true, Ordering::AcqRel) {
            let mut arrivals = self
                .arrivals
                .0
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            arrivals.insert(Arc::clone(&self.name));
        }
    }

    /// Clears the flag before a check: later arrivals mark it.
    pub(super) fn clear(&self) {
        self.may_be.store(false, Ordering::Release);
    }

    /// Sets the flag after a message was found: there may be more.
    pub(super) fn set(&self) {
        self.may_be.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_empty_rings_once() {
        let arrivals = ArrivalSet::default();
        let flag = ArrivalFlag::new("orders", 3, &arrivals);
        flag.mark();
        assert!(arrivals.take().is_empty(), "it was not looked at yet");
        flag.clear();
        flag.clone().mark();
        flag.mark();
        let names: Vec<(String, i32)> = arrivals
            .take()
            .iter()
            .map(|name| (**name).clone())
            .collect();
        assert_eq!(names, [("orders".to_owned(), 3)]);
        flag.clear();
        flag.set();
        flag.mark();
        assert!(arrivals.take().is_empty(), "it will be looked at again");
    }
}
