//! Questions of operators to a lane while its worker runs. All of them stay on the pool's thread.

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

/// Messages that are to be cancelled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sought {
    /// Those of this name: made of their numbers, or their message id or correlation id.
    Name(String),
    /// Those of this occurrence in a ledger. What its worker emits has the same ids, and is not meant.
    Occurrence(String),
}

/// Search for messages that are to be cancelled. Every lane that may have one holds a share until it has
/// searched; when the last share is dropped, the caller gets the number found.
#[derive(Debug)]
pub struct Search {
    pool: String,
    sought: Sought,
    found: Cell<usize>,
    /// Name of the message being compared.
    name: RefCell<String>,
    asker: RefCell<Option<oneshot::Sender<usize>>>,
}

impl Search {
    /// Creates a search in that pool.
    pub fn new(pool: String, sought: Sought, asker: oneshot::Sender<usize>) -> Self {
        Self {
            pool,
            sought,
            found: Cell::new(0),
            name: RefCell::default(),
            asker: RefCell::new(Some(asker)),
        }
    }

    /// Returns whether the search matches this message.
    pub fn means(&self, message: &Message) -> bool {
        let mut name = self.name.borrow_mut();
        match &self.sought {
            Sought::Occurrence(id) => message.occurrence.as_deref() == Some(id),
            Sought::Name(id) => {
                message.correlation_id == *id
                    || message.text("message_id") == Some(id)
                    || (message.write_numbers(&mut name) && *name == *id)
            }
        }
    }

    /// Adds to the number of messages found.
    pub fn found(&self, count: usize) {
        self.found.set(self.found.get() + count);
    }

    /// Withholds the number from the caller, since not every lane could be asked.
    pub fn give_up(&self) {
        drop(self.asker.take());
    }
}

impl Drop for Search {
    fn drop(&mut self) {
        let (pool, messages) = (&self.pool, self.found.get());
        let (Sought::Name(id) | Sought::Occurrence(id)) = &self.sought;
        if messages > 0 {
            tracing::info!(pool, id, messages, "cancelling messages on request");
        }
        if let Some(asker) = self.asker.take() {
            // The caller may no longer wait for the answer.
            let _gone = asker.send(self.found.get()).is_err();
        }
    }
}

#[cfg(test)]
mod tests {
    use ganger_queue::delivery::Property;

    use super::*;

    #[test]
    fn a_message_is_sought_by_its_names_or_by_its_occurrence() {
        let message = |occurrence: Option<&str>| Message {
            queue: "q".into(),
            body: bytes::Bytes::new(),
            headers: Vec::new(),
            correlation_id: "c".to_owned(),
            reply_to: None,
            properties: vec![("message_id", Property::Text("id".to_owned()))],
            occurrence: occurrence.map(Into::into),
        };
        // What a worker emits has the ids of the run, but does not belong to it.
        let (run, emit) = (message(Some("id")), message(None));
        let name = |name: &str| Sought::Name(name.to_owned());
        for (sought, expected) in [
            (name("c"), (true, true)),
            (name("id"), (true, true)),
            (name("other"), (false, false)),
            (Sought::Occurrence("id".to_owned()), (true, false)),
            (Sought::Occurrence("c".to_owned()), (false, false)),
        ] {
            let (asker, _) = oneshot::channel();
            let search = Search::new("p".to_owned(), sought, asker);
            let found = (search.means(&run), search.means(&emit));
            assert_eq!(found, expected, "{search:?}");
        }
    }
}
