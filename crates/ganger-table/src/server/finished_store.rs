//! Store of finished messages on a server, for pools whose messages come from another source.

use async_trait::async_trait;
use tokio::time::timeout;

use super::dialect::{Dialect, StatementError};
use super::reconnecting::{ANSWERS_WITHIN, NoAnswer, Reconnecting};
use super::store::CONFLICTS_MAX;
use crate::finished::FinishedStore;
use crate::rules::bytes;
use crate::table::Fault;
use crate::table::finished::{Entry, Found, Scope};
use ganger_queue::delivery::Identity;

/// A connection of its own to the server with the entries.
#[derive(Debug)]
pub(crate) struct ServerFinishedStore<D: Dialect> {
    scope: Scope,
    connection: Reconnecting<D>,
}

impl<D: Dialect> ServerFinishedStore<D> {
    /// Connects. If `is_transient` returns true for the error, the connection is opened later.
    pub(crate) async fn open(
        target: D::Target,
        scope: Scope,
        is_transient: fn(&D::Refusal) -> bool,
    ) -> Result<Self, D::Refusal> {
        let connection = match D::open(&target).await {
            Ok(connection) => Some(connection),
            Err(refusal) if is_transient(&refusal) => None,
            Err(refusal) => return Err(refusal),
        };
        Ok(Self {
            scope,
            connection: Reconnecting::new(target, connection),
        })
    }
}

#[async_trait(?Send)]
impl<D: Dialect> FinishedStore for ServerFinishedStore<D> {
    async fn enter(&mut self, entries: &[Entry<'_>]) -> Result<Found, Fault> {
        D::check_sizes(entries.iter().map(|entry| bytes(entry.outcome)))?;
        let mut conflicts = 0;
        loop {
            let connection = self.connection.get().await?;
            let entered = timeout(ANSWERS_WITHIN, connection.enter(&self.scope, entries)).await;
            match entered {
                Ok(Err(error)) if error.is_conflict() && conflicts < CONFLICTS_MAX => {
                    conflicts += 1
                }
                entered => {
                    let entered = entered.map_err(|_| NoAnswer(ANSWERS_WITHIN));
                    return self.connection.check_answer(entered);
                }
            }
        }
    }

    async fn find(&mut self, identities: &[&Identity]) -> Result<Found, Fault> {
        let scope = &self.scope;
        let find = async |connection: &mut D| connection.find(scope, identities).await;
        self.connection.ask(find).await
    }

    async fn expire(&mut self, most: u32) -> Result<usize, Fault> {
        let expire = async |connection: &mut D| connection.expire(most).await;
        let removed = self.connection.ask(expire).await?;
        Ok(usize::try_from(removed).unwrap_or(usize::MAX))
    }
}
