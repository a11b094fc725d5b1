//! Publications that are sent alone since the connection was lost with them repeatedly, and the search for
//! the one that causes this. Pure.
//!
//! A broker or a proxy ends a connection over some publications, and does not report which one. Any
//! unconfirmed one may be the cause, so it is sent alone, over a connection that nothing else uses meanwhile.
//! A failing network is distinguished by the number and the times of the losses.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use super::tracks::flight::Unconfirmed;

/// Number of times that the shared connection is lost with a publication before it is sent alone.
pub(crate) const SHARED_LOSSES: u32 = 2;
/// Number of consecutive times that a connection must end over a publication that is alone on it.
pub(crate) const ALONE_LOSSES: u32 = 3;

/// A publication that ends its connection does so within this time after it was sent.
const AT_ONCE: Duration = Duration::from_secs(1);
/// Additional time for each MiB of its body.
const PER_MIB: Duration = Duration::from_secs(1);

/// The publications in quarantine, and those that may have to go there.
#[derive(Debug, Default)]
pub(crate) struct Quarantine {
    /// Number of losses of each publication: of the shared connection, or in a row while it was alone.
    losses: HashMap<u64, u32>,
    /// Publications that are to be sent alone, in order.
    waiting: VecDeque<u64>,
    /// The publication that is alone now.
    on_trial: Option<u64>,
}

/// Consequences of the loss of the quarantine's connection.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct AloneLoss {
    /// Publication that has ended the connection repeatedly.
    pub(crate) blamed: Option<u64>,
    /// Publications that are not the cause: they were on the connection for too long.
    pub(crate) cleared: Vec<u64>,
}

impl Unconfirmed {
    /// Time until which it may be the cause of the end of its connection.
    fn until(&self) -> Instant {
        let mib = u32::try_from(self.bytes >> 20).unwrap_or(u32::MAX);
        self.since + AT_ONCE + PER_MIB * mib
    }
}

impl Quarantine {
    /// Records the loss of the shared connection with these publications unconfirmed. Returns those
    /// that are sent alone from now on.
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

    /// Records the loss of the quarantine's connection with these publications unconfirmed.
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
        // With two of them the cause is not known.
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

    /// Next publication to send, once the connection has outlived the one before. `unconfirmed` are
    /// those on it.
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

    /// Time at which the next one may be sent without any other event.
    pub(crate) fn deadline(&self, unconfirmed: &[Unconfirmed]) -> Option<Instant> {
        until(self.on_trial?, unconfirmed)
    }

    /// Removes a publication whose outcome is known, or for which nothing waits any more.
    pub(crate) fn forget(&mut self, id: u64) {
        self.losses.remove(&id);
        self.waiting.retain(|other| *other != id);
        self.on_trial = self.on_trial.filter(|other| *other != id);
    }
}

/// Time until which the one on trial may end the connection; `None` if it was not sent yet.
fn until(on_trial: u64, unconfirmed: &[Unconfirmed]) -> Option<Instant> {
    let mut sent = unconfirmed.iter();
    let sent = sent.find(|one| one.id == on_trial)?;
    Some(sent.until())
}

#[cfg(test)]
mod tests;
