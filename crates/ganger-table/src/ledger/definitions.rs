//! Definitions of schedules as they were understood, so that each is read once.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use jiff::Timestamp;

use super::row::ScheduleRow;
use ganger_config::model::ScheduleConfig;
use ganger_config::stored_schedule;
use ganger_schedule::zone::Zones;

/// Problem of a schedule whose messages no pool could read.
const NO_SOURCE: &str = "`source` is missing: no pool reads queues of the embedded ledger";

/// Number of definitions that are kept.
const KEPT_MAX: usize = 10_000;

/// Definitions as they were understood, so that each is read once.
#[derive(Debug)]
pub(super) struct Definitions {
    zones: Zones,
    /// Name of the source that has the ledger.
    own: String,
    /// Pools may read queues of the ledger's database.
    pub(super) has_queues: bool,
    kept: HashMap<String, (String, Arc<ScheduleConfig>)>,
}

impl Definitions {
    pub(super) fn new(zones: Zones, own: &str) -> Self {
        Self {
            zones,
            own: own.to_owned(),
            has_queues: true,
            kept: HashMap::new(),
        }
    }

    /// Returns the time zones.
    pub(super) fn zones(&self) -> &Zones {
        &self.zones
    }

    /// Reads a definition.
    ///
    /// # Errors
    /// Its problems, in a line.
    pub(super) fn of(
        &mut self,
        name: &str,
        definition: &str,
    ) -> Result<Arc<ScheduleConfig>, String> {
        if let Some((_, config)) = self.kept.get(name).filter(|(kept, _)| kept == definition) {
            return Ok(Arc::clone(config));
        }
        let mut config = stored_schedule(name, definition, &self.zones).map_err(|problems| {
            let problems = problems.messages().iter();
            let lines: Vec<String> = problems.map(|problem| problem.one_line()).collect();
            lines.join("; ")
        })?;
        config.source.take_if(|source| *source == self.own);
        if config.source.is_none() && !self.has_queues {
            return Err(NO_SOURCE.to_owned());
        }
        let config = Arc::new(config);
        if self.kept.len() >= KEPT_MAX {
            self.kept.clear();
        }
        let kept = (definition.to_owned(), Arc::clone(&config));
        self.kept.insert(name.to_owned(), kept);
        Ok(config)
    }

    /// Reads the definition to which a schedule's cursor belongs, if that is another than its own; none if it
    /// is broken. It is not kept: the next definition of that name is the new one.
    pub(super) fn before(&self, row: &ScheduleRow) -> Option<ScheduleConfig> {
        let applied = row.applied.as_ref().filter(|old| **old != row.definition)?;
        stored_schedule(&row.name, applied, &self.zones).ok()
    }
}

/// Returns the schedule without the slots that an operator has taken out.
pub(super) fn with_skips(
    config: Arc<ScheduleConfig>,
    skips: &BTreeSet<Timestamp>,
) -> Arc<ScheduleConfig> {
    if skips.is_empty() {
        return config;
    }
    let mut config = Arc::unwrap_or_clone(config);
    config.spec.skips.clone_from(skips);
    Arc::new(config)
}
