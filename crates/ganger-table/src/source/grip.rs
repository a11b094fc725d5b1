//! What is held together: all that is out is void once others may have it. Its workers are told whatever
//! else the source does at that moment, a transaction that nobody answers, say.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use ganger_queue::delivery::{self, History, Message, SourceEnd, SourceState};

/// What all that is out is held by.
#[derive(Debug, Clone, Default)]
pub(super) struct Grip(Arc<Mutex<delivery::Claim>>);

impl Grip {
    /// Hands a message to the pool.
    pub(super) fn deliver(&self, end: &SourceEnd, token: u64, message: Message, history: History) {
        let claim = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        end.deliver_under(&claim, token, message, history);
    }

    /// Lets go of all that is out.
    fn slip(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = delivery::Claim::default();
    }

    /// Does so each time that there are more losses, and has the pool look. Never ends.
    pub(super) async fn watch(
        self,
        losses: Option<watch::Receiver<u64>>,
        state: watch::Sender<SourceState>,
    ) {
        if let Some(mut losses) = losses {
            while losses.changed().await.is_ok() {
                self.slip();
                state.send_modify(|state| state.losses += 1);
            }
        }
        std::future::pending().await
    }
}
