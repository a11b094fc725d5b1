//! Statements of the ledger on the connection of a server.

use crate::ledger::values::{SqlRow, SqlValue};
use crate::server::dialect::StatementError;

/// A connection that runs statements of the ledger, in the open transaction if there is one.
pub(crate) trait Sql {
    type Error: StatementError;

    /// Query for the time of the server's clock, in milliseconds.
    const NOW_MS: &'static str;

    /// Expression for the id of the occurrence that the headers of the message `m` name. It fails for no
    /// headers that can be stored.
    const OCCURRENCE: &'static str;

    /// Words that have the messages of an owner found by their index.
    const BY_OWNER: &'static str;

    /// Returns whether the tables of a ledger exist.
    async fn has_ledger(&mut self) -> Result<bool, Self::Error>;

    /// Runs a query for each of these values, one for each `?`, in one round trip. Returns the rows of
    /// each.
    async fn query_each(
        &mut self,
        text: &str,
        values: &[Vec<SqlValue<'_>>],
    ) -> Result<Vec<Vec<SqlRow>>, Self::Error>;

    /// Runs a statement for each of these values, in one round trip. Returns the number of rows that each
    /// has changed.
    async fn each(
        &mut self,
        text: &str,
        values: &[Vec<SqlValue<'_>>],
    ) -> Result<Vec<u64>, Self::Error>;

    /// Runs a query with a value for each `?`, and returns its rows.
    async fn query(
        &mut self,
        text: &str,
        values: &[SqlValue<'_>],
    ) -> Result<Vec<SqlRow>, Self::Error> {
        let rows = self.query_each(text, &[values.to_vec()]).await?.pop();
        Ok(rows.unwrap_or_default())
    }

    /// Returns the time of the server's clock, in milliseconds.
    async fn now_ms(&mut self) -> Result<i64, Self::Error> {
        let rows = self.query(Self::NOW_MS, &[]).await?;
        Ok(rows.first().and_then(|row| row.number(0)).unwrap_or(0))
    }
}
