//! State of the configured subscriptions, as far as it can be read without changing anything.

use crate::kinds;
use std::path::Path;

use serde::Serialize;

use super::super::common::environment;
use ganger_config::model::{Config, Subscription};
use ganger_config::{Places, Problem};
use ganger_queue::client::Subscribed;
use ganger_queue::fault::SourceFault;

/// State of a subscription.
#[derive(Debug, Serialize)]
pub(super) struct SubscriptionState {
    source: String,
    topic: String,
    queue: String,
    /// True if the table has it. If not, it is added when a daemon starts.
    subscribed: bool,
    /// Pool of this configuration that reads the queue.
    pool: Option<String>,
    /// True if the table for it exists. If not, it is created.
    #[serde(skip)]
    is_made: bool,
}

/// Returns the state of the subscriptions on the sources that can be reached.
pub(super) fn standing(config: &Config) -> Vec<SubscriptionState> {
    let mut all = Vec::new();
    for name in config.sources.keys() {
        let ours = config.subscriptions.iter();
        let ours: Vec<&Subscription> = ours.filter(|one| one.source == *name).collect();
        if ours.is_empty() {
            continue;
        }
        // Why it can't be asked is told as a problem of the source.
        if let Ok(there) = look(config, name) {
            let there = there.as_deref();
            all.extend(
                ours.iter()
                    .map(|one| SubscriptionState::of(one, there, config)),
            );
        }
    }
    all
}

fn look(config: &Config, source: &str) -> Result<Option<Vec<Subscribed>>, SourceFault> {
    let mut client = kinds::client(source, &config.sources[source], &config.pools)?;
    client.look_for_subscriptions()
}

impl SubscriptionState {
    fn of(one: &Subscription, there: Option<&[Subscribed]>, config: &Config) -> Self {
        let is_it = |other: &Subscribed| other.topic == one.topic && other.queue == one.queue;
        let mut pools = config.pools.iter();
        let pool = pools.find(|pool| pool.source == one.source && pool.reads(&one.queue));
        Self {
            source: one.source.clone(),
            topic: one.topic.clone(),
            queue: one.queue.clone(),
            subscribed: there.is_some_and(|there| there.iter().any(is_it)),
            pool: pool.map(|pool| pool.name.clone()),
            is_made: there.is_some(),
        }
    }

    /// Formats the state for people.
    pub(super) fn as_text(&self) -> String {
        let Self { topic, queue, .. } = self;
        let stands = match (self.subscribed, self.is_made) {
            (true, _) => "is subscribed",
            (false, true) => "will be subscribed when the daemon starts",
            (false, false) => {
                "will be subscribed when the daemon starts, which creates the tables for it"
            }
        };
        format!(
            "queue `{queue}` {stands}, to topic `{topic}` in {}",
            self.source
        )
    }
}

/// Returns warnings of messages that wait and that no pool reads.
pub(super) fn unread(path: &Path, all: &[SubscriptionState]) -> Vec<Problem> {
    let places = Places::read(path, &environment());
    let unread = all.iter().filter(|one| one.pool.is_none());
    let warning = |SubscriptionState { topic, queue, .. }: &SubscriptionState| {
        let message = format!(
            "subscriptions: no pool of this configuration reads a queue that is subscribed to topic \
             `{topic}`: `{queue}`"
        );
        let help = "its messages wait until a daemon with another configuration reads it: add a pool for \
                    it, unless there is one";
        places.about(&[&["subscriptions"]], message, help)
    };
    unread.map(warning).collect()
}
