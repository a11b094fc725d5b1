//! The store of finished messages, for any database. SQLite's calls block, on a thread of their own: its
//! futures are ready when they are first polled.

use std::fmt::Debug;

use async_trait::async_trait;

use crate::table::Fault;
use crate::table::finished::{Entry, Found};
use ganger_queue::delivery::Identity;

/// Store of the finished messages of one pool.
#[async_trait(?Send)]
pub(crate) trait FinishedStore: Debug + Send {
    /// Enters all of them in one transaction, or none. An entry that exists already stays unchanged, and
    /// is returned if it is of the same message.
    async fn enter(&mut self, entries: &[Entry<'_>]) -> Result<Found, Fault>;

    /// Looks up the entry of each.
    async fn find(&mut self, identities: &[&Identity]) -> Result<Found, Fault>;

    /// Removes at most `most` expired entries. Returns their number.
    async fn expire(&mut self, most: u32) -> Result<usize, Fault>;

    /// Closes the connection.
    fn close(self: Box<Self>) {}
}
