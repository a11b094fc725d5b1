//! How a message that is suspected of killing the daemon runs with nothing else of the daemon in
//! hand: every delivery out holds one permit of a semaphore that all sources share, and a delivery
//! alone holds them all. Nothing here knows a message or a broker.

use std::fmt;
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// More than all sources of a daemon ever have out: 4096 sources at the most credit.
pub(super) const ALL: u32 = 1 << 28;

/// The semaphore. It is fair: who waits for all permits is not passed by those who want a few.
#[derive(Debug, Clone)]
pub(super) struct Solo(Arc<Semaphore>);

impl Solo {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(ALL as usize)))
    }
}

type Grant = Pin<Box<dyn Future<Output = Option<OwnedSemaphorePermit>> + Send>>;

/// One source's permits: those of its deliveries out, and those for what it is about to claim.
pub(super) struct Permits {
    solo: Solo,
    held: Option<OwnedSemaphorePermit>,
    waiting: Option<Grant>,
}

impl fmt::Debug for Permits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (held, waiting) = (self.held(), self.waiting.is_some());
        write!(f, "Permits {{ held: {held}, waiting: {waiting} }}")
    }
}

impl Permits {
    pub(super) fn new(solo: Solo) -> Self {
        Self {
            solo,
            held: None,
            waiting: None,
        }
    }

    /// How many it has.
    pub(super) fn held(&self) -> u32 {
        self.held
            .as_ref()
            .map_or(0, |held| u32::try_from(held.num_permits()).unwrap_or(ALL))
    }

    /// How many deliveries may be added to the `out` there are, up to `want`. With none, it gets
    /// in line, and [`Permits::granted`] tells when its turn has come.
    pub(super) fn spare(&mut self, out: u32, want: u32) -> u32 {
        let missing = want.saturating_sub(self.held().saturating_sub(out));
        if missing > 0 && self.waiting.is_none() {
            match Arc::clone(&self.solo.0).try_acquire_many_owned(missing) {
                Ok(permit) => self.take(permit),
                Err(_) => self.queue_up(missing),
            }
        }
        self.held().saturating_sub(out).min(want)
    }

    /// Whether it has every permit there is. If not, it gets in line for them all. What it holds
    /// for deliveries that are out must come back by [`Permits::keep`] before its turn can come:
    /// asking only for the rest would let two of its kind wait for each other.
    pub(super) fn all(&mut self) -> bool {
        if self.held() < ALL && self.waiting.is_none() {
            self.queue_up(ALL);
        }
        self.held() >= ALL
    }

    fn queue_up(&mut self, count: u32) {
        let semaphore = Arc::clone(&self.solo.0);
        self.waiting = Some(Box::pin(async move {
            semaphore.acquire_many_owned(count).await.ok()
        }));
    }

    /// Resolves when it holds what it got in line for; never, if it is in no line.
    pub(super) async fn granted(&mut self) {
        let Some(grant) = &mut self.waiting else {
            return pending().await;
        };
        let permit = grant.await;
        self.waiting = None;
        if let Some(permit) = permit {
            self.take(permit);
        }
    }

    fn take(&mut self, permit: OwnedSemaphorePermit) {
        match &mut self.held {
            Some(held) => held.merge(permit),
            None => self.held = Some(permit),
        }
    }

    /// Gives back all but `count`. Its place in the line, if it has one, stays.
    pub(super) fn keep(&mut self, count: usize) {
        if let Some(held) = &mut self.held {
            let excess = held.num_permits().saturating_sub(count);
            drop(held.split(excess));
        }
    }

    /// Leaves the line.
    pub(super) fn want_no_more(&mut self) {
        self.waiting = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_like::now;

    /// Polls a future once.
    mod futures_like {
        use std::future::Future;
        use std::pin::pin;
        use std::task::{Context, Waker};

        pub(super) fn now(future: impl Future<Output = ()>) -> bool {
            let mut context = Context::from_waker(Waker::noop());
            pin!(future).poll(&mut context).is_ready()
        }
    }

    #[test]
    fn one_alone_waits_for_all_and_is_not_passed() {
        let solo = Solo::new();
        let (mut one, mut other) = (Permits::new(solo.clone()), Permits::new(solo));
        assert_eq!(other.spare(0, 3), 3);
        assert!(!one.all() && !now(one.granted()));

        other.keep(2);
        assert_eq!(
            other.spare(2, 1),
            0,
            "what came back is for the one that waits"
        );
        assert!(!now(one.granted()) && !now(other.granted()));

        other.keep(0);
        assert!(now(one.granted()));
        assert!(one.all() && !now(other.granted()));

        one.keep(0);
        assert!(now(other.granted()));
        assert_eq!(other.held(), 1);
    }

    #[test]
    fn its_own_deliveries_come_back_before_it_is_alone() {
        let mut permits = Permits::new(Solo::new());
        assert_eq!(permits.spare(0, 2), 2);
        assert!(!permits.all() && !now(permits.granted()));
        permits.keep(0);
        assert!(now(permits.granted()) && permits.all());
        permits.keep(1);
        assert_eq!(permits.held(), 1);
    }

    #[test]
    fn two_that_want_to_be_alone_take_turns() {
        let solo = Solo::new();
        let (mut one, mut other) = (Permits::new(solo.clone()), Permits::new(solo));
        assert_eq!((one.spare(0, 1), other.spare(0, 1)), (1, 1));
        assert!(!one.all() && !now(one.granted()));
        assert!(!other.all() && !now(other.granted()));
        one.keep(0);
        other.keep(0);
        assert!(now(one.granted()) && !now(other.granted()));
        one.keep(0);
        assert!(now(other.granted()));
    }

    #[test]
    fn leaving_the_line_lets_others_through() {
        let solo = Solo::new();
        let (mut one, mut other) = (Permits::new(solo.clone()), Permits::new(solo));
        assert_eq!(other.spare(0, 1), 1);
        assert!(!one.all() && !now(one.granted()));
        one.want_no_more();
        assert_eq!(other.spare(1, 5), 5);
    }
}
