//! Times at which a source looks for messages, and periods in which it is notified of them.
//! Notifications cost the senders: the server lets commits that notify through one at a time, each until
//! it is on disk. So a source is notified only while its queue is quiet. When messages follow each other
//! quickly, or more of them wait than the source takes, it polls every few milliseconds instead. A
//! database that does not notify is always polled. Pure, except for the clock.

use std::time::Duration;

use tokio::time::Instant;

use super::rhythm::{Pace, Rhythm};

/// A queue is quiet after this time without a find.
pub(crate) const QUIET: Duration = Duration::from_millis(100);

/// Maximum of that time. It grows while many notifications come and other sources always take the rows
/// first.
const QUIET_MAX: Duration = Duration::from_secs(2);

/// Number of notifications within [`QUIET`] after which a source polls. It is small enough to be reached
/// with a slow disk, which lets a hundred commits through in a second, one after the other.
const OFTEN: u32 = 5;

/// Properties of a database that decide how it is polled.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Polling {
    pub(crate) pace: Pace,
    /// True if the database can notify sources.
    pub(crate) notifies: bool,
}

/// State that decides between polling and notifications, and the time of the next look.
#[derive(Debug)]
pub(crate) struct PollPlan {
    rhythm: Rhythm,
    notifies: bool,
    wants_news: bool,
    /// Time at which rows were last found, or polling began.
    stirred: Instant,
    /// Time for which the queue has to be quiet before notifications are wanted again.
    quiet: Duration,
    /// True if nothing was found since notifications were last wanted.
    in_vain: bool,
    /// Start of the current count of notifications, and the count.
    notified: (Instant, u32),
    /// Time since which the source has had no use for news, if it has none.
    full: Option<Instant>,
}

impl PollPlan {
    /// Makes the plan of a source that looks by itself at least every `longest`.
    pub(crate) fn new(polling: Polling, longest: Duration) -> Self {
        let now = Instant::now();
        Self {
            rhythm: Rhythm::new(polling.pace, longest),
            notifies: polling.notifies,
            wants_news: polling.notifies,
            stirred: now,
            quiet: QUIET,
            in_vain: true,
            notified: (now, 0),
            full: None,
        }
    }

    /// Returns whether the source wants notifications.
    pub(crate) fn wants_news(&self) -> bool {
        self.wants_news
    }

    /// Returns the time of the next look without a notification, if it comes before the source's own.
    pub(crate) fn next_look(&self) -> Option<Instant> {
        self.rhythm.next()
    }

    /// Records a look.
    pub(crate) fn looked(&mut self) {
        self.rhythm.looked();
    }

    /// Records the duration of a look. If only looks find messages, the next one is delayed after a long
    /// one.
    pub(crate) fn took(&mut self, look: Duration) {
        if !self.notifies {
            self.rhythm.took(look);
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
        if self.notified.1 >= OFTEN {
            self.quiet = match self.in_vain {
                true => (self.quiet * 2).min(QUIET_MAX),
                false => QUIET,
            };
            self.poll();
        }
    }

    /// Records that rows were found.
    pub(crate) fn found(&mut self) {
        self.rhythm.news();
        self.stirred = Instant::now();
        self.quiet = QUIET;
        self.in_vain = false;
    }

    /// Records that nothing was found.
    pub(crate) fn found_nothing(&mut self) {
        if self.notifies && !self.wants_news && Instant::now() >= self.stirred + self.quiet {
            self.wants_news = true;
            self.in_vain = true;
        }
    }

    /// Switches to polling: there is more than the source takes, or can take.
    pub(crate) fn poll(&mut self) {
        if self.wants_news {
            self.wants_news = false;
            self.stirred = Instant::now();
            self.notified.1 = 0;
            self.rhythm.news();
        }
    }

    /// Records whether the source has use for news. If it has none, returns the time from which it
    /// polls.
    pub(crate) fn uses(&mut self, news: bool) -> Option<Instant> {
        if news {
            self.full = None;
            return None;
        }
        let since = *self.full.get_or_insert_with(Instant::now);
        self.wants_news.then(|| since + QUIET)
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
        while !plan.wants_news() {
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
            assert!(plan.wants_news());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn it_polls_when_many_come_and_until_it_is_quiet() {
        let mut plan = plan_of(true);
        for _ in 0..3 {
            plan.found();
            notified(&mut plan, OFTEN, QUIET / 10).await;
            assert!(!plan.wants_news());
            advance(QUIET / 2).await;
            plan.found();
            assert_eq!(polls_for(&mut plan).await, QUIET);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn it_polls_for_longer_where_others_are_always_first() {
        let mut plan = plan_of(true);
        for times in [2, 4, 8, 16, 20, 20] {
            notified(&mut plan, OFTEN, Duration::ZERO).await;
            assert_eq!(polls_for(&mut plan).await, QUIET * times);
        }
        plan.found();
        notified(&mut plan, OFTEN, Duration::ZERO).await;
        assert_eq!(polls_for(&mut plan).await, QUIET);
    }

    #[tokio::test(start_paused = true)]
    async fn it_polls_every_few_milliseconds() {
        let mut plan = plan_of(true);
        advance(QUIET).await;
        plan.poll();
        plan.looked();
        for _ in 0..5 {
            let next = plan.next_look().unwrap();
            assert_eq!(next.duration_since(Instant::now()), PACE.shortest);
            advance(PACE.shortest).await;
            plan.looked();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn without_use_for_news_it_is_notified_for_a_while_only() {
        let mut plan = plan_of(true);
        let full = Instant::now();
        assert_eq!(plan.uses(false), Some(full + QUIET));
        advance(QUIET / 2).await;
        assert_eq!(plan.uses(false), Some(full + QUIET));
        assert_eq!(plan.uses(true), None);
        assert_eq!(plan.uses(false), Some(Instant::now() + QUIET));
        plan.poll();
        assert_eq!(plan.uses(false), None);
    }

    #[tokio::test(start_paused = true)]
    async fn where_no_notifications_come_it_always_polls() {
        let mut plan = plan_of(false);
        advance(QUIET * 10).await;
        plan.found_nothing();
        assert!(!plan.wants_news());
        assert_eq!(plan.uses(false), None);
        plan.looked();
        plan.took(Duration::from_millis(100));
        let next = plan.next_look().unwrap();
        assert_eq!(next - Instant::now(), Duration::from_millis(400));
    }
}
