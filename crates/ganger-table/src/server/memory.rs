//! The memory of finished messages on a server, for pools whose messages come from another source.

use async_trait::async_trait;
use tokio::time::timeout;

use super::dialect::{Dialect, StatementError};
use super::lasting::{ANSWERS_WITHIN, Lasting, Silent};
use super::store::CLASHES_MAX;
use crate::finished::FinishedStore;
use crate::rules::bytes;
use crate::table::Fault;
use crate::table::finished::{Entry, Found, Scope};
use ganger_queue::delivery::Identity;

/// A connection of its own to the server with the entries.
#[derive(Debug)]
pub(crate) struct ServerMemory<D: Dialect> {
    scope: Scope,
    connection: Lasting<D>,
}

impl<D: Dialect> ServerMemory<D> {
    /// Connects. If `may_pass` returns true for the error, the connection is opened later.
    pub(crate) async fn open(
        place: D::Place,
        scope: Scope,
        may_pass: fn(&D::Refusal) -> bool,
    ) -> Result<Self, D::Refusal> {
        let connection = match D::open(&place).await {
            Ok(connection) => Some(connection),
            Err(refusal) if may_pass(&refusal) => None,
            Err(refusal) => return Err(refusal),
        };
        Ok(Self {
            scope,
            connection: Lasting::new(place, connection),
        })
    }
}

#[async_trait(?Send)]
impl<D: Dialect> FinishedStore for ServerMemory<D> {
    async fn enter(&mut self, entries: &[Entry<'_>]) -> Result<Found, Fault> {
        D::check_sizes(entries.iter().map(|entry| bytes(entry.outcome)))?;
        let mut clashes = 0;
        loop {
            let connection = self.connection.get().await?;
            let entered = timeout(ANSWERS_WITHIN, connection.enter(&self.scope, entries)).await;
            match entered {
                Ok(Err(error)) if error.is_a_clash() && clashes < CLASHES_MAX => clashes += 1,
                entered => {
                    let entered = entered.map_err(|_| Silent(ANSWERS_WITHIN));
                    return self.connection.heard(entered);
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
