//! The source task of a table queue: when to look, what to write, what to keep when that fails.
//! It knows no SQL and no database: what it writes it writes through [`TableStore`], and what
//! it decides is in `rules`.

mod aside;
mod batch;
mod depth;
mod facts;
mod gather;
mod grip;
mod health;
mod locked;
mod out;
mod paused;
mod suspects;
#[cfg(test)]
mod tests;
mod unread;
mod write_failure;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::databases::open_store;
use crate::rules;
use crate::store::{Stores, TableStore};
use crate::table::{Claim, Claimed, Fault, LookReason, Settled, Stop};
use aside::Aside;
use depth::Depth;
use ganger_config::model::{PoolConfig, TableSource};
use ganger_core::budget::Share;
use ganger_core::heartbeat::Heart;
use ganger_queue::attempts::Limits;
use ganger_queue::credit;
use ganger_queue::delivery::{Intake, Publish, SourceEnd};
use ganger_queue::exclusive::Turn;
use ganger_queue::fault::SourceFault;
use ganger_queue::pause::Pause;
use ganger_queue::source::Link;
use ganger_queue::unread::Reader;
use gather::Gather;
use grip::Grip;
use health::{Health, HealthIssue};
use locked::Locked;
use out::{Out, note};
use paused::Paused;

/// The least time between two looks at a queue in which nothing was ready, however often others
/// write to the database.
const LOOK_GAP: Duration = Duration::from_millis(1);

/// The kernel tells of a closed lock file just before it lets go of the lock, so a look at once
/// may come too early.
const SECOND_LOOK_AT_OWNERS: Duration = Duration::from_millis(10);

/// The most publishes that are kept while the database takes none.
const PUBLISHES_KEPT_MAX: usize = 64;

/// The source of one pool.
#[derive(Debug)]
pub(super) struct Task {
    end: SourceEnd,
    store: Box<dyn TableStore>,
    policy: watch::Receiver<Arc<PoolConfig>>,
    /// Our part in the daemon's turn for suspects.
    turn: Turn,
    /// The suspect that is out.
    suspect: Option<u64>,
    /// Until when none is asked for.
    suspects_rest: Instant,
    /// The pool's name.
    pool: String,
    health: Health,
    pause: Pause,
    poll_interval: Duration,
    /// For the bodies and headers of what is out and not settled.
    share: Share,
    out: HashMap<u64, Out>,
    grip: Grip,
    /// Settlements that have not taken effect yet.
    settled: Vec<Settled>,
    /// Publishes that are not confirmed yet.
    publishes: Vec<Publish>,
    /// The most that one transaction writes.
    bytes_per_turn: usize,
    aside: Aside,
    locked: Locked,
    depth: Depth,
    reader: Reader,
    gather: Gather,
    next_look: Instant,
    last_look: Instant,
    next_poll: Instant,
    next_beat: Instant,
    next_facts: Instant,
    owners_again: Option<Instant>,
    paused: Paused,
}

/// Opens the source; what is returned runs it to its end on this thread, where its blocking calls
/// hinder nobody else.
///
/// # Errors
/// What someone has to mend.
///
/// # Panics
/// If the operating system refuses a runtime its means.
pub(crate) fn open(
    config: &TableSource,
    link: Link,
    stores: &Stores,
    reader: Reader,
) -> Result<impl FnOnce() + use<>, SourceFault> {
    let runtime = runtime();
    let pool = Arc::clone(&link.policy.borrow());
    let opening = open_store(config, &pool, stores);
    let task = Task::new(runtime.block_on(opening)?, config, link, reader);
    Ok(move || run(&runtime, task))
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime needs an event queue and a pipe of the system, no more")
}

fn run(runtime: &Runtime, task: Task) {
    let _heart = Heart::of_this_thread().on(runtime.handle());
    let slips = task
        .grip
        .clone()
        .watch(task.store.losses(), task.end.state.clone());
    runtime.block_on(async {
        tokio::select! {
            () = task.run() => {}
            () = slips => {}
        }
    });
}

impl Task {
    fn new(store: Box<dyn TableStore>, config: &TableSource, link: Link, reader: Reader) -> Self {
        let pool = link.policy.borrow().name.clone();
        let now = Instant::now();
        Self {
            pool: pool.clone(),
            health: Health::new(&pool),
            pause: Pause::default(),
            end: link.end,
            store,
            policy: link.policy,
            turn: Turn::new(&link.exclusive, &pool),
            suspect: None,
            suspects_rest: now,
            poll_interval: config.poll_interval,
            share: link.share.within(rules::BYTES_OUT_MAX),
            out: HashMap::new(),
            grip: Grip::default(),
            settled: Vec::new(),
            publishes: Vec::new(),
            bytes_per_turn: rules::BYTES_PER_TURN_MAX,
            aside: Aside::default(),
            locked: Locked::default(),
            depth: Depth::new(now),
            reader,
            gather: Gather::default(),
            next_look: now,
            last_look: now,
            next_poll: now,
            next_beat: now,
            next_facts: now,
            owners_again: None,
            paused: Paused::default(),
        }
    }

    async fn run(mut self) {
        self.health.tell(&self.end);
        self.store.listen();
        if let Err(fault) = self.store.sweep() {
            self.trouble(&fault);
        }
        while !self.is_finished() {
            self.event().await;
            self.collect();
            self.tend_owners().await;
            if !self.pause.is_on(Instant::now()) {
                self.follow_the_file().await;
                self.gather().await;
                self.write_and_claim().await;
                self.tend_aside().await;
                self.tell_backlog().await;
                self.look_for_unread().await;
            }
            self.tell_facts().await;
        }
        self.give_up_aside().await;
        self.store.close().await;
    }

    /// Told to end, and nothing is left to settle or publish.
    fn is_finished(&self) -> bool {
        self.intake() == Intake::Closed
            && self.out.is_empty()
            && !self.has_work()
            && self.end.publishes.is_empty()
    }

    fn intake(&self) -> Intake {
        credit::intake(&self.end)
    }

    /// Waits for something to happen. What comes seldom comes first, so that a steady stream of
    /// settlements can't hide it.
    async fn event(&mut self) {
        let timer = self.timer();
        // Without room for another row, news of one is of no use.
        let news = self.room() > 0;
        let room_for_publishes = self.publishes.len() < PUBLISHES_KEPT_MAX;
        let (end, policy) = (&mut self.end, &mut self.policy);
        tokio::select! {
            biased;
            // Whatever else is done is done by the newest rules.
            Ok(()) = policy.changed() => self.depth.again(Instant::now()),
            _ = end.intake.changed(), if end.intake.has_changed().is_ok() => {
                self.next_look = Instant::now();
            }
            woken = self.store.woken(news) => match woken {
                LookReason::Data => self.next_look = self.next_look.min(self.last_look + LOOK_GAP),
                LookReason::Owners => self.next_poll = Instant::now(),
            },
            () = self.turn.called() => self.next_look = Instant::now(),
            () = self.share.freed() => self.next_look = Instant::now(),
            Some(publish) = end.publishes.recv(), if room_for_publishes => {
                self.publishes.push(publish);
            }
            Some(settlement) = end.settlements.recv() => {
                note(&mut self.out, &mut self.settled, settlement);
            }
            () = sleep_until(timer) => {}
        }
    }

    /// When something falls due by itself. A pause after trouble puts it off, or we would spin; but
    /// not the heartbeat: others would take what we have in hand.
    fn timer(&self) -> Instant {
        let mut timer = self.next_look.min(self.next_poll).min(self.depth.next());
        let (again, locks) = (self.aside.again(), self.locked.next_look());
        for when in [self.owners_again, again, locks] {
            timer = timer.min(when.unwrap_or(timer));
        }
        self.pause.timer(timer).min(self.next_beat)
    }

    /// Takes along what else is at hand, for one transaction.
    fn collect(&mut self) {
        while let Ok(settlement) = self.end.settlements.try_recv() {
            note(&mut self.out, &mut self.settled, settlement);
        }
        while self.publishes.len() < PUBLISHES_KEPT_MAX {
            match self.end.publishes.try_recv() {
                Ok(publish) => self.publishes.push(publish),
                Err(_) => break,
            }
        }
        // Whoever asked has given up, so the task behind it failed and will publish again.
        self.publishes
            .retain(|publish| !publish.confirmed.is_closed());
    }

    /// Waits a little for what the workers are about to settle, where that saves a transaction.
    async fn gather(&mut self) {
        let out = self.out.len() - self.locked.len();
        let nearly_all = gather::nearly_all(out);
        let is_enough = self.settled.is_empty() || self.settled.len() >= nearly_all;
        if is_enough || !self.publishes.is_empty() || self.pause.is_troubled() || self.room() == 0 {
            return;
        }
        let turn = self.end.facts.turn();
        let Some(wait) = self.gather.wait(out, turn) else {
            return;
        };
        let until = sleep_until(Instant::now() + wait);
        tokio::pin!(until);
        while self.settled.len() < nearly_all && self.publishes.is_empty() {
            tokio::select! {
                biased;
                Some(publish) = self.end.publishes.recv() => self.publishes.push(publish),
                Some(settlement) = self.end.settlements.recv() => {
                    note(&mut self.out, &mut self.settled, settlement);
                }
                () = &mut until => break,
            }
        }
        self.gather.waited(self.settled.len() >= nearly_all);
    }

    /// Beats, and looks after those who no longer do.
    async fn tend_owners(&mut self) {
        let now = Instant::now();
        let mut found = Ok(false);
        if now >= self.next_beat {
            self.next_beat = now + self.store.beat_interval();
            found = self.store.beat();
        }
        let again = self.owners_again.is_some_and(|again| now >= again);
        if now >= self.next_poll || again {
            self.owners_again = (!again).then(|| now + SECOND_LOOK_AT_OWNERS);
            self.next_poll = now + self.poll_interval;
            self.next_look = now;
            self.paused.look_again();
            if found.is_ok() {
                found = self.store.take_back_from_the_dead();
            }
        }
        match found {
            Ok(true) => self.next_look = now,
            // In trouble the next write shows whether it lasts: it must not wait for the owners.
            Err(fault) if !self.pause.is_troubled() => self.trouble(&fault),
            Ok(false) | Err(_) => {}
        }
    }

    /// Goes on with the file that has taken the database's place, once nothing is left to settle in
    /// the old one.
    async fn follow_the_file(&mut self) {
        let idle = self.out.is_empty() && !self.has_work();
        if !idle || !self.pause.is_troubled() || !self.store.is_replaced() {
            return;
        }
        self.give_up_aside().await;
        if let Err(fault) = self.store.reopen() {
            self.trouble(&fault);
        }
    }

    async fn tend_aside(&mut self) {
        let again = self.aside.again();
        if again.is_some_and(|again| Instant::now() >= again) {
            self.settle_aside().await;
        }
    }

    /// Writes what there is to write and claims what there is room for.
    async fn write_and_claim(&mut self) {
        if let Err(fault) = self.paused.look(&mut *self.store, &self.end).await {
            self.trouble(&fault);
        }
        if self.must_look_for_locks()
            && let Err(fault) = self.leave_locked_out().await
        {
            return self.trouble(&fault);
        }
        let must_write = self.has_work() || self.pause.is_troubled();
        let look = Instant::now() >= self.next_look;
        let may_claim = must_write || (look && self.anything_to_claim().await);
        if !may_claim {
            return;
        }
        let claim = self.room() > 0;
        let probe = self.pause.is_troubled();
        let began = Instant::now();
        match self.write(claim, probe).await {
            Ok((batch, written)) => {
                if claim {
                    self.end.facts.took_turn(began.elapsed());
                }
                self.pause.end();
                self.health.over(&self.end, HealthIssue::Table);
                self.written(batch, written);
            }
            Err(fault) => self.rescue(&fault, probe || claim).await,
        }
        if claim {
            self.share.rest();
        }
    }

    fn has_work(&self) -> bool {
        !self.settled.is_empty() || !self.publishes.is_empty()
    }

    /// A look that takes no lock, so that an idle queue disturbs nobody.
    async fn anything_to_claim(&mut self) -> bool {
        let now = Instant::now();
        self.last_look = now;
        self.next_look = now + self.poll_interval;
        if let Err(fault) = self.store.is_in_place() {
            self.trouble(&fault);
            return false;
        }
        if self.room() == 0 {
            self.step_aside();
            return false;
        }
        match self.store.peek(self.limits()).await {
            Ok(outlook) => {
                self.next_look = now + rules::next_look(self.poll_interval, outlook.due_in);
                if !outlook.ready && !outlook.suspects_wait {
                    self.depth.none_waits();
                }
                let suspect = self.line_up(outlook.suspects_wait);
                if outlook.ready || suspect {
                    self.store.was_fruitful();
                }
                if !outlook.ready && !suspect {
                    self.share.rest();
                }
                outlook.ready || suspect
            }
            Err(fault) => {
                self.trouble(&fault);
                false
            }
        }
    }

    /// How many rows there is room for, once what is settled is written.
    fn room(&self) -> usize {
        let staying = self.out.len() - self.settled.len();
        let rows = match self.paused.is_on() {
            true => 0,
            false => rules::room(self.intake(), staying),
        };
        if rows == 0 {
            self.share.rest();
        }
        if rows > 0 && self.share.used() > 0 && self.share.room() == 0 {
            return 0;
        }
        rows
    }

    fn limits(&self) -> Limits {
        Limits::of(&self.policy.borrow())
    }

    /// When to look again, by how the claim ended.
    fn plan_look(&mut self, stop: Stop, claimed: bool, due_in: Option<Duration>) {
        let now = Instant::now();
        self.last_look = now;
        self.gather.claimed(claimed && stop == Stop::Full);
        if stop == Stop::Empty {
            self.depth.none_waits();
        }
        self.next_look = match stop {
            Stop::Long => now,
            Stop::Full if claimed => now,
            // Not even one row fitted: settlements have to make room first, and claim by themselves.
            Stop::Full => now + self.poll_interval,
            Stop::Empty => now + rules::next_look(self.poll_interval, due_in),
        };
    }

    fn hand_out(&mut self, claimed: Claimed) {
        let token = claimed.claim.number();
        if claimed.suspect {
            self.suspect = Some(token);
        }
        let out = Out {
            claim: claimed.claim,
            hold: Some(claimed.hold),
        };
        self.out.insert(token, out);
        self.grip
            .deliver(&self.end, token, claimed.message, claimed.history);
    }

    fn forget(&mut self, claim: Claim) {
        self.out.remove(&claim.number());
        if self.suspect == Some(claim.number()) {
            self.suspect = None;
            self.turn.leave();
            self.next_look = Instant::now();
        }
    }

    fn trouble(&mut self, fault: &Fault) {
        self.step_aside();
        let now = Instant::now();
        if !self.pause.is_on(now) {
            self.pause.begin(now, fastrand::f64());
            self.health
                .begin(&self.end, HealthIssue::Table, &fault.problem);
        }
    }
}
