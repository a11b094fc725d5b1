//! Actions of a command on dead letters: it passes through each of their queues once. The content of a dead
//! letter is in `letter_index.rs`, the pass through a queue in `round.rs` and `browse.rs`.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::mpsc::Sender;

use super::browse::{Pass, lock_name};
use super::connection::Clerk;
use super::letter_index::{Found, Item};
use super::list::List;
use super::reader::Home;
use super::round::{DeadLetterFate, Errand, Round, Tally};
use crate::broker::command_error::CommandError;
use crate::broker::error::RabbitMqError;
use crate::broker::signature::CopyKey;
use crate::broker::topology;
use crate::broker::topology::Topology;
use ganger_config::model::PoolConfig;
use ganger_queue::client::{DeadFilter, Listed, Page, Partial, RetryTarget};
use ganger_queue::dead_letter::DeadLetter;

/// The dead-letter queues of all pools, each once.
fn homes(pools: &[Arc<PoolConfig>]) -> Vec<Home> {
    let mut homes: BTreeMap<String, Home> = BTreeMap::new();
    for pool in pools {
        let Some(wanted) = Topology::of(pool).dead else {
            continue;
        };
        let theirs = (pool.name.clone(), pool.queue.to_string());
        let home = homes.entry(wanted.name.clone()).or_insert_with(|| Home {
            queue: wanted.name,
            pools: Vec::new(),
        });
        home.pools.push(theirs);
    }
    homes.into_values().collect()
}

impl Clerk {
    /// Lists the selected dead letters, some at a time.
    pub(super) async fn dead_list(
        &mut self,
        page: &Page,
        to: Sender<Vec<DeadLetter>>,
    ) -> Result<Listed, RabbitMqError> {
        let mut list = List::new(page, to);
        let mut tally = Tally::default();
        for home in homes(&self.pools) {
            self.pass(home, &mut tally, &mut list, false).await?;
        }
        if let Some(error) = tally.trouble {
            // One that could not be put back comes back by itself, and is counted: looking on and on
            // would lose it.
            return Err(error.into());
        }
        Ok(list.end().await)
    }

    /// Drops the selected dead letters. Dropping all of them also drops the rest of others: replies
    /// whose dead letter was never stored, once they are so old that it can't be in flight.
    pub(super) async fn dead_drop(&mut self, filter: &DeadFilter) -> Result<usize, Partial> {
        let everything = *filter == DeadFilter::default();
        let judge = |item: Item| match item {
            Item::Letter(found) if filter.fits(&found.letter) => DeadLetterFate::Goes,
            Item::Letter(_) | Item::Reply(..) => DeadLetterFate::Stays,
        };
        self.change(Change(judge), everything).await
    }

    /// Sends the selected dead letters back to their queues, or to the one that is named.
    pub(super) async fn dead_retry(
        &mut self,
        filter: &DeadFilter,
        way: &RetryTarget,
    ) -> Result<usize, Partial> {
        let (frame_max, key) = (self.frame_max(), self.key.clone());
        let judge = |item: Item| match item {
            Item::Letter(found) if filter.fits(&found.letter) => {
                way_back(&found, way, frame_max, &key)
            }
            Item::Letter(_) | Item::Reply(..) => DeadLetterFate::Stays,
        };
        self.change(Change(judge), false).await
    }

    async fn change(
        &mut self,
        mut errand: impl Errand,
        orphans_go: bool,
    ) -> Result<usize, Partial> {
        let mut tally = Tally::default();
        let mut result = Ok(());
        for home in homes(&self.pools) {
            if result.is_ok() {
                result = self.pass(home, &mut tally, &mut errand, orphans_go).await;
            }
        }
        let trouble = tally.trouble.map_or(Ok(()), |error| Err(error.into()));
        match result.and(trouble) {
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
        home: Home,
        tally: &mut Tally,
        errand: &mut impl Errand,
        orphans_go: bool,
    ) -> Result<(), RabbitMqError> {
        let broker = Rc::clone(&self.broker);
        if topology::count(&broker, &home.queue).await?.is_none() {
            return Ok(());
        }
        // Nothing is taken that could not be put back: it would come back, and be counted. Nor is the
        // lock, which would stay for as long as the broker does not listen.
        if let Err(error) = self.can_publish(lock_name(&home.queue)).await {
            self.leave_publisher();
            let (queue, why) = (home.queue, error.to_string());
            return Err(CommandError::NoWayIn { queue, why }.into());
        }
        let Some(pass) = Pass::begin(&broker, &home.queue).await? else {
            return Ok(());
        };
        let mut round = Round::new(self, pass, tally);
        let went = round.go(home, errand, orphans_go).await;
        let ended = match &went {
            Err(error) if is_silence(error) => Ok(()),
            Ok(()) | Err(_) => round.end().await,
        };
        if went.is_err() {
            // A later command must not publish what this one has left.
            self.leave_publisher();
        }
        went.and(ended)
    }
}

fn way_back(found: &Found, way: &RetryTarget, frame_max: u32, key: &CopyKey) -> DeadLetterFate {
    match found.back(way, frame_max, key) {
        Ok(parcel) => DeadLetterFate::GoesBack(Box::new(parcel)),
        Err(why) => DeadLetterFate::IsStuck(CommandError::NoWayBack {
            id: found.letter.id.clone(),
            why,
        }),
    }
}

/// Returns whether the broker does not answer: then there is no orderly close. The connection is
/// cut, and messages in hand come back.
fn is_silence(error: &RabbitMqError) -> bool {
    let unconfirmed = |error: &CommandError| matches!(error, CommandError::Unconfirmed { .. });
    match error {
        RabbitMqError::Command(error) => unconfirmed(error),
        RabbitMqError::Silent { .. } => true,
        _ => false,
    }
}

/// A decision that depends only on the message.
struct Change<F>(F);

impl<F: FnMut(Item) -> DeadLetterFate> Errand for Change<F> {
    fn judge(&mut self, item: Item) -> DeadLetterFate {
        (self.0)(item)
    }
}
