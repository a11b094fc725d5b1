//! The message of an occurrence.

use std::time::Duration;

use jiff::Timestamp;
use uuid::{ContextV7, Uuid};

use super::row::{NewOccurrence, ScheduleRow};
use super::store::LedgerTransaction;
use crate::table::Fault;
use ganger_config::model::ScheduleConfig;
use ganger_core::names::{
    ATTEMPTS_MAX_HEADER, OCCURRENCE_HEADER, SCHEDULE_HEADER, SLOT_HEADER, TIMEOUT_HEADER,
};
use ganger_queue::delivery::Outgoing;
use ganger_schedule::expect::Expect;
use ganger_schedule::occurrence::OccurrenceState;
use ganger_schedule::problem::Broken;
use ganger_schedule::template::RunFacts;

thread_local! {
    /// Keeps the ids of one millisecond in order.
    static ORDER: ContextV7 = const { ContextV7::new() };
}

/// Makes the id of an occurrence that is entered at that time of the ledger's clock: ids are ordered in time,
/// whichever machine makes them.
pub(super) fn id(now: Timestamp) -> String {
    let seconds = u64::try_from(now.as_second()).unwrap_or(0);
    let nanos = u32::try_from(now.subsec_nanosecond()).unwrap_or(0);
    let at = ORDER.with(|order| uuid::Timestamp::from_unix(order, seconds, nanos));
    Uuid::new_v7(at).to_string()
}

/// Makes the occurrence of a slot, or of a run that is triggered.
pub(super) fn occurrence(
    row: &ScheduleRow,
    config: &ScheduleConfig,
    slot: Option<Timestamp>,
    id: String,
) -> NewOccurrence {
    NewOccurrence {
        id,
        schedule: row.name.clone(),
        version: row.version,
        slot,
        last_slot: None,
        queue: config.queue.clone(),
        source: config.source.clone(),
        state: OccurrenceState::Queued,
        reason: None,
        missed: 0,
        note: None,
        is_watched: config.spec.auto_disable.is_some()
            || config.spec.expect != Expect::default()
            || config.spec.overlap.queues(),
        message: None,
    }
}

/// Makes the message of an occurrence.
pub(super) fn message(
    tx: &mut dyn LedgerTransaction,
    config: &ScheduleConfig,
    occurrence: &NewOccurrence,
    slot: Timestamp,
) -> Result<Result<Outgoing, Broken>, Fault> {
    let needs_success = config.body.uses("last_success");
    let last_success = match needs_success {
        true => tx.last_success(&occurrence.schedule)?,
        false => None,
    };
    let previous_slot = match config.body.uses("previous_slot") {
        true => config.spec.previous(slot),
        false => Ok(None),
    };
    let body = previous_slot.and_then(|previous_slot| {
        config.body.render(&RunFacts {
            schedule: &occurrence.schedule,
            occurrence: &occurrence.id,
            slot,
            previous_slot: previous_slot.map(|slot| slot.at),
            last_success,
        })
    });
    let headers = config.headers.iter();
    let mut headers: Vec<(String, String)> = headers
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    for (name, value) in [
        (SCHEDULE_HEADER, Some(occurrence.schedule.clone())),
        (SLOT_HEADER, Some(slot.to_string())),
        (OCCURRENCE_HEADER, Some(occurrence.id.clone())),
        (
            TIMEOUT_HEADER,
            config
                .limits
                .timeout
                .map(|limit| limit.as_millis().to_string()),
        ),
        (
            ATTEMPTS_MAX_HEADER,
            config.limits.attempts.map(|most| most.to_string()),
        ),
    ] {
        headers.extend(value.map(|value| (name.to_owned(), value)));
    }
    Ok(body.map(|body| Outgoing {
        queue: occurrence.queue.clone(),
        exchange: config.exchange.clone(),
        body: body.into(),
        headers,
        correlation_id: occurrence.id.clone(),
        reply_to: None,
        message_id: Some(occurrence.id.clone()),
        content_type: config.content_type.clone(),
        key: config.key.clone(),
        priority: config.priority,
        delay: Duration::ZERO,
    }))
}
