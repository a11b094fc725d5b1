//! What a process is told by its environment.

use std::collections::BTreeMap;

/// An environment: variables and their values.
pub type Environment = BTreeMap<String, String>;
