//! One transaction: it settles and publishes, and then claims. Statements that do not depend on each
//! other's results are sent together, so that it takes two round trips, whatever the amount. Entries of
//! finished messages, occurrences and a probe need more.

use std::borrow::Cow;
use std::collections::HashSet;

use tokio::time::Instant;
use tokio_postgres::Error;

use super::claim::{self, Claimer, Picked};
use super::client::Client;
use super::connect::RawConnection;
use super::finished;
use super::front::{Front, Position};
use super::session::Session;
use super::settle::{self, Sorted};
use crate::server::dialect::{Aborted, WriteContext, after_entering, given_back};
use crate::server::occurrences;
use crate::server::sql::Sql;
use crate::table::{Claim, ClaimRequest, Settled, Stop, Work, WriteResult};

/// Rolls the open transaction back if the result is an error.
pub(super) async fn roll_back_unless<T, E>(client: &Client, result: Result<T, E>) -> Result<T, E> {
    if result.is_err() {
        // If that fails, too, the connection is lost, and the transaction with it.
        drop(client.roll_back().await);
    }
    result
}

/// One transaction.
#[derive(Debug, Clone, Copy)]
pub(super) struct Transaction<'a> {
    pub(super) session: &'a Session,
    pub(super) context: WriteContext<'a>,
}

impl Transaction<'_> {
    /// Does the work. Claims are in `unconfirmed` while their outcome is unknown.
    pub(super) async fn write(
        self,
        work: &Work<'_>,
        unconfirmed: &mut Vec<Claim>,
        front: &mut Front,
    ) -> Result<WriteResult, Aborted<Error>> {
        let client = &self.session.raw.client;
        let written = self.in_two_steps(work, unconfirmed, front).await;
        roll_back_unless(client, written).await
    }

    /// First sends all statements that need no result, and then those that depend on the claimed rows.
    async fn in_two_steps(
        self,
        work: &Work<'_>,
        unconfirmed: &mut Vec<Claim>,
        front: &mut Front,
    ) -> Result<WriteResult, Aborted<Error>> {
        let Session {
            raw: RawConnection { client, .. },
            statements,
            ..
        } = self.session;
        let beyond = front.beyond(Instant::now());
        let (settled, repeated) = self.enter(work.settled).await?;
        let has_begun = enters(work.settled);
        let has_begun = self.follow(work, &settled, has_begun).await?;
        let sorted = Sorted::of(&settled);
        let messages = work.publishes.iter().map(|publish| &publish.message);
        let (begun, published, settled, picked) = tokio::join!(
            biased;
            self.begin_unless(has_begun),
            settle::publish(client, statements, messages),
            settle::settle(client, statements, self.context.pool, &sorted),
            self.claim(work, beyond),
        );
        begun?;
        published?;
        let ours: HashSet<i64> = settled?.into_iter().collect();
        let picked = picked?;
        // Not sent together with the claim: if that failed, this would report an aborted transaction
        // without the cause.
        self.probe(work).await?;
        let lost = work
            .settled
            .iter()
            .filter(|settled| settled.outcome.is_of_work() && !ours.contains(&settled.claim.token));
        let lost = lost.map(|settled| settled.claim).collect();
        match (picked, &work.ask) {
            (Some(picked), Some(ask)) => {
                let written = self.finish(picked, ask, beyond, unconfirmed, front).await?;
                Ok(WriteResult {
                    lost,
                    repeated,
                    ..written
                })
            }
            (None, Some(_)) => Err(Aborted::NotAnOwner),
            (_, None) => {
                client.commit().await?;
                Ok(WriteResult {
                    lost,
                    repeated,
                    ..WriteResult::default()
                })
            }
        }
    }

    /// Writes the entries of finished messages, if there are any, in a transaction that it begins.
    /// Returns the settlements to apply, and the claims of repetitions.
    async fn enter<'w>(
        self,
        settled: &'w [Settled],
    ) -> Result<(Cow<'w, [Settled]>, Vec<Claim>), Error> {
        if !enters(settled) {
            return Ok((settled.into(), Vec::new()));
        }
        let client = &self.session.raw.client;
        self.begin().await?;
        let entries: Vec<_> = settled.iter().filter_map(Settled::entry).collect();
        let statements = self.session.finished().await?;
        let first = finished::enter(client, statements, self.context.scope, &entries).await?;
        let (settled, repeated) = after_entering(settled, first);
        Ok((settled.into(), repeated))
    }

    /// Notes in the ledger what has become of occurrences, if there are any, in a transaction that it begins
    /// unless that `has_begun`. Returns whether it has then.
    async fn follow(
        self,
        work: &Work<'_>,
        settled: &[Settled],
        has_begun: bool,
    ) -> Result<bool, Error> {
        let claims = occurrences::followed(work);
        let mut connection = &self.session.raw;
        if claims.is_empty() || !connection.has_ledger().await? {
            return Ok(has_begun);
        }
        self.begin_unless(has_begun).await?;
        let held = settle::held(&connection.client, &claims).await?;
        occurrences::follow(&mut connection, &held, settled, work).await?;
        Ok(true)
    }

    /// Begins the transaction, unless something was written in it.
    async fn begin_unless(self, has_begun: bool) -> Result<(), Error> {
        if has_begun {
            return Ok(());
        }
        self.begin().await
    }

    async fn begin(self) -> Result<(), Error> {
        let client = &self.session.raw.client;
        match self.context.limit {
            None => client.begin().await,
            Some(limit) => {
                let limit = format!("SET LOCAL statement_timeout = {}", limit.as_millis());
                client.begin_with(&limit).await
            }
        }
    }

    /// Writes something, even if there is no other work, to learn whether the database accepts writes.
    async fn probe(self, work: &Work<'_>) -> Result<(), Error> {
        if work.probe {
            let pulse = "UPDATE owners SET heartbeat = heartbeat + 1 WHERE id = $1";
            let owner = self.context.owner.unwrap_or(0);
            self.session.raw.client.execute(pulse, &[&owner]).await?;
        }
        Ok(())
    }

    async fn claim(
        self,
        work: &Work<'_>,
        beyond: Option<Position>,
    ) -> Result<Option<Picked>, Error> {
        let (Some(ask), Some(owner)) = (&work.ask, self.context.owner) else {
            return Ok(None);
        };
        let who = Claimer {
            owner,
            queue: &self.context.scope.queue,
            rejected: self.context.rejected,
            beyond,
        };
        let Session { raw, looks, .. } = self.session;
        claim::claim(&raw.client, looks, who, ask, self.context.searched).await
    }

    /// Dead-letters the rows that are not handed out, checks for more rows, and commits.
    async fn finish(
        self,
        picked: Picked,
        ask: &ClaimRequest<'_>,
        beyond: Option<Position>,
        unconfirmed: &mut Vec<Claim>,
        front: &mut Front,
    ) -> Result<WriteResult, Aborted<Error>> {
        let Session {
            raw: RawConnection { client, .. },
            statements,
            ..
        } = self.session;
        let before = unconfirmed.len();
        unconfirmed.extend(picked.claimed.iter().map(|claimed| claimed.claim));
        unconfirmed.extend(picked.buried.iter().map(|(claim, _)| *claim));
        let letters = picked
            .buried
            .iter()
            .map(|(claim, buried)| (*claim, &buried.failure));
        let letters: Vec<_> = letters.collect();
        let rows = letters.iter().map(|(claim, failure)| (claim.row, *failure));
        let rows: Vec<_> = rows.collect();
        occurrences::buried(&mut &self.session.raw, &rows).await?;
        let (buried, outlook, committed) = tokio::join!(
            biased;
            settle::bury(client, statements, self.context.pool, &letters, false),
            self.session.look(front, &self.context.scope.queue, ask.limits, self.context.rejected, beyond),
            client.commit(),
        );
        // If one of them has failed, the commit was a rollback, whatever the server reported.
        let (_, outlook, ()) = (buried?, outlook?, committed?);
        unconfirmed.truncate(before);
        front.claimed(picked.last, !matches!(picked.stop, Some(Stop::Full)));
        let stop = picked.stop;
        let stop = stop.map(|stop| self.context.stop(stop, ask, &outlook));
        Ok(WriteResult {
            claimed: picked.claimed,
            buried: picked
                .buried
                .into_iter()
                .map(|(_, buried)| buried)
                .collect(),
            stop,
            suspects_wait: outlook.suspects_wait,
            due_in: outlook.due_in,
            ..WriteResult::default()
        })
    }
}

/// Returns whether any settlement has an entry of a finished message.
fn enters(settled: &[Settled]) -> bool {
    settled.iter().any(|settled| settled.entry().is_some())
}

/// Releases those of these claims that took effect. Returns the number released.
pub(super) async fn give_back(session: &Session, claims: &[Claim]) -> Result<usize, Error> {
    let client = &session.raw.client;
    let rows: Vec<i64> = claims.iter().map(|claim| claim.row).collect();
    let settled = given_back(claims);
    let sorted = Sorted::of(&settled);
    // Searched by id only: a condition on the claim would not wait for the other transaction.
    let wait = "SELECT FROM consumer_messages WHERE id = ANY($1) ORDER BY id FOR UPDATE";
    client.begin().await?;
    let freed = async {
        client.query(wait, &[&rows]).await?;
        let freed = settle::settle(client, &session.statements, "", &sorted).await?;
        client.commit().await?;
        Ok(freed.len())
    };
    roll_back_unless(client, freed.await).await
}
