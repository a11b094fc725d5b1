//! The two paths whose latency is measured: through the daemon to a worker, and to a loop in this process
//! that is notified like the daemon, claims new messages and removes them.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use miette::{IntoDiagnostic, miette};

use crate::common::machine::monotonic_nanos;
use crate::daemon::Daemon;
use crate::latency::{self, Latency, Way};
use crate::plan::Plan;
use crate::raw::Table;
use crate::server::{Database, Server, Sql};
use crate::setup::{Setup, Window};

const WORKERS: usize = 4;

const SEND: &str =
    "INSERT INTO consumer_messages (queue, body) VALUES ('bench-0', repeat('x', 100))";

/// Number of messages that the loop claims at once.
const BATCH: usize = 50;

/// Sends messages on both paths, in turn.
pub(crate) fn measure(server: &Server, plan: &Plan) -> miette::Result<Vec<Latency>> {
    let (ours, theirs) = (server.database()?, server.database()?);
    let mut ways = [daemon(&ours)?, raw(&theirs)?];
    latency::measure(&mut ways, plan.latency_messages)
}

/// Returns the path through a daemon, which ends when the value is dropped.
fn daemon(database: &Database<'_>) -> miette::Result<Way> {
    let daemon = Daemon::start(database, &Setup::one_pool(WORKERS, Window::Auto))?;
    let sender = database.connect()?;
    Ok(Way {
        name: "daemon".to_owned(),
        is_ours: true,
        send: Box::new(move || sender.run(SEND)),
        receive: Box::new(move || daemon.wait_for(1)),
    })
}

/// Returns the path to a loop in this process, which ends when the value is dropped.
fn raw(database: &Database<'_>) -> miette::Result<Way> {
    let (sender, receiver) = (database.connect()?, database.connect()?);
    let (tell, told) = sync_channel(1);
    thread::spawn(move || listen(receiver, &tell));
    told.recv().into_diagnostic()?;
    Ok(Way {
        name: "raw".to_owned(),
        is_ours: false,
        send: Box::new(move || sender.run(SEND)),
        receive: Box::new(move || receive(&told)),
    })
}

fn receive(told: &Receiver<i64>) -> miette::Result<i64> {
    told.recv().map_err(|_| miette!("the raw loop has ended"))
}

/// Reports once that it listens, and then the time of arrival of each message.
fn listen(receiver: Sql, tell: &SyncSender<i64>) -> miette::Result<()> {
    let hand = receiver.hand(Table::Ganger)?;
    let mut is_wanted = tell.send(0).is_ok();
    while is_wanted {
        hand.wait_for_news();
        let mut done = hand.turn(&[], BATCH)?;
        while !done.is_empty() {
            for _ in &done {
                is_wanted = tell.send(monotonic_nanos()).is_ok();
            }
            done = hand.turn(&done, BATCH)?;
        }
    }
    Ok(())
}
