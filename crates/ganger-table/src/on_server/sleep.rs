//! How a source has itself told of what is sent to its queue: what it wants, and the part of the lease's
//! task that sees to it on the connection that listens.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::registry::{Registry, Told, Undone};

/// The pause before it is tried again while someone sends who tells nobody, and the longest of them.
/// Whoever is told because of another looks that often whether that one is still there.
const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// The source's side.
#[derive(Debug)]
pub(crate) struct Sleep {
    wanted: watch::Sender<bool>,
    told: watch::Receiver<Told>,
}

/// The side of the connection.
#[derive(Debug)]
pub(super) struct Sleeper {
    wanted: watch::Receiver<bool>,
    told: watch::Sender<Told>,
    pause: Duration,
    /// When to try, or to look, again.
    again: Option<Instant>,
}

/// Both sides of one that is not told yet, and does not want to be.
pub(super) fn sleep() -> (Sleep, Sleeper) {
    let (want, wanted) = watch::channel(false);
    let (tell, told) = watch::channel(Told::No);
    let sleeper = Sleeper {
        wanted,
        told: tell,
        pause: PAUSE,
        again: None,
    };
    (Sleep { wanted: want, told }, sleeper)
}

impl Sleep {
    /// Whether the source wants to be told. What it is told of when it does not may be all or some.
    pub(crate) fn want(&self, wanted: bool) {
        let change = |before: &mut bool| std::mem::replace(before, wanted) != wanted;
        self.wanted.send_if_modified(change);
    }

    /// Whether it is told of all that is sent. Whenever that has become so there are news.
    pub(crate) fn is_told(&self) -> bool {
        *self.wanted.borrow() && *self.told.borrow() != Told::No
    }
}

impl Sleeper {
    /// Resolves when something else is wanted. Loses nothing when it is dropped.
    pub(super) async fn changed(&mut self) {
        match self.wanted.changed().await {
            // As if it were not seen yet.
            Ok(()) => self.wanted.mark_changed(),
            // The source is gone, and with it whoever drives this.
            Err(_) => std::future::pending().await,
        }
    }

    /// When there is something to do by itself, if ever.
    pub(super) fn again(&self) -> Option<Instant> {
        self.again
    }

    /// Whether there is something to do now.
    pub(super) fn is_due(&self) -> bool {
        let changed = self.wanted.has_changed().unwrap_or(false);
        changed || self.again.is_some_and(|again| Instant::now() >= again)
    }

    /// Does what is wanted, as far as it can be had now. Returns whether to look for what may not have been
    /// told of.
    pub(super) async fn arrange(
        &mut self,
        line: &mut impl Registry,
        queue: &str,
    ) -> Result<bool, Undone> {
        let wanted = *self.wanted.borrow_and_update();
        let before = *self.told.borrow();
        let told = match (wanted, before) {
            (true, Told::ToUs) => Told::ToUs,
            (true, Told::ToOthers | Told::No) => line.fall_asleep(queue).await?,
            (false, Told::ToUs) => {
                line.wake_up(queue).await?;
                Told::No
            }
            (false, Told::ToOthers | Told::No) => Told::No,
        };
        self.pause = match told {
            Told::No if wanted && before == Told::No => (self.pause * 2).min(PAUSE_MAX),
            Told::ToOthers => PAUSE_MAX,
            Told::No | Told::ToUs => PAUSE,
        };
        self.again = (wanted && told != Told::ToUs).then(|| Instant::now() + self.pause);
        self.told.send_replace(told);
        Ok(told != before)
    }

    /// The connection is gone.
    pub(super) fn forget(&mut self) {
        self.told.send_replace(Told::No);
        self.pause = PAUSE;
        // By whatever is wanted then.
        self.again = Some(Instant::now());
    }
}
