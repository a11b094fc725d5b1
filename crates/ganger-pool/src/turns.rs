//! Earliest time at which data read now may have arrived: the pool's thread reads all pipes in turn, and
//! sleeps when all are empty.

use std::cell::Cell;
use std::rc::Rc;

use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Start times of a pool's last turns. In a turn each lane that has something to do runs once.
#[derive(Debug)]
pub struct Turns {
    before_last: Cell<Instant>,
    last: Cell<Instant>,
    /// True if the next turn begins when all queued tasks have run.
    is_in_line: Cell<bool>,
    gets_in_line: Notify,
}

impl Turns {
    /// Begins the first turn.
    pub fn new(now: Instant) -> Self {
        Self {
            before_last: now.into(),
            last: now.into(),
            is_in_line: false.into(),
            gets_in_line: Notify::new(),
        }
    }

    /// Follows the turns as long as the returned task is kept. The task queues with the lanes. The pool does
    /// not: it runs each time the thread has polled for events, many times in a turn.
    pub fn follow(self: Rc<Self>) -> JoinSet<()> {
        let mut task = JoinSet::new();
        task.spawn_local(async move {
            loop {
                self.gets_in_line.notified().await;
                self.is_in_line.set(false);
                self.next(Instant::now());
            }
        });
        task
    }

    fn next(&self, now: Instant) {
        self.before_last.set(self.last.replace(now));
    }

    /// Returns the earliest time at which data read now may have arrived: earlier data would have been read
    /// in the turn before, or the thread would not have slept. If the time of waking is unknown, it has just
    /// arrived.
    pub fn available_since(&self, now: Instant, awake_since: Option<Instant>) -> Instant {
        if !self.is_in_line.replace(true) {
            self.gets_in_line.notify_one();
        }
        awake_since.map_or(now, |awake| awake.max(self.before_last.get()))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Poll;
    use std::time::Duration;

    use tokio::task::LocalSet;

    use super::*;

    #[test]
    fn what_is_read_came_after_the_turn_before_or_the_last_sleep() {
        let begun = Instant::now();
        let after = |millis| begun + Duration::from_millis(millis);
        let turns = Turns::new(begun);
        turns.next(after(10));
        turns.next(after(20));
        for (awake_since, expected) in [(None, 25), (Some(4), 10), (Some(22), 22)] {
            let available_since = turns.available_since(after(25), awake_since.map(after));
            assert_eq!(available_since, after(expected), "{awake_since:?}");
        }
    }

    async fn goes_to_the_end_of_the_line() {
        let mut has_gone = false;
        poll_fn(|context| {
            if std::mem::replace(&mut has_gone, true) {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    #[tokio::test]
    async fn in_a_turn_each_in_line_has_its_go() {
        let begun = Instant::now();
        let turns = Rc::new(Turns::new(begun));
        let lane = |turns: Rc<Turns>| async move {
            let mut last_go = begun;
            for _ in 0..20 {
                assert!(turns.before_last.get() <= last_go);
                last_go = Instant::now();
                turns.available_since(last_go, None);
                goes_to_the_end_of_the_line().await;
            }
        };
        let work = async {
            let _follows = turns.clone().follow();
            let mut lanes = JoinSet::new();
            for _ in 0..200 {
                lanes.spawn_local(lane(turns.clone()));
            }
            lanes.join_all().await;
        };
        LocalSet::new().run_until(work).await;
        assert!(turns.before_last.get() > begun, "they were followed");
    }
}
