//! The ledger: the schedules, and an occurrence of each of their slots.
//!
//! Any daemon may dispatch a slot. One transaction decides about the schedules that are due, enters the
//! occurrences, of which a slot has one at most, inserts their messages, and moves the cursors. So a slot
//! is lost or dispatched twice by no crash, and needs no leader.

mod decide;
mod definitions;
mod message;
mod round;
pub(crate) mod row;
pub(crate) mod store;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::databases::database;
use crate::table::Fault;
use decide::Versions;
use definitions::Definitions;
use ganger_config::model::{LedgerConfig, ScheduleConfig};
use ganger_queue::fault::SourceFault;
use ganger_schedule::clock::{Clock, Reading, step};
use ganger_schedule::due::Decision;
use ganger_schedule::occurrence::ScheduleState;
use ganger_schedule::overlap::Admission;
use ganger_schedule::zone::Zones;
pub use round::Dispatched;
use round::{Round, compare, set_aside};
pub use row::{Occurrence, OccurrenceEvent, OccurrenceFilter, ScheduleRow};
use store::{Expired, LedgerStore, LedgerTransaction};

/// Number of schedules that one transaction decides about.
const SCHEDULES_MAX: u32 = 1000;
/// Grain of the wall clock.
const GRAIN: Duration = Duration::from_millis(1);
/// Number of occurrences that one transaction removes.
const EXPIRED_MAX: u32 = 500;

/// A change of a schedule, by its row, its versions and the clocks: returns the decisions about its slots.
type RowChange<'a> = dyn FnMut(
        &mut dyn LedgerTransaction,
        &mut ScheduleRow,
        Versions<'_>,
        Clock,
    ) -> Result<Vec<Decision>, Fault>
    + 'a;

/// A ledger.
#[derive(Debug)]
pub struct Ledger {
    source: String,
    /// Name of the configuration.
    group: String,
    store: Box<dyn LedgerStore>,
    definitions: Definitions,
    /// The clocks when they were last read.
    reading: Option<Reading>,
    /// A clock that no one sets, and that goes on while the machine sleeps.
    monotonic: fn() -> Duration,
}

/// Changes by a comparison with the configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Synced {
    /// Schedules that are new.
    pub added: Vec<String>,
    /// Schedules with another definition.
    pub changed: Vec<String>,
    /// Schedules that the configuration no longer has.
    pub removed: Vec<String>,
    /// Schedules of the configuration whose names those of others have.
    pub taken: Vec<String>,
}

/// The ledger at a moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Figures {
    /// Reason for which all schedules are stopped, if they are.
    pub hold: Option<String>,
    /// Number of schedules in each state that there is.
    pub states: Vec<(ScheduleState, u64)>,
    /// Schedules that are broken or disabled, each with the state and the reason.
    pub stopped: Vec<(String, ScheduleState, String)>,
}

/// Answer to a trigger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Triggered {
    /// The message was sent, for the occurrence of this id.
    Sent(String),
    /// An occurrence of the schedule is open, and it allows one at a time.
    Overlaps,
}

/// Reason that an operation on a schedule was not done.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// There is no schedule of that name.
    #[error("there is no schedule `{0}`")]
    NoSchedule(String),
    /// It can't be worked out.
    #[error("schedule `{0}` is broken: {1}")]
    Broken(String, String),
    /// The database did not do as asked.
    #[error(transparent)]
    Source(#[from] SourceFault),
}

impl Ledger {
    /// Opens the ledger, and makes its tables if they are missing. For a command it waits longer where
    /// others write.
    ///
    /// # Errors
    /// If the database can't be reached or used.
    pub fn open(config: &LedgerConfig, is_command: bool) -> Result<Self, SourceFault> {
        let opened = database(&config.table);
        let opened = opened.and_then(|database| database.ledger(is_command));
        let store = opened.map_err(|fault| fault.of(&config.source))?;
        Ok(Self::new((&config.source, &config.group), store, monotonic))
    }

    fn new(
        (source, group): (&str, &str),
        store: Box<dyn LedgerStore>,
        monotonic: fn() -> Duration,
    ) -> Self {
        Self {
            source: source.to_owned(),
            group: group.to_owned(),
            store,
            definitions: Definitions::new(Zones::load()),
            reading: None,
            monotonic,
        }
    }

    /// Enters the schedules of the configuration, and removes those that it no longer has.
    ///
    /// # Errors
    /// If the database did not do as asked.
    pub fn sync(&mut self, wanted: &[ScheduleConfig]) -> Result<Synced, SourceFault> {
        let mut synced = Synced::default();
        let group = &self.group;
        let done = self.store.write(&mut |tx| {
            synced = sync(tx, wanted, group)?;
            Ok(())
        });
        done.map_err(|fault| self.fault(fault))?;
        Ok(synced)
    }

    /// Dispatches what is due, as much as one transaction does.
    ///
    /// # Errors
    /// If the database did not do as asked.
    pub fn dispatch(&mut self) -> Result<Dispatched, SourceFault> {
        let due = self.is_due().map_err(|fault| self.fault(fault))?;
        if let Some(wait) = due {
            return Ok(Dispatched {
                wait: Some(wait).filter(|wait| *wait < Duration::MAX),
                ..Dispatched::default()
            });
        }
        let reviewed = match self.review() {
            // What counts for some schedules holds up none.
            Err(fault) if fault.is_permanent => Dispatched {
                unreviewed: Some(fault.problem),
                ..Dispatched::default()
            },
            reviewed => reviewed.map_err(|fault| self.fault(fault))?,
        };
        let dispatched = match self.dispatch_some(Which::Some(SCHEDULES_MAX)) {
            // One of them is to blame: they are tried one by one, and that is set aside.
            Err(fault) if fault.is_permanent => self.dispatch_each(),
            dispatched => dispatched,
        };
        let dispatched = dispatched.map_err(|fault| self.fault(fault))?;
        Ok(Dispatched {
            changed: reviewed.changed,
            unreviewed: reviewed.unreviewed,
            ..dispatched
        })
    }

    /// Takes the ends of runs into account that count for their schedules.
    fn review(&mut self) -> Result<Dispatched, Fault> {
        let Self {
            store, definitions, ..
        } = self;
        let mut reviewed = Dispatched::default();
        let mut has_ends = false;
        store.read(&mut |tx| {
            has_ends = !tx.ended(1)?.is_empty();
            Ok(())
        })?;
        if !has_ends {
            return Ok(reviewed);
        }
        store.write(&mut |tx| {
            let mut round = Round::default();
            round.review(tx, definitions)?;
            reviewed = round.dispatched;
            Ok(())
        })?;
        Ok(reviewed)
    }

    /// Returns the time until something is due; none if something is.
    fn is_due(&mut self) -> Result<Option<Duration>, Fault> {
        let Some(before) = self.reading else {
            return Ok(None);
        };
        let monotonic = self.monotonic;
        let mut wait = None;
        let mut reading = before;
        self.store.read(&mut |tx| {
            reading = read_clocks(tx, monotonic)?;
            let has_ends = !tx.ended(1)?.is_empty();
            let next = match tx.hold()? {
                Some(_) => None,
                None => until(tx.next_wake()?, reading.clock),
            };
            let next = next.unwrap_or(Duration::MAX);
            wait = (!has_ends && !next.is_zero()).then_some(next);
            Ok(())
        })?;
        let step = step(before, reading);
        if step.jump.is_some() || step.ahead != reading.clock.ahead {
            return Ok(None);
        }
        self.reading = Some(reading);
        Ok(wait)
    }

    fn dispatch_some(&mut self, which: Which<'_>) -> Result<Dispatched, Fault> {
        let Self {
            store,
            definitions,
            reading,
            monotonic,
            ..
        } = self;
        let mut dispatched = Dispatched::default();
        let mut read = None;
        store.write(&mut |tx| {
            let mut round = Round::default();
            let now = read_clocks(tx, *monotonic)?;
            let clock = compare(tx, *reading, now, &mut round)?;
            read = Some(Reading { clock, ..now });
            if tx.hold()?.is_none() {
                let mut due = which.due(tx, clock)?;
                let decided = round.decide(tx, definitions, &mut due, clock)?;
                due.truncate(decided);
                round.write(tx, &mut due)?;
                round.dispatched.wait = until(tx.next_wake()?, clock);
            }
            dispatched = round.dispatched;
            Ok(())
        })?;
        *reading = read;
        Ok(dispatched)
    }

    /// Dispatches the schedules that are due one by one. One whose message the database refuses is broken.
    fn dispatch_each(&mut self) -> Result<Dispatched, Fault> {
        let mut due = Vec::new();
        self.store.read(&mut |tx| {
            let clock = tx.clock()?;
            due = Which::Some(SCHEDULES_MAX).due(tx, clock)?;
            Ok(())
        })?;
        let mut all = Dispatched::default();
        for ScheduleRow { name, .. } in due {
            let one = match self.dispatch_some(Which::Named(&name)) {
                Err(fault) if fault.is_permanent => self.set_aside(&name, &fault.problem)?,
                one => one?,
            };
            all.sent += one.sent;
            for (reason, slots) in one.skipped {
                *all.skipped.entry(reason).or_default() += slots;
            }
            all.broken.extend(one.broken);
            all.jump = all.jump.or(one.jump);
            all.wait = one.wait;
        }
        Ok(all)
    }

    /// Marks the schedule of that name as broken, unless another daemon has dispatched it meanwhile.
    fn set_aside(&mut self, name: &str, why: &str) -> Result<Dispatched, Fault> {
        let mut dispatched = Dispatched::default();
        self.store.write(&mut |tx| {
            let clock = tx.clock()?;
            dispatched = Dispatched::default();
            for mut row in Which::Named(name).due(tx, clock)? {
                set_aside(&mut row, why, &mut dispatched);
                tx.save(&[row])?;
            }
            dispatched.wait = until(tx.next_wake()?, clock);
            Ok(())
        })?;
        Ok(dispatched)
    }

    /// Removes occurrences that have ended longer ago than that, but the newest of each schedule that goes on,
    /// and schedules that SQL has inserted and that ended then. Returns whether there may be more.
    ///
    /// # Errors
    /// If the database did not do as asked.
    pub fn expire(&mut self, keep: Duration) -> Result<bool, SourceFault> {
        let mut old = Expired::default();
        // Others may write while they are looked for.
        let found = self.store.read(&mut |tx| {
            let until = tx.clock()?.wall.checked_sub(keep);
            old = tx.expired(until.unwrap_or(Timestamp::MIN), EXPIRED_MAX)?;
            Ok(())
        });
        found.map_err(|fault| self.fault(fault))?;
        if old == Expired::default() {
            return Ok(false);
        }
        let done = self.store.write(&mut |tx| tx.expire(&old));
        done.map_err(|fault| self.fault(fault))?;
        let most = old.occurrences.len().max(old.schedules.len());
        Ok(most >= EXPIRED_MAX as usize)
    }

    fn fault(&self, fault: Fault) -> SourceFault {
        SourceFault::unusable(fault.problem).of(&self.source)
    }
}

/// Commands of operators.
impl Ledger {
    /// Returns all schedules, by name, each with its configuration or the reason that it has none.
    ///
    /// # Errors
    /// If the database can't be read.
    pub fn schedules(&mut self) -> Result<Vec<ScheduleRow>, SourceFault> {
        let mut all = Vec::new();
        let read = self.store.read(&mut |tx| {
            all = tx.schedules()?;
            Ok(())
        });
        read.map_err(|fault| self.fault(fault))?;
        Ok(all)
    }

    /// Returns the schedule of that name.
    ///
    /// # Errors
    /// If there is none, or the database can't be read.
    pub fn schedule(&mut self, name: &str) -> Result<ScheduleRow, LedgerError> {
        let mut found = None;
        let read = self.store.read(&mut |tx| {
            found = tx.schedule(name)?;
            Ok(())
        });
        read.map_err(|fault| self.fault(fault))?;
        found.ok_or_else(|| LedgerError::NoSchedule(name.to_owned()))
    }

    /// Returns the configuration of a schedule.
    ///
    /// # Errors
    /// Its problems, if it is broken.
    pub fn config_of(&mut self, row: &ScheduleRow) -> Result<Arc<ScheduleConfig>, LedgerError> {
        let config = self.definitions.of(&row.name, &row.definition);
        config.map_err(|why| LedgerError::Broken(row.name.clone(), why))
    }

    /// Returns how many schedules there are in each state, and those that are broken or disabled, at most
    /// so many.
    ///
    /// # Errors
    /// If the database can't be read.
    pub fn figures(&mut self, stopped: u32) -> Result<Figures, SourceFault> {
        let mut figures = Figures::default();
        let read = self.store.read(&mut |tx| {
            figures = Figures {
                hold: tx.hold()?,
                states: tx.states()?,
                stopped: tx.stopped(stopped)?,
            };
            Ok(())
        });
        read.map_err(|fault| self.fault(fault))?;
        Ok(figures)
    }

    /// Returns the reason for which all schedules are stopped, if they are.
    ///
    /// # Errors
    /// If the database can't be read.
    pub fn hold(&mut self) -> Result<Option<String>, SourceFault> {
        let mut hold = None;
        let read = self.store.read(&mut |tx| {
            hold = tx.hold()?;
            Ok(())
        });
        read.map_err(|fault| self.fault(fault))?;
        Ok(hold)
    }

    /// Stops the dispatch of all schedules, for every daemon and over restarts, or lets it go on.
    ///
    /// # Errors
    /// If the database did not do as asked.
    pub fn set_hold(&mut self, reason: Option<&str>) -> Result<(), SourceFault> {
        let done = self.store.write(&mut |tx| tx.set_hold(reason));
        done.map_err(|fault| self.fault(fault))
    }

    /// Pauses a schedule: none of its slots is dispatched.
    ///
    /// # Errors
    /// If there is none of that name, or the database did not do as asked.
    pub fn pause(&mut self, name: &str, reason: Option<&str>) -> Result<(), LedgerError> {
        self.change(name, &mut |_, row, _, _| {
            row.is_now(ScheduleState::Paused, reason);
            row.wake = None;
            Ok(Vec::new())
        })
    }

    /// Lets a schedule that is paused, disabled or broken go on. Slots since then are skipped, unless they
    /// are to be made up for.
    ///
    /// # Errors
    /// If there is none of that name, it is broken, or the database did not do as asked.
    pub fn resume(&mut self, name: &str, make_up: bool) -> Result<(), LedgerError> {
        let mut goes_on = false;
        // A long pause has more slots than one transaction skips.
        while !goes_on {
            self.change(name, &mut |_, row, versions, clock| {
                let decided = decide::resume(row, versions, clock, make_up);
                let decided = decided.map_err(|broken| Fault::transient(broken.to_string()))?;
                goes_on = decided.1;
                Ok(decided.0)
            })?;
        }
        Ok(())
    }

    /// Removes a schedule. Its occurrences stay.
    ///
    /// # Errors
    /// If there is none of that name, or the database did not do as asked.
    pub fn remove(&mut self, name: &str) -> Result<(), LedgerError> {
        let mut refused = None;
        let done = self.store.write(&mut |tx| {
            refused = match tx.schedule(name)? {
                None => Some(LedgerError::NoSchedule(name.to_owned())),
                Some(_) => None,
            };
            match refused {
                None => tx.remove(name),
                Some(_) => Ok(()),
            }
        });
        done.map_err(|fault| self.fault(fault))?;
        refused.map_or(Ok(()), Err)
    }

    /// Sends the message of a schedule now, whatever its state. While one of its occurrences is open it is
    /// not sent if the schedule allows one at a time, unless that is forced.
    ///
    /// # Errors
    /// If there is none of that name, it is broken, or the database did not do as asked.
    pub fn trigger(
        &mut self,
        name: &str,
        body: Option<&str>,
        note: Option<&str>,
        is_forced: bool,
    ) -> Result<Triggered, LedgerError> {
        let mut triggered = Triggered::Overlaps;
        self.change(name, &mut |tx, row, versions, clock| {
            let config = versions.config;
            let open = ganger_schedule::overlap::Open {
                occurrences: row.open,
                waiting: 0,
            };
            if config.spec.overlap.admit(open, is_forced) != Admission::Run {
                triggered = Triggered::Overlaps;
                return Ok(Vec::new());
            }
            let mut occurrence = message::occurrence(row, config, None);
            occurrence.note = Some(match note {
                Some(note) => format!("triggered: {note}"),
                None => "triggered".to_owned(),
            });
            let message = message::message(tx, config, &occurrence, clock.wall);
            let mut message = message?.map_err(|broken| Fault::transient(broken.to_string()))?;
            if let Some(body) = body {
                message.body = body.to_owned().into();
            }
            tx.enter(std::slice::from_ref(&occurrence))?;
            tx.publish(&[message])?;
            triggered = Triggered::Sent(occurrence.id);
            Ok(Vec::new())
        })?;
        Ok(triggered)
    }

    /// Returns occurrences, the newest first.
    ///
    /// # Errors
    /// If the database can't be read.
    pub fn occurrences(
        &mut self,
        filter: &OccurrenceFilter,
    ) -> Result<Vec<Occurrence>, SourceFault> {
        let mut found = Vec::new();
        let read = self.store.read(&mut |tx| {
            found = tx.occurrences(filter)?;
            Ok(())
        });
        read.map_err(|fault| self.fault(fault))?;
        Ok(found)
    }

    /// Returns an occurrence and its changes, the oldest first; none if there is none of that id.
    ///
    /// # Errors
    /// If the database can't be read.
    pub fn occurrence(
        &mut self,
        id: &str,
    ) -> Result<Option<(Occurrence, Vec<OccurrenceEvent>)>, SourceFault> {
        let mut found = None;
        let read = self.store.read(&mut |tx| {
            found = tx.occurrence(id)?;
            Ok(())
        });
        read.map_err(|fault| self.fault(fault))?;
        Ok(found)
    }

    /// Changes a schedule by its row and its configuration, and enters the decisions about its slots.
    fn change(&mut self, name: &str, change: &mut RowChange<'_>) -> Result<(), LedgerError> {
        let Self {
            store, definitions, ..
        } = self;
        let mut refused = None;
        let done = store.write(&mut |tx| {
            refused = None;
            let Some(mut row) = tx.schedule(name)? else {
                refused = Some(LedgerError::NoSchedule(name.to_owned()));
                return Ok(());
            };
            let config = match definitions.of(name, &row.definition) {
                Ok(config) => config,
                Err(why) => {
                    refused = Some(LedgerError::Broken(name.to_owned(), why));
                    return Ok(());
                }
            };
            let clock = tx.clock()?;
            let mut round = Round::default();
            let old = definitions.before(&row);
            let versions = Versions {
                config: &config,
                old: old.as_ref().map(|old| &old.spec),
            };
            let decisions = change(tx, &mut row, versions, clock)?;
            round.take(tx, &mut row, &config, decisions)?;
            round.write(tx, &mut [row])
        });
        done.map_err(|fault| self.fault(fault))?;
        refused.map_or(Ok(()), Err)
    }
}

/// Schedules that are dispatched, if they are due.
#[derive(Debug, Clone, Copy)]
enum Which<'a> {
    /// As many as that.
    Some(u32),
    /// The one of that name.
    Named(&'a str),
}

impl Which<'_> {
    /// Returns those of them that are due.
    fn due(self, tx: &mut dyn LedgerTransaction, clock: Clock) -> Result<Vec<ScheduleRow>, Fault> {
        match self {
            Self::Some(most) => tx.due(clock.wall, most),
            Self::Named(name) => {
                let is_due = |row: &ScheduleRow| row.wake.is_some_and(|wake| wake <= clock.wall);
                Ok(tx.schedule(name)?.filter(is_due).into_iter().collect())
            }
        }
    }
}

fn sync(
    tx: &mut dyn LedgerTransaction,
    wanted: &[ScheduleConfig],
    group: &str,
) -> Result<Synced, Fault> {
    let is_ours = |row: &ScheduleRow| row.configuration.as_deref() == Some(group);
    let mut synced = Synced::default();
    let there = tx.schedules()?.into_iter();
    let mut there: BTreeMap<String, ScheduleRow> =
        there.map(|row| (row.name.clone(), row)).collect();
    let mut saved = Vec::new();
    for schedule in wanted {
        let (name, definition) = (schedule.name(), &schedule.definition);
        match there.remove(name) {
            None => {
                saved.push(ScheduleRow::of_file(name, definition, group));
                synced.added.push(name.to_owned());
            }
            Some(row) if !is_ours(&row) => synced.taken.push(name.to_owned()),
            Some(mut row) if row.definition == *definition => {
                // This release may understand it.
                if row.state == ScheduleState::Broken {
                    row.wake = Some(Timestamp::UNIX_EPOCH);
                    saved.push(row);
                }
            }
            Some(mut row) => {
                row.definition = definition.clone();
                if row.cursor.is_none() {
                    row.created = None;
                }
                // One that is paused or disabled stays so; one that was broken is tried again.
                if !matches!(row.state, ScheduleState::Paused | ScheduleState::Disabled) {
                    row.is_now(ScheduleState::Active, None);
                    row.wake = Some(Timestamp::UNIX_EPOCH);
                }
                saved.push(row);
                synced.changed.push(name.to_owned());
            }
        }
    }
    tx.save(&saved)?;
    for row in there.into_values().filter(is_ours) {
        tx.remove(&row.name)?;
        synced.removed.push(row.name);
    }
    Ok(synced)
}

fn read_clocks(
    tx: &mut dyn LedgerTransaction,
    monotonic: fn() -> Duration,
) -> Result<Reading, Fault> {
    let sent = monotonic();
    let clock = tx.clock()?;
    // The wall clock is read in whole milliseconds.
    Ok(Reading {
        clock,
        sent: sent.saturating_sub(GRAIN),
        received: monotonic() + GRAIN,
    })
}

fn until(wake: Option<Timestamp>, clock: Clock) -> Option<Duration> {
    let wait = wake?.duration_since(clock.wall);
    Some(Duration::try_from(wait).unwrap_or_default())
}

/// Returns the time of a clock that no one sets, and that goes on while the machine sleeps.
fn monotonic() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}
