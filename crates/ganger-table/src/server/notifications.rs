//! Notifications of what is sent to a queue: the source's side, which says whether it wants them, and the side of the
//! lease's task, which requests them on the connection that listens.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::registry::{NotifyState, Registry, Undone};

/// Pause before notifications are requested again while somebody sends without notifying, and the longest such pause,
/// after which a source that is notified because of another sees whether that one is still there.
const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// The source's side.
#[derive(Debug)]
pub(crate) struct Notifications {
    wanted: watch::Sender<bool>,
    state: watch::Receiver<NotifyState>,
}

/// The side of the connection.
#[derive(Debug)]
pub(super) struct NotificationKeeper {
    wanted: watch::Receiver<bool>,
    state: watch::Sender<NotifyState>,
    pause: Duration,
    /// When to try, or to look, again.
    again: Option<Instant>,
}

/// Makes both sides. No notifications are wanted yet.
pub(super) fn notifications() -> (Notifications, NotificationKeeper) {
    let (want, wanted) = watch::channel(false);
    let (send, state) = watch::channel(NotifyState::Incomplete);
    let keeper = NotificationKeeper {
        wanted,
        state: send,
        pause: PAUSE,
        again: None,
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
    /// Sets whether the source wants to be notified. Where it does not, any part of the notifications may come.
    pub(crate) fn want(&self, wanted: bool) {
        let change = |before: &mut bool| std::mem::replace(before, wanted) != wanted;
        self.wanted.send_if_modified(change);
    }

    /// Returns whether the source is notified of all that is sent. Once that has become so it looks at what was sent
    /// before.
    pub(crate) fn are_complete(&self) -> bool {
        *self.wanted.borrow() && *self.state.borrow() != NotifyState::Incomplete
    }
}

impl NotificationKeeper {
    /// Resolves when something else is wanted. Loses nothing when it is dropped.
    pub(super) async fn changed(&mut self) {
        match self.wanted.changed().await {
            // As if it were not seen yet.
            Ok(()) => self.wanted.mark_changed(),
            // The source is gone, and with it whoever drives this.
            Err(_) => std::future::pending().await,
        }
    }

    /// Time of the next request, if there is to be one.
    pub(super) fn again(&self) -> Option<Instant> {
        self.again
    }

    /// Returns whether there is something to do now.
    pub(super) fn is_due(&self) -> bool {
        let changed = self.wanted.has_changed().unwrap_or(false);
        changed || self.again.is_some_and(|again| Instant::now() >= again)
    }

    /// Does what is wanted, as far as it can be had now. Returns whether something may have been sent without a
    /// notification.
    pub(super) async fn arrange(
        &mut self,
        line: &mut impl Registry,
        queue: &str,
    ) -> Result<bool, Undone> {
        let wanted = *self.wanted.borrow_and_update();
        let before = *self.state.borrow();
        let state = match (wanted, before) {
            (true, NotifyState::Own) => NotifyState::Own,
            (true, NotifyState::Others | NotifyState::Incomplete) => {
                line.request_notifications(queue).await?
            }
            (false, NotifyState::Own) => {
                line.release_notifications(queue).await?;
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
        self.again = (wanted && state != NotifyState::Own).then(|| Instant::now() + self.pause);
        self.state.send_replace(state);
        Ok(state != before)
    }

    /// Begins anew: the connection is lost.
    pub(super) fn forget(&mut self) {
        self.state.send_replace(NotifyState::Incomplete);
        self.pause = PAUSE;
        // By whatever is wanted then.
        self.again = Some(Instant::now());
    }
}
