//! The configuration: from TOML and the environment to the validated [`model`], or to every
//! problem at once.
//!
//! ```text
//! files ─▶ tree (merged, expanded, overridden) ─▶ keys ─▶ model ─▶ diff · print
//!                                                  └──▶ reference · schema
//! ```
//!
//! `keys` holds the one description of each key. Nothing in this room starts a process or opens
//! a connection; it reads the files of the configuration and nothing else.

pub mod changed;
mod description;
pub mod diff;
mod document;
mod environment;
mod expand;
mod keys;
mod load;
pub mod model;
mod overrides;
mod places;
mod print;
mod problem;
mod program;
mod reader;
mod redact;
mod rights;
pub mod sample;
mod secret;
mod shell_words;
mod tree;
mod value_types;
mod warnings;

#[cfg(test)]
mod tests;

pub use document::{reference, schema};
pub use environment::Environment;
pub use keys::schedules::stored as stored_schedule;
pub use keys::written_schedule::{GivenKey, WrittenSchedule, patch};
pub use load::{load, parse, print};
pub use places::Places;
pub use problem::{Problem, Problems};
pub use program::{find_program, missing_part, shown};
pub use value_types::is_log_filter;
pub use warnings::warnings;
