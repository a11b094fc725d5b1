//! A server that is away while a reply is waited for: it may be back before the caller's patience ends.

use std::fmt::Display;
use std::time::Duration;

/// The pause before it is asked again.
const PAUSE: Duration = Duration::from_millis(250);

/// Whether it was away when it was asked last.
#[derive(Debug, Default)]
pub(super) struct Away {
    is_away: bool,
}

impl Away {
    /// What was taken: nothing where the error is one that may pass, which is told of once.
    pub(super) fn tolerate<T, E: Display>(
        &mut self,
        taken: Result<Option<T>, E>,
        is_passing: impl Fn(&E) -> bool,
    ) -> Result<Option<T>, E> {
        match taken {
            Err(error) if is_passing(&error) => {
                if !std::mem::replace(&mut self.is_away, true) {
                    tracing::warn!(%error, "server lost while waiting for a reply; reconnecting");
                }
                Ok(None)
            }
            taken => {
                self.is_away = false;
                taken
            }
        }
    }

    /// How long to wait before it is asked again, if it was away.
    pub(super) fn pause(&self) -> Option<Duration> {
        self.is_away.then_some(PAUSE)
    }
}
