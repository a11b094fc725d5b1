//! Operations on a source from outside: send, wait for a reply, read and move dead letters. Nothing here
//! claims a message for a worker.

mod contract;
pub mod json;
pub mod shown;
mod waiting;
mod whereabouts;

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

pub use crate::dead_letter::{DeadLetter, DeadReply};
use crate::delivery::{Outgoing, Post};
use crate::fault::SourceFault;
pub use contract::{
    Answers, Criteria, DeadChange, DeadFilter, Depth, Each, Halted, Listed, Pace, Page, Partial,
    QueueClient, Reply, Retried, RetryTarget, SourceWarning, Step, Subscribed,
};
use ganger_config::model::{Config, PoolConfig, SourceConfig, Subscription};
use ganger_core::names::PAUSED_QUEUE;
use shown::SubscriptionJson;
pub use waiting::{WAITING_BODY_BYTES, WAITING_DEFAULT, WAITING_MAX, WaitingList, WaitingMessage};
pub use whereabouts::{
    PoolInfo, SourceInfo, UnknownSource, source_of, source_of_topic, unique_name,
};

/// Connects to the source of that name. The pools that read from it determine its queues.
pub type Connect = fn(&str, &SourceConfig, &[Arc<PoolConfig>]) -> Result<Client, SourceFault>;

/// A connection of an operator or a producer.
#[derive(Debug)]
pub struct Client {
    name: String,
    kind: Box<dyn QueueClient>,
}

impl Client {
    /// Makes the client of a source from its kind's connection.
    pub fn new(name: &str, kind: Box<dyn QueueClient>) -> Self {
        Self {
            name: name.to_owned(),
            kind,
        }
    }

    fn ask<T>(
        &mut self,
        question: impl FnOnce(&mut dyn QueueClient) -> Result<T, SourceFault>,
    ) -> Result<T, SourceFault> {
        question(&mut *self.kind).map_err(|fault| fault.of(&self.name))
    }

    fn tell<T>(
        &mut self,
        order: impl FnOnce(&mut dyn QueueClient) -> Result<T, Partial>,
    ) -> Result<T, Halted> {
        order(&mut *self.kind).map_err(|Partial { done, fault }| Halted {
            done,
            error: Box::new(fault.of(&self.name)),
        })
    }

    /// Returns the source's name in the configuration.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Checks that everything the pools need exists, or may be created. Returns the problems, a sentence
    /// each. Creates nothing.
    ///
    /// # Errors
    /// If the source can't be queried.
    pub fn check(&mut self) -> Result<Vec<String>, SourceFault> {
        self.ask(|kind| kind.check())
    }

    /// Returns warnings that are likely to end badly for the pools, although the source can be used.
    /// Creates nothing.
    ///
    /// # Errors
    /// If the source can't be queried.
    pub fn warnings(&mut self) -> Result<Vec<SourceWarning>, SourceFault> {
        self.ask(|kind| kind.warnings())
    }

    /// Sends the messages. They are stored safely when it returns. A table takes all or none; a broker
    /// may have taken some when it fails, and not always the first ones.
    ///
    /// # Errors
    /// If the source did not take them all.
    pub fn send(&mut self, messages: &[Outgoing]) -> Result<(), Halted> {
        self.tell(|kind| kind.send(messages))
    }

    /// Sends messages of which some have a unique key, as safely as `send`. Those whose key another
    /// message has are dropped, unless they ask otherwise. Returns for each the row of that other
    /// message, if there was one.
    ///
    /// # Errors
    /// If the source did not take them all, or does not support unique keys.
    pub fn post(&mut self, posts: &[Post]) -> Result<Vec<Option<i64>>, Halted> {
        self.tell(|kind| kind.post(posts))
    }

    /// Subscribes queues to topics, all at once. Returns the subscriptions that are new.
    ///
    /// # Errors
    /// If the source can't be written, or has no topics.
    pub fn subscribe(&mut self, wanted: &[Subscription]) -> Result<Vec<Subscription>, SourceFault> {
        self.ask(|kind| kind.subscribe(wanted))
    }

    /// Returns the subscriptions of queues to topics, by name.
    ///
    /// # Errors
    /// If the source can't be read, or has no topics.
    pub fn subscriptions(&mut self) -> Result<Vec<Subscribed>, SourceFault> {
        self.ask(|kind| kind.subscriptions())
    }

    /// Returns the subscriptions without creating anything: none if their tables do not exist yet.
    ///
    /// # Errors
    /// If the source can't be read, or has no topics.
    pub fn look_for_subscriptions(&mut self) -> Result<Option<Vec<Subscribed>>, SourceFault> {
        self.ask(|kind| kind.look_for_subscriptions())
    }

    /// Ends a subscription. Returns whether it existed.
    ///
    /// # Errors
    /// If the source can't be written, or has no topics.
    pub fn unsubscribe(&mut self, topic: &str, queue: &str) -> Result<bool, SourceFault> {
        self.ask(|kind| kind.unsubscribe(topic, queue))
    }

    /// Counts the messages of a queue.
    ///
    /// # Errors
    /// If the source can't be read.
    pub fn depth(&mut self, queue: &str) -> Result<Depth, SourceFault> {
        self.ask(|kind| kind.depth(queue))
    }

    /// Lists the first messages that wait in a queue, at most so many. Nothing is claimed, locked or counted as a
    /// delivery.
    ///
    /// # Errors
    /// If the source can't be read, or its messages can be read only by taking them.
    pub fn waiting_list(&mut self, queue: &str, limit: usize) -> Result<WaitingList, SourceFault> {
        self.ask(|kind| kind.waiting_list(queue, limit))
    }

    /// Moves the waiting messages of that name to the dead letters: by correlation id, message id, or the
    /// name that ganger gives them. Returns their number. Brokers can't pick out waiting messages.
    ///
    /// # Errors
    /// If the source can't be written.
    pub fn cancel_waiting(
        &mut self,
        pool: &str,
        queue: &str,
        id: &str,
    ) -> Result<usize, SourceFault> {
        self.ask(|kind| kind.cancel_waiting(pool, queue, id))
    }

    /// Pauses a queue of a table for all daemons that share it, now and later, or ends the pause.
    ///
    /// # Errors
    /// If the source can't be written.
    pub fn pause_for_all(&mut self, queue: &str, paused: bool) -> Result<(), SourceFault> {
        if !paused {
            return self.ask(|kind| kind.unpause(queue));
        }
        if self.ask(|kind| kind.is_paused(queue))? {
            return Ok(());
        }
        let marker = Outgoing {
            queue: PAUSED_QUEUE.to_owned(),
            key: Some(queue.to_owned()),
            body: Bytes::from_static(b"paused"),
            ..Outgoing::default()
        };
        self.send(&[marker]).map_err(|halted| *halted.error)
    }

    /// Returns the number of daemons that work on the table; none for other kinds.
    ///
    /// # Errors
    /// If the source can't be read.
    pub fn daemons(&mut self) -> Result<Option<u64>, SourceFault> {
        self.ask(|kind| kind.daemons())
    }

    /// Makes a queue for the reply to one message, to be named as its reply-to. Its name holds the
    /// `unique` text, unless one queue serves for all.
    ///
    /// # Errors
    /// If the source can't make one.
    pub fn reply_to(&mut self, unique: &str) -> Result<String, SourceFault> {
        self.ask(|kind| kind.reply_to(unique))
    }

    /// Takes the oldest reply with this correlation id out of such a queue.
    ///
    /// # Errors
    /// If the source can't be used.
    pub fn take_reply(
        &mut self,
        queue: &str,
        correlation_id: &str,
    ) -> Result<Option<Reply>, SourceFault> {
        self.ask(|kind| kind.take_reply(queue, correlation_id))
    }

    /// Blocks until others have written since the last call (the first: since the client was opened), or
    /// the timeout. It may return early, so check again and call again.
    ///
    /// # Panics
    /// If called from within an asynchronous runtime.
    pub fn wait_for_change(&mut self, timeout: Duration) {
        self.kind.wait_for_change(timeout.min(UNTOLD_MAX));
    }

    /// Reads a page of dead letters, the oldest first, and keeps no more than a few of them in memory.
    /// Those read before an error were passed on.
    ///
    /// # Errors
    /// If the source can't be read.
    ///
    /// # Panics
    /// If called from within an asynchronous runtime.
    pub fn dead_list(
        &mut self,
        page: &Page,
        mut each: impl FnMut(DeadLetter) -> ControlFlow<()>,
    ) -> Result<Listed, SourceFault> {
        let criteria = page.filter.criteria.clone();
        if criteria.are_none() {
            return self.ask(|kind| kind.dead_list(page, &mut each));
        }
        let whole = Page {
            limit: usize::MAX,
            ..page.clone()
        };
        let mut left = page.limit;
        self.ask(|kind| {
            kind.dead_list(&whole, &mut |letter| {
                if !criteria.fit(&letter) {
                    return ControlFlow::Continue(());
                }
                if left == 0 {
                    return ControlFlow::Break(());
                }
                left -= 1;
                each(letter)
            })
        })
    }

    /// Resolves the criteria of a filter to ids: those of the dead letters that meet them now.
    fn resolved(&mut self, filter: &DeadFilter) -> Result<DeadFilter, Halted> {
        if filter.criteria.are_none() {
            return Ok(filter.clone());
        }
        let mut ids = BTreeSet::new();
        let read = self.dead_list(&Page::all(filter.clone()), |letter| {
            ids.insert(letter.id);
            ControlFlow::Continue(())
        });
        read.map_err(|error| Halted {
            done: 0,
            error: Box::new(error),
        })?;
        Ok(DeadFilter {
            ids: Some(ids),
            criteria: Criteria::default(),
            ..filter.clone()
        })
    }

    /// Reads one dead letter.
    ///
    /// # Errors
    /// If the source can't be read.
    pub fn dead_show(&mut self, id: &str) -> Result<Option<DeadLetter>, SourceFault> {
        let page = Page::all(DeadFilter {
            ids: Some(BTreeSet::from([id.to_owned()])),
            ..DeadFilter::default()
        });
        let mut found = None;
        self.dead_list(&page, |letter| {
            found = Some(letter);
            ControlFlow::Break(())
        })?;
        Ok(found)
    }

    /// Sends dead letters back with a clean count, to the queue that they come from unless `way` names
    /// another; on a broker only if a pool reads the queue of those dead letters. On a table all move or
    /// none, except those whose unique key another message has, which stay; on a broker they move one by
    /// one, each removed only when its copy is safe.
    ///
    /// # Errors
    /// If the source did not take them all.
    pub fn dead_retry(
        &mut self,
        filter: &DeadFilter,
        way: &RetryTarget,
    ) -> Result<Retried, Halted> {
        let filter = self.resolved(filter)?;
        let retried = self.tell(|kind| kind.dead_retry(&filter, way))?;
        let held = self.tell(|kind| {
            let held = kind.dead_held(&filter);
            held.map_err(|fault| Partial {
                done: retried,
                fault,
            })
        })?;
        Ok(Retried { retried, held })
    }

    /// Deletes dead letters. Returns their number.
    ///
    /// # Errors
    /// If the source could not delete them all.
    pub fn dead_drop(&mut self, filter: &DeadFilter) -> Result<usize, Halted> {
        let filter = self.resolved(filter)?;
        self.tell(|kind| kind.dead_drop(&filter))
    }

    /// Changes the dead letters that match, in steps: `pace` gets the result of each step, may block, and returns the
    /// maximum number of the next one, or `None` to end the change. What was changed no longer matches, so that a
    /// change that was broken off can be begun again. Messages of a broker are passed through once.
    ///
    /// # Errors
    /// If the source can't be used. What was changed since the last result is in the error.
    pub fn dead_change(
        &mut self,
        filter: &DeadFilter,
        change: DeadChange,
        mut pace: impl FnMut(Step) -> Option<usize>,
    ) -> Result<(), Halted> {
        self.tell(|kind| kind.dead_change(filter, change, &mut pace))
    }
}

/// Longest time that a change stays unseen when no notification comes: the session for it is lost, or the
/// kernel does not watch this file system.
const UNTOLD_MAX: Duration = Duration::from_secs(1);

/// Reads the subscriptions of all tables of a configuration, or of the one of that name.
///
/// # Errors
/// If a table can't be read.
pub fn subscriptions(
    connect: Connect,
    config: &Config,
    only: Option<&str>,
) -> Result<Vec<SubscriptionJson>, SourceFault> {
    let is_wanted = |name: &str| only.is_none_or(|only| only == name);
    let mut all = Vec::new();
    for (name, source) in &config.sources {
        if !is_wanted(name) || !matches!(source, SourceConfig::Table(_)) {
            continue;
        }
        let subscribed = connect(name, source, &config.pools)?.subscriptions()?;
        all.extend(subscribed.into_iter().map(|one| {
            let configured = config.subscriptions.iter().any(|other| {
                other.source == *name && other.topic == one.topic && other.queue == one.queue
            });
            SubscriptionJson::new(name, one, configured)
        }));
    }
    Ok(all)
}
