//! The log of a few records, for tests of all crates.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::format::debug_fn;
use tracing_subscriber::layer::SubscriberExt;

use crate::{field, levels};

/// Returns the log output of some records at this level, as text without colours.
///
/// # Panics
/// If the level is invalid.
pub fn logged(level: &str, records: impl FnOnce()) -> String {
    logged_by(level, |_| records())
}

/// Returns the log output likewise, and gives `records` the handle that changes the levels.
pub(crate) fn logged_by(level: &str, records: impl FnOnce(&levels::Handle)) -> String {
    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);
    impl Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let page = Buffer::default();
    let writer = page.clone();
    let log = tracing_subscriber::fmt::layer()
        .with_writer(move || writer.clone())
        .with_ansi(false)
        .without_time()
        .fmt_fields(debug_fn(field).delimited(" "));
    let (levels, handle) = levels::reloadable(level).expect("a level");
    let log = tracing_subscriber::registry().with(levels).with(log);
    tracing::subscriber::with_default(log, || records(&handle));
    let bytes = page
        .0
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone();
    String::from_utf8(bytes).expect("records are text")
}
