//! A raw loop for comparison: the same workers with the same window, driven with minimum effort. One thread,
//! and one task per worker; each message is encoded, those available are sent in one write, and each answer
//! is decoded. There is no queue, no deadline and no supervision of the process.

use std::cell::Cell;
use std::rc::Rc;

use bytes::BytesMut;
use ganger_queue::delivery::Message;
use miette::{IntoDiagnostic, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::Instant;

use crate::common::figures::Run;
use crate::common::machine::cpu_seconds;
use crate::common::one_thread;
use crate::common::piped::{CHUNK_BYTES, Worker, decode, encode};
use crate::queue::Load;

/// Measures the throughput of the given number of workers, with `window` frames in each one's pipe.
pub(crate) fn measure(workers: usize, window: usize, load: Load) -> miette::Result<Run> {
    on_one_thread(async move {
        let mut running = Vec::new();
        for _ in 0..workers {
            running.push(Worker::start().await?);
        }
        let message = Rc::new(message(load));
        let cpu = cpu_seconds("self")?;
        let begun = Instant::now();
        let running = exchange(running, window, message, load.messages).await?;
        let seconds = begun.elapsed().as_secs_f64();
        let cpu_seconds = cpu_seconds("self")? - cpu;
        running.into_iter().try_for_each(Worker::stop)?;
        Ok(Run {
            messages: load.messages,
            seconds,
            cpu_seconds,
        })
    })
}

/// Returns the seconds from a worker's start until it has connected.
pub(crate) fn start_seconds() -> miette::Result<f64> {
    on_one_thread(async {
        let begun = Instant::now();
        let worker = Worker::start().await?;
        let seconds = begun.elapsed().as_secs_f64();
        worker.stop()?;
        Ok(seconds)
    })
}

fn on_one_thread<T>(work: impl Future<Output = miette::Result<T>>) -> miette::Result<T> {
    LocalSet::new().block_on(&one_thread()?, work)
}

fn message(load: Load) -> Message {
    Message {
        queue: "bench-0".into(),
        body: load.body().into(),
        headers: Vec::new(),
        correlation_id: String::new(),
        reply_to: None,
        properties: Vec::new(),
        occurrence: None,
    }
}

/// Sends the message the given number of times in total, and waits for as many answers.
async fn exchange(
    workers: Vec<Worker>,
    window: usize,
    message: Rc<Message>,
    messages: usize,
) -> miette::Result<Vec<Worker>> {
    let unsent = Rc::new(Cell::new(messages));
    let mut tasks = JoinSet::new();
    for worker in workers {
        tasks.spawn_local(drive(
            worker,
            window,
            Rc::clone(&message),
            Rc::clone(&unsent),
        ));
    }
    let mut workers = Vec::new();
    while let Some(driven) = tasks.join_next().await {
        workers.push(driven.into_diagnostic()??);
    }
    Ok(workers)
}

async fn drive(
    mut worker: Worker,
    window: usize,
    message: Rc<Message>,
    unsent: Rc<Cell<usize>>,
) -> miette::Result<Worker> {
    let mut in_flight = 0;
    let mut incoming = BytesMut::with_capacity(CHUNK_BYTES);
    let mut outgoing = BytesMut::new();
    loop {
        let more = unsent.get().min(window - in_flight);
        unsent.set(unsent.get() - more);
        in_flight += more;
        if in_flight == 0 {
            return Ok(worker);
        }
        outgoing.clear();
        for _ in 0..more {
            encode(&message, &mut outgoing)?;
        }
        worker.pipe.write_all(&outgoing).await.into_diagnostic()?;
        incoming.reserve(CHUNK_BYTES);
        let read = worker.pipe.read_buf(&mut incoming).await;
        ensure!(read.into_diagnostic()? > 0, "the worker closed its pipe");
        in_flight -= decode(&mut incoming)?;
    }
}
