//! The sources of a running daemon, which a command acts on through its admin API.

use std::time::Duration;

use miette::{IntoDiagnostic, miette};

use super::contract::Backend;
use crate::cli::live::remote::{Address, block_on, undone};
use crate::cli::usage::wrong;
use ganger_admin::RemoteSource;
use ganger_admin::client::{Remote, WAIT_MAX, segment};
use ganger_queue::client::shown::SubscriptionJson;
use ganger_queue::client::{Client, SourceInfo};
use ganger_queue::fault::SourceFault;

/// The sources of a running daemon.
#[derive(Debug)]
pub(super) struct Elsewhere(Remote);

impl Elsewhere {
    /// Returns the sources of the daemon at the address, if it is a daemon's.
    pub(super) fn at(address: &Address) -> miette::Result<Option<Self>> {
        match address.host() {
            Some(_) => Ok(Some(Self(address.remote()?))),
            None => Ok(None),
        }
    }
}

impl Backend for Elsewhere {
    fn is_config(&self) -> bool {
        false
    }

    fn sources(&self) -> miette::Result<Vec<SourceInfo>> {
        block_on(self.0.get("/v1/sources"))?.map_err(undone)
    }

    fn source_of(
        &self,
        queue: &str,
        is_topic: bool,
        name: Option<&str>,
    ) -> miette::Result<SourceInfo> {
        let kind = if is_topic { "topic" } else { "queue" };
        let mut path = format!("/v1/sources?{kind}={}", segment(queue));
        if let Some(name) = name {
            path.push_str(&format!("&source={}", segment(name)));
        }
        let found: Vec<SourceInfo> = block_on(self.0.get(&path))?.map_err(undone)?;
        let found = found.into_iter().next();
        found.ok_or_else(|| miette!("the daemon's answer names no source; is it another version?"))
    }

    fn client(&self, source: &str) -> Result<Client, SourceFault> {
        RemoteSource::client(&self.0, source, Duration::ZERO)
    }

    fn sender(&self, source: &str, reply_timeout: Duration) -> miette::Result<Client> {
        if reply_timeout > WAIT_MAX {
            return Err(wrong(format!(
                "with --host, --reply-timeout must be at most {WAIT_MAX:?}: `{reply_timeout:?}`"
            )));
        }
        RemoteSource::client(&self.0, source, reply_timeout).into_diagnostic()
    }

    fn read_subscriptions(&self, only: Option<&str>) -> miette::Result<Vec<SubscriptionJson>> {
        let all = block_on(self.0.get("/v1/subscriptions"))?;
        let mut all: Vec<SubscriptionJson> = all.map_err(undone)?;
        all.retain(|one| only.is_none_or(|only| only == one.source));
        Ok(all)
    }

    fn unsubscribe(&self, subscription: &SubscriptionJson) -> miette::Result<()> {
        let SubscriptionJson {
            source,
            topic,
            queue,
            ..
        } = subscription;
        let place = [source, topic, queue].map(|name| segment(name).to_string());
        let path = format!("/v1/subscriptions/{}", place.join("/"));
        let ended = block_on(self.0.ask(hyper::Method::DELETE, &path, None))?;
        ended.map(drop).map_err(undone)
    }
}
