//! The memory that all pools of a daemon together hold in messages. Each source draws from one
//! [`Budget`] through a `Share` of its own, beside its own limit, and waits when nothing is left. A
//! source that holds nothing gets its next message in any case, however large: so none starves, and
//! none can wait for itself. While some wait, the budget is divided equally among them: a source
//! that holds more than an equal part takes nothing in until the others have theirs.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Divisor of the memory for the bound if none is configured.
const PARTS_OF_MEMORY: u64 = 4;
/// Bound where the size of the memory is unknown.
const BYTES_MAX_UNKNOWN: u64 = 1 << 30;

/// Number of bytes drawn at a time, so that small messages don't cost a look into the books each.
const QUANTUM: usize = 4 << 10;

/// Budget that all sources of a daemon draw from.
#[derive(Debug, Clone)]
pub struct Budget(Arc<Mutex<Accounts>>);

#[derive(Debug)]
struct Accounts {
    bytes_max: usize,
    drawn: usize,
    parties: BTreeMap<u64, Shareholder>,
    next: u64,
}

#[derive(Debug)]
struct Shareholder {
    pool: String,
    drawn: usize,
    waits: bool,
    bell: Arc<Notify>,
}

/// State of a budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetState {
    /// Bytes that all sources have drawn.
    pub drawn: usize,
    /// Bytes that they may draw, but for one message each.
    pub bytes_max: usize,
    /// Pools that wait for some to come free.
    pub waiting: Vec<String>,
}

impl Budget {
    /// Creates a budget with that bound; without one, with a part of the memory.
    pub fn new(bytes_max: Option<usize>) -> Self {
        Self(Arc::new(Mutex::new(Accounts {
            bytes_max: bytes_max.unwrap_or_else(part_of_memory),
            drawn: 0,
            parties: BTreeMap::new(),
            next: 0,
        })))
    }

    /// Changes the bound. Messages held beyond it stay until they are settled.
    pub fn set(&self, bytes_max: Option<usize>) {
        let mut books = self.books();
        books.bytes_max = bytes_max.unwrap_or_else(part_of_memory);
        books.ring(|_| true);
    }

    /// Returns the current state.
    pub fn standing(&self) -> BudgetState {
        let books = self.books();
        let waiting = books.parties.values().filter(|party| party.waits);
        BudgetState {
            drawn: books.drawn,
            bytes_max: books.bytes_max,
            waiting: waiting.map(|party| party.pool.clone()).collect(),
        }
    }

    /// Returns a share for the source of that pool.
    pub fn share(&self, pool: &str) -> Share {
        let bell = Arc::new(Notify::new());
        let mut books = self.books();
        let id = books.next;
        books.next += 1;
        let party = Shareholder {
            pool: pool.to_owned(),
            drawn: 0,
            waits: false,
            bell: Arc::clone(&bell),
        };
        books.parties.insert(id, party);
        let own = Own {
            budget: self.clone(),
            id,
            bell,
            held: AtomicUsize::new(0),
            promised: AtomicUsize::new(0),
            drawn: AtomicUsize::new(0),
            waits: AtomicBool::new(false),
            denied: AtomicBool::new(false),
        };
        Share {
            own: Arc::new(own),
            bytes_max: usize::MAX,
        }
    }

    fn books(&self) -> MutexGuard<'_, Accounts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Accounts {
    /// Returns the bytes that a party may have drawn in all.
    fn allowed(&self, id: u64) -> usize {
        let others = self.parties.iter().filter(|(other, _)| **other != id);
        let others = others.map(|(_, party)| (party.drawn, party.waits));
        allowed(self.bytes_max, others)
    }

    /// Records the bytes that a party has drawn, and wakes those who wait if they are fewer than
    /// before.
    fn enter(&mut self, id: u64, drawn: usize) {
        let Some(party) = self.parties.get_mut(&id) else {
            return;
        };
        let before = std::mem::replace(&mut party.drawn, drawn);
        self.drawn = self.drawn - before + drawn;
        if drawn < before {
            self.ring(|party| party.waits);
        }
    }

    /// Records whether a party waits. One that begins to wait may have others give up what they
    /// were promised; one that waits no more leaves its part to the rest.
    fn wait(&mut self, id: u64, waits: bool) {
        if let Some(party) = self.parties.get_mut(&id)
            && party.waits != waits
        {
            party.waits = waits;
            self.ring(|party| party.waits || waits);
        }
    }

    fn ring(&self, whom: impl Fn(&Shareholder) -> bool) {
        let parties = self.parties.values().filter(|party| whom(party));
        parties.for_each(|party| party.bell.notify_one());
    }
}

/// Returns the bytes that one party may have drawn in all, by what the others have and whether they
/// wait: all that is left; but while others wait, no more than its part of what those leave who
/// don't.
fn allowed(bytes_max: usize, others: impl Iterator<Item = (usize, bool)>) -> usize {
    let (mut drawn, mut content, mut waiting) = (0_usize, 0_usize, 0_usize);
    for (bytes, waits) in others {
        drawn += bytes;
        if waits {
            waiting += 1;
        } else {
            content += bytes;
        }
    }
    let part = bytes_max.saturating_sub(content) / (waiting + 1);
    bytes_max.saturating_sub(drawn).min(part)
}

/// One source's share of the budget. It belongs to that source's thread; a hold may be dropped on
/// any.
#[derive(Debug)]
pub struct Share {
    own: Arc<Own>,
    /// Maximum that the source may hold by its own limit.
    bytes_max: usize,
}

#[derive(Debug)]
struct Own {
    budget: Budget,
    id: u64,
    bell: Arc<Notify>,
    held: AtomicUsize,
    promised: AtomicUsize,
    /// Bytes drawn according to the books, never less than those held and promised.
    drawn: AtomicUsize,
    waits: AtomicBool,
    denied: AtomicBool,
}

/// Held bytes; dropping this frees them.
#[derive(Debug)]
pub struct Hold {
    own: Arc<Own>,
    bytes: usize,
}

impl Share {
    /// Limits the share to what the source may hold by itself.
    pub fn within(self, bytes_max: usize) -> Self {
        Self { bytes_max, ..self }
    }

    /// Returns the bytes held and promised.
    pub fn used(&self) -> usize {
        self.own.used()
    }

    /// Returns the bytes that may be held and promised in all.
    pub fn most(&self) -> usize {
        let allowed = self.own.budget.books().allowed(self.own.id);
        allowed.min(self.bytes_max)
    }

    /// Returns the bytes that there is still room for. If there is none, the share waits for some.
    pub fn room(&self) -> usize {
        let most = self.most();
        let room = most.saturating_sub(self.used());
        if room == 0 && most < self.bytes_max {
            self.own.deny();
        }
        room
    }

    /// Holds one more message of that size, if there is room for it or nothing else is held. If
    /// there is none, the share waits for it.
    pub fn take(&self, bytes: usize) -> Option<Hold> {
        let used = self.used();
        let wanted = used + bytes;
        if used > 0 && (wanted > self.bytes_max || !self.own.draw(wanted)) {
            return None;
        }
        Some(self.hold(bytes))
    }

    /// Holds a message that has come already.
    pub fn hold(&self, bytes: usize) -> Hold {
        self.own.held.fetch_add(bytes, Ordering::Relaxed);
        self.own.adjust();
        Hold {
            own: Arc::clone(&self.own),
            bytes,
        }
    }

    /// Reserves bytes for messages that may come without being asked for any more, in place of the
    /// last promise.
    pub fn promise(&self, bytes: usize) {
        if self.own.promised.swap(bytes, Ordering::Relaxed) != bytes {
            self.own.adjust();
        }
    }

    /// Notes that more could be used, and waits for it.
    pub fn deny(&self) {
        self.own.deny();
    }

    /// Ends a look. Unless something was denied meanwhile, the share no longer waits.
    pub fn rest(&self) {
        let denied = self.own.denied.swap(false, Ordering::Relaxed);
        if !denied && self.own.waits.swap(false, Ordering::Relaxed) {
            self.own.budget.books().wait(self.own.id, false);
        }
    }

    /// Waits until there may be more room than before.
    pub async fn freed(&self) {
        self.own.bell.notified().await;
    }
}

impl Own {
    fn used(&self) -> usize {
        self.held.load(Ordering::Relaxed) + self.promised.load(Ordering::Relaxed)
    }

    /// Draws up to that many bytes in all, if allowed.
    fn draw(&self, wanted: usize) -> bool {
        if wanted <= self.drawn.load(Ordering::Relaxed) {
            return true;
        }
        let mut books = self.budget.books();
        let allowed = books.allowed(self.id);
        if wanted > allowed {
            drop(books);
            self.deny();
            return false;
        }
        let drawn = wanted.next_multiple_of(QUANTUM).min(allowed);
        books.enter(self.id, drawn);
        self.drawn.store(drawn, Ordering::Relaxed);
        true
    }

    fn deny(&self) {
        self.denied.store(true, Ordering::Relaxed);
        if !self.waits.swap(true, Ordering::Relaxed) {
            self.budget.books().wait(self.id, true);
        }
    }

    /// Adjusts the books to what is used, and little more.
    fn adjust(&self) {
        let drawn = self.drawn.load(Ordering::Relaxed);
        let used = self.used();
        if used <= drawn && drawn - used < 2 * QUANTUM && used > 0 {
            return;
        }
        let mut books = self.budget.books();
        // Once more: another thread may have dropped a hold before.
        let used = self.used();
        // A message without room draws no more than itself.
        let allowed = books.allowed(self.id);
        let drawn = used.next_multiple_of(QUANTUM).min(allowed).max(used);
        books.enter(self.id, drawn);
        self.drawn.store(drawn, Ordering::Relaxed);
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let mut books = self.budget.books();
        books.enter(self.id, 0);
        books.wait(self.id, false);
        books.parties.remove(&self.id);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.own.held.fetch_sub(self.bytes, Ordering::Relaxed);
        self.own.adjust();
    }
}

/// Returns the bound that holds if none is configured.
fn part_of_memory() -> usize {
    let memory = memory().unwrap_or(BYTES_MAX_UNKNOWN * PARTS_OF_MEMORY);
    usize::try_from(memory / PARTS_OF_MEMORY).unwrap_or(usize::MAX)
}

/// Returns the memory that we may use: that of the machine, or the least limit of our cgroup and
/// those around it.
fn memory() -> Option<u64> {
    let read = |path: &Path| fs::read_to_string(path).ok();
    let machine = read(Path::new("/proc/meminfo")).and_then(|text| total(&text));
    let ours = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let cgroups = ours.lines().filter_map(|line| line.strip_prefix("0::/"));
    let limits = cgroups.flat_map(|path| {
        let within = Path::new(path).ancestors();
        within.filter_map(|path| read(&Path::new("/sys/fs/cgroup").join(path).join("memory.max")))
    });
    let limits = limits.filter_map(|text| text.trim().parse().ok());
    limits.chain(machine).min()
}

/// Returns the total memory according to `/proc/meminfo`, in bytes.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests;
