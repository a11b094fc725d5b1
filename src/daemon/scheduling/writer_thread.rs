//! A thread that writes to the ledger beside the work of pools, which does not wait for it.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use ganger_config::model::LedgerConfig;
use ganger_queue::fault::SourceFault;
use ganger_table::ledger::Ledger;

/// A thread that writes to a ledger. Dropping it ends the thread, once that has written the rest.
#[derive(Debug)]
pub(super) struct WriterThread {
    ledger: LedgerConfig,
    #[expect(dead_code, reason = "held: the thread ends without it")]
    held: oneshot::Sender<()>,
    pub(super) ended: oneshot::Receiver<()>,
}

impl WriterThread {
    /// Begins work on a thread of that name: it ends when it is given up. After a panic it begins anew.
    pub(super) fn begin(
        name: &'static str,
        ledger: &LedgerConfig,
        mut work: impl FnMut(&Runtime, &LedgerConfig, &mut oneshot::Receiver<()>) + Send + 'static,
    ) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (held, mut given_up) = oneshot::channel();
        let (tell, ended) = oneshot::channel();
        let config = ledger.clone();
        let thread = thread::Builder::new().name(name.to_owned());
        thread.spawn(move || {
            let mut work = || work(&runtime, &config, &mut given_up);
            while catch_unwind(AssertUnwindSafe(&mut work)).is_err() {
                tracing::error!(
                    thread = name,
                    "writing to the ledger panicked; it begins anew"
                );
            }
            // A write that does not end is not waited for.
            runtime.shutdown_background();
            drop(tell);
        })?;
        Ok(Self {
            ledger: ledger.clone(),
            held,
            ended,
        })
    }

    /// Returns whether it writes to the database of this ledger.
    pub(super) fn is_for(&self, ledger: Option<&LedgerConfig>) -> bool {
        ledger.is_some_and(|ledger| ledger.table == self.ledger.table)
    }
}

/// Returns the connection that was kept, or opens one. Blocks.
pub(super) fn keep_or_open(
    kept: Option<Ledger>,
    config: &LedgerConfig,
) -> Result<Ledger, SourceFault> {
    kept.map_or_else(|| Ledger::open(config, false), Ok)
}
