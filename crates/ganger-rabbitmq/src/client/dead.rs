//! Actions of a command on dead letters: it passes through each of their queues once. The content of a dead
//! letter is in `dead_letter_index.rs`, the pass through a queue in `rotation.rs` and `browse.rs`.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::mpsc::{Receiver, Sender};

use super::browse::{Pass, lock_name};
use super::connection::CommandConnection;
use super::dead_letter_index::{FoundDeadLetter, Item};
use super::list::List;
use super::reader::DeadLetterQueue;
use super::rotation::{DeadLetterAction, DeadLetterFate, Rotation, Tally};
use crate::broker::command_error::CommandError;
use crate::broker::error::RabbitMqError;
use crate::broker::signature::CopyKey;
use crate::broker::topology;
use crate::broker::topology::Topology;
use ganger_config::model::PoolConfig;
use ganger_queue::client::{DeadChange, DeadFilter, Listed, Page, Partial, RetryTarget, Step};
use ganger_queue::dead_letter::DeadLetter;

/// The dead-letter queues of all pools, each once.
fn dead_letter_queues(pools: &[Arc<PoolConfig>]) -> Vec<DeadLetterQueue> {
    let mut dead_letter_queues: BTreeMap<String, DeadLetterQueue> = BTreeMap::new();
    for pool in pools {
        let Some(spec) = Topology::of(pool).dead else {
            continue;
        };
        let theirs = (pool.name.clone(), pool.queue.to_string());
        let dead_queue = dead_letter_queues
            .entry(spec.name.clone())
            .or_insert_with(|| DeadLetterQueue {
                queue: spec.name,
                pools: Vec::new(),
            });
        dead_queue.pools.push(theirs);
    }
    dead_letter_queues.into_values().collect()
}

impl CommandConnection {
    /// Lists the selected dead letters, some at a time.
    pub(super) async fn dead_list(
        &mut self,
        page: &Page,
        to: Sender<Vec<DeadLetter>>,
    ) -> Result<Listed, RabbitMqError> {
        let mut list = List::new(page, to);
        let mut tally = Tally::default();
        for dead_queue in dead_letter_queues(&self.pools) {
            self.pass(dead_queue, &mut tally, &mut list, false).await?;
        }
        if let Some(error) = tally.first_error {
            // A message that could not be put back is redelivered, and counted: repeated listing would lose
            // it.
            return Err(error.into());
        }
        Ok(list.end().await)
    }

    /// Drops the selected dead letters. Dropping all of them also drops orphans: replies whose dead letter
    /// was never stored, once they are so old that it can't be in flight.
    pub(super) async fn dead_drop(&mut self, filter: &DeadFilter) -> Result<usize, Partial> {
        let everything = *filter == DeadFilter::default();
        let judge = |item: Item| match item {
            Item::DeadLetter(found) if filter.fits(&found.letter) => DeadLetterFate::Remove,
            Item::DeadLetter(_) | Item::Reply(..) => DeadLetterFate::Keep,
        };
        self.change(&mut Change(judge), everything).await
    }

    /// Sends the selected dead letters back to their queues, or to the given one.
    pub(super) async fn dead_retry(
        &mut self,
        filter: &DeadFilter,
        target: &RetryTarget,
    ) -> Result<usize, Partial> {
        let (frame_max, key) = (self.frame_max(), self.key.clone());
        let judge = |item: Item| match item {
            Item::DeadLetter(found) if filter.fits(&found.letter) => {
                retry_fate(&found, target, frame_max, &key)
            }
            Item::DeadLetter(_) | Item::Reply(..) => DeadLetterFate::Keep,
        };
        self.change(&mut Change(judge), false).await
    }

    /// Changes the dead letters that match the filter and its criteria, some at a time.
    pub(super) async fn dead_change(
        &mut self,
        filter: &DeadFilter,
        change: DeadChange,
        steps: Steps,
    ) -> Result<(), Partial> {
        let (frame_max, key) = (self.frame_max(), self.key.clone());
        let target = RetryTarget::default();
        let judge = |item: Item| match (item, change) {
            (Item::DeadLetter(found), change) if filter.matches(&found.letter) => match change {
                DeadChange::Drop => DeadLetterFate::Remove,
                DeadChange::Retry => retry_fate(&found, &target, frame_max, &key),
            },
            (Item::DeadLetter(_) | Item::Reply(..), _) => DeadLetterFate::Keep,
        };
        let mut stepped = Stepped { judge, steps };
        let mut tally = Tally::default();
        for dead_queue in dead_letter_queues(&self.pools) {
            if stepped.steps.most.is_none() {
                break;
            }
            let passed = self.pass(dead_queue, &mut tally, &mut stepped, false).await;
            if let Err(error) = passed {
                return Err(Partial {
                    done: tally.done - stepped.steps.told.changed,
                    fault: error.into(),
                });
            }
        }
        Ok(())
    }

    async fn change(
        &mut self,
        action: &mut impl DeadLetterAction,
        remove_orphans: bool,
    ) -> Result<usize, Partial> {
        let mut tally = Tally::default();
        let mut result = Ok(());
        for dead_queue in dead_letter_queues(&self.pools) {
            if result.is_ok() {
                result = self
                    .pass(dead_queue, &mut tally, action, remove_orphans)
                    .await;
            }
        }
        let first_error = tally.first_error.map_or(Ok(()), |error| Err(error.into()));
        match result.and(first_error) {
            Ok(()) => Ok(tally.done),
            Err(error) => Err(Partial {
                done: tally.done,
                fault: error.into(),
            }),
        }
    }

    /// Passes through one queue.
    async fn pass(
        &mut self,
        dead_queue: DeadLetterQueue,
        tally: &mut Tally,
        action: &mut impl DeadLetterAction,
        remove_orphans: bool,
    ) -> Result<(), RabbitMqError> {
        let broker = Rc::clone(&self.broker);
        if topology::count(&broker, &dead_queue.queue).await?.is_none() {
            return Ok(());
        }
        // No message is taken that could not be put back: it would be redelivered, and counted. The lock is
        // not created either, since it would exist for as long as the broker does not read.
        if let Err(error) = self.can_publish(lock_name(&dead_queue.queue)).await {
            self.drop_publisher();
            let (queue, why) = (dead_queue.queue, error.to_string());
            return Err(CommandError::CannotPutBack { queue, why }.into());
        }
        let Some(pass) = Pass::begin(&broker, &dead_queue.queue).await? else {
            return Ok(());
        };
        let mut rotation = Rotation::new(self, pass, tally);
        let went = rotation.run(dead_queue, action, remove_orphans).await;
        let ended = match &went {
            Err(error) if is_silence(error) => Ok(()),
            Ok(()) | Err(_) => rotation.end().await,
        };
        if went.is_err() {
            // A later command must not publish the remaining messages of this one.
            self.drop_publisher();
        }
        went.and(ended)
    }
}

fn retry_fate(
    found: &FoundDeadLetter,
    target: &RetryTarget,
    frame_max: u32,
    key: &CopyKey,
) -> DeadLetterFate {
    match found.back(target, frame_max, key) {
        Ok(parcel) => DeadLetterFate::SendBack(Box::new(parcel)),
        Err(why) => DeadLetterFate::Undeliverable(CommandError::CannotSendBack {
            id: found.letter.id.clone(),
            why,
        }),
    }
}

/// Returns whether the broker does not answer, so that an orderly close is not possible. The connection is
/// cut, and the held messages are redelivered.
fn is_silence(error: &RabbitMqError) -> bool {
    let unconfirmed = |error: &CommandError| matches!(error, CommandError::Unconfirmed { .. });
    match error {
        RabbitMqError::Command(error) => unconfirmed(error),
        RabbitMqError::Silent { .. } => true,
        _ => false,
    }
}

/// Steps of a change, paced by whoever waits for it.
pub(super) struct Steps {
    /// Maximum number of messages of the next step; none once no more may follow.
    pub(super) most: Option<usize>,
    /// Channel for the result of each step, and that for the maximum of the next one.
    pub(super) results: Sender<Step>,
    pub(super) allowed: Receiver<Option<usize>>,
    /// Results sent so far.
    pub(super) told: Step,
}

/// A decision that depends only on the message, on no more of them than the next step may have.
struct Stepped<F> {
    judge: F,
    steps: Steps,
}

impl<F: FnMut(Item) -> DeadLetterFate> DeadLetterAction for Stepped<F> {
    fn judge(&mut self, item: Item) -> DeadLetterFate {
        (self.judge)(item)
    }

    fn take_max(&self) -> u64 {
        self.steps.most.map_or(1, |most| most as u64)
    }

    async fn batch_done(&mut self, tally: &Tally) -> ControlFlow<()> {
        let told = &mut self.steps.told;
        let step = Step {
            changed: tally.done - told.changed,
            failed: tally.failed - told.failed,
            error: tally.first_error.as_ref().map(ToString::to_string),
            ..Step::default()
        };
        (told.changed, told.failed) = (tally.done, tally.failed);
        // Nobody may wait for it any more.
        drop(self.steps.results.send(step).await);
        self.steps.most = self.steps.allowed.recv().await.flatten();
        match self.steps.most {
            Some(_) => ControlFlow::Continue(()),
            None => ControlFlow::Break(()),
        }
    }
}

/// A decision that depends only on the message.
struct Change<F>(F);

impl<F: FnMut(Item) -> DeadLetterFate> DeadLetterAction for Change<F> {
    fn judge(&mut self, item: Item) -> DeadLetterFate {
        (self.0)(item)
    }
}
