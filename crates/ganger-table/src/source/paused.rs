//! Whether an operator has paused the queue for all daemons: looked up now and then, and told to the
//! pool.

use crate::store::TableStore;
use crate::table::Fault;
use ganger_queue::delivery::SourceEnd;

/// What is known of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Paused {
    is_stale: bool,
    is_on: bool,
}

/// Until the first look nothing may be claimed.
impl Default for Paused {
    fn default() -> Self {
        Self {
            is_stale: true,
            is_on: true,
        }
    }
}

impl Paused {
    /// Nothing may be claimed.
    pub(super) fn is_on(self) -> bool {
        self.is_on
    }

    /// It is to be looked up again.
    pub(super) fn look_again(&mut self) {
        self.is_stale = true;
    }

    /// Looks it up, if that is due, and tells the pool.
    ///
    /// # Errors
    /// If the table can't be read.
    pub(super) async fn look(
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
            let is_news = state.paused != self.is_on;
            state.paused = self.is_on;
            is_news
        });
        Ok(())
    }
}
