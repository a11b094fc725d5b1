//! Parts that the keys of several tables share: bounds, and the context that their meaning depends on.

use std::path::Path;
use std::time::Duration;

use crate::environment::Environment;

/// Bounds that several keys share.
pub(super) const MILLISECOND: Duration = Duration::from_millis(1);
pub(super) const HOUR: Duration = Duration::from_secs(3600);
pub(super) const DAY: Duration = Duration::from_secs(24 * 3600);
pub(super) const MONTH: Duration = Duration::from_secs(30 * 24 * 3600);
pub(super) const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// Context, beside the file, that the meaning of some keys depends on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadContext<'a> {
    /// Directory of the configuration; relative paths start from it.
    pub(crate) directory: &'a Path,
    /// The daemon's own environment.
    pub(crate) environment: &'a Environment,
}
