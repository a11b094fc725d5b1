//! The messages' way from the source to the lanes: what is taken in, who gets it, how much may
//! come.

use tokio::sync::mpsc::error::TrySendError;
use tokio::time::Instant;

use super::breaker::News;
use super::least_loaded::Board;
use super::{Handle, Pool};
use ganger_queue::delivery::{CREDIT_MAX, Delivery, Intake};
use ganger_telemetry::traces;

/// Where so many wait to be given out, they are given in runs.
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
                // What no worker has been given goes back.
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

    /// While the breaker is open: how many messages there may be here. None without a worker; what
    /// workers may still have from before must leave room for those that are to be tried.
    fn kept_while_open(&self) -> Option<usize> {
        let at_hand = self.shared.breaker.borrow().at_hand()?;
        match self.board.open() {
            0 => Some(0),
            _ => Some(at_hand + self.board.windows()),
        }
    }

    /// What no worker has been given goes back.
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

    /// When the first message that waits for a worker has to go back.
    pub(super) fn next_stale(&self) -> Option<Instant> {
        let first = [self.held.front(), self.suspects.front()];
        let begin_by = |delivery: &Delivery| delivery.begin_by;
        first.into_iter().flatten().filter_map(begin_by).min()
    }

    /// What has waited for a worker for as long as its broker bears goes back.
    pub(super) fn give_back_stale(&mut self, now: Instant) {
        for waiting in [&mut self.held, &mut self.suspects] {
            let stale = |first: &mut Delivery| first.begin_by.is_some_and(|by| by <= now);
            while waiting.pop_front_if(stale).is_some() {
                self.shared.counters.given_back(1);
            }
        }
    }

    /// Takes in what has changed in the lanes since the last look: a look at all of them would cost
    /// more the more there are.
    pub(super) fn look_at_lanes(&mut self) {
        for slot in self.shared.take_changed() {
            self.look_at(slot);
        }
    }

    /// Returns whether the lane shows something new.
    fn look_at(&mut self, slot: usize) -> bool {
        let Some(handle) = self.slots.get(&slot) else {
            return self.board.remove(slot).is_some();
        };
        self.board.show(slot, handle.gauge.look())
    }

    /// Hands out what is held, as far as there is room. With no worker at all it goes back: others
    /// may have one, and nobody knows when we do.
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

    /// The next to be tried. While the breaker is open it takes what was tried before and what was not
    /// by turns: of each the first that came, which is the one that has been due for longest.
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

    /// When the breaker admits the first of those that wait.
    pub(super) fn next_probe(&self, now: Instant) -> Option<Instant> {
        let probe_at = self.shared.breaker.borrow().probe_at()?;
        let waits = !self.held.is_empty() || !self.suspects.is_empty();
        // Past that moment it is a lane that is waited for.
        (waits && probe_at > now).then_some(probe_at)
    }

    /// When the breaker has opened, what no worker has goes back; the lanes do likewise.
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

    /// What the source has lost is another's to do. The lanes may have some of it: they look.
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

    /// Gives the message to a lane and tells which, or gives it back if none has room.
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
            // It may be closing this very moment; then the choice is made again.
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

    /// How many messages the workers can use.
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

    /// Tells the source how many.
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
