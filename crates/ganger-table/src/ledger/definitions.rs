//! Definitions of schedules as they were understood, so that each is read once.

use std::collections::HashMap;
use std::sync::Arc;

use super::row::ScheduleRow;
use ganger_config::model::ScheduleConfig;
use ganger_config::stored_schedule;
use ganger_schedule::zone::Zones;

/// Number of definitions that are kept.
const KEPT_MAX: usize = 10_000;

/// Definitions as they were understood, so that each is read once.
#[derive(Debug)]
pub(super) struct Definitions {
    zones: Zones,
    kept: HashMap<String, (String, Arc<ScheduleConfig>)>,
}

impl Definitions {
    pub(super) fn new(zones: Zones) -> Self {
        Self {
            zones,
            kept: HashMap::new(),
        }
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
        let config = stored_schedule(name, definition, &self.zones).map_err(|problems| {
            let problems = problems.messages().iter();
            let lines: Vec<String> = problems.map(|problem| problem.one_line()).collect();
            lines.join("; ")
        })?;
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
