//! The owners of claims. Each daemon has one row and one lock file per database file, shared by all its
//! sources there. Claims of owners that have vanished are released.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use rusqlite::{Connection, Transaction, TransactionBehavior, params};
use tokio::time::Instant;

use super::clock::WallClock;
use super::heartbeats::{HeartbeatRow, HeartbeatWatch};
use super::identity::FileId;
use super::lock::{Lock, LockFile};
use super::rejected::exclude_rejected;
use super::take_back::DeadOwner;
use super::{lock, owners, permissions, take_back};
use crate::rejected_rows::RejectedRows;
use crate::table::Fault;
use ganger_core::host;

/// Number of heartbeats in a lease.
const BEATS_PER_LEASE: u32 = 4;

/// The database files on which one daemon has sources.
#[derive(Debug, Clone, Default)]
pub(crate) struct Owners(Arc<Mutex<Files>>);

/// This daemon as an owner in each file, and the number of its sources there.
type Files = HashMap<File, (Arc<Owner>, usize)>;

/// Identified by its path and, since another file may replace it, by the file itself.
type File = (PathBuf, Option<FileId>);

/// This daemon as an owner of claims in one database file.
#[derive(Debug)]
struct Owner {
    dir: PathBuf,
    lease: Duration,
    writing: FileQueue,
    entry: Mutex<OwnerEntry>,
    heartbeat: Mutex<HeartbeatState>,
    /// Claims of others that the database refuses to release.
    stuck: Mutex<RejectedRows>,
}

/// The turn to write among the sources of one daemon: they wait for each other by the kernel's wake-up,
/// not by SQLite's sleeps.
#[derive(Debug, Clone, Default)]
pub(crate) struct FileQueue(Arc<Mutex<()>>);

/// The turn to write, until it is dropped.
#[derive(Debug)]
pub(crate) struct FileTurn<'a>(#[expect(dead_code, reason = "held")] MutexGuard<'a, ()>);

impl FileQueue {
    /// Waits for the turn, and blocks the thread.
    pub(crate) fn turn(&self) -> FileTurn<'_> {
        FileTurn(locked(&self.0))
    }
}

#[derive(Debug)]
struct OwnerEntry {
    id: i64,
    lock: LockFile,
}

#[derive(Debug, Default)]
struct HeartbeatState {
    beaten: Option<Instant>,
    heartbeats: HeartbeatWatch,
}

/// One source's share in the owner. The last one to leave removes the owner's row and lock file.
#[derive(Debug)]
pub(crate) struct Member {
    owners: Owners,
    database: File,
    owner: Arc<Owner>,
    left: bool,
}

/// Returns the directory of the lock files of a database's owners.
pub(crate) fn directory(database: &Path) -> PathBuf {
    let mut dir = database.as_os_str().to_owned();
    dir.push(".owners");
    dir.into()
}

impl Owners {
    /// Enters this daemon in the table, unless one of its sources already has.
    pub(crate) fn join(
        &self,
        database: File,
        conn: &Connection,
        lease: Duration,
        clock: &WallClock,
    ) -> Result<Member, Fault> {
        let mut files = locked(&self.0);
        let owner = match files.get_mut(&database) {
            Some((owner, members)) => {
                *members += 1;
                Arc::clone(owner)
            }
            None => {
                let owner = Arc::new(Owner::enter(&database.0, conn, lease, clock)?);
                files.insert(database.clone(), (Arc::clone(&owner), 1));
                owner
            }
        };
        Ok(Member {
            owners: self.clone(),
            database,
            owner,
            left: false,
        })
    }
}

impl Owner {
    fn enter(
        database: &Path,
        conn: &Connection,
        lease: Duration,
        clock: &WallClock,
    ) -> Result<Self, Fault> {
        let dir = directory(database);
        let entry = OwnerEntry::take(conn, &dir, lease, clock)?;
        Ok(Self {
            dir,
            lease,
            writing: FileQueue::default(),
            entry: Mutex::new(entry),
            heartbeat: Mutex::default(),
            stuck: Mutex::default(),
        })
    }
}

impl OwnerEntry {
    fn take(
        conn: &Connection,
        dir: &Path,
        lease: Duration,
        clock: &WallClock,
    ) -> Result<Self, Fault> {
        // The directory's name is the database's with a suffix.
        permissions::make_directory(dir, &dir.with_extension(""))?;
        let lock = LockFile::create(dir)?;
        let lease_ms = i64::try_from(lease.as_millis()).unwrap_or(i64::MAX);
        let row = params![
            host::name(),
            std::process::id(),
            clock.now_ms(),
            lease_ms,
            lock.name()
        ];
        let insert = "INSERT INTO owners (host, pid, started_at, lease_ms, lock_file) \
                      VALUES (?1, ?2, ?3, ?4, ?5) RETURNING id";
        match conn.query_row(insert, row, |row| row.get(0)) {
            Ok(id) => Ok(Self { id, lock }),
            Err(error) => {
                lock.remove();
                Err(error.into())
            }
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The guarded values are never left half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Member {
    /// Returns the id under which this daemon claims rows.
    pub(crate) fn id(&self) -> i64 {
        locked(&self.owner.entry).id
    }

    /// Returns the directory of the lock files.
    pub(crate) fn directory(&self) -> &Path {
        &self.owner.dir
    }

    /// Returns the owners that it belongs to.
    pub(crate) fn owners(&self) -> Owners {
        self.owners.clone()
    }

    /// Returns the maximum time without a heartbeat.
    pub(crate) fn lease(&self) -> Duration {
        self.owner.lease
    }

    /// Returns the time from one heartbeat to the next.
    pub(crate) fn beat_interval(&self) -> Duration {
        self.owner.lease / BEATS_PER_LEASE
    }

    /// Returns the turn to write, shared by the daemon's sources.
    pub(crate) fn writing(&self) -> FileQueue {
        self.owner.writing.clone()
    }

    /// Returns whether this daemon's row still exists. Without it, a claim would have an owner that is
    /// not watched.
    pub(crate) fn is_entered(&self, conn: &Connection) -> rusqlite::Result<bool> {
        owners::exists(conn, self.id())
    }

    /// Enters this daemon again, under a new id, after others have taken it for dead.
    pub(crate) fn enter_again(
        &self,
        _turn: &FileTurn<'_>,
        conn: &Connection,
        clock: &WallClock,
    ) -> Result<(), Fault> {
        let mut entry = locked(&self.owner.entry);
        if owners::exists(conn, entry.id)? {
            return Ok(());
        }
        let again = OwnerEntry::take(conn, &self.owner.dir, self.owner.lease, clock)?;
        tracing::warn!(
            id = entry.id,
            new_id = again.id,
            "other daemons took this one for dead and took over its messages; it continues under a new id"
        );
        std::mem::replace(&mut *entry, again).lock.remove();
        Ok(())
    }

    /// Releases the claims of owners whose locks are free. Returns whether there were any.
    pub(crate) fn take_back_from_dead_owners(&self, conn: &mut Connection) -> Result<bool, Fault> {
        // Expired first: an owner with nothing left but stuck rows is not found below.
        locked(&self.owner.stuck).expire();
        let mut dead = self.unlocked(conn)?;
        dead.extend(take_back::ownerless(conn, &locked(&self.owner.stuck))?);
        self.take_back(conn, &dead)
    }

    /// Returns the owners whose locks are free.
    fn unlocked(&self, conn: &Connection) -> rusqlite::Result<Vec<DeadOwner>> {
        let me = self.id();
        let others = owners::lock_files(conn)?
            .into_iter()
            .filter(|(id, _)| *id != me);
        let free = others
            .filter(|(_, name)| matches!(lock::look(&self.owner.dir.join(name)), Lock::Free(_)));
        Ok(free.map(|(id, _)| DeadOwner::unlocked(id)).collect())
    }

    /// Removes the lock files of processes that died before they were entered in the table.
    pub(crate) fn sweep(&self, conn: &Connection) -> Result<(), Fault> {
        let known: Vec<_> = owners::lock_files(conn)?
            .into_iter()
            .map(|(_, name)| name)
            .collect();
        Ok(lock::sweep(&self.owner.dir, &known)?)
    }

    /// Writes the daemon's heartbeat, if it is due and no other source is doing so, and releases the
    /// claims of owners whose heartbeat has stopped. Returns whether there were any.
    pub(crate) fn beat(&self, conn: &mut Connection, clock: &WallClock) -> Result<bool, Fault> {
        let mut heartbeat = match self.owner.heartbeat.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(false),
        };
        let now = Instant::now();
        let since = heartbeat.beaten.map(|beaten| now - beaten);
        if since.is_some_and(|since| since < self.beat_interval() / 2) {
            return Ok(false);
        }
        let others = self.beat_once(conn, clock)?;
        heartbeat.beaten = Some(now);
        let still = heartbeat
            .heartbeats
            .observe(&others, since.unwrap_or_default());
        let lost: Vec<_> = still.into_iter().map(DeadOwner::silent).collect();
        self.take_back(conn, &lost)
    }

    fn beat_once(
        &self,
        conn: &mut Connection,
        clock: &WallClock,
    ) -> Result<Vec<HeartbeatRow>, Fault> {
        let turn = self.owner.writing.turn();
        let tx = begin(&turn, conn)?;
        let entered = self.write_heartbeat(&tx)?;
        let others = owners::beats(&tx, self.id())?;
        tx.commit()?;
        if !entered {
            self.enter_again(&turn, conn, clock)?;
        }
        Ok(others)
    }

    /// Increments the heartbeat. Returns whether this daemon's row still exists.
    pub(crate) fn write_heartbeat(&self, tx: &Connection) -> rusqlite::Result<bool> {
        let beat = "UPDATE owners SET heartbeat = heartbeat + 1 WHERE id = ?1";
        Ok(tx.prepare_cached(beat)?.execute([self.id()])? > 0)
    }

    fn take_back(&self, conn: &mut Connection, lost: &[DeadOwner]) -> Result<bool, Fault> {
        if lost.is_empty() {
            return Ok(false);
        }
        let mut stuck = locked(&self.owner.stuck);
        loop {
            let turn = self.owner.writing.turn();
            let tx = begin(&turn, conn)?;
            match take_back::from(&tx, lost, &stuck) {
                Ok(taken) => {
                    tx.commit()?;
                    for one in taken {
                        one.log();
                        if let Some(file) = one.file {
                            lock::discard(&self.owner.dir.join(file));
                        }
                    }
                    return Ok(true);
                }
                Err(refused) => exclude_rejected(&mut stuck, &refused, "taken back")?,
            }
        }
    }

    /// Removes this source's share, and with the last one the owner's row and lock file. Rows still
    /// claimed then could not be settled; they are released with their attempt charged, so that they
    /// can't be redelivered forever.
    pub(crate) fn leave(mut self, conn: &mut Connection) -> Result<(), Fault> {
        let owners = self.owners.clone();
        let mut files = locked(&owners.0);
        if matches!(files.get(&self.database), Some((_, 1))) {
            self.remove_own_row(conn)?;
        }
        self.left = true;
        count_down(&mut files, &self.database);
        Ok(())
    }

    fn remove_own_row(&self, conn: &mut Connection) -> Result<(), Fault> {
        let turn = self.owner.writing.turn();
        let tx = begin(&turn, conn)?;
        let release = "UPDATE consumer_messages \
                       SET owner = NULL, claim = NULL, claim_alone = 0 WHERE owner = ?1";
        tx.execute(release, [self.id()])?;
        tx.execute("DELETE FROM owners WHERE id = ?1", [self.id()])?;
        tx.commit()?;
        lock::discard(&self.owner.dir.join(locked(&self.owner.entry).lock.name()));
        Ok(())
    }
}

/// Begins a transaction that writes, within the turn.
pub(crate) fn begin<'a>(
    _turn: &FileTurn<'_>,
    conn: &'a mut Connection,
) -> rusqlite::Result<Transaction<'a>> {
    conn.transaction_with_behavior(TransactionBehavior::Immediate)
}

impl Drop for Member {
    fn drop(&mut self) {
        if !self.left {
            count_down(&mut locked(&self.owners.0), &self.database);
        }
    }
}

fn count_down(files: &mut Files, database: &File) {
    if let Some((_, members)) = files.get_mut(database) {
        *members -= 1;
        if *members == 0 {
            files.remove(database);
        }
    }
}
