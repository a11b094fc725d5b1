//! A TCP proxy that can be made to misbehave as networks do.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::libc::linger;
use nix::sys::socket::{setsockopt, sockopt};

/// Numbers of bytes that are carried at once: usually, and while they drip.
const CARRIED: usize = 64 * 1024;
const DRIP: usize = 3;
/// Time between drips; nothing waits for it.
const DRIP_EVERY: Duration = Duration::from_micros(200);

/// Treatment of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Flow {
    /// Those to the server are held back.
    pub(crate) up_is_stalled: bool,
    /// Those to the client are held back.
    pub(crate) down_is_stalled: bool,
    /// All go a few at a time.
    pub(crate) drips: bool,
    /// New connections are closed at once.
    pub(crate) refuses: bool,
    /// Replacements of some of the bytes to the server, if they come together; of the same length.
    pub(crate) up_becomes: Option<(&'static [u8], &'static [u8])>,
    /// A connection ends by which these bytes, if they come together, would go to the server.
    pub(crate) up_ends: Option<&'static [u8]>,
}

/// The proxy. Dropped, it closes everything.
pub(crate) struct Proxy {
    shared: Arc<Shared>,
    port: u16,
}

struct Shared {
    /// The server's port.
    to: u16,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    flow: Flow,
    is_closed: bool,
    accepted: usize,
    /// Number of connections whose bytes to the server are held back.
    held_back: usize,
    /// The open connections, both ends of each.
    pairs: Vec<Arc<Pair>>,
}

/// One client's connection.
struct Pair {
    client: TcpStream,
    server: TcpStream,
    is_ended: AtomicBool,
}

#[derive(Clone, Copy)]
enum Direction {
    Up,
    Down,
}

impl Proxy {
    /// In front of a port of this machine.
    pub(crate) fn to(port: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let own = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            to: port,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || accepting.accept(&listener));
        Self { shared, port: own }
    }

    /// Where clients connect.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// How many connections there have been, the refused ones too.
    pub(crate) fn accepted(&self) -> usize {
        self.shared.lock().accepted
    }

    /// How many connections have bytes for the server that are held back: their clients wait for an answer.
    pub(crate) fn held_back(&self) -> usize {
        self.shared.lock().held_back
    }

    /// From now on bytes go like that, what is held back included.
    pub(crate) fn flow(&self, flow: Flow) {
        self.shared.lock().flow = flow;
        self.shared.changed.notify_all();
    }

    /// Ends all connections, as a peer that closes does.
    pub(crate) fn cut(&self) {
        self.shared.end_all(Shutdown::Both, |_| {});
    }

    /// Ends all connections, as a peer that knows nothing of them does.
    pub(crate) fn reset(&self) {
        // Nothing is said to the peers until the last who has the sockets lets go of them.
        self.shared.end_all(Shutdown::Read, reset_on_close);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.lock().is_closed = true;
        self.cut();
        // Wakes the one that accepts. It may be gone already.
        drop(TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)));
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        for client in listener.incoming().map_while(Result::ok) {
            let mut state = self.lock();
            if state.is_closed {
                return;
            }
            state.accepted += 1;
            let refuses = state.flow.refuses;
            drop(state);
            if !refuses {
                self.join(client);
            }
        }
    }

    /// Joins a client to the server, if that is there.
    fn join(self: &Arc<Self>, client: TcpStream) {
        let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, self.to)) else {
            return;
        };
        for end in [&client, &server] {
            end.set_nodelay(true).unwrap();
        }
        let pair = Arc::new(Pair {
            client,
            server,
            is_ended: AtomicBool::new(false),
        });
        self.lock().pairs.push(Arc::clone(&pair));
        for direction in [Direction::Up, Direction::Down] {
            let (shared, pair) = (Arc::clone(self), Arc::clone(&pair));
            std::thread::spawn(move || shared.carry(&pair, direction));
        }
    }

    /// Carries bytes until one side ends; then the other is ended.
    fn carry(&self, pair: &Pair, direction: Direction) {
        let mut bytes = vec![0; CARRIED];
        let (mut from, _) = pair.ends(direction);
        loop {
            let count = from.read(&mut bytes).unwrap_or_default();
            self.replace(&mut bytes[..count], direction);
            if count == 0
                || self.ends(&bytes[..count], direction)
                || self.pass(&bytes[..count], pair, direction).is_err()
            {
                break;
            }
        }
        self.lock()
            .pairs
            .retain(|other| !std::ptr::eq(&raw const **other, pair));
        pair.end(Shutdown::Both, |_| {});
        self.changed.notify_all();
    }

    fn replace(&self, bytes: &mut [u8], direction: Direction) {
        let (Direction::Up, Some((from, to))) = (direction, self.lock().flow.up_becomes) else {
            return;
        };
        let mut at = 0;
        while let Some(found) = bytes[at..]
            .windows(from.len())
            .position(|part| part == from)
        {
            at += found;
            bytes[at..][..to.len()].copy_from_slice(to);
        }
    }

    fn ends(&self, bytes: &[u8], direction: Direction) -> bool {
        let (Direction::Up, Some(end)) = (direction, self.lock().flow.up_ends) else {
            return false;
        };
        bytes.windows(end.len()).any(|part| part == end)
    }

    fn pass(&self, mut bytes: &[u8], pair: &Pair, direction: Direction) -> std::io::Result<()> {
        let (_, mut to) = pair.ends(direction);
        while !bytes.is_empty() {
            let drips = self.wait_for_leave(pair, direction).drips;
            let count = if drips {
                DRIP.min(bytes.len())
            } else {
                bytes.len()
            };
            to.write_all(&bytes[..count])?;
            bytes = &bytes[count..];
            if drips {
                std::thread::park_timeout(DRIP_EVERY);
            }
        }
        Ok(())
    }

    fn wait_for_leave(&self, pair: &Pair, direction: Direction) -> Flow {
        let waits = |state: &mut State| {
            let is_stalled = match direction {
                Direction::Up => state.flow.up_is_stalled,
                Direction::Down => state.flow.down_is_stalled,
            };
            is_stalled && !pair.is_ended.load(Ordering::Relaxed)
        };
        let counted = usize::from(matches!(direction, Direction::Up));
        let mut state = self.lock();
        state.held_back += counted;
        let state = self.changed.wait_while(state, waits);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        state.held_back -= counted;
        state.flow
    }

    /// Ends all connections; those who carry for them notice.
    fn end_all(&self, how: Shutdown, prepare: impl Fn(&TcpStream)) {
        let pairs = std::mem::take(&mut self.lock().pairs);
        for pair in pairs {
            pair.end(how, &prepare);
        }
        self.changed.notify_all();
    }
}

impl Pair {
    /// From where to where.
    fn ends(&self, direction: Direction) -> (&TcpStream, &TcpStream) {
        match direction {
            Direction::Up => (&self.client, &self.server),
            Direction::Down => (&self.server, &self.client),
        }
    }

    /// Ends both ends, if that has not been done yet.
    fn end(&self, how: Shutdown, prepare: impl Fn(&TcpStream)) {
        if self.is_ended.swap(true, Ordering::Relaxed) {
            return;
        }
        for end in [&self.client, &self.server] {
            prepare(end);
            // One that the peer has ended is no news.
            drop(end.shutdown(how));
        }
    }
}

/// Closing it then tells the peer by a reset.
fn reset_on_close(end: &TcpStream) {
    let at_once = linger {
        l_onoff: 1,
        l_linger: 0,
    };
    setsockopt(&end.as_fd(), sockopt::Linger, &at_once).unwrap();
}
