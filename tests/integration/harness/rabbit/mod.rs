//! RabbitMQ for the tests: the nodes that they share, a virtual host for each of them, a client of
//! their own, and a daemon that reads a queue there.

mod client;
mod letter;
mod scene;
mod vhost;

pub(crate) use client::{Client, kind, text};
pub(crate) use letter::Letter;
pub(crate) use scene::{DEAD, RabbitScene, complaint, rabbit_site, refused};
pub(crate) use vhost::Vhost;

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::harness::tls::Authority;
use crate::servers::rabbit::Node;

/// A node that is started by the first test that asks for it and lives as long as the run.
type Place = Mutex<Option<Arc<Node>>>;

static SHARED: Place = Mutex::new(None);
static ROUGH: Place = Mutex::new(None);

/// The node for all tests that leave it in peace. It takes TLS, too, from anybody.
pub(crate) fn shared() -> Arc<Node> {
    occupied(&mut lock(&SHARED), || {
        let authority = Authority::shared();
        Node::start(&authority.server_settings(""))
    })
}

/// The node for tests that kill it, freeze it or raise its alarms, one at a time.
pub(crate) fn rough() -> Rough {
    let mut place = lock(&ROUGH);
    let node = occupied(&mut place, || Node::start(""));
    Rough { place, node }
}

/// Stops those that were started. The last thing in a run.
pub(crate) fn end_nodes() {
    for place in [&SHARED, &ROUGH] {
        lock(place).take();
    }
}

fn lock(place: &'static Place) -> MutexGuard<'static, Option<Arc<Node>>> {
    place.lock().unwrap_or_else(PoisonError::into_inner)
}

fn occupied(place: &mut Option<Arc<Node>>, start: impl FnOnce() -> Node) -> Arc<Node> {
    Arc::clone(place.get_or_insert_with(|| Arc::new(start())))
}

/// The rough node, for as long as one test has it.
pub(crate) struct Rough {
    place: MutexGuard<'static, Option<Arc<Node>>>,
    node: Arc<Node>,
}

impl Rough {
    /// A virtual host there.
    pub(crate) fn vhost(&self) -> Vhost {
        Vhost::at(Arc::clone(&self.node))
    }
}

impl Deref for Rough {
    type Target = Node;

    fn deref(&self) -> &Node {
        &self.node
    }
}

impl Drop for Rough {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Nobody knows how it was left: the next one gets another.
            self.place.take();
        }
    }
}
