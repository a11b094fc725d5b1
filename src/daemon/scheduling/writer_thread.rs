//! A thread that writes to the ledger beside the work of pools, which does not wait for it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;
use std::{io, thread};

use tokio::runtime::{Builder, Runtime};
use tokio::sync::{oneshot, watch};
use tokio::time::sleep;

use ganger_config::model::{LedgerConfig, TableSource};
use ganger_queue::fault::SourceFault;
use ganger_table::ledger::Ledger;

/// Time after a panic until it begins anew.
const AFTER_PANIC: Duration = Duration::from_secs(1);

/// The ledger that is written to, as it is configured now. Who has it is to end when that can no longer change.
pub(super) type LedgerNow = watch::Receiver<LedgerConfig>;

/// A thread that writes to a ledger. Dropping it ends the thread, once that has written the rest.
#[derive(Debug)]
pub(super) struct WriterThread {
    ledger: watch::Sender<LedgerConfig>,
    pub(super) ended: oneshot::Receiver<()>,
}

impl WriterThread {
    /// Begins work on a thread of that name: it ends when it is given up. After a panic it begins anew.
    pub(super) fn begin(
        name: &'static str,
        ledger: &LedgerConfig,
        mut work: impl FnMut(&Runtime, &mut LedgerNow) + Send + 'static,
    ) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (ledger, mut now) = watch::channel(ledger.clone());
        let (tell, ended) = oneshot::channel();
        let thread = thread::Builder::new().name(name.to_owned());
        thread.spawn(move || {
            let mut work = || work(&runtime, &mut now);
            while catch_unwind(AssertUnwindSafe(&mut work)).is_err() {
                tracing::error!(
                    thread = name,
                    "writing to the ledger panicked; it begins anew"
                );
                runtime.block_on(sleep(AFTER_PANIC));
            }
            // A write that does not end is not waited for.
            runtime.shutdown_background();
            drop(tell);
        })?;
        Ok(Self { ledger, ended })
    }

    /// Has it write to this ledger from now on, also what has waited.
    pub(super) fn write_to(&self, ledger: &LedgerConfig) {
        self.ledger.send_if_modified(|before| {
            let is_other = before != ledger;
            before.clone_from(ledger);
            is_other
        });
    }
}

/// A connection to a ledger.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) ledger: Ledger,
    table: TableSource,
}

impl Connection {
    /// Returns the one that was kept, if it is to this ledger, or opens one. Blocks.
    pub(super) fn keep_or_open(
        kept: Option<Self>,
        config: &LedgerConfig,
    ) -> Result<Self, SourceFault> {
        match kept {
            Some(kept) if kept.table == config.table => Ok(kept),
            _ => Ok(Self {
                ledger: Ledger::open(config, false)?,
                table: config.table.clone(),
            }),
        }
    }
}
