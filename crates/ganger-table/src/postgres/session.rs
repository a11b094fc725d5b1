//! The statements of a connection, prepared once.

use tokio::sync::OnceCell;
use tokio::time::Instant;
use tokio_postgres::Error;

use super::claim::{self, ClaimStatements};
use super::connect::{ConnectTarget, RawConnection};
use super::error::{PostgresError, failed};
use super::finished::FinishedStatements;
use super::front::{Front, Position};
use super::settle::Statements;
use super::waiting::Counts;
use crate::table::PeekResult;
use ganger_queue::attempts::Limits;

/// A connection with its statements.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) raw: RawConnection,
    pub(super) looks: ClaimStatements,
    pub(super) statements: Statements,
    pub(super) counts: Counts,
    /// Prepared on first use.
    finished: OnceCell<FinishedStatements>,
}

impl Session {
    /// Connects, and prepares the statements.
    pub(super) async fn open(target: &ConnectTarget) -> Result<Self, PostgresError> {
        let raw = target.connect().await?;
        let client = &raw.client;
        let prepared = client.as_one(async {
            tokio::try_join!(
                ClaimStatements::prepare(client),
                Counts::prepare(client),
                Statements::prepare(client)
            )
        });
        let prepared = prepared.await.map_err(failed("preparing the statements"));
        let (looks, counts, statements) = prepared?;
        Ok(Self {
            raw,
            looks,
            statements,
            counts,
            finished: OnceCell::new(),
        })
    }

    /// Returns the statements for entries of finished messages.
    pub(super) async fn finished(&self) -> Result<&FinishedStatements, Error> {
        let prepare = || FinishedStatements::prepare(&self.raw.client);
        self.finished.get_or_try_init(prepare).await
    }

    /// Checks whether the queue has ready or due rows, beyond a position or anywhere. With a position, the
    /// result falls due at the time of the next search from the start.
    pub(super) async fn look(
        &self,
        front: &mut Front,
        queue: &str,
        limits: Limits,
        rejected: &[i64],
        beyond: Option<Position>,
    ) -> Result<PeekResult, Error> {
        let (client, looks) = (&self.raw.client, &self.looks);
        let began = Instant::now();
        let peek = claim::peek(client, looks, queue, limits, rejected, beyond);
        let mut outlook = peek.await?;
        let now = Instant::now();
        if beyond.is_none() {
            front.looked(now, now - began, outlook.ready);
        } else if let Some(again) = front.again() {
            let again_in = again.saturating_duration_since(now);
            let due_in = outlook.due_in;
            outlook.due_in = Some(due_in.map_or(again_in, |due_in| due_in.min(again_in)));
        }
        Ok(outlook)
    }
}
