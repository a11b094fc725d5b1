//! The ledger's side of messages that others have: they are handed to whoever publishes them, what is reported
//! of them is entered, and who has them is told which are to be cancelled. Notes on runs are entered wherever
//! their messages are.

use std::time::Duration;

use super::Ledger;
use super::notes::write_notes;
use super::reports::{ReportBatch, ReportedState};
use super::row::{CancelRequest, CancelRequests, OutboxCount, OutboxRow};
use crate::table::Fault;
use ganger_config::model::LogLimits;
use ganger_queue::delivery::{RecordedEnd, RunNote};
use ganger_queue::fault::SourceFault;

/// Number of states, and of ends of other messages, that one transaction enters: others wait for it, and a server
/// has to answer in time.
const REPORTED_TOGETHER: usize = 1000;

/// Number of runs that a daemon is asked to cancel. Further ones follow as these end.
const REQUESTS_MAX: u32 = 1000;

impl Ledger {
    /// Takes messages for that source that no other daemon holds, and holds them for that time.
    ///
    /// # Errors
    /// If the database did not do as asked.
    pub fn take_out(
        &mut self,
        source: &str,
        most: u32,
        hold: Duration,
    ) -> Result<Vec<OutboxRow>, SourceFault> {
        let mut taken = Vec::new();
        let mut has_some = false;
        let looked = self.store.read(&mut |tx| {
            has_some = tx.has_outgoing(source)?;
            Ok(())
        });
        let done = looked.and_then(|()| match has_some {
            false => Ok(()),
            true => self.store.write(&mut |tx| {
                taken = tx.take_out(source, most, hold)?;
                Ok(())
            }),
        });
        done.map_err(|fault| self.fault(fault))?;
        Ok(taken)
    }

    /// Removes messages that their source has taken, and puts others back for a time.
    ///
    /// # Errors
    /// If the database did not do as asked.
    pub fn sent_out(
        &mut self,
        source: &str,
        sent: &[String],
        back: &[(String, Duration)],
    ) -> Result<(), SourceFault> {
        let done = self.store.write(&mut |tx| {
            tx.sent_out(sent, source)?;
            for (occurrence, hold) in back {
                tx.hold_back(std::slice::from_ref(occurrence), *hold)?;
            }
            Ok(())
        });
        done.map_err(|fault| self.fault(fault))
    }

    /// Counts the messages on their way to each source.
    ///
    /// # Errors
    /// If the database can't be read.
    pub fn outgoing(&mut self) -> Result<Vec<OutboxCount>, SourceFault> {
        let mut counts = Vec::new();
        let read = self.store.read(&mut |tx| {
            counts = tx.outgoing()?;
            Ok(())
        });
        read.map_err(|fault| self.fault(fault))?;
        Ok(counts)
    }

    /// Looks for runs that are to be cancelled, and ends those whose messages only the ledger has. Returns the
    /// others.
    ///
    /// # Errors
    /// If the database can't be read.
    pub fn cancel_requested(&mut self) -> Result<CancelRequests, SourceFault> {
        let mut requests = Vec::new();
        let looked = self.store.read(&mut |tx| {
            requests = tx.cancel_requests(REQUESTS_MAX)?;
            Ok(())
        });
        looked.map_err(|fault| self.fault(fault))?;
        let mut found = CancelRequests::default();
        for CancelRequest { id, may_wait } in requests {
            let mut has_ended = false;
            if may_wait {
                let done = self.store.write(&mut |tx| {
                    has_ended = tx.end_cancelled(&id)?;
                    Ok(())
                });
                if let Err(fault) = done {
                    has_ended = false;
                    found.problem = Some(self.fault(fault).to_string());
                }
            }
            if !has_ended {
                found.ids.push(id);
            }
        }
        Ok(found)
    }

    /// Enters what was reported of messages. One that the database rejects is logged, and not entered.
    ///
    /// # Errors
    /// If the database can't be used.
    pub fn report(&mut self, batch: &mut ReportBatch) -> Result<(), SourceFault> {
        // What is entered is taken out: a failure of a later part repeats none of it.
        while !(batch.states.is_empty() && batch.ends.is_empty()) {
            let states = batch.states.len().min(REPORTED_TOGETHER);
            let ends = batch.ends.len().min(REPORTED_TOGETHER);
            let (first, first_ends) = (&batch.states[..states], &batch.ends[..ends]);
            let done = match self.try_report(first, first_ends) {
                Err(fault) if fault.is_permanent => self.report_each(first, first_ends),
                done => done,
            };
            done.map_err(|fault| self.fault(fault))?;
            batch.states.drain(..states);
            batch.ends.drain(..ends);
        }
        Ok(())
    }

    /// Enters notes on runs. One that the database rejects is logged, and not entered. Returns those that are to be
    /// entered later, because others have locked their occurrences or the database can't be used.
    pub fn note(
        &mut self,
        notes: Vec<RunNote>,
        limits: LogLimits,
    ) -> (Vec<RunNote>, Result<(), SourceFault>) {
        let (left, done) = write_notes(&mut *self.store, notes, limits);
        (left, done.map_err(|fault| self.fault(fault)))
    }

    fn report_each(&mut self, states: &[ReportedState], ends: &[RecordedEnd]) -> Result<(), Fault> {
        let states = states
            .iter()
            .map(|state| (state.occurrence(), std::slice::from_ref(state), &[][..]));
        let ends = ends.iter().map(|end| {
            let id = end.message.message_id.as_deref();
            (id.unwrap_or_default(), &[][..], std::slice::from_ref(end))
        });
        for (message_id, state, end) in states.chain(ends) {
            match self.try_report(state, end) {
                Err(Fault {
                    problem,
                    is_permanent: true,
                    ..
                }) => tracing::error!(
                    message_id,
                    problem,
                    "the database rejects what became of a message: the ledger does not show it"
                ),
                done => done?,
            }
        }
        Ok(())
    }

    fn try_report(&mut self, states: &[ReportedState], ends: &[RecordedEnd]) -> Result<(), Fault> {
        self.store.write(&mut |tx| {
            tx.report(states)?;
            tx.record(ends)
        })
    }
}
