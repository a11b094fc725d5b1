//! Messages from the source to the lanes: limits the intake and assigns each message to a worker.

use tokio::sync::mpsc::error::TrySendError;
use tokio::time::Instant;

use super::breaker::News;
use super::least_loaded::Board;
use super::{Handle, Pool};
use ganger_queue::delivery::{CREDIT_MAX, Delivery, Intake};
use ganger_telemetry::traces;

/// Number of waiting messages from which they are given out in runs.
const RUNS_FROM: usize = 16;

impl Pool {
    pub(super) fn takes_deliveries(&self) -> bool {
        // While the breaker is open messages wait here without being tried, within the credit.
        (self.held.is_empty() || self.shared.breaker.borrow().is_open()) && !self.source_gone
    }

    pub(super) fn received(&mut self, count: usize, batch: &mut Vec<Delivery>) {
        if count == 0 {
            self.source_gone = true;
            return;
        }
        self.shared.counters.taken(count);
        let taken_at = Some(Instant::now());
        // It may have been on its way when the breaker opened.
        let kept = self.kept_while_open().unwrap_or(usize::MAX);
        for mut delivery in batch.drain(..) {
            delivery.taken_at = taken_at;
            delivery.recording = traces::begin(&delivery);
            match () {
                // Messages that no worker has been given go back.
                () if self.takes_nothing() => self.return_it(delivery),
                () if self.held.len() + self.suspects.len() >= kept => self.return_it(delivery),
                () if delivery.history.alone => self.suspects.push_back(delivery),
                () => self.held.push_back(delivery),
            }
        }
    }

    fn takes_nothing(&self) -> bool {
        self.stopping.is_some() || self.steering.takes_nothing()
    }

    fn return_it(&self, delivery: Delivery) {
        self.shared.counters.given_back(1);
        drop(delivery);
    }

    /// Returns the number of messages that may be here while the breaker is open. None may without
    /// a worker; those that workers may still have from before must leave room for those to be
    /// tried.
    fn kept_while_open(&self) -> Option<usize> {
        let at_hand = self.shared.breaker.borrow().at_hand()?;
        match self.board.open() {
            0 => Some(0),
            _ => Some(at_hand + self.board.windows()),
        }
    }

    /// Gives back the messages that no worker has been given.
    pub(super) fn give_back(&mut self) {
        let counters = &self.shared.counters;
        counters.given_back(self.held.len() + self.suspects.len());
        self.held.clear();
        self.suspects.clear();
        while let Ok(delivery) = self.link.deliveries.try_recv() {
            counters.taken(1);
            counters.given_back(1);
            drop(delivery);
        }
    }

    /// Returns the time at which the first message that waits for a worker has to go back.
    pub(super) fn next_stale(&self) -> Option<Instant> {
        let first = [self.held.front(), self.suspects.front()];
        let begin_by = |delivery: &Delivery| delivery.begin_by;
        first.into_iter().flatten().filter_map(begin_by).min()
    }

    /// Gives back the messages that have waited for a worker as long as their broker allows.
    pub(super) fn give_back_stale(&mut self, now: Instant) {
        for waiting in [&mut self.held, &mut self.suspects] {
            let stale = |first: &mut Delivery| first.begin_by.is_some_and(|by| by <= now);
            while waiting.pop_front_if(stale).is_some() {
                self.shared.counters.given_back(1);
            }
        }
    }

    /// Reads the lanes that have changed since the last look; the cost of reading all would grow
    /// with their number.
    pub(super) fn look_at_lanes(&mut self) {
        for slot in self.shared.take_changed() {
            self.look_at(slot);
        }
    }

    /// Reads a lane. Returns whether its load has changed.
    fn look_at(&mut self, slot: usize) -> bool {
        let Some(handle) = self.slots.get(&slot) else {
            return self.board.remove(slot).is_some();
        };
        self.board.show(slot, handle.gauge.look())
    }

    /// Gives out waiting messages as far as there is room. Without any worker they go back: other
    /// daemons may have one, and it is unknown when this pool will.
    pub(super) fn dispatch(&mut self, now: Instant) {
        if self.board.open() == 0 {
            return self.give_back();
        }
        while self.admits(now)
            && let Some(delivery) = self.suspects.pop_front()
        {
            if let Err(delivery) = self.place(delivery, Board::choose_idle) {
                self.suspects.push_front(*delivery);
                break;
            }
            self.shared.breaker.borrow_mut().taken(now);
        }
        if self.suspects.is_empty() {
            self.board.release();
        }
        // One wake-up for a run of quick tasks instead of one for each.
        let in_runs = self.held.len() >= RUNS_FROM && self.shared.streak.is_long(now);
        let run = self.held.len().div_ceil(self.parts_min);
        let mut last = None;
        while self.admits(now)
            && let Some(delivery) = self.next_held()
        {
            let choose = |board: &mut Board| match in_runs {
                true => board.choose_for_run(last, run),
                false => board.choose(),
            };
            match self.place(delivery, choose) {
                Ok(slot) => last = Some(slot),
                Err(delivery) => {
                    self.held.push_front(*delivery);
                    return;
                }
            }
            self.shared.breaker.borrow_mut().taken(now);
        }
    }

    /// Returns the next message to try. While the breaker is open, messages tried before and new
    /// ones take turns: of each kind the first that came, which has been due for longest.
    fn next_held(&mut self) -> Option<Delivery> {
        let Some(takes_tried) = self.shared.breaker.borrow().takes_tried() else {
            return self.held.pop_front();
        };
        let is_meant = |one: &Delivery| (one.history.attempt > 1) == takes_tried;
        let meant = self.held.iter().position(is_meant);
        self.held.remove(meant.unwrap_or(0))
    }

    fn admits(&self, now: Instant) -> bool {
        self.shared.breaker.borrow().admits(now)
    }

    /// Returns the time at which the breaker admits the first of the waiting messages.
    pub(super) fn next_probe(&self, now: Instant) -> Option<Instant> {
        let probe_at = self.shared.breaker.borrow().probe_at()?;
        let waits = !self.held.is_empty() || !self.suspects.is_empty();
        // Past that moment the pool waits for a lane.
        (waits && probe_at > now).then_some(probe_at)
    }

    /// Gives back the messages that no worker has when the breaker has opened; the lanes do
    /// likewise.
    pub(super) fn follow_breaker(&mut self) {
        let news = self.shared.breaker.borrow_mut().news();
        match news {
            None => {}
            Some(News::Opened { failed, error }) => {
                self.give_back();
                self.wake_lanes();
                tracing::error!(
                    pool = self.name(),
                    failed,
                    error,
                    "the breaker is open: nearly all first attempts fail; one message at a time is tried"
                );
            }
            Some(News::Closed) => {
                tracing::info!(
                    pool = self.name(),
                    "the breaker is closed: attempts succeed again"
                );
            }
        }
    }

    /// Follows the source's losses: lost messages are for others to process. The lanes check
    /// whether they have some of them.
    pub(super) fn follow_losses(&mut self) {
        let losses = self.link.state.borrow().losses;
        if !self.shared.set_losses(losses) {
            return;
        }
        for waiting in [&mut self.held, &mut self.suspects] {
            let before = waiting.len();
            waiting.retain(|delivery| !delivery.is_void());
            self.shared.counters.given_back(before - waiting.len());
        }
        self.wake_lanes();
    }

    /// Gives the message to a lane and returns which, or gives it back if none has room.
    fn place(
        &mut self,
        mut delivery: Delivery,
        choose: impl Fn(&mut Board) -> Option<usize>,
    ) -> Result<usize, Box<Delivery>> {
        let alone = delivery.history.alone;
        let bytes = delivery.message.body.len();
        loop {
            let Some(slot) = choose(&mut self.board) else {
                return Err(delivery.into());
            };
            // The lane may be closing at this very moment; then another one is chosen.
            if self.look_at(slot) {
                continue;
            }
            let Some(Handle { gauge, mailbox, .. }) = self.slots.get(&slot) else {
                continue;
            };
            match mailbox.try_send(delivery) {
                Ok(()) => {
                    gauge.given(bytes, alone);
                    self.look_at(slot);
                    self.board.took(slot);
                    return Ok(slot);
                }
                Err(TrySendError::Closed(back) | TrySendError::Full(back)) => {
                    gauge.close();
                    delivery = back;
                }
            }
        }
    }

    /// Returns the number of messages that the workers can use.
    pub(super) fn credit(&self) -> usize {
        let most = match self.supervisor.degraded() {
            true => 1,
            false => CREDIT_MAX,
        };
        match self.takes_nothing() {
            true => 0,
            false => {
                let wanted = self.kept_while_open();
                wanted.unwrap_or_else(|| self.board.wanted()).min(most)
            }
        }
    }

    /// Tells the source the credit.
    pub(super) fn set_credit(&self) {
        let intake = match self.stopping.is_some() {
            true => Intake::Closed,
            false => Intake::Credit(self.credit()),
        };
        self.link.intake.send_if_modified(|current| {
            let changed = *current != intake;
            *current = intake;
            changed
        });
    }
}
