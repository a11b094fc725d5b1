//! A connection that claims and settles, with the statements that it knows.

use tokio::sync::OnceCell;
use tokio_postgres::Error;

use super::claim::Looks;
use super::error::{PostgresError, failed};
use super::finished::FinishedStatements;
use super::line::{Line, Place};
use super::settle::Statements;

/// A connection with the statements that it knows.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) line: Line,
    pub(super) looks: Looks,
    pub(super) statements: Statements,
    /// Only where something is entered.
    finished: OnceCell<FinishedStatements>,
}

impl Session {
    /// Connects, and prepares them.
    pub(super) async fn open(place: &Place) -> Result<Self, PostgresError> {
        let line = place.connect().await?;
        let client = &line.client;
        let prepared = client.as_one(async {
            tokio::try_join!(Looks::prepare(client), Statements::prepare(client))
        });
        let (looks, statements) = prepared.await.map_err(failed("preparing the statements"))?;
        Ok(Self {
            line,
            looks,
            statements,
            finished: OnceCell::new(),
        })
    }

    /// The statements on what is finished.
    pub(super) async fn finished(&self) -> Result<&FinishedStatements, Error> {
        let prepare = || FinishedStatements::prepare(&self.line.client);
        self.finished.get_or_try_init(prepare).await
    }
}
