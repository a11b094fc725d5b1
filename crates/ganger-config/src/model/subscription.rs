//! `[[subscriptions]]`.

/// A queue that gets each message of a topic.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subscription {
    /// The table that both are in.
    pub source: String,
    /// The topic.
    pub topic: String,
    /// The queue.
    pub queue: String,
}
