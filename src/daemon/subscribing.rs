//! Adds the configured subscriptions to their tables, until it succeeds. Runs on a thread of its own: a
//! database that is away blocks nothing else.

use crate::kinds;
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};

use ganger_config::model::{Config, SourceConfig, Subscription};
use ganger_core::backoff::AWAY;

/// Subscriptions that are being added. Dropping it cancels that.
#[derive(Debug)]
pub(super) struct Subscribing(#[expect(dead_code, reason = "held")] Option<SyncSender<()>>);

impl Subscribing {
    /// Returns a task without subscriptions.
    pub(super) fn none() -> Self {
        Self(None)
    }

    /// Begins to add the configured subscriptions.
    pub(super) fn begin(config: &Config) -> Self {
        let mut wanted: BTreeMap<&str, Vec<Subscription>> = BTreeMap::new();
        for subscription in &config.subscriptions {
            let of_source = wanted.entry(&subscription.source).or_default();
            of_source.push(subscription.clone());
        }
        let wanted = wanted.into_iter().filter_map(|(name, subscriptions)| {
            let source = config.sources.get(name)?.clone();
            Some((name.to_owned(), source, subscriptions))
        });
        let wanted: Vec<_> = wanted.collect();
        if wanted.is_empty() {
            return Self::none();
        }
        // Nothing is ever sent: it is closed when we are dropped.
        let (held, given_up) = sync_channel(1);
        let work = move || {
            wanted
                .iter()
                .try_for_each(|wanted| until_added(wanted, &given_up))
        };
        let thread = std::thread::Builder::new().name("subscriptions".to_owned());
        match thread.spawn(work) {
            Ok(_) => Self(Some(held)),
            Err(error) => {
                tracing::error!(%error, "adding subscriptions failed; the next reload tries it again");
                Self::none()
            }
        }
    }
}

/// Retries until the subscriptions are added; none if it was cancelled.
fn until_added(
    (name, source, subscriptions): &(String, SourceConfig, Vec<Subscription>),
    given_up: &Receiver<()>,
) -> Option<()> {
    for tries in 1.. {
        let added =
            kinds::client(name, source, &[]).and_then(|mut client| client.subscribe(subscriptions));
        match added {
            Ok(added) => {
                for Subscription { topic, queue, .. } in added {
                    tracing::info!(
                        source = name,
                        topic,
                        queue,
                        "subscribed the queue to the topic"
                    );
                }
                return Some(());
            }
            Err(error) => {
                tracing::error!(source = name, %error, "adding subscriptions failed; retrying");
            }
        }
        match given_up.recv_timeout(AWAY.wait(tries, fastrand::f64())) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return None,
        }
    }
    None
}
