//! The ledger: the schedules, and an occurrence of each of their slots.
//!
//! Any daemon may dispatch a slot. One transaction decides about the schedules that are due, enters the
//! occurrences, of which a slot has one at most, inserts their messages, and moves the cursors. So a slot
//! is lost or dispatched twice by no crash, and needs no leader.

mod by_hand;
pub(crate) mod change;
mod client;
mod clocks;
mod control;
mod decide;
mod definitions;
mod elsewhere;
mod entering;
mod expect;
pub(crate) mod failure;
mod fingerprint;
mod history;
mod listed;
mod message;
mod notes;
mod outbox;
pub(crate) mod recorded;
mod report;
mod reports;
mod retention;
mod round;
pub(crate) mod row;
mod several_rows;
pub(crate) mod sql;
pub(crate) mod store;
#[cfg(test)]
mod tests;
mod upcoming;
pub(crate) mod values;

use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;

use crate::databases::database;
use crate::table::Fault;
use clocks::{ClockWatch, Clocks, monotonic, next_look};
use decide::Versions;
use definitions::Definitions;
use ganger_config::model::{Database, Keep, LedgerConfig, ScheduleConfig};
use ganger_queue::fault::SourceFault;
use ganger_queue::ledger::BackfillRequest;
pub use ganger_queue::ledger::{LedgerError, Triggered};
use ganger_schedule::clock::Clock;
use ganger_schedule::due::Decision;
use ganger_schedule::occurrence::ScheduleState;
use ganger_schedule::overlap::Admission;
use ganger_schedule::zone::Zones;
pub use reports::{PendingReports, ReportBatch, ReportedState};
use retention::Pass;
pub use round::Dispatched;
use round::{Round, set_aside};
pub use row::{
    CancelRequests, Occurrence, OccurrenceEvent, OccurrenceFilter, OutboxCount, OutboxRow,
    ScheduleRow,
};
use store::{ALL, Expired, LedgerStore, LedgerTransaction};

/// Number of schedules that one transaction decides about.
const SCHEDULES_MAX: u32 = 1000;
/// Wait for a schedule whose row another transaction has locked.
const HELD_WAIT: Duration = Duration::from_millis(100);

/// A change of a schedule, by its row, its versions and the clocks: returns the decisions about its slots.
type RowChange<'a> = dyn FnMut(
        &mut dyn LedgerTransaction,
        &mut ScheduleRow,
        Versions<'_>,
        Clock,
    ) -> Result<Vec<Decision>, Fault>
    + 'a;

/// Slots that have not run, each with the id of the occurrence with which it was skipped, if it has one; the range
/// that they are in, and the number of all slots in it.
type NotRun = (
    Vec<(Timestamp, Option<String>)>,
    (Timestamp, Timestamp),
    usize,
);

/// A ledger.
#[derive(Debug)]
pub struct Ledger {
    source: String,
    /// Name of the configuration.
    group: String,
    store: Box<dyn LedgerStore>,
    definitions: Definitions,
    /// Pass of retention.
    pass: Pass,
    /// Who changes schedules, for the record of changes.
    actor: Option<String>,
    clocks: ClockWatch,
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
    /// Number of schedules of which something expected did not happen in time.
    pub overdue_count: u64,
    /// Some of these, each with that.
    pub overdue: Vec<(String, String)>,
}

impl Ledger {
    /// Opens the ledger, and makes its tables if they are missing. For a command it waits longer where
    /// others write.
    ///
    /// # Errors
    /// If the database can't be reached or used.
    pub fn open(config: &LedgerConfig, is_command: bool) -> Result<Self, SourceFault> {
        let opened = make_directory(config).map_err(SourceFault::unusable);
        let opened = opened.and_then(|()| database(&config.table)?.ledger(is_command));
        let store = opened.map_err(|fault| fault.of(&config.source))?;
        let mut ledger = Self::new((&config.source, &config.group), store, monotonic);
        ledger.definitions.has_queues = !config.is_embedded;
        Ok(ledger)
    }

    /// Returns whether its database is another than at the last call, as a file may be that was replaced: the schedules of
    /// the configuration are to be entered there.
    pub fn take_another(&mut self) -> bool {
        self.store.take_another()
    }

    /// Returns the problem with the tables of a ledger, if there is one; tables that will be created are none.
    /// Creates nothing on a server.
    ///
    /// # Errors
    /// If the database can't be reached.
    pub fn problem(config: &LedgerConfig) -> Result<Option<String>, SourceFault> {
        let problem = database(&config.table).and_then(|database| database.ledger_problem());
        problem.map_err(|fault| fault.of(&config.source))
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
            definitions: Definitions::new(Zones::load(), source),
            pass: Pass::default(),
            actor: None,
            clocks: ClockWatch::new(monotonic),
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
        let begun = self.clocks.monotonic();
        let mut dispatched = self.dispatch_due()?;
        // The clock was read before the transaction was written.
        let passed = self.clocks.monotonic().saturating_sub(begun);
        let wait = dispatched.wait;
        dispatched.wait = wait.map(|wait| wait.saturating_sub(passed));
        dispatched.late.iter_mut().for_each(|late| *late += passed);
        Ok(dispatched)
    }

    fn dispatch_due(&mut self) -> Result<Dispatched, SourceFault> {
        let Self { store, clocks, .. } = self;
        let look = clocks.look(&mut **store);
        let look = look.map_err(|fault| self.fault(fault))?;
        if look.clocks == Clocks::Changed {
            let noted = self.clocks.note(&mut *self.store);
            noted.map_err(|fault| self.fault(fault))?;
        }
        if let Some(wait) = look.wait {
            return Ok(Dispatched {
                jump: self.clocks.take_jump(),
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
        if look.clocks == Clocks::Due {
            // What is dispatched is dispatched: if this fails, the next look tells of it.
            drop(self.clocks.note(&mut *self.store));
        }
        Ok(Dispatched {
            jump: self.clocks.take_jump(),
            ..reviewed.then(dispatched)
        })
    }

    /// Takes the ends of runs into account that count for their schedules, and looks whether what is expected
    /// has happened.
    fn review(&mut self) -> Result<Dispatched, Fault> {
        let Self {
            store, definitions, ..
        } = self;
        let mut reviewed = Dispatched::default();
        let mut is_needed = false;
        store.read(&mut |tx| {
            let now = tx.clock()?.wall;
            let is_due = tx.next_review()?.is_some_and(|review| review <= now);
            is_needed = (is_due || !tx.ended(1)?.is_empty()) && tx.hold()?.is_none();
            Ok(())
        })?;
        if !is_needed {
            return Ok(reviewed);
        }
        store.write(&mut |tx| {
            let mut round = Round::default();
            let now = tx.clock()?.wall;
            round.review(tx, definitions, now)?;
            reviewed = round.dispatched;
            Ok(())
        })?;
        Ok(reviewed)
    }

    /// Dispatches schedules that are due, beside other daemons that do so.
    fn dispatch_some(&mut self, which: Which<'_>) -> Result<Dispatched, Fault> {
        let Self {
            store,
            definitions,
            clocks,
            ..
        } = self;
        let mut dispatched = Dispatched::default();
        store.write_together(&mut |tx| {
            let mut round = Round::default();
            let Some(clock) = clocks.read(tx)? else {
                // The next look notes that first.
                dispatched = Dispatched {
                    wait: Some(Duration::ZERO),
                    ..Dispatched::default()
                };
                return Ok(());
            };
            if tx.hold()?.is_none() {
                let mut due = which.due(tx, clock)?;
                let is_held = due.is_empty();
                let decided = round.decide(tx, definitions, &mut due, clock)?;
                due.truncate(decided);
                round.write(tx, &mut due)?;
                let wait = next_look(tx, clock)?;
                // What is due and was not given is locked by others.
                round.dispatched.wait = match wait {
                    Some(Duration::ZERO) if is_held => Some(HELD_WAIT),
                    wait => wait,
                };
            }
            dispatched = round.dispatched;
            Ok(())
        })?;
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
            all = all.then(one);
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
            dispatched.wait = next_look(tx, clock)?;
            Ok(())
        })?;
        Ok(dispatched)
    }

    /// Removes what need not be kept any longer, as much as one transaction does. Returns whether there may be more.
    ///
    /// # Errors
    /// If the database did not do as asked.
    pub fn expire(&mut self, keep: &Keep) -> Result<bool, SourceFault> {
        let Self { store, pass, .. } = self;
        let mut old = Expired::default();
        // Others may write while it is looked for.
        let found = store.read(&mut |tx| {
            old = pass.next(tx, keep)?;
            Ok(())
        });
        let done = found.and_then(|()| match old == Expired::default() {
            true => Ok(()),
            false => store.write(&mut |tx| tx.expire(&old)),
        });
        if let Err(fault) = done {
            self.pass.fail();
            return Err(self.fault(fault));
        }
        Ok(self.pass.goes_on())
    }

    fn fault(&self, fault: Fault) -> SourceFault {
        SourceFault::unusable(fault.problem).of(&self.source)
    }
}

/// Creates the directory of an embedded ledger: nobody has configured it.
fn make_directory(config: &LedgerConfig) -> std::io::Result<()> {
    match &config.table.database {
        Database::Sqlite(path) if config.is_embedded => match path.parent() {
            Some(directory) => DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(directory),
            None => Ok(()),
        },
        Database::Sqlite(_) | Database::Postgres(_) | Database::Mysql(_) => Ok(()),
    }
}

/// Commands of operators.
impl Ledger {
    /// Returns all schedules, by name.
    #[cfg(test)]
    pub(crate) fn schedules(&mut self) -> Result<Vec<ScheduleRow>, SourceFault> {
        let mut all = Vec::new();
        let read = self.store.read(&mut |tx| {
            all = tx.schedules_after("", 1000)?;
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

    /// Returns how many schedules there are in each state, those that are broken or disabled, and those that
    /// are overdue, at most so many of each.
    ///
    /// # Errors
    /// If the database can't be read.
    pub fn figures(&mut self, most: u32) -> Result<Figures, SourceFault> {
        let mut figures = Figures::default();
        let read = self.store.read(&mut |tx| {
            let (overdue_count, overdue) = tx.overdue(most)?;
            figures = Figures {
                hold: tx.hold()?,
                states: tx.states()?,
                stopped: tx.stopped(most)?,
                overdue_count,
                overdue,
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
        let Self { store, actor, .. } = self;
        let action = match reason {
            Some(_) => "pause_all",
            None => "resume_all",
        };
        let done = store.write(&mut |tx| {
            tx.set_hold(reason)?;
            tx.audit(actor.as_deref(), action, ALL, &json!({ "reason": reason }))
        });
        done.map_err(|fault| self.fault(fault))
    }

    /// Pauses a schedule: none of its slots is dispatched.
    ///
    /// # Errors
    /// If there is none of that name, or the database did not do as asked.
    pub fn pause(&mut self, name: &str, reason: Option<&str>) -> Result<(), LedgerError> {
        let actor = self.actor.clone();
        self.change(name, &mut |tx, row, _, _| {
            row.is_now(ScheduleState::Paused, reason);
            row.wake = None;
            let why = json!({ "reason": reason });
            tx.audit(actor.as_deref(), "pause", name, &why)?;
            Ok(Vec::new())
        })
    }

    /// Lets a schedule that is paused, disabled or broken go on. Slots since then are skipped, unless they
    /// are to be made up for.
    ///
    /// # Errors
    /// If there is none of that name, it is broken, or the database did not do as asked.
    pub fn resume(&mut self, name: &str, make_up: bool) -> Result<(), LedgerError> {
        let actor = self.actor.clone();
        let mut goes_on = false;
        // A long pause has more slots than one transaction skips.
        while !goes_on {
            self.change(name, &mut |tx, row, versions, clock| {
                let decided = decide::resume(row, versions, clock, make_up);
                let decided = decided.map_err(|broken| Fault::transient(broken.to_string()))?;
                goes_on = decided.1;
                if goes_on {
                    let how = json!({ "make_up": make_up.then_some(true) });
                    tx.audit(actor.as_deref(), "resume", name, &how)?;
                }
                Ok(decided.0)
            })?;
        }
        Ok(())
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
        let actor = self.actor.clone();
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
            let mut occurrence = message::occurrence(row, config, None, message::id(clock.wall));
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
            match &occurrence.source {
                None => tx.publish(&[message])?,
                Some(source) => tx.send_out(&[(source.clone(), message)])?,
            }
            let what = json!({
                "occurrence": occurrence.id, "reason": note, "force": is_forced.then_some(true),
                "body": body.map(|_| "given"),
            });
            tx.audit(actor.as_deref(), "trigger", name, &what)?;
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

    /// Returns the slots of a range that have not run, the range, and the number of all slots of it.
    fn not_run(&mut self, name: &str, request: &BackfillRequest) -> Result<NotRun, LedgerError> {
        let Self {
            store, definitions, ..
        } = self;
        let mut found = Err(LedgerError::NoSchedule(name.to_owned()));
        let read = store.read(&mut |tx| {
            let Some(row) = tx.schedule(name)? else {
                return Ok(());
            };
            let config = match definitions.of(name, &row.definition) {
                Ok(config) => config,
                Err(why) => {
                    found = Err(LedgerError::Broken(name.to_owned(), why));
                    return Ok(());
                }
            };
            let (spec, zones, clock) = (&config.spec, definitions.zones(), tx.clock()?);
            let read = |key, text| by_hand::read(key, text, spec, zones);
            let range =
                read("from", &request.from).and_then(|from| Ok((from, read("to", &request.to)?)));
            let slots =
                range.and_then(|range| Ok((by_hand::passed(&row, spec, clock, range)?, range)));
            found = match slots {
                Ok((slots, range)) => Ok((by_hand::not_run(tx, name, &slots)?, range, slots.len())),
                Err(refused) => Err(refused),
            };
            Ok(())
        });
        read.map_err(|fault| self.fault(fault))?;
        found
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
            round.take(tx, &mut row, &config, decisions, clock.wall)?;
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
                // Locked before it is read: what belongs to it may have changed meanwhile.
                if tx.schedule_if_free(name)?.is_none() {
                    return Ok(Vec::new());
                }
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
    let mut synced = Synced::default();
    // There may be many others.
    let ours = tx.schedules_of(group)?.into_iter();
    let mut ours: BTreeMap<String, ScheduleRow> = ours.map(|row| (row.name.clone(), row)).collect();
    let mut saved = Vec::new();
    for schedule in wanted {
        let (name, definition) = (schedule.name(), &schedule.definition);
        match ours.remove(name) {
            None if tx.schedule(name)?.is_some() => synced.taken.push(name.to_owned()),
            None => {
                saved.push(ScheduleRow::of_file(name, definition, group));
                synced.added.push(name.to_owned());
            }
            Some(mut row) => {
                if row.definition != *definition {
                    synced.changed.push(name.to_owned());
                }
                if row.redefine(definition) {
                    saved.push(row);
                }
            }
        }
    }
    tx.save(&saved)?;
    for name in ours.into_keys() {
        tx.remove(&name)?;
        synced.removed.push(name);
    }
    Ok(synced)
}
