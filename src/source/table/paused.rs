//! Whether an operator has paused the queue for all daemons: looked up now and then, and told to the
//! pool.

use super::Task;

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
}

impl Task {
    /// Looks it up, if that is due.
    pub(super) async fn look_for_pause(&mut self) {
        if !self.paused.is_stale {
            return;
        }
        match self.store.is_paused().await {
            Ok(is_on) => {
                self.paused = Paused {
                    is_stale: false,
                    is_on,
                };
                self.end.state.send_if_modified(|state| {
                    let is_news = state.paused != is_on;
                    state.paused = is_on;
                    is_news
                });
            }
            Err(fault) => self.trouble(&fault),
        }
    }
}
