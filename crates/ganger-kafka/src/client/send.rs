//! Sending for a command: all at once, and then waiting for each to be confirmed or refused, but not
//! for ever. What is sent is decided elsewhere.

use std::sync::Arc;
use std::time::Duration;

use rdkafka::error::RDKafkaErrorCode as Code;
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::broker::command_error::CommandError;
use crate::broker::error::{KafkaError, is_for_good, reason, words};
use crate::broker::producer::{Producer, Then};
use crate::broker::record::Outbound;
use ganger_config::model::KafkaSource;

/// So long the brokers may confirm nothing at all before a command gives up.
const CONFIRM_WITHIN: Duration = Duration::from_secs(60);
/// The longest time between two looks at the producer.
const LOOK: Duration = Duration::from_secs(1);

/// A producer for a command.
pub(super) struct Post {
    producer: Producer<usize>,
    bell: Arc<Notify>,
}

/// What has become of what was sent.
#[derive(Debug)]
pub(super) struct Posted {
    /// One for each, in order; none where nothing was heard.
    pub(super) results: Vec<Option<Result<(), Code>>>,
    /// Why nothing was heard of some.
    pub(super) stalled: Option<CommandError>,
}

impl Posted {
    /// How many are safe.
    pub(super) fn confirmed(&self) -> usize {
        let safe = |result: &&Option<Result<(), Code>>| matches!(result, Some(Ok(())));
        self.results.iter().filter(safe).count()
    }

    /// The first thing that went wrong, if any did; `topic` tells where that one was to go.
    pub(super) fn trouble(&self, topic: impl Fn(usize) -> String) -> Option<KafkaError> {
        let refused = self.results.iter().enumerate().find_map(|(index, result)| {
            let code = result.as_ref()?.err()?;
            Some(refused(topic(index), code))
        });
        refused
            .or_else(|| self.stalled.clone())
            .map(KafkaError::from)
    }
}

/// That a message will never be taken.
pub(super) fn refused(topic: String, code: Code) -> CommandError {
    let why = words(code);
    CommandError::Refused { topic, why }
}

impl Post {
    /// Makes one. It connects by itself.
    pub(super) fn open(config: &KafkaSource) -> Result<Self, KafkaError> {
        let bell = Arc::default();
        Ok(Self {
            producer: Producer::new(config, "command", Arc::clone(&bell))?,
            bell,
        })
    }

    /// Sends all. After a stall it is of no use any more: what is under way may yet arrive.
    pub(super) fn send(&mut self, runtime: &Runtime, records: Vec<Outbound>) -> Posted {
        let mut results = vec![None; records.len()];
        for (index, record) in records.into_iter().enumerate() {
            self.producer.send(record, index);
        }
        let mut heard = Instant::now();
        let mut last = "nothing was heard of them".to_owned();
        let mut stalled = None;
        while !self.producer.is_idle() && stalled.is_none() {
            let reports = self.producer.reports(Instant::now(), |_, code, _| {
                if is_for_good(code) {
                    Then::GiveUp
                } else {
                    Then::Again
                }
            });
            if !reports.ended.is_empty() {
                heard = Instant::now();
            }
            for report in reports.ended {
                results[report.purpose] = Some(report.result);
            }
            if let Some((code, detail)) = reports.errors.last() {
                last = reason(*code, detail);
            }
            if heard.elapsed() >= CONFIRM_WITHIN {
                let (within, why) = (CONFIRM_WITHIN, last.clone());
                stalled = Some(CommandError::Unconfirmed { within, why });
            } else if !self.producer.is_idle() {
                // Rung or not: we look.
                drop(runtime.block_on(async { timeout(LOOK, self.bell.notified()).await }));
            }
        }
        Posted { results, stalled }
    }
}
