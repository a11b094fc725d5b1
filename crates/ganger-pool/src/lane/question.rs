//! Questions of operators to a lane while its worker runs. All of it stays on the pool's thread.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use tokio::sync::oneshot;

use crate::worker::output::LastLines;
use ganger_queue::delivery::Message;

/// Question or order to a lane.
#[derive(Debug)]
pub enum Question {
    /// Give up the messages that the search matches.
    Cancel(Rc<Search>),
    /// Return the last lines that the worker printed.
    LastLines(oneshot::Sender<LastLines>),
}

/// Search for messages that are to be cancelled. Every lane that may have one holds a share until
/// it has looked; when the last is dropped, the asker learns how many were found.
#[derive(Debug)]
pub struct Search {
    id: String,
    found: Cell<usize>,
    /// Name of the message being looked at.
    name: RefCell<String>,
    asker: RefCell<Option<oneshot::Sender<usize>>>,
}

impl Search {
    /// Creates a search for the messages named `id`: by the name that their numbers make, by their
    /// message id or by their correlation id.
    pub fn new(id: String, asker: oneshot::Sender<usize>) -> Self {
        Self {
            id,
            found: Cell::new(0),
            name: RefCell::default(),
            asker: RefCell::new(Some(asker)),
        }
    }

    /// Returns whether the search matches this message.
    pub fn means(&self, message: &Message) -> bool {
        let mut name = self.name.borrow_mut();
        message.correlation_id == self.id
            || message.text("message_id") == Some(&self.id)
            || (message.write_numbers(&mut name) && *name == self.id)
    }

    /// Adds to the number of messages found.
    pub fn found(&self, count: usize) {
        self.found.set(self.found.get() + count);
    }

    /// Gives the asker no number, since not every lane could be asked.
    pub fn give_up(&self) {
        drop(self.asker.take());
    }
}

impl Drop for Search {
    fn drop(&mut self) {
        if let Some(asker) = self.asker.take() {
            // Whoever asked may have gone.
            let _gone = asker.send(self.found.get()).is_err();
        }
    }
}
