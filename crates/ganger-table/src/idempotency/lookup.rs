//! One turn of the database: finished messages are entered, arrived ones are looked up, and expired
//! entries are removed, each in batches.

use std::time::Duration;

use tokio::time::Instant;

use super::keys::{body_hash, identity, with_body};
use super::{Gate, InFlight, PendingEntry};
use crate::rules::{BYTES_PER_TURN_MAX, bytes, fitting_together};
use crate::table::Fault;
use crate::table::finished::{Entry, StoredEntry};
use ganger_queue::delivery::{Delivery, Finished, Identity, repeated};
use ganger_telemetry::metrics::repetition;

/// Maximum number of entries written or removed at once, so that others do not wait for long.
const BATCH_MAX: usize = 500;
const EXPIRED_MAX: u32 = 500;

/// Maximum number of messages looked up at once. Fewer, since each may come with a reply.
const ASKED_MAX: usize = 100;

/// Pause between two batches of removals, while there are more.
const EXPIRY_GAP: Duration = Duration::from_millis(50);

/// A message that is being looked up.
struct Lookup {
    identity: Identity,
    /// Hash of its body.
    body: String,
    delivery: Delivery,
}

impl Gate {
    /// Does all pending work. After an error nothing is lost, and the work can be retried.
    pub(super) async fn look_and_write(&mut self) -> Result<(), Fault> {
        self.enter().await?;
        self.look().await?;
        self.expire().await
    }

    /// Enters finished messages, and only then settles them with their source.
    async fn enter(&mut self) -> Result<(), Fault> {
        while !self.done.is_empty() {
            let batch = self.batch();
            let entries: Vec<Entry<'_>> =
                self.done[..batch].iter().map(PendingEntry::entry).collect();
            match self.store.enter(&entries).await {
                Ok(first) => {
                    let entered: Vec<PendingEntry> = self.done.drain(..batch).collect();
                    for (done, first) in entered.into_iter().zip(first) {
                        self.entered(done, first);
                    }
                }
                Err(fault) if fault.is_permanent => self.enter_one_by_one(batch).await?,
                Err(fault) => return Err(fault),
            }
        }
        Ok(())
    }

    /// Returns the number of finished messages that go into one transaction.
    fn batch(&self) -> usize {
        let bytes = self.done.iter().map(|done| bytes(&done.outcome));
        fitting_together(bytes, BYTES_PER_TURN_MAX).min(BATCH_MAX)
    }

    /// Enters the messages of a batch one by one, so that one that the database permanently rejects does
    /// not block the others. That one is settled without an entry: settling finished work is worth more
    /// than recognising a repetition of it.
    async fn enter_one_by_one(&mut self, batch: usize) -> Result<(), Fault> {
        for _ in 0..batch {
            let Some(done) = self.done.first() else {
                return Ok(());
            };
            let first = match self.store.enter(&[done.entry()]).await {
                Ok(first) => first.into_iter().next().flatten(),
                Err(fault) if fault.is_permanent => {
                    tracing::error!(
                        pool = self.pool,
                        key = done.finished.identity.key,
                        problem = fault.problem,
                        "the store rejects the entry of a finished message: a repetition would be processed again"
                    );
                    None
                }
                Err(fault) => return Err(fault),
            };
            let done = self.done.remove(0);
            self.entered(done, first);
        }
        Ok(())
    }

    /// Settles a message that is entered. If an earlier entry exists, it gets the reply of that, as every
    /// repetition does.
    fn entered(&mut self, done: PendingEntry, first: Option<StoredEntry>) {
        let PendingEntry {
            receipt,
            finished,
            outcome,
            span,
        } = done;
        let outcome = match first {
            None => outcome,
            Some(first) => {
                self.repeated += 1;
                tracing::warn!(
                    pool = self.pool,
                    key = finished.identity.key,
                    "message processed twice: another message with its key, or another daemon, finished first"
                );
                repeated(first.reply, &finished.continued)
            }
        };
        receipt.settle(outcome, span, None);
        self.release(&finished);
    }

    /// Looks up arrived messages, and passes on those that were not done before.
    async fn look(&mut self) -> Result<(), Fault> {
        while !self.arrived.is_empty() {
            let mut asked: Vec<Lookup> = Vec::new();
            while asked.len() < ASKED_MAX
                && let Some(delivery) = self.arrived.pop_front()
            {
                match identity(&delivery, &self.rules.key) {
                    None => self.pass_on_unkeyed(delivery),
                    Some(identity) => {
                        let body = body_hash(&delivery.message);
                        asked.extend(self.ask(identity, body, delivery));
                    }
                }
            }
            while !asked.is_empty() {
                asked = self.look_for(asked).await?;
            }
        }
        Ok(())
    }

    /// Takes a message in hand, to be looked up; none if it waits behind one with the same identity.
    fn ask(&mut self, identity: Identity, body: String, delivery: Delivery) -> Option<Lookup> {
        let delivery = self.in_hand.take(&identity, delivery)?;
        Some(Lookup {
            identity,
            body,
            delivery,
        })
    }

    /// Looks these up. Returns those whose key belongs to another message: they are looked up again,
    /// under an identity of their own.
    async fn look_for(&mut self, asked: Vec<Lookup>) -> Result<Vec<Lookup>, Fault> {
        let identities: Vec<&Identity> = asked.iter().map(|asked| &asked.identity).collect();
        match self.store.find(&identities).await {
            Ok(found) => {
                let found = asked.into_iter().zip(found);
                let again = found.filter_map(|(asked, found)| self.looked_up(asked, found));
                Ok(again.collect())
            }
            Err(fault) => {
                for asked in asked.into_iter().rev() {
                    self.arrived.extend(self.in_hand.release(&asked.identity));
                    self.arrived.push_front(asked.delivery);
                }
                Err(fault)
            }
        }
    }

    fn looked_up(&mut self, asked: Lookup, found: Option<StoredEntry>) -> Option<Lookup> {
        let Lookup {
            identity,
            body,
            delivery,
        } = asked;
        let continued = delivery.next_step();
        match found {
            Some(found) if !found.is_of(&body) => {
                tracing::warn!(
                    pool = self.pool,
                    key = identity.key,
                    correlation_id = continued.correlation_id,
                    "another message with this key was done, and its body differs: this one is no \
                     repetition and is worked on"
                );
                let own = with_body(&identity, &body);
                let again = self.ask(own, body, delivery);
                self.arrived.extend(self.in_hand.release(&identity));
                return again;
            }
            None => {
                let finished = Box::new(Finished {
                    identity,
                    body,
                    window: self.rules.window,
                    continued,
                    entry_notice: None,
                });
                self.pass_on(delivery, Some(finished));
            }
            Some(found) => {
                let facts = &self.ends.pool.facts;
                repetition(&self.pool, &identity.key, &continued.correlation_id, facts);
                delivery.settle(repeated(found.reply, &continued));
                self.arrived.extend(self.in_hand.release(&identity));
            }
        }
        None
    }

    fn pass_on_unkeyed(&mut self, delivery: Delivery) {
        let facts = &self.ends.pool.facts;
        facts.note(|figures| *figures.unkeyed.get_or_insert_default() += 1);
        self.pass_on(delivery, None);
    }

    fn pass_on(&mut self, delivery: Delivery, finished: Option<Box<Finished>>) {
        self.next += 1;
        let receipt = self.ends.pool.pass_on(self.next, delivery);
        self.out.insert(self.next, InFlight { receipt, finished });
    }

    /// Removes expired entries, if it is time.
    async fn expire(&mut self) -> Result<(), Fault> {
        let now = Instant::now();
        if now < self.next_expiry {
            return Ok(());
        }
        let removed = self.store.expire(EXPIRED_MAX).await?;
        match u32::try_from(removed) {
            Ok(removed) if removed < EXPIRED_MAX => self.plan_expiry(),
            Ok(_) | Err(_) => self.next_expiry = now + EXPIRY_GAP,
        }
        Ok(())
    }
}

impl PendingEntry {
    fn entry(&self) -> Entry<'_> {
        Entry {
            finished: &self.finished,
            outcome: &self.outcome,
        }
    }
}
