//! The two ways of a message whose time is taken: through the daemon to a worker, and to a loop here
//! that learns of it as the daemon does, claims what has come and takes it off.

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

/// What it claims at once.
const BATCH: usize = 50;

/// Sends by both ways, in turns.
pub(crate) fn measure(server: &Server, plan: &Plan) -> miette::Result<Vec<Latency>> {
    let (ours, theirs) = (server.database()?, server.database()?);
    let mut ways = [daemon(&ours)?, raw(&theirs)?];
    latency::measure(&mut ways, plan.latency_messages)
}

/// Through a daemon, which ends with what is returned.
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

/// To a loop here, which ends with what is returned.
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

/// Tells once that it listens, then of each message when it came.
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
