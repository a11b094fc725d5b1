//! What goes into one transaction, and what has come of it. Where that is too much for one, several follow
//! each other.

use tokio::time::Instant;

use super::{Task, health};
use crate::rules;
use crate::table::{Ask, Fault, Settled, Work, Written};
use ganger_queue::attempts::Limits;
use ganger_queue::delivery::LogName;
use ganger_queue::publishing::confirm;
use ganger_telemetry::metrics::dead_lettered;

/// How many of the publishes and the settlements, from the first on, one transaction has written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Batch {
    publishes: usize,
    settled: usize,
    /// It asks for a suspect.
    suspect: bool,
}

impl Task {
    /// What log records call the message in that row.
    pub(super) fn name(&self, correlation_id: &str, row: i64) -> LogName {
        let queue = &self.policy.borrow().queue;
        LogName::or(correlation_id, || format!("{queue}:{row}"))
    }

    /// What is written next: as much as one transaction has room for.
    fn batch(&self) -> Batch {
        let publishes = self.publishes.iter();
        let publishes = publishes.map(|publish| publish.message.bytes());
        let settled = self.settled.iter();
        let settled = settled.map(|settled| rules::bytes(&settled.outcome));
        let together = rules::together(publishes.chain(settled), self.bytes_per_turn);
        let publishes = together.min(self.publishes.len());
        Batch {
            publishes,
            settled: together - publishes,
            suspect: false,
        }
    }

    /// Writes what there is to write, and claims what there is room for. What has come while others
    /// wrote goes along. Where that is too much for one transaction the rest is left for the next.
    pub(super) async fn write(
        &mut self,
        claim: bool,
        probe: bool,
    ) -> Result<(Batch, Written), Fault> {
        let writing = self.store.writing();
        let turn = writing.turn(self.out.len()).await;
        self.collect();
        let mut batch = self.batch();
        let is_last = batch.settled == self.settled.len();
        let rows = if claim && is_last { self.room() } else { 0 };
        let ask = (rows > 0).then(|| Ask {
            rows,
            share: &self.share,
            suspect: self.suspect.is_none() && self.turn.is_held(),
            limits: Limits::of(&self.policy.borrow()),
        });
        batch.suspect = ask.as_ref().is_some_and(|ask| ask.suspect);
        let work = Work {
            publishes: &self.publishes[..batch.publishes],
            settled: &self.settled[..batch.settled],
            ask,
            probe,
        };
        Ok((batch, self.store.write(turn, &work).await?))
    }

    /// The transaction is durable: only now is anything forgotten, confirmed or handed out.
    pub(super) fn written(&mut self, batch: Batch, written: Written) {
        for publish in self.publishes.drain(..batch.publishes) {
            confirm(publish.confirmed, &publish.message.queue, Ok(()));
        }
        let settled: Vec<Settled> = self.settled.drain(..batch.settled).collect();
        for settled in settled {
            self.forget(settled.claim);
        }
        health::lost(&self.pool, &self.end, &written.lost);
        health::repeated(&self.pool, &self.end, &written.repeated);
        for buried in &written.buried {
            let name = self.name(&buried.correlation_id, buried.row);
            dead_lettered(&self.pool, &name, &buried.failure);
        }
        let claimed_any = !written.claimed.is_empty();
        for claimed in written.claimed {
            self.hand_out(claimed);
        }
        if let Some(stop) = written.stop {
            self.plan_look(stop, claimed_any, written.due_in);
            if batch.suspect && self.suspect.is_none() && written.suspects_wait {
                self.leave_suspects();
            }
            if self.line_up(written.suspects_wait) {
                self.next_look = Instant::now();
            }
        }
        if self.has_work() {
            self.next_look = Instant::now();
        }
    }
}
