//! The daemon's own pool, with its lanes and the source's side of the contract, fed from memory: the whole
//! path of a message except for a broker.

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::{mpsc, watch};
use tokio::task::spawn_local;
use tokio::time::{Instant, timeout_at};

use super::duties::Duty;
use super::finding::Finding;
use super::report::DutyResult;
use super::supplies::Supplies;
use ganger_config::model::{PoolConfig, Recycle, Retry, Workers};
use ganger_pool::events::EventFeed;
use ganger_pool::{Orders, Steering};
use ganger_queue::delivery::{
    self, Failure, History, Intake, Outcome, Reason, Settlement, SourceEnd,
};

/// Number of messages to process. Beyond a hundred, a version 1 worker's pipe is filled deeper.
const MESSAGES: u64 = 150;
/// Number of times that a message may be returned; then this worker has failed it.
const RETURNS_MAX: usize = 3;

/// Runs the worker in a pool.
pub(super) async fn run(
    policy: &PoolConfig,
    supplies: &Supplies,
    answer_within: Duration,
) -> DutyResult {
    let begun = Instant::now();
    let (source, pool_end) = delivery::link();
    let (_commands, commands) = mpsc::channel(1);
    let (shown, _) = watch::channel(Arc::default());
    let (steered, _) = watch::channel(Steering::default());
    let (orders, told) = watch::channel(Orders::new(Arc::new(rules(policy))));
    let feed = EventFeed::new(SystemTime::now());
    let pool = spawn_local(ganger_pool::run(
        told, pool_end, commands, shown, steered, feed,
    ));
    let mut feeder = Feeder {
        source,
        supplies,
        handed_out: 0,
        returned: Vec::new(),
        done: 0,
        tally: Tally::default(),
    };
    let result = feeder.settle_all(answer_within).await;
    orders.send_modify(|orders| orders.stop(Duration::ZERO));
    drop(feeder);
    let ended = pool.await;
    let finding = match (result, ended) {
        (Err(failure), _) => return failed(failure, begun.elapsed()),
        (Ok(said), Ok(Ok(()))) => Finding::passed(said),
        (Ok(_), Ok(Err(error))) => Finding::failed(error.to_string(), Duty::Pool.mend()),
        (Ok(_), Err(error)) => Finding::failed(error.to_string(), Duty::Pool.mend()),
    };
    DutyResult::new(Duty::Pool, finding, begun.elapsed(), Vec::new(), Vec::new())
}

/// Returns the rules for one worker whose every answer is final: nothing is delayed.
fn rules(policy: &PoolConfig) -> PoolConfig {
    PoolConfig {
        workers: Workers::Fixed(1),
        retry: Retry {
            attempts: 1,
            ..policy.retry
        },
        breaker: None,
        recycle: Recycle::default(),
        ..policy.clone()
    }
}

fn failed(failure: Failure, took: Duration) -> DutyResult {
    let finding = Finding::failed(failure.error, Duty::Pool.mend());
    DutyResult::new(Duty::Pool, finding, took, Vec::new(), failure.stderr)
}

/// Results of the messages.
#[derive(Debug, Default)]
struct Tally {
    done: usize,
    replied: usize,
    later: usize,
    failed: usize,
}

impl Tally {
    fn as_text(&self) -> String {
        let parts = [
            (self.done, "done"),
            (self.replied, "replied to"),
            (self.later, "to come again"),
            (self.failed, "failed"),
        ];
        let parts = parts.iter().filter(|(count, _)| *count > 0);
        let parts: Vec<String> = parts
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        parts.join(", ")
    }
}

/// The source.
struct Feeder<'a> {
    source: SourceEnd,
    supplies: &'a Supplies,
    handed_out: u64,
    /// Returned messages, one entry each time.
    returned: Vec<u64>,
    done: u64,
    tally: Tally,
}

impl Feeder<'_> {
    /// Hands out as many messages as the pool allows until all are settled. Fails after `answer_within`
    /// without progress.
    async fn settle_all(&mut self, answer_within: Duration) -> Result<String, Failure> {
        let mut waiting: Vec<u64> = (1..=MESSAGES).rev().collect();
        while self.done < MESSAGES {
            let credit = match *self.source.intake.borrow_and_update() {
                Intake::Credit(credit) => credit,
                Intake::Closed => 0,
            };
            while self.out() < credit
                && let Some(token) = waiting.pop()
            {
                self.deliver(token);
            }
            let until = Instant::now() + answer_within;
            let came = timeout_at(until, async {
                tokio::select! {
                    settled = self.source.settlements.recv() => settled,
                    Ok(()) = self.source.intake.changed() => None,
                    Some(publish) = self.source.publishes.recv() => {
                        // As a broker would; whoever waits for it may have gone.
                        drop(publish.confirmed.send(Ok(())));
                        None
                    }
                }
            });
            let Ok(came) = came.await else {
                let error = format!("no message was settled within {answer_within:?}");
                return Err(Failure::new(Reason::Stalled, error));
            };
            if let Some(settlement) = came {
                waiting.extend(self.settle(settlement)?);
            }
        }
        Ok(self.tally.as_text())
    }

    fn out(&self) -> usize {
        usize::try_from(self.handed_out - self.done).unwrap_or(usize::MAX) - self.returned.len()
    }

    fn deliver(&mut self, token: u64) {
        let history = History {
            attempt: 1,
            ..History::default()
        };
        self.handed_out += 1;
        let number = usize::try_from(token).unwrap_or_default();
        self.source
            .deliver(token, self.supplies.message(number), history);
    }

    /// Takes the settlement of a message; if it was returned, it is to be handed out again.
    fn settle(&mut self, settlement: Settlement) -> Result<Option<u64>, Failure> {
        match settlement.outcome {
            Outcome::Done => self.tally.done += 1,
            Outcome::Reply(_) => self.tally.replied += 1,
            Outcome::Requeue { .. } => self.tally.later += 1,
            Outcome::RetryAfter { failure, .. } | Outcome::DeadLetter(failure) => {
                if !is_answer(failure.reason) {
                    return Err(*failure);
                }
                self.tally.failed += 1;
            }
            Outcome::Return { .. } | Outcome::ReturnAfter { .. } => {
                return self.came_back(settlement.token).map(Some);
            }
        }
        self.done += 1;
        Ok(None)
    }

    fn came_back(&mut self, token: u64) -> Result<u64, Failure> {
        self.returned.push(token);
        let times = self.returned.iter().filter(|other| **other == token);
        match times.count().cmp(&RETURNS_MAX) {
            Ordering::Less => Ok(token),
            Ordering::Equal | Ordering::Greater => {
                let error = "its workers repeatedly exit with messages unread";
                Err(Failure::new(Reason::Crashed, error))
            }
        }
    }
}

/// Returns whether the reason is the worker's answer, and not its behaviour.
fn is_answer(reason: Reason) -> bool {
    match reason {
        Reason::Failed | Reason::Rejected | Reason::UnroutableReply | Reason::Cancelled => true,
        Reason::Crashed
        | Reason::TimedOut
        | Reason::Stalled
        | Reason::ProtocolError
        | Reason::Undeliverable => false,
    }
}
