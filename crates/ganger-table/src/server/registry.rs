//! Requests of a lease to a server: a connection of its own, and the table of owners over that
//! connection.

use super::owner_watch::OwnerSnapshot;
use crate::table::Fault;

/// Address and options for connections.
pub(crate) trait Endpoint: std::fmt::Debug + Send + Sync + 'static {
    /// A connection.
    type Connection: Registry;

    /// Connects, and makes sure that the tables exist.
    fn connect(&self) -> impl Future<Output = Result<Self::Connection, ConnectFailure>> + Send;
}

/// A failed connection attempt.
#[derive(Debug)]
pub(crate) struct ConnectFailure {
    pub(crate) why: String,
    /// True if the cause may be transient.
    pub(crate) is_transient: bool,
}

/// A request that failed.
#[derive(Debug)]
pub(crate) struct RequestFailure {
    pub(crate) fault: Fault,
    /// True if the connection can't be used any more.
    pub(crate) ends_the_connection: bool,
}

/// Event of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerEvent {
    /// There may be something new.
    Notification,
    /// The connection was lost.
    ConnectionLost,
}

/// Coverage of the notifications of messages that are sent from now on; they come after the commit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum NotifyState {
    /// Messages may be sent without one.
    #[default]
    Incomplete,
    /// All messages are notified, because this source requested it.
    Own,
    /// All messages are notified for as long as another source requests it.
    Others,
}

/// The table of owners and their claims, over a connection.
pub(crate) trait Registry: Send + 'static {
    /// Returns whether a session holds locks that all others see. Otherwise only the heartbeat shows
    /// that an owner lives.
    fn has_locks(&self) -> bool;

    /// Takes the lock with that key. Returns false if another session holds it.
    fn lock(&mut self, key: i64) -> impl Future<Output = Result<bool, RequestFailure>> + Send;

    /// Begins to listen for notifications of a queue.
    fn listen(&mut self, queue: &str) -> impl Future<Output = Result<(), RequestFailure>> + Send;

    /// Requests notifications of all messages sent to a queue from now on.
    fn request_notifications(
        &mut self,
        _queue: &str,
    ) -> impl Future<Output = Result<NotifyState, RequestFailure>> + Send {
        std::future::ready(Ok(NotifyState::Incomplete))
    }

    /// Withdraws the request, and informs those that rely on it.
    fn release_notifications(
        &mut self,
        _queue: &str,
    ) -> impl Future<Output = Result<(), RequestFailure>> + Send {
        std::future::ready(Ok(()))
    }

    /// Waits for the next event; never resolves if the database reports none. Cancel-safe.
    fn next_event(&mut self) -> impl Future<Output = ServerEvent> + Send;

    /// Enters an owner. Returns its id.
    fn enter(
        &mut self,
        new_owner: NewOwner<'_>,
    ) -> impl Future<Output = Result<i64, RequestFailure>> + Send;

    /// Writes a heartbeat. Returns whether the owner is in the table.
    fn beat(&mut self, owner: i64) -> impl Future<Output = Result<bool, RequestFailure>> + Send;

    /// Returns all owners except that one.
    fn others(
        &mut self,
        owner: Option<i64>,
    ) -> impl Future<Output = Result<Vec<OwnerSnapshot>, RequestFailure>> + Send;

    /// Does the work that becomes due with time, such as releasing expired unique keys, for at most
    /// `rows` rows at once. Returns a problem that this can't solve.
    fn clean_up(
        &mut self,
        rows: u32,
    ) -> impl Future<Output = Result<Option<String>, RequestFailure>> + Send;

    /// Removes an owner if its row is unchanged since `snapshot`, and releases its claims. Returns the
    /// number of released rows, or none if the owner stays.
    fn take_back(
        &mut self,
        snapshot: &OwnerSnapshot,
    ) -> impl Future<Output = Result<Option<u64>, RequestFailure>> + Send;

    /// Removes an owner if its row is unchanged since `snapshot`; its claims stay.
    fn remove(
        &mut self,
        snapshot: &OwnerSnapshot,
    ) -> impl Future<Output = Result<(), RequestFailure>> + Send;

    /// Returns the owners of claims that are missing in the table: a claim was in progress when they
    /// were removed, or the table was edited by hand.
    fn missing_owners(&mut self) -> impl Future<Output = Result<Vec<i64>, RequestFailure>> + Send;

    /// Returns at most `max` rows that such an owner has claimed, except for the rows `but`.
    fn orphans(
        &mut self,
        owner: i64,
        but: &[i64],
        max: i64,
    ) -> impl Future<Output = Result<Vec<i64>, RequestFailure>> + Send;

    /// Releases those of these rows that such an owner has claimed. Returns their number.
    fn release(
        &mut self,
        owner: i64,
        rows: &[i64],
    ) -> impl Future<Output = Result<u64, RequestFailure>> + Send;

    /// Closes the connection at once, even while a request is running.
    fn abort(self);
}

/// An owner to be entered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewOwner<'a> {
    pub(crate) host: &'a str,
    pub(crate) pid: i32,
    pub(crate) pool: &'a str,
    pub(crate) lease_ms: i64,
    /// Key of its lock: positive, or negative for an owner without a lock, for which only the heartbeat
    /// counts.
    pub(crate) key: i64,
}
