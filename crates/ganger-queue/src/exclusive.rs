//! The daemon's one turn for suspects. A message over which daemons vanished again and again runs while
//! no other such message of this daemon does, so that the next crash can be attributed to it. Only
//! suspects wait for the turn; nothing else knows of it. Nothing here knows a message or a broker.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::delivery::SourceEnd;

/// The turn, shared by all sources of a daemon. It is fair: first come, first served, except for a source
/// that can't use it just then.
#[derive(Debug, Clone, Default)]
pub struct Exclusive(Arc<Mutex<TurnQueue>>);

#[derive(Debug, Default)]
struct TurnQueue {
    holder: Option<Waiting>,
    waiting: VecDeque<Waiting>,
    /// Number of requests so far, which is the number of the next.
    asked: u64,
}

/// A source's place in the line.
#[derive(Debug)]
struct Waiting {
    number: u64,
    pool: Arc<str>,
    /// The source could use the turn at once.
    ready: bool,
    called: Arc<Notify>,
}

impl Exclusive {
    fn line(&self) -> MutexGuard<'_, TurnQueue> {
        // It is never left half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TurnQueue {
    fn holds(&self, number: u64) -> bool {
        let holder = self.holder.as_ref();
        holder.is_some_and(|holder| holder.number == number)
    }

    /// Gives a free turn to the first in line that can use it.
    fn call(&mut self) {
        if self.holder.is_some() {
            return;
        }
        let first = self.waiting.iter().position(|place| place.ready);
        self.holder = first.and_then(|first| self.waiting.remove(first));
        if let Some(holder) = &self.holder {
            holder.called.notify_one();
        }
    }
}

/// A source's handle on the turn: it holds nothing, a place in the line, or the turn. Dropping it gives
/// up either.
pub struct Turn {
    exclusive: Exclusive,
    pool: Arc<str>,
    called: Arc<Notify>,
    /// Number of its place in the line, also while it holds the turn.
    number: Option<u64>,
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (in_line, held) = (self.number.is_some(), self.is_held());
        write!(f, "Turn {{ in_line: {in_line}, held: {held} }}")
    }
}

impl Turn {
    /// Makes the handle of that pool's source, which is not in the line yet.
    pub fn new(exclusive: &Exclusive, pool: &str) -> Self {
        Self {
            exclusive: exclusive.clone(),
            pool: pool.into(),
            called: Arc::default(),
            number: None,
        }
    }

    /// Joins the line, if it is not there yet, ready to use the turn. Returns whether it holds the turn;
    /// otherwise [`Turn::called`] tells when.
    pub fn ask(&mut self) -> bool {
        let mut line = self.exclusive.line();
        let number = *self.number.get_or_insert_with(|| {
            line.asked += 1;
            let number = line.asked;
            line.waiting.push_back(Waiting {
                number,
                pool: Arc::clone(&self.pool),
                ready: true,
                called: Arc::clone(&self.called),
            });
            number
        });
        let mut waiting = line.waiting.iter_mut();
        if let Some(place) = waiting.find(|place| place.number == number) {
            place.ready = true;
        }
        line.call();
        line.holds(number)
    }

    /// Lets others pass while the source can't use the turn, and keeps its place.
    pub fn pause(&mut self) {
        let Some(number) = self.number else { return };
        let mut line = self.exclusive.line();
        if line.holds(number)
            && let Some(holder) = line.holder.take()
        {
            line.waiting.push_front(holder);
        }
        let mut waiting = line.waiting.iter_mut();
        if let Some(place) = waiting.find(|place| place.number == number) {
            place.ready = false;
        }
        line.call();
    }

    /// Gives the turn to the next, or leaves the line.
    pub fn leave(&mut self) {
        let Some(number) = self.number.take() else {
            return;
        };
        let mut line = self.exclusive.line();
        if line.holds(number) {
            line.holder = None;
        }
        line.waiting.retain(|place| place.number != number);
        line.call();
    }

    /// Returns whether it holds the turn.
    pub fn is_held(&self) -> bool {
        self.number
            .is_some_and(|number| self.exclusive.line().holds(number))
    }

    /// Resolves once it holds the turn; spurious wake-ups are possible. Cancel-safe.
    pub async fn called(&self) {
        self.called.notified().await;
    }

    /// Returns the pool whose suspect runs, or is about to.
    pub(crate) fn holder(&self) -> Option<Arc<str>> {
        let line = self.exclusive.line();
        line.holder.as_ref().map(|holder| Arc::clone(&holder.pool))
    }

    /// Records in the source's state which pool's suspect a suspect of this source waits for, if one
    /// `waits`; logs the beginning of the wait.
    pub fn report(&self, end: &SourceEnd, waits: bool) {
        let holder = if waits { self.holder() } else { None };
        let text = holder.map(|holder| format!("the suspect of pool `{holder}` to end"));
        end.state.send_if_modified(|state| {
            if let (None, Some(waits_for)) = (&state.waits_for, &text) {
                tracing::info!(pool = %self.pool, waits_for, "suspect message held until others are settled; other messages unaffected");
            }
            let news = state.waits_for != text;
            state.waits_for = text;
            news
        });
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;
    use proptest::prelude::*;

    fn three() -> [Turn; 3] {
        let exclusive = Exclusive::default();
        ["a", "b", "c"].map(|pool| Turn::new(&exclusive, pool))
    }

    /// Returns whether it has been called since the last check.
    fn is_called(turn: &Turn) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        pin!(turn.called()).poll(&mut context).is_ready()
    }

    #[test]
    fn one_at_a_time_in_the_order_in_which_they_asked() {
        let [mut a, mut b, mut c] = three();
        assert!(a.ask() && a.ask() && a.is_held());
        assert!(!b.ask() && !c.ask() && !b.ask());
        assert_eq!(b.holder().as_deref(), Some("a"));
        assert!(!is_called(&b));
        a.leave();
        assert!(is_called(&b) && !is_called(&c) && b.is_held());
        assert!(!a.ask(), "who has had it goes to the end of the line");
        b.leave();
        assert!(is_called(&c) && c.ask());
        c.leave();
        assert!(is_called(&a) && a.is_held());
    }

    #[test]
    fn who_cannot_use_it_is_passed_and_keeps_its_place() {
        let [mut a, mut b, mut c] = three();
        assert!(a.ask() && !b.ask() && !c.ask());
        b.pause();
        a.leave();
        assert!(c.is_held() && !is_called(&b));
        assert!(!a.ask() && !b.ask());
        c.leave();
        assert!(b.is_held(), "it was in line before the other");

        b.pause();
        assert!(a.is_held() && !b.is_held());
        a.pause();
        assert_eq!(a.holder(), None);
        assert!(b.ask());
    }

    #[test]
    fn one_that_is_dropped_is_out_of_it() {
        let [mut a, mut b, mut c] = three();
        assert!(a.ask() && !b.ask() && !c.ask());
        drop(b);
        drop(a);
        assert!(is_called(&c) && c.is_held());
    }

    #[test]
    fn a_dropped_wait_loses_no_call() {
        let [mut a, mut b, _] = three();
        assert!(a.ask() && !b.ask());
        {
            let mut context = Context::from_waker(Waker::noop());
            let mut wait = pin!(b.called());
            assert!(wait.as_mut().poll(&mut context).is_pending());
            a.leave();
        }
        assert!(is_called(&b));
    }

    #[test]
    fn who_waits_for_whom_is_told_in_the_state() {
        let [mut a, mut b, _] = three();
        let (end, pool) = crate::delivery::link();
        assert!(a.ask() && !b.ask());
        b.report(&end, true);
        let told = pool.state.borrow().waits_for.clone();
        assert_eq!(told.as_deref(), Some("the suspect of pool `a` to end"));
        b.report(&end, false);
        assert_eq!(pool.state.borrow().waits_for, None);
    }

    proptest! {
        /// Whatever they do: at most one holds the turn, and it never stays free while one could use it.
        #[test]
        fn never_two_and_never_idle(steps in proptest::collection::vec((0usize..3, 0u8..3), 0..60)) {
            let mut turns = three();
            let mut ready = [false; 3];
            for (who, what) in steps {
                match what {
                    0 => { turns[who].ask(); ready[who] = true; }
                    1 => { turns[who].pause(); ready[who] = false; }
                    _ => { turns[who].leave(); ready[who] = false; }
                }
                let held: Vec<bool> = turns.iter().map(Turn::is_held).collect();
                let holders = held.iter().filter(|held| **held).count();
                prop_assert_eq!(holders, usize::from(ready.contains(&true)));
                for n in 0..3 {
                    prop_assert!(!held[n] || ready[n]);
                }
            }
        }
    }
}
