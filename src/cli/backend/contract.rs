//! Operations of a command on the sources that it acts on.

use std::fmt::Debug;
use std::time::Duration;

use crate::cli::usage::{names, wrong};
use ganger_queue::client::shown::SubscriptionJson;
use ganger_queue::client::{Client, SourceInfo};
use ganger_queue::fault::SourceFault;

/// Sources that a command acts on.
pub(crate) trait Backend: Debug {
    /// Returns whether the command opens the sources itself.
    fn is_config(&self) -> bool;

    /// Lists all sources.
    fn sources(&self) -> miette::Result<Vec<SourceInfo>>;

    /// Returns the source that a message for a queue, or a topic, goes to; the one of that name if it is
    /// given.
    fn source_of(
        &self,
        queue: &str,
        is_topic: bool,
        name: Option<&str>,
    ) -> miette::Result<SourceInfo>;

    /// Connects to one of the sources.
    fn client(&self, source: &str) -> Result<Client, SourceFault>;

    /// Connects to one of the sources to send messages and to wait so long for their answers.
    fn sender(&self, source: &str, reply_timeout: Duration) -> miette::Result<Client>;

    /// Reads the subscriptions of all tables, or of the one of that name.
    fn read_subscriptions(&self, only: Option<&str>) -> miette::Result<Vec<SubscriptionJson>>;

    /// Ends a subscription.
    fn unsubscribe(&self, subscription: &SubscriptionJson) -> miette::Result<()>;
}

/// Lists the subscriptions of all tables, or of the one of that name.
pub(crate) fn subscriptions(
    backend: &dyn Backend,
    only: Option<&str>,
) -> miette::Result<Vec<SubscriptionJson>> {
    let mut tables = backend.sources()?;
    tables.retain(SourceInfo::is_table);
    match only {
        None if tables.is_empty() => return Err(wrong("there is no table among the sources")),
        Some(only) if tables.iter().all(|table| table.name != only) => {
            let known = names(tables.iter().map(|table| table.name.as_str()));
            return Err(wrong(format!(
                "there is no table `{only}` among the sources; there is {known}"
            )));
        }
        _ => {}
    }
    backend.read_subscriptions(only)
}
