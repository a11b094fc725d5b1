//! The two ways of a message whose time is taken: through the daemon to a worker, and to a loop here
//! that listens as the daemon does, claims what has come and takes it off.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use miette::{IntoDiagnostic, miette};
use tokio::sync::Notify;
use tokio_postgres::{AsyncMessage, Error, NoTls};

use crate::common::machine::monotonic_nanos;
use crate::common::one_thread;
use crate::daemon::Daemon;
use crate::latency::{self, Latency, Way};
use crate::plan::Plan;
use crate::raw::{Hand, Kind};
use crate::server::{Database, Server};
use crate::setup::{Setup, Window};

const WORKERS: usize = 4;

const SEND: &str =
    "INSERT INTO consumer_messages (queue, body) VALUES ('bench-0', repeat('x', 100))";

/// What it claims at once.
const BATCH: i64 = 50;

/// What the trigger notifies for the queue of the first pool.
const CHANNEL: &str = "SELECT 'ganger.' || left(encode(sha256(convert_to('public.bench-0', 'UTF8')), \
                       'hex'), 40)";

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
    let sender = database.connect()?;
    let (tell, told) = sync_channel(1);
    let channel = database.row(CHANNEL)?.try_get(0).into_diagnostic()?;
    let url = database.url().to_owned();
    thread::spawn(move || {
        one_thread().map(|runtime| runtime.block_on(listen(&url, channel, tell)))
    });
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
async fn listen(url: &str, channel: String, tell: SyncSender<i64>) -> Result<(), Error> {
    let (client, mut connection) = tokio_postgres::connect(url, NoTls).await?;
    let bell = Arc::new(Notify::new());
    let rung = Arc::clone(&bell);
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
            if matches!(message, AsyncMessage::Notification(_)) {
                rung.notify_one();
            }
        }
    });
    client
        .batch_execute(&format!("LISTEN \"{channel}\""))
        .await?;
    let hand = Hand::of(&client, Kind::Ganger).await?;
    let mut is_wanted = tell.send(0).is_ok();
    while is_wanted {
        bell.notified().await;
        let mut done = hand.turn(&[], BATCH).await?;
        while !done.is_empty() {
            for _ in &done {
                is_wanted = tell.send(monotonic_nanos()).is_ok();
            }
            done = hand.turn(&done, BATCH).await?;
        }
    }
    Ok(())
}
