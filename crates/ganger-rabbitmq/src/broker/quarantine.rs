//! Which publications are sent by themselves since the connection was lost with them again and again,
//! and which of them is to blame. Pure.
//!
//! A broker ends a connection over some publications, as a proxy does, and does not say which one it
//! was. Whatever was unconfirmed may be to blame; so it is sent alone, over a connection that nothing
//! else uses meanwhile. A network that fails is told from that by how often, and how soon.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use super::tracks::flight::Unconfirmed;

/// Number of times that the shared connection is lost with a publication before it is sent alone.
pub(crate) const SHARED_LOSSES: u32 = 2;
/// Number of times in a row that a connection must end over a publication that is alone on it.
pub(crate) const ALONE_LOSSES: u32 = 3;

/// A publication that ends its connection does so within this time after it was sent,
const AT_ONCE: Duration = Duration::from_secs(1);
/// and within that time more for each MiB of its body.
const PER_MIB: Duration = Duration::from_secs(1);

/// The publications in quarantine, and those that may have to go there.
#[derive(Debug, Default)]
pub(crate) struct Quarantine {
    /// Number of losses of each publication: of the shared connection, or in a row while it was alone.
    losses: HashMap<u64, u32>,
    /// Those that are to be sent alone, in order.
    waiting: VecDeque<u64>,
    /// The one that is alone now.
    on_trial: Option<u64>,
}

/// What follows from the loss of the connection for those that are alone.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct AloneLoss {
    /// This one has ended it, again and again.
    pub(crate) blamed: Option<u64>,
    /// These have not: they were on it for too long.
    pub(crate) cleared: Vec<u64>,
}

impl Unconfirmed {
    /// Until when it may be to blame for the end of its connection.
    fn until(&self) -> Instant {
        let mib = u32::try_from(self.bytes >> 20).unwrap_or(u32::MAX);
        self.since + AT_ONCE + PER_MIB * mib
    }
}

impl Quarantine {
    /// The shared connection is lost, with these unconfirmed. Returns those that are sent alone from
    /// now on.
    pub(crate) fn shared_lost(&mut self, unconfirmed: &[Unconfirmed], now: Instant) -> Vec<u64> {
        let mut moved = Vec::new();
        for one in unconfirmed.iter().filter(|one| now < one.until()) {
            let losses = self.losses.entry(one.id).or_default();
            *losses += 1;
            if *losses >= SHARED_LOSSES {
                *losses = 0;
                moved.push(one.id);
            }
        }
        moved.sort_unstable();
        self.waiting.extend(&moved);
        moved
    }

    /// The connection of those that are alone is lost, with these unconfirmed.
    pub(crate) fn alone_lost(&mut self, unconfirmed: &[Unconfirmed], now: Instant) -> AloneLoss {
        let may_be_to_blame = |one: &Unconfirmed| now < one.until();
        let (suspected, cleared): (Vec<Unconfirmed>, Vec<Unconfirmed>) =
            unconfirmed.iter().copied().partition(may_be_to_blame);
        let cleared: Vec<u64> = cleared.iter().map(|one| one.id).collect();
        cleared.iter().for_each(|id| self.forget(*id));
        let mut loss = AloneLoss {
            blamed: None,
            cleared,
        };
        // With two of them nothing is proved.
        let [one] = suspected[..] else {
            return loss;
        };
        let losses = self.losses.entry(one.id).or_default();
        *losses += 1;
        if *losses >= ALONE_LOSSES {
            self.forget(one.id);
            loss.blamed = Some(one.id);
        }
        loss
    }

    /// The next one to be sent, once the connection has outlived the one before. `unconfirmed` is what
    /// is on it.
    pub(crate) fn next(&mut self, unconfirmed: &[Unconfirmed], now: Instant) -> Option<u64> {
        if let Some(id) = self.on_trial {
            let until = until(id, unconfirmed)?;
            if now < until {
                return None;
            }
            self.losses.remove(&id);
        }
        self.on_trial = self.waiting.pop_front();
        self.on_trial
    }

    /// When the next one may be sent although nothing has happened.
    pub(crate) fn deadline(&self, unconfirmed: &[Unconfirmed]) -> Option<Instant> {
        until(self.on_trial?, unconfirmed)
    }

    /// The fate of this one is known, or nobody waits for it any more.
    pub(crate) fn forget(&mut self, id: u64) {
        self.losses.remove(&id);
        self.waiting.retain(|other| *other != id);
        self.on_trial = self.on_trial.filter(|other| *other != id);
    }
}

/// Until when the one on trial may end the connection. None if it was not sent yet.
fn until(on_trial: u64, unconfirmed: &[Unconfirmed]) -> Option<Instant> {
    let mut sent = unconfirmed.iter();
    let sent = sent.find(|one| one.id == on_trial)?;
    Some(sent.until())
}

#[cfg(test)]
mod tests;
