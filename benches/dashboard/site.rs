//! The daemon: eight pools of workers that do nothing, one more that is busy at times, and a ledger that keeps
//! everything.

use std::fmt::Write;
use std::path::PathBuf;

use miette::{IntoDiagnostic, miette};

use crate::common::process::Daemon;
use crate::common::{noop_worker, quoted};
use crate::place::Place;

/// Number of pools that share the workers.
pub(crate) const POOLS: usize = 8;

/// Queue that is emptied, and the number of its workers.
pub(crate) const BUSY: &str = "busy";
const BUSY_WORKERS: usize = 2;

/// A running daemon.
pub(crate) struct Site<'a> {
    pub(crate) place: &'a Place,
    pub(crate) daemon: Daemon,
    /// Socket of its API.
    pub(crate) socket: PathBuf,
    pub(crate) workers: usize,
}

impl<'a> Site<'a> {
    /// Starts the daemon and waits for its workers.
    pub(crate) fn start(place: &'a Place, workers: usize) -> miette::Result<Self> {
        let each = workers.div_ceil(POOLS);
        let config = config(place, each)?;
        let workers = each * POOLS;
        let daemon = Daemon::start(None, place.path(), &config, workers + BUSY_WORKERS)?;
        let socket = place.path().join("bench.sock");
        Ok(Self {
            place,
            daemon,
            socket,
            workers,
        })
    }

    pub(crate) fn stop(self) -> miette::Result<()> {
        self.daemon.stop()
    }
}

/// Has a daemon create the tables.
pub(crate) fn create_tables(place: &Place) -> miette::Result<()> {
    let daemon = Daemon::start(None, place.path(), &config(place, 1)?, POOLS + BUSY_WORKERS)?;
    daemon.stop()
}

fn config(place: &Place, each: usize) -> miette::Result<String> {
    let program = std::env::current_exe().into_diagnostic()?;
    let (program, role) = (quoted(&program), noop_worker::ROLE);
    let socket = place.path().join("bench.sock");
    let socket = socket
        .to_str()
        .ok_or_else(|| miette!("the directory has an odd name"))?;
    let mut text = format!(
        "[sources.main]\nkind = \"table\"\nurl = \"{}\"\n\
         [ledger]\nkeep = {{ completed = \"36500d\", failed = \"36500d\", per_schedule = 100000 }}\n\
         [admin]\nlisten = \"127.0.0.1:0\"\nsocket = \"{socket}\"\n",
        place.url()
    );
    let pools = (0..POOLS).map(|number| (format!("p{number}"), format!("q{number}"), each));
    for (name, queue, workers) in pools.chain([(BUSY.to_owned(), BUSY.to_owned(), BUSY_WORKERS)]) {
        let pool = format!(
            "\n[[pools]]\nname = \"{name}\"\nqueue = \"{queue}\"\nworkers = {workers}\ncommand = {program}\n\
             args = [\"{role}\"]\n"
        );
        text.write_str(&pool).into_diagnostic()?;
    }
    Ok(text)
}
