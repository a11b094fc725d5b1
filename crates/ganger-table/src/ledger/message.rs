//! The message of an occurrence.

use std::time::Duration;

use jiff::Timestamp;
use uuid::Uuid;

use super::row::{NewOccurrence, ScheduleRow};
use super::store::LedgerTransaction;
use crate::table::Fault;
use ganger_config::model::ScheduleConfig;
use ganger_core::names::{OCCURRENCE_HEADER, SCHEDULE_HEADER, SLOT_HEADER};
use ganger_queue::delivery::Outgoing;
use ganger_schedule::occurrence::OccurrenceState;
use ganger_schedule::problem::Broken;
use ganger_schedule::template::RunFacts;

/// Makes the occurrence of a slot, or of a run that is triggered.
pub(super) fn occurrence(
    row: &ScheduleRow,
    config: &ScheduleConfig,
    slot: Option<Timestamp>,
) -> NewOccurrence {
    NewOccurrence {
        id: Uuid::now_v7().to_string(),
        schedule: row.name.clone(),
        version: row.version,
        slot,
        last_slot: None,
        queue: config.queue.clone(),
        state: OccurrenceState::Queued,
        reason: None,
        missed: 0,
        note: None,
        is_watched: config.spec.auto_disable.is_some(),
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
        (SCHEDULE_HEADER, occurrence.schedule.clone()),
        (SLOT_HEADER, slot.to_string()),
        (OCCURRENCE_HEADER, occurrence.id.clone()),
    ] {
        headers.push((name.to_owned(), value));
    }
    Ok(body.map(|body| Outgoing {
        queue: occurrence.queue.clone(),
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
