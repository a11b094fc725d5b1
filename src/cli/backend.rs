//! The sources that a command acts on: those of the configuration, which it opens itself, or with
//! `--host` those of a running daemon, through its admin API.

use std::time::Duration;

use miette::{IntoDiagnostic, miette};

/// Where the sources are: without the admin API in a configuration only.
#[cfg(not(feature = "admin"))]
pub(super) use super::common::ConfigFile as Address;
#[cfg(feature = "admin")]
pub(super) use super::remote::Address;
#[cfg(feature = "admin")]
use super::remote::{block_on, undone};
use super::usage::{names, wrong};
#[cfg(feature = "admin")]
use crate::admin::RemoteSource;
#[cfg(feature = "admin")]
use crate::admin::client::{Remote, WAIT_MAX, segment};
use crate::broker::UnusableSource;
use crate::client::shown::SubscriptionJson;
use crate::client::{self, Client, SourceInfo, source_of, source_of_topic};
use crate::config::model::Config;

/// Sources that a command acts on.
#[derive(Debug)]
pub(super) enum Backend {
    /// Those of a configuration.
    Config(Box<Config>),
    /// Those of a running daemon.
    #[cfg(feature = "admin")]
    Daemon(Remote),
}

impl Backend {
    /// Reads the configuration, unless the address is that of a daemon.
    pub(super) fn at(address: &Address) -> miette::Result<Self> {
        #[cfg(feature = "admin")]
        if address.host().is_some() {
            return Ok(Self::Daemon(address.remote()?));
        }
        Ok(Self::Config(Box::new(address.load()?)))
    }

    /// Returns whether the command opens the sources itself.
    pub(super) fn is_config(&self) -> bool {
        matches!(self, Self::Config(_))
    }

    /// Lists all sources.
    pub(super) fn sources(&self) -> miette::Result<Vec<SourceInfo>> {
        match self {
            Self::Config(config) => Ok(SourceInfo::all(config)),
            #[cfg(feature = "admin")]
            Self::Daemon(remote) => block_on(remote.get("/v1/sources"))?.map_err(undone),
        }
    }

    /// Returns the source that a message for a queue, or a topic, goes to; the one of that name if it is
    /// given.
    pub(super) fn source_of(
        &self,
        queue: &str,
        is_topic: bool,
        name: Option<&str>,
    ) -> miette::Result<SourceInfo> {
        match self {
            Self::Config(config) => {
                let found = match is_topic {
                    true => source_of_topic(config, queue, name),
                    false => source_of(config, queue, name),
                };
                let (name, source) = found.map_err(wrong)?;
                Ok(SourceInfo::of(config, name, source))
            }
            #[cfg(feature = "admin")]
            Self::Daemon(remote) => {
                let kind = if is_topic { "topic" } else { "queue" };
                let mut path = format!("/v1/sources?{kind}={}", segment(queue));
                if let Some(name) = name {
                    path.push_str(&format!("&source={}", segment(name)));
                }
                let found: Vec<SourceInfo> = block_on(remote.get(&path))?.map_err(undone)?;
                let found = found.into_iter().next();
                found.ok_or_else(|| miette!("the daemon named no source; is it another version?"))
            }
        }
    }

    /// Connects to one of the sources.
    pub(super) fn client(&self, source: &str) -> Result<Client, UnusableSource> {
        match self {
            Self::Config(config) => Client::open(source, &config.sources[source], &config.pools),
            #[cfg(feature = "admin")]
            Self::Daemon(remote) => RemoteSource::client(remote, source, Duration::ZERO),
        }
    }

    /// Connects to one of the sources to send messages and to wait so long for their answers.
    pub(super) fn sender(&self, source: &str, reply_timeout: Duration) -> miette::Result<Client> {
        let client = match self {
            Self::Config(_) => self.client(source),
            #[cfg(feature = "admin")]
            Self::Daemon(_) if reply_timeout > WAIT_MAX => {
                return Err(wrong(format!(
                    "with --host, --reply-timeout must be at most {WAIT_MAX:?}: `{reply_timeout:?}`"
                )));
            }
            #[cfg(feature = "admin")]
            Self::Daemon(remote) => RemoteSource::client(remote, source, reply_timeout),
        };
        client.into_diagnostic()
    }

    /// Lists the subscriptions of all tables, or of the one of that name.
    pub(super) fn subscriptions(
        &self,
        only: Option<&str>,
    ) -> miette::Result<Vec<SubscriptionJson>> {
        let mut tables = self.sources()?;
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
        match self {
            Self::Config(config) => client::subscriptions(config, only).into_diagnostic(),
            #[cfg(feature = "admin")]
            Self::Daemon(remote) => {
                let all = block_on(remote.get("/v1/subscriptions"))?;
                let mut all: Vec<SubscriptionJson> = all.map_err(undone)?;
                all.retain(|one| only.is_none_or(|only| only == one.source));
                Ok(all)
            }
        }
    }

    /// Ends a subscription.
    pub(super) fn unsubscribe(&self, subscription: &SubscriptionJson) -> miette::Result<()> {
        let SubscriptionJson {
            source,
            topic,
            queue,
            ..
        } = subscription;
        match self {
            Self::Config(_) => {
                let mut client = self.client(source).into_diagnostic()?;
                client.unsubscribe(topic, queue).map(drop).into_diagnostic()
            }
            #[cfg(feature = "admin")]
            Self::Daemon(remote) => {
                let place = [source, topic, queue].map(|name| segment(name).to_string());
                let path = format!("/v1/subscriptions/{}", place.join("/"));
                let ended = block_on(remote.ask(hyper::Method::DELETE, &path, None))?;
                ended.map(drop).map_err(undone)
            }
        }
    }
}
