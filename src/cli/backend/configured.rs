//! The sources of a configuration, which a command opens itself.

use std::time::Duration;

use miette::IntoDiagnostic;

use super::contract::Backend;
use crate::cli::usage::wrong;
use crate::kinds;
use ganger_config::model::Config;
use ganger_queue::client::shown::SubscriptionJson;
use ganger_queue::client::{self, Client, SourceInfo, source_of, source_of_topic};
use ganger_queue::fault::SourceFault;

/// The sources of a configuration.
#[derive(Debug)]
pub(crate) struct Configured(pub(crate) Box<Config>);

impl Backend for Configured {
    fn is_config(&self) -> bool {
        true
    }

    fn sources(&self) -> miette::Result<Vec<SourceInfo>> {
        Ok(SourceInfo::all(&self.0))
    }

    fn source_of(
        &self,
        queue: &str,
        is_topic: bool,
        name: Option<&str>,
    ) -> miette::Result<SourceInfo> {
        let found = match is_topic {
            true => source_of_topic(&self.0, queue, name),
            false => source_of(&self.0, queue, name),
        };
        let (name, source) = found.map_err(wrong)?;
        Ok(SourceInfo::of(&self.0, name, source))
    }

    fn client(&self, source: &str) -> Result<Client, SourceFault> {
        kinds::client(source, &self.0.sources[source], &self.0.pools)
    }

    fn sender(&self, source: &str, _reply_timeout: Duration) -> miette::Result<Client> {
        self.client(source).into_diagnostic()
    }

    fn read_subscriptions(&self, only: Option<&str>) -> miette::Result<Vec<SubscriptionJson>> {
        client::subscriptions(kinds::client, &self.0, only).into_diagnostic()
    }

    fn unsubscribe(&self, subscription: &SubscriptionJson) -> miette::Result<()> {
        let mut client = self.client(&subscription.source).into_diagnostic()?;
        let ended = client.unsubscribe(&subscription.topic, &subscription.queue);
        ended.map(drop).into_diagnostic()
    }
}
