//! One transaction: it settles and publishes, and then claims. It takes up to three round trips: one
//! that locks, one that writes, one that claims. Entries of finished messages need two more, occurrences
//! three, and statements beyond the size of a packet need more, too.

use std::borrow::Cow;
use std::collections::HashSet;

use super::claim::{self, ClaimQueries, Claimer, Picked};
use super::client::{Answer, Client};
use super::error::CallError;
use super::finished;
use super::settle;
use super::value::Script;
use crate::server::dialect::{Aborted, WriteContext, after_entering, given_back};
use crate::server::occurrences;
use crate::server::sql::Sql;
use crate::table::{Claim, ClaimRequest, Settled, Work, WriteResult};

/// Rolls the open transaction back if the result is an error.
pub(super) async fn roll_back_unless<T, E>(
    client: &mut Client,
    result: Result<T, E>,
) -> Result<T, E> {
    if result.is_err() {
        // If that fails, too, the connection is lost, and the transaction with it.
        drop(client.roll_back().await);
    }
    result
}

/// One transaction.
#[derive(Debug)]
pub(super) struct Transaction<'a> {
    pub(super) client: &'a mut Client,
    pub(super) context: WriteContext<'a>,
}

impl Transaction<'_> {
    /// Does the work. Claims are in `unconfirmed` while their outcome is unknown.
    pub(super) async fn write(
        mut self,
        work: &Work<'_>,
        unconfirmed: &mut Vec<Claim>,
    ) -> Result<WriteResult, Aborted<CallError>> {
        let written = self.in_three_steps(work, unconfirmed).await;
        roll_back_unless(self.client, written).await
    }

    async fn in_three_steps(
        &mut self,
        work: &Work<'_>,
        unconfirmed: &mut Vec<Claim>,
    ) -> Result<WriteResult, Aborted<CallError>> {
        let (script, settled, repeated) = self.enter(work.settled).await?;
        let (held, due) = self.lock(script, &settled, work).await?;
        if !occurrences::followed(work).is_empty() && self.client.has_ledger().await? {
            occurrences::follow(self.client, &held, &settled, work).await?;
        }
        let is_held = |settled: &&Settled| held.contains(&settled.claim);
        let lost = work.settled.iter().filter(|settled| !is_held(settled));
        let lost = lost.filter(|settled| settled.outcome.is_of_work());
        let lost = lost.map(|settled| settled.claim).collect();

        let mut script = self.client.script();
        settle::settle(
            &mut script,
            self.context.pool,
            settled.iter().filter(is_held),
        );
        settle::publish(
            &mut script,
            work.publishes.iter().map(|publish| &publish.message),
        );
        self.probe(&mut script, work);
        let written = match (&work.ask, self.context.owner) {
            (None, _) => {
                self.client.commit_by(&mut script);
                self.client.run(script).await?;
                WriteResult::default()
            }
            (Some(_), None) => return Err(Aborted::NotAnOwner),
            (Some(ask), Some(owner)) => {
                let who = self.claimer(owner);
                claim::make_ready(&mut script, &due);
                let asked = claim::ask(&mut script, who, ask, self.context.searched.suspects);
                let answers = self.client.run(script).await?;
                let picked = pick(answers, &asked, ask, due.len())?;
                self.finish(owner, picked, ask, unconfirmed).await?
            }
        };
        Ok(WriteResult {
            lost,
            repeated,
            ..written
        })
    }

    fn claimer(&self, owner: i64) -> Claimer<'_> {
        Claimer {
            owner,
            queue: &self.context.scope.queue,
            rejected: self.context.rejected,
        }
    }

    /// Begins the transaction, and writes the entries of finished messages. Returns the script to
    /// continue with, the settlements to apply, and the claims of repetitions. Without entries, the
    /// script begins the transaction.
    async fn enter<'w>(
        &mut self,
        settled: &'w [Settled],
    ) -> Result<(Script, Cow<'w, [Settled]>, Vec<Claim>), CallError> {
        let begin = self.client.transaction(self.context.limit);
        if settled.iter().all(|settled| settled.entry().is_none()) {
            return Ok((begin, settled.into(), Vec::new()));
        }
        self.client.run(begin).await?;
        let entries: Vec<_> = settled.iter().filter_map(Settled::entry).collect();
        let first = finished::enter(self.client, self.context.scope, &entries).await?;
        let (settled, repeated) = after_entering(settled, first);
        Ok((self.client.script(), settled.into(), repeated))
    }

    /// Locks the rows to settle and, if they are searched for, the due ones. Returns the current claims
    /// of the former, and the latter.
    async fn lock(
        &mut self,
        mut script: Script,
        settled: &[Settled],
        work: &Work<'_>,
    ) -> Result<(HashSet<Claim>, Vec<i64>), CallError> {
        let begun = work.begun.iter().map(|(claim, _)| *claim);
        let claims = settled.iter().map(|settled| settled.claim).chain(begun);
        let held = settle::hold(&mut script, claims);
        let due = match (&work.ask, self.context.owner) {
            (Some(_), Some(owner)) if self.context.searched.due => {
                Some(claim::due(&mut script, self.claimer(owner)))
            }
            _ => None,
        };
        let answers = self.client.run(script).await?;
        let held = held.map(|at| settle::held(&answers[at])).transpose()?;
        let due = due.map(|at| settle::numbers(&answers[at])).transpose()?;
        Ok((held.unwrap_or_default(), due.unwrap_or_default()))
    }

    /// Writes something, even if there is no other work, to learn whether the database accepts writes.
    fn probe(&self, script: &mut Script, work: &Work<'_>) {
        if work.probe {
            let pulse = "UPDATE owners SET heartbeat = heartbeat + 1 WHERE id = ?";
            script.add(pulse, &[self.context.owner.unwrap_or(0).into()]);
        }
    }

    /// Claims the picked rows, dead-letters those that are not handed out, checks for more rows, and
    /// commits.
    async fn finish(
        &mut self,
        owner: i64,
        picked: Picked,
        ask: &ClaimRequest<'_>,
        unconfirmed: &mut Vec<Claim>,
    ) -> Result<WriteResult, Aborted<CallError>> {
        let mut script = self.client.script();
        let stop = picked.stop;
        let (mut marked, bodies) = picked.mark(&mut script, self.claimer(owner), ask)?;
        let letters = marked
            .buried
            .iter()
            .map(|(claim, buried)| (claim.row, &buried.failure));
        let letters: Vec<_> = letters.collect();
        occurrences::buried(self.client, &letters).await?;
        settle::bury(&mut script, self.context.pool, &letters, false);
        let look = claim::peek(
            &mut script,
            &self.context.scope.queue,
            self.context.rejected,
        );
        self.client.commit_by(&mut script);

        let before = unconfirmed.len();
        unconfirmed.extend(marked.claimed.iter().map(|claimed| claimed.claim));
        unconfirmed.extend(marked.buried.iter().map(|(claim, _)| *claim));
        let mut answers = self.client.run(script).await?;
        let outlook = claim::outlook(&answers[look], ask.limits)?;
        marked.fill(bodies.map(|at| std::mem::take(&mut answers[at])))?;
        unconfirmed.truncate(before);

        let stop = self.context.stop(stop, ask, &outlook);
        let buried = marked.buried.into_iter().map(|(_, buried)| buried);
        Ok(WriteResult {
            claimed: marked.claimed,
            buried: buried.collect(),
            stop: Some(stop),
            suspects_wait: outlook.suspects_wait,
            due_in: outlook.due_in,
            ..WriteResult::default()
        })
    }
}

fn pick(
    mut answers: Vec<Answer>,
    asked: &ClaimQueries,
    ask: &ClaimRequest<'_>,
    due: usize,
) -> Result<Picked, Aborted<CallError>> {
    claim::pick(&mut answers, asked, ask, due)?.ok_or(Aborted::NotAnOwner)
}

/// Releases those of these claims that took effect. Returns the number released.
pub(super) async fn give_back(client: &mut Client, claims: &[Claim]) -> Result<usize, CallError> {
    let freed = free(client, claims).await;
    roll_back_unless(client, freed).await
}

async fn free(client: &mut Client, claims: &[Claim]) -> Result<usize, CallError> {
    // Searched by id only: a condition on the claim would not wait for the other transaction.
    let mut script = client.transaction(None);
    let at = settle::hold(&mut script, claims.iter().copied());
    let answers = client.run(script).await?;
    let held = at.map(|at| settle::held(&answers[at])).transpose()?;
    let held = held.unwrap_or_default();
    let ours = claims.iter().filter(|claim| held.contains(claim));
    let settled = given_back(&ours.copied().collect::<Vec<_>>());
    let mut script = client.script();
    settle::settle(&mut script, "", settled.iter());
    client.commit_by(&mut script);
    client.run(script).await?;
    Ok(settled.len())
}
