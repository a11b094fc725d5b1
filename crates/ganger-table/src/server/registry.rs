//! What a lease asks of a server: a connection of its own, and the table of owners as that reaches it.

use super::vigil::Sight;
use crate::table::Fault;

/// Where connections are made to.
pub(crate) trait Endpoint: std::fmt::Debug + Send + Sync + 'static {
    /// One of them.
    type Line: Registry;

    /// Connects, and sees that the tables are there.
    fn connect(&self) -> impl Future<Output = Result<Self::Line, Unconnected>> + Send;
}

/// No connection was made.
#[derive(Debug)]
pub(crate) struct Unconnected {
    pub(crate) why: String,
    /// It may be over by itself.
    pub(crate) is_passing: bool,
}

/// What was asked for was not done.
#[derive(Debug)]
pub(crate) struct Undone {
    pub(crate) fault: Fault,
    /// The connection is of no use any more.
    pub(crate) ends_the_connection: bool,
}

/// What comes unasked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Heard {
    /// There may be something new.
    News,
    /// The connection was lost.
    Lost,
}

/// Notification of what is sent to a queue from now on, once its transaction is committed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum NotifyState {
    /// Something may be sent without one.
    #[default]
    Incomplete,
    /// All is notified, because we asked for it.
    Own,
    /// All is notified because another asks for it, for as long as that lasts.
    Others,
}

/// The table of owners, and what is claimed by them, as a connection reaches it.
pub(crate) trait Registry: Send + 'static {
    /// Whether a session keeps its locks, and all see them. Else a heartbeat alone tells who lives.
    fn has_locks(&self) -> bool;

    /// Takes the lock by that key, unless another session has it.
    fn lock(&mut self, key: i64) -> impl Future<Output = Result<bool, Undone>> + Send;

    /// Begins to listen for news of a queue.
    fn listen(&mut self, queue: &str) -> impl Future<Output = Result<(), Undone>> + Send;

    /// Requests notifications of all that is sent to a queue from now on.
    fn request_notifications(
        &mut self,
        _queue: &str,
    ) -> impl Future<Output = Result<NotifyState, Undone>> + Send {
        std::future::ready(Ok(NotifyState::Incomplete))
    }

    /// Withdraws the request, and notifies those who rely on it.
    fn release_notifications(
        &mut self,
        _queue: &str,
    ) -> impl Future<Output = Result<(), Undone>> + Send {
        std::future::ready(Ok(()))
    }

    /// What is heard; never anything where nothing is told. Loses nothing when it is dropped.
    fn heard(&mut self) -> impl Future<Output = Heard> + Send;

    /// Enters an owner.
    fn enter(&mut self, newcomer: Newcomer<'_>)
    -> impl Future<Output = Result<i64, Undone>> + Send;

    /// Shows that it lives. Returns whether it is among the owners.
    fn beat(&mut self, owner: i64) -> impl Future<Output = Result<bool, Undone>> + Send;

    /// The owners but for that one.
    fn others(
        &mut self,
        owner: Option<i64>,
    ) -> impl Future<Output = Result<Vec<Sight>, Undone>> + Send;

    /// Does what time brings about: keys whose time is over are let go. So many rows at once are not too many
    /// for the server. Returns what is wrong that this can't mend.
    fn tidy_up(&mut self, rows: u32)
    -> impl Future<Output = Result<Option<String>, Undone>> + Send;

    /// Strikes an owner that still stands as it was seen, and frees what it has claimed. Returns whether
    /// it did, and how many rows that were.
    fn take_back(
        &mut self,
        sight: &Sight,
    ) -> impl Future<Output = Result<Option<u64>, Undone>> + Send;

    /// Strikes it, and frees nothing. Returns whether it did.
    fn strike(&mut self, sight: &Sight) -> impl Future<Output = Result<bool, Undone>> + Send;

    /// Owners of claims that are not in the table: their claim was just being made when they were struck,
    /// or someone has edited it.
    fn strays(&mut self) -> impl Future<Output = Result<Vec<i64>, Undone>> + Send;

    /// Frees what such an owner has claimed but for some rows. Returns how many were.
    fn free_strays(
        &mut self,
        owner: i64,
        but: &[i64],
    ) -> impl Future<Output = Result<u64, Undone>> + Send;

    /// Some of the rows that such an owner has claimed, but for others.
    fn stray_rows(
        &mut self,
        owner: i64,
        but: &[i64],
        most: i64,
    ) -> impl Future<Output = Result<Vec<i64>, Undone>> + Send;

    /// Frees those of these rows that such an owner has claimed. Returns how many were.
    fn free_some(
        &mut self,
        owner: i64,
        rows: &[i64],
    ) -> impl Future<Output = Result<u64, Undone>> + Send;

    /// Ends the connection at once, whatever is under way.
    fn hang_up(self);
}

/// An owner as it enters.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Newcomer<'a> {
    pub(crate) host: &'a str,
    pub(crate) pid: i32,
    pub(crate) pool: &'a str,
    pub(crate) lease_ms: i64,
    /// By what its lock is known: a positive number, or a negative one for an owner without, whose
    /// heartbeat alone counts.
    pub(crate) key: i64,
}
