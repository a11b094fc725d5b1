//! The claim shared by all rows in flight: they are void as soon as others may have taken them over. The pool
//! is notified at once, even while the source waits for a transaction that gets no answer.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use ganger_queue::delivery::{self, History, Message, SourceEnd, SourceState};

/// The claim under which rows are handed out. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct SharedClaim(Arc<Mutex<delivery::Claim>>);

impl SharedClaim {
    /// Hands a message to the pool.
    pub(super) fn deliver(&self, end: &SourceEnd, token: u64, message: Message, history: History) {
        let claim = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        end.deliver_under(&claim, token, message, history);
    }

    /// Voids the claim of all rows in flight.
    fn void(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = delivery::Claim::default();
    }

    /// Voids the claim whenever `losses` changes, and notifies the pool. Never returns.
    pub(super) async fn watch(
        self,
        losses: Option<watch::Receiver<u64>>,
        state: watch::Sender<SourceState>,
    ) {
        if let Some(mut losses) = losses {
            while losses.changed().await.is_ok() {
                self.void();
                state.send_modify(|state| state.losses += 1);
            }
        }
        std::future::pending().await
    }
}
