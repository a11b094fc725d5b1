//! Times at which a source polls for messages, and periods in which it is notified of them.
//! Notifications cost the senders: the server lets commits that notify through one at a time, each until
//! it is on disk. So a source is notified only while its queue is quiet. When messages follow each other
//! quickly, or more of them wait than the source takes, it polls every few milliseconds instead. A
//! database that does not notify is always polled. Pure, except for the clock.

use std::time::Duration;

use tokio::time::Instant;

use super::poll_interval::{Pace, PollInterval};

/// Time without new rows after which a queue is quiet.
pub(crate) const QUIET: Duration = Duration::from_millis(100);

/// Maximum of that time. It grows while many notifications come and other sources always take the rows
/// first.
const QUIET_MAX: Duration = Duration::from_secs(2);

/// Number of notifications within [`QUIET`] after which a source polls. It is small enough to be reached
/// with a slow disk, which lets a hundred commits through in a second, one after the other.
const NOTIFICATIONS_MAX: u32 = 5;

/// Properties of a database that decide how it is polled.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Polling {
    pub(crate) pace: Pace,
    /// True if the database can notify sources.
    pub(crate) notifies: bool,
}

/// State that decides between polling and notifications, and the time of the next poll.
#[derive(Debug)]
pub(crate) struct PollPlan {
    interval: PollInterval,
    notifies: bool,
    wants_notifications: bool,
    /// Time at which rows were last found, or polling began.
    active_since: Instant,
    /// Time for which the queue has to be quiet before notifications are wanted again.
    quiet: Duration,
    /// True if nothing was found since notifications were last wanted.
    found_none: bool,
    /// Start of the current count of notifications, and the count.
    notified: (Instant, u32),
    /// Time since which the source has not listened, while it does not.
    full: Option<Instant>,
}

impl PollPlan {
    /// Makes the plan of a source that polls by itself at least every `longest`.
    pub(crate) fn new(polling: Polling, longest: Duration) -> Self {
        let now = Instant::now();
        Self {
            interval: PollInterval::new(polling.pace, longest),
            notifies: polling.notifies,
            wants_notifications: polling.notifies,
            active_since: now,
            quiet: QUIET,
            found_none: true,
            notified: (now, 0),
            full: None,
        }
    }

    /// Returns whether the source wants notifications.
    pub(crate) fn wants_notifications(&self) -> bool {
        self.wants_notifications
    }

    /// Returns the time of the next poll without a notification, if it comes before the source's own.
    pub(crate) fn next_poll(&self) -> Option<Instant> {
        self.interval.next()
    }

    /// Records a poll.
    pub(crate) fn polled(&mut self) {
        self.interval.polled();
    }

    /// Records the duration of a poll. If only polls find messages, the next one is delayed after a long
    /// one.
    pub(crate) fn took(&mut self, look: Duration) {
        if !self.notifies {
            self.interval.took(look);
        }
    }

    /// Records a notification.
    pub(crate) fn notified(&mut self) {
        let now = Instant::now();
        let (since, times) = self.notified;
        self.notified = match now < since + QUIET {
            true => (since, times + 1),
            false => (now, 1),
        };
        if self.notified.1 >= NOTIFICATIONS_MAX {
            self.quiet = match self.found_none {
                true => (self.quiet * 2).min(QUIET_MAX),
                false => QUIET,
            };
            self.poll();
        }
    }

    /// Records that rows were found.
    pub(crate) fn found(&mut self) {
        self.interval.record_change();
        self.active_since = Instant::now();
        self.quiet = QUIET;
        self.found_none = false;
    }

    /// Records that nothing was found.
    pub(crate) fn found_nothing(&mut self) {
        if self.notifies
            && !self.wants_notifications
            && Instant::now() >= self.active_since + self.quiet
        {
            self.wants_notifications = true;
            self.found_none = true;
        }
    }

    /// Switches to polling: there are more rows than the source takes, or can take.
    pub(crate) fn poll(&mut self) {
        if self.wants_notifications {
            self.wants_notifications = false;
            self.active_since = Instant::now();
            self.notified.1 = 0;
            self.interval.record_change();
        }
    }

    /// Records whether the source listens for new rows. If it does not, returns the time from which it
    /// polls.
    pub(crate) fn set_listening(&mut self, listens: bool) -> Option<Instant> {
        if listens {
            self.full = None;
            return None;
        }
        let since = *self.full.get_or_insert_with(Instant::now);
        self.wants_notifications.then(|| since + QUIET)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const PACE: Pace = Pace {
        shortest: Duration::from_millis(5),
        lasts: QUIET,
    };

    fn plan_of(notifies: bool) -> PollPlan {
        let pace = PACE;
        PollPlan::new(Polling { pace, notifies }, Duration::from_secs(1))
    }

    async fn notified(plan: &mut PollPlan, times: u32, every: Duration) {
        for _ in 0..times {
            advance(every).await;
            plan.notified();
        }
    }

    /// Returns the time until notifications are wanted again, if nothing is found.
    async fn polls_for(plan: &mut PollPlan) -> Duration {
        let since = Instant::now();
        while !plan.wants_notifications() {
            advance(Duration::from_millis(1)).await;
            plan.found_nothing();
        }
        since.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_notified_while_few_messages_come() {
        let mut plan = plan_of(true);
        for _ in 0..20 {
            notified(&mut plan, 4, QUIET / 4).await;
            plan.found();
            plan.found_nothing();
            assert!(plan.wants_notifications());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn it_polls_when_many_come_and_until_it_is_quiet() {
        let mut plan = plan_of(true);
        for _ in 0..3 {
            plan.found();
            notified(&mut plan, NOTIFICATIONS_MAX, QUIET / 10).await;
            assert!(!plan.wants_notifications());
            advance(QUIET / 2).await;
            plan.found();
            assert_eq!(polls_for(&mut plan).await, QUIET);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn it_polls_for_longer_where_others_are_always_first() {
        let mut plan = plan_of(true);
        for times in [2, 4, 8, 16, 20, 20] {
            notified(&mut plan, NOTIFICATIONS_MAX, Duration::ZERO).await;
            assert_eq!(polls_for(&mut plan).await, QUIET * times);
        }
        plan.found();
        notified(&mut plan, NOTIFICATIONS_MAX, Duration::ZERO).await;
        assert_eq!(polls_for(&mut plan).await, QUIET);
    }

    #[tokio::test(start_paused = true)]
    async fn it_polls_every_few_milliseconds() {
        let mut plan = plan_of(true);
        advance(QUIET).await;
        plan.poll();
        plan.polled();
        for _ in 0..5 {
            let next = plan.next_poll().unwrap();
            assert_eq!(next.duration_since(Instant::now()), PACE.shortest);
            advance(PACE.shortest).await;
            plan.polled();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn without_use_for_news_it_is_notified_for_a_while_only() {
        let mut plan = plan_of(true);
        let full = Instant::now();
        assert_eq!(plan.set_listening(false), Some(full + QUIET));
        advance(QUIET / 2).await;
        assert_eq!(plan.set_listening(false), Some(full + QUIET));
        assert_eq!(plan.set_listening(true), None);
        assert_eq!(plan.set_listening(false), Some(Instant::now() + QUIET));
        plan.poll();
        assert_eq!(plan.set_listening(false), None);
    }

    #[tokio::test(start_paused = true)]
    async fn where_no_notifications_come_it_always_polls() {
        let mut plan = plan_of(false);
        advance(QUIET * 10).await;
        plan.found_nothing();
        assert!(!plan.wants_notifications());
        assert_eq!(plan.set_listening(false), None);
        plan.polled();
        plan.took(Duration::from_millis(100));
        let next = plan.next_poll().unwrap();
        assert_eq!(next - Instant::now(), Duration::from_millis(400));
    }
}
