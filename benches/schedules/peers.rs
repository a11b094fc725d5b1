//! Other schedulers beside ganger, each with the same number of schedules that are due at one instant of each
//! second, or each minute where a scheduler has no finer grain: Celery beat on a private RabbitMQ, and
//! APScheduler, River and graphile-worker on a private PostgreSQL, which also has ganger's ledger. They are installed
//! into the target directory, in pinned versions, and have their default settings.
//!
//! Only the way of a slot to its queue is measured; nothing takes the messages. It ends
//! - for ganger when its loop knows that the transaction has been committed;
//! - for River and graphile-worker with the server's own time of the commit, which precedes the write to the disk:
//!   a little in their favour;
//! - for Celery beat when its client has written the message to the connection; it awaits no confirmation;
//! - for APScheduler, which has no queue and runs its jobs itself, when the function of the job is called.
//!
//! All figures are about the messages of the interval in which a scheduler is watched, and their number is compared
//! with that of the slots. Each scheduler defines its slots: Celery beat counts a period from when it last sent, so
//! that its slots drift apart and are fewer when it is late. APScheduler leaves out slots that it is late for by
//! more than a second.

#[path = "../common/peers.rs"]
mod programs;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use miette::{IntoDiagnostic, WrapErr, ensure, miette};
use serde::Serialize;

use crate::Plan;
use crate::common::figures::percentile;
use crate::common::machine::cpu_seconds;
use crate::common::show::{milliseconds, note, percent, tenths};
use crate::place::{Kind, Place, Sent};
use crate::servers::look;
use crate::servers::rabbit::Node;
use programs::{Running, node};

const SECOND: SignedDuration = SignedDuration::from_secs(1);
const MINUTE: SignedDuration = SignedDuration::from_mins(1);

/// Time for which each scheduler is watched: some are busy for seconds with what is due in one.
const WATCHED_FOR: SignedDuration = SignedDuration::from_secs(8);

/// Files with the versions, and the program that is built.
const WANTED: &[&str] = &[
    "schedules/peers/go.mod",
    "schedules/peers/go.sum",
    "schedules/peers/requirements.txt",
    "schedules/peers/river.go",
    "tables/peers/package-lock.json",
    "tables/peers/package.json",
];

/// The way to start a peer, and to read what it has sent. It prints `up` when it has its schedules.
struct Kit {
    name: &'static str,
    /// Time between slots.
    every: SignedDuration,
    start: fn(&Path) -> Command,
    sent: Record,
}

/// Place of the times of slots and messages.
enum Record {
    /// Lines that the peer prints: both times in microseconds since 1970.
    Printed,
    /// The rows of messages, with the column of the slot.
    Rows {
        slot: &'static str,
        table: &'static str,
    },
}

const KITS: &[Kit] = &[
    Kit {
        name: "Celery beat",
        every: SECOND,
        start: |installed| {
            let mut command = Command::new(installed.join("venv/bin/celery"));
            command.args(["--app=celery_beat", "beat", "--loglevel=warning"]);
            command.arg("--scheduler=celery_beat:Scheduler");
            command
        },
        sent: Record::Printed,
    },
    Kit {
        name: "APScheduler",
        every: SECOND,
        start: |installed| {
            let mut command = Command::new(installed.join("venv/bin/python3"));
            command.args(["-m", "apscheduler_jobs"]);
            command
        },
        sent: Record::Printed,
    },
    Kit {
        name: "River",
        every: SECOND,
        start: |installed| Command::new(installed.join("bin/river")),
        sent: Record::Rows {
            slot: "scheduled_at",
            table: "river_job",
        },
    },
    Kit {
        name: "graphile-worker, each minute",
        every: MINUTE,
        start: |installed| {
            let mut command = Command::new(node(installed));
            command.arg(scripts().join("graphile.mjs"));
            command
        },
        sent: Record::Rows {
            slot: "run_at",
            table: "graphile_worker._private_jobs",
        },
    },
];

/// A scheduler that was watched.
#[derive(Debug, Serialize)]
pub(crate) struct Peer {
    name: &'static str,
    schedules: usize,
    /// Messages as a share of the slots of that time.
    sent: f64,
    /// Times from slots to messages; none if there was no message.
    p50_ms: Option<f64>,
    p99_ms: Option<f64>,
    longest_ms: Option<f64>,
    /// Processor time of the scheduler's process for each message.
    cpu_micros: Option<f64>,
}

impl Peer {
    pub(crate) const HEADER: &[&str] = &[
        "scheduler",
        "schedules",
        "slots sent",
        "p50",
        "p99",
        "longest",
        "cpu µs each",
    ];

    pub(crate) fn row(&self) -> Vec<String> {
        let milliseconds = |value: Option<f64>| value.map(milliseconds).unwrap_or_default();
        vec![
            self.name.to_owned(),
            self.schedules.to_string(),
            percent(self.sent),
            milliseconds(self.p50_ms),
            milliseconds(self.p99_ms),
            milliseconds(self.longest_ms),
            self.cpu_micros.map(tenths).unwrap_or_default(),
        ]
    }
}

/// Measures ganger and the peers with each number of schedules of the plan, one after the other.
pub(crate) fn measure(plan: Plan) -> miette::Result<Vec<Peer>> {
    if plan.peer_schedules.is_empty() {
        return Ok(Vec::new());
    }
    let stage = Stage {
        installed: programs::install("peers-schedules", WANTED)?,
        broker: Node::start(""),
        place: Place::start(Kind::Postgres),
    };
    let mut peers = Vec::new();
    for count in plan.peer_schedules.iter().copied() {
        note(format_args!("peers, {count} schedules: ganger"));
        peers.push(stage.ganger(count)?);
        for kit in KITS {
            note(format_args!("peers, {count} schedules: {}", kit.name));
            peers.push(stage.peer(kit, count).wrap_err(kit.name)?);
        }
    }
    Ok(peers)
}

/// Everything that the schedulers need.
struct Stage {
    installed: PathBuf,
    broker: Node,
    place: Place,
}

impl Stage {
    fn ganger(&self, count: usize) -> miette::Result<Peer> {
        let keys = "\"queue\": \"q\", \"overlap\": \"allow\", \"body\": \"{{ slot }}\"";
        let definition = format!("{{\"every\": \"1s\", {keys}}}");
        let mut scheduled = self.place.ledger(std::iter::repeat_n(definition, count))?;
        let window = Window::next(SECOND)?;
        let time = until(window.end);
        let (cpu, queued) = std::thread::scope(|scope| {
            let queued = scope.spawn(|| scheduled.dispatch_for(time));
            (window.cpu_seconds("self"), queued.join())
        });
        let queued = queued.map_err(|_| miette!("the loop panicked"))??;
        let sent = scheduled.sent(&queued)?;
        Ok(window.peer("ganger", count, cpu?, &sent))
    }

    fn peer(&self, kit: &Kit, count: usize) -> miette::Result<Peer> {
        let database = self.place.database();
        let mut command = (kit.start)(&self.installed);
        command
            .env("BROKER", self.broker.url("/"))
            .env("DATABASE", &database.url)
            .env("LIBRARIES", &self.installed)
            .env("NODE_ENV", "production")
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("PYTHONPATH", scripts())
            .env("SCHEDULES", count.to_string());
        let running = Running::start(&command)?;
        let is_up = |log: &str| log.lines().any(|line| line == "up");
        let up = look(|| is_up(&running.log().ok()?).then_some(()));
        ensure!(up.is_some(), "it does not come up: {}", running.log()?);
        let window = Window::next(kit.every)?;
        let cpu = window.cpu_seconds(&running.process.pid().to_string())?;
        let printed = running.log()?;
        ensure!(running.process.ended().is_none(), "it ended: {printed}");
        let record = match kit.sent {
            Record::Printed => printed,
            Record::Rows { slot, table } => {
                let micros = |time| format!("(extract(epoch FROM {time}) * 1000000)::bigint");
                let (due, queued) = (micros(slot), micros("pg_xact_commit_timestamp(xmin)"));
                let query = format!("SELECT {due}, {queued} FROM {table}");
                self.place.rows(&database, &query)?
            }
        };
        let sent: Vec<Sent> = record.lines().filter_map(parse).collect();
        Ok(window.peer(kit.name, count, cpu, &sent))
    }
}

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/schedules/peers")
}

/// Reads a line with the time of the slot and that of the message; none if it is another line.
fn parse(line: &str) -> Option<Sent> {
    let (due, queued) = line.split_once('|')?;
    let time = |micros: &str| Timestamp::from_microsecond(micros.parse().ok()?).ok();
    Some(Sent {
        due: time(due)?,
        queued: time(queued)?,
    })
}

/// The interval whose messages are counted. It begins half a second before a slot of the schedulers that go by the
/// clock.
struct Window {
    begin: Timestamp,
    end: Timestamp,
    /// Slots of each schedule.
    slots: i64,
}

impl Window {
    /// Returns the next window for schedules with that period, a second from now at the earliest.
    fn next(every: SignedDuration) -> miette::Result<Self> {
        let half = SECOND / 2;
        let soon = Timestamp::now() + SECOND + half;
        let every = every.as_secs();
        let first = (soon.as_second() / every + 1) * every;
        let begin = Timestamp::from_second(first).into_diagnostic()? - half;
        Ok(Self {
            begin,
            end: begin + WATCHED_FOR,
            slots: (WATCHED_FOR.as_secs() / every).max(1),
        })
    }

    /// Waits until the window is over. Returns the processor time of a process in it.
    fn cpu_seconds(&self, process: &str) -> miette::Result<f64> {
        wait_until(self.begin);
        let before = cpu_seconds(process)?;
        wait_until(self.end);
        Ok(cpu_seconds(process)? - before)
    }

    #[expect(clippy::cast_precision_loss, reason = "there are far fewer")]
    fn peer(&self, name: &'static str, schedules: usize, cpu_seconds: f64, sent: &[Sent]) -> Peer {
        let counted = sent
            .iter()
            .filter(|one| (self.begin..self.end).contains(&one.queued));
        let late: Vec<f64> = counted.map(Sent::late_ms).collect();
        let (slots, messages) = (schedules as f64 * self.slots as f64, late.len() as f64);
        let percentile =
            |percent| (!late.is_empty()).then(|| percentile(late.iter().copied(), percent));
        Peer {
            name,
            schedules,
            sent: messages / slots,
            p50_ms: percentile(50),
            p99_ms: percentile(99),
            longest_ms: percentile(100),
            cpu_micros: (!late.is_empty()).then(|| cpu_seconds / messages * 1e6),
        }
    }
}

/// Returns the time until then; zero if it is over.
fn until(time: Timestamp) -> Duration {
    let left = time.duration_since(Timestamp::now());
    Duration::try_from(left).unwrap_or_default()
}

fn wait_until(time: Timestamp) {
    while let left = until(time)
        && !left.is_zero()
    {
        std::thread::park_timeout(left);
    }
}
