//! Where it is remembered what is finished, whichever database that is. SQLite's calls block, on a
//! thread that is there for that: its futures are ready the first time they are asked.

use std::fmt::Debug;

use async_trait::async_trait;

use crate::table::Fault;
use crate::table::finished::{Entry, Found};
use ganger_queue::delivery::Identity;

/// What remembers for the messages of one pool.
#[async_trait(?Send)]
pub(crate) trait FinishedStore: Debug + Send {
    /// Enters all of them in one transaction, or none. Returns what was entered before, where
    /// something was: that stays as it is.
    async fn enter(&mut self, entries: &[Entry<'_>]) -> Result<Found, Fault>;

    /// Looks for what is entered of each.
    async fn find(&mut self, identities: &[&Identity]) -> Result<Found, Fault>;

    /// Removes what is out of date, at most so many. Returns how many.
    async fn expire(&mut self, most: u32) -> Result<usize, Fault>;

    /// Closes the connection.
    fn close(self: Box<Self>) {}
}
