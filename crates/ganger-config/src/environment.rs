//! The environment of a process.

use std::collections::BTreeMap;

/// An environment: variables and their values.
pub type Environment = BTreeMap<String, String>;
