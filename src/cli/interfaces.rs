//! The external interfaces of a running daemon, in a build with them or without.

#[cfg(feature = "admin")]
pub(super) use super::live::surface::{login, open};
#[cfg(not(feature = "admin"))]
pub(super) use super::no_surface::{login, open};
