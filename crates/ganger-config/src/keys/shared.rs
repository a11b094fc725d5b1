//! What the keys of several tables share: bounds, and what their meaning depends on.

use std::path::Path;
use std::time::Duration;

use crate::environment::Environment;

/// Bounds that several keys share.
pub(super) const MILLISECOND: Duration = Duration::from_millis(1);
pub(super) const HOUR: Duration = Duration::from_secs(3600);
pub(super) const DAY: Duration = Duration::from_secs(24 * 3600);
pub(super) const MONTH: Duration = Duration::from_secs(30 * 24 * 3600);
pub(super) const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// What the meaning of some keys depends on beside the file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Surroundings<'a> {
    /// The directory of the configuration, which relative paths start from.
    pub(crate) directory: &'a Path,
    /// The daemon's own environment.
    pub(crate) environment: &'a Environment,
}
