//! Pausing and resuming partitions: as the throttle decides, and those of which nothing is due for
//! long.

use std::time::Duration;

use tokio::time::Instant;

use super::event_loop::Task;
use super::partition::Pause;
use crate::broker::begins::Part;

/// A tier whose head is not due for longer is paused meanwhile: the messages behind it would only take
/// room.
const NAP: Duration = Duration::from_secs(2);

impl Task {
    /// Ensures that librdkafka holds no more than it may.
    pub(super) fn throttle(&mut self, now: Instant) {
        if self.is_closing() || !self.throttle.may_look(now) {
            return;
        }
        let naps = self.partitions.drowsy(now + NAP);
        self.pause(&naps, Pause::Nap);
        let mut wakes = self.partitions.rested();
        let most = self.budget.most() / 2;
        let (full, empty) = (self.partitions.full(), self.partitions.empty());
        let change = self.throttle.turn(full, empty, most, now);
        self.pause(&change.pause, Pause::Turn);
        wakes.extend(change.resume);
        self.resume(&wakes);
    }

    fn pause(&mut self, parts: &[Part], why: Pause) {
        let names = self.names_of(parts, Some(why));
        if let Err(error) = self.consumer.pause(&names) {
            tracing::warn!(pool = self.plan.pool, %error, "partitions could not be paused");
        }
    }

    /// Resumes fetching of partitions.
    pub(super) fn resume(&mut self, parts: &[Part]) {
        let names = self.names_of(parts, None);
        if let Err(error) = self.consumer.resume(&names) {
            tracing::error!(pool = self.plan.pool, %error, "partitions could not be resumed");
        }
    }

    fn names_of(&mut self, parts: &[Part], pause: Option<Pause>) -> Vec<(String, i32)> {
        let mut names = Vec::with_capacity(parts.len());
        for part in parts {
            let name = self
                .partitions
                .change(*part, |each| each.pause(pause).then(|| each.name().clone()));
            names.extend(name.flatten());
        }
        names
    }
}
