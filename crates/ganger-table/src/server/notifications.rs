//! Notifications of messages sent to a queue: the source's side, which sets whether it wants them, and
//! the side of the lease's task, which requests them on the connection that listens.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::registry::{NotifyState, Registry, RequestFailure};

/// Shortest and longest pause before another request while somebody sends without notifying. A source
/// that is notified only because of another one checks after the longest pause whether that one still
/// exists.
const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// The source's side.
#[derive(Debug)]
pub(crate) struct Notifications {
    wanted: watch::Sender<bool>,
    state: watch::Receiver<NotifyState>,
}

/// The side of the lease's task.
#[derive(Debug)]
pub(super) struct NotificationKeeper {
    wanted: watch::Receiver<bool>,
    state: watch::Sender<NotifyState>,
    pause: Duration,
    /// Time of the next request or check.
    next_request: Option<Instant>,
}

/// Makes both sides. No notifications are wanted yet.
pub(super) fn notifications() -> (Notifications, NotificationKeeper) {
    let (want, wanted) = watch::channel(false);
    let (send, state) = watch::channel(NotifyState::Incomplete);
    let keeper = NotificationKeeper {
        wanted,
        state: send,
        pause: PAUSE,
        next_request: None,
    };
    (
        Notifications {
            wanted: want,
            state,
        },
        keeper,
    )
}

impl Notifications {
    /// Sets whether the source wants notifications. If it does not, some of them may still arrive.
    pub(crate) fn want(&self, wanted: bool) {
        let change = |before: &mut bool| std::mem::replace(before, wanted) != wanted;
        self.wanted.send_if_modified(change);
    }

    /// Returns whether the source is notified of everything that is sent. Once it is, it polls once for
    /// messages sent before.
    pub(crate) fn are_complete(&self) -> bool {
        *self.wanted.borrow() && *self.state.borrow() != NotifyState::Incomplete
    }
}

impl NotificationKeeper {
    /// Resolves when the source's request has changed. Cancel-safe.
    pub(super) async fn changed(&mut self) {
        match self.wanted.changed().await {
            // Marked as changed again, for `is_due`.
            Ok(()) => self.wanted.mark_changed(),
            // The source is gone, and with it the task that awaits this.
            Err(_) => std::future::pending().await,
        }
    }

    /// Returns the time of the next request or check, if there is one.
    pub(super) fn next_request(&self) -> Option<Instant> {
        self.next_request
    }

    /// Returns whether `arrange` has something to do now.
    pub(super) fn is_due(&self) -> bool {
        let changed = self.wanted.has_changed().unwrap_or(false);
        changed
            || self
                .next_request
                .is_some_and(|again| Instant::now() >= again)
    }

    /// Requests or releases notifications, as far as possible now. Returns whether the state has
    /// changed, so that messages may have been sent without a notification.
    pub(super) async fn arrange(
        &mut self,
        connection: &mut impl Registry,
        queue: &str,
    ) -> Result<bool, RequestFailure> {
        let wanted = *self.wanted.borrow_and_update();
        let before = *self.state.borrow();
        let state = match (wanted, before) {
            (true, NotifyState::Own) => NotifyState::Own,
            (true, NotifyState::Others | NotifyState::Incomplete) => {
                connection.request_notifications(queue).await?
            }
            (false, NotifyState::Own) => {
                connection.release_notifications(queue).await?;
                NotifyState::Incomplete
            }
            (false, NotifyState::Others | NotifyState::Incomplete) => NotifyState::Incomplete,
        };
        self.pause = match state {
            NotifyState::Incomplete if wanted && before == NotifyState::Incomplete => {
                (self.pause * 2).min(PAUSE_MAX)
            }
            NotifyState::Others => PAUSE_MAX,
            NotifyState::Incomplete | NotifyState::Own => PAUSE,
        };
        self.next_request =
            (wanted && state != NotifyState::Own).then(|| Instant::now() + self.pause);
        self.state.send_replace(state);
        Ok(state != before)
    }

    /// Resets the state after the connection was lost.
    pub(super) fn forget(&mut self) {
        self.state.send_replace(NotifyState::Incomplete);
        self.pause = PAUSE;
        // The next connection makes the request, if one is wanted then.
        self.next_request = Some(Instant::now());
    }
}
