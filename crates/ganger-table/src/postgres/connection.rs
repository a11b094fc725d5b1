//! The SQL of PostgreSQL as the stores of messages and of finished messages use it.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;
use tokio_postgres::Error;

use super::connect::ConnectTarget;
use super::error::{PostgresError, too_large};
use super::front::Front;
use super::session::Session;
use super::transaction::{Transaction, give_back};
use super::{claim, finished, owners, rejected, settle, waiting};
use crate::server::dialect::{Aborted, Dialect, WriteContext};
use crate::server::poll_interval::Pace;
use crate::server::poll_plan::{Polling, QUIET};
use crate::server::reconnecting::Openable;
use crate::table::finished::{Entry, Found, Scope};
use crate::table::{Claim, Fault, PeekResult, WaitingRows, Work, WriteResult};
use ganger_queue::attempts::Limits;
use ganger_queue::delivery::Identity;

const BYTES: &str = "
SELECT coalesce(sum(pg_total_relation_size(name)), 0)::bigint
FROM (VALUES ('consumer_messages'::regclass), ('poisoned_messages')) AS t(name)";

/// A connection, and the position at which its searches begin.
#[derive(Debug)]
pub(crate) struct Connection {
    session: Session,
    front: Front,
}

impl Openable for Connection {
    type Target = ConnectTarget;
    type Refusal = PostgresError;
    type Error = Error;

    async fn open(target: &ConnectTarget) -> Result<Self, PostgresError> {
        let session = Session::open(target).await?;
        Ok(Self {
            session,
            front: Front::default(),
        })
    }

    fn is_closed(&self) -> bool {
        self.session.raw.client.is_closed()
    }

    fn abort(self) {
        self.session.raw.abort();
    }
}

impl Dialect for Connection {
    const POLLING: Polling = Polling {
        pace: Pace {
            shortest: Duration::from_millis(5),
            lasts: QUIET,
        },
        notifies: true,
    };

    fn check_sizes(bytes: impl Iterator<Item = usize>) -> Result<(), Fault> {
        too_large(bytes)
    }

    async fn write(
        &mut self,
        context: WriteContext<'_>,
        work: &Work<'_>,
        unconfirmed: &mut Vec<Claim>,
    ) -> Result<WriteResult, Aborted<Error>> {
        let session = &self.session;
        let transaction = Transaction { session, context };
        transaction.write(work, unconfirmed, &mut self.front).await
    }

    async fn give_back(&mut self, claims: &[Claim]) -> Result<usize, Error> {
        give_back(&self.session, claims).await
    }

    async fn refused(
        &mut self,
        queue: &str,
        limits: Limits,
        known: &[i64],
    ) -> Result<Vec<i64>, Error> {
        let (client, statements) = (&self.session.raw.client, &self.session.statements);
        rejected::refused(client, statements, queue, limits, known).await
    }

    async fn peek(
        &mut self,
        queue: &str,
        limits: Limits,
        rejected: &[i64],
    ) -> Result<PeekResult, Error> {
        let beyond = self.front.beyond(Instant::now());
        let front = &mut self.front;
        let look = self.session.look(front, queue, limits, rejected, beyond);
        look.await
    }

    async fn waiting(&mut self, queue: &str, most: u32) -> Result<WaitingRows, Error> {
        let Session { raw, counts, .. } = &self.session;
        waiting::waiting(&raw.client, counts, queue, most).await
    }

    async fn queues(&mut self, most: u32) -> Result<BTreeSet<String>, Error> {
        waiting::queues(&self.session.raw.client, most).await
    }

    async fn count_delayed(&mut self, queue: &str, most: u32) -> Result<u64, Error> {
        let Session { raw, counts, .. } = &self.session;
        waiting::count_delayed(&raw.client, counts, queue, most).await
    }

    async fn is_paused(&mut self, queue: &str) -> Result<bool, Error> {
        claim::is_paused(&self.session.raw.client, queue).await
    }

    async fn bytes(&mut self) -> Result<u64, Error> {
        let bytes = self.session.raw.client.query_one(BYTES, &[]).await?;
        bytes.try_get(0).map(i64::unsigned_abs)
    }

    async fn locked(&mut self, rows: &[i64]) -> Result<Vec<i64>, Error> {
        settle::locked(&self.session.raw.client, rows).await
    }

    async fn leave(&mut self, owner: i64) -> Result<(), Error> {
        owners::leave(&self.session.raw.client, owner).await
    }

    /// Without an explicit transaction, since only one of the statements changes anything.
    async fn enter(&mut self, scope: &Scope, entries: &[Entry<'_>]) -> Result<Found, Error> {
        let statements = self.session.finished().await?;
        finished::enter(&self.session.raw.client, statements, scope, entries).await
    }

    async fn find(&mut self, scope: &Scope, identities: &[&Identity]) -> Result<Found, Error> {
        let statements = self.session.finished().await?;
        finished::find(&self.session.raw.client, statements, scope, identities).await
    }

    async fn expire(&mut self, most: u32) -> Result<u64, Error> {
        let statements = self.session.finished().await?;
        finished::expire(&self.session.raw.client, statements, most).await
    }
}
