//! Sends the messages of a command: all at once, and then waits with a timeout for each to be confirmed
//! or rejected. The messages are chosen elsewhere.

use std::sync::Arc;
use std::time::Duration;

use rdkafka::error::RDKafkaErrorCode as Code;
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::broker::command_error::CommandError;
use crate::broker::error::{KafkaError, is_permanent, reason, words};
use crate::broker::producer::{FailureAction, Producer};
use crate::broker::record::Outbound;
use ganger_config::model::KafkaSource;

/// Time without any confirmation after which a command gives up.
const CONFIRM_WITHIN: Duration = Duration::from_secs(60);
/// Maximum interval between two checks of the producer.
const LOOK: Duration = Duration::from_secs(1);

/// A producer for a command.
pub(super) struct CommandProducer {
    producer: Producer<usize>,
    wakeup: Arc<Notify>,
}

/// Outcome of the sent records.
#[derive(Debug)]
pub(super) struct SendResults {
    /// One result for each record, in order; none for an unconfirmed one.
    pub(super) results: Vec<Option<Result<(), Code>>>,
    /// Reason why some are unconfirmed.
    pub(super) stalled: Option<CommandError>,
}

impl SendResults {
    /// Number of confirmed records.
    pub(super) fn confirmed(&self) -> usize {
        let safe = |result: &&Option<Result<(), Code>>| matches!(result, Some(Ok(())));
        self.results.iter().filter(safe).count()
    }

    /// Returns the first error, if any; `topic` returns the destination of that record.
    pub(super) fn first_error(&self, topic: impl Fn(usize) -> String) -> Option<KafkaError> {
        let refused = self.results.iter().enumerate().find_map(|(index, result)| {
            let code = result.as_ref()?.err()?;
            Some(refused(topic(index), code))
        });
        refused
            .or_else(|| self.stalled.clone())
            .map(KafkaError::from)
    }
}

/// Returns the error for a permanently rejected message.
pub(super) fn refused(topic: String, code: Code) -> CommandError {
    let why = words(code);
    CommandError::Refused { topic, why }
}

impl CommandProducer {
    /// Creates the producer. It connects by itself.
    pub(super) fn open(config: &KafkaSource) -> Result<Self, KafkaError> {
        let wakeup = Arc::default();
        Ok(Self {
            producer: Producer::new(config, "command", Arc::clone(&wakeup))?,
            wakeup,
        })
    }

    /// Sends all records. Unusable after a stall: records in flight may still arrive.
    pub(super) fn send(&mut self, runtime: &Runtime, records: Vec<Outbound>) -> SendResults {
        let mut results = vec![None; records.len()];
        for (index, record) in records.into_iter().enumerate() {
            self.producer.send(record, index);
        }
        let mut heard = Instant::now();
        let mut last = "they did not answer".to_owned();
        let mut stalled = None;
        while !self.producer.is_idle() && stalled.is_none() {
            let reports = self.producer.reports(Instant::now(), |_, code, _| {
                if is_permanent(code) {
                    FailureAction::GiveUp
                } else {
                    FailureAction::Retry
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
                // Checked in any case, with or without a notification.
                drop(runtime.block_on(async { timeout(LOOK, self.wakeup.notified()).await }));
            }
        }
        SendResults { results, stalled }
    }
}
