//! The two sides of a worker that ganger provides itself: `exec`, which is one, and the conformance kit,
//! which tests whether a program is one.

pub mod conformance;
pub mod exec;
