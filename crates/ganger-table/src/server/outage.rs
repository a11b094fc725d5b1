//! A server that is unreachable while a caller waits for a reply: it may be back before the caller's
//! timeout.

use std::fmt::Display;
use std::time::Duration;

/// Pause before the server is asked again.
const PAUSE: Duration = Duration::from_millis(250);

/// Reachability of the server at the last request.
#[derive(Debug, Default)]
pub(super) struct Outage {
    is_down: bool,
}

impl Outage {
    /// Returns the result, or nothing in place of a transient error. The first such error in a row is
    /// logged.
    pub(super) fn tolerate<T, E: Display>(
        &mut self,
        taken: Result<Option<T>, E>,
        is_transient: impl Fn(&E) -> bool,
    ) -> Result<Option<T>, E> {
        match taken {
            Err(error) if is_transient(&error) => {
                if !std::mem::replace(&mut self.is_down, true) {
                    tracing::warn!(%error, "server lost while waiting for a reply; reconnecting");
                }
                Ok(None)
            }
            taken => {
                self.is_down = false;
                taken
            }
        }
    }

    /// Returns the pause before the next request, if the server was unreachable.
    pub(super) fn pause(&self) -> Option<Duration> {
        self.is_down.then_some(PAUSE)
    }
}
