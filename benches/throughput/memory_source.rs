//! The pool without the table: the same pool, lanes and workers as in the daemon, fed from memory over the
//! same channels by a source on a thread of its own. Compared with the bare pipe it shows ganger's cost on
//! the worker's side alone.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ganger_config::model::PoolConfig;
use ganger_pool::events::EventFeed;
use ganger_pool::status::PoolStatus;
use ganger_pool::{self, Command, Orders, PoolError, Steering};
use ganger_queue::delivery::{self, History, Intake, Message, Outcome, PoolEnd, SourceEnd};
use miette::{IntoDiagnostic, bail, ensure, miette};
use tokio::runtime;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::LocalSet;
use tokio::time::Instant;

use crate::common::figures::Run;
use crate::common::machine::{cpu_seconds, resident_kib};
use crate::daemon::warm_up_messages;
use crate::queue::Load;
use crate::setup::Setup;

const UP_WITHIN: Duration = Duration::from_secs(60);
const WAIT_STEP: Duration = Duration::from_millis(2);

/// Measures the throughput of a pool with a load in memory.
pub(crate) fn measure(setup: &Setup, load: Load) -> miette::Result<Run> {
    let running = Running::start(setup, load)?;
    running.wait_until_up(setup.workers)?;
    running.work_off(warm_up_messages(setup))?;
    let cpu = cpu_seconds("self")?;
    let begun = Instant::now();
    running.work_off(load.messages)?;
    let run = Run {
        messages: load.messages,
        seconds: begun.elapsed().as_secs_f64(),
        cpu_seconds: cpu_seconds("self")? - cpu,
    };
    running.stop()?;
    Ok(run)
}

/// Results of a pool with one worker.
pub(crate) struct Watched {
    /// The run, with the processor time of the worker instead of this process.
    pub(crate) run: Run,
    /// Seconds from the pool's start to the first message settled.
    pub(crate) start_seconds: f64,
    /// Resident memory of the worker after its work.
    pub(crate) worker_kib: u64,
}

/// Measures a worker that is another program.
pub(crate) fn watch(setup: &Setup, load: Load) -> miette::Result<Watched> {
    let begun = Instant::now();
    let running = Running::start(setup, load)?;
    running.work_off(1)?;
    let start_seconds = begun.elapsed().as_secs_f64();
    // By then a just-in-time compiler has compiled most of the code.
    running.work_off(load.messages / 2)?;
    let worker = running.worker()?;
    let cpu = cpu_seconds(&worker.to_string())?;
    let begun = Instant::now();
    running.work_off(load.messages)?;
    let run = Run {
        messages: load.messages,
        seconds: begun.elapsed().as_secs_f64(),
        cpu_seconds: cpu_seconds(&worker.to_string())? - cpu,
    };
    let worker_kib = resident_kib(worker)?;
    running.stop()?;
    Ok(Watched {
        run,
        start_seconds,
        worker_kib,
    })
}

/// The two threads, as the daemon has them.
struct Running {
    commands: mpsc::Sender<Command>,
    pool_orders: watch::Sender<Orders>,
    orders: mpsc::Sender<Order>,
    pool: JoinHandle<miette::Result<Result<(), PoolError>>>,
    source: JoinHandle<miette::Result<()>>,
}

/// Order to the source: hand out `messages` messages, and report when all are done.
struct Order {
    messages: usize,
    done: oneshot::Sender<()>,
}

impl Running {
    fn start(setup: &Setup, load: Load) -> miette::Result<Self> {
        let policy = policy(setup)?;
        let message = message(&policy, load);
        let (source_end, pool_end) = delivery::link();
        let (commands, commands_rx) = mpsc::channel(1);
        let (pool_orders, told) = watch::channel(Orders::new(policy));
        let (orders, orders_rx) = mpsc::channel(1);
        Ok(Self {
            commands,
            pool_orders,
            orders,
            pool: spawn("memory-pool", move || run_pool(told, pool_end, commands_rx))?,
            source: spawn("memory-source", move || {
                run_source(source_end, orders_rx, &message)
            })?,
        })
    }

    fn wait_until_up(&self, workers: usize) -> miette::Result<()> {
        let begun = Instant::now();
        while self.workers_up()? < workers {
            if begun.elapsed() > UP_WITHIN {
                bail!("the pool did not come up");
            }
            thread::park_timeout(WAIT_STEP);
        }
        Ok(())
    }

    fn workers_up(&self) -> miette::Result<usize> {
        let status = self.status()?;
        let up = status
            .workers
            .iter()
            .filter(|worker| worker.state == "idle");
        Ok(up.count())
    }

    /// Returns the process of the only worker.
    fn worker(&self) -> miette::Result<u32> {
        let status = self.status()?;
        let pid = status.workers.first().and_then(|worker| worker.pid);
        pid.ok_or_else(|| miette!("the worker is gone"))
    }

    fn status(&self) -> miette::Result<Arc<PoolStatus>> {
        let (reply, status) = oneshot::channel();
        let asked = self.commands.blocking_send(Command::Status(reply));
        asked.map_err(|_| miette!("the pool is gone"))?;
        status.blocking_recv().into_diagnostic()
    }

    fn work_off(&self, messages: usize) -> miette::Result<()> {
        let (done, told) = oneshot::channel();
        let ordered = self.orders.blocking_send(Order { messages, done });
        ordered.map_err(|_| miette!("the source is gone"))?;
        told.blocking_recv().into_diagnostic()
    }

    fn stop(self) -> miette::Result<()> {
        self.pool_orders
            .send_modify(|orders| orders.stop(Duration::ZERO));
        drop(self.orders);
        joined(self.source)??;
        joined(self.pool)??.into_diagnostic()
    }
}

/// Starts a thread with a name that a profile shows.
fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> miette::Result<JoinHandle<T>> {
    let thread = thread::Builder::new().name(name.to_owned());
    thread.spawn(work).into_diagnostic()
}

fn joined<T>(thread: JoinHandle<T>) -> miette::Result<T> {
    thread.join().map_err(|_| miette!("a thread panicked"))
}

/// Returns the pool's policy, from the same configuration as the daemon's.
fn policy(setup: &Setup) -> miette::Result<Arc<PoolConfig>> {
    let text = setup.config("sqlite:unused.db")?;
    let config = ganger_config::parse(&text, "bench.toml", &ganger_config::Environment::new())?;
    let policy = config.pools.first();
    policy.cloned().ok_or_else(|| miette!("no pool"))
}

fn message(policy: &PoolConfig, load: Load) -> Message {
    Message {
        queue: Arc::clone(&policy.queue),
        body: load.body().into(),
        headers: Vec::new(),
        correlation_id: String::new(),
        reply_to: None,
        properties: Vec::new(),
        occurrence: None,
    }
}

fn run_pool(
    orders: watch::Receiver<Orders>,
    end: PoolEnd,
    commands: mpsc::Receiver<Command>,
) -> miette::Result<Result<(), PoolError>> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.into_diagnostic()?;
    let (shown, _) = watch::channel(Arc::default());
    let (steered, _) = watch::channel(Steering::default());
    let feed = EventFeed::new(std::time::SystemTime::now());
    let run = ganger_pool::run(orders, end, commands, shown, steered, feed);
    Ok(LocalSet::new().block_on(&runtime, run))
}

fn run_source(
    mut end: SourceEnd,
    mut orders: mpsc::Receiver<Order>,
    message: &Message,
) -> miette::Result<()> {
    let runtime = runtime::Builder::new_current_thread().build();
    runtime.into_diagnostic()?.block_on(async {
        while let Some(order) = orders.recv().await {
            supply(&mut end, order.messages, message).await?;
            let told = order.done.send(());
            told.map_err(|()| miette!("nobody waits for the end"))?;
        }
        Ok(())
    })
}

/// Hands out as many messages as the pool allows until all are settled.
async fn supply(end: &mut SourceEnd, messages: usize, message: &Message) -> miette::Result<()> {
    let (mut handed_out, mut done) = (0, 0);
    while done < messages {
        let credit = match *end.intake.borrow_and_update() {
            Intake::Credit(credit) => credit,
            Intake::Closed => bail!("the pool takes no more"),
        };
        while handed_out < messages && handed_out - done < credit {
            let history = History {
                attempt: 1,
                ..History::default()
            };
            handed_out += 1;
            end.deliver(handed_out as u64, message.clone(), history);
        }
        tokio::select! {
            Some(settlement) = end.settlements.recv() => {
                let mut next = Some(settlement);
                while let Some(settlement) = next {
                    ensure!(settlement.outcome == Outcome::Done, "{:?}", settlement.outcome);
                    done += 1;
                    next = end.settlements.try_recv().ok();
                }
            }
            Ok(()) = end.intake.changed() => {}
        }
    }
    Ok(())
}
