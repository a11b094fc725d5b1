//! The pause of a queue by an operator, for all daemons: queried from time to time, and reported to the
//! pool.

use crate::store::TableStore;
use crate::table::Fault;
use ganger_queue::delivery::SourceEnd;

/// The last known state.
#[derive(Debug, Clone, Copy)]
pub(super) struct Paused {
    is_stale: bool,
    is_on: bool,
}

/// Nothing may be claimed before the first query.
impl Default for Paused {
    fn default() -> Self {
        Self {
            is_stale: true,
            is_on: true,
        }
    }
}

impl Paused {
    /// Returns whether claims are paused.
    pub(super) fn is_on(self) -> bool {
        self.is_on
    }

    /// Requests a new query.
    pub(super) fn request_query(&mut self) {
        self.is_stale = true;
    }

    /// Queries the pause, if that is due, and reports it to the pool.
    ///
    /// # Errors
    /// If the table can't be read.
    pub(super) async fn query(
        &mut self,
        store: &mut dyn TableStore,
        end: &SourceEnd,
    ) -> Result<(), Fault> {
        if !self.is_stale {
            return Ok(());
        }
        self.is_on = store.is_paused().await?;
        self.is_stale = false;
        end.state.send_if_modified(|state| {
            let is_changed = state.paused != self.is_on;
            state.paused = self.is_on;
            is_changed
        });
        Ok(())
    }
}
