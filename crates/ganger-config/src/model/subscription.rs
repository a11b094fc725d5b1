//! `[[subscriptions]]`.

/// A queue that gets each message of a topic.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subscription {
    /// Source of kind table that holds both.
    pub source: String,
    /// The topic.
    pub topic: String,
    /// The queue.
    pub queue: String,
}
